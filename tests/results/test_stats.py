# SPDX-License-Identifier: MIT
"""The statistics keep their promises on measurements that were really taken (see the data's `about`)."""

import json
from pathlib import Path

import numpy as np
import pytest

from sampleblk_lab import Comparison, InputError, compare
from sampleblk_lab.results import stats

DATA = json.loads((Path(__file__).parents[1] / "data/results/read_latency.json").read_text())["sessions"]
PAIRS = 20


def _pairs(before: str, after: str) -> np.ndarray:
    """All recorded pairs, shape (n, 2)."""
    return np.array([pair for session in DATA for pair in zip(session[before], session[after], strict=True)])


def _null_pairs() -> np.ndarray:
    """Neighbours of one series: a pair without a difference, shape (n, 2)."""
    return np.concatenate([np.array(session["fast"]).reshape(-1, 2) for session in DATA])


def test_at_most_5_percent_of_200_null_comparisons_are_called_different() -> None:
    rng = np.random.default_rng(20)
    recorded = _null_pairs()
    called = 0
    for number in range(200):
        pairs = rng.permuted(recorded[rng.integers(len(recorded), size=PAIRS)], axis=1)
        called += compare(pairs[:, 0], pairs[:, 1], paired=True, seed=number).different
    assert called <= 10


def test_the_same_holds_for_independent_samples_of_one_session() -> None:
    rng = np.random.default_rng(21)
    called = 0
    for number in range(200):
        series = rng.permutation(DATA[number % len(DATA)]["fast"])
        called += compare(series[:PAIRS], series[PAIRS:], seed=number).different
    assert called <= 10


def test_a_slowdown_of_5_percent_is_found_in_95_of_100() -> None:
    rng = np.random.default_rng(22)
    recorded = _pairs("plain", "slower")
    verdicts = []
    for number in range(100):
        pairs = recorded[rng.integers(len(recorded), size=PAIRS)]
        verdicts.append(compare(pairs[:, 0], pairs[:, 1], paired=True, seed=number).verdict)
    assert verdicts.count("slower") >= 95
    assert "faster" not in verdicts


@pytest.mark.parametrize("n", [6, 10])
def test_intervals_hold_the_truth_as_often_as_they_say(n: int) -> None:
    rng = np.random.default_rng(n)
    held = sum(
        made.low <= 1.0 <= made.high
        for made in (stats.interval(np.exp(0.05 * rng.standard_t(4, n)), seed=i) for i in range(300))
    )
    assert held >= 0.96 * 300


@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.parametrize("n", [6, 10])
def test_what_is_rounded_to_steps_is_not_known_better_for_it(n: int, paired: bool) -> None:
    """As fio's percentiles are, to the buckets of its histograms: most samples have the same value."""
    rng = np.random.default_rng(23)

    def taken(shift: float) -> np.ndarray:
        return np.round(100 * np.exp(shift + rng.normal(0, 0.005, n)) / 1.5) * 1.5

    null = sum(compare(taken(0), taken(0), paired=paired, seed=i).different for i in range(300))
    assert null <= 0.03 * 300
    assert [compare(taken(0), taken(0.03), paired=paired, seed=i).verdict for i in range(60)].count("slower") >= 57
    # A stalled repeat among constant ones moves nothing.
    made = stats.interval([100.0] * 9 + [1000.0])
    assert (made.low, made.high) == pytest.approx((100, 100))


def test_the_same_seed_gives_the_same_interval() -> None:
    series = DATA[0]["fast"]
    assert stats.interval(series, seed=3) == stats.interval(series, seed=3)
    assert stats.interval(series, seed=3) != stats.interval(series, seed=4)


def test_the_ratio_of_the_known() -> None:
    made = stats.ratio([2.0] * 8, [3.0] * 9)
    assert (made.value, made.low, made.high) == pytest.approx((1.5, 1.5, 1.5))
    assert stats.paired_ratio([1, 2, 4, 8, 16, 32], [2, 4, 8, 16, 32, 64]).low == pytest.approx(2)


def test_one_stalled_repeat_moves_nothing() -> None:
    series = [100.0, 101, 99, 100, 102, 98, 100, 101, 99, 100]
    assert stats.interval([*series[:-1], 10_000.0]).value == pytest.approx(100, rel=0.01)


def test_cliffs_delta() -> None:
    assert stats.cliffs_delta([1, 2, 3], [4, 5, 6]) == 1
    assert stats.cliffs_delta([4, 5, 6], [1, 2, 3]) == -1
    assert stats.cliffs_delta([1, 2], [1, 2]) == 0
    assert stats.cliffs_delta([1, 2, 3, 4], [2]) == pytest.approx(-0.25)


def test_verdicts_follow_what_is_better() -> None:
    low, high = [1.0, 1.01, 1.02, 1.0, 1.01, 1.02], [2.0, 2.01, 2.02, 2.0, 2.01, 2.02]
    assert compare(low, high).verdict == "slower"
    assert "at 98%, " in compare(low, high).text()
    assert "at 99.5%, " in compare(low, high, confidence=0.995).text()
    assert compare(low, high, better="higher").verdict == "faster"
    assert compare(high, low).verdict == "faster"
    assert compare(low, low[::-1]).verdict == "no difference shown"


