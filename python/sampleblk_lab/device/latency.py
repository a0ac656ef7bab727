# SPDX-License-Identifier: MIT
"""Measured latencies as bins of the driver's empirical model: a device that answers as slowly as another one did."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast, runtime_checkable

import numpy as np

from sampleblk_lab import checked
from sampleblk_lab._native import core
from sampleblk_lab.errors import FormatError, InputError
from sampleblk_lab.table import Table
from sampleblk_lab.texts import read_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

# The driver's operation -> the direction and the kind of latency that a workload's histogram has for it.
_MEASURED = {
    "read": ("read", "clat"),
    "write": ("write", "clat"),
    "discard": ("trim", "clat"),
    "flush": ("sync", "sync"),
}
# The tables of percentiles that fio's JSON has, by version: its name, and its unit in ns.
_PERCENTILES = {"clat": (("clat_ns", 1), ("clat", 1000)), "sync": (("lat_ns", 1), ("lat", 1000))}
_PERCENT = 100.0
# So many I/Os stand for the whole where only percentiles are known: enough for the six digits that fio gives them.
_WHOLE = 1_000_000


@runtime_checkable
class HasHistogram(Protocol):
    """What measured something: a :class:`Result`, a :class:`FioResult`."""

    def histogram(self) -> Table:
        """A row a direction, kind of latency and bin."""


class _Bins:
    """Intervals with counts, of which those that are equal add up."""

    def __init__(self) -> None:
        self._counts: dict[tuple[int, int], int] = {}

    def add(self, begin: int, end: int, count: int) -> None:
        if count:
            self._counts[begin, end] = self._counts.get((begin, end), 0) + count

    def __len__(self) -> int:
        return len(self._counts)

    def uploaded(self, less_ns: int) -> list[tuple[int, int]]:
        """As the driver wants them: ascending ends, each bin beginning where the one before ends."""
        edges: set[int] = set()
        shifted = []
        for (begin, end), count in self._counts.items():
            low = max(0, begin - less_ns)
            # What took less than is taken away took nothing.
            high = max(low + 1, end - less_ns)
            if high > core.SAMPLEBLK_MAX_LATENCY_NS:
                raise InputError(f"latency of {high} ns", expected=f"at most {core.SAMPLEBLK_MAX_LATENCY_NS} ns")
            shifted.append((low, high, count))
            edges |= {low, high}
        edge = np.array(sorted(edges), dtype=np.int64)
        ends, counts = edge[1:], _spread(edge, shifted)
        if edge[0]:
            ends, counts = np.concatenate(([edge[0]], ends)), np.concatenate(([0], counts))
        while len(ends) > core.SAMPLEBLK_MAX_BINS:
            ends, counts = _halved(ends, counts)
        return [(int(end), int(count)) for end, count in zip(ends, counts, strict=True)]


def _spread(edges: NDArray[np.int64], bins: list[tuple[int, int, int]]) -> NDArray[np.int64]:
    """The counts between neighbouring edges: a bin that others cut is spread evenly over its parts."""
    counts = np.zeros(len(edges) - 1, dtype=np.int64)
    for low, high, count in bins:
        first, last = np.searchsorted(edges, (low, high))
        # Rounded where the parts begin and end, so that they add up to the whole.
        shares = (edges[first : last + 1] - low) / (high - low) * count
        rounded: NDArray[np.int64] = np.rint(shares).astype(np.int64)
        counts[first:last] += rounded[1:] - rounded[:-1]
    return counts


def _halved(ends: NDArray[np.int64], counts: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Every two neighbouring bins as one."""
    pairs = np.arange(0, len(counts), 2)
    return ends[np.minimum(pairs + 1, len(ends) - 1)], np.add.reduceat(counts, pairs)


def _from_table(bins: _Bins, table: Table, op: str) -> None:
    names = set(table.columns)
    if {"from_ns", "to_ns", "count"} <= names:
        # Of Device.histogram(), where the last bin ends nowhere.
        for row in cast("Iterator[dict[str, int]]", table.rows()):
            begin = row["from_ns"]
            bins.add(begin, min(row["to_ns"], max(2 * begin, begin + 2)), row["count"])
        return
    missing = {"direction", "kind", "latency", "width", "count"} - names
    if missing:
        raise InputError(
            f"a table without {', '.join(sorted(missing))}",
            expected="one of Result.histogram(), FioResult.histogram() or Device.histogram()",
        )
    direction, kind = _MEASURED[op]
    chosen = (table["direction"].values == direction) & (table["kind"].values == kind)
    low, width, count = (table[name].codes[chosen].tolist() for name in ("latency", "width", "count"))
    for begin, wide, number in zip(low, width, count, strict=True):
        bins.add(begin, begin + wide, number)


