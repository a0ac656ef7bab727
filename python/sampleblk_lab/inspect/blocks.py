# SPDX-License-Identifier: MIT
"""From a disk to its request queue, hardware queues and tags."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import drgn
from drgn.helpers.linux.block import for_each_disk

from sampleblk_lab.errors import InputError
from sampleblk_lab.inspect.kernel import kernel, symbol_name
from sampleblk_lab.inspect.operations import Operations, operations

if TYPE_CHECKING:
    from os import PathLike


@dataclass(frozen=True)
class HardwareQueue:
    """One ``struct blk_mq_hw_ctx``."""

    number: int
    address: int
    tags: int
    depth: int
    reserved_tags: int
    obj: drgn.Object


@dataclass(frozen=True)
class QueueView:
    """A disk's ``struct request_queue``."""

    disk: str
    gendisk: int
    queue: int
    fops: str
    mq_ops: Operations | None
    hardware_queues: list[HardwareQueue] = field(default_factory=list)
    obj: drgn.Object | None = None

    def __str__(self) -> str:
        lines = [f"{self.disk}: gendisk {self.gendisk:#x} ({self.fops}) → request_queue {self.queue:#x}"]
        lines += [
            f"  hctx {q.number}: {q.address:#x} → tags {q.tags:#x}, depth {q.depth}, reserved {q.reserved_tags}"
            for q in self.hardware_queues
        ]
        if self.mq_ops is not None:
            lines.append(repr(self.mq_ops))
        return "\n".join(lines)


def queue(device: str | PathLike[str]) -> QueueView:
    """The queue of a block device.

    Args:
        device: Its name (``"sampleblk0"``) or path.

    Raises:
        InputError: No such disk.
        PermissionError: Not root.
    """
    name = Path(device).name
    program = kernel()
    for disk in for_each_disk(program):
        if disk.disk_name.string_().decode() != name:
            continue
        own = disk.queue
        hardware = []
        for number in range(own.nr_hw_queues.value_()):
            hctx = _hardware_queue(own, number)
            tags = hctx.tags
            hardware.append(
                HardwareQueue(
                    number,
                    hctx.value_(),
                    tags.value_(),
                    tags.nr_tags.value_(),
                    tags.nr_reserved_tags.value_(),
                    hctx,
                )
            )
        return QueueView(
            name,
            disk.value_(),
            own.value_(),
            symbol_name(disk.fops.value_()),
            operations(own.mq_ops) if own.mq_ops else None,
            hardware,
            own,
        )
    raise InputError(f"no disk {name!r}", expected=", ".join(sorted(p.name for p in Path("/sys/block").iterdir())))


def _hardware_queue(own: drgn.Object, number: int) -> drgn.Object:
    """An xarray since 5.18, an array of pointers before."""
    try:
        table = own.hctx_table
    except AttributeError:
        return own.queue_hw_ctx[number]
    from drgn.helpers.linux.xarray import xa_load

    return drgn.cast("struct blk_mq_hw_ctx *", xa_load(table.address_of_(), number))
