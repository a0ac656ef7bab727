# SPDX-License-Identifier: MIT
"""Connections carried over one pair of pipes: what the host's and the guest's side of a notebook kernel speak.

The guest has no network. A notebook's front ends connect to ports of the host; each connection's bytes travel, in
frames, over the standard streams of a process in the guest, which hands them to the kernel's Unix sockets. ZMTP is the
same over TCP as over Unix sockets (rfc.zeromq.org/spec/23), so nobody needs to understand the bytes.

Imported in the guest before anything else of ours, so it imports the standard library only.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from typing import IO, TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

_HEAD = struct.Struct("<cIBI")

OPEN, DATA, CLOSE = b"o", b"d", b"c"

# The five sockets of a kernel, in the order that frames number them (jupyter_client, "Messaging in Jupyter").
CHANNELS = ("shell_port", "iopub_port", "stdin_port", "control_port", "hb_port")

_PIECE = 65536


class Frame(NamedTuple):
    """One frame.

    Attributes:
        kind: OPEN, DATA or CLOSE.
        connection: Its number, chosen by the host.
        channel: Which of CHANNELS; only told with OPEN.
        payload: Bytes of DATA.
    """

    kind: bytes
    connection: int
    channel: int = 0
    payload: bytes = b""


class Wire:
    """Frames on a pair of pipes. Writing is safe from several threads."""

    def __init__(self, reader: IO[bytes], writer: IO[bytes]) -> None:
        self._reader = reader
        self._writer = writer
        self._lock = threading.Lock()

    def send(self, frame: Frame) -> None:
        """Writes one frame. Raises BrokenPipeError when nobody reads any more."""
        head = _HEAD.pack(frame.kind, frame.connection, frame.channel, len(frame.payload))
        with self._lock:
            self._writer.write(head + frame.payload)
            self._writer.flush()

    def receive(self) -> Frame | None:
        """Reads one frame; None at the end.

        Raises:
            ConnectionError: It ends within a frame.
        """
        head = self._reader.read(_HEAD.size)
        if not head:
            return None
        if len(head) < _HEAD.size:
            raise ConnectionError("the stream of frames ends within a head")
        kind, connection, channel, length = _HEAD.unpack(head)
        payload = self._reader.read(length) if length else b""
        if len(payload) < length:
            raise ConnectionError(f"the stream of frames ends {length - len(payload)} bytes early")
        return Frame(kind, connection, channel, payload)


class Connections:
    """The sockets of one side, by number."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._sockets: dict[int, socket.socket] = {}
        self._lock = threading.Lock()

    def add(self, number: int, made: socket.socket, channel: int | None = None) -> None:
        """Takes a connected socket; what it says goes onto the wire until its end.

        With `channel` the other side is told of it first. It may answer at once, so by then the socket is known.
        """
        with self._lock:
            self._sockets[number] = made
        if channel is not None:
            self._wire.send(Frame(OPEN, number, channel))
        threading.Thread(target=self._carry, args=(number, made), daemon=True).start()

    def _carry(self, number: int, made: socket.socket) -> None:
        try:
            while data := made.recv(_PIECE):
                self._wire.send(Frame(DATA, number, 0, data))
        except (OSError, ValueError):
            pass  # closed under us: by its peer, or by the other side; or the wire itself is closed
        if self._take(number) is not None:
            made.close()
            self._tell_closed(number)

    def _tell_closed(self, number: int) -> None:
        try:
            self._wire.send(Frame(CLOSE, number))
        except (OSError, ValueError):
            return  # the other side is gone altogether

    def _take(self, number: int) -> socket.socket | None:
        with self._lock:
            return self._sockets.pop(number, None)

    def deliver(self, frame: Frame) -> None:
        """Does what a DATA or CLOSE frame says."""
        if frame.kind == CLOSE:
            ended = self._take(frame.connection)
            if ended is not None:
                _shut(ended)
            return
        with self._lock:
            target = self._sockets.get(frame.connection)
        if target is None:
            return  # closed while this frame was under way
        try:
            target.sendall(frame.payload)
        except OSError:
            if self._take(frame.connection) is not None:
                _shut(target)
                self._tell_closed(frame.connection)

    def close(self) -> None:
        """Closes all."""
        with self._lock:
            ended, self._sockets = list(self._sockets.values()), {}
        for made in ended:
            _shut(made)


def _shut(made: socket.socket) -> None:
    """Closes a socket that a thread may be reading from."""
    with contextlib.suppress(OSError):
        made.shutdown(socket.SHUT_RDWR)
    made.close()


def serve(wire: Wire, opened: Callable[[Frame], None], connections: Connections) -> None:
    """Takes frames until the wire's end; `opened` gets the OPEN ones."""
    while (frame := wire.receive()) is not None:
        if frame.kind == OPEN:
            opened(frame)
        else:
            connections.deliver(frame)
