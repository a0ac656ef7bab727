# SPDX-License-Identifier: MIT
"""What a user asked for, checked, and turned into trials."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sampleblk_lab import by_value
from sampleblk_lab.errors import InputError
from sampleblk_lab.functions import check_ran
from sampleblk_lab.sweeps import history, identity, pairwise, plan, store
from sampleblk_lab.sweeps.choice import Choice, Optuna, Random, Search
from sampleblk_lab.sweeps.trial import KERNEL, Machines, Shape, Trial, make, path_of

# What a function's own directory is called, which it is told of on the host where it runs.
DIRECTORY = "directory"

# Parameters that a function may have without there being such an axis.
OFFERED = ("repeat", "seed", DIRECTORY)

DEADLINE_S = 3600.0

# 30 years. The system's calls that wait have a limit not far above it.
_LONGEST_S = 1_000_000_000


@dataclass
class Spec:
    """A sweep as it was asked for; see :func:`sampleblk_lab.sweep` for what the fields mean.

    Raises:
        InputError: A value is not one that is accepted, or the axes and the function do not fit.
    """

    function: Callable[..., Any]
    axes: Mapping[str, Any]
    repeat: int = 1
    seed: int = 0
    pairwise: bool = False
    choose: Choice | None = None
    where: Callable[..., object] | None = None
    exclude: Iterable[Mapping[str, Any]] = ()
    vm: bool | Mapping[str, Any] | None = None
    deadline_s: float | None = DEADLINE_S
    retries: int = 2
    exclusive: bool | Callable[..., object] = False
    revision: str | None = None
    folder: Path | None = None
    source: str = ""
    shape: Shape | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise self._wrong(f"{self.function!r} is not a function", "a function of the axes")
        for name in ("repeat", "seed", "retries"):
            value, least = getattr(self, name), 1 if name == "repeat" else 0
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise self._wrong(f"{name}={value!r}", f"a whole number of {least} or more")
        if not isinstance(self.pairwise, bool):
            raise self._wrong(f"pairwise={self.pairwise!r}", "a bool")
        self._check_choice()
        if not isinstance(self.exclusive, bool) and not callable(self.exclusive):
            raise self._wrong(f"exclusive={self.exclusive!r}", "a bool, or a function of axes")
        self._decides = plan.parameters(self.exclusive, "exclusive") if callable(self.exclusive) else []
        for name in self._decides:
            if name not in self.axes:
                raise self._wrong(f"exclusive names {name!r}, which is not an axis", ", ".join(map(repr, self.axes)))
        if self.deadline_s is not None and (
            not isinstance(self.deadline_s, (int, float))
            or isinstance(self.deadline_s, bool)
            or not 0 < self.deadline_s <= _LONGEST_S
        ):
            raise self._wrong(f"deadline_s={self.deadline_s!r}", f"seconds above 0, or None; {_LONGEST_S:,} at most")
        for name in self.axes:
            if name in store.FACTS:
                raise self._wrong(f"an axis named {name!r}, which is a column of every sweep", "another name")
            if not name.isidentifier():
                raise self._wrong(f"an axis named {name!r}", "a name that a parameter can have")
        self._check_vm()
        self._check_signature()
        self._check_revision()
        if self.folder is None:
            name = re.sub(r"[^A-Za-z0-9._-]", "", getattr(self.function, "__name__", "")) or "sweep"
            self.folder = Path("runs") / "sweeps" / name
        self.folder = Path(self.folder).absolute()

    def _wrong(self, message: str, expected: str) -> InputError:
        return InputError(message, self.source, expected=expected)

    def _check_revision(self) -> None:
        if self.revision is None:
            return
        if not isinstance(self.revision, str) or not self.revision.strip():
            raise self._wrong(f"revision={self.revision!r}", "a name, or 'git' for the commit of the function's file")
        if self.revision == history.GIT:
            self.revision = history.commit_of(self.function, self.source)

    def _check_choice(self) -> None:
        if self.choose is None:
            return
        if not isinstance(self.choose, (Random, Optuna)):
            raise self._wrong(f"choose={self.choose!r}", "lab.sweeps.random(…) or lab.sweeps.optuna(…)")
        if self.pairwise:
            raise self._wrong("pairwise=True with choose", "one of the two")
        if isinstance(self.choose, Optuna):
            metric = self.choose.metric
            if metric in self.axes or (metric in store.FACTS and metric != "seconds"):
                expected = "'seconds', 'value', or a name that the function returns"
                raise self._wrong(f"{metric!r} is not a result", expected)

    def _check_vm(self) -> None:
        if self.vm is not None and not isinstance(self.vm, (bool, Mapping)):
            raise self._wrong(f"vm={self.vm!r}", "a bool, or a dict with cpus, memory_mib, accel, driver")
        if self.vm is False and KERNEL in self.axes:
            raise self._wrong("vm=False with an axis 'kernel'", "one of the two: kernels run in VMs")
        if self.vm is False or (self.vm is None and KERNEL not in self.axes):
            self.shape = None
        else:
            self.shape = Shape.of(self.vm if isinstance(self.vm, Mapping) else {})

    def _check_signature(self) -> None:
        name = getattr(self.function, "__name__", "the function")
        try:
            signature = inspect.signature(self.function)
        except (TypeError, ValueError):
            raise self._wrong(f"{name} does not tell its parameters", "a Python function") from None
        named = {}
        self._takes_any = False
        for parameter in signature.parameters.values():
            if parameter.kind is parameter.VAR_KEYWORD:
                self._takes_any = True
            elif parameter.kind is parameter.POSITIONAL_ONLY and parameter.default is parameter.empty:
                raise self._wrong(f"{name}() has {parameter.name!r} by position only", "parameters that can be named")
            elif parameter.kind is not parameter.VAR_POSITIONAL:
                named[parameter.name] = parameter.default is parameter.empty
        self._named = named
        for axis in self.axes:
            if axis not in named and not self._takes_any and not (axis == KERNEL and self.shape is not None):
                raise self._wrong(f"{name}() has no parameter {axis!r}", f"axes among {', '.join(named) or 'none'}")
        for parameter_name, needed in named.items():
            if needed and parameter_name not in self.axes and parameter_name not in OFFERED:
                raise self._wrong(f"{name}() needs {parameter_name!r}", "an axis of that name, or a default")

    def keywords(self, trial: Trial) -> dict[str, Any]:
        """What the function is called with."""
        offered = {"repeat": trial.repeat, "seed": trial.seed}
        return {
            **{name: value for name, value in offered.items() if name in self._named},
            **{
                name: value
                for name, value in trial.parameters.items()
                if name in self._named or (self._takes_any and name != KERNEL)
            },
        }

    @property
    def wants_directory(self) -> bool:
        """Whether the function is given a directory of the trial's own."""
        return DIRECTORY in self._named and DIRECTORY not in self.axes

    def kernel(self, trial: Trial) -> str | None:
        """The kernel of a trial's VM, as it is asked for."""
        return path_of(trial.parameters.get(KERNEL))

    def _combinations(self, space: plan.Space) -> list[plan.Combination]:
        """What there is to try, where that is known before anything is run."""
        if isinstance(self.choose, Random):
            found = self.choose.pick(space, self.seed)
        elif self.pairwise:
            found = pairwise.covering(space, self.seed)
        else:
            found = list(space)
        if not found:
            raise self._no_combination()
        return found

    def _no_combination(self) -> InputError:
        return self._wrong("no combination is left", "conditions that some combination fulfils")

    def build(self, *, download: bool) -> Course:
        """The sweep's trials, as far as they are known before it runs.

        Args:
            download: Fetch kernels that the cache lacks. Without, trials on such kernels have a key that is not the
                one they will have.

        Raises:
            InputError: The axes, conditions or names of kernels are not accepted.
            UnsupportedError: What chooses the combinations is not installed.
        """
        try:
            space = plan.Space(self.axes, self.where, self.exclude)
        except InputError as error:
            raise self._wrong(error.message, error.expected) from None
        search = self.choose.search(space, self.seed) if isinstance(self.choose, Optuna) else None
        if search is not None and next(space.walk(lambda name, _: space.domains[name]), None) is None:
            raise self._no_combination()
        known = identity.of_function(self.function)
        machines = Machines(self.shape, download=download) if self.shape is not None else None
        about = {
            "function": f"{self.function.__module__}:{getattr(self.function, '__qualname__', self.function)}",
            "code": known.digest,
            "values": {name: plan.plain(domain) for name, domain in space.domains.items()},
            "revision": self.revision,
            "repeat": self.repeat,
            "sweep_seed": self.seed,
            "pairwise": self.pairwise,
            "choose": None if self.choose is None else self.choose.json(),
            "exclusive": self.exclusive if isinstance(self.exclusive, bool) else "by axes",
            "vm": None if self.shape is None else self.shape.json(),
        }
        made = Course(self, store.Plan(about, list(self.axes), [], growing=search is not None), machines, search)
        if search is None:
            made.add(self._combinations(space))
        return made

    def trials(self, combinations: list[plan.Combination], code: str, machines: Machines | None) -> Iterator[Trial]:
        """Each combination as often as it is repeated, in the order that they are run."""
        for combination, repeat in plan.interleaved(combinations, self.repeat, self.seed):
            machine, release = None, ""
            if machines is not None:
                kernel = combination.get(KERNEL)
                if not isinstance(kernel, str) and kernel is not None:
                    raise self._wrong(f"axis 'kernel' has the value {kernel!r}", "names of kernels, such as '6.1'")
                machine, release = machines.of(path_of(kernel))
            alone = self._is_exclusive(combination)
            yield make(code, combination, repeat, self.seed, machine, release, exclusive=alone, revision=self.revision)

    def _is_exclusive(self, combination: plan.Combination) -> bool:
        if callable(self.exclusive):
            said = self.exclusive(**{name: combination[name] for name in self._decides})
            check_ran(said, "exclusive")
            return bool(said)
        return self.exclusive

    def pickled(self) -> bytes:
        """The function, as :func:`pickled` sends it. Raises InputError."""
        return pickled(self.function, identity.of_function(self.function).modules, "the function", self.source)


