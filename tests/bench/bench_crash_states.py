# SPDX-License-Identifier: MIT
"""Recovering and checking crash states of an ext4 in the guest: on clones, in image files, and a loop as generic/482's.

The programs that the loop starts are in the guest's memory, as on a machine that has run them before.

That test, one thing after another, replays the log up to each flush, mounts, unmounts and asks fsck. Its replaying is
$REPLAY_LOG here, or without it one pwrite(2) for each write from the start of the log in this process, into a copy
of what the disk held before. The same loop on each CPU at the same time is shown beside it.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import statistics
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import sampleblk_lab as lab
from sampleblk_lab._native import core
from sampleblk_lab.crash import resident
from sampleblk_lab.crash.disks import cloned
from sampleblk_lab.crash.resident import ResidentTools
from sampleblk_lab.device.filesystem import checker

ROUNDS = 3
STATES = 400
FILE_STATES = 8
PEER_STATES = 8
PHASE_STATES = 30
WORKERS = os.cpu_count() or 1
FILES = 60
FILE_BYTES = 6000
DISCARD = 4  # of dm-log-writes

PEER = "replay, mount(8), umount(8), e2fsck -fn"
PEERS = "the same on each CPU"
CLONES = "ours, in clones, with e2fsck -fn"
CLONES_BARE = "ours, in clones, without fsck"
FILES_BARE = "ours, in files, without fsck"


def _workload(mount: Path) -> None:
    for number in range(FILES):
        with (mount / "new").open("wb") as file:
            file.write(os.urandom(FILE_BYTES))
            os.fsync(file.fileno())
        (mount / "new").rename(mount / f"file-{number % 5}")
    os.sync()


def _contents(mount: Path, _: lab.crash.State | None = None) -> None:
    # As few calls as it takes: what is measured is what an exploration costs, and the loop does the same.
    for name in os.listdir(mount):  # noqa: PTH208
        if name.startswith("file-"):
            fd = os.open(f"{mount}/{name}", os.O_RDONLY)
            assert len(os.read(fd, 2 * FILE_BYTES)) == FILE_BYTES, name
            os.close(fd)


@contextlib.contextmanager
def _recorded(folder: Path) -> Iterator[lab.crash.Log]:
    with lab.Device("64M", cache=True) as device:
        filesystem = device.mkfs("ext4")
        with lab.crash.recording(device, folder) as path, filesystem.mount() as mount:
            _workload(mount)
            device.export_log_writes(folder / "writes")
    yield lab.crash.Log(path, base=folder / "base.img")


def _ours(log: lab.crash.Log, states: int, *, clones: bool, fsck: bool) -> float:
    """States checked in a second, with all there is to set up and to take down."""
    check = lab.crash.mounted("ext4", _contents, fsck=fsck)
    found = log.explore(check, states=states, clones=clones, workers=WORKERS, progress=False)
    assert found.ok, found.text()
    return found.checked / found.elapsed_s


def _peer(folder: Path, loops: int) -> float:
    """The same of the loop, or of several at the same time."""
    begin = time.perf_counter()
    children = []
    for number in range(loops):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                _loop(folder, number, loops)
                status = 0
            finally:
                os._exit(status)
        children.append(child)
    for child in children:
        assert os.waitpid(child, 0)[1] == 0
    return loops * PEER_STATES / (time.perf_counter() - begin)


def _loop(folder: Path, share: int, loops: int) -> None:
    image, mount = folder / f"peer-{share}.img", folder / f"mount-{share}"
    mount.mkdir(exist_ok=True)
    log = folder / "writes"
    entries, program = _entries(log), os.environ.get("REPLAY_LOG")
    for number in range(PEER_STATES):
        end = len(entries) * (share + loops * number + 1) // (loops * PEER_STATES)
        subprocess.run(["cp", "--sparse=always", folder / "base.img", image], check=True)
        if program:
            # Its limit counts flushes, too.
            subprocess.run([program, "--log", log, "--replay", image, "--limit", str(entries[end - 1][0])], check=True)
        else:
            fd = os.open(image, os.O_WRONLY)
            for _, at, data in entries[:end]:
                os.pwrite(fd, data, at)
            os.close(fd)
        subprocess.run(["mount", "-o", "loop", image, mount], check=True)
        _contents(mount)
        subprocess.run(["umount", mount], check=True)
        subprocess.run(["e2fsck", "-fn", image], check=True, capture_output=True)


def _entries(path: Path) -> list[tuple[int, int, bytes]]:
    """Number of the entry from 1, offset and data of each write in a log of dm-log-writes.

    Documentation/admin-guide/device-mapper/log-writes.rst of the kernel.
    """
    log = path.read_bytes()
    _, _, count, unit = struct.unpack_from("<QQQI", log)
    at, found = unit, []
    for number in range(1, count + 1):
        sector, sectors, flags, _ = struct.unpack_from("<QQQQ", log, at)
        at += unit
        if sectors and not flags & DISCARD:
            found.append((number, sector * 512, log[at : at + sectors * 512]))
            at += sectors * 512
    return found


def _phases(log: lab.crash.Log, mount: Path) -> dict[str, float]:
    """Milliseconds of each part of a state, one after another in one process."""
    mount.mkdir()
    total = dict.fromkeys(("build", "mount and recover", "contents", "unmount", "e2fsck -fn where it is new"), 0.0)
    tools = ResidentTools()
    with cloned(log, 1) as (clone,), contextlib.closing(tools), tools.used():
        for state in itertools.islice(log.states(), PHASE_STATES):
            marks = [time.perf_counter()]
            clone.image.take(state.native)
            clone.build()
            marks.append(time.perf_counter())
            mounted = core.CrashMount(str(clone.path), str(mount), "ext4", "noatime")
            marks.append(time.perf_counter())
            _contents(mount, state)
            marks.append(time.perf_counter())
            mounted.unmount()
            marks.append(time.perf_counter())
            resident.check(checker("ext4"), str(clone.path))
            marks.append(time.perf_counter())
            for name, (begin, end) in zip(total, itertools.pairwise(marks), strict=True):
                total[name] += (end - begin) * 1000 / PHASE_STATES
    return total


def main() -> None:
    """All of them on one recording."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name, _recorded(Path(name)) as log:
        folder = Path(name)
        print(f"ext4 of 64 MiB, {len(log)} writes, {log.native.flushes} flushes")
        print(f"states checked in a second, {WORKERS} CPUs, median of {ROUNDS}")
        subprocess.run(["modprobe", "loop"], check=True)
        measured: dict[str, Callable[[], float]] = {
            PEER: lambda: _peer(folder, 1),
            PEERS: lambda: _peer(folder, WORKERS),
            "ours, in files, with e2fsck -fn": lambda: _ours(log, FILE_STATES, clones=False, fsck=True),
            CLONES: lambda: _ours(log, STATES, clones=True, fsck=True),
            FILES_BARE: lambda: _ours(log, FILE_STATES, clones=False, fsck=False),
            CLONES_BARE: lambda: _ours(log, STATES, clones=True, fsck=False),
        }
        all_rates: dict[str, list[float]] = {name: [] for name in measured}
        for _ in range(ROUNDS):
            for name, measure in measured.items():
                all_rates[name].append(measure())
        rates = {name: statistics.median(found) for name, found in all_rates.items()}
        for name, found in all_rates.items():
            print(f"  {name:44} {rates[name]:8.2f}   {min(found):.2f} to {max(found):.2f}", flush=True)
        print("where the time of a state goes, ms, one CPU")
        for part, milliseconds in _phases(log, folder / "mount").items():
            print(f"  {part:44} {milliseconds:8.1f}", flush=True)
        print(f"ratio check_vs_generic_482 {rates[CLONES] / rates[PEER]:.1f}")
        print(f"ratio check_vs_generic_482_on_each_cpu {rates[CLONES] / rates[PEERS]:.1f}")
        print(f"ratio check_without_fsck_vs_generic_482 {rates[CLONES_BARE] / rates[PEER]:.1f}")
        print(f"ratio clones_vs_files {rates[CLONES_BARE] / rates[FILES_BARE]:.1f}")


if __name__ == "__main__":
    main()
