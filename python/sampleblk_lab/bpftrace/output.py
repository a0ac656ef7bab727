# SPDX-License-Identifier: MIT
"""What bpftrace printed, by ``-f json``: maps, histograms and statistics as tables, and what was lost on the way.

bpftrace prints one JSON object per line. It may have been killed in the middle, other programs may have printed
between, and each release has kinds of its own: what cannot be read is counted, and the rest is still read.
"""

from __future__ import annotations

import functools
import itertools
import json
import math
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sampleblk_lab import run_files
from sampleblk_lab._native import core
from sampleblk_lab.bpftrace.printed import WHOLE, fit, lines_of, numbers, printed_table
from sampleblk_lab.bpftrace.script import Key, Script, unit_of
from sampleblk_lab.errors import FormatError, InputError
from sampleblk_lab.table import Table
from sampleblk_lab.texts import read_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from sampleblk_lab.profiling import Stacks

# What a saved output consists of.
OUTPUT, ERRORS, SCRIPT, INCOMPLETE = "bpftrace.json", "bpftrace.err", "script.bt", "incomplete"

_INT64 = (-(2**63), 2**63 - 1)
# The last bucket of hist() before bpftrace 0.20, which has all from 2**31 on: its ends are computed in 32 bits.
_WRAPPED = (-(2**31), 0)
# bpftrace (all releases to 0.25) takes bytes from 0x80 on for control characters and prints them as \uffffffc3. It
# escapes backslashes, so an odd one before it is not the script's.
_BROKEN_BYTE = re.compile(rb"(?<!\\)((?:\\\\)*)\\uffffff([89a-f][0-9a-f])")
_NO_UTF8 = re.compile("[\udc80-\udcff]")
_PERF_FRAME = re.compile(r"^\t[0-9a-f]+ (\S.*?)(?: \([^()]*\))?$")
_OFFSET = re.compile(r"\+(?:0x)?[0-9a-f]+$")
_MAPS = ("map", "hist", "lhist", "stats", "tseries")
# What a script prints, in its order.
_TEXTS = ("printf", "value", "time", "join", "strftime", "cat", "syscall")
_STATS = ["count", "average", "total"]
# Of cutting a key's text at its commas; with more of them, none is taken.
_MOST_WAYS = 2000
# A key that bpftrace 0.22 and 0.23 have escaped twice, as they do with what is text in keys but not in values.
_TWICE = re.compile(r'(?:[ !#-\[\]-\x7f]|\\(?:["\\nrt]|u00[01][0-9a-f]|uffffff[89a-f][0-9a-f]))*')
_ESCAPE = re.compile(r'\\(?:(["\\nrt])|u(?:ffffff|00)([0-9a-f]{2}))')
_LETTERS = {"n": "\n", "r": "\r", "t": "\t"}
# From 0.24 on, where this is said, all counts of histograms are in hex behind a character that was printed as \\u….
_COUNTED = b'"type": "attached_probes", "count": '
_IN_HEX = re.compile(rb"(?<!\\)(?:\\\\)*\\u[0-9a-f]{4}")
_HEX_COUNTS = re.compile(rb'(?<=[{ ]"count": )[0-9a-f]+(?=\})|(?<=\{"type": "lost_events", "count": )[0-9a-f]+(?=,)')
_HEX_EVENTS = re.compile(rb'(?<="data": \{"events": )[0-9a-f]+(?=\})')
_HEX_VALUES = re.compile(rb'(?<=","value":)[0-9a-f]+(?=\})')
# The end of a line, escaped, and the indentation of a frame.
_ESCAPED_FRAME = "\\n        "
# Columns that a key may not be called.
_TAKEN = frozenset({"snapshot", "value", "low", "high", "interval_start", *_STATS})


class _Pairs(list[tuple[str, Any]]):
    """A JSON object: its names may repeat, as two stacks that are printed alike do."""


class _MalformedError(Exception):
    """A record of a known kind that is not as that kind is."""


_decoder = json.JSONDecoder(object_pairs_hook=_Pairs)


