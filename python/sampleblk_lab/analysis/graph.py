# SPDX-License-Identifier: MIT
"""Function graphs: call trees with durations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from sampleblk_lab.errors import InputError
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
        table = self.table()
        roots = np.flatnonzero(table["parent"].codes == -1)
        if not -len(roots) <= root < len(roots):
            raise IndexError(f"root call {root} of {len(roots)}")
        first = int(roots[root])
        after = roots[roots > first]
        rows = (int(after[0]) if len(after) else len(table)) - first
        return CallTree(self._graph, first, rows, depth)

    def aggregate(self, *, by: str = "function") -> Table:
        """Calls and times summed.

        Args:
            by: ``"function"``, ``"path"`` (root;…;function) or ``"module"``.

        Returns:
            Columns `by` (the key), calls, total, self, minimum, average and maximum (ns, of total), by falling self
            time. A recursive function's total counts each level.

        Raises:
            InputError: `by` is none of these.
        """
        table = self.table()
        functions = np.array(table["function"].categories or [], dtype=object)
        codes = table["function"].codes
        if by == "function":
            names = functions[codes]
        elif by == "module":
            names = np.array([self.modules.get(name, "kernel") for name in functions], dtype=object)[codes]
        elif by == "path":
            names = np.array(self._paths(table), dtype=object)
        else:
            raise InputError(f"by={by!r}", expected="'function', 'path' or 'module'")
        keys, inverse = np.unique(names.astype(str), return_inverse=True)
        total, own = table["duration"].codes, table["self"].codes
        calls = np.bincount(inverse, minlength=len(keys)).astype(np.uint64)
        sums = np.bincount(inverse, weights=total, minlength=len(keys))
        selfs = np.bincount(inverse, weights=own, minlength=len(keys))
        low = np.full(len(keys), np.iinfo(np.uint64).max, dtype=np.uint64)
        high = np.zeros(len(keys), dtype=np.uint64)
        np.minimum.at(low, inverse, total)
        np.maximum.at(high, inverse, total)
        order = np.argsort(-selfs, kind="stable")
        columns: dict[str, Any] = {
            by: [str(keys[i]) for i in order],
            "calls": calls[order],
            "total": sums[order].astype(np.uint64),
            "self": selfs[order].astype(np.uint64),
            "minimum": low[order],
            "average": (sums / np.maximum(calls, 1))[order],
            "maximum": high[order],
        }
        units = dict.fromkeys(("total", "self", "minimum", "average", "maximum"), "ns")
        return Table.of(columns, units=units, metadata=table.metadata, key=by)

    def _paths(self, table: Table) -> list[str]:
        functions = table["function"].values.tolist()
        paths: list[str] = []
        for function, parent in zip(functions, table["parent"].codes.tolist(), strict=True):
            paths.append(function if parent < 0 else f"{paths[parent]};{function}")
        return paths

    def folded(self) -> str:
        """Folded stacks with their self time in ns, as flamegraph.pl takes them."""
        table = self.aggregate(by="path")
        return "".join(f"{path} {own}\n" for path, own in zip(table["path"], table["self"], strict=True) if own)

    def diff(self, other: Graph, *, by: str = "function") -> Table:
        """What changed from this run to another.

        Returns:
            Columns `by` (the key), calls_before, calls_after, average_before, average_after (ns), change (average
            after over before; inf where new, 0 where gone), by falling change of the sum.
        """
        before, after = self.aggregate(by=by), other.aggregate(by=by)
        names = list(dict.fromkeys([*before[by], *after[by]]))
        sides = []
        for side in (before, after):
            places = {name: row for row, name in enumerate(side[by])}
            rows = np.array([places.get(name, -1) for name in names])
            sides.append([np.where(rows >= 0, side[column].codes[rows], 0) for column in ("calls", "average", "total")])
        (calls0, average0, total0), (calls1, average1, total1) = sides
        with np.errstate(divide="ignore", invalid="ignore"):
            change = np.where(average0 > 0, average1 / average0, np.inf)
        order = np.argsort(-np.abs(total1.astype(np.float64) - total0.astype(np.float64)), kind="stable")
        columns: dict[str, Any] = {
            by: [str(names[i]) for i in order],
            "calls_before": calls0[order].astype(np.uint64),
            "calls_after": calls1[order].astype(np.uint64),
            "average_before": average0[order],
            "average_after": average1[order],
            "change": change[order],
        }
        metadata = {
            f"lost_events_{side}": table.metadata.get("lost_events", "0")
            for side, table in (("before", before), ("after", after))
        }
        return Table.of(columns, units={"average_before": "ns", "average_after": "ns"}, metadata=metadata, key=by)

    def text(self, *, calls: int | None = None, depth: int | None = None) -> str:
        """All trees in the kernel's text form, at most `calls` of their calls."""
        return self._graph.text(0, calls, depth)

    def __repr__(self) -> str:
        text = self.text(calls=_REPR_CALLS)
        return text + (f"({len(self)} calls)\n" if len(self) > _REPR_CALLS else "")

    def _repr_html_(self) -> str:
        from sampleblk_lab.report.tree import tree_html

        return tree_html(self.table(), 0, len(self))


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

    def _repr_html_(self) -> str:
        from sampleblk_lab.report.tree import tree_html

        return tree_html(Table(self._graph.table()), self._first, self._rows)
