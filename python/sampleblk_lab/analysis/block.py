# SPDX-License-Identifier: MIT
"""The life of block requests, as blktrace and btt show it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from sampleblk_lab import checked
from sampleblk_lab.buffers import of_one_buffer
from sampleblk_lab.errors import UnsupportedError
from sampleblk_lab.table import Table

if TYPE_CHECKING:
    from collections.abc import Collection

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
# What tells how long the driver has a request, and how long one without requests has a bio.
_ENDS = frozenset({"block_rq_issue", "block_rq_complete"})
_BIO_ENDS = frozenset({"block_bio_queue", "block_bio_complete"})
# Operations whose requests complete where they were issued. "Z" and, before Linux 6.19, "N" may be zone appends; a
# flush ends twice, once as it was issued for another.
_PAIRED = ("R", "W", "D")
_STEP_EVENTS = _ENDS | _BIO_ENDS | {"block_getrq", "block_rq_insert"}


class Block:
    """The block requests of a recording.

    Args:
        table: A row a request, of :func:`core.block_table`.
        events: The block events that the recording would have; default all.
        ends_of_parts: Whether the kernel tells the end of each part of a bio (Linux 5.10 only that of the last).
    """

    def __init__(
        self, table: Table, events: Collection[str] = (*_ENDS, *_BIO_ENDS), *, ends_of_parts: bool = True
    ) -> None:
        self._table = table
        self._ends_of_parts = ends_of_parts
        self._lossless = table.metadata.get("lost_events", "0") == "0" and not {"gaps", "unread"} & set(table.metadata)
        self._has_steps = len(_STEP_EVENTS.intersection(events)) > 1 or "block_bio_queue" in events
        self._has_requests, self._has_bios = _ENDS.issubset(events), _BIO_ENDS.issubset(events)

    def table(self) -> Table:
        """A row a request.

        Returns:
            Columns device, sector, sectors (of 512 bytes), operation, rwbs, pid (who queued it), issuer and completer
            (the tasks that ran then; -1: no such event), queued, gotten, inserted, issued, completed (ns; 0: no such
            event), merges, error (errno), and buffer where the requests are of several. The parts of a bio that was
            split have its time of queueing. Of what several tasks had in work at one place, an end is that of the task
            that saw it, else of the latest. A completion whose request was not seen before (``metadata["unpaired"]``)
            has a row, with pid -1. A zone append (``ZA``, Linux 6.19) has one as it is issued, at the start of its
            zone, and another as it completes, where it was written (``metadata["appends"]``): no event says which
            belong together. Before 6.19 they are an ``N`` like others. A bio that may not wait (``RWF_NOWAIT``;
            io_uring asks for that first) and would have to has a row with error EAGAIN, and its second try another:
            btt counts both in Q2C, as :meth:`latency` does. Of a bio that was split, and of the bios of one large
            discard, Linux 5.10 has the completion of the last part alone.
        """
        return self._table

    def __len__(self) -> int:
        return len(self._table)

    def _spans(self, step: str, source: str, target: str) -> NDArray[Any]:
        begin, end = (self._table[name].codes.astype(np.int64) for name in (source, target))
        there = (begin > 0) & (end >= begin)  # else of a damaged page, whose time nobody can tell
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
            UnsupportedError: Only one kind of their events was recorded.
        """
        of_one_buffer(self._table, "latencies of requests")
        if not self._has_steps:
            raise UnsupportedError("latencies of requests", "one end of each was not recorded", "record(block=True)")
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
        names = ("device", "queued", "pid")
        rows = np.array([self._table[name].codes.astype(np.int64) for name in names])
        # The parts of a bio that was split were queued once, by one task. Else such rows are bios of one microsecond.
        if self._table.metadata.get("splits", "0") != "0":
            rows = np.unique(rows, axis=1)
        device, queued, _ = rows
        parts = [np.diff(np.sort(queued[(device == one) & (queued > 0)])) for one in np.unique(device)]
        return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)

    def _with_parts(self, begun: NDArray[Any]) -> NDArray[Any]:
        """The completions; of bios that have none that of the part which follows: the last ends after all others."""
        device, operation, pid, sector, sectors, completed = (
            self._table[name].codes.astype(np.int64)
            for name in ("device", "operation", "pid", "sector", "sectors", "completed")
        )
        behind = sector + sectors
        ends: dict[tuple[int, ...], int] = {}
        for row in np.flatnonzero(begun | np.isin(sector, behind[begun]))[::-1].tolist():
            who = device[row], operation[row], pid[row]
            if begun[row]:
                completed[row] = ends.get((*who, behind[row]), 0)
            ends[*who, sector[row]] = completed[row]
        return completed.astype(np.uint64)

    def queue_depth(self, device: str | None = None) -> Table:
        """How many requests the driver had, over time; one that was requeued from its last issue on.

        Of a driver that makes no requests (mode ``"bio"``, device mapper) these are the bios, from their queueing on,
        without those in flight as the recording began; of parts whose completion the kernel does not tell (see
        :meth:`table`), to that of the last one. Where other devices do make requests, all together are those,
        and ``metadata["bios_left_out"]`` names the devices of bios: a device mapper's come again beneath it.

        Requests of which the recording has one end only, in flight as it began or ended, count to its end or from its
        beginning; those of a zoned device's appends, and flushes, as few as their ends allow. Where events were lost
        (``metadata["lost_events"]``), they are left out: the other end may be among what is missing, and the depth
        would never come down again. Either way ``metadata["unfinished"]`` counts those without completion,
        ``metadata["unpaired"]`` those without issue.
        Nothing tells of a recording that it was limited to some tasks (``trace-cmd record -P``): it lacks
        completions that came in others, so that its depth only grows, and ``least`` is all that can be said.

        Args:
            device: ``"major,minor"``; default all devices together.

        Returns:
            Columns time (ns), depth (after that moment's change) and least (the same of requests with both ends).

        Raises:
            InputError: The requests are of several buffers; or no request is of that device.
            UnsupportedError: The recording is one without issues, or without completions.
        """
        of_one_buffer(self._table, "a queue's depth")
        names = ("queued", "gotten", "inserted", "issued", "completed")
        queued, gotten, inserted, issued, completed = (self._table[name].codes.astype(np.uint64) for name in names)
        # By their codes: numpy compares each of many strings with each.
        devices = self._table["device"].codes
        words = self._table["device"].categories or []
        there = {words[code]: code for code in np.unique(devices)}
        chosen = np.ones(len(issued), dtype=bool)
        if device is not None:
            chosen = devices == there[checked.one_of("device", device, sorted(there))]
        made = (issued | gotten | inserted) > 0
        makers = np.isin(devices, devices[chosen & made])
        bios = chosen & ~makers & np.isin(devices, devices[~made & (queued > 0) & (completed > 0)])
        of_bios = self._has_bios and bios.any() and not makers.any()
        if not (of_bios or self._has_requests):
            raise UnsupportedError(
                "a queue's depth", "issues and completions were not both recorded", "record(block=True)"
            )
        begin = np.where(bios, queued, 0) if of_bios else issued
        guessed = chosen & (begin > 0) & (completed == 0)
        if of_bios and not self._ends_of_parts:
            completed = self._with_parts(guessed)
        guessed &= completed > 0
        whole = chosen & (begin > 0) & (completed >= begin)
        begun = chosen & (begin > 0) & (completed == 0)
        # An empty flush is queued and completed, and others are issued for it.
        ended = chosen & (completed > 0) & ((queued | gotten | inserted | issued) == 0)
        metadata = {
            **self._table.metadata,
            "unfinished": str(np.count_nonzero(begun)),
            "unpaired": str(np.count_nonzero(ended)),
        }
        if bios.any() and not of_bios:
            metadata["bios_left_out"] = ", ".join(sorted(words[code] for code in np.unique(devices[bios])))
        if not self._lossless:
            begun, ended = begun & False, ended & False
        time = np.concatenate([begin[whole], completed[whole], begin[begun], completed[ended]])
        step = np.repeat([1, -1, 1, -1], [np.count_nonzero(part) for part in (whole, whole, begun, ended)])
        halves = np.concatenate(
            [guessed[whole], guessed[whole], np.full(np.count_nonzero(begun | ended), fill_value=True)]
        )
        # Of these an end is one of a request that was in flight as the recording began; of others, perhaps of one that
        # is there as begun.
        sure = np.isin(self._table["operation"].values, _PAIRED) & ~guessed
        sures = np.concatenate([sure[part] for part in (whole, whole, begun, ended)])
        # At one moment completions go first, so that the depth is never overstated.
        order = np.lexsort((step, time))
        time, step, halves, sures = time[order], step[order], halves[order], sures[order]
        places = np.concatenate([devices[part] for part in (whole, whole, begun, ended)])[order]
        before = np.count_nonzero(halves & sures & (step < 0))
        unsure = halves & ~sures
        before += sum(-min(0, np.cumsum(step[unsure & (places == one)]).min()) for one in np.unique(places[unsure]))
        return Table.of(
            {
                "time": time,
                "depth": before + np.cumsum(step),
                "least": np.cumsum(np.where(halves, 0, step)),
            },
            units={"time": self._table["issued"].unit},
            metadata=metadata,
        )

    def __repr__(self) -> str:
        return repr(self.latency())

    def _repr_html_(self) -> str:
        return self.latency()._repr_html_()
