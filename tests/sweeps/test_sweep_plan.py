# SPDX-License-Identifier: MIT
"""Which combinations a sweep has: against the whole product, and covering arrays pair by pair."""

from __future__ import annotations

import datetime
import enum
import itertools
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sampleblk_lab as lab
from sampleblk_lab.sweeps import pairwise, plan

Row = tuple[Any, ...]

LOOP: list[Any] = [1]
LOOP.append(LOOP)
DAY = datetime.date(2026, 1, 1)


class Level(enum.IntEnum):
    HIGH = 2


def rows(found: Any, names: list[str]) -> list[Row]:
    return [tuple(one[name] for name in names) for one in found]


def test_the_product_is_in_the_order_of_the_axes() -> None:
    space = plan.Space({"kernel": ["6.1", "6.12"], "fs": ["ext4", "xfs"], "bs": 4096})
    assert rows(space, ["kernel", "fs", "bs"]) == [
        ("6.1", "ext4", 4096),
        ("6.1", "xfs", 4096),
        ("6.12", "ext4", 4096),
        ("6.12", "xfs", 4096),
    ]
    assert [list(one) for one in space] == [["kernel", "fs", "bs"]] * 4


def test_an_axis_may_depend_on_others() -> None:
    space = plan.Space(
        {"bs": lambda fs: {"ext4": [1, 4], "xfs": [4, 64], "none": []}[fs], "fs": ["ext4", "xfs", "none"]}
    )
    assert set(rows(space, ["fs", "bs"])) == {("ext4", 1), ("ext4", 4), ("xfs", 4), ("xfs", 64)}
    chain = plan.Space({"c": lambda b: [b + 1], "b": lambda a: [a, a * 10], "a": [1, 2]})
    assert set(rows(chain, ["a", "b", "c"])) == {(1, 1, 2), (1, 10, 11), (2, 2, 3), (2, 20, 21)}


def test_combinations_are_left_out() -> None:
    axes = {"fs": ["ext4", "xfs"], "bs": [1, 2, 3], "depth": [1, 2]}
    space = plan.Space(axes, lambda depth, bs: depth < bs, [{"fs": "xfs", "bs": [1, 3]}, {"depth": 2, "fs": "ext4"}])
    expected = {
        (fs, bs, depth)
        for fs, bs, depth in itertools.product(*axes.values())
        if depth < bs and not (fs == "xfs" and bs in (1, 3)) and not (depth == 2 and fs == "ext4")
    }
    assert set(rows(space, ["fs", "bs", "depth"])) == expected
    assert len(expected) == 3


_AXES = st.lists(st.integers(1, 4), min_size=1, max_size=5)


@settings(max_examples=60, deadline=None)
@given(_AXES, st.integers(0, 10), st.data())
def test_covering_arrays_against_brute_force(sizes: list[int], seed: int, data: st.DataObject) -> None:
    """Every pair that some allowed combination has is covered; what is not allowed never comes."""
    names = [f"a{number}" for number in range(len(sizes))]
    axes = {name: list(range(size)) for name, size in zip(names, sizes, strict=True)}
    whole = list(itertools.product(*axes.values()))
    exclude = []
    for _ in range(data.draw(st.integers(0, 3))):
        chosen = data.draw(st.sets(st.sampled_from(names), min_size=1, max_size=3))
        exclude.append({name: data.draw(st.sampled_from(axes[name])) for name in sorted(chosen)})
    first, last = names[0], names[-1]
    odd = data.draw(st.booleans())
    where: Callable[..., object] | None = None
    if odd and first != last:
        namespace: dict[str, Any] = {}
        exec(f"def where({first}, {last}): return ({first} + {last}) % 3 != 1", namespace)
        where = namespace["where"]
    allowed = [
        row
        for row in whole
        if not any(all(row[names.index(name)] == value for name, value in one.items()) for one in exclude)
        and (where is None or (row[0] + row[-1]) % 3 != 1)
    ]
    space = plan.Space(axes, where, exclude)
    assert rows(space, names) == allowed
    found = rows(pairwise.covering(plan.Space(axes, where, exclude), seed), names)
    assert set(found) <= set(allowed)
    assert len(found) == len(set(found))
    places = list(itertools.combinations(range(len(names)), 2))
    wanted = {(a, b, row[a], row[b]) for row in allowed for a, b in places}
    assert {(a, b, row[a], row[b]) for row in found for a, b in places} == wanted
    if len(names) > 1:
        assert len(found) <= len(wanted)
    assert rows(pairwise.covering(plan.Space(axes, where, exclude), seed), names) == found


