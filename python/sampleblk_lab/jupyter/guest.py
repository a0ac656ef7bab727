# SPDX-License-Identifier: MIT
"""The guest's side of a notebook kernel: starts it on Unix sockets, and carries their bytes over our own streams.

``python -m sampleblk_lab.jupyter.guest CONNECTION_FILE COMMAND…``; standard library only, for it is imported over 9p.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from pathlib import Path

from sampleblk_lab.jupyter.frames import CHANNELS, CLOSE, Connections, Frame, Wire, serve

# Importing ipykernel over 9p under emulation takes its time.
_KERNEL_DEADLINE_S = 120.0

# How long what a kernel has said last may be on its way; a process that it has forked may have its sockets.
_DRAIN_S = 5.0


class Kernel:
    """The kernel's process, a child of ours."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self.ended = False

    def wait(self) -> int:
        """Waits for its end; returns its status."""
        os.waitid(os.P_PID, self._pid, os.WEXITED | os.WNOWAIT)
        self.ended = True  # before its number may be another's
        return os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])

    def send_signal(self, number: int) -> None:
        """Does nothing when it has ended."""
        if not self.ended:
            os.kill(self._pid, number)


class Guest:
    """One kernel and its connections.

    Args:
        kernel: It.
        folder: Where its sockets will be.
    """

    def __init__(self, kernel: Kernel, folder: Path) -> None:
        self.kernel = kernel
        self._folder = folder
        self._wire = Wire(sys.stdin.buffer, sys.stdout.buffer)
        self._connections = Connections(self._wire)

    def opened(self, frame: Frame) -> None:
        """A front end connected on the host: connects to the kernel's socket, in a thread of its own.

        Bytes for it wait in the wire's order behind this frame, so they wait in a pair of sockets of ours.
        """
        ours, theirs = socket.socketpair()
        self._connections.add(frame.connection, ours)
        threading.Thread(target=self._connect, args=(frame, theirs), daemon=True).start()

    def _connect(self, frame: Frame, theirs: socket.socket) -> None:
        path = str(self._folder / f"kernel-{frame.channel + 1}")
        end = time.monotonic() + _KERNEL_DEADLINE_S
        kernel = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        while True:
            try:
                kernel.connect(path)
                break
            except OSError:
                if time.monotonic() > end or self.kernel.ended:
                    theirs.close()
                    return
                time.sleep(0.05)
        for source, sink in ((kernel, theirs), (theirs, kernel)):
            threading.Thread(target=_pump, args=(source, sink), daemon=True).start()

    def run(self) -> int:
        """Serves until the kernel ends, or the host is gone; returns the kernel's status."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._pass_on)
        threading.Thread(target=self._serve, daemon=True).start()
        status = self.kernel.wait()
        self._connections.drain(_DRAIN_S)
        return status if status >= 0 else 128 - status

    def _serve(self) -> None:
        with contextlib.suppress(ConnectionError):
            serve(self._wire, self.opened, self._connections)
        self.kernel.send_signal(signal.SIGKILL)  # the host is gone

    def _pass_on(self, number: int, _frame: object) -> None:
        self.kernel.send_signal(number)


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
    for end in (source, sink):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


def _become(command: list[str]) -> None:
    """Is the kernel, in a session of its own. One of this Python's has imported here what it will (host.PRELOAD)."""
    os.setsid()
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)  # what it prints on its own descriptors is no frame
    os.environ["JPY_PARENT_PID"] = str(os.getppid())
    match command:
        case [sys.executable, "-m", name, *arguments]:
            from sampleblk_lab.vm.guest import fork_server

            fork_server.run_module(name, arguments)
        case _:
            try:
                os.execvp(command[0], command)
            except OSError as error:
                raise SystemExit(f"{command[0]}: {error.strerror}") from None


def main(argv: list[str] | None = None) -> int | None:
    """Starts the kernel; returns its exit status, or None where this has been the kernel."""
    original, *command = sys.argv[1:] if argv is None else argv
    told = json.loads(Path(original).read_text())
    folder = Path(tempfile.mkdtemp(prefix="sampleblk-kernel-"))
    mine = {**told, "transport": "ipc", "ip": str(folder / "kernel")}
    mine |= {channel: number for number, channel in enumerate(CHANNELS, 1)}
    path = folder / "connection.json"
    path.write_text(json.dumps(mine))
    pid = os.fork()
    if pid == 0:
        _become([argument.replace(original, str(path)) for argument in command])
        return None
    try:
        return Guest(Kernel(pid), folder).run()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


__all__ = ["CLOSE", "Guest", "main"]

if __name__ == "__main__":
    status = main()
    if status is not None:
        # Not sys.exit: a thread still reads standard input, and a buffered file that is read from cannot be finalized.
        os._exit(status)
