# SPDX-License-Identifier: MIT
"""The page of a sweep: the whole matrix as pictures and as a table, what differs, what is missing, and where it ran."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

import numpy as np

from sampleblk_lab.errors import InputError, SampleblkError
from sampleblk_lab.plot.matrix import shown
from sampleblk_lab.plot.style import in_dark
from sampleblk_lab.report.page import Page
from sampleblk_lab.results import stats
from sampleblk_lab.table import Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sampleblk_lab.sweeps.result import Sweep

# A page of more combinations is a file for a program.
_ROWS = 1000


def sweep_page(sweep: Sweep, metric: str | None = None, *, better: str = "lower", across: Sequence[str] = ()) -> Page:
    """The page of a sweep as far as it is.

    Args:
        sweep: The sweep.
        metric: What is shown; None: all columns of numbers that the function returned.
        better: ``"lower"`` or ``"higher"``, for the verdicts.
        across: Which of accelerator, kernel and machine may differ between what is compared.

    Raises:
        InputError: There is no such metric.
    """
    known = sweep.metrics()
    if metric is not None and metric not in (*known, "seconds"):
        raise InputError(f"{metric!r} is not a column of numbers that the function returned", expected=", ".join(known))
    metrics = known if metric is None else [metric]
    table = sweep.table()
    about = sweep.plan.about
    page = Page(f"Sweep of {str(about.get('function', '')).rpartition(':')[2]}", str(sweep.folder))
    page.add_facts("Summary", _facts(sweep, table))
    if len(table):
        _pictures(page, sweep, metrics)
        _medians(page, sweep, metrics)
        for axis in sweep.varied():
            for name in metrics:
                _compared(page, sweep, axis, name, better, across)
        if about.get("revision") is not None:
            for name in metrics:
                _history(page, sweep, name, better, across)
        _hosts(page, table)
    missing = sweep.missing()
    if len(missing):
        constant = set(sweep.axes) - set(sweep.varied())
        left_out = {*constant, sweep.beside("detail"), "key"}
        names = [name for name in missing.columns if name not in left_out]
        rows = missing.head(_ROWS)
        page.add_table("Missing", Table.of({name: rows[name].values for name in names}), _of(len(rows), len(missing)))
    files = [("results.parquet", "a row for each trial that is done"), ("journal.jsonl", "every outcome, failures too")]
    left = sweep.artefacts()
    files += [(str(path), "") for path in list(left[sweep.beside("path")])[:_ROWS]]
    page.add_files("Files", files, f"In {sweep.folder}.")
    return page


def _of(rows: int, every: int) -> str:
    return "" if rows == every else f"The first {rows:,} of {every:,}."


def _facts(sweep: Sweep, table: Table) -> dict[str, object]:
    about = sweep.plan.about
    facts: dict[str, object] = {"trials": f"{len(table)} of {len(sweep)} done"}
    if sweep.plan.growing:
        facts["more"] = "chosen when the results of these are known"
    called = sweep.called()
    axes = {axis: ", ".join(called({axis: value})[axis] for value in sweep.values_of(axis)) for axis in sweep.axes}
    after: dict[str, object] = {}
    if about.get("revision") is not None:
        after["revision"] = str(about["revision"])
    after |= {"repeats": about.get("repeat", ""), "seed": about.get("sweep_seed", "")}
    if choose := about.get("choose"):
        after["chosen"] = ", ".join(f"{name} {value}" for name, value in choose.items() if value is not None)
    if len(table):
        after["kernels"] = ", ".join(sorted(set(map(str, table["release"]))))
        after["accelerators"] = ", ".join(sorted(set(map(str, table["accelerator"]))))
    # An axis may be called as one of them is.
    ours, rest = ({sweep.beside(name): value for name, value in some.items()} for some in (facts, after))
    return ours | axes | rest


def _pictures(page: Page, sweep: Sweep, metrics: Sequence[str]) -> None:
    for name in metrics:
        heading = f"Matrix: {name}"
        try:
            light = sweep.plot(name).svg()
        except SampleblkError as error:
            page.add_text(heading, str(error), "There is no picture.")
            continue
        page.add_picture(heading, light, in_dark(light), "The table below has the same values.")


def _medians(page: Page, sweep: Sweep, metrics: Sequence[str]) -> None:
    """The matrix for those who read no pictures, and with the ranges."""
    axes = sweep.varied()
    groups = sweep.by_combination()
    called = sweep.called()
    heads = [*axes, "repeats done"]
    for name in metrics:
        heads += [name, f"{name}, range"]
    found: list[list[Any]] = []
    for parameters, rows in groups[:_ROWS]:
        words = called(parameters)
        cells: list[Any] = [*(words[axis] for axis in axes), len(rows)]
        for name in metrics:
            values = [row[name] for row in rows if row[name] is not None and np.isfinite(row[name])]
            write = shown(name)
            cells.append(write(statistics.median(values)) if values else None)
            cells.append(f"{write(min(values))} to {write(max(values))}" if values else None)
        found.append(cells)
    # By place: a function may return what is called as one of the others is.
    columns = {str(place): [cells[place] for cells in found] for place in range(len(heads))}
    names = {str(place): head for place, head in enumerate(heads)}
    page.add_table("Medians", Table.of(columns), _of(min(len(groups), _ROWS), len(groups)), names=names)


def _compared(page: Page, sweep: Sweep, axis: str, metric: str, better: str, across: Sequence[str]) -> None:
    rows = sweep.compare(axis, metric, better=better, across=across)
    made = [row for row in rows if row.comparison is not None]
    heading = f"Along {axis}: {metric}"
    if not made:
        if rows and sweep.plan.about.get("repeat", 1) >= stats.MIN_SAMPLES:
            page.add_text(heading, "\n".join(f"{row.test}: {row.refused}" for row in rows[:20]), "Not compared.")
        return
    found = [(row, row.comparison) for row in made[:_ROWS] if row.comparison is not None]
    columns: dict[str, Any] = {
        "combination": [row.test for row, _ in found],
        "verdict": [one.verdict for _, one in found],
        "ratio": np.array([one.ratio.value for _, one in found]),
        "low": np.array([one.ratio.low for _, one in found]),
        "high": np.array([one.ratio.high for _, one in found]),
    }
    if any(one.notes for _, one in found):
        columns["notes"] = ["; ".join(one.notes) for _, one in found]
    refused = len(rows) - len(made)
    sure = found[0][1].ratio.sure
    first = sweep.called()({axis: sweep.values_of(axis)[0]})[axis]
    note = f"Against {axis}={first}; {better} is better; low and high bound the ratio at {sure}."
    note += f" {refused} could not be compared." if refused else ""
    page.add_table(heading, Table.of(columns), f"{note} {_of(len(found), len(made))}".strip())


def _history(page: Page, sweep: Sweep, metric: str, better: str, across: Sequence[str]) -> None:
    found = sweep.history(metric, better=better, across=across)
    if len(found.revisions) < 2:
        return
    heading = f"Over revisions: {metric}"
    try:
        light = found.plot().svg()
        page.add_picture(heading, light, in_dark(light), "The table below has the same values.")
    except SampleblkError as error:
        page.add_text(heading, str(error), "There is no picture.")
    table = found.table()
    rows = table.head(_ROWS)
    shown_columns = ("revision", "repeats", "median", "low", "high", "ratio", "verdict")
    names = [*sweep.varied(), *map(found.beside, shown_columns)]
    note = f"Each against the revision before; {better} is better; low and high are the estimate's, not the median's. "
    note = f"{note}{_of(len(rows), len(table))}".strip()
    if found.superseded:
        note += f" {found.superseded} outcomes do not count: of a function, driver or VM that was another one then."
    if found.other_axes:
        note += f" {found.other_axes} outcomes are of revisions that were measured with other axes."
    page.add_table(f"Revisions: {metric}", Table.of({name: rows[name].values for name in names}), note)


def _hosts(page: Page, table: Table) -> None:
    by_host: dict[str, list[dict[str, Any]]] = {}
    for row in table.rows():
        by_host.setdefault(str(row["host"]), []).append(row)
    columns: dict[str, list[Any]] = {
        "host": list(by_host),
        "processor": [str(rows[0]["host_cpu"]) for rows in by_host.values()],
        "trials": [len(rows) for rows in by_host.values()],
        "tried again": [sum(row["attempts"] > 1 for row in rows) for rows in by_host.values()],
        "highest load": [max(row["load"] for row in rows) for rows in by_host.values()],
        "highest steal": [max(row["steal"] for row in rows) for rows in by_host.values()],
    }
    page.add_table("Hosts", Table.of(columns), "load when a trial began; steal, of the processors' time.")
