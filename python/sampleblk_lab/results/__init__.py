# SPDX-License-Identifier: MIT
"""Measurements and what they say: repeated until known, stored as run directories, compared with care.

This file imports nothing until it is asked: each session of pytest asks what machine it is on, and few compare.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sampleblk_lab.results.comparison import Comparison as Comparison
    from sampleblk_lab.results.comparison import compare as compare
    from sampleblk_lab.results.repeat import Measurement as Measurement
    from sampleblk_lab.results.repeat import measure as measure
    from sampleblk_lab.results.repeat import measure_both as measure_both
    from sampleblk_lab.results.sets import compare_sets as compare_sets
    from sampleblk_lab.results.store import runs as runs

_HOMES = {
    "Comparison": "comparison",
    "Measurement": "repeat",
    "compare": "comparison",
    "compare_sets": "sets",
    "measure": "repeat",
    "measure_both": "repeat",
    "runs": "store",
}

__all__ = [*sorted(_HOMES)]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
