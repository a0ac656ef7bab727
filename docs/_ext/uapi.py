# SPDX-License-Identifier: MIT
"""``{uapi}``: the structures and ioctls of linux/sampleblk.h as pages of the reference, from the header itself."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.parsers.rst import Directive

HEADER = Path(__file__).resolve().parents[2] / "module/include/uapi/linux/sampleblk.h"

_STRUCT = re.compile(r"((?:/\*(?:(?!\*/).)*\*/\s*)?)struct (\w+) \{\n(.*?)\n\};", re.DOTALL)
_FIELD = re.compile(r"^\t([\w ]+?) (\w+)((?:\[[^\]]*\])*);(?:\s*/\*\s*(.*?)\s*\*/)?$")
_IOCTL = re.compile(r"^#define (SAMPLEBLK_IOC_\w+) _IO(W|R|WR)?\(\w+, (0x[0-9a-f]+)(?:, struct (\w+))?\)", re.MULTILINE)


@dataclass
class Struct:
    """A structure of the header.

    Attributes:
        name: Without ``struct``.
        text: The comment before it.
        fields: Type, name and comment of each.
    """

    name: str
    text: str
    fields: list[tuple[str, str, str]] = field(default_factory=list)


def _plain(comment: str) -> str:
    lines = [
        line.strip().removeprefix("/*").removesuffix("*/").strip().removeprefix("*") for line in comment.splitlines()
    ]
    return " ".join(" ".join(lines).split())


def structs(header: str) -> list[Struct]:
    """The structures, in their order.

    Raises:
        ValueError: A line of one is neither a field nor a comment.
    """
    found = []
    for comment, name, body in _STRUCT.findall(header):
        made = Struct(name, _plain(comment))
        # A comment of several lines belongs to the field after it.
        pending = ""
        for whole in re.sub(r"/\*.*?\*/", lambda m: " ".join(m.group().split()), body, flags=re.DOTALL).splitlines():
            line = whole.rstrip()
            if match := _FIELD.match(line):
                kind, field_name, array, said = match.groups()
                made.fields.append((kind, field_name + array, said or pending))
                pending = ""
            elif line.strip().startswith("/*"):
                pending = _plain(line.strip())
            elif line.strip():
                raise ValueError(f"{HEADER.name}: struct {name}: cannot read {line!r}")
        found.append(made)
    return found


def ioctls(header: str) -> list[tuple[str, str, str, str]]:
    """Name, direction, number and structure of each ioctl."""
    return [(name, kind or "-", number, struct) for name, kind, number, struct in _IOCTL.findall(header)]


def _table(heads: list[str], rows: list[list[str]], literal: set[int]) -> nodes.table:
    table, group = nodes.table(), nodes.tgroup(cols=len(heads))
    table += group
    for _ in heads:
        group += nodes.colspec(colwidth=1)
    for kind, lines in ((nodes.thead, [heads]), (nodes.tbody, rows)):
        part = kind()
        for cells in lines:
            row = nodes.row()
            for number, cell in enumerate(cells):
                text = nodes.literal(cell, cell) if kind is nodes.tbody and number in literal else nodes.Text(cell)
                row += nodes.entry("", nodes.paragraph("", "", text))
            part += row
        group += part
    return table


class Uapi(Directive):
    """The directive."""

    def run(self) -> list[Any]:
        header = HEADER.read_text()
        self.state.document.settings.env.note_dependency(str(HEADER))
        named = {struct for *_, struct in ioctls(header)}
        found: list[Any] = [
            _table(["ioctl", "direction", "number", "structure"], [list(row) for row in ioctls(header)], {0, 2, 3})
        ]
        for made in structs(header):
            section = nodes.section(ids=[made.name])
            section += nodes.title(made.name, f"struct {made.name}")
            if made.text:
                section += nodes.paragraph("", made.text)
            if made.name not in named:
                section += nodes.paragraph(
                    "", "", nodes.emphasis("", "Part of another structure, or of shared memory.")
                )
            section += _table(["type", "field", "meaning"], [list(row) for row in made.fields], {0, 1})
            found.append(section)
        return found


def setup(app: Any) -> dict[str, bool]:
    """Sphinx's entry point."""
    app.add_directive("uapi", Uapi)
    return {"parallel_read_safe": True}
