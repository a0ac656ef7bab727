# SPDX-License-Identifier: MIT
"""Exploring on other hosts: one process tells contents apart and hands them out in ranges, whoever has time checks.

This process goes through all states, as one that checks them itself does, and so knows each content once; that costs
little beside checking. A range is some contents that follow one another, told by their states. It counts when its
outcome is here, and once: that of a worker that was lost is done again by another one.
"""

from __future__ import annotations

import itertools
import statistics
import time
import uuid
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sampleblk_lab import by_value
from sampleblk_lab.crash import host
from sampleblk_lab.crash.explore import (
    Contents,
    Exploration,
    Failure,
    Position,
    Task,
    keep_found,
    note_last,
    settle,
)
from sampleblk_lab.crash.log import Bare, State
from sampleblk_lab.crash.parcel import Parcel, check_by_value, packed
from sampleblk_lab.crash.workers import unpacked
from sampleblk_lab.errors import SampleblkError
from sampleblk_lab.interrupts import counted_ctrl_c
from sampleblk_lab.sweeps.in_flight import InFlight
from sampleblk_lab.sweeps.place import Place, place
from sampleblk_lab.sweeps.work import PASSING, Outcome

if TYPE_CHECKING:
    from collections.abc import Callable

    from sampleblk_lab.progress import Line

# Between two looks at how many workers there are.
_WORKERS_S = 2.0

# How long ranges may take to end once Ctrl-C was pressed.
_GRACE_S = 10.0

# How often a range is tried again that the machine failed.
_RETRIES = 4

# Ranges that are handed over for each thread of a worker: the one that it checks, and the next one.
_EACH = 2

# A range is as large as takes so long, by those before it: what a lost worker costs, and Ctrl-C.
_RANGE_S = 1.0
# But no more than so many in a second, of all workers: half of what one scheduler handles.
_CALLS = 50
# And so many times as long as what it takes to begin, an image to be made of a large disk.
_TIMES_SETUP = 10
_FIRST, _MOST = 4, 10_000

# Lost and torn writes that a range's states name: four bytes each or more, before they are compressed.
_MOST_NAMED = 200_000


@dataclass(eq=False)
class _Range:
    """Contents that follow one another.

    Attributes:
        first: The number of its first one.
        states: The first state of each.
        looked_at: For each, how many states had been looked at by then.
        reducing: Whether it is one state, known to fail, that is reduced.
        to: The worker that found that.
        delivers: The host's folder that the log is brought to with it.
        reasons: Why it failed before.
    """

    first: int
    states: list[Bare]
    looked_at: list[int]
    reducing: bool = False
    to: str = ""
    delivers: str = ""
    reasons: list[str] = field(default_factory=list)


