# SPDX-License-Identifier: MIT
"""Events counted, not sampled: what ``perf stat`` shows."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from sampleblk_lab import checked, renamed, tasks, trust
from sampleblk_lab._native import core
from sampleblk_lab.blocks import StopsAtEnd
from sampleblk_lab.errors import InputError, UnsupportedError
from sampleblk_lab.profiling.profiler import is_trace_point, of_cpus, online
from sampleblk_lab.table import Table

if TYPE_CHECKING:
    from sampleblk_lab.tasks import Who

# What perf stat counts when it is not told.
DEFAULT_EVENTS = (
    "task-clock",
    "context-switches",
    "cpu-migrations",
    "page-faults",
    "cycles",
    "instructions",
    "branches",
    "branch-misses",
)
_SECOND = 1_000_000_000

# Of these the half that an ordinary user may count is always 0.
_OF_THE_KERNEL = frozenset({"context-switches", "cs", "cpu-migrations", "migrations", "cgroup-switches"})

# Other names of events that ratios are of.
_SAME = {"cpu-cycles": "cycles", "branch-instructions": "branches"}


class Stat(StopsAtEnd):
    """Counts events while its with block runs, or while a command does. Made by :func:`stat`.

    Attributes:
        command: What was run; empty for processes and CPUs.
        returncode: The command's, as of :mod:`subprocess`; None where there is none.
        elapsed: From the beginning to the end, or until now, in ns.
        user: CPU time of the command in user code, in seconds; None where there is none.
        system: The same in the kernel.
    """

    _KEPT = "what was counted"

    def __init__(self, events: Sequence[str], pids: Sequence[int], children: bool, command: Sequence[str]) -> None:
        self.command = tuple(command)
        self.returncode: int | None = None
        self.user: float | None = None
        self.system: float | None = None
        self._pids = tuple(pids)
        self._online = {} if pids or command else online()
        tracefs = core.tracefs_dir() if any(map(is_trace_point, events)) else ""
        self._counters: core.CounterSet | None = core.CounterSet(
            list(events), pids=list(pids), children=children, commands=bool(command), tracefs=tracefs
        )
        self._rows: list[dict[str, Any]] = []
        self._begin = 0
        self._end = 0

    def start(self) -> Self:
        """Begins to count. Counting cannot begin twice."""
        if self._begin:
            raise RuntimeError("a Stat counts once; make another one with stat()")
        self._note_process()
        if self._counters is not None:
            self._begin = time.monotonic_ns()
            self._counters.start()
        return self

    def stop(self) -> Self:
        """Ends the counting. Does nothing the second time."""
        if self._counters is not None:
            self._refuse_in_fork()
            # Closed, for what is forked later would inherit them.
            counters, self._counters = self._counters, None
            counters.stop()
            self._end = time.monotonic_ns()
            self._rows = counters.read()
            if self._online:
                moved = of_cpus(self._online)
                trust.later(lambda: moved)
        return self

    def _values(self) -> list[dict[str, Any]]:
        return self._rows if self._counters is None else self._counters.read()

    close = stop

    def _run(self, **options: Any) -> Self:
        # The counters are inherited by what this very thread forks, and count from its execve on.
        self._begin = time.monotonic_ns()
        try:
            process = subprocess.Popen(self.command, **options)
            try:
                _, status, usage = os.wait4(process.pid, 0)
            except BaseException:
                process.kill()
                process.wait()
                raise
        finally:
            self.stop()
        process.returncode = self.returncode = os.waitstatus_to_exitcode(status)
        self.user, self.system = usage.ru_utime, usage.ru_stime
        return self

    @property
    def elapsed(self) -> int:
        """From the beginning to the end, or until now, in ns."""
        return (self._end or time.monotonic_ns()) - self._begin if self._begin else 0

    def table(self) -> Table:
        """One row an event, keyed by ``event``; while it is counted, of now.

        Columns: event, state (``"counted"``, ``"not counted"``: it never had its turn, ``"not supported"``), value
        (for all of the time, where the event had to share a hardware counter), unit (``"ns"`` or empty), raw (what was
        counted), enabled and running (ns, summed over CPUs or threads).
        """
        rows = self._values()
        columns: dict[str, Any] = {
            "event": [row["event"] for row in rows],
            "state": [_state(row) for row in rows],
            "value": np.array([row["value"] for row in rows], dtype=np.uint64),
            "unit": ["ns" if row["clock"] else "" for row in rows],
            "raw": np.array([row["raw"] for row in rows], dtype=np.uint64),
            "enabled": np.array([row["enabled"] for row in rows], dtype=np.uint64),
            "running": np.array([row["running"] for row in rows], dtype=np.uint64),
        }
        return Table.of(columns, units={"enabled": "ns", "running": "ns"}, key="event")

    def __getitem__(self, event: str) -> int:
        """An event's value; clocks in ns.

        Raises:
            KeyError: The event is not among those counted, or is so twice.
            UnsupportedError: This machine does not count it, it never had its turn, or it happens in the kernel alone
                and this user may not count that.
        """
        # Only where the event itself is missing does it mean the one that was kept to user code.
        rows = self._values()
        found = [row for row in rows if row["event"] == event] or [row for row in rows if row["event"] == f"{event}:u"]
        if len(found) != 1:
            raise KeyError(
                f"{event!r} is counted {len(found)} times; there are {', '.join(row['event'] for row in rows)}"
            )
        if found[0]["event"] != event and event in _OF_THE_KERNEL:
            raise UnsupportedError(
                f"the event {event}", "this user may count user code only, where it never is", "count it as root"
            )
        if not found[0]["counted"]:
            raise UnsupportedError(f"the event {event}", _state(found[0]), "count fewer events, or on another machine")
        return int(found[0]["value"])

    def text(self) -> str:
        """The table that ``perf stat`` prints."""
        what = "system wide"
        if self.command:
            what = f"'{' '.join(self.command)}'"
        elif self._pids:
            what = "process id '" + ",".join(map(str, self._pids)) + "'"
        rows = self._values()
        lines = [f" Performance counter stats for {what}:", ""]
        lines += [_line(row, rows, self.elapsed) for row in rows]
        lines += ["", f"{self.elapsed / _SECOND:17.9f} seconds time elapsed", ""]
        if self.user is not None and self.system is not None:
            lines += [f"{self.user:17.9f} seconds user", f"{self.system:17.9f} seconds sys", ""]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return self.text() if self._begin else "<Stat, not started>"


def _state(row: dict[str, Any]) -> str:
    return "counted" if row["counted"] else "not counted" if row["supported"] else "not supported"


def _line(row: dict[str, Any], rows: list[dict[str, Any]], elapsed: int) -> str:
    if not row["counted"]:
        return f"{'<' + _state(row) + '>':>18}      {row['event']}"
    amount = f"{row['value'] / 1e6:18,.2f} msec" if row["clock"] else f"{row['value']:18,}     "
    note = _note(row, rows, elapsed)
    line = f"{amount} {row['event']:25}" + (f" # {note}" if note else "")
    if row["running"] < row["enabled"]:
        line = f"{line:70}  ({100 * row['running'] / row['enabled']:.2f}%)"
    return line.rstrip()


def _plain(event: str) -> str:
    name = event.removesuffix(":u")
    return _SAME.get(name, name)


def _note(row: dict[str, Any], rows: list[dict[str, Any]], elapsed: int) -> str:
    """What perf prints behind the #: a ratio to another event."""
    values = {_plain(one["event"]): one["value"] for one in rows if one["counted"]}
    value, event = row["value"], _plain(row["event"])
    clock = values.get("task-clock") or values.get("cpu-clock")
    if row["clock"]:
        return f"{value / elapsed:8.3f} CPUs utilized" if elapsed else ""
    if event == "cycles" and clock:
        return f"{value / clock:8.3f} GHz"
    if event == "instructions" and values.get("cycles"):
        return f"{value / values['cycles']:7.2f}  insn per cycle"
    if event == "branch-misses" and values.get("branches"):
        return f"{100 * value / values['branches']:7.2f}% of all branches"
    if event == "cache-misses" and values.get("cache-references"):
        return f"{100 * value / values['cache-references']:7.2f}% of all cache refs"
    if not clock:
        return ""
    rate = value * _SECOND / clock
    for scale, prefix in ((1e9, "G"), (1e6, "M"), (1e3, "K")):
        if rate >= scale:
            return f"{rate / scale:8.3f} {prefix}/sec"
    return f"{rate:8.3f} /sec"


