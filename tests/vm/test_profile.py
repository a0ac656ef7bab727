# SPDX-License-Identifier: MIT
"""Sampling in the guest: the article's job, on the CPU and off it."""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

import pytest

import sampleblk_lab as lab
from sampleblk_lab import trust

pytestmark = pytest.mark.each_kernel

HERE = Path(__file__)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """The article's job, small: sequential 4 KiB writes to ext4 on the driver, each loop begun by an invalidation."""
    folder = tmp_path_factory.mktemp("profile")
    with lab.Device(capacity="64M") as device, device.mkfs("ext4").mount() as mnt:
        job = lab.Job(ioengine="sync", rw="write", bs="4k", size="2M", loops=20, numjobs=1, filename=mnt / "test")
        with lab.profile(hz=1999, offcpu=True) as profiler:
            job.run(progress=False)
    profile = profiler.save(folder)
    print(profiler.stats, file=sys.stderr)
    return profiler, profile


def test_nothing_was_lost_and_the_clock_was_said(recorded):
    profiler, profile = recorded
    assert profiler.stats["lost"] == 0
    assert profiler.stats["samples"] > 100
    assert profiler.stats["event"] in ("cycles", "cpu-clock")
    assert (profiler.stats["fallback"] == "") == (profiler.stats["event"] == "cycles")
    assert profile.metadata["kernel_symbols"].endswith("kallsyms")


def test_the_stacks_go_from_the_call_to_the_driver(recorded):
    _, profile = recorded
    folded = profile.stacks(idle=False).folded()
    assert any("ksys_write" in line and "ext4_" in line for line in folded.splitlines())
    calls = profile.syscalls(idle=False)
    assert float(calls["on_cpu_percent"]["write"]) > 0
    assert float(calls["on_cpu_percent"]["fadvise64"]) > 0
    everywhere = folded + profile.off_cpu().folded()
    assert any("queue_rq" in line or "sblk_" in line or "sampleblk" in line for line in everywhere.splitlines())


def test_a_sleeper_and_a_lock_waiter_are_told_apart():
    hold = threading.Event()

    def sleeper() -> None:
        hold.wait(1)
        time.sleep(0.3)

    with lab.profile(hz=0, pids=os.getpid(), offcpu=True) as profiler:
        thread = threading.Thread(target=sleeper)
        thread.start()
        hold.set()
        thread.join()
    waits = profiler.profile.waits(pids=os.getpid())
    frame = [(row["wait"], int(row["duration"])) for row in waits.rows()]
    asleep = sum(duration for wait, duration in frame if wait == "sleeping")
    locked = sum(duration for wait, duration in frame if wait == "blocked on a lock")
    assert asleep > 250e6
    assert locked > 250e6  # the main thread waits for the other's lock in join()
    total = profiler.profile.off_cpu(pids=os.getpid()).total
    assert total == sum(duration for _, duration in frame)


def test_every_moment_of_a_thread_is_on_or_off_the_cpu(recorded):
    _, profile = recorded
    wall = profile.wall_clock(idle=False)
    assert wall.unit == "ns"
    off = profile.off_cpu().total
    assert wall.total > off > 0


@pytest.mark.parametrize("how", ["0", "1", "01"])
def test_a_cpu_that_goes_or_comes_puts_a_profile_in_doubt(how, second_cpu):
    """Its events were opened while it was there, or are not, and go with it."""
    try:
        second_cpu.write_text("0" if how == "1" else "1")
        with trust.collected() as said, lab.profile(hz=99), lab.stat(events="cpu-clock"):
            for state in how:
                second_cpu.write_text(state)
    finally:
        second_cpu.write_text("1")
    told = "CPUs that went or came while they were looked at: cpu1: incomplete"
    assert [str(doubt) for doubt in said.doubts()] == [told] * 2
