# SPDX-License-Identifier: MIT
"""System calls as strace shows them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sampleblk_lab._native import core
from sampleblk_lab.table import Table

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
        lines = ["% time     seconds  usecs/call     calls    errors syscall", rule]
        seconds = calls = errors = 0.0
        for row in self.rows():
            error = str(row["errors"]) if row["errors"] else ""
            lines.append(
                f"{row['percent_time']:6.2f} {row['seconds']:11.6f} {row['usecs_per_call']:11.0f} "
                f"{row['calls']:9d} {error:>9s} {row['syscall']}"
            )
            seconds += float(row["seconds"] or 0)
            calls += int(row["calls"] or 0)
            errors += int(row["errors"] or 0)
        each = f"{seconds * 1e6 / calls:11.0f}" if calls else " " * 11
        total = f"{100.0 if calls else 0.0:6.2f} {seconds:11.6f} {each} {calls:9.0f} {errors or '':>9} total"
        lines += [rule, total if not errors else total.replace(f"{errors}", f"{errors:.0f}".rjust(len(f"{errors}")))]
        lines.extend(f"{name}: {value}" for name, value in self.metadata.items())
        return "\n".join(lines)

    def __repr__(self) -> str:
        return self.text()


class Syscalls:
    """The system calls of a run."""

    def __init__(self, file: core.TraceFile, selection: dict[str, Any]) -> None:
        self._file = file
        self._selection = selection

    def table(self) -> Table:
        """One row a call: time and duration (ns), pid, cpu, syscall, arg0…arg5, ret, errno."""
        return Table(core.syscall_table(self._file, **self._selection))

    def lines(self, *, limit: int | None = None) -> Iterator[str]:
        """Strace's lines, as ``-ttt -T`` prints them: time, call with its arguments, result, duration.

        Flags are decoded for the calls of file I/O; descriptors carry the path that they were opened with where the
        recording has it: 7.x kernels, or ``record(paths=True)``.
        """
        from sampleblk_lab.analysis.strace_lines import lines

        return lines(self._file, self.table(), self._selection, limit)

    def summary(self) -> SyscallSummary:
        """Calls, errors and time by system call, as ``strace -C`` prints them."""
        return SyscallSummary(core.syscall_summary(self._file, **self._selection), key="syscall")

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return self.table().rows()

    def __repr__(self) -> str:
        return repr(self.summary())

    def _repr_html_(self) -> str:
        return self.summary()._repr_html_()
