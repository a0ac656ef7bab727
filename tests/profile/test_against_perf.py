# SPDX-License-Identifier: MIT
"""Recordings made on this machine, by perf and by us, against what `perf report` says of the same files."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from perf_peer import assert_same, our_report, perf_report

import sampleblk_lab as lab

perf = pytest.mark.skipif(shutil.which("perf") is None, reason="needs perf: apt-get install linux-perf")
ROOT = os.geteuid() == 0

WORK = """
import os, sys, time
end = time.monotonic() + float(sys.argv[1])
file = os.open(sys.argv[2], os.O_RDWR | os.O_CREAT)
while time.monotonic() < end:
    for _ in range(64):
        os.pwrite(file, bytes(65536), 0)
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    sorted(str(i) for i in range(2000))
"""


def work(tmp_path: Path, seconds: float) -> list[str]:
    return [sys.executable, "-c", WORK, str(seconds), str(tmp_path / "file")]


@perf
@pytest.mark.skipif(not ROOT, reason="needs kernel addresses")
@pytest.mark.parametrize("how", ["file", "compressed", "pipe"])
def test_totals_are_those_of_perf_report(tmp_path, how):
    data = tmp_path / "perf.data"
    command = ["perf", "record", "-qN", "-e", "cpu-clock", "-F", "1999", "-g"]
    if how == "compressed":
        command += ["-z"]
    if how == "pipe":
        with data.open("wb") as out:
            subprocess.run([*command, "-o", "-", "--", *work(tmp_path, 1)], stdout=out, check=True)
    else:
        subprocess.run([*command, "-o", str(data), "--", *work(tmp_path, 1)], check=True)
    profile = lab.open_profile(data, inlines=False)
    assert len(profile) > 50
    assert (profile._native.is_pipe, profile._native.is_compressed) == (how == "pipe", how == "compressed")
    # Of a pipe, perf learns too late that it has stacks, and prints shares without children.
    assert_same(profile, perf_report(data), self_only=how == "pipe")


@perf
@pytest.mark.skipif(not ROOT, reason="needs kernel addresses")
def test_perf_report_opens_what_we_record(tmp_path):
    child = subprocess.Popen(work(tmp_path, 1.5))
    with lab.profile(hz=1999, event="cpu-clock", pids=child.pid) as profiler:
        child.wait()
    assert profiler.stats["samples"] > 50
    assert profiler.stats["lost"] == 0
    profiler.save(tmp_path / "run")
    saved = lab.open_profile(tmp_path / "run", inlines=False)
    theirs = perf_report(tmp_path / "run" / "perf.data")
    assert_same(saved, theirs)
    # the same with nothing but what was saved
    alone = lab.open_profile(tmp_path / "run", use_paths=False, inlines=False)
    assert our_report(alone) == our_report(saved)
    assert alone.metadata["kernel_symbols"] == str(tmp_path / "run" / "kallsyms")


@pytest.mark.skipif(not ROOT, reason="needs to sample other processes")
def test_stacks_lead_to_the_system_call(tmp_path):
    with lab.profile(hz=1999, event="cpu-clock", pids=os.getpid()) as profiler:
        subprocess.run(work(tmp_path, 1), check=True)
    calls = profiler.profile.syscalls(idle=False)
    assert float(calls["on_cpu_percent"]["pwrite64"]) > 10
    assert calls.metadata["off_cpu"].startswith("not recorded")
    functions = profiler.stacks().functions()
    assert float(functions["total_percent"]["do_syscall_64"]) > 10


def test_a_profiler_says_what_it_could_not_do():
    with pytest.raises(lab.InputError, match="one of cycles"):
        lab.profile(event="bogomips", pids=os.getpid()).start()
    with pytest.raises(lab.InputError, match="'fp', 'dwarf' or None"):
        lab.profile(callgraph="lbr")
    for nothing in (0, -1, 1.5):
        with pytest.raises(lab.InputError, match=f"hz={nothing}"):
            lab.profile(hz=nothing)
    with pytest.raises(ProcessLookupError):
        lab.profile(pids=2**22 - 1, event="cpu-clock").start()


def test_what_is_past_the_limit_is_dropped_and_counted(tmp_path):
    with lab.profile(hz=4999, event="cpu-clock", pids=os.getpid(), kernel=False, limit="4K") as profiler:
        subprocess.run(work(tmp_path, 0.5), check=True)
    assert profiler.stats["dropped_bytes"] > 0
