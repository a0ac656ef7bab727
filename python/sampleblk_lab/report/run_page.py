# SPDX-License-Identifier: MIT
"""The page of one run, of whatever its directory holds; and the page of a comparison.

The demo's page is one of these: a run's directory may hold its recordings in folders of their own, and its spec.json
may have a title and a note for each section.
"""

from __future__ import annotations

import functools
import math
import os
import shlex
import sys
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from sampleblk_lab import plot, run_files, trust
from sampleblk_lab.analysis.run import Run, open_run
from sampleblk_lab.analysis.trust import of_recording
from sampleblk_lab.errors import InputError, SampleblkError, UnsupportedError
from sampleblk_lab.plot.style import in_dark
from sampleblk_lab.report.page import Page, decimal
from sampleblk_lab.results import machine, stats, store
from sampleblk_lab.results.comparison import SERIAL
from sampleblk_lab.table import Table
from sampleblk_lab.texts import read_json, read_text
from sampleblk_lab.trust import Check, of_losses
from sampleblk_lab.workload.checks import UNCOUNTED
from sampleblk_lab.workload.result import percentiles_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from sampleblk_lab.analysis.block import Block
    from sampleblk_lab.analysis.outline import CallOutline
    from sampleblk_lab.plot import Plot
    from sampleblk_lab.profiling import Profile
    from sampleblk_lab.results.comparison import Comparison
    from sampleblk_lab.results.sets import Row
    from sampleblk_lab.workload import FioResult

# A directory with none of these is not a run's, whatever lies below it: that may be many runs.
_OF_A_RUN = (*run_files.RECORDED, *run_files.OF_A_JOB, store.MEASUREMENTS, "spec.json")
# Functions of a call graph that the page names.
_FUNCTIONS = 30
# Intervals of a comparison in one picture: of more it takes minutes, and megabytes.
_DRAWN = 200
# Where a call tree goes down to, unless spec.json says else: the driver.
_TARGET = "sampleblk_queue_rq*"
_DIRECTIONS = {
    "read": ("read", "pread64", "preadv", "preadv2"),
    "write": ("write", "pwrite64", "pwritev", "pwritev2"),
}
# Engines of which each I/O is one system call.
_ONE_CALL_EACH = {"sync", "psync", "pvsync", "pvsync2"}
# As strace -c heads them, for people.
_CALL_NAMES = {"percent_time": "share", "seconds": "time", "usecs_per_call": "per call", "syscall": "system call"}


def _read(path: Path, shape: Any) -> Any:
    return read_json(path, shape) if path.exists() else None


class _Sections:
    """A page whose sections get the notes that the run's spec.json has for them."""

    def __init__(self, page: Page, notes: dict[str, str]) -> None:
        self.page = page
        self._notes = notes

    def note(self, heading: str, own: str = "") -> str:
        return " ".join(filter(None, (self._notes.get(heading, ""), own)))

    def table(self, heading: str, table: Table, note: str = "", **how: Any) -> None:
        self.page.add_table(heading, table, self.note(heading, note), **how)

    def view(
        self, heading: str, make: Callable[[], Table], note: str = "", *, most: int | None = None, **how: Any
    ) -> None:
        """The table of a view; why there is none, such as of ticks of a clock or of several buffers, in its place.

        Of its rows the first `most`: the note begins with how many these are, of how many.
        """
        try:
            table = make()
        except (InputError, UnsupportedError) as error:
            self.page.add_text(heading, str(error), self.note(heading, "There is no table."))
            return
        if most is not None:
            rows, table = len(table), table.head(most)
            note = f"The {len(table)} of {rows} {note}"
        self.table(heading, table, note, **how)

    def picture(self, heading: str, make: Callable[[], Plot], note: str = "") -> None:
        """A plot in both themes; without matplotlib, or without what it would show, the page does without."""
        try:
            light = make().svg()
            self.page.add_picture(heading, light, in_dark(light), self.note(heading, note))
        except SampleblkError:
            return


