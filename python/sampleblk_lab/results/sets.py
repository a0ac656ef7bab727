# SPDX-License-Identifier: MIT
"""Two sets of sessions compared, test by test."""

from __future__ import annotations

import itertools
import json
import math
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from sampleblk_lab.errors import InputError
from sampleblk_lab.results import machine, stats
from sampleblk_lab.results.comparison import SLOWER, Comparison, compare
from sampleblk_lab.texts import readable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sampleblk_lab.results.store import Stored

# What two sessions of the same experiment may differ by on one machine, each of them being known better than that.
# Measured: the medians of 6 VMs that ran the same job one after the other lay up to 6 % apart.
DRIFT = 0.08


NOT_COMPARED = "not compared"


@dataclass(frozen=True)
class Row:
    """One quantity of one test, of both sets or of one.

    Attributes:
        test: The test's id.
        metric: The quantity's name; empty when there is one.
        comparison: What came of it; None when it could not be compared.
        refused: Why not; empty when it could.
        new: Whether only the later set has it.
    """

    test: str
    metric: str
    comparison: Comparison | None
    refused: str = ""
    new: bool = False

    @property
    def name(self) -> str:
        """Test and metric, as lists have them."""
        return f"{self.test} {self.metric}".strip()

    @property
    def verdict(self) -> str:
        """That of the comparison, or ``"not compared"``."""
        return NOT_COMPARED if self.comparison is None else self.comparison.verdict


@dataclass(frozen=True)
class _Session:
    started_ns: int
    samples: tuple[float, ...]
    environment: dict[str, Any]
    spec: dict[str, Any]
    unit: str
    better: str


def compare_sets(before: Iterable[Stored], after: Iterable[Stored], *, across: Sequence[str] = ()) -> list[Row]:
    """Compares two sets, in the order of `after`; what only `before` has comes last.

    With 6 sessions or more on both sides, a session counts as one sample, paired with the session of the other set
    that ran next to it if the two were run alternately. With fewer, all samples of a side are taken together, and the
    interval is widened by what two sessions of the same may differ by (8 %): what is inside that cannot be told from
    a machine that had a slower hour.

    Args:
        before: Run directories of the one set.
        after: Of the other.
        across: Which of accelerator, kernel and machine may differ. Kernels of one series count as the same, and so do
            hosts of the same processors and memory.

    Returns:
        A row for each quantity of either set; what could not be compared says why.

    Raises:
        InputError: `across` has another word.
    """
    for word in across:
        if word not in machine.ASPECTS:
            raise InputError(f"across {word!r}", expected=", ".join(machine.ASPECTS))
    old, new = _by_metric(before), _by_metric(after)
    rows = [
        _row(*key, old[key], sessions, across)
        if key in old
        else Row(*key, None, "the earlier set does not have it", new=True)
        for key, sessions in new.items()
    ]
    return [*rows, *(Row(*key, None, "the later set does not have it") for key in old if key not in new)]


def failures(rows: Iterable[Row], *, allow_new: bool = False) -> list[Row]:
    """What a gate must not pass: what is slower, and what was asked for and could not be compared.

    Args:
        rows: As :func:`compare_sets` returned them.
        allow_new: Pass what only the later set has.
    """
    return [row for row in rows if row.verdict in (SLOWER, NOT_COMPARED) and not (allow_new and row.new)]


def _by_metric(stored: Iterable[Stored]) -> dict[tuple[str, str], list[_Session]]:
    found: dict[tuple[str, str], list[_Session]] = {}
    for run in stored:
        if not hasattr(run, "measurements"):
            raise TypeError(f"a set is of run directories, as results.store.load() returns them, not {stored!r:.60}")
        for measured in run.measurements:
            found.setdefault((run.test, measured["name"]), []).append(
                _Session(
                    int(run.environment.get("started_ns", 0)),
                    tuple(measured["samples"]),
                    run.environment,
                    run.spec,
                    measured["unit"],
                    measured["better"],
                )
            )
    for sessions in found.values():
        sessions.sort(key=lambda session: session.started_ns)
    return found


