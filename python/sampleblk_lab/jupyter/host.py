# SPDX-License-Identifier: MIT
"""The host's side of a notebook kernel: listens on the ports that the front ends were told, and starts the VM.

``python -m sampleblk_lab.jupyter.host CONNECTION_FILE [VM OPTIONS] -- COMMAND…``. It ends when the kernel does, and
takes the VM with it when it is killed.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from sampleblk_lab.jupyter.frames import CHANNELS, Connections, Wire, serve

# What the VM's Python has imported when a kernel starts, so that it answers in seconds: what the kernel, our magics and
# matplotlib import. Not ipykernel.kernelapp and matplotlib, which read then what is the kernel's own.
PRELOAD = (
    *("ipykernel.ipkernel", "ipykernel.heartbeat", "ipykernel.parentpoller", "ipykernel.zmqshell", "sqlite3"),
    *("IPython.core.history", "IPython.core.shellapp", "jupyter_client", "zmq.eventloop.zmqstream"),
    *("sampleblk_lab.jupyter.frames", "sampleblk_lab.jupyter.magics"),
    *("PIL.PngImagePlugin", "contourpy", "cycler", "dateutil.rrule", "kiwisolver", "numpy.ma", "numpy.testing"),
    *("packaging.version", "pyparsing"),
)


def _listen(told: dict[str, Any]) -> list[socket.socket]:
    """The five ports.

    Raises:
        OSError: One is taken.
    """
    listeners = []
    for channel in CHANNELS:
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        # The front end found the port free by binding it a moment ago.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((told["ip"], told[channel]))
        listener.listen()
        listeners.append(listener)
    return listeners


def _accept(listener: socket.socket, channel: int, numbers: Any, connections: Connections) -> None:
    with contextlib.suppress(OSError, ValueError):  # the port or the wire is closed: we are ending
        while True:
            made, _ = listener.accept()
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connections.add(next(numbers), made, channel)


def _end_with(front_end: int, machine: subprocess.Popen[bytes]) -> None:
    """Ends the VM of a front end that has gone, as when it was killed: ipykernel's poller does so to a kernel here."""
    while os.getppid() == front_end:
        time.sleep(1)
    machine.kill()


def main(argv: list[str] | None = None) -> int:
    """Runs the kernel to its end; returns its exit status."""
    parent = os.getppid()
    arguments = sys.argv[1:] if argv is None else argv
    middle = arguments.index("--")
    connection_file, *vm_options = arguments[:middle]
    told = json.loads(Path(connection_file).read_text())
    listeners = _listen(told)
    python = [sys.executable, "-m", "sampleblk_lab.vm.python", "--preload", ",".join(PRELOAD), *vm_options]
    guest = ["-m", "sampleblk_lab.jupyter.guest", connection_file, *arguments[middle + 1 :]]
    machine = subprocess.Popen([*python, *guest], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert machine.stdin is not None
    assert machine.stdout is not None
    # Whoever interrupts a kernel signals its process group: the VM's process passes it on, we stay.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda number, _: machine.send_signal(number))
    if os.environ.get("JPY_PARENT_PID") == str(parent):  # else it may outlive its front end
        threading.Thread(target=_end_with, args=(parent, machine), daemon=True).start()
    wire = Wire(machine.stdout, machine.stdin)
    connections = Connections(wire)
    numbers = itertools.count()
    for channel, listener in enumerate(listeners):
        threading.Thread(target=_accept, args=(listener, channel, numbers, connections), daemon=True).start()
    with contextlib.suppress(ConnectionError):
        serve(wire, lambda _: None, connections)
    connections.close()
    for listener in listeners:
        listener.close()
    return machine.wait()


if __name__ == "__main__":
    sys.exit(main())
