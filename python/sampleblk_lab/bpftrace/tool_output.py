# SPDX-License-Identifier: MIT
"""What a tool of bcc's printed, which is meant for people, as tables."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sampleblk_lab.bpftrace.printed import histograms, lines_of, printed_table
from sampleblk_lab.errors import InputError
from sampleblk_lab.texts import read_bytes

if TYPE_CHECKING:
    from sampleblk_lab.table import Table

_LOST = re.compile(r"\b[Ll]ost (\d{1,18}) (?:events|samples)")


class BccOutput:
    """What one run printed.

    Args:
        output: Its standard output.
        messages: Its standard error.
        tool: Its name, for messages.
        incomplete: Why the output does not go to the end; empty: it does, as far as anybody knows.
    """

    def __init__(self, output: bytes, messages: bytes = b"", *, tool: str = "", incomplete: str = "") -> None:
        self.tool = tool
        self.incomplete = incomplete
        self._output = output
        self._messages = messages.decode(errors="backslashreplace")

    @property
    def printed(self) -> str:
        """All that it printed."""
        return self._output.decode(errors="backslashreplace")

    @property
    def lost_events(self) -> int:
        """How many events it said that it lost."""
        return sum(int(number) for number in _LOST.findall(self._messages + self.printed))

    @property
    def warnings(self) -> list[str]:
        """What it said on standard error."""
        return [line for line in self._messages.splitlines() if line.strip()]

    def histogram(self) -> Table:
        """The histograms of such as ``ext4dist``, ``biolatency``, ``bitesize`` and ``runqlat``.

        Returns:
            A column for each name above a histogram (``operation``, ``disk``), then ``low`` and ``high``, both
            included, in the tool's unit, and ``count``. What is printed in intervals has a column ``snapshot`` that
            counts from 0. ``metadata["measured"]`` is the tool's name of what is in the buckets.

        Raises:
            InputError: It printed none, or some of different things.
        """
        found = histograms(lines_of(self.printed), self._losses())
        if found is None:
            raise InputError(f"{self.tool or 'the tool'} has printed no histogram", expected="table(), or printed")
        return found

    def table(self, header: str | None = None) -> Table:
        """The lines of such as ``ext4slower``, ``opensnoop`` and ``syscount``, by the words of the header.

        Each word of a line belongs to the column whose head begins or ends where it does, or each column has one word.
        A line of which neither is so is counted in the metadata as ``unread_rows``.

        Args:
            header: The line that has the columns' names; None: the first line of capitals.

        Raises:
            InputError: No line is a header.
        """
        return printed_table(lines_of(self.printed), header, self._losses(), loose=True)

    def _losses(self) -> dict[str, str]:
        told = {"lost_events": str(self.lost_events)}
        if self.warnings:
            told["warnings"] = "; ".join(self.warnings)
        if self.incomplete:
            told["incomplete"] = self.incomplete
        return told

    def as_json(self) -> dict[str, Any]:
        """As plain data: what of it is a table is one."""
        found: dict[str, Any] = {"tool": self.tool, "printed": self.printed, "lost_events": self.lost_events}
        found |= {"warnings": self.warnings, "incomplete": self.incomplete}
        for name, read in (("histogram", self.histogram), ("table", self.table)):
            try:
                found[name] = list(read())
            except InputError:
                continue
        return found

    def __repr__(self) -> str:
        notes = "\n".join(f"{name}: {value}" for name, value in self._losses().items())
        return f"{self.printed.rstrip()}\n\n{notes}".lstrip("\n")


def read_bcc(path: str | os.PathLike[str]) -> BccOutput:
    """Reads what a tool of bcc's printed elsewhere, kept in a file. Raises OSError."""
    return BccOutput(read_bytes(Path(path)), tool=os.fspath(path))
