# SPDX-License-Identifier: MIT
"""Who has a file open: task, file, dentry, inode and address_space, as the article found them with crash."""

from __future__ import annotations

import contextlib
import html
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import drgn
from drgn.helpers.linux.fs import fget
from drgn.helpers.linux.pid import find_task

from sampleblk_lab import tasks
from sampleblk_lab.inspect.kernel import kernel, own_file, symbol_name
from sampleblk_lab.texts import readable

if TYPE_CHECKING:
    from collections.abc import Callable
    from os import PathLike

# How often a descriptor is looked at again that changed while it was looked at.
_TRIES = 3


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
    task: int
    file: int
    dentry: int
    inode: int
    mapping: int
    f_op: str
    i_op: str
    a_ops: str
    obj: drgn.Object

    def __str__(self) -> str:
        return _text([self])

    __repr__ = __str__


# Heading, and what stands below it.
_COLUMNS: dict[str, Callable[[OpenFile], str]] = {
    "PID": lambda one: str(one.pid),
    "COMMAND": lambda one: readable(one.comm),
    "FD": lambda one: str(one.fd),
    "FILE": lambda one: f"{one.file:x}",
    "DENTRY": lambda one: f"{one.dentry:x}",
    "INODE": lambda one: f"{one.inode:x}",
    "MAPPING": lambda one: f"{one.mapping:x}",
    "POSITION": lambda one: str(one.position_bytes),
    "SIZE": lambda one: str(one.size_bytes),
    "F_OP": lambda one: one.f_op,
    "A_OPS": lambda one: one.a_ops,
    "PATH": lambda one: readable(one.path),
}
_NUMBERS = {"PID", "FD", "POSITION", "SIZE"}


def _text(files: list[OpenFile]) -> str:
    rows = [list(_COLUMNS), *([show(one) for show in _COLUMNS.values()] for one in files)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    align = [str.rjust if heading in _NUMBERS else str.ljust for heading in _COLUMNS]
    return "\n".join(
        "  ".join(put(cell, width) for put, cell, width in zip(align, row, widths, strict=True)).rstrip()
        for row in rows
    )


class OpenFiles(list[OpenFile]):
    """Open descriptors by pid and fd; printed, they are the table of crash's ``foreach files -R``.

    Attributes:
        closed: How many descriptors of /proc were closed, or another file's, before their structures were read.
        races: What changed under each of the attempts to read it, and so is left out.
    """

    def __init__(self, files: list[OpenFile], closed: int, races: list[str]) -> None:
        super().__init__(files)
        self.closed = closed
        self.races = races

    def _notes(self) -> list[str]:
        closed = [f"{self.closed} closed while this looked"] if self.closed else []
        return [*closed, *self.races]

    def __repr__(self) -> str:
        return "\n".join([_text(self), *(f"# {note}" for note in self._notes())])

    __str__ = __repr__

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{heading}</th>" for heading in _COLUMNS)
        rows = "".join(
            "<tr>" + "".join(f"<td>{html.escape(show(one))}</td>" for show in _COLUMNS.values()) + "</tr>"
            for one in self
        )
        notes = "".join(f"<p>{html.escape(note)}</p>" for note in self._notes())
        return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>{notes}"


@dataclass(frozen=True)
class _Wanted:
    """Which files are asked for: one inode, or all of a superblock where `superblock` is not 0."""

    device: int
    inode: int
    superblock: int

    def path(self, entry: Path) -> str | None:
        """Where a descriptor of /proc leads; None: to none of these. Raises OSError."""
        status = entry.stat()
        path = str(entry.readlink())
        if not self.superblock:
            return path if (status.st_dev, status.st_ino) == (self.device, self.inode) else None
        # Subvolumes, and what overlayfs has from below, have device numbers of their own.
        unlike = status.st_dev != self.device and (os.major(status.st_dev) or os.major(self.device))
        return None if unlike or not path.startswith("/") else path

    def holders(self) -> list[tuple[int, int]]:
        """(pid, fd) of descriptors that may be of these."""
        found = []
        for process in Path("/proc").iterdir():
            if not process.name.isdigit():
                continue
            with contextlib.suppress(OSError):  # it ended
                for entry in (process / "fd").iterdir():
                    with contextlib.suppress(OSError):
                        if self.path(entry) is not None:
                            found.append((int(process.name), int(entry.name)))
        return sorted(found)


class _ChangedError(Exception):
    """What was read is of two moments."""


class _OtherError(Exception):
    """It is of another filesystem, which has a device number that may be of this one."""


def _read(program: drgn.Program, pid: int, fd: int, wanted: _Wanted) -> OpenFile | None:
    """The descriptor's structures; None when it is closed, or another file's by now.

    Raises _ChangedError, _OtherError, drgn.FaultError.
    """
    task = find_task(program, pid)
    if not task:
        return None
    file = fget(task, fd).read_()
    if not file:
        return None
    # Each structure at one go. Both may have been freed, and be another's now: then the descriptor has changed, too.
    own = file[0].read_()
    inode = own.f_inode[0].read_()
    if wanted.superblock not in (0, inode.i_sb.value_()):
        raise _OtherError
    try:
        path = wanted.path(Path(f"/proc/{pid}/fd/{fd}"))
    except OSError:
        path = None
    if path is None:
        return None
    found = OpenFile(
        pid=pid,
        comm=task.comm.string_().decode(errors="replace"),
        fd=fd,
        path=path,
        inode_number=inode.i_ino.value_(),
        size_bytes=inode.i_size.value_(),
        position_bytes=own.f_pos.value_(),
        task=task.value_(),
        file=file.value_(),
        dentry=own.f_path.dentry.value_(),
        inode=own.f_inode.value_(),
        mapping=own.f_mapping.value_(),
        f_op=symbol_name(own.f_op.value_()),
        i_op=symbol_name(inode.i_op.value_()),
        a_ops=symbol_name(own.f_mapping.a_ops.value_()),
        obj=file,
    )
    if fget(task, fd).value_() != found.file or file.f_inode.value_() != found.inode:
        raise _ChangedError
    return found


def _superblock(program: drgn.Program, path: str | PathLike[str]) -> int:
    """That of a folder."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        return int(own_file(program, fd).f_inode.i_sb.value_())
    finally:
        os.close(fd)


def open_files(path: str | PathLike[str]) -> OpenFiles:
    """The descriptors through which a file, or anything on a mounted filesystem, is open now.

    Args:
        path: A file, or a mount point for all files on that filesystem.

    Returns:
        One entry a descriptor, by pid and fd. Threads that have unshared their descriptors (unshare(2), CLONE_FILES)
        are not looked at. A descriptor that is closed, is another file's by then, or changes while it is looked at is
        counted instead.

    Raises:
        FileNotFoundError: No such file.
        PermissionError: Not root.
    """
    status = Path(path).stat()
    program = kernel()
    tasks.require_first_pids("open files in the kernel")
    superblock = _superblock(program, path) if stat.S_ISDIR(status.st_mode) and os.path.ismount(path) else 0
    wanted = _Wanted(status.st_dev, status.st_ino, superblock)
    out = OpenFiles([], 0, [])
    for pid, fd in wanted.holders():
        problem = ""
        for _ in range(_TRIES):
            try:
                found = _read(program, pid, fd, wanted)
            except _OtherError:
                break
            except _ChangedError:
                problem = "its structures changed while they were read"
            except drgn.FaultError as error:
                problem = f"its structures were freed while they were read ({error})"
            else:
                if found is None:
                    out.closed += 1
                else:
                    out.append(found)
                break
        else:
            out.races.append(f"pid {pid} fd {fd}: {problem}")
    return out
