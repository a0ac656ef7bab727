# SPDX-License-Identifier: MIT
"""What of tracing this machine can do, with the reason and the remedy for what it cannot."""

from __future__ import annotations

from pathlib import Path

from sampleblk_lab._native import core
from sampleblk_lab.errors import UnsupportedError
from sampleblk_lab.table import Table

_VM = "run inside the VM: sampleblk-python, or sampleblk-lab vm run"
# Feature, the file of tracefs that it needs, the kernel's option.
_FILES = (
    ("own instances", "instances", "CONFIG_TRACING"),
    ("system calls", "events/syscalls", "CONFIG_FTRACE_SYSCALLS"),
    ("block events", "events/block", "CONFIG_BLOCK"),
    ("function filters", "set_ftrace_filter", "CONFIG_DYNAMIC_FTRACE"),
    ("graph functions", "set_graph_function", "CONFIG_FUNCTION_GRAPH_TRACER"),
    ("histograms", "events/sched/sched_switch/hist", "CONFIG_HIST_TRIGGERS"),
    ("synthetic events", "synthetic_events", "CONFIG_SYNTH_EVENTS"),
    ("kernel probes", "kprobe_events", "CONFIG_KPROBE_EVENTS"),
    ("user probes", "uprobe_events", "CONFIG_UPROBE_EVENTS"),
    ("event probes", "dynamic_events", "CONFIG_DYNAMIC_EVENTS"),
    ("snapshots", "snapshot", "CONFIG_TRACER_SNAPSHOT"),
    ("function profiler", "function_profile_enabled", "CONFIG_FUNCTION_PROFILER"),
    ("error log", "error_log", "a kernel from 5.2 on"),
)


def preflight() -> Table:
    """Each feature of tracing, whether it works here, and if not why and what to do.

    Returns:
        Columns feature (the key), works (1 or 0), reason and remedy (text, empty where it works).
    """
    rows: list[tuple[str, bool, str, str]] = []
    try:
        top = Path(core.tracefs_dir())
    except UnsupportedError as error:
        rows.append(("tracefs", False, error.reason, error.remedy))
        return _table(rows)
    rows.append(("tracefs", True, "", ""))
    writable = (top / "tracing_on").exists() and _may_write(top / "tracing_on")
    rows.append(
        (
            "control",
            writable,
            "" if writable else "the control files are not ours to write",
            "" if writable else "run as root",
        )
    )
    tracers = (top / "available_tracers").read_text().split()
    for tracer in ("function", "function_graph", "blk"):
        works = tracer in tracers
        rows.append(
            (f"{tracer} tracer", works, "" if works else "the kernel is built without it", "" if works else _VM)
        )
    for feature, file, option in _FILES:
        works = (top / file).exists()
        remedy = _VM
        if feature == "function profiler" and "function_graph" in tracers:
            remedy = "none needed: FunctionProfile computes the same table from function_graph records"
        elif feature in ("histograms", "synthetic events") and "function_graph" in tracers:
            remedy = "record the events and count their columns, or take a later kernel: --kernel 6.1"
        rows.append((feature, works, "" if works else f"the kernel is built without {option}", "" if works else remedy))
    return _table(rows)


def _may_write(path: Path) -> bool:
    try:
        with path.open("r+"):
            return True
    except OSError:
        return False


def _table(rows: list[tuple[str, bool, str, str]]) -> Table:
    import numpy as np

    return Table.of(
        {
            "feature": [row[0] for row in rows],
            "works": np.array([row[1] for row in rows], dtype=np.uint8),
            "reason": [row[2] for row in rows],
            "remedy": [row[3] for row in rows],
        },
        key="feature",
    )
