# SPDX-License-Identifier: MIT
"""The driver's devices: made, formatted, mounted, looked at and taken away again."""

from sampleblk_lab.device.counters import Counters
from sampleblk_lab.device.device import Device, DeviceInfo, devices
from sampleblk_lab.device.filesystem import Filesystem, Mount, ToolError

__all__ = ["Counters", "Device", "DeviceInfo", "Filesystem", "Mount", "ToolError", "devices"]
