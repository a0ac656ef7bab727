# SPDX-License-Identifier: MIT
"""The terminal of a debugger that runs in a guest: a pseudo-terminal there, ours here."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import struct
import termios
import threading
import tty
from typing import TYPE_CHECKING

from sampleblk_lab.pytest_plugin import internals

if TYPE_CHECKING:
    import pytest

    from sampleblk_lab.pytest_plugin.messages import Link

# (rows, columns, TERM) of a terminal; None: standard input is none, lines go over as they are.
Shape = tuple[int, int, str] | None


def shape_here() -> Shape:
    """The terminal that this process has on its standard input and output."""
    if not (os.isatty(0) and os.isatty(1)):
        return None
    columns, rows = os.get_terminal_size(1)
    return rows, columns, os.environ.get("TERM", "dumb")


class HostTerminal:
    """Our side, while a debugger is open: keys go over as they are typed, what comes is shown as it is."""

    def __init__(self, link: Link, config: pytest.Config) -> None:
        self._link = link
        self._stack = contextlib.ExitStack()
        self._stack.enter_context(internals.own_input(config))
        if shape_here() is not None:
            self._stack.callback(termios.tcsetattr, 0, termios.TCSADRAIN, termios.tcgetattr(0))
            tty.setraw(0)
        self.input_fd: int | None = 0

    def forward(self) -> None:
        """Sends what can be read; an end of file is sent once."""
        try:
            data = os.read(0, 4096)
        except OSError:
            data = b""
        if not data:
            self.input_fd = None
        self._link.send("input", data)

    def show(self, data: bytes) -> None:
        """Writes the debugger's output."""
        while data:
            data = data[os.write(1, data) :]

    def close(self) -> None:
        """Gives the terminal back. Idempotent."""
        self._stack.close()


class GuestTerminal:
    """The guest's side: while it is open, the debugger's standard input is what comes over the link.

    With a terminal on the other side it gets a pseudo-terminal, on which line editing, completion and Ctrl-C work;
    else a pipe.
    """

    def __init__(self, link: Link, shape: Shape) -> None:
        self._link = link
        self._shape = shape
        self._threads: list[threading.Thread] = []
        self._saved: dict[int, int] = {}
        self._ours = -1
        self._theirs = -1
        self._ended = False

    @property
    def is_open(self) -> bool:
        """Whether a debugger has it."""
        return self._ours >= 0

    def open(self) -> None:
        """Puts the terminal in the place of standard input, and of output where there is one."""
        if self.is_open:
            return
        if self._shape is None:
            self._theirs, self._ours = os.pipe()
            taken = [0]
        else:
            self._ours, self._theirs = os.openpty()
            self._prepare(*self._shape)
            taken = [0, 1]
        self._saved = {fd: os.dup(fd) for fd in taken}
        for fd in taken:
            os.dup2(self._theirs, fd)
        self._link.send("debugger", True)
        roles = [self._feed] if self._shape is None else [self._feed, self._drain]
        self._threads = [threading.Thread(target=role, daemon=True) for role in roles]
        for thread in self._threads:
            thread.start()

    def _prepare(self, rows: int, columns: int, term: str) -> None:
        os.environ["TERM"] = term
        fcntl.ioctl(self._theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        mode = termios.tcgetattr(self._theirs)
        mode[6][termios.VSUSP] = b"\0"  # nobody would continue us
        termios.tcsetattr(self._theirs, termios.TCSANOW, mode)
        with contextlib.suppress(OSError):
            os.setsid()
        with contextlib.suppress(OSError):
            fcntl.ioctl(self._theirs, termios.TIOCSCTTY, 1)  # so that Ctrl-C is SIGINT

    def _feed(self) -> None:
        """Link to terminal, until the other side says that it has closed."""
        while True:
            try:
                message = self._link.receive()
            except EOFError:
                os._exit(1)  # pytest is gone
            if message[0] == "closed":
                return
            data = message[1]
            with contextlib.suppress(OSError):
                if data:
                    os.write(self._ours, data)
                elif self._shape is None:
                    os.close(self._ours)
                    self._ended = True
                else:
                    os.write(self._ours, b"\x04")

    def _drain(self) -> None:
        """Terminal to link, until the last descriptor of the terminal's other end is closed."""
        while True:
            try:
                data = os.read(self._ours, 65536)
            except OSError:
                return
            self._link.send("output", data)

    def close(self) -> None:
        """Gives the standard streams back. Idempotent."""
        if not self.is_open:
            return
        for fd, saved in self._saved.items():
            # pytest's capturing may have taken the descriptor meanwhile, and has then put it right.
            if os.path.sameopenfile(fd, self._theirs):
                os.dup2(saved, fd)
            os.close(saved)
        os.close(self._theirs)
        self._link.send("debugger", False)
        for thread in self._threads:
            thread.join(timeout=5)  # a process that the user started there may keep the terminal open
        if not self._ended:
            # The end of our controlling terminal: its SIGHUP is sent before close(2) returns.
            handler = signal.signal(signal.SIGHUP, signal.SIG_IGN)
            os.close(self._ours)
            signal.signal(signal.SIGHUP, handler)
        self._ours = self._theirs = -1
        self._ended = False
