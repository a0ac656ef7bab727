# SPDX-License-Identifier: MIT
"""bpftrace scripts beside a job, and what they find as tables."""

from sampleblk_lab.bpftrace.output import BpfOutput, read_bpftrace
from sampleblk_lab.bpftrace.recording import Bpf, BpftraceError, bpf, require, run_command
from sampleblk_lab.bpftrace.script import Script, find, names

__all__ = [
    "Bpf",
    "BpfOutput",
    "BpftraceError",
    "Script",
    "bpf",
    "find",
    "names",
    "read_bpftrace",
    "require",
    "run_command",
]
