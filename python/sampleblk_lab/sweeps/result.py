# SPDX-License-Identifier: MIT
"""What a sweep has found so far: its table, comparisons along an axis, and what is missing with the reason."""

from __future__ import annotations

import html
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sampleblk_lab.errors import InputError
from sampleblk_lab.results import machine, sets, stats
from sampleblk_lab.results.comparison import BETTER, compare
from sampleblk_lab.sweeps import artefacts, store
from sampleblk_lab.sweeps.history import History
from sampleblk_lab.sweeps.plan import canonical, has_text
from sampleblk_lab.sweeps.trial import KERNEL, Trial, describe, named
from sampleblk_lab.table import Table
from sampleblk_lab.texts import readable

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence

    from sampleblk_lab.plot import Plot

NOT_RUN = "not run"

# Columns of tables beside the axes, the repeat and the key.
_REASONS = ("kind", "message", "attempts", "host", "detail")
_FILES = ("path", "bytes")


class Comparisons(list[sets.Row]):
    """The comparisons of a sweep, one for each combination of the other axes: a list that prints as text."""

    def text(self) -> str:
        """A heading for each combination, its verdict and notes below."""
        return "\n".join(sets.text(self))

    def __repr__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self.text())}</pre>"


class Sweep:
    """A sweep's folder, read anew whenever it is asked, also while the sweep runs.

    Args:
        folder: The folder.
        interrupted: Whether Ctrl-C ended the run that this comes from.
        lost: Why the place where trials ran was lost, or nothing.

    Raises:
        InputError: There is no sweep.
        FormatError: A file in it is not what a sweep writes.
    """

    def __init__(self, folder: str | os.PathLike[str], *, interrupted: bool = False, lost: str = "") -> None:
        self.folder = Path(folder)
        self._plan = store.Plan.load(self.folder)
        self.interrupted = interrupted
        self.lost = lost

    @property
    def plan(self) -> store.Plan:
        """The trials, as far as they are known: where results decide what is run next, there may be more each time."""
        if self._plan.growing:
            now = store.Plan.load(self.folder)
            if now.about == self._plan.about:
                self._plan = now
        return self._plan

    def __len__(self) -> int:
        """How many trials there are, done or not."""
        return len(self.plan)

    @property
    def axes(self) -> list[str]:
        """The axes' names."""
        return self.plan.axes

    @property
    def complete(self) -> bool:
        """Whether every trial is done, and no more are to be chosen."""
        return len(self.table()) == len(self) and not self.plan.growing

    @property
    def running(self) -> bool:
        """Whether a process works on it now."""
        return store.is_running(self.folder)

    def table(self) -> Table:
        """A row for each trial that is done.

        Returns:
            The axes; what the function returned (``value``, or its names); seconds that it took; started_ns and
            ended_ns; exclusive, whether it had its host to itself; host, with
            host_cpu, host_cpus and host_memory_mib; release and accelerator (of the VM, where there was one) and the
            VM's shape; load, the host's when it began; steal, the share of processor time that a hypervisor took;
            attempts, and in `retried` why there was more than one; artefacts, the directory of the files that it
            left, below the sweep's folder; repeat, seed and key. Its metadata has how many
            trials are missing.
        """
        return store.read_rows(self.folder, self.plan)

    def missing(self) -> Table:
        """A row for each trial that is not done: its axes, repeat, key, attempts, kind of failure and the message.

        What was not tried has the kind ``"not run"``. Where an axis is called as a column is, the column has a ``_`` at
        the end of its name.
        """
        own = store.beside(self.axes, _REASONS)
        rows = [
            {
                **trial.parameters,
                "repeat": trial.repeat,
                **{own[name]: why[name] for name in _REASONS},
                "key": trial.key,
            }
            for trial, why in self._absent()
        ]
        columns = [*self.axes, "repeat", *own.values(), "key"]
        return Table.of(self._uniform(rows, columns))

    def beside(self, name: str) -> str:
        """What the column of that name is called in :meth:`missing` and :meth:`artefacts`, beside those of the axes."""
        return store.beside(self.axes, [name])[name]

    def _absent(self) -> list[tuple[Trial, dict[str, Any]]]:
        """Each trial that is not done, and why, by the names of the columns."""
        done = set(self.table()["key"]) if len(self.table()) else set()
        absent = [trial for trial in self.plan.trials if trial.key not in done]
        failed: dict[str, list[dict[str, Any]]] = {}
        for outcome in store.failures(self.folder, {trial.key for trial in absent}):
            failed.setdefault(outcome["key"], []).append(outcome)
        found = []
        for trial in absent:
            last = failed.get(trial.key, [{}])[-1]
            why = {
                "kind": last.get("kind", NOT_RUN),
                "message": last.get("message", self.lost),
                "attempts": len(failed.get(trial.key, [])),
                "host": last.get("facts", {}).get("host", ""),
                "detail": last.get("detail", ""),
            }
            found.append((trial, why))
        return found

    def artefacts(self) -> Table:
        """A row for each file that trials left in their directories: the axes, repeat, path, bytes and the trial's key.

        The last attempt's, also of trials that failed. Paths are below the sweep's folder. Where an axis is called as a
        column is, the column has a ``_`` at the end of its name.
        """
        own = store.beside(self.axes, _FILES)
        found: list[dict[str, Any]] = []
        for trial in self.plan.trials:
            directory = self.folder / artefacts.DIRECTORY / trial.key
            for path in sorted(path for path in directory.rglob("*") if path.is_file()):
                row = trial.parameters
                where = path.relative_to(self.folder).as_posix()
                about = {own["path"]: where, own["bytes"]: path.stat().st_size}
                found.append({**row, "repeat": trial.repeat, **about, "key": trial.key})
        columns = [*self.axes, "repeat", *own.values(), "key"]
        return Table.of(self._uniform(found, columns), units={own["bytes"]: "bytes"})

    def _uniform(self, rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> dict[str, list[Any]]:
        return {
            name: (store.distinct if name in self.axes else store.uniform)([row[name] for row in rows])
            for name in columns
        }

    def metrics(self) -> list[str]:
        """The columns of numbers that the function returned, or ``seconds`` when it returned none."""
        table = self.table()
        own = [name for name in table.columns if name not in store.FACTS and name not in self.axes]
        return [name for name in own if table[name].categories is None] or ["seconds"]

    def compare(
        self,
        axis: str,
        metric: str | None = None,
        *,
        before: Any = None,
        better: str = "lower",
        across: Sequence[str] = (),
        confidence: float = stats.CONFIDENCE,
    ) -> Comparisons:
        """Compares the values of an axis with its first one, for each combination of the other axes.

        The repeats are the samples, so `repeat` must have been 6 or more. Hosts that are not alike are not compared.
        Where repeats are missing a note says how many, and why: those that ran into the deadline may have been the slow
        ones.

        Args:
            axis: Whose values are compared.
            metric: The column that is compared; None: the only one there is.
            before: The value that the others are compared with; None: the axis's first.
            better: ``"lower"`` for times, ``"higher"`` for rates.
            across: Which of accelerator, kernel and machine may differ; the kernel may if `axis` is ``"kernel"``.
            confidence: Of the intervals.

        Returns:
            A row for each combination and value; what could not be compared says why.

        Raises:
            InputError: There is no such axis, value or metric, or several metrics and none is named.
        """
        if axis not in self.axes:
            raise InputError(f"{axis!r} is not an axis", expected=", ".join(map(repr, self.axes)))
        if better not in BETTER:
            raise InputError(f"better={better!r}", expected=" or ".join(map(repr, BETTER)))
        for word in across:
            if word not in machine.ASPECTS:
                raise InputError(f"across {word!r}", expected=", ".join(machine.ASPECTS))
        metric = self._metric(metric)
        values = self.values_of(axis)
        first = values[0] if before is None else before
        if not has_text(first) or canonical(first) not in map(canonical, values):
            raise InputError(f"{axis} has no value {before!r}", expected=", ".join(map(repr, values)))
        allowed = {*across, *(["kernel"] if axis == KERNEL else [])}
        found = Comparisons()
        called = self.called()
        before_word = describe(called({axis: first}))
        absent = self._absent_by_combination()
        for others, sides, keys in self._groups(axis):
            for value in values:
                if canonical(value) == canonical(first):
                    continue
                word = describe(called({axis: value}))
                name = f"{others} {word}".strip()
                old, new = sides.get(canonical(first), []), sides.get(canonical(value), [])
                if canonical(first) in sides or canonical(value) in sides:
                    row = _compared(name, metric, old, new, (before_word, word), better, allowed, confidence)
                    if row.comparison is not None:
                        notes = [
                            f"{absent[keys[canonical(one)]]} of {label}"
                            for one, label in ((first, before_word), (value, word))
                            if keys.get(canonical(one)) in absent
                        ]
                        made = row.comparison
                        row = replace(row, comparison=replace(made, notes=(*made.notes, *notes)))
                    found.append(row)
        return found

    def history(
        self,
        metric: str | None = None,
        *,
        better: str = "lower",
        across: Sequence[str] = (),
        confidence: float = stats.CONFIDENCE,
    ) -> History:
        """A metric over the revisions of what is measured, of sweeps that were run with ``revision=``.

        Args:
            metric: The column; None: the only one there is.
            better: ``"lower"`` or ``"higher"``, for the verdicts.
            across: Which of accelerator, kernel and machine may differ between revisions; the kernel may where it is
                what the revisions are of.
            confidence: Of the intervals.

        Raises:
            InputError: There is no such metric, or several and none is named; no trial was run with a revision.
        """
        if better not in BETTER:
            raise InputError(f"better={better!r}", expected=" or ".join(map(repr, BETTER)))
        for word in across:
            if word not in machine.ASPECTS:
                raise InputError(f"across {word!r}", expected=", ".join(machine.ASPECTS))

        def compared(name: str, chosen: str, before: Any, now: Any) -> sets.Row:
            labels = (f"revision {before.revision}", f"revision {now.revision}")
            return _compared(name, chosen, before.rows, now.rows, labels, better, set(across), confidence)

        planned = {trial.key for trial in self.plan.trials}
        return History(self.folder, self.axes, planned, metric, compared, self._ranked(), confidence)

    def varied(self) -> list[str]:
        """The axes of more than one value."""
        return [axis for axis in self.axes if len(self.values_of(axis)) > 1]

    def by_combination(self) -> list[tuple[dict[str, Any], list[dict[str, Any]]]]:
        """Each combination with the rows of its trials that are done, in the order of the axes' values."""
        rows = {row["key"]: row for row in self.table().rows()}
        found: dict[str, tuple[dict[str, Any], list[dict[str, Any]]]] = {}
        for trial in sorted(self.plan.trials, key=lambda trial: trial.repeat):
            _, done = found.setdefault(canonical(trial.parameters), (trial.parameters, []))
            if trial.key in rows:
                done.append(rows[trial.key])
        rank = self._ranked()
        return sorted(found.values(), key=lambda one: rank(one[0]))

    def _ranked(self) -> Callable[[Mapping[str, Any]], list[int]]:
        """What combinations are sorted by: their values' places in the axes; values that are gone come last."""
        places = {
            axis: {canonical(value): place for place, value in enumerate(self.values_of(axis))} for axis in self.axes
        }
        return lambda one: [places[axis].get(canonical(one[axis]), len(places[axis])) for axis in self.axes]

    def plot(self, metric: str | None = None, *, axis: str | None = None) -> Plot:
        """The medians of a metric for all combinations: along one axis, a line or a row for each of the others' values.

        Args:
            metric: The column; None: the only one there is.
            axis: The one along the bottom; None: the one with the most values.

        Raises:
            InputError: There is no such axis or metric, several metrics and none is named, nothing done, or too much
                for a picture.
            UnsupportedError: matplotlib is not installed, when the plot is looked at.
        """
        from sampleblk_lab.plot.matrix import matrix

        metric = self._metric(metric)
        varied = self.varied() or self.axes[-1:]
        if axis is None:
            axis = max(varied, key=lambda name: (len(self.values_of(name)), self.axes.index(name)))
        elif axis not in self.axes:
            raise InputError(f"{axis!r} is not an axis", expected=", ".join(map(repr, self.axes)))
        others = [name for name in varied if name != axis]
        places = {canonical(value): place for place, value in enumerate(self.values_of(axis))}
        rows: dict[str, tuple[list[Any], list[list[float]]]] = {}
        for parameters, done in self.by_combination():
            settings = [parameters[other] for other in others]
            _, cells = rows.setdefault(canonical(settings), (settings, [[] for _ in places]))
            cells[places[canonical(parameters[axis])]] = store.numbers(done, metric)
        names = named([settings for settings, _ in rows.values()])
        shown = dict(zip(names, (cells for _, cells in rows.values()), strict=True))
        columns = named([[value] for value in self.values_of(axis)])
        return matrix(shown, columns, metric=metric, axis=axis, rest=", ".join(others))

    def report(
        self,
        path: str | os.PathLike[str],
        metric: str | None = None,
        *,
        better: str = "lower",
        across: Sequence[str] = (),
    ) -> Path:
        """Writes a page of the whole matrix: one self-contained HTML file, with pictures where matplotlib is installed.

        Args:
            path: The file.
            metric: What is shown; None: all columns of numbers that the function returned.
            better: ``"lower"`` for times, ``"higher"`` for rates.
            across: Which of accelerator, kernel and machine may differ between what is compared.

        Returns:
            The file.
        """
        from sampleblk_lab.report.sweep_page import sweep_page

        text = sweep_page(self, metric, better=better, across=across).html()
        # Not by a file that replaces it: the path may be a link, or /dev/stdout.
        Path(path).write_bytes(text.encode())
        return Path(path)

    def _metric(self, metric: str | None) -> str:
        return store.chosen_metric(metric, self.metrics())

    def values_of(self, axis: str) -> list[Any]:
        """An axis's values in the order they were given, as far as they were; then as they come."""
        listed = self.plan.about.get("values", {}).get(axis)
        ordered = listed if isinstance(listed, list) else []
        used = {canonical(trial.parameters[axis]): trial.parameters[axis] for trial in self.plan.trials}
        known = [value for value in ordered if canonical(value) in used]
        told = set(map(canonical, known))
        return [*known, *(used[text] for text in sorted(used) if text not in told)]

    def called(self) -> Callable[[Mapping[str, Any]], dict[str, str]]:
        """Tells what values of axes are called; no two of an axis are called the same."""
        words: dict[str, dict[str, str]] = {}
        for axis in self.axes:
            values = self.values_of(axis)
            words[axis] = dict(zip(map(canonical, values), named([[value] for value in values]), strict=True))
        return lambda some: {axis: words[axis][canonical(value)] for axis, value in some.items()}

    def _absent_by_combination(self) -> dict[str, str]:
        """What is missing of a combination, in words, by its text."""
        kinds: dict[str, Counter[str]] = {}
        for trial, why in self._absent():
            kinds.setdefault(canonical(trial.parameters), Counter())[why["kind"]] += 1
        told = {text: ", ".join(f"{found[kind]} {kind}" for kind in sorted(found)) for text, found in kinds.items()}
        return {text: f"{kinds[text].total()} repeats are missing ({words})" for text, words in told.items()}

    def _groups(self, axis: str) -> list[tuple[str, dict[str, list[dict[str, Any]]], dict[str, str]]]:
        """The other axes' values, in their order; by this one's values the done trials' rows, and the combination."""
        found: dict[str, tuple[str, dict[str, list[dict[str, Any]]], dict[str, str]]] = {}
        called = self.called()
        for parameters, done in self.by_combination():
            others = _without(parameters, axis)
            _, sides, texts = found.setdefault(canonical(others), (describe(called(others)), {}, {}))
            sides[canonical(parameters[axis])] = done
            texts[canonical(parameters[axis])] = canonical(parameters)
        return list(found.values())

    def json(self) -> dict[str, Any]:
        """What ``sampleblk-lab sweep status --json`` prints."""
        missing = self._absent()
        kinds: dict[str, int] = {}
        for _, why in missing:
            kinds[why["kind"]] = kinds.get(why["kind"], 0) + 1
        return {
            "folder": str(self.folder),
            "trials": len(self),
            "done": len(self) - len(missing),
            "missing": kinds,
            "growing": self.plan.growing,
            "running": self.running,
            "interrupted": self.interrupted,
            "lost": self.lost,
            "axes": self.axes,
        }

    def text(self) -> str:
        """A few lines: how many trials are done, and what is missing, by the reason."""
        missing = self._absent()
        lines = [f"{len(self) - len(missing)} of {len(self)} trials done: {self.folder / store.RESULTS}"]
        if self.interrupted:
            lines.append("interrupted; run it again to go on")
        if self.lost:
            lines.append(f"the workers were lost ({self.lost}); run it again to go on")
        if self.plan.growing:
            lines.append("more trials are chosen when the results of these are known")
        if self.running:
            lines.append("a process works on it now")
        reasons: dict[tuple[str, str], list[Trial]] = {}
        for trial, why in missing:
            reasons.setdefault((why["kind"], why["message"].split("\n", 1)[0]), []).append(trial)
        for (kind, said), trials in reasons.items():
            more = f" and {len(trials) - 1} more" if len(trials) > 1 else ""
            lines.append(f"  missing, {kind}{': ' if said else ''}{said}: {trials[0].described()}{more}")
        return "\n".join(map(readable, lines))

    def __repr__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self.text())}</pre>{self.table()._repr_html_()}"