class Recording:
    """One recording of a run; what several sections show of it is read once.

    Args:
        run: The directory that holds its trace.dat.
    """

    def __init__(self, run: Run) -> None:
        self.run = run

    @functools.cached_property
    def counts(self) -> Table:
        """How many of each event happened."""
        return self.run.counts()

    @functools.cached_property
    def calls(self) -> Table:
        """Its system calls, as strace -c sums them up."""
        return self.run.syscalls().summary()

    @functools.cached_property
    def block(self) -> Block:
        """The requests of its block devices."""
        return self.run.block()

    @property
    def folder(self) -> Path:
        """Where its trace.dat is."""
        return self.run.trace_path.parent

    @property
    def lost(self) -> int:
        """How many events were lost."""
        return int(self.counts.metadata.get("lost_events", "0"))

    def has(self, *events: str) -> bool:
        """Whether such events happened, by the beginnings of their names: the file knows the formats of many more."""
        return any(str(name).startswith(events) for name in self.counts["event"])


def _recordings(directory: Path) -> list[Recording]:
    """The run's own recording, then those in folders of their own."""
    folders = [directory, *sorted(path for path in directory.iterdir() if path.is_dir())]
    return [Recording(open_run(folder)) for folder in folders if (folder / "trace.dat").exists()]


def _with(recordings: list[Recording], *events: str) -> Recording | None:
    """The first recording that has such events."""
    return next((one for one in recordings if one.has(*events)), None)


def run_page(directory: Path) -> Page:
    """Builds the page.

    Args:
        directory: A run's: of ``sampleblk-lab record`` or ``demo``, of a test, or any with a trace.dat.

    Raises:
        FormatError: Its trace.dat is damaged.
        InputError: It has none of a run's files.
    """
    if not any((directory / name).exists() for name in _OF_A_RUN):
        raise InputError(f"{directory} has no file of a run", expected=", ".join(_OF_A_RUN))
    spec = _read(directory / "spec.json", {"notes": {...: str}, "files": {...: str}}) or {}
    own = os.path.basename(os.path.abspath(directory))  # noqa: PTH100, PTH119  # "." has no name
    page = Page(str(spec.get("title") or own), str(spec.get("test") or spec.get("source") or ""))
    sections = _Sections(page, spec.get("notes") or {})
    run = open_run(directory)
    environment = run.environment
    recordings = _recordings(directory)
    counters = _read(directory / "counters.json", {...: int})
    calls = _with(recordings, "raw_syscalls:sys_enter", "syscalls:")
    graph = _with(recordings, "ftrace:funcgraph")
    requests = _with(recordings, "block:")
    offsets = calls.run.offsets() if calls is not None else None

    summary = _summary(run, recordings)
    if len(recordings) > 1:
        shown = {"system calls": calls, "function calls": graph, "block requests": requests}
        of = [f"{what} of {one.folder.name}" for what, one in shown.items() if one is not None]
        summary["recordings"] = f"{len(recordings)}; shown are {', '.join(of) or 'their events'}"
    if summary:
        page.add_facts("Summary", summary, sections.note("Summary"))
    if (measured := directory / store.MEASUREMENTS).exists():
        _measurements(sections, store.measurements(measured))
    folders = [directory, *(one.folder for one in recordings)]
    profiled = next((folder for folder in folders if (folder / "perf.data").exists()), None)
    profile = open_run(profiled).profile(inlines=False) if profiled is not None else None
    if profile is not None and len(profile):
        _flame(sections, profile)
    if run.result is not None:
        _latency(sections, run.result)
    if offsets is not None and len(offsets):
        sections.picture(
            "Bandwidth",
            lambda: plot.bandwidth(offsets),
            "Of the system calls, the bytes of each over the time that it took.",
        )
        sections.picture("Offsets", lambda: plot.offset_heatmap(offsets))
    if calls is not None:
        sections.view("System calls", lambda: calls.calls, names=_CALL_NAMES, bar="seconds")
        sizes = "Bytes moved by each read and write call, in powers of two."
        sections.view("I/O sizes", lambda: calls.run.io_sizes().histogram(), sizes, bar="writes")
    if graph is not None:
        _calls(sections, graph.run, str(spec.get("target") or _TARGET))
    if requests is not None:
        _block(sections, requests.block)
    if counters:
        table = Table.of({"counter": list(counters), "value": list(counters.values())}, key="counter")
        sections.table("Driver", table)
    checks = trust_checks(run, recordings, calls, profile, counters or {})
    if len(checks):
        sections.table("Trust checks", checks, "What was counted, held against a second source where there is one.")
    if environment:
        about = {**machine.aspects(environment), "recorded": environment.get("started", "")}
        page.add_facts("Machine", {name: value for name, value in about.items() if value}, sections.note("Machine"))
    if (directory / "report.txt").exists():
        page.add_text("Job", read_text(directory / "report.txt"), sections.note("Job"))
    for one in recordings:
        name = "Events" if len(recordings) == 1 or one.folder == directory else f"Events: {one.folder.name}"
        sections.table(name, one.counts, bar="count")
    told = spec.get("files") or {}
    listed = [path for folder in folders for path in folder.iterdir()]
    files = sorted({path for path in listed if path.is_file() and path.suffix != ".html"})
    page.add_files(
        "Files", [(name, told.get(name, "")) for name in (str(path.relative_to(directory)) for path in files)]
    )
    return page


