# SPDX-License-Identifier: MIT
"""Direct I/O in one line, for the cases beside this file."""

import mmap
import os
import subprocess


def aligned(data: bytes) -> mmap.mmap:
    """The bytes at a page's start, as direct I/O wants them."""
    buffer = mmap.mmap(-1, len(data))
    buffer.write(data)
    return buffer


def write(path: str, data: bytes, offset: int = 0, *, dsync: bool = False) -> None:
    """One direct write, with FUA if `dsync`."""
    fd = os.open(path, os.O_WRONLY | os.O_DIRECT | (os.O_DSYNC if dsync else 0))
    try:
        assert os.pwrite(fd, aligned(data), offset) == len(data)
    finally:
        os.close(fd)


def read(path: str, size: int, offset: int = 0) -> bytes:
    """One direct read."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
    try:
        buffer = mmap.mmap(-1, size)
        assert os.preadv(fd, [buffer], offset) == size
        return buffer[:]
    finally:
        os.close(fd)


def flush(path: str) -> None:
    """One flush of the device's cache."""
    fd = os.open(path, os.O_WRONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def discard(path: str, offset: int, length: int) -> None:
    """One discard."""
    subprocess.run(["blkdiscard", "-f", "-o", str(offset), "-l", str(length), path], check=True)
