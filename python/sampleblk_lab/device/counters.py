# SPDX-License-Identifier: MIT
"""What a device has done."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from sampleblk_lab.table import Table

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclasses.dataclass(frozen=True, slots=True)
class Counters:
    """What a device, or one of its hardware queues, has completed since it was made.

    Counters subtract: ``after - before`` is what happened between. ``counters["writes"]`` is ``counters.writes``.

    Attributes:
        reads: Requests.
        writes: Requests.
        discards: Requests.
        write_zeroes: Requests.
        flushes: Requests.
        fua_writes: Those of the writes that carried FUA (force unit access).
        read_bytes: Bytes.
        write_bytes: Bytes.
        discard_bytes: Bytes.
        write_zeroes_bytes: Bytes.
        errors: Requests that failed, of whatever kind.
        deferred: Requests that had to wait for memory in the driver's worker.
        delayed: Requests that a timer completed.
        faults: Requests that a fault rule acted on.
        batched: Requests that came to the driver several at a time.
        polled: Requests that polling completed.
    """

    reads: int = 0
    writes: int = 0
    discards: int = 0
    write_zeroes: int = 0
    flushes: int = 0
    fua_writes: int = 0
    read_bytes: int = 0
    write_bytes: int = 0
    discard_bytes: int = 0
    write_zeroes_bytes: int = 0
    errors: int = 0
    deferred: int = 0
    delayed: int = 0
    faults: int = 0
    batched: int = 0
    polled: int = 0

    def __getitem__(self, name: str) -> int:
        if name not in self.keys():
            raise KeyError(f"no counter {name!r}; there are {', '.join(self.keys())}")
        value: int = getattr(self, name)
        return value

    def keys(self) -> list[str]:
        """The names, in order; with ``[]`` this makes ``dict(counters)`` work."""
        return [field.name for field in dataclasses.fields(self)]

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def __len__(self) -> int:
        return len(self.keys())

    def __sub__(self, earlier: Counters) -> Counters:
        return Counters(**{name: self[name] - earlier[name] for name in self.keys()})

    def table(self) -> Table:
        """The same as a table of columns ``counter`` and ``value``, for a report."""
        names = self.keys()
        values = np.array([self[name] for name in names], dtype=np.uint64)
        return Table.of({"counter": names, "value": values}, key="counter")

    def __str__(self) -> str:
        return str(self.table())

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()
