# SPDX-License-Identifier: MIT
"""Version 7 files: what version 6 says, compressed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import sampleblk_lab as lab
from sampleblk_lab._native import core

sys.path.insert(0, str(Path(__file__).parent))
import trace_cmd
import version7

DATA = Path(__file__).parents[1] / "data" / "trace"
NAMES = ("5.10-io", "6.12-fsync", "7.2-kprobes")


def rows(path: Path) -> dict[str, list[dict[str, object]]]:
    return {name: list(table.rows()) for name, table in lab.open_run(path).tables().items()}


@pytest.mark.skipif(not trace_cmd.AVAILABLE, reason="needs trace-cmd: apt-get install trace-cmd")
@pytest.mark.parametrize("compression", ["zstd", "none"])
@pytest.mark.parametrize("name", NAMES)
def test_what_trace_cmd_converts_stays_the_same(tmp_path, name, compression):
    path = tmp_path / "v7.dat"
    source = DATA / f"{name}.dat"
    arguments = ["-i", str(source), "-o", str(path), "--file-version", "7", "--compression", compression]
    subprocess.run(["trace-cmd", "convert", *arguments], check=True, capture_output=True)
    file = core.TraceFile(str(path))
    assert file.version == 7
    assert trace_cmd.differences(file, str(path)) == []
    assert rows(path) == rows(source)


@pytest.mark.parametrize("name", NAMES)
def test_zlib(tmp_path, name):
    version7.convert(DATA / f"{name}.dat", tmp_path / "v7.dat")
    assert lab.open_run(tmp_path / "v7.dat").file.version == 7
    assert rows(tmp_path / "v7.dat") == rows(DATA / f"{name}.dat")


def test_a_window_of_a_compressed_file(tmp_path):
    version7.convert(DATA / "6.12-io.dat", tmp_path / "v7.dat")
    whole = lab.open_run(DATA / "6.12-io.dat").events("sched_switch")["time"].codes
    start, stop = int(whole[100]), int(whole[300])
    window = lab.open_run(tmp_path / "v7.dat").events("sched_switch", start=start, stop=stop, cpus=[0, 1])
    assert window["time"].codes.tolist() == whole[(whole >= start) & (whole < stop)].tolist()


def test_what_is_exported_of_chunks_that_end_within_a_page_is_the_same(tmp_path):
    version7.convert(DATA / "6.12-io.dat", tmp_path / "v7.dat", pages_a_chunk=1, cut_pages=True)
    assert rows(tmp_path / "v7.dat") == rows(DATA / "6.12-io.dat")
    lab.open_run(tmp_path / "v7.dat").export_trace_dat(tmp_path / "v6.dat")
    assert rows(tmp_path / "v6.dat") == rows(DATA / "6.12-io.dat")


def test_a_chunk_that_does_not_unpack_is_an_error_or_counted(tmp_path):
    path = tmp_path / "v7.dat"
    version7.convert(DATA / "6.12-io.dat", path, pages_a_chunk=2, spoil_chunk=True)
    with pytest.raises(lab.FormatError, match=r"8192 bytes out of [0-9]+ compressed ones") as caught:
        lab.open_run(path).counts()
    kept = lab.open_run(path, errors="skip").counts()
    everything = int(lab.open_run(DATA / "6.12-io.dat").counts().metadata["events"])
    assert 0 < int(kept.metadata["events"]) < everything
    assert ", 2 pages, " in kept.metadata["unread"]
    assert f"at byte {caught.value.offset}:" in kept.metadata["unread_because"]
