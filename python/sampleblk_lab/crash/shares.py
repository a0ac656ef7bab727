# SPDX-License-Identifier: MIT
"""Which of the contents each worker of an exploration checks.

Neighbours often recover to the same. Workers that took turns would meet what is new at the same time, and each would
have it checked; so they have runs of neighbours. These begin short, so that few contents are shared out, too.
"""

from __future__ import annotations

from dataclasses import dataclass

_LONGEST = 16


def _run_at(count: int) -> tuple[int, int]:
    """The run of which the own contents of this number are part: the number of its first ones, and its length."""
    if count < _LONGEST - 1:
        length = 1 << ((count + 1).bit_length() - 1)
        return length - 1, length
    return count - (count + 1) % _LONGEST, _LONGEST


@dataclass(frozen=True)
class Share:
    """One of several, all of which together are everything. Numbers are counted from where the exploration begins.

    Attributes:
        number: Which of them, from 0.
        of: How many there are.
    """

    number: int = 0
    of: int = 1

    def has(self, number: int) -> bool:
        """Whether the contents of this number are its own."""
        first, length = _run_at(number // self.of)
        return (number - first * self.of) // length == self.number

    def number_of(self, count: int) -> int:
        """The number of its own contents after so many of its own."""
        first, length = _run_at(count)
        return first * self.of + self.number * length + count - first
