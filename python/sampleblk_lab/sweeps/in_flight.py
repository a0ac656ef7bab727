# SPDX-License-Identifier: MIT
"""Calls that were handed to an executor and have not ended, each with what it is about."""

from __future__ import annotations

import queue
import time
from typing import TYPE_CHECKING, Generic, TypeVar

from sampleblk_lab.sweeps.place import outcome_of

if TYPE_CHECKING:
    import concurrent.futures
    from collections.abc import Callable, Iterator

    from sampleblk_lab.sweeps.work import Outcome

# Between two looks at whether Ctrl-C was pressed.
_LOOK_S = 0.2

What = TypeVar("What")


class InFlight(Generic[What]):
    """What was handed over and is waited for. Iterates over what it is about."""

    def __init__(self) -> None:
        self._running: dict[concurrent.futures.Future[Outcome], What] = {}
        self._ended: queue.SimpleQueue[concurrent.futures.Future[Outcome]] = queue.SimpleQueue()

    def __len__(self) -> int:
        return len(self._running)

    def __iter__(self) -> Iterator[What]:
        return iter(list(self._running.values()))

    def add(self, future: concurrent.futures.Future[Outcome], what: What) -> None:
        """Waits for one more."""
        self._running[future] = what
        future.add_done_callback(self._ended.put)

    def drop(self, what: What) -> None:
        """Waits no more for what nobody will end."""
        for future, other in list(self._running.items()):
            if other is what:
                del self._running[future]
                future.cancel()

    def ended(self) -> Iterator[tuple[What, Outcome]]:
        """Waits for the end of one, not for long, and gives all that have ended."""
        timeout: float | None = _LOOK_S
        while True:
            try:
                future = self._ended.get(timeout=timeout) if timeout else self._ended.get_nowait()
            except queue.Empty:
                return
            timeout = None
            what = self._running.pop(future, None)
            if what is not None:
                yield what, outcome_of(future)

    def end(
        self, stop: Callable[[], object], grace_s: float, pressed: Callable[[], int]
    ) -> Iterator[tuple[What, Outcome]]:
        """Ends what still runs, and gives what has ended meanwhile.

        Args:
            stop: Ends what has begun.
            grace_s: How long that may take.
            pressed: How often Ctrl-C was pressed: once more, and nothing is waited for.
        """
        if not self._running:
            return
        for future in list(self._running):
            if future.cancel():
                del self._running[future]
        stop()
        end = time.monotonic() + grace_s
        presses = pressed()
        while self._running and time.monotonic() < end and pressed() <= presses:
            yield from self.ended()
