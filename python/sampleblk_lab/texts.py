# SPDX-License-Identifier: MIT
"""Text and JSON that somebody else may have written: read, or refused with where it is wrong."""

from __future__ import annotations

import json
import math
import sys
from typing import TYPE_CHECKING, Any

from sampleblk_lab.errors import FormatError, InputError
from sampleblk_lab.paths import naming

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


_MOST = 1 << 63

#: An int of more bits has more digits than Python reads or writes (sys.set_int_max_str_digits), and so JSON.
INT_BITS = int(sys.int_info.default_max_str_digits / math.log10(2)) - 1

_WORDS = {
    dict: "an object",
    list: "a list",
    str: "a string",
    int: "a whole number of 64 bits",
    float: "a number",
    bool: "true or false",
}


class Whole(dict[Any, Any]):
    """The shape of an object that has all of these members, see :func:`read_json`."""


def utf8(text: str) -> str:
    """A text that may have bytes of no encoding, such as a file's name."""
    return text.encode(errors="backslashreplace").decode()


def readable(text: str, keep: str = "") -> str:
    """A text without what XML and HTML cannot have, or what hides from a reader: such characters as escapes.

    Args:
        text: Any text, also with control characters or halves of surrogate pairs.
        keep: Characters that stay as they are.
    """
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() or one in keep else one.encode("unicode_escape").decode() for one in text)


def notes(metadata: Mapping[str, str]) -> list[str]:
    """What a view of a table says of it, as lines of text."""
    return [readable(f"{name}: {value}", keep="\n") for name, value in metadata.items()]


def count_text(count: float, grouping: str = "") -> str:
    """A count that may be a float's, such as of all states of a crash; rounded where that is not exact."""
    return f"{count:{grouping}.0f}" if count < 1e15 else f"{count:.1e}"


def counted(count: int, of: str) -> str:
    """``1 sector``, ``8 sectors``."""
    return f"{count} {of}{'s' * (count != 1)}"


def read_text(path: Path) -> str:
    """A file that a user wrote.

    Raises:
        InputError: A line is not UTF-8.
        OSError: It cannot be read.
    """
    try:
        with naming(path):
            return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise InputError(f"byte {error.object[error.start]:#04x}", str(path), line, "text in UTF-8") from None


def read_bytes(path: Path) -> bytes:
    """A file's content. Raises OSError, which says of which file."""
    with naming(path):
        return path.read_bytes()


def read_json(path: Path, shape: Any = object) -> Any:
    """A file that a program wrote.

    Args:
        path: The file.
        shape: What it must be: a type; ``[shape]``, a list; a dictionary, an object with the shape of each member that
            it may have, and under ``...`` that of all others; a :class:`Whole`, an object that has them all.

    Raises:
        FormatError: It is not.
        OSError: It cannot be read.
    """
    data = read_bytes(path)
    try:
        value = json.loads(data)
        if b"\\ud" in data.lower():
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise FormatError(str(path), data.lower().index(b"\\ud"), "both halves of a surrogate pair") from None
    except json.JSONDecodeError as error:
        raise FormatError(str(path), len(error.doc[: error.pos].encode()), f"JSON ({error.msg})") from None
    except UnicodeDecodeError as error:
        raise FormatError(str(path), error.start, "JSON in UTF-8") from None
    except RecursionError:
        raise FormatError(str(path), 0, "JSON that is not so deep") from None
    if wrong := _misfit(value, shape, ""):
        raise FormatError(str(path), 0, wrong)
    return value


def _misfit(value: Any, shape: Any, where: str) -> str:
    """What was expected in the place of the first value that is otherwise; empty when all is well."""
    if isinstance(shape, list) and isinstance(value, list):
        parts = ((each, shape[0], f"{where}[{number}]") for number, each in enumerate(value))
    elif isinstance(shape, dict) and isinstance(value, dict):
        rest = shape.get(..., object)
        must = isinstance(shape, Whole)
        names = {**dict.fromkeys(shape), **value} if must else value
        parts = (
            (value.get(name), shape.get(name, rest), f"{where}.{name}")
            for name in names
            if must or value[name] is not None or name not in shape
        )
    else:
        kind = list if isinstance(shape, list) else dict if isinstance(shape, dict) else shape
        fits = isinstance(value, (int, float) if kind is float else kind)
        if kind in (int, float):
            fits = fits and not isinstance(value, bool) and -_MOST <= value < 2 * _MOST  # which NaN is not
        return "" if fits else f"{where.removeprefix('.') or 'the whole'} to be {_WORDS[kind]}"
    return next(filter(None, (_misfit(*part) for part in parts)), "")
