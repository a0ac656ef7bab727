# SPDX-License-Identifier: MIT
"""Runs tests of a suite, each in a VM of its own, several at a time, with what sweeps run their trials with."""

from __future__ import annotations

import json
import pickle
import re
import sys
import time
import uuid
from collections import Counter, deque
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sampleblk_lab import checked
from sampleblk_lab.errors import InputError
from sampleblk_lab.interrupts import counted_ctrl_c
from sampleblk_lab.kernels import config, resolve
from sampleblk_lab.memory import QEMU_MIB
from sampleblk_lab.paths import replace_file
from sampleblk_lab.progress import Line
from sampleblk_lab.suites import SUITES, checkout, guest, known
from sampleblk_lab.suites import folder as folders
from sampleblk_lab.suites.folder import Folder, Plan
from sampleblk_lab.suites.suite import (
    BAD,
    DEADLINE_S,
    HANG,
    NOTRUN,
    PANIC,
    PASSED,
    STATUSES,
    UNJUDGED,
    Selection,
    Setup,
    Test,
)
from sampleblk_lab.sweeps import artefacts, host
from sampleblk_lab.sweeps.claim import Claim
from sampleblk_lab.sweeps.in_flight import InFlight
from sampleblk_lab.sweeps.place import place
from sampleblk_lab.sweeps.running import duration
from sampleblk_lab.sweeps.trial import Machines, Shape, kernel_there
from sampleblk_lab.sweeps.work import Outcome, Work
from sampleblk_lab.table import Table
from sampleblk_lab.texts import counted, readable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sampleblk_lab.suites.checkout import Built
    from sampleblk_lab.suites.known import Judged, Known

# What says nothing of the test, and may go better: such a test is run once more.
_AGAIN = ("boot", "killed", "lost", "lost VM", "memory")

# How long tests may take to end once Ctrl-C was pressed.
_GRACE_S = 20.0

# How many tests that were not judged the text names.
_MOST_UNJUDGED = 20

# What the log of a panicked or hung guest begins with that people look for.
_BLOCKED = re.compile(r"task:(\S+)\s+state:D")
_PANIC = re.compile(r"(?:Kernel panic - not syncing: |BUG: |kernel BUG at |Oops: )[^\n]*")


@dataclass(frozen=True)
class Prepared:
    """A suite that is built, and which of its tests are to be run on what.

    Attributes:
        plan: What is to be done.
        built: The suite.
        tests: The tests of the plan, with what they ask for.
        options: The options of the kernel; None where they are not known.
        config: The file that has them.
        selection: Which tests were asked for.
        there: The names of all tests that the suite has.
    """

    plan: Plan
    built: Built
    tests: list[Test]
    options: dict[str, str] | None
    config: Path | None
    selection: Selection
    there: frozenset[str]

    def gone(self, before: Mapping[str, str], asked: Selection | None = None) -> list[str]:
        """Which tests that an earlier run has the suite does not have any more, as far as they are asked for.

        Args:
            before: What came of each test in the earlier run.
            asked: What was asked for where this run was begun, of which a part that goes on is only told the tests.
        """
        asked = asked or self.selection
        kinds = {name.partition("/")[0] for name in self.there}  # of another file system it has none here
        return [
            test
            for test, status in before.items()
            if status in (PASSED, *BAD) and test not in self.there
            if test.partition("/")[0] in kinds and asked.may_mean(test)
        ]

    def requirements(self) -> Table:
        """The tests, with their groups, what they ask for, and what of it is lacking."""
        rows = [(test, "; ".join(each.text for each in test.requires), test.lacks(self.options)) for test in self.tests]
        return Table.of(
            {
                "test": [test.name for test, _, _ in rows],
                "groups": [" ".join(test.groups) for test, _, _ in rows],
                "requires": [text for _, text, _ in rows],
                "lacks": ["; ".join(lacks) for _, _, lacks in rows],
            },
            key="test",
        )

    def lacking(self) -> Counter[str]:
        """What this system or the kernel lacks that tests ask for, and how many do."""
        return Counter(each for test in self.tests for each in test.lacks(self.options))


