# SPDX-License-Identifier: MIT
"""Counters: `perf stat`'s table, against perf stat."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

import sampleblk_lab as lab

perf = pytest.mark.skipif(shutil.which("perf") is None, reason="needs perf: apt-get install linux-perf")
root = pytest.mark.skipif(os.geteuid() != 0, reason="needs trace points and all CPUs")
# 512 pages touched and 100 calls, in a child of the command.
WORK = """
import mmap, os, sys
area = mmap.mmap(-1, 512 * 4096)
for page in range(512):
    area[page * 4096] = 1
file = os.open("/dev/null", os.O_WRONLY)
for i in range(100):
    os.pwrite(file, b"x", 0)
sum(i * i for i in range(300_000))
"""
COMMAND = ["sh", "-c", 'exec 3<&0; "$0" -c "$1"; true', sys.executable, WORK]


@perf
def test_a_command_counts_what_perf_stat_counts():
    ours = lab.stat(COMMAND)
    assert ours.returncode == 0
    text = subprocess.run(["perf", "stat", "-x,", "--", *COMMAND], capture_output=True, text=True, check=True).stderr
    theirs = {line.split(",")[2]: line.split(",")[0] for line in text.splitlines() if line.count(",") > 4}
    table = ours.table()
    assert [name.removesuffix(":u") for name in table["event"]] == [name.removesuffix(":u") for name in theirs]
    for name, value in theirs.items():
        row = table.row(name)
        assert row["state"] == (value.strip("<>") if value.startswith("<") else "counted")
    # An ordinary user's names end in ":u" where the kernel does not let them count itself.
    faults = next(int(value) for name, value in theirs.items() if name.removesuffix(":u") == "page-faults")
    assert ours["page-faults"] == pytest.approx(faults, rel=0.1)
    assert ours["page-faults"] > 512
    # CPU time as the kernel accounts it, which leaves out what the host of a virtual machine took
    assert ours.user is not None
    assert ours.system is not None
    assert 0.7 * (ours.user + ours.system) - 0.02 < ours["task-clock"] / 1e9 < 3 * (ours.user + ours.system) + 0.02
    assert 0 < ours["task-clock"] < 2 * ours.elapsed


@perf
def test_an_event_has_the_name_that_it_was_asked_for_by():
    names = ["faults", "cs", "cpu-cycles", "page-faults:u"]
    counts = lab.stat(COMMAND, events=names)
    command = ["perf", "stat", "-x,", "-e", ",".join(names), "--", *COMMAND]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    theirs = [line.split(",")[2].removesuffix(":u") for line in text.splitlines() if line.count(",") > 4]
    assert [name.removesuffix(":u") for name in counts.table()["event"]] == theirs
    assert counts["faults"] > 512


@perf
def test_the_text_has_perfs_lines():
    ours = lab.stat(COMMAND).text()
    theirs = subprocess.run(["perf", "stat", "--", *COMMAND], capture_output=True, text=True, check=True).stderr
    value = re.compile(r"[\d.,]+|[GMK](?=/sec)")
    shape = [re.sub(r"\s+", " ", value.sub("N", line)).strip() for line in theirs.splitlines() if line.strip()]
    got = [re.sub(r"\s+", " ", value.sub("N", line)).strip() for line in ours.splitlines() if line.strip()]
    assert [re.sub("N(?=/sec)", "", line) for line in got[1:]] == [re.sub("N(?=/sec)", "", line) for line in shape[1:]]


@root
def test_trace_points_of_a_process_and_its_children_are_counted_exactly():
    counts = lab.stat(COMMAND, events=["syscalls:sys_enter_pwrite64", "page-faults:u", "minor-faults"])
    assert counts["syscalls:sys_enter_pwrite64"] == 100
    assert counts["minor-faults"] >= counts["page-faults:u"] > 512
    with lab.stat(pids=os.getpid(), events="syscalls:sys_enter_pwrite64") as here:
        file = os.open("/dev/null", os.O_WRONLY)
        os.pwrite(file, b"x", 0)
        between = here["syscalls:sys_enter_pwrite64"]
        subprocess.run([sys.executable, "-c", WORK], check=True)
        os.close(file)
    assert (between, here["syscalls:sys_enter_pwrite64"]) == (1, 101)
    here.stop()
    assert here["syscalls:sys_enter_pwrite64"] == 101


# A thread that touches 512 pages, and a child that touches 2048, each begun when it is told to.
LATER = """
import mmap, os, sys, threading
def touch(pages):
    area = mmap.mmap(-1, pages * 4096)
    for page in range(pages):
        area[page * 4096] = 1
