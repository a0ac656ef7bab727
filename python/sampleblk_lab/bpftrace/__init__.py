# SPDX-License-Identifier: MIT
"""bpftrace scripts and bcc's tools beside a job, and what they find as tables."""

from sampleblk_lab.bpftrace.output import BpfOutput, read_bpftrace
from sampleblk_lab.bpftrace.recording import Bpf, BpftraceError, bpf, require, run_command
from sampleblk_lab.bpftrace.script import Script, find, names
from sampleblk_lab.bpftrace.tool import Bcc, BccError, bcc
from sampleblk_lab.bpftrace.tool_output import BccOutput, read_bcc

__all__ = [
    "Bcc",
    "BccError",
    "BccOutput",
    "Bpf",
    "BpfOutput",
    "BpftraceError",
    "Script",
    "bcc",
    "bpf",
    "find",
    "names",
    "read_bcc",
    "read_bpftrace",
    "require",
    "run_command",
]
