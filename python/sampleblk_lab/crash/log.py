# SPDX-License-Identifier: MIT
"""A log of writes, and the states that a crash may leave of it."""

from __future__ import annotations

import functools
import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sampleblk_lab import checked
from sampleblk_lab._native import core
from sampleblk_lab.crash import submitters
from sampleblk_lab.crash.model import Reorder, native_model
from sampleblk_lab.errors import InputError
from sampleblk_lab.functions import check_takes
from sampleblk_lab.paths import scratch_directory
from sampleblk_lab.table import Table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from sampleblk_lab.crash.explore import Exploration
    from sampleblk_lab.crash.model import Model
    from sampleblk_lab.crash.submitters import Submitter


#: A state without its log, as :attr:`State.bare` has it.
Bare = tuple[int, list[int], list[tuple[int, int, int]]]


def _identity(path: Path) -> tuple[int, ...] | None:
    """What tells a file from one that took its place; None for a device, and where there is none any more."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(status.st_mode):
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


class State:
    """A crash after a submission, and what is missing of what was submitted by then.

    Attributes:
        log: The log that it is of.
        native: The core's form of it.
    """

    def __init__(self, log: Log, native: core.CrashState) -> None:
        self.log = log
        self.native = native

    @classmethod
    def of(cls, log: Log, bare: Bare) -> State:
        """The state of a log that :attr:`bare` tells of, in whichever process."""
        return cls(log, core.CrashState(*bare))

    @property
    def bare(self) -> Bare:
        """The state as plain data, which can be sent: submissions, indices of lost writes, torn ones."""
        return self.native.submitted, self.native.lost, self.native.torn

    @property
    def submitted(self) -> int:
        """How many writes had been submitted."""
        return self.native.submitted

    @property
    def after(self) -> int:
        """The log's sequence of the last write that had been submitted; 0 when none had."""
        if not self.submitted:
            return 0
        return int(self.log.sequences[self.log.order[self.submitted - 1]])

    @property
    def lost(self) -> list[int]:
        """The sequences of the writes that are missing."""
        return [int(self.log.sequences[write]) for write in self.native.lost]

    @property
    def torn(self) -> list[tuple[int, int, int]]:
        """(sequence, first sector, sectors) of the writes of which only those sectors are there, from their begin."""
        return [(int(self.log.sequences[write]), first, count) for write, first, count in self.native.torn]

    @property
    def marks(self) -> list[str]:
        """The marks that may have been set, so that what they promise must hold.

        Those before the crash, and those after it that left the disk as it is, or as it may be again: until a later
        write is durable, a crash may lose all later ones.
        """
        native = self.log.native
        return [text for _, _, text in native.marks[: native.marks_set(self.native)]]

    @property
    def moments(self) -> list[list[str]]:
        """The marks that were set at each moment at which a crash may leave these contents; :attr:`marks` is the last.

        What is promised for a time only, such as until a file is removed, is asked of all of them.
        """
        marks = self.marks
        first = self.log.native.marks_set_first(self.native)
        return [marks[:count] for count in range(first, len(marks) + 1)]

    def at_last_mark(self) -> State:
        """The same contents left by a crash just after the last of :attr:`marks`: what came until then is lost, too."""
        return State(self.log, self.log.native.at_last_mark(self.native))

    def picture(self, *, dark: bool = False) -> str:
        """The writes around the crash and what became of each, as an SVG document: lost, torn, kept, durable.

        They are those since the last flush before the first missing one. Where there are many, those next to missing
        ones and to the crash are drawn, and the others counted.
        """
        from sampleblk_lab.crash.timeline import timeline
        from sampleblk_lab.plot.crash_state import draw

        return draw(timeline(self), dark=dark)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, State) and self.log is other.log and self.native == other.native

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        text = f"crash after write {self.after}"
        if lost := self.lost:
            text += f", lost: {some(lost)}"
        if torn := self.torn:
            there = [f"{number} (sectors {first} to {first + count - 1} there)" for number, first, count in torn]
            text += f", torn: {some(there)}"
        return f"<{text}>"


def some(values: list[int] | list[str], between: str = ", ") -> str:
    """The first few of them, and how many more there are."""
    shown = between.join(map(str, values[:6]))
    return shown + (f" and {len(values) - 6} more" if len(values) > 6 else "")


