# SPDX-License-Identifier: MIT
"""Histograms that the kernel keeps (hist triggers): their commands, and their text back as tables.

The text is that of kernel/trace/trace_events_hist.c, ``events/<system>/<event>/hist``.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sampleblk_lab import checked
from sampleblk_lab.errors import FormatError
from sampleblk_lab.table import Table

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


def hist_command(
    keys: str | Iterable[str],
    values: str | Iterable[str],
    sort: str | None,
    size: int | None,
    condition: str | None,
    name: str | None,
    actions: str | Iterable[str],
    variables: Mapping[str, str],
) -> str:
    """The trigger command of a histogram."""
    fields = checked.names("keys", keys)
    parts = [f"hist:keys={','.join(fields)}"]
    sums = checked.names("values", values)
    if sums:
        parts.append(f"vals={','.join(sums)}")
    parts += [f"{variable}={expression}" for variable, expression in variables.items()]
    if sort:
        parts.append(f"sort={sort}")
    if size:
        parts.append(f"size={size}")
    if name:
        parts.append(f"name={name}")
    parts += checked.names("actions", actions)
    return ":".join(parts) + (f" if {condition}" if condition else "")


_NUMBER = r"-?(?:0x)?[0-9a-f]+"
# hist_trigger_print_val(): a sum, its share (.percent), or twenty places for its bar (.graph).
_PRINTED = rf"(\w[\w.]*)(?: \(%\):(?: +(\d+\.\d+)|\[ERROR\])|: +({_NUMBER})(?![\w.:])|: ([ #]{{20}}))"
# To its line's end, behind which is what onmax() and onchange() keep, another or none: a task may be named
# "} hitcount: 7".
_ENTRY = re.compile(
    rf"^\{{ (?P<keys>.*?)\}}(?P<values>(?: +{_PRINTED})+) *(?P<kept>(?:\n\t(?:max|changed): [^\n]*)*)"
    r"(?=\n\{ |\n\s*\n|\s*\Z)",
    re.S | re.M,
)
_VALUE = re.compile(_PRINTED)
_TOTAL = re.compile(r"^ {4}(Hits|Entries|Dropped): (\d+)$", re.M)
# Bytes that a text has at least, and a task with its number, by hist_trigger_print_key().
_PADDED = {"": 50, "execname": 28}
_LONGEST_NUMBER = 20  # digits of 64 bits
_MOST = 2**64 - 1
# Without its 0x, where the trigger says .hex.
_HEX = re.compile(r"(\w+)\.hex\b")
# Without its end, whether it is active or paused.
_INFO = re.compile(r"^# trigger info: .* \[", re.M)
# Of an event's format.
_SIGNED = re.compile(r"(\w+);\toffset:\d+;\tsize:\d+;\tsigned:1;")
# A key begins an entry, or follows a comma: "name: value".
_KEY = re.compile(r"(?:^|, )(\w+):")


def _number(text: str, hexadecimal: bool) -> int:
    return int(text, 16 if hexadecimal or not re.fullmatch(r"-?\d+", text) else 10)


def _marks(text: str, modifiers: dict[str, str]) -> list[re.Match[str]]:
    """Where each key begins: in a task's name may be what looks like another, which is known by the trigger's keys."""
    found: list[re.Match[str]] = []
    padded = 0
    for name, modifier in modifiers.items():
        mark = re.compile(rf"{', ' if found else ''}({re.escape(name)}):")
        start = found[-1].end() if found else 0
        there = [one for one in mark.finditer(text, start) if found or one.start() == 0]
        if not there:
            return list(_KEY.finditer(text))
        begun = text[start : start + 2].strip() != ""  # a number is padded on its left
        behind = [one for one in there if len(text[start + 1 : one.start()].encode(errors="replace")) >= padded]
        found.append(behind[0] if len(there) > 1 and behind and begun else there[0])
        padded = _PADDED.get(modifier, 0)
    return found or list(_KEY.finditer(text))


def _keys(text: str, modifiers: dict[str, str]) -> dict[str, Any]:
    for stack in (name for name, modifier in modifiers.items() if modifier == "stacktrace"):
        text = text.replace(f"{stack}.stacktrace ", f"{stack}:\n ", 1)  # a field's has no colon
    marks = _marks(text, modifiers)
    out: dict[str, Any] = {}
    for index, mark in enumerate(marks):
        end = marks[index + 1].start() if index + 1 < len(marks) else len(text)
        # hist_trigger_print_key(): a space, the value, and a space behind the last key.
        shown = text[mark.end() + 1 : end].removesuffix(" " if index + 1 == len(marks) else "")
        raw = shown.strip()
        name = mark[1]
        # What is not known to have one may have any.
        modifier = modifiers.get(name)
        plain = modifier == ""
        if not plain and (log2 := re.fullmatch(r"~ 2\^(\d+)", raw)):
            out[name] = min(1 << int(log2[1]), _MOST)  # those below zero are in the last one up to 6.1
        elif not plain and (bucket := re.fullmatch(r"~ (\d+)-\d+", raw)):
            out[name] = int(bucket[1])
        elif not plain and (symbol := re.fullmatch(r"\[([0-9a-f]+)\] (\S+).*", raw)):  # .sym, .sym-offset
            out[name] = symbol[2]
            out[f"{name}_address"] = int(symbol[1], 16)
        elif text.startswith("\n", mark.end()):  # stacktrace: innermost first
            frames = [line.strip() for line in raw.split("\n")]
            out[name] = ";".join(frame.split("+")[0] for frame in reversed(frames))
        elif raw and shown.endswith(" ") and not shown.startswith(" "):
            out[name] = raw  # a text is padded on its right, a number on its left or not at all: "dd" is not 0xdd
        elif not plain and (command := re.fullmatch(r"(.*?) *\[ *(\d+)\]", raw)):  # .execname, .syscall
            out[name] = command[1]
            out[f"{name}_number"] = int(command[2])
        elif len(raw) <= _LONGEST_NUMBER and re.fullmatch(_NUMBER, raw):
            out[name] = _number(raw, modifier == "hex")
        else:
            out[name] = raw
    return out


def _kept(text: str, names: list[str]) -> dict[str, Any]:
    """What track_data_print() prints below an entry: the value, and what save() has with it."""
    # A number is padded on its left, a text on its right to 32 bytes.
    saved = "".join(rf"  {re.escape(name)}: ( *\d{{1,20}}|.{{17,}}?)" for name in names)
    out: dict[str, Any] = {}
    for kind, value, *values in re.findall(rf"^\t(max|changed): +(\d+){saved}$", text, re.M):
        out[kind] = int(value)
        for name, shown in zip(names, values, strict=True):
            out[name] = int(shown) if re.fullmatch(r" *\d{1,20}", shown) else shown.rstrip()
    return out


def parse_hist(text: str, source: str = "hist", *, signed: Iterable[str] = ()) -> Table:
    """A hist file's text as a table.

    Args:
        text: The text.
        source: Where it is from, for messages.
        signed: Fields that may be below zero: the kernel prints all as if none was.

    Returns:
        A column a key, then ``hitcount`` and the sums (``…_sum`` where the field is also a key).
        Keys in buckets are the bucket's lower end, those in log2 its upper end, as the kernel rounds: 2049 to 4096 are
        4096. Commands and symbols are strings with their number beside them (``…_number``, ``…_address``); stacks are
        ``"outer;inner"``. Of ``.percent`` and ``.graph`` there is ``…_percent`` and the bar, ``…_graph``. What
        ``onmax`` and ``onchange`` keep is ``max``, ``changed`` and the fields that ``save()`` names (``…_saved`` where
        there is a column of that name). The metadata has hits, entries and dropped.

    Raises:
        FormatError: The text is no histogram.
    """
    if "# event histogram" not in text:
        raise FormatError(source, 0, "a line '# event histogram'")
    asked = {part: re.search(rf"^# trigger info: .*?\b{part}=([^:\n]*)", text, re.M) for part in ("keys", "vals")}
    hexadecimal = set(_HEX.findall(asked["vals"][1] if asked["vals"] else ""))
    # "common_pid.execname" is printed as common_pid.
    told = asked["keys"][1].replace("$", "").split(" ")[0].split(",") if asked["keys"] else []
    modifiers = {name: modifier for name, _, modifier in (key.partition(".") for key in told)}
    if len(modifiers) < len(told):
        modifiers = {}
    save = re.search(r"^# trigger info: .*?\.save\(([^)\n]*)\)", text, re.M)
    saved = re.findall(r"[^,\s]+", save[1]) if save else []
    rows: list[dict[str, Any]] = []
    for entry in _ENTRY.finditer(text):
        row = _keys(entry["keys"], modifiers)
        for name, share, value, bar in _VALUE.findall(entry["values"]):
            if value:
                row[f"{name}_sum" if name in row else name] = _number(value, name in hexadecimal)
            elif bar:
                row[f"{name}_graph"] = bar.rstrip()
            else:
                row[f"{name}_percent"] = float(share or "nan")
        kept = _kept(entry["kept"], saved)
        for name, value in kept.items():
            row[f"{name}_saved" if name in row else name] = value
        if kept or not entry["kept"]:  # else it was not understood, which the totals tell
            rows.append(row)
    totals = {name.lower(): value for name, value in _TOTAL.findall(text)}
    if "entries" in totals and int(totals["entries"]) != len(rows):
        raise FormatError(source, 0, f"{totals['entries']} entries, as its totals say; {len(rows)} were found")
    columns: dict[str, Any] = {}
    for name in dict.fromkeys(key for row in rows for key in row):
        values = [row.get(name, 0) for row in rows]
        if any(isinstance(value, str) for value in values):
            columns[name] = [str(value) for value in values]
        elif any(isinstance(value, float) for value in values):
            columns[name] = np.array(values, dtype=np.float64)
        else:
            wide = np.uint64 if max(values) > np.iinfo(np.int64).max else np.int64
            column = np.array(values, dtype=wide)
            columns[name] = (
                column.view(np.int64) if name.removesuffix("_sum").removesuffix("_saved") in signed else column
            )
    metadata = {"lost_events": totals.get("dropped", "0"), **totals}
    return Table.of(columns, metadata=metadata)


class Hist:
    """A histogram in the kernel.

    Args:
        path: Its event's file.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        # An event may have several, which only this line tells from each other; the one just made is the last.
        told = _INFO.findall(self.text())
        self._info = told[-1] if told else ""

    def text(self) -> str:
        """As the kernel prints it, with the others of its event."""
        return Path(self._path).read_text(errors="replace")  # a task's name may end inside a character

    def table(self) -> Table:
        """As a table; see :func:`parse_hist`."""
        own = [part for part in re.split(r"(?=^# event histogram)", self.text(), flags=re.M) if self._info in part]
        signed = set(_SIGNED.findall(Path(self._path).with_name("format").read_text()))
        return parse_hist(own[-1] if own else "", self._path, signed=signed)

    def __repr__(self) -> str:
        return self.text()
