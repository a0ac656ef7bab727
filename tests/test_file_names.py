# SPDX-License-Identifier: MIT
"""A file's name is bytes: whatever reads or writes a file takes one that is not UTF-8, and names it as Python does."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

import sampleblk_lab as lab
from sampleblk_lab import _core, crash
from sampleblk_lab.cli.main import main
from sampleblk_lab.errors import FormatError, InputError

DATA = Path(__file__).parent / "data"
NAME = os.fsdecode(b"caf\xe9 \xff")  # Latin-1, as old archives have it


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / NAME
    made.mkdir()
    return made


def _copy(folder: Path, source: str) -> Path:
    return Path(shutil.copy(DATA / source, folder / f"{NAME}{Path(source).suffix}"))


def test_a_recording_and_what_is_exported_of_it(folder: Path) -> None:
    run = lab.open_run(_copy(folder, "trace/6.1-io.dat"))
    rows = len(run.events("block:block_rq_issue"))
    assert rows > 0
    assert len(lab.open_run(run.export_trace_dat(folder / f"{NAME}.part.dat")).events("block:block_rq_issue")) == rows
    for made in (run.export_perfetto(folder / f"{NAME}.pb"), run.export_chrome(folder / f"{NAME}.json")):
        assert made.stat().st_size > 0


def test_a_profile_and_what_is_exported_of_it(folder: Path) -> None:
    profile = lab.open_profile(_copy(folder, "profile/6.1-ours.data"))
    assert len(profile.samples()) > 0
    assert profile.export_perfetto(folder / f"{NAME}.pb").stat().st_size > 0
    stacks = profile.stacks()
    assert json.loads(stacks.export_speedscope(folder / f"{NAME}.json").read_text())["profiles"]
    picture = profile.flamegraph(title=str(folder)).save(folder / f"{NAME}.svg")
    assert r"caf\xe9 \xff" in picture.read_text()


def test_the_page_of_a_run(folder: Path) -> None:
    shutil.copy(DATA / "trace/6.1-io.dat", folder / "trace.dat")
    assert main(["report", str(folder)]) == 0
    assert r"<h1>caf" in (folder / "report.html").read_text()


@pytest.mark.parametrize(
    ("read", "source"),
    [
        (lab.read_strace, "lktm/strace_fio_fs_seq_write_sync_001.log"),
        (lab.read_funcgraph, "funcgraph/6.1-default.txt"),
    ],
)
def test_another_tools_text(folder: Path, read, source: str) -> None:
    assert len(read(_copy(folder, source)).table()) > 0


def test_a_job_of_such_a_file_with_its_logs(folder: Path) -> None:
    job = lab.Job(NAME, filename=str(folder / NAME), rw="write", size="64k", write_lat_log=str(folder / f"{NAME}log"))
    result = job.run()
    assert list(result.summary()["ios"]) == [16]
    assert (folder / NAME).stat().st_size == 64 << 10
    logs = sorted(path.name for path in folder.iterdir() if path.suffix == ".log")
    assert logs == [f"{NAME}log_{kind}.1.log" for kind in ("clat", "lat", "slat")]


def test_a_job_file(folder: Path) -> None:
    written = folder / f"{NAME}.fio"
    written.write_bytes(b"[one]\nfilename=" + os.fsencode(folder / NAME) + b"\nrw=write\nsize=16k\n")
    lab.JobFile(written).run()
    assert (folder / NAME).stat().st_size == 16 << 10
    written.write_text("[one]\nrw=sideways\n")
    with pytest.raises(InputError, match=r"caf\\xe9 \\xff\.fio:2: .*sideways"):
        lab.JobFile(written)


def test_a_crash_log(folder: Path) -> None:
    log = folder / NAME
    log.write_bytes(b"")
    with pytest.raises(FormatError, match=r"caf\\xe9 \\xff"):
        crash.Log(log, base="zeros")


def test_an_error_names_the_file_as_it_can_be_opened(folder: Path) -> None:
    for opens in (lab.JobFile, lab.open_profile, _core.TraceFile):
        with pytest.raises(FileNotFoundError) as caught:
            opens(str(folder / "absent"))
        assert Path(caught.value.filename) == folder / "absent"
