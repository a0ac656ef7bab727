# SPDX-License-Identifier: MIT
"""Tables and histograms that are printed for people, as tables."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from sampleblk_lab.bpftrace.script import unit_of
from sampleblk_lab.errors import InputError
from sampleblk_lab.table import Table

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

#: A whole number, as its own text.
WHOLE = re.compile(r"-?(?:0|[1-9][0-9]*)")
# Other blanks than these are a name's own.
_WORD = re.compile(r"[^ \t]+")
_DECIMAL = re.compile(r"-?[0-9]+(?:\.[0-9]+)?")
_HEAD = re.compile(r"[A-Z][A-Z0-9_%/]*(\([a-zA-Z%]+\))?")
# As bcc's tools have them: R_Kb, %RND, TOTAL_usecs.
_LOOSE_HEAD = re.compile(r"[A-Z%][A-Z0-9_%/]*(_?[KMG]b|_[unm]secs)?(\([a-zA-Z%]+\))?")
# Beside those that names end in.
_UNITS = {"nsec": "ns", "Kbytes": "KiB"}
_LARGEST = 2**63 - 1


def lines_of(text: str) -> list[str]:
    """Its lines. Unlike those of str.splitlines() they end nowhere else: a task's name may have any character."""
    return [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")] if text else []


def numbers(cells: list[str]) -> list[Any]:
    """The numbers where all cells are whole ones, else the cells."""
    if all(WHOLE.fullmatch(cell) and len(cell) < 40 for cell in cells):
        return [int(cell) for cell in cells]
    return cells


def fit(cells: Sequence[int]) -> bool:
    """Whether a column of a table holds these."""
    low, high = min(cells, default=0), max(cells, default=0)
    return (low >= -(2**63) and high < 2**63) or (low >= 0 and high < 2**64)


def printed_table(
    lines: Sequence[str], header: str | None, metadata: Mapping[str, str], *, loose: bool = False
) -> Table:
    """The lines below a header, by its words.

    Args:
        lines: What was printed.
        header: The line that has the columns' names; None: the first line that is all capitals.
        metadata: The table's; how many rows could not be read is added.
        loose: As bcc's tools print: units in the columns' names are no capitals, and a word that is wider than its
            column moves the others.

    Raises:
        InputError: No line is a header.
    """
    as_head = _joined_unit if loose else str
    if header is None:
        header = next((line for line in lines if _is_header(as_head(line), _LOOSE_HEAD if loose else _HEAD)), None)
    if header is None or not header.split():
        raise InputError("no line of what was printed is a header", expected="header=, a line that names the columns")
    header = header.rstrip()
    heads = [(found.start(), found.end(), found[0]) for found in _WORD.finditer(as_head(header))]
    start = next((number + 1 for number, line in enumerate(lines) if line.rstrip() == header), 0)
    places = [(first, end) for first, end, _ in heads]
    rows = []
    unread = 0
    for line in lines[start:]:
        if not line.strip() or line.rstrip() == header:
            continue
        row = _row(line, places) if loose or line.isascii() else None
        if not line.isascii():
            cells = _row(_as_bytes(line), places)
            by_bytes = cells and [cell.encode("latin-1").decode("utf-8", "surrogatepass") for cell in cells]
            # By chance it may stand below the heads in both ways.
            row = None if row and by_bytes and row != by_bytes else row or by_bytes
        if row is None and loose and len(words := _WORD.findall(line)) == len(heads):
            row = words  # each column has one, so that is it, wherever it stands
        if row is None:
            unread += 1
        else:
            rows.append(row)
    columns: dict[str, Sequence[Any]] = {}
    units = {}
    for number, (_, _, word) in enumerate(heads):
        name, _, unit = word.partition("(")
        name = name if name and name not in columns else f"{word}_{number}" if word in columns else word
        columns[name] = _cells([row[number] for row in rows])
        if unit.endswith(")") and rows and not isinstance(columns[name][0], str):
            units[name] = unit[:-1]
    return Table.of(columns, units=units, metadata={**metadata, "unread_rows": str(unread)})


def _cells(cells: list[str]) -> list[Any]:
    found = numbers(cells)
    if found is not cells:
        return found if fit(found) else cells
    if all(_DECIMAL.fullmatch(cell) for cell in cells):
        return [float(cell) for cell in cells]
    return cells


def _joined_unit(line: str) -> str:
    """A head's unit is a word of its own in some tools: ``TIME (us)``. The place where it ends stays."""
    return re.sub(r"(?<=\s)([A-Z]+) (\([a-z]+\))(?=\s|$)", r" \1\2", line)


def _is_header(line: str, head: re.Pattern[str]) -> bool:
    words = line.split()
    return len(words) > 1 and all(head.fullmatch(word) for word in words)


def _row(line: str, heads: list[tuple[int, int]]) -> list[str] | None:
    """The cells of a line; None where it is not certain what belongs to which head."""
    cells: list[tuple[int, int] | None] = [None for _ in heads]
    column = -1
    last = len(heads) - 1
    for word in _WORD.finditer(line):
        if column == last and line[heads[last][0] :].strip() and word.start() > heads[last][0]:
            cells[last] = _with(cells[last], word)  # the last column goes to the line's end
            continue
        meant = [n for n, (start, end) in enumerate(heads) if word.start() == start or word.end() == end]
        if len(meant) > 1 or (meant and (meant[0] <= column or cells[meant[0]])):
            return None
        if meant:
            column = meant[0]
        elif column < 0:
            return None
        if column < last and word.end() >= heads[column + 1][0]:
            return None  # too wide: what follows has moved, and stands below a head by chance
        cells[column] = _with(cells[column], word)
    # With the blanks within them, which a file's name may have several of.
    found = [line[cell[0] : cell[1]] for cell in cells if cell is not None]
    return found if len(found) == len(cells) else None


def _with(cell: tuple[int, int] | None, word: re.Match[str]) -> tuple[int, int]:
    return (word.start() if cell is None else cell[0], word.end())


def _as_bytes(line: str) -> str:
    """The line with a letter for each byte: what is printed in C is padded by bytes."""
    return line.encode("utf-8", "surrogatepass").decode("latin-1")


# --- histograms

_HISTOGRAM = re.compile(r"\s*(?P<unit>\S.*?)\s*: count\s+distribution\s*")
_BUCKET = re.compile(r"\s*(?P<low>\d{1,20})(?: -> (?P<high>\d{1,20}))?\s*: (?P<count>\d{1,20})\s*\|[* +]*\|\s*")
# Also one that is cut, or has a count of more than 31 bits, which C prints as a negative one.
_LIKE_BUCKET = re.compile(r"\s*-?\d+(?:\s*$| -> | +: )")
# "12:34:56", "[12:34:56]", and "12:34:56:" of ext4dist and its like.
_CLOCK = re.compile(r"\s*\[?\d\d:\d\d:\d\d[:\]]?\s*")
_KEY = re.compile(r"\s*(?P<name>[A-Za-z][\w ]*?) = (?P<value>.*?)\s*")


def histograms(lines: Iterable[str], metadata: Mapping[str, str]) -> Table | None:
    """The histograms that bcc's tools print, all of them in one table; None where there is none.

    Returns:
        A column for each name above a histogram (``operation = 'read'``), ``low`` and ``high``, both included, and
        ``count``. Where one is printed several times ``snapshot`` counts from 0, for all of them together: it goes on
        where one is printed again, or a time is. What no int64 holds is counted in the metadata as ``unread_rows``.

    Raises:
        InputError: They are of different things.
    """
    rows: list[tuple[tuple[tuple[str, str], ...], int, int, int, int]] = []
    seen: set[tuple[tuple[str, str], ...]] = set()  # in this snapshot
    measured: set[str] = set()
    unread = 0
    keys: tuple[tuple[str, str], ...] = ()
    snapshot = 0
    inside = False
    for line in lines:
        if head := _HISTOGRAM.fullmatch(line):
            measured.add(head["unit"])
            if keys in seen:
                snapshot, seen = snapshot + 1, set()
            seen.add(keys)
            inside = True
        elif inside and (found := _BUCKET.fullmatch(line)):
            low, count = int(found["low"]), int(found["count"])
            high = int(found["high"] or low)
            if max(low, high, count) <= _LARGEST:
                rows.append((keys, snapshot, low, high, count))
            else:
                unread += 1
        else:
            # What is cut, or stands behind another's line, belongs to a histogram.
            unread += bool(_LIKE_BUCKET.match(line) if inside else _BUCKET.fullmatch(line))
            inside = False
            keys = _keys_of(line)  # right above, or none: what follows a histogram may look alike
            if seen and _CLOCK.fullmatch(line):
                snapshot, seen = snapshot + 1, set()
    if not measured:
        return None
    if len(measured) > 1:
        raise InputError(f"histograms of {' and of '.join(sorted(measured))}", expected="those of one thing")
    columns: dict[str, Sequence[Any]] = {}
    for name in dict.fromkeys(name for keys, *_ in rows for name, _ in keys):
        columns[name] = numbers([dict(row[0]).get(name, "") for row in rows])
    if len({row[1] for row in rows}) > 1:
        columns["snapshot"] = [row[1] for row in rows]
    columns |= {"low": [row[2] for row in rows], "high": [row[3] for row in rows], "count": [row[4] for row in rows]}
    name = measured.pop()
    unit = _UNITS.get(name) or unit_of(name)
    units = {"low": unit, "high": unit} if unit else {}
    return Table.of(columns, units=units, metadata={"measured": name, **metadata, "unread_rows": str(unread)})


def _keys_of(line: str) -> tuple[tuple[str, str], ...]:
    """The names and values above a histogram, ``disk = sda	flags = Read``; none where that is something else."""
    found = [_KEY.fullmatch(part) for part in line.split("\t")]
    return tuple((each["name"].strip().replace(" ", "_").lower(), _unquoted(each["value"])) for each in found if each)


def _unquoted(text: str) -> str:
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] == "'" else text
