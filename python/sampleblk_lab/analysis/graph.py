# SPDX-License-Identifier: MIT
"""Function graphs: call trees with durations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from sampleblk_lab._native import core
from sampleblk_lab.analysis.notebook import notes, text_lines
from sampleblk_lab.errors import InputError
from sampleblk_lab.table import Table

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

# Calls that a repr shows.
_REPR_CALLS = 60
# Calls that a notebook's tree holds.
_HTML_CALLS = 1000


def _shown(
    graph: core.CallGraph, modules: dict[str, str], first: int, rows: int, depth: int | None
) -> list[tuple[int, int, str]]:
    """Depth, duration and name of some calls, as a notebook's tree takes them."""
    table = graph.table()
    categories = table.column("function").categories or []
    window = slice(first, first + rows)
    columns = (table.column(name).values[window].tolist() for name in ("depth", "duration", "function"))
    return [
        (level, duration, f"{name} [{modules[name]}]" if name in modules else name)
        for level, duration, name in (
            (level, time, categories[code]) for level, time, code in zip(*columns, strict=True)
        )
        if depth is None or level < depth
    ]


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

    def aggregate(
        self, *, by: str = "function", depth: int | None = None, fold_modules: bool | Iterable[str] = False
    ) -> Table:
        """Calls and times summed.

        Args:
            by: ``"function"``, ``"path"`` (root;…;function) or ``"module"``.
            depth: Only calls down to so many levels; the self time of a call on the last level then holds all that
                it called.
            fold_modules: Take a module for one function, ``"[module]"``: True for every module, or the names of
                some. The kernel itself stays unfolded. What a module calls within itself is one call then.

        Returns:
            Columns `by` (the key), calls, total, self, minimum, average and maximum (ns, of total), by falling self
            time. A recursive function's total counts each level.

        Raises:
            InputError: `by` is none of these.
        """
        if by not in ("function", "path", "module"):
            raise InputError(f"by={by!r}", expected="'function', 'path' or 'module'")
        table = self.table()
        calls_of = _Calls(table, self.modules)
        if fold_modules:
            calls_of.fold(set(self.modules.values()) if fold_modules is True else set(fold_modules))
        if depth is not None:
            calls_of.cut(depth)
        names = calls_of.names(by)
        keys, inverse = np.unique(names.astype(str), return_inverse=True)
        total, own = calls_of.duration, calls_of.own
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

    def folded(self, *, fold_modules: bool | Iterable[str] = False) -> str:
        """Folded stacks with their self time in ns, as flamegraph.pl takes them. See :meth:`aggregate`."""
        table = self.aggregate(by="path", fold_modules=fold_modules)
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

    @property
    def metadata(self) -> dict[str, str]:
        """What travels with the graph: lost events, incomplete calls."""
        return self._graph.table().metadata

    def __repr__(self) -> str:
        text = self.text(calls=_REPR_CALLS)
        return text + (f"({len(self)} calls)\n" if len(self) > _REPR_CALLS else "") + text_lines(self.metadata)

    def _repr_html_(self) -> str:
        from sampleblk_lab.report.tree import rows_html

        shown = min(len(self), _HTML_CALLS)
        return rows_html(_shown(self._graph, self.modules, 0, shown, None), len(self) - shown) + notes(self.metadata)


class _Calls:
    """The calls that an aggregate sums, which folding makes fewer of."""

    def __init__(self, table: Table, modules: dict[str, str]) -> None:
        self._functions = [str(name) for name in table["function"].categories or []]
        self._modules = modules
        self._codes = table["function"].codes
        self._parent = table["parent"].codes
        self.duration = table["duration"].codes
        self.own = table["self"].codes

    def fold(self, modules: set[str]) -> None:
        """Makes each of these modules one function, and what it calls within itself a part of the call into it."""
        kinds = [f"[{module}]" if (module := self._modules.get(name)) in modules else "" for name in self._functions]
        names = [kind or name for kind, name in zip(kinds, self._functions, strict=True)]
        self._functions = list(dict.fromkeys(names))
        place = {name: code for code, name in enumerate(self._functions)}
        old = self._codes
        self._codes = np.array([place[name] for name in names], dtype=np.int64)[old]
        is_module = np.array([bool(kind) for kind in kinds], dtype=bool)[old]
        inside = (self._parent >= 0) & is_module & (self._codes == self._codes[self._parent])
        self._drop(inside)

    def cut(self, depth: int) -> None:
        """Drops what lies `depth` levels or more below a root."""
        level = np.zeros(len(self._parent), dtype=np.int64)
        for row, parent in enumerate(self._parent.tolist()):
            level[row] = level[parent] + 1 if parent >= 0 else 0
        self._drop(level >= depth)

    def _drop(self, gone: NDArray[Any]) -> None:
        """Their self times go to the nearest caller that stays."""
        stays = np.arange(len(gone))
        for row in np.flatnonzero(gone).tolist():  # callers come before their callees
            stays[row] = stays[self._parent[row]]
        own = np.zeros(len(gone), dtype=np.uint64)
        np.add.at(own, stays, self.own)
        kept = np.flatnonzero(~gone)
        place = np.full(len(gone), -1, dtype=np.int64)
        place[kept] = np.arange(len(kept))
        parent = self._parent[kept]
        self._parent = np.where(parent >= 0, place[stays[parent]], -1)
        self._codes, self.duration, self.own = self._codes[kept], self.duration[kept], own[kept]

    def names(self, by: str) -> NDArray[Any]:
        """What each call is counted under."""
        words = self._functions
        if by == "module":
            words = [name[1:-1] if name[0] == "[" else self._modules.get(name, "kernel") for name in words]
        picked: NDArray[Any] = np.array(words, dtype=object)[self._codes]
        if by == "path":
            paths: list[str] = []
            for function, parent in zip(picked.tolist(), self._parent.tolist(), strict=True):
                paths.append(function if parent < 0 else f"{paths[parent]};{function}")
            picked = np.array(paths, dtype=object)
        return picked


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
        return self.text() + text_lines(self._graph.table().metadata)

    def _repr_html_(self) -> str:
        from sampleblk_lab.report.tree import rows_html

        shown = min(self._rows, _HTML_CALLS)
        rows = _shown(self._graph, self._graph.modules, self._first, shown, self._depth)
        return rows_html(rows, self._rows - shown) + notes(self._graph.table().metadata)
