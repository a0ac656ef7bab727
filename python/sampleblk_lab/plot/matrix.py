# SPDX-License-Identifier: MIT
"""One result over two kinds of settings: lines where there are few, else a map with the values in it."""

from __future__ import annotations

import math
import re
import statistics
from typing import TYPE_CHECKING, Any

from sampleblk_lab.errors import InputError
from sampleblk_lab.plot.style import CHARACTER, Plot, columns_axis, duration, label, labels, room_below

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from matplotlib.axes import Axes

# As many lines as there are colours and dashes.
_LINES = 6

# A map of more rows is longer than anybody reads, and takes minutes to draw.
_ROWS = 200

# From this ratio of the largest to the smallest on, equal steps are equal ratios.
_LOGARITHMIC = 20

# On a cell of the map. Not of the themes' colours, which a dark page exchanges: the cells stay as they are.
_ON_DARK, _ON_LIGHT = "#fefefe", "#000000"


# The words that a name of a time ends in, in ns; not those of a rate, such as bytes_per_s, MB_s, kiops_s.
_TIME = re.compile(r"(?:^|_)(?:(seconds|milliseconds|microseconds|nanoseconds)|(?<=_)(s|ms|us|ns))$")
_RATE = re.compile(r"(?:^|_)(per|[kmgt]?i?b|[kmgt]?i?bytes|[kmgt]?bits?|[km]?i?ops)_[a-z]+$", re.IGNORECASE)
_NS = {"s": 1e9, "ms": 1e6, "us": 1e3, "ns": 1.0}
_NS |= {"seconds": 1e9, "milliseconds": 1e6, "microseconds": 1e3, "nanoseconds": 1.0}


def shown(metric: str) -> Callable[[float], str]:
    """How a value of a result is written, by the unit that its name ends in."""
    if (time := _TIME.search(metric)) and not _RATE.search(metric):
        factor = _NS[time[1] or time[2]]
        return lambda value: duration(value * factor)
    return (
        lambda value: f"{value:.3g}" if abs(value) < 999.5 else f"{value:,.0f}" if abs(value) < 1e7 else f"{value:.2e}"
    )


def matrix(
    rows: Mapping[str, Sequence[Sequence[float]]], columns: Sequence[str], *, metric: str, axis: str, rest: str
) -> Plot:
    """Medians of a result, and the range of its repeats where they are lines.

    Args:
        rows: By the settings of a row, for each column the values of all repeats; none where there is no result.
        columns: The settings of the columns.
        metric: What the values are.
        axis: What the columns are.
        rest: What the rows are.

    Raises:
        InputError: There is no value, or there are too many rows.
    """
    if not any(values for row in rows.values() for values in row):
        raise InputError(f"no trial that is done has returned {metric!r}", expected="results to be shown")
    if len(rows) > _ROWS:
        raise InputError(f"{len(rows)} rows of {rest}", expected=f"{_ROWS} at most; choose another axis")
    if len(rows) <= _LINES:
        return _lines(rows, columns, metric, axis, rest)
    return _map(rows, columns, metric, axis, rest)


def _is_wide(values: list[float]) -> bool:
    return min(values) > 0 and max(values) / min(values) > _LOGARITHMIC


def _lines(
    rows: Mapping[str, Sequence[Sequence[float]]], columns: Sequence[str], metric: str, axis: str, rest: str
) -> Plot:
    write = shown(metric)
    below = room_below(columns)

    def draw(axes: Axes) -> None:
        from matplotlib.ticker import FuncFormatter, NullFormatter

        every = [value for row in rows.values() for values in row for value in values]
        named = labels(name or metric for name in rows)
        for number, row in enumerate(rows.values()):
            # Beside each other, so that ranges can be told apart.
            offset = (number - (len(rows) - 1) / 2) * 0.06
            known = [(place + offset, values) for place, values in enumerate(row) if values]
            middle = [statistics.median(values) for _, values in known]
            reach = [
                [one - min(values) for one, (_, values) in zip(middle, known, strict=True)],
                [max(values) - one for one, (_, values) in zip(middle, known, strict=True)],
            ]
            marker = "osD^vP"[number]
            axes.errorbar([x for x, _ in known], middle, yerr=reach, marker=marker, capsize=3, label=named[number])
        columns_axis(axes, columns, upright=below > 0)
        axes.set_xlim(-0.5, len(columns) - 0.5)
        axes.grid(visible=False, axis="x")
        axes.set_xlabel(axis)
        if _is_wide(every):
            axes.set_yscale("log")
            axes.yaxis.set_minor_formatter(NullFormatter())
        else:
            axes.set_ylim(bottom=min(0.0, *every))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: write(value)))
        axes.set_title(f"{label(metric)}, median and range")
        if rest:
            axes.legend(title=rest)

    return Plot(draw, (7.2, 4.0 + below))


def _map(
    rows: Mapping[str, Sequence[Sequence[float]]], columns: Sequence[str], metric: str, axis: str, rest: str
) -> Plot:
    write = shown(metric)
    cells = [[statistics.median(values) if values else math.nan for values in row] for row in rows.values()]
    known = [value for row in cells for value in row if not math.isnan(value)]
    # A cell that is narrower than its value shows other digits.
    widest = max(len(write(value)) for value in known)
    beside = 1.2 + CHARACTER * max(map(len, labels(rows)))
    width = max(7.2, beside + len(columns) * CHARACTER * (widest + 1))
    below = room_below(columns, width - beside)

    def draw(axes: Axes) -> None:
        import matplotlib as mpl
        from matplotlib.colors import LogNorm, Normalize

        norm: Any = (LogNorm if _is_wide(known) else Normalize)(min(known), max(known))
        colours = mpl.colormaps["cividis"]
        for top, row in enumerate(cells):
            for left, value in enumerate(row):
                if math.isnan(value):
                    axes.annotate("-", (left, top), ha="center", va="center", fontsize=8)
                    continue
                colour = colours(float(norm(value)))
                axes.add_patch(mpl.patches.Rectangle((left - 0.5, top - 0.5), 1, 1, color=colour, linewidth=0))
                bright = 0.2126 * colour[0] + 0.7152 * colour[1] + 0.0722 * colour[2] > 0.45
                axes.annotate(
                    write(value),
                    (left, top),
                    ha="center",
                    va="center",
                    fontsize=8,
                    color=_ON_LIGHT if bright else _ON_DARK,
                )
        columns_axis(axes, columns, upright=below > 0)
        axes.set_yticks(range(len(rows)), labels(rows))
        axes.set_xlim(-0.5, len(columns) - 0.5)
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.grid(visible=False)
        axes.tick_params(length=0)
        axes.set_xlabel(axis)
        axes.set_ylabel(rest)
        axes.set_title(f"{label(metric)}, median")

    return Plot(draw, (width, 1.2 + 0.28 * len(rows) + below))
