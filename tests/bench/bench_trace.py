# SPDX-License-Identifier: MIT
"""`make bench-trace`: our decoder against `trace-cmd report` on the same files in the same run.

The files are real pages of recordings in tests/data/trace, repeated with later and later time stamps.
"""

from __future__ import annotations

import argparse
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

DATA = Path(__file__).parents[1] / "data" / "trace"
PAGE = 4096


def grow(source: Path, target: Path, size: int) -> None:
    """Writes `source`, a version 6 file of 4 KiB pages, with its pages repeated up to about `size` bytes."""
    whole = source.read_bytes()
    table = whole.rindex(b"flyrecord\0", 0, whole.index(b"flyrecord\0") + 10) + 10
    # The CPU count stands before "options  \0".
    count = struct.unpack_from("<I", whole, whole.index(b"options  \0") - 4)[0]
    pages = []
    for cpu in range(count):
        offset, length = struct.unpack_from("<QQ", whole, table + 16 * cpu)
        pages.append([whole[at : at + PAGE] for at in range(offset, offset + length, PAGE)])
    stamps = [struct.unpack_from("<Q", page)[0] for cpu in pages for page in cpu]
    # A period longer than the recording, so that every copy begins after the one before has ended.
    period = max(stamps) - min(stamps) + 50_000_000
    copies = max(size // sum(len(cpu) * PAGE for cpu in pages), 1)
    header = bytearray(whole[: table + 16 * count])
    at = -(-len(header) // PAGE) * PAGE
    for cpu, own in enumerate(pages):
        struct.pack_into("<QQ", header, table + 16 * cpu, at, len(own) * PAGE * copies)
        at += len(own) * PAGE * copies
    with target.open("wb") as out:
        out.write(header)
        out.write(bytes(-len(header) % PAGE))
        for own in pages:
            starts = [struct.unpack_from("<Q", page)[0] for page in own]
            for copy in range(copies):
                for page, start in zip(own, starts, strict=True):
                    out.write(struct.pack("<Q", start + copy * period))
                    out.write(memoryview(page)[8:])


def best(what, times: int = 7, clock=time.perf_counter) -> float:
    """The shortest of some runs, in seconds of that clock."""
    shortest = float("inf")
    for _ in range(times):
        begin = clock()
        what()
        shortest = min(shortest, clock() - begin)
    return shortest


def trace_cmd_report(path: Path) -> float:
    return best(
        lambda: subprocess.run(["trace-cmd", "report", "-i", str(path)], stdout=subprocess.DEVNULL, check=True), 2
    )


CHILD = """
import resource, sys
from sampleblk_lab import open_run
run = open_run(sys.argv[1])
rows = sum(len(table) for table in run.batches("sched_switch", 1 << 18))
run.counts()
print(rows, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gib", type=float, default=1.0, help="size of the large recording")
    arguments = parser.parse_args()
    if shutil.which("trace-cmd") is None:
        sys.exit("bench-trace needs trace-cmd, the peer: apt-get install trace-cmd")

    import sampleblk_lab as lab

    with tempfile.TemporaryDirectory(prefix="sampleblk-bench-") as directory:
        sched = Path(directory, "sched.dat")
        grow(DATA / "6.1-switch.dat", sched, 96 << 20)
        events = int(lab.open_run(sched).counts().metadata["events"])
        ours = best(lambda: lab.open_run(sched).events("sched_switch"))
        theirs = trace_cmd_report(sched)
        print(
            f"sched_switch, {events} events, all fields: {events / ours / 1e6:.1f} M/s; "
            f"trace-cmd report {events / theirs / 1e6:.2f} M/s"
        )
        print(f"ratio sched_switch_vs_trace_cmd {theirs / ours:.1f}")
        few = best(lambda: lab.open_run(sched).events("sched_switch", fields=["prev_pid", "next_pid"]))
        print(f"sched_switch, time, cpu and two fields: {events / few / 1e6:.1f} M/s")
        sched.unlink()

        mixed = Path(directory, "mixed.dat")
        grow(DATA / "6.1-syscalls.dat", mixed, 96 << 20)
        events = int(lab.open_run(mixed).counts().metadata["events"])
        ours = best(lambda: lab.open_run(mixed).tables(threads=1))
        theirs = trace_cmd_report(mixed)
        # A core's work is its time on the CPU: others may run on this machine too.
        core = best(lambda: lab.open_run(mixed).tables(threads=1), clock=time.process_time)
        print(
            f"mixed system-call events, {events} of many kinds, all fields: {events / ours / 1e6:.1f} M/s with one "
            f"thread, {events / core / 1e6:.1f} M/s a core"
        )
        print(f"ratio mixed_vs_trace_cmd {theirs / ours:.1f}")
        table = best(lambda: lab.open_run(mixed).syscalls().summary())
        print(f"their strace -C table: {events / table / 1e6:.1f} M events/s")
        mixed.unlink()

        graph = Path(directory, "graph.dat")
        size = 12 << 20
        grow(DATA / "6.1-graph.dat", graph, size)
        events = int(lab.open_run(graph).counts().metadata["events"])
        while events < 1_000_000:
            size = int(size * 1_050_000 / events)
            grow(DATA / "6.1-graph.dat", graph, size)
            events = int(lab.open_run(graph).counts().metadata["events"])
        ours = best(lambda: lab.open_run(graph).graph())
        theirs = trace_cmd_report(graph)
        print(f"call tree of {events} graph records: {ours:.3f} s ({ours / events * 1e6:.3f} s a million)")
        print(f"ratio graph_vs_trace_cmd {theirs / ours:.1f}")
        graph.unlink()

        large = Path(directory, "large.dat")
        grow(DATA / "6.1-switch.dat", large, int(arguments.gib * (1 << 30)))
        begin = time.perf_counter()
        child = subprocess.run([sys.executable, "-c", CHILD, str(large)], capture_output=True, text=True, check=True)
        seconds = time.perf_counter() - begin
        rows, rss = map(int, child.stdout.split())
        print(
            f"{large.stat().st_size / (1 << 30):.2f} GiB, {rows} events in batches: {seconds:.1f} s, peak RSS {rss} MiB"
        )
        print(f"ratio file_vs_peak_rss {large.stat().st_size / (rss << 20):.2f}")


if __name__ == "__main__":
    main()
