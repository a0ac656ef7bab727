# SPDX-License-Identifier: MIT
"""The driver's devices: made, formatted, mounted, looked at and taken away again."""

from sampleblk_lab.device.counters import Counters
from sampleblk_lab.device.device import Device, DeviceInfo, devices
from sampleblk_lab.device.filesystem import BusyError, Filesystem, Mount, ToolError
from sampleblk_lab.device.latency import latency_bins
from sampleblk_lab.device.state import Cut, JournalInfo, VolatileWrite
from sampleblk_lab.device.tuning import Fault, Latency
from sampleblk_lab.device.zones import Zone

__all__ = [
    "BusyError",
    "Counters",
    "Cut",
    "Device",
    "DeviceInfo",
    "Fault",
    "Filesystem",
    "JournalInfo",
    "Latency",
    "Mount",
    "ToolError",
    "VolatileWrite",
    "Zone",
    "devices",
    "latency_bins",
]
