# SPDX-License-Identifier: MIT
"""Exploring in a VM, and in a fresh one after each that a state has taken down.

How far the exploration has come is in a file of the host's, and so is what each worker is about to check: so it is
known what was under way when the guest's kernel panicked. Each of that is checked alone, and what makes the kernel
panic again is a failure. It is reduced as others are, with a VM for each try that panics.
"""

from __future__ import annotations

import contextlib
import functools
import pickle
import re
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sampleblk_lab import checked
from sampleblk_lab.crash.disks import ImageFile
from sampleblk_lab.crash.explore import (
    Bench,
    Contents,
    Exploration,
    Failure,
    Led,
    Task,
    Wanted,
    clones_for,
    explore,
    folder_for,
    keep_found,
    reduce,
    settle,
)
from sampleblk_lab.crash.log import Bare, Log, State
from sampleblk_lab.crash.parcel import check_by_value
from sampleblk_lab.crash.resume import Notes, about
from sampleblk_lab.crash.under_way import COMPLAINS, HANGS, UnderWay
from sampleblk_lab.crash.workers import Sent, packed, packed_failure, unpacked, unpacked_failure
from sampleblk_lab.errors import InputError, SampleblkError
from sampleblk_lab.paths import scratch_directory
from sampleblk_lab.sweeps.trial import Machines, Shape

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from sampleblk_lab.progress import Line
    from sampleblk_lab.vm.errors import GuestPanicError
    from sampleblk_lab.vm.machine import VM

_SHAPE = ("cpus", "memory_mib", "accel")
_OPTIONS = ("deadline_s", "kernel", "kernel_warning", *_SHAPE)

#: Seconds that a state may take.
DEADLINE_S = 300.0

# Between two looks at how far the guest has come.
_LOOK_S = 0.5

# What UnderWay is made of.
_Watch = tuple[Path, float, list[str]]


# --- in the guest


def _explore(
    opened: Callable[[], Log],
    sent_check: bytes,
    wanted: Wanted,
    known: dict[int, tuple[int, Sent]],
    about: dict[str, Any],
    watch: _Watch,
) -> tuple[dict[str, Any], list[Sent]]:
    """Explores, but for what is known. Returns facts, and the failures."""
    log, check = opened(), pickle.loads(sent_check)
    failures = {number: (by_then, unpacked_failure(log, check, sent)) for number, (by_then, sent) in known.items()}
    with contextlib.closing(UnderWay(*watch)) as under_way:
        found = explore(log, check, wanted, led=Led(failures, under_way, about))
    facts = {name: getattr(found, name) for name in ("states", "checked", "total", "complete", "interrupted", "lost")}
    return facts, [packed_failure(one) for one in found.failures]


def _check(
    opened: Callable[[], Log],
    sent_check: bytes,
    clones: bool | None,
    bare: Bare,
    watch: _Watch,
) -> Exception | tuple[str, str] | None:
    """What the check says of one state, packed; None where it passes."""
    log, check = opened(), pickle.loads(sent_check)
    with (
        contextlib.closing(UnderWay(*watch)) as under_way,
        clones_for(log, check, clones, 1) as made,
        scratch_directory("crash-images", folder_for(log.size_bytes)) as folder,
        contextlib.closing(
            Bench(log, check, made[0] if made else ImageFile(log, folder), after_each=under_way.judge)
        ) as bench,
    ):
        under_way.note(0, 0)
        error = bench.check_built(State.of(log, bare))
    return None if error is None else packed(error)


# --- on the host


