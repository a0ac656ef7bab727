# SPDX-License-Identifier: MIT
"""Function graphs: call trees with durations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sampleblk_lab.table import Table

if TYPE_CHECKING:
    from sampleblk_lab._native import core

# Calls that a repr shows.
_REPR_CALLS = 60


class Graph:
    """The calls of a recording, joined to trees."""

    def __init__(self, graph: core.CallGraph) -> None:
        self._graph = graph

    def __len__(self) -> int:
        return len(self._graph)

    def table(self) -> Table:
        """One row a call, depth first.

        Returns:
            Columns time, duration and self (ns), parent (row; -1: a root), depth, function, pid, cpu, and complete
            (0 where the recording lacks the entry or the exit).
        """
        return Table(self._graph.table())

    @property
    def modules(self) -> dict[str, str]:
        """The module of each function that is not of the kernel itself."""
        return self._graph.modules

    def tree(self, root: int = 0, *, depth: int | None = None) -> CallTree:
        """One call and all below it.

        Args:
            root: Which of the root calls, counted from 0 in time order; negative from the end.
            depth: How many levels.

        Raises:
            IndexError: There are not so many.
        """
        import numpy as np

        table = self.table()
        roots = np.flatnonzero(table["parent"].codes == -1)
        if not -len(roots) <= root < len(roots):
            raise IndexError(f"root call {root} of {len(roots)}")
        first = int(roots[root])
        after = roots[roots > first]
        rows = (int(after[0]) if len(after) else len(table)) - first
        return CallTree(self._graph, first, rows, depth)

    def text(self, *, calls: int | None = None, depth: int | None = None) -> str:
        """All trees in the kernel's text form, at most `calls` of their calls."""
        return self._graph.text(0, calls, depth)

    def __repr__(self) -> str:
        text = self.text(calls=_REPR_CALLS)
        return text + (f"({len(self)} calls)\n" if len(self) > _REPR_CALLS else "")


class CallTree:
    """One root call and what it called."""

    def __init__(self, graph: core.CallGraph, first: int, rows: int, depth: int | None) -> None:
        self._graph = graph
        self._first = first
        self._rows = rows
        self._depth = depth

    def __len__(self) -> int:
        return self._rows

    def text(self) -> str:
        """The kernel's text form, with its marks for long durations."""
        return self._graph.text(self._first, self._rows, self._depth)

    def functions(self) -> list[str]:
        """The functions called, in the order of their first call."""
        table = self._graph.table()
        column = table.column("function")
        categories = column.categories
        assert categories is not None
        codes = column.values[self._first : self._first + self._rows]
        return list(dict.fromkeys(categories[code] for code in codes))

    def __repr__(self) -> str:
        return self.text()
