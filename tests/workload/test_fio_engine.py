# SPDX-License-Identifier: MIT
"""engine="fio": the same job by the real fio, and numbers of the same meaning."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from beside_fio import needs_fio

import sampleblk_lab as lab
from sampleblk_lab import trust
from sampleblk_lab.workload import checks
from sampleblk_lab.workload.result import with_doubts

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = needs_fio

MIXED = {"rw": "randrw", "rwmixread": 70, "bs": "4k", "size": "4M", "io_size": "8M", "norandommap": 1}


def test_both_move_the_same_amount(tmp_path: Path) -> None:
    mine = lab.Job(**MIXED, filename=tmp_path / "f").run(progress=False)
    theirs = lab.Job(**MIXED, filename=tmp_path / "f", engine="fio").run(progress=False)
    assert isinstance(theirs, lab.FioResult)
    for name in ("ios", "bytes"):
        assert sum(mine.summary()[name].codes) == sum(theirs.summary()[name].codes)
    ios = [
        dict(zip(one.summary()["direction"].values, one.summary()["ios"].codes, strict=True)) for one in (mine, theirs)
    ]
    assert ios[0].keys() == ios[1].keys() == {"read", "write"}
    assert abs(int(ios[0]["read"]) - int(ios[1]["read"])) < 2048 * 0.1
    assert "IO depths" in str(theirs)


@pytest.mark.parametrize("engine", ["psync", "libaio"])
@pytest.mark.parametrize("off", ["gtod_reduce", "disable_clat", "disable_lat", "disable_slat", "disable_bw", "stats"])
def test_what_a_job_does_not_measure_has_no_log_and_no_figure(tmp_path: Path, engine: str, off: str) -> None:
    text = f"[job]\nioengine={engine}\nrw=randwrite\nfilename={tmp_path}/f\nsize=64k\n{off}={int(off != 'stats')}\n"
    logs: list[dict[str, int]] = []
    figures = []
    for who in ("mine", "theirs"):
        folder = tmp_path / who
        folder.mkdir()
        keys = "".join(f"write_{kind}_log={folder}/log\n" for kind in ("lat", "bw", "iops"))
        jobs = lab.JobFile.parse(text + keys)
        result = jobs.run(progress=False) if who == "mine" else jobs.run_by_fio()
        logs.append({path.name: len(path.read_text().splitlines()) for path in folder.iterdir()})
        measured = [job["write"] for job in result.json()["jobs"]] if off != "stats" else []
        figures.append([[stats[f"{name}_ns"]["max"] > 0 for name in ("slat", "clat", "lat")] for stats in measured])
        clat = result.summary()["clat_mean"].values if off != "stats" else np.zeros(0)
        assert np.isnan(clat).all() == (off in ("gtod_reduce", "disable_clat", "stats"))
    if off == "gtod_reduce":  # fio counts no I/Os for the log then, because it takes no time of them
        assert [counts.pop("log_iops.1.log") for counts in logs] == [16, 0]
    assert logs[0] == logs[1]
    assert figures[0] == figures[1]


def test_what_is_in_doubt_stands_below_both_reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "_CLOCK_NS", -(10**12))  # no two clocks are as close
    for engine in (None, "fio"):
        result = lab.Job(rw="write", size="64k", engine=engine, filename=tmp_path / "f").run(progress=False)
        assert [check.verdict for check in result.checks] == ["jumped", "jumped"]
        assert str(result) == result.text() + "".join(f"\nin doubt: {check}\n" for check in result.checks)


def test_a_clock_that_drifted_is_told_once() -> None:
    text = "w: IOPS=1\n\nwarning: job a: the clock drifted by 2500 ppm while it ran; its latencies are off by as much\n"
    drift = [trust.Check("clock", "job a", "+2500 ppm", checks.DRIFTED, is_doubt=True)]
    lost = [trust.Check("lost", "events", "3", "incomplete", is_doubt=True)]
    assert with_doubts(text, drift + lost) == text + "\nin doubt: events: 3: incomplete\n"
    assert with_doubts("fio's", drift) == "fio's\nin doubt: job a: +2500 ppm: drifted\n"


@pytest.mark.parametrize("engine", [None, "fio"])
def test_a_result_that_was_edited_is_in_doubt(engine: str | None, tmp_path: Path) -> None:
    job = lab.Job(rw="randrw", bs="4k", size="2M", thinktime="50us", engine=engine, filename=tmp_path / "f")
    told = json.dumps(job.run(progress=False).json(**({} if engine else {"bins": True})))
    assert lab.FioResult(json.loads(told), "").checks == []

    def of(edit: Callable[[dict[str, Any]], object]) -> list[str]:
        value = json.loads(told)
        edit(value["jobs"][0]["read"])
        return [f"{check.what}: {check.verdict}" for check in lab.FioResult(value, "").checks if check.is_doubt]

    name = json.loads(told)["jobs"][0]["jobname"]
    for edit in (
        lambda read: read.update(iops=2 * read["iops"]),
        lambda read: read.update(total_ios=read["total_ios"] // 2),
        lambda read: read.update(bw_bytes=read["bw_bytes"] // 2),
        lambda read: read["clat_ns"]["bins"].popitem(),
        lambda read: read["clat_ns"].update(mean=read["clat_ns"]["mean"] * 1000),
    ):
        assert set(of(edit)) == {f"read of job {name}: altered"}


def test_percentiles_are_fios_within_the_resolution_of_its_histogram(tmp_path: Path) -> None:
    """Our arithmetic on fio's own bins gives what fio says."""
    result = lab.Job(rw="randread", size="8M", filename=tmp_path / "f", engine="fio").run(progress=False)
    said = result.json()["jobs"][0]["read"]["clat_ns"]["percentile"]
    mine = result.percentiles([float(percent) for percent in said], direction="read")
    assert len(mine) == 17
    for value, theirs in zip(mine, said.values(), strict=True):
        assert abs(value - theirs) <= theirs / 64
    assert sum(result.histogram()["count"].codes) >= 2048


