# SPDX-License-Identifier: MIT
"""What a trial claims of the host that it runs on: all of it, or processors and memory.

Claims are locks on ranges of one empty file that all sweeps of a user on a host have in common, whichever processes,
workers or executors they run in. The kernel drops the locks of a process that ends, however it does. They are of the
open file (fcntl(2), F_OFD_SETLK), so that threads have their own.

Whoever waits holds the turn, and whoever comes later waits for the turn: one that wants the host for itself gets it
when those before it have ended, however many come after it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import struct
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sampleblk_lab.errors import SampleblkError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: Names another file, such as one that the containers of a host have in common.
VARIABLE = "SAMPLEBLK_HOST_LOCK"

# What the bytes of the file stand for: the turn; the host, shared or alone; each processor; each block of memory.
_TURN, _HOST, _PROCESSORS, _MEMORY = 0, 1, 1 << 10, 1 << 20
_BLOCK_MIB = 64

# Of a host's memory, this share may be claimed: something else runs there, too.
_SHARE = 0.9

# Between two looks at whether what is waited for is free.
_LOOK_S = 0.02

_FLOCK = struct.Struct("hhqqi4x")  # struct flock: l_type, l_whence, l_start, l_len, l_pid


class ClaimError(SampleblkError, OSError):
    """The file of the claims cannot be used; says which it is and what to do."""


@dataclass(frozen=True)
class Claim:
    """What a trial needs.

    Attributes:
        exclusive: The whole host.
        cpus: Processors that no other trial has; 0: none of its own.
        memory_mib: Memory that no other trial has.
    """

    exclusive: bool = False
    cpus: int = 0
    memory_mib: int = 0


class Stopped(Exception):  # noqa: N818  # what happened, caught next to where it is raised
    """Nobody wants the trial any more that was to be run."""


def path() -> Path:
    """The file that has the locks."""
    if given := os.environ.get(VARIABLE):
        return Path(given)
    shared = Path("/dev/shm")  # the host's, whatever TMPDIR a job has
    folder = shared if shared.is_dir() else Path(tempfile.gettempdir())
    return folder / f"sampleblk-lab-{os.geteuid()}.host"


def _open() -> int:
    where = path()
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        descriptor = os.open(where, flags, 0o600)
        status = os.fstat(descriptor)
        if status.st_uid != os.geteuid() or not stat.S_ISREG(status.st_mode):
            os.close(descriptor)
            raise PermissionError(errno.EPERM, "it is not a file of this user")
    except OSError as error:
        raise ClaimError(
            error.errno, f"cannot lock {where}: {error.strerror}; set {VARIABLE} to another file of this host"
        ) from None
    return descriptor


def _lock(descriptor: int, kind: int, begin: int, length: int = 1) -> bool:
    """Locks a range, or unlocks it; False when another has a part of it."""
    try:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _FLOCK.pack(kind, os.SEEK_SET, begin, length, 0))
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return False
        raise
    return True


def _memory_blocks() -> int:
    total_mib = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 20
    return max(1, int(total_mib * _SHARE) // _BLOCK_MIB)


def _bytes(claim: Claim) -> list[tuple[list[int], int]]:
    """Of which bytes how many are needed; of a host that is smaller than the claim, all."""
    processors = [_PROCESSORS + number for number in sorted(os.sched_getaffinity(0))]
    blocks = range(_MEMORY, _MEMORY + _memory_blocks())
    wanted = -(-claim.memory_mib // _BLOCK_MIB)
    return [(processors, min(claim.cpus, len(processors))), (list(blocks), min(wanted, len(blocks)))]


def _take(descriptor: int, candidates: list[int], count: int) -> int:
    """Locks free ones of some bytes, which then are no candidates any more; returns how many are lacking."""
    taken: set[int] = set()
    for byte in candidates:
        if len(taken) == count:
            break
        if _lock(descriptor, fcntl.F_WRLCK, byte):
            taken.add(byte)
    candidates[:] = [byte for byte in candidates if byte not in taken]
    return count - len(taken)


@contextlib.contextmanager
def held(claim: Claim, stopped: Callable[[], bool]) -> Iterator[None]:
    """Waits until there is room, and keeps it while the block runs.

    Args:
        claim: What is needed.
        stopped: Whether to wait no more.

    Raises:
        Stopped: It says so.
        ClaimError: The file cannot be used.
    """
    descriptor = _open()

    def pause() -> None:
        if stopped():
            raise Stopped
        time.sleep(_LOOK_S)

    def wait(kind: int, begin: int) -> None:
        while not _lock(descriptor, kind, begin):
            pause()

    try:
        wait(fcntl.F_WRLCK, _TURN)
        if claim.exclusive:
            wait(fcntl.F_WRLCK, _HOST)
        else:
            wait(fcntl.F_RDLCK, _HOST)
            for candidates, count in _bytes(claim):
                # What is free is taken at once: nobody else takes any before it is our turn no more.
                left = _take(descriptor, candidates, count)
                while left:
                    pause()
                    left = _take(descriptor, candidates, left)
        _lock(descriptor, fcntl.F_UNLCK, _TURN)
        yield
    finally:
        # Not only by closing: a process that was forked meanwhile has the same open file.
        _lock(descriptor, fcntl.F_UNLCK, 0, 0)
        os.close(descriptor)
