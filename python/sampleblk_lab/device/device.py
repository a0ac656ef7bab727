# SPDX-License-Identifier: MIT
"""A device of the driver, as a context manager."""

from __future__ import annotations

import dataclasses
import errno
import os
from typing import TYPE_CHECKING, Any

from sampleblk_lab import checked, leftovers
from sampleblk_lab._native import core
from sampleblk_lab.blocks import ClosesAtEnd
from sampleblk_lab.device import control, names, zones
from sampleblk_lab.device.counters import Counters
from sampleblk_lab.device.filesystem import BusyError, Filesystem
from sampleblk_lab.device.state import State
from sampleblk_lab.device.tuning import Tuning
from sampleblk_lab.errors import InputError, UnsupportedError
from sampleblk_lab.interrupts import held_ctrl_c

if TYPE_CHECKING:
    from collections.abc import Sequence

_FLAGS = {
    "read_only": core.SAMPLEBLK_F_READ_ONLY,
    "rotational": core.SAMPLEBLK_F_ROTATIONAL,
    "discard": core.SAMPLEBLK_F_DISCARD,
    "write_zeroes": core.SAMPLEBLK_F_WRITE_ZEROES,
    "cache": core.SAMPLEBLK_F_CACHE,
    "fua": core.SAMPLEBLK_F_FUA,
    "eager": core.SAMPLEBLK_F_EAGER,
    "sector_atomic": core.SAMPLEBLK_F_SECTOR_ATOMIC,
    "integrity": core.SAMPLEBLK_F_INTEGRITY,
}


@dataclasses.dataclass(frozen=True, slots=True)
class DeviceInfo:
    """What a device is and how it is now.

    Attributes:
        index: Its number; the device is ``/dev/sampleblk<index>``.
        path: That path.
        capacity_bytes: Bytes.
        queues: Hardware queues, as the kernel granted them: never more than CPUs.
        depth: Requests in flight a queue.
        logical_block_bytes: The smallest I/O.
        physical_block_bytes: What the device says it writes at once.
        read_only: Writes are refused.
        rotational: The kernel takes it for a spinning disk.
        discard: Discard is offered.
        write_zeroes: Write-zeroes is offered.
        cache: It has a volatile write cache, so flushes reach it.
        fua: Writes can bypass the cache.
        eager: All memory was taken at creation.
        sector_atomic: No reader sees half a sector of a write.
        integrity: It has T10 protection information.
        partitions: Partition tables are read.
        io_min_bytes: The smallest I/O without penalty, as it says.
        io_opt_bytes: The best size of I/O, as it says; 0: it says nothing.
        max_sectors: The largest request, in 512 bytes.
        max_segments: The most segments of a request.
        poll_queues: Further queues that only polling completes.
        mode: ``"mq"`` or ``"bio"``.
        completion: ``"inline"``, ``"softirq"`` or ``"timer"``.
        numa_node: Where its memory is, counted from 1; 0: anywhere.
        cache_bytes: How much can be volatile.
        atomic_write_unit_max_bytes: The largest atomic write; 0: there are none.
        atomic_write_unit_min_bytes: The smallest.
        atomic_write_boundary_bytes: What none may cross; 0: there is no such boundary.
        discard_granularity_bytes: A discard frees the granules that it names whole; 0: all that it names.
        discard_alignment_bytes: Where the first one begins.
        zone_bytes: The size of its zones; 0: it is not zoned.
        zone_capacity_bytes: How much of a sequential zone can be written.
        conventional_zones: How many of the first are conventional.
        max_open_zones: How many may be open; 0: all.
        max_active_zones: How many may be open or closed; 0: all.
        openers: Open descriptors and mounts.
        powered: False after a power cut.
        allocated_bytes: Memory that holds data, of snapshots too.
    """

    index: int
    path: str
    capacity_bytes: int
    queues: int
    depth: int
    logical_block_bytes: int
    physical_block_bytes: int
    read_only: bool
    rotational: bool
    discard: bool
    write_zeroes: bool
    cache: bool
    fua: bool
    eager: bool
    sector_atomic: bool
    integrity: bool
    partitions: bool
    io_min_bytes: int
    io_opt_bytes: int
    max_sectors: int
    max_segments: int
    poll_queues: int
    mode: str
    completion: str
    numa_node: int
    cache_bytes: int
    atomic_write_unit_max_bytes: int
    atomic_write_unit_min_bytes: int
    atomic_write_boundary_bytes: int
    discard_granularity_bytes: int
    discard_alignment_bytes: int
    zone_bytes: int
    zone_capacity_bytes: int
    conventional_zones: int
    max_open_zones: int
    max_active_zones: int
    openers: int
    powered: bool
    allocated_bytes: int

    @classmethod
    def from_raw(cls, raw: dict[str, int]) -> DeviceInfo:
        """From the fields of the ABI's ``struct sampleblk_info``."""
        flags = raw["flags"]
        values: dict[str, Any] = {name: value for name, value in raw.items() if name != "flags"}
        values.update((name, bool(flags & bit)) for name, bit in _FLAGS.items())
        values["mode"] = names.MODES[raw["mode"]]
        values["completion"] = names.COMPLETIONS[raw["completion"]]
        values["powered"] = bool(raw["powered"])
        return cls(
            path=f"/dev/sampleblk{raw['index']}",
            partitions=not flags & core.SAMPLEBLK_F_NO_PARTITIONS,
            **values,
        )


