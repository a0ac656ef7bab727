# SPDX-License-Identifier: MIT
"""What the workers of an exploration check just now, kept where a kernel that goes down does not take it along."""

from __future__ import annotations

import contextlib
import mmap
import os
import re
import signal
import struct
import time
from pathlib import Path
from typing import TYPE_CHECKING

from sampleblk_lab.splat import is_splat, log_lines

if TYPE_CHECKING:
    from collections.abc import Sequence

#: What a watchdog says on the console before it ends the kernel.
HANGS = "sampleblk-lab: one state has been checked for"

#: What a worker says before the same, and then of what the kernel complained.
COMPLAINS = "sampleblk-lab: the kernel complained: "

#: Of one exploration.
MOST_WORKERS = 4096


class UnderWay:
    """What each worker checks, in a file that outlives the guest. One for all workers, made before they are.

    A process watches for how long: a kernel that hangs would end nothing by itself.

    Args:
        path: The file, of the host's.
        deadline_s: End the kernel, with its blocked tasks on the console, where one state takes longer.
        allowed: Regular expressions of what the kernel may complain of.
    """

    def __init__(self, path: Path, deadline_s: float, allowed: Sequence[str] = ()) -> None:
        self._allowed = [re.compile(each) for each in allowed]
        self._log = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        os.lseek(self._log, 0, os.SEEK_END)
        self._since_ns = memoryview(mmap.mmap(-1, 8 * MOST_WORKERS)).cast("Q")
        # Past the guest's page cache, which a panic takes with it. QEMU leaves the host's to the file.
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_DIRECT | os.O_CLOEXEC, 0o600)
        parent = os.getpid()
        self._watchdog = os.fork()
        if self._watchdog == 0:
            try:
                self._watch(parent, deadline_s)
            finally:
                os._exit(0)

    def note(self, worker: int, number: int) -> None:
        """Says that a worker is about to check the contents of this number, also once more."""
        os.pwrite(self._fd, struct.pack("<Q", number + 1), 8 * worker)
        self._since_ns[worker] = time.monotonic_ns()

    def rest(self, worker: int) -> None:
        """Says that a worker checks nothing just now."""
        self._since_ns[worker] = 0

    def judge(self) -> None:
        """Ends a kernel that has complained: it says some things once only, and may go on with what is broken."""
        for line in log_lines(self._log):
            if line is not None and is_splat(line) and not any(each.search(line) for each in self._allowed):
                _panic(f"{COMPLAINS}{line}")

    def close(self) -> None:
        """Ends the watching, and closes the file, which stays."""
        os.kill(self._watchdog, signal.SIGKILL)
        os.waitpid(self._watchdog, 0)
        os.close(self._fd)
        os.close(self._log)

    def _watch(self, parent: int, deadline_s: float) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        while os.getppid() == parent:
            time.sleep(0.5)
            began_ns = min((since for since in self._since_ns if since), default=None)
            if began_ns is not None and time.monotonic_ns() - began_ns > deadline_s * 1e9:
                # The stacks of the tasks that are blocked, why, and the panic.
                Path("/proc/sysrq-trigger").write_text("w")
                _panic(f"{HANGS} {deadline_s:g} s")

    @staticmethod
    def read(path: Path) -> list[int]:
        """The numbers that were noted last, each once and the lowest first; empty where nothing was."""
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return []
        words = struct.unpack(f"<{len(data) // 8}Q", data[: len(data) // 8 * 8])
        return sorted({word - 1 for word in words if word})


def _panic(why: str) -> None:
    with contextlib.suppress(OSError):
        Path("/dev/kmsg").write_text(f"{why}\n")
    Path("/proc/sysrq-trigger").write_text("c")
