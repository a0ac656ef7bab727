# SPDX-License-Identifier: MIT
"""Comparisons as intervals around "the same"."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from sampleblk_lab.errors import InputError
from sampleblk_lab.plot.style import Plot, label
from sampleblk_lab.results.comparison import FASTER, SLOWER

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from sampleblk_lab.results import Comparison

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

    def draw(axes: Axes) -> None:
        import matplotlib as mpl

        colours = [entry["color"] for entry in mpl.rcParams["axes.prop_cycle"]]
        dim = mpl.rcParams["xtick.color"]
        # What is hardly known has an interval up to infinity, at worst: that is told, and the others stay in sight.
        end = 3 * max(1.0, *(made.ratio.value for made in named.values()))
        for row, made in enumerate(named.values()):
            mark, colour = _MARKS.get(made.verdict, ("D", None))
            ink = dim if colour is None else colours[colour % len(colours)]
            high = min(made.ratio.high, end)
            reach = [[made.ratio.value - made.ratio.low], [high - made.ratio.value]]
            axes.errorbar(
                made.ratio.value, row, xerr=reach, fmt=mark, color=ink, capsize=4, markersize=7, linestyle="none"
            )
            axes.annotate(
                made.verdict if high == made.ratio.high else f"to {made.ratio.high:.3g}: {made.verdict}",
                (high, row),
                xytext=(8, 0),
                textcoords="offset points",
                va="center",
                color=ink,
            )
        axes.axvline(1.0, color=mpl.rcParams["text.color"], linewidth=1, linestyle="-")
        axes.set_yticks(range(len(named)), [label(name) for name in named])
        axes.set_ylim(len(named) - 0.4, -0.6)
        axes.margins(x=0.25)
        axes.grid(visible=False, axis="y")
        sure = list(dict.fromkeys(made.ratio.sure for made in named.values()))
        axes.set_xlabel(f"after / before, {' and '.join(sure)} interval{'s' if len(sure) > 1 else ''}")
        axes.set_title("Comparison")

    return Plot(draw, (7.2, 1.4 + 0.42 * len(named)))
