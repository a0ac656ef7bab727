# SPDX-License-Identifier: MIT
"""Messages between a session and its guest: tuples, pickled, over two descriptors.

From the session: ``("path", …)``, ``("setup", …)``, ``("run", test, next)``, ``("input", bytes)``, ``("closed",)``,
``("finish",)``. From the guest: ``("up",)``, ``("ready",)``, ``("collected", …)``, ``("report", …)``,
``("warning", …)``, ``("text", …)``, ``("debugger", open)``, ``("output", bytes)``, ``("done", …)``,
``("interrupted", …)``, ``("internal", …)``, ``("end", status)``.
"""

from __future__ import annotations

import os
import pickle
import struct
import threading
from typing import Any

_LENGTH = struct.Struct("<Q")

Message = tuple[Any, ...]


class Link:
    """One end.

    Args:
        read_fd: Where messages come from.
        write_fd: Where they go.
    """

    def __init__(self, read_fd: int, write_fd: int) -> None:
        self.read_fd = read_fd
        self._write_fd = write_fd
        self._lock = threading.Lock()

    def send(self, *message: Any) -> None:
        """Sends one message whole. Raises BrokenPipeError when nobody is there."""
        data = pickle.dumps(message)
        left = memoryview(_LENGTH.pack(len(data)) + data)
        with self._lock:
            while left:
                left = left[os.write(self._write_fd, left) :]

    def receive(self) -> Message:
        """Waits for one message. Raises EOFError when the other end is gone."""
        (length,) = _LENGTH.unpack(self._read(_LENGTH.size))
        message: Message = pickle.loads(self._read(length))
        return message

    def _read(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            part = os.read(self.read_fd, min(size - len(data), 1 << 20))
            if not part:
                raise EOFError
            data += part
        return bytes(data)


def can_be_sent(value: Any) -> bool:
    """Whether a value goes over as it is."""
    try:
        pickle.loads(pickle.dumps(value))
    except Exception:  # whatever a class's own methods raise
        return False
    return True
