# SPDX-License-Identifier: MIT
"""Work done in a process of its own, which may be killed; see :mod:`.launcher` for the other side."""

from __future__ import annotations

import atexit
import contextlib
import os
import socket
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

from sampleblk_lab import proc
from sampleblk_lab.sweeps.launcher import STATUS

if TYPE_CHECKING:
    from collections.abc import Iterator

_CHUNK = 1 << 16


class Killed(Exception):  # noqa: N818  # what happened, caught next to where it is raised
    """A process ended without an outcome; says how."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def _passed_on() -> tuple[object, ...]:
    """What a process that starts now has from this one, and a function may depend on."""
    # Where pytest notes which test runs, and whether it is being set up.
    environment = {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}
    return environment, proc.passed_on(), proc.text(os.getpid(), "cgroup")


class _Launcher:
    """A launcher of this process, and the trials that run below it."""

    def __init__(self, passed_on: tuple[object, ...]) -> None:
        self.owner = os.getpid()
        self.passed_on = passed_on
        self.uses = 0
        self._lock = threading.Lock()
        self._requests, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with there:
            self._process = subprocess.Popen(
                # Not by -m, which would look for modules in the working directory.
                [sys.executable, "-P", "-c", "from sampleblk_lab.sweeps.launcher import main; main()"],
                stdin=there.fileno(),
                process_group=0,  # out of reach of the terminal's Ctrl-C
            )

    def alive(self) -> bool:
        return self._process.poll() is None

    def begin(self, work: bytes, kind: bytes) -> socket.socket:
        here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with there, self._lock:
                socket.send_fds(self._requests, [kind], [there.fileno()])
            here.sendall(len(work).to_bytes(8, "little") + work)
        except OSError as error:
            here.close()
            raise Killed("killed", f"the process that trials are forked from is gone ({error})") from None
        return here

    def close(self) -> None:
        """Ends it; in a fork of the process that it is for, only lets go of it."""
        self._requests.close()
        if self.owner == os.getpid():
            self._process.wait()


# The last one is that of new trials. Others were made when this process had another environment, and end with what runs
# below them.
_launchers: list[_Launcher] = []
_making = threading.Lock()


@contextlib.contextmanager
def _ready() -> Iterator[_Launcher]:
    now = _passed_on()
    with _making:
        for one in [one for one in _launchers if one.owner != os.getpid() or not one.alive()]:
            _launchers.remove(one)
            one.close()
        if not _launchers or _launchers[-1].passed_on != now:
            _launchers.append(_Launcher(now))
            _close_unused()
        launcher = _launchers[-1]
        launcher.uses += 1
    try:
        yield launcher
    finally:
        with _making:
            launcher.uses -= 1
            _close_unused()


def _close_unused() -> None:
    for one in [one for one in _launchers[:-1] if not one.uses]:
        _launchers.remove(one)
        one.close()


def close() -> None:
    """Ends this process's launcher and all that runs below it; the next trial starts another one."""
    with _making:
        while _launchers:
            _launchers.pop().close()


# Before the interpreter is taken down, which would warn of what it finds running.
atexit.register(close)

# What runs, by the sweep that it is for.
_running: dict[str, set[socket.socket]] = {}
_stopped: set[str] = set()
_running_lock = threading.Lock()


def stop(sweep: str) -> int:
    """Kills what runs for a sweep in this process, and lets nothing of it begin; returns how many were killed."""
    with _running_lock:
        _stopped.add(sweep)
        ended = list(_running.get(sweep, ()))
        for connection in ended:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
    return len(ended)


def is_stopped(sweep: str) -> bool:
    """Whether :func:`stop` was called for a sweep."""
    return sweep in _stopped


def run(sweep: str, work: bytes, *, kind: bytes, deadline_s: float | None) -> bytes:
    """Has the launcher do one piece of work; returns what it wrote.

    Args:
        sweep: Whom it is for, as :func:`stop` is told.
        work: What :func:`sampleblk_lab.sweeps.work.serve` reads.
        kind: What it is: one of the launcher's.
        deadline_s: Seconds after which it is killed.

    Raises:
        Killed: It ended without an outcome.
    """
    end = None if deadline_s is None else time.monotonic() + deadline_s
    with _running_lock:
        if sweep in _stopped:
            raise Killed("stopped", "the sweep was interrupted")
    with _ready() as launcher, launcher.begin(work, kind) as connection:
        with _running_lock:
            if sweep in _stopped:
                raise Killed("stopped", "the sweep was interrupted")
            _running.setdefault(sweep, set()).add(connection)
        try:
            data = _read(connection, end)
        finally:
            with _running_lock:
                _running[sweep].discard(connection)
                if not _running[sweep]:
                    del _running[sweep]
    if (outcome := _complete(data)) is not None:
        return outcome
    if sweep in _stopped:
        raise Killed("stopped", "the sweep was interrupted")
    if len(data) < STATUS.size:
        raise Killed("killed", "the process that trials are forked from was killed")
    [status] = STATUS.unpack(data[-STATUS.size :])
    if status < 0:
        raise Killed("killed", f"the trial's process was killed by signal {-status}")
    raise Killed("exited", f"the function ended its process, with exit status {status}")


def _complete(data: bytes) -> bytes | None:
    """The outcome, if the child has written all of it: after its length, before the launcher's status."""
    size = int.from_bytes(data[:8], "little")
    return data[8 : 8 + size] if 0 < size <= len(data) - 8 else None


def _read(connection: socket.socket, end: float | None) -> bytes:
    data = bytearray()
    while True:
        left = None if end is None else end - time.monotonic()
        if left is not None and left <= 0:
            raise Killed("deadline", "the trial ran past its deadline and was killed")
        connection.settimeout(left)
        try:
            chunk = connection.recv(_CHUNK)
        except TimeoutError:
            continue
        except OSError:
            chunk = b""
        if not chunk:
            return bytes(data)
        data += chunk
