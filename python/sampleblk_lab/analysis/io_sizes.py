# SPDX-License-Identifier: MIT
"""Sizes of reads and writes, in the form of SystemTap's fiohist.stp."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from sampleblk_lab.analysis.notebook import preformatted
from sampleblk_lab.buffers import of_one_buffer
from sampleblk_lab.table import Table
from sampleblk_lab.texts import notes, readable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

_READS = ("read", "pread64", "readv", "preadv", "preadv2")
_WRITES = ("write", "pwrite64", "writev", "pwritev", "pwritev2")
_OPENS = ("open", "openat", "openat2", "creat")
# Characters of the longest bar.
_BAR = 50


class IoSizes:
    """Bytes that each read and write call moved.

    Args:
        calls: The system-call table.
        commands: Thread id to command, for the report's names.

    Raises:
        InputError: The calls are of several buffers.
    """

    def __init__(self, calls: Table, commands: Mapping[int, str]) -> None:
        of_one_buffer(calls, "sizes of reads and writes")
        self._names = calls["syscall"].values
        self._ret = calls["ret"].codes
        self._pid = calls["pid"].codes
        self._commands = commands
        self._metadata = calls.metadata

    def _sizes(self, names: tuple[str, ...]) -> NDArray[Any]:
        chosen: NDArray[Any] = self._ret[np.isin(self._names, names) & (self._ret >= 0)]
        return chosen

    def histogram(self) -> Table:
        """Powers of two: columns value (bytes, the bucket's lower end), reads, writes."""
        reads, writes = _buckets(self._sizes(_READS)), _buckets(self._sizes(_WRITES))
        used = np.flatnonzero(reads + writes)
        # One empty bucket on either side, as SystemTap prints them.
        first, last = (max(used[0] - 2, 0), min(used[-1] + 2, len(reads) - 1)) if len(used) else (0, 0)
        span = np.arange(first, last + 1)
        values = np.where(span == 0, 0, 1 << np.maximum(span - 1, 0)).astype(np.uint64)
        return Table.of(
            {"value": values, "reads": reads[span], "writes": writes[span]},
            units={"value": "bytes"},
            metadata=self._metadata,
        )

    def summary(self) -> Table:
        """A row a command: opens, reads, bytes read and their average, the same for writes. Key: name."""
        names = np.array([self._commands.get(int(pid), str(pid)) for pid in self._pid], dtype=object)
        rows: dict[str, list[Any]] = {
            key: [] for key in ("name", "open", "read", "read_bytes", "read_avg", "write", "write_bytes", "write_avg")
        }
        for name in sorted(set(names.tolist())):
            own = names == name
            rows["name"].append(name)
            rows["open"].append(int((own & np.isin(self._names, _OPENS)).sum()))
            for kind, calls in (("read", _READS), ("write", _WRITES)):
                moved = self._ret[own & np.isin(self._names, calls) & (self._ret >= 0)]
                rows[kind].append(len(moved))
                rows[f"{kind}_bytes"].append(int(moved.sum()))
                rows[f"{kind}_avg"].append(float(moved.mean()) if len(moved) else 0.0)
        columns: dict[str, Any] = {
            key: values if key == "name" else np.array(values, dtype=np.float64 if "avg" in key else np.uint64)
            for key, values in rows.items()
        }
        units = {key: "bytes" for key in columns if key.endswith(("_bytes", "_avg"))}
        return Table.of(columns, units=units, metadata=self._metadata, key="name")

    def text(self) -> str:
        """The report of fiohist.stp: the summary, then a histogram for reads and one for writes."""
        lines = [
            "IO Summary:",
            "",
            "                                   read     read             write    write",
            "            name     open     read   KB tot    B avg    write   KB tot    B avg",
        ]
        for row in self.summary().rows():
            number = {name: float(value) for name, value in row.items() if isinstance(value, int | float)}
            lines.append(
                f"{readable(str(row['name'])):>16s} {number['open']:8.0f} "
                f"{number['read']:8.0f} {number['read_bytes'] // 1024:8.0f} {number['read_avg']:8.0f} "
                f"{number['write']:8.0f} {number['write_bytes'] // 1024:8.0f} {number['write_avg']:8.0f}"
            )
        table = self.histogram()
        for kind in ("read", "write"):
            counts = table[f"{kind}s"].codes
            if counts.sum() == 0:
                continue
            lines += ["", f"{kind.capitalize()} I/O size (bytes):", ""]
            lines += _bars(table["value"].codes, counts)
        lines += ["", *notes(self._metadata)]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        return preformatted(self.text())


def _buckets(sizes: NDArray[Any]) -> NDArray[Any]:
    """Counts by power of two: [0] zero bytes, [n] 2^(n-1) up to 2^n - 1."""
    # Not by a logarithm, which rounds 2^n - 1 up.
    exponent = np.searchsorted(np.int64(1) << np.arange(63, dtype=np.int64), sizes, side="right")
    counts: NDArray[Any] = np.bincount(exponent, minlength=64).astype(np.uint64)
    return counts


def _bars(values: NDArray[Any], counts: NDArray[Any]) -> list[str]:
    width = max(len(str(values[-1])), 5)
    digits = max(len(str(counts.max())), 5)
    per_mark = max(int(counts.max()), _BAR) / _BAR
    lines = [f"{'value':>{width}s} |{'-' * _BAR} {'count':>{digits}s}"]
    used = np.flatnonzero(counts)
    shown = range(max(int(used[0]) - 2, 0), min(int(used[-1]) + 3, len(counts)))
    return lines + [
        f"{values[i]:{width}d} |{'@' * round(int(counts[i]) / per_mark):<{_BAR}s} {counts[i]:{digits}d}" for i in shown
    ]