@dataclass
class _Printed:
    """A map, each time that it was printed."""

    kind: str
    keyed: bool
    snapshots: list[list[tuple[str, dict[str, Any]]]] = field(default_factory=list)


@dataclass
class _Records:
    probes: int | None = None
    maps: dict[str, _Printed] = field(default_factory=dict)
    texts: list[tuple[str, str]] = field(default_factory=list)
    lost: int = 0
    errors: dict[tuple[str, int, int, int], int] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)
    unread: int = 0
    unknown: dict[str, int] = field(default_factory=dict)
    cut: bool = False


class BpfOutput:
    """What a bpftrace script found: a table for each map (``found["@bytes"]``), and what it printed.

    Args:
        output: bpftrace's standard output.
        messages: Its standard error.
        script: What ran, which tells the maps' keys and units; None: unknown, so that keys stay whole.
        incomplete: Why the output does not go to the script's end; empty: it does, as far as anybody knows.
    """

    def __init__(
        self, output: bytes, messages: bytes = b"", *, script: Script | None = None, incomplete: str = ""
    ) -> None:
        self._output = output
        self._messages = messages
        self._script = script
        self._incomplete = incomplete

    def __reduce__(self) -> Any:
        return functools.partial(BpfOutput, script=self._script, incomplete=self._incomplete), (
            self._output,
            self._messages,
        )

    @functools.cached_property
    def _records(self) -> _Records:
        return _read(self._output)

    # -- what was found

    @property
    def maps(self) -> list[str]:
        """The names of the maps that were printed. bpftrace does not print a map without an entry."""
        return list(self._records.maps)

    def __contains__(self, name: object) -> bool:
        return name in self._records.maps

    def __getitem__(self, name: str) -> Table:
        """The table of a map; see :meth:`table`."""
        return self.table(name)

    def table(self, name: str) -> Table:
        """A map as a table.

        Returns:
            A column for each key, named as in the script, then ``value``; of ``hist()`` and ``lhist()`` ``low`` and
            ``high`` (both included) and ``count``; of ``stats()`` ``count``, ``average`` and ``total``. Keys that
            cannot be told apart for certain are one column ``key``. Stacks are ``"outer;inner"``. Units are those that
            the name ends in: ``@latency_ns``. A map that was printed several times has all of it, with a column
            ``snapshot`` that counts from 0; when it was empty it was not printed, and that is no snapshot. The metadata
            has the events that were lost, the errors of helpers (a full map drops what does not fit, for one), and
            what could not be read.

        Raises:
            KeyError: No such map was printed.
        """
        if name not in self._records.maps:
            why = f"; {self.incomplete}" if self.incomplete else ""
            raise KeyError(f"no map {name!r} was printed; there are {', '.join(map(repr, self.maps)) or 'none'}{why}")
        return _table(self._records.maps[name], name, self._script, self._losses())

    def stacks(self, name: str) -> Stacks:
        """A map of counts whose key has a stack, as stacks: for flame graphs and call trees. Other keys are roots.

        Raises:
            InputError: None of its keys is a stack, or its values are not counts.
        """
        from sampleblk_lab.profiling import Stacks

        table = self.table(name)
        known = self._keys_of(name)
        columns = [key for key in table.columns if key in {one.name for one in known if one.kind == "stack"}]
        if len(columns) != 1 or "value" not in table or "int" not in table["value"].type or "snapshot" in table:
            raise InputError(f"{name} is not a map of counts by one stack", expected="such as @[kstack] = count()")
        others = [key for key in table.columns if key not in (*columns, "value")]
        lines = []
        for row in table:
            # What ends a frame, or a line, would make two of it.
            roots = [str(row[key]).replace(";", ":").replace("\n", " ") for key in others]
            lines.append(f"{';'.join([*roots, str(row[columns[0]] or '[unknown]')])} {row['value']}\n")
        return Stacks(core.read_folded("".join(lines).encode(), name, table["value"].unit or "count"), name)

    def _keys_of(self, name: str) -> Sequence[Key]:
        known = self._script.maps.get(name) if self._script else None
        return (known.keys if known else None) or ()

    @property
    def printed(self) -> str:
        """What ``printf()`` printed, all in one."""
        return "".join(text for kind, text in self._records.texts if kind == "printf")

    @property
    def _shown(self) -> str:
        """What the script printed but maps, as bpftrace shows it: a line may begin by time() or end by join()."""
        return "".join(text + "\n" * (kind in ("join", "value")) for kind, text in self._records.texts)

    def texts(self) -> Table:
        """All that the script printed but maps, in its order: columns kind (``printf``, ``time``, …) and text."""
        texts = self._records.texts
        return Table.of(
            {"kind": [kind for kind, _ in texts], "text": [text for _, text in texts]}, metadata=self._losses()
        )

    def printed_table(self, header: str | None = None) -> Table:
        """The lines of a tool that prints a table, such as ``biosnoop.bt``, by the words of its header.

        Each word of a line belongs to the column whose head begins or ends where it does. A line in which a column has
        none, or two could be meant, is not guessed at: it is counted in the metadata as ``unread_rows``.

        Args:
            header: The line that has the columns' names; None: the first line that is all capitals.

        Raises:
            InputError: No line is a header.
        """
        return printed_table(lines_of(self._shown), header, self._losses())

    # -- what was lost

    @property
    def probes(self) -> int | None:
        """How many probes bpftrace said that it attaches; None: it did not get so far."""
        return self._records.probes

    @property
    def lost_events(self) -> int:
        """How much of what the script printed was lost, because bpftrace did not keep up. Maps lose nothing by that."""
        return self._records.lost

    @property
    def unread_lines(self) -> int:
        """Lines, or parts of them, that are not bpftrace's JSON, or are cut."""
        return self._records.unread

    @property
    def unknown_kinds(self) -> dict[str, int]:
        """Kinds of records that are not known here, with how many there were of each."""
        return dict(self._records.unknown)

    @property
    def warnings(self) -> list[str]:
        """What bpftrace warned of, such as a probe that this kernel lacks and that it went on without."""
        said = [line for line in self._messages.decode(errors="backslashreplace").splitlines() if "WARNING: " in line]
        return [*said, *self._records.said]

    def helper_errors(self) -> Table:
        """Calls of the kernel's helpers that failed, by the script's line: what they were to do has not been done."""
        found = self._records.errors
        return Table.of(
            {
                "helper": [key[0] for key in found],
                "error": [os.strerror(-key[1]) if key[1] < 0 else str(key[1]) for key in found],
                "line": [key[2] for key in found],
                "column": [key[3] for key in found],
                "count": list(found.values()),
            }
        )

    @property
    def incomplete(self) -> str:
        """Why it does not go to the end of the script, or of the block; empty where it does."""
        return self._incomplete or ("its last line is cut" if self._records.cut else "")

    def _losses(self) -> dict[str, str]:
        records = self._records
        said = {"lost_events": str(records.lost), "helper_errors": str(sum(records.errors.values()))}
        if records.unread:
            said["unread_lines"] = str(records.unread)
        if records.unknown:
            said["unknown_kinds"] = ", ".join(f"{kind} ({count})" for kind, count in records.unknown.items())
        if warnings := self.warnings:
            said["warnings"] = "; ".join(warnings)
        if self.incomplete:
            said["incomplete"] = self.incomplete
        return said

    # -- keeping and showing

    def save(self, directory: str | os.PathLike[str]) -> Path:
        """Keeps bpftrace's own output and the script; :func:`read_bpftrace` opens it again."""
        path = Path(directory)
        path.mkdir(parents=True, exist_ok=True)
        run_files.remove(path, OUTPUT, ERRORS, SCRIPT, INCOMPLETE)  # of another run
        (path / OUTPUT).write_bytes(self._output)
        (path / ERRORS).write_bytes(self._messages)
        if self._script is not None:
            (path / SCRIPT).write_text(self._script.text, errors="surrogateescape")
        if self._incomplete:
            (path / INCOMPLETE).write_text(self._incomplete)
        return path

    def __repr__(self) -> str:
        return self._said(repr)

    def text(self) -> str:
        """All of it; the repr cuts the middle out of a long map."""
        return self._said(Table.text)

    def _said(self, shown: Callable[[Table], str]) -> str:
        parts = [self._shown.rstrip("\n")] if self._shown else []
        for name in self.maps:
            table = self.table(name)
            parts.append(f"{name}\n{_without_notes(table, shown(table))}")
        if len(errors := self.helper_errors()):
            parts.append(f"helpers that failed\n{shown(errors)}")
        parts.append("\n".join(f"{name}: {value}" for name, value in self._losses().items()))
        return "\n\n".join(parts)

    def _repr_html_(self) -> str:
        import html

        parts = [f"<pre>{html.escape(self._shown)}</pre>"] if self._shown else []
        parts += [f"<b>{html.escape(name)}</b>{self.table(name)._repr_html_()}" for name in self.maps]
        if len(errors := self.helper_errors()):
            parts.append(f"<b>helpers that failed</b>{errors._repr_html_()}")
        notes = (html.escape(f"{name}: {value}") for name, value in self._losses().items())
        return "".join(parts) + f"<small>{'<br>'.join(notes)}</small>"


