# SPDX-License-Identifier: MIT
"""One sweep over the revisions of what it measures: the journal has the outcomes of all of them."""

from __future__ import annotations

import inspect
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sampleblk_lab.errors import InputError
from sampleblk_lab.paths import git_environment
from sampleblk_lab.results import stats
from sampleblk_lab.sweeps import store
from sampleblk_lab.sweeps.plan import canonical
from sampleblk_lab.sweeps.trial import describe, named
from sampleblk_lab.table import Table

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from sampleblk_lab.plot import Plot
    from sampleblk_lab.results import sets

#: Stands for the commit that is checked out where the function's file lies.
GIT = "git"

# The table's columns beside those of the axes, with the kind of those that are numbers.
_COLUMNS = {
    "revision": "",
    "started_ns": "i8",
    "repeats": "i8",
    "median": "f8",
    "low": "f8",
    "high": "f8",
    "ratio": "f8",
    "verdict": "",
}


def _git(folder: Path, *words: str) -> str:
    command = ["git", "-c", "diff.relative=false", "-C", str(folder), *words]  # of the whole working tree
    environment = {**git_environment(), "LC_ALL": "C"}
    return subprocess.run(
        command, capture_output=True, errors="surrogateescape", check=True, stdin=subprocess.DEVNULL, env=environment
    ).stdout.strip()


def commit_of(function: Callable[..., Any], source: str = "") -> str:
    """The commit, abbreviated, of the working tree that has a function's file.

    Raises:
        InputError: There is none, or tracked files differ from it.
    """
    try:
        folder = Path(inspect.getfile(inspect.unwrap(function))).resolve().parent
        commit = _git(folder, "rev-parse", "--short=12", "HEAD")
        changed = _git(folder, "diff", "--name-only", "HEAD")
    except (OSError, TypeError, subprocess.CalledProcessError) as error:
        said = str(getattr(error, "stderr", "") or error).strip().partition("\n")[0]
        raise InputError(
            f"revision={GIT!r}: there is no commit of the function's file: {said}",
            source,
            expected="a name of your own",
        ) from None
    if changed:
        raise InputError(
            f"revision={GIT!r}: {folder} has changes that are not committed, such as {changed.splitlines()[0]}",
            source,
            expected="a clean working tree, or a name of your own",
        )
    return commit


@dataclass(frozen=True)
class _Point:
    """One combination at one revision."""

    revision: str
    rows: list[dict[str, Any]]


def _is_number(value: Any) -> bool:
    """Whether a table has it as a number: an int of more bits is a text there."""
    return type(value) is float or (type(value) is int and abs(value) < 1 << 63)


def _is_latest(about: dict[str, Any], latest: dict[tuple[str, str], str]) -> bool:
    # A journal of before does not tell what an outcome is made of.
    made_of = about.get("made_of")
    return not made_of or latest[about["revision"], canonical(about["parameters"])] == made_of


