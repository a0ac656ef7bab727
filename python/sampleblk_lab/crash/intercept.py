# SPDX-License-Identifier: MIT
"""A program some of whose system calls wait until we have seen them: seccomp_unotify(2).

What the program is about to do is known before the kernel does it, and a call may be made in its place, so that what is
true when it returns is known too.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import platform
import select
import signal
import socket
import struct
import sys
import traceback
from dataclasses import dataclass
from fcntl import ioctl
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from sampleblk_lab import proc
from sampleblk_lab.errors import InputError, UnsupportedError
from sampleblk_lab.functions import check_ran

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# machine -> (AUDIT_ARCH_* of linux/audit.h, seccomp(2)'s number, the calls' numbers). Calls that a machine never had
# are not in its list (asm/unistd_64.h, asm-generic/unistd.h).
_X86 = {
    "write": 1,
    "open": 2,
    "mmap": 9,
    "mprotect": 10,
    "ioctl": 16,
    "pwrite64": 18,
    "writev": 20,
    "sendfile": 40,
    "bind": 49,
    "fsync": 74,
    "fdatasync": 75,
    "truncate": 76,
    "ftruncate": 77,
    "rename": 82,
    "mkdir": 83,
    "rmdir": 84,
    "creat": 85,
    "link": 86,
    "unlink": 87,
    "symlink": 88,
    "mknod": 133,
    "chroot": 161,
    "sync": 162,
    "io_setup": 206,
    "openat": 257,
    "mkdirat": 258,
    "mknodat": 259,
    "unlinkat": 263,
    "renameat": 264,
    "linkat": 265,
    "symlinkat": 266,
    "splice": 275,
    "fallocate": 285,
    "pwritev": 296,
    "open_by_handle_at": 304,
    "syncfs": 306,
    "renameat2": 316,
    "copy_file_range": 326,
    "pwritev2": 328,
    "pkey_mprotect": 329,
    "io_uring_setup": 425,
    "openat2": 437,
}
_GENERIC = {
    "io_setup": 0,
    "ioctl": 29,
    "mknodat": 33,
    "mkdirat": 34,
    "unlinkat": 35,
    "symlinkat": 36,
    "linkat": 37,
    "renameat": 38,
    "truncate": 45,
    "ftruncate": 46,
    "fallocate": 47,
    "chroot": 51,
    "openat": 56,
    "write": 64,
    "writev": 66,
    "pwrite64": 68,
    "pwritev": 70,
    "sendfile": 71,
    "splice": 76,
    "sync": 81,
    "fsync": 82,
    "fdatasync": 83,
    "bind": 200,
    "mmap": 222,
    "mprotect": 226,
    "open_by_handle_at": 265,
    "syncfs": 267,
    "renameat2": 276,
    "copy_file_range": 285,
    "pwritev2": 287,
    "pkey_mprotect": 288,
    "io_uring_setup": 425,
    "openat2": 437,
}
_MACHINES = {"x86_64": (0xC000003E, 317, _X86), "aarch64": (0xC00000B7, 277, _GENERIC)}

# linux/seccomp.h, linux/bpf_common.h
_SET_MODE_FILTER, _NEW_LISTENER, _WAIT_KILLABLE = 1, 1 << 3, 1 << 5
_ALLOW, _USER_NOTIF, _KILL = 0x7FFF0000, 0x7FC00000, 0x80000000
_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_NOTIF = struct.Struct("=QIIiIQ6Q")
_RESPONSE = struct.Struct("=QqiI")
_RECEIVE, _SEND = 0xC0502100, 0xC0182101
_CONTINUE = 1
_X32 = 0x40000000

_PIDFD_GETFD = 438


@dataclass(frozen=True)
class Call:
    """A system call that waits.

    Attributes:
        name: Its name.
        code: The machine's number of it.
        thread: The id of the thread that made it.
        arguments: All six, as they are in the registers.
        once: Whether what is done in its place is done once. Before 5.19 a signal makes the program call again
            (SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV of seccomp(2)).
    """

    name: str
    code: int
    thread: int
    arguments: tuple[int, ...]
    once: bool

    def number(self, index: int, bits: int = 64) -> int:
        """An argument that is signed."""
        value = self.arguments[index] & ((1 << bits) - 1)
        return value - (1 << bits) if value >> (bits - 1) else value

    def text(self, index: int) -> str:
        """A path that an argument points at. Raises OSError when it is not the program's memory."""
        at, found = self.arguments[index], b""
        with Path(f"/proc/{self.thread}/mem").open("rb", buffering=0) as memory:
            while b"\0" not in found and len(found) < 4096:
                # Not across the end of a page, behind which there may be nothing.
                memory.seek(at + len(found))
                if not (part := memory.read(4096 - (at + len(found)) % 4096)):
                    raise OSError(errno.EFAULT, os.strerror(errno.EFAULT))
                found += part
        return os.fsdecode(found.split(b"\0", 1)[0])

    def bytes(self, index: int, size: int) -> bytes:
        """What an argument points at. Raises OSError when it is not the program's memory."""
        found = bytearray(size)
        self.read(self.arguments[index], memoryview(found))
        return bytes(found)

    def read(self, address: int, into: memoryview) -> None:
        """Reads the program's memory. Raises OSError when not all of it is."""
        with Path(f"/proc/{self.thread}/mem").open("rb", buffering=0) as memory:
            while into:
                memory.seek(address)
                size = memory.readinto(into)
                if not size:
                    raise OSError(errno.EFAULT, os.strerror(errno.EFAULT))
                address, into = address + size, into[size:]

    def borrow(self, descriptor: int) -> int:
        """A descriptor of ours for the same open file as one of the program's; to be closed."""
        process = int(proc.status(self.thread)["Tgid"])
        pidfd = os.pidfd_open(process)
        try:
            found = _libc().syscall(_PIDFD_GETFD, pidfd, descriptor, 0)
            if found < 0:
                code = ctypes.get_errno()
                raise OSError(code, os.strerror(code))
            return int(found)
        finally:
            os.close(pidfd)


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _filter(shown: Sequence[str]) -> tuple[bytes, int]:
    """The program for seccomp(2), and this machine's number of that call."""
    machine = platform.machine()
    if machine not in _MACHINES:
        raise UnsupportedError("watching a program", f"its system calls are not known on {machine}", "use x86_64")
    arch, seccomp, numbers = _MACHINES[machine]
    seen = [numbers[name] for name in shown if name in numbers]
    steps: list[tuple[int, int, int, int]] = [
        (_LOAD, 0, 0, 4),
        (_EQUAL, 1, 0, arch),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, 0),
    ]
    if machine == "x86_64":
        steps += [(_AT_LEAST, 0, 1, _X32), (_RETURN, 0, 0, _KILL)]
    # What becomes of a call is behind all the tests, the usual first.
    left = len(seen)
    for number in seen:
        steps.append((_EQUAL, left, 0, number))
        left -= 1
    steps += [(_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _USER_NOTIF)]
    return b"".join(struct.pack("=HBBI", *step) for step in steps), seccomp