def _row(test: str, metric: str, old: list[_Session], new: list[_Session], across: Sequence[str]) -> Row:
    notes = []
    # What a test measures that fails is perhaps not what it was to measure.
    sides = {"earlier": old, "later": new}
    for side, sessions in sides.items():
        sides[side] = [session for session in sessions if not session.spec.get("failed")]
        if not sides[side]:
            return Row(test, metric, None, f"the test failed in each session of the {side} set")
        if failed := len(sessions) - len(sides[side]):
            notes.append(f"left out of the {side} set: {failed} of {len(sessions)} sessions, in which the test failed")
    old, new = sides.values()
    same = machine.same(session.environment for session in (*old, *new))
    notes += same.notes
    for aspect, words in same.differs.items():
        if aspect not in across:
            said = f"the {aspect} differs ({words}); ask for it with --sblk-across {aspect}"
            return Row(test, metric, None, said)
        notes.append(f"across {aspect}s: {words}")
    cases = _told(session.spec.get("parameters") for session in (*old, *new))
    if len(cases) > 1:
        # pytest numbers the values that it has no words for: "job0" is another one once the list begins otherwise.
        return Row(test, metric, None, f"the parameters differ ({'; '.join(cases)}): give them ids= that stay theirs")
    marks = _told(session.spec.get("marks") for session in (*old, *new))
    if len(marks) > 1:
        notes.append(f"the test's marks differ: {'; '.join(marks)}")
    units = {(session.unit, session.better) for session in (*old, *new)}
    if len(units) > 1:
        return Row(test, metric, None, f"measured as {' and '.join(f'{u} ({b} is better)' for u, b in sorted(units))}")
    unit, better = units.pop()
    fewest = min(len(old), len(new))
    if fewest < stats.MIN_SAMPLES:
        pooled = [[value for session in side for value in session.samples] for side in (old, new)]
        if min(map(len, pooled)) < stats.MIN_SAMPLES:
            return Row(test, metric, None, f"fewer than {stats.MIN_SAMPLES} samples")
        # Steps between sessions would look like a drift; they are what the interval is widened for.
        alone = len(old) == len(new) == 1
        found = compare(*pooled, better=better, unit=unit, notes=notes, in_order=alone)
        return Row(test, metric, _allow_for_drift(found, fewest))
    means = [[math.exp(stats.location(stats.logs(session.samples))) for session in side] for side in (old, new)]
    paired = _alternated(old, new)
    if not paired:
        notes.append("the sessions were not run alternately: a machine that changed between shows as a difference")
    return Row(test, metric, compare(*means, paired=paired, better=better, unit=unit, notes=notes))


def _told(values: Iterable[Any]) -> list[str]:
    """What of values is different, as words; where in memory an object was is not, and older files have none."""
    texts = {json.dumps(value, sort_keys=True) for value in values if value is not None}
    return sorted({re.sub(r" at 0x[0-9a-f]+", "", text) for text in texts})


def _alternated(old: list[_Session], new: list[_Session]) -> bool:
    """Whether each session of one side ran next to one of the other."""
    if len(old) != len(new):
        return False
    pairs = [sorted((a.started_ns, b.started_ns)) for a, b in zip(old, new, strict=True)]
    return all(first[1] < second[0] for first, second in itertools.pairwise(pairs))


def _allow_for_drift(found: Comparison, sessions: int) -> Comparison:
    ratio = replace(found.ratio, low=found.ratio.low / (1 + DRIFT), high=found.ratio.high * (1 + DRIFT))
    many = "one session" if sessions == 1 else f"{sessions} sessions"
    note = (
        f"only {many} on a side: the interval allows for {DRIFT:.0%} between sessions; "
        "sampleblk-lab compare runs both alternately"
    )
    return replace(found, ratio=ratio, notes=(*found.notes, note))


def text(rows: Iterable[Row]) -> list[str]:
    """Lines for a terminal: a heading for each test, its verdict and notes below."""
    lines = []
    for row in rows:
        lines.append(readable(row.name))
        said = row.comparison.text() if row.comparison else readable(f"{NOT_COMPARED}: {row.refused}")
        lines.extend(f"  {line}" for line in said.splitlines())
    return lines


def to_json(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """The same for programs."""
    found = []
    for row in rows:
        entry: dict[str, Any] = {"test": row.test, "metric": row.metric}
        if row.comparison is None:
            entry |= {"verdict": None, "refused": row.refused, "new": row.new}
        else:
            made = row.comparison
            entry |= {
                "verdict": made.verdict,
                "ratio": made.ratio.value,
                "low": made.ratio.low,
                "high": made.ratio.high,
                "confidence": made.ratio.confidence,
                "effect": made.effect,
                "paired": made.paired,
                "samples": [len(made.before), len(made.after)],
                "notes": list(made.notes),
            }
        found.append(entry)
    return found
