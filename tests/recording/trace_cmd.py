# SPDX-License-Identifier: MIT
"""`trace-cmd report -R` as the oracle of our decoder: every field of every event, side by side."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import defaultdict
from itertools import count, takewhile
from typing import Any

AVAILABLE = shutil.which("trace-cmd") is not None

# From 3.3 on the flags of an event are behind its CPU.
_LINE = re.compile(
    r"^ *(?P<comm>.*)-(?P<pid>\d+) +\[(?P<cpu>\d+)\](?:-0x[0-9a-f]+| [^ \d]\S+)? +(?P<time>\d+\.\d+): "
    r"(?P<event>[^ :]+): *(?P<rest>.*)$",
    re.S,
)


def report(path: str) -> list[dict[str, Any]]:
    """The events of a file's top buffer as trace-cmd decodes them, in its order."""
    run = subprocess.run(["trace-cmd", "report", "-R", "-N", "-t", "-i", path], capture_output=True, check=True)
    entries: list[dict[str, Any]] = []
    for raw in run.stdout.split(b"\n"):
        line = raw.decode("utf-8", "surrogateescape")
        found = _LINE.match(line)
        if found is None:
            if line.startswith(("cpus=", "CPU ")) or not entries:
                continue
            entries[-1]["rest"] += "\n" + line
            continue
        seconds, fraction = found["time"].split(".")
        entries.append(
            {
                "time": int(seconds) * 10 ** len(fraction) + int(fraction),
                "digits": len(fraction),
                "cpu": int(found["cpu"]),
                "pid": int(found["pid"]),
                "event": found["event"],
                "rest": found["rest"],
            }
        )
    return entries


def _fields(rest: str, names: list[str]) -> list[str]:
    pattern = r" *".join([*(re.escape(name) + r"=(.*?)" for name in names)])
    found = re.match(r"^ *" + pattern.replace(r"(.*?) *", r"(.*?) +") + r"\s*$", rest, re.S)
    assert found is not None, (rest, names)
    return list(found.groups())


def _same(theirs: str, field: dict[str, Any], ours: dict[str, Any], core: Any) -> bool:
    name = field["name"]
    bits = field["size"] * 8
    if name not in ours:  # an array in columns of its own
        values = [ours[key] for key in takewhile(ours.__contains__, (f"{name}[{i}]" for i in count()))]
        if theirs.startswith("ARRAY["):
            each = field["size"] // len(values)
            got = b"".join(int(v).to_bytes(each, "little", signed=int(v) < 0) for v in values)
            return theirs == "ARRAY[" + ", ".join(f"{b:02x}" for b in got) + "]"
        text = bytes(int(v) & 0xFF for v in values)
        return text.split(b"\0")[0] == theirs.encode("utf-8", "surrogateescape").split(b"\0")[0][: len(text)]
    value = ours[name]
    if isinstance(value, str):
        if theirs.startswith("ARRAY["):
            digits = theirs[6:-1].replace(", ", "")
            if "," in value or value.startswith("0x"):  # elements wider than a byte
                numbers = [int(v, 16) for v in value.split(",") if v]
                each = len(digits) // 2 // max(len(numbers), 1)
                # trace-cmd stops at the size in the format, where the record goes on
                got = b"".join(v.to_bytes(8 if "caller" in name else each, "little") for v in numbers).hex()
                return (got.startswith(digits) and digits != "") or digits == got
            return digits == value or bytes.fromhex(digits).split(b"\0")[0].decode("utf-8", "replace") == value
        if value.isascii() and "\\x" not in value:
            if theirs.rstrip() == value.rstrip():
                return True
            # trace-cmd runs on past the length of a string that has no NUL
            return field["type"].startswith("__data_loc") and bool(value) and theirs.startswith(value)
        return True  # bytes that are no text: shown escaped by us, raw by them
    # From 3.3 on an address has its symbol before it.
    if (symbol := re.fullmatch(r"\S+ \((0x[0-9a-f]+)\)", theirs)) is not None:
        theirs = symbol[1]
    if theirs.startswith("0x"):
        # libtraceevent prints 32 bits of some wider fields where the print format says so
        wide = int(theirs, 16)
        return wide in (value % 2**bits, value % 2**32)
    if re.fullmatch(r"-?\d+", theirs) and int(theirs) % 2**bits == value % 2**bits:
        return True
    if re.fullmatch(r"[0-9a-f]+", theirs) and int(theirs, 16) == value % 2**bits:
        return True  # the print format says %llx
    if re.fullmatch(r"[0-7]+", theirs) and int(theirs, 8) == value % 2**bits:
        return True  # %o
    # a symbol, or a symbol and an offset
    return core.symbol(value % 2**64) == theirs.split("+")[0] or theirs in ("true", "false", "Y", "N")


def differences(core: Any, path: str, limit: int = 5) -> list[str]:
    """What differs between our columns and trace-cmd's report of one file; empty when nothing does."""
    theirs = report(path)
    tables = core.decode([], buffer=core.buffers[0])
    out: list[str] = []
    total = sum(len(table) for table in tables.values())
    if total != len(theirs):
        out.append(f"{total} events, trace-cmd has {len(theirs)}")
    columns: dict[str, dict[str, list[Any]]] = {}
    formats = {}
    for key, table in tables.items():
        name = key.split(":")[-1]
        columns[name] = {
            c.name: c.values.tolist() if c.categories is None else [(*c.categories, "")[i] for i in c.values]
            for c in table.columns
        }
        formats[name] = [f for f in core.format(key)["fields"] if not f["name"].startswith("common_")]
    at: dict[str, int] = defaultdict(int)
    for entry in theirs:
        event = entry["event"]
        row = at[event]
        at[event] += 1
        if event not in columns or row >= len(columns[event]["time"]):
            out.append(f"no row {row} of {event}")
        else:
            ours = {name: values[row] for name, values in columns[event].items()}
            stamp = ours["time"] if entry["digits"] == 9 else (ours["time"] + 500) // 1000
            if (stamp, ours["cpu"], ours["common_pid"]) != (entry["time"], entry["cpu"], entry["pid"]):
                out.append(f"{event} {row}: {stamp} {ours['cpu']} {ours['common_pid']} against {entry}")
            names = [f["name"] for f in formats[event]]
            if names:
                for field, text in zip(formats[event], _fields(entry["rest"], names), strict=True):
                    renamed = field["name"] + "_" if field["name"] in ("time", "cpu") else field["name"]
                    if not _same(text, {**field, "name": renamed}, ours, core):
                        out.append(f"{event} {row} {field['name']}: {ours.get(renamed)!r} against {text!r}")
        if len(out) >= limit:
            break
    return out
