# SPDX-License-Identifier: MIT
"""A profile of the article's job, beside what the article found (Linux Block Driver 2, section 3.3).

Its figures are of Linux 4.6 on two CPUs in 2016: ``perf record -a -g --call-graph dwarf -F 997`` while fio ran
``fs_seq_write_sync_001``, 119644 samples. They are shares of all samples, the idle task's included, and so are ours.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sampleblk_lab.profiling.still import unfolded
from sampleblk_lab.table import Table

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sampleblk_lab.profiling import Profile

# Percent of all samples.
_ON_CPU = {"write": 45.78, "fadvise64": 20.81}
# Percent of the time in system calls, by strace -C: what the article compares the above with.
_STRACE = {"write": 72.55, "fadvise64": 27.04}

_TIMES = ("on_cpu", "runnable", "blocked_io", "blocked_lock", "sleeping", "waiting")

# In ext4_file_write_iter() the inode's lock was a mutex, and is a read-write semaphore since 4.7.
_WRITERS = {"ext4_file_write_iter", "ext4_buffered_write_iter"}
_SPINNING = re.compile(r"(spin_on_owner|optimistic_spin|osq_lock|down_write_slowpath)")


@dataclass(frozen=True)
class _Finding:
    text: str
    percent: float
    is_it: Callable[[str, Sequence[str]], bool]


def _under_a_writer(frames: Sequence[str]) -> bool:
    writer = next((number for number, frame in enumerate(frames) if frame in _WRITERS), None)
    return writer is not None and any(_SPINNING.search(frame) is not None for frame in frames[writer:])


def _calls(function: str) -> Callable[[str, Sequence[str]], bool]:
    return lambda _, frames: any(frame.endswith(function) for frame in frames)


_FINDINGS = (
    _Finding("write(2)", 45.78, _calls("sys_write")),
    _Finding("fadvise64(2)", 20.81, _calls("sys_fadvise64")),
    _Finding("spinning for the inode's lock in ext4_file_write_iter", 16.93, lambda _, frames: _under_a_writer(frames)),
    _Finding("the idle task", 18.22 + 3.27, lambda task, _: task == "swapper"),
    _Finding("kblockd's workers", 0.88, lambda task, _: task.startswith("kworker") and "kblockd" in task),
    _Finding("RCU's grace-period thread", 0.04, lambda task, _: task.startswith("rcu_")),
)


def shares(profile: Profile, **selection: Any) -> Table:
    """Where the time of each system call goes, and the article's share of those two that it names.

    Args:
        profile: Of the article's job; with ``offcpu=True`` the times off the CPU are there, too.
        **selection: Which samples, as every view of :class:`Profile` takes it.

    Returns:
        Columns syscall (the key), share_percent and article_percent (both of all samples; NaN where the article names
        none), samples, on_cpu, runnable, blocked_io, blocked_lock, sleeping, waiting (ns). The metadata has the ratio
        of write to fadvise64 on the CPU and in all, beside the article's, which concluded from 2:1 and 3:1 that write
        sleeps, and each one's share of time off the CPU.
    """
    calls = profile.syscalls(**selection)
    names = [str(name) for name in calls["syscall"].values]
    columns: dict[str, Any] = {
        "syscall": names,
        "share_percent": np.asarray(calls["on_cpu_percent"].values, dtype=np.float64),
        "article_percent": np.array([_ON_CPU.get(name, math.nan) for name in names], dtype=np.float64),
        "samples": calls["samples"].values,
        **{name: calls[name].values for name in _TIMES},
    }
    units = {"share_percent": "%", "article_percent": "%", **dict.fromkeys(_TIMES, "ns")}
    metadata = dict(calls.metadata)
    if set(_ON_CPU) <= set(names):
        row = {name: names.index(name) for name in _ON_CPU}
        on_cpu = {name: int(calls["on_cpu"].codes[row[name]]) for name in _ON_CPU}
        in_all = {name: sum(int(calls[time].codes[row[name]]) for time in _TIMES) for name in _ON_CPU}
        metadata["write_to_fadvise64_on_cpu"] = _ratio(on_cpu, _ON_CPU, "perf")
        if not metadata.get("off_cpu", "").startswith("not recorded"):
            metadata["write_to_fadvise64_in_all"] = _ratio(in_all, _STRACE, "strace")
            for name in _ON_CPU:
                metadata[f"{name}_off_cpu"] = f"{100 * (1 - on_cpu[name] / max(in_all[name], 1)):.1f} % of its time"
    return Table.of(columns, units=units, metadata=metadata, key="syscall")


def _ratio(ours: dict[str, int], article: dict[str, float], how: str) -> str:
    ratio, its = (of["write"] / max(of["fadvise64"], 1) for of in (ours, article))
    return f"{ratio:.2f} (article, {how}: {its:.2f})"


def findings(profile: Profile, **selection: Any) -> Table:
    """What the article read off its flame graph, each beside the same share of this profile.

    Args:
        profile: Of the article's job.
        **selection: Which samples, as every view of :class:`Profile` takes it.

    Returns:
        Columns finding (the key), share_percent and article_percent, both of all samples.
    """
    stacks = profile.stacks(**selection)
    weights = dict.fromkeys(_FINDINGS, 0)
    for (task, *frames), weight in unfolded(stacks.folded()):
        for finding in _FINDINGS:
            if finding.is_it(task, frames):
                weights[finding] += weight
    total = max(stacks.total, 1)
    return Table.of(
        {
            "finding": [finding.text for finding in _FINDINGS],
            "share_percent": np.array([100 * weights[finding] / total for finding in _FINDINGS]),
            "article_percent": np.array([finding.percent for finding in _FINDINGS]),
        },
        units={"share_percent": "%", "article_percent": "%"},
        metadata=stacks.notes,
        key="finding",
    )
