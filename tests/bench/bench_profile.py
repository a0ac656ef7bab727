# SPDX-License-Identifier: MIT
"""`make bench-profile`: perf.data to folded stacks to a flame graph, against
`perf script | stackcollapse-perf.pl | flamegraph.pl` on the same file in the same run.

The file is a recording of this machine at work; for the million it is one with its records repeated, with later and
later time stamps.
"""

from __future__ import annotations

import argparse
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def peer(name: str) -> str | None:
    """FlameGraph's script: in $FLAMEGRAPH_DIR or on the path."""
    beside = os.environ.get("FLAMEGRAPH_DIR")
    if beside and Path(beside, name).exists():
        return str(Path(beside, name))
    return shutil.which(name)


def record(path: Path, seconds: float, *options: str) -> None:
    """perf record of a job with many different stacks, kernel and user."""
    job = (
        "import json,os,re,sys,time\n"
        f"end=time.monotonic()+{seconds}\n"
        "f=os.open(sys.argv[1],os.O_RDWR|os.O_CREAT)\n"
        "while time.monotonic()<end:\n"
        "    os.pwrite(f,bytes(65536),0);os.fsync(f);os.posix_fadvise(f,0,0,4)\n"
        "    json.loads(json.dumps([{'a':i,'b':str(i)} for i in range(300)]))\n"
        "    re.sub('[aeiou]+','-','the quick brown fox '*50);os.listdir('/usr/lib');os.stat('/etc/passwd')\n"
    )
    options = options or ("-F", "9999", "-g")
    command = ["perf", "record", "-qN", "-e", "cpu-clock", *options, "-o", str(path), "--"]
    subprocess.run([*command, sys.executable, "-c", job, f"{path}.job"], check=True)


def grow(source: Path, target: Path, samples: int) -> int:
    """Writes `source` with its samples repeated until there are at least `samples`; returns how many there are."""
    whole = source.read_bytes()
    data_at, data_size = struct.unpack_from("<QQ", whole, 40)
    attr = struct.unpack_from("<Q", whole, 24)[0]
    sample_type = struct.unpack_from("<Q", whole, attr + 24)[0]
    # identifier, ip and tid come before the time
    time_at = 8 + 8 * bin(sample_type & (1 << 16 | 1 | 2)).count("1")
    before, own, after = bytearray(), [], bytearray()
    at = data_at
    while at < data_at + data_size:
        kind, _, size = struct.unpack_from("<IHH", whole, at)
        if kind == 9:
            own.append(bytearray(whole[at : at + size]))
        elif kind < 64:
            (after if own else before).extend(whole[at : at + size])
        at += size
    stamps = [struct.unpack_from("<Q", one, time_at)[0] for one in own]
    period = max(stamps) - min(stamps) + 1_000_000
    copies = -(-samples // len(own))
    with target.open("wb") as out:
        out.write(whole[:data_at])
        out.write(before + after)
        for copy in range(copies):
            for one, stamp in zip(own, stamps, strict=True):
                struct.pack_into("<Q", one, time_at, stamp + copy * period)
                out.write(one)
        size = out.tell() - data_at
        # The features' table follows the data; their bodies move with it.
        table = data_at + data_size
        bits = sum(bin(word).count("1") for word in struct.unpack_from("<4Q", whole, 72))
        shift = size - data_size
        for feature in range(bits):
            offset, length = struct.unpack_from("<QQ", whole, table + 16 * feature)
            out.write(struct.pack("<QQ", offset + shift, length))
        out.write(whole[table + 16 * bits :])
        out.seek(48)
        out.write(struct.pack("<Q", size))
    return len(own) * copies


def best(what, times: int) -> float:
    """The shortest of some runs, in seconds."""
    shortest = float("inf")
    for _ in range(times):
        begin = time.perf_counter()
        what()
        shortest = min(shortest, time.perf_counter() - begin)
    return shortest


def ours(path: Path, out: Path) -> None:
    import sampleblk_lab as lab

    # Without inlined functions, as the peer below.
    stacks = lab.open_profile(path, inlines=False).stacks()
    out.with_suffix(".folded").write_text(stacks.folded())
    stacks.flamegraph(out)


# perf's own inlining would only make it slower.
PIPELINE = """
perf script --no-inline -i "$1" 2>/dev/null | "$2" > "$4.folded" 2>/dev/null && "$3" "$4.folded" > "$4" 2>/dev/null
"""


def theirs(path: Path, out: Path, collapse: str, draw: str) -> None:
    subprocess.run(["sh", "-c", PIPELINE, "sh", str(path), collapse, draw, str(out)], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=4.0, help="how long to record")
    parser.add_argument("--peer-samples", type=int, default=400_000, help="of the file that the peer reads, too")
    arguments = parser.parse_args()
    if shutil.which("perf") is None:
        sys.exit("bench-profile needs perf, the peer: apt-get install linux-perf")
    collapse, draw = peer("stackcollapse-perf.pl"), peer("flamegraph.pl")

    with tempfile.TemporaryDirectory(prefix="sampleblk-bench-") as directory:
        small, large = Path(directory, "small.data"), Path(directory, "large.data")
        record(small, arguments.seconds)
        if collapse and draw:
            both = Path(directory, "both.data")
            samples = grow(small, both, arguments.peer_samples)
            mine = best(lambda: ours(both, Path(directory, "ours.svg")), 3)
            peers = best(lambda: theirs(both, Path(directory, "theirs.svg"), collapse, draw), 1)
            print(
                f"{samples} samples to folded to SVG: {mine:.3f} s ({samples / mine / 1e6:.2f} M/s); perf script | "
                f"stackcollapse-perf.pl | flamegraph.pl {peers:.1f} s ({samples / peers / 1e3:.1f} k/s)"
            )
            print(f"ratio flamegraph_vs_flamegraph_pl {peers / mine:.1f}")
        else:
            print("no peer: put stackcollapse-perf.pl and flamegraph.pl on the path or into $FLAMEGRAPH_DIR")
        if collapse and draw:
            copied = Path(directory, "dwarf.data")
            record(copied, arguments.seconds, "-F", "1999", "--call-graph", "dwarf,8192")
            mine = best(lambda: ours(copied, Path(directory, "ours.svg")), 3)
            peers = best(lambda: theirs(copied, Path(directory, "theirs.svg"), collapse, draw), 1)
            megabytes = copied.stat().st_size >> 20
            print(f"{megabytes} MiB of copied stacks unwound and drawn: {mine:.3f} s; the peers {peers:.1f} s")
            print(f"ratio dwarf_unwinding_vs_perf_script {peers / mine:.1f}")
        samples = grow(small, large, 1_000_000)
        seconds = best(lambda: ours(large, Path(directory, "large.svg")), 3)
        print(f"{samples} samples, {large.stat().st_size >> 20} MiB: {seconds:.2f} s")
        print(f"ratio million_samples_within_2_s {2.0 * samples / 1e6 / seconds:.2f}")


if __name__ == "__main__":
    main()