def test_covering_arrays_are_small() -> None:
    """Beside published sizes: the best known for 13 axes of 3 values is 15, for 4 axes 9; AETG's own were 17 and 11."""
    for count, most in ((4, 11), (13, 21)):
        space = plan.Space({f"a{number}": [1, 2, 3] for number in range(count)})
        assert 9 <= len(pairwise.covering(space)) <= most
    # Its product has 10^10 combinations, which nobody enumerates.
    wide = plan.Space({f"a{number}": list(range(10)) for number in range(10)}, lambda a0, a9: a0 != a9)
    assert 100 <= len(pairwise.covering(wide)) <= 200


def test_repeats_are_rounds_in_an_order_of_their_own() -> None:
    combinations = [{"a": number} for number in range(20)]
    found = plan.interleaved(combinations, 3, seed=1)
    rounds = [[one["a"] for one, repeat in found if repeat == number] for number in range(3)]
    assert [repeat for _, repeat in found] == [0] * 20 + [1] * 20 + [2] * 20
    assert all(sorted(one) == list(range(20)) for one in rounds)
    assert len({tuple(one) for one in [*rounds, list(range(20))]}) == 4
    assert plan.interleaved(combinations, 3, seed=1) == found
    assert plan.interleaved(combinations, 3, seed=2) != found
    # What comes first in one round comes first in the others no more often than chance has it.
    first = Counter(plan.interleaved(combinations[:4], 1, seed)[0][0]["a"] for seed in range(400))
    assert all(60 < count < 140 for count in first.values())


@pytest.mark.parametrize(
    ("axes", "more", "said"),
    [
        ({}, {}, "a sweep without axes"),
        ({"a": []}, {}, "axis 'a' has no values"),
        ({"a": [1, 1]}, {}, "axis 'a' has the value 1 twice"),
        ({"a": [object]}, {}, "axis 'a' has the value <class 'object'>"),
        ({"a": [float("nan")]}, {}, "axis 'a' has the value nan"),
        ({"a": [10**5000]}, {}, "axis 'a' has the value an int of 16610 bits .expected strings, numbers"),
        ({"a": [LOOP]}, {}, r"axis 'a' has the value \[1, \[...\]\] .expected strings, numbers"),
        ({"a": [Level.HIGH]}, {}, "axis 'a' has the value <Level.HIGH: 2>, of a class of your own"),
        (
            {"a": [{"b": (1, Level.HIGH)}]},
            {},
            "of a class of your own .expected .* the function may make a Level of it",
        ),
        (
            {"a": [1]},
            {"exclude": [{"a": float("nan")}]},
            r"exclude\[0\]: a=nan is not a value of that axis .expected 1",
        ),
        ({"a": [1]}, {"exclude": [{"a": [1, DAY]}]}, r"exclude\[0\]: a=datetime.date\(2026, 1, 1\) is not a value"),
        ({"a": [1]}, {"where": type}, "where is <class '.*'> .expected a Python function"),
        ({"a": [1], "b": lambda c: [c]}, {}, "axis 'b' names 'c', which is not an axis .expected 'a', 'b'"),
        ({"a": lambda b: [b], "b": lambda a: [a]}, {}, "the axes 'a', 'b' depend on each other"),
        ({"a": lambda: [1]}, {}, "axis 'a' is a function without parameters"),
        ({"a": [1], "b": lambda **all_axes: [all_axes]}, {}, r"axis 'b' takes \*\*all_axes"),
        ({"a": [1], "b": lambda a: [][:a]}, {}, "axis 'b' has no values"),
        ({"a": [1]}, {"where": lambda b: b}, "where names 'b', which is not an axis"),
        ({"a": [1]}, {"where": lambda: True}, "where has no parameters"),
        ({"a": [1]}, {"exclude": [{"b": 1}]}, r"exclude\[0\] names 'b'"),
        ({"a": [1]}, {"exclude": [{"a": 2}]}, r"exclude\[0\]: a=2 is not a value of that axis .expected 1"),
        ({"a": [1]}, {"exclude": [3]}, r"exclude\[0\] is 3"),
        ({"a": [1]}, {"exclude": [{}]}, r"exclude\[0\] is \{\}"),
        ({"a": [1]}, {"exclude": 3}, "exclude is 3"),
        ({"a": [1]}, {"exclude": {"a": 1}}, r"exclude is \{'a': 1\}"),
    ],
)
def test_what_cannot_be_says_what_would_be_accepted(axes: Any, more: Any, said: str) -> None:
    with pytest.raises(lab.InputError, match=said) as caught:
        plan.Space(axes, **more)
    assert caught.value.expected


def test_a_condition_that_does_not_run_holds_for_nothing() -> None:
    async def where(a: int) -> bool:
        return a > 1

    with pytest.raises(lab.InputError, match="where returned a coroutine and has not run"):
        list(plan.Space({"a": [1, 2]}, where))


def test_too_many_combinations_are_not_enumerated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "MOST", 1000)
    with pytest.raises(lab.InputError, match="more than 1,000 combinations"):
        list(plan.Space({f"a{number}": list(range(10)) for number in range(30)}))
