# SPDX-License-Identifier: MIT
"""Repeating stops where it is told to."""

import itertools
import os
import shutil
import signal
import threading
from pathlib import Path

import pytest

from sampleblk_lab import InputError, Job, measure, measure_both


def test_stops_when_it_is_known_well_enough() -> None:
    values = itertools.cycle([100.0, 101.0, 99.0])
    made = measure(lambda: next(values), unit="us", warmup=0, min_repeats=10)
    assert made.stopped == "narrow"
    assert len(made.samples) == 10
    assert made.estimate.low <= 100 <= made.estimate.high
    assert float(made) == pytest.approx(100, rel=0.01)


def test_goes_on_while_it_is_not_known() -> None:
    values = itertools.cycle([50.0, 200.0])
    made = measure(lambda: next(values), max_repeats=40, budget_s=60, warmup=0)
    assert made.stopped == "budget"
    assert len(made.samples) == 40


def test_the_budget_ends_it_but_not_before_the_fewest() -> None:
    values = itertools.cycle([50.0, 200.0])
    assert len(measure(lambda: next(values), budget_s=1e-9, min_repeats=8).samples) == 8


def test_warm_up_does_not_count() -> None:
    values = itertools.chain([1e9, 1e9], itertools.repeat(5.0))
    made = measure(lambda: next(values), warmup=2)
    assert set(made.samples) == {5.0}


def test_a_function_without_a_result_is_timed() -> None:
    made = measure(lambda: None, max_repeats=10, unit="ns")
    assert all(sample > 0 for sample in made.samples)


def test_a_time_is_not_taken_for_something_else() -> None:
    """A function that has forgotten to return its rate."""
    with pytest.raises(InputError, match=r"returned None, so that its time is taken, and unit='MB/s'"):
        measure(lambda: None, unit="MB/s")
    with pytest.raises(InputError, match=r"better='higher'"):
        measure(lambda: None, better="higher")
    with pytest.raises(InputError, match="the variant after returned None"):
        measure_both(lambda: 1.0, lambda: None, unit="us")
    values = itertools.cycle([5.0, 5.0, None])
    with pytest.raises(InputError, match="returned numbers before, and None now"):
        measure(lambda: next(values))
    values = itertools.cycle([None, 5.0])
    with pytest.raises(InputError, match=r"returned None before, and 5\.0 now"):
        measure(lambda: next(values))


def test_variants_take_turns() -> None:
    order: list[str] = []
    made = measure_both(
        lambda: order.append("a") or 1.0, lambda: order.append("b") or 1.05, warmup=0, min_repeats=6, max_repeats=6
    )
    assert "".join(order) == "abba" * 3
    assert made.paired
    assert made.verdict == "slower"


def test_variants_have_names() -> None:
    made = measure_both(lambda: 1.0, lambda: 2.0, names=("none", "bfq"), max_repeats=10)
    assert made.names == ("none", "bfq")
    assert made.text().startswith("bfq against none: slower: ratio 2.000 [2.000, 2.000]")
    assert made._repr_html_().startswith("<p>bfq against none: <b>slower</b>: ratio 2.000")
    assert measure_both(lambda: 1.0, lambda: 2.0, max_repeats=10).text().startswith("slower: ratio 2.000")
    odd = measure_both(lambda: 1.0, lambda: 2.0, names=("a<b>\n", "b"), max_repeats=10)
    assert odd.text().startswith("b against a<b>\\n: slower: ratio 2.000")
    assert odd._repr_html_().startswith("<p>b against a&lt;b&gt;\\n: <b>slower</b>: ratio 2.000")
    for names in (("one",), ("one", "one"), ("one", ""), "ab", ("a", "b", "c"), (1, 2), None):
        with pytest.raises(InputError, match="expected two names that differ"):
            measure_both(lambda: 1.0, lambda: 2.0, names=names)


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        ({"min_repeats": 5}, "min_repeats=5 .expected a whole number from 6 "),
        ({"min_repeats": 9, "max_repeats": 8}, "max_repeats=8 .expected a whole number from 9 "),
        ({"max_repeats": 20.5}, "max_repeats=20.5"),
        ({"width": 0}, "width=0 .expected a number above 0"),
        ({"width": float("nan")}, "width=nan"),
        ({"budget_s": "3"}, "budget_s='3'"),
        ({"budget_s": None}, "budget_s=None"),
        ({"warmup": -1}, "warmup=-1"),
        ({"warmup": "1"}, "warmup='1'"),
        ({"confidence": "98%"}, "confidence='98%'"),
        ({"seed": None}, "seed=None"),
        ({"seed": -1}, "seed=-1"),
        ({"better": "bigger"}, "better='bigger'"),
        ({"allow": None}, "allow=None"),
    ],
)
def test_a_plan_that_cannot_be_is_named(plan: dict[str, object], said: str) -> None:
    with pytest.raises(InputError, match=said):
        measure(lambda: 1.0, **plan)  # type: ignore[arg-type]


def test_what_is_measured_can_be_called() -> None:
    for function in (None, 5.0):
        with pytest.raises(InputError, match=f"the measured function is {function}"):
            measure(function)  # type: ignore[arg-type]
        with pytest.raises(InputError, match=f"the variant after is {function}"):
            measure_both(lambda: 1.0, function)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [0, -1.0, float("nan"), "fast", True])
def test_a_sample_that_is_no_measure_is_named(value: object) -> None:
    with pytest.raises(InputError, match="the measured function returned"):
        measure(lambda: value)


@pytest.mark.parametrize("engine", ["psync", "fio"])
def test_ctrl_c_under_a_job_ends_what_measures_it(engine: str, tmp_path: Path) -> None:
    """The job alone ends early, and what it had until then would be a sample like others."""
    if engine == "fio" and shutil.which("fio") is None:
        pytest.skip("needs fio")
    job = Job(engine=engine, rw="read", size="64k", runtime=30, time_based=1, filename=tmp_path / "file")
    pressed: list[threading.Timer] = []

    def run() -> float:
        pressed.append(threading.Timer(1, os.kill, (os.getpid(), signal.SIGINT)))
        pressed[-1].start()
        return job.run(progress=False).percentiles([50])[0]

    with pytest.raises(KeyboardInterrupt):
        measure(run)
    assert len(pressed) == 1


def test_a_series_that_drifts_is_called_one() -> None:
    values = itertools.count(1000)
    assert "serially correlated" in repr(measure(lambda: next(values), max_repeats=40, warmup=0))
    assert "serially" not in repr(measure(lambda: 5.0, warmup=0))
