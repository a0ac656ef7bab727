# SPDX-License-Identifier: MIT
"""The loop of a sweep: trials go to an executor, outcomes to the folder, failures of the machine are tried again."""

from __future__ import annotations

import concurrent.futures
import contextlib
import inspect
import os
import pickle
import queue
import sys
import time
import uuid
from collections import Counter, deque
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

from sampleblk_lab.errors import InputError, UnsupportedError
from sampleblk_lab.interrupts import counted_ctrl_c
from sampleblk_lab.progress import Line
from sampleblk_lab.sweeps import artefacts, host
from sampleblk_lab.sweeps.claim import Claim
from sampleblk_lab.sweeps.store import FACTS
from sampleblk_lab.sweeps.work import PASSING, Outcome, Work

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sampleblk_lab.sweeps.spec import Course, Spec
    from sampleblk_lab.sweeps.store import Writer
    from sampleblk_lab.sweeps.trial import Shape, Trial

# Between two looks at whether Ctrl-C was pressed.
_LOOK_S = 0.2

# How long trials may take to end once Ctrl-C was pressed.
_GRACE_S = 20.0

# Trials that an executor is given ahead of those that run: enough for any cluster, few enough for the memory.
_AHEAD = 10_000

# What Dask's tasks are called by, and where its scheduler tells of workers.
_TASK = "sweep-"
_TOPIC = "all"

#: The resource of Dask's workers that get the exclusive trials.
RESOURCE = "sampleblk-host"

# What QEMU needs beside the guest's memory.
_QEMU_MIB = 160


class Place:
    """Where trials run.

    Attributes:
        submit: Hands over a trial: what :func:`host.execute` is given, the trial's key, and whether it is exclusive.
        ahead: How many trials it is given at a time.
        stop: Ends what runs for a sweep.
        lost: Why it will do nothing more, or nothing.
        packed: Whether trials in VMs wait for processors and memory; not where the user said how many run at a time.
        losses: The workers that were lost while they had a trial, by the trial's key, each with the words for its row.
    """

    def __init__(
        self,
        submit: Callable[[bytes, str, bool], concurrent.futures.Future[Outcome]],
        ahead: int,
        stop: Callable[[str], object] = host.stop,
        lost: Callable[[], str] = str,
        losses: dict[str, list[str]] | None = None,
        *,
        packed: bool = True,
    ) -> None:
        self.submit = submit
        self.ahead = ahead
        self.stop = stop
        self.lost = lost
        self.packed = packed
        self.losses = {} if losses is None else losses


