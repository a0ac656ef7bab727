# SPDX-License-Identifier: MIT
"""Exploring in a VM, and in a fresh one after each that a state has taken down.

How far the exploration has come is in a file of the host's, and so is what each worker is about to check: so it is
known what was under way when the guest's kernel panicked. Each of that is checked alone, and what makes the kernel
panic again is a failure. It is reduced as others are, with a VM for each try that panics.
"""

from __future__ import annotations

import contextlib
import itertools
import pickle
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sampleblk_lab.crash.disks import ImageFile
from sampleblk_lab.crash.explore import (
    Bench,
    Contents,
    Exploration,
    Failure,
    Led,
    Task,
    check_options,
    clones_for,
    explore,
    folder_for,
    reduce,
    settle,
)
from sampleblk_lab.crash.log import Log, State
from sampleblk_lab.crash.model import Sample
from sampleblk_lab.crash.parcel import check_by_value
from sampleblk_lab.crash.resume import Notes, digest
from sampleblk_lab.crash.under_way import HANGS, UnderWay
from sampleblk_lab.crash.workers import packed, unpacked
from sampleblk_lab.errors import InputError
from sampleblk_lab.paths import scratch_directory
from sampleblk_lab.progress import Line

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Mapping

    from sampleblk_lab.crash.host import Bare
    from sampleblk_lab.crash.model import Model
    from sampleblk_lab.vm.machine import VM

_VM_OPTIONS = frozenset({"kernel", "cpus", "memory_mib", "accel"})

#: Seconds that a state may take.
DEADLINE_S = 300.0

# Between two looks at how far the guest has come.
_LOOK_S = 0.5


# --- in the guest


def _log(recipe: dict[str, Any]) -> Log:
    return Log(recipe["path"], **{name: value for name, value in recipe.items() if name != "path"})


def _explore(
    recipe: dict[str, Any],
    sent: bytes,
    options: dict[str, Any],
    known: dict[int, tuple[int, Bare, Bare, Any]],
    check_digest: str,
    watch: tuple[Path, float],
) -> tuple[dict[str, Any], list[tuple[Bare, Bare, Any]]]:
    """Explores, but for what is known. Returns facts, and the failures: as found, reduced, what was said."""
    log, check = _log(recipe), pickle.loads(sent)
    failures = {
        number: (looked_at, Failure(State.of(log, state), State.of(log, reduced), unpacked(error), check))
        for number, (looked_at, state, reduced, error) in known.items()
    }
    with contextlib.closing(UnderWay(*watch)) as notes:
        led = Led(failures, notes, check_digest)
        found = explore(log, check, **options, client=None, progress=False, led=led)
    facts = {name: getattr(found, name) for name in ("states", "checked", "total", "complete", "interrupted")}
    return facts, [(one.state.bare, one.reduced.bare, packed(one.error)) for one in found.failures]


def _check(
    recipe: dict[str, Any],
    sent: bytes,
    clones: bool | None,
    bare: Bare,
    watch: tuple[Path, float],
) -> Exception | tuple[str, str] | None:
    """What the check says of one state, packed; None where it passes."""
    log, check = _log(recipe), pickle.loads(sent)
    with (
        contextlib.closing(UnderWay(*watch)) as notes,
        clones_for(log, check, clones, 1) as made,
        scratch_directory("crash-images", folder_for(log.size_bytes)) as folder,
        contextlib.closing(Bench(log, check, made[0] if made else ImageFile(log, folder))) as bench,
    ):
        notes.note(0, 0)
        error = bench.check_built(State.of(log, bare))
    return None if error is None else packed(error)


# --- on the host


class _Guests:
    """The VM, or the one that took its place."""

    def __init__(self, options: Mapping[str, Any], folder: Path) -> None:
        unknown = sorted(set(options) - _VM_OPTIONS)
        if unknown:
            raise InputError(f"vm has {unknown[0]!r}", expected=f"deadline_s, {', '.join(sorted(_VM_OPTIONS))}")
        self._options = options
        self._folder = folder
        self._vm: VM | None = None
        #: Of the kernel of these VMs, once there was one.
        self.release = ""

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """Calls a function there. Raises VMError, and after that the next call is one of a fresh VM."""
        from sampleblk_lab.vm import VM, VMError

        try:
            if self._vm is None:
                self._vm = VM(run_dir=self._folder, **self._options)
                self._vm.start()
                self.release = self._vm.kernel.release
            return self._vm.call(function, *args)
        except VMError:
            self.close()
            raise

    def close(self) -> None:
        """Ends it."""
        if self._vm is not None:
            self._vm.close()
            self._vm = None


