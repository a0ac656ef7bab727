# SPDX-License-Identifier: MIT
"""What the workers of an exploration are about to check, kept where a kernel that panics does not take it along."""

from __future__ import annotations

import os
import struct
from pathlib import Path


class UnderWay:
    """What each worker is about to check, in a file that outlives the guest. One for all workers, made before they are.

    Args:
        path: The file, of the host's.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        # Past the guest's page cache, which a panic takes with it. QEMU leaves the host's to the file.
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_DIRECT | os.O_CLOEXEC, 0o600)

    def note(self, worker: int, number: int) -> None:
        """Says that a worker is about to check the contents of this number."""
        os.pwrite(self._fd, struct.pack("<Q", number + 1), 8 * worker)

    def close(self) -> None:
        """Closes the file, which stays."""
        os.close(self._fd)

    @staticmethod
    def read(path: Path) -> list[int]:
        """The numbers that were noted last, each once and the lowest first; empty where nothing was."""
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return []
        words = struct.unpack(f"<{len(data) // 8}Q", data[: len(data) // 8 * 8])
        return sorted({word - 1 for word in words if word})
