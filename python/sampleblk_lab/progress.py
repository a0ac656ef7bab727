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

# Seconds between lines about one long step in what is no terminal, such as the log of a CI's job.
_IN_LOG_S = 60.0


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


def in_notebook() -> bool:
    """Whether this is the cell of a notebook, whose stderr is no terminal."""
    # Asked without importing IPython: whoever runs in a notebook has it loaded.
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and type(shell).__name__ == "ZMQInteractiveShell"


def is_watched() -> bool:
    """Whether stderr is where somebody looks: a terminal, or the cell of a notebook."""
    return sys.stderr.isatty() or in_notebook()


class Line:
    """A line on stderr that is written over and over, and taken away at the end.

    Args:
        every_s: Seconds between what is shown; what comes earlier is left out.
        shown: Whether to show it at all.
        logged: Whether it is of what may take hours: where nobody watches, a new one each minute.
    """

    def __init__(self, *, every_s: float = 0, shown: bool = True, logged: bool = False) -> None:
        self._on = shown
        self._in_log = logged and not is_watched()
        self._every_s = _IN_LOG_S if self._in_log else every_s
        self._shown = time.monotonic() if self._every_s else 0.0
        self._longest = 0

    def show(self, what: object) -> None:
        """Puts its text in the place of what was shown before."""
        now = time.monotonic()
        if not self._on or now - self._shown < self._every_s:
            return
        self._shown = now
        text = str(what)
        if self._in_log:
            _put(f"{text}\n")
            return
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


def occupy_standard_streams() -> None:
    """Opens /dev/null for those of ours that are closed.

    The next files to be opened would have their numbers, and be read and written in their place.
    """
    while (lowest := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(lowest, True)
    os.close(lowest)
    if sys.stderr is None:  # print() takes that for standard output
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115


def note(what: str) -> None:
    """A line on stderr about something that changes no result: ``sampleblk-lab: the cache is full …``."""
    outer = getattr(_state, "open", None)
    print("\n" if outer else "", f"sampleblk-lab: {what}", sep="", file=sys.stderr, flush=True)
    if outer:
        _state.open = ""
