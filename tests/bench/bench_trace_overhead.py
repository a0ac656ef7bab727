# SPDX-License-Identifier: MIT
"""The guest part of `make bench-trace`: how much recording slows a job, against `strace -f -C`.

Same job, same run: the job alone, under strace, and while its system calls are recorded. Run it in the VM:
``sampleblk-lab vm run -- python bench_trace_overhead.py``.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import sampleblk_lab as lab

# The article's job: 512 writes of 4 KiB, then the pages dropped, again and again, by two processes.
JOB = """
import os, sys
path, loops = sys.argv[1], int(sys.argv[2])
block = bytes(4096)
for child in range(2):
    if os.fork() == 0:
        for _ in range(loops):
            file = os.open(f"{path}.{child}", os.O_RDWR | os.O_CREAT)
            for _ in range(512):
                os.write(file, block)
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(file)
        os._exit(0)
for child in range(2):
    os.wait()
"""
CALLS = ["openat", "write", "fadvise64", "close"]


def timed(command: list[str]) -> float:
    begin = time.perf_counter()
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    return time.perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--loops", type=int, default=6, help="how often each process writes its 2 MiB")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    if shutil.which("strace") is None:
        sys.exit("bench_trace_overhead needs strace, the peer: apt-get install strace")
    writes = 2 * 512 * arguments.loops
    alone, straced, recorded, everything = [], [], [], []
    lost = 0
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        program = Path(directory, "job.py")
        program.write_text(JOB)
        job = [sys.executable, "-S", "-E", str(program), f"{directory}/file", str(arguments.loops)]
        timed(job)  # what the first run must read from the host
        for _ in range(arguments.rounds):
            alone.append(timed(job))
            straced.append(timed(["strace", "-f", "-C", "-o", f"{directory}/log", *job]))
            for calls, into in ((CALLS, recorded), (True, everything)):
                with lab.record(syscalls=calls, pids=os.getpid(), buffer="16M") as rec:
                    into.append(timed(job))
                summary = rec.syscalls().summary()
                lost += int(summary.metadata["lost_events"])
                if int(summary.metadata["lost_events"]) == 0 and summary["calls"]["write"] < writes:
                    sys.exit(f"{summary['calls']['write']} of {writes} writes were recorded, and none counted as lost")
    base = min(alone)
    ours, all_calls, theirs = (min(times) - base for times in (recorded, everything, straced))
    print(f"the job alone {base:.3f} s; under strace -f -C {min(straced):.3f} s (+{theirs:.3f} s)")
    print(f"with its system calls recorded {min(recorded):.3f} s (+{ours:.3f} s), {lost} events lost in all rounds")
    print(f"with all system calls recorded {min(everything):.3f} s (+{all_calls:.3f} s)")
    print(f"ratio overhead_vs_strace {theirs / max(ours, 1e-3):.1f}")
    print(f"ratio overhead_all_calls_vs_strace {theirs / max(all_calls, 1e-3):.1f}")


if __name__ == "__main__":
    main()
