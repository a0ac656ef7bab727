# SPDX-License-Identifier: MIT
"""Going through the states of a log: each content once, failures reduced to what they take."""

from __future__ import annotations

import contextlib
import errno
import os
import shlex
import shutil
import signal
import sys
import tempfile
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sampleblk_lab import checked
from sampleblk_lab._native import core
from sampleblk_lab.crash.checks import Check, ask, refuse_full
from sampleblk_lab.crash.disks import ImageFile, cloned
from sampleblk_lab.crash.log import State, some
from sampleblk_lab.crash.model import Sample, native_model
from sampleblk_lab.crash.resident import ResidentTools
from sampleblk_lab.crash.shares import Share
from sampleblk_lab.crash.timeline import by_text, missing, missing_table
from sampleblk_lab.crash.under_way import MOST_WORKERS
from sampleblk_lab.device.filesystem import ToolError
from sampleblk_lab.errors import InputError, SampleblkError, UnsupportedError
from sampleblk_lab.interrupts import held_ctrl_c
from sampleblk_lab.paths import scratch_directory
from sampleblk_lab.progress import Line
from sampleblk_lab.texts import count_text, counted

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from sampleblk_lab.crash.disks import Clone, Disk
    from sampleblk_lab.crash.log import Log
    from sampleblk_lab.crash.model import Model
    from sampleblk_lab.crash.submitters import Submitter
    from sampleblk_lab.crash.under_way import UnderWay
    from sampleblk_lab.table import Table

#: In which states are explored: as the log has them, or those that are unlike each other first.
ORDERS = ("log", "unlike")

# What threading says where clone(2) failed, as fork(2) may; from no errno.
_NO_THREAD = "can't start new thread"

# States that are looked at between two looks at the clock.
_LOOK = 100_000


