# SPDX-License-Identifier: MIT
"""One system call followed down to the driver and back, across the contexts that worked for it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from sampleblk_lab._native import core
from sampleblk_lab.analysis.notebook import rows_html
from sampleblk_lab.buffers import of_one_buffer
from sampleblk_lab.table import Table
from sampleblk_lab.texts import notes, readable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from sampleblk_lab.analysis.run import Run

DRIVER = "driver"
# Nodes that a notebook's tree holds.
_HTML_NODES = 1000
# ns
_AFTER = 1_000_000
_MOST = 2**64 - 1


@dataclass
class Node:
    """A piece of work: the call itself, a function, a request, a step of it, or a time off the CPU.

    Attributes:
        name: What it is.
        start: ns.
        duration: ns.
        context: The task that did it, or ``"driver"``.
        children: What it caused, by time.
        timed: Whether the recording tells its duration.
    """

    name: str
    start: int
    duration: int
    context: str
    children: list[Node] = field(default_factory=list)
    timed: bool = True

    def walk(self) -> Iterator[Node]:
        """This one and all below it, callers first."""
        yield self
        for child in self.children:
            yield from child.walk()


class FollowThrough:
    """The tree of one system call."""

    def __init__(self, root: Node, off_cpu: int | None, metadata: dict[str, str]) -> None:
        #: The call and all below it.
        self.root = root
        #: How long the task was off the CPU during the call, in ns; None where sched_switch was not recorded.
        self.off_cpu = off_cpu
        self.metadata = metadata

    @classmethod
    def of(cls, run: Run, syscall: str, index: int, pids: int | Iterable[int] | None) -> FollowThrough:
        """See :meth:`Run.follow_through`."""
        run.file.require_ns(None, "a call followed through")
        calls = of_one_buffer(run.syscalls(pids=pids).table(), "a call's place among the calls")
        rows = np.flatnonzero(calls["syscall"].values == syscall)
        if not -len(rows) <= index < len(rows):
            raise IndexError(f"call {index} of {len(rows)} calls of {syscall}")
        row = int(rows[index])
        start, duration, task = (int(calls[name].codes[row]) for name in ("time", "duration", "pid"))
        story = _Story(run, start, min(start + duration, _MOST - _AFTER), task)
        root = Node(f"{syscall} = {int(calls['ret'].codes[row])}", start, duration, story.name(task))
        metadata = dict(calls.metadata)
        off_cpu = story.tell(root, metadata)
        return cls(root, off_cpu, metadata)

    def times(self) -> Table:
        """Where the call's time went.

        Returns:
            Columns where (the key: ``on CPU`` and ``off CPU`` of the calling task, which add up to the call;
            ``driver``, from issue to completion; ``other tasks``, what they worked for it) and time (ns). The last
            two overlap the first; requests that overlap each other count once. Without sched_switch in the recording
            the time off the CPU is not known and the row is missing. Requests that other tasks queued meanwhile are
            counted (``metadata["requests_of_others"]``), for nothing tells a journal's, which the call waits for,
            from those of somebody else.
        """
        others = [node for node in self.root.walk() if node.name.endswith("()") and node.context != self.root.context]
        rows = {} if self.off_cpu is None else {"off CPU": self.off_cpu}
        columns = {
            "on CPU" if self.off_cpu is not None else "on and off CPU": self.root.duration - (self.off_cpu or 0),
            **rows,
            "driver": _covered(node for node in self.root.walk() if node.context == DRIVER),
            "other tasks": _covered(others),
        }
        times = [min(max(time, 0), 2**63 - 1) for time in columns.values()]  # whatever a damaged page says
        return Table.of(
            {"where": list(columns), "time": np.array(times, dtype=np.int64)},
            units={"time": "ns"},
            metadata=self.metadata,
            key="where",
        )

    def contexts(self) -> list[str]:
        """Who had a part in it, in the order of appearance."""
        return list(dict.fromkeys(node.context for node in self.root.walk()))

    def _nodes(self) -> Iterator[tuple[int, Node]]:
        stack = [(0, self.root)]
        while stack:
            depth, node = stack.pop()
            yield depth, node
            stack.extend((depth + 1, child) for child in reversed(node.children))

    def _who(self, node: Node) -> str:
        return "" if node.context == self.root.context else f"  [{node.context}]"

    def text(self) -> str:
        """The tree, a line a piece of work: when it began, how long it took, and who did it."""
        lines = []
        for depth, node in self._nodes():
            at = core.format_duration(max(node.start - self.root.start, 0))
            time = (
                f"{core.duration_mark(node.duration)} {core.duration_text(node.duration)}" if node.timed else " " * 14
            )
            lines.append(f"+{at:>9s} {time}|  {'  ' * depth}{node.name}{self._who(node)}")
        lines.extend(notes(self.metadata))
        return "\n".join(lines)

    def __repr__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        rows = [(depth, node.duration, node.name + self._who(node)) for depth, node in self._nodes()]
        return rows_html(rows[:_HTML_NODES], max(len(rows) - _HTML_NODES, 0)) + self.times()._repr_html_()


def _covered(nodes: Iterable[Node]) -> int:
    """The time that these took together, in ns; where they overlap it counts once."""
    covered = end = 0
    for begin, finish in sorted((node.start, node.start + node.duration) for node in nodes):
        if finish > end:
            covered += finish - max(begin, end)
            end = finish
    return covered


class _Story:
    """What a recording tells of the time of one call."""

    def __init__(self, run: Run, start: int, stop: int, task: int) -> None:
        self._run = run
        self._start = start
        self._stop = stop
        self._task = task
        self._events = {str(event) for event in run.counts()["event"]}
        self._worked: set[int] = set()  # trees of other tasks that have their place

    def name(self, pid: int) -> str:
        return readable(f"{self._run.file.commands.get(pid, '<idle>' if pid == 0 else '?')}-{pid}")

    def tell(self, root: Node, metadata: dict[str, str]) -> int | None:
        requests = self._requests()
        last = max((request.node.start + request.node.duration for request in requests), default=0)
        # Others go on for a moment after the call, and after the completion, that they worked for.
        functions = self._functions(min(max(self._stop, last) + _AFTER, _MOST))
        root.children = [node for node in functions.pop(self._task, []) if node.start < self._stop]
        for request in requests:
            queuer = self._worker(root, functions.get(request.pids["pid"], []), request.node.start)
            _innermost(queuer or root, request.node.start).children.append(request.node)
            self._steps(request, functions)
        if others := sum(request.pids["pid"] != self._task for request in requests):
            metadata["requests_of_others"] = str(others)
        off_cpu, waits = self._waits(root.context)
        for wait in waits:
            _innermost(root, wait.start).children.append(wait)
        for node in root.walk():
            node.children.sort(key=lambda child: child.start)
        aside = sum(len(trees) for trees in functions.values()) - len(self._worked)
        if aside:
            # What others did meanwhile for somebody else, or for this call without touching one of its requests.
            metadata["function_trees_of_others"] = str(aside)
        return off_cpu

    def _functions(self, stop: int) -> dict[int, list[Node]]:
        """The function trees from the call's beginning on, by task."""
        if not self._events & {"ftrace:funcgraph_entry", "ftrace:fgraph_retaddr_entry", "ftrace:funcgraph_exit"}:
            return {}
        table = self._run.graph(start=self._start, stop=stop).table()
        nodes: list[Node] = []
        roots: dict[int, list[Node]] = {}
        of_one_buffer(table, "function trees")
        names = ("function", "time", "duration", "parent", "pid", "complete")
        columns = (table[column].values.tolist() for column in names)
        for name, time, duration, parent, pid, complete in zip(*columns, strict=True):
            node = Node(f"{name}()", time, duration, self.name(pid), timed=bool(complete or duration))
            nodes.append(node)
            (roots.setdefault(pid, []) if parent < 0 else nodes[parent].children).append(node)
        return roots

    def _requests(self) -> list[_Request]:
        """Requests that began during the call, by the task or by those who worked meanwhile."""
        if not any(event.startswith("block:") for event in self._events):
            return []
        out: list[_Request] = []
        for row in of_one_buffer(self._run.block().table(), "block requests"):
            moments = {name: int(row[name] or 0) for name in ("queued", "gotten", "inserted", "issued", "completed")}
            # One of which only the completion was seen began before the recording.
            first = min((value for name, value in moments.items() if value and name != "completed"), default=0)
            if not self._start <= first < self._stop:
                continue
            pids = {name: int(row[name] or 0) for name in ("pid", "issuer", "completer")}
            text = f"{row['device']} {row['rwbs']} {row['sector']} + {row['sectors']}"
            node = Node(text, first, max(moments.values()) - first, self.name(pids["pid"]))
            out.append(_Request(node, moments, pids))
        return out

    def _steps(self, request: _Request, functions: dict[int, list[Node]]) -> None:
        """Hangs the steps of a request below it, each with the functions of another context that took it."""
        node, moments, pids = request.node, request.moments, request.pids
        waited = moments["inserted"] or moments["gotten"] or moments["queued"]
        if moments["issued"] and waited:
            # Issued by the task that queued it, or by a worker of kblockd.
            span = max(moments["issued"] - waited, 0)
            node.children.append(Node("to issue", waited, span, self.name(pids["issuer"])))
            self._worker(node, functions.get(pids["issuer"], []), moments["issued"])
        if moments["issued"] and moments["completed"]:
            span = max(moments["completed"] - moments["issued"], 0)
            node.children.append(Node("issue to completion", moments["issued"], span, DRIVER))
            self._worker(node, functions.get(pids["completer"], []), moments["completed"])

    def _worker(self, cause: Node, trees: list[Node], time: int) -> Node | None:
        """The functions of another task that were under way at that moment; below `cause`, unless elsewhere already."""
        for tree in trees:
            if tree.start <= time <= tree.start + tree.duration:
                if id(tree) not in self._worked:
                    self._worked.add(id(tree))
                    _innermost(cause, tree.start).children.append(tree)
                return tree
        return None

    def _waits(self, context: str) -> tuple[int | None, list[Node]]:
        if "sched:sched_switch" not in self._events:
            return None, []
        table = self._run.events(
            "sched:sched_switch", start=self._start, stop=self._stop, fields=["prev_pid", "next_pid"]
        )
        of_one_buffer(table, "times off the CPU")
        left = 0
        waits: list[Node] = []
        names = ("time", "prev_pid", "next_pid")
        for time, before, after in zip(*(table[name].codes.tolist() for name in names), strict=True):
            if before == self._task:
                left = time
            elif after == self._task and left:
                waits.append(Node("off CPU", left, max(time - left, 0), context))
                left = 0
        return sum(wait.duration for wait in waits), waits


@dataclass
class _Request:
    node: Node
    moments: dict[str, int]
    pids: dict[str, int]


def _innermost(node: Node, time: int) -> Node:
    """The innermost function of the task that was under way at that moment."""
    for child in node.children:
        if child.context == node.context and child.start <= time < child.start + child.duration:
            return _innermost(child, time)
    return node
