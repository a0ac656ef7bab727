# SPDX-License-Identifier: MIT
"""Sweeps of which not all combinations are run: at random, or as optuna's samplers ask."""

from __future__ import annotations

import contextlib
import math
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import sampleblk_lab as lab
from sampleblk_lab.sweeps import plan, processes, running

optuna = pytest.importorskip("optuna", reason="needs the extra 'optuna'")

AXES: dict[str, Any] = {"bs": ["4k", "16k", "64k", "256k"], "depth": [1, 2, 4, 8, 16], "fs": ["ext4", "xfs", "btrfs"]}


@pytest.fixture(autouse=True)
def _no_launcher_is_left() -> Iterator[None]:
    yield
    processes.close()


def cost(bs: str, depth: int, fs: str) -> dict[str, float]:
    """Smallest, 1.0, at 64k, 8, xfs."""
    return {
        "latency": 1.0 + abs(AXES["bs"].index(bs) - 2) + abs(math.log2(depth) - 3) + 2 * abs(AXES["fs"].index(fs) - 1),
        "other": 7.0,
    }


def order(made: lab.Sweep) -> list[tuple[Any, ...]]:
    """What was chosen, batch by batch."""
    return [tuple(trial.parameters.values()) for trial in made.plan.trials]


def test_some_at_random(tmp_path: Path) -> None:
    def chosen(count: int, **more: Any) -> set[str]:
        dry = lab.sweep(cost, choose=lab.sweeps.random(count, **more), folder=tmp_path / "d", dry_run=True, **AXES)
        assert dry.trials == len(dry.combinations)
        return set(map(plan.canonical, dry.combinations))

    assert len(chosen(7)) == 7
    assert chosen(7) == chosen(7)
    assert chosen(7) < chosen(12) < chosen(1000)
    assert len(chosen(1000)) == 60
    assert chosen(7, seed=1) != chosen(7, seed=2)
    # Any is as likely as any other: 6 of 60 by each of 200 seeds, so each about 20 times, with a deviation of 4.
    space = plan.Space(AXES)
    counts = Counter(
        plan.canonical(one)
        for seed in range(200)
        for one in lab.sweeps.random(6, seed=seed).pick(space, 0)  # type: ignore[attr-defined]
    )
    assert len(counts) == 60
    assert all(4 < count < 40 for count in counts.values())
    # Conditions hold, and each is run as often as it is repeated.
    made = lab.sweep(
        cost, choose=lab.sweeps.random(5), where=lambda fs: fs != "xfs", repeat=2, folder=tmp_path / "s", **AXES
    )
    assert made.complete
    assert set(Counter((row["bs"], row["depth"], row["fs"]) for row in made.table()).values()) == {2}
    assert len(made) == 10
    assert "xfs" not in set(made.table()["fs"])


def test_it_asks_what_optuna_asks(tmp_path: Path) -> None:
    """Against a loop of optuna's own, with its own idea of what was asked before."""
    choose = lab.sweeps.optuna(minimize="latency", combinations=16, seed=3, batch=1)
    made = lab.sweep(cost, choose=choose, folder=tmp_path, **AXES)
    assert made.complete
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=3))
    wanted: dict[tuple[Any, ...], float] = {}
    repeated = 0
    while len(wanted) < 16:
        # Categories by the order of the axes' values, which is all that the sampler sees of them.
        asked = study.ask()
        one = {name: values[asked.suggest_categorical(name, range(len(values)))] for name, values in AXES.items()}
        repeated = repeated + 1 if tuple(one.values()) in wanted else 0
        if repeated == 10:
            break  # from here on it is helped
        value = cost(**one)["latency"]
        wanted[tuple(one.values())] = value
        study.tell(asked, value)
    assert len(wanted) >= 8
    assert order(made)[: len(wanted)] == list(wanted)
    table = made.table()
    assert min(table["latency"]) == min(one["latency"] for one in map(dict, table.rows()))
    assert len(set(order(made))) == 16


def test_it_finds_the_best_sooner_than_all(tmp_path: Path) -> None:
    choose = lab.sweeps.optuna(minimize="latency", combinations=30, seed=1)
    made = lab.sweep(cost, choose=choose, folder=tmp_path, **AXES)
    best = next(made.table().sort("latency").rows())
    assert (best["bs"], best["depth"], best["fs"], best["latency"]) == ("64k", 8, "xfs", 1.0)
    assert len(made) == 30
    # The later half is better than the first, which is what a search is for.
    values = [cost(*one)["latency"] for one in order(made)]
    assert sum(values[15:]) < sum(values[:15])
    largest = lab.sweep(
        cost, choose=lab.sweeps.optuna(maximize="latency", combinations=30, seed=1), folder=tmp_path, **AXES
    )
    assert max(largest.table()["latency"]) == 8.0


