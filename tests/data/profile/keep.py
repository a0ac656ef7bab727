#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes a canned recording out of one of the guest's; see README.md.

usage: keep.py PERF PERF_DATA KALLSYMS NAME
"""

from __future__ import annotations

import itertools
import re
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import sampleblk_lab as lab

HERE = Path(__file__).parent
ROWS = 60
SAMPLES = 700

# linux/perf_event.h; tools/perf/Documentation/perf.data-file-format.txt
_SAMPLE = 9
_DATA = 40  # where the header has the data section's offset and size
_FEATURES = 72


def thinned(data: bytes) -> bytes:
    """A perf.data with every so manieth of its samples, so that about SAMPLES are left, and all other records."""
    start, size = struct.unpack_from("<QQ", data, _DATA)
    records, at = [], start
    while at < start + size:
        kind, _, length = struct.unpack_from("<IHH", data, at)
        records.append((kind, data[at : at + length]))
        at += length
    every = max(sum(kind == _SAMPLE for kind, _ in records) // SAMPLES, 1)
    number = 0
    kept = []
    for kind, record in records:
        if kind == _SAMPLE:
            number += 1
            if number % every:
                continue
        kept.append(record)
    body = b"".join(kept)
    head, tail = bytearray(data[:start]), bytearray(data[start + size :])
    struct.pack_into("<Q", head, _DATA + 8, len(body))
    # The table behind the data says where each feature's section is; one to each bit that is set.
    features = sum(word.bit_count() for word in struct.unpack_from("<4Q", data, _FEATURES))
    for feature in range(features):
        (place,) = struct.unpack_from("<Q", tail, 16 * feature)
        struct.pack_into("<Q", tail, 16 * feature, place - size + len(body))
    return bytes(head) + body + bytes(tail)


def main() -> None:
    """Writes NAME.data, NAME.kallsyms with the symbols that it needs, and NAME.report, what that perf says of it."""
    perf, data, kallsyms, name = sys.argv[1:]
    target = HERE / f"{name}.data"
    target.write_bytes(thinned(Path(data).read_bytes()))
    profile = lab.open_profile(target, kallsyms=kallsyms, use_paths=False)
    wanted = {row["symbol"] for row in profile.report().rows() if row["space"] == "k"} | {"_text", "_stext", "_etext"}
    lines = Path(kallsyms).read_text().splitlines()
    places = [int(line.split()[0], 16) for line in lines]
    order = sorted({place for place in places if place})
    hit = {place for place, line in zip(places, lines, strict=True) if line.split()[2] in wanted}
    # Each with what comes next: there it ends.
    follows = dict(itertools.pairwise(order))
    kept = hit | {follows[place] for place in hit if place in follows}
    chosen = [line for place, line in zip(places, lines, strict=True) if place in kept]
    (HERE / f"{name}.kallsyms").write_text("\n".join(chosen) + "\n")
    with tempfile.TemporaryDirectory() as nothing:
        command = [perf, "--buildid-dir", nothing, "report", "-i", str(target), "--kallsyms", kallsyms]
        command += ["--symfs", nothing, "--stdio", "-g", "none", "--no-inline", "-s", "comm,sym", "-t", "\t"]
        text = subprocess.run(command, capture_output=True, check=True, stdin=subprocess.DEVNULL, text=True).stdout
    rows = [line for line in text.splitlines() if line and not line.startswith("#")]
    rows = [line for line in rows if not re.match(r"\[.\] 0x", line.split("\t")[-1].strip())]
    (HERE / f"{name}.report").write_text("\n".join(rows[:ROWS]) + "\n")


if __name__ == "__main__":
    main()