def read_bpftrace(path: str | os.PathLike[str], *, script: str | os.PathLike[str] | None = None) -> BpfOutput:
    """Reads what ``bpftrace -f json`` printed, of anybody's.

    Args:
        path: The file; or a directory of :meth:`BpfOutput.save`.
        script: The script that printed it, as :func:`bpf` takes it. Without it the keys of a map stay whole: bpftrace
            joins them by commas and does not say how many there are.

    Raises:
        FormatError: There is nothing of bpftrace's in the file.
    """
    from sampleblk_lab.bpftrace.script import find

    place = Path(path)
    messages, incomplete = b"", ""
    if place.is_dir():
        if (place / INCOMPLETE).exists():
            incomplete = (place / INCOMPLETE).read_text()
        if (place / ERRORS).exists():
            messages = read_bytes(place / ERRORS)
        if script is None and (place / SCRIPT).exists():
            script = place / SCRIPT
        place = place / OUTPUT
    output = read_bytes(place)
    found = BpfOutput(output, messages, script=None if script is None else find(script), incomplete=incomplete)
    records = found._records  # noqa: SLF001
    if output.strip() and records.probes is None and not (records.maps or records.texts or records.unknown):
        raise FormatError(str(place), 0, "a line of bpftrace -f json")
    return found


