# SPDX-License-Identifier: MIT
"""The writes around a crash in the order of their submission, and what a state has of each."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from sampleblk_lab.crash.log import some
from sampleblk_lab.table import Table

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sampleblk_lab.crash.log import State
    from sampleblk_lab.crash.submitters import Submitter

T = TypeVar("T")

# Shown at most; what is left out is counted.
_WRITES = 40
_FLUSHES = 16
_MARKS = 12


@dataclass(frozen=True)
class Written:
    """A write around a crash.

    Attributes:
        sequence: The log's number of it.
        kind: ``"write"`` or ``"zeroes"``.
        sector: Where on the disk it begins, in sectors of 512 bytes.
        sectors: How many.
        fua: Whether it has FUA.
        atomic: Whether it is there whole or not at all.
        failed: Whether it was reported as failed.
        submit: Its submission, a number of the log's one count of submissions and completions.
        complete: Its completion, of the same count; infinity: never.
        fate: ``"lost"``, ``"torn"``, ``"kept"``, or ``"durable"``: no crash at this time may lose it.
        there: Of a torn one: the first sector that is there, counted from its begin, and how many.
        names: What it is in the terms of the file system; of a torn one, what is missing of it.
        submitters: The same of who submitted it, as far as that was recorded.
    """

    sequence: int
    kind: str
    sector: int
    sectors: int
    fua: bool
    atomic: bool
    failed: bool
    submit: float
    complete: float
    fate: str
    there: tuple[int, int] | None
    names: list[str]
    submitters: list[Submitter]


@dataclass(frozen=True)
class Timeline:
    """What lies between the last flush before the first missing write, and the crash; bounded.

    The crash is the latest one that may leave the state: just before the next submission, or before a missing write
    would be durable.

    Attributes:
        title: The state.
        begin: The submission of that flush; 0: the log's begin.
        crash: The crash, a number of the same count; infinity: after the log's end.
        writes: In order; a Counter of fates stands for neighbours that are left out.
        fates: How many writes of each fate there are, with those that are left out.
        before: Writes before these: no crash could lose them, or they are of earlier epochs.
        flushes: (submission, completion) of those that succeeded.
        marks: (order, text).
        hidden_flushes: Flushes that are left out.
        hidden_marks: Marks that are left out.
        flush_believed: Whether flushes make writes durable in this log.
        fua_believed: Whether FUA does.
    """

    title: str
    begin: float
    crash: float
    writes: list[Written | Counter[str]]
    fates: Counter[str]
    before: int
    flushes: list[tuple[float, float]]
    marks: list[tuple[float, str]]
    hidden_flushes: int
    hidden_marks: int
    flush_believed: bool
    fua_believed: bool


class _Writes:
    """The writes of a state's log, by their index in it."""

    def __init__(self, state: State) -> None:
        self._log = state.log
        self._table = state.log.table()
        self._lost = set(state.native.lost)
        self._torn = {write: (first, count) for write, first, count in state.native.torn}
        self.submit: NDArray[np.float64] = self._table["submit_order"].values.astype(np.float64)
        complete = self._table["complete_order"].values.astype(np.float64)
        self.complete = np.where(complete == 0, np.inf, complete)

    @property
    def gone(self) -> list[int]:
        """Those that are missing: the lost ones, then the torn ones."""
        return [*sorted(self._lost), *sorted(self._torn)]

    def fate(self, write: int, crash: float) -> str:
        if write in self._lost:
            return "lost"
        if write in self._torn:
            return "torn"
        return "durable" if self._log.durable[write] < crash else "kept"

    def of(self, write: int, crash: float = np.inf) -> Written:
        table = self._table
        sequence = int(table["sequence"].values[write])
        there = self._torn.get(write)
        first, count = there or (0, 0)

        def missing(parts: list[tuple[int, int, T]]) -> list[T]:
            return [what for begin, sectors, what in parts if not first <= begin <= begin + sectors <= first + count]

        return Written(
            sequence,
            kind=str(table["type"][write]),
            sector=int(table["sector"].values[write]),
            sectors=int(table["sectors"].values[write]),
            fua=bool(table["fua"].values[write]),
            atomic=bool(table["atomic"].values[write]),
            failed=bool(table["failed"].values[write]),
            submit=float(self.submit[write]),
            complete=float(self.complete[write]),
            fate=self.fate(write, crash),
            there=there,
            names=missing(self._log.names(sequence)),
            submitters=list(dict.fromkeys(missing(self._log.submitters(sequence)))),
        )