def _summary(run: Run, recordings: list[Recording]) -> dict[str, str]:
    """What a reader wants first: what ran, how fast, and whether the figures can be trusted."""
    from sampleblk_lab._native import core

    facts: dict[str, str] = {}
    if command := run.command:
        facts["command"] = shlex.join(command["command"])
        how = ", interrupted," if command.get("interrupted") else ""
        facts["exit status"] = f"{command['returncode']}{how} after {command['elapsed_s']:.3f} s"
        facts["processor time"] = f"{command['user_s']:.3f} s user, {command['system_s']:.3f} s system"
    if run.result is not None:
        histogram = run.result.histogram()
        if reason := run.result.stop_reason:
            facts["stopped"] = f"{reason}; what ran until then is shown"
        # Those of numjobs share a name; so may others, which ran one after the other: their rates do not add up.
        jobs: dict[tuple[str, str, int], list[dict[str, Any]]] = {}
        for row, group in zip(run.result.summary(), run.result.groups(), strict=True):
            jobs.setdefault((str(row["job"]), str(row["direction"]), group), []).append(row)
        named = Counter((job, direction) for job, direction, _ in jobs)
        for (job, direction, group), rows in jobs.items():
            ios, iops, bandwidth = _together(rows)
            told = f"{len(rows)} jobs: " if len(rows) > 1 else ""
            told += f"{ios:,} I/Os, {decimal(iops)} IOPS, {core.format_bytes(round(bandwidth))}/s"
            if named[job, direction] > 1:  # they have one histogram
                facts[f"{job}, {direction}, group {group}"] = told
                continue
            # Plain JSON of fio has no histograms, and a job may measure none.
            with suppress(ValueError):
                p50, p99 = percentiles_of(histogram, [50, 99], "clat", direction, job)
                told += f"; half within {core.format_duration(round(p50))}"
                told += f", 99 % within {core.format_duration(round(p99))}"
            facts[f"{job}, {direction}"] = told
        failed: dict[str, list[str]] = {}
        for name, _, text in run.result.errors:
            failed.setdefault(name, []).append(text)
        for name, texts in failed.items():
            facts[f"{name} failed"] = "; ".join(
                f"{text} ({often} jobs)" if often > 1 else text for text, often in Counter(texts).items()
            )
    if recordings:
        lost = sum(one.lost for one in recordings)
        facts["lost events"] = "none" if not lost else f"{lost}: the counts below are too small"
    if machine.aspects(run.environment)["accelerator"] == "tcg":
        facts["accelerator"] = "TCG (emulation): compare ratios, not times"
    return facts


def _together(rows: list[dict[str, Any]]) -> tuple[int, float, float]:
    """I/Os, IOPS and bytes a second of jobs that began together: over the time of the longest, as fio's groups."""
    longest = max(row["runtime"] for row in rows)
    # By each job's own rate: the whole milliseconds of fio's JSON are 0 of a short job.
    shares = [row["runtime"] / longest if longest else 1.0 for row in rows]
    iops, bandwidth = (
        sum(row[name] * share for row, share in zip(rows, shares, strict=True)) for name in ("iops", "bandwidth")
    )
    return sum(row["ios"] for row in rows), iops, bandwidth


