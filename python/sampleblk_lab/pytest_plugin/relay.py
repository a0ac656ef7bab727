# SPDX-License-Identifier: MIT
"""``python -m sampleblk_lab.pytest_plugin.relay CONFIG PARENT FD ARGS…``: VMs on a host of a Dask cluster.

For the session it is as :mod:`sampleblk_lab.vm.launch`: standard streams, FD, signals, exit status, and the files below
its scratch folder. CONFIG is a :class:`Config` as JSON. The scheduler chooses the worker; :mod:`.far` runs there.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import platform
import queue
import shutil
import signal
import sys
import threading
import uuid
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import sampleblk_lab
from sampleblk_lab.paths import below
from sampleblk_lab.pytest_plugin import artefacts, sources
from sampleblk_lab.vm import options as vm_options
from sampleblk_lab.vm.launch import tied

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sampleblk_lab.pytest_plugin.far import Order, Part

# How long an answer may wait for something to tell.
_POLL_S = 1.0

# Variables of the session's that its guests get: others tell of a host.
_SENT = frozenset({"SAMPLEBLK_CPUS", "SAMPLEBLK_KERNEL", "SAMPLEBLK_MEMORY", "SAMPLEBLK_TIMEOUT"})
_SENT_PREFIX = "PYTEST_"


@dataclass(frozen=True)
class Config:
    """What the session tells a relay.

    Attributes:
        scheduler: Its address.
        launch: As :data:`sampleblk_lab.pytest_plugin.guests.LAUNCH`, for the other host.
        archive: The file that has the project's sources.
        digest: What they are called.
        root: The project's folder.
        scratch: The session's scratch folder.
    """

    scheduler: str
    launch: tuple[str, ...]
    archive: str
    digest: str
    root: str
    scratch: str

    def arguments(self) -> tuple[str, ...]:
        """What runs the relay, as Python's arguments."""
        return ("-P", "-m", __name__, json.dumps(asdict(self)))

    @classmethod
    def of(cls, text: str) -> Config:
        """Reads what :meth:`arguments` wrote."""
        values = json.loads(text)
        return cls(**{**values, "launch": tuple(values["launch"])})


_PREPARED = pytest.StashKey[Config]()


def prepared(
    config: pytest.Config, scheduler: str, launch: Sequence[str], items: Sequence[pytest.Item]
) -> tuple[str, ...]:
    """What runs a guest on a host of the cluster, as Python's arguments; packs the project's files, once a session.

    Raises:
        InputError: They cannot be sent.
    """
    if _PREPARED not in config.stash:
        also = {item.path for item in items} | ({config.inipath} if config.inipath is not None else set())
        archive = sources.packed(config.rootpath, also)
        scratch = artefacts.scratch_of(config)
        path = scratch / artefacts.GUESTS / f"sources-{os.getpid()}.tar.gz"
        path.write_bytes(archive)
        config.stash[_PREPARED] = Config(
            scheduler=scheduler,
            launch=tuple(launch),
            archive=str(path),
            digest=sources.digest_of(archive),
            root=str(config.rootpath),
            scratch=str(scratch),
        )
    return config.stash[_PREPARED].arguments()


class FarError(Exception):
    """Nothing can be run there, or not any more; says why."""


