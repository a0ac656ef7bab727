# SPDX-License-Identifier: MIT
"""A flame graph as a plain picture: no script, no style sheet, every colour an attribute.

The interactive one (:meth:`Stacks.flamegraph`) needs a browser. This is for what draws SVG without one, or strips
scripts and styles: READMEs on a forge, stored notebooks, librsvg, paper.
"""

from __future__ import annotations

import fnmatch
import html
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sampleblk_lab.texts import readable

if TYPE_CHECKING:
    from collections.abc import Iterator

# In CSS pixels.
_ROW = 18
_HEAD = 46
_MARGIN = 6
_FONT = 11
# Of the monospaced fonts that are asked for, the widest's advance.
_LETTER = 6.7


@dataclass(frozen=True)
class Theme:
    """Colours: ``frames`` are chosen by a function's name."""

    background: str
    text: str
    dim: str
    frames: tuple[str, ...]
    roots: str
    marked: str
    same: str
    grown: tuple[str, ...]
    shrunk: tuple[str, ...]


LIGHT = Theme(
    "#ffffff",
    "#1c1c1c",
    "#5b5b5b",
    ("#f5a15a", "#f3b072", "#f7ba83", "#efa667"),
    "#d8d5ee",
    "#6cc7a1",
    "#e2e2e2",
    ("#fbd5d6", "#f5aeb0", "#ef8f93", "#e9757a"),
    ("#d3e1f8", "#b0c9f1", "#8fb1ea", "#77a1e6"),
)
DARK = Theme(
    "#0d1117",
    "#f0f0f0",
    "#a9adb5",
    ("#a85a1c", "#9a5520", "#8d4f1f", "#b06426"),
    "#57529a",
    "#1f7a55",
    "#3a3f47",
    ("#4b2a2e", "#6e2f34", "#8f3338", "#ab363b"),
    ("#22334f", "#284573", "#2d5596", "#3264b4"),
)
# In points of the whole: from how large a change on a frame has which of the colours.
_CHANGES = (0.1, 1.0, 3.0, 10.0)


@dataclass
class _Frame:
    weight: int = 0
    below: dict[str, _Frame] = field(default_factory=dict)


def unfolded(folded: str) -> Iterator[tuple[list[str], int]]:
    """The frames of each stack of :meth:`Stacks.folded`, outermost first, and its weight."""
    # Only "\n" ends a line: a thread's name may have all else.
    for line in folded.split("\n")[:-1]:
        stack, _, weight = line.rpartition(" ")
        yield stack.split(";"), int(weight)


def _tree(folded: str) -> _Frame:
    root = _Frame()
    for names, weight in unfolded(folded):
        root.weight += weight
        frame = root
        for name in names:
            frame = frame.below.setdefault(name, _Frame())
            frame.weight += weight
    return root


def _change_colour(theme: Theme, points: float) -> str:
    step = sum(abs(points) >= least for least in _CHANGES)
    return theme.same if step == 0 else (theme.grown if points > 0 else theme.shrunk)[step - 1]


def _fitted(name: str, width: float) -> str:
    room = int((width - 6) / _LETTER)
    return name if len(name) <= room else f"{name[: room - 1]}…" if room >= 3 else ""


def still(
    folded: str,
    *,
    title: str,
    unit: str,
    width: int = 960,
    min_percent: float = 0.4,
    mark: str = "",
    dark: bool = False,
    before: str | None = None,
) -> str:
    """Draws folded stacks, roots at the bottom.

    Args:
        folded: A line a stack, ``outer;inner 12``.
        title: The heading.
        unit: Of the weights.
        width: In CSS pixels; the picture scales.
        min_percent: Frames narrower than this are left out.
        mark: Functions, as a glob, in a colour of their own.
        dark: For a dark page.
        before: Folded stacks to compare with: frames are red where their share grew, and blue where it shrank.

    Returns:
        The SVG's text.
    """
    theme = DARK if dark else LIGHT
    root = _tree(folded)
    earlier = _tree(before) if before is not None else None
    rows: list[list[tuple[str, float, float, int, float]]] = []
    left_out = 0
    span = width - 2 * _MARGIN
    stack = [(root, earlier, 0, float(_MARGIN))]
    while stack:
        frame, then, depth, x = stack.pop()
        for name in sorted(frame.below):
            child = frame.below[name]
            wide = span * child.weight / root.weight
            was = then.below.get(name) if then is not None else None
            share_before = 100 * was.weight / max(earlier.weight, 1) if was is not None and earlier is not None else 0.0
            if 100 * child.weight < min_percent * root.weight:
                left_out += 1
            else:
                if len(rows) == depth:
                    rows.append([])
                rows[depth].append((name, x, wide, child.weight, share_before))
                stack.append((child, was, depth + 1, x))
            x += wide
    height = _HEAD + _ROW * len(rows) + _MARGIN
    said = f"{root.weight:,} {unit}" + (f"; {left_out} narrower than {min_percent:g} % left out" if left_out else "")
    heading = html.escape(readable(title))
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, DejaVu Sans Mono, monospace" '
        f'font-size="{_FONT}" role="img" aria-label="{heading}">',
        f'<rect width="{width}" height="{height}" fill="{theme.background}"/>',
        f'<text x="{_MARGIN}" y="18" fill="{theme.text}" font-size="13" font-weight="600">{heading}</text>',
        f'<text x="{_MARGIN}" y="35" fill="{theme.dim}">{html.escape(said)}</text>',
    ]
    for depth, row in enumerate(rows):
        y = height - _MARGIN - _ROW * (depth + 1)
        for name, x, wide, weight, share_before in row:
            share = 100 * weight / root.weight
            change = ""
            fill = theme.roots if depth == 0 else theme.frames[zlib.crc32(name.encode()) % len(theme.frames)]
            if mark and fnmatch.fnmatchcase(name, mark):
                fill = theme.marked
            if earlier is not None:
                fill = _change_colour(theme, share - share_before)
                change = f"\n{share - share_before:+.2f} points ({share_before:.2f} % before)"
            out.append(
                f"<g><title>{html.escape(name)}\n{weight:,} {html.escape(unit)}, {share:.2f} %{change}</title>"
                f'<rect x="{x:.2f}" y="{y}" width="{max(wide - 0.6, 0.3):.2f}" height="{_ROW - 1}" rx="2" '
                f'fill="{fill}"/>'
            )
            if label := _fitted(name, wide):
                out.append(f'<text x="{x + 3:.2f}" y="{y + 12}" fill="{theme.text}">{html.escape(label)}</text>')
            out.append("</g>")
    return "\n".join(out) + "\n</svg>\n"
