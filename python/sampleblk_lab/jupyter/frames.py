# SPDX-License-Identifier: MIT
"""Connections carried over one pair of pipes: what the host's and the guest's side of a notebook kernel speak.

The guest has no network. A notebook's front ends connect to ports of the host; each connection's bytes travel, in
frames, over the standard streams of a process in the guest, which hands them to the kernel's Unix sockets. ZMTP is the
same over TCP as over Unix sockets (rfc.zeromq.org/spec/23), so nobody needs to understand the bytes.

Imported in the guest before anything else of ours, so it imports the standard library only.
"""

from __future__ import annotations

import contextlib
import itertools
import queue
import socket
import struct
import threading
import time
from typing import IO, TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

_HEAD = struct.Struct("<cIBI")

OPEN, DATA, CLOSE, TAKEN = b"o", b"d", b"c", b"t"

# The five sockets of a kernel, in the order that frames number them (jupyter_client, "Messaging in Jupyter").
CHANNELS = ("shell_port", "iopub_port", "stdin_port", "control_port", "hb_port")

_PIECE = 65536

# So many frames of a connection may be under way, and so many are told to be written at once.
_WINDOW, _TAKEN_AT_ONCE = 64, 16


class Frame(NamedTuple):
    """One frame.

    Attributes:
        kind: OPEN, DATA, CLOSE, or TAKEN: so many frames of DATA are written.
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


class _Connection:
    """A socket, what waits to be written to it, and how many frames the other side has room for."""

    def __init__(self, made: socket.socket) -> None:
        self.socket = made
        self.waiting: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self.room = threading.Semaphore(_WINDOW)

    def end(self) -> None:
        """Has it closed once all is written, and its reader look whether it is."""
        self.waiting.put(None)
        self.room.release(_WINDOW)


class Connections:
    """The sockets of one side, by number. One whose peer does not read holds up no other one."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._known: dict[int, _Connection] = {}
        self._ending = 0  # of whose end the other side is being told
        self._writers: list[threading.Thread] = []
        self._changed = threading.Condition()

    def add(self, number: int, made: socket.socket, channel: int | None = None) -> None:
        """Takes a connected socket; what it says goes onto the wire until its end.

        With `channel` the other side is told of it first. It may answer at once, so by then the socket is known.
        """
        its = _Connection(made)
        writer = threading.Thread(target=self._write, args=(number, its), daemon=True)
        with self._changed:
            self._known[number] = its
            self._writers = [*filter(threading.Thread.is_alive, self._writers), writer]
            writer.start()
        if channel is not None:
            self._wire.send(Frame(OPEN, number, channel))
        threading.Thread(target=self._carry, args=(number, its), daemon=True).start()

    def _carry(self, number: int, its: _Connection) -> None:
        try:
            while data := its.socket.recv(_PIECE):
                its.room.acquire()
                self._wire.send(Frame(DATA, number, 0, data))
        except (OSError, ValueError):
            pass  # closed under us: by its peer, or by the other side; or the wire itself is closed
        self._end(number)

    def _write(self, number: int, its: _Connection) -> None:
        with contextlib.suppress(OSError):
            for count in itertools.count(1):
                data = its.waiting.get()
                if data is None:
                    break
                its.socket.sendall(data)
                if count % _TAKEN_AT_ONCE == 0:
                    self._tell(TAKEN, number)
        self._end(number)
        _shut(its.socket)

    def _tell(self, kind: bytes, number: int) -> None:
        with contextlib.suppress(OSError, ValueError):  # the other side is gone altogether
            self._wire.send(Frame(kind, number))

    def _end(self, number: int) -> None:
        """Tells the other side of a connection's end, unless it knows."""
        with self._changed:
            if (ended := self._take(number)) is None:
                return
            self._ending += 1
        self._tell(CLOSE, number)
        ended.end()
        with self._changed:
            self._ending -= 1
            self._changed.notify_all()

    def _take(self, number: int) -> _Connection | None:
        with self._changed:
            self._changed.notify_all()
            return self._known.pop(number, None)

    def deliver(self, frame: Frame) -> None:
        """Does what a DATA, TAKEN or CLOSE frame says; never waits for a socket."""
        with self._changed:
            its = self._known.get(frame.connection)
        if its is None:
            return  # closed while this frame was under way
        if frame.kind == DATA:
            its.waiting.put(frame.payload)
        elif frame.kind == TAKEN:
            its.room.release(_TAKEN_AT_ONCE)
        elif (ended := self._take(frame.connection)) is not None:
            ended.end()

    def drain(self, most_s: float) -> None:
        """Waits until each has ended by itself, with all that it said, and its end, on the wire."""
        with self._changed:
            self._changed.wait_for(lambda: not self._known and not self._ending, most_s)

    def close(self, most_s: float = 1.0) -> None:
        """Closes all, once what came for them is written, or that has taken long."""
        with self._changed:
            ended, self._known = list(self._known.values()), {}
        for its in ended:
            its.end()
        until = time.monotonic() + most_s
        for writer in self._writers:
            writer.join(max(0.0, until - time.monotonic()))
        for its in ended:
            _shut(its.socket)


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