def _without(parameters: Mapping[str, Any], axis: str) -> dict[str, Any]:
    return {name: value for name, value in parameters.items() if name != axis}


def _environment(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row's facts as an env.json has them."""
    about: dict[str, Any] = {
        "kernel": row["release"],
        "accel": row["accelerator"],
        "host": {
            "name": row["host"],
            "cpu": row["host_cpu"],
            "cpus": str(row["host_cpus"]),
            "memory_mib": str(row["host_memory_mib"]),
        },
    }
    if row.get("vm_cpus"):
        about["vm"] = {"cpus": row["vm_cpus"], "memory_mib": row["vm_memory_mib"]}
    return about


def _compared(
    name: str,
    metric: str,
    old: list[dict[str, Any]],
    new: list[dict[str, Any]],
    labels: tuple[str, str],
    better: str,
    allowed: set[str],
    confidence: float,
) -> sets.Row:
    for label, side in zip(labels, (old, new), strict=True):
        if len(side) < stats.MIN_SAMPLES:
            said = f"{len(side)} repeats of {label} are done, fewer than {stats.MIN_SAMPLES}"
            return sets.Row(name, metric, None, said)
    same = machine.same(_environment(row) for row in (*old, *new))
    notes = list(same.notes)
    for aspect, words in same.differs.items():
        if aspect not in allowed:
            return sets.Row(name, metric, None, f"the {aspect} differs ({words}); ask for it with across={aspect!r}")
        notes.append(f"across {aspect}s: {words}")
    alone = [{bool(row.get("exclusive")) for row in side} for side in (old, new)]
    if alone[0] != alone[1]:
        told = [
            "had their hosts to themselves" if one == {True} else "may have had others beside them" for one in alone
        ]
        notes.append("; ".join(f"the repeats of {label} {said}" for label, said in zip(labels, told, strict=True)))
    samples = [store.numbers(side, metric) for side in (old, new)]
    if any(len(found) < len(side) for found, side in zip(samples, (old, new), strict=True)):
        return sets.Row(name, metric, None, f"some trials did not return a number as {metric!r}")
    try:
        made = compare(*samples, better=better, confidence=confidence, notes=notes, names=labels, in_order=False)
    except InputError as error:
        return sets.Row(name, metric, None, str(error))
    return sets.Row(name, metric, made)
