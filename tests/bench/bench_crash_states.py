# SPDX-License-Identifier: MIT
"""Recovering and checking crash states of an ext4 in the guest: on clones, in image files, and a loop as generic/482's.

That test replays the log up to each flush, mounts, unmounts and asks fsck. Here its replaying is one pwrite(2) for each
write from the start of the log.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import sampleblk_lab as lab

STATES = 60
PEER_STATES = 6
WORKERS = 2 * (os.cpu_count() or 1)


def _workload(mount: Path) -> None:
    for number in range(12):
        with (mount / "new").open("wb") as file:
            file.write(os.urandom(6000))
            os.fsync(file.fileno())
        (mount / "new").rename(mount / f"file-{number % 5}")
    os.sync()


def _contents(mount: Path, _: lab.crash.State) -> None:
    for path in mount.glob("file-*"):
        assert len(path.read_bytes()) == 6000, path


@contextlib.contextmanager
def _recorded(folder: Path) -> Iterator[lab.crash.Log]:
    with lab.Device("64M", cache=True) as device:
        filesystem = device.mkfs("ext4")
        with lab.crash.recording(device, folder) as path, filesystem.mount() as mount:
            _workload(mount)
    yield lab.crash.Log(path, base=folder / "base.img")


def _ours(log: lab.crash.Log, workers: int, *, clones: bool, fsck: bool) -> float:
    """States checked in a second."""
    check = lab.crash.mounted("ext4", _contents, fsck=fsck)
    found = log.explore(check, states=STATES, clones=clones, workers=workers, progress=False)
    assert found.ok, found.text()
    return found.checked / found.elapsed_s


def _peer(log: lab.crash.Log, folder: Path) -> float:
    """The same of the loop."""
    writes = list(log.table().rows())
    image = folder / "peer.img"
    whole = folder / "whole.img"
    log.write(log.state(len(log)), whole)
    data = whole.read_bytes()
    mount = folder / "mount"
    mount.mkdir()
    begin = time.perf_counter()
    for number in range(PEER_STATES):
        subprocess.run(["cp", "--sparse=always", folder / "base.img", image], check=True)
        fd = os.open(image, os.O_WRONLY)
        for row in writes[: len(writes) * (number + 1) // PEER_STATES]:
            at, size = row["sector"] * 512, row["sectors"] * 512
            os.pwrite(fd, data[at : at + size], at)
        os.close(fd)
        for command in (["mount", "-o", "loop", image, mount], ["umount", mount], ["e2fsck", "-fn", image]):
            subprocess.run(command, check=False, capture_output=True)
    return PEER_STATES / (time.perf_counter() - begin)


def main() -> None:
    """All of them on one recording."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name, _recorded(Path(name)) as log:
        print(f"{len(log)} writes, {log.native.flushes} flushes", flush=True)
        rates = {"peer": _peer(log, Path(name))}
        print(f"peer {rates['peer']:.1f}", flush=True)
        for fsck in (False, True):
            for workers in (1, 2, WORKERS):
                for where, on in (("files", False), ("clones", True)):
                    rate = _ours(log, workers, clones=on, fsck=fsck)
                    print(f"{where:8} {workers} workers {'fsck' if fsck else 'no fsck':8} {rate:.1f}", flush=True)


if __name__ == "__main__":
    main()
