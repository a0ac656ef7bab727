# SPDX-License-Identifier: MIT
"""The guest part of `make bench-trace`: one histogram by bpftrace, by a hist trigger, and out of a full recording.

How large the writes of a job were, asked three ways beside each other in each round; each answer must have all writes,
or the run fails. bpftrace is the peer of the ratios: how many times less than it the others slow the job.
On qemu-counted a nanosecond is an instruction, which no load of this machine disturbs.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import sampleblk_lab as lab

# Writes of two sizes to a file in memory: nothing but the call itself, which is where a tool's cost shows most.
JOB = """
import os, sys
file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
small, large = bytes(512), bytes(4096)
for _ in range(int(sys.argv[2])):
    os.pwrite(file, small, 0)
    os.pwrite(file, large, 0)
"""
EVENT = "sys_exit_pwrite64"
SCRIPT = f"tracepoint:syscalls:{EVENT} /args->ret > 0/ {{ @bytes = hist(args->ret); }}"


@dataclass
class Asked:
    """What one way took, in seconds, round by round.

    Until its probes were in place, the job's processor time beside it, and until it had its answer.
    """

    before: list[float] = field(default_factory=list)
    job: list[float] = field(default_factory=list)
    after: list[float] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)


@contextlib.contextmanager
def by_bpftrace(counts: list[int]) -> Iterator[None]:
    script = lab.bpf(SCRIPT)
    with script:
        yield
    counts.append(sum(script.output["@bytes"]["count"].values.tolist()))


@contextlib.contextmanager
def by_trigger(counts: list[int]) -> Iterator[None]:
    with lab.Session() as session:
        found = session.hist(f"syscalls:{EVENT}", "ret.log2", condition="ret > 0")
        session.start()
        yield
        counts.append(sum(found.table()["hitcount"].values.tolist()))


@contextlib.contextmanager
def by_recording(counts: list[int]) -> Iterator[None]:
    with lab.record(events=f"syscalls:{EVENT}", buffer="16M") as recorder:
        yield
    table = recorder.run.events(EVENT, fields=["ret"])
    counts.append(len(table))


WAYS: dict[str, Callable[[list[int]], contextlib.AbstractContextManager[None]]] = {
    "bpftrace": by_bpftrace,
    "hist trigger": by_trigger,
    "recording": by_recording,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--writes", type=int, default=10_000, help="of each size")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    if shutil.which("bpftrace") is None:
        sys.exit("bench_histogram needs bpftrace, the peer: apt-get install bpftrace")
    writes = 2 * arguments.writes
    asked = {name: Asked() for name in WAYS}
    alone: list[float] = []
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        program = Path(directory, "job.py")
        program.write_text(JOB)
        command = [sys.executable, "-S", "-E", str(program), f"{directory}/file", str(arguments.writes)]

        def job() -> float:
            """Its processor time: what others do meanwhile is not in it, what a tool does in its system calls is."""
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run(command, check=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

        job()  # what the first run must read from the host
        for turn in range(arguments.rounds):
            alone.append(job())
            ways = list(WAYS.items())
            for name, way in ways if turn % 2 == 0 else ways[::-1]:
                one = asked[name]
                begin = time.perf_counter()
                with way(one.counts):
                    one.before.append(time.perf_counter() - begin)
                    one.job.append(job())
                    begin = time.perf_counter()
                one.after.append(time.perf_counter() - begin)
    for name, one in asked.items():
        # Others may write so, too; none of the job's may be missing.
        if min(one.counts) < writes:
            sys.exit(f"{name} has {min(one.counts)} of {writes} writes")
    base = min(alone)
    if min(min(one.job) for one in asked.values()) < base:
        sys.exit(
            f"the machine is too busy: the job alone took {min(alone):.3f} to {max(alone):.3f} s, and less with a tool"
        )
    print(f"{writes} writes of {os.uname().release}: alone {base:.3f} s, {base / writes * 1e6:.2f} us each")
    added = {name: (min(one.job) - base) / writes * 1e6 for name, one in asked.items()}
    for name, one in asked.items():
        print(
            f"{name}: +{added[name]:.2f} us each write, {min(one.before):.2f} s before the job, "
            f"{min(one.after):.2f} s after it"
        )
    for name in ("hist trigger", "recording"):
        print(f"ratio {name.replace(' ', '_')}_vs_bpftrace {added['bpftrace'] / max(added[name], 1e-3):.2f}")


if __name__ == "__main__":
    main()
