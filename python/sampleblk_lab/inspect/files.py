# SPDX-License-Identifier: MIT
"""Who has a file open: task, file, dentry, inode and address_space, as the article found them with crash."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import drgn
from drgn.helpers.linux.fs import for_each_file
from drgn.helpers.linux.pid import find_task

from sampleblk_lab.inspect.kernel import kernel, symbol_name

if TYPE_CHECKING:
    from os import PathLike


@dataclass(frozen=True)
class OpenFile:
    """One open descriptor. Addresses are those of the kernel's structures; ``obj`` is the ``struct file``."""

    pid: int
    comm: str
    fd: int
    path: str
    inode_number: int
    size_bytes: int
    position_bytes: int
    file: int
    dentry: int
    inode: int
    mapping: int
    f_op: str
    i_op: str
    a_ops: str
    obj: drgn.Object

    def __str__(self) -> str:
        return (
            f"{self.pid:7} {self.comm:15} {self.fd:4}  file {self.file:#x}  dentry {self.dentry:#x}  "
            f"inode {self.inode:#x}  mapping {self.mapping:#x}  {self.f_op}  {self.path}"
        )


def _holders(device: int, inode: int | None) -> list[tuple[int, int, str]]:
    """(pid, fd, path) of descriptors on that device, and of that inode if one is asked for."""
    found = []
    for process in Path("/proc").iterdir():
        if not process.name.isdigit():
            continue
        try:
            entries = list((process / "fd").iterdir())
        except OSError:
            continue  # it ended, or is a kernel thread's
        for entry in entries:
            try:
                status = entry.stat()
                path = str(entry.readlink())
            except OSError:
                continue
            if status.st_dev == device and inode in (None, status.st_ino):
                found.append((int(process.name), int(entry.name), path))
    return sorted(found)


def open_files(path: str | PathLike[str]) -> list[OpenFile]:
    """The descriptors through which a file, or anything on a mounted filesystem, is open now.

    Args:
        path: A file, or a mount point for all files on that filesystem.

    Returns:
        One entry a descriptor, by pid and fd. A descriptor that was closed while it was looked at is left out.

    Raises:
        FileNotFoundError: No such file.
        PermissionError: Not root.
    """
    status = Path(path).stat()
    whole = os.path.ismount(path)
    program = kernel()
    out = []
    for pid, number, shown in _holders(status.st_dev, None if whole else status.st_ino):
        task = find_task(program, pid)
        if not task:
            continue
        try:
            for fd, file in for_each_file(task):
                if fd != number:
                    continue
                inode = file.f_inode
                out.append(
                    OpenFile(
                        pid=pid,
                        comm=task.comm.string_().decode(errors="replace"),
                        fd=fd,
                        path=shown,
                        inode_number=inode.i_ino.value_(),
                        size_bytes=inode.i_size.value_(),
                        position_bytes=file.f_pos.value_(),
                        file=file.value_(),
                        dentry=file.f_path.dentry.value_(),
                        inode=inode.value_(),
                        mapping=file.f_mapping.value_(),
                        f_op=symbol_name(file.f_op.value_()),
                        i_op=symbol_name(inode.i_op.value_()),
                        a_ops=symbol_name(file.f_mapping.a_ops.value_()),
                        obj=file,
                    )
                )
        except drgn.FaultError:
            continue  # freed under our eyes: the descriptor is closed
    return out
