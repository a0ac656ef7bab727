# SPDX-License-Identifier: MIT
"""Jobs held against the driver: what agrees, and everything that puts a figure in doubt."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import struct
import threading
import time
from pathlib import Path

import pytest

import sampleblk_lab as lab

KEYS = {"bs": "4k", "size": "1M", "direct": 1}


def _found(result: lab.Result) -> dict[str, tuple[str, str]]:
    return {check.what: (check.found, check.verdict) for check in result.checks}


def _doubts(result: lab.Result) -> list[str]:
    return [str(check) for check in result.checks if check.is_doubt]


@pytest.mark.parametrize("engine", ["psync", "libaio", "io_uring"])
@pytest.mark.parametrize("mode", ["mq", "bio"])
def test_direct_jobs_agree_byte_for_byte(mode: str, engine: str) -> None:
    with lab.Device("16M", mode=mode) as dev:
        job = lab.Job(rw="randrw", ioengine=engine, iodepth=8, norandommap=1, numjobs=2, filename=dev.path, **KEYS)
        result = job.run(progress=False)
        rows = [(row["direction"], int(row["bytes"])) for row in result.summary().rows()]
        moved = {way: sum(size for one, size in rows if one == way) for way in ("read", "write")}
        found = _found(result)
        for way, told in moved.items():
            assert found[f"{way} bytes: jobs, {dev.name}"] == (f"{told:,}, {told:,}", "agrees")
        assert _doubts(result) == []
        done = lab.measure(lambda: job.run(progress=False) and None, min_repeats=6, max_repeats=6, budget_s=0.001)
        assert len(done.samples) == 6


@pytest.mark.parametrize("mode", ["mq", "bio"])
def test_trims_agree_byte_for_byte(mode: str) -> None:
    with lab.Device("16M", mode=mode, discard_granularity="64k") as dev:
        result = lab.Job(rw="trimwrite", bs="4k", size="256k", filename=dev.path).run(progress=False)
        assert _found(result)[f"trim bytes: jobs, {dev.name}"] == ("262,144, 262,144", "agrees")
        assert _doubts(result) == []


def test_registered_files_are_let_go_of_at_the_jobs_end() -> None:
    """By the job: where a thread of the kernel closes a file last, it is open for some time after the job's end."""
    keys = {"rw": "write", "ioengine": "io_uring", "registerfiles": 1, "fixedbufs": 1, "iodepth": 8, **KEYS}
    with lab.Device("16M") as dev, lab.record(functions="sampleblk_release") as rec:
        for _ in range(4):
            assert _doubts(lab.Job(filename=dev.path, **keys).run(progress=False)) == []
        time.sleep(1.5)
    pids = rec.events("ftrace:function")["common_pid"]
    assert len(pids) >= 4
    names = {rec.run.file.commands[int(pid)] for pid in pids}
    assert not [name for name in names if name.startswith("kworker")]


def test_another_writer_is_found_out() -> None:
    with lab.Device("16M") as dev:
        job = lab.Job(rw="write", filename=dev.path, thinktime=1000, **KEYS)

        def disturbed() -> float:
            with job.prepare() as jobs:
                jobs.start()
                with Path(dev.path).open("r+b", buffering=0) as disk:
                    disk.seek(8 << 20)
                    disk.write(bytes(4096))
                    os.fsync(disk.fileno())
                return float(jobs.wait().summary()["iops"][0])

        with pytest.raises(lab.TrustError, match=rf"write bytes: jobs, {dev.name}: 1,048,576, 1,052,672: differs"):
            lab.measure(disturbed, min_repeats=6)
        lab.measure(disturbed, min_repeats=6, max_repeats=6, warmup=0, allow="counters")


def test_what_is_written_to_another_partition_is_no_doubt() -> None:
    """It may have a file system. Entries of an MBR: status, CHS, type, CHS, first sector, sectors."""
    with lab.Device("16M") as dev:
        parts = [struct.pack("<B3sB3sII", 0, b"", 0x83, b"", first, 8192) for first in (2048, 16384)]
        with Path(dev.path).open("r+b", buffering=0) as disk:
            disk.write(b"".join([bytes(446), *parts, bytes(32), b"\x55\xaa"]))
            fcntl.ioctl(disk, 0x125F)  # BLKRRPART
        with lab.Job(rw="write", filename=f"{dev.path}p2", **KEYS).prepare() as jobs:
            jobs.start()
            with Path(f"{dev.path}p1").open("r+b", buffering=0) as other:
                other.write(bytes(4096))
                os.fsync(other.fileno())
            result = jobs.wait()
        verdict = ("1,048,576, 1,052,672", "and more that is no job's")
        assert _found(result)[f"write bytes: jobs, {dev.name}"] == verdict
        assert _doubts(result) == []
        result = lab.Job(rw="trim", filename=f"{dev.path}p2", **KEYS).run(progress=False)
        assert _found(result)[f"trim bytes: jobs, {dev.name}"] == ("1,048,576, 1,048,576", "agrees")