# --- reading


def _read(output: bytes) -> _Records:
    records = _Records()
    lines = output.split(b"\n")
    in_hex = None  # None: not of 0.24 or later, as far as is known
    for number, line in enumerate(lines):
        if not line.strip():
            continue
        if _COUNTED in line:
            in_hex = False
        if in_hex is not None:
            line, in_hex = _in_decimal(line, in_hex)
        text = _BROKEN_BYTE.sub(_whole_byte, line).decode(errors="surrogateescape")
        # A byte that is no UTF-8 is shown as \\xff, which JSON wants escaped.
        well = _read_line(_NO_UTF8.sub(lambda found: f"\\\\x{ord(found[0]) & 0xFF:02x}", text), records)
        if number == len(lines) - 1 and not well:
            records.cut = True
    if in_hex is None:
        _escape_once(records)
    return records


def _in_decimal(line: bytes, in_hex: bool) -> tuple[bytes, bool]:
    """The line with the numbers in decimal that bpftrace 0.24 and later has printed in hex; and whether it goes on so.

    It sets its stream to hex for the first character that is no printable ASCII, and not back.
    """
    found = _IN_HEX.search(line)
    start = 0 if in_hex else found.end() if found else len(line)
    if line.startswith(b'{"type": "hist"'):
        line = line[:start] + _HEX_COUNTS.sub(_decimal, line[start:])
    elif line.startswith(b'{"type": "lost_events"'):
        line = line[:start] + _HEX_EVENTS.sub(_decimal, _HEX_COUNTS.sub(_decimal, line[start:]))
    elif line.startswith(b'{"type": "tseries"'):
        line = line[:start] + _HEX_VALUES.sub(_decimal, line[start:])
    return line, in_hex or found is not None


