# SPDX-License-Identifier: MIT
"""The verdict on two sets of measurements."""

from __future__ import annotations

import html
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sampleblk_lab import checked
from sampleblk_lab.errors import InputError
from sampleblk_lab.results import stats
from sampleblk_lab.texts import readable

if TYPE_CHECKING:
    from collections.abc import Sequence

FASTER, SLOWER, NO_DIFFERENCE = "faster", "slower", "no difference shown"
BETTER = ("lower", "higher")
NAMES = ("before", "after")
# Of samples that are.
SERIAL = "serially correlated (a drift, or state that outlives a repeat): the interval is too narrow"


@dataclass(frozen=True)
class Comparison:
    """What two sets of measurements say of each other.

    Attributes:
        ratio: After over before, with its interval.
        effect: Cliff's delta: how far the sets lie apart, -1 to 1.
        before: The samples before, in their unit.
        after: The samples after.
        paired: Whether each sample was compared with the one measured next to it.
        better: ``"lower"`` for times, ``"higher"`` for rates.
        unit: Of the samples.
        notes: What a reader must know, such as that all samples before come from one session.
        names: What `before` and `after` are called.
    """

    ratio: stats.Interval
    effect: float
    before: tuple[float, ...]
    after: tuple[float, ...]
    paired: bool
    better: str = "lower"
    unit: str = ""
    notes: tuple[str, ...] = ()
    names: tuple[str, str] = NAMES

    @property
    def subject(self) -> str:
        """``"AFTER against BEFORE"``, by their names; empty where they have none of their own."""
        before, after = self.names
        return "" if self.names == NAMES else readable(f"{after} against {before}")

    @property
    def different(self) -> bool:
        """Whether the interval of the ratio leaves 1 out."""
        return not self.ratio.low <= 1.0 <= self.ratio.high

    @property
    def verdict(self) -> str:
        """``"faster"``, ``"slower"`` or ``"no difference shown"``; the last does not say that there is none."""
        if not self.different:
            return NO_DIFFERENCE
        return SLOWER if (self.ratio.value > 1) == (self.better == "lower") else FASTER

    def _written(self) -> list[str]:
        """The ratio and its bounds, with three decimals, or as many as it takes to see that it is none of 0 and 1."""
        values = (self.ratio.value, self.ratio.low, self.ratio.high)
        for decimals in range(3, 20):
            written = [f"{value:.{decimals}f}" for value in values]
            if float(written[0]) > 0 and not (self.different and float(written[1]) <= 1 <= float(written[2])):
                break
        return written

    def text(self) -> str:
        """One line, and the notes below it."""
        how = "pairs" if self.paired else "samples each"
        count = len(self.before) if len(self.before) == len(self.after) else f"{len(self.before)} and {len(self.after)}"
        value, low, high = self._written()
        line = (
            f"{self.subject}{': ' if self.subject else ''}{self.verdict}: ratio {value} "
            f"[{low}, {high}] at {self.ratio.sure}, "
            f"Cliff's delta {self.effect:+.2f}, {count} {how}"
        )
        return "\n".join([line, *(readable(f"  note: {note}") for note in self.notes)])

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        first, *rest = self.text().splitlines()
        subject = f"{self.subject}: " if self.subject else ""
        figures = first.removeprefix(f"{subject}{self.verdict}: ")
        notes = "".join(f"<br><small>{html.escape(line)}</small>" for line in rest)
        return f"<p>{html.escape(subject)}<b>{self.verdict}</b>: {figures}{notes}</p>"


def check_names(names: Sequence[str]) -> None:
    """What two variants are called. Raises InputError."""
    chosen = names if isinstance(names, (list, tuple)) else ()
    if not all(isinstance(name, str) and name for name in chosen) or not len(chosen) == len(set(chosen)) == 2:
        raise InputError(f"names={names!r}", expected="two names that differ")


def compare(
    before: Sequence[float],
    after: Sequence[float],
    *,
    paired: bool = False,
    better: str = "lower",
    unit: str = "",
    confidence: float = stats.CONFIDENCE,
    seed: int = 0,
    notes: str | Sequence[str] = (),
    names: Sequence[str] = NAMES,
    in_order: bool = True,
) -> Comparison:
    """Compares two sets of measurements.

    Args:
        before: Positive numbers, at least 6.
        after: The same.
        paired: Each of `after` was measured next to its partner in `before`; drift then cancels.
        better: ``"lower"`` or ``"higher"``.
        unit: Of the samples.
        confidence: Of the interval. At 0.98, two of 100 comparisons of the same with the same call it different.
        seed: Of the bootstrap.
        notes: What a reader must know.
        names: What `before` and `after` are called.
        in_order: The samples of a side, or the pairs, are in the order they were taken: a note says where they are
            serially correlated. Not so of sides that ran in rounds, which have a drift in common.

    Raises:
        InputError: Too few samples, one that is not above 0, sides of different lengths when `paired`, names that are
            not two different ones.
    """
    if better not in BETTER:
        raise InputError(f"better={better!r}", expected=" or ".join(map(repr, BETTER)))
    check_names(names)
    how = stats.paired_ratio if checked.flag("paired", paired) else stats.ratio
    ratio = how(before, after, confidence=confidence, seed=seed)
    series = {name: stats.logs(samples) for name, samples in zip(names, (before, after), strict=True)}
    if paired:
        series = {"the ratios of the pairs": stats.logs(after) - stats.logs(before)}
    told = series if checked.flag("in_order", in_order) else {}
    serial = [f"{what}: {SERIAL}" for what, values in told.items() if stats.serially_correlated(values)]
    return Comparison(
        ratio=ratio,
        effect=stats.cliffs_delta(before, after),
        before=tuple(map(float, before)),
        after=tuple(map(float, after)),
        paired=paired,
        better=better,
        unit=unit,
        notes=(*checked.names("notes", notes), *serial),
        names=(names[0], names[1]),
    )
