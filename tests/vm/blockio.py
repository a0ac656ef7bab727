# SPDX-License-Identifier: MIT
"""Direct I/O in one line, for the cases beside this file."""

from __future__ import annotations

import contextlib
import mmap
import os
import subprocess
import threading
import time
from typing import TYPE_CHECKING

import sampleblk_lab as lab

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


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


@contextlib.contextmanager
def little_memory() -> Iterator[None]:
    """A driver whose devices may fill a hundredth of the machine's memory."""
    subprocess.run(["modprobe", "sampleblk", "devices=0", "memory_percent=1"], check=True)
    try:
        yield
    finally:
        subprocess.run(["rmmod", "sampleblk"], check=True)


def leave_pages(count: int) -> lab.Device:
    """A device that has all memory there is but for so many pages, which are free in a moment."""
    device = lab.Device("1G", partitions=False)
    fd = os.open(device.path, os.O_WRONLY | os.O_DIRECT)
    at = 0
    for size in (65536, 4096):
        data = aligned(b"f" * size)
        with contextlib.suppress(OSError):
            while True:
                at += os.pwrite(fd, data, at)
    os.close(fd)
    discard(device.path, 0, count * 4096)
    return device


class Background:
    """A call that runs in a thread; what became of it is asked with :meth:`error`."""

    def __init__(self, call: Callable[..., object], *arguments: object, **named: object) -> None:
        self._error: int | None = None
        self.done_s = 0.0

        def run() -> None:
            try:
                call(*arguments, **named)
            except OSError as error:
                self._error = error.errno
            self.done_s = time.monotonic()

        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def error(self, deadline_s: float = 30.0) -> int | None:
        """The errno that the call ended with, None if it went well.

        Raises:
            TimeoutError: It does not end.
        """
        self._thread.join(deadline_s)
        if self._thread.is_alive():
            raise TimeoutError(f"still running after {deadline_s} s")
        return self._error


def until(condition: Callable[[], object], deadline_s: float = 30.0) -> None:
    """Waits until something is so.

    Raises:
        TimeoutError: It does not become so.
    """
    end = time.monotonic() + deadline_s
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"not so after {deadline_s} s")
        time.sleep(0.005)
