# SPDX-License-Identifier: MIT
"""Exploring in several processes, each with an image of its own.

Every worker walks through all contents, which costs little beside checking them, and checks those of its share: so each
is checked by one of them, and which one depends on nothing but the log, the model and how many there are.
"""

from __future__ import annotations

import contextlib
import itertools
import mmap
import os
import pickle
import signal
import time
import warnings
from multiprocessing.connection import Connection, Pipe, wait
from typing import TYPE_CHECKING, Any

from sampleblk_lab._native import core
from sampleblk_lab.crash.explore import Exploration, Failure, Position, Task, Walker, keep_found, note_last, settle
from sampleblk_lab.crash.log import Bare, Log, State
from sampleblk_lab.crash.shares import Share
from sampleblk_lab.errors import SampleblkError
from sampleblk_lab.interrupts import RaisedWithin, counted_ctrl_c

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from sampleblk_lab.progress import Line

# How long a worker that was interrupted may take to undo what its check did.
_GRACE_S = 10.0

# Between two looks at whether Ctrl-C was pressed.
_LOOK_S = 0.2

_NEVER = 2**64 - 1

# What a worker leaves in the shared words: how many it has checked, how far it had looked by then, and how many of them
# need not be checked again: not a failure whose reduction was interrupted.
_WORDS = 3

#: See :func:`packed_failure`.
Sent = tuple[Bare, Bare, Any]


class _Shared:
    """What all processes see: numbers, each written by one of them, and what their tools have learned."""

    def __init__(self, workers: int) -> None:
        self.board = core.CrashVerdictBoard()
        self._words = memoryview(mmap.mmap(-1, 8 * (1 + _WORDS * workers))).cast("Q")
        self.last = _NEVER

    @property
    def last(self) -> int:
        """The number of the last contents that are of interest: with that one there are failures enough."""
        return self._words[0]

    @last.setter
    def last(self, number: int) -> None:
        self._words[0] = number

    def report(self, worker: int, checked: int, looked_at: int, settled: int) -> None:
        """A worker's own numbers."""
        self._words[1 + _WORDS * worker] = checked
        self._words[2 + _WORDS * worker] = looked_at
        self._words[3 + _WORDS * worker] = settled

    @property
    def checked(self) -> int:
        """Contents that all of them have checked."""
        return sum(self._words[1::_WORDS])

    @property
    def looked_at(self) -> int:
        """How far the foremost has looked."""
        return max(self._words[2::_WORDS])

    def all_before(self, after: int) -> int:
        """The first contents from `after` on that are still to be checked."""
        counts = self._words[3::_WORDS]
        return after + min(Share(number, len(counts)).number_of(count) for number, count in enumerate(counts))


def packed(error: Exception, dumps: Callable[[object], bytes] = pickle.dumps) -> Exception | tuple[str, str]:
    """An exception as it can be sent: itself, or its name and what it says where it cannot be."""
    with contextlib.suppress(Exception):
        back = pickle.loads(dumps(error))
        if type(back) is type(error) and str(back) == str(error):
            return error
    return type(error).__name__, str(error)


def unpacked(sent: Exception | tuple[str, str]) -> Exception:
    """The exception, or one of the same name that says the same."""
    if isinstance(sent, Exception):
        return sent
    name, text = sent
    rebuilt: Exception = type(name, (SampleblkError,), {})(text)
    return rebuilt


def packed_failure(failure: Failure) -> Sent:
    """A failure as it can be sent: the state, what it was reduced to, and what was said."""
    return failure.state.bare, failure.reduced.bare, packed(failure.error)


def unpacked_failure(log: Log, check: Callable[[Path, State], object], sent: Sent) -> Failure:
    """The failure, of a log and a check that are here."""
    state, reduced, error = sent
    return Failure(State.of(log, state), State.of(log, reduced), unpacked(error), check)


def _work(
    task: Task,
    folder: Path,
    share: Share,
    shared: _Shared,
    to: Connection,
    parent: int,
    ctrl_c: RaisedWithin,
) -> None:
    """What a worker does. Sends ("failure", number, …) for each, then ("end", complete, interrupted)."""
    folder.mkdir()
    try:
        with contextlib.closing(Walker(task, folder, share, shared.board)) as walker:
            interrupted = False
            try:
                # A parent that was killed cannot stop anybody.
                states = walker.run(lambda number: number > shared.last or os.getppid() != parent)
                for count in itertools.count(1):
                    with ctrl_c.block():
                        checked = next(states, None)
                    if checked is None:
                        break
                    if (failure := checked.failure) is not None:
                        to.send(("failure", checked.number, checked.looked_at, packed_failure(failure)))
                    # After it: what counts as checked has been told of.
                    shared.report(share.number, count, checked.looked_at, count - walker.interrupted)
            except KeyboardInterrupt:
                interrupted = True
            to.send(("end", walker.complete, interrupted or walker.interrupted, walker.looked_at))
    except Exception as error:
        to.send(("error", packed(error)))


