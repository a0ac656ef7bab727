# SPDX-License-Identifier: MIT
"""Where work is done for a call: processes of this machine, a Dask cluster, or any executor."""

from __future__ import annotations

import concurrent.futures
import contextlib
import inspect
import os
import traceback
import uuid
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from sampleblk_lab.errors import InputError, UnsupportedError
from sampleblk_lab.memory import QEMU_MIB, available_mib
from sampleblk_lab.sweeps import host
from sampleblk_lab.sweeps.work import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sampleblk_lab.sweeps.trial import Shape

# What an executor is given ahead of what runs: enough for any cluster, few enough for the memory.
_AHEAD = 10_000

# What an executor is taken to run at a time that does not say.
_THREADS = 32

# What Dask's tasks are called by, and where its scheduler tells of workers.
_TASK = "sweep-"
_TOPIC = "all"

#: The resource of Dask's workers that get the exclusive trials.
RESOURCE = "sampleblk-host"


class Submit(Protocol):
    """Hands over a call."""

    def __call__(
        self,
        function: Callable[..., Outcome],
        *arguments: Any,
        key: str,
        exclusive: bool = False,
        to: str = "",
    ) -> concurrent.futures.Future[Outcome]:
        """Has a function called; returns what its outcome comes in.

        Args:
            function: One of ours, which the other side has, too.
            arguments: Its arguments.
            key: What it is about, as :attr:`Place.losses` has it; without a hyphen.
            exclusive: Whether it goes to the workers that are for this, where there are such.
            to: The address of the worker to prefer, where it has one. When that is lost the call may wait for it
                without end: whoever prefers one looks at :attr:`Place.workers`.
        """


class Place:
    """Where work is done: trials of a sweep, states of an exploration.

    Attributes:
        submit: Hands over a call.
        ahead: How many calls it is given at a time.
        stop: Ends what runs, by the name that its work has for what it is for.
        lost: Why it will do nothing more, or nothing.
        packed: Whether trials in VMs wait for processors and memory; not where the user said how many run at a time.
        losses: The workers that were lost while they had a call, by its key, each with the words for a trial's row.
        workers: How many calls each worker runs at a time, by its address; all under one name where that is unknown.
        sent: Brings data to a worker, by its address; returns what stands for it among the arguments of a call.
    """

    def __init__(
        self,
        submit: Submit,
        ahead: int,
        stop: Callable[[str], object] = host.stop,
        lost: Callable[[], str] = str,
        losses: dict[str, list[str]] | None = None,
        *,
        packed: bool = True,
        workers: Callable[[], dict[str, int]] | None = None,
        sent: Callable[[bytes, str], Any] = lambda data, _: data,
    ) -> None:
        self.submit = submit
        self.ahead = ahead
        self.stop = stop
        self.lost = lost
        self.packed = packed
        self.losses = {} if losses is None else losses
        self.workers = workers or (lambda: {"": ahead})
        self.sent = sent


def _of_executor(executor: Any, ahead: int, *, packed: bool = True) -> Place:
    def submit(function: Callable[..., Outcome], *arguments: Any, **_: object) -> concurrent.futures.Future[Outcome]:
        made: concurrent.futures.Future[Outcome] = executor.submit(function, *arguments)
        return made

    return Place(
        submit,
        ahead,
        packed=packed,
        workers=lambda: {"": getattr(executor, "_max_workers", None) or _THREADS},
    )


