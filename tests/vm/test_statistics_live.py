# SPDX-License-Identifier: MIT
"""The verdicts on measurements taken here and now, ten pairs each; the driver's timing makes the difference."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import sampleblk_lab as lab

pytestmark = pytest.mark.full

# Long beside what the emulated timer is late, so that the ratio of the timings is that of the latencies.
BASE_NS = 4_000_000


@pytest.fixture
def latency(sampleblk: lab.Device) -> Callable[[float], Callable[[], float]]:
    """``latency(1.2)`` reads with 1.2 times the base latency.

    It returns the tenth percentile, which a busy host moves least.
    """

    def at(factor: float) -> Callable[[], float]:
        def read() -> float:
            sampleblk.set_timing("constant", round(factor * BASE_NS))
            job = lab.Job(rw="randread", bs="4k", size="128k", direct=1, ioengine="psync", filename=sampleblk.path)
            return float(job.run(progress=False).percentiles([10])[0])

        return read

    return at


def _ten_pairs(before: Callable[[], float], after: Callable[[], float]) -> lab.Comparison:
    made = lab.measure_both(before, after, min_repeats=10, max_repeats=10)
    assert len(made.before) == len(made.after) == 10
    assert made.paired
    return made


@pytest.mark.parametrize(("factor", "verdict"), [(1.2, "slower"), (1.5, "slower"), (1 / 1.2, "faster")])
def test_an_injected_difference_is_found(
    latency: Callable[[float], Callable[[], float]], factor: float, verdict: str
) -> None:
    made = _ten_pairs(latency(1.0), latency(factor))
    print(f"factor {factor:.3f}: {made}")
    assert made.verdict == verdict
    # The emulated timer adds to both sides, which brings the ratio nearer to 1, never beyond the injected one.
    low, high = sorted((1.0, factor))
    assert low * 0.95 < made.ratio.value < high * 1.05


def test_of_five_comparisons_without_a_difference_at_most_one_shows_one(
    latency: Callable[[float], Callable[[], float]],
) -> None:
    made = [_ten_pairs(latency(1.0), latency(1.0)) for _ in range(5)]
    for one in made:
        print(one)
    assert sum(one.different for one in made) <= 1