class _Cluster:
    """One exploration."""

    def __init__(
        self,
        task: Task,
        found: Exploration,
        failures: int,
        where: Place,
        line: Line,
        note: Callable[[Position], None],
    ) -> None:
        self._task = task
        self._found = found
        self._failures = failures
        self._place = where
        self._line = line
        self._note = note
        self._id = uuid.uuid4().hex
        self._check = check_by_value(task.check)
        self._parcel = Parcel.of(task.log)
        self._data: bytes | None = None
        self._contents = Contents(task, task.log.image(""))
        self._next = iter(self._contents)
        self._handed_out = task.after
        self._at_end = False
        self._waiting: deque[_Range] = deque()
        self._running: InFlight[_Range] = InFlight()
        # By the host's folder, the ranges that wait until the log is there.
        self._held: dict[str, list[_Range]] = {}
        self._reached = dict(task.earlier)
        self._checked = 0
        # All contents before that number are checked, and from some later ones on so many.
        self._all_before = task.after
        self._later: dict[int, int] = {}
        # Failures that are not reduced yet.
        self._whole: set[int] = set()
        self._looked_at = found.states
        self._check_s = 0.0
        self._setups_s: deque[float] = deque(maxlen=100)
        self._threads = 0
        self._workers_at = float("-inf")
        self._hosts: set[str] = set()
        self._is_ending = False

    def run(self) -> None:
        """Until all is checked, there are failures enough, Ctrl-C is pressed, or the place is lost."""
        with counted_ctrl_c() as pressed:
            try:
                while True:
                    self._submit()
                    if not self._running or not self._is_wanted():
                        break
                    for one, outcome in self._running.ended():
                        self._take(one, outcome)
                    self._note(Position(self._settled(), self._looked_at, self._reached))
                    self._line.show(self._said())
                    if pressed():
                        self._found.interrupted = True
                        break
                    self._found.lost = self._found.lost or self._place.lost()
                    if self._found.lost:
                        break
            except (OSError, SampleblkError) as error:
                keep_found(self._found, self._reached, error)
            finally:
                self._end(pressed)
                self._line.clear()
        looked_at, complete = self._looked_at, False
        checked = self._task.after + self._checked
        if self._at_end and checked == self._handed_out:
            looked_at, complete = max(looked_at, self._contents.looked_at), self._contents.complete
        settle(self._found, self._reached, self._failures, checked, looked_at, complete=complete)
        note_last(self._found, self._note, Position(self._settled(), looked_at, self._reached, is_last=True))

    def _settled(self) -> int:
        """The first contents that a run that goes on from here has to check."""
        return min([self._all_before, *self._whole])

    def _last(self) -> float:
        """The number of the last contents that are of interest: with that one there are failures enough."""
        return sorted(self._reached)[self._failures - 1] if len(self._reached) >= self._failures else float("inf")

    def _is_wanted(self) -> bool:
        """Whether a range that has not ended has something of interest."""
        last = self._last()
        ranges = itertools.chain(self._running, self._waiting, *self._held.values())
        return last == float("inf") or any(one.first <= last for one in ranges)

    def _look_at_workers(self) -> None:
        workers = self._place.workers()
        self._threads = sum(workers.values())
        self._workers_at = time.monotonic()
        # Dask has such a call wait for the worker where there is no other one at the time, and then does not look again
        # (distributed 2026.8: the state "no-worker", with loose restrictions).
        for one in self._running:
            if one.to and one.to not in workers:
                self._running.drop(one)
                self._take(one, Outcome(kind="lost", message=f"the worker {one.to} is gone"))

    def _submit(self) -> None:
        if time.monotonic() - self._workers_at > _WORKERS_S:
            self._look_at_workers()
        last = self._last()
        # Also where there is no worker yet: it is what makes a cluster that adapts start one.
        ahead = _EACH * max(self._threads, 1)
        while len(self._running) + sum(map(len, self._held.values())) < ahead:
            one = self._waiting.popleft() if self._waiting else self._cut()
            if one is None:
                return
            if one.first <= last:
                self._hand_over(one)

    def _cut(self) -> _Range | None:
        """The next range; None when there is nothing more to check."""
        made = _Range(self._handed_out, [], [])
        named = 0
        size = self._size()
        last = self._last()
        while len(made.states) < size and named < _MOST_NAMED and not self._at_end and self._handed_out <= last:
            state = next(self._next, None)
            if state is None:
                self._at_end = True
                break
            made.states.append(state.bare)
            made.looked_at.append(self._contents.looked_at)
            named += len(state.bare[1]) + len(state.bare[2])
            self._handed_out += 1
        return made if made.states else None

    def _size(self) -> int:
        if not self._checked:
            return _FIRST
        wanted_s = max(_RANGE_S, self._threads / _CALLS, _TIMES_SETUP * statistics.fmean(self._setups_s))
        each_s = self._check_s / self._checked
        return max(1, min(_MOST, int(wanted_s / each_s))) if each_s else _MOST

    def _hand_over(self, one: _Range) -> None:
        left = None
        if self._task.until is not None and not one.reducing:
            left = self._task.until - time.monotonic()
            if left <= 0:
                return
        ordered = host.order(self._id, self._check, self._parcel, one.states, left, reducing=one.reducing)
        data = None
        if one.delivers:
            if self._data is None:
                self._data = packed(self._task.log)
            data = self._place.sent(self._data, one.to)
        try:
            future = self._place.submit(host.check, ordered, self._parcel, data, key=f"crash{self._id}", to=one.to)
        except RuntimeError as error:  # a pool that is broken or shut down
            self._found.lost = f"{type(error).__name__}: {error}"
            return
        self._running.add(future, one)

    def _take(self, one: _Range, outcome: Outcome) -> None:
        if one.delivers:
            self._waiting.extendleft(reversed(self._held.pop(one.delivers, [])))
            one.delivers = ""
        if outcome.kind == "stopped" or (outcome.kind and self._is_ending):
            return
        if outcome.kind == host.LACKS:
            store = outcome.facts["store"]
            if store in self._held:
                self._held[store].append(one)
                return
            # It goes there again, with the log; what else comes there meanwhile waits.
            self._held[store] = []
            one.delivers, one.to = store, outcome.facts["worker"]
            self._hand_over(one)
            return
        if outcome.kind:
            self._again(one, outcome)
            return
        found: host.Found = by_value.loads(outcome.values["value"])
        if found.error is not None:
            if self._is_ending:
                return
            raise unpacked(found.error)
        self._hosts.add(outcome.facts["host"])
        self._setups_s.append(found.setup_s)
        if not one.reducing:
            self._checked += found.checked
            self._later[one.first] = found.checked
            while count := self._later.pop(self._all_before, 0):
                self._all_before += count
            self._check_s += found.seconds - found.setup_s
            self._looked_at = max([self._looked_at, *one.looked_at[: found.checked]])
            if rest := one.states[found.checked :]:
                after = one.looked_at[found.checked :]
                self._waiting.appendleft(_Range(one.first + found.checked, rest, after))
        if found.failed is not None:
            index, bare, error = found.failed
            number, looked_at = one.first + index, one.looked_at[index]
            state = State.of(self._task.log, one.states[index])
            reduced = State.of(self._task.log, bare)
            self._reached[number] = looked_at, Failure(state, reduced, unpacked(error), self._task.check)
            late = state.at_last_mark().native
            if not one.reducing and (late.lost or late.torn):
                # Reduced where it was found, and by a call of its own: what Ctrl-C ends is not the finding.
                worker = outcome.facts["worker"]
                self._waiting.appendleft(_Range(number, [one.states[index]], [looked_at], reducing=True, to=worker))
                self._whole.add(number)
            else:
                self._whole.discard(number)

    def _again(self, one: _Range, outcome: Outcome) -> None:
        one.reasons.append(f"{outcome.kind}: {outcome.message.splitlines()[0] if outcome.message else ''}")
        one.to = ""
        if outcome.kind in PASSING and len(one.reasons) <= _RETRIES:
            self._waiting.append(one)
            return
        where = f" on {outcome.facts['host']}" if outcome.facts.get("host") else ""
        tries = f", in {len(one.reasons)} tries" if len(one.reasons) > 1 else ""
        raise SampleblkError(
            f"contents {one.first} to {one.first + len(one.states) - 1} could not be checked{where}{tries}: "
            f"{one.reasons[-1]}"
        )

    def _end(self, pressed: Callable[[], int]) -> None:
        """Ends what still runs, and takes what has ended meanwhile."""
        self._is_ending = True
        enough = len(self._reached) >= self._failures
        grace_s = 0.0 if self._found.lost or enough else _GRACE_S
        for one, outcome in self._running.end(lambda: self._place.stop(self._id), grace_s, pressed):
            self._take(one, outcome)

    def _said(self) -> str:
        hosts = f", {len(self._hosts)} hosts" if len(self._hosts) > 1 else ""
        checked = self._task.after + self._checked
        return f"{checked} checked, {len(self._reached)} failed, {self._threads} at a time{hosts}"


def explore_on_cluster(
    task: Task,
    found: Exploration,
    failures: int,
    client: Any,
    workers: int | None,
    line: Line,
    note: Callable[[Position], None],
) -> None:
    """Fills in `found`: the same failures as one process finds, whoever checks what.

    Raises:
        InputError: As :func:`sampleblk_lab.sweeps.place.place`; the check cannot be sent.
        SampleblkError: A range could not be checked, however often it was tried.
        UnsupportedError: As :func:`sampleblk_lab.sweeps.place.place`; a host lacks what the check needs.
    """
    with place(client, workers, None) as where:
        _Cluster(task, found, failures, where, line, note).run()
