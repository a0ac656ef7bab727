# SPDX-License-Identifier: MIT
"""File systems on a device, made and mounted with the system's own tools."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Self

from sampleblk_lab.errors import InputError, SampleblkError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

# type -> (the command that makes one without asking, its Debian package)
_MKFS: dict[str, tuple[list[str], str]] = {
    "ext4": (["mkfs.ext4", "-q", "-F"], "e2fsprogs"),
    "xfs": (["mkfs.xfs", "-q", "-f"], "xfsprogs"),
    "btrfs": (["mkfs.btrfs", "-q", "-f"], "btrfs-progs"),
    "f2fs": (["mkfs.f2fs", "-q", "-f"], "f2fs-tools"),
}

# type -> (the command that checks one without changing it, its Debian package)
_FSCK: dict[str, tuple[list[str], str]] = {
    "ext4": (["e2fsck", "-f", "-n"], "e2fsprogs"),
    "xfs": (["xfs_repair", "-n"], "xfsprogs"),
    "btrfs": (["btrfs", "check", "--readonly"], "btrfs-progs"),
    # f2fs has no option that both checks everything and writes nothing; a dry run is what it offers.
    "f2fs": (["fsck.f2fs", "--dry-run", "-f"], "f2fs-tools"),
}


class ToolError(SampleblkError, RuntimeError):
    """A system tool that failed.

    Attributes:
        command: What was run.
        status: Its exit status.
        output: What it printed, standard output and error together.
    """

    def __init__(self, command: Sequence[str], status: int, output: str) -> None:
        super().__init__(f"{' '.join(command)}: exit status {status}: {output.strip()}")
        self.command = list(command)
        self.status = status
        self.output = output


def _find(tool: str, package: str) -> str:
    # Users' PATH often lacks the system directories.
    path = shutil.which(tool) or shutil.which(tool, path="/usr/sbin:/sbin:/usr/local/sbin")
    if path is None:
        raise UnsupportedError(tool, "it is not installed", f"install the Debian package {package}")
    return path


def _run(command: Sequence[str], *, ok: Sequence[int] = (0,)) -> str:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode not in ok:
        raise ToolError(command, done.returncode, done.stdout)
    return done.stdout


class Filesystem:
    """A file system that lies on a device. Made by :meth:`Device.mkfs`."""

    def __init__(self, device: str, fstype: str) -> None:
        if fstype not in _MKFS:
            raise InputError(f"file system {fstype!r}", expected=", ".join(_MKFS))
        self.device = device
        self.fstype = fstype
        self._mounts: list[Mount] = []

    def make(self, options: Sequence[str] = ()) -> None:
        """Formats the device, with further `options` of the mkfs tool.

        Raises:
            UnsupportedError: The tool is not installed; names its Debian package.
            ToolError: The tool failed, such as for a device too small.
        """
        command, package = _MKFS[self.fstype]
        _run([_find(command[0], package), *command[1:], *options, self.device])

    def mount(self, target: str | os.PathLike[str] | None = None, *, options: str = "") -> Mount:
        """Mounts it, at a new temporary directory unless `target` names one.

        Args:
            target: An existing directory.
            options: As after ``mount -o``.

        Raises:
            ToolError: mount(8) failed.
        """
        mount = Mount(self.device, self.fstype, None if target is None else Path(target), options)
        self._mounts.append(mount)
        return mount

    def fsck(self) -> str:
        """Checks the unmounted file system without changing it; returns what the tool said.

        Raises:
            UnsupportedError: The tool is not installed; names its Debian package.
            ToolError: The file system has errors.
        """
        command, package = _FSCK[self.fstype]
        return _run([_find(command[0], package), *command[1:], self.device])

    def close(self) -> None:
        """Unmounts what :meth:`mount` mounted and is mounted still."""
        while self._mounts:
            self._mounts[-1].close()
            self._mounts.pop()

    def __repr__(self) -> str:
        return f"<Filesystem {self.fstype} on {self.device}>"


class Mount(os.PathLike[str]):
    """A mounted file system; a context manager and a path: ``mnt / "test"``."""

    def __init__(self, device: str, fstype: str, target: Path | None, options: str) -> None:
        self._made = target is None
        self.path = Path(tempfile.mkdtemp(prefix=f"{Path(device).name}-")) if target is None else target
        command = ["mount", "-t", fstype, *(["-o", options] if options else []), device, str(self.path)]
        try:
            _run(command)
        except BaseException:
            self._remove_directory()
            raise
        self._mounted = True

    def _remove_directory(self) -> None:
        if self._made:
            with contextlib.suppress(FileNotFoundError):
                self.path.rmdir()

    def close(self) -> None:
        """Unmounts; the second time does nothing.

        Raises:
            ToolError: It is busy. It stays mounted, and close() can be tried again.
        """
        if self._mounted:
            _run(["umount", str(self.path)])
            self._mounted = False
            self._remove_directory()

    def __fspath__(self) -> str:
        return str(self.path)

    def __truediv__(self, name: str | os.PathLike[str]) -> Path:
        return self.path / name

    def __str__(self) -> str:
        return str(self.path)

    def __repr__(self) -> str:
        return f"<Mount {self.path}{'' if self._mounted else ' (closed)'}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
