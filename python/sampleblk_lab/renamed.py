# SPDX-License-Identifier: MIT
"""Old names of what is public: they work for one release, and say what the new one is."""

from __future__ import annotations

import functools
import warnings
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, MutableMapping
    from typing import Any

_P = ParamSpec("_P")
_T = TypeVar("_T")


def warn(old: str, new: str, *, level: int = 2) -> None:
    """Warns whoever called the function that calls this, or who is `level` frames above it."""
    warnings.warn(f"{old} is now {new}; the old name goes with the next release", DeprecationWarning, level + 1)


def keyword(given: MutableMapping[str, Any], old: str, new: str, where: str, *, level: int = 2) -> None:
    """Replaces an old keyword in `given`, with a warning.

    Raises:
        TypeError: Both are given.
    """
    if old not in given:
        return
    if new in given:
        raise TypeError(f"{where} got {old}= and {new}=, which are the same")
    warn(f"{old}= of {where}", f"{new}=", level=level + 1)
    given[new] = given.pop(old)


def parameters(**names: str) -> Callable[[Callable[_P, _T]], Callable[_P, _T]]:
    """A decorator: the function also takes its old keywords, ``old="new"``."""

    def decorate(function: Callable[_P, _T]) -> Callable[_P, _T]:
        @functools.wraps(function)
        def call(*args: _P.args, **keywords: _P.kwargs) -> _T:
            for old, new in names.items():
                keyword(keywords, old, new, f"{function.__qualname__}()")
            return function(*args, **keywords)

        return call

    return decorate
