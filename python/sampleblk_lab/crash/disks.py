# SPDX-License-Identifier: MIT
"""What a state is built on to be checked: a file that is changed, or a clone that the driver gives the state."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from sampleblk_lab._native import core
from sampleblk_lab.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sampleblk_lab.crash.log import Log
    from sampleblk_lab.device import Device

# What tells the writes of one journal from those of any other: they are not submitted at the same nanoseconds.
_IDENTITY = ("sequence", "sector", "sectors", "submit_order", "submit_ns")


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

    def restore(self) -> None:
        """Undoes what a check did to it."""


class ImageFile:
    """A file in a folder."""

    def __init__(self, log: Log, folder: Path) -> None:
        self.path = folder / "disk.img"
        self.image = log.image(self.path)

    def build(self) -> None:
        """Writes what differs from the state before."""
        self.image.write()

    def restore(self) -> None:
        """Compares all of it with what it should be."""
        self.image.restore()


class Clone:
    """A clone of the device that has the recording."""

    def __init__(self, log: Log, device: Device, snapshot: int, clone: Device) -> None:
        self.path = Path(clone.path)
        self.image = log.image("")
        self._device = device
        self._snapshot = snapshot
        self._clone = clone

    def build(self) -> None:
        """Gives the clone the state; whatever was there is gone."""
        # Whoever a check left behind with the device open finds the next state there.
        self._device.state_give(self._snapshot, self.image.parts(), self._clone, force=True)

    def restore(self) -> None:
        """Nothing is kept of what a check did."""


@contextlib.contextmanager
def clones(log: Log, device: Device, count: int) -> Iterator[list[Clone]]:
    """So many clones of the device whose journal the log is of; they are taken away afterwards.

    Raises:
        InputError: The log is not of its journal.
        OSError: It has no journal (ENOENT), or too many snapshots (ENOSPC).
    """
    _require_its_journal(log, device)
    with contextlib.ExitStack() as stack:
        snapshot = device.snapshot_take(0)
        stack.callback(device.snapshot_delete, snapshot)
        yield [Clone(log, device, snapshot, stack.enter_context(device.snapshot_clone(snapshot))) for _ in range(count)]


def _require_its_journal(log: Log, device: Device) -> None:
    journal, ours = device.journal(), log.table()
    changes = np.isin(journal["type"].values, ("write", "discard", "write_zeroes"))
    for name in _IDENTITY:
        theirs = journal[name].values[changes][: len(log)]
        if not np.array_equal(theirs, ours[name].values):
            raise InputError(
                f"{log.path} beside the journal of {device.path}",
                expected="what was recorded there, with the journal left as it is: recording(…, keep_journal=True)",
            )
