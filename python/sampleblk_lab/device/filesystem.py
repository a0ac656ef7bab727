# SPDX-License-Identifier: MIT
"""File systems on a device, made and mounted with the system's own tools."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import subprocess
import tempfile
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sampleblk_lab import leftovers, proc
from sampleblk_lab.blocks import ClosesAtEnd
from sampleblk_lab.errors import InputError, SampleblkError, UnsupportedError
from sampleblk_lab.paths import find_program

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

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

# An unmount that takes longer waits for a rule that lets requests hang, if there is one.
_UNMOUNT_S = 60.0

# What leaves the exit status 0: of fsck.f2fs what it would set right in a trial run, such as the summary of a segment;
# of e2fsck what it asks before its first pass, where it takes the file system for whole again (e2fsck/unix.c), such as
# for the checksum of a group, with which Linux does not mount. That a clock is behind is nothing wrong with a disk.
_FOUND_WRONG = {
    "fsck.f2fs": re.compile(r"\[FIX\] \("),
    "e2fsck": re.compile(r"\A(?:(?!Pass 1: ).*\n)*?(?<! is in the future\.\n).*\? no\n"),
}

#: What a tool is given beside our own environment: what it says is read, and the files of a locale take their time.
TOOL_ENVIRONMENT = {"LC_ALL": "C"}


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

    def __reduce__(self) -> tuple[Any, ...]:
        return ToolError, (self.command, self.status, self.output)


def find_tool(tool: str, package: str) -> str:
    """The path of a system tool. Raises UnsupportedError, which names its Debian package."""
    path = find_program(tool)
    if path is None:
        raise UnsupportedError(tool, "it is not installed", f"install the Debian package {package}")
    return path


def run_tool(command: Sequence[str], *, ok: Sequence[int] = (0,)) -> str:
    """Runs a system tool; returns what it said, in English. Raises ToolError for a status that is not `ok`."""
    done = subprocess.run(
        command,
        env={**os.environ, **TOOL_ENVIRONMENT},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    return tool_output(command, done.returncode, done.stdout, ok)


def tool_output(command: Sequence[str], status: int, output: bytes, ok: Sequence[int]) -> str:
    r"""What a tool said: a name that is not UTF-8 has \xNN for each such byte. Raises ToolError as :func:`run_tool`."""
    text = output.decode(errors="backslashreplace")
    sign = _FOUND_WRONG.get(os.path.basename(command[0]))  # noqa: PTH119  # on the way of every state
    if status not in ok or (sign is not None and sign.search(text)):
        raise ToolError(command, status, text)
    return text


class BusyError(ToolError):
    """A file system that was in use when it was to be unmounted. It is detached: its files live until they are closed.

    Attributes:
        holders: Who used it, a line each: process, command and file.
    """

    def __init__(self, command: Sequence[str], status: int, output: str, path: Path, held: Sequence[str]) -> None:
        super().__init__(command, status, output)
        self.holders = list(held)
        who = "; ".join(held) or "nobody that /proc shows: a mount below it, a loop device, swap or an export"
        self.args = (f"{path} was in use, and is detached now: {who}",)
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return BusyError, (self.command, self.status, self.output, self.path, self.holders)


def holders(path: Path) -> list[str]:
    """The processes that keep a mounted file system busy, as far as /proc shows: ``pid 7 (cat): /mnt/file``."""
    device = path.stat().st_dev
    found = []
    for process in sorted(Path("/proc").glob("[0-9]*"), key=lambda each: int(each.name)):
        uses: dict[str, None] = {}
        links = [process / "cwd", process / "root", process / "exe"]
        for folder in ("fd", "map_files"):
            with contextlib.suppress(OSError):
                links += (process / folder).iterdir()
        for link in links:
            with contextlib.suppress(OSError):
                # A subvolume of btrfs has a number of its own.
                if link.stat().st_dev == device or link.readlink().is_relative_to(path):
                    what = "" if link.parent.name in ("fd", "map_files") else f" ({link.name})"
                    uses[f"{link.readlink()}{what}"] = None
        if uses:
            name = "?"
            with contextlib.suppress(OSError):
                name = proc.text(int(process.name), "comm").removesuffix("\n")
            own = ", this process" if int(process.name) == os.getpid() else ""
            found.append(f"pid {process.name} ({name}{own}): {', '.join(uses)}")
    return found


def checker(fstype: str) -> list[str]:
    """The command that checks a file system without changing it. Raises InputError, UnsupportedError."""
    if fstype not in _FSCK:
        raise InputError(f"file system {fstype!r}", expected=", ".join(_FSCK))
    command, package = _FSCK[fstype]
    return [find_tool(command[0], package), *command[1:]]


class Filesystem:
    """A file system that lies on a device. Made by :meth:`Device.mkfs`."""

    def __init__(
        self,
        device: str,
        fstype: str,
        check_open: Callable[[], None] = lambda: None,
        end_waits: Callable[[], bool] = lambda: False,
    ) -> None:
        if fstype not in list(_MKFS):  # also what cannot be a key
            raise InputError(f"file system {fstype!r}", expected=", ".join(_MKFS))
        self.device = device
        self.fstype = fstype
        # Raises when the device is gone: another one may have its path.
        self._check_open = check_open
        # Ends rules that let requests hang; whether there were any.
        self._end_waits = end_waits
        self._mounts: list[Mount] = []

    def make(self, options: Sequence[str] = ()) -> None:
        """Formats the device, with further `options` of the mkfs tool.

        Raises:
            UnsupportedError: The tool is not installed; names its Debian package.
            ToolError: The tool failed, such as for a device too small.
        """
        if isinstance(options, str):  # whose letters would be words
            raise InputError(f"options={options!r}", expected=f"a list of words, {shlex.split(options)}")
        words = list(options) if isinstance(options, Iterable) else [options]
        if not all(isinstance(word, str) for word in words):
            raise InputError(f"options={options!r:.60}", expected="a list of words")
        self._check_open()
        command, package = _MKFS[self.fstype]
        run_tool([find_tool(command[0], package), *command[1:], *words, self.device])

    def mount(self, target: str | os.PathLike[str] | None = None, *, options: str = "") -> Mount:
        """Mounts it, at a new temporary directory unless `target` names one.

        Args:
            target: An existing directory.
            options: As after ``mount -o``.

        Raises:
            ToolError: mount(8) failed.
        """
        self._check_open()
        mount = Mount(self.device, self.fstype, None if target is None else Path(target), options, self._end_waits)
        self._mounts.append(mount)
        return mount

    def fsck(self) -> str:
        """Checks the unmounted file system without changing it; returns what the tool said.

        Raises:
            UnsupportedError: The tool is not installed; names its Debian package.
            ToolError: The file system has errors.
            OSError: EBUSY, it is mounted.
        """
        self._check_open()
        # e2fsck goes on, without the journal, and finds what is no error, or not what is one.
        os.close(os.open(self.device, os.O_RDONLY | os.O_EXCL | os.O_CLOEXEC))
        return run_tool([*checker(self.fstype), self.device])

    def close(self) -> None:
        """Unmounts what :meth:`mount` mounted and is mounted still. Raises BusyError, as :meth:`Mount.close`."""
        busy: BusyError | None = None
        while self._mounts:
            try:
                self._mounts[-1].close()
            except BusyError as error:
                busy = error
            self._mounts.pop()
        if busy is not None:
            raise busy

    def __repr__(self) -> str:
        return f"<Filesystem {self.fstype} on {self.device}>"


class Mount(ClosesAtEnd, os.PathLike[str]):
    """A mounted file system; a context manager and a path: ``mnt / "test"``."""

    def __init__(
        self,
        device: str,
        fstype: str,
        target: Path | None,
        options: str,
        end_waits: Callable[[], bool] = lambda: False,
    ) -> None:
        self._device = device
        self._end_waits = end_waits
        self._made = target is None
        self.path = Path(tempfile.mkdtemp(prefix=f"{Path(device).name}-")) if target is None else target
        command = ["mount", "-t", fstype, *(["-o", options] if options else []), device, str(self.path)]
        try:
            run_tool(command)
        except BaseException:
            self._remove_directory()
            raise
        self._mounted = True
        self._place = str(self.path.resolve())  # also of a relative path, whatever folder we work in later
        leftovers.note("mount", self._place, device=device, made=self._made)

    def _remove_directory(self) -> None:
        if self._made:
            with contextlib.suppress(FileNotFoundError):
                self.path.rmdir()

    def close(self) -> None:
        """Unmounts; the second time does nothing.

        Raises:
            BusyError: It is in use; says by whom. It is detached all the same, so that it cannot be in the way of what
                comes next.
            SampleblkError: It waited a minute for what a rule of the device lets hang. The rules have ended, and it is
                unmounted.
        """
        if not self._mounted:
            return
        command = ["umount", self._place]
        busy: BusyError | None = None
        waited: list[bool] = []
        # From here: nobody can end umount(8) while it waits in the kernel.
        timer = threading.Timer(_UNMOUNT_S, lambda: waited.append(self._end_waits()))
        timer.start()
        try:
            run_tool(command)
        except ToolError as error:
            # Unless somebody else has unmounted it, which is what we wanted.
            if any(mount.path == self._place for mount in leftovers.mounts()):
                held = holders(Path(self._place))
                run_tool([*command, "--lazy"])
                busy = BusyError(command, error.status, error.output, self.path, held)
        finally:
            timer.cancel()
        self._mounted = False
        leftovers.drop("mount", self._place)
        self._remove_directory()
        if busy is not None:
            raise busy
        if any(waited):
            raise SampleblkError(
                f"{' '.join(command)} waited {_UNMOUNT_S:g} s for what a rule of {self._device} let hang: its rules "
                "have ended; end them before, with set_faults([])"
            )

    def __fspath__(self) -> str:
        return str(self.path)

    def __truediv__(self, name: str | os.PathLike[str]) -> Path:
        return self.path / name

    def __str__(self) -> str:
        return str(self.path)

    def __repr__(self) -> str:
        return f"<Mount {self.path}{'' if self._mounted else ' (closed)'}>"
