# SPDX-License-Identifier: MIT
"""A bpftrace script: where it is found, and what of its text says how its maps are to be read.

bpftrace's output joins the keys of a map by commas and does not say how many there are, nor what they mean. The script
does.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from sampleblk_lab.errors import InputError
from sampleblk_lab.paths import resource

# Where distributions put bpftrace's own tools; Debian has them in /usr/sbin.
_STOCK = ("/usr/sbin", "/usr/share/bpftrace/tools", "/usr/share/bpftrace")

# Builtins that are numbers, and the functions whose first argument names the key best.
_NUMBERS = frozenset({"pid", "tid", "uid", "gid", "cpu", "nsecs", "elapsed", "cgroup", "numaid", "rand", "ncpus"})
_WORDS = frozenset({"comm", "probe", "func", "username"})
_TEXTS = frozenset(
    {"str", "ksym", "usym", "kstr", "path", "buf", "ntop", "strftime", "strerror", "macaddr", "cgroup_path"}
)

# The last word of a map's or key's name -> unit.
_UNITS = {
    **dict.fromkeys(("ns", "nsecs", "nanoseconds"), "ns"),
    **dict.fromkeys(("us", "usecs", "microseconds"), "us"),
    **dict.fromkeys(("ms", "msecs", "milliseconds"), "ms"),
    **dict.fromkeys(("secs", "seconds"), "s"),
    "bytes": "bytes",
}

_CLOCKS = ("nsecs", "elapsed")
_STRING = '""'
_SKIPPED = re.compile(r'"(?:\\.|[^"\\])*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
_MAP = re.compile(r"@(?:[A-Za-z_]\w*)?")
_ASSIGNED = re.compile(r"\s*=(?!=)\s*(\w+)")
# A clock's reading, or how long ago one was: what follows does not make another unit of it.
_CLOCKED = re.compile(r"\s*=(?!=)\s*(?:nsecs|elapsed)\b(?:\s*\([^()]*\))?(?:\s*[-+]\s*[@$\w.>\-\[\], ]*)?\s*(?:[;}]|$)")
_POINTER_CAST = re.compile(r"\(\s*(?:\w+\s+)?\w+\s*\*+\s*\)")
_BINARY = re.compile(r"[\w)]\s*(?:[*+]|-(?!>))")
# What lhist() is given.
_STEPS = re.compile(r"(?<=\blhist)\s*\(")
_INTEGER = re.compile(r"-?[0-9]{1,18}")
# print(@map, how many, what its values are divided by)
_PRINTED = re.compile(r"\bprint\s*\(\s*(@\w*)\s*,[^,()]*,\s*([^()]*?)\s*\)")


@dataclass(frozen=True)
class Key:
    """One key of a map.

    Attributes:
        name: What its column is called.
        kind: ``"number"``, ``"text"``, ``"stack"``, or empty where the script does not tell.
    """

    name: str
    kind: str = ""


@dataclass(frozen=True)
class Map:
    """What a script says of one of its maps.

    Attributes:
        keys: Its keys; None where two uses disagree.
        unit: That of its values, as the name says it (``@latency_ns``); empty: none, or unknown.
        divided: Whether ``print()`` divides its values.
        rest: Of ``lhist()`` the end that its last bucket is said to begin at, and where it does: all from its last
            whole step on is in it.
    """

    keys: tuple[Key, ...] | None
    unit: str = ""
    divided: bool = False
    rest: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Script:
    """A script.

    Attributes:
        text: What bpftrace runs.
        source: Where it came from, for messages.
    """

    text: str
    source: str = "script"
    maps: dict[str, Map] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "maps", _maps(self.text))

    @property
    def may_end(self) -> bool:
        """Whether it may end by itself: it says so, or waits for no event."""
        return re.search(r"\bexit\b", _code(self.text)) is not None or not probe_lists(self.text)


def find(script: str | os.PathLike[str]) -> Script:
    """A script by its text, its path, or its name: one of ours (:func:`names`), or one of bpftrace's own tools.

    Raises:
        InputError: There is none of that name.
        OSError: Its file cannot be read.
    """
    if isinstance(script, str) and ("{" in script or "\n" in script):
        return Script(script)
    word = os.fspath(script)
    if not word.strip():
        raise InputError("an empty bpftrace script", expected="its text, its path, or its name")
    path = Path(word)
    if not path.exists() and len(path.parts) == 1:
        name = word.removesuffix(".bt")
        if name in names():
            path = resource("bpftrace/scripts") / f"{name}.bt"
        else:
            stock = (Path(folder) / f"{name}.bt" for folder in _STOCK)
            path = next((each for each in stock if each.is_file()), path)
    if not path.exists() or path.is_dir():
        raise InputError(
            f"{'a folder' if path.is_dir() else 'no bpftrace script'} {word!r}",
            expected=f"its text, a path, {', '.join(names())}, or one of bpftrace's tools, such as biosnoop.bt",
        )
    return Script(path.read_text(errors="surrogateescape"), str(path))


def names() -> list[str]:
    """The scripts that the package has."""
    return sorted(path.stem for path in resource("bpftrace/scripts").glob("*.bt"))


def unit_of(name: str) -> str:
    """The unit that a name ends in; empty when it names none."""
    return _UNITS.get(name.lstrip("@").rpartition("_")[2], "")


def probe_lists(text: str) -> list[list[str]]:
    """The probes of a script, each list that shares an action in one."""
    one = r"[A-Za-z]\w*(?::[^\s,{}/:;\"]+)+"
    lists = re.finditer(rf"({one}(?:\s*,\s*{one})*)\s*(?=[{{/])", _code(text))
    return [[probe.strip() for probe in found[1].split(",")] for found in lists]


def _code(text: str) -> str:
    """The text without comments and what is in strings."""
    return _SKIPPED.sub(lambda found: _STRING if found[0].startswith('"') else " ", text)


def _maps(text: str) -> dict[str, Map]:
    code = _code(text)
    keys: dict[str, list[tuple[str, ...]]] = {}
    counted: dict[str, set[str]] = {}
    rests: dict[str, dict[int, int]] = {}
    divided = {found[1] for found in _PRINTED.finditer(code) if found[2] not in ("", "0", "1")}
    for mark in _MAP.finditer(code):
        name, end = mark[0], mark.end()
        used = re.compile(r"\s*\[").match(code, end)
        if used:
            inside, end = _inside(code, used.end())
            keys.setdefault(name, []).append(tuple(_parts(inside)))
        assigned = _ASSIGNED.match(code, end)
        if assigned:
            value = "nsecs" if _CLOCKED.match(code, end) else "" if assigned[1] in _CLOCKS else assigned[1]
            counted.setdefault(name, set()).add(value)
            if steps := _STEPS.match(code, assigned.end()):
                _, *numbers = _parts(_inside(code, steps.end())[0])
                if len(numbers) == 3 and all(_INTEGER.fullmatch(number) for number in numbers):
                    low, high, step = map(int, numbers)
                    if step > 0:
                        rests.setdefault(name, {})[high] = low + (high - low) // step * step
            if not used:
                keys.setdefault(name, []).append(())
        elif re.compile(r"\s*\+\+").match(code, end):
            counted.setdefault(name, set()).add("count")
            if not used:
                keys.setdefault(name, []).append(())
    found = {}
    for name, uses in keys.items():
        agreed = len({len(use) for use in uses}) == 1
        values = counted.get(name, set())
        unit = unit_of(name)
        if values & {"count"}:
            unit = ""  # the name is of what is counted, not of the count
        elif values == {"nsecs"}:
            unit = "ns"
        found[name] = Map(_keys(uses[0]) if agreed else None, unit, name in divided, rests.get(name, {}))
    return found


def _inside(code: str, start: int) -> tuple[str, int]:
    """What is in the bracket that was opened before `start`, and where it ends."""
    depth = 1
    for place in range(start, len(code)):
        depth += {"[": 1, "(": 1, "]": -1, ")": -1}.get(code[place], 0)
        if depth == 0:
            return code[start:place], place + 1
    return code[start:], len(code)


def _parts(text: str) -> list[str]:
    depth = 0
    parts = [""]
    for letter in text:
        depth += {"[": 1, "(": 1, "]": -1, ")": -1}.get(letter, 0)
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts]


def _keys(expressions: tuple[str, ...]) -> tuple[Key, ...]:
    keys: list[Key] = []
    for number, expression in enumerate(expressions):
        key = _key(expression, number)
        taken = [one.name for one in keys]
        keys.append(key if key.name not in taken else Key(f"{key.name}_{number}", key.kind))
    return tuple(keys)


def _key(expression: str, number: int) -> Key:
    # A cast says that it is a number, whatever it is of.
    cast = re.match(r"\(\s*u?int(?:8|16|32|64)(?:_t)?\s*\)\s*(.*)", expression, re.DOTALL)
    if cast:
        return Key(_key(cast[1], number).name, "number")
    if re.fullmatch(r"-?\d+", expression):
        return Key(f"key_{number}", "number")
    if expression == _STRING:
        return Key(f"key_{number}", "text")
    if stack := re.match(r"([ku]stack)\b", expression):
        return Key(stack[1], "stack")
    if called := re.match(r"(\w+)\s*\((.*)\)\s*$", expression, re.DOTALL):
        inner = _key(_parts(called[2])[0], number).name
        return Key(inner, "text" if called[1] in _TEXTS else "")
    if re.fullmatch(r"\w+", expression):
        return Key(expression, "number" if expression in _NUMBERS else "text" if expression in _WORDS else "")
    if variable := re.fullmatch(r"\$(\w+)", expression):
        # A stack in a variable cannot be told from a number but by the name.
        kind = "stack" if variable[1] in ("kstack", "ustack") else ""
        return Key(variable[1] if not variable[1].isdigit() else f"key_{number}", kind)
    # Of a sum or a product no member is the name, nor has it that member's unit.
    is_one = _BINARY.search(_POINTER_CAST.sub("", expression)) is None
    if is_one and (member := re.fullmatch(r"[\w\s\->.()*$]*(?:->|\.)\s*(\w+)", expression)):
        return Key(member[1])
    return Key(f"key_{number}")
