# SPDX-License-Identifier: MIT
"""Live tracing: what is recorded, and that everything is put back afterwards."""

from sampleblk_lab.recording.recorder import Recorder, record
from sampleblk_lab.recording.session import Session

__all__ = ["Recorder", "Session", "record"]
