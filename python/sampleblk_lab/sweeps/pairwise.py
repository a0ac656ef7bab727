# SPDX-License-Identifier: MIT
"""Covering arrays: few combinations in which every pair of values of two axes occurs.

The greedy construction of Cohen, Dalal, Fredman and Patton ("The AETG system", IEEE Transactions on Software
Engineering 23, 1997): each row begins with a pair that is not covered, and takes for each further axis the value that
covers most. The best of some candidates is kept. Conditions are tested while a row grows.
"""

from __future__ import annotations

import itertools
import random
from typing import TYPE_CHECKING, Any

from sampleblk_lab.errors import InputError
from sampleblk_lab.sweeps.plan import Condition, search

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sampleblk_lab.sweeps.plan import Combination, Space

# Candidates for each row, of which one is kept.
_CANDIDATES = 12

# Values that are tried for one row before its conditions count as too hard.
_STEPS = 200_000

# Two axes by their places, and a value of each by its place.
_Pair = tuple[int, int, int, int]


# A combination by the place of each axis's value.
_Row = dict[str, int]


class _Covering:
    def __init__(self, space: Space, seed: int) -> None:
        self.names = space.names
        self.random = random.Random(f"{seed} pairs")
        self.numbers = {name: number for number, name in enumerate(self.names)}
        self.domains = space.domains
        self.conditions = [_by_place(condition, space.domains) for condition in space.conditions]
        # In a dict for its order, which decides what comes first.
        self.open: dict[_Pair, None] = {
            (a, b, i, j): None
            for a, b in itertools.combinations(range(len(self.names)), 2)
            for i in range(len(self.domains[self.names[a]]))
            for j in range(len(self.domains[self.names[b]]))
        }

    def values(self, row: _Row) -> Combination:
        return {name: self.domains[name][row[name]] for name in self.names}

    def pairs(self, row: _Row) -> list[_Pair]:
        at = [row[name] for name in self.names]
        return [(a, b, at[a], at[b]) for a, b in itertools.combinations(range(len(at)), 2)]

    def gain(self, number: int, place: int, row: _Row) -> int:
        """How many open pairs this value makes with those that the row has."""
        found = 0
        for name, at in row.items():
            other = self.numbers[name]
            if other < number:
                found += (other, number, at, place) in self.open
            elif other > number:
                found += (number, other, place, at) in self.open
        return found

    def complete(self, pair: _Pair) -> _Row | None:
        """A row with these two values; None when the conditions allow none."""
        a, b, i, j = pair
        begin = {self.names[a]: i, self.names[b]: j}
        rest = [name for name in self.names if name not in begin]
        self.random.shuffle(rest)
        steps = 0

        def values(name: str, row: _Row) -> list[int]:
            nonlocal steps
            places = range(len(self.domains[name]))
            steps += len(places)
            if steps > _STEPS:
                said = " and ".join(f"{axis}={self.domains[axis][place]!r}" for axis, place in begin.items())
                raise InputError(
                    f"no combination with {said} was found among {_STEPS:,}",
                    expected="conditions that more combinations fulfil, or pairwise=False",
                )
            number = self.numbers[name]
            ranked = sorted((-self.gain(number, place, row), self.random.random(), place) for place in places)
            return [place for _, _, place in ranked]

        return next(search(rest, values, self.conditions, begin), None)


def _by_place(condition: Condition, domains: Mapping[str, list[Any]]) -> Condition:
    lists = [domains[name] for name in condition.names]
    return Condition(
        condition.names,
        lambda *places: condition.holds(*(values[place] for values, place in zip(lists, places, strict=True))),
    )


def covering(space: Space, seed: int = 0) -> list[Combination]:
    """Combinations in which every two values of different axes meet that meet in any combination at all.

    Args:
        space: What there is.
        seed: The same seed gives the same combinations.

    Raises:
        InputError: The conditions are so narrow that no combination with some pair was found, nor that there is none.
    """
    made = _Covering(space, seed)
    if len(made.names) < 2:
        return list(space)
    rows: list[Combination] = []
    while made.open:
        pair = next(iter(made.open))
        candidates: list[tuple[int, _Row, list[_Pair]]] = []
        for _ in range(_CANDIDATES):
            row = made.complete(pair)
            if row is None:  # the search was complete: no combination has both values
                break
            covered = [one for one in made.pairs(row) if one in made.open]
            candidates.append((len(covered), row, covered))
        if not candidates:
            del made.open[pair]
            continue
        _, row, covered = max(candidates, key=lambda candidate: candidate[0])
        rows.append(made.values(row))
        for one in covered:
            del made.open[one]
    return rows
