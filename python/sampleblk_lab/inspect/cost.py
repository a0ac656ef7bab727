# SPDX-License-Identifier: MIT
"""What it costs to trace functions, all of them by default: the article's second mystery, in numbers."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sampleblk_lab.errors import InputError
from sampleblk_lab.inspect.patching import patched_sites, sites
from sampleblk_lab.recording.control import LOST, buffer_counts
from sampleblk_lab.recording.session import Session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


@dataclass(frozen=True)
class TraceCost:
    """A workload with and without its kernel's functions traced. Times are in seconds, one a round.

    Attributes:
        sites: Functions that ftrace can patch.
        patched: Those that were patched: a call instead of a NOP.
        patching: How long it took to patch them.
        unpatching: How long it took to undo it.
        untraced: The workload before they were patched.
        idle: The workload with the calls in place and the buffer closed: what the calls themselves cost.
        recorded: The workload with each call recorded.
        afterwards: The workload with NOPs again; it should be `untraced`.
        calls: Calls that were recorded, in each round, on all CPUs and of all tasks.
    """

    sites: int
    patched: int
    patching: float
    unpatching: float
    untraced: list[float]
    idle: list[float]
    recorded: list[float]
    afterwards: list[float]
    calls: list[int]

    @property
    def _base(self) -> float:
        return statistics.median([*self.untraced, *self.afterwards])

    @property
    def slowdown(self) -> float:
        """How many times as long the workload takes while each call is recorded: medians, over those with NOPs."""
        return statistics.median(self.recorded) / self._base

    @property
    def ns_per_call(self) -> float:
        """What one recorded call adds to the workload, by medians; counts every CPU's calls, so take it as a bound."""
        added = statistics.median(self.recorded) - self._base
        return added * 1e9 / max(statistics.median(self.calls), 1)

    def __str__(self) -> str:
        there = f"{self.patched} of {self.sites} functions patched"
        lines = [f"{there} in {self.patching:.3f} s, unpatched in {self.unpatching:.3f} s"]
        for name, times in (
            ("untraced, NOPs", self.untraced),
            ("calls, not recorded", self.idle),
            ("calls, recorded", self.recorded),
            ("NOPs again", self.afterwards),
        ):
            middle = statistics.median(times)
            lines.append(f"  {name:20} {middle * 1e3:12.3f} ms  {middle / self._base:8.2f}x")
        calls = statistics.median(self.calls)
        lines.append(f"  {calls:.0f} calls a run, {self.ns_per_call:.0f} ns each at most")
        return "\n".join(lines)


def trace_cost(
    workload: Callable[[], object], functions: str | Iterable[str] = "*", *, rounds: int = 3, buffer: int = 1 << 20
) -> TraceCost:
    """Runs a workload without and with functions traced, as perf-tools' ``funccount '*'`` traces them.

    Args:
        workload: What is run, `rounds` times in each state, and once before.
        functions: Functions or globs; all by default.
        rounds: Runs in each state.
        buffer: Bytes of each CPU's ring buffer. What does not fit overwrites what was there, and is counted still.

    Raises:
        InputError: No function matches, or `rounds` is below 1.
        UnsupportedError: This kernel has no function tracer.
    """
    if rounds < 1:
        raise InputError(f"rounds={rounds}", expected="1 or more")
    wanted = [functions] if isinstance(functions, str) else list(functions)
    there = sites()
    workload()  # the first one finds caches cold
    untraced = [_timed(workload) for _ in range(rounds)]
    with Session() as session:
        session.stop()
        session.option("overwrite")
        session.buffer_size(buffer)
        if wanted != ["*"]:
            try:
                session.functions(*wanted)
            except OSError as error:
                raise InputError(
                    f"no traceable function matches {', '.join(map(repr, wanted))}",
                    expected="a name or glob of available_filter_functions",
                ) from error
        before = patched_sites()
        patching = _timed(lambda: session.tracer("function"))
        patched = patched_sites() - before
        idle, recorded, calls = [], [], []
        for _ in range(rounds):
            idle.append(_timed(workload))
            session.set("trace", "\n")  # empties the buffer, and its counts
            session.start()
            recorded.append(_timed(workload))
            session.stop()
            calls.append(_recorded_events(session))
        unpatching = _timed(lambda: session.tracer("nop"))
    afterwards = [_timed(workload) for _ in range(rounds)]
    return TraceCost(there, patched, patching, unpatching, untraced, idle, recorded, afterwards, calls)


def _timed(action: Callable[[], object]) -> float:
    begin = time.perf_counter()
    action()
    return time.perf_counter() - begin


def _recorded_events(session: Session) -> int:
    """What the buffers of all CPUs hold, and what was overwritten in them."""
    counts = buffer_counts(session.path)
    return sum(counts[name] for name in ("entries", *LOST))
