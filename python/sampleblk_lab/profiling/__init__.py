# SPDX-License-Identifier: MIT
"""CPU profiles: sampled into a perf.data, read from anybody's, shown as tables, call trees and flame graphs."""

from sampleblk_lab.profiling.profiler import Profiler, profile
from sampleblk_lab.profiling.recorded import Profile, open_profile
from sampleblk_lab.profiling.stacks import Stacks, read_folded

__all__ = ["Profile", "Profiler", "Stacks", "open_profile", "profile", "read_folded"]
