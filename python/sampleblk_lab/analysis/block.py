# SPDX-License-Identifier: MIT
"""The life of block requests, as blktrace and btt show it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from sampleblk_lab import checked
from sampleblk_lab.analysis.buffers import of_one_buffer
from sampleblk_lab.table import Table

if TYPE_CHECKING:
    from numpy.typing import NDArray

# btt's names, and from which column to which.
_STEPS = (
    ("Q2G", "queued", "gotten"),
    ("G2I", "gotten", "inserted"),
    ("G2D", "gotten", "issued"),
    ("I2D", "inserted", "issued"),
    ("D2C", "issued", "completed"),
    ("Q2C", "queued", "completed"),
)


class Block:
    """The block requests of a recording.

    Args:
        table: A row a request, of :func:`core.block_table`.
    """

    def __init__(self, table: Table) -> None:
        self._table = table

    def table(self) -> Table:
        """A row a request.

        Returns:
            Columns device, sector, sectors (of 512 bytes), operation, rwbs, pid (who queued it), issuer and completer
            (the tasks that ran then; -1: no such event), queued, gotten, inserted, issued, completed (ns; 0: no such
            event), merges, error (errno), and buffer where the requests are of several. The parts of a bio that was
            split have its time of queueing. Of what several tasks had in work at one place, an end is that of the task
            that saw it, else of the latest.
        """
        return self._table

    def __len__(self) -> int:
        return len(self._table)

    def _spans(self, step: str, source: str, target: str) -> NDArray[Any]:
        begin, end = (self._table[name].codes.astype(np.int64) for name in (source, target))
        there = (begin > 0) & (end > 0)
        if step == "G2D":
            there &= self._table["inserted"].codes == 0
        spans: NDArray[Any] = (end - begin)[there]
        return spans

    def latency(self) -> Table:
        """Btt's table of where requests spend their time.

        Returns:
            Columns step (Q2Q, Q2G, G2I, I2D, D2C, Q2C; the key), count, minimum, average, median, p99, maximum (ns).
            Q2Q is between the queueing of one request and the next of the same device. G2D is of requests that no
            scheduler held and that were issued straight from their task's plug: they have no I.

        Raises:
            InputError: The requests are of several buffers.
        """
        of_one_buffer(self._table, "latencies of requests")
        spans: dict[str, NDArray[Any]] = {"Q2Q": self._gaps()}
        spans |= {step: self._spans(step, source, target) for step, source, target in _STEPS}
        spans = {name: values for name, values in spans.items() if len(values)}
        columns: dict[str, Any] = {
            "step": list(spans),
            "count": np.array([len(values) for values in spans.values()], dtype=np.uint64),
        }
        for name, of in (
            ("minimum", np.min),
            ("average", np.mean),
            ("median", np.median),
            ("p99", lambda values: np.percentile(values, 99)),
            ("maximum", np.max),
        ):
            columns[name] = np.array([float(of(values)) for values in spans.values()])
        units = dict.fromkeys(("minimum", "average", "median", "p99", "maximum"), self._table["queued"].unit)
        return Table.of(columns, units=units, metadata=self._table.metadata, key="step")

    def _gaps(self) -> NDArray[Any]:
        # The parts of a bio that was split were queued once, by one task.
        names = ("device", "queued", "pid")
        device, queued, _ = np.unique([self._table[name].codes.astype(np.int64) for name in names], axis=1)
        parts = [np.diff(queued[(device == one) & (queued > 0)]) for one in np.unique(device)]
        return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)

    def queue_depth(self, device: str | None = None) -> Table:
        """How many requests the driver had, over time.

        Args:
            device: ``"major,minor"``; default all devices together.

        Returns:
            Columns time (ns) and depth (after that moment's change).

        Raises:
            InputError: The requests are of several buffers; or no request is of that device.
        """
        of_one_buffer(self._table, "a queue's depth")
        issued, completed = (self._table[name].codes.astype(np.int64) for name in ("issued", "completed"))
        chosen = (issued > 0) & (completed > 0)
        if device is not None:
            devices = self._table["device"].values
            chosen &= devices == checked.one_of("device", device, sorted(set(devices.tolist())))
        time = np.concatenate([issued[chosen], completed[chosen]])
        step = np.concatenate([np.ones(chosen.sum(), np.int64), -np.ones(chosen.sum(), np.int64)])
        # At one moment completions go first, so that the depth is never overstated.
        order = np.lexsort((step, time))
        return Table.of(
            {"time": time[order].astype(np.uint64), "depth": np.cumsum(step[order])},
            units={"time": self._table["issued"].unit},
            metadata=self._table.metadata,
        )

    def __repr__(self) -> str:
        return repr(self.latency())

    def _repr_html_(self) -> str:
        return self.latency()._repr_html_()
