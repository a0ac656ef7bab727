# SPDX-License-Identifier: MIT
"""Messages between a session and its guest: tuples, pickled, over two descriptors.

From the session: ``("path", …)``, ``("setup", …)``, ``("park",)``, ``("run", test, next)``, ``("input", bytes)``,
``("closed",)``, ``("finish",)``. From the guest: ``("up",)``, ``("ready",)``, ``("collected", …)``, ``("awake",)``,
``("report", …)``, ``("warning", …)``, ``("text", …)``, ``("debugger", open)``, ``("output", bytes)``, ``("done", …)``,
``("interrupted", …)``, ``("internal", …)``, ``("end", status)``.
"""

from __future__ import annotations

import os
import pickle
import struct
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

# Length of the pickled message, and whether the session may now read files that the guest wrote.
_HEADER = struct.Struct("<QB")

# The messages after which it does.
_WITH_FILES = frozenset({"report", "done", "interrupted", "end"})

Message = tuple[Any, ...]


def packed(*message: Any) -> bytes:
    """A message as it goes over."""
    data = pickle.dumps(message)
    return _HEADER.pack(len(data), message[0] in _WITH_FILES) + data


class Link:
    """One end.

    Args:
        read_fd: Where messages come from.
        write_fd: Where they go.
    """

    def __init__(self, read_fd: int, write_fd: int) -> None:
        self.read_fd = read_fd
        self._write_fd = write_fd
        # A test's report is sent while what it has put in the place of these is there still.
        self._getpid, self._read_some, self._write = os.getpid, os.read, os.write
        self._process = os.getpid()
        self._lock = threading.Lock()

    def is_ours(self) -> bool:
        """Whether this is the process that made it, and no fork of that, which nobody has asked anything."""
        return self._getpid() == self._process

    def send(self, *message: Any) -> None:
        """Sends one message whole; a fork of the process sends none. Raises BrokenPipeError when nobody is there."""
        self.send_packed(packed(*message))

    def send_packed(self, messages: bytes) -> None:
        """Sends what :func:`packed` made."""
        if not self.is_ours():
            return
        left = memoryview(messages)
        with self._lock:
            while left:
                left = left[self._write(self._write_fd, left) :]

    def receive(self) -> Message:
        """Waits for one message. Raises EOFError when the other end is gone, and in a fork of the process."""
        if not self.is_ours():
            raise EOFError
        length, _ = _HEADER.unpack(self._read(_HEADER.size))
        message: Message = pickle.loads(self._read(length))
        return message

    def _read(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            part = self._read_some(self.read_fd, min(size - len(data), 1 << 20))
            if not part:
                raise EOFError
            data += part
        return bytes(data)


class Frames:
    """Finds the messages in a stream of bytes, for whoever passes them on without reading them."""

    def __init__(self) -> None:
        self._data = bytearray()

    def add(self, data: bytes) -> Iterator[tuple[bytes, bool]]:
        """Takes what came, and yields each message that is whole, as it came, and whether it goes with files."""
        self._data += data
        while len(self._data) >= _HEADER.size:
            length, files = _HEADER.unpack_from(self._data)
            end = _HEADER.size + length
            if len(self._data) < end:
                return
            yield bytes(self._data[:end]), bool(files)
            del self._data[:end]


def can_be_sent(value: Any) -> bool:
    """Whether a value goes over as it is."""
    try:
        pickle.loads(pickle.dumps(value))
    except Exception:  # whatever a class's own methods raise
        return False
    return True
