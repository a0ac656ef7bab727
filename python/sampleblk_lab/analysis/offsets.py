# SPDX-License-Identifier: MIT
"""File offsets of reads and writes over time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from sampleblk_lab import checked
from sampleblk_lab._native import core
from sampleblk_lab.buffers import of_one_buffer
from sampleblk_lab.table import Table
from sampleblk_lab.texts import notes

if TYPE_CHECKING:
    from numpy.typing import NDArray

_SHADES = " .:-=+*#%@"


class Offsets:
    """Where in their files the calls read and wrote, also for plain read(2) and write(2).

    Args:
        calls: The system-call table; with the opens and seeks in it the offsets are exact, without them they count
            from where the recording began (``known`` is 0). So they do of what is written with ``O_APPEND`` or
            ``RWF_APPEND``, to wherever the file ends, and of all that moves a descriptor's own place where calls may be
            missing: events were lost, or lines left unread. A descriptor is its task's, and that of the threads and
            processes that the task makes meanwhile: what another one that shares it reads or writes moves it unseen.
    """

    def __init__(self, calls: Table) -> None:
        self._table = Table(core.offset_table(calls._table))  # noqa: SLF001

    def table(self) -> Table:
        """A row a call: time, duration (ns), pid, fd, operation, offset, size (bytes), known.

        ``metadata["unknown_offsets"]`` counts those that are not known, where there are any.
        """
        return self._table

    def __len__(self) -> int:
        return len(self._table)

    def heatmap(self, columns: int = 60, rows: int = 20) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Bytes moved, by the time at which a call began, and offset.

        Returns:
            The bytes, shape ``(rows, columns)``, row 0 the lowest offsets; the edges of time (ns) and of offset.

        Raises:
            InputError: The calls are of several buffers; or there would be no cell.
        """
        checked.count("columns", columns)
        checked.count("rows", rows)
        of_one_buffer(self._table, "offsets over time")
        time, offset, size = (self._table[name].codes for name in ("time", "offset", "size"))
        if len(time) == 0:
            return np.zeros((rows, columns)), np.zeros(columns + 1), np.zeros(rows + 1)
        # From the first on: a time of day in ns is too large for the digits of a float.
        since = time - time.min()
        edges_time = np.linspace(0, int(since.max()) + 1, columns + 1)
        edges_offset = np.linspace(0, int((offset + size).max()) or 1, rows + 1)
        counts = np.zeros((rows, columns))
        column = np.clip(np.searchsorted(edges_time, since, side="right") - 1, 0, columns - 1)
        begin, end = offset.astype(np.float64), (offset + size).astype(np.float64)
        first = np.clip(np.searchsorted(edges_offset, begin, side="right") - 1, 0, rows - 1)
        within = end <= edges_offset[first + 1]
        np.add.at(counts, (first[within], column[within]), size[within])
        # A large call is in all the rows that it moved bytes of.
        begin, end, column = begin[~within], end[~within], column[~within]
        for row in range(rows if len(begin) else 0):
            moved = np.minimum(end, edges_offset[row + 1]) - np.maximum(begin, edges_offset[row])
            np.add.at(counts[row], column, np.maximum(moved, 0))
        return counts, int(time.min()) + edges_time, edges_offset

    def sequential(self) -> float:
        """The share of calls that begin where the task's call before on that descriptor ended; 1.0 is sequential."""
        ends: dict[tuple[int, int], int] = {}
        names = ("pid", "fd", "offset", "size")
        of_one_buffer(self._table, "the share of sequential calls")
        follows = seen = 0
        for pid, descriptor, offset, size in zip(*(self._table[name].codes.tolist() for name in names), strict=True):
            before = ends.get((pid, descriptor))
            if before is not None and offset != 0:
                seen += 1
                follows += before == offset
            ends[pid, descriptor] = offset + size
        return follows / seen if seen else 1.0

    def text(self, columns: int = 60, rows: int = 20) -> str:
        """The heat map in characters, offset 0 at the bottom."""
        counts, edges_time, edges_offset = self.heatmap(columns, rows)
        most = counts.max() or 1
        lines = [
            f"{core.format_bytes(int(edges_offset[row + 1])):>9s} |"
            + "".join(_SHADES[int(np.ceil(value / most * (len(_SHADES) - 1)))] for value in counts[row])
            for row in reversed(range(rows))
        ]
        lines.append(" " * 10 + "+" + "-" * columns)
        span, unit = int(edges_time[-1] - edges_time[0]), self._table["time"].unit
        shown = core.format_duration(span) if unit == "ns" else f"{span} {unit}"
        lines.append(" " * 11 + "0" + shown.rjust(columns - 1))
        lines.extend(notes(self._table.metadata))
        return "\n".join(lines)

    def __repr__(self) -> str:
        return self.text()

    def _repr_png_(self) -> bytes | None:
        """The heat map as a picture; None, so that the text is shown, where there is no matplotlib or no call."""
        from sampleblk_lab.errors import SampleblkError
        from sampleblk_lab.plot import offset_heatmap

        try:
            return offset_heatmap(self)._repr_png_()
        except SampleblkError:
            return None
