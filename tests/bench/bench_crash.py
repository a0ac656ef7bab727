# SPDX-License-Identifier: MIT
"""Building crash states, against replaying the log from its start for each: what xfstests' replay-log does.

$REPLAY_LOG names that program; without it the peer is its inner loop, one pwrite(2) for each write, in this process.
"""

from __future__ import annotations

import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from crash.logs import FLUSH, SECTOR, log_writes
from sampleblk_lab import crash
from sampleblk_lab._native import core

WRITES = 600
WRITE_SECTORS = 16
DISK_BYTES = 8 << 20
ROUNDS = 5
PEER_STATES = 60


def _entries() -> list[tuple[int, int, bytes | int]]:
    rng = random.Random(1)
    found: list[tuple[int, int, bytes | int]] = []
    for number in range(WRITES):
        sector = rng.randrange(DISK_BYTES // SECTOR // WRITE_SECTORS) * WRITE_SECTORS
        found.append((0, sector, rng.randbytes(WRITE_SECTORS * SECTOR)))
        if number % 8 == 7:
            found.append((FLUSH, 0, 0))
    return found


def _ours(log: crash.Log, model: crash.Model, image_path: Path) -> float:
    """States built in a second, each content once."""
    image = core.CrashImage(log.native, str(image_path), "", log.size_bytes)
    walk = core.CrashWalk(log.native, model.native(), image)
    begin = time.perf_counter()
    built = 0
    while walk.next(1 << 20) is not None:
        image.write()
        built += 1
    return built / (time.perf_counter() - begin)


def _peer(entries: list[tuple[int, int, bytes | int]], log: Path, image: Path) -> float:
    """The same for prefixes, spread over the log."""
    program = os.environ.get("REPLAY_LOG")
    limits = [len(entries) * (i + 1) // PEER_STATES for i in range(PEER_STATES)]
    begin = time.perf_counter()
    for limit in limits:
        with image.open("wb") as file:
            file.truncate(DISK_BYTES)
        if program:
            subprocess.run([program, "--log", log, "--replay", image, "--limit", str(limit)], check=True)
            continue
        fd = os.open(image, os.O_WRONLY)
        for _, sector, data in entries[:limit]:
            if isinstance(data, bytes):
                os.pwrite(fd, data, sector * SECTOR)
        os.close(fd)
    return PEER_STATES / (time.perf_counter() - begin)


def main() -> None:
    """Both sides alternately, then the ratio of the medians."""
    shared = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=shared) as name:
        folder = Path(name)
        entries = _entries()
        (folder / "log").write_bytes(log_writes(*entries))
        log = crash.Log(folder / "log", base="zeros", size_bytes=DISK_BYTES)
        rates: dict[str, list[float]] = {"prefix": [], "reorder": [], "peer": []}
        for _ in range(ROUNDS):
            rates["prefix"].append(_ours(log, crash.Prefix(), folder / "image"))
            rates["reorder"].append(_ours(log, crash.Reorder(), folder / "image"))
            rates["peer"].append(_peer(entries, folder / "log", folder / "image"))
        median = {name: statistics.median(values) for name, values in rates.items()}
        peer = os.environ.get("REPLAY_LOG", "pwrite(2) from the start of the log")
        print(
            f"{WRITES} writes of {WRITE_SECTORS} sectors, a flush after each 8: "
            f"states built in a second on this host, median of {ROUNDS}"
        )
        for name, what in (("prefix", "ours, prefixes"), ("reorder", "ours, all subsets"), ("peer", peer)):
            print(f"  {what:36} {median[name]:12.0f}   {min(rates[name]):.0f} to {max(rates[name]):.0f}")
        print(f"ratio build_vs_replay_log {median['prefix'] / median['peer']:.1f}")
        print(f"ratio build_reordered_vs_replay_log {median['reorder'] / median['peer']:.1f}")


if __name__ == "__main__":
    main()