class Device(Tuning, State, ClosesAtEnd):
    """A block device in RAM, made here and taken away by :meth:`close` or at the end of ``with``.

    The driver is loaded first where it is not, and unloaded again after the last device if nobody else uses it.

    Args:
        capacity: Bytes, or a string such as ``"64M"``. Memory is taken only for what is written.
        queues: Hardware queues; there are never more than CPUs.
        depth: Requests in flight a queue.
        logical_block: Smallest I/O in bytes, 512 to 4096; on Linux 6.15 or newer to 65536.
        physical_block: What the device says it writes at once, in bytes; at least the logical block.
        read_only: Refuse writes.
        rotational: Pretend to spin.
        discard: Offer discard; by default unless it is zoned.
        write_zeroes: Offer write-zeroes; by default unless it is zoned.
        cache: Have a volatile write cache, so that flushes reach the driver.
        fua: Let writes bypass the cache; by default just when there is one.
        cache_size: How much can be volatile at most, in bytes or as a string; 16M by default. What no longer fits is
            durable, oldest first.
        mode: ``"mq"`` (requests in hardware queues) or ``"bio"`` (bios as they come).
        completion: From where requests without a delay are completed: ``"inline"`` (the submitting call), ``"softirq"``
            (as from an interrupt) or ``"timer"``.
        poll_queues: Further hardware queues that only polling completes (io_uring's IOPOLL).
        eager: Take all memory now, in large pieces, instead of what is written.
        numa_node: Take it there, counted from 0; anywhere by default.
        sector_atomic: Let no reader see half a sector of a write.
        integrity: Have T10 protection information of type 1 (``T10-DIF-TYPE1-CRC``,
            Documentation/block/data-integrity.rst): the kernel sends a checksum and the number of each logical block
            with a write, and checks them on each read. With neither cache, journal, `sector_atomic`, zones nor
            resizing, not in mode ``"bio"``, and with a logical block of at most 4096 bytes.
        io_min: The smallest I/O without penalty, as it says, in bytes; the physical block by default.
        io_opt: The best size of I/O, as it says, in bytes.
        max_sectors: The largest request, in 512 bytes.
        max_segments: The most segments of a request; at least as many as a logical block has sectors.
        atomic_write: The largest write that is whole or not at all (``RWF_ATOMIC``), in bytes or as a string, a power
            of two; none by default. A request must have room for it, and segments for its pages: up to 256K by
            default. Linux 6.11 or newer.
        atomic_write_min: The smallest; the logical block by default.
        atomic_write_boundary: What none may cross, a power of two; no boundary by default.
        discard_granularity: A discard frees the granules of this size that it names whole, and leaves the rest as it
            was; in bytes or as a string, a power of two, at least the physical block. By default it frees all that
            it names.
        discard_alignment: Where the first of them begins; 0 by default.
        zone: Make it a zoned device, host-managed: the size of its zones, in bytes or as a string, a power of two
            from 64K on that divides the capacity. It offers neither discard nor write-zeroes then, and has no cache,
            journal, snapshots, sector or write atomicity, and no mode ``"bio"``.
        zone_capacity: How much of a sequential zone can be written; all of it by default.
        conventional_zones: How many of the first zones are conventional: written anywhere, any time.
        max_open_zones: How many zones may be open; all by default.
        max_active_zones: How many may be open or closed; all by default.
        partitions: Read partition tables.
        index: The number in ``/dev/sampleblk<index>``, 1 to 256; the lowest free one by default.
        adopt: Make none, but take over the device of this number as it is; :meth:`close` removes it.

    Raises:
        UnsupportedError: The driver is not loaded and cannot be, and how it could; or the kernel has no atomic
            writes, zones or protection information.
        InputError: No device can be like that; names the value.
        FileExistsError: `index` is taken.
    """

    def __init__(
        self,
        capacity: int | str = "64M",
        queues: int = 1,
        *,
        depth: int = 128,
        logical_block: int | str = 512,
        physical_block: int | str | None = None,
        read_only: bool = False,
        rotational: bool = False,
        discard: bool | None = None,
        write_zeroes: bool | None = None,
        cache: bool = False,
        fua: bool | None = None,
        cache_size: int | str | None = None,
        mode: str = "mq",
        completion: str = "inline",
        poll_queues: int = 0,
        eager: bool = False,
        numa_node: int | None = None,
        sector_atomic: bool = False,
        integrity: bool = False,
        io_min: int | str = 0,
        io_opt: int | str = 0,
        max_sectors: int = 0,
        max_segments: int = 0,
        atomic_write: int | str = 0,
        atomic_write_min: int | str = 0,
        atomic_write_boundary: int | str = 0,
        discard_granularity: int | str = 0,
        discard_alignment: int | str = 0,
        zone: int | str = 0,
        zone_capacity: int | str = 0,
        conventional_zones: int = 0,
        max_open_zones: int = 0,
        max_active_zones: int = 0,
        partitions: bool = True,
        index: int | None = None,
        adopt: int | None = None,
    ) -> None:
        self._filesystems: list[Filesystem] = []
        self._open = False
        if adopt is not None:
            self.index = names.index(adopt)
            self._driver = control.acquire()
            self._open = True
            self._identity = leftovers.device_identity(adopt)
            return
        chosen = {
            "read_only": read_only,
            "rotational": rotational,
            "discard": not zone if discard is None else discard,
            "write_zeroes": not zone if write_zeroes is None else write_zeroes,
            "cache": cache,
            "fua": cache if fua is None else fua,
            "eager": eager,
            "sector_atomic": sector_atomic,
            "integrity": integrity,
        }
        flags = sum(_FLAGS[name] for name, on in chosen.items() if checked.flag(name, on))
        if not checked.flag("partitions", partitions):
            flags |= core.SAMPLEBLK_F_NO_PARTITIONS
        fields = {
            "flags": flags,
            "capacity_bytes": names.size(capacity, "capacity"),
            "logical_block_bytes": names.size(logical_block, "logical_block"),
            "physical_block_bytes": 0 if physical_block is None else names.size(physical_block, "physical_block"),
            "cache_bytes": 0 if cache_size is None else names.size(cache_size, "cache_size"),
            "io_min_bytes": names.size(io_min, "io_min"),
            "io_opt_bytes": names.size(io_opt, "io_opt"),
            "mode": names.number(names.MODES, mode, "mode"),
            "completion": names.number(names.COMPLETIONS, completion, "completion"),
            "numa_node": 0 if numa_node is None else checked.count("numa_node", numa_node, 0, 2**31 - 2) + 1,
            "index": names.index(index),
            "queues": queues,
            "depth": depth,
            "poll_queues": poll_queues,
            "max_sectors": max_sectors,
            "max_segments": max_segments,
            "atomic_write_unit_max_bytes": names.size(atomic_write, "atomic_write"),
            "atomic_write_unit_min_bytes": names.size(atomic_write_min, "atomic_write_min"),
            "atomic_write_boundary_bytes": names.size(atomic_write_boundary, "atomic_write_boundary"),
            "discard_granularity_bytes": names.size(discard_granularity, "discard_granularity"),
            "discard_alignment_bytes": names.size(discard_alignment, "discard_alignment"),
            "zone_bytes": names.size(zone, "zone"),
            "zone_capacity_bytes": names.size(zone_capacity, "zone_capacity"),
            "conventional_zones": conventional_zones,
            "max_open_zones": max_open_zones,
            "max_active_zones": max_active_zones,
        }
        self._driver = control.acquire()
        try:
            with held_ctrl_c():
                self._add(fields, zone=bool(zone), integrity=integrity)
        except KeyboardInterrupt:
            self.close(force=True)
            raise

    def _add(self, fields: dict[str, Any], *, zone: bool, integrity: bool) -> None:
        try:
            made = self._driver.add(**fields)
        except OSError as error:
            control.release()
            if error.errno == errno.EOPNOTSUPP:
                release = os.uname().release
                if zone:
                    remedy = "use one with CONFIG_BLK_DEV_ZONED"
                    raise UnsupportedError("zones", f"Linux {release} has none", remedy) from error
                if integrity:
                    remedy = "use one with CONFIG_BLK_DEV_INTEGRITY"
                    raise UnsupportedError("integrity", f"Linux {release} has none", remedy) from error
                raise UnsupportedError("atomic writes", f"Linux {release} has none", "use 6.11 or newer") from error
            raise
        except BaseException:
            control.release()
            raise
        self._open = True
        self.index = made["index"]
        self._identity = leftovers.device_identity(self.index)
        leftovers.note("device", str(self.index), identity=self._identity)

    def snapshot_clone(self, snapshot: int, *, index: int | None = None) -> Device:
        """A new device that begins as the snapshot is; what is written there is seen nowhere else.

        Args:
            snapshot: The id that :meth:`snapshot_take` gave.
            index: As for a new device.
        """
        made = self._control.snapshot_clone(self.index, names.snapshot(snapshot), names.index(index))
        leftovers.note("device", str(made), identity=leftovers.device_identity(made))
        return Device(adopt=made)

    def filesystem(self, fstype: str) -> Filesystem:
        """The file system that lies on it already, such as on a clone."""
        filesystem = Filesystem(self.path, fstype, self._check_open, self._end_waits)
        self._filesystems.append(filesystem)
        return filesystem

    @property
    def path(self) -> str:
        """``/dev/sampleblk<index>``."""
        return f"/dev/sampleblk{self.index}"

    @property
    def name(self) -> str:
        """``sampleblk<index>``, its name under ``/sys/block``."""
        return f"sampleblk{self.index}"

    def info(self) -> DeviceInfo:
        """What the device is and how it is now."""
        return DeviceInfo.from_raw(self._control.info(self.index))

    def counters(self, queue: int | None = None) -> Counters:
        """What has been completed, by all hardware queues together or by one of them, counted from 0."""
        chosen = [] if queue is None else [names.queue(queue)]
        return Counters(**self._control.counters(self.index, *chosen))

    def mkfs(self, fstype: str = "ext4", options: Sequence[str] = ()) -> Filesystem:
        """Makes a file system: ``dev.mkfs("ext4").mount()``.

        Args:
            fstype: ext4, xfs, btrfs or f2fs.
            options: Further words for its mkfs tool: ``["-O", "^has_journal"]``.

        Raises:
            InputError: No such type; or `options` are no list of words.
            UnsupportedError: Its tool is not installed; names the Debian package.
            ToolError: The tool failed, such as for a device too small for that type.
        """
        filesystem = Filesystem(self.path, fstype, self._check_open, self._end_waits)
        filesystem.make(options)
        self._filesystems.append(filesystem)
        return filesystem

    def resize(self, capacity: int | str) -> None:
        """Gives the device another capacity, while it is used: what is new reads as zero, what is cut off is lost.

        What was volatile stays so where it grows, and is durable where it shrinks.

        Args:
            capacity: Bytes, or a string such as ``"128M"``.

        Raises:
            OSError: EBUSY, its journal records, it has snapshots or is a clone; EINVAL, not a multiple of the logical
                block; EFBIG, it was made with 2 TiB or less and this is more, or the other way round.
        """
        self._control.resize(self.index, names.size(capacity, "capacity"))

    def zones(self) -> list[zones.Zone]:
        """What each zone is now; empty of a device that is not zoned. Raises OSError."""
        self._check_open()
        return zones.report(self.path)

    def zone(self, action: str, first: int = 0, count: int = 1) -> None:
        """Does something to zones, as blkzone(8) does.

        Args:
            action: ``"reset"``, ``"open"``, ``"close"`` or ``"finish"``.
            first: The number of the first zone, from 0.
            count: How many.

        Raises:
            InputError: No such action or zones, or the device is not zoned.
            OSError: EIO, a zone is conventional or in no condition for that; ETOOMANYREFS or EOVERFLOW, more zones
                would be open or active than may be.
        """
        info = self.info()
        size = info.zone_bytes
        if not size:
            raise InputError(f"a zone of {self.path}", expected="a zoned device, Device(zone=…)")
        all_zones = info.capacity_bytes // size
        checked.count("first", first, 0, all_zones - 1)
        checked.count("count", count, 1, all_zones - first)
        zones.manage(self.path, action, first * size, count * size)

    def close(self, *, force: bool = False) -> None:
        """Unmounts what :meth:`mkfs` and ``mount`` mounted and removes the device; the second time does nothing.

        Rules of which one lets requests hang, or holds them, end first: unmounting would wait for that.

        Args:
            force: Remove it although somebody has it open: for them it is then a disk that was pulled.

        Raises:
            BusyError: A file system was in use, and is detached now; the device is gone all the same.
            OSError: EBUSY, somebody else has it open; close() can be tried again.
        """
        if not self._open:
            return
        busy: BusyError | None = None
        self._end_waits()
        while self._filesystems:
            try:
                self._filesystems[-1].close()
            except BusyError as error:
                busy, force = error, True  # detached: nobody but who holds it keeps it
            self._filesystems.pop()
        # Removed by someone else: what we wanted. One of the same number that was made since is not ours.
        if leftovers.device_identity(self.index) == self._identity:
            try:
                self._control.remove(self.index, force)
            except OSError as error:
                if error.errno != errno.ENODEV:
                    raise
        self._open = False
        leftovers.drop("device", str(self.index), identity=self._identity)
        control.release()
        if busy is not None:
            raise busy

    def _end_waits(self) -> bool:
        return leftovers.end_waits(self._control, self.index, self._identity)

    def leave(self) -> None:
        """Lets go of the device without removing it: it stays when this process ends. Idempotent."""
        if self._open:
            self._open = False
            leftovers.drop("device", str(self.index), identity=self._identity)
            control.release()

    def __repr__(self) -> str:
        return f"<Device {self.path}{'' if self._open else ' (closed)'}>"


def devices() -> list[DeviceInfo]:
    """Every device of the driver, whoever made it; empty when the driver is not loaded."""
    if not leftovers.CONTROL_PATH.exists():
        return []
    opened = control.acquire()
    found = []
    try:
        for index in opened.list():
            try:
                found.append(DeviceInfo.from_raw(opened.info(index)))
            except OSError as error:
                # Removed since it was listed.
                if error.errno != errno.ENODEV:
                    raise
    finally:
        control.release()
    return found
