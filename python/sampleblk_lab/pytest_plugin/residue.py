# SPDX-License-Identifier: MIT
"""What a test left in the guest's kernel: taint, mounts, block devices, state of tracing."""

from __future__ import annotations

import contextlib
from pathlib import Path

# Documentation/admin-guide/tainted-kernels.rst: an out-of-tree and an unsigned module are our driver.
_OF_OUR_DRIVER = (1 << 12) | (1 << 13)

# What a device of these names stands for exists whether somebody uses it or not.
_ALWAYS_THERE = ("ram", "loop", "nbd", "zram")

_TRACEFS = Path("/sys/kernel/tracing")


def present() -> frozenset[str]:
    """What there is now, a line for each thing. A difference of two answers is what came between."""
    found = [*_taint(), *_mounts(), *_devices(), *_tracing()]
    return frozenset(found)


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:  # not there in this kernel, or gone meanwhile
        return ""


def _taint() -> list[str]:
    flags = int(_text(Path("/proc/sys/kernel/tainted")) or 0) & ~_OF_OUR_DRIVER
    return [f"kernel taint {1 << bit}" for bit in range(flags.bit_length()) if flags >> bit & 1]


def _mounts() -> list[str]:
    # proc(5), mountinfo: id, parent, device, root, mount point, …, "-", type, source
    found = []
    for line in _text(Path("/proc/self/mountinfo")).splitlines():
        left, _, right = line.partition(" - ")
        filesystem, source = right.split(" ")[:2]
        found.append(f"mount {left.split(' ')[4]} ({filesystem} of {source})")
    return found


def _devices() -> list[str]:
    found = []
    for path in Path("/sys/block").glob("*"):
        if not path.name.startswith(_ALWAYS_THERE):
            found.append(f"block device {path.name}")
        elif (path / "loop").is_dir():
            found.append(f"block device {path.name} (a loop of {_text(path / 'loop/backing_file').strip()})")
    return found


def _tracing() -> list[str]:
    found = []
    with contextlib.suppress(OSError):  # tracefs is not mounted, or somebody's instance goes meanwhile
        found += [f"tracing instance {path.name}" for path in (_TRACEFS / "instances").iterdir()]
    for name in ("kprobe_events", "uprobe_events", "synthetic_events", "dynamic_events", "set_event"):
        found += [f"{name}: {line}" for line in _text(_TRACEFS / name).splitlines()]
    tracer = _text(_TRACEFS / "current_tracer").strip()
    return [*found, *([f"tracer {tracer}"] if tracer not in ("", "nop") else [])]
