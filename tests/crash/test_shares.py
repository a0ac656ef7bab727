# SPDX-License-Identifier: MIT
"""Who checks which contents: each is somebody's, and what is done can be told from how many each has done."""

from __future__ import annotations

import random

import pytest

from sampleblk_lab.crash.shares import Share


@pytest.mark.parametrize("of", range(1, 9))
def test_each_is_had_by_one_in_ascending_order(of: int) -> None:
    shares = [Share(number, of) for number in range(of)]
    had: list[list[int]] = [[] for _ in shares]
    for number in range(1000):
        (owner,) = (share.number for share in shares if share.has(number))
        had[owner].append(number)
    for share, own in zip(shares, had, strict=True):
        assert [share.number_of(count) for count in range(len(own))] == own
    # Never more than a run apart, and at the beginning, less.
    for number in range(1000):
        counts = [sum(one < number for one in own) for own in had]
        assert max(counts) - min(counts) <= min(16, min(counts) + 1)


def test_the_first_that_is_not_done_is_that_of_whoever_is_behind() -> None:
    rng = random.Random(1)
    for of in (1, 2, 3, 5):
        for _ in range(200):
            counts = [rng.randrange(100) for _ in range(of)]
            done = {Share(number, of).number_of(i) for number, count in enumerate(counts) for i in range(count)}
            first = min(Share(number, of).number_of(count) for number, count in enumerate(counts))
            assert first not in done
            assert set(range(first)) <= done


def test_neighbours_are_with_the_same() -> None:
    owners = ["01"[Share(1, 2).has(number)] for number in range(94)]
    assert "".join(owners) == "01" + "0011" + "00001111" + "0" * 8 + "1" * 8 + ("0" * 16 + "1" * 16) * 2