@contextlib.contextmanager
def _shown(line: Line, under_way: Path) -> Iterator[None]:
    """Shows how far the guest has come, for the block."""
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(_LOOK_S):
            if numbers := UnderWay.read(under_way):
                line.show(f"{numbers[0]} checked in the VM")

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        line.clear()


class _Exploration:
    """What is explored, and what is known of it.

    Args:
        options: Of :func:`explore`, but for what changes from VM to VM.
        path: How far it has come; the guest writes there.
        deadline_s: How long a state may take.
    """

    def __init__(
        self,
        log: Log,
        check: Callable[[Path, State], object],
        options: dict[str, Any],
        path: Path,
        deadline_s: float,
        guests: _Guests,
    ) -> None:
        self._log = log
        self._check = check
        self._by_value = check_by_value(check)
        self._digest = digest(check)
        self._options = options
        self._path = path
        self._under_way = path.with_name(f"{path.name}.under-way")
        self._watch = self._under_way, deadline_s
        self._hangs = f"a state was checked for more than {deadline_s:g} s, and the guest ended for it"
        self._guests = guests
        for file in filter(None, (log.path, log.base)):
            # A VM mounts these anew, and sees all others.
            if Path(file).resolve().parts[1] in ("dev", "proc", "run", "sys"):
                raise InputError(f"{file}, which a VM does not see", expected="a log and a base that are elsewhere")
        # The failures of what was under way at a panic, by the number of the contents, as Task has them.
        self._known: dict[int, tuple[int, Failure]] = {}
        self._recipe = {
            "path": str(Path(log.path).absolute()),
            "base": "zeros" if log.base is None else str(Path(log.base).absolute()),
            "size_bytes": log.size_bytes,
            "flush": log.flush,
            "fua": log.fua,
        }

    def close(self) -> None:
        """Takes away what only was of use meanwhile."""
        self._under_way.unlink(missing_ok=True)

    def run(self, states: int | None, seconds: float | None, line: Line) -> Exploration:
        """Until all is checked that is wanted, in as many VMs as that takes."""
        begin, before = time.monotonic(), self._notes().reached

        def left() -> dict[str, Any]:
            done = self._notes().reached.number - before.number
            return {
                "states": None if states is None else max(0, states - done),
                "seconds": None if seconds is None else max(0.0, seconds - (time.monotonic() - begin)),
            }

        try:
            found = self._explored(left, line)
        except KeyboardInterrupt:
            found = self._so_far("")
            found.interrupted = True
        found.log, found.model, found.check = self._log, self._options["model"], self._check
        found.elapsed_s = before.elapsed_s + time.monotonic() - begin
        return found

    def _explored(self, left: Callable[[], dict[str, Any]], line: Line) -> Exploration:
        from sampleblk_lab.vm import GuestPanicError

        while True:
            options = {**self._options, **left(), "resume": str(self._path)}
            told = self._sent(), self._digest, self._watch
            self._under_way.unlink(missing_ok=True)
            try:
                with _shown(line, self._under_way):
                    answer = self._guests.call(_explore, self._recipe, self._by_value, options, *told)
            except GuestPanicError as panic:
                if lost := self._explain(panic, line):
                    return self._so_far(lost)
            else:
                return self._found(*answer)

    def _notes(self) -> Notes:
        options = self._options
        return Notes(self._path, self._log, options["model"], self._check, options["order"], time.monotonic())

    def _sent(self) -> dict[int, tuple[int, Bare, Bare, Any]]:
        return {
            number: (looked_at, one.state.bare, one.reduced.bare, packed(one.error))
            for number, (looked_at, one) in self._known.items()
        }

    def _found(self, facts: dict[str, Any], failures: list[tuple[Bare, Bare, Any]]) -> Exploration:
        # These have the whole of the console.
        own = [one for _, one in self._known.values()]
        found = Exploration(**facts)
        for bare, reduced, error in failures:
            known = next((one for one in own if (one.state.bare, one.reduced.bare) == (bare, reduced)), None)
            found.failures.append(
                known or self._failure(State.of(self._log, bare), State.of(self._log, reduced), error)
            )
        return found

    def _failure(self, state: State, reduced: State, error: Any) -> Failure:
        return Failure(state, reduced, unpacked(error), self._check, self._guests.release)

    def _so_far(self, lost: str) -> Exploration:
        """What the guests have left, where nothing more is done."""
        notes = self._notes()
        earlier = {
            number: (looked_at, replace(one, kernel=self._guests.release))
            for number, (looked_at, one) in notes.earlier().items()
        }
        found = Exploration(total=self._total(), lost=lost)
        wanted = self._options["failures"]
        settle(found, {**earlier, **self._known}, wanted, notes.reached.number, notes.reached.looked_at, complete=False)
        return found

    def _total(self) -> float:
        model = self._options["model"]
        return float("inf") if isinstance(model, Sample) else self._log.count(model)

    def _explain(self, panic: Exception, line: Line) -> str:
        """Finds which of the states under way makes the kernel panic alone. Returns what to say if none does."""
        from sampleblk_lab.vm import GuestPanicError

        numbers = [number for number in UnderWay.read(self._under_way) if number not in self._known]
        explained = False
        for number in numbers:
            line.show(f"the guest's kernel panicked: is it contents {number}?")
            looked_at, state = self._contents(number)
            error = self._said(state)
            if error is None:
                continue
            panics = isinstance(error, GuestPanicError)
            reduced, error, interrupted = reduce(self._panic_of if panics else self._said, state, error)
            self._known[number] = looked_at, self._failure(state, reduced, error)
            if interrupted:
                raise KeyboardInterrupt
            # Another one may only have failed beside it, or panicked when it was reduced.
            explained = explained or isinstance(error, GuestPanicError)
        line.clear()
        if explained:
            return ""
        which = f" under contents {', '.join(map(str, numbers))}, but under none of them alone" if numbers else ""
        return f"the guest's kernel panicked{which}: {panic}"

    def _panic_of(self, state: State) -> Exception | None:
        from sampleblk_lab.vm import GuestPanicError

        said = self._said(state)
        return said if isinstance(said, GuestPanicError) else None

    def _contents(self, number: int) -> tuple[int, State]:
        """The states that were looked at until there, and the state."""
        kinds = self._log.kinds() if self._options["order"] == "unlike" else ()
        task = Task(self._log, self._check, self._options["model"], None, None, kinds=kinds)
        contents = Contents(task, self._log.image(""))
        state = next(itertools.islice(contents, number, None))
        return contents.looked_at, state

    def _said(self, state: State) -> Exception | None:
        """What a guest that checks nothing but this state says of it, or dies of."""
        from sampleblk_lab.vm import GuestPanicError

        try:
            told = self._options["clones"], state.bare, self._watch
            said = self._guests.call(_check, self._recipe, self._by_value, *told)
        except GuestPanicError as panic:
            return panic if HANGS not in panic.console else GuestPanicError(self._hangs, panic.console)
        return None if said is None else unpacked(said)


