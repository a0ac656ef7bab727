# SPDX-License-Identifier: MIT
"""The article's job file: the system calls that fio makes, in its order, and exactly as many."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest
from beside_fio import fios, needs_fio, needs_strace, on_files, ours

import sampleblk_lab as lab

ARTICLE = Path(__file__).parent.parent / "data" / "jobs" / "fs_seq_write_sync_001"


def job_file(directory: Path, loops: int) -> Path:
    """The article's file, writing below `directory`."""
    text = ARTICLE.read_text().replace("/mnt/test", str(directory / "data" / "test"))
    (directory / "data").mkdir(exist_ok=True)
    path = directory / "job.fio"
    path.write_text(text.replace("loops=1000000", f"loops={loops}"))
    return path


@needs_strace
def test_job_phase_has_exactly_the_articles_calls(tmp_path: Path) -> None:
    calls = on_files(ours(job_file(tmp_path, 20), tmp_path / "ours.log"), tmp_path / "data")
    # The layout is the parent's; the two jobs come after it.
    (_layout, *jobs) = calls.values()
    assert len(jobs) == 2
    counts = Counter(line.split()[0] for job in jobs for line in job)
    assert counts == {"write": 20480, "fadvise64": 80, "open": 40, "close": 40}
    one_loop = [
        "open test O_RDWR|O_CREAT",
        "fadvise64 test 0, 2097152, POSIX_FADV_DONTNEED = 0",
        "fadvise64 test 0, 2097152, POSIX_FADV_SEQUENTIAL = 0",
        *["write test data, 4096 = 4096"] * 512,
        "close test = 0",
    ]
    assert jobs[0] == one_loop * 20
    assert jobs[1] == one_loop * 20


@needs_strace
@needs_fio
def test_every_call_is_fios_call(tmp_path: Path) -> None:
    path = job_file(tmp_path, 3)
    mine = on_files(ours(path, tmp_path / "ours.log"), tmp_path / "data")
    (tmp_path / "data" / "test").unlink()
    theirs = on_files(fios(path, tmp_path / "fio.log"), tmp_path / "data")
    (my_layout, *my_jobs) = mine.values()
    (their_layout, *their_jobs) = theirs.values()
    # The unlink before the layout finds nothing in either.
    assert my_layout == their_layout
    assert my_layout[1:] == [
        "open test O_WRONLY|O_CREAT",
        "fallocate test 0, 0, 2097152 = 0",
        "fadvise64 test 0, 2097152, POSIX_FADV_DONTNEED = 0",
        "close test = 0",
    ]

    # Two fio jobs that open one file at the same time may race for its lock; one then opens and closes it twice.
    def once(lines: list[str]) -> list[str]:
        return [
            line
            for i, line in enumerate(lines)
            if i == 0 or not line.startswith(("open", "close")) or lines[i - 1] != line
        ]

    assert len(their_jobs) == 2
    for theirs_one in their_jobs:
        assert once(theirs_one) == my_jobs[0]
    assert my_jobs[0] == my_jobs[1]


def test_reports_what_ran(tmp_path: Path) -> None:
    job = lab.JobFile(ARTICLE, filename=tmp_path / "test", loops=20)
    assert job.names == ["job1", "job2"]
    result = job.run(progress=False)
    text = str(result)
    assert "job1: (groupid=0, jobs=1): err= 0: pid=" in text
    assert "issued rwts: total=0,10240,0,0 short=0,0,0,0" in text
    assert "  WRITE: bw=" in text
    for one in result.json()["jobs"]:
        assert one["write"]["io_bytes"] == 20 * 2 * 2**20
        assert one["write"]["clat_ns"]["N"] == 10240
        assert one["read"]["total_ios"] == 0
    bins = result.json(bins=True)["jobs"][0]["write"]["clat_ns"]["bins"]
    assert sum(bins.values()) == 10240
    assert (tmp_path / "test").stat().st_size == 2 * 2**20


@needs_fio
def test_json_has_every_key_of_fios(tmp_path: Path) -> None:
    import json
    import subprocess

    path = job_file(tmp_path, 2)
    done = subprocess.run(
        ["fio", "--output-format=json", str(path)], check=True, capture_output=True, text=True, timeout=60
    )
    theirs = json.loads(done.stdout)
    mine = lab.JobFile(path).run(progress=False).json()

    def missing(expected: object, found: object, where: str) -> list[str]:
        if isinstance(expected, dict) and isinstance(found, dict):
            gone = [f"{where}/{key}" for key in expected if key not in found]
            for key in expected.keys() & found.keys():
                gone += missing(expected[key], found[key], f"{where}/{key}")
            return gone
        if isinstance(expected, list) and isinstance(found, list) and expected and found:
            return missing(expected[0], found[0], f"{where}/0")
        return [] if type(expected) is type(found) else [f"{where}: {expected!r} is not {found!r}"]

    # What fio has since 3.33, whose form ours is.
    for newer, holders in {"job_start": theirs["jobs"], "read_sectors": theirs.get("disk_util", [])}.items():
        for holder in holders:
            holder.pop(newer, None)
            holder.pop(newer.replace("read", "write"), None)
    assert missing(theirs, mine, "") == []
    assert list(theirs["jobs"][0]) == list(mine["jobs"][0])[: len(theirs["jobs"][0])]


def test_a_misspelt_key_names_file_line_and_the_nearest(tmp_path: Path) -> None:
    path = tmp_path / "bad.fio"
    path.write_text("[global]\nrw=write ; fine\n\n[job1]\nblokcsize=4k\n")
    with pytest.raises(lab.InputError, match=r"bad\.fio:5: unknown key 'blokcsize' .*'blocksize'") as caught:
        lab.JobFile(path)
    assert caught.value.line == 5


def test_pids_are_known_before_the_jobs_start(tmp_path: Path) -> None:
    with lab.JobFile(ARTICLE, filename=tmp_path / "test", loops=2).prepare() as run:
        assert len(set(run.pids)) == 2
        for pid in run.pids:
            assert Path(f"/proc/{pid}").exists()
        assert (tmp_path / "test").stat().st_size == 2 * 2**20  # laid out already
        assert run.progress().done_ios == 0
        assert not run.poll(0.05)
        run.start()
        result = run.wait(timeout_s=60)
    assert result.json()["jobs"][0]["write"]["total_ios"] == 1024
    assert result.pids == run.pids  # views of a recording are asked with them
    for pid in run.pids:
        assert not Path(f"/proc/{pid}").exists()


def test_this_python_is_not_touched_by_the_jobs(tmp_path: Path) -> None:
    """Jobs are forked from a process with threads; none of its own state may be lost or run twice."""
    import threading

    stop = threading.Event()
    counted = [0]

    def busy() -> None:
        while not stop.is_set():
            counted[0] += len([object() for _ in range(100)])

    threads = [threading.Thread(target=busy) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(5):
            result = lab.Job(rw="write", size="256k", filename=tmp_path / "f", numjobs=2).run(progress=False)
            assert result.json()["jobs"][1]["write"]["total_ios"] == 64
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert counted[0] > 0
    assert "sampleblk_lab" in sys.modules