def test_what_cannot_be_compared_is_named() -> None:
    with pytest.raises(InputError, match=r"5 samples .* \(expected at least 6\)"):
        compare([1] * 5, [1] * 9)
    with pytest.raises(InputError, match=r"after: -1 at position 2 \(expected numbers above 0\)"):
        compare([1] * 6, [1, 1, -1, 1, 1, 1])
    with pytest.raises(InputError, match="after: nan at position 1 "):  # not the 9 that the mask hides
        compare([1] * 6, np.ma.MaskedArray([1, 9, 1, 1, 1, 1], mask=[0, 1, 0, 0, 0, 0]))
    with pytest.raises(InputError, match="6 samples before and 7 after"):
        compare([1] * 6, [1] * 7, paired=True)
    with pytest.raises(InputError, match="better='smaller'"):
        compare([1] * 6, [1] * 6, better="smaller")
    with pytest.raises(InputError, match="names='ab'"):
        compare([1] * 6, [1] * 6, names="ab")
    for samples in ("abcdef", iter([1] * 6), {1, 2, 3, 4, 5, 6}, None, np.ones((6, 2)), ["1"] * 6, [True] * 6):
        with pytest.raises(InputError, match=r"(?s)before: .* \(expected a sequence of numbers above 0"):
            compare(samples, [1] * 6)
    with pytest.raises(InputError, match="confidence=1"):
        stats.interval([1] * 6, confidence=1)
    with pytest.raises(InputError, match=r"seed=-1 \(expected a whole number from 0 to"):
        compare([1] * 6, [1] * 6, seed=-1)
    # Which would be taken for True.
    with pytest.raises(InputError, match=r"paired='no' \(expected True or False\)"):
        compare([1] * 6, [1] * 6, paired="no")
    assert compare([1] * 6, [1] * 6, notes="one session").notes == ("one session",)


def test_shown_with_its_notes() -> None:
    made = compare([1.0] * 6, [2.0] * 6, notes=["<one session>"])
    assert isinstance(made, Comparison)
    assert str(made).splitlines() == [
        "slower: ratio 2.000 [2.000, 2.000] at 98%, Cliff's delta +1.00, 6 samples each",
        "  note: <one session>",
    ]
    assert "&lt;one session&gt;" in made._repr_html_()


def test_what_never_varies_does_not_differ_by_how_often_it_was_measured() -> None:
    rng = np.random.default_rng(3)
    for _ in range(100):
        value, counts = float(rng.uniform(0.1, 1e6)), rng.integers(6, 30, 2)
        made = compare([value] * counts[0], [value] * counts[1])
        assert (made.verdict, made.ratio.value) == ("no difference shown", 1.0), (value, counts)


def test_a_ratio_is_not_written_as_1_where_the_verdict_says_that_it_is_not() -> None:
    made = compare([1.0, 1.00001] * 3, [1.0004, 1.00041] * 3)
    assert made.text().startswith("slower: ratio 1.0004 [1.0004, 1.0004] at 98%")
    assert compare([1e9, 1.1e9] * 3, [1.0, 1.1] * 3).text().startswith("faster: ratio 0.000000001 [")
    assert compare([1.0, 1.1] * 3, [2.0, 2.2] * 3).text().startswith("slower: ratio 2.000 [")


def test_many_samples_are_drawn_in_parts_that_say_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(4)
    first, second = (np.exp(rng.normal(0, 0.3, count)) for count in (50, 31))
    at_once = stats.interval(first), stats.ratio(first, second)
    most = 0

    def drawn(values: np.ndarray, **how: object) -> np.ndarray:
        nonlocal most
        most = max(most, values.size)
        return sort(values, **how)

    sort = np.sort
    monkeypatch.setattr(stats, "_DRAWN", 1234)
    monkeypatch.setattr(np, "sort", drawn)
    assert (stats.interval(first), stats.ratio(first, second)) == at_once
    assert most <= 1234


def _autoregression(rng: np.random.Generator, n: int, phi: float) -> np.ndarray:
    """Numbers of which each is `phi` of the one before and something new, shape (n,)."""
    values = rng.normal(0, 0.01, n + 50)
    for i in range(1, len(values)):
        values[i] += phi * values[i - 1]
    return values[50:]


@pytest.mark.parametrize("n", [6, 10, 50, 1000])
def test_series_without_order_are_rarely_called_correlated(n: int) -> None:
    rng = np.random.default_rng(31)
    for draw in (
        lambda: rng.normal(size=n),
        lambda: np.exp(rng.standard_t(2, n)),
        lambda: np.round(rng.normal(size=n)),
        lambda: rng.integers(0, 2, n),
        lambda: np.full(n, 3.0),
    ):
        assert sum(stats.serially_correlated(draw()) for _ in range(1000)) <= 20


def test_correlated_series_are_found_and_their_intervals_are_too_narrow() -> None:
    """What the note says is so: of the intervals that it stands beside, many more than 2 of 100 miss."""
    rng = np.random.default_rng(32)
    series = [np.exp(_autoregression(rng, 50, 0.5)) for _ in range(200)]
    told = [values for values in series if stats.serially_correlated(values)]
    assert len(told) >= 0.7 * len(series)
    missed = sum(not made.low <= 1.0 <= made.high for made in map(stats.interval, told))
    assert missed >= 0.1 * len(told)


def test_a_drift_is_said_beside_the_figure() -> None:
    rng = np.random.default_rng(33)
    drift = np.exp(rng.normal(0, 0.002, 30) + np.linspace(0, 0.1, 30))
    steady = np.exp(rng.normal(0, 0.002, 30))
    assert [note for note in compare(drift, steady).notes if "serially" in note] == [
        "before: serially correlated (a drift, or state that outlives a repeat): the interval is too narrow"
    ]
    assert compare(steady, drift, names=("a", "b"), notes="mine").notes[1].startswith("b: serially")
    assert compare(steady, drift, in_order=False).notes == ()
    # Alternately measured, both have it, and it cancels.
    both = np.exp(np.log(drift) + np.log(steady))
    assert compare(drift, both, paired=True).notes == ()
    assert "the ratios of the pairs: serially" in compare(steady, drift, paired=True).text()