class Log:
    """What was written to a disk: a journal of our driver (:func:`recording`), or a log of dm-log-writes.

    A log of dm-log-writes says when writes completed, not when they were submitted: its states have nothing of what was
    on its way at a crash.

    Args:
        path: The file.
        base: An image of the disk as it was when the recording began; ``"zeros"`` when it held nothing.
        size_bytes: Of the disk; None: of the base.
        flush: Believe that flushes make writes durable. False: a disk that ignores them.
        fua: The same of FUA.

    Attributes:
        block_bytes: The disk's logical block, which it writes whole or not at all; None where the log does not say: a
            journal of an older driver.

    Raises:
        FormatError: The file is truncated or malformed, or the ``submitters.json`` beside it.
        InputError: A journal that overflowed, or that has a power cut; a base that is not known or too large; a
            ``submitters.json`` of another log.
        OSError: It cannot be read.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        base: str | os.PathLike[str] | None = None,
        size_bytes: int | None = None,
        flush: bool = True,
        fua: bool = True,
    ) -> None:
        self.path = Path(path)
        self.flush = flush
        self.fua = fua
        self.native = core.CrashLog.read(os.fspath(path), flush, fua)
        self.block_bytes = self.native.block_bytes or None
        if base is None:
            raise InputError(
                "what the disk held before is not known",
                str(path),
                expected="base=IMAGE, or base='zeros' for nothing",
            )
        self.base = None if base == "zeros" else Path(base)
        if self.base is not None and not stat.S_ISREG(self.base.stat().st_mode):
            raise InputError(f"base={os.fspath(base)!r} is not a file", str(path), expected="an image of one")
        if size_bytes is not None:
            checked.count("size_bytes", size_bytes, 512, 1 << 62)
        else:
            size_bytes = self.base.stat().st_size if self.base else self.native.end_sector * 512
        self.size_bytes = size_bytes
        self._files = {file: _identity(file) for file in (self.path, self.base) if file is not None}
        beside = self.path.with_name(submitters.FILE)
        self._submitters = submitters.load(beside, (self.path, self.native.file_bytes)) if beside.exists() else {}
        self.order = self.native.by_submission
        table = self.table()
        self.sequences = table["sequence"].values
        durable = table["durable_order"].values.astype(np.float64)
        self.durable = np.where(durable == 0, np.inf, durable)

    def table(self) -> Table:
        """A row for each write.

        Columns are sequence, type, sector, sectors (of 512 bytes), fua, atomic, failed, submit_order, complete_order
        and durable_order: from when on no crash may lose it, 0 where that is not within the log. Metadata: format,
        flushes.
        """
        return Table(self.native.table())

    def states(self, model: Model | None = None) -> Iterator[State]:
        """The states, one after another, the same ones each time; :class:`Reorder` unless said."""
        states = core.CrashStates(self.native, native_model(Reorder() if model is None else model))
        while (state := states.next()) is not None:
            yield State(self, state)

    def count(self, model: Model | None = None) -> float:
        """How many states a model has; infinity above 1.8e308. Of :class:`Sample`: those without a torn write."""
        return core.CrashStates(self.native, native_model(Reorder() if model is None else model)).count()

    def state(
        self,
        submitted: int,
        lost: Sequence[int] = (),
        torn: Sequence[tuple[int, int, int]] = (),
    ) -> State:
        """One state: after so many submissions, without the writes of these sequences.

        Args:
            submitted: How many writes had been submitted.
            lost: Sequences of writes that are missing.
            torn: (sequence, first sector, sectors) of writes of which only those sectors are there.

        Raises:
            InputError: There is no such write.
        """
        index = {int(sequence): write for write, sequence in enumerate(self.sequences)}
        checked.count("submitted", submitted, 0, len(self))
        wanted = [*lost, *(sequence for sequence, _, _ in torn)]
        if any(sequence not in index for sequence in wanted):
            raise InputError(
                f"a state after {submitted} submissions without {wanted}",
                str(self.path),
                expected=f"0 to {len(self)} submissions, sequences of the log's writes",
            )
        parts = sorted((index[sequence], first, sectors) for sequence, first, sectors in torn)
        return State(self, core.CrashState(submitted, sorted(index[sequence] for sequence in lost), parts))

    @functools.cached_property
    def _names(self) -> core.CrashNames:
        self.check_files()
        return core.CrashNames(self.native, os.fspath(self.base or ""))

    def names(self, sequence: int) -> list[tuple[int, int, str]]:
        """What a write put on the disk, in the terms of its file system: ``"inode table, inode 12"``.

        Returns:
            (first sector, counted from the write's own begin, sectors, what they are), in order; empty when the file
            system is not known: ext4 is, with its journal, xfs of version 5, btrfs and f2fs.

        Raises:
            InputError: The log has no such write.
        """
        return self._names.of(self._index(sequence))

    def kinds(self) -> list[int]:
        """A number for each write, the same for those that are alike.

        Alike are writes of which :meth:`names` says the same but for numbers, and that the same system calls and
        functions have submitted, as far as these are known.
        """
        return list(self._kinds)

    @functools.cached_property
    def _kinds(self) -> list[int]:
        @functools.cache
        def plain(name: str) -> str:
            return re.sub(r"[\d, ]+", " ", name).replace("inodes", "inode")

        known: dict[object, int] = {}
        found = []
        table = self.table()
        rows = zip(self.sequences.tolist(), table["type"], table["fua"].values, strict=True)
        for write, (sequence, kind, fua) in enumerate(rows):
            what = frozenset(plain(name) for _, _, name in self._names.of(write))
            by = frozenset((who.syscall, who.function) for _, _, who in self._submitters.get(sequence, ()))
            found.append(known.setdefault((str(kind), bool(fua), what, by), len(known)))
        return found

    @property
    def has_submitters(self) -> bool:
        """Whether it was recorded who submitted the writes (``recording(…, stacks=True)``)."""
        return bool(self._submitters)

    def submitters(self, sequence: int) -> list[tuple[int, int, Submitter]]:
        """Who submitted a write: of each part, as requests are merged from what several have submitted.

        Returns:
            (first sector, counted from the write's own begin, sectors, who), in order; empty where that is not known.

        Raises:
            InputError: The log has no such write.
        """
        self._index(sequence)
        return self._submitters.get(sequence, [])

    def _index(self, sequence: int) -> int:
        index = np.flatnonzero(self.sequences == sequence)
        if not index.size:
            raise InputError(f"write {sequence}", str(self.path), expected="the sequence of one of its writes")
        return int(index[0])

    def image(self, path: str | os.PathLike[str]) -> core.CrashImage:
        """An image of the disk at `path` that takes one state after another; ``""``: it only tells them apart.

        Raises:
            InputError: `path` is the log or its base, or these are others by now.
            OSError: It cannot be written.
        """
        self.check_files()
        if (now := _identity(Path(path))) is not None and now in map(_identity, self._files):
            raise InputError("the image of a state over what it is made of", os.fspath(path), expected="another file")
        return core.CrashImage(self.native, os.fspath(path), os.fspath(self.base or ""), self.size_bytes)

    def check_files(self) -> None:
        """Raises InputError where the log or its base is another file by now: states of both would never have been."""
        for file, then in self._files.items():
            if (now := _identity(file)) is not None and now != then:
                raise InputError("it has changed since the log was read", str(file), expected="a new Log of it")

    def write(self, state: State, path: str | os.PathLike[str]) -> None:
        """Writes the image of a state to a file. Raises InputError for one that the log does not allow, OSError."""
        image = self.image(path)
        image.take(state.native)
        image.write()

    def check(self, state: State, check: Callable[[Path, State], object]) -> None:
        """Builds one state and checks it, as :meth:`explore` does each. What the check raises is raised."""
        from sampleblk_lab.crash.checks import ask

        check_takes(check, "check", "image", "state")
        with scratch_directory("crash-state") as folder:
            path = folder / "disk.img"
            self.write(state, path)
            ask(check, path, state)

    def explore(
        self,
        check: Callable[[Path, State], object],
        *,
        model: Model | None = None,
        states: int | None = None,
        seconds: float | None = None,
        failures: int = 1,
        workers: int | None = None,
        client: Any = None,
        vm: bool | Mapping[str, Any] | None = None,
        clones: bool | None = None,
        resume: str | os.PathLike[str] | None = None,
        order: str = "unlike",
        progress: bool = True,
    ) -> Exploration:
        """Builds the states, each content once, and checks them; again where it comes with more :attr:`State.marks`.

        Args:
            check: Called with the image's path and the state; it may write to the image. What it raises is a failure,
                and so is False, and a command that it ran and returns, if that failed.
            model: Which states; :class:`Reorder` unless said.
            states: Check at most so many.
            seconds: Begin no check after so many seconds.
            failures: Stop when so many were found; each is reduced.
            workers: Processes that check at the same time, each on an image of its own; 1 unless said. What is found is
                the same with any number of them; what a check keeps in memory is its worker's own.
            client: Check on other hosts: a ``distributed.Client``, the address of a scheduler, or any
                ``concurrent.futures.Executor``, as for :func:`sampleblk_lab.sweep`. Each range of states is a process
                of its own there. The log goes to a host that lacks it, once; the check goes by value, with the user's
                own code that it refers to. What is found is the same as here.
            vm: Check in a VM: True, or a dict with ``kernel``, ``cpus``, ``memory_mib``, ``accel`` of
                :class:`sampleblk_lab.vm.VM`; `workers` are as many as it has CPUs, unless said. A state with which its
                kernel panics is a failure, whose error is a :class:`sampleblk_lab.vm.GuestPanicError` with the console;
                it is reduced, and the rest is checked in a fresh VM. So is one that takes longer than ``deadline_s``
                (300), or of which the kernel complains, by a warning, an oops or a report of KASAN: the kernel is made
                to panic. ``kernel_warning`` has regular expressions of what it may complain of, such as
                ``"at fs/btrfs/"``. A log in ``/dev/shm`` or ``/run`` is refused: a VM has these for itself.
            clones: Whether the driver builds the states, on clones of a device that has the log: the check is then
                called with the path of a block device. Nothing is copied but what lies over the first state, nothing
                has to be undone, and mounting takes no loop device. None: where the check is one of
                :func:`sampleblk_lab.crash.mounted`, and the driver can be had.
            resume: A file for how far it has come, written every few seconds and at the end. Where it is there, of this
                log, model, check and kernel, this run goes on behind the contents that those before have checked;
                `states` and `seconds` bound each run, and what is returned counts all of them.
            order: ``"unlike"``: first one state of each likeness, then two, four and so on. Alike are states in which
                what is lost and torn, and what was submitted last, are writes of the same kinds: :meth:`kinds`.
                ``"log"``: as :meth:`states` has them.
            progress: Show it; where stderr is neither a terminal nor a notebook's, a line a minute.

        Returns:
            What was looked at and found, also when it was interrupted by Ctrl-C.

        Raises:
            FormatError: `resume` is another file, or damaged.
            InputError: `check` is no function of two arguments; a model, or an endless one without `states` or
                `seconds`; another `order`; `resume` is in no folder, or of another log, model, check,
                order or kernel, or the check cannot be told from others; `client` is none of these, or there are
                `workers`, `clones` or a `vm` beside it; the check cannot be sent; the log or its base has changed
                meanwhile.
            OSError: The image cannot be written, or a check had no file descriptor or process left. This and what
                follows ends an exploration that has found something by then without being raised:
                :attr:`Exploration.lost`.
            SampleblkError: A worker was killed; with `client`, a range of states could not be checked, however often it
                was tried.
            UnsupportedError: An address was given, and distributed is not installed; or a check failed beside a disk of
                this machine that is full, or as its tool was killed, such as for want of memory: no findings.
            VMError: The VM was lost otherwise than by a panic of its kernel.
        """
        from sampleblk_lab.crash.explore import Wanted, explore

        check_takes(check, "check", "image", "state")
        self.check_files()
        model = Reorder() if model is None else model
        wanted = Wanted(model, states, seconds, failures, workers, clones, resume, order, progress)
        if vm is None or vm is False:
            found = explore(self, check, wanted, client)
        else:
            from sampleblk_lab.crash.guests import explore_in_vms

            if client is not None:
                raise InputError("a VM beside a client", expected="one of them")
            if vm is not True and not isinstance(vm, Mapping):
                raise InputError(f"vm={vm!r}", expected="True, or a dict such as {'kernel': '6.12'}")
            found = explore_in_vms(self, check, wanted, {} if vm is True else vm)
        self.check_files()
        return found

    def __len__(self) -> int:
        return len(self.native)

    def __repr__(self) -> str:
        return f"<crash.Log {self.path} ({self.native.format}): {len(self)} writes, {self.native.flushes} flushes>"
