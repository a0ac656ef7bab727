# SPDX-License-Identifier: MIT
"""Bios take the way of requests: flushes that come with data, FUA without FUA, limits, disk statistics."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

import pytest
from blockio import write

import sampleblk_lab as lab

pytestmark = pytest.mark.each_kernel

both_modes = pytest.mark.parametrize("mode", ["mq", "bio"])


@both_modes
def test_a_rule_on_flushes_acts_on_the_commit_of_a_file_system(mode: str) -> None:
    """jbd2's commit record is one bio with PREFLUSH, FUA and data."""
    with lab.Device("64M", mode=mode, cache=True) as dev:
        fs = dev.mkfs("ext4")
        with fs.mount() as mnt:
            fd = os.open(mnt / "a", os.O_CREAT | os.O_WRONLY)
            os.write(fd, b"a" * 4096)
            dev.set_faults([lab.Fault(action="error", ops="flush", errno=errno.EIO)])
            with pytest.raises(OSError, match=r"error|Read-only"):
                os.fsync(fd)
            os.close(fd)
            assert dev.faults()[0].hits > 0
            dev.set_faults([])


@both_modes
def test_a_flush_that_comes_with_data_has_its_latency_and_is_counted(mode: str) -> None:
    with lab.Device("64M", mode=mode, cache=True) as dev:
        fs = dev.mkfs("ext4")
        with fs.mount() as mnt:
            fd = os.open(mnt / "a", os.O_CREAT | os.O_WRONLY)
            os.write(fd, b"a" * 4096)
            dev.tune(histograms=True)
            dev.set_timing("constant", 200_000_000, ops="flush")
            before = dev.counters()
            begin = time.monotonic()
            os.fsync(fd)
            assert time.monotonic() - begin > 0.18
            spent = dev.counters() - before
            assert spent.flushes >= 1
            # The file system may have begun one more, which is counted when it completes.
            assert spent.flushes <= spent.delayed <= spent.flushes + 1
            rows = dev.histogram("flush").rows()
            assert sum(row["count"] for row in rows if row["to_ns"] > 200_000_000) >= spent.flushes
            assert sum(row["count"] for row in rows if row["to_ns"] <= 200_000_000) == 0
            os.close(fd)
            dev.set_timing("none", ops="flush")


@both_modes
def test_fua_on_a_device_that_cannot_is_a_write_and_then_a_flush(mode: str) -> None:
    counted = {}
    for fua in (False, True):
        with lab.Device("1M", mode=mode, cache=True, fua=fua) as dev:
            write(dev.path, b"f" * 4096, dsync=True)
            counters = dev.counters()
            counted[fua] = counters.flushes
            assert counters.fua_writes == (1 if fua else 0)
            assert dev.volatile_writes() == []
    # Beside the one that the kernel sends behind a block device's O_DSYNC.
    assert counted[False] == counted[True] + 1


@both_modes
def test_a_failed_flush_fails_the_write_that_it_came_for(mode: str) -> None:
    with lab.Device("1M", mode=mode, cache=True, fua=False) as dev:
        dev.set_faults([lab.Fault(action="error", ops="flush", count=1)])
        with pytest.raises(OSError, match="error"):
            write(dev.path, b"f" * 4096, dsync=True)


@both_modes
def test_large_io_is_split_at_the_limits_and_long_discards_end(mode: str) -> None:
    with lab.Device("16M", mode=mode, max_sectors=64, cache=True) as dev:
        before = dev.counters()
        write(dev.path, b"l" * (1 << 20))
        spent = dev.counters() - before
        assert spent.writes == 32
        assert max(w.sectors for w in dev.volatile_writes()) == 64


@both_modes
def test_disk_statistics_count_every_io(mode: str) -> None:
    """/sys/block/…/stat, which iostat shows: reads, sectors read, writes, sectors written."""
    with lab.Device("16M", mode=mode) as dev:

        def stat() -> list[int]:
            return [int(word) for word in Path(f"/sys/block/{dev.name}/stat").read_text().split()]

        before = stat()
        for n in range(10):
            write(dev.path, b"s" * 8192, n * 8192)
        after = stat()
        assert after[4] - before[4] == 10
        assert after[6] - before[6] == 160
        assert after[8] == 0  # in flight
        dev.set_timing("constant", 50_000_000, ops="write")
        write(dev.path, b"s" * 8192)
        assert stat()[7] - after[7] >= 40  # ms


def test_a_job_does_not_say_of_a_scheduler_what_it_measured_without() -> None:
    """The kernel takes any name for a disk of bios, and changes nothing."""
    for mode, known in (("mq", ["none", "mq-deadline"]), ("bio", ["none"])):
        with lab.Device("1M", mode=mode) as dev:
            keys = {"rw": "read", "bs": "4k", "size": "16k", "direct": 1, "filename": dev.path}
            for scheduler in known:
                lab.Job(ioscheduler=scheduler, **keys).run(progress=False)
            error, said = {
                "mq": (lab.InputError, f"ioscheduler=deadlin of .*{dev.name}.*one that it has, .*mq-deadline"),
                "bio": (lab.UnsupportedError, f"ioscheduler=deadlin: .*{dev.name} has no I/O schedulers"),
            }[mode]
            with pytest.raises(error, match=said):
                lab.Job(ioscheduler="deadlin", **keys).run(progress=False)
