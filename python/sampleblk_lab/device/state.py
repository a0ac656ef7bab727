# SPDX-License-Identifier: MIT
"""What a device holds beyond its bytes: volatile writes and power, the journal, snapshots."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from sampleblk_lab import checked
from sampleblk_lab._native import core
from sampleblk_lab.device import names
from sampleblk_lab.device.control import Opened
from sampleblk_lab.errors import InputError
from sampleblk_lab.table import Table

if TYPE_CHECKING:
    from collections.abc import Iterable

    Parts = core.DeviceParts | Iterable[int | tuple[int, int, int]]


@dataclasses.dataclass(frozen=True, slots=True)
class Cut:
    """What a power cut did to the volatile writes.

    Attributes:
        dropped: Writes that were lost.
        survived: Writes that survived whole.
        torn: Writes of which only the first sectors survived.
    """

    dropped: int
    survived: int
    torn: int


@dataclasses.dataclass(frozen=True, slots=True)
class VolatileWrite:
    """A write that a power cut could lose.

    Attributes:
        id: Counts the device's changes in the order in which they were executed.
        sector: Where, in 512 bytes.
        sectors: How much, in 512 bytes.
        durable: Safe, but listed because an older one that it hides is not.
        zeroes: A discard or write-zeroes.
        in_flight: Not completed yet.
    """

    id: int
    sector: int
    sectors: int
    durable: bool
    zeroes: bool
    in_flight: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class JournalInfo:
    """How a journal is now; all zero where there is none.

    Attributes:
        bytes: Size of its buffer.
        used_bytes: Of them used.
        entries: Operations and marks in it.
        overflow: Operations that found no room; after the first, nothing more is taken.
        next_sequence: The sequence that the next operation will have.
        position: The device is as it was after this sequence.
        epoch: The open one: what is of an epoch before it is durable.
    """

    bytes: int
    used_bytes: int
    entries: int
    overflow: int
    next_sequence: int
    position: int
    epoch: int


class State(Opened):
    """The part of a device that remembers."""

    def power_cut(
        self,
        mode: str = "all",
        *,
        survive_percent: int | None = None,
        torn: bool = False,
        seed: int = 0,
        survivors: Mapping[int, int] | None = None,
    ) -> Cut:
        """Cuts the power: volatile writes are lost and all I/O fails until :meth:`power_on`, also what is on its way.

        Only a device made with ``cache=True`` has volatile writes: those that had not completed when the last flush
        that completed was submitted, but for completed ones with FUA.

        Args:
            mode: ``"all"`` volatile writes are lost; ``"random"``: each survives by chance; ``"explicit"``: those of
                `survivors` survive.
            survive_percent: The chance of ``"random"``, 0 to 100; 50 by default.
            torn: ``"random"``: half of the survivors keep only some of their first sectors.
            seed: Decides what survives.
            survivors: :class:`VolatileWrite` id to the sectors of it that survive, whole logical blocks.

        Raises:
            InputError: What another mode takes, or no such mode.
            OSError: EALREADY, the power is off; EINVAL, survivors that end within a logical block.
        """
        which = names.number(names.CUTS, mode, "power cut mode")
        if survivors is not None and not isinstance(survivors, Mapping):
            raise InputError(f"survivors={survivors!r}", expected="a mapping of ids to how many sectors survive")
        checked.flag("torn", torn)
        for name, value, of in (
            ("survive_percent", survive_percent, "random"),
            ("torn", torn or None, "random"),
            ("survivors", survivors, "explicit"),
        ):
            if value is not None and mode != of:
                raise InputError(f"{name}={value!r} of a power cut {mode!r}", expected=f"mode {of!r}")
        default = 50 if mode == "random" else 0
        chance = default if survive_percent is None else checked.count("survive_percent", survive_percent, 0, 100)
        kept = sorted(
            (
                checked.count("a survivor's id", name, 0, names.U64_MOST),
                checked.count(f"survivors[{name}]", sectors, 0, 2**32 - 1),
            )
            for name, sectors in (survivors or {}).items()
        )
        raw = self._control.power_cut(
            self.index, which, int(torn), chance, checked.count("seed", seed, 0, names.U64_MOST), kept
        )
        return Cut(**raw)

    def power_on(self) -> None:
        """Brings the device back. What the page cache still held of it and its partitions is forgotten.

        Raises:
            OSError: EALREADY, it is on; EBUSY, it is mounted, and the file system would go on with what it remembers.
        """
        self._control.power_on(self.index)

    def volatile_writes(self) -> list[VolatileWrite]:
        """What a power cut could lose now, oldest first."""
        return [VolatileWrite(**raw) for raw in self._control.volatile_writes(self.index)]

    def written_back(self) -> int:
        """Writes that became durable without a flush, because the cache was full."""
        return self._control.written_back(self.index)

    def journal_start(self, size: int | str = "64M") -> None:
        """Records every change from now on, in a buffer of that size (bytes, or a string such as ``"64M"``).

        Raises:
            OSError: EBUSY, there is a journal.
        """
        self._control.journal_start(self.index, names.size(size, "journal size"))

    def journal_stop(self) -> None:
        """Ends the recording and gives its memory back; the device stays as it is."""
        self._control.journal_stop(self.index)

    def journal_info(self) -> JournalInfo:
        """How the journal is now."""
        return JournalInfo(**self._control.journal(self.index))

    def journal(self) -> Table:
        """What was recorded, in the order in which it was executed.

        Columns are sequence, type, fua, failed, atomic, epoch, sector, sectors, submit_ns, complete_ns, submit_order,
        complete_order, volatile_id and mark. ``complete_ns`` and ``complete_order`` are 0 for what has not completed; a
        flush that has not ``failed`` makes durable what has a ``complete_order`` below its ``submit_order``. The
        table's metadata has the ``overflow`` and the open ``epoch``.

        Raises:
            FileNotFoundError: There is no journal.
        """
        return Table(core.DeviceJournal(self._control, self.index).table())

    def mark(self, text: str) -> int:
        """Puts a note of 1 to 128 bytes into the journal; returns its sequence, to be sought.

        Raises:
            OSError: EOVERFLOW, the journal is full or sought into the past.
        """
        if not isinstance(text, str):
            raise InputError(f"text={text!r:.60}", expected="a note of 1 to 128 bytes, as a string")
        return self._control.mark(self.index, text)

    def seek(self, sequence: int | None = None, *, force: bool = False) -> int:
        """Makes the device what it was after `sequence` of its journal; None: the newest, and recording goes on.

        What is written in the past is thrown away by the next seek. What the volatile cache held is durable once the
        position has moved: no power cut takes it from there.

        Args:
            sequence: 0 for before the first.
            force: Also while it is open, but not while it is mounted.

        Returns:
            How many entries were undone or redone.

        Raises:
            OSError: EBUSY, it is open; EOVERFLOW, the journal has a gap; EINVAL, no such sequence.
        """
        newest = core.SAMPLEBLK_SEEK_NEWEST
        wanted = newest if sequence is None else checked.count("sequence", sequence, 0, names.U64_MOST - 1)
        return self._control.seek(self.index, wanted, force)

    def save_journal(self, path: str | os.PathLike[str]) -> None:
        """Writes the journal to a file as it is, for :class:`sampleblk_lab.crash.Log`. Raises OSError."""
        core.DeviceJournal(self._control, self.index).save(os.fspath(path))

    def export_log_writes(self, path: str | os.PathLike[str], *, sector_bytes: int | None = None) -> int:
        """Writes the journal as dm-log-writes would have, for ``replay-log``; returns the number of entries.

        As there, a write comes when a flush makes it durable, just before that; one with FUA when it completes. What
        another write lies over comes before that one in any case. `sector_bytes` are the log's; None: the device's
        logical block.
        """
        wanted = 0 if sector_bytes is None else checked.count("sector_bytes", sector_bytes, 512, 65536)
        journal = core.DeviceJournal(self._control, self.index)
        return journal.export_log_writes(os.fspath(path), wanted)

    def snapshot_take(self, sequence: int | None = None) -> int:
        """Remembers the device as it is now, or as it was after `sequence` of its journal; returns the id."""
        if sequence is None:
            return self._control.snapshot_take(self.index)
        return self._control.snapshot_take_at(self.index, checked.count("sequence", sequence, 0, names.U64_MOST))

    def snapshot_restore(self, snapshot: int, *, force: bool = False) -> None:
        """Makes the device what it was.

        Raises:
            OSError: EBUSY, it is open (unless `force`), mounted, or its journal records; ENOENT, no such snapshot.
        """
        self._control.snapshot_restore(self.index, names.snapshot(snapshot), force)

    def snapshot_delete(self, snapshot: int) -> None:
        """Forgets a snapshot; clones of it live on."""
        self._control.snapshot_delete(self.index, names.snapshot(snapshot))

    def snapshots(self) -> list[int]:
        """The ids of the snapshots, oldest first."""
        return list(self._control.snapshots(self.index))

    def state_give(self, snapshot: int, parts: Parts, target: State, *, force: bool = False) -> None:
        """Makes another device, such as a clone, hold what a crash may have left of this one.

        That is a snapshot, and over it what the journal has of some writes, in the order in which they are named. This
        device and its recording stay as they are. What the target held is gone.

        Args:
            snapshot: What lies below: a snapshot of this device, such as ``snapshot_take(0)``, how it was when the
                journal began.
            parts: The writes, discards and write-zeroes that are there, by the sequence of their entry; or (sequence,
                first sector, sectors) of one of which only so many sectors are there, counted from its own first one:
                whole logical blocks, and all of an atomic write.
            target: Has the same capacity, and neither journal nor zones nor protection information.
            force: Also while the target is open, but not while it is mounted.

        Raises:
            OSError: EINVAL, the journal has no such write, or it is not torn so; ENOENT, no journal, or no such
                snapshot; EOVERFLOW, the journal has a gap; EBUSY, the target is open or has a journal.
        """
        if not isinstance(target, State):
            raise InputError(f"target={target!r:.60}", expected="a device, such as a clone")
        target._check_open()
        self._control.state_give(self.index, names.snapshot(snapshot), _parts(parts), target.index, force)

    def state_take(self, snapshot: int, parts: Parts) -> int:
        """The same as a snapshot of this device; returns its id. Memory is taken only for what is put over the first.

        Raises:
            OSError: As :meth:`state_give`; ENOSPC, there are 64 snapshots.
        """
        return self._control.state_take(self.index, names.snapshot(snapshot), _parts(parts))


def _parts(parts: Parts) -> core.DeviceParts:
    if isinstance(parts, core.DeviceParts):
        return parts
    try:
        return core.DeviceParts([(part, 0, 0) if isinstance(part, int) else part for part in parts])
    except TypeError:
        wanted = "sequences of the journal, or (sequence, first sector, sectors), all whole numbers from 0"
        raise InputError(f"parts={parts!r:.60}", expected=wanted) from None