def test_a_file_system_adds_what_is_its_own() -> None:
    with lab.Device("64M") as dev, dev.mkfs("ext4").mount() as mnt:
        result = lab.Job(rw="write", filename=mnt / "file", fsync=16, **KEYS).run(progress=False)
        found, verdict = _found(result)[f"write bytes: jobs, {dev.name}"]
        assert found.startswith("1,048,576, ")
        assert verdict == "and more that is no job's"
        # What stays in the page cache is nothing that the driver can tell of.
        result = lab.Job(rw="write", filename=mnt / "file", bs="4k", size="1M").run(progress=False)
        assert [what for what in _found(result) if dev.name in what] == []


def test_a_rate_above_the_device_is_the_page_cache() -> None:
    with lab.Device("16M") as dev:
        dev.set_limits(bytes_per_second=4 << 20)
        keys = {"rw": "write", "bs": "64k", "size": "2M", "filename": dev.path}
        slow = lab.Job(direct=1, **keys).run(progress=False)
        assert _found(slow)[f"rate of the jobs on {dev.name}, its limit"][1] == "agrees"
        quick = lab.Job(**keys).run(progress=False)
        assert [check.kind for check in quick.checks if check.is_doubt] == ["bandwidth"]
        assert "of the page cache, not of the device" in str(quick)
        dev.set_limits()


def test_errors_of_which_the_job_was_not_told() -> None:
    with lab.Device("16M") as dev:
        dev.set_faults([lab.Fault(action="error", first_sector=0, last_sector=63)])
        job = lab.Job(rw="write", bs="4k", size="1M", sync_file_range="write:8", filename=dev.path)
        result = job.run(progress=False)
        assert not result.errors
        assert [check.kind for check in result.checks if check.is_doubt] == ["errors"]
        dev.set_faults([])


def test_errors_that_a_job_counts_and_goes_on_after_are_no_doubt() -> None:
    with lab.Device("16M") as dev:
        job = lab.Job(rw="write", filename=dev.path, continue_on_error="all", **KEYS)
        assert f"write bytes: jobs, {dev.name}" in _found(job.run(progress=False))
        dev.set_faults([lab.Fault(action="error", first_sector=0, last_sector=7)])
        result = job.run(progress=False)
        assert result.json()["jobs"][0]["total_err"] == 1
        assert _doubts(result) == []
        dev.set_faults([])


@pytest.mark.parametrize("again", [False, True])
def test_a_device_that_is_gone_costs_its_counts_and_nothing_else(again: bool) -> None:
    with lab.Device("16M") as dev:
        jobs = lab.Job(rw="write", filename=dev.path, **KEYS).prepare()
        with jobs:
            jobs.start()
            while not jobs.progress().finished:
                time.sleep(0.01)
            dev.close(force=True)
            with lab.Device("16M", index=dev.index) if again else contextlib.nullcontext():
                result = jobs.wait()
    assert int(result.summary()["bytes"][0]) == 1 << 20
    assert _doubts(result) == [f"counts of {dev.name}: none: it was removed before the jobs were waited for"]


def test_a_clock_that_was_set_is_told() -> None:
    with lab.Device("16M") as dev:
        job = lab.Job(rw="read", filename=dev.path, time_based=1, runtime="300ms", **KEYS)
        with job.prepare() as jobs:
            jobs.start()
            time.clock_settime(time.CLOCK_REALTIME, time.time() + 5)
            try:
                result = jobs.wait()
            finally:
                time.clock_settime(time.CLOCK_REALTIME, time.time() - 5)
        (doubt,) = _doubts(result)
        assert re.match(r"the time of day against the steady clock: \+(49|50)\d\d\.", doubt)
        assert doubt.endswith(": jumped")


def test_lost_events_end_a_measurement() -> None:
    with lab.Device("16M") as dev:
        job = lab.Job(rw="write", filename=dev.path, **KEYS)

        def recorded() -> float:
            _, run = job.record(syscalls=True, block=True, keep="16k")
            return float(len(run.counts()))

        with pytest.raises(lab.TrustError, match=r"events lost of .*: incomplete"):
            lab.measure(recorded, min_repeats=6)


def test_another_thread_is_not_asked() -> None:
    """A measurement is told of what its own thread does; that is documented, and holds."""
    with lab.Device("16M") as dev:
        dev.set_limits(bytes_per_second=4 << 20)
        job = lab.Job(rw="write", bs="64k", size="1M", filename=dev.path)

        def beside() -> None:
            thread = threading.Thread(target=lambda: job.run(progress=False))
            thread.start()
            thread.join()

        lab.measure(beside, min_repeats=6, max_repeats=6, warmup=0)
        dev.set_limits()