@dataclass(frozen=True)
class Failure:
    """A state that did not pass.

    Attributes:
        state: As it was found.
        reduced: The same crash with as little lost and torn as fails still: what the failure takes.
        error: What the check raised for the reduced state.
        check: The check.
        kernel: The release that it was found with, where that was in a VM.
        kernel_warning: Regular expressions of what that kernel was allowed to complain of.
    """

    state: State
    reduced: State
    error: Exception
    check: Callable[[Path, State], object]
    kernel: str = ""
    kernel_warning: tuple[str, ...] = ()

    def text(self) -> str:
        """The reduced state, its missing writes, and what the check said."""
        lines = [f"{self.reduced!r}: {type(self.error).__name__}: {self.error}"]
        lines += [f"  {text}" for text in self.missing]
        return "\n".join(lines)

    @property
    def missing(self) -> list[str]:
        """The writes that the reduced state misses, a line each: where, how much, what they are, who submitted them."""
        return [
            f"write {write.sequence}: {counted(write.sectors, 'sector')} at {write.sector}"
            f"{': ' if write.names else ''}{some(write.names, '; ')}"
            f"{', by ' if write.submitters else ''}{by_text(write)}"
            for write in missing(self.reduced)
        ]

    @property
    def submitters(self) -> dict[int, list[Submitter]]:
        """Who submitted what is missing, by the writes' sequence, each once; empty where that was not recorded."""
        return {write.sequence: write.submitters for write in missing(self.reduced) if write.submitters}

    def stacks(self) -> str:
        """Those of :attr:`submitters`, each once, with the writes that it submitted; empty where there are none."""
        writes: dict[Submitter, list[int]] = {}
        for sequence, who in self.submitters.items():
            for one in who:
                writes.setdefault(one, []).append(sequence)
        parts = []
        for one, sequences in writes.items():
            head = f"write{'s' * (len(sequences) > 1)} {some(sequences)}: {one.text()} (pid {one.pid})"
            parts.append("\n".join([head, *(f"  {name}" for name in one.stack)]))
        return "\n\n".join(parts)

    def missing_table(self) -> Table:
        """The same as a table: columns write, missing (how much of it), sectors, at, what; submitted_by where known."""
        return missing_table(self.reduced)

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        from sampleblk_lab.report.crash_page import failure_bundle

        return failure_bundle(self)

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Writes it out: ``pytest FOLDER`` then builds the reduced state and fails as it did, on any machine.

        The folder has the recording, compressed, and ``test_crash_state.py``, which has a second test, of the same
        crash with nothing lost. A module of your own that the check is from is copied to it; what that imports is not.
        A check that mounts is run in the VM, and so is one that failed in a VM; the file says with which kernel.

        Args:
            folder: Made if it does not exist.

        Raises:
            InputError: The check cannot be written down, such as a function within a function; or the folder has a
                saved failure.
            OSError: It cannot be written.
        """
        from sampleblk_lab.crash.reproduce import save

        return save(self, folder)

    def command(self, folder: str | os.PathLike[str] = "") -> str:
        """What reproduces it where :meth:`save` has written it."""
        kernel = f"--sblk-kernel {shlex.quote(self.kernel)}" if self.kernel else ""
        return " ".join(filter(None, ("pytest", kernel, shlex.quote(os.fspath(folder)) if folder else "")))

    def json(self) -> dict[str, Any]:
        """The same as JSON has it: the writes by their sequence in the log."""
        return {
            "after": self.reduced.after,
            "submitted": self.reduced.submitted,
            "lost": self.reduced.lost,
            "torn": [list(torn) for torn in self.reduced.torn],
            "missing": self.missing,
            "submitters": {
                sequence: [
                    {
                        "task": one.task,
                        "pid": one.pid,
                        "syscall": one.syscall,
                        "function": one.function,
                        "stack": one.stack,
                    }
                    for one in who
                ]
                for sequence, who in self.submitters.items()
            },
            "marks": self.reduced.marks,
            "error": type(self.error).__name__,
            "message": str(self.error),
        }


@dataclass
class Exploration:
    """What an exploration looked at and found; of one that went on from a file, from its first begin.

    Attributes:
        states: States that were looked at.
        checked: Of those, the ones with contents of their own, each of which was built and checked.
        total: How many the model has; infinity where that is too many to say, or has no end.
        complete: Whether that were all.
        interrupted: Whether Ctrl-C ended it.
        lost: Why it could not go on, or nothing; what was found until then is here.
        elapsed_s: Seconds it took.
        failures: What did not pass.
        log: What was explored.
        model: Which states of it.
        check: What they were checked with.
    """

    states: int = 0
    checked: int = 0
    total: float = 0
    complete: bool = False
    interrupted: bool = False
    lost: str = ""
    elapsed_s: float = 0
    failures: list[Failure] = field(default_factory=list)
    log: Log | None = field(default=None, compare=False)
    model: Model | None = field(default=None, compare=False)
    check: Callable[[Path, State], object] | None = field(default=None, compare=False)

    @property
    def ok(self) -> bool:
        """Whether something was checked, all of it passed, and nothing kept it from going on."""
        return self.checked > 0 and not self.failures and not self.lost and not self.interrupted

    def text(self) -> str:
        """A line that says what was looked at, then the failures."""
        of = "" if self.complete or self.total == float("inf") else f" of {count_text(self.total)}"
        rate = self.checked / self.elapsed_s if self.elapsed_s else 0
        head = (
            f"{self.states}{of} states, {self.checked} with contents of their own checked in {self.elapsed_s:.1f} s "
            f"({rate:.1f}/s){', all there are' if self.complete else ''}"
            f"{', of a log without writes' if self.log is not None and not len(self.log) else ''}"
            f"{', interrupted' if self.interrupted else ''}{f', ended early ({self.lost})' if self.lost else ''}: "
            f"{len(self.failures)} failed"
        )
        return "\n".join([head, *(failure.text() for failure in self.failures)])

    def json(self) -> dict[str, Any]:
        """The same as JSON has it. ``total`` is None where that is too many to say."""
        return {
            "states": self.states,
            "checked": self.checked,
            "total": self.total if self.total != float("inf") else None,
            "complete": self.complete,
            "interrupted": self.interrupted,
            "lost": self.lost,
            "elapsed_s": self.elapsed_s,
            "failures": [failure.json() for failure in self.failures],
        }

    def report(self, path: str | os.PathLike[str], *, saved: Sequence[str] = ()) -> Path:
        """Writes a page of it: one self-contained HTML file, with a picture of each failure's state.

        Args:
            path: The file.
            saved: The folders of :meth:`Failure.save`, in the failures' order: the page says how to run them.

        Returns:
            The file.

        Raises:
            OSError: It cannot be written.
        """
        from sampleblk_lab.report.crash_page import crash_page

        target = Path(path)
        target.write_text(crash_page(self, saved).html(), encoding="utf-8")
        return target

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        from sampleblk_lab.report.crash_page import exploration_bundle

        return exploration_bundle(self)

    def __repr__(self) -> str:
        return f"<Exploration {self.text().splitlines()[0]}>"


def _is_ours(error: OSError) -> bool:
    """Whether it tells of this machine, and not of a state: no descriptor or no process was left."""
    # fork(2) has no file. What has one may be damaged so that the kernel has not the memory for it.
    forked = error.errno in (errno.EAGAIN, errno.ENOMEM) and error.filename is None
    return forked or error.errno in (errno.EMFILE, errno.ENFILE)


class Bench:
    """A disk, on which states are checked. To be closed by the thread that uses it.

    Args:
        board: Where its tools tell others what they have learned, and hear it.
        before_each: Called before each check.
        after_each: And after it, however it ended.
    """

    def __init__(
        self,
        log: Log,
        check: Callable[[Path, State], object],
        disk: Disk,
        board: core.CrashVerdictBoard | None = None,
        before_each: Callable[[], object] | None = None,
        after_each: Callable[[], object] | None = None,
    ) -> None:
        self._log = log
        self._check = check
        self._disk = disk
        self._before_each = before_each
        self._after_each = after_each
        self._tools = ResidentTools(board)

    def close(self) -> None:
        """Ends the tools that checked, and what the disk has made."""
        self._tools.close()
        self._disk.close()

    def check(self, state: State) -> Exception | None:
        """What the check says of the state that the image of the disk has taken."""
        if self._before_each is not None:
            self._before_each()
        self._disk.build()
        failed = True
        try:
            with self._tools.used():
                ask(self._check, self._disk.path, state)
            failed = False
        except (UnsupportedError, KeyboardInterrupt):
            # Cannot be checked here, or now: that is no finding.
            raise
        except BaseException as error:
            if isinstance(error, OSError) and _is_ours(error):
                raise
            if isinstance(error, RuntimeError) and str(error) == _NO_THREAD:
                raise UnsupportedError("checking a state", _NO_THREAD, "allow more tasks, or give it memory") from error
            if isinstance(error, ToolError) and error.status == -signal.SIGKILL:
                reason = f"{error.command[0]} was killed"
                raise UnsupportedError("checking a state", reason, "leave it more memory, if it had none") from error
            refuse_full(error, self._disk.path.parent, Path(tempfile.gettempdir()))
            # sys.exit() or pytest.fail() of a check are its verdict, and end nothing else.
            said = f"the check ended with {type(error).__name__}: {error}"
            return error if isinstance(error, Exception) else SampleblkError(said)
        finally:
            self._disk.restore(failed=failed)
            if self._after_each is not None:
                self._after_each()
        return None

    def check_built(self, state: State) -> Exception | None:
        """The same of any state: the image takes it first."""
        self._disk.image.take(state.native)
        return self.check(state)


def _missing(state: State) -> list[int]:
    """Numbers for what a state loses, and then for what it tears."""
    return list(range(len(state.native.lost) + len(state.native.torn)))


def _without(state: State, missing: list[int]) -> State:
    """The same crash, of which only some of what is lost or torn is missing: indices into both lists."""
    lost, torn = state.native.lost, state.native.torn
    return State(
        state.log,
        core.CrashState(
            state.submitted,
            [lost[i] for i in missing if i < len(lost)],
            [torn[i - len(lost)] for i in missing if i >= len(lost)],
        ),
    )


def reduce(check: Callable[[State], Exception | None], state: State, error: Exception) -> tuple[State, Exception, bool]:
    """Delta debugging (Zeller and Hildebrandt, 2002): a failing state of which nothing can be spared.

    Args:
        check: What it says of any state, None where that passes.
        state: The state that failed.
        error: And what was said of it.

    Returns:
        The state, what the check said of it, and whether Ctrl-C ended the reducing.
    """
    best, said = state.at_last_mark(), error
    missing = _missing(best)
    parts = 2
    try:
        while missing:
            size = -(-len(missing) // parts)
            for start in range(0, len(missing), size):
                fewer = missing[:start] + missing[start + size :]
                tried = _without(best, fewer)
                found = check(tried)
                # With less lost a later crash may leave the same, after which more is missing.
                tried = tried.at_last_mark()
                if found is not None and len(_missing(tried)) < len(missing):
                    missing, best, said = _missing(tried), tried, found
                    parts = max(parts - 1, 2)
                    break
            else:
                if size == 1:
                    break
                parts = min(parts * 2, len(missing))
    except KeyboardInterrupt:
        return best, said, True
    except (OSError, SampleblkError):
        pass  # it cannot be checked any more what could be spared: that the state failed stands
    return best, said, False


def folder_for(bytes_needed: int) -> Path | None:
    """Where images are kept: in memory, where that has room for twice as much."""
    shared = Path("/dev/shm")
    if shared.is_dir() and os.access(shared, os.W_OK) and shutil.disk_usage(shared).free > 2 * bytes_needed:
        return shared
    return None


@dataclass(frozen=True)
class Checked:
    """A state of a walk that was checked.

    Attributes:
        number: Which of the contents it has, from 0.
        looked_at: States that the walk had looked at by then.
        failure: If it did not pass.
    """

    number: int
    looked_at: int
    failure: Failure | None


@dataclass(frozen=True)
class Task:
    """What is explored, and how far: the same for each worker.

    Attributes:
        until: In seconds of the monotonic clock.
        after: Contents that were checked before: this many from the first one on.
        earlier: Those that are known to fail, by their number, with the states that had been looked at by then.
        clones: Where it is explored, one for each worker; empty: in files.
        kinds: Of each of the log's writes, so that unlike states come first; empty: in the log's order.
        under_way: Where each worker notes what it is about to check; None: nobody asks.
    """

    log: Log
    check: Callable[[Path, State], object]
    model: Model
    states: int | None
    until: float | None
    after: int = 0
    earlier: Mapping[int, tuple[int, Failure]] = field(default_factory=dict)
    clones: Sequence[Clone] = ()
    kinds: Sequence[int] = ()
    under_way: UnderWay | None = None


@dataclass(frozen=True)
class Led:
    """What an exploration is told by the process that leads it, on another machine.

    Attributes:
        known: Contents that are known to fail, as in :class:`Task`: they are not checked.
        under_way: As in :class:`Task`.
        about: What is explored, as :func:`sampleblk_lab.crash.resume.about` has it; empty: it is asked for.
    """

    known: Mapping[int, tuple[int, Failure]] = field(default_factory=dict)
    under_way: UnderWay | None = None
    about: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Wanted:
    """How an exploration is to be done; :meth:`Log.explore` says what each of these means. Raises InputError."""

    model: Model
    states: int | None
    seconds: float | None
    failures: int
    workers: int | None
    clones: bool | None
    resume: str | os.PathLike[str] | None
    order: str
    progress: bool

    def __post_init__(self) -> None:
        native_model(self.model)
        if isinstance(self.model, Sample) and self.states is None and self.seconds is None:
            raise InputError("a sample without an end", expected="states=, or seconds=")
        if self.seconds is not None:
            checked.seconds("seconds", self.seconds, none=True)
        if self.states is not None:
            checked.count("states", self.states, 0, sys.maxsize)
        if self.workers is not None:
            # As an int of Python's, which alone has what is asked of it.
            object.__setattr__(self, "workers", checked.count("workers", self.workers, 1, MOST_WORKERS))
        checked.count("failures", self.failures, 1, sys.maxsize)
        if self.resume is not None and not Path(self.resume).absolute().parent.is_dir():
            raise InputError(f"resume={os.fspath(self.resume)!r}", expected="a file in a folder that exists")
        if self.order not in ORDERS:
            raise InputError(f"order={self.order!r}", expected=" or ".join(map(repr, ORDERS)))

    def total(self, log: Log) -> float:
        """How many states there are; infinity where they have no end."""
        return float("inf") if isinstance(self.model, Sample) else log.count(self.model)

    def kinds(self, log: Log) -> Sequence[int]:
        """As :class:`Task` has them."""
        return log.kinds() if self.order == "unlike" else ()

    def line(self) -> Line:
        """Where progress is shown, if it is."""
        return Line(every_s=0.5, shown=self.progress, logged=True)


@dataclass(frozen=True)
class Position:
    """How far a walk has come.

    Attributes:
        number: All contents before this one were checked.
        looked_at: States that were looked at by then.
        reached: The failures by the number of their contents, as in :class:`Task`; also later ones.
        is_last: Whether that is how it ends.
    """

    number: int
    looked_at: int
    reached: Mapping[int, tuple[int, Failure]]
    is_last: bool = False


class Contents:
    """The contents of a model that are to be checked, the same ones and in the same order wherever it is.

    Attributes:
        looked_at: States that were looked at, with the one that was yielded last; at the end, all of them.
        complete: Whether those were all there are.
    """

    def __init__(self, task: Task, image: core.CrashImage) -> None:
        self._task = task
        self._walk = core.CrashWalk(task.log.native, task.model.native(), image, task.kinds)
        self.looked_at = 0
        self.complete = False

    def __iter__(self) -> Iterator[State]:
        """Yields the first state of each, which the image has taken."""
        task, walk = self._task, self._walk
        number = 0
        while task.states is None or number < task.after + task.states:
            if task.until is not None and time.monotonic() >= task.until:
                return
            native = walk.next(_LOOK)
            if native is None:
                # A sample never ends; where a hundred thousand draws bring nothing new there is little left.
                if walk.at_end or isinstance(task.model, Sample):
                    if number < task.after:
                        raise InputError(
                            f"{task.after} contents that were checked before",
                            expected=f"at most {number}: all there are",
                        )
                    self.looked_at = walk.looked_at
                    self.complete = walk.at_end
                    return
                continue
            number += 1
            if number > task.after:
                self.looked_at = walk.looked_at
                yield State(task.log, native)


class Walker:
    """Goes through the contents of a model and checks those of a share.

    Args:
        share: None: all of them.
        board: Where those with the other shares are told what its tools have learned, and tell.
    """

    def __init__(
        self, task: Task, folder: Path, share: Share | None = None, board: core.CrashVerdictBoard | None = None
    ) -> None:
        self._task = task
        self._share = share or Share()
        disk: Disk = task.clones[self._share.number] if task.clones else ImageFile(task.log, folder)
        self._number = 0
        calls = () if task.under_way is None else (self._note, task.under_way.judge)
        self._bench = Bench(task.log, task.check, disk, board, *calls)
        self._contents = Contents(task, disk.image)
        self.looked_at = 0
        self.complete = False
        self.interrupted = False

    def close(self) -> None:
        """Ends what it has started."""
        self._bench.close()

    def run(self, stop: Callable[[int], bool]) -> Iterator[Checked]:
        """Yields each state that it has checked.

        Args:
            stop: Asked before each check whether contents of this number are too many.
        """
        for number, state in enumerate(self._contents, start=self._task.after):
            if stop(number):
                return
            # Whose the contents are depends on nothing but how many there were before them.
            if self._share.has(number - self._task.after):
                self.looked_at = self._contents.looked_at
                self._number = number
                # One that is known already was found where it took the machine with it.
                failure = None if number in self._task.earlier else self._checked(state)
                yield Checked(number, self.looked_at, failure)
                if self.interrupted:
                    return
        self.looked_at = self._contents.looked_at
        self.complete = self._contents.complete

    def _note(self) -> None:
        assert self._task.under_way is not None
        self._task.under_way.note(self._share.number, self._number)

    def _checked(self, state: State) -> Failure | None:
        """What is wrong with the state that the image has taken."""
        error = self._bench.check(state)
        failure = None
        if error is not None:
            reduced, said, self.interrupted = reduce(self._bench.check_built, state, error)
            failure = Failure(state, reduced, said, self._task.check)
        if self._task.under_way is not None:
            self._task.under_way.rest(self._share.number)
        return failure


@contextlib.contextmanager
def clones_for(
    log: Log, check: Callable[[Path, State], object], clones: bool | None, count: int
) -> Iterator[Sequence[Clone]]:
    """Clones on which states are built; none where files will do. See :meth:`Log.explore` of `clones`."""
    made: Sequence[Clone] = ()
    with contextlib.ExitStack() as stack:
        if clones or (clones is None and isinstance(check, Check) and check.name == "mounted"):
            try:
                made = stack.enter_context(cloned(log, count))
            except (OSError, UnsupportedError):
                if clones:
                    raise
        yield made


def explore(
    log: Log,
    check: Callable[[Path, State], object],
    wanted: Wanted,
    client: Any = None,
    led: Led | None = None,
) -> Exploration:
    """See :meth:`Log.explore`; `led` by another process."""
    led = led or Led()
    model, failures, workers = wanted.model, wanted.failures, wanted.workers
    if client is not None and wanted.clones:
        raise InputError("clones beside a client", expected="one of them")
    found = Exploration(total=wanted.total(log))
    found.log, found.model, found.check = log, model, check
    begin = time.monotonic()
    until = None if wanted.seconds is None else begin + wanted.seconds
    task = Task(
        *(log, check, model, wanted.states, until),
        earlier=led.known,
        kinds=wanted.kinds(log),
        under_way=led.under_way,
    )
    line = wanted.line()
    with contextlib.ExitStack() as stack:
        note = _not_noted
        if wanted.resume is not None:
            from sampleblk_lab.crash.resume import Notes, about

            notes = Notes(wanted.resume, log, check, led.about or about(log, check, model, wanted.order), begin)
            task = replace(task, after=notes.reached.number, earlier={**task.earlier, **notes.earlier()})
            found.states, begin, note = notes.reached.looked_at, begin - notes.reached.elapsed_s, notes.note
            if enough(task.earlier, failures, task.after):
                settle(found, dict(task.earlier), failures, task.after, found.states, complete=False)
                found.elapsed_s = notes.reached.elapsed_s
                return found
        if client is None:
            task = replace(task, clones=stack.enter_context(clones_for(log, check, wanted.clones, workers or 1)))
        folder = stack.enter_context(scratch_directory("crash-images", folder_for(log.size_bytes * (workers or 1))))
        if client is not None:
            from sampleblk_lab.crash.cluster import explore_on_cluster

            explore_on_cluster(task, found, failures, client, workers, line, note)
        elif workers is None:
            _explore_here(task, found, failures, folder, line, note)
        else:
            from sampleblk_lab.crash.workers import explore_in_processes

            explore_in_processes(task, found, failures, workers, folder, line, note)
    found.elapsed_s = time.monotonic() - begin
    return found


def _not_noted(position: Position) -> None:
    """Of an exploration that nobody wants to go on with."""


def enough(reached: Mapping[int, tuple[int, Failure]], failures: int, number: int) -> bool:
    """Whether as many failures as are wanted are of contents before that number."""
    return len(reached) >= failures and number > sorted(reached)[failures - 1]


def settle(
    found: Exploration,
    reached: dict[int, tuple[int, Failure]],
    failures: int,
    checked: int,
    looked_at: int,
    *,
    complete: bool,
) -> None:
    """Fills in what several have found, as one would have found it.

    Args:
        found: What is filled in.
        reached: The failures by the number of their contents, with the states that were looked at by then.
        failures: How many of them are wanted.
        checked: Contents that were checked.
        looked_at: States that were looked at.
        complete: Whether those were all.
    """
    numbers = sorted(reached)[:failures]
    found.failures = [reached[number][1] for number in numbers]
    if len(numbers) == failures and not found.interrupted and not found.lost:
        # What comes after the last one was looked at by chance.
        found.checked = numbers[-1] + 1
        found.states = reached[numbers[-1]][0]
    else:
        found.checked = checked
        found.states = looked_at
        found.complete = complete


def keep_found(found: Exploration, reached: Collection[Any], error: Exception) -> None:
    """Says why the exploration cannot go on, where it has found something; raises the error otherwise."""
    if not reached or isinstance(error, InputError):
        raise error
    found.lost = f"{type(error).__name__}: {error}".partition("\n")[0]


def note_last(found: Exploration, note: Callable[[Position], None], last: Position) -> None:
    """Notes where it ended. That this cannot be done may be why it did."""
    with contextlib.suppress(*(OSError,) * bool(found.lost)):
        note(last)


def _explore_here(
    task: Task, found: Exploration, failures: int, folder: Path, line: Line, note: Callable[[Position], None]
) -> None:
    walker = Walker(task, folder)
    reached = dict(task.earlier)
    # A failure that is not reduced to its end is told of, and next time looked at again.
    number = checked = task.after
    looked_at = found.states
    try:
        for one in walker.run(lambda number: enough(reached, failures, number)):
            checked, looked_at = one.number + 1, one.looked_at
            if one.failure is not None:
                reached[one.number] = one.looked_at, one.failure
            if not walker.interrupted:
                number = checked
            note(Position(number, looked_at, reached))
            line.show(f"{checked} checked, {len(reached)} failed")
    except KeyboardInterrupt:
        found.interrupted = True
    except (OSError, SampleblkError) as error:
        keep_found(found, reached, error)
    finally:
        with held_ctrl_c():
            walker.close()
        line.clear()
    found.interrupted = found.interrupted or walker.interrupted
    looked_at = max(looked_at, walker.looked_at)
    settle(found, reached, failures, checked, looked_at, complete=walker.complete)
    note_last(found, note, Position(number, looked_at, reached, is_last=True))
