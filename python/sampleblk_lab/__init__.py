# SPDX-License-Identifier: MIT
"""Scriptable experiments on the Linux storage stack.

What the package offers is imported when it is first asked for, so that ``import sampleblk_lab`` (which every
pytest run does through the plugin) costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sampleblk_lab import article as article
    from sampleblk_lab import crash as crash
    from sampleblk_lab import inspect as inspect
    from sampleblk_lab import kernels as kernels
    from sampleblk_lab import plot as plot
    from sampleblk_lab import sweeps as sweeps
    from sampleblk_lab import vm as vm
    from sampleblk_lab.analysis.imports import import_run as import_run
    from sampleblk_lab.analysis.imports import read_funcgraph as read_funcgraph
    from sampleblk_lab.analysis.imports import read_strace as read_strace
    from sampleblk_lab.analysis.run import Run as Run
    from sampleblk_lab.analysis.run import open_run as open_run
    from sampleblk_lab.bpftrace import Bcc as Bcc
    from sampleblk_lab.bpftrace import BccError as BccError
    from sampleblk_lab.bpftrace import BccOutput as BccOutput
    from sampleblk_lab.bpftrace import Bpf as Bpf
    from sampleblk_lab.bpftrace import BpfOutput as BpfOutput
    from sampleblk_lab.bpftrace import BpftraceError as BpftraceError
    from sampleblk_lab.bpftrace import bcc as bcc
    from sampleblk_lab.bpftrace import bpf as bpf
    from sampleblk_lab.bpftrace import read_bcc as read_bcc
    from sampleblk_lab.bpftrace import read_bpftrace as read_bpftrace
    from sampleblk_lab.device import BusyError as BusyError
    from sampleblk_lab.device import Counters as Counters
    from sampleblk_lab.device import Cut as Cut
    from sampleblk_lab.device import Device as Device
    from sampleblk_lab.device import DeviceInfo as DeviceInfo
    from sampleblk_lab.device import Fault as Fault
    from sampleblk_lab.device import Filesystem as Filesystem
    from sampleblk_lab.device import JournalInfo as JournalInfo
    from sampleblk_lab.device import Latency as Latency
    from sampleblk_lab.device import Mount as Mount
    from sampleblk_lab.device import ToolError as ToolError
    from sampleblk_lab.device import VolatileWrite as VolatileWrite
    from sampleblk_lab.device import devices as devices
    from sampleblk_lab.device import latency_bins as latency_bins
    from sampleblk_lab.errors import FormatError as FormatError
    from sampleblk_lab.errors import InputError as InputError
    from sampleblk_lab.errors import SampleblkError as SampleblkError
    from sampleblk_lab.errors import TraceCommandError as TraceCommandError
    from sampleblk_lab.errors import UnsupportedError as UnsupportedError
    from sampleblk_lab.profiling import Profile as Profile
    from sampleblk_lab.profiling import Profiler as Profiler
    from sampleblk_lab.profiling import SampleSource as SampleSource
    from sampleblk_lab.profiling import Stacks as Stacks
    from sampleblk_lab.profiling import Stat as Stat
    from sampleblk_lab.profiling import open_profile as open_profile
    from sampleblk_lab.profiling import profile as profile
    from sampleblk_lab.profiling import read_folded as read_folded
    from sampleblk_lab.profiling import stat as stat
    from sampleblk_lab.recording.profile import FunctionCount as FunctionCount
    from sampleblk_lab.recording.profile import FunctionLatency as FunctionLatency
    from sampleblk_lab.recording.profile import FunctionProfile as FunctionProfile
    from sampleblk_lab.recording.recorder import Recorder as Recorder
    from sampleblk_lab.recording.recorder import record as record
    from sampleblk_lab.recording.session import Session as Session
    from sampleblk_lab.results import Comparison as Comparison
    from sampleblk_lab.results import Measurement as Measurement
    from sampleblk_lab.results import compare as compare
    from sampleblk_lab.results import compare_sets as compare_sets
    from sampleblk_lab.results import measure as measure
    from sampleblk_lab.results import measure_both as measure_both
    from sampleblk_lab.results import runs as runs
    from sampleblk_lab.sweeps.api import DryRun as DryRun
    from sampleblk_lab.sweeps.api import open_sweep as open_sweep
    from sampleblk_lab.sweeps.api import sweep as sweep
    from sampleblk_lab.sweeps.result import Sweep as Sweep
    from sampleblk_lab.table import Column as Column
    from sampleblk_lab.table import Table as Table
    from sampleblk_lab.trust import TrustError as TrustError
    from sampleblk_lab.workload import FioResult as FioResult
    from sampleblk_lab.workload import Job as Job
    from sampleblk_lab.workload import JobError as JobError
    from sampleblk_lab.workload import JobFile as JobFile
    from sampleblk_lab.workload import JobRun as JobRun
    from sampleblk_lab.workload import Replay as Replay
    from sampleblk_lab.workload import Result as Result
    from sampleblk_lab.workload import job_keys as job_keys

__version__ = "0.1.0"

# Public name -> the module that has it.
_HOMES = {
    "Bcc": "bpftrace",
    "BccError": "bpftrace",
    "BccOutput": "bpftrace",
    "Bpf": "bpftrace",
    "BpfOutput": "bpftrace",
    "BpftraceError": "bpftrace",
    "BusyError": "device",
    "Column": "table",
    "Comparison": "results",
    "Counters": "device",
    "Cut": "device",
    "Device": "device",
    "DeviceInfo": "device",
    "DryRun": "sweeps.api",
    "Fault": "device",
    "Filesystem": "device",
    "FioResult": "workload",
    "FormatError": "errors",
    "InputError": "errors",
    "Job": "workload",
    "JobError": "workload",
    "JobFile": "workload",
    "JobRun": "workload",
    "JournalInfo": "device",
    "Latency": "device",
    "Measurement": "results",
    "Mount": "device",
    "Replay": "workload",
    "Result": "workload",
    "FunctionCount": "recording.profile",
    "FunctionLatency": "recording.profile",
    "FunctionProfile": "recording.profile",
    "import_run": "analysis.imports",
    "read_funcgraph": "analysis.imports",
    "read_strace": "analysis.imports",
    "Profile": "profiling",
    "Profiler": "profiling",
    "SampleSource": "profiling",
    "Stacks": "profiling",
    "Stat": "profiling",
    "open_profile": "profiling",
    "profile": "profiling",
    "read_folded": "profiling",
    "stat": "profiling",
    "Recorder": "recording.recorder",
    "Run": "analysis.run",
    "SampleblkError": "errors",
    "Session": "recording.session",
    "Sweep": "sweeps.result",
    "Table": "table",
    "ToolError": "device",
    "TraceCommandError": "errors",
    "TrustError": "trust",
    "UnsupportedError": "errors",
    "VolatileWrite": "device",
    "bcc": "bpftrace",
    "bpf": "bpftrace",
    "compare": "results",
    "compare_sets": "results",
    "devices": "device",
    "job_keys": "workload",
    "latency_bins": "device",
    "measure": "results",
    "measure_both": "results",
    "open_run": "analysis.run",
    "open_sweep": "sweeps.api",
    "read_bcc": "bpftrace",
    "read_bpftrace": "bpftrace",
    "record": "recording.recorder",
    "runs": "results",
    "sweep": "sweeps.api",
}

# Packages that are used by their own name, such as lab.crash.Log.
_PACKAGES = frozenset({"article", "crash", "inspect", "kernels", "plot", "sweeps", "vm"})

# Old name -> the module that has it, and its name there; they go with the next release.
_RENAMED = {"article_findings": ("article", "findings"), "article_shares": ("article", "shares")}

__all__ = ["__version__", *sorted(_HOMES), *sorted(_PACKAGES)]


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return import_module(f"{__name__}.{name}")
    if name in _RENAMED:
        from sampleblk_lab import renamed

        home, new = _RENAMED[name]
        renamed.warn(f"sampleblk_lab.{name}", f"sampleblk_lab.{home}.{new}")
        return getattr(import_module(f"{__name__}.{home}"), new)
    home = _HOMES.get(name, "")
    if not home:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES, *_PACKAGES})