def _decimal(found: re.Match[bytes]) -> bytes:
    return b"%d" % int(found[0], 16)


def _escape_once(records: _Records) -> None:
    """Undoes the second escape of keys, where all of an output have it: nothing else tells."""
    keys = [key for printed in records.maps.values() for rows in printed.snapshots for key, _ in rows]
    if not any("\\" in key for key in keys) or not all(_TWICE.fullmatch(key) for key in keys):
        return
    for printed in records.maps.values():
        printed.snapshots = [[(_unescaped(key), row) for key, row in rows] for rows in printed.snapshots]


def _unescaped(key: str) -> str:
    text = _ESCAPE.sub(lambda found: _LETTERS.get(found[1], found[1]) if found[1] else _byte(found[2]), key)
    return text.encode(errors="surrogateescape").decode(errors="backslashreplace")


def _byte(digits: str) -> str:
    value = int(digits, 16)
    return chr(value if value < 0x80 else 0xDC00 + value)


def _whole_byte(found: re.Match[bytes]) -> bytes:
    return found[1] + bytes([int(found[2], 16)])


def _read_line(line: str, records: _Records) -> bool:
    """Each object of a line: other programs' text may stand before one. Whether all of the line was read."""
    place = 0
    well = True
    while place < len(line):
        start = line.find('{"type"', place)
        if start < 0:
            start = len(line)
        if line[place:start].strip():
            records.unread += 1
            well = False
        if start == len(line):
            break
        try:
            value, place = _decoder.raw_decode(line, start)
            if "\\ud" in line[start:place].lower():
                _text(value).encode()  # half of a surrogate pair is no text
        except (ValueError, RecursionError):
            records.unread += 1
            well = False
            place = start + 1
            # What follows up to the next one was counted with it.
            following = line.find('{"type"', place)
            place = following if following >= 0 else len(line)
            continue
        try:
            _take(dict(value), records)
        except _MalformedError:
            records.unread += 1
            well = False
    return well


def _take(record: dict[str, Any], records: _Records) -> None:
    kind = record.get("type")
    data = record.get("data")
    if not isinstance(kind, str):
        raise _MalformedError
    if kind in _MAPS:
        _take_map(kind, data, records)
    elif kind in _TEXTS:
        records.texts.append((kind, data if isinstance(data, str) else _text(data)))
    elif kind == "attached_probes":
        records.probes = _whole(_member(data, "probes"))
    elif kind == "lost_events":
        records.lost += _whole(_member(data, "events"))
    elif kind == "helper_error":
        where = (_small(record.get("retcode")), _small(record.get("line", 0)), _small(record.get("col", 0)))
        key = (str(record.get("helper", "")), *where)
        # From 0.23 on it tells of each key that a map does not have, which reads as 0 and fails nothing.
        if key[:2] != ("map_lookup_elem", 0):
            records.errors[key] = records.errors.get(key, 0) + 1
    elif kind in ("runtime_error", "warnf", "errorf"):
        records.said.append(f"{kind}: {record.get('msg', '')} (line {record.get('line', '?')})")
    else:
        records.unknown[kind] = records.unknown.get(kind, 0) + 1


def _member(data: Any, name: str) -> Any:
    if not isinstance(data, _Pairs):
        raise _MalformedError
    return dict(data).get(name)


def _whole(value: Any) -> int:
    """An integer; bpftrace from 0.24 on writes those that a double does not hold as strings."""
    if isinstance(value, str) and WHOLE.fullmatch(value) and len(value) < 40:
        return int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise _MalformedError


def _small(value: Any) -> int:
    number = _whole(value)
    if abs(number) >= 2**31:
        raise _MalformedError
    return number


