# SPDX-License-Identifier: MIT
"""The guest's side of a notebook kernel: starts it on Unix sockets, and carries their bytes over our own streams.

``python -m sampleblk_lab.jupyter.guest CONNECTION_FILE COMMAND…``; standard library only, for it is imported over 9p.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from sampleblk_lab.jupyter.frames import CHANNELS, CLOSE, Connections, Frame, Wire, serve

# Importing ipykernel over 9p under emulation takes its time.
_KERNEL_DEADLINE_S = 120.0


class Guest:
    """One kernel and its connections."""

    def __init__(self, told: dict[str, Any], folder: Path, command: list[str], original: str) -> None:
        self._folder = folder
        self._wire = Wire(sys.stdin.buffer, os.fdopen(os.dup(1), "wb"))
        # What the kernel prints on its own descriptors is no frame.
        os.dup2(2, 1)
        self._connections = Connections(self._wire)
        mine = {**told, "transport": "ipc", "ip": str(folder / "kernel")}
        mine |= {channel: number for number, channel in enumerate(CHANNELS, 1)}
        path = folder / "connection.json"
        path.write_text(json.dumps(mine))
        command = [argument.replace(original, str(path)) for argument in command]
        environment = {**os.environ, "JPY_PARENT_PID": str(os.getpid())}
        self.kernel = subprocess.Popen(command, stdin=subprocess.DEVNULL, env=environment, start_new_session=True)

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
                if time.monotonic() > end or self.kernel.poll() is not None:
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
        self._connections.close()
        return status if status >= 0 else 128 - status

    def _serve(self) -> None:
        with contextlib.suppress(ConnectionError):
            serve(self._wire, self.opened, self._connections)
        self.kernel.kill()  # the host is gone

    def _pass_on(self, number: int, _frame: object) -> None:
        if self.kernel.poll() is None:
            self.kernel.send_signal(number)


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
    for end in (source, sink):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


def main(argv: list[str] | None = None) -> int:
    """Starts the kernel; returns its exit status."""
    original, *command = sys.argv[1:] if argv is None else argv
    told = json.loads(Path(original).read_text())
    with tempfile.TemporaryDirectory(prefix="sampleblk-kernel-") as folder:
        return Guest(told, Path(folder), command, original).run()


__all__ = ["CLOSE", "Guest", "main"]

if __name__ == "__main__":
    # Not sys.exit: a thread still reads standard input, and a buffered file that is read from cannot be finalized.
    os._exit(main())
