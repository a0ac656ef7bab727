# SPDX-License-Identifier: MIT
"""One line on stderr for each long step, so that nobody wonders what the silence is."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_state = threading.local()


@contextlib.contextmanager
def step(what: str) -> Iterator[None]:
    """Says what begins, and how long it took: ``sampleblk-lab: fetching kernel 6.1 … 14.2 s``.

    A step within another has a line of its own, and the outer one then says again what has ended.
    """
    line = f"sampleblk-lab: {what} …"
    outer = getattr(_state, "open", None)
    print("\n" if outer else "", line, sep="", end="", file=sys.stderr, flush=True)
    _state.open = line
    begin = time.monotonic()
    result = " failed"
    try:
        yield
        result = f" {time.monotonic() - begin:.1f} s"
    finally:
        interrupted = _state.open != line
        print(f"{line if interrupted else ''}{result}", file=sys.stderr, flush=True)
        _state.open = "" if outer else None


class Line:
    """A line on stderr that is written over and over, and taken away at the end.

    Args:
        every_s: Seconds between what is shown; what comes earlier is left out.
        shown: Whether to show it at all.
    """

    def __init__(self, *, every_s: float = 0, shown: bool = True) -> None:
        self._on = shown
        self._every_s = every_s
        self._shown = time.monotonic() if every_s else 0.0
        self._longest = 0

    def show(self, what: object) -> None:
        """Puts its text in the place of what was shown before."""
        now = time.monotonic()
        if not self._on or now - self._shown < self._every_s:
            return
        self._shown = now
        text = str(what)
        self._longest = max(self._longest, len(text))
        _put(f"\r{text:<{self._longest}}")

    def clear(self) -> None:
        """Takes it away."""
        if self._longest:
            _put(f"\r{'':{self._longest}}\r")


def _put(text: str) -> None:
    try:
        print(text, end="", file=sys.stderr, flush=True)
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        # The terminal has gone. Its SIGHUP decides whether the work ends; what waits to be written is discarded.
        discard(sys.stderr.fileno())


def discard(descriptor: int) -> None:
    """From now on, and when the interpreter ends, what is written there goes nowhere, without an error."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)


def note(what: str) -> None:
    """A line on stderr about something that changes no result: ``sampleblk-lab: the cache is full …``."""
    outer = getattr(_state, "open", None)
    print("\n" if outer else "", f"sampleblk-lab: {what}", sep="", file=sys.stderr, flush=True)
    if outer:
        _state.open = ""