def local_workers(shape: Shape | None) -> int:
    """How many trials this machine runs at a time: as many as it has processors, and memory, for."""
    processors = len(os.sched_getaffinity(0))
    if shape is None:
        return processors
    free_mib = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 20
    with contextlib.suppress(OSError, ValueError), open("/proc/meminfo") as file:  # noqa: PTH123
        free_mib = next(int(line.split()[1]) >> 10 for line in file if line.startswith("MemAvailable:"))
    return max(1, min(processors // shape.cpus, free_mib // (shape.memory_mib + _QEMU_MIB)))


@contextlib.contextmanager
def place(client: Any, workers: int | None, shape: Shape | None) -> Iterator[Place]:
    """The place that was asked for.

    Raises:
        InputError: `client` is neither a Dask client nor an executor; `workers` is not a positive number, or given with
            a client.
        UnsupportedError: It is an address, and distributed is not installed.
    """
    if workers is not None and (not isinstance(workers, int) or isinstance(workers, bool) or workers < 1):
        raise InputError(f"workers={workers!r}", expected="a whole number of 1 or more")
    if client is None:
        count = workers or local_workers(shape)
        with concurrent.futures.ThreadPoolExecutor(count, thread_name_prefix="sweep") as threads:
            yield Place(lambda work, *_: threads.submit(host.execute, work), count, packed=workers is None)
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
        yield Place(lambda work, *_: client.submit(host.execute, work), _AHEAD)
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
            "sweeps on a cluster", "distributed is not installed", "pip install 'sampleblk-lab[sweep]'"
        ) from None
    try:
        client = distributed.Client(address, set_as_default=False)
    except (OSError, ValueError) as error:
        raise InputError(
            f"no scheduler at {address!r}: {error}", expected="an address such as tcp://host:8786"
        ) from None
    with client:
        yield client


def _declared(client: Any) -> bool:
    """Whether a worker has the resource :data:`RESOURCE`."""
    every = {"n_workers": -1} if "n_workers" in inspect.signature(client.scheduler_info).parameters else {}
    workers = client.scheduler_info(**every)["workers"].values()
    return any(RESOURCE in (worker.get("resources") or {}) for worker in workers)


@contextlib.contextmanager
def _of_dask(client: Any) -> Iterator[Place]:
    executor = client.get_executor(pure=False)
    losses: dict[str, list[str]] = {}

    # Where some workers are meant for what has a host to itself, it is sent only there, one to each at a time.
    chosen = {"resources": {RESOURCE: 1}} if _declared(client) else {}

    def submit(work: bytes, key: str, exclusive: bool) -> concurrent.futures.Future[Outcome]:
        made: concurrent.futures.Future[Outcome] = executor.submit(
            host.execute, work, key=f"{_TASK}{key}-{uuid.uuid4().hex}", **(chosen if exclusive else {})
        )
        return made

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
        yield Place(submit, _AHEAD, stop, lost, losses)
    finally:
        if listens:
            with contextlib.suppress(Exception):  # the scheduler is gone
                client.unsubscribe_topic(_TOPIC)


class Run:
    """One run of a sweep.

    Args:
        spec: What is asked for.
        course: Its trials.
        writer: Where outcomes go.
        where: Where the trials run.
        progress: Whether to show how far it is.
    """

    def __init__(self, spec: Spec, course: Course, writer: Writer, where: Place, *, progress: bool) -> None:
        self._spec = spec
        self._course = course
        self._plan = course.plan
        self._writer = writer
        self._machines = course.machines
        self._place = where
        self._line = Line(shown=progress)
        self._sweep = uuid.uuid4().hex
        self._function = spec.pickled()
        self._ended: queue.SimpleQueue[concurrent.futures.Future[Outcome]] = queue.SimpleQueue()
        self._running: dict[concurrent.futures.Future[Outcome], Trial] = {}
        self._reasons: dict[str, list[str]] = {}
        self._by_host: Counter[str] = Counter()
        self._begin_s = time.monotonic()
        self.done = 0
        self.failed = 0
        self.retried = 0
        self.interrupted = False
        self.lost = ""

    def run(self) -> None:
        """Until everything is done, Ctrl-C is pressed, or the place is lost."""
        waiting = deque(trial for trial in self._plan.trials if trial.key not in self._writer)
        with counted_ctrl_c() as pressed:
            try:
                while not self.lost and (waiting or self._running or self._next(waiting)):
                    self._submit(waiting)
                    self._collect(waiting)
                    self._writer.show()
                    self._line.show(self._said(len(waiting)))
                    if pressed():
                        self.interrupted = True
                        break
                    self.lost = self.lost or self._place.lost()
            finally:
                self._end(pressed)
                self._line.clear()

    def _next(self, waiting: deque[Trial]) -> bool:
        """Takes what is chosen by what came of all before; False when there is nothing more, or all of it is done."""
        while self._plan.growing:
            trials = self._course.next(self._writer.values)
            self._writer.grow(trials)
            waiting.extend(trial for trial in trials if trial.key not in self._writer)
            if waiting:
                return True
        return False

    def _submit(self, waiting: deque[Trial]) -> None:
        while waiting and len(self._running) < self._place.ahead:
            trial = waiting.popleft()
            machine = None
            if self._machines is not None:
                machine, _ = self._machines.of(self._spec.kernel(trial))
            work = Work(
                sweep=self._sweep,
                key=trial.key,
                function=self._function,
                keywords=self._spec.keywords(trial),
                path=sys.path,
                machine=machine,
                kernel=self._kernel_there(trial),
                deadline_s=self._spec.deadline_s,
                claim=self._claim(trial),
                wants_directory=self._spec.wants_directory,
            )
            try:
                future = self._place.submit(pickle.dumps(work), trial.key, trial.exclusive)
            except RuntimeError as error:  # a pool that is broken or shut down
                waiting.appendleft(trial)
                self.lost = f"{type(error).__name__}: {error}"
                return
            self._running[future] = trial
            future.add_done_callback(self._ended.put)

    def _claim(self, trial: Trial) -> Claim:
        shape = self._spec.shape
        if trial.exclusive or shape is None or not self._place.packed:
            return Claim(exclusive=trial.exclusive)
        return Claim(cpus=shape.cpus, memory_mib=shape.memory_mib + _QEMU_MIB)

    def _kernel_there(self, trial: Trial) -> str | None:
        """By the release, so that every host takes the same one; what is a path is one there, too."""
        asked = self._spec.kernel(trial)
        return asked if asked is not None and ("/" in asked or asked == "host") else trial.release or None

    def _collect(self, waiting: deque[Trial]) -> None:
        """Waits for the end of a trial, not for long, and takes all that have ended."""
        timeout: float | None = _LOOK_S
        while True:
            try:
                future = self._ended.get(timeout=timeout) if timeout else self._ended.get_nowait()
            except queue.Empty:
                return
            timeout = None
            trial = self._running.pop(future, None)
            if trial is not None:
                self._take(trial, _outcome_of(future), waiting)

    def _take(self, trial: Trial, outcome: Outcome, waiting: deque[Trial]) -> None:
        if outcome.kind == "stopped":
            return
        if not outcome.kind and (clash := sorted(set(outcome.values) & {*self._plan.axes, *FACTS})):
            said = f"the function returned {clash[0]!r}, which is a column of the table already"
            outcome = Outcome(kind="value", message=said, facts=outcome.facts, files=outcome.files)
        if outcome.files:
            # Before the outcome is written: whoever reads of them finds them.
            where = artefacts.keep(self._writer.folder, trial.key, outcome.files)
            outcome = replace(outcome, facts={**outcome.facts, "artefacts": where}, files={})
        reasons = self._reasons.setdefault(trial.key, [])
        self._by_host[outcome.facts.get("host", "")] += 1
        if not outcome.kind:
            reasons = [*reasons, *self._place.losses.get(trial.key, [])]
            record = {
                "type": "done",
                "key": trial.key,
                "values": outcome.values,
                "seconds": outcome.seconds,
                "facts": outcome.facts,
                "attempts": len(reasons) + 1,
                "retried": reasons,
            }
            self.done += self._writer.add(record)
            del self._reasons[trial.key]
            return
        reasons.append(f"{outcome.kind}: {outcome.message.splitlines()[0] if outcome.message else ''}")
        again = outcome.kind in PASSING and len(reasons) <= self._spec.retries
        self._writer.add(
            {
                "type": "failed",
                "key": trial.key,
                "attempt": len(reasons),
                "again": again,
                "kind": outcome.kind,
                "message": outcome.message,
                "detail": outcome.detail,
                "facts": outcome.facts,
            }
        )
        if again:
            self.retried += 1
            waiting.append(trial)
        else:
            self.failed += 1

    def _end(self, pressed: Callable[[], int]) -> None:
        """Ends what still runs, and takes what has ended meanwhile."""
        if not self._running:
            return
        for future in list(self._running):
            if future.cancel():
                self._running.pop(future, None)
        self._place.stop(self._sweep)
        end = time.monotonic() + (0.0 if self.lost else _GRACE_S)
        presses = pressed()
        nothing: deque[Trial] = deque()
        while self._running and time.monotonic() < end and pressed() <= presses:
            self._collect(nothing)

    def _said(self, waiting: int) -> str:
        total = self._course.most
        left = waiting + len(self._running) + total - len(self._plan)
        parts = [f"{len(self._writer)} of {total} trials"]
        parts += [
            f"{count} {name}" for count, name in ((self.retried, "tried again"), (self.failed, "failed")) if count
        ]
        hosts = [f"{name} {count}" for name, count in sorted(self._by_host.items()) if name]
        if len(hosts) > 1:
            parts.append(", ".join(hosts[:4]) + (f" and {len(hosts) - 4} hosts more" if len(hosts) > 4 else ""))
        if ended := self.done + self.failed:
            parts.append(f"{duration((time.monotonic() - self._begin_s) * left / ended)} left")
        return ", ".join(parts)


def _outcome_of(future: concurrent.futures.Future[Outcome]) -> Outcome:
    try:
        return future.result()
    except concurrent.futures.CancelledError:
        return Outcome(kind="lost", message="the executor gave the trial up")
    except concurrent.futures.BrokenExecutor as error:
        return Outcome(kind="lost", message=f"{type(error).__name__}: {error}")
    except BaseException as error:
        # Dask's for a task whose worker died, again and again.
        kind = "killed" if type(error).__name__ == "KilledWorker" else "error"
        return Outcome(kind=kind, message=f"{type(error).__name__}: {error}")


def duration(seconds: float) -> str:
    """``1:02:03``, or ``2:03``."""
    whole = round(seconds)
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
