# SPDX-License-Identifier: MIT
"""The standard streams and signals of one command in the guest."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import selectors
import signal
import socket
import time
from typing import TYPE_CHECKING, Any

from sampleblk_lab.interrupts import is_raised_here
from sampleblk_lab.vm import channel
from sampleblk_lab.vm.errors import OWN_FOLDERS, CommandError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

    from sampleblk_lab.vm.channel import Link

# Written to a pipe that select(2) calls writable, this much never blocks (pipe(7), PIPE_BUF).
_CHUNK = 4096

# epoll_wait(2) takes milliseconds, as an int.
_MOST_S = 1e6


class Signals:
    """Signals as bytes on a socket, so that they wait their turn in the loop that sends control frames.

    So does Ctrl-C where it would raise KeyboardInterrupt: in the middle of a message it would cost the link.
    """

    def __init__(self, numbers: Sequence[int]) -> None:
        self._numbers = list(numbers)
        # What is not the command's is ours.
        self._ctrl_c = signal.SIGINT not in numbers and is_raised_here()
        if self._ctrl_c:
            self._numbers.append(signal.SIGINT)
        self._before: dict[int, Any] = {}
        self._wakeup = -1
        self._read, self._write = socket.socketpair()
        self._read.setblocking(False)
        self._write.setblocking(False)

    def __enter__(self) -> Self:
        if self._numbers:
            self._wakeup = signal.set_wakeup_fd(self._write.fileno(), warn_on_full_buffer=False)
            for number in self._numbers:
                self._before[number] = signal.signal(number, lambda *_: None)
        return self

    def __exit__(self, kind: type[BaseException] | None, *exc_info: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self._numbers:
            signal.set_wakeup_fd(self._wakeup)
        with self._read, self._write, contextlib.suppress(BlockingIOError):
            if self._ctrl_c and signal.SIGINT in self._come() and kind is None:
                raise KeyboardInterrupt  # it came when the command had ended

    def fileno(self) -> int:
        """Readable when a signal has come."""
        return self._read.fileno()

    def frames(self) -> list[bytes]:
        """The control frames for what has come. Raises KeyboardInterrupt."""
        frames = []
        for number in self._come():
            if number == signal.SIGINT and self._ctrl_c:
                raise KeyboardInterrupt
            if number == signal.SIGWINCH:
                columns, rows = os.get_terminal_size(1)
                frames.append(channel.window_size(rows, columns))
            else:
                frames.append(channel.signal_frame(number))
        return frames

    def _come(self) -> bytes:
        """Those of ours that have come. All signals do; the others go to whoever waits for them, such as asyncio."""
        come = self._read.recv(256)
        others = bytes(number for number in come if number not in self._before)
        if others and self._wakeup >= 0:
            with contextlib.suppress(OSError):
                os.write(self._wakeup, others)
        return bytes(number for number in come if number in self._before)


class Transfer:
    """The bytes of one command's three streams, in both directions, until it has ended and all of them are here."""

    def __init__(self, link: Link, stdin: int | bytes, stdout: int | None, stderr: int | None) -> None:
        self._link = link
        self._sockets = link.sockets
        self._stdin_fd = stdin if isinstance(stdin, int) else None
        self._stdin = bytearray() if isinstance(stdin, int) else bytearray(stdin)
        self._stdin_total = len(self._stdin)
        self._stdin_ended = False
        self._sinks = {channel.STDOUT: stdout, channel.STDERR: stderr}
        self._pending: dict[str, bytearray] = {name: bytearray() for name in self._sinks}
        self._collected: dict[str, bytearray] = {name: bytearray() for name in self._sinks}
        self._received = dict.fromkeys(self._sinks, 0)
        self._unread: set[str] = set()
        self._exited: channel.Exited | None = None
        #: The command has ended, and nothing more comes of it.
        self.is_over = False
        self._discarded = False
        # epoll refuses regular files and /dev/null; reading and writing those never waits.
        self._unpollable = {fd for fd in (self._stdin_fd, stdout, stderr) if fd is not None and not _pollable(fd)}

    def collected(self) -> tuple[bytes | None, bytes | None]:
        """What came on stdout and stderr; None for one that went to a descriptor."""
        out, err = (
            bytes(self._collected[name]) if self._sinks[name] is None else None
            for name in (channel.STDOUT, channel.STDERR)
        )
        return out, err

    @property
    def is_whole(self) -> bool:
        """The same, and all that it wrote has been passed on."""
        return self.is_over and not self._discarded

    @property
    def has_parked(self) -> bool:
        """Whether the command has not ended but waits to be saved with its machine."""
        return isinstance(self._exited, channel.Parked)

    def status(self) -> int:
        """The status of a command that has ended."""
        assert self._exited is not None
        return self._exited.status

    def run(self, end: float | None, signals: Signals) -> None:
        """Carries bytes until the command has ended. Raises TimeoutError at `end`, KeyboardInterrupt."""
        self._signals = signals
        self._carry(end)

    def finish(self, end: float, *, discard: bool) -> None:
        """Reads what is left of a command whose :meth:`run` was cut short. Raises TimeoutError at `end`.

        Args:
            end: When to give up.
            discard: Forgets what it writes, instead of passing it on.
        """
        self._stdin_total -= len(self._stdin)
        self._stdin.clear()
        self._stdin_fd = None
        if discard:
            self._discarded = True
            self._sinks = dict.fromkeys(self._sinks)
            for pending in self._pending.values():
                pending.clear()
            self._unread.update(self._sinks)
        with Signals(()) as self._signals:
            self._carry(end)

    def _carry(self, end: float | None) -> None:
        self._selector = selectors.DefaultSelector()
        try:
            while not self._finished():
                left = None if end is None else min(end - time.monotonic(), _MOST_S)
                if left is not None and left <= 0:
                    raise TimeoutError
                self._watch()
                plain_stdin = self._stdin_fd in self._unpollable and not self._stdin
                for key, ready in self._selector.select(0 if plain_stdin else left):
                    for event, role in key.data.items():
                        if ready & event:
                            self._serve(key.fd, role)
                if plain_stdin and self._stdin_fd is not None:
                    self._serve(self._stdin_fd, "stdin")
        finally:
            self._selector.close()
        if not self._stdin_ended:
            # What is in the port already is the next command's unless the guest knows how much to throw away.
            self._link.send(channel.stdin_end(self._stdin_total - len(self._stdin)))
        self.is_over = True

    def _finished(self) -> bool:
        done = self._exited
        return (
            done is not None
            and self._received[channel.STDOUT] >= done.stdout_bytes
            and self._received[channel.STDERR] >= done.stderr_bytes
            and not any(self._pending.values())
        )

    def _wanted(self) -> dict[int, dict[int, str]]:
        """What to wait for now: fd -> {event: role}. A full sink stops its source, and so the guest's command."""
        wanted: dict[int, dict[int, str]] = {}

        def want(fd: int, event: int, role: str) -> None:
            wanted.setdefault(fd, {})[event] = role  # standard input may be a socket that is standard output, too

        want(self._sockets[channel.CONTROL].fileno(), selectors.EVENT_READ, "control")
        want(self._signals.fileno(), selectors.EVENT_READ, "signals")
        for name, sink in self._sinks.items():
            if self._pending[name] and sink is not None:
                want(sink, selectors.EVENT_WRITE, f"sink {name}")
            else:
                want(self._sockets[name].fileno(), selectors.EVENT_READ, f"source {name}")
        if self._stdin:
            want(self._sockets[channel.STDIN].fileno(), selectors.EVENT_WRITE, "port")
        elif self._stdin_fd is not None:
            if self._stdin_fd not in self._unpollable and _may_read(self._stdin_fd):
                want(self._stdin_fd, selectors.EVENT_READ, "stdin")
        elif not self._stdin_ended:
            self._stdin_ended = True
            self._link.send(channel.stdin_end(self._stdin_total))
        return wanted

    def _watch(self) -> None:
        wanted = self._wanted()
        for fd in [key.fd for key in self._selector.get_map().values() if wanted.get(key.fd) != key.data]:
            self._selector.unregister(fd)
        for fd, roles in wanted.items():
            if fd not in self._selector.get_map():
                self._selector.register(fd, sum(roles), roles)

    def _serve(self, fd: int, role: str) -> None:
        kind, _, name = role.partition(" ")
        if kind == "control":
            for message in self._link.receive():
                self._take(message)
        elif kind == "source":
            # ConnectionError: QEMU is gone, which the control port will say.
            with contextlib.suppress(BlockingIOError, ConnectionError):
                data = self._sockets[name].recv(65536)
                self._received[name] += len(data)
                if name in self._unread:
                    return
                sink = self._sinks[name]
                (self._collected if sink is None else self._pending)[name].extend(data)
                while sink in self._unpollable and self._pending[name]:
                    self._drain(name)
        elif kind == "signals":
            for frame in self._signals.frames():
                self._link.send(frame)
        elif kind == "sink":
            self._drain(name)
        elif kind == "port":
            with contextlib.suppress(BlockingIOError, ConnectionError):
                del self._stdin[: self._sockets[channel.STDIN].send(self._stdin)]
        elif kind == "stdin":
            data = os.read(fd, 65536)
            self._stdin += data
            self._stdin_total += len(data)
            if not data:
                self._stdin_fd = None

    def _drain(self, name: str) -> None:
        pending = self._pending[name]
        sink = self._sinks[name]
        assert sink is not None
        try:
            del pending[: os.write(sink, pending[:_CHUNK])]
        except BlockingIOError:
            pass
        except BrokenPipeError:
            # Whoever read our output is gone; the command learns it as it would have, from its next write.
            pending.clear()
            self._unread.add(name)
            self._link.send(channel.unread(name))

    def _take(self, message: channel.Message) -> None:
        match message:
            case channel.Exited():
                self._exited = message
            case channel.Failed():
                told = f"{message.operation}: {os.strerror(message.code)}"
                top = message.operation.partition(" /")[2].partition("/")[0]
                if message.code == errno.ENOENT and top in OWN_FOLDERS:
                    told += f" in the guest, which has a /{top} of its own: use another folder"
                raise CommandError(told, message.code)


def _pollable(fd: int) -> bool:
    with select.epoll() as probe:
        try:
            probe.register(fd)
        except PermissionError:
            return False
    return True


def _may_read(fd: int) -> bool:
    """Whether reading would not stop us: a terminal's background jobs get SIGTTIN."""
    try:
        return os.tcgetpgrp(fd) == os.getpgrp()
    except OSError:
        return True
