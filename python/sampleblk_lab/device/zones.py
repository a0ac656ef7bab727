# SPDX-License-Identifier: MIT
"""Zones of any zoned block device, by the ioctls of the kernel's ``linux/blkzoned.h``."""

from __future__ import annotations

import dataclasses
import fcntl
import os
import struct

from sampleblk_lab.errors import InputError

# linux/blkzoned.h: struct blk_zone_report, struct blk_zone, struct blk_zone_range
_REPORT = struct.Struct("=QII")
_ZONE = struct.Struct("=QQQBBBB4xQ24x")
_RANGE = struct.Struct("=QQ")
_BLKREPORTZONE = 0xC0101282
_BLKGETZONESZ = 0x80041284
_ACTIONS = {"reset": 0x40101283, "open": 0x40101286, "close": 0x40101287, "finish": 0x40101288}

_AT_ONCE = 512
_SECTOR = 512

# enum blk_zone_cond
_CONDITIONS = {
    0: "conventional",
    1: "empty",
    2: "implicitly-open",
    3: "explicitly-open",
    4: "closed",
    13: "read-only",
    14: "full",
    15: "offline",
}


@dataclasses.dataclass(frozen=True, slots=True)
class Zone:
    """One zone, as the device told of it.

    Attributes:
        start_bytes: Where it begins.
        length_bytes: Its size.
        capacity_bytes: How much of it can be written.
        written_bytes: Where its write pointer is, from its start; of a conventional or full zone its size.
        condition: ``"conventional"``, ``"empty"``, ``"implicitly-open"``, ``"explicitly-open"``, ``"closed"``,
            ``"full"``, ``"read-only"`` or ``"offline"``.
    """

    start_bytes: int
    length_bytes: int
    capacity_bytes: int
    written_bytes: int
    condition: str


def report(path: str) -> list[Zone]:
    """All zones of a block device; empty of one that is not zoned. Raises OSError."""
    found: list[Zone] = []
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size = bytearray(4)
        fcntl.ioctl(fd, _BLKGETZONESZ, size)
        if not int.from_bytes(size, "little"):
            return []
        sector = 0
        while True:
            buffer = bytearray(_REPORT.size + _AT_ONCE * _ZONE.size)
            _REPORT.pack_into(buffer, 0, sector, _AT_ONCE, 0)
            fcntl.ioctl(fd, _BLKREPORTZONE, buffer)
            _, count, _ = _REPORT.unpack_from(buffer)
            for index in range(count):
                fields = _ZONE.unpack_from(buffer, _REPORT.size + index * _ZONE.size)
                start, length, pointer, _, condition, _, _, capacity = fields
                found.append(
                    Zone(
                        start_bytes=start * _SECTOR,
                        length_bytes=length * _SECTOR,
                        capacity_bytes=capacity * _SECTOR,
                        written_bytes=(pointer - start) * _SECTOR,
                        condition=_CONDITIONS.get(condition, f"condition {condition}"),
                    )
                )
                sector = start + length
            if count < _AT_ONCE:
                return found
    finally:
        os.close(fd)


def manage(path: str, action: str, start_bytes: int, length_bytes: int) -> None:
    """Resets, opens, closes or finishes the zones of a range of bytes. Raises InputError, OSError."""
    if action not in _ACTIONS:
        raise InputError(f"zone action {action!r}", expected=", ".join(_ACTIONS))
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.ioctl(fd, _ACTIONS[action], _RANGE.pack(start_bytes // _SECTOR, length_bytes // _SECTOR))
    except OSError as error:
        error.filename = path
        raise
    finally:
        os.close(fd)
