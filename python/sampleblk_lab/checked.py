# SPDX-License-Identifier: MIT
"""Arguments whose mistakes would be answered with an empty table, or with another question's answer."""

from __future__ import annotations

import math
import operator
import os
import shlex
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from sampleblk_lab.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence


def count(name: str, value: int, least: int = 1, most: int = 1 << 20) -> int:
    """A number of things. Raises InputError."""
    try:
        number = operator.index(value)
    except TypeError:
        number = least - 1
    if isinstance(value, bool) or not least <= number <= most:
        raise InputError(f"{name}={value!r}", expected=f"a whole number from {least} to {most}")
    return number


def moments(selection: dict[str, Any]) -> None:
    """The times from and to which a selection goes, in ns. Raises InputError."""
    for name in selection.keys() & {"start", "stop"}:
        selection[name] = count(name, selection[name], 0, (1 << 64) - 1)


def flag(name: str, value: bool) -> bool:
    """Yes or no: the word ``"no"`` would count as true. Raises InputError."""
    if isinstance(value, (str, bytes)) or value not in (True, False):
        raise InputError(f"{name}={value!r}", expected="True or False")
    return bool(value)


def percent(name: str, value: float) -> float:
    """A share of a whole, from 0 to 100. Raises InputError."""
    if not isinstance(value, (int, float)) or not 0 <= value <= 100:  # which NaN is not
        raise InputError(f"{name}={value!r}", expected="percent, from 0 to 100")
    return value


def seconds(name: str, value: float, *, none: bool = False) -> float:
    """A time to wait, 0 or more; `none`: the caller takes None, too. Raises InputError."""
    # By an object that is not a number waiting fails later, and by NaN or infinity it never ends.
    try:
        number = -1.0 if isinstance(value, (bool, str, bytes)) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = -1.0
    if not 0 <= number < math.inf:
        raise InputError(f"{name}={value!r}", expected=f"seconds, 0 or more{', or None' if none else ''}")
    return number


def above_zero(name: str, value: float) -> float:
    """A width, a budget: infinity is none. Raises InputError."""
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not value > 0:  # which NaN is not
        raise InputError(f"{name}={value!r}", expected="a number above 0")
    return value


def text(name: str, value: str) -> str:
    """One name. Raises InputError."""
    if not isinstance(value, str):
        raise InputError(f"{name}={value!r:.60}", expected="a name")
    return value


def names(name: str, value: str | Iterable[str]) -> list[str]:
    """One name, or several. Raises InputError."""
    try:
        several = [value] if isinstance(value, str) else list(value)
    except TypeError:
        several = [""]
    if isinstance(value, bytes) or not all(isinstance(one, str) and one.strip() for one in several):
        raise InputError(f"{name}={value!r}", expected="a name, or several")
    return several


def several(name: str, value: Iterable[Any]) -> list[Any]:
    """A list of things: of a text, each letter would be one. Raises InputError."""
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        raise InputError(f"{name}={value!r}", expected="a list")
    return list(value)


def words(name: str, text: str) -> list[str]:
    """A text, split as a shell would. Raises InputError."""
    try:
        return shlex.split(text)
    except ValueError as error:  # a quote has no end
        raise InputError(f"{name}={text!r}: {error}", expected="words as a shell takes them") from None


def command(value: str | Sequence[str | os.PathLike[str]]) -> list[str]:
    """A program and its arguments; a text is split as a shell would. Raises InputError."""
    found = words("command", value) if isinstance(value, str) else [os.fspath(word) for word in value]
    if not found:
        raise InputError("an empty command", expected="a program and its arguments")
    return found


def one_of(name: str, value: str, known: Iterable[str]) -> str:
    """One of several words. Raises InputError."""
    if value not in (words := list(known)):
        raise InputError(f"{name}={value!r}", expected=" or ".join(map(repr, words)) or "nothing: there is none")
    return value