def prepare(
    suite: str,
    selection: Selection,
    setup: Setup,
    *,
    where: str | Path | None = None,
    kernel: str | None = None,
    shape: Shape | None = None,
    deadline_s: float = DEADLINE_S,
) -> Prepared:
    """Builds a suite and looks up what is asked for.

    Args:
        suite: ``"xfstests"`` or ``"blktests"``.
        selection: Which tests.
        setup: What they run on.
        where: The checkout; None: the one that the environment names.
        kernel: As for :class:`sampleblk_lab.vm.VM`.
        shape: The VM of each test.
        deadline_s: How long a test may take.

    Raises:
        InputError: There is no such checkout, kernel, group or test.
        UnsupportedError: What the suite needs is not installed.
        SuiteBuildError: It does not build.
    """
    if checked.seconds("deadline_s", deadline_s) == 0:
        raise InputError("deadline_s=0", expected="seconds that a test may take")
    chosen = SUITES[suite]
    chosen.check_setup(setup)
    built = checkout.build(chosen, checkout.find(chosen, where))
    every = chosen.tests(built.folder, setup.fs)
    tests = selection.of(every)
    if not tests:
        raise InputError("no test is left of those that are named", expected="fewer tests or groups to leave out")
    machine, release = Machines(shape or Shape(), download=True).of(kernel)
    assert machine is not None
    there = kernel_there(kernel, release)
    found = resolve(there)
    text = config.find(found.configurations)
    path = next((place for place in found.configurations if place.is_file()), None)
    options = None if text is None else dict(re.findall(r"^(CONFIG_\w+)=(\S+)$", text, re.MULTILINE))
    plan = Plan(
        suite=suite,
        content=built.content,
        commit=built.commit,
        kernel=there,
        machine=machine,
        setup=setup,
        deadline_s=deadline_s,
        tests=tuple(test.name for test in tests),
        asked=selection,
    )
    return Prepared(plan, built, tests, options, path, selection, frozenset(test.name for test in every))


@dataclass(frozen=True)
class Ran:
    """What a run came to.

    Attributes:
        path: Its folder.
        plan: What was to be done.
        judged: What came of it, beside what is known.
        interrupted: Whether Ctrl-C ended it.
        seconds: How long this part of it took.
        beside: What the earlier run was of that it is held against; empty: there was none.
    """

    path: Path
    plan: Plan
    judged: Judged
    interrupted: bool
    seconds: float
    beside: str = ""

    def table(self) -> Table:
        """A row for each test that ended."""
        rows = self.judged.rows
        return Table.of(
            {
                "test": [row["test"] for row in rows],
                "status": [row["status"] for row in rows],
                "seconds": [float(row["seconds"]) for row in rows],
                "known": [row["known"] for row in rows],
                "reason": [row["reason"] for row in rows],
            },
            units={"seconds": "s"},
            metadata={"waiting": str(len(self.plan.tests) - len(rows))},
            key="test",
        )

    def counts(self) -> dict[str, int]:
        """How many tests ended in which way."""
        found = Counter(row["status"] for row in self.judged.rows)
        return {status: found[status] for status in STATUSES if found[status]}

    def reasons(self) -> list[tuple[str, int]]:
        """Why tests were not run, and how many were not for that; the most frequent first."""
        return Counter(row["reason"] for row in self.judged.rows if row["status"] == NOTRUN).most_common()

    def json(self) -> dict[str, Any]:
        """As plain data: the content of ``results.json``."""
        return {
            "suite": self.plan.suite,
            "commit": self.plan.commit,
            "content": self.plan.content,
            "release": self.plan.release,
            "setup": self.plan.json()["setup"],
            "machine": self.plan.machine,
            "folder": str(self.path),
            "ok": self.judged.ok,
            "interrupted": self.interrupted,
            "beside": self.beside,
            "counts": self.counts(),
            "notrun": dict(self.reasons()),
            "new": self.judged.new,
            "fixed": self.judged.fixed,
            "skipped": self.judged.skipped,
            "gone": self.judged.gone,
            "unjudged": self.judged.unjudged,
            "tests": self.judged.rows,
        }

    def text(self) -> str:
        """For people: what did not pass, why tests were not run, and what is new."""
        judged = self.judged
        parts = []
        if any(row["status"] not in (PASSED, NOTRUN) for row in judged.rows):
            bad = [row for row in judged.rows if row["status"] not in (PASSED, NOTRUN)]
            names = ("test", "status", "seconds", "known", "reason")
            parts.append(Table.from_rows([{name: row[name] for name in names} for row in bad]).text())
        counts = ", ".join(f"{count} {status}" for status, count in self.counts().items()) or "none ended"
        about = " ".join(filter(None, (self.plan.suite, self.plan.setup.fs, f"on {self.plan.setup.device}")))
        parts.append(f"{about}, Linux {self.plan.release}: {counted(len(self.plan.tests), 'test')}: {counts}")
        if self.beside:
            parts.append(f"beside an earlier run: {self.beside}")
        parts += [f"  not run, {count}: {reason}" for reason, count in self.reasons()]
        for title, tests in (
            ("new failures", judged.new),
            ("fixed", judged.fixed),
            ("not run any more", judged.skipped),
            ("not in the suite any more", judged.gone),
        ):
            if tests:
                parts.append(f"{title}: {' '.join(tests)}")
        if judged.unjudged:
            # After Ctrl-C they may be a thousand, none of which was begun.
            left = len(judged.unjudged) - _MOST_UNJUDGED
            more = f" and {left} more, see {folders.RESULTS}" if left > 0 else ""
            parts.append(f"not judged: {' '.join(judged.unjudged[:_MOST_UNJUDGED])}{more}")
        if not judged.judged:
            parts.append("nothing was tested")
        parts.append(f"files: {self.path}")
        return "\n".join(parts)


