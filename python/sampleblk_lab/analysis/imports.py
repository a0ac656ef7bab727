# SPDX-License-Identifier: MIT
"""Recordings that others kept as text."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sampleblk_lab._native import core
from sampleblk_lab.analysis.graph import Graph
from sampleblk_lab.analysis.syscalls import SyscallSummary
from sampleblk_lab.table import Table

if TYPE_CHECKING:
    import os


def read_funcgraph(path: str | os.PathLike[str], *, errors: str = "strict") -> Graph:
    """The text of the function_graph tracer: ``trace``, ``trace_pipe``, or the output of perf-tools' funcgraph.

    Args:
        path: The file.
        errors: ``"skip"`` counts lines that are none of the tracer's (metadata ``unread_lines``).

    Raises:
        FormatError: There is such a line; says where.
    """
    return Graph(core.read_graph_text(Path(path).read_bytes(), str(path), errors == "skip"))


class StraceLog:
    """A log of strace."""

    def __init__(self, calls: core.Table, recorded: core.Table) -> None:
        self._calls = calls
        self._recorded = recorded

    def table(self) -> Table:
        """A row a call: time, duration (ns), pid, syscall, args (text), ret, error (name)."""
        return Table(self._calls)

    def summary(self) -> SyscallSummary:
        """The table of -C at the log's end as strace itself counted it; no rows where the log has none."""
        return SyscallSummary(self._recorded, key="syscall")

    def __repr__(self) -> str:
        return repr(self.summary() if len(self.summary()) else self.table())

    def _repr_html_(self) -> str:
        return (self.summary() if len(self.summary()) else self.table())._repr_html_()


def read_strace(path: str | os.PathLike[str], *, errors: str = "strict") -> StraceLog:
    """A log of strace, with any of -t -tt -ttt -r -T -f -C.

    Args:
        path: The file.
        errors: ``"skip"`` counts lines that are none of strace's (metadata ``unread_lines``).

    Raises:
        FormatError: There is such a line; says where.
    """
    text = Path(path).read_bytes()
    return StraceLog(core.read_strace_log(text, str(path), errors == "skip"), core.read_strace_summary(text, str(path)))
