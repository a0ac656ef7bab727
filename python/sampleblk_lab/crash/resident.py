# SPDX-License-Identifier: MIT
"""Tools of the system that stay loaded while an exploration lasts, and are forked for each command.

Starting e2fsck takes longer than what it does, most of all in an emulated machine. ``sampleblk-resident.so`` (see
``cpp/src/crash/resident.c``) lets a server run instead of a tool's main(), which forks a child for each command; what
the tool does is the same.

Most states of an exploration recover to what others have recovered to. :func:`check` does not ask a checker again that
would read the same as before.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import subprocess
import tempfile
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING

from sampleblk_lab import leftovers
from sampleblk_lab._native import core
from sampleblk_lab.device.filesystem import TOOL_ENVIRONMENT, run_tool, tool_output
from sampleblk_lab.paths import resource

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager

_STATUS = struct.Struct("i")
# What a tool leaves of its reads: how many, whether others are missing; (offset, length) of each.
_READS = struct.Struct("II")
_READ = struct.Struct("QQ")
_READS_BYTES = 1 << 20
# Checkers that only read, and of which the tests know that no read is overlooked. What xfs and f2fs recover to is
# different for nearly every state (log sequence numbers, checkpoints), and btrfs check takes no time.
_ACCOUNTABLE = frozenset({"e2fsck"})
# Tools that start no process and no thread, whose memory can be put back as it was instead (resident.c).
_IN_PLACE = frozenset({"e2fsck"})
# Runs of one server: libc may map something in each that nobody unmaps.
_RUNS = 1000


class ResidentTool:
    """One tool that waits for commands. Used by the thread that made it, with which it ends.

    Args:
        path: The tool.

    Raises:
        OSError: The tool cannot be started, or does not let us in: it is linked statically, or setuid.
    """

    def __init__(self, path: str) -> None:
        self.runs = 0
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with contextlib.ExitStack() as stack:
            stack.enter_context(ours)
            self._reads = os.memfd_create("reads", os.MFD_CLOEXEC)
            stack.callback(os.close, self._reads)
            os.ftruncate(self._reads, _READS_BYTES)
            with theirs:
                self._process = subprocess.Popen(
                    [path],
                    env={
                        **os.environ,
                        **TOOL_ENVIRONMENT,
                        "LD_PRELOAD": str(resource("crash/bin/sampleblk-resident.so")),
                        "SAMPLEBLK_RESIDENT": str(theirs.fileno()),
                        "SAMPLEBLK_READS": str(self._reads),
                        # What is looked up once need not be in each child.
                        "LD_BIND_NOW": "1",
                        **({"SAMPLEBLK_IN_PLACE": "1"} if Path(path).name in _IN_PLACE else {}),
                    },
                    pass_fds=[theirs.fileno(), self._reads],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
            stack.callback(self._end)
            if not ours.recv(1):
                raise OSError(f"{path} does not become resident")
            self._output = os.memfd_create("tool", os.MFD_CLOEXEC)
            self._socket = ours
            self._stack = stack.pop_all()
            self._stack.callback(os.close, self._output)

    def run(self, arguments: Sequence[str]) -> tuple[int, bytes]:
        """Runs it once: the exit status, negative for a signal, and what it printed. Counted in :attr:`runs`.

        Raises:
            OSError: The server is gone. After this or any other exception the tool can only be closed.
        """
        self.runs += 1
        os.ftruncate(self._output, 0)
        os.lseek(self._output, 0, os.SEEK_SET)
        command = b"".join(os.fsencode(word) + b"\0" for word in arguments)
        socket.send_fds(self._socket, [command], [self._output])
        answer = self._socket.recv(_STATUS.size)
        status = _STATUS.unpack(answer)[0] if answer else -1
        if status == -1:
            raise OSError("a resident tool ended")
        return os.waitstatus_to_exitcode(status), os.pread(self._output, os.fstat(self._output).st_size, 0)

    def reads(self) -> list[tuple[int, int]]:
        """(offset, length) of what the last command read of the file that it named last; empty if some is not known."""
        count, incomplete = _READS.unpack(os.pread(self._reads, _READS.size, 0))
        if incomplete:
            return []
        return list(_READ.iter_unpack(os.pread(self._reads, count * _READ.size, _READS.size)))

    def close(self) -> None:
        """Ends it, and what it may still be doing. Any number of times."""
        self._stack.close()

    def _end(self) -> None:
        self._process.kill()
        self._process.wait()


def _made_folder(prefix: str) -> Path:
    return Path(os.path.realpath(tempfile.mkdtemp(prefix=prefix)))


def _remove_folder(place: Path) -> None:
    if place.is_mount():
        return  # its note is for whoever finds this process dead
    leftovers.drop("mount", str(place))
    with contextlib.suppress(OSError):
        place.rmdir()


def _seen_at(place: Path) -> tuple[int, int] | None:
    """What is there, which a mount changes. Less than os.path.ismount() asks, which is on the way of every state."""
    try:
        found = os.lstat(place)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


class ResidentTools:
    """Those of one exploration, started when they are first needed, and where it mounts.

    Args:
        board: Where other processes of the same exploration tell what they have learned, and are told.
    """

    def __init__(self, board: core.CrashVerdictBoard | None = None) -> None:
        self._board = board
        self._tools: dict[str, ResidentTool | None] = {}
        self._verdicts: dict[str, core.CrashVerdicts] = {}
        self._folders: dict[str, tuple[Path, tuple[int, int] | None]] = {}

    @contextlib.contextmanager
    def used(self) -> Iterator[None]:
        """For the block, :func:`run` runs these."""
        token = _used.set(self)
        try:
            yield
        finally:
            _used.reset(token)

    def run(self, command: Sequence[str], ok: Sequence[int]) -> str:
        """As :func:`sampleblk_lab.device.filesystem.run_tool`, which also runs a tool that does not become resident."""
        path, *arguments = command
        try:
            tool = self._tools.get(path)
            if path not in self._tools or (tool is not None and tool.runs >= _RUNS):
                self._drop(path)
                self._tools[path] = tool = ResidentTool(path)
            done = None if tool is None else tool.run(arguments)
        except OSError:
            self._drop(path)
            done = None
        except BaseException:
            # What it is asked next must not be answered with this.
            self._drop(path)
            del self._tools[path]
            raise
        return run_tool(command, ok=ok) if done is None else tool_output(command, *done, ok)

    def check(self, command: Sequence[str], image: str) -> None:
        """As :func:`check`."""
        if os.path.basename(command[0]) not in _ACCOUNTABLE:  # noqa: PTH119  # on the way of every state
            self.run([*command, image], (0,))
            return
        verdicts = self._verdicts_of(command)
        if verdicts.is_sound(image):
            return
        self.run([*command, image], (0,))
        tool = self._tools[command[0]]
        if tool is not None:
            verdicts.learn(image, tool.reads())

    def _verdicts_of(self, command: Sequence[str]) -> core.CrashVerdicts:
        name = "\0".join(command)
        if name not in self._verdicts:
            board = self._board
            self._verdicts[name] = core.CrashVerdicts() if board is None else core.CrashVerdicts(board, name)
        return self._verdicts[name]

    @contextlib.contextmanager
    def mount_point(self, prefix: str) -> Iterator[Path]:
        """As :func:`mount_point`, the same one each time."""
        if prefix not in self._folders:
            made = _made_folder(prefix)
            self._folders[prefix] = made, _seen_at(made)
        place, empty = self._folders[prefix]
        try:
            yield place
        finally:
            if _seen_at(place) != empty:
                del self._folders[prefix]

    def _drop(self, path: str) -> None:
        tool = self._tools.get(path)
        self._tools[path] = None
        if tool is not None:
            tool.close()

    def close(self) -> None:
        """Ends all of them. Any number of times."""
        while self._tools:
            _, tool = self._tools.popitem()
            if tool is not None:
                tool.close()
        while self._folders:
            _, (place, _) = self._folders.popitem()
            _remove_folder(place)


_used: ContextVar[ResidentTools | None] = ContextVar("resident tools", default=None)


def mount_point(prefix: str) -> AbstractContextManager[Path]:
    """An empty folder to mount on, and to note as such; within an exploration the same one as long as it lasts.

    Making one, noting it and removing it again takes longer than mounting.
    """
    tools = _used.get()
    return _own_mount_point(prefix) if tools is None else tools.mount_point(prefix)


@contextlib.contextmanager
def _own_mount_point(prefix: str) -> Iterator[Path]:
    place = _made_folder(prefix)
    try:
        yield place
    finally:
        _remove_folder(place)


def check(command: Sequence[str], image: str) -> None:
    """Runs a checker that changes nothing on an image or a device; within an exploration if it may say anything new.

    It says what it has said where it reads what it has read: one that found nothing wrong is not run again on a disk
    that has the same wherever it looked (``cpp/include/sampleblk/crash/verdicts.hpp``).

    Args:
        command: The checker and its options.
        image: What is checked, and not changed meanwhile.

    Raises:
        OSError: The image cannot be read.
        ToolError: It found something.
    """
    tools = _used.get()
    if tools is None:
        run_tool([*command, image])
    else:
        tools.check(command, image)


def run(command: Sequence[str], *, ok: Sequence[int] = (0,)) -> str:
    """Runs a system tool, one that stays loaded within an exploration.

    Raises:
        ToolError: A status that is not `ok`.
    """
    tools = _used.get()
    return run_tool(command, ok=ok) if tools is None else tools.run(command, ok)
