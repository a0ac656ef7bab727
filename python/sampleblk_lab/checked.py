# SPDX-License-Identifier: MIT
"""Arguments whose mistakes would be answered with an empty table, or with another question's answer."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING

from sampleblk_lab.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable


def count(name: str, value: int, least: int = 1, most: int = 1 << 20) -> int:
    """A number of things. Raises InputError."""
    try:
        number = operator.index(value)
    except TypeError:
        number = least - 1
    if isinstance(value, bool) or not least <= number <= most:
        raise InputError(f"{name}={value!r}", expected=f"a whole number from {least} to {most}")
    return number


def percent(name: str, value: float) -> float:
    """A share of a whole, from 0 to 100. Raises InputError."""
    if not isinstance(value, (int, float)) or not 0 <= value <= 100:  # which NaN is not
        raise InputError(f"{name}={value!r}", expected="percent, from 0 to 100")
    return value


def one_of(name: str, value: str, known: Iterable[str]) -> str:
    """One of several words. Raises InputError."""
    if value not in (words := list(known)):
        raise InputError(f"{name}={value!r}", expected=" or ".join(map(repr, words)) or "nothing: there is none")
    return value
