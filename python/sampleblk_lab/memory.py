# SPDX-License-Identifier: MIT
"""How much memory this process may still use: the machine's, and its control group's (a container's)."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

#: What QEMU needs beside the guest's memory.
QEMU_MIB = 160


def available_mib(proc: Path = Path("/proc"), groups: Path = Path("/sys/fs/cgroup")) -> int:
    """Memory that can be used without swapping and within the limits of our control groups, in MiB.

    Args:
        proc: Where proc(5) is.
        groups: Where cgroup2 is (Documentation/admin-guide/cgroup-v2.rst); version 1 is not looked at.
    """
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with contextlib.suppress(OSError, ValueError, StopIteration):
        lines = (proc / "meminfo").read_text().splitlines()
        free = next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))
    with contextlib.suppress(OSError, StopIteration):
        lines = (proc / "self/cgroup").read_text().splitlines()
        mine = groups / next(line[3:] for line in lines if line.startswith("0::")).lstrip("/")
        for group in (mine, *mine.parents):
            if not group.is_relative_to(groups):
                break
            with contextlib.suppress(OSError, ValueError):
                free = min(free, _left(group))
    return max(free, 0) >> 20


def _left(group: Path) -> int:
    """What a group may still use, in bytes. Raises OSError or ValueError where it has no limit."""
    limit = int((group / "memory.max").read_text())  # "max" is none
    stat = dict(line.split(" ", 1) for line in (group / "memory.stat").read_text().splitlines())
    # Pages of files that nobody has used lately go when memory is short.
    return limit - int((group / "memory.current").read_text()) + int(stat.get("inactive_file", "0"))
