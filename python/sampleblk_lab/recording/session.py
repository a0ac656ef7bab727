# SPDX-License-Identifier: MIT
"""One place to trace in: an ftrace instance of our own, or the top level of tracefs."""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import TYPE_CHECKING, Self

from sampleblk_lab._native import core
from sampleblk_lab.errors import InputError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType

_numbers = itertools.count()


def undo_directory() -> str:
    """Where undo files of tracing lie: per machine, gone at the next boot as the tracing state is."""
    if os.geteuid() == 0:
        return "/run/sampleblk-lab"
    return os.path.join(os.environ.get("XDG_RUNTIME_DIR", f"/tmp/user-{os.getuid()}"), "sampleblk-lab")  # noqa: PTH118


class Session:
    """An ftrace instance, or the top level, whose every change is put back by :meth:`close`.

    The undo notes are on disk before a change is made, so what a killed session leaves is put back when the next
    one starts.

    Args:
        top_level: Trace in the top-level buffer instead of an instance of our own.
        name: The instance's name; by default one that no other session has.

    Raises:
        UnsupportedError: There is no tracefs, or we may not use it.
    """

    def __init__(self, *, top_level: bool = False, name: str | None = None) -> None:
        self._top = core.tracefs_dir()
        directory = undo_directory()
        #: What the sessions of killed processes had left and was put back now, a line each.
        self.recovered: list[str] = core.recover_tracing(directory)
        self._undo = core.UndoLog(directory)
        self.top_level = top_level
        self._closed = False
        try:
            if top_level:
                self.path = self._top
                self._refuse_if_busy()
            else:
                self.path = f"{self._top}/instances/{name or f'sampleblk-{os.getpid()}-{next(_numbers)}'}"
                # Making an instance touches the top level's buffer on some kernels; see restoring_writes() in the core.
                self._undo.keep(f"{self._top}/buffer_size_kb")
                self._undo.make_instance(self.path)
        except BaseException:
            self.close()
            raise

    def _refuse_if_busy(self) -> None:
        tracer = self.read("current_tracer").strip()
        events = self.read("set_event").strip()
        if tracer != "nop" or events:
            what = f"the {tracer} tracer" if tracer != "nop" else f"events ({events.splitlines()[0]}…)"
            raise UnsupportedError(
                "tracing at the top level",
                f"someone else uses {what} there",
                f"stop it: echo nop > {self._top}/current_tracer; echo > {self._top}/set_event",
            )

    # -- control files

    def has(self, file: str) -> bool:
        """Whether this kernel has the control file `file` here."""
        return os.path.exists(f"{self.path}/{file}")  # noqa: PTH110

    def read(self, file: str) -> str:
        """The text of a control file."""
        return Path(f"{self.path}/{file}").read_text(errors="replace")

    def set(self, file: str, text: str, *, append: bool = False) -> None:
        """Writes a control file, to be put back by :meth:`close`.

        Raises:
            OSError: The kernel refused; the message carries its error_log's words and caret.
        """
        if self.top_level:
            self._undo.set(f"{self.path}/{file}", text, append)
        else:  # goes away with the instance
            core.write_control(f"{self.path}/{file}", text, append)

    def set_top(self, file: str, text: str, *, append: bool = False) -> None:
        """The same for the files that only the top level has, such as ``set_graph_function``."""
        self._undo.set(f"{self._top}/{file}", text, append)

    def has_top(self, file: str) -> bool:
        """Whether the top level has the control file `file`."""
        return os.path.exists(f"{self._top}/{file}")  # noqa: PTH110

    # -- the usual knobs

    def on(self) -> None:
        """Lets the buffer take events."""
        self.set("tracing_on", "1")

    def off(self) -> None:
        """Stops the buffer from taking events; what is enabled stays enabled."""
        self.set("tracing_on", "0")

    def buffer_size(self, size_bytes: int) -> None:
        """Sets the ring buffer's size, in bytes a CPU."""
        self.set("buffer_size_kb", str(max(size_bytes // 1024, 4)))

    def clock(self, name: str) -> None:
        """Chooses the trace clock, such as ``"mono"``.

        Raises:
            InputError: This kernel has no such clock.
        """
        known = self.read("trace_clock").replace("[", "").replace("]", "").split()
        if name not in known:
            raise InputError(f"no trace clock {name!r}", expected=", ".join(known))
        self.set("trace_clock", name)

    def enable(self, events: Iterable[str]) -> list[str]:
        """Enables events by ``"system:name"`` or ``"system"``, with globs. Returns all that are enabled now.

        Raises:
            InputError: Nothing matches one of them.
        """
        for event in events:
            pattern = event if ":" in event else f"{event}:*" if self.has(f"events/{event}") else f"*:{event}"
            try:
                self.set("set_event", pattern, append=True)
            except OSError as error:
                raise InputError(
                    f"no event {event!r} on this kernel",
                    expected="one of available_events, such as 'block:block_rq_issue'",
                ) from error
        return self.enabled()

    def enabled(self) -> list[str]:
        """The enabled events, as ``"system:name"``."""
        return self.read("set_event").split()

    def mark(self, text: str) -> None:
        """Writes a line into the trace (an ``ftrace:print`` event)."""
        with open(f"{self.path}/trace_marker", "wb", buffering=0) as file:  # noqa: PTH123
            file.write(text.encode())

    # -- undoing

    def close(self) -> None:
        """Puts every change back and removes the instance. The second call does nothing.

        Raises:
            OSError: Something could not be put back; the rest was.
        """
        if self._closed:
            return
        self._closed = True
        failed = self._undo.undo()
        if failed:
            raise OSError("tracing could not be put back as it was: " + "; ".join(failed))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