def run(
    prepared: Prepared,
    path: Path,
    *,
    workers: int | None = None,
    known_failures: Sequence[Known] = (),
    before: dict[str, str] | None = None,
    beside: str = "",
    progress: bool = True,
) -> Ran:
    """Runs the tests that have not ended yet.

    Args:
        prepared: The suite and its tests.
        path: The run's folder; what has ended there of the same run is not run again.
        workers: Tests at a time; None: as many as there are processors and memory for.
        known_failures: Failures that are no news.
        before: What came of each test in an earlier run, see :func:`sampleblk_lab.suites.known.baseline`.
        beside: What that run was of, see :func:`sampleblk_lab.suites.known.origin`.
        progress: Whether to show how far it is, and what fails.

    Raises:
        InputError: `path` has another run, or another process runs there.
    """
    begin = time.monotonic()
    with Folder(path, prepared.plan) as folder:
        loop = _Loop(prepared, folder, workers, progress=progress)
        loop.run()
    plan, records = folders.results(path)
    judged = known.judge(plan, records, known_failures, before, prepared.gone(before or {}, plan.asked))
    ran = Ran(path, plan, judged, loop.interrupted, time.monotonic() - begin, beside)
    replace_file(path / folders.RESULTS, (json.dumps(ran.json(), indent=1, default=str) + "\n").encode())
    replace_file(path / folders.JUNIT, folders.junit(plan, judged))
    return ran


