# SPDX-License-Identifier: MIT
"""Weighted stacks: folded text, call trees and flame graphs."""

from __future__ import annotations

import io
import re
from os import fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sampleblk_lab import checked
from sampleblk_lab._native import core
from sampleblk_lab.errors import InputError
from sampleblk_lab.profiling.pictured import bundle
from sampleblk_lab.profiling.still import still
from sampleblk_lab.table import Table
from sampleblk_lab.texts import read_bytes, utf8

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from os import PathLike

# In CSS pixels, of a flame graph in a notebook.
_TALLEST = 720
# In percent: of the still picture beside it, where nothing can be zoomed, and of its text.
_NARROWEST = 0.4
_LEAST = 2.0
# At the end of a line of folded stacks: before and after.
_TWO_COUNTS = re.compile(rb" \d+(\.\d*)? \d+(\.\d*)?\s*$")


class Stacks:
    """Stacks merged by name below the names of their threads, each with a weight.

    Args:
        tree: The core's tree.
        title: What flame graphs of it are called.
        notes: What must be shown with it, such as losses; name to value.
    """

    def __init__(self, tree: core.StackTree, title: str, notes: Mapping[str, str] | None = None) -> None:
        self._tree = tree
        self.title = utf8(title)
        self.notes = dict(notes or {})

    @property
    def native(self) -> core.StackTree:
        """The core's tree."""
        return self._tree

    @property
    def unit(self) -> str:
        """The unit of the weights: ``"samples"``, ``"ns"`` or an event's name."""
        return self._tree.unit

    @property
    def total(self) -> int:
        """The sum of all weights."""
        return self._tree.total

    def __len__(self) -> int:
        return len(self._tree)

    def __add__(self, other: Stacks) -> Stacks:
        """Both together; they must have one unit."""
        if self.unit != other.unit:
            raise InputError(f"stacks in {self.unit} and in {other.unit}", expected="stacks of one unit")
        notes = {**self.notes, **other.notes}
        for name in self.notes.keys() & other.notes.keys():
            if self.notes[name].isdecimal() and other.notes[name].isdecimal():  # both lost some
                notes[name] = str(int(self.notes[name]) + int(other.notes[name]))
        return Stacks(self._tree.merged(other.native), f"{self.title} and {other.title}", notes)

    def weight(self, *path: str) -> int:
        """The weight of everything below the frames of `path`, outermost first, from a thread's name on; 0 if none."""
        return self._tree.weight(list(path)) or 0

    def folded(self) -> str:
        """One line a stack, ``thread;outer;inner 12``, as FlameGraph's and other tools take it."""
        return self._tree.folded()

    def below(self, *functions: str) -> Stacks:
        """Only what these functions called, each stack from the outermost of them inwards; other stacks are left out.

        ``stacks.below("do_syscall_64")`` has the system calls at its roots' next level, whoever made them.

        Raises:
            InputError: No stack has one of them.
        """
        tree = self._tree.below(functions)
        if tree.total == 0:
            raise InputError(f"no stack has {' or '.join(functions)}", expected="a function of these stacks")
        return Stacks(tree, f"{self.title}, below {' or '.join(functions)}", self.notes)

    def picture(
        self,
        *,
        title: str | None = None,
        width: int = 960,
        min_percent: float = 0.4,
        mark: str = "",
        dark: bool = False,
        before: Stacks | None = None,
    ) -> str:
        """The flame graph as a plain SVG, for where nothing interactive is shown: a README, paper, librsvg.

        Args:
            title: The heading; the stacks' own when None.
            width: In CSS pixels.
            min_percent: Frames narrower than this share are left out, and counted in the heading.
            mark: Functions, as a glob, in a colour of their own.
            dark: For a dark page.
            before: Stacks to compare with, as :meth:`flamegraph` takes them.
        """
        checked.count("width", width)
        checked.percent("min_percent", min_percent)
        return still(
            self.folded(),
            title=title or self.title,
            unit=self.unit,
            width=width,
            min_percent=min_percent,
            mark=mark,
            dark=dark,
            before=before.folded() if before is not None else None,
        )

    def export_speedscope(self, path: str | PathLike[str]) -> Path:
        """Writes them for https://www.speedscope.app: one profile a thread's name. Raises OSError."""
        target = Path(path)
        target.write_text(utf8(self._tree.speedscope(self.title)), encoding="utf-8")
        return target

    def export_pprof(self, path: str | PathLike[str]) -> Path:
        """Writes them for ``go tool pprof`` and what else reads its gzip-compressed protobuf.

        Each stack has its thread's name as the label ``thread``: ``pprof -tagfocus=thread=fio``. Raises OSError.
        """
        target = Path(path)
        target.write_bytes(self._tree.pprof())
        return target

    def functions(self) -> Table:
        """Each function's share of the whole, recursion counted once, keyed by ``function``.

        Columns: total_percent, self_percent, total, self (in :attr:`unit`), function.
        """
        return Table(self._tree.functions(), key="function")

    def tree(self, *, min_percent: float = 0.5, max_depth: int = 200) -> str:
        """The call tree as indented text, largest first.

        Args:
            min_percent: Branches below this share of the whole are left out, and counted at the end.
            max_depth: The deepest level shown.
        """
        return self._tree.text(checked.percent("min_percent", min_percent), checked.count("max_depth", max_depth))

    def flamegraph(
        self,
        path: str | PathLike[str] | None = None,
        *,
        title: str | None = None,
        before: Stacks | None = None,
        min_percent: float = 0.05,
        inverted: bool | None = None,
    ) -> FlameGraph:
        """A flame graph: one SVG that needs nothing else.

        Args:
            path: Where to write it; None: nowhere, the result has it.
            title: The heading; the stacks' own when None.
            before: Stacks to compare with. Frames are then red where their share grew and blue where it shrank.
            min_percent: Frames narrower than this are left out, and counted in the heading.
            inverted: Roots at the top; None: only where a tall graph would otherwise hide its root below the screen.

        Returns:
            The graph: ``svg`` is its text, and a notebook shows it.
        """
        checked.percent("min_percent", min_percent)
        notes = [f"{name}: {value}" for name, value in self.notes.items()]
        notes += [f"{name} before: {value}" for name, value in before.notes.items()] if before is not None else []
        subtitle = ", ".join(notes)
        title = title or self.title
        if before is None:
            svg = self._tree.flamegraph(title=title, subtitle=subtitle, min_percent=min_percent, inverted=inverted)
        else:
            svg = self._tree.difference(
                before.native, title=title, subtitle=subtitle, min_percent=min_percent, inverted=inverted
            )
        graph = FlameGraph(
            svg,
            title=title,
            still=lambda: self.picture(title=title, min_percent=max(min_percent, _NARROWEST), before=before),
            text=lambda: f"{title}: {self.total} {self.unit}\n{self.tree(min_percent=max(min_percent, _LEAST))}",
        )
        if path is not None:
            graph.save(path)
        return graph

    def __repr__(self) -> str:
        notes = "".join(f"\n{name}: {value}" for name, value in self.notes.items())
        return f"{self.title}: {self.total} {self.unit}\n{self.tree()}{notes}"

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        return {**self.flamegraph()._repr_mimebundle_(), "text/plain": repr(self)}


