# SPDX-License-Identifier: MIT
"""Is it slower? Ratios of positive measurements, with an interval that says how well they are known.

Times of I/O are skewed and their noise multiplies, so everything is done on logarithms. The location is the mean with
a tenth cut off at each end, which one stalled repeat does not move; the interval is the bootstrap-t interval of that
(Efron and Tibshirani, "An Introduction to the Bootstrap", 1993, chapter 12; Wilcox, "Introduction to Robust
Estimation", chapter 4), which keeps its promise with ten samples, where the percentile bootstrap does not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sampleblk_lab import checked
from sampleblk_lab.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

# Cut from each end before the mean.
TRIM = 0.1

# The fewest samples that a spread can be told from: with five, 7 in 100 intervals of 99 % miss.
MIN_SAMPLES = 6

# 98 %: of 100 comparisons of the same with the same, two are expected to be called different.
CONFIDENCE = 0.98

# Standard errors beyond which neighbours resemble each other by more than chance: of series without order, 1 in 200 to
# 1 in 70, the more of them the fewer values they have.
_SERIAL = 2.5

_RESAMPLES = 4000
# Values that are drawn at a time: 64 MiB.
_DRAWN = 1 << 23


@dataclass(frozen=True)
class Interval:
    """An estimate and the range it is known to lie in.

    Attributes:
        value: The estimate.
        low: The lower end.
        high: The upper end.
        confidence: How often such a range holds the truth, 0 to 1.
    """

    value: float
    low: float
    high: float
    confidence: float

    @property
    def half_width(self) -> float:
        """Half the range, relative to the value."""
        return (self.high - self.low) / (2 * self.value)

    @property
    def sure(self) -> str:
        """The confidence in percent, with all its digits: ``"98%"``, ``"99.5%"``."""
        return f"{100 * self.confidence:.10g}%"


def logs(samples: Sequence[float] | Floats, what: str = "samples") -> Floats:
    """The logarithms of measurements, shape ``(n,)``.

    Raises:
        InputError: They are no sequence of numbers, or one is not a positive finite number.
    """
    try:
        given = np.asarray(samples)
        values = given.astype(np.float64)
        if isinstance(samples, np.ma.MaskedArray):
            values = np.where(np.ma.getmaskarray(samples), np.nan, values)  # none was measured there
    except (TypeError, ValueError):
        given = values = np.empty(())
    # Texts, truths and complex numbers would be converted.
    if values.ndim != 1 or given.dtype.kind not in "iufO":
        raise InputError(f"{what}: {samples!r:.60}", expected="a sequence of numbers above 0")
    bad = ~(np.isfinite(values) & (values > 0))
    if bad.any():
        raise InputError(f"{what}: {values[bad][0]:g} at position {np.flatnonzero(bad)[0]}", expected="numbers above 0")
    result: Floats = np.log(values)
    return result


def _trimmed(ordered: Floats) -> tuple[Any, Any]:
    """Trimmed means and their standard errors along the last axis of sorted values (Tukey and McLaughlin, 1963)."""
    n = ordered.shape[-1]
    cut = int(TRIM * n)
    # From a value that is there: of values that are all the same, the sum rounds otherwise for each count of them.
    base = ordered[..., n // 2, None]
    ordered = ordered - base
    mean = base[..., 0] + ordered[..., cut : n - cut].mean(axis=-1)
    winsorized = np.clip(ordered, ordered[..., cut : cut + 1], ordered[..., n - cut - 1 : n - cut])
    spread = winsorized.std(axis=-1, ddof=1)
    return mean, spread / ((1 - 2 * cut / n) * np.sqrt(n))


def location(values: Floats) -> float:
    """The trimmed mean."""
    return float(_trimmed(np.sort(values))[0])


def _grain(values: Floats) -> float:
    """The step that measurements are rounded to, where they are, such as a bucket of a histogram; else 0.

    From the values that count: without the ends that are cut off.
    """
    cut = int(TRIM * len(values))
    steps = np.diff(np.sort(values)[cut : len(values) - cut])
    return float(steps[steps > 0].min()) if (steps == 0).any() and (steps > 0).any() else 0.0


def _pivots(values: Floats, rng: np.random.Generator, grain: float) -> tuple[float, float, Floats, Floats]:
    """Estimate, its standard error, and the bootstrap's estimates and standard errors.

    What rounding took from a value is known by a step's uniform distribution, and taken as a part of each error
    (Sheppard's correction): a resample that has one value only would say that it knows the mean for sure.
    """
    mean, error = _trimmed(np.sort(values))
    rows = max(_DRAWN // len(values), 1)
    parts = [
        _trimmed(np.sort(rng.choice(values, size=(min(rows, _RESAMPLES - done), len(values))), axis=-1))
        for done in range(0, _RESAMPLES, rows)
    ]
    means, errors = (np.concatenate(part) for part in zip(*parts, strict=True))
    rounding = grain / np.sqrt(12 * len(values))
    return float(mean), float(np.hypot(error, rounding)), means, np.hypot(errors, rounding)


def _bounds(value: float, error: float, values: Floats, errors: Floats, confidence: float) -> tuple[float, float]:
    if error == 0:
        return value, value
    # A resample without spread, but for rounding, says nothing of its own error.
    usable = errors > 1e-6 * error
    pivots = (values[usable] - value) / errors[usable]
    # Symmetric: more even coverage than two tails of their own (Hall 1988, Biometrika 75).
    reach = float(np.quantile(np.abs(pivots), confidence)) * error if usable.any() else float("inf")
    return value - reach, value + reach


def _back(value: float, low: float, high: float, confidence: float) -> Interval:
    """From logarithms."""
    with np.errstate(over="ignore"):  # nothing known: up to infinity
        return Interval(float(np.exp(value)), float(np.exp(low)), float(np.exp(high)), confidence)


def interval(samples: Sequence[float] | Floats, *, confidence: float = CONFIDENCE, seed: int = 0) -> Interval:
    """The location of measurements, in their own unit.

    Args:
        samples: Positive numbers, shape ``(n,)``, n at least 6.
        confidence: Above 0.5 and below 1.
        seed: Of the bootstrap.

    Raises:
        InputError: Too few samples, one that is not positive, or a confidence out of range.
    """
    values = logs(samples)
    _check(len(values), confidence, seed)
    estimate, error, means, errors = _pivots(values, np.random.default_rng(seed), _grain(values))
    low, high = _bounds(estimate, error, means, errors, confidence)
    return _back(estimate, low, high, confidence)


def paired_ratio(
    before: Sequence[float] | Floats, after: Sequence[float] | Floats, *, confidence: float = CONFIDENCE, seed: int = 0
) -> Interval:
    """The ratio after/before of measurements that were taken in pairs, so that drift cancels.

    Args:
        before: Positive numbers, shape ``(n,)``, n at least 6.
        after: As many, each measured next to its partner.
        confidence: Above 0.5 and below 1.
        seed: Of the bootstrap.

    Raises:
        InputError: As for :func:`interval`, or sides of different lengths.
    """
    first, second = logs(before, "before"), logs(after, "after")
    if len(first) != len(second):
        raise InputError(f"{len(first)} samples before and {len(second)} after", expected="pairs")
    _check(len(first), confidence, seed)
    estimate, error, means, errors = _pivots(
        second - first, np.random.default_rng(seed), float(np.hypot(_grain(first), _grain(second)))
    )
    low, high = _bounds(estimate, error, means, errors, confidence)
    return _back(estimate, low, high, confidence)


def ratio(
    before: Sequence[float] | Floats, after: Sequence[float] | Floats, *, confidence: float = CONFIDENCE, seed: int = 0
) -> Interval:
    """The ratio after/before of measurements that were taken independently of each other.

    Args:
        before: Positive numbers, shape ``(n,)``, n at least 6.
        after: The same, shape ``(m,)``.
        confidence: Above 0.5 and below 1.
        seed: Of the bootstrap.

    Raises:
        InputError: As for :func:`interval`.
    """
    first, second = logs(before, "before"), logs(after, "after")
    _check(min(len(first), len(second)), confidence, seed)
    rng = np.random.default_rng(seed)
    base, base_error, bases, base_errors = _pivots(first, rng, _grain(first))
    other, other_error, others, other_errors = _pivots(second, rng, _grain(second))
    low, high = _bounds(
        other - base,
        float(np.hypot(base_error, other_error)),
        others - bases,
        np.hypot(base_errors, other_errors),
        confidence,
    )
    return _back(other - base, low, high, confidence)


def serially_correlated(samples: Sequence[float] | Floats) -> bool:
    """Whether values resemble those taken next to them: a drift, or state that outlives a repeat.

    Their interval is narrower than it should be then. Few samples show it only where it is strong: of first-order
    autoregressions with 0.5, 4 in 100 with 10 samples, 1 in 4 with 20 and 8 in 10 with 50.

    Args:
        samples: Numbers in the order they were taken, shape ``(n,)``.
    """
    n = len(samples)
    ordered = np.sort(samples)
    ranks = (np.searchsorted(ordered, samples, "left") + np.searchsorted(ordered, samples, "right")) / 2
    spread = ((ranks - ranks.mean()) ** 2).sum() if n >= MIN_SAMPLES else 0.0
    if spread == 0:
        return False
    # The rank version of von Neumann's ratio (Bartels 1982, Journal of the American Statistical Association 77).
    variance = 4 * (n - 2) * (5 * n * n - 2 * n - 9) / (5 * n * (n + 1) * (n - 1) ** 2)
    return bool((np.diff(ranks) ** 2).sum() / spread < 2 - _SERIAL * np.sqrt(variance))


def cliffs_delta(before: Sequence[float] | Floats, after: Sequence[float] | Floats) -> float:
    """How far two sets lie apart, whatever their distribution.

    Returns:
        P(after > before) - P(after < before), from -1 to 1; 0 when they overlap fully (Cliff 1993, Psychological
        Bulletin 114). Romano's words for its size: below 0.147 negligible, 0.33 small, 0.474 medium, else large.
    """
    first, second = np.sort(np.asarray(before, dtype=np.float64)), np.asarray(after, dtype=np.float64)
    above = np.searchsorted(first, second, side="left").sum()
    below = (len(first) - np.searchsorted(first, second, side="right")).sum()
    return float(above - below) / (len(first) * len(second))


def _check(count: int, confidence: float, seed: int) -> None:
    if count < MIN_SAMPLES:
        raise InputError(f"{count} samples say nothing of their spread", expected=f"at least {MIN_SAMPLES}")
    check_options(confidence, seed)


def check_options(confidence: float, seed: int = 0) -> None:
    """Of an interval. Raises InputError."""
    if not isinstance(confidence, (int, float)) or not 0.5 < confidence < 1:
        raise InputError(f"confidence={confidence!r}", expected="above 0.5 and below 1")
    checked.count("seed", seed, 0, 2**64 - 1)
