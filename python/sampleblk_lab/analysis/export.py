# SPDX-License-Identifier: MIT
"""Tables for other programs: CSV, Parquet."""

from __future__ import annotations

import csv
from types import SimpleNamespace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from sampleblk_lab.table import Table

# Rows that are turned into Python's objects at a time.
_ROWS = 1 << 16


def write_csv(table: Table, path: Path) -> None:
    """A table as CSV, with a head line; missing strings are empty."""
    columns = [table[name] for name in table.columns]
    with path.open("w", newline="", encoding="utf-8") as out:
        # Older Pythons quote the line ends that their own terminator has: this one is to have both.
        rows = SimpleNamespace(write=lambda row: out.write(f"{row[:-2]}\n"))
        writer = csv.writer(rows, lineterminator="\r\n")
        writer.writerow(table.columns)
        for start in range(0, len(table), _ROWS):
            part = slice(start, start + _ROWS)
            writer.writerows(zip(*(column[part].tolist() for column in columns), strict=True))


def write_parquet(table: Table, path: Path) -> None:
    """A table as Parquet, through pyarrow."""
    import pyarrow as pa  # type: ignore[import-untyped]
    import pyarrow.parquet as pq  # type: ignore[import-untyped]

    pq.write_table(pa.table(table), path)
