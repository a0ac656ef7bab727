# SPDX-License-Identifier: MIT
"""Rows of several ring buffers: a table may hold them all, a sum may not count one thing twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sampleblk_lab.errors import InputError

if TYPE_CHECKING:
    from sampleblk_lab.table import Table


def of_one_buffer(table: Table, what: str) -> Table:
    """The table, whose rows `what` sums.

    Raises:
        InputError: They are of several buffers, which may hold the same events.
    """
    if "buffer" not in table:
        return table
    column = table["buffer"]
    codes = np.unique(column.codes)
    if len(codes) > 1:
        names = [repr((column.categories or [])[code]) for code in codes]
        raise InputError(f"{what} over the buffers {', '.join(names)}", expected=f"one of them: buffer={names[0]}")
    return table
