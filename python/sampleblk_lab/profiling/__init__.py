# SPDX-License-Identifier: MIT
"""CPU profiles: sampled into a perf.data, read from anybody's, shown as tables, call trees and flame graphs; counts."""

from sampleblk_lab.profiling.counting import Stat, stat
from sampleblk_lab.profiling.profiler import Profiler, SampleSource, profile
from sampleblk_lab.profiling.recorded import Profile, open_profile
from sampleblk_lab.profiling.stacks import Stacks, read_folded

__all__ = [
    "Profile",
    "Profiler",
    "SampleSource",
    "Stacks",
    "Stat",
    "open_profile",
    "profile",
    "read_folded",
    "stat",
]
