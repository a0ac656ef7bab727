# SPDX-License-Identifier: MIT
"""One call down to a function of interest: the path there in full, what lies beside it summed up.

A single fadvise64() that writes a page cache back makes tens of thousands of calls; nobody reads them. The outline
follows the path to the first call of a target, and at each step names the siblings that took longest.
"""

from __future__ import annotations

import fnmatch
import html
from dataclasses import dataclass, field
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np

from sampleblk_lab._native import core

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from sampleblk_lab.table import Table

# Siblings named at each step, longest first; the others are summed up in one line.
_SIBLINGS = 4


def stylesheet() -> str:
    """The CSS of an outline; its rules touch nothing but ``.calls``."""
    return files("sampleblk_lab.analysis").joinpath("outline.css").read_text()


@dataclass
class _Line:
    """A function, called once or more at this place."""

    function: str
    duration_ns: int
    calls: int
    on_path: bool = False
    below: list[_Line] = field(default_factory=list)


def calls_of(table: Table, target: str) -> NDArray[Any]:
    """The rows of a call table whose function a glob matches."""
    names = table["function"].categories or []
    wanted = [code for code, name in enumerate(names) if fnmatch.fnmatchcase(name, target)]
    return np.flatnonzero(np.isin(table["function"].codes, wanted))


class CallOutline:
    """The outline of one root call.

    Args:
        table: The call table, as ``run.graph().table()`` gives it: columns function, parent, depth and duration.
        root: The row of the root call.
        target: Glob of the functions to go down to.
        modules: The module of each function that has one.

    Attributes:
        target_calls: How many calls below the root match the target.
        calls: How many calls there are below the root, itself included.
    """

    def __init__(self, table: Table, root: int, target: str, modules: Mapping[str, str] | None = None) -> None:
        self._modules = modules or {}
        functions = table["function"]
        self._names = functions.categories or []
        self._codes = functions.codes
        self._parents: NDArray[Any] = table["parent"].codes
        self._durations: NDArray[Any] = table["duration"].codes
        later = np.flatnonzero(self._parents[root + 1 :] == -1)
        self._end = root + 1 + int(later[0]) if len(later) else len(table)
        self.calls = self._end - root
        hits = calls_of(table, target)
        hits = hits[(hits >= root) & (hits < self._end)]
        self.target_calls = len(hits)
        path = set()
        row = int(hits[0]) if len(hits) else root
        while row != -1:
            path.add(row)
            row = int(self._parents[row]) if row != root else -1
        self._root = self._line(root, path)

    def _line(self, row: int, path: set[int]) -> _Line:
        line = _Line(self._names[self._codes[row]], int(self._durations[row]), 1, on_path=True)
        children = row + 1 + np.flatnonzero(self._parents[row + 1 : self._end] == row)
        beside: dict[int, _Line] = {}
        ahead: _Line | None = None
        for child in children.tolist():
            if child in path:
                ahead = self._line(child, path)
                continue
            code = int(self._codes[child])
            same = beside.setdefault(code, _Line(self._names[code], 0, 0))
            same.duration_ns += int(self._durations[child])
            same.calls += 1
        longest = sorted(beside.values(), key=lambda other: -other.duration_ns)
        line.below = longest[:_SIBLINGS]
        if rest := longest[_SIBLINGS:]:
            total = sum(other.duration_ns for other in rest)
            line.below.append(_Line(f"{len(rest)} more", total, sum(other.calls for other in rest)))
        if ahead is not None:
            line.below.append(ahead)
        return line

    def _label(self, line: _Line) -> str:
        module = self._modules.get(line.function)
        return f"{line.function} [{module}]" if module else line.function

    def text(self) -> str:
        """Durations, then functions indented by depth; ``×`` how often a sibling was called."""
        lines: list[str] = []

        def add(line: _Line, depth: int) -> None:
            mark = "" if line.calls == 1 else f"  × {line.calls:,}"
            pointer = "→ " if line.on_path else "  "
            lines.append(
                f"{core.format_duration(line.duration_ns):>9}  {'  ' * depth}{pointer}{self._label(line)}{mark}"
            )
            for below in line.below:
                add(below, depth + 1)

        add(self._root, 0)
        return "\n".join(lines)

    def __repr__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        return f"<style>{stylesheet()}</style><div class='calls'>{self.html()}</div>"

    def html(self) -> str:
        """Nested lists of ``<details>``: they fold without scripts and are indented without styles."""

        def label(line: _Line) -> str:
            name = html.escape(self._label(line))
            time = f"<span class='t'>{core.format_duration(line.duration_ns)}</span>"
            often = "" if line.calls == 1 else f" <span class='d'>× {line.calls:,}</span>"
            return f"{time} {f'<b>{name}</b>' if line.on_path else name}{often}"

        def render(line: _Line) -> str:
            if not line.below:
                return f"<li>{label(line)}</li>"
            below = "".join(map(render, line.below))
            return f"<li><details open><summary>{label(line)}</summary><ul>{below}</ul></details></li>"

        return f"<ul>{render(self._root)}</ul>"
