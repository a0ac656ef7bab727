# SPDX-License-Identifier: MIT
"""Ctrl-C in loops that must not be left in the middle of a step."""

from __future__ import annotations

import contextlib
import signal
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class RaisedWithin:
    """Takes Ctrl-C of this process over: it is raised within :meth:`block` only, and outside waits for the next one."""

    def __init__(self) -> None:
        self._inside = False
        self._came = False
        signal.signal(signal.SIGINT, self._pressed)

    def _pressed(self, _number: int, _frame: object) -> None:
        if self._inside:
            self._inside = False
            raise KeyboardInterrupt
        self._came = True

    @contextlib.contextmanager
    def block(self) -> Iterator[None]:
        """What may be interrupted; once it was, the rest of the block is left alone.

        Raises:
            KeyboardInterrupt: Also at the block's begin, for what came before.
        """
        self._inside = True
        try:
            if self._came:
                self._came = False
                raise KeyboardInterrupt
            yield
        finally:
            self._inside = False


@contextlib.contextmanager
def counted_ctrl_c() -> Iterator[Callable[[], int]]:
    """Ctrl-C is counted instead of raised, so that it cannot come while half a message has been read or written.

    Where somebody else handles it, or in another thread than the main one, nothing changes.
    """
    count = 0

    def pressed(_number: int, _frame: object) -> None:
        nonlocal count
        count += 1

    ours = (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )
    if ours:
        signal.signal(signal.SIGINT, pressed)
    try:
        yield lambda: count
    finally:
        if ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)
