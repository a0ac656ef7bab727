# SPDX-License-Identifier: MIT
"""`make bench-workload`: our engines against Debian's fio, in turns, on the same file, latencies on in both.

The file is in a tmpfs, or in the page cache of a disk's file system, and warm. Every figure is the median of rounds in
which all take their turn, and every ratio the median of the rounds' ratios, so that a machine that slows down for a
while slows both sides. Time per I/O is measured twice: as it elapsed, and as CPU time (user and system), which other
load blurs less. The CPU time is the kernel's count for the whole process tree: fio's own report leaves out the kernel's
io_uring workers, which on a tmpfs do all of the I/O. Ends in `ratio NAME VALUE` lines: how many times better than the
peer.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import sampleblk_lab as lab

if TYPE_CHECKING:
    from collections.abc import Callable

    Peer = Callable[[dict[str, Any], Path], "Cost"]

BLOCK = 4096
SIZE = 64 << 20

# What a job is, for both. The null engine's "file" is a name only.
PSYNC_WRITE = {"rw": "write", "ioengine": "psync", "loops": 24}
PSYNC_READ = {"rw": "randread", "ioengine": "psync", "loops": 16}
NULL = {"rw": "read", "ioengine": "null", "loops": 128}
URING_READ = {"rw": "randread", "ioengine": "io_uring", "iodepth": 32, "loops": 16}
URING_WRITE = {"rw": "randwrite", "ioengine": "io_uring", "iodepth": 32, "loops": 16}
TWO = {**PSYNC_READ, "numjobs": 2}
# A tmpfs takes no I/O without blocking, so io_uring hands it to kernel threads. A file in a disk's page cache is read
# within the call.
CACHED = {**URING_READ, "invalidate": 0}


def keys(job: dict[str, Any], path: Path) -> dict[str, Any]:
    """A job's keys, file and all."""
    return {**job, "bs": BLOCK, "size": SIZE, "filename": path}


class Cost(NamedTuple):
    """Nanoseconds per I/O."""

    elapsed: float
    cpu: float


def fio(job: dict[str, Any], path: Path) -> Cost:
    """The real fio."""
    options = [f"--{key}={value}" for key, value in keys(job, path).items()]
    before = children_cpu()
    done = subprocess.run(
        ["fio", "--name=bench", "--output-format=json", "--thread=0", *options],
        capture_output=True,
        text=True,
        check=True,
    )
    return cost(json.loads(done.stdout), before)


def ours(job: dict[str, Any], path: Path) -> Cost:
    """Our engines."""
    before = children_cpu()
    return cost(lab.Job("bench", **keys(job, path)).run(progress=False).json(), before)


def children_cpu() -> float:
    """Seconds of all processes that have ended, and of the kernel's workers for them."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def cost(report: dict[str, Any], cpu_before: float) -> Cost:
    """From a report in fio's form: the jobs run side by side, so their rates add up."""
    ways = [job[way] for job in report["jobs"] for way in ("read", "write") if job[way]["total_ios"]]
    cpu = (children_cpu() - cpu_before) * 1e9 / sum(way["total_ios"] for way in ways)
    return Cost(1e9 / sum(way["iops"] for way in ways), cpu)


def bare(program: Path) -> Peer:
    """A loop around pwrite() that measures nothing."""
    source = Path(__file__).with_name("pwrite_loop.c")
    subprocess.run(["cc", "-O2", "-Wall", "-o", str(program), str(source)], check=True)

    def run(job: dict[str, Any], path: Path) -> Cost:
        before = children_cpu()
        done = subprocess.run(
            [str(program), str(path), str(SIZE), str(job["loops"])], capture_output=True, text=True, check=True
        )
        return Cost(float(done.stdout), (children_cpu() - before) * 1e9 / (job["loops"] * SIZE // BLOCK))

    return run


def main() -> None:
    """Measures, and prints figures and ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--directory", type=Path, default=Path("/dev/shm"), help="in a tmpfs")
    parser.add_argument("--disk-directory", type=Path, default=Path("/var/tmp"), help="on a disk; read from cache")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", default="", help="cases whose name has this in it")
    arguments = parser.parse_args()
    medians: dict[tuple[str, str], Cost] = {}
    ratios: dict[str, float] = {}
    with (
        tempfile.TemporaryDirectory(dir=arguments.directory, prefix="bench-workload-") as directory,
        tempfile.TemporaryDirectory(dir=arguments.disk_directory, prefix="bench-workload-") as disk_directory,
    ):
        path = Path(directory) / "file"
        on_disk = Path(disk_directory) / "file"
        for file in (path, on_disk):
            file.write_bytes(bytes(SIZE))
        both: dict[str, Peer] = {"ours": ours, "fio": fio}
        cases: list[tuple[str, dict[str, Any], dict[str, Peer]]] = [
            ("psync_write", PSYNC_WRITE, {**both, "bare": bare(Path(directory) / "pwrite_loop")}),
            ("psync_randread", PSYNC_READ, both),
            ("null", NULL, both),
            ("io_uring_qd32_cached_randread", CACHED, both),
            ("io_uring_qd32_randread", URING_READ, both),
            ("io_uring_qd32_randwrite", URING_WRITE, both),
            ("two_processes", TWO, both),
        ]
        for name, job, peers in cases:
            if arguments.only not in name:
                continue
            costs: dict[str, list[Cost]] = {peer: [] for peer in peers}
            for turn in range(arguments.rounds + 1):
                for peer in peers if turn % 2 else reversed(peers):
                    one = peers[peer](job, on_disk if job is CACHED else path)
                    if turn:  # the first round warms up
                        costs[peer].append(one)
            for peer, found in costs.items():
                medians[name, peer] = Cost(*(statistics.median(values) for values in zip(*found, strict=True)))
                pairs = list(zip(found, costs["ours"], strict=True))
                for i, suffix in enumerate(("", "_cpu")) if peer != "ours" else ():
                    ratio = statistics.median(theirs[i] / mine[i] for theirs, mine in pairs)
                    ratios[f"{name}_vs_{peer}{suffix}"] = ratio
            shown = (
                f"{peer} {median.elapsed:.1f} (CPU {median.cpu:.1f})"
                for (case, peer), median in medians.items()
                if case == name
            )
            print(f"{name}, ns per I/O: {'  '.join(shown)}", flush=True)
    if ("two_processes", "ours") in medians and ("psync_randread", "ours") in medians:
        for i, suffix in enumerate(("", "_cpu")):
            # How much cheaper an I/O is, or how little dearer, when two do it: ours over fio's.
            gain = [medians["psync_randread", who][i] / medians["two_processes", who][i] for who in ("ours", "fio")]
            ratios[f"two_processes_scaling_vs_fio{suffix}"] = gain[0] / gain[1]
    print()
    for name, ratio in ratios.items():
        print(f"ratio {name} {ratio:.3f}")


if __name__ == "__main__":
    main()