def test_the_choice_is_the_same_however_it_is_run(tmp_path: Path) -> None:
    choose = lab.sweeps.optuna(minimize="latency", combinations=14, seed=5, batch=3)
    one = lab.sweep(cost, choose=choose, workers=1, folder=tmp_path / "1", **AXES)
    four = lab.sweep(cost, choose=choose, workers=4, folder=tmp_path / "4", **AXES)
    assert order(one) == order(four)
    other = lab.sweep(
        cost,
        choose=lab.sweeps.optuna(minimize="latency", combinations=14, seed=6, batch=3),
        folder=tmp_path / "6",
        **AXES,
    )
    assert order(other) != order(one)
    # Without a seed of its own it has the sweep's.
    by_sweep = lab.sweeps.optuna(minimize="latency", combinations=14, batch=3)
    assert set(order(lab.sweep(cost, choose=by_sweep, seed=5, folder=tmp_path / "s", **AXES))) == set(order(one))


def logged(log: str, bs: str, depth: int, fs: str) -> float:
    with Path(log).open("a") as file:
        file.write(f"{bs}-{depth}-{fs}\n")
    return cost(bs, depth, fs)["latency"]


def test_what_is_done_is_told_and_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(name: str, combinations: int, log: str = "log") -> lab.Sweep:
        choose = lab.sweeps.optuna(minimize="value", combinations=combinations, seed=2)
        axes = {"log": str(tmp_path / log), **AXES}
        return lab.sweep(logged, choose=choose, folder=tmp_path / name, workers=2, **axes)

    whole = run("whole", 20)
    assert whole.complete
    (tmp_path / "log").unlink()

    # Ctrl-C once 5 have run, so within the second batch.
    @contextlib.contextmanager
    def pressed() -> Iterator[Any]:
        yield lambda: int((tmp_path / "log").exists() and len((tmp_path / "log").read_text().split()) >= 5)

    with monkeypatch.context() as patch:
        patch.setattr(running, "counted_ctrl_c", pressed)
        first = run("s", 20)
    assert first.interrupted
    assert not first.complete
    assert 4 <= len(first.table()) < 20
    assert "more trials are chosen when" in first.text()
    done = set(first.table()["key"])
    again = run("s", 20)
    assert again.complete
    assert order(again) == order(whole)
    runs = Counter((tmp_path / "log").read_text().split())
    finished = {f"{row['bs']}-{row['depth']}-{row['fs']}" for row in again.table() if row["key"] in done}
    assert len(runs) == 20
    assert {name: runs[name] for name in finished} == dict.fromkeys(finished, 1)
    # More of them: only these are run.
    before = sum(runs.values())
    wider = run("s", 24)
    assert wider.complete
    assert order(wider)[:20] == order(whole)
    assert len((tmp_path / "log").read_text().split()) == before + 4
    dry = lab.sweep(
        logged,
        choose=lab.sweeps.optuna(minimize="value", combinations=40, seed=2),
        folder=tmp_path / "s",
        dry_run=True,
        log=str(tmp_path / "log"),
        **AXES,
    )
    assert (dry.trials, dry.done) == (40, 24)
    assert dry.seconds is not None
    assert "at most 40 trials: 40 combinations, 1 times each\n24 are done, 16 would be run" in dry.text()


class Spy(optuna.samplers.RandomSampler):  # type: ignore[misc]
    """Notes what optuna is told."""

    told: list[tuple[dict[str, Any], str, float | None]] = []  # noqa: RUF012

    def after_trial(self, study: Any, trial: Any, state: Any, values: Any) -> None:
        self.told.append((dict(trial.params), state.name, values[0] if values else None))
        super().after_trial(study, trial, state, values)


def test_failures_and_repeats_are_told_as_what_they_are(tmp_path: Path) -> None:
    def unsteady(a: int, b: str, repeat: int) -> dict[str, Any]:
        if a == 1 and repeat == 2:
            raise ValueError("it never works")
        if a == 2:
            return {"x": float("nan")}
        return {"x": a * 100 + [5, 1, 30][repeat], "said": b}

    Spy.told = []
    made = lab.sweep(
        unsteady,
        a=[1, 2, 3, 4],
        b=["x", "y", "z"],
        exclude=[{"a": 4, "b": ["y", "z"]}],
        repeat=3,
        choose=lab.sweeps.optuna(minimize="x", combinations=100, batch=2, sampler=lambda seed: Spy(seed=seed)),
        folder=tmp_path,
    )
    assert len(made) == 30  # 10 combinations: all there are
    assert not made.plan.growing
    told = {(params["a"], params["b"]): (state, value) for params, state, value in Spy.told}
    wanted = {("1", f'"{b}"'): ("FAIL", None) for b in "xyz"}
    wanted |= {("2", f'"{b}"'): ("FAIL", None) for b in "xyz"}
    wanted |= {("3", f'"{b}"'): ("COMPLETE", 305.0) for b in "xyz"}
    wanted |= {("4", '"x"'): ("COMPLETE", 405.0)}
    outside = {("4", '"y"'): ("PRUNED", None), ("4", '"z"'): ("PRUNED", None)}
    assert {where: said for where, said in told.items() if where not in outside} == wanted
    assert all(said == outside[where] for where, said in told.items() if where in outside)
    assert set(made.missing()["kind"]) == {"error"}