def trust_checks(
    run: Run, recordings: list[Recording], calls: Recording | None, profile: Profile | None, counters: dict[str, int]
) -> Table:
    """Which figures agree with a second source, and what is known to be missing: columns check, found and verdict."""
    path = run.directory / "trust.json" if run.directory is not None else None
    found = trust.read(path) if path is not None and path.exists() else []
    for one in recordings:
        found += of_recording(one.run, one.counts)
    if run.result is not None and calls is not None:
        with suppress(UnsupportedError):  # which the page says in the table's place
            found += _calls_against_job(run.result, calls.calls)
    if counters and (requests := _with(recordings, "block:")) is not None:
        found += _requests_against_driver(requests.block.table(), counters)
    if profile is not None:
        for name in ("lost_samples", "lost_records", "throttled"):
            if (told := profile.metadata.get(name)) is not None:
                found.append(of_losses(f"profile: {name.replace('_', ' ')}", int(told)))
    columns = {"check": "what", "found": "found", "verdict": "verdict"}
    return Table.of({name: [getattr(check, part) for check in found] for name, part in columns.items()})


def _requests_against_driver(requests: Table, counters: dict[str, int]) -> list[Check]:
    found: list[Check] = []
    # The counters are of one device; several buffers may have the same requests.
    if len(set(requests["device"].values)) != 1 or "buffer" in requests:
        return found
    operations, sectors = requests["operation"].values, requests["sectors"].values
    # "WZ" (Linux 7.0): of zeroes the driver has a counter of its own.
    operations = np.where(np.char.find(requests["rwbs"].values.astype(str), "WZ") >= 0, "WZ", operations)
    for direction, letter in (("read", "R"), ("write", "W"), ("discard", "D")):
        counter = f"{direction}_bytes"
        seen = 512 * int(sectors[operations == letter].sum())
        if counter in counters and (seen or counters[counter]):
            # The driver counts what is done before and after the recording, too.
            more = seen > counters[counter]
            verdict = "agrees" if seen == counters[counter] else "differs" if more else "partly recorded"
            text = f"{seen:,}, {counters[counter]:,}"
            found.append(Check("counters", f"bytes {direction}: requests, driver", text, verdict, is_doubt=more))
    return found


def _calls_against_job(result: FioResult, calls: Table) -> list[Check]:
    """What the jobs counted against the system calls that were recorded, for engines that make one for each I/O."""
    if "buffer" in calls:  # several may have the same calls
        return []
    about = result.json()
    shared = about.get("global options") or {}
    for job in about["jobs"]:
        options = {**shared, **(job.get("job options") or {})}
        # A call that failed is no I/O that was counted.
        uncounted = UNCOUNTED & options.keys() or job.get("total_err")
        if options.get("ioengine", "psync") not in _ONE_CALL_EACH or uncounted:
            return []
    counts = dict(zip(map(str, calls["syscall"]), calls["calls"].values.tolist(), strict=True))
    found = []
    for direction, names in _DIRECTIONS.items():
        told = sum(int(job[direction]["total_ios"]) for job in about["jobs"])
        seen = sum(counts.get(name, 0) for name in names)
        if told:
            verdict = "agrees" if told == seen else "differs"
            text = f"{told:,}, {seen:,}"
            found.append(Check("counters", f"{direction} calls: job, recording", text, verdict, is_doubt=told != seen))
    return found


def _flame(sections: _Sections, profile: Profile) -> None:
    stacks = profile.stacks()
    notes = ", ".join(f"{name}: {value}" for name, value in stacks.notes.items())
    note = sections.note("Flame graph", notes)
    sections.page.add_picture("Flame graph", stacks.picture(), stacks.picture(dark=True), note)
    shares = "Shares of all samples; branches below 1 % are left out."
    sections.page.add_text("Profile", stacks.tree(min_percent=1), sections.note("Profile", shares))


def _latency(sections: _Sections, result: FioResult) -> None:
    histogram = result.histogram()
    # A job may measure none: gtod_reduce, disable_clat.
    directions = list(dict.fromkeys(histogram["direction"].values[histogram["kind"].values == "clat"].tolist()))
    if not directions:
        return
    percents = [50, 90, 95, 99, 99.9, 99.99]
    columns: dict[str, Any] = {"percentile": [f"{percent:g} %" for percent in percents]}
    for direction in directions:
        columns[direction] = np.array(result.percentiles(percents, direction=direction)) / 1000
    units = dict.fromkeys(directions, "us")
    note = "From submission to completion, of all jobs together."
    sections.table("Latency", Table.of(columns, units=units, key="percentile"), note)
    sections.picture("Latency percentiles", lambda: plot.latency_percentiles(result))  # type: ignore[arg-type]
    sections.picture("Latency distribution", lambda: plot.latency_cdf(result))  # type: ignore[arg-type]


