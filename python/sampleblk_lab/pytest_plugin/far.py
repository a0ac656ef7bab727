# SPDX-License-Identifier: MIT
"""A guest on another host: what runs in the worker of Dask that has it.

:func:`serve` is the task, which takes a place of the worker for as long as the guest lives. The session's side, in
:mod:`.relay`, calls the other functions in the same worker through the scheduler, so that nobody needs to reach
anybody but the scheduler. It asks with :func:`poll` all the time; when it has been silent for a while, it is gone and
the guest ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import platform
import queue
import select
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sampleblk_lab
from sampleblk_lab.memory import QEMU_MIB
from sampleblk_lab.paths import is_kept, scratch_directory
from sampleblk_lab.pytest_plugin import artefacts, sources
from sampleblk_lab.pytest_plugin.messages import Frames
from sampleblk_lab.pytest_plugin.places import Places
from sampleblk_lab.results import machine
from sampleblk_lab.sweeps import claim

# The session polls several times a second.
SILENT_S = 20.0

# Of what is said, this much goes in one answer, and may wait for one.
_AT_A_TIME = 4 << 20
_WAITING = 64 << 20

#: What an answer is made of: kind, and by it bytes of a stream, a file's path, where in it and bytes, a link's path and
#: target, or the exit status.
Part = tuple[Any, ...]


@dataclass(frozen=True)
class Order:
    """What a session wants to run.

    Attributes:
        token: Names this guest in the worker.
        launch: What runs a Python interpreter's arguments in a VM, as Python's arguments.
        vm: VM options, without those that name paths.
        python: The interpreter's arguments.
        sources: Digest of the project's archive.
        root: The project's folder where the session is.
        cwd: The folder that the session was started in.
        scratch: The session's scratch folder.
        environment: Variables of the session's that go before the worker's own.
        cpus: Virtual CPUs.
        memory_mib: Memory of the VM.
    """

    token: str
    launch: tuple[str, ...]
    vm: tuple[str, ...]
    python: tuple[str, ...]
    sources: str
    root: str
    cwd: str
    scratch: str
    environment: dict[str, str]
    cpus: int
    memory_mib: int


class _Guest:
    def __init__(self, order: Order) -> None:
        self._order = order
        self._heard = time.monotonic()
        self._begin = threading.Event()
        self._parts: deque[Part] = deque()
        self._size = 0
        self._changed = threading.Condition()
        self._taken = threading.Event()
        self._input: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._process: subprocess.Popen[bytes] | None = None
        self._console_at = 0
        self._sent: dict[str, tuple[int, int]] = {}

    # --- what the session's side calls --------------------------------------------------------------------------

    def hear(self) -> None:
        self._heard = time.monotonic()

    def begin(self) -> None:
        self._begin.set()

    def feed(self, data: bytes) -> None:
        self._input.put(data)

    def send_signal(self, number: int) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    def take(self) -> list[Part]:
        """What there is, up to a size."""
        taken: list[Part] = []
        size = 0
        with self._changed:
            while self._parts and (not taken or size + _size_of(self._parts[0]) <= _AT_A_TIME):
                size += _size_of(self._parts[0])
                taken.append(self._parts.popleft())
            self._size -= size
            self._changed.notify_all()
        if any(part[0] == "status" for part in taken):
            self._taken.set()
        return taken

    # --- the task -----------------------------------------------------------------------------------------------

    def _left(self) -> bool:
        return time.monotonic() - self._heard > SILENT_S

    def _say(self, *part: Any) -> None:
        with self._changed:
            while self._size > _WAITING and not self._left():
                self._changed.wait(1)
            self._parts.append(part)
            self._size += _size_of(part)

    def run(self) -> None:
        while not self._begin.wait(1):
            if self._left():
                return
        need = claim.Claim(cpus=self._order.cpus, memory_mib=self._order.memory_mib + QEMU_MIB)
        with contextlib.suppress(claim.Stopped), claim.held(need, self._left), scratch_directory("guest") as scratch:
            (scratch / artefacts.GUESTS).mkdir()
            self._run(scratch)
        while not (self._taken.wait(1) or self._left()):
            pass

    def _run(self, scratch: Path) -> None:
        order = self._order
        project = sources.unpacked_to(order.sources)
        console = scratch / artefacts.GUESTS / "console.log"
        said, say = os.pipe()
        places = Places(((str(project), order.root), (str(scratch), order.scratch)), order.cwd)
        command = [sys.executable, *order.launch, str(os.getpid()), str(say), *order.vm]
        command += ["--run-dir", str(scratch), "--console", str(console), *order.python]
        process = self._process = subprocess.Popen(
            command,
            cwd=project,
            env={**os.environ, **order.environment, **machine.for_guest(), **places.environment()},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=[say],
            start_new_session=True,
        )
        os.close(say)
        threading.Thread(target=self._write, args=(process,), daemon=True).start()
        try:
            self._read(process, said, scratch, console)
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()
            self._input.put(b"")
            for stream in (process.stdout, process.stderr):
                assert stream is not None
                stream.close()
            os.close(said)
        self._say_files(scratch, console)
        self._say("status", process.returncode)

    def _write(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError), process.stdin as stream:
            while data := self._input.get():
                stream.write(data)
                stream.flush()

    def _read(self, process: subprocess.Popen[bytes], said: int, scratch: Path, console: Path) -> None:
        """Passes on what comes until all of it has ended, or nobody listens any more."""
        assert process.stdout is not None
        assert process.stderr is not None
        frames = Frames()
        names = {process.stdout.fileno(): "stdout", process.stderr.fileno(): "stderr", said: "say"}
        while names and not self._left():
            ready, _, _ = select.select(list(names), [], [], 0.2)
            self._say_console(console)
            for number in ready:
                data = os.read(number, 1 << 16)
                if not data:
                    del names[number]
                elif names[number] != "stdout":
                    self._say(names[number], data)
                else:
                    for frame, files in frames.add(data):
                        if files:
                            self._say_files(scratch, console)
                        self._say("stdout", frame)

    def _say_console(self, console: Path) -> None:
        with contextlib.suppress(FileNotFoundError), console.open("rb") as file:
            file.seek(self._console_at)
            if data := file.read(_AT_A_TIME):
                self._say("console", data)
                self._console_at += len(data)

    def _say_files(self, scratch: Path, console: Path) -> None:
        """What the guest has written since the last time."""
        self._say_console(console)
        for where, folders, names in os.walk(scratch):
            for path in (Path(where, name) for name in sorted((*folders, *names))):  # a link to a folder is among those
                with contextlib.suppress(FileNotFoundError):
                    self._say_file(path, path.relative_to(scratch).as_posix(), console)

    def _say_file(self, path: Path, name: str, console: Path) -> None:
        about = path.lstat()
        if path == console or self._sent.get(name) == (about.st_size, about.st_mtime_ns):
            return
        self._sent[name] = (about.st_size, about.st_mtime_ns)
        if path.is_symlink():
            self._say("link", name, str(path.readlink()))
        elif path.is_file():
            with path.open("rb") as file:
                for at in range(0, max(about.st_size, 1), _AT_A_TIME):
                    self._say("file", name, at, file.read(_AT_A_TIME))


def _size_of(part: Part) -> int:
    return sum(len(one) for one in part if isinstance(one, bytes))


_GUESTS: dict[str, _Guest] = {}


def topic(token: str) -> str:
    """Where a task tells which worker has it."""
    return f"sampleblk-guest-{token}"


def serve(order: Order) -> None:
    """The task: runs the guest until it has ended and the session knows how, or the session is gone."""
    from distributed import get_worker  # type: ignore[import-not-found,unused-ignore]

    worker = get_worker()
    guest = _GUESTS[order.token] = _Guest(order)
    worker.log_event(topic(order.token), {"address": worker.address})
    try:
        guest.run()
    finally:
        del _GUESTS[order.token]


# These run in the worker's event loop: none of them waits but for that.


async def about() -> tuple[str, str]:
    """The versions of the toolkit and of Python, which the session's must equal."""
    return sampleblk_lab.__version__, platform.python_version()


async def has_sources(digest: str) -> bool:
    """Whether this host has the project's files."""
    return is_kept(sources.unpacked_to(digest))


async def take_sources(archive: bytes) -> None:
    """Unpacks them."""
    await asyncio.get_running_loop().run_in_executor(None, sources.unpack, archive)


async def begin(token: str) -> None:
    """Lets the guest start: the host has what it needs."""
    _GUESTS[token].begin()


async def feed(token: str, data: bytes) -> None:
    """Gives the guest something to read; nothing stands for the end."""
    if token in _GUESTS:
        _GUESTS[token].feed(data)


async def send_signal(token: str, number: int) -> None:
    """Sends a signal to the process that has the VM."""
    if token in _GUESTS:
        _GUESTS[token].send_signal(number)


async def kill(token: str) -> None:
    """Ends the guest at once."""
    await send_signal(token, signal.SIGKILL)


async def poll(token: str, seconds: float) -> list[Part]:
    """What the guest said and wrote since the last time; waits for something, not for long."""
    guest = _GUESTS[token]
    end = time.monotonic() + seconds
    while True:
        guest.hear()
        parts = guest.take()
        if parts or time.monotonic() >= end:
            return parts
        await asyncio.sleep(0.005)
