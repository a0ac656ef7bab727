# SPDX-License-Identifier: MIT
"""Measuring until the result is precise enough."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sampleblk_lab import checked, trust
from sampleblk_lab.errors import InputError
from sampleblk_lab.results import stats
from sampleblk_lab.results.comparison import BETTER, NAMES, SERIAL, Comparison, check_names, compare

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

# How much longer the series must be before its interval is worked out again.
_GROWTH = 1.15


@dataclass(frozen=True)
class Measurement:
    """One quantity, measured again and again.

    Attributes:
        name: What it is called beside other quantities of the same test.
        unit: Of the samples.
        better: ``"lower"`` or ``"higher"``.
        samples: In the order they were taken.
        estimate: Their location with its interval.
        stopped: Why no more were taken: ``"narrow"`` (precise enough) or ``"budget"`` (time or repeats ran out).
    """

    name: str
    unit: str
    better: str
    samples: tuple[float, ...]
    estimate: stats.Interval
    stopped: str

    @property
    def value(self) -> float:
        """The estimate itself."""
        return self.estimate.value

    def __float__(self) -> float:
        return self.value

    def to_json(self) -> dict[str, Any]:
        """As ``measurements.json`` has it."""
        return {
            "name": self.name,
            "unit": self.unit,
            "better": self.better,
            "samples": list(self.samples),
            "value": self.estimate.value,
            "low": self.estimate.low,
            # JSON has no infinity.
            "high": self.estimate.high if math.isfinite(self.estimate.high) else None,
            "confidence": self.estimate.confidence,
            "stopped": self.stopped,
        }

    def __repr__(self) -> str:
        unit = f" {self.unit}" if self.unit else ""
        serial = f", {SERIAL}" if stats.serially_correlated(self.samples) else ""
        return (
            f"{self.name or 'value'}: {self.value:.6g}{unit} [{self.estimate.low:.6g}, {self.estimate.high:.6g}] at "
            f"{self.estimate.sure}, {len(self.samples)} samples, stopped by {self.stopped}{serial}"
        )


@dataclass(frozen=True)
class Plan:
    """When to stop.

    Attributes:
        width: Half the interval, relative to the value, at which it is precise enough.
        budget_s: Seconds after which no further repeat begins, once there are `min_repeats`.
        min_repeats: The fewest samples; at least 6.
        max_repeats: The most.
        warmup: Repeats before those that count.
        confidence: Of the interval.
        seed: Of the bootstrap.
    """

    width: float = 0.02
    budget_s: float = 10.0
    min_repeats: int = 10
    max_repeats: int = 1000
    warmup: int = 1
    confidence: float = stats.CONFIDENCE
    seed: int = 0

    def __post_init__(self) -> None:
        checked.count("min_repeats", self.min_repeats, stats.MIN_SAMPLES, 2**63)
        checked.count("max_repeats", self.max_repeats, self.min_repeats, 2**63)
        checked.count("warmup", self.warmup, 0)
        checked.above_zero("width", self.width)
        checked.above_zero("budget_s", self.budget_s)
        stats.check_options(self.confidence, self.seed)


class _Taker:
    """Takes samples of a function.

    Args:
        function: Returns a number, or None: then the nanoseconds that it took are the sample.
        what: It, for errors.
        unit: Of the samples, as the user said.
        better: Which of them are, likewise.
        allow: What may be in doubt.
    """

    def __init__(self, function: Callable[[], Any], what: str, unit: str, better: str, allow: Iterable[str]) -> None:
        if not callable(function):
            raise InputError(f"{what} is {function!r:.60}", expected="something to call, such as a function")
        self._function = function
        self._what = what
        self._said = (unit, better)
        self._allow = allow
        self._returns: bool | None = None

    def __call__(self) -> float:
        """One sample.

        Raises:
            InputError: It is not a number above 0; or a time, where something else is measured.
            TrustError: What it measured is in doubt, by something else than the kinds that are allowed.
        """
        with trust.collected() as said:
            begin = time.perf_counter_ns()
            value = self._function()
            taken = time.perf_counter_ns() - begin
        if doubts := said.doubts(self._allow):
            raise trust.TrustError(doubts)
        if self._returns is None:
            self._returns = value is not None
        if value is None:
            self._check_time()
            return float(taken)
        if not self._returns:
            raise InputError(f"{self._what} returned None before, and {value!r} now", expected="one of the two")
        if isinstance(value, bool) or not hasattr(value, "__float__"):
            raise InputError(
                f"{self._what} returned {value!r}", expected="a number above 0, or None to have its time taken"
            )
        number = float(value)
        if not 0 < number < float("inf"):
            raise InputError(f"{self._what} returned {number:g}", expected="a number above 0")
        return number

    def _check_time(self) -> None:
        unit, better = self._said
        if self._returns:
            raise InputError(f"{self._what} returned numbers before, and None now", expected="one of the two")
        if (unit, better) != ("ns", "lower"):
            raise InputError(
                f"{self._what} returned None, so that its time is taken, and unit={unit!r}, better={better!r}",
                expected="a number above 0; of times unit='ns', better='lower'",
            )


def _interval(samples: list[float], plan: Plan) -> stats.Interval:
    return stats.interval(samples, confidence=plan.confidence, seed=plan.seed)


def _known(estimate: stats.Interval, plan: Plan) -> bool:
    return estimate.half_width <= plan.width


def _repeat(step: Callable[[], None], estimate: Callable[[], stats.Interval], plan: Plan) -> tuple[stats.Interval, str]:
    """Repeats `step` by the plan; the estimate after the last one, and why it was the last."""
    begin = time.monotonic()
    count = 0
    look_at = plan.min_repeats
    while True:
        step()
        count += 1
        if count < plan.min_repeats:
            continue
        spent = count >= plan.max_repeats or time.monotonic() - begin >= plan.budget_s
        if count >= look_at or spent:
            found = estimate()
            if _known(found, plan):
                return found, "narrow"
            if spent:
                return found, "budget"
            look_at = int(count * _GROWTH) + 1


def measure(
    function: Callable[[], Any],
    *,
    name: str = "",
    unit: str = "ns",
    better: str = "lower",
    allow: str | Iterable[str] = (),
    **plan: Any,
) -> Measurement:
    """Repeats a function until its result is precise enough, or the budget ends.

    Args:
        function: Returns a positive number, or None: then the time that it took is what is measured, in ns.
        name: What the quantity is called beside others.
        unit: Of what `function` returns.
        better: ``"lower"`` or ``"higher"``.
        allow: What may be in doubt of the jobs and recordings in it, by the kinds of :data:`sampleblk_lab.trust.KINDS`:
            ``"lost"``, ``"clock"``, ``"counters"``, ``"bandwidth"``, ``"errors"``.
        plan: The fields of :class:`Plan`: width, budget_s, min_repeats, max_repeats, warmup, confidence, seed.

    Raises:
        InputError: A value is out of range; `function` returned something else, or None though something else than
            a time in ns is measured.
        TrustError: A job or a recording of this thread in `function` is in doubt, as its ``checks`` have it.
    """
    _check_better(better)
    chosen = Plan(**plan)
    take = _Taker(function, "the measured function", unit, better, trust.kinds(allow))
    for _ in range(chosen.warmup):
        take()
    samples: list[float] = []
    estimate, stopped = _repeat(
        lambda: samples.append(take()),
        lambda: _interval(samples, chosen),
        chosen,
    )
    return Measurement(name, unit, better, tuple(samples), estimate, stopped)


def measure_both(
    before: Callable[[], Any],
    after: Callable[[], Any],
    *,
    names: Sequence[str] = NAMES,
    unit: str = "ns",
    better: str = "lower",
    allow: str | Iterable[str] = (),
    **plan: Any,
) -> Comparison:
    """Measures two variants alternately, and compares them: A B, B A, A B, … so that drift and order cancel.

    Args:
        before: The one variant; see :func:`measure` for what it returns.
        after: The other.
        names: What the two are called.
        unit: Of what they return.
        better: ``"lower"`` or ``"higher"``.
        allow: As for :func:`measure`.
        plan: As for :func:`measure`; `width` is that of the ratio.

    Raises:
        InputError: As for :func:`measure`, or names that are not two different ones.
        TrustError: As for :func:`measure`.
    """
    return measure_variants(before, after, names=names, unit=unit, better=better, allow=allow, **plan)[0]


def measure_variants(
    before: Callable[[], Any],
    after: Callable[[], Any],
    *,
    names: Sequence[str] = NAMES,
    unit: str = "ns",
    better: str = "lower",
    allow: str | Iterable[str] = (),
    **plan: Any,
) -> tuple[Comparison, Measurement, Measurement]:
    """The same, with what each variant measured by itself."""
    _check_better(better)
    check_names(names)
    chosen = Plan(**plan)
    allowed = trust.kinds(allow)
    take_before = _Taker(before, "the variant before", unit, better, allowed)
    take_after = _Taker(after, "the variant after", unit, better, allowed)
    for _ in range(chosen.warmup):
        take_before()
        take_after()
    first: list[float] = []
    second: list[float] = []

    def step() -> None:
        turns = [(first, take_before), (second, take_after)]
        for samples, take in turns if len(first) % 2 == 0 else reversed(turns):
            samples.append(take())

    confidence, seed = chosen.confidence, chosen.seed
    _, stopped = _repeat(step, lambda: stats.paired_ratio(first, second, confidence=confidence, seed=seed), chosen)
    one, other = (
        Measurement(name, unit, better, tuple(samples), _interval(samples, chosen), stopped)
        for name, samples in zip(names, (first, second), strict=True)
    )
    made = compare(first, second, paired=True, names=names, better=better, unit=unit, confidence=confidence, seed=seed)
    return made, one, other


def _check_better(better: str) -> None:
    if better not in BETTER:
        raise InputError(f"better={better!r}", expected=" or ".join(map(repr, BETTER)))