def test_our_bins_give_our_percentiles_to_fios_converter(tmp_path: Path) -> None:
    """fio_jsonplus_clat2csv, of Debian's fio package, reads our JSON+ and counts every I/O."""
    result = lab.Job(rw="write", size="4M", filename=tmp_path / "f").run(progress=False)
    source = result.save(tmp_path / "result.json")
    subprocess.run(
        ["fio_jsonplus_clat2csv", str(source), str(tmp_path / "out.csv")], check=True, capture_output=True, timeout=60
    )
    (csv,) = tmp_path.glob("out*.csv")
    header, *lines = ([word.strip() for word in line.split(",")] for line in csv.read_text().splitlines())
    count, cumulative, share = (header.index(f"write_clat_ns_{name}") for name in ("count", "cumulative", "percentile"))
    assert sum(int(line[count]) for line in lines if line[count]) == 1024
    assert int(lines[-1][cumulative]) == 1024
    # The median is where the share passes one half.
    median = next(int(line[0]) for line in lines if line[share] and float(line[share]) >= 0.5)
    assert abs(median - result.percentiles([50])[0]) <= median / 64


def test_a_job_file_runs_by_fio_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DIR", str(tmp_path))
    path = tmp_path / "two.fio"
    path.write_text("[global]\ndirectory=${DIR}\nsize=64k\n[a]\nrw=write\n[b]\nstonewall\nrw=read\nnumjobs=2\n")
    result = lab.JobFile(path, engine="fio").run(progress=False)
    assert [job["jobname"] for job in result.json()["jobs"]] == ["a", "b", "b"]
    assert result.summary()["ios"].codes.tolist() == [16, 16, 16]


def test_a_job_has_the_globals_above_it(tmp_path: Path) -> None:
    path = tmp_path / "two.fio"
    path.write_text(f"[global]\ndirectory={tmp_path}\nsize=64k\nrw=write\n[a]\n[global]\nbs=8k\n[b]\nnumjobs=2\n")
    for who in (None, "fio"):
        result = lab.JobFile(path, engine=who).run(progress=False)
        assert result.summary()["ios"].codes.tolist() == [16, 8, 8]