def missing(state: State) -> list[Written]:
    """The writes that a state misses: the lost ones, then the torn ones."""
    writes = _Writes(state)
    return [writes.of(write) for write in writes.gone]


def missing_table(state: State) -> Table:
    """The same as a table, with a row for each."""
    from sampleblk_lab.texts import readable

    rows = missing(state)
    by = {"submitted_by": [readable(by_text(row)) for row in rows]} if state.log.has_submitters else {}
    return Table.of(
        {
            "write": np.array([row.sequence for row in rows], dtype=np.int64),
            "missing": [missing_text(row) for row in rows],
            "sectors": np.array([row.sectors for row in rows], dtype=np.int64),
            "at": np.array([row.sector for row in rows], dtype=np.int64),
            "what": [readable(some(row.names, "; ")) for row in rows],
            **by,
        },
        units={"at": "sector"},
        key="write",
    )


def missing_text(write: Written) -> str:
    """How a write is missing: ``"all of it"``, or ``"all but sectors 0 to 3"``."""
    if write.there is None:
        return "all of it"
    first, count = write.there
    return f"all but sectors {first} to {first + count - 1}" if count != 1 else f"all but sector {first}"


def by_text(write: Written) -> str:
    """Who submitted it, each once; empty where that is not known."""
    return some(list(dict.fromkeys(who.text() for who in write.submitters)), "; ")


def timeline(state: State) -> Timeline:
    """What is to be seen of a state."""
    log = state.log
    writes = _Writes(state)
    order = np.array(log.order[: state.submitted], dtype=np.int64)
    gone = writes.gone
    crash = float(writes.submit[log.order[state.submitted]]) if state.submitted < len(log) else np.inf
    if gone:
        crash = min(crash, float(log.durable[gone].min()))
    if len(order):
        # Of a state that the log does not allow.
        crash = max(crash, float(writes.submit[order[-1]]) + 0.5)
    flushes = [(float(submit), float(complete)) for submit, complete in log.native.flush_orders() if submit < crash]
    since = writes.submit[gone].min() if gone else writes.submit[order[-1]] if len(order) else 0
    begin = max((submit for submit, _ in flushes if submit < since), default=0.0)
    seen = order[(writes.submit[order] > begin) | (writes.complete[order] > begin)]
    flushes = [flush for flush in flushes if flush[0] >= begin]
    marks = [(float(at), text) for _, at, text in log.native.marks if begin <= at < crash]

    shown: list[Written | Counter[str]] = []
    fates: Counter[str] = Counter()
    chosen = _chosen(seen, gone)
    for write in seen.tolist():
        fate = writes.fate(write, crash)
        fates[fate] += 1
        if write in chosen:
            shown.append(writes.of(write, crash))
        elif shown and isinstance(shown[-1], Counter):
            shown[-1][fate] += 1
        else:
            shown.append(Counter([fate]))
    return Timeline(
        title=repr(state).strip("<>"),
        begin=begin,
        crash=crash,
        writes=shown,
        fates=fates,
        before=len(order) - len(seen),
        # The one that it begins with, and those before the crash.
        flushes=flushes if len(flushes) <= _FLUSHES else [flushes[0], *flushes[1 - _FLUSHES :]],
        marks=marks[-_MARKS:],
        hidden_flushes=max(len(flushes) - _FLUSHES, 0),
        hidden_marks=max(len(marks) - _MARKS, 0),
        flush_believed=log.flush,
        fua_believed=log.fua,
    )


def _chosen(seen: NDArray[np.int64], gone: list[int]) -> set[int]:
    """Which of the writes are shown: those that are missing, and those submitted next to them or to the crash."""
    if len(seen) <= _WRITES:
        return set(seen.tolist())
    places = np.flatnonzero(np.isin(seen, gone))
    if len(places) > _WRITES:
        half = _WRITES // 2
        places = np.concatenate([places[:half], places[-half:]])
    anchors = np.append(places, len(seen) - 1)
    distance = np.full(len(seen), np.inf)
    for anchor in anchors.tolist():
        distance = np.minimum(distance, np.abs(np.arange(len(seen)) - anchor))
    distance[places] = -1
    return set(seen[np.argsort(distance, kind="stable")[:_WRITES]].tolist())