class _Crew:
    """The processes; none is left when the block ends."""

    def __init__(self, task: Task, folder: Path, workers: int, shared: _Shared) -> None:
        self._ids: dict[Connection, int] = {}
        self._pidfds: dict[Connection, int] = {}
        parent = os.getpid()
        try:
            for share in range(workers):
                here, there = Pipe(duplex=False)
                with warnings.catch_warnings():
                    # Python 3.12 warns of other threads, whose locks a child might wait for: ours uses none of theirs.
                    warnings.simplefilter("ignore", DeprecationWarning)
                    child = os.fork()
                if child == 0:
                    status = 1
                    try:
                        # What it tells, it tells whole, and that it has ended in any case.
                        ctrl_c = RaisedWithin()
                        # Out of reach of the terminal's Ctrl-C, which is the parent's to pass on.
                        os.setpgid(0, 0)
                        here.close()
                        for other in self._ids:
                            other.close()
                        _work(task, folder / f"worker-{share}", Share(share, workers), shared, there, parent, ctrl_c)
                        status = 0
                    finally:
                        os._exit(status)
                there.close()
                with contextlib.suppress(OSError):  # it has done so itself, or has ended
                    os.setpgid(child, child)
                self._ids[here] = child
                self._pidfds[here] = os.pidfd_open(child)
        except BaseException:
            self.end()
            raise

    @property
    def busy(self) -> list[Connection]:
        """Those that have not ended."""
        return list(self._ids)

    @property
    def gone(self) -> list[Connection]:
        """Those that have ended without a word: what they have forked keeps their end of the pipe open."""
        ended = wait(self._pidfds.values(), timeout=0)
        return [one for one, pidfd in self._pidfds.items() if pidfd in ended and not one.poll()]

    def wait(self) -> list[Connection]:
        """Those that have said something, as soon as one has, or has ended, or it is time to look at Ctrl-C."""
        ready = wait([*self._ids, *self._pidfds.values()], timeout=_LOOK_S)
        return [one for one in self._ids if one in ready]

    def ended(self, one: Connection) -> int:
        """Waits for the end of a worker; returns its wait status."""
        child, pidfd = self._ids.pop(one), self._pidfds.pop(one, None)
        one.close()
        if pidfd is not None:
            os.close(pidfd)
        return os.waitpid(child, 0)[1]

    def interrupt(self) -> None:
        """What Ctrl-C does, for all of them and what they have started."""
        self._signal(signal.SIGINT)

    def _signal(self, number: signal.Signals) -> None:
        for child in self._ids.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child, number)

    def end(self) -> None:
        """Ends those that are left, at once."""
        self._signal(signal.SIGKILL)
        for one in self.busy:
            self.ended(one)


def explore_in_processes(
    task: Task,
    found: Exploration,
    failures: int,
    workers: int,
    folder: Path,
    line: Line,
    note: Callable[[Position], None],
) -> None:
    """Fills in `found`: the same failures as one process finds, whichever of the workers is the faster."""
    shared = _Shared(workers)
    reached = dict(task.earlier)
    ends: list[tuple[bool, bool, int]] = []
    deadline = float("inf")
    number, looked_at = task.after, found.states
    with counted_ctrl_c() as pressed:
        crew = _Crew(task, folder, workers, shared)
        try:
            # The second time it ends at once.
            while crew.busy and time.monotonic() < deadline and pressed() < 2:
                at, by_then = shared.all_before(task.after), shared.looked_at
                ready = crew.wait()
                errors: list[Exception] = []
                while ready:
                    for one in ready:
                        errors += _receive(task, one, crew, reached, ends)
                    ready = [one for one in crew.busy if one.poll()]
                # Only now: what the others had found by then has been received.
                for error in (*errors, *(_killed(one, crew) for one in crew.gone)):
                    raise error
                # Only now: what failed before `at` has been received.
                number, looked_at = at, max(looked_at, by_then)
                note(Position(number, looked_at, reached))
                if len(reached) >= failures:
                    shared.last = sorted(reached)[failures - 1]
                line.show(f"{task.after + shared.checked} checked, {len(reached)} failed")
                if not found.interrupted and (pressed() or any(interrupted for _, interrupted, _ in ends)):
                    found.interrupted = True
                    deadline = time.monotonic() + _GRACE_S
                    crew.interrupt()
        except (OSError, SampleblkError) as error:
            keep_found(found, reached, error)
        finally:
            crew.end()
            line.clear()
    if len(ends) == workers:
        number = shared.all_before(task.after)
    looked_at = max([looked_at, shared.looked_at, *(looked_at for _, _, looked_at in ends)])
    complete = len(ends) == workers and all(complete for complete, _, _ in ends)
    settle(found, reached, failures, task.after + shared.checked, looked_at, complete=complete)
    note_last(found, note, Position(number, looked_at, reached, is_last=True))


def _receive(
    task: Task,
    one: Connection,
    crew: _Crew,
    reached: dict[int, tuple[int, Failure]],
    ends: list[tuple[bool, bool, int]],
) -> list[Exception]:
    """Takes what a worker has sent, or its end. Returns why it cannot go on, if so."""
    message: tuple[Any, ...]
    try:
        message = one.recv()
    except EOFError:
        return [_killed(one, crew)]
    kind, *rest = message
    if kind == "failure":
        number, looked_at, sent = rest
        reached[number] = looked_at, unpacked_failure(task.log, task.check, sent)
    elif kind == "end":
        complete, interrupted, looked_at = rest
        ends.append((complete, interrupted, looked_at))
        crew.ended(one)
    else:
        crew.ended(one)
        return [unpacked(rest[0])]
    return []


def _killed(one: Connection, crew: _Crew) -> SampleblkError:
    status = os.waitstatus_to_exitcode(crew.ended(one))
    how = f"signal {-status}" if status < 0 else f"exit status {status}"
    return SampleblkError(f"a worker ended by itself, with {how}")
