# SPDX-License-Identifier: MIT
"""Time off the CPU, from perf.data and from trace.dat, of threads that sleep and wait in known ways."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

import sampleblk_lab as lab

# PROC_PID_INIT_INO of include/linux/proc_ns.h: trace points tell pids of the first namespace only.
_FIRST_PIDS = "pid:[4026531836]"

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or os.readlink("/proc/self/ns/pid") != _FIRST_PIDS,  # noqa: PTH115
    reason="needs trace points, and pids as they tell them",
)

# The main thread sleeps for 0.3 s, and waits for a lock for 0.2 s that a sleeping thread holds.
SLEEPER = """
import threading, time
lock = threading.Lock()
def holder():
    with lock:
        started.set()
        time.sleep(0.2)
started = threading.Event()
time.sleep(0.3)
threading.Thread(target=holder).start()
started.wait()
lock.acquire()
"""

# Functions that bear names of the kernel's: one waits for a pipe, one burns CPU time.
NAMESAKES = r"""
#include <time.h>
#include <unistd.h>
static int ends[2];
static volatile unsigned long sink;
/* libc's read() has no frame pointer, so this one is not seen. */
__attribute__((noinline)) int read_byte(void)
{
    char byte;
    return read(ends[0], &byte, 1);
}
__attribute__((noinline)) void read_events(void)
{
    if (read_byte() == 1)
        sink++;
}
__attribute__((noinline)) void mutex_lock(void)
{
    while (clock() < CLOCKS_PER_SEC / 5)
        for (int i = 0; i < 100000; i++)
            sink += i;
}
int main(void)
{
    if (pipe(ends) != 0)
        return 1;
    if (fork() == 0) {
        sleep(1);
        return write(ends[1], "", 1) != 1;
    }
    read_events();
    mutex_lock();
    return sink == 0;
}
"""


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """One run as perf.data and as trace.dat."""
    folder = tmp_path_factory.mktemp("off")
    events = ["sched:sched_switch", "sched:sched_waking"]
    with lab.record(events=events, stacks=True) as recorder, lab.profile(hz=499, event="cpu-clock", offcpu=True) as own:
        child = subprocess.Popen([sys.executable, "-c", SLEEPER])
        child.wait()
    recorder.save(folder / "run")
    return own.save(folder / "perf"), lab.open_profile(folder / "run" / "trace.dat"), child.pid


def by_wait(profile: lab.Profile, tids: set[int]) -> dict[str, float]:
    """Seconds that those threads spent off the CPU, by what for."""
    out: dict[str, float] = defaultdict(float)
    for row in profile.waits().rows():
        if row["tid"] in tids:
            out[str(row["wait"])] += (int(row["duration"]) - int(row["runnable"])) / 1e9
            out["runnable"] += int(row["runnable"]) / 1e9
    return out


def test_a_trace_dat_tells_what_perf_tells(both):
    perf, trace, pid = both
    theirs = by_wait(perf, {pid})
    ours = by_wait(trace, {pid})
    assert theirs["sleeping"] == pytest.approx(0.3, abs=0.1)
    assert theirs["blocked on a lock"] == pytest.approx(0.2, abs=0.1)
    for wait in ("sleeping", "blocked on a lock"):
        assert ours[wait] == pytest.approx(theirs[wait], rel=0.05, abs=0.02), wait
    assert trace.metadata["lost_records"] == "0"


def test_its_stacks_lead_to_the_reason(both):
    _, trace, pid = both
    folded = trace.off_cpu(pids=pid).folded()
    assert any("nanosleep" in line and ";[sleeping] " in line for line in folded.splitlines())
    assert any("futex" in line and ";[blocked on a lock] " in line for line in folded.splitlines())
    callers = {str(row["function"]) for row in trace.waits(pids=pid).rows()}
    assert not any(name.startswith(("trace_event_", "__traceiter", "schedule")) for name in callers), callers


def test_every_moment_is_on_or_off_a_cpu(both):
    perf, trace, pid = both
    for profile in (perf, trace):
        wall = profile.wall_clock(pids=pid)
        on = sum(int(line.rpartition(" ")[2]) for line in wall.folded().splitlines() if ";[on CPU] " in line)
        assert wall.total == on + profile.off_cpu(pids=pid).total
        assert on > 1e6
    # from the switches, to the ns, of which samples are an estimate
    begin, end = (int(trace.samples(event="sched:sched_switch")["time"].codes[i]) for i in (0, -1))
    assert 0.5e9 < trace.wall_clock(pids=pid).total <= end - begin


def test_samples_of_every_so_many_cycles_tell_no_time(both, tmp_path):
    """The switches do, as where there are no samples."""
    perf, _, pid = both
    data = bytearray(perf.path.read_bytes())
    size, start, length = struct.unpack_from("<3Q", data, 16)
    for attr in range(start, start + length, size):
        if struct.unpack_from("<I4xQ", data, attr) == (1, 0):  # PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CPU_CLOCK
            struct.pack_into("<I", data, attr, 0)  # PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES
            struct.pack_into("<Q", data, attr + 16, 1_000_003)
            data[attr + 41] &= ~(1 << 2)  # freq
    (tmp_path / "perf.data").write_bytes(data)
    cycles = lab.open_profile(tmp_path / "perf.data")
    on = cycles.wall_clock(pids=pid).total - cycles.off_cpu(pids=pid).total
    assert on == pytest.approx(perf.wall_clock(pids=pid).total - perf.off_cpu(pids=pid).total, rel=0.5)
    for view in (cycles.syscalls, cycles.locks):
        assert "not known" in view(pids=pid).metadata["on_cpu"]
    assert "on_cpu" not in perf.syscalls(pids=pid).metadata


def test_a_cpu_s_share_is_what_left_it(both):
    for profile in both[:2]:
        cpus = sorted(set(profile.samples(event="sched:sched_switch")["cpu"].codes.tolist()))
        assert len(profile.waits()) == sum(len(profile.waits(cpus=[cpu])) for cpu in cpus)
        for view in (profile.off_cpu, profile.wall_clock):
            assert view().total == sum(view(cpus=[cpu]).total for cpu in cpus)
        assert len(profile.waits(cpus=[4095])) == 0


def test_what_is_across_a_gap_is_counted(both, tmp_path):
    whole = both[1]
    data = bytearray(Path(whole.path).read_bytes())
    at, size = struct.unpack_from("<QQ", data, data.rindex(b"flyrecord\0") + 10)
    assert size > 4096
    for page in range(at + 4096, at + size, 4096):
        data[page + 11] |= 0x80  # RB_MISSED_EVENTS
    (tmp_path / "trace.dat").write_bytes(data)
    cut = lab.open_profile(tmp_path / "trace.dat")
    assert "across_gaps" not in whole.waits().metadata
    assert 0 < int(cut.waits().metadata["across_gaps"]) <= len(whole.waits())
    assert int(cut.metadata["lost_records"]) >= size // 4096 - 1


def test_a_trace_without_stacks_is_refused(tmp_path):
    with lab.record(events=["sched:sched_switch"]) as recorder:
        subprocess.run(["true"], check=True)
    recorder.save(tmp_path / "run")
    with pytest.raises(lab.UnsupportedError, match="stacktrace"):
        lab.open_profile(tmp_path / "run" / "trace.dat")


def test_a_programs_own_functions_are_no_locks_and_no_waits_of_the_kernel(tmp_path):
    (tmp_path / "namesakes.c").write_text(NAMESAKES)
    command = ["cc", "-O1", "-fno-omit-frame-pointer", "-o", str(tmp_path / "namesakes"), str(tmp_path / "namesakes.c")]
    subprocess.run(command, check=True)
    with lab.profile(hz=499, event="cpu-clock", offcpu=True) as profiler, subprocess.Popen(command[4]) as process:
        process.wait()
    waits = by_wait(profiler.profile, {process.pid})
    assert waits["waiting"] == pytest.approx(1, abs=0.2)
    assert waits["blocked on I/O"] < 0.2  # the program's own pages may have to be read
    assert "mutex_lock" in profiler.profile.stacks(pids=process.pid).folded()
    locks = profiler.profile.locks(pids=process.pid, children=False)
    assert sum(int(row["spin"]) for row in locks.rows() if row["lock"] == "mutex_lock") < 0.1e9
