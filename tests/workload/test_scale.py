# SPDX-License-Identifier: MIT
"""Many jobs, many files: what a result costs, and what a choice among files does."""

from __future__ import annotations

import time
from pathlib import Path

import sampleblk_lab as lab


def resident_kib() -> int:
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status["VmRSS"].split()[0])


def test_results_of_many_jobs_take_little_memory(tmp_path: Path) -> None:
    """They held every series of every job in full, used or not: 208 MiB for 64 jobs, and 96 more at each look."""
    job = lab.Job(rw="write", bs="4k", size="64k", numjobs=64, filename=tmp_path / "f")
    with job.prepare() as run:
        run.start()
        first = run.wait(timeout_s=120)
        before = resident_kib()
        more = [run.so_far() for _ in range(8)]
        assert resident_kib() - before < 8 * 16 * 1024
    assert [len(one.json()["jobs"]) for one in (first, *more)] == [64] * 9
    del more
    before = resident_kib()
    for _ in range(20):
        assert len(first.summary()) == 64
        assert first.text()
        assert first.series()
    assert resident_kib() - before < 32 * 1024


def chosen(files: int, tmp_path: Path, service: str) -> float:
    """Seconds per I/O."""
    ios = 40_000
    job = lab.Job(
        ioengine="null", rw="read", bs="4k", nrfiles=files, size=4096 * 8 * files, number_ios=ios, io_size="8g",
        file_service_type=service, directory=tmp_path,
    )  # fmt: skip
    best = float("inf")
    for _ in range(3):
        result = job.run(progress=False).json()["jobs"][0]
        assert result["read"]["total_ios"] == ios
        best = min(best, (result["usr_cpu"] + result["sys_cpu"]) / 100 * result["job_runtime"])
    return best / ios


def test_a_choice_among_many_files_costs_what_one_among_few_does(tmp_path: Path) -> None:
    for service in ("roundrobin", "random"):
        chosen(8, tmp_path, service)
        few, many = chosen(8, tmp_path, service), chosen(8000, tmp_path, service)
        # It was in proportion to the files, a thousand times as much.
        assert many < 40 * max(few, 2e-5), service


def test_files_of_any_length_are_all_read_to_their_ends(tmp_path: Path) -> None:
    """Most of them end early, and the one that goes on is found without a look at the others."""
    began = time.monotonic()
    job = lab.Job(
        ioengine="null", rw="read", bs="4k", nrfiles=4000, filesize="4k-64k", size="8g", directory=tmp_path,
        io_log_entries=100_000,
    )  # fmt: skip
    log = job.run(progress=False).io_log()
    assert len(set(zip(log["path"].codes.tolist(), log["offset"].codes.tolist(), strict=True))) == len(log)
    assert len(set(log["path"].codes.tolist())) == 4000
    assert time.monotonic() - began < 60