@pytest.mark.parametrize("name", ["a#b", "a;b", "${a}", "a\nb"])
def test_what_a_job_file_cannot_say_does_not_go_to_another_file(name: str, tmp_path: Path) -> None:
    keys = {"rw": "write", "size": "4k", "filename": tmp_path / name}
    lab.Job(**keys).run(progress=False)
    with pytest.raises(lab.InputError, match="cannot be written in a job file"):
        lab.Job(**keys, engine="fio").run()
    with pytest.raises(lab.InputError, match="cannot be written in a job file"):
        lab.Job(name, rw="write", size="4k", filename=tmp_path / "f").to_job_file()
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_what_fio_cannot_do_is_said(tmp_path: Path) -> None:
    with pytest.raises(lab.UnsupportedError, match="io_log_entries"):
        lab.Job(rw="read", size="4k", io_log_entries=5, filename=tmp_path / "f", engine="fio").run()
    with pytest.raises(lab.UnsupportedError, match=r"prepare\(\)"):
        lab.Job(rw="read", size="4k", filename=tmp_path / "f", engine="fio").prepare()


def test_a_failed_job_raises_with_its_result(tmp_path: Path) -> None:
    with pytest.raises(lab.JobError) as caught:
        lab.Job(rw="read", size="4k", filename=tmp_path, engine="fio").run()
    assert caught.value.errno != 0


def test_directions_together_are_a_row_of_their_own(tmp_path: Path) -> None:
    job = {**MIXED, "filename": tmp_path / "f", "unified_rw_reporting": "mixed"}
    theirs = lab.Job(**job, engine="fio").run(progress=False)
    mine = lab.FioResult(lab.Job(**job).run(progress=False).json(bins=True), "")
    for result in (theirs, mine):
        assert list(zip(result.summary()["direction"], result.summary()["ios"], strict=True)) == [("mixed", 2048)]
        assert sum(row["count"] for row in result.histogram().rows() if row["kind"] == "clat") == 2048
        assert result.percentiles([50], direction="mixed") == result.percentiles([50])
    job["unified_rw_reporting"] = "both"
    result = lab.Job(**job, engine="fio").run(progress=False)
    assert sorted(result.summary()["direction"]) == ["read", "write"]
    assert sum(result.summary()["ios"].codes) == 2048


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_job_that_a_signal_ended_is_no_job_that_ran(number: signal.Signals, tmp_path: Path) -> None:
    """fio's JSON has no error of it."""
    path = tmp_path / "f"

    def end_it() -> None:
        while not (path.exists() and users_of(path)):
            time.sleep(0.02)
        for user in users_of(path):
            os.kill(int(user), number)

    with ThreadPoolExecutor(1) as pool:
        ending = pool.submit(end_it)
        short = {"rw": "write", "size": "64k", "runtime": 30, "time_based": 1, "rate_iops": 100}
        result = lab.Job("slow", **short, filename=path, engine="fio").run(check=False)
        ending.result()
    if number == signal.SIGKILL:
        assert result.errors == [("slow", errno.EINTR, "killed by signal 9")]
    else:  # fio ends all jobs after the I/O that they are in
        assert (result.errors, result.stop_reason) == ([], "signal 15")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_fio_ends_with_who_runs_it(number: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a signal to that process alone: fio's jobs are in sessions of their own."""
    code = (
        "import sys, sampleblk_lab as lab\n"
        "keys = {'rw': 'write', 'size': '1M', 'runtime': 600, 'time_based': 1, 'rate_iops': 1000}\n"
        "result = lab.Job(**keys, filename=sys.argv[1], engine='fio').run()\n"
        "print(result.stop_reason, result.summary()['ios'].codes.sum() > 0)\n"
    )
    path = tmp_path / "f"
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    monkeypatch.setattr(tempfile, "tempdir", None)
    with subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True) as child:
        while not (path.exists() and users_of(path)):
            time.sleep(0.02)
        time.sleep(0.3)
        child.send_signal(number)
        try:
            said, _ = child.communicate(timeout=30)
        finally:
            child.kill()
    assert said == ("interrupted True\n" if number == signal.SIGINT else "")
    deadline = time.monotonic() + 10
    while users_of(path):
        assert time.monotonic() < deadline, "fio goes on"
        time.sleep(0.02)
    # What a killed one left goes with the next.
    lab.Job(rw="read", size="4k", filename=path, engine="fio").run()
    assert list(scratch.iterdir()) == []


def users_of(path: Path) -> list[str]:
    """The processes that have a file open."""
    found = []
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):
            if link.readlink() == path:
                found.append(link.parts[2])
    return found


def test_without_fio_the_remedy_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sampleblk_lab.workload.fio.find_program", lambda _name: None)
    with pytest.raises(lab.UnsupportedError, match="apt-get install fio"):
        lab.Job(rw="read", size="4k", filename=tmp_path / "f", engine="fio").run()
