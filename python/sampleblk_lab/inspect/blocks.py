# SPDX-License-Identifier: MIT
"""From a disk to its request queue, hardware queues, tags and the requests that have them."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import drgn
from drgn.helpers.linux.block import blk_rq_bytes, blk_rq_pos, for_each_disk, req_op
from drgn.helpers.linux.sbitmap import sbitmap_for_each_set
from drgn.helpers.linux.xarray import xa_load

from sampleblk_lab.errors import InputError
from sampleblk_lab.inspect.kernel import kernel, symbol_name
from sampleblk_lab.inspect.operations import Operations, operations

if TYPE_CHECKING:
    from collections.abc import Iterator
    from os import PathLike

# How often a queue is walked again that changed during a walk.
_TRIES = 3

# (sector_t)-1, of a request that is nowhere (blk-mq.c, blk_rq_init()).
_NOWHERE = (1 << 64) - 1


@dataclass(frozen=True)
class Request:
    """One ``struct request`` that has a tag.

    Attributes:
        tag: Its number.
        address: Where it is.
        operation: What it does, such as ``"WRITE"``.
        sector: Its first sector, of 512 bytes; 0 of a flush.
        size_bytes: How much is left of it.
        state: ``"idle"``, ``"in flight"`` or ``"complete"`` (enum mq_rq_state).
    """

    tag: int
    address: int
    operation: str
    sector: int
    size_bytes: int
    state: str

    def __str__(self) -> str:
        return (
            f"tag {self.tag}: request {self.address:#x} {self.operation} sector {self.sector} + {self.size_bytes} "
            f"bytes, {self.state}"
        )


@dataclass(frozen=True)
class HardwareQueue:
    """One ``struct blk_mq_hw_ctx``, with the requests that have a tag of it now."""

    number: int
    address: int
    tags: int
    depth: int
    reserved_tags: int
    requests: list[Request]
    obj: drgn.Object = field(repr=False)


@dataclass(frozen=True)
class QueueView:
    """A disk's ``struct request_queue``.

    Attributes:
        disk: The disk's name.
        gendisk: The address of its ``struct gendisk``.
        queue: That of the request queue.
        fops: The name of its block_device_operations.
        mq_ops: Its blk_mq_ops; None of a driver that takes bios.
        hardware_queues: By number; none of a driver that takes bios.
        races: Requests that went away while they were looked at.
        obj: The ``struct request_queue *``.
    """

    disk: str
    gendisk: int
    queue: int
    fops: str
    mq_ops: Operations | None
    hardware_queues: list[HardwareQueue]
    races: int
    obj: drgn.Object = field(repr=False)

    @property
    def requests(self) -> list[Request]:
        """Those of all hardware queues."""
        return [request for hardware in self.hardware_queues for request in hardware.requests]

    def __str__(self) -> str:
        lines = [f"{self.disk}: gendisk {self.gendisk:#x} ({self.fops}) → request_queue {self.queue:#x}"]
        for hardware in self.hardware_queues:
            lines.append(
                f"  hctx {hardware.number}: {hardware.address:#x} → tags {hardware.tags:#x}, depth {hardware.depth}, "
                f"reserved {hardware.reserved_tags}, {len(hardware.requests)} in use"
            )
            lines += [f"    {request}" for request in hardware.requests]
        lines.append(repr(self.mq_ops) if self.mq_ops is not None else "  no hardware queues: the driver takes bios")
        if self.races:
            lines.append(f"# {self.races} requests went away while this looked")
        return "\n".join(lines)


def queue(device: str | PathLike[str]) -> QueueView:
    """The queue of a block device.

    Args:
        device: Its name (``"sampleblk0"``) or path.

    Raises:
        InputError: No such disk.
        PermissionError: Not root.
        drgn.FaultError: The disk went away, each time that this looked.
    """
    name = _disk_name(Path(device))
    program = kernel()
    for attempt in range(_TRIES):
        try:
            for disk in for_each_disk(program):
                if disk.disk_name.string_().decode() == name:
                    return _view(name, disk.read_())
            break
        except drgn.FaultError:
            if attempt == _TRIES - 1:
                raise
    known = ", ".join(sorted(path.name for path in Path("/sys/block").iterdir()))
    raise InputError(f"no disk {name!r}", expected=known)


def _disk_name(path: Path) -> str:
    """A name, or what the kernel calls the device of a path, whose own name may be any."""
    if len(path.parts) > 1 and path.is_block_device():
        number = path.stat().st_rdev
        path = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}").resolve()
    return path.name.replace("!", "/")


def _view(name: str, disk: drgn.Object) -> QueueView:
    own = disk.queue.read_()
    hardware, races = hardware_queues(own)
    return QueueView(
        name,
        disk.value_(),
        own.value_(),
        symbol_name(disk.fops.value_()),
        operations(own.mq_ops) if own.mq_ops else None,
        hardware,
        races,
        own,
    )


def hardware_queues(own: drgn.Object) -> tuple[list[HardwareQueue], int]:
    """Those of a ``struct request_queue *``, and how many requests went away while they were looked at."""
    found: list[HardwareQueue] = []
    races = 0
    for number, hctx in enumerate(_hardware_queues(own) if own.mq_ops else ()):
        tags = hctx.tags.read_()
        requests, gone = _requests(hctx, tags)
        races += gone
        depth, reserved = tags.nr_tags.value_(), tags.nr_reserved_tags.value_()
        found.append(HardwareQueue(number, hctx.value_(), tags.value_(), depth, reserved, requests, hctx))
    return found, races


def _hardware_queues(own: drgn.Object) -> Iterator[drgn.Object]:
    """An xarray from 5.18 on, an array of pointers before and again since 6.19."""
    for number in range(own.nr_hw_queues.value_()):
        try:
            table = own.hctx_table
        except AttributeError:
            yield own.queue_hw_ctx[number].read_()
        else:
            yield drgn.cast("struct blk_mq_hw_ctx *", xa_load(table.address_of_(), number))


def _requests(hctx: drgn.Object, tags: drgn.Object) -> tuple[list[Request], int]:
    """The requests that have a tag of a hardware queue; and how many went away while they were looked at."""
    reserved = tags.nr_reserved_tags.value_()
    # The reserved ones come first, in a bitmap of their own.
    numbers = list(sbitmap_for_each_set(tags.breserved_tags.sb.address_of_())) if reserved else []
    numbers += [reserved + bit for bit in sbitmap_for_each_set(tags.bitmap_tags.sb.address_of_())]
    found, gone = [], 0
    for tag in numbers:
        try:
            request = tags.rqs[tag].read_()
            if not request:
                continue  # the tag is taken, the request not begun
            # Queues that share tags see those of the others, too.
            if request.mq_hctx.value_() != hctx.value_():
                continue
            sector = blk_rq_pos(request).value_()
            found.append(
                Request(
                    tag,
                    request.value_(),
                    _enumerator(req_op(request)).removeprefix("REQ_OP_"),
                    0 if sector == _NOWHERE else sector,
                    blk_rq_bytes(request).value_(),
                    _state(request),
                )
            )
        except drgn.FaultError:
            gone += 1
    return found, gone


def _state(request: drgn.Object) -> str:
    value = drgn.cast("enum mq_rq_state", request.state)
    return _enumerator(value).removeprefix("MQ_RQ_").replace("_", " ").lower()


def _enumerator(value: drgn.Object) -> str:
    number = value.value_()
    return next((one.name for one in value.type_.enumerators if one.value == number), str(number))
