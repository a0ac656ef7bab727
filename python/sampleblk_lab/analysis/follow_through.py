# SPDX-License-Identifier: MIT
"""One system call followed down to the driver and back, across the contexts that worked for it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from sampleblk_lab._native import core
from sampleblk_lab.table import Table

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sampleblk_lab.analysis.run import Run


@dataclass
class Node:
    """A piece of work: the call itself, a function, a request, or a time off the CPU.

    Attributes:
        name: What it is.
        start: ns.
        duration: ns.
        context: The task that did it, or ``"driver"``.
        children: What it caused, by time.
    """

    name: str
    start: int
    duration: int
    context: str
    children: list[Node] = field(default_factory=list)


class FollowThrough:
    """The tree of one system call."""

    def __init__(self, root: Node, off_cpu: int | None, metadata: dict[str, str]) -> None:
        #: The call and all below it.
        self.root = root
        #: How long the task was off the CPU during the call, in ns; None where sched_switch was not recorded.
        self.off_cpu = off_cpu
        self.metadata = metadata

    @classmethod
    def of(cls, run: Run, syscall: str, index: int, pid: int | Iterable[int] | None) -> FollowThrough:
        """See :meth:`Run.follow_through`."""
        calls = run.syscalls(pid=pid).table()
        rows = np.flatnonzero(calls["syscall"].values == syscall)
        if not -len(rows) <= index < len(rows):
            raise IndexError(f"call {index} of {len(rows)} calls of {syscall}")
        row = int(rows[index])
        start, duration, task = (int(calls[name].codes[row]) for name in ("time", "duration", "pid"))
        stop = start + duration
        comm = run.file.commands.get(task, str(task))
        context = f"{comm}-{task}"
        root = Node(f"{syscall} = {int(calls['ret'].codes[row])}", start, duration, context)
        root.children = _functions(run, task, start, stop, context)
        requests = _requests(run, start, stop)
        for request in requests:
            _deepest(root, request.start).children.append(request)
        off_cpu, waits = _waits(run, task, start, stop, context)
        for wait in waits:
            _deepest(root, wait.start).children.append(wait)
        _sort(root)
        return cls(root, off_cpu, calls.metadata)

    def times(self) -> Table:
        """Where the call's time went.

        Returns:
            Columns where (the key: on CPU, off CPU, driver) and time (ns). The driver's time, from issue to
            completion, overlaps the others; requests that overlap count once.
        """
        spans = sorted(
            (node.start, node.start + node.duration) for node in _walk(self.root) if node.context == "driver"
        )
        driver = 0
        end = 0
        for begin, finish in spans:
            driver += max(finish, end) - max(begin, end) if finish > end else 0
            end = max(end, finish)
        off = self.off_cpu or 0
        names = ["on CPU", "off CPU", "driver"]
        return Table.of(
            {"where": names, "time": np.array([self.root.duration - off, off, driver], dtype=np.int64)},
            units={"time": "ns"},
            metadata=self.metadata,
            key="where",
        )

    def text(self) -> str:
        """The tree, a line a piece of work: when it began, how long it took, and who did it."""
        lines: list[str] = []

        def add(node: Node, depth: int) -> None:
            at = core.format_duration(max(node.start - self.root.start, 0))
            who = "" if node.context == self.root.context else f"  [{node.context}]"
            lines.append(
                f"+{at:>9s} {core.duration_mark(node.duration)} {core.duration_text(node.duration)}|  "
                f"{'  ' * depth}{node.name}{who}"
            )
            for child in node.children:
                add(child, depth + 1)

        add(self.root, 0)
        lines.extend(f"{name}: {value}" for name, value in self.metadata.items())
        return "\n".join(lines)

    def __repr__(self) -> str:
        return self.text()


def _walk(node: Node) -> Iterable[Node]:
    yield node
    for child in node.children:
        yield from _walk(child)


def _sort(node: Node) -> None:
    node.children.sort(key=lambda child: child.start)
    for child in node.children:
        _sort(child)


def _deepest(node: Node, time: int) -> Node:
    """The innermost function of the task that was under way at that moment."""
    for child in node.children:
        if child.context == node.context and child.start <= time < child.start + child.duration:
            return _deepest(child, time)
    return node


def _functions(run: Run, task: int, start: int, stop: int, context: str) -> list[Node]:
    if not any(event.startswith("ftrace:funcgraph_entry") for event in run.file.events):
        return []
    table = run.graph(pid=task, start=start, stop=stop).table()
    nodes: list[Node] = []
    roots: list[Node] = []
    names = ("function", "time", "duration", "parent")
    for name, time, duration, parent in zip(*(table[column].values.tolist() for column in names), strict=True):
        node = Node(f"{name}()", time, duration, context)
        nodes.append(node)
        (roots if parent < 0 else nodes[parent].children).append(node)
    return roots


def _requests(run: Run, start: int, stop: int) -> list[Node]:
    """Requests that were queued during the call, by the task or by those who worked meanwhile."""
    if not any(event.startswith("block:") for event in run.file.events):
        return []
    table = run.block().table()
    out: list[Node] = []
    for row in table.rows():
        moment: Any = {name: int(row[name] or 0) for name in ("queued", "gotten", "inserted", "issued", "completed")}
        first = min((value for value in moment.values() if value), default=0)
        if not start <= first < stop:
            continue
        last = max(moment.values())
        pid = int(row["pid"] or 0)
        who = f"{run.file.commands.get(pid, '<idle>' if pid == 0 else str(pid))}-{pid}"
        node = Node(f"{row['device']} {row['rwbs']} {row['sector']} + {row['sectors']}", first, last - first, who)
        if moment["issued"] and moment["completed"]:
            node.children.append(
                Node("issue to completion", moment["issued"], moment["completed"] - moment["issued"], "driver")
            )
        out.append(node)
    return out


def _waits(run: Run, task: int, start: int, stop: int, context: str) -> tuple[int | None, list[Node]]:
    if "sched:sched_switch" not in run.file.events:
        return None, []
    table = run.events("sched:sched_switch", start=start, stop=stop, fields=["prev_pid", "next_pid"])
    left = 0
    waits: list[Node] = []
    names = ("time", "prev_pid", "next_pid")
    for time, before, after in zip(*(table[name].codes.tolist() for name in names), strict=True):
        if before == task:
            left = time
        elif after == task and left:
            waits.append(Node("off CPU", left, time - left, context))
            left = 0
    return sum(wait.duration for wait in waits), waits
