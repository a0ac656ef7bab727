# SPDX-License-Identifier: MIT
"""What a state is built on to be checked: a file that is changed, or a clone that the driver gives the state."""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from sampleblk_lab._native import core
from sampleblk_lab.errors import SampleblkError
from sampleblk_lab.interrupts import held_ctrl_c

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Self

    from sampleblk_lab.crash.log import Log
    from sampleblk_lab.device import Device

_BLOCK = 1 << 20
_SECTOR = 512
_PAGE = 4096
# An entry of the journal with the headers of its first chunks, and a page's header before and after the change
# (sampleblk_journal_entry and sampleblk_chunk of linux/sampleblk.h).
_ENTRY_ROOM = 256
_PAGE_ROOM = 48

# (sequence in the device's journal, sectors) of the entries that a write of the log has become.
Entries = list[tuple[int, int]]


class Disk(Protocol):
    """What states are built on, one after another.

    Attributes:
        path: What a check is given.
        image: Takes the state that is to be built.
    """

    path: Path
    image: core.CrashImage

    def build(self) -> None:
        """Builds the state that the image has taken."""

    def restore(self, *, failed: bool) -> None:
        """Undoes what a check did to it; `failed`: which may have left it in use."""

    def close(self) -> None:
        """Lets go of what it has made since it is there. Any number of times."""


class ImageFile:
    """A file in a folder."""

    def __init__(self, log: Log, folder: Path) -> None:
        self.path = folder / "disk.img"
        self.image = log.image(self.path)

    def build(self) -> None:
        """Writes what differs from the state before."""
        self.image.write()

    def restore(self, *, failed: bool) -> None:
        """Compares all of it with what it should be."""
        if failed and _has_loop(self.path):
            # Who has it mounted would write what he has to the states that follow: he keeps it, they get another one.
            self.path.unlink()
        self.image.restore()

    def close(self) -> None:
        """Its folder is its maker's."""


def _has_loop(path: Path) -> bool:
    """Whether a loop device is on a file: which stays as long as it is mounted, if out of sight."""
    for file in Path("/sys/block").glob("loop*/loop/backing_file"):
        with contextlib.suppress(OSError):  # it goes
            if file.read_text(errors="surrogateescape") == f"{path}\n":
                return True
    return False


class Clone:
    """A clone of a device whose journal has the log's writes; another one once a check has left that mounted."""

    def __init__(self, log: Log, device: Device, replayed: core.CrashReplayed, snapshot: int) -> None:
        self.image = log.image("")
        self._device = device
        self._replayed = replayed
        self._snapshot = snapshot
        self._clones = [device.snapshot_clone(snapshot)]
        self.path = Path(self._clones[0].path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def build(self) -> None:
        """Gives the clone the state; whatever was there is gone."""
        parts = self._replayed.parts(self.image)
        for clone in reversed(self._clones):
            try:
                self._give(clone, parts)
            except OSError as error:
                if error.errno != errno.EBUSY:
                    raise
            else:
                return
        # Those that a check has left mounted, if out of sight, stay: the file system has their names in /sys and /proc.
        self._clones.append(self._device.snapshot_clone(self._snapshot))
        self._give(self._clones[-1], parts)

    def _give(self, clone: Device, parts: core.DeviceParts) -> None:
        # Whom a check left behind with the device open finds the next state there.
        self._device.state_give(self._snapshot, parts, clone, force=True)
        self.path = Path(clone.path)

    def restore(self, *, failed: bool) -> None:
        """Nothing is kept of what a check did."""

    def close(self) -> None:
        """Also in a worker: its parent does not know of those that it has made itself."""
        for clone in self._clones:
            clone.close(force=True)


@contextlib.contextmanager
def cloned(log: Log, count: int) -> Iterator[list[Clone]]:
    """A device that has the log, as if it had been recorded there, and so many clones of it; all are gone afterwards.

    Raises:
        UnsupportedError: The driver cannot be loaded.
        OSError: There is no memory for the disk and twice the log; EINVAL, a disk below 4096 bytes.
    """
    from sampleblk_lab.device import Device

    with contextlib.ExitStack() as stack:
        device = stack.enter_context(Device(log.size_bytes, mode="bio", discard=True, partitions=False))
        held = _fill(log, device)
        device.journal_start(_room(log, held))
        log.native.replay(device.path)
        replayed = core.CrashReplayed(_entries(log, device))
        snapshot = device.snapshot_take(0)
        with held_ctrl_c():
            clones = [stack.enter_context(Clone(log, device, replayed, snapshot)) for _ in range(count)]
        yield clones


def _fill(log: Log, device: Device) -> int:
    """Writes the base to the device; returns the bytes that were not zero."""
    if log.base is None:
        return 0
    held = 0
    zeros = bytes(_BLOCK)
    fd = os.open(device.path, os.O_WRONLY | os.O_DIRECT)
    try:
        with mmap.mmap(-1, _BLOCK) as buffer, log.base.open("rb", buffering=0) as file:
            for begin, end in _with_data(file.fileno()):
                at = begin
                while at < end:
                    count = os.preadv(file.fileno(), [memoryview(buffer)[: end - at]], at)
                    if not count:
                        break
                    if buffer[:count] != zeros[:count]:
                        os.pwrite(fd, memoryview(buffer)[:count], at)
                        held += count
                    at += count
    finally:
        os.close(fd)
    return held


def _with_data(fd: int) -> Iterator[tuple[int, int]]:
    """Begin and end of the parts of a file that are no holes, in whole pages. Two may have a page in common."""
    end = 0
    while True:
        try:
            begin = os.lseek(fd, end, os.SEEK_DATA)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            return
        end = os.lseek(fd, begin, os.SEEK_HOLE)
        yield begin // _PAGE * _PAGE, -(-end // _PAGE) * _PAGE


def _room(log: Log, held: int) -> int:
    """What the journal takes at most, rounded up to pages: each write's own bytes, and what was there before."""
    room = _PAGE
    for zeroes, sectors in zip(log.table()["type"].values == "zeroes", log.table()["sectors"].values, strict=True):
        length = int(sectors) * _SECTOR
        before = min(length + 2 * _PAGE, held)
        if not zeroes:
            before = length
            held += length + 2 * _PAGE
            room += length
        room += _ENTRY_ROOM + before + _PAGE_ROOM * (before // _PAGE + 2)
    return max(1 << 16, -(-room // _PAGE) * _PAGE)


def _entries(log: Log, device: Device) -> list[Entries]:
    """What each write of the log has become in the journal: one entry, or several of a large one."""
    table = device.journal()
    if overflow := device.journal_info().overflow:
        raise SampleblkError(f"the journal of {device.path} had no room for {overflow} operations of {log.path}")
    rows = zip(table["sequence"].values, table["sector"].values, table["sectors"].values, strict=True)
    found = []
    ours = log.table()
    for sector, sectors in zip(ours["sector"].values, ours["sectors"].values, strict=True):
        entries: Entries = []
        at, end = int(sector), int(sector) + int(sectors)
        while at < end:
            sequence, begin, length = map(int, next(rows, (0, 0, 0)))
            if not length or begin != at or at + length > end:
                raise SampleblkError(f"the journal of {device.path} differs from {log.path} at sector {at}")
            entries.append((sequence, length))
            at += length
        found.append(entries)
    return found
