# SPDX-License-Identifier: MIT
"""What jobs measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sampleblk_lab import checked, renamed
from sampleblk_lab._native import core
from sampleblk_lab.errors import SampleblkError
from sampleblk_lab.table import Table
from sampleblk_lab.workload.checks import DRIFTED, of_log

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from sampleblk_lab.analysis.run import Run
    from sampleblk_lab.trust import Check
    from sampleblk_lab.workload.checks import Watch
    from sampleblk_lab.workload.fio import FioResult


_DIRECTIONS = ("read", "write", "trim", "sync")
_KINDS = ("clat", "slat", "lat", "sync", "response")


class JobError(SampleblkError):
    """A job failed.

    Attributes:
        result: What all jobs measured until then.
        run: What was recorded of them, by :meth:`Workload.record`; else None.
        errno: Of the first job that failed.
    """

    def __init__(self, result: Result | FioResult, run: Run | None = None) -> None:
        super().__init__("; ".join(f"job {name}: {text}" for name, _, text in result.errors))
        self.result = result
        self.run = run
        self.errno = result.errors[0][1]


def percentiles_of(
    table: Table, percents: Iterable[float], kind: str, direction: str | None, job: str | None
) -> list[float]:
    """Percentiles of a table of histograms, see :meth:`Result.percentiles`."""
    wanted = np.array([checked.percent("percents", float(percent)) for percent in percents])
    chosen = table["kind"].values == checked.one_of("kind", kind, _KINDS)
    if direction is not None:
        checked.one_of("direction", direction, (*_DIRECTIONS, "mixed"))  # of unified_rw_reporting, in fio's JSON
    for column, value in (("direction", direction), ("job", job)):
        if value is not None:
            chosen &= table[column].values == value
    low = table["latency"].codes[chosen]
    order = np.argsort(low, kind="stable")
    counts = np.cumsum(table["count"].codes[chosen][order])
    if len(counts) == 0:
        of_job = "" if job is None else f" of job {job!r}"
        raise ValueError(f"no {direction or 'I/O'}{of_job} with a {kind} was measured")
    middles = (low + table["width"].codes[chosen] // 2)[order]
    found = np.searchsorted(counts, wanted / 100 * counts[-1])
    return [float(value) for value in middles[np.minimum(found, len(middles) - 1)]]


def with_doubts(text: str, checks: Iterable[Check]) -> str:
    """A report, and below it what is in doubt; of a clock that drifted our own report tells."""
    told = "the clock drifted by" in text
    doubts = (check for check in checks if check.is_doubt and not (told and check.verdict == DRIFTED))
    return text + "".join(f"\nin doubt: {check}\n" for check in doubts)


class Result:
    """The outcome of a run. ``print(result)`` shows the report that fio's users know."""

    def __init__(self, result: core.RunResult, watch: Watch | None = None) -> None:
        self._result = result
        self._watch = watch
        self._checks: list[Check] | None = None

    @property
    def checks(self) -> list[Check]:
        """What the jobs counted, held against what others know: the driver's counters, its limits, the log, clocks.

        Of jobs that were put together, and before their end, only the log. ``print(result)`` shows what is in doubt.
        """
        if self._checks is None:
            self._checks = [*([] if self._watch is None else self._watch.checks(self)), *of_log(self)]
        return self._checks

    @property
    def stop_reason(self) -> str:
        """Why the jobs ended early: "interrupted", no space left, …; empty when they ran to their end."""
        return self._result.stop_reason

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C ended the run."""
        return self.stop_reason == "interrupted"

    @property
    def pids(self) -> list[int]:
        """The jobs' tasks, gone by now, as views of a recording take them: ``run.offsets(pids=result.pids)``."""
        return self._result.pids

    @property
    def errors(self) -> list[tuple[str, int, str]]:
        """The jobs that failed: name, errno, and what failed on which file."""
        return self._result.errors

    @property
    def messages(self) -> list[str]:
        """What the layout did."""
        return self._result.messages

    @property
    def notices(self) -> list[str]:
        """Settings of the job file that have no effect or another one than it says, and why."""
        return [f"{source}:{line}: {key} {text}" for source, line, key, text in self._result.notices]

    # --- as fio has it

    def text(self) -> str:
        """The report, in the form of fio's normal output."""
        return self._result.text()

    def json(self, *, bins: bool = False) -> dict[str, Any]:
        """The JSON that fio would print, as Python values; with `bins`, its JSON+ with every latency histogram."""
        value: dict[str, Any] = json.loads(self._result.json(bins))
        return value

    def json_text(self, *, bins: bool = False) -> str:
        """The JSON as fio would print it."""
        return self._result.json(bins)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Writes the JSON+ to a file, which fio's own tools and fio-plot read."""
        target = Path(path)
        target.write_text(self._result.json(True))
        return target

    # --- as tables

    def summary(self) -> Table:
        """One row per job and direction: counts, rates, and latencies with their percentiles."""
        return Table(self._result.summary(), key="job")

    def series(self) -> Table:
        """Rates and latency over time: one row per job, direction and slot of 100 ms or, in long runs, more.

        The times of a slot are since its job began. ``group`` is the job's reporting group: those behind a
        ``stonewall`` have one of their own, and began later.
        """
        return Table(self._result.series())

    def histogram(self) -> Table:
        """The latency histograms: one row per job, direction, kind and bin, with the bin's lower bound and width."""
        return Table(self._result.histogram())

    def heatmap_table(self) -> Table:
        """Completion latencies over time: one row per job, direction, slot of time and bin that is not empty."""
        return Table(self._result.heat())

    def io_log(self) -> Table:
        """Every I/O, for jobs with ``io_log_entries``; ``metadata["lost"]`` counts those that found no room."""
        return Table(self._result.io_log())

    def heatmap(
        self, direction: str, *, bins: int = 64
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]:
        """The heat map of a direction's completion latency, all jobs together.

        Args:
            direction: ``"read"``, ``"write"`` or ``"trim"``.
            bins: Rows of the map, evenly spaced in the logarithm of the latency.

        Returns:
            The ends of the time slots in seconds since a job began, shape ``(slots,)``, each of which begins where the
            one before ends, the first at 0; the edges of the latency rows in nanoseconds, shape ``(bins + 1,)``; and
            the I/Os in each cell, shape ``(bins, slots)``. The slots are those of the job that ran longest.

        Raises:
            InputError: There is no such direction, or no row.
        """
        checked.one_of("direction", direction, _DIRECTIONS)
        checked.count("bins", bins)
        table = self.heatmap_table()
        chosen = table["direction"].values == direction
        if not chosen.any():
            return np.zeros(0), np.zeros(bins + 1), np.zeros((bins, 0), dtype=np.int64)
        begins, ends = (table[name].codes[chosen].astype(np.int64) for name in ("begin", "end"))
        middles = table["latency"].codes[chosen] + table["width"].codes[chosen] / 2
        counts = table["count"].codes[chosen].astype(np.int64)
        # No two jobs' slots end at the same ns: side by side they would be slivers of one job each.
        jobs, numbers = table["job"].codes[chosen], table["job_number"].codes[chosen]
        longest = int(np.argmax(ends))
        of_longest = (jobs == jobs[longest]) & (numbers == numbers[longest])
        times = np.unique([0, *begins[of_longest], *ends[of_longest]])
        slots = np.searchsorted(times, (begins + ends) // 2, side="right") - 1
        low, high = max(float(middles.min()), 1.0), float(middles.max()) * 1.01 + 1
        edges = np.geomspace(low, high, bins + 1)
        rows = np.clip(np.searchsorted(edges, middles, side="right") - 1, 0, bins - 1)
        cells = np.zeros((bins, len(times) - 1), dtype=np.int64)
        np.add.at(cells, (rows, slots), counts)
        return times[1:] * 1e-9, edges, cells

    def heat(self) -> Table:
        """The old name of :meth:`heatmap_table`."""
        renamed.warn("Result.heat()", "Result.heatmap_table()")
        return self.heatmap_table()

    def heat_map(
        self, direction: str, *, bins: int = 64
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]:
        """The old name of :meth:`heatmap`."""
        renamed.warn("Result.heat_map()", "Result.heatmap()")
        return self.heatmap(direction, bins=bins)

    def percentiles(
        self,
        percents: Iterable[float],
        *,
        kind: str = "clat",
        direction: str | None = None,
        job: str | None = None,
    ) -> list[float]:
        """Percentiles of a latency, of one job or of all together.

        Args:
            percents: Such as ``[50, 99, 99.9]``.
            kind: ``"clat"``, ``"slat"``, ``"lat"``, ``"sync"``, or ``"response"`` for jobs with a limited rate.
            direction: ``"read"``, ``"write"``, ``"trim"``; all when None.
            job: The job's name, which those of ``numjobs`` share; all when None.

        Returns:
            Nanoseconds, each the middle of the histogram's bin: off by less than 1/128.

        Raises:
            InputError: There is no such kind or direction; a percent is below 0 or above 100.
            ValueError: No I/O of that kind was measured.
        """
        return percentiles_of(self.histogram(), percents, kind, direction, job)

    # --- together

    def total(self) -> Result:
        """All jobs summed up in one, as ``group_reporting`` does: counts and histograms add up.

        So do the times of jobs that ran one after the other: those behind a ``stonewall``, and of merged runs.
        """
        return Result(self._result.total())

    @staticmethod
    def merge(results: Iterable[Result]) -> Result:
        """Several runs as one: the jobs of all, one after another; ``.total()`` sums them up."""
        chosen = list(results)
        if wrong := [one for one in chosen if not isinstance(one, Result)]:
            raise TypeError(f"results of jobs are merged, not {wrong[0]!r:.60}")
        runs = [result._result for result in chosen]  # noqa: SLF001
        if not runs:
            raise ValueError("no result to merge")
        return Result(core.RunResult.merge(runs))

    def __str__(self) -> str:
        return with_doubts(self.text(), self.checks)

    def __repr__(self) -> str:
        return str(self)