def pickled(value: object, own: Iterable[str], what: str, source: str = "") -> bytes:
    """A function, or what has functions, with all of the user's own code that it refers to: no host needs the files.

    Args:
        value: The function.
        own: The names of the user's own modules that it refers to.
        what: It, for the error.
        source: Where the user named it, for the error.

    Raises:
        InputError: It cannot be pickled.
    """
    modules = [sys.modules[name] for name in own if name != "__main__"]
    try:
        with by_value.whole(modules):
            return by_value.dumps(value)
    except Exception as error:
        raise InputError(f"{what} cannot be sent to another process: {error}", source, expected="plain data") from error


class Course:
    """What a sweep's trials are, and which come next: all at once, or by batches that a search asks for.

    Attributes:
        plan: The trials so far.
        machines: What the VMs are made of; None without VMs.
        lacking: Kernels that are not in the cache.
        most: How many trials there will be; with a search, at most.
    """

    def __init__(self, spec: Spec, plan: store.Plan, machines: Machines | None, search: Search | None) -> None:
        self._spec = spec
        self._search = search
        self._batch: list[tuple[dict[str, Any], list[Trial]]] = []
        self.plan = plan
        self.machines = machines
        self.lacking: dict[str, None] = {}

    @property
    def most(self) -> int:
        """How many trials there will be; with a search, at most."""
        if self._search is None or not self.plan.growing:
            return len(self.plan)
        return len(self.plan) + self._search.left * self._spec.repeat

    def add(self, combinations: list[plan.Combination]) -> list[Trial]:
        """Puts combinations into the plan; returns their trials."""
        trials = list(self._spec.trials(combinations, self.plan.about["code"], self.machines))
        if self.machines is not None:
            lacks = {
                trial.parameters.get(KERNEL)
                for trial in trials
                if self.machines.of(self._spec.kernel(trial))[0] is None
            }
            self.lacking.update(dict.fromkeys(str(kernel) for kernel in lacks))
        self.plan.extend(trials)
        return trials

    def next(self, values: Callable[[Trial], Mapping[str, Any] | None]) -> list[Trial]:
        """Trials that the search asks for once all of those before have ended; empty at the end.

        Args:
            values: What a trial has returned; None where it failed.

        Raises:
            InputError: No trial has returned what the search looks for.
        """
        if self._search is None or not self.plan.growing:
            return []
        if self._batch:
            self._search.tell([(one, [values(trial) for trial in trials]) for one, trials in self._batch])
        combinations = self._search.ask()
        if not combinations:
            self._batch = []
            self.plan.growing = False
            return []
        trials = self.add(combinations)
        by_text: dict[str, list[Trial]] = {}
        for trial in sorted(trials, key=lambda trial: trial.repeat):
            by_text.setdefault(plan.canonical(trial.parameters), []).append(trial)
        self._batch = [(one, by_text[plan.canonical(one)]) for one in combinations]
        return trials