class History:
    """A metric over revisions, in the order in which they were first measured; made by :meth:`Sweep.history`.

    Args:
        folder: The sweep's.
        axes: Its axes.
        planned: The keys of the sweep's trials as it was run last.
        metric: The column; None: the only one that there is.
        compared: Compares a combination's rows at a revision with those at the one before.
        rank: What combinations are sorted by.
        confidence: Of the intervals.

    Raises:
        InputError: There is no such metric, or several and none is named; no trial was run with a revision.
    """

    def __init__(
        self,
        folder: Path,
        axes: Sequence[str],
        planned: Container[str],
        metric: str | None,
        compared: Callable[[str, str, _Point, _Point], sets.Row],
        rank: Callable[[dict[str, Any]], list[int]],
        confidence: float,
    ) -> None:
        stats.check_options(confidence)
        self.axes = list(axes)
        self._confidence = confidence
        self._compared = compared
        outcomes, _ = store.read_journal(folder)
        done: dict[str, dict[str, Any]] = {}
        others: set[str] = set()
        for outcome in outcomes:
            about = outcome.get("trial", {})
            if outcome["type"] == "done" and "revision" in about:
                if about["parameters"].keys() == set(self.axes):
                    done.setdefault(outcome["key"], outcome)
                else:
                    others.add(outcome["key"])
        if not done:
            raise InputError(f"no trial in {folder} was run with a revision", expected="revision='git', or a name")
        # The journal's order, not that of started_ns: a clock may be set back between two runs.
        first: dict[str, int] = {}
        latest: dict[tuple[str, str], str] = {}
        of_plan: set[tuple[str, str]] = set()
        for outcome in done.values():
            about, began = outcome["trial"], outcome["facts"].get("started_ns", 0)
            first[about["revision"]] = min(first.get(about["revision"], began), began)
            point = about["revision"], canonical(about["parameters"])
            if (made_of := about.get("made_of")) and (outcome["key"] in planned or point not in of_plan):
                latest[point] = made_of
            if outcome["key"] in planned:
                of_plan.add(point)
        #: The revisions, the one that was measured first being first.
        self.revisions = list(first)
        self._first = first
        counted = [outcome for outcome in done.values() if _is_latest(outcome["trial"], latest)]
        #: How many outcomes do not count: of a function, driver or VM that was another one under the same revision.
        self.superseded = len(done) - len(counted)
        #: How many are of revisions that were measured with other axes.
        self.other_axes = len(others)
        found: dict[str, tuple[dict[str, Any], dict[str, list[dict[str, Any]]]]] = {}
        names: dict[str, None] = {}
        for outcome in sorted(counted, key=lambda one: one["trial"]["repeat"]):
            about = outcome["trial"]
            parameters = {name: about["parameters"][name] for name in self.axes}
            _, sides = found.setdefault(canonical(parameters), (parameters, {}))
            row = {**outcome["values"], **outcome["facts"], "seconds": outcome["seconds"]}
            sides.setdefault(about["revision"], []).append(row)
            names.update((name, None) for name, value in outcome["values"].items() if _is_number(value))
        self._combinations = sorted(found.values(), key=lambda one: rank(one[0]))
        self.metric = store.chosen_metric(metric, list(names) or ["seconds"])
        for _, sides in self._combinations:
            for row in (row for rows in sides.values() for row in rows):
                value = row.get(self.metric)
                row[self.metric] = value if _is_number(value) else None

    def table(self) -> Table:
        """A row for each combination and revision.

        Where a revision has been measured with two codes of the function, or two builds of the driver, that of the
        sweep's last run counts; the metadata has how many outcomes do not (`superseded`), and how many are of revisions
        that were measured with other axes (`other_axes`).

        Returns:
            The axes; revision; started_ns, when the revision was first measured; repeats; median; low and high, the
            interval of the trimmed mean of logarithms where there are 6 repeats, else NaN: the median of values of
            two kinds may lie outside; ratio of these means to that of the revision before that has this combination,
            and the verdict, which also says why there is none. Where an axis is called as one of these is, the column
            has a ``_`` at the end of its name.
        """
        own = store.beside(self.axes, _COLUMNS)
        columns: dict[str, list[Any]] = {name: [] for name in (*self.axes, *own.values())}
        for parameters, sides in self._combinations:
            before: _Point | None = None
            for revision in self.revisions:
                if revision not in sides:
                    continue
                now = _Point(revision, sides[revision])
                values = store.numbers(now.rows, self.metric)
                low = high = float("nan")
                if len(values) >= stats.MIN_SAMPLES and min(values) > 0:
                    bounds = stats.interval(values, confidence=self._confidence)
                    low, high = bounds.low, bounds.high
                verdict, ratio = "", float("nan")
                if before is not None:
                    row = self._compared(describe(parameters), self.metric, before, now)
                    verdict = row.refused
                    if row.comparison is not None:
                        verdict, ratio = row.comparison.verdict, row.comparison.ratio.value
                for name in self.axes:
                    columns[name].append(parameters[name])
                columns[own["revision"]].append(revision)
                columns[own["started_ns"]].append(self._first[revision])
                columns[own["repeats"]].append(len(now.rows))
                columns[own["median"]].append(float(np.median(values)) if values else float("nan"))
                columns[own["low"]].append(low)
                columns[own["high"]].append(high)
                columns[own["ratio"]].append(ratio)
                columns[own["verdict"]].append(verdict)
                before = now
        made = {name: store.distinct(values) if name in self.axes else values for name, values in columns.items()}
        numbers = {own[name]: kind for name, kind in _COLUMNS.items() if kind}
        return Table.of(
            {name: np.array(values, numbers[name]) if name in numbers else values for name, values in made.items()},
            units={own["started_ns"]: "ns"},
            metadata={
                "metric": self.metric,
                **({"superseded": str(self.superseded)} if self.superseded else {}),
                **({"other_axes": str(self.other_axes)} if self.other_axes else {}),
            },
        )

    def beside(self, name: str) -> str:
        """What the column of that name is called in :meth:`table`, beside those of the axes."""
        return store.beside(self.axes, [name])[name]

    def changes(self) -> Table:
        """The rows of :meth:`table` that are faster or slower than the revision before."""
        made = self.table()
        return made.take(np.isin(np.array(list(made[self.beside("verdict")]), dtype=object), ["faster", "slower"]))

    def plot(self) -> Plot:
        """The medians over the revisions: a line, or a row of a map, for each combination.

        Raises:
            InputError: Nothing is done, or it is too much for a picture.
        """
        from sampleblk_lab.plot.matrix import matrix

        varied = [name for name in self.axes if len({canonical(one[name]) for one, _ in self._combinations}) > 1]
        names = named([[parameters[name] for name in varied] for parameters, _ in self._combinations])
        rows = {
            name: [store.numbers(sides.get(revision, []), self.metric) for revision in self.revisions]
            for name, (_, sides) in zip(names, self._combinations, strict=True)
        }
        return matrix(rows, self.revisions, metric=self.metric, axis="revision", rest=", ".join(varied))

    def __repr__(self) -> str:
        return repr(self.table())

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()
