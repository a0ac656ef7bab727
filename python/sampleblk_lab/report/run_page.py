# SPDX-License-Identifier: MIT
"""The page of one run, of whatever its directory holds; and the page of a comparison."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from sampleblk_lab.analysis.run import Run, open_run
from sampleblk_lab.errors import SampleblkError
from sampleblk_lab.report.page import Page
from sampleblk_lab.results import machine
from sampleblk_lab.table import Table

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from sampleblk_lab.plot import Plot
    from sampleblk_lab.results.sets import Row

# Functions of a call graph that the page names.
_FUNCTIONS = 30


def _read(path: Path) -> Any:
    return json.loads(path.read_text()) if path.exists() else None


def _picture(page: Page, heading: str, plot: Plot, note: str = "") -> None:
    """A plot in both themes; without matplotlib the page does without."""
    try:
        page.add_picture(heading, plot.svg(), plot.svg(dark=True), note)
    except SampleblkError:
        return


def run_page(directory: Path) -> Page:
    """Builds the page.

    Args:
        directory: A run's: of ``sampleblk-lab record``, of a test, or any with a trace.dat.

    Raises:
        FormatError: Its trace.dat is damaged.
    """
    spec = _read(directory / "spec.json") or {}
    page = Page(directory.name, str(spec.get("test") or spec.get("source") or ""))
    environment = _read(directory / "env.json")
    if environment is not None:
        page.add_facts("Machine", {**machine.aspects(environment), "recorded": environment.get("started", "")})
    if (directory / "report.txt").exists():
        page.add_text("Job", (directory / "report.txt").read_text())
    _measurements(page, _read(directory / "measurements.json") or [])
    if (directory / "trace.dat").exists():
        _recording(page, open_run(directory))
    counters = _read(directory / "counters.json")
    if counters:
        columns: dict[str, Any] = {
            "counter": list(counters),
            "value": np.array(list(counters.values()), dtype=np.int64),
        }
        page.add_table("Driver", Table.of(columns, key="counter"))
    page.add_files("Files", [(path.name, "") for path in sorted(directory.iterdir()) if path.suffix != ".html"])
    return page


def _measurements(page: Page, measured: list[dict[str, Any]]) -> None:
    if not measured:
        return
    columns: dict[str, Any] = {"name": [entry["name"] or "value" for entry in measured]}
    for name in ("value", "low", "high"):
        columns[name] = np.array([entry[name] for entry in measured])
    columns["unit"] = [entry["unit"] for entry in measured]
    columns["samples"] = np.array([len(entry["samples"]) for entry in measured], dtype=np.int64)
    columns["stopped"] = [entry["stopped"] for entry in measured]
    page.add_table("Measurements", Table.of(columns), "low and high bound the value at the stated confidence, 98 %.")


def _recording(page: Page, run: Run) -> None:
    from sampleblk_lab import plot

    counts = run.counts()
    page.add_table("Events", counts, bar="count")
    names = {str(name) for name in counts["event"]}  # the file knows the formats of many more
    if "raw_syscalls:sys_enter" in names or any(name.startswith("syscalls:") for name in names):
        calls = run.syscalls()
        page.add_table("System calls", calls.summary(), bar="seconds")
        page.add_table("I/O sizes", run.io_sizes().histogram(), bar="writes")
        offsets = run.offsets()
        if len(offsets):
            _picture(page, "Offsets", plot.offset_heatmap(offsets))
    if any(name.startswith("block:") for name in names) and len(run.block()):
        block = run.block()
        page.add_table("Block requests", block.latency(), "Where requests spend their time, in btt's words.")
        for heading, made in (("Life of requests", plot.block_life), ("Queue depth", plot.queue_depth)):
            try:
                drawn = made(block)
            except SampleblkError:
                continue  # no request was seen from one end to the other
            _picture(page, heading, drawn)
    if any(name.startswith("ftrace:funcgraph") for name in names):
        graph = run.graph()
        totals = graph.aggregate()
        first = {name: totals[name].values[:_FUNCTIONS] for name in totals.columns}
        columns = {name: list(v) if v.dtype == object else v for name, v in first.items()}
        units = {name: totals[name].unit for name in totals.columns}
        table = Table.of(columns, units=units, metadata=totals.metadata, key="function")
        page.add_table(
            "Functions", table, f"The {len(table)} of {len(totals)} with the most time of their own.", bar="self"
        )


def comparison_page(before: str, after: str, rows: Sequence[Row]) -> Page:
    """The page of a comparison of two sets."""
    from sampleblk_lab import plot

    page = Page(f"{after} against {before}", "interleaved sessions, or an allowance for what sessions differ by")
    made = {f"{row.test} {row.metric}".strip(): row.comparison for row in rows if row.comparison is not None}
    if made:
        _picture(page, "Ratios", plot.comparison(made), "What touches the line at 1 shows no difference.")
        columns: dict[str, Any] = {
            "test": list(made),
            "verdict": [comparison.verdict for comparison in made.values()],
            "ratio": np.array([comparison.ratio.value for comparison in made.values()]),
            "low": np.array([comparison.ratio.low for comparison in made.values()]),
            "high": np.array([comparison.ratio.high for comparison in made.values()]),
            "effect": np.array([comparison.effect for comparison in made.values()]),
        }
        page.add_table("Verdicts", Table.of(columns), "effect is Cliff's delta, from -1 to 1.")
    notes = [f"{name}: {note}" for name, comparison in made.items() for note in comparison.notes]
    notes += [f"{row.test} {row.metric}: not compared: {row.refused}" for row in rows if row.refused]
    if notes:
        page.add_text("Notes", "\n".join(notes))
    return page
