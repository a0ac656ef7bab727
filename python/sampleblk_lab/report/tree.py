# SPDX-License-Identifier: MIT
"""Call trees as nested ``<details>``: they fold without scripts, so they survive nbconvert and GitHub."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from sampleblk_lab._native import core

if TYPE_CHECKING:
    from sampleblk_lab.table import Table

# Calls that one cell shows; a write-back makes tens of thousands.
_CALLS = 400

_STYLE = (
    "<style>.sblk-tree{font:13px/1.4 ui-monospace,monospace}.sblk-tree details,.sblk-tree div.c{margin-left:1.1em}"
    ".sblk-tree summary{cursor:pointer}.sblk-tree i{display:inline-block;min-width:5.5em;text-align:right;"
    "margin-right:.8em;font-style:normal;opacity:.75}</style>"
)


def rows_html(rows: list[tuple[int, int, str]], cut: int = 0) -> str:
    """Calls as nested ``<details>``, which fold without scripts.

    Args:
        rows: Depth, duration in ns and function of each call, depth first.
        cut: Calls that are not among them.
    """
    parts = [_STYLE, "<div class='sblk-tree'>"]
    open_at: list[int] = []
    for number, (depth, duration, function) in enumerate(rows):
        while open_at and open_at[-1] >= depth:
            parts.append("</details>")
            open_at.pop()
        label = f"<i>{html.escape(core.format_duration(duration))}</i>{html.escape(function)}"
        if number + 1 < len(rows) and rows[number + 1][0] > depth:
            parts.append(f"<details{' open' if depth < 4 else ''}><summary>{label}</summary>")
            open_at.append(depth)
        else:
            parts.append(f"<div class='c'>{label}</div>")
    parts.append("</details>" * len(open_at))
    if cut:
        parts.append(f"<div>… {cut:,} more calls</div>")
    return "".join([*parts, "</div>"])


def tree_html(table: Table, first: int, count: int) -> str:
    """The calls of rows `first` to ``first + count`` of a call table (``graph.table()``)."""
    shown = min(count, _CALLS)
    part = slice(first, first + shown)
    names = table["function"].categories or []
    depths = table["depth"].codes[part].tolist()
    least = min(depths, default=0)
    durations, codes = table["duration"].codes[part].tolist(), table["function"].codes[part].tolist()
    rows = [(depth - least, time, names[code]) for depth, time, code in zip(depths, durations, codes, strict=True)]
    return rows_html(rows, count - shown)
