# SPDX-License-Identifier: MIT
"""How long I/O took: percentiles, distribution, and both over time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sampleblk_lab.errors import InputError
from sampleblk_lab.plot.style import Plot, bytes_axis, duration, labels, time_axis

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from sampleblk_lab.workload import Result

_PERCENTS = (50, 90, 99, 99.9, 99.99, 99.999)


def _labelled(results: Result | Mapping[str, Result]) -> dict[str, Result]:
    return dict(results) if hasattr(results, "items") else {"": results}  # type: ignore[arg-type]


def distribution(
    result: Result, kind: str = "clat", direction: str | None = None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """A result's latencies as a cumulative distribution, all jobs together.

    Returns:
        The upper ends of the histogram's bins in ns, ascending, shape ``(n,)``, and the share of I/Os up to there.

    Raises:
        InputError: No I/O of that kind was measured.
    """
    places, counts = _counted(result, kind, direction)
    return places, counts / counts[-1]


def _counted(result: Result, kind: str, direction: str | None) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The upper ends of the bins in ns, and how many I/Os there are up to there."""
    table = result.histogram()
    chosen = (table["kind"].values == kind) & (table["count"].codes > 0)
    if direction is not None:
        chosen &= table["direction"].values == direction
    ends = (table["latency"].codes[chosen] + table["width"].codes[chosen]).astype(np.float64)
    counts = table["count"].codes[chosen].astype(np.float64)
    if not len(counts):
        raise InputError(f"no {direction or 'I/O'} with a {kind} was measured", expected="a kind that the result has")
    places, where = np.unique(ends, return_inverse=True)
    return places, np.cumsum(np.bincount(where, weights=counts))


def latency_percentiles(
    results: Result | Mapping[str, Result], *, kind: str = "clat", direction: str | None = None
) -> Plot:
    """Latency at each percentile, the tail stretched: 99 %, 99.9 %, 99.99 % are equally far apart.

    Args:
        results: One result, or several by name.
        kind: ``"clat"`` (from submission to completion), ``"slat"``, ``"lat"``, …
        direction: ``"read"``, ``"write"``, ``"trim"``; all when None.
    """
    curves = {name: _counted(result, kind, direction) for name, result in _labelled(results).items()}

    def draw(axes: Axes) -> None:
        deepest = 1.0
        for name, (ends, counts) in zip(labels(curves), curves.values(), strict=True):
            # The last bin's share is 1: as deep as the number of I/Os can show.
            left = np.append(counts[-1] - counts[:-1], 0.5)
            tail = -np.log10(left / counts[-1])
            # A bin is that of all percentiles from the share before it, the first one's from 0 %, to its own.
            axes.step([0.0, *tail], [ends[0], *ends], where="pre", label=name)
            deepest = max(deepest, float(tail[-1]))
        ticks = [percent for percent in _PERCENTS if -np.log10(max(1 - percent / 100, 1e-9)) <= deepest * 1.02]
        axes.set_xticks([-np.log10(1 - percent / 100) for percent in ticks], [f"{percent:g} %" for percent in ticks])
        axes.set_yscale("log")
        time_axis(axes.yaxis, what="latency")
        axes.set_xlabel("percentile of I/Os")
        axes.set_title(f"Latency by percentile ({kind}{f', {direction}' if direction else ''})")
        if len(curves) > 1:
            axes.legend()

    return Plot(draw)


def latency_cdf(results: Result | Mapping[str, Result], *, kind: str = "clat", direction: str | None = None) -> Plot:
    """The share of I/Os that were done by then. Arguments as for :func:`latency_percentiles`."""
    curves = {name: distribution(result, kind, direction) for name, result in _labelled(results).items()}

    def draw(axes: Axes) -> None:
        for name, (ends, share) in zip(labels(curves), curves.values(), strict=True):
            axes.step([ends[0], *ends], [0, *share], where="post", label=name)
        axes.set_xscale("log")
        time_axis(axes.xaxis, what="latency")
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
        axes.set_ylim(0, 1.02)
        axes.set_ylabel("I/Os done")
        axes.set_title(f"Latency distribution ({kind}{f', {direction}' if direction else ''})")
        if len(curves) > 1:
            axes.legend(loc="center right")

    return Plot(draw)


def latency_heatmap(result: Result, direction: str = "read", *, bins: int = 48) -> Plot:
    """Completion latencies over time: the darker cells are rare, the lighter common.

    Args:
        result: Of a run.
        direction: ``"read"``, ``"write"`` or ``"trim"``.
        bins: Rows of the map.

    Raises:
        InputError: Nothing went in that direction.
    """
    ends, edges, cells = result.heatmap(direction, bins=bins)
    if cells.size == 0:
        raise InputError(f"no {direction} was measured", expected="a direction that the result has")

    def draw(axes: Axes) -> None:
        heat(axes, np.concatenate([[0.0], ends]), edges, cells.astype(np.float64), "I/Os")
        axes.set_yscale("log")
        time_axis(axes.yaxis, what="completion latency")
        time_axis(axes.xaxis, base_ns=1e9, what="time since each job began")
        axes.set_title(f"Latency over time ({direction})")

    return Plot(draw)


def heat(
    axes: Axes,
    x: NDArray[np.float64],
    y: NDArray[np.float64],
    cells: NDArray[np.float64],
    what: str,
    in_bytes: bool = False,
) -> None:
    """A map with empty cells left out and a scale beside it, which is linear for bytes."""
    from matplotlib.colors import LogNorm
    from matplotlib.ticker import LogFormatter

    filled = cells[cells > 0]
    low, high = (float(filled.min()), float(filled.max())) if filled.size else (1.0, 1.0)
    norm = LogNorm(low, high) if high > 3 * low and not in_bytes else None
    mesh = axes.pcolormesh(x, y, np.ma.masked_equal(cells, 0), norm=norm, rasterized=True)
    axes.grid(visible=False)
    figure = axes.get_figure()
    assert figure is not None
    bar = figure.colorbar(mesh, ax=axes, label=what, pad=0.01)
    if norm is not None:
        bar.formatter = bar.minorformatter = LogFormatter()
    if in_bytes:
        bytes_axis(bar.ax.yaxis)


__all__ = ["distribution", "duration", "heat", "latency_cdf", "latency_heatmap", "latency_percentiles"]
