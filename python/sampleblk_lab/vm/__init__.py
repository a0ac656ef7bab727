# SPDX-License-Identifier: MIT
"""Virtual machines to run experiments in: no root, no disk image, no network, and started in about a second."""

from __future__ import annotations

from sampleblk_lab.vm.errors import (
    BootError,
    CallError,
    CommandError,
    DeadlineError,
    GuestLostError,
    GuestPanicError,
    VMError,
)
from sampleblk_lab.vm.machine import VM

__all__ = [
    "VM",
    "BootError",
    "CallError",
    "CommandError",
    "DeadlineError",
    "GuestLostError",
    "GuestPanicError",
    "VMError",
]
