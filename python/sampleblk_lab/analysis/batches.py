# SPDX-License-Identifier: MIT
"""Tables of a recording that is larger than memory, one after the other."""

from __future__ import annotations

import atexit
import queue
import threading
from typing import TYPE_CHECKING, Any

from sampleblk_lab.errors import InputError
from sampleblk_lab.table import Table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sampleblk_lab._native import core


class _StoppedError(Exception):
    """The consumer went away."""


def batches(file: core.TraceFile, event: str, rows: int, selection: dict[str, Any]) -> Iterator[Table]:
    """Decodes in a thread that waits while two tables are not yet taken."""
    ready: queue.Queue[core.Table | BaseException | None] = queue.Queue(maxsize=2)
    stopped = threading.Event()

    def offer(item: core.Table | BaseException | None) -> None:
        while not stopped.is_set():
            try:
                ready.put(item, timeout=0.1)
            except queue.Full:
                continue
            return
        raise _StoppedError

    names: set[str] = set()

    def take(name: str, table: core.Table) -> None:
        names.add(name)
        if len(names) > 1:
            raise InputError(f"event {event!r}", expected=f"one event's name; it matches {', '.join(sorted(names))}")
        offer(table)

    def decode() -> None:
        try:
            file.decode_batches([event], rows, take, **selection)
            offer(None)
        except _StoppedError:
            return
        except BaseException as error:
            if not stopped.is_set():
                offer(error)

    def end() -> None:
        stopped.set()
        thread.join()

    thread = threading.Thread(target=decode, name="sampleblk-decode", daemon=True)
    thread.start()
    # Who has not taken all when Python ends: a thread that returned from C++ to no Python would abort the process.
    atexit.register(end)
    try:
        while (item := ready.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield Table(item)
    finally:
        atexit.unregister(end)
        end()
