# SPDX-License-Identifier: MIT
"""Functions counted and timed: the kernel's function profiler, funccount and funclatency."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from sampleblk_lab import checked, renamed
from sampleblk_lab._native import core
from sampleblk_lab.blocks import StopsAtEnd
from sampleblk_lab.errors import InputError
from sampleblk_lab.recording.recorder import Recorder, record
from sampleblk_lab.recording.session import Session
from sampleblk_lab.table import Table

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from sampleblk_lab.tasks import Who

_ROW = re.compile(r"^ +(\S+) +(\d+) +([\d.]+) us +([\d.]+) us +([\d.]+) us", re.M)
# How much of a name the kernel prints there (function_stat_show()).
_SHOWN = 30


def parse_trace_stat(texts: list[str], functions: Iterable[str] = ()) -> dict[str, tuple[int, float, float]]:
    """Hits, time (us) and the sum of squared deviations (us^2), by function, over the trace_stat files of all CPUs.

    The files have the first 30 letters of a name. `functions` are those that were counted, by their whole names; where
    several begin alike they are one, whose name ends in "…".
    """
    whole: dict[str, str] = {}
    for name in functions:
        shown = name[:_SHOWN]
        whole[shown] = name if whole.get(shown, name) == name else f"{shown}…"
    out: dict[str, tuple[int, float, float]] = {}
    for text in texts:
        for shown, hits, time, average, variance in _ROW.findall(text):
            name = whole.get(shown, shown)
            count, total, own = int(hits), float(time), float(variance) * max(int(hits) - 1, 0)
            before = out.get(name)
            if before is None:
                out[name] = (count, total, own)
                continue
            # Chan's rule for joining two samples' variances.
            delta = float(average) - before[1] / before[0]
            own += before[2] + delta * delta * count * before[0] / (count + before[0])
            out[name] = (count + before[0], total + before[1], own)
    return out


def _chosen(functions: tuple[str, ...]) -> list[str]:
    if not functions:
        raise InputError("no function", expected="names or globs: without one, all would be recorded, or nothing")
    return checked.names("functions", functions)


class FunctionProfile(StopsAtEnd):
    """The kernel's function profiler while the with block runs: hits, time, average and variance by function.

    It uses ``trace_stat`` where the kernel has it (CONFIG_FUNCTION_PROFILER; Debian's has not), else the same table
    computed from function-graph records; ``table().metadata["source"]`` says which.

    Args:
        functions: Functions or globs; keep it narrow, each call is recorded.
        pids: Only these tasks.
    """

    _KEPT = "the function profile"

    @renamed.parameters(pid="pids")
    def __init__(self, *functions: str, pids: Who | None = None) -> None:
        self._functions = _chosen(functions)
        self._pids = pids
        self._session: Session | None = None
        self._recorder: Recorder | None = None
        self._table: Table | None = None

    def start(self) -> Self:
        """Begins to count."""
        if self._session is not None or self._recorder is not None:
            raise RuntimeError("a FunctionProfile counts once; make another one")
        self._note_process()
        if Path(f"{core.tracefs_dir()}/function_profile_enabled").exists() and self._pids is None:
            session = Session(top_level=True)  # which one has at a time
            try:
                session.functions(*self._functions)
                session.set("function_profile_enabled", "1")
            except BaseException:
                session.close()
                raise
            self._session = session
        else:
            self._recorder = record(timed=self._functions, pids=self._pids).start()
        return self

    def stop(self) -> None:
        """Ends it, and makes the table."""
        if self._table is not None:
            return
        self._refuse_in_fork()
        if self._session is not None:
            with self._session as session:
                session.set("function_profile_enabled", "0")
                texts = [path.read_text() for path in Path(f"{session.path}/trace_stat").glob("function*")]
                filters = Path(f"{session.path}/set_ftrace_filter").read_text().splitlines()
            sums = parse_trace_stat(texts, [line.split()[0] for line in filters if line.strip()])
            self._table = _profile_table(
                list(sums),
                np.array([one[0] for one in sums.values()], dtype=np.uint64),
                np.array([one[1] for one in sums.values()]),
                np.array([one[2] for one in sums.values()]),
                {"source": "trace_stat", "lost_events": "0"},
            )
        elif self._recorder is not None:
            self._recorder.stop()
            self._table = _from_graph(self._recorder.graph().table())

    def table(self) -> Table:
        """Columns function (the key), hits, time, average and variance (us, us^2), by falling time."""
        if self._table is None:
            raise RuntimeError("the profile is there after the with block")
        return self._table


def _from_graph(calls: Table) -> Table:
    whole = calls["complete"].codes == 1
    codes = calls["function"].codes[whole]
    time = calls["duration"].codes[whole] / 1000.0
    names = calls["function"].categories or []
    hits = np.bincount(codes, minlength=len(names))
    total = np.bincount(codes, weights=time, minlength=len(names))
    average = total / np.maximum(hits, 1)
    squares = np.bincount(codes, weights=(time - average[codes]) ** 2, minlength=len(names))
    used = np.flatnonzero(hits)
    metadata = {**calls.metadata, "source": "function_graph records"}
    return _profile_table([names[i] for i in used], hits[used].astype(np.uint64), total[used], squares[used], metadata)


def _profile_table(
    names: list[str], hits: NDArray[Any], time: NDArray[Any], squares: NDArray[Any], metadata: dict[str, str]
) -> Table:
    order = np.argsort(-time, kind="stable")
    counts = hits.astype(np.float64)
    columns: dict[str, Any] = {
        "function": [names[i] for i in order],
        "hits": hits[order],
        "time": time[order],
        "average": (time / np.maximum(counts, 1))[order],
        "variance": (squares / np.maximum(counts - 1, 1))[order],
    }
    return Table.of(
        columns, units={"time": "us", "average": "us", "variance": "us^2"}, metadata=metadata, key="function"
    )


class _Recorded(StopsAtEnd):
    """What is made of a recording."""

    _KEPT = "the recording"

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def start(self) -> Self:
        """Begins to record."""
        self._recorder.start()
        return self

    def stop(self) -> None:
        """Ends the recording."""
        self._recorder.stop()


class FunctionCount(_Recorded):
    """Calls of functions while the with block runs (perf-tools' funccount).

    Args:
        functions: Functions or globs.
        pids: Only this task and its children.
    """

    @renamed.parameters(pid="pids")
    def __init__(self, *functions: str, pids: Who | None = None) -> None:
        super().__init__(record(functions=_chosen(functions), pids=pids))

    def table(self) -> Table:
        """Columns function (the key) and calls, by falling number."""
        found = self._recorder.events("ftrace:function", fields=["ip"], symbols=True)
        symbols = found["ip_symbol"]
        names = symbols.categories or []
        calls = np.bincount(symbols.codes, minlength=len(names)).astype(np.uint64)
        order = np.argsort(-calls.astype(np.int64), kind="stable")
        return Table.of(
            {"function": [names[i] for i in order], "calls": calls[order]}, metadata=found.metadata, key="function"
        )


class FunctionLatency(_Recorded):
    """How long calls of functions take, as a histogram (bcc's funclatency).

    Args:
        functions: Functions or globs.
        pids: Only this task and its children.
    """

    @renamed.parameters(pid="pids")
    def __init__(self, *functions: str, pids: Who | None = None) -> None:
        super().__init__(record(timed=_chosen(functions), pids=pids))

    def durations(self) -> NDArray[Any]:
        """Each call's duration in ns, shape ``(calls,)``."""
        return _durations(self._recorder.graph().table())

    def table(self) -> Table:
        """Columns value (ns, the lower end of a power of two) and calls."""
        calls = self._recorder.graph().table()
        durations = _durations(calls)
        exponent = np.floor(np.log2(np.maximum(durations, 1))).astype(np.int64)
        counts = np.bincount(exponent, minlength=1)
        used = np.flatnonzero(counts)
        span = np.arange(used[0], used[-1] + 1) if len(used) else np.arange(0)
        return Table.of(
            {"value": (1 << span).astype(np.uint64), "calls": counts[span].astype(np.uint64)},
            units={"value": "ns"},
            metadata=calls.metadata,
        )


def _durations(calls: Table) -> NDArray[Any]:
    durations: NDArray[Any] = calls["duration"].codes[calls["complete"].codes == 1]
    return durations
