# SPDX-License-Identifier: MIT
"""How views look in a notebook: text as it is, and below it what it lost."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from sampleblk_lab import texts
from sampleblk_lab._native import core

if TYPE_CHECKING:
    from collections.abc import Mapping

# Where a viewer strips it, as GitHub does, lists are still nested and a space parts a time from its function.
_STYLE = (
    "<style>.sblk-tree{font:13px/1.4 ui-monospace,monospace}.sblk-tree ul{list-style:none;margin:0 0 0 1.1em;padding:0}"
    ".sblk-tree>ul{margin:0}.sblk-tree summary{cursor:pointer}.sblk-tree i{display:inline-block;min-width:5.5em;"
    "text-align:right;margin-right:.3em;font-style:normal;opacity:.75}</style>"
)


def notes(metadata: Mapping[str, str]) -> str:
    """What travels with a view, such as its loss counts, as a line of small print each."""
    return "".join(f"<br><small>{html.escape(f'{name}: {value}')}</small>" for name, value in metadata.items())


def text_lines(metadata: Mapping[str, str]) -> str:
    """The same as text, each line with its end."""
    return "".join(f"{line}\n" for line in texts.notes(metadata))


def preformatted(text: str) -> str:
    """Text whose columns must stay aligned."""
    return f'<pre class="sblk-text" style="font-family:monospace;line-height:1.2">{html.escape(text)}</pre>'


def rows_html(rows: list[tuple[int, int, str]], cut: int = 0) -> str:
    """Calls as nested lists of ``<details>``, which fold without scripts and are indented without styles.

    Args:
        rows: Depth, duration in ns and function of each call, depth first.
        cut: Calls that are not among them.
    """
    parts = [_STYLE, "<div class='sblk-tree'><ul>"]
    open_at: list[int] = []
    for number, (depth, duration, function) in enumerate(rows):
        while open_at and open_at[-1] >= depth:
            parts.append("</ul></details></li>")
            open_at.pop()
        label = f"<i>{html.escape(core.format_duration(duration))}</i> {html.escape(function)}"
        if number + 1 < len(rows) and rows[number + 1][0] > depth:
            parts.append(f"<li><details{' open' if depth < 4 else ''}><summary>{label}</summary><ul>")
            open_at.append(depth)
        else:
            parts.append(f"<li>{label}</li>")
    parts.append("</ul></details></li>" * len(open_at))
    if cut:
        parts.append(f"<li>… {cut:,} more calls</li>")
    return "".join([*parts, "</ul></div>"])
