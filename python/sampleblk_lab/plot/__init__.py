# SPDX-License-Identifier: MIT
"""Plots of results and recordings, in one style. They need matplotlib: ``pip install 'sampleblk-lab[plot]'``.

Each function returns a :class:`Plot`, which a notebook shows and ``save("x.png", dark=True)`` writes.
"""

from sampleblk_lab.plot.compared import comparison
from sampleblk_lab.plot.latency import latency_cdf, latency_heatmap, latency_percentiles
from sampleblk_lab.plot.pattern import bandwidth, block_life, offset_heatmap, queue_depth
from sampleblk_lab.plot.style import Plot

__all__ = [
    "Plot",
    "bandwidth",
    "block_life",
    "comparison",
    "latency_cdf",
    "latency_heatmap",
    "latency_percentiles",
    "offset_heatmap",
    "queue_depth",
]
