# SPDX-License-Identifier: MIT
"""Sets of sessions: stored, listed, compared, and refused."""

import json
from pathlib import Path

import pytest

from sampleblk_lab import FormatError, InputError, compare_sets, runs
from sampleblk_lab.results import store
from sampleblk_lab.results.sets import DRIFT, Row

DATA = json.loads((Path(__file__).parents[1] / "data/results/read_latency.json").read_text())["sessions"]
VM = {"cpus": 2, "memory_mib": 1024, "accel": "tcg"}


def _save(root: Path, name: str, samples: list[float], *, at: int, kernel: str = "6.1.0", **more: str) -> None:
    scratch = root / "scratch" / "test_read-0"
    measured = {"name": "", "unit": "ns", "better": "lower", "samples": samples, "value": 1.0, "low": 1.0}
    measured |= {"high": 1.0, "confidence": 0.98, "stopped": "narrow", **more}
    store.write(scratch, "test_it.py::test_read", {}, [measured])
    about = {"kernel": kernel, "accel": "tcg", "vm": VM, "host": {"name": "here", "cpu": "x"}, "started_ns": at}
    (scratch / "env.json").write_text(json.dumps(about))
    store.add_round(root / "runs", name, [scratch])


def _compared(root: Path, *, across: tuple[str, ...] = ()) -> Row:
    (row,) = compare_sets(store.load(root / "runs", "a"), store.load(root / "runs", "b"), across=across)
    return row


def test_single_sessions_of_the_same_are_not_told_apart(tmp_path: Path) -> None:
    """Recorded sessions lie up to 6 % apart; that alone is no verdict."""
    for first in range(len(DATA)):
        for second in range(len(DATA)):
            root = tmp_path / f"{first}-{second}"
            _save(root, "a", DATA[first]["fast"], at=1)
            _save(root, "b", DATA[second]["fast"], at=2)
            made = _compared(root).comparison
            assert made is not None
            assert made.verdict == "no difference shown"
            assert f"only one session on a side: the interval allows for {DRIFT:.0%}" in made.notes[-1]


def test_a_single_session_still_shows_a_large_difference(tmp_path: Path) -> None:
    _save(tmp_path, "a", DATA[0]["fast"], at=1)
    _save(tmp_path, "b", [1.3 * value for value in DATA[1]["fast"]], at=2)
    made = _compared(tmp_path).comparison
    assert made is not None
    assert made.verdict == "slower"


def test_sessions_run_by_turns_are_paired(tmp_path: Path) -> None:
    for number, session in enumerate(DATA):
        order = ("plain", "slower") if number % 2 == 0 else ("slower", "plain")
        for turn, which in enumerate(order):
            _save(tmp_path, "a" if which == "plain" else "b", session[which], at=10 * number + turn)
    made = _compared(tmp_path).comparison
    assert made is not None
    assert made.paired
    assert len(made.before) == len(DATA)
    assert made.verdict == "slower"
    assert made.ratio.value == pytest.approx(1.05, abs=0.02)


def test_sessions_one_after_the_other_are_not_paired(tmp_path: Path) -> None:
    for number, session in enumerate(DATA):
        _save(tmp_path, "a", session["plain"], at=number)
        _save(tmp_path, "b", session["plain"], at=100 + number)
    made = _compared(tmp_path).comparison
    assert made is not None
    assert not made.paired
    assert made.verdict == "no difference shown"
    assert "not run by turns" in made.notes[-1]


def test_other_kernels_are_refused_unless_asked_for(tmp_path: Path) -> None:
    _save(tmp_path, "a", DATA[0]["fast"], at=1)
    _save(tmp_path, "b", DATA[0]["fast"], at=2, kernel="6.12.0")
    refused = _compared(tmp_path)
    assert refused.comparison is None
    assert refused.refused == "the kernel differs (6.1.0; 6.12.0); ask for it with --sblk-across kernel"
    made = _compared(tmp_path, across=("kernel",)).comparison
    assert made is not None
    assert "across kernels: 6.1.0; 6.12.0" in made.notes
    with pytest.raises(InputError, match="across 'cpu'"):
        _compared(tmp_path, across=("cpu",))


def test_other_units_are_refused(tmp_path: Path) -> None:
    _save(tmp_path, "a", DATA[0]["fast"], at=1)
    _save(tmp_path, "b", DATA[0]["fast"], at=2, unit="us")
    assert _compared(tmp_path).refused == "measured as ns (lower is better) and us (lower is better)"


def test_runs_are_a_table(tmp_path: Path) -> None:
    _save(tmp_path, "a", [1.0] * 6, at=1)
    _save(tmp_path, "a", [2.0] * 7, at=2)
    _save(tmp_path, "b", [3.0] * 8, at=3)
    frame = runs(tmp_path / "runs").to_pandas()
    assert list(zip(frame["set"], frame["round"], frame["samples"], strict=True)) == [
        ("a", 1, 6),
        ("a", 2, 7),
        ("b", 1, 8),
    ]
    assert set(frame["kernel"]) == {"6.1.0"}
    assert set(frame["machine"]) == {"here, x, VM of 2 CPUs and 1024 MiB"}
    assert len(runs(tmp_path / "runs", "b")) == 1
    assert len(runs(tmp_path / "nothing")) == 0


def test_the_latest_set_holds_one_session(tmp_path: Path) -> None:
    for at in range(3):
        _save(tmp_path, store.LATEST, [1.0] * 6, at=at)
    assert list(runs(tmp_path / "runs")["round"]) == [1]


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    _save(tmp_path, "a", [1.0] * 6, at=1)
    (path,) = (tmp_path / "runs").glob("*/*/*/measurements.json")
    path.write_text("[{")
    with pytest.raises(FormatError, match=r"measurements.json: at byte \d+: expected JSON"):
        runs(tmp_path / "runs")