class _Relay:
    def __init__(self, client: Any, config: Config, order: Order, console: Path) -> None:
        self._client = client
        self._config = config
        self._order = order
        self._console = console
        self._address = ""
        self._wanted: list[int] = []

    def _there(self, function: Any, *arguments: Any) -> Any:
        """Calls a function in the worker that has the guest."""
        try:
            return self._client.run(function, *arguments, workers=[self._address])[self._address]
        except OSError as error:  # the connection to it is lost, or it has left the cluster
            raise FarError(f"the worker {self._address} that had the VM was lost ({error})") from None
        except Exception as error:  # what the function raised, or Dask for a scheduler that is lost
            raise FarError(f"the worker {self._address}: {type(error).__name__}: {error}") from None

    def ask_for_signal(self, number: int) -> None:
        self._wanted.append(number)

    def run(self) -> int:
        """Returns the exit status of the process over there."""
        from sampleblk_lab.pytest_plugin import far

        addresses: queue.SimpleQueue[str] = queue.SimpleQueue()
        topic = far.topic(self._order.token)
        self._client.subscribe_topic(topic, lambda event: addresses.put(event[1]["address"]))
        task = self._client.submit(far.serve, self._order, key=topic, pure=False)
        try:
            self._address = self._taken(addresses, task)
            self._prepare()
            self._there(far.begin, self._order.token)
            threading.Thread(target=self._forward_input, daemon=True).start()
            while True:
                while self._wanted:
                    number = self._wanted.pop(0)
                    if number == signal.SIGTERM:
                        self._there(far.kill, self._order.token)
                        return -signal.SIGKILL
                    self._there(far.send_signal, self._order.token, number)
                for part in self._there(far.poll, self._order.token, _POLL_S):
                    if part[0] == "status":
                        return int(part[1])
                    self._take(part)
        finally:
            task.release()

    def _taken(self, addresses: queue.SimpleQueue[str], task: Any) -> str:
        """Waits until a worker has the task."""
        told = False
        while True:
            try:
                return addresses.get(timeout=1)
            except queue.Empty:
                if signal.SIGTERM in self._wanted:
                    raise FarError("ended before a worker was free") from None
                if task.status in ("error", "lost", "cancelled"):
                    raise FarError(f"the scheduler {self._config.scheduler} did not run it: {task.status}") from None
                if not told:
                    told = True
                    print(f"sampleblk-lab: waiting for a worker of {self._config.scheduler} …", file=sys.stderr)

    def _prepare(self) -> None:
        from sampleblk_lab.pytest_plugin import far

        here, there = (sampleblk_lab.__version__, platform.python_version()), self._there(far.about)
        if _series(here) != _series(there):
            raise FarError(
                f"the worker {self._address} has sampleblk-lab {there[0]} on Python {there[1]}, "
                f"not {here[0]} on {here[1]} as this session"
            )
        if not self._there(far.has_sources, self._config.digest):
            self._there(far.take_sources, Path(self._config.archive).read_bytes())

    def _forward_input(self) -> None:
        from sampleblk_lab.pytest_plugin import far

        with contextlib.suppress(FarError):
            while data := os.read(0, 1 << 20):
                self._there(far.feed, self._order.token, data)
            self._there(far.feed, self._order.token, b"")

    def _take(self, part: Part) -> None:
        match part:
            case ("stdout", data):
                _write(1, data)
            case ("stderr", data):
                _write(2, data)
            case ("say", data):
                _write(sys.stderr.fileno(), data)
            case ("console", data):
                with self._console.open("ab") as file:
                    file.write(data)
            case ("file", name, at, data):
                path = self._path_of(name)
                with path.open("wb" if at == 0 else "r+b") as file:
                    file.seek(at)
                    file.write(data)
            case ("link", name, target):
                path = self._path_of(name)
                if path.is_dir():
                    shutil.rmtree(path)
                path.unlink(missing_ok=True)
                path.symlink_to(target)

    def _path_of(self, name: str) -> Path:
        try:
            path = below(Path(self._config.scratch), name)
        except ValueError:
            raise FarError(f"the worker {self._address} sent a file named {name!r}") from None
        # What was a link there is none any more: through one that stays, what it leads to would be written over.
        for place in reversed((path, *path.parents)[: len(Path(name).parts)]):
            if place.is_symlink():
                place.unlink()
        path.parent.mkdir(parents=True, exist_ok=True)
        return path


def _write(descriptor: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]


def _series(versions: tuple[str, str]) -> tuple[str, str]:
    """Of Python's version what pickles and installed packages depend on."""
    return versions[0], versions[1].rpartition(".")[0]


def _order(config: Config, arguments: list[str]) -> tuple[Order, Path]:
    """What to run, of a command for this host."""
    from sampleblk_lab.pytest_plugin.far import Order

    mine, python = vm_options.split(arguments)
    given = dict(zip(mine[::2], mine[1::2], strict=True))
    console = Path(given.pop("--console"))
    del given["--run-dir"]
    vm = [part for pair in given.items() for part in pair]
    cpus, memory_mib = vm_options.size_of(vm_options.parsed(vm))
    order = Order(
        token=uuid.uuid4().hex,
        launch=config.launch,
        vm=tuple(vm),
        python=tuple(python),
        sources=config.digest,
        root=config.root,
        cwd=os.getcwd(),  # noqa: PTH109
        scratch=config.scratch,
        environment={
            name: value for name, value in os.environ.items() if name in _SENT or name.startswith(_SENT_PREFIX)
        },
        cpus=cpus,
        memory_mib=memory_mib,
    )
    return order, console


def main() -> int:
    """Returns the exit status of the process on the other host."""
    config = Config.of(sys.argv.pop(1))
    tied()
    from sampleblk_lab.errors import SampleblkError
    from sampleblk_lab.sweeps.place import connected
    from sampleblk_lab.vm.python import GIVE_UP, die_by

    relay: _Relay | None = None
    early: list[int] = []

    def caught(number: int, _frame: object) -> None:
        relay.ask_for_signal(number) if relay is not None else early.append(number)

    signal.signal(GIVE_UP, caught)
    signal.signal(signal.SIGTERM, caught)
    try:
        order, console = _order(config, sys.argv[1:])
        # Dask tells of lost connections on standard error, which here has what the guest writes.
        logging.getLogger("distributed").setLevel(logging.CRITICAL + 1)
        with connected(config.scheduler) as client:
            relay = _Relay(client, config, order, console)
            for number in early:
                relay.ask_for_signal(number)
            status = relay.run()
    except (FarError, SampleblkError, OSError) as error:
        print(f"{error}", file=sys.stderr)
        return 125
    if status < 0:
        die_by(-status)
    return status


if __name__ == "__main__":
    sys.exit(main())
