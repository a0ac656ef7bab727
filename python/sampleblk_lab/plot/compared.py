# SPDX-License-Identifier: MIT
"""Comparisons as intervals around "the same"."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from sampleblk_lab.errors import InputError
from sampleblk_lab.plot.style import CHARACTER, Plot, labels
from sampleblk_lab.results.comparison import FASTER, SLOWER

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from sampleblk_lab.results import Comparison

# From this ratio to 1 on, equal steps are equal ratios.
_LOGARITHMIC = 8

_MARKS = {FASTER: ("o", 2), SLOWER: ("s", 1)}


def comparison(comparisons: Comparison | Mapping[str, Comparison]) -> Plot:
    """Ratios after/before with their intervals; what touches the line at 1 shows no difference.

    Args:
        comparisons: One, or several by name.
    """
    named: dict[str, Comparison]
    named = dict(comparisons) if isinstance(comparisons, Mapping) else {comparisons.subject: comparisons}
    if not named:
        raise InputError("nothing to compare", expected="at least one comparison")

    # A large ratio would press all others to the line at 1.
    wide = max(abs(math.log(made.ratio.value or 1.0)) for made in named.values()) > math.log(_LOGARITHMIC)

    def draw(axes: Axes) -> None:
        import matplotlib as mpl
        from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

        colours = [entry["color"] for entry in mpl.rcParams["axes.prop_cycle"]]
        dim = mpl.rcParams["xtick.color"]
        # What is hardly known has an interval up to infinity, at worst: that is told, and the others stay in sight.
        ratios = [made.ratio.value for made in named.values()]
        end = 3 * max(1.0, *ratios)
        begin = min(1.0, *ratios) / 3 if wide else 0.0
        for row, made in enumerate(named.values()):
            mark, colour = _MARKS.get(made.verdict, ("D", None))
            ink = dim if colour is None else colours[colour % len(colours)]
            low, high = max(made.ratio.low, begin), min(made.ratio.high, end)
            reach = [[made.ratio.value - low], [high - made.ratio.value]]
            beyond = "" if low == made.ratio.low else f"from {made.ratio.low:.3g} "
            beyond += "" if high == made.ratio.high else f"to {made.ratio.high:.3g}"
            axes.errorbar(
                made.ratio.value, row, xerr=reach, fmt=mark, color=ink, capsize=4, markersize=7, linestyle="none"
            )
            axes.annotate(
                f"{beyond.strip()}: {made.verdict}" if beyond else made.verdict,
                (high, row),
                xytext=(8, 0),
                textcoords="offset points",
                va="center",
                color=ink,
            )
        if wide:
            axes.set_xscale("log")
            axes.xaxis.set_major_locator(LogLocator(numticks=6))
            axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axes.xaxis.set_minor_formatter(NullFormatter())
        axes.axvline(1.0, color=mpl.rcParams["text.color"], linewidth=1, linestyle="-")
        axes.set_yticks(range(len(named)), labels(named))
        axes.set_ylim(len(named) - 0.4, -0.6)
        axes.margins(x=0.25)
        axes.grid(visible=False, axis="y")
        sure = list(dict.fromkeys(made.ratio.sure for made in named.values()))
        axes.set_xlabel(f"after / before, {' and '.join(sure)} interval{'s' if len(sure) > 1 else ''}")
        axes.set_title("Comparison")

    longest = max(map(len, labels(named)))
    return Plot(draw, (7.2 + CHARACTER * max(0, longest - 24), 1.4 + 0.42 * len(named)))