def _take_map(kind: str, data: Any, records: _Records) -> None:
    if not isinstance(data, _Pairs) or len(data) != 1 or not data[0][0].startswith("@"):
        raise _MalformedError
    name, content = data[0]
    kind = "hist" if kind == "lhist" else kind
    keyed = isinstance(content, _Pairs) and not (kind == "stats" and [key for key, _ in content] == _STATS)
    if isinstance(content, _Pairs) and not content:
        return  # 0.24 prints empty maps, of no kind; others do not print them
    entries = list(content) if keyed else [("", content)]
    rows = [(key, row) for key, value in entries for row in _values(kind, value)]
    printed = records.maps.setdefault(name, _Printed(kind, keyed))
    if (printed.kind, printed.keyed) != (kind, keyed):
        raise _MalformedError
    printed.snapshots.append(rows)


def _frames(text: str) -> str:
    """A text in which a stack has its lines: bpftrace 0.23 escapes the ends of those of a key twice."""
    return text.replace("\\n", "\n") if _ESCAPED_FRAME in text else text


def _values(kind: str, value: Any) -> Iterator[dict[str, Any]]:
    """The rows of one entry, without its key."""
    if kind == "hist":
        before = None
        for bucket in _objects(value):
            # What has no end goes as far as the numbers that bpftrace sorts: signed, of 64 bits.
            low, high = _whole(bucket.get("min", _INT64[0])), _whole(bucket.get("max", _INT64[1]))
            if (low, high) == _WRAPPED:
                low, high = 2**31, _INT64[1]
            # See Map.rest.
            if "max" not in bucket and before is not None:
                low = before + 1
            before = high
            if low > high:
                raise _MalformedError
            yield {"low": low, "high": high, "count": _whole(bucket.get("count"))}
    elif kind == "tseries":
        for point in _objects(value):
            yield {"interval_start": _text(point.get("interval_start")), "value": _scalar(point.get("value"))}
    elif kind == "stats" and isinstance(value, _Pairs):
        found = dict(value)
        if list(found) != _STATS:
            raise _MalformedError
        yield {name: _whole(found[name]) for name in _STATS}
    elif isinstance(value, list) and not isinstance(value, _Pairs):
        yield {f"value_{number}": _scalar(one) for number, one in enumerate(value)}
    else:
        yield {"value": _scalar(value)}


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    if not isinstance(value, list) or isinstance(value, _Pairs):
        raise _MalformedError
    for one in value:
        if not isinstance(one, _Pairs):
            raise _MalformedError
        yield dict(one)


def _scalar(value: Any) -> Any:
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, str) and WHOLE.fullmatch(value) and len(value) < 40:
        number = int(value)
        # The string of a number that a double does not hold; any other is a string of the script's.
        return number if float(number) != number or int(float(number)) != number else value
    return value if isinstance(value, (int, float, str)) or value is None else _text(value)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(_plain(value), ensure_ascii=False)


def _plain(value: Any) -> Any:
    if isinstance(value, _Pairs):
        return {key: _plain(one) for key, one in value}
    return [_plain(one) for one in value] if isinstance(value, list) else value


# --- tables


def _table(printed: _Printed, name: str, script: Script | None, metadata: dict[str, str]) -> Table:
    known = script.maps.get(name) if script is not None else None
    keyed = [(number, _frames(key), row) for number, rows in enumerate(printed.snapshots) for key, row in rows]
    columns: dict[str, list[Any]] = {}
    if len(printed.snapshots) > 1:
        columns["snapshot"] = [number for number, _, _ in keyed]
    if printed.keyed:
        columns |= _key_columns([key for _, key, _ in keyed], known.keys if known is not None else None)
    values = list(dict.fromkeys(column for _, _, row in keyed for column in row))
    if len({tuple(row) for _, _, row in keyed}) > 1:  # tuples of different lengths
        columns["value"] = [json.dumps(list(row.values())) for _, _, row in keyed]
        values = ["value"]
    else:
        columns |= {column: [_path(row[column]) for _, _, row in keyed] for column in values}
    if printed.kind == "hist" and known is not None and known.rest:
        columns["low"] = [known.rest.get(low, low) for low in columns.get("low", [])]
    typed: dict[str, Any] = {column: _typed(cells) for column, cells in columns.items()}
    if printed.kind == "hist" and not keyed:  # zero() leaves histograms without a bucket
        values = ["low", "high", "count"]
        typed |= dict.fromkeys(values, np.zeros(0, dtype=np.int64))
    # Of an unknown script a value may be a count of what the name tells the unit of.
    unit = known.unit if known is not None else unit_of(name) if printed.kind in ("hist", "stats") else ""
    if printed.kind == "hist" and not unit:
        unit = unit_of(name)
    units = {column: unit for column in ("value", "low", "high", "average", "total") if column in values}
    if known is not None and known.divided:  # print() divides these, and at the script's end they are as they are
        units = {column: unit for column, unit in units.items() if column not in ("value", "average")}
    units |= {column: unit_of(column) for column in typed if column not in values}
    numeric = {name for name, cells in typed.items() if len(cells) and not isinstance(cells[0], (str, type(None)))}
    numeric.update(name for name, cells in typed.items() if isinstance(cells, np.ndarray))
    return Table.of(
        typed,
        units={column: unit for column, unit in units.items() if unit and column in numeric},
        metadata=metadata,
    )