@renamed.parameters(pid="pids")
def stat(
    command: str | Sequence[str] | None = None,
    *,
    pids: Who | None = None,
    children: bool = True,
    events: str | Iterable[str] = DEFAULT_EVENTS,
    **options: Any,
) -> Stat:
    """Counts events, as ``perf stat`` does.

    Args:
        command: Runs this to its end and counts it, from its ``execve`` on, with all that it starts; a text is split as
            a shell would. None: counts while the with block of the result runs.
        pids: This process or these, or a JobRun; with all their threads. None: all CPUs, which needs CAP_PERFMON.
        children: Their descendants, too: those of now and those to come. Before Linux 5.13, False leaves out threads to
            come, too.
        events: Any names of perf list: ``"cycles"``, ``"page-faults"``, ``"LLC-load-misses"``, ``"r01c2"``,
            ``"block:block_rq_issue"``; by default those of perf stat. What the machine does not count is shown as such.
        **options: For the command, as :class:`subprocess.Popen` takes them.

    Returns:
        The counts: ``stat["page-faults"]``, :meth:`Stat.table`, :meth:`Stat.text`.

    Raises:
        PermissionError: The kernel does not let this user count; says which setting.
        InputError: No such event.
        FileNotFoundError: No such command.

    See perf_event_open(2), "Reading results".
    """
    if command is not None and pids is not None:
        raise InputError("both a command and pids", expected="one of them")
    if command is None and options:
        raise InputError(f"{', '.join(options)} without a command", expected="a command")
    names = [events] if isinstance(events, str) else list(events)
    words = [] if command is None else checked.command(command)
    chosen = tasks.ids(pids, jobs_by="pids")
    counts = Stat(names, chosen, children, words)
    return counts._run(**options) if words else counts  # noqa: SLF001
