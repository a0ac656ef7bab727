# SPDX-License-Identifier: MIT
"""System calls as strace shows them."""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, Any

from sampleblk_lab import checked
from sampleblk_lab._native import core
from sampleblk_lab.buffers import of_one_buffer
from sampleblk_lab.table import Table
from sampleblk_lab.texts import readable

if TYPE_CHECKING:
    from collections.abc import Iterator


class SyscallSummary(Table):
    """The table that ``strace -C`` prints, keyed by ``syscall``.

    Columns: percent_time, seconds, usecs_per_call, calls, errors, syscall. Times are wall-clock from enter to exit
    (strace -c shows system CPU time unless it is given -w).
    """

    def text(self) -> str:
        """Strace's layout, see strace(1), -C."""
        rule = "------ ----------- ----------- --------- --------- ----------------"
        names = [str(name) for name in self["syscall"]]
        if "buffer" in self:
            names = [
                readable(f"{name} [{buffer or 'top level'}]")
                for name, buffer in zip(names, self["buffer"], strict=True)
            ]
        numbers = (self[column].values.tolist() for column in ("percent_time", "seconds", "calls", "errors"))
        rows = [_line(*row) for row in zip(*numbers, names, strict=True)]
        seconds, calls, errors = (self[column].codes.sum() for column in ("seconds", "calls", "errors"))
        total = _line(100.0 if calls else 0.0, float(seconds), int(calls), int(errors), "total")

        return "\n".join(
            ["% time     seconds  usecs/call     calls    errors syscall", rule, *rows, rule, total, *self._notes()]
        )

    def __repr__(self) -> str:
        return self.text()


def _line(percent: float, seconds: float, calls: int, errors: int, name: str) -> str:
    """A row as strace prints it: whole microseconds a call, cut off; no 0 where there were no errors."""
    each = str(math.floor(round(seconds * 1e6 / calls, 3))) if calls else ""
    return f"{percent:6.2f} {seconds:11.6f} {each:>11s} {calls:9d} {errors or '':>9} {name}"


class Syscalls:
    """The system calls of a run."""

    def __init__(self, file: core.TraceFile, selection: dict[str, Any]) -> None:
        self._file = file
        self._selection = selection

    def table(self) -> Table:
        """A row per call, in the order in which they ended.

        Columns: time (of its beginning) and duration (ns), pid, cpu, syscall, arg0…arg5, ret, errno; buffer where of
        several.
        """
        return Table(core.syscall_table(self._file, **self._selection))

    def lines(self, *, limit: int | None = None) -> Iterator[str]:
        """Strace's lines, as ``-ttt -T`` prints them: time, call with its arguments, result, duration.

        Flags are decoded for the calls of file I/O; descriptors carry the path that they were opened with where the
        recording has it: 7.x kernels, or ``record(paths=True)``; where events were lost none does, as it may be of
        another file by then.

        Raises:
            UnsupportedError: The recording's times are ticks of some clock.
            InputError: The calls are of several buffers.
        """
        self._file.require_ns(self._selection.get("buffer"), "system calls in strace's form")
        from sampleblk_lab.analysis.strace_lines import lines

        if limit is not None:
            limit = checked.count("limit", limit, 0, sys.maxsize)
        return lines(self._file, of_one_buffer(self.table(), "lines of system calls"), self._selection, limit)

    def summary(self) -> SyscallSummary:
        """Calls, errors and time by system call, as ``strace -C`` prints them; with several buffers, a row for each.

        Raises:
            UnsupportedError: The recording's times are ticks of some clock.
        """
        return SyscallSummary(core.syscall_summary(self._file, **self._selection), key="syscall")

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return self.table().rows()

    def __repr__(self) -> str:
        return repr(self.summary())

    def _repr_html_(self) -> str:
        return self.summary()._repr_html_()