def _measurements(sections: _Sections, measured: list[dict[str, Any]]) -> None:
    columns: dict[str, Any] = {"name": [entry["name"] or "value" for entry in measured]}
    for name in ("value", "low", "high"):
        columns[name] = np.array([entry[name] for entry in measured])
    columns["unit"] = [entry["unit"] for entry in measured]
    columns["samples"] = np.array([len(entry["samples"]) for entry in measured], dtype=np.int64)
    columns["stopped"] = [entry["stopped"] for entry in measured]
    sure = [100 * entry.get("confidence", stats.CONFIDENCE) for entry in measured]
    if len(set(sure)) > 1:
        columns["confidence"] = np.array(sure)
    stated = f"{sure[0]:.10g} %" if len(set(sure)) == 1 else "the last column"
    note = f"low and high bound the value at the stated confidence, {stated}."
    if serial := [entry["name"] or "value" for entry in measured if stats.serially_correlated(entry["samples"])]:
        note += f" The samples of {', '.join(serial)} are {SERIAL}."
    sections.table(
        "Measurements", Table.of(columns, units={"confidence": "%"} if "confidence" in columns else {}), note
    )


def longest_call(run: Run, target: str) -> CallOutline | None:
    """The longest recorded call down to one of `target`, else the longest; None where there is none."""
    graph = run.graph()
    return graph.outline(target) if len(graph) else None


def _calls(sections: _Sections, run: Run, target: str) -> None:
    outline = longest_call(run, target)
    if outline is None:
        return
    note = f"of {outline.calls:,} recorded below it."
    if outline.target_calls:
        path = f"The path to the first of {outline.target_calls} calls of {target} is unfolded."
        note = f"The longest call down to {target}, {note} {path}"
    else:
        note = f"The longest call, {note}"
    sections.page.add_outline("Call tree", outline, sections.note("Call tree") or note)
    note = "with the most time of their own."
    sections.view("Functions", lambda: run.graph().aggregate(), note, most=_FUNCTIONS, bar="self")


def _block(sections: _Sections, block: Block) -> None:
    if not len(block):
        return
    sections.view("Block requests", block.latency, "Where requests spend their time, in btt's words.")
    sections.picture("Life of requests", lambda: plot.block_life(block))
    sections.picture("Queue depth", lambda: plot.queue_depth(block))


def _named(rows: Sequence[Row]) -> Iterator[tuple[str, Row]]:
    """Rows with names of their own: what a test and what a metric is called may read alike together."""
    forms = [(row.name, f"{row.test}: {row.metric}", f"{row.test!r} {row.metric!r}") for row in rows]
    counts = Counter(form for several in forms for form in set(several))
    for several, row in zip(forms, rows, strict=True):
        yield next((form for form in several if counts[form] == 1), several[-1]), row


def _farthest(named: tuple[str, Comparison]) -> tuple[bool, float]:
    """What is to be seen first."""
    ratio = max(named[1].ratio.value, sys.float_info.min)
    return not named[1].different, -abs(math.log(ratio))


def comparison_page(before: str, after: str, rows: Sequence[Row]) -> Page:
    """The page of a comparison of two sets."""
    page = Page(f"{after} against {before}", "interleaved sessions, or an allowance for what sessions differ by")
    made = {name: row.comparison for name, row in _named(rows) if row.comparison is not None}
    if made:
        drawn = dict(sorted(made.items(), key=_farthest)[:_DRAWN]) if len(made) > _DRAWN else made
        note = "What touches the line at 1 shows no difference."
        if len(drawn) < len(made):
            note += f" Those {len(drawn)} of {len(made):,} are drawn that are the farthest from 1, what differs first."
        _Sections(page, {}).picture("Ratios", lambda: plot.comparison(drawn), note)
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