def explore_in_vms(
    log: Log,
    check: Callable[[Path, State], object],
    model: Model,
    states: int | None,
    seconds: float | None,
    failures: int,
    workers: int | None,
    clones: bool | None,
    resume: str | os.PathLike[str] | None,
    order: str,
    progress: bool,
    vm: Mapping[str, Any],
) -> Exploration:
    """See :meth:`Log.explore`; `vm` has the options of each VM."""
    workers = workers if workers is not None else vm.get("cpus", 2)
    check_options(model, states, seconds, failures, workers, order)
    options = {"model": model, "failures": failures, "workers": workers, "clones": clones, "order": order}
    line = Line(every_s=0.5, shown=progress and sys.stderr.isatty())
    with contextlib.ExitStack() as stack:
        if resume is None:
            path = stack.enter_context(scratch_directory("crash-guests")) / "explored.json"
        else:
            path = Path(resume).absolute()
        deadline_s, machine = vm.get("deadline_s", DEADLINE_S), {k: v for k, v in vm.items() if k != "deadline_s"}
        if deadline_s <= 0:
            raise InputError(f"deadline_s {deadline_s}", expected="seconds that a state may take")
        guests = stack.enter_context(contextlib.closing(_Guests(machine, path.parent)))
        made = _Exploration(log, check, options, path, deadline_s, guests)
        exploration = stack.enter_context(contextlib.closing(made))
        return exploration.run(states, seconds, line)
