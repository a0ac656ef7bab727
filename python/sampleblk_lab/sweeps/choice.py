# SPDX-License-Identifier: MIT
"""Which combinations are run when not all of them are: some at random, or those that optuna's sampler asks for.

A search is replayed whenever it is continued: from the same seed and the same results, a sampler asks for the same. So
what was done before is told to it instead of being run again, and a search that was interrupted goes on as if it had
not been.
"""

from __future__ import annotations

import contextlib
import math
import random as randomness
import statistics
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

from sampleblk_lab.errors import InputError, UnsupportedError
from sampleblk_lab.sweeps.plan import canonical

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from sampleblk_lab.sweeps.plan import Combination, Space

# How often in a row a sampler may ask for what was run already, or is no combination, until one is picked for it.
_TRIES = 10


def _whole(name: str, value: Any, least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise InputError(f"{name}={value!r}", expected=f"a whole number of {least} or more")


@dataclass(frozen=True)
class Choice:
    """How combinations are chosen; made by :func:`random` and :func:`optuna`."""

    combinations: int
    seed: int | None = None

    def __post_init__(self) -> None:
        _whole("combinations", self.combinations, 1)
        if self.seed is not None:
            _whole("seed", self.seed, 0)

    def json(self) -> dict[str, Any]:
        """For the plan."""
        return {"by": type(self).__name__.lower(), "combinations": self.combinations, "seed": self.seed}


class Random(Choice):
    """Each combination is as likely as any other, and is run once for each repeat."""

    def pick(self, space: Space, seed: int) -> list[Combination]:
        """The chosen ones, in the order of the axes. More of them, by the same seed, are these and others."""
        every = list(space)
        order = list(range(len(every)))
        randomness.Random(f"{seed if self.seed is None else self.seed} choice").shuffle(order)
        return [every[index] for index in sorted(order[: self.combinations])]


@dataclass(frozen=True)
class Optuna(Choice):
    """What is chosen depends on what came of those before."""

    metric: str = ""
    better: str = "lower"
    batch: int = 4
    sampler: Callable[[int], Any] | None = None

    DIRECTIONS: ClassVar = {"lower": "minimize", "higher": "maximize"}

    def __post_init__(self) -> None:
        super().__post_init__()
        _whole("batch", self.batch, 1)
        if self.sampler is not None and not callable(self.sampler):
            raise InputError(
                f"sampler={self.sampler!r}", expected="a function of a seed that makes an optuna.samplers.BaseSampler"
            )

    def json(self) -> dict[str, Any]:
        """For the plan."""
        named = {self.DIRECTIONS[self.better]: self.metric, "batch": self.batch}
        if self.sampler is not None:
            named["sampler"] = getattr(self.sampler, "__qualname__", type(self.sampler).__name__)
        return {**super().json(), **named}

    def search(self, space: Space, seed: int) -> Search:
        """Begins. Raises UnsupportedError where optuna is not installed."""
        return Search(self, space, seed if self.seed is None else self.seed)


def random(combinations: int, *, seed: int | None = None) -> Choice:
    """Combinations at random, for ``sweep(choose=…)``.

    Args:
        combinations: How many; all, where there are fewer. A larger number by the same seed has those of a smaller one
            among them, so that a sweep can be widened.
        seed: Decides which; None: the sweep's.
    """
    return Random(combinations, seed)


def optuna(
    *,
    minimize: str | None = None,
    maximize: str | None = None,
    combinations: int,
    seed: int | None = None,
    batch: int = 4,
    sampler: Callable[[int], Any] | None = None,
) -> Choice:
    """Combinations that a sampler of optuna asks for, by what came of those before; for ``sweep(choose=…)``.

    The axes are categorical to it. With repeats it is told their median. A combination of which a trial failed, or did
    not return a number, is told as failed. The choice is the same by the same seed and the same results, however many
    trials run at a time.

    Args:
        minimize: What is to be small: ``"seconds"``, a name that the function returns, or ``"value"`` where it returns
            just a number.
        maximize: What is to be large, in place of `minimize`.
        combinations: How many different ones are run, at most.
        seed: The sampler's; None: the sweep's.
        batch: Combinations that are chosen together, when nothing is known of each other yet: as many, times the
            repeats, can run at a time.
        sampler: Called with the seed, returns an ``optuna.samplers.BaseSampler``; None: ``TPESampler``.

    Raises:
        InputError: A value is not one that is accepted.
    """
    if (minimize is None) == (maximize is None):
        raise InputError(f"minimize={minimize!r} and maximize={maximize!r}", expected="one of the two")
    metric = minimize if minimize is not None else maximize
    if not isinstance(metric, str) or not metric:
        raise InputError(
            f"{metric!r} is not a name", expected="'seconds', 'value', or a name that the function returns"
        )
    better = "lower" if minimize is not None else "higher"
    return Optuna(combinations, seed, metric, better, batch, sampler)


@contextlib.contextmanager
def _quiet(library: Any) -> Iterator[None]:
    """Without the lines that optuna logs about each step."""
    before = library.logging.get_verbosity()
    library.logging.set_verbosity(max(before, library.logging.WARNING))
    try:
        yield
    finally:
        library.logging.set_verbosity(before)


class Search:
    """A search by optuna: asked for a batch of combinations, then told what came of them.

    Attributes:
        left: How many combinations it may still ask for.

    Args:
        choice: What is searched for.
        space: The combinations that there are.
        seed: The sampler's.

    Raises:
        UnsupportedError: optuna is not installed.
    """

    def __init__(self, choice: Optuna, space: Space, seed: int) -> None:
        try:
            self._library: Any = import_module("optuna")
        except ImportError:
            raise UnsupportedError(
                "choosing combinations by optuna", "it is not installed", "pip install 'sampleblk-lab[optuna]'"
            ) from None
        self._choice = choice
        self._space = space
        self.left = choice.combinations
        # By the values' texts, as optuna compares values by ==, to which 1, 1.0 and True are one.
        self._values = {name: {canonical(value): value for value in domain} for name, domain in space.domains.items()}
        self._random = randomness.Random(f"{seed} search")
        with _quiet(self._library):
            make = self._tpe if choice.sampler is None else choice.sampler
            self._study = self._library.create_study(
                sampler=make(seed), direction=Optuna.DIRECTIONS[choice.better], study_name="sweep"
            )
            categorical = self._library.distributions.CategoricalDistribution
            self._axes = {name: categorical(list(texts)) for name, texts in self._values.items()}
        self._states = self._library.trial.TrialState
        # By the combination's text: what optuna calls trials, which wait for its result; then the result.
        self._asked: dict[str, list[Any]] = {}
        self._known: dict[str, float | None] = {}
        self._returned: set[str] = set()

    def _tpe(self, seed: int) -> Any:
        return self._library.samplers.TPESampler(seed=seed, constant_liar=self._choice.batch > 1)

    def ask(self) -> list[Combination]:
        """The next batch, all of them new; empty when there is nothing more to run."""
        assert not self._asked, "the last batch was not told"
        found = []
        with _quiet(self._library):
            for _ in range(min(self._choice.batch, self.left)):
                one = self._sampled() or self._picked()
                if one is None:
                    break
                found.append(one)
        self.left = self.left - len(found) if found else 0
        return found

    def _sampled(self) -> Combination | None:
        """What the sampler asks for; None when that is nothing new, time and again."""
        for _ in range(_TRIES):
            asked = self._study.ask(self._axes)
            one = {name: self._values[name][text] for name, text in asked.params.items()}
            text = canonical(one)
            if text in self._known:
                self._pass_on(asked, self._known[text])
            elif text in self._asked:
                self._asked[text].append(asked)
            elif self._space.allows(one):
                self._asked[text] = [asked]
                return one
            else:
                self._study.tell(asked, state=self._states.PRUNED)
        return None

    def _picked(self) -> Combination | None:
        """One that was not asked for yet; None when there is none."""

        def shuffled(name: str, _: object) -> list[Any]:
            domain = list(self._space.domains[name])
            self._random.shuffle(domain)
            return domain

        for one in self._space.walk(shuffled):
            text = canonical(one)
            if text not in self._known and text not in self._asked:
                self._study.enqueue_trial({name: canonical(value) for name, value in one.items()})
                self._asked[text] = [self._study.ask(self._axes)]
                return one
        return None

    def tell(self, results: Sequence[tuple[Combination, Sequence[Mapping[str, Any] | None]]]) -> None:
        """What came of the last batch.

        Args:
            results: Each combination, and for each of its repeats what was returned, or None where it failed.

        Raises:
            InputError: No trial has ever returned what is looked for.
        """
        with _quiet(self._library):
            for one, repeats in results:
                text = canonical(one)
                self._known[text] = value = self._value(repeats)
                for asked in self._asked.pop(text):
                    self._pass_on(asked, value)
        if self._returned and self._choice.metric not in self._returned:
            raise InputError(
                f"no trial has returned {self._choice.metric!r}, by which combinations are to be chosen",
                expected=", ".join(map(repr, sorted(self._returned))),
            )

    def _value(self, repeats: Sequence[Mapping[str, Any] | None]) -> float | None:
        numbers = []
        for one in repeats:
            if one is None:
                return None
            self._returned.update(one)
            number = _number(one.get(self._choice.metric))
            if number is None:
                return None
            numbers.append(number)
        return statistics.median(numbers)

    def _pass_on(self, asked: Any, value: float | None) -> None:
        if value is None:
            self._study.tell(asked, state=self._states.FAIL)
        else:
            self._study.tell(asked, value)


def _number(value: Any) -> float | None:
    """A finite number, or nothing."""
    return float(value) if isinstance(value, (bool, int, float)) and math.isfinite(value) else None


#: Keys of the table ``choose`` in a sweep's file.
KEYS = ("combinations", "minimize", "maximize", "seed", "batch")


def of_table(given: Mapping[str, Any]) -> Choice:
    """From a sweep's file: by optuna where something is minimized or maximized, else at random.

    Raises:
        InputError: A key is unknown, missing, or has a value that is not accepted.
    """
    for name in given:
        if name not in KEYS:
            raise InputError(f"choose has an unknown key {name!r}", expected=", ".join(KEYS))
    if "combinations" not in given:
        raise InputError("choose has no combinations", expected="how many are chosen")
    if "minimize" in given or "maximize" in given:
        return optuna(**given)
    if "batch" in given:
        raise InputError("choose has batch, but nothing to minimize or maximize", expected="minimize or maximize")
    return random(**given)
