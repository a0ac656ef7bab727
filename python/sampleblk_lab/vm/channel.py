# SPDX-License-Identifier: MIT
"""The host's end of cpp/vm/protocol.h."""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Mapping

PROTOCOL_VERSION = 8

CONTROL, STDIN, STDOUT, STDERR = (f"sampleblk.{name}" for name in ("control", "stdin", "stdout", "stderr"))
PORTS = (CONTROL, STDIN, STDOUT, STDERR)
ROOT_TAG, RUN_TAG = "sampleblk-root", "sampleblk-run"

_FRAME = struct.Struct("<II")
_FIELD = struct.Struct("<II")
_EXITED = struct.Struct("<IiQQ")


@dataclass(frozen=True)
class Exited:
    """How a command ended.

    Attributes:
        status: Its exit status, or minus the number of the signal that ended it, as ``subprocess`` has it.
        stdout_bytes: What it wrote to stdout, in bytes.
        stderr_bytes: What it wrote to stderr, in bytes.
    """

    status: int
    stdout_bytes: int
    stderr_bytes: int


class Parked(Exited):
    """The command has stopped, and the guest has nothing of the host's mounted: it can be saved."""


@dataclass(frozen=True)
class Failed:
    """Something that the guest could not do: the errno, and the operation with what it was on."""

    code: int
    operation: str


@dataclass(frozen=True)
class Ready:
    """The guest has booted and waits.

    Attributes:
        version: Its protocol's.
        tsc_khz: The rate of its time stamp counter, by its clock.
    """

    version: int
    tsc_khz: int


@dataclass(frozen=True)
class Prepared:
    """The guest has a Python to fork commands from."""


@dataclass(frozen=True)
class Begun:
    """The guest has its clock and its mounts.

    Attributes:
        tsc_khz: As :class:`Ready` has it, of the machine that this is a clone of.
    """

    tsc_khz: int


@dataclass(frozen=True)
class Started:
    """The command runs; its pid in the guest."""

    pid: int


@dataclass(frozen=True)
class Printed:
    """The stacks are on the console."""


@dataclass(frozen=True)
class Synced:
    """The run directory is written back."""


Message = Exited | Failed | Ready | Prepared | Begun | Started | Printed | Synced


def _field(kind: str, data: bytes) -> bytes:
    return _FIELD.pack(ord(kind), len(data)) + data


def _frame(kind: str, payload: bytes = b"") -> bytes:
    return _FRAME.pack(ord(kind), len(payload)) + payload


def prepare(argv: list[str], env: Mapping[str, str], hostname: str) -> bytes:
    """Start a Python to fork commands from."""
    fields = b"".join(_field("a", os.fsencode(arg)) for arg in argv)
    fields += b"".join(_field("v", os.fsencode(f"{name}={value}")) for name, value in env.items())
    return _frame("P", fields + _field("h", hostname.encode()))


def begin(
    *, rehearse: bool, clock_ns: int, entropy: bytes, hostname: str, modules: str | None, run_dir: str | None
) -> bytes:
    """The word that the guest waits for; `rehearse`: the Python that it has ready goes through a command meanwhile."""
    fields = _field("c", bytes([rehearse]))
    fields += _field("t", struct.pack("<qq", *divmod(clock_ns, 10**9))) + _field("e", entropy)
    fields += _field("h", hostname.encode())
    if modules is not None:
        fields += _field("k", modules.encode())
    if run_dir is not None:
        fields += _field("r", run_dir.encode())
    return _frame("B", fields)


def execute(
    argv: list[bytes],
    env: dict[bytes, bytes],
    cwd: bytes,
    umask: int,
    window: tuple[int, int] | None,
    *,
    parks: bool = False,
) -> bytes:
    """Run one command; `window` (rows, columns) gives it a terminal; `parks`: it stops itself, to be saved."""
    fields = b"".join(_field("a", arg) for arg in argv)
    fields += b"".join(_field("v", name + b"=" + value) for name, value in env.items())
    fields += _field("d", cwd) + _field("m", struct.pack("<I", umask))
    if window is not None:
        fields += _field("w", struct.pack("<HH", *window))
    if parks:
        fields += _field("p", b"\1")
    return _frame("E", fields)


def resume() -> bytes:
    """Let the command go on that the machine was saved with."""
    return _frame("C")


def signal_frame(number: int) -> bytes:
    """Send the command a signal."""
    return _frame("S", struct.pack("<I", number))


def stdin_end(total: int) -> bytes:
    """The command's stdin ends after `total` bytes."""
    return _frame("I", struct.pack("<Q", total))


def window_size(rows: int, columns: int) -> bytes:
    """The terminal has another size now."""
    return _frame("W", struct.pack("<HH", rows, columns))


def unread(name: str) -> bytes:
    """Nobody reads the stream of that port any more."""
    return _frame("U", struct.pack("<I", 1 if name == STDOUT else 2))


def stacks() -> bytes:
    """Print on the console what tasks wait for and where the CPUs are."""
    return _frame("T")


def sync() -> bytes:
    """Write the run directory back."""
    return _frame("Y")


class Link:
    """Our ends of the ports: frames to and from the guest, and the sockets of the streams.

    Args:
        sockets: Port name to our end.
        died: Makes the error to raise when QEMU turns out to be gone or deaf.
    """

    def __init__(self, sockets: dict[str, socket.socket], died: Callable[[], Exception]) -> None:
        self.sockets = sockets
        self._died = died
        self._control = sockets[CONTROL]
        self._buffer = bytearray()
        for sock in sockets.values():
            sock.setblocking(False)

    def close(self) -> None:
        """Closes every socket."""
        for sock in self.sockets.values():
            sock.close()

    def send(self, frame: bytes) -> None:
        """Sends a control frame. They are small and the guest reads them at once: no room means a dead guest."""
        self._control.settimeout(30)
        try:
            self._control.sendall(frame)
        except (TimeoutError, ConnectionError):
            raise self._died() from None
        finally:
            self._control.setblocking(False)

    def receive(self) -> list[Message]:
        """Reads what is there, and returns the frames that are whole."""
        try:
            data = self._control.recv(65536)
        except BlockingIOError:
            return []
        except ConnectionError:
            data = b""
        if not data:
            raise self._died()
        self._buffer += data
        messages = []
        while len(self._buffer) >= _FRAME.size:
            kind, length = _FRAME.unpack_from(self._buffer)
            if len(self._buffer) < _FRAME.size + length:
                break
            payload = bytes(self._buffer[_FRAME.size : _FRAME.size + length])
            del self._buffer[: _FRAME.size + length]
            messages.append(_decode(chr(kind), payload))
        return messages


def _decode(kind: str, payload: bytes) -> Message:
    match kind:
        case "R":
            return Ready(*struct.unpack("<II", payload))
        case "p":
            return Prepared()
        case "b":
            return Begun(*struct.unpack("<I", payload))
        case "s":
            return Started(struct.unpack("<I", payload)[0])
        case "x" | "k":
            signaled, status, out, err = _EXITED.unpack(payload)
            return (Exited if kind == "x" else Parked)(-status if signaled else status, out, err)
        case "f":
            return Failed(struct.unpack_from("<i", payload)[0], payload[4:].decode(errors="replace"))
        case "t":
            return Printed()
        case "y":
            return Synced()
    raise ConnectionError(f"the guest sent a frame of unknown type {kind!r}")
