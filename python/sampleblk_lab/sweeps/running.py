# SPDX-License-Identifier: MIT
"""The loop of a sweep: trials go to an executor, outcomes to the folder, failures of the machine are tried again."""

from __future__ import annotations

import pickle
import sys
import time
import uuid
from collections import Counter, deque
from dataclasses import replace
from typing import TYPE_CHECKING

from sampleblk_lab.interrupts import counted_ctrl_c
from sampleblk_lab.memory import QEMU_MIB
from sampleblk_lab.progress import Line
from sampleblk_lab.sweeps import artefacts, host
from sampleblk_lab.sweeps.claim import Claim
from sampleblk_lab.sweeps.in_flight import InFlight
from sampleblk_lab.sweeps.store import FACTS
from sampleblk_lab.sweeps.trial import kernel_there
from sampleblk_lab.sweeps.work import PASSING, Outcome, Work

if TYPE_CHECKING:
    from collections.abc import Callable

    from sampleblk_lab.sweeps.place import Place
    from sampleblk_lab.sweeps.spec import Course, Spec
    from sampleblk_lab.sweeps.store import Writer
    from sampleblk_lab.sweeps.trial import Trial

# How long trials may take to end once Ctrl-C was pressed.
_GRACE_S = 20.0


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
        self._line = Line(shown=progress, logged=True)
        self._sweep = uuid.uuid4().hex
        self._function = spec.pickled()
        self._running: InFlight[Trial] = InFlight()
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
                    for trial, outcome in self._running.ended():
                        self._take(trial, outcome, waiting)
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
                kernel=kernel_there(self._spec.kernel(trial), trial.release),
                deadline_s=self._spec.deadline_s,
                claim=self._claim(trial),
                wants_directory=self._spec.wants_directory,
            )
            try:
                future = self._place.submit(host.execute, pickle.dumps(work), key=trial.key, exclusive=trial.exclusive)
            except RuntimeError as error:  # a pool that is broken or shut down
                waiting.appendleft(trial)
                self.lost = f"{type(error).__name__}: {error}"
                return
            self._running.add(future, trial)

    def _claim(self, trial: Trial) -> Claim:
        shape = self._spec.shape
        if trial.exclusive or shape is None or not self._place.packed:
            return Claim(exclusive=trial.exclusive)
        return Claim(cpus=shape.cpus, memory_mib=shape.memory_mib + QEMU_MIB)

    def _take(self, trial: Trial, outcome: Outcome, waiting: deque[Trial]) -> None:
        if outcome.kind == "stopped":
            return
        if not outcome.kind and (clash := sorted(set(outcome.values) & {*self._plan.axes, *FACTS})):
            said = f"the function returned {clash[0]!r}, which is a column of the table already"
            outcome = Outcome(kind="value", message=said, facts=outcome.facts, files=outcome.files)
        # Before the outcome is written: whoever reads of them finds them.
        if self._spec.wants_directory and (where := artefacts.keep(self._writer.folder, trial.key, outcome.files)):
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
            if self._spec.revision is not None:
                # Once the plan is another revision's, only this tells what the outcome is of.
                record["trial"] = {
                    "revision": self._spec.revision,
                    "parameters": trial.parameters,
                    "repeat": trial.repeat,
                    "made_of": trial.made_of,
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
        nothing: deque[Trial] = deque()
        grace_s = 0.0 if self.lost else _GRACE_S
        for trial, outcome in self._running.end(lambda: self._place.stop(self._sweep), grace_s, pressed):
            self._take(trial, outcome, nothing)

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


def duration(seconds: float) -> str:
    """``1:02:03``, or ``2:03``."""
    whole = round(seconds)
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