print(flush=True)
sys.stdin.readline()
thread = threading.Thread(target=touch, args=(512,), name="later")
thread.start()
thread.join()
child = os.fork()
if child == 0:
    touch(2048)
    os._exit(0)
os.waitpid(child, 0)
print(flush=True)
sys.stdin.readline()
"""


def after_linux(*version: int) -> bool:
    return tuple(map(int, re.findall(r"\d+", os.uname().release)[:2])) >= version


@pytest.mark.skipif(not after_linux(5, 13), reason="inherit_thread of perf_event_open is of 5.13")
@pytest.mark.parametrize(("children", "least", "most"), [(False, 512, 2048), (True, 2560, 9999)])
def test_threads_that_begin_later_are_their_processes(children, least, most):
    with subprocess.Popen(
        [sys.executable, "-c", LATER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        sampler = lab.profile(
            hz=0, events=lab.SampleSource("page-faults", stacks=False), pids=process.pid, children=children
        )
        with sampler, lab.stat(pids=process.pid, children=children, events="page-faults:u") as counts:
            process.stdin.write("\n")
            process.stdin.flush()
            process.stdout.readline()
        process.stdin.close()
    assert least <= counts["page-faults:u"] < most
    assert least <= len(sampler.profile) < most


@root
def test_all_cpus_together():
    cpus = len(os.sched_getaffinity(0))
    with lab.stat(events=["cpu-clock", "context-switches"]) as counts:
        time.sleep(0.2)
    assert counts["cpu-clock"] == pytest.approx(cpus * counts.elapsed, rel=0.2)
    assert counts["context-switches"] > 0
    assert "CPUs utilized" in counts.text()
    assert "system wide" in repr(counts)


def test_what_the_machine_does_not_count_is_said():
    counts = lab.stat(["true"], events=["task-clock", "r0fffffffffffffff"])
    states = {str(row["event"]).removesuffix(":u"): row["state"] for row in counts.table().rows()}
    assert states == {"task-clock": "counted", "r0fffffffffffffff": "not supported"}
    assert "<not supported>      r0fffffffffffffff" in counts.text()
    with pytest.raises(lab.UnsupportedError, match="not supported"):
        counts["r0fffffffffffffff"]
    with pytest.raises(KeyError):
        counts["cycles"]


def test_bad_calls_name_what_is_wanted():
    with pytest.raises(lab.InputError, match="one of cycles"):
        lab.stat(["true"], events="bogomips")
    with pytest.raises(lab.InputError, match="one of them"):
        lab.stat(["true"], pids=1)
    with pytest.raises(FileNotFoundError):
        lab.stat(["/no/such/program"])
    with pytest.raises(ProcessLookupError):
        lab.stat(pids=2**22 - 1)


@root
def test_a_name_means_the_event_itself_before_its_user_half():
    both = lab.stat(COMMAND, events=["page-faults:u", "page-faults"])
    rows = {row["event"]: row["value"] for row in both.table().rows()}
    assert both["page-faults:u"] == rows["page-faults:u"]
    assert both["page-faults"] == rows.get("page-faults", rows["page-faults:u"])
    twice = lab.stat(COMMAND, events=["page-faults", "page-faults"])
    with pytest.raises(KeyError, match="'page-faults' is counted 2 times"):
        twice["page-faults"]


@root
def test_the_kernel_s_half_is_not_counted_as_nothing_where_it_is_hidden():
    if int(Path("/proc/sys/kernel/perf_event_paranoid").read_text()) < 2:
        pytest.skip("every user may count the kernel here")
    os.setresuid(65534, 65534, 0)  # not the effective one alone: an execve would drop the counters
    try:
        with pytest.raises(PermissionError, match="page-faults:k"):
            lab.stat(["true"], events="page-faults:k")
        counts = lab.stat(["true"], events=["page-faults", "context-switches"])
        assert counts["page-faults"] == counts["page-faults:u"] > 0
        assert counts["context-switches:u"] == 0
        with pytest.raises(lab.UnsupportedError, match="context-switches"):
            counts["context-switches"]
    finally:
        os.setresuid(0, 0, 0)