def local_workers(shape: Shape | None) -> int:
    """How many trials this machine runs at a time: as many as it has processors, and memory, for."""
    processors = len(os.sched_getaffinity(0))
    if shape is None:
        return processors
    return max(1, min(processors // shape.cpus, available_mib() // (shape.memory_mib + QEMU_MIB)))


def check_workers(workers: int | None) -> None:
    """How many at a time. Raises InputError."""
    if workers is not None and (not isinstance(workers, int) or isinstance(workers, bool) or workers < 1):
        raise InputError(f"workers={workers!r}", expected="a whole number of 1 or more")


@contextlib.contextmanager
def place(client: Any, workers: int | None, shape: Shape | None) -> Iterator[Place]:
    """The place that was asked for.

    Raises:
        InputError: `client` is neither a Dask client nor an executor; `workers` is not a positive number, or given with
            a client.
        UnsupportedError: It is an address, and distributed is not installed.
    """
    check_workers(workers)
    if client is None:
        count = workers or local_workers(shape)
        with concurrent.futures.ThreadPoolExecutor(count, thread_name_prefix="sweep") as threads:
            yield _of_executor(threads, count, packed=workers is None)
        return
    if workers is not None:
        raise InputError(f"workers={workers} with a client", expected="the workers that the client has")
    if isinstance(client, str):
        with connected(client) as made, _of_dask(made) as there:
            yield there
    elif hasattr(client, "get_executor") and hasattr(client, "scheduler_info"):
        with _of_dask(client) as there:
            yield there
    elif isinstance(client, concurrent.futures.Executor) or callable(getattr(client, "submit", None)):
        yield _of_executor(client, _AHEAD)
    else:
        raise InputError(
            f"client={client!r}",
            expected="a distributed.Client, its scheduler's address, or a concurrent.futures.Executor",
        )


@contextlib.contextmanager
def connected(address: str) -> Iterator[Any]:
    """A client of the scheduler at an address."""
    try:
        distributed: Any = import_module("distributed")
    except ImportError:
        raise UnsupportedError(
            "a Dask cluster", "distributed is not installed", "pip install 'sampleblk-lab[sweep]'"
        ) from None
    try:
        client = distributed.Client(address, set_as_default=False)
    except (OSError, ValueError) as error:
        raise InputError(
            f"no scheduler at {address!r}: {error}", expected="an address such as tcp://host:8786"
        ) from None
    with client:
        yield client


def _workers(client: Any) -> dict[str, dict[str, Any]]:
    """What the scheduler says of each worker, by its address."""
    every = {"n_workers": -1} if "n_workers" in inspect.signature(client.scheduler_info).parameters else {}
    return dict(client.scheduler_info(**every)["workers"])


@contextlib.contextmanager
def _of_dask(client: Any) -> Iterator[Place]:
    executor = client.get_executor(pure=False)
    losses: dict[str, list[str]] = {}

    # Where some workers are meant for what has a host to itself, it is sent only there, one to each at a time.
    declared = any(RESOURCE in (worker.get("resources") or {}) for worker in _workers(client).values())
    chosen = {"resources": {RESOURCE: 1}} if declared else {}

    def submit(
        function: Callable[..., Outcome], *arguments: Any, key: str, exclusive: bool = False, to: str = ""
    ) -> concurrent.futures.Future[Outcome]:
        made: concurrent.futures.Future[Outcome] = executor.submit(
            function,
            *arguments,
            key=f"{_TASK}{key}-{uuid.uuid4().hex}",
            **(chosen if exclusive else {}),
            **({"workers": [to], "allow_other_workers": True} if to else {}),
        )
        return made

    def sent(data: bytes, to: str) -> Any:
        # Not as a part of the call, which the scheduler would keep. Without the worker it goes wherever the call does.
        with contextlib.suppress(Exception):
            [future] = client.scatter([data], workers=[to] if to else None, hash=False)
            return future
        return data

    def workers() -> dict[str, int]:
        with contextlib.suppress(Exception):  # the scheduler is gone
            return {address: worker["nthreads"] for address, worker in _workers(client).items()}
        return {}

    def heard(event: tuple[float, Any]) -> None:
        """The scheduler gives what a lost worker had to others, and tells nobody but those who listen."""
        _, about = event
        if not isinstance(about, dict) or about.get("action") != "remove-worker":
            return
        for name in map(str, about.get("processing-tasks", ())):
            if name.startswith(_TASK):
                key = name.removeprefix(_TASK).partition("-")[0]
                losses.setdefault(key, []).append(f"lost: the worker {about.get('worker', '')} that had it was lost")

    def lost() -> str:
        return "" if client.status == "running" else f"the client of the scheduler is {client.status}"

    def stop(sweep: str) -> None:
        # Trials that run cannot be cancelled; this reaches the processes that they run in. A worker that does not
        # answer has ended, or its trials end with it.
        with contextlib.suppress(Exception):
            client.run(host.stop, sweep, on_error="ignore")

    # A client has one handler for a topic: where the user has one already, losses are not told in the rows.
    listens = _TOPIC not in getattr(client, "_event_handlers", {})
    if listens:
        client.subscribe_topic(_TOPIC, heard)
    try:
        yield Place(submit, _AHEAD, stop, lost, losses, workers=workers, sent=sent)
    finally:
        if listens:
            with contextlib.suppress(Exception):  # the scheduler is gone
                client.unsubscribe_topic(_TOPIC)


def outcome_of(future: concurrent.futures.Future[Outcome]) -> Outcome:
    """What came of a call that has ended; what the place says of its own failures is one of the machine."""
    try:
        return future.result()
    except concurrent.futures.CancelledError:
        return Outcome(kind="lost", message="the executor gave the trial up")
    except concurrent.futures.BrokenExecutor as error:
        return Outcome(kind="lost", message=f"{type(error).__name__}: {error}")
    except BaseException as error:
        # Where the worker is lost just when its result has come, Dask takes the result for an error's three parts.
        *_, (frame, _) = traceback.walk_tb(error.__traceback__)
        if frame.f_code.co_name == "_cascade_future" and "unpack" in str(error):
            return Outcome(kind="lost", message="the worker that had the result was lost")
        # Dask's for a task whose worker died, again and again.
        kind = "killed" if type(error).__name__ == "KilledWorker" else "error"
        return Outcome(kind=kind, message=f"{type(error).__name__}: {error}")