def test_dependent_axes_and_large_spaces(tmp_path: Path) -> None:
    """10^12 combinations, of which few are allowed: they are never enumerated."""
    axes: dict[str, Any] = {f"a{number}": list(range(10)) for number in range(12)}

    def total(**values: int) -> int:
        return sum(values.values())

    made = lab.sweep(
        total,
        choose=lab.sweeps.optuna(minimize="value", combinations=9, seed=1),
        where=lambda a0, a1, a2: a0 + a1 == 3 * a2,
        folder=tmp_path,
        **axes,
    )
    assert made.complete
    assert len(set(order(made))) == 9
    assert all(one[0] + one[1] == 3 * one[2] for one in order(made))
    with pytest.raises(lab.InputError, match="no combination is left"):
        lab.sweep(
            total,
            choose=lab.sweeps.optuna(minimize="value", combinations=9),
            where=lambda a0: a0 > 9,
            folder=tmp_path / "none",
            **{name: [1] for name in axes},
        )


def test_what_nothing_returned_cannot_be_searched_for(tmp_path: Path) -> None:
    with pytest.raises(lab.InputError, match=r"no trial has returned 'latncy'.*'latency', 'other'"):
        lab.sweep(cost, choose=lab.sweeps.optuna(minimize="latncy", combinations=9), folder=tmp_path, **AXES)
    assert len(lab.open_sweep(tmp_path).table()) == 4  # the first batch is kept
    # How long it takes can be.
    quick = lab.sweep(cost, choose=lab.sweeps.optuna(minimize="seconds", combinations=4), folder=tmp_path, **AXES)
    assert quick.complete


def test_without_optuna_it_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    choose = lab.sweeps.optuna(minimize="latency", combinations=9)
    with pytest.raises(lab.UnsupportedError, match=r"not installed; pip install 'sampleblk-lab\[optuna\]'"):
        lab.sweep(cost, choose=choose, folder=tmp_path / "s", **AXES)
    assert not (tmp_path / "s").exists()
    assert lab.sweep(cost, choose=lab.sweeps.random(2), folder=tmp_path / "r", **AXES).complete


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: lab.sweeps.random(0), "combinations=0 .expected a whole number of 1 or more"),
        (lambda: lab.sweeps.random(2, seed=-1), "seed=-1"),
        (lambda: lab.sweeps.optuna(combinations=2), "minimize=None and maximize=None .expected one of the two"),
        (lambda: lab.sweeps.optuna(minimize="a", maximize="b", combinations=2), "expected one of the two"),
        (lambda: lab.sweeps.optuna(minimize="", combinations=2), "'' is not a name"),
        (lambda: lab.sweeps.optuna(minimize="a", combinations=2, batch=0), "batch=0"),
        (lambda: lab.sweeps.optuna(minimize="a", combinations=2, sampler=3), "sampler=3"),  # type: ignore[arg-type]
    ],
)
def test_a_wrong_choice_says_what_would_be_accepted(make: Any, said: str) -> None:
    with pytest.raises(lab.InputError, match=said):
        make()


def test_a_choice_that_does_not_fit_the_sweep(tmp_path: Path) -> None:
    for options, said in (
        ({"choose": 3}, r"choose=3 .expected lab\.sweeps\.random"),
        ({"choose": lab.sweeps.random(2), "pairwise": True}, "pairwise=True with choose"),
        ({"choose": lab.sweeps.optuna(minimize="bs", combinations=2)}, "'bs' is not a result"),
        ({"choose": lab.sweeps.optuna(minimize="load", combinations=2)}, "'load' is not a result"),
    ):
        with pytest.raises(lab.InputError, match=said):
            lab.sweep(cost, folder=tmp_path / "s", **AXES, **options)  # type: ignore[call-overload]
    assert not (tmp_path / "s").exists()


def test_importing_the_choice_does_not_import_optuna() -> None:
    import subprocess

    code = "import sys, sampleblk_lab as lab; lab.sweeps.random(1); print('optuna' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
