# SPDX-License-Identifier: MIT
"""The page: sections of text, tables, bars and call outlines, in one style for light, dark and paper."""

from __future__ import annotations

import base64
import html
import re
from importlib.resources import files
from typing import TYPE_CHECKING

from sampleblk_lab.analysis.outline import stylesheet
from sampleblk_lab.texts import readable, utf8

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sampleblk_lab.analysis.outline import CallOutline
    from sampleblk_lab.table import Table


# The width of most plots.
_POINTS = 7.2 * 72


def _escape(text: object) -> str:
    """As HTML, which has no NUL; nor does a name turn around what stands behind it."""
    return html.escape(readable(str(text), keep="\n\t"))


class Page:
    """A report under construction.

    Args:
        title: Its heading.
        subtitle: One line below it.
    """

    def __init__(self, title: str, subtitle: str = "") -> None:
        self._title = title
        self._subtitle = subtitle
        self._sections: list[tuple[str, str]] = []

    def _add(self, heading: str, body: str, note: str) -> None:
        said = f"<p class='note'>{_escape(note)}</p>" if note else ""
        self._sections.append((heading, said + body))

    def add_facts(self, heading: str, facts: Mapping[str, object], note: str = "") -> None:
        """Names and values."""
        rows = "".join(f"<tr><th>{_escape(name)}</th><td>{_escape(value)}</td></tr>" for name, value in facts.items())
        self._add(heading, f"<table class='facts'>{rows}</table>", note)

    def add_text(self, heading: str, text: str, note: str = "") -> None:
        """Text as a terminal shows it."""
        self._add(heading, f"<pre tabindex='0'>{_escape(text)}</pre>", note)

    def add_table(
        self,
        heading: str,
        table: Table,
        note: str = "",
        *,
        names: Mapping[str, str] | None = None,
        bar: str | None = None,
    ) -> None:
        """A table, each number aligned and grouped; `names` renames columns, `bar` draws one of them as bars too.

        The table's metadata, its loss counts, go below it.
        """
        names = names or {}
        # What a row is about comes first: a phone shows no more of the row than that at a time.
        columns = [table[name] for name in sorted(table.columns, key=lambda name: name != table.key)]
        heads = []
        for column in columns:
            unit = f" <small>{_escape(column.unit)}</small>" if column.unit else ""
            heads.append(f"<th{_side(column.type)}>{_escape(names.get(column.name, column.name))}{unit}</th>")
        most = max((float(value) for value in table[bar].values), default=0.0) if bar else 0.0
        body = []
        for number in range(len(table)):
            cells = [f"<td{_side(column.type)}>{_number(column[number])}</td>" for column in columns]
            if bar is not None:
                share = 100 * float(table[bar].values[number]) / most if most else 0.0
                drawn = f"<i style='width:{share:.1f}%'></i>" if share else ""
                cells.append(f"<td class='bar'>{drawn}</td>")
            body.append(f"<tr>{''.join(cells)}</tr>")
        tail = "<td></td>" if bar else ""
        losses = ", ".join(f"{name.replace('_', ' ')}: {value}" for name, value in table.metadata.items())
        self._add(
            heading,
            f"<div class='scroll' tabindex='0'><table><thead><tr>{''.join(heads)}{tail}</tr></thead>"
            f"<tbody>{''.join(body)}</tbody></table></div><p class='small'>{_escape(losses)}</p>",
            note,
        )

    def add_outline(self, heading: str, outline: CallOutline, note: str = "") -> None:
        """A call outline, foldable."""
        self._add(heading, f"<div class='scroll calls' tabindex='0'>{outline.html()}</div>", note)

    def add_picture(self, heading: str, light: str, dark: str, note: str = "") -> None:
        """A plot as two SVG documents, of which the reader's theme shows one; paper gets the light one."""
        parts = []
        # A plot of many columns is scrolled sideways rather than made so small that nobody can read it.
        found = re.search(r'<svg[^>]* width="([0-9.]+)pt"', light)
        wide = float(found[1]) / _POINTS if found else 1.0
        style = f" style='min-width:{36 * wide:.0f}rem;max-width:{54 * wide:.0f}rem'" if wide > 1 else ""
        for svg, theme in ((light, "light"), (dark, "dark")):
            data = base64.b64encode(utf8(svg).encode()).decode()
            parts.append(
                f"<img class='plot {theme}' alt='{_escape(heading)}'{style} src='data:image/svg+xml;base64,{data}'>"
            )
        self._add(heading, f"<div class='scroll' tabindex='0'>{''.join(parts)}</div>", note)

    def add_files(self, heading: str, paths: Sequence[tuple[str, str]], note: str = "") -> None:
        """Files beside the page, each with what it is for."""
        items = "".join(f"<li><code>{_escape(path)}</code> {_escape(what)}</li>" for path, what in paths)
        self._add(heading, f"<ul>{items}</ul>", note)

    def html(self) -> str:
        """The whole page, in which the bytes of a path that are not UTF-8 are escapes."""
        style = files("sampleblk_lab.report").joinpath("page.css").read_text() + stylesheet()
        links = "".join(f"<a href='#s{i}'>{_escape(heading)}</a>" for i, (heading, _) in enumerate(self._sections))
        body = "".join(
            f"<section id='s{i}'><h2>{_escape(heading)}</h2>{body}</section>"
            for i, (heading, body) in enumerate(self._sections)
        )
        return utf8(
            "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
            "<meta name='viewport' content='width=device-width, initial-scale=1'>"
            f"<title>{_escape(self._title)}</title><style>{style}</style></head><body>"
            f"<header><h1>{_escape(self._title)}</h1><p>{_escape(self._subtitle)}</p><nav>{links}</nav></header>"
            f"<main>{body}</main></body></html>\n"
        )


def _side(kind: str) -> str:
    return "" if kind == "string" else " class='n'"


def _number(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return decimal(value)
    return _escape(value)


def decimal(value: float) -> str:
    """Three digits; more where these would make 1 or 100 of what is near: no change, or all."""
    if abs(value) >= 999.5:
        return f"{value:,.0f}"
    text = f"{value:.3g}"
    digits = 4
    while text.lstrip("-") in ("1", "100") and abs(value) not in (1, 100) and digits <= 9:
        text, digits = f"{value:.{digits}g}", digits + 1
    return text