def _typed(cells: list[Any]) -> list[Any]:
    """Cells of one type: numbers where all are, and fit; else text."""
    present = [cell for cell in cells if cell is not None]
    if all(isinstance(cell, str) for cell in present):
        return cells
    if all(isinstance(cell, int) for cell in cells):
        if fit(cells):
            return cells
    elif all(isinstance(cell, float) for cell in present):
        return cells
    return [None if cell is None else str(cell) for cell in cells]


def _key_columns(texts: list[str], keys: tuple[Key, ...] | None) -> dict[str, list[Any]]:
    """The keys apart, by what the script says; else one column."""
    parts = [_apart(text, keys) for text in texts] if keys else [None]
    if keys is None or any(part is None for part in parts):
        return {"key": numbers([_path(text) for text in texts])}
    out: dict[str, list[Any]] = {}
    for number, key in enumerate(keys):
        cells = [part[number] for part in parts if part is not None]
        name = f"key_{key.name}" if key.name in _TAKEN else key.name
        if key.kind == "stack":
            out[name] = [_folded(cell) for cell in cells]
        else:
            out[name] = cells if key.kind == "text" else numbers([_path(cell) for cell in cells])
    return out


def _apart(text: str, keys: tuple[Key, ...]) -> list[str] | None:
    """The keys of one entry; None where their commas leave more than one way, or none."""
    pieces = text.split(",")
    if len(keys) > len(pieces) or math.comb(len(pieces) - 1, len(keys) - 1) > _MOST_WAYS:
        return None
    ways = []
    for cuts in itertools.combinations(range(1, len(pieces)), len(keys) - 1):
        edges = [0, *cuts, len(pieces)]
        cells = [",".join(pieces[a:b]) for a, b in itertools.pairwise(edges)]
        if all(_may_be(cell, key.kind) for cell, key in zip(cells, keys, strict=True)):
            ways.append(cells)
            if len(ways) > 1:
                return None
    return ways[0] if ways else None


def _may_be(cell: str, kind: str) -> bool:
    if kind == "number":
        return WHOLE.fullmatch(cell) is not None
    if kind == "stack":
        return cell.strip() == "" or (cell.startswith("\n") and cell.endswith("\n"))
    return True


def _path(value: Any) -> Any:
    """A stack's path where the text is one, as bpftrace prints them: a line for each frame, innermost first."""
    if isinstance(value, str) and re.fullmatch(r"\n(?:(?: {4,}|\t)[^\s\x00-\x1f][^\x00-\x1f]*\n)+", value):
        return _folded(value)
    return value


def _folded(text: str) -> str:
    # Of stack(perf): neither its address nor its file tells one function from another.
    frames = [_PERF_FRAME.sub(r"\1", line).strip() for line in lines_of(text) if line.strip()]
    return ";".join(_OFFSET.sub("", frame).replace(";", ":") for frame in reversed(frames))


def _without_notes(table: Table, text: str) -> str:
    for name, value in reversed(table.metadata.items()):
        text = text.removesuffix(f"\n{name}: {value}")
    return text