class _Loop:
    """One run, until everything is done or Ctrl-C is pressed."""

    def __init__(self, prepared: Prepared, folder: Folder, workers: int | None, *, progress: bool) -> None:
        self._prepared = prepared
        self._plan = prepared.plan
        self._folder = folder
        self._workers = workers
        self._progress = progress
        self._line = Line(shown=progress, logged=True)
        self._id = uuid.uuid4().hex
        self._running: InFlight[str] = InFlight()
        self._tried: Counter[str] = Counter()
        self._counts: Counter[str] = Counter()
        self._begin_s = time.monotonic()
        self.interrupted = False

    def run(self) -> None:
        machine = self._plan.machine
        shape = Shape(machine["cpus"], machine["memory_mib"], machine["accel"], machine["driver"] is not None)
        waiting = deque(self._folder.waiting())
        with place(None, self._workers, shape) as where, counted_ctrl_c() as pressed:
            claim = Claim()
            if where.packed:
                claim = Claim(cpus=shape.cpus, memory_mib=shape.memory_mib + QEMU_MIB)
            try:
                while waiting or self._running:
                    while waiting and len(self._running) < where.ahead:
                        test = waiting.popleft()
                        work = pickle.dumps(self._work(test, claim))
                        future = where.submit(host.execute, work, key=test.replace("-", "_"))
                        self._running.add(future, test)
                    for test, outcome in self._running.ended():
                        self._take(test, outcome, waiting)
                    self._line.show(self._said(len(waiting)))
                    if pressed():
                        self.interrupted = True
                        break
            finally:
                self._end(where.stop, pressed)
                self._line.clear()

    def _work(self, test: str, claim: Claim) -> Work:
        path = self._prepared.config
        return Work(
            sweep=self._id,
            key=test,
            function=pickle.dumps(guest.run),
            keywords={
                "suite": self._plan.suite,
                "folder": str(self._prepared.built.folder),
                "test": test,
                "setup": self._plan.setup,
                "config": None if path is None else str(path),
            },
            path=sys.path,
            machine=self._plan.machine,
            kernel=self._plan.kernel,
            deadline_s=self._plan.deadline_s,
            claim=claim,
            wants_directory=True,
            resident=(str(self._prepared.built.folder),),
        )

    def _take(self, test: str, outcome: Outcome, waiting: deque[str]) -> None:
        if outcome.kind == "stopped":
            return
        self._tried[test] += 1
        if outcome.kind in _AGAIN and self._tried[test] == 1:
            waiting.append(test)
            return
        record = {"test": test, **_record(outcome), "facts": outcome.facts, "files": ""}
        files = dict(outcome.files)
        if outcome.detail:
            files["console.txt"] = outcome.detail.encode()
        record["files"] = artefacts.keep(self._folder.path, test, files)
        self._folder.add(record)
        self._counts[record["status"]] += 1
        if self._progress and record["status"] not in (PASSED, NOTRUN):
            self._line.clear()
            print(f"{test} {record['status']}: {record['reason']}", file=sys.stderr, flush=True)

    def _end(self, stop: Callable[[str], object], pressed: Callable[[], int]) -> None:
        """Ends what still runs, and takes what has ended meanwhile."""
        nothing: deque[str] = deque()
        for test, outcome in self._running.end(lambda: stop(self._id), _GRACE_S, pressed):
            self._take(test, outcome, nothing)

    def _said(self, waiting: int) -> str:
        total, ended = len(self._plan.tests), len(self._folder.ended)
        parts = [f"{ended} of {total} tests"]
        parts += [f"{self._counts[status]} {status}" for status in STATUSES if self._counts[status]]
        if done := sum(self._counts.values()):
            left = waiting + len(self._running)
            parts.append(f"{duration((time.monotonic() - self._begin_s) * left / done)} left")
        return ", ".join(parts)


def _record(outcome: Outcome) -> dict[str, Any]:
    """What came of a test: what its suite says, or how its guest ended."""
    if not outcome.kind:
        return dict(outcome.values)
    seconds = (outcome.facts.get("ended_ns", 0) - outcome.facts.get("started_ns", 0)) / 1e9
    status = {"panic": PANIC, "deadline": HANG}.get(outcome.kind, UNJUDGED)
    reason = outcome.message.splitlines()[0] if outcome.message else outcome.kind
    if status == PANIC and (found := _PANIC.search(outcome.detail)):
        reason = found[0]
    elif status == HANG and (blocked := list(dict.fromkeys(_BLOCKED.findall(outcome.detail)))):
        reason = f"{reason}; blocked in the kernel: {', '.join(blocked)}"
    return {"status": status, "reason": readable(reason), "output": outcome.detail[-20_000:], "seconds": seconds}
