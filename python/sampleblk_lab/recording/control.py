# SPDX-License-Identifier: MIT
"""The control files of one place to trace in, and putting back what was written to them."""

from __future__ import annotations

import itertools
import os
from collections import Counter
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from sampleblk_lab import leftovers
from sampleblk_lab._native import core
from sampleblk_lab.blocks import ClosesAtEnd
from sampleblk_lab.errors import TraceCommandError, UnsupportedError
from sampleblk_lab.paths import locked

if TYPE_CHECKING:
    from collections.abc import Iterator

_numbers = itertools.count()

# All who trace call graphs have these in common, whichever instance they do it in (Linux 6.11 and newer let them).
_GRAPH_FILES = ("set_graph_function", "set_graph_notrace", "max_graph_depth", "tracing_thresh")

# Of what the kernel counts of a buffer, that which it could not hold or has overwritten.
LOST = ("overrun", "commit overrun", "dropped events")


@contextmanager
def refusals(command: str) -> Iterator[None]:
    """Turns the kernel's refusal of `command` into a :class:`TraceCommandError`."""
    try:
        yield
    except OSError as error:
        raise TraceCommandError(error.errno or 0, error.strerror or str(error), error.filename or "", command) from None


def buffer_counts(instance: str) -> Counter[str]:
    """What the kernel counts of a buffer, all CPUs together: ``"entries"``, ``"overrun"`` (per_cpu/*/stats)."""
    counts: Counter[str] = Counter()
    for path in Path(instance).glob("per_cpu/cpu*/stats"):
        for line in path.read_text().splitlines():
            name, _, number = line.partition(": ")
            counts[name] += int(number) if number.isdecimal() else 0  # or a time
    return counts


class ControlFiles(ClosesAtEnd):
    """The part of :class:`~sampleblk_lab.Session` that reads and writes control files, and puts them back."""

    def __init__(self, *, top_level: bool = False, name: str | None = None) -> None:
        self._top = core.tracefs_dir()
        #: What killed processes had left and was put back now, a line each.
        self.recovered: list[str] = leftovers.clean()
        self._undo = core.UndoLog(str(leftovers.directory()))
        self.top_level = top_level
        self._closed = False
        self._lock = ExitStack()
        try:
            if top_level:
                self.path = self._top
                # Two would put back each other's settings.
                if not self._lock.enter_context(locked(leftovers.directory() / "top-level", wait=False)):
                    reason = "another session, of this process or another one, does so"
                    raise UnsupportedError("tracing at the top level", reason, "close that first")
                self._refuse_if_busy()
            else:
                self.path = f"{self._top}/instances/{name or f'sampleblk-{os.getpid()}-{next(_numbers)}'}"
                # Now, not when the instance goes: somebody may record at the top level by then, with another size.
                core.grow_buffer(self._top)
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

    def _refuse_second_graph(self) -> None:
        for folder in (Path(self._top), *Path(self._top, "instances").iterdir()):
            with suppress(FileNotFoundError):  # an instance that goes meanwhile
                if str(folder) != self.path and (folder / "current_tracer").read_text() == "function_graph\n":
                    raise UnsupportedError(
                        "a second call graph at a time",
                        f"someone uses the function_graph tracer in {folder}, and its filters are everybody's",
                        "end that first",
                    )

    def has(self, file: str) -> bool:
        """Whether this kernel has the control file `file` here."""
        return os.path.exists(f"{self.path}/{file}")  # noqa: PTH110

    def read(self, file: str) -> str:
        """The text of a control file."""
        return Path(f"{self.path}/{file}").read_text(errors="replace")

    def set(self, file: str, text: str, *, append: bool = False) -> None:
        """Writes a control file, to be put back by :meth:`close`.

        Raises:
            TraceCommandError: The kernel refused; carries its error_log's words and where its caret points.
        """
        if (file, text) == ("current_tracer", "function_graph"):
            self._refuse_second_graph()
        with refusals(text):
            if self.top_level:
                self._undo.set(f"{self.path}/{file}", text, append)
            else:  # goes away with the instance
                core.write_control(f"{self.path}/{file}", text, append)

    def set_top(self, file: str, text: str, *, append: bool = False) -> None:
        """The same for the files that only the top level has, such as ``set_graph_function``."""
        if file in _GRAPH_FILES:
            self._refuse_second_graph()
        with refusals(text):
            self._undo.set(f"{self._top}/{file}", text, append)

    def has_top(self, file: str) -> bool:
        """Whether the top level has the control file `file`."""
        return os.path.exists(f"{self._top}/{file}")  # noqa: PTH110

    # -- undoing

    def close(self) -> None:
        """See :meth:`sampleblk_lab.Session.close`."""
        if self._closed:
            return
        self._closed = True
        with self._lock:
            failed = self._undo.undo()
        if failed:
            raise OSError("tracing could not be put back as it was: " + "; ".join(failed))
