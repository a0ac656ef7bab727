# SPDX-License-Identifier: MIT
"""Sources of samples beside the clock: trace points with filters, software events, each with its stack."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from programs import DEEP, compiled

import sampleblk_lab as lab

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs trace points")
# Touches pages, and writes blocks of two sizes.
WORK = """
import mmap, os, sys
sys.stdin.read()
area = mmap.mmap(-1, 256 * 4096)
for page in range(256):
    area[page * 4096] = 1
file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
for size in (512, 4096, 4096, 4096):
    os.pwrite(file, bytes(size), 0)
"""


def run_under(profiler_options: dict, tmp_path: Path) -> tuple[lab.Profiler, int]:
    child = subprocess.Popen([sys.executable, "-c", WORK, str(tmp_path / "file")], stdin=subprocess.PIPE)
    with lab.profile(hz=0, pids=child.pid, **profiler_options) as profiler:
        child.communicate(b"")
    return profiler, child.pid


def test_a_trace_point_is_filtered(tmp_path):
    enter = "syscalls:sys_enter_pwrite64"
    sources = [lab.SampleSource(enter, filter="count > 512", everywhere=False)]
    profiler, pid = run_under({"events": sources}, tmp_path)
    profile = profiler.profile
    assert profile.event_names == [enter, "dummy"]
    assert len(profile) == profiler.stats["samples"] == 3
    assert list(profile.samples(event=enter)["pid"]) == [pid] * 3
    every, _ = run_under({"events": [lab.SampleSource(enter, everywhere=False)]}, tmp_path)
    assert every.stats["samples"] == 4


def test_page_faults_have_stacks_of_user_and_kernel(tmp_path):
    source = lab.SampleSource("page-faults", period=1)
    profiler, _ = run_under({"events": [source, "sched:sched_process_exit"]}, tmp_path)
    profile = profiler.profile
    assert len(profile.samples(event="page-faults")) >= 256
    assert len(profile.samples(event="sched:sched_process_exit")) >= 1
    assert profile.stacks(event="page-faults").unit == "samples"
    tenth, _ = run_under({"events": [lab.SampleSource("page-faults", period=10)]}, tmp_path)
    assert len(tenth.profile) < 0.5 * len(profile.samples(event="page-faults"))


def test_page_faults_tell_nothing_of_how_long_a_cpu_was_where(tmp_path):
    source = lab.SampleSource("page-faults", hz=5000)
    profiler, pid = run_under({"events": source, "offcpu": True}, tmp_path)
    profile = profiler.profile
    assert len(profile.samples(event="page-faults")) > 0
    calls = profile.syscalls(pids=pid)
    assert sum(calls["on_cpu"]) == sum(calls["samples"]) == 0
    assert sum(profile.locks(pids=pid)["spin"]) == 0
    # The switches do.
    on_cpu = [line for line in profile.wall_clock(pids=pid).folded().splitlines() if "[on CPU]" in line]
    assert on_cpu
    assert all(line.count(";") == 1 for line in on_cpu)


def test_a_trace_points_stack_is_unwound(tmp_path):
    program = compiled(tmp_path, DEEP)
    source = lab.SampleSource("syscalls:sys_enter_pwrite64", period=50, everywhere=False)
    with lab.profile(hz=0, pids=os.getpid(), events=source, callgraph="dwarf") as profiler:
        subprocess.run([str(program), "0.1"], check=True)
    profile = profiler.profile
    assert len(profile) > 10
    stacks = [";".join(profile.stack(i)) for i in range(len(profile))]
    assert all("main;outer;middle;leaf" in stack for stack in stacks)


def test_what_was_there_before_is_followed_too(tmp_path):
    # a grandchild, started before the profile
    shell = subprocess.Popen(
        ["sh", "-c", '"$0" -c "$1" "$2"; true', sys.executable, WORK, str(tmp_path / "file")], stdin=subprocess.PIPE
    )
    enter = "syscalls:sys_enter_pwrite64"
    while not subprocess.run(["pgrep", "-P", str(shell.pid)], capture_output=True, check=False).stdout:
        pass
    with lab.profile(hz=0, pids=shell.pid, events=[lab.SampleSource(enter, everywhere=False)]) as profiler:
        shell.communicate(b"")
    assert profiler.stats["samples"] == 4


def test_who_runs_into_a_trace_point_has_a_name_without_being_one_of_the_processes(tmp_path):
    other = subprocess.Popen([sys.executable, "-c", WORK, str(tmp_path / "file")], stdin=subprocess.PIPE)
    enter = "syscalls:sys_enter_pwrite64"
    with lab.profile(hz=0, pids=os.getpid(), children=False, events=enter) as profiler:
        comm = Path(f"/proc/{other.pid}/comm").read_text().strip()
        other.communicate(b"")
    found = profiler.profile.samples(pids=other.pid)
    assert set(found["comm"]) == {comm}
    assert not any(str(module).startswith("[unknown") for module in found["module"])


FORK = """
import os, sys
import sampleblk_lab as lab
source = lab.SampleSource("syscalls:sys_enter_pwrite64", everywhere=False)
file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
with lab.profile(hz=0, pids=os.getpid(), events=[source]) as profiler:
    if (fork := os.fork()) == 0:
        sys.exit(0)
    os.waitpid(fork, 0)
    for _ in range(3):
        os.pwrite(file, bytes(512), 0)
print(profiler.stats["samples"])
"""


def test_a_fork_that_ends_does_not_end_the_sampling_of_its_parent(tmp_path):
    done = subprocess.run([sys.executable, "-c", FORK, tmp_path / "file"], stdout=subprocess.PIPE, check=True)
    assert done.stdout == b"3\n"


def test_more_samples_than_the_kernel_allows_are_refused_with_the_setting():
    for options in ({"hz": 2**31 - 1}, {"hz": 0, "events": lab.SampleSource("page-faults", hz=2**31 - 1)}):
        with pytest.raises(lab.InputError, match=r"hz=2147483647 of .*at most \d+, which .*perf_event_max_sample_rate"):
            lab.profile(pids=os.getpid(), event="cpu-clock", **options).start()


def test_what_cannot_be_sampled_is_said():
    with pytest.raises(lab.InputError, match=r"filter 'bogus > 1'.*format"):
        lab.profile(hz=0, events=lab.SampleSource("sched:sched_switch", filter="bogus > 1")).start()
    with pytest.raises(lab.InputError, match="a trace point"):
        lab.profile(hz=0, pids=os.getpid(), events=lab.SampleSource("page-faults", filter="x > 1")).start()
    with pytest.raises(lab.InputError, match="available_events"):
        lab.profile(hz=0, events="sched:no_such_event").start()
    with pytest.raises(lab.InputError, match="page-faults:k where its half is left out"):
        lab.profile(hz=0, pids=os.getpid(), kernel=False, events="page-faults:k").start()
    with pytest.raises(lab.InputError, match="period=0"):
        lab.profile(hz=0, pids=os.getpid(), events=lab.SampleSource("page-faults", period=0)).start()
