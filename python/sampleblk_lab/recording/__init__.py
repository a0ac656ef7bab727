# SPDX-License-Identifier: MIT
"""Live tracing: what is recorded, and that everything is put back afterwards."""

from sampleblk_lab.recording.hist import Hist, parse_hist
from sampleblk_lab.recording.preflight import preflight
from sampleblk_lab.recording.profile import FunctionCount, FunctionLatency, FunctionProfile
from sampleblk_lab.recording.recorder import Recorder, record
from sampleblk_lab.recording.session import Session

__all__ = [
    "FunctionCount",
    "FunctionLatency",
    "FunctionProfile",
    "Hist",
    "Recorder",
    "Session",
    "parse_hist",
    "preflight",
    "record",
]