class FlameGraph:
    """A finished flame graph.

    A notebook shows it alive, and keeps a still picture and a call tree for viewers that strip scripts and frames.

    Args:
        svg: The whole SVG.
        title: Its heading.
        still: Makes the still picture, an SVG; None: the SVG without its script and style sheet.
        text: Makes the call tree as text; None: only the size is told.
    """

    def __init__(
        self,
        svg: str,
        *,
        title: str = "Flame graph",
        still: Callable[[], str] | None = None,
        text: Callable[[], str] | None = None,
    ) -> None:
        self.svg = svg
        self.title = title
        self._still = still
        self._text = text

    def save(self, path: str | PathLike[str]) -> Path:
        """Writes it to a file. Raises OSError."""
        target = Path(path)
        target.write_text(utf8(self.svg), encoding="utf-8")
        return target

    @property
    def height(self) -> int:
        """In CSS pixels; the width is whatever there is."""
        return int(self.svg.split('height="', 1)[1].split('"', 1)[0])

    def picture(self) -> str:
        """The same as a plain SVG, without script and style sheet; see :meth:`Stacks.picture`."""
        if self._still is not None:
            return self._still()
        plain = re.sub(r"<(style|script)>.*?</\1>", "", self.svg, flags=re.DOTALL)
        return plain.replace('width="100%"', 'width="960"', 1)

    def __repr__(self) -> str:
        return self._text() if self._text is not None else f"<FlameGraph: {len(self.svg)} bytes of SVG>"

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        # A frame of its own: notebooks run no script of a bare SVG. It scrolls where one deep stack makes it tall, and
        # begins where the roots are.
        page = (
            '<!doctype html><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
            f"<style>body{{margin:0}}.sblk-flame{{display:block}}</style><body>{self.svg}"
        )
        if 'data-inverted=""' not in self.svg:
            page += "<script>scrollTo(0, document.documentElement.scrollHeight)</script>"
        height = min(self.height, _TALLEST)
        return bundle(
            page, self.picture(), title=f"flame graph: {self.title}", height=height, text=repr(self), scripts=True
        )


def read_folded(path: str | PathLike[str], *, unit: str = "samples") -> Stacks:
    """Reads folded stacks of any tool.

    Args:
        path: The file, a line a stack: ``outer;inner 12``, with whole numbers.
        unit: What its counts are.

    Raises:
        InputError: A line is no stack with a count; says which. Or each has two counts, as difffolded.pl prints them:
            read the two files, and draw ``after.flamegraph(before=before)``.
    """
    text = read_bytes(Path(path))
    if b";" in text and all(_TWO_COUNTS.search(line) for line in io.BytesIO(text) if line.strip()):
        raise InputError(f"two counts in each line of {fspath(path)}", expected="a stack and its count: outer;inner 12")
    return Stacks(core.read_folded(text, fspath(path), unit), Path(path).name)