def _from_percentiles(bins: _Bins, stats: Mapping[str, Any], scale: int, ios: int) -> None:
    """A latency that is known by its percentiles: evenly between two of them, from the least to the most."""
    known = sorted((float(percent), float(ns) * scale) for percent, ns in stats["percentile"].items())
    least, most = float(stats.get("min", 0)) * scale, float(stats.get("max", 0)) * scale
    before, begin = 0.0, least
    for percent, ns in [*known, (_PERCENT, most)]:
        end = min(max(ns, begin + 1), max(most, begin + 1))
        share = round(_WHOLE * percent / _PERCENT) - round(_WHOLE * before / _PERCENT)
        bins.add(int(begin), max(int(end), int(begin) + 1), share * ios)
        before, begin = percent, end


def _from_json(bins: _Bins, value: Mapping[str, Any], op: str, name: str) -> None:
    from sampleblk_lab.workload.fio import FioResult  # only who has fio's JSON pays for it

    jobs = value.get("jobs")
    if not isinstance(jobs, list) or not all(isinstance(job, dict) for job in jobs):
        raise FormatError(name, 0, 'fio\'s JSON, with a list "jobs"')
    _from_table(bins, FioResult(dict(value), "", source=name).histogram(), op)
    if len(bins):
        return
    try:
        direction, kind = _MEASURED[op]
        for job in jobs:
            stats = job.get(direction, {})
            for key, scale in _PERCENTILES[kind]:
                if stats.get(key, {}).get("percentile"):
                    _from_percentiles(bins, stats[key], scale, int(stats.get("total_ios", 1)))
                    break
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise FormatError(name, 0, f"fio's JSON: {error!r}") from error


def _read(path: Path) -> Mapping[str, Any]:
    from sampleblk_lab.workload.fio import read_report

    text = read_text(path)
    try:
        value, _ = read_report(text)
    except ValueError as error:
        raise FormatError(str(path), 0, f"fio's JSON (`fio --output-format=json+`): {error}") from error
    if not isinstance(value, dict):
        raise FormatError(str(path), 0, "an object, as fio's JSON is (`fio --output-format=json+`)")
    return value


def _collect(source: Any, op: str) -> _Bins:
    bins = _Bins()
    if isinstance(source, Table):
        _from_table(bins, source, op)
    elif hasattr(source, "set_timing"):
        _from_table(bins, source.histogram(op), op)
    elif isinstance(source, HasHistogram):
        _from_table(bins, source.histogram(), op)
    elif isinstance(source, dict):
        _from_json(bins, source, op, "fio's result")
    elif isinstance(source, str | Path) or hasattr(source, "__fspath__"):
        _from_json(bins, _read(Path(source)), op, os.fspath(source))
    else:
        begin = 0
        for end, count in source:
            if end <= begin or count < 0:
                raise InputError(f"bin ({end}, {count})", expected="ends in ns that ascend, and counts from 0")
            bins.add(begin, end, count)
            begin = end
    return bins


def latency_bins(source: Any, op: str = "read", *, less_ns: int = 0) -> list[tuple[int, int]]:
    """Turns a measurement into bins for ``Device.set_timing("empirical", bins=…)``.

    Args:
        source: What was measured. A :class:`Result` or :class:`FioResult`; a :class:`Device` that records histograms;
            the table of the ``histogram()`` of one of them; fio's JSON as a dict or as the path of a file, JSON+ (every
            bin) or plain (the percentiles, between which latencies are spread evenly), from the completion latency of
            the operation's direction; or pairs (end of the bin in ns, count), each bin beginning where the one before
            ends.
        op: read, write, discard (fio's trim) or flush (fio's sync). A table of ``Device.histogram()`` and pairs are of
            one operation anyway.
        less_ns: So much is taken off each latency, ns: what the way to a device costs without one, measured where the
            bins will be used.

    Returns:
        (end of the bin in ns, count) in ascending order, at most SAMPLEBLK_MAX_BINS of them.

    Raises:
        InputError: Nothing was measured of that operation, or a latency above 60 s.
        FormatError: A file that is not fio's JSON.
    """
    if op not in _MEASURED:
        raise InputError(f"operation {op!r}", expected=", ".join(_MEASURED))
    checked.count("less_ns", less_ns, 0, 2**64 - 1)
    bins = _collect(source, op)
    if not len(bins):
        raise InputError(f"a measurement without a {op}", expected=f"latencies of {' '.join(_MEASURED[op])}")
    return bins.uploaded(less_ns)


def measured_ops(source: Any) -> list[str]:
    """The operations that :func:`latency_bins` has bins for."""
    return [op for op in _MEASURED if len(_collect(source, op))]