def _listen(program: bytes, seccomp: int) -> tuple[int, bool]:
    """Puts the filter on this process for ever; returns the descriptor that its calls come from, and `Call.once`."""
    libc = _libc()
    steps = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("=H6xQ", len(program) // 8, ctypes.addressof(steps))
    libc.prctl(38, 1, 0, 0, 0)  # PR_SET_NO_NEW_PRIVS, for who is not root
    for once in (True, False):
        flags = _NEW_LISTENER | (_WAIT_KILLABLE if once else 0)
        found = libc.syscall(seccomp, _SET_MODE_FILTER, flags, ctypes.c_char_p(header))
        if found >= 0:
            return int(found), once
        if (code := ctypes.get_errno()) != errno.EINVAL:
            break
    raise OSError(code, os.strerror(code), "seccomp(2)")


def _be(what: Sequence[str] | Callable[[], object], program: bytes, seccomp: int, way: socket.socket) -> NoReturn:
    """Is the program, in a fork; why it cannot be goes the way by which the listener went."""
    status = 127
    try:
        os.setpgid(0, 0)
        listener, once = _listen(program, seccomp)
        socket.send_fds(way, [b"1" if once else b"0"], [listener])
        os.close(listener)
        if not callable(what):
            os.execvp(what[0], list(what))
        way.close()
        status = 1
        check_ran(what(), "the program's function")
        sys.stdout.flush()
        status = 0
    except OSError as error:
        if status == 1:
            traceback.print_exc()
        else:
            way.send(struct.pack("=i", error.errno or 0))
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def run(
    what: Sequence[str] | Callable[[], object],
    shown: Sequence[str],
    see: Callable[[Call], int | None],
) -> int:
    """Runs a program, or a function in a fork, with all that it starts, and shows the calls of some names.

    Args:
        what: The command, or the function.
        shown: The calls' names; those that this machine has not are left out.
        see: Called before each of them is made; None: it is made; else it is not, and has this result, negative for an
            errno.

    Returns:
        The exit status; negative: the signal that it died of.

    Raises:
        InputError: An empty command.
        UnsupportedError: Another machine than x86_64 and aarch64.
        OSError: The kernel refused the filter, or the program cannot be executed.
    """
    if not callable(what) and not what:
        raise InputError("an empty command", expected="a program and its arguments")
    program, seccomp = _filter(shown)
    names = {number: name for name, number in _MACHINES[platform.machine()][2].items()}
    ours, theirs = socket.socketpair()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        ours.close()
        _be(what, program, seccomp, theirs)
    theirs.close()
    listener, ended = -1, -1
    try:
        said, descriptors, _, _ = socket.recv_fds(ours, 4, 1)
        if descriptors:
            listener = descriptors[0]
            ended = _serve(listener, child, names, said == b"1", see)
            said = ours.recv(4)
    except BaseException:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        raise
    finally:
        ours.close()
        if listener >= 0:
            os.close(listener)  # whoever still waits gets ENOSYS
        if ended < 0:
            _, ended = os.waitpid(child, 0)
    if said:
        code = struct.unpack("=i", said)[0]
        raise OSError(code, os.strerror(code), "seccomp(2)" if callable(what) or listener < 0 else what[0])
    return os.waitstatus_to_exitcode(ended)


def _serve(listener: int, child: int, names: dict[int, str], once: bool, see: Callable[[Call], int | None]) -> int:
    """Until nobody has the filter any more; returns how the child has ended."""
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    ended = -1
    pidfd = os.pidfd_open(child)
    try:
        poll.register(pidfd, select.POLLIN)
        while True:
            events = dict(poll.poll())
            if pidfd in events:
                # Until 6.11 who has not been waited for still has the filter.
                _, ended = os.waitpid(child, 0)
                poll.unregister(pidfd)
            if events.get(listener, 0) & select.POLLIN:
                _answer(listener, names, once, see)
            elif listener in events:
                return ended if ended >= 0 else os.waitpid(child, 0)[1]
    finally:
        os.close(pidfd)


def _answer(listener: int, names: dict[int, str], once: bool, see: Callable[[Call], int | None]) -> None:
    """One call that waits."""
    buffer = bytearray(_NOTIF.size)
    try:
        ioctl(listener, _RECEIVE, buffer)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.EINTR):
            return  # it was killed meanwhile
        raise
    number, thread, _, call, _, _, *arguments = _NOTIF.unpack(buffer)
    result = see(Call(names[call], call, thread, tuple(arguments), once))
    if result is None:
        answer = _RESPONSE.pack(number, 0, 0, _CONTINUE)
    elif result < 0:
        answer = _RESPONSE.pack(number, 0, result, 0)
    else:
        answer = _RESPONSE.pack(number, result, 0, 0)
    with contextlib.suppress(FileNotFoundError):  # it was killed meanwhile
        ioctl(listener, _SEND, answer)
