# SPDX-License-Identifier: MIT
"""Function graphs: call trees with durations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from sampleblk_lab import checked
from sampleblk_lab._native import core
from sampleblk_lab.analysis.notebook import notes, rows_html, text_lines
from sampleblk_lab.analysis.outline import CallOutline, calls_of
from sampleblk_lab.buffers import of_one_buffer
from sampleblk_lab.errors import InputError, UnsupportedError
from sampleblk_lab.table import Table

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

# Calls that a repr shows.
_REPR_CALLS = 60
# Calls that a notebook's tree holds.
_HTML_CALLS = 1000


def _shown(graph: core.CallGraph, first: int, rows: int, depth: int | None) -> list[tuple[int, int, str]]:
    """Depth, duration and name of some calls, as a notebook's tree takes them."""
    table = graph.table()
    words = table.column("function").categories or []
    window = slice(first, first + rows)
    columns = (table.column(name).values[window].tolist() for name in ("depth", "duration", "function", "module"))
    return [
        (level, duration, words[function] if module < 0 else f"{words[function]} [{words[module]}]")
        for level, duration, function, module in zip(*columns, strict=True)
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
            Columns time, duration and self (ns), parent (row; -1: a root), depth, function, module (missing for the
            kernel itself), pid, cpu, complete (0 where the recording lacks the entry or the exit), and buffer where
            the calls are of several.
        """
        return Table(self._graph.table())

    @property
    def modules(self) -> dict[str, str]:
        """The module of each function that is not of the kernel itself; of those of several modules, all of them."""
        table = self._graph.table()
        words = table.column("function").categories or []
        pairs = np.unique(np.stack([table.column(name).values for name in ("function", "module")]), axis=1).T.tolist()
        found: dict[str, list[str]] = {}
        for function, module in pairs:
            if module >= 0:
                found.setdefault(words[function], []).append(words[module])
        return {function: ", ".join(modules) for function, modules in found.items()}

    def tree(self, root: int = 0, *, depth: int | None = None) -> CallTree:
        """One call and all below it.

        Args:
            root: Which of the root calls, counted from 0 in time order; negative from the end.
            depth: How many levels.

        Raises:
            IndexError: There are not so many.
        """
        if depth is not None:
            checked.count("depth", depth)
        table = self.table()
        roots = np.flatnonzero(table["parent"].codes == -1)
        if not -len(roots) <= root < len(roots):
            raise IndexError(f"root call {root} of {len(roots)}")
        first = int(roots[root])
        after = roots[roots > first]
        rows = (int(after[0]) if len(after) else len(table)) - first
        return CallTree(self._graph, first, rows, depth)

    def outline(self, target: str) -> CallOutline:
        """The longest call down to a function of interest: the path there in full, what lies beside it summed up.

        Args:
            target: Glob of the functions to go down to, such as ``"sampleblk_queue_rq*"``; where no call goes there,
                the outline is the longest one's.

        Raises:
            InputError: No call was recorded.
        """
        table = self.table()
        if not len(table):
            raise InputError("an outline of no calls", expected="a recording with calls of the function")
        roots = np.flatnonzero(table["parent"].codes == -1)
        # A root's calls are the rows up to the next root.
        places = np.searchsorted(roots, calls_of(table, target), side="right") - 1
        roots = roots[np.unique(places)] if len(places) else roots
        longest = int(roots[int(np.argmax(table["duration"].codes[roots]))])
        return CallOutline(table, longest, target, self.modules)

    def aggregate(
        self, *, by: str = "function", depth: int | None = None, fold_modules: bool | Iterable[str] = False
    ) -> Table:
        """Calls and times summed.

        Args:
            by: ``"function"``, ``"path"`` (root;…;function) or ``"module"``.
            depth: Only calls down to so many levels; the self time of a call on the last level then holds all that
                it called, also where its own duration is not known: then self is above total.
            fold_modules: Take a module for one function, ``"[module]"``: True for every module, or the names of
                some. The kernel itself stays unfolded. What a module calls within itself is one call then.

        Returns:
            Columns `by` (the key), calls, timed (of them, those whose duration is known), total, self, minimum, average
            and maximum (ns, of the timed ones' total; NaN where there is none), by falling self time. A recursive
            function's total counts each level. A function that several modules have is ``name [module]`` for each.

        Raises:
            InputError: `by` is none of these; or the calls are of several buffers.
            UnsupportedError: The durations add up to more than 64 bits, as those of a corrupt recording may.
        """
        if by not in ("function", "path", "module"):
            raise InputError(f"by={by!r}", expected="'function', 'path' or 'module'")
        table = of_one_buffer(self.table(), "sums of calls")
        calls_of = _Calls(table)
        if fold_modules:
            named = {fold_modules} if isinstance(fold_modules, str) else fold_modules
            calls_of.fold(None if named is True else set(named))
        if depth is not None:
            calls_of.cut(checked.count("depth", depth))
        keys, inverse = calls_of.names(by)
        total, own, is_timed = calls_of.duration, calls_of.own, calls_of.timed
        calls = np.bincount(inverse, minlength=len(keys)).astype(np.uint64)
        timed = np.bincount(inverse[is_timed], minlength=len(keys)).astype(np.uint64)
        sums, selfs = _sums(inverse, total, len(keys)), _sums(inverse, own, len(keys))
        low, high = np.full(len(keys), np.inf), np.full(len(keys), -np.inf)
        np.minimum.at(low, inverse[is_timed], total[is_timed])
        np.maximum.at(high, inverse[is_timed], total[is_timed])
        known = timed > 0
        order = np.argsort(np.uint64(2**64 - 1) - selfs, kind="stable")  # the largest first, ties as they were
        columns: dict[str, Any] = {
            by: [keys[i] for i in order],
            "calls": calls[order],
            "timed": timed[order],
            "total": sums[order],
            "self": selfs[order],
            "minimum": np.where(known, low, np.nan)[order],
            "average": np.where(known, sums / np.maximum(timed, 1), np.nan)[order],
            "maximum": np.where(known, high, np.nan)[order],
        }
        units = dict.fromkeys(("total", "self", "minimum", "average", "maximum"), table["duration"].unit)
        return Table.of(columns, units=units, metadata=table.metadata, key=by)

    def folded(self, *, fold_modules: bool | Iterable[str] = False) -> str:
        """Folded stacks with their self time in ns, as flamegraph.pl takes them. See :meth:`aggregate`."""
        table = self.aggregate(by="path", fold_modules=fold_modules)
        return "".join(f"{path} {own}\n" for path, own in zip(table["path"], table["self"], strict=True) if own)

    def diff(self, other: Graph, *, by: str = "function") -> Table:
        """What changed from this run to another.

        Returns:
            Columns `by` (the key), calls_before, calls_after, average_before, average_after (ns), change (average
            after over before; inf where new, 0 where gone, NaN where one of them is not known), by falling change of
            the sum.
        """
        before, after = self.aggregate(by=by), other.aggregate(by=by)
        names = list(dict.fromkeys([*before[by], *after[by]]))
        sides = []
        for side in (before, after):
            places = {name: row for row, name in enumerate(side[by])}
            rows = np.array([places.get(name, -1) for name in names], dtype=np.int64)
            there = rows >= 0
            values = []
            for column in ("calls", "average", "total"):
                of = side[column].codes
                values.append(np.zeros(len(names), dtype=of.dtype))
                values[-1][there] = of[rows[there]]
            sides.append(values)
        (calls0, average0, total0), (calls1, average1, total1) = sides
        with np.errstate(divide="ignore", invalid="ignore"):
            change = np.where(np.isnan(average0), np.nan, np.where(average0 > 0, average1 / average0, np.inf))
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
        if calls is not None:
            calls = checked.count("calls", calls, 0, (1 << 63) - 1)
        if depth is not None:
            checked.count("depth", depth)
        return self._graph.text(0, calls, depth)

    @property
    def metadata(self) -> dict[str, str]:
        """What travels with the graph: lost events, incomplete calls."""
        return self._graph.table().metadata

    def __repr__(self) -> str:
        text = self.text(calls=_REPR_CALLS)
        return text + (f"({len(self)} calls)\n" if len(self) > _REPR_CALLS else "") + text_lines(self.metadata)

    def _repr_html_(self) -> str:
        shown = min(len(self), _HTML_CALLS)
        return rows_html(_shown(self._graph, 0, shown, None), len(self) - shown) + notes(self.metadata)


def _sums(places: NDArray[Any], values: NDArray[Any], size: int) -> NDArray[np.uint64]:
    """The exact sum of the values at each place."""
    if np.any(np.bincount(places, weights=values, minlength=size) >= 2.0**64):
        raise UnsupportedError("sums of calls", "their durations add up to more than 64 bits", "a sound recording")
    out = np.zeros(size, dtype=np.uint64)
    np.add.at(out, places, values)
    return out


class _Calls:
    """The calls that an aggregate sums, which folding makes fewer of."""

    def __init__(self, table: Table) -> None:
        words = [str(word) for word in table["function"].categories or []]
        pairs = np.stack([table["function"].codes, table["module"].codes]).astype(np.int64)
        kinds, codes = np.unique(pairs, axis=1, return_inverse=True)
        #: Function and module ("" for the kernel) of each code.
        self._kinds = [(words[function], words[module] if module >= 0 else "") for function, module in kinds.T.tolist()]
        self._codes = codes.reshape(-1)
        self._parent = table["parent"].codes
        self.duration = table["duration"].codes
        self.own = table["self"].codes
        # An exit without its entry tells how long the call took, too.
        self.timed = (table["complete"].codes == 1) | (self.duration > 0)

    def fold(self, modules: set[str] | None) -> None:
        """Makes each of these modules (None: all) one function; what it calls within itself is part of the call."""
        folds = [bool(module) and (modules is None or module in modules) for _, module in self._kinds]
        kinds = [
            (f"[{module}]", module) if fold else (function, module)
            for fold, (function, module) in zip(folds, self._kinds, strict=True)
        ]
        old = self._codes
        self._kinds = list(dict.fromkeys(kinds))
        place = {kind: code for code, kind in enumerate(self._kinds)}
        self._codes = np.array([place[kind] for kind in kinds], dtype=np.int64)[old]
        is_module = np.array(folds, dtype=bool)[old]
        self._drop((self._parent >= 0) & is_module & (self._codes == self._codes[self._parent]))

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
        own = _sums(stays, self.own, len(gone))
        kept = np.flatnonzero(~gone)
        place = np.full(len(gone), -1, dtype=np.int64)
        place[kept] = np.arange(len(kept))
        parent = self._parent[kept]
        self._parent = np.where(parent >= 0, place[stays[parent]], -1)
        self._codes, self.duration, self.own = self._codes[kept], self.duration[kept], own[kept]
        self.timed = self.timed[kept]

    def names(self, by: str) -> tuple[list[str], NDArray[Any]]:
        """What calls are counted under, in order of the alphabet, and for each call the number of its name there."""
        homes: dict[str, set[str]] = {}
        for function, module in self._kinds:
            homes.setdefault(function, set()).add(module)
        words = [
            f"{function} [{module}]" if module and len(homes[function]) > 1 else function
            for function, module in self._kinds
        ]
        if by == "module":
            words = [module or "kernel" for _, module in self._kinds]
        codes = self._codes
        if by == "path":
            # A path is its caller's and a function: of each only one text is made, however many calls took it.
            known: dict[tuple[int, int], int] = {}
            paths: list[str] = []
            numbers = np.empty(len(codes), dtype=np.int64)
            for row, (code, parent) in enumerate(zip(codes.tolist(), self._parent.tolist(), strict=True)):
                above = int(numbers[parent]) if parent >= 0 else -1
                number = known.setdefault((above, code), len(known))
                if number == len(paths):
                    paths.append(words[code] if above < 0 else f"{paths[above]};{words[code]}")
                numbers[row] = number
            words, codes = paths, numbers
        keys = sorted({words[code] for code in np.unique(codes).tolist()})
        place = {key: number for number, key in enumerate(keys)}
        picked: NDArray[Any] = np.array([place.get(word, -1) for word in words], dtype=np.int64)[codes]
        return keys, picked


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
        shown = min(self._rows, _HTML_CALLS)
        rows = _shown(self._graph, self._first, shown, self._depth)
        return rows_html(rows, self._rows - shown) + notes(self._graph.table().metadata)
