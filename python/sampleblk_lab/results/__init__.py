# SPDX-License-Identifier: MIT
"""Measurements and what they say: repeated until known, stored as run directories, compared with care."""

from sampleblk_lab.results.comparison import Comparison, compare
from sampleblk_lab.results.repeat import Measurement, measure, measure_both
from sampleblk_lab.results.sets import compare_sets
from sampleblk_lab.results.store import runs

__all__ = ["Comparison", "Measurement", "compare", "compare_sets", "measure", "measure_both", "runs"]