class _Guests:
    """The VM, or the one that took its place."""

    def __init__(self, kernel: str | None, shape: Shape, folder: Path) -> None:
        self._kernel = kernel
        self._shape = shape
        self._folder = folder
        self._vm: VM | None = None
        #: Of the kernel of these VMs, once there was one.
        self.release = ""

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """Calls a function there. Raises VMError, and after that the next call is one of a fresh VM."""
        from sampleblk_lab.vm import VM, VMError

        try:
            if self._vm is None:
                self._vm = VM(kernel=self._kernel, run_dir=self._folder, **self._shape.json())
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
        path: How far it has come; the guest writes there.
        deadline_s: How long a state may take.
        allowed: What the kernel may complain of.
        kernel: What tells it from others.
    """

    def __init__(
        self,
        log: Log,
        check: Callable[[Path, State], object],
        wanted: Wanted,
        path: Path,
        deadline_s: float,
        allowed: list[str],
        guests: _Guests,
        kernel: str,
    ) -> None:
        self._log = log
        self._check = check
        self._wanted = replace(wanted, resume=str(path), progress=False)
        self._about = about(log, check, wanted.model, wanted.order, kernel)
        self._path = path
        self._under_way = path.with_name(f"{path.name}.under-way")
        self._watch = self._under_way, deadline_s, allowed
        self._hangs = f"a state was checked for more than {deadline_s:g} s, and the guest ended for it"
        self._line = wanted.line()
        self._guests = guests
        # The failures of what was under way at a panic, by the number of the contents, as Task has them.
        self._known: dict[int, tuple[int, Failure]] = {}
        base = "zeros" if log.base is None else log.base.absolute()
        opened = functools.partial(
            Log, log.path.absolute(), base=base, size_bytes=log.size_bytes, flush=log.flush, fua=log.fua
        )
        # What the guest opens, and asks of it.
        self._sent = opened, check_by_value(check)

    def close(self) -> None:
        """Takes away what only was of use meanwhile."""
        self._under_way.unlink(missing_ok=True)

    def run(self) -> Exploration:
        """Until all is checked that is wanted, in as many VMs as that takes."""
        begin, before = time.monotonic(), self._notes().reached
        try:
            found = self._explored(begin, before.number)
        except KeyboardInterrupt:
            found = self._so_far("")
            found.interrupted = True
        except (OSError, SampleblkError) as error:
            found = self._so_far("")
            keep_found(found, found.failures, error)
        found.log, found.model, found.check = self._log, self._wanted.model, self._check
        found.elapsed_s = before.elapsed_s + time.monotonic() - begin
        return found

    def _explored(self, begin: float, first: int) -> Exploration:
        from sampleblk_lab.vm import GuestPanicError

        states, seconds = self._wanted.states, self._wanted.seconds
        while True:
            left = replace(
                self._wanted,
                states=None if states is None else max(0, states - (self._notes().reached.number - first)),
                seconds=None if seconds is None else max(0.0, seconds - (time.monotonic() - begin)),
            )
            known = {number: (by_then, packed_failure(one)) for number, (by_then, one) in self._known.items()}
            self._under_way.unlink(missing_ok=True)
            try:
                with _shown(self._line, self._under_way):
                    answer = self._guests.call(_explore, *self._sent, left, known, self._about, self._watch)
            except GuestPanicError as panic:
                if lost := self._explain(self._why(panic)):
                    return self._so_far(lost)
            else:
                return self._found(*answer)

    def _notes(self) -> Notes:
        return Notes(self._path, self._log, self._check, self._about, time.monotonic())

    def _found(self, facts: dict[str, Any], failures: list[Sent]) -> Exploration:
        found = Exploration(**facts)
        for sent in failures:
            # Of those that the host knows it has the whole of the console.
            known = (one for _, one in self._known.values() if (one.state.bare, one.reduced.bare) == sent[:2])
            found.failures.append(next(known, None) or self._here(unpacked_failure(self._log, self._check, sent)))
        return found

    def _here(self, failure: Failure) -> Failure:
        return replace(failure, kernel=self._guests.release, kernel_warning=tuple(self._watch[2]))

    def _so_far(self, lost: str) -> Exploration:
        """What the guests have left, where nothing more is done."""
        notes = self._notes()
        earlier = {number: (by_then, self._here(one)) for number, (by_then, one) in notes.earlier().items()}
        found = Exploration(total=self._wanted.total(self._log), lost=lost)
        reached = {**earlier, **self._known}
        settle(found, reached, self._wanted.failures, notes.reached.number, notes.reached.looked_at, complete=False)
        return found

    def _explain(self, panic: Exception) -> str:
        """Finds which of the states under way makes the kernel panic alone. Returns what to say if none does."""
        from sampleblk_lab.vm import GuestPanicError

        numbers = [number for number in UnderWay.read(self._under_way) if number not in self._known]
        explained = False
        for number, by_then, state in self._contents(numbers):
            self._line.show(f"the guest's kernel panicked: is it contents {number}?")
            error = self._said(state)
            if error is None:
                continue
            panics = isinstance(error, GuestPanicError)
            reduced, error, interrupted = reduce(self._panic_of if panics else self._said, state, error)
            self._known[number] = by_then, self._here(Failure(state, reduced, error, self._check))
            if interrupted:
                raise KeyboardInterrupt
            # Another one may only have failed beside it, or panicked when it was reduced.
            explained = explained or isinstance(error, GuestPanicError)
        self._line.clear()
        if explained:
            return ""
        which = f" under contents {', '.join(map(str, numbers))}, but under none of them alone" if numbers else ""
        return f"the guest ended{which}: {panic}"

    def _panic_of(self, state: State) -> Exception | None:
        from sampleblk_lab.vm import GuestPanicError

        said = self._said(state)
        return said if isinstance(said, GuestPanicError) else None

    def _contents(self, numbers: Sequence[int]) -> Iterator[tuple[int, int, State]]:
        """Of each of these contents, the states that were looked at by then, and its first one."""
        if not numbers:
            return
        task = Task(
            self._log, self._check, self._wanted.model, numbers[-1] + 1, None, kinds=self._wanted.kinds(self._log)
        )
        contents = Contents(task, self._log.image(""))
        for number, state in enumerate(contents):
            if number in numbers:
                yield number, contents.looked_at, state

    def _said(self, state: State) -> Exception | None:
        """What a guest that checks nothing but this state says of it, or dies of."""
        from sampleblk_lab.vm import GuestPanicError

        try:
            said = self._guests.call(_check, *self._sent, self._wanted.clones, state.bare, self._watch)
        except GuestPanicError as panic:
            return self._why(panic)
        return None if said is None else unpacked(said)

    def _why(self, panic: GuestPanicError) -> GuestPanicError:
        """The same panic, and if we made it, why."""
        if HANGS in panic.console:
            return type(panic)(self._hangs, panic.console)
        if complaint := re.search(f"{re.escape(COMPLAINS)}(.*)", panic.console):
            return type(panic)(f"the guest's kernel complained: {complaint[1]}", panic.console)
        return panic


def _regular(warnings: Any) -> list[str]:
    """Regular expressions. Raises InputError for what is none, and for one that is in every line."""
    found = list(warnings) if isinstance(warnings, (list, tuple)) else [warnings]
    for text in found:
        try:
            if re.compile(text).search("") is None:
                continue
            why = "it is in every line"
        except (re.error, TypeError) as error:
            why = str(error)
        raise InputError(f"kernel_warning {text!r}: {why}", expected="regular expressions, such as 'at fs/btrfs/'")
    return found


def explore_in_vms(
    log: Log, check: Callable[[Path, State], object], wanted: Wanted, vm: Mapping[str, Any]
) -> Exploration:
    """See :meth:`Log.explore`; `vm` has the options of each VM."""
    from sampleblk_lab.vm.errors import OWN_FOLDERS

    options = dict(vm)
    deadline_s = options.pop("deadline_s", DEADLINE_S)
    if checked.seconds("deadline_s", deadline_s) == 0:
        raise InputError(f"deadline_s {deadline_s}", expected="seconds that a state may take")
    allowed = _regular(options.pop("kernel_warning", ()))
    if unknown := sorted(set(options) - set(_OPTIONS)):
        raise InputError(f"vm has {unknown[0]!r}", expected=", ".join(sorted(_OPTIONS)))
    shape = Shape.of({name: options[name] for name in _SHAPE if options.get(name) is not None})
    for file in filter(None, (log.path, log.base)):
        if file.resolve().parts[1] in OWN_FOLDERS:
            raise InputError(f"{file}, which a VM does not see", expected="a log and a base that are elsewhere")
    with contextlib.ExitStack() as stack:
        kernel = ""
        if wanted.resume is None:
            path = stack.enter_context(scratch_directory("crash-guests")) / "explored.json"
        else:
            path = Path(wanted.resume).absolute()
            machine, release = Machines(shape, download=True).of(options.get("kernel"))
            made_of = [machine[name] for name in ("image", "modules") if name in machine] if machine else []
            kernel = " ".join([release, *(digest[:16] for digest in made_of)])
        guests = stack.enter_context(contextlib.closing(_Guests(options.get("kernel"), shape, path.parent)))
        wanted = replace(wanted, workers=wanted.workers or shape.cpus)
        made = _Exploration(log, check, wanted, path, deadline_s, allowed, guests, kernel)
        return stack.enter_context(contextlib.closing(made)).run()
