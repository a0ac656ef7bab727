# SPDX-License-Identifier: MIT
"""Sets of sessions: stored, listed, compared, and refused."""

import concurrent.futures
import errno
import json
import math
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sampleblk_lab import FormatError, InputError, compare_sets, measure, runs
from sampleblk_lab.results import machine, store
from sampleblk_lab.results.sets import DRIFT, Row, failures, text, to_json

DATA = json.loads((Path(__file__).parents[1] / "data/results/read_latency.json").read_text())["sessions"]
VM = {"cpus": 2, "memory_mib": 1024, "accel": "tcg"}


def _save(
    root: Path,
    name: str,
    samples: list[float],
    *,
    at: int,
    kernel: str = "6.1.0",
    host: dict[str, str] | None = None,
    test: str = "test_it.py::test_read",
    spec: dict[str, object] | None = None,
    **more: str,
) -> None:
    scratch = root / "scratch" / test.rpartition("::")[2]
    measured = {"name": "", "unit": "ns", "better": "lower", "samples": samples}
    measured |= dict.fromkeys(("value", "low", "high"), samples[0])
    measured |= {"confidence": 0.98, "stopped": "narrow", **more}
    store.write(scratch, test, spec or {}, [measured])
    about = {"kernel": kernel, "accel": "tcg", "vm": VM, "host": host or {"name": "here", "cpu": "x"}, "started_ns": at}
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


def test_a_drift_within_a_session_is_said_and_steps_between_sessions_are_none(tmp_path: Path) -> None:
    _save(tmp_path, "a", list(range(100, 120)), at=1)
    _save(tmp_path, "b", DATA[0]["fast"], at=2)
    made = _compared(tmp_path).comparison
    assert made is not None
    assert made.notes[0].startswith("before: serially correlated")
    steps = tmp_path / "steps"
    for number in range(4):
        _save(steps, "ab"[number % 2], [(1 + 0.06 * number) * value for value in DATA[0]["fast"]], at=number)
    made = _compared(steps).comparison
    assert made is not None
    assert [note for note in made.notes if "serially" in note] == []


def test_sessions_run_alternately_are_paired(tmp_path: Path) -> None:
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
    assert "not run alternately" in made.notes[-1]


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


def test_what_a_set_says_does_nothing_to_the_terminal(tmp_path: Path) -> None:
    odd = {"name": "here", "cpu": "x\x1b[31m\n"}
    _save(tmp_path, "a", DATA[0]["fast"], at=1, test="t.py::\x1b[2J\n")
    _save(tmp_path, "b", DATA[0]["fast"], at=2, test="t.py::\x1b[2J\n", host=odd)
    for across in ((), ("machine",)):
        told = text([_compared(tmp_path, across=across)])
        assert len(told) in (2, 4)
        assert all(line.isprintable() for line in told)
        assert told[0] == r"t.py::\x1b[2J"
        assert r"x\x1b[31m\n" in "".join(told)


def test_a_point_release_is_the_same_kernel_with_a_note(tmp_path: Path) -> None:
    _save(tmp_path, "a", DATA[0]["fast"], at=1, kernel="6.1.0-55-amd64")
    _save(tmp_path, "b", [1.3 * value for value in DATA[0]["fast"]], at=2, kernel="6.1.0-56-amd64")
    row = _compared(tmp_path)
    assert row.verdict == "slower"
    assert row.comparison is not None
    assert "kernels of one series: 6.1.0-55-amd64; 6.1.0-56-amd64" in row.comparison.notes


@pytest.mark.parametrize(
    ("release", "series"),
    [
        ("6.1.0-56-amd64", "6.1"),
        ("6.12.117+deb12-amd64", "6.12"),
        ("6.1.0-56-rt-amd64", "6.1 rt"),
        ("6.12.30-cloud-arm64", "6.12 cloud"),
        ("7.2.1-dbg", "7.2 dbg"),
        ("custom", "custom"),
    ],
)
def test_the_series_of_a_kernel(release: str, series: str) -> None:
    assert machine.series(release) == series


HOST = {"name": "one", "cpu": "EPYC", "cpus": "8", "memory_mib": "32000"}


@pytest.mark.parametrize(
    ("other", "refused"),
    [
        ({"name": "two"}, False),
        ({"memory_mib": "32100"}, False),
        ({"cpu": "Xeon"}, True),
        ({"cpus": "4"}, True),
        ({"memory_mib": "16000"}, True),
    ],
)
def test_a_machine_is_its_hardware_and_not_its_name(tmp_path: Path, other: dict[str, str], refused: bool) -> None:
    _save(tmp_path, "a", DATA[0]["fast"], at=1, host=HOST)
    _save(tmp_path, "b", DATA[0]["fast"], at=2, host={**HOST, **other})
    row = _compared(tmp_path)
    assert (row.comparison is None) == refused
    if row.comparison is None:
        assert row.refused.startswith("the machine differs (one, ")
        assert "one, 8 x EPYC, 32000 MiB, VM of 2 CPUs and 1024 MiB" in row.refused
    else:
        assert any(note.startswith("machines of one kind: one, 8 x EPYC") for note in row.comparison.notes)


def test_a_set_without_the_memory_of_its_host_is_still_compared(tmp_path: Path) -> None:
    _save(tmp_path, "a", DATA[0]["fast"], at=1, host={name: HOST[name] for name in ("name", "cpu", "cpus")})
    _save(tmp_path, "b", DATA[0]["fast"], at=2, host=HOST)
    assert _compared(tmp_path).comparison is not None


def test_what_only_one_set_has_is_a_row_and_fails_a_gate(tmp_path: Path) -> None:
    for name, tests in (("a", ("same", "gone")), ("b", ("same", "new"))):
        for at, test in enumerate(tests):
            _save(tmp_path, name, DATA[0]["fast"], at=at, test=f"t.py::test_{test}")
    rows = compare_sets(store.load(tmp_path / "runs", "a"), store.load(tmp_path / "runs", "b"))
    assert [(row.test, row.verdict, row.refused, row.new) for row in rows] == [
        ("t.py::test_same", "no difference shown", "", False),
        ("t.py::test_new", "not compared", "the earlier set does not have it", True),
        ("t.py::test_gone", "not compared", "the later set does not have it", False),
    ]
    assert [row.test for row in failures(rows)] == ["t.py::test_new", "t.py::test_gone"]
    assert [row.test for row in failures(rows, allow_new=True)] == ["t.py::test_gone"]
    assert "  not compared: the later set does not have it" in text(rows)
    assert [row["verdict"] for row in to_json(rows)] == ["no difference shown", None, None]


def test_sessions_in_which_the_test_failed_are_no_side_of_a_comparison(tmp_path: Path) -> None:
    _save(tmp_path, "a", [10.0] * 8, at=1, spec={"failed": True})
    _save(tmp_path, "b", [20.0] * 8, at=2)
    made = _compared(tmp_path)
    assert (made.comparison, made.refused) == (None, "the test failed in each session of the earlier set")
    assert failures([made])
    _save(tmp_path, "a", [20.0] * 8, at=3)
    found = _compared(tmp_path).comparison
    assert found is not None
    assert found.verdict == "no difference shown"
    assert "left out of the earlier set: 1 of 2 sessions, in which the test failed" in found.notes
    assert np.asarray(runs(tmp_path / "runs", "a")["failed"]).tolist() == [True, False]


def test_other_units_are_refused(tmp_path: Path) -> None:
    _save(tmp_path, "a", DATA[0]["fast"], at=1)
    _save(tmp_path, "b", DATA[0]["fast"], at=2, unit="us")
    row = _compared(tmp_path)
    assert row.refused == "measured as ns (lower is better) and us (lower is better)"
    assert failures([row]) == [row]


def test_a_case_whose_id_means_another_one_now_is_refused(tmp_path: Path) -> None:
    """pytest numbers the values that it has no words for."""
    first, moved, other = (
        {"parameters": {"job": f"Job({rw!r}, file=<file at {at}>)"}}
        for rw, at in (("read", "0x1"), ("read", "0x7f"), ("write", "0x1"))
    )
    _save(tmp_path, "a", [1.0] * 6, at=1, spec=first)
    _save(tmp_path, "b", [1.0] * 6, at=2, spec=moved)
    assert _compared(tmp_path).comparison is not None
    _save(tmp_path, "b", [1.0] * 6, at=3, spec=other)
    row = _compared(tmp_path)
    assert row.comparison is None
    assert "the parameters differ" in row.refused
    assert "Job('read'" in row.refused
    assert "Job('write'" in row.refused


def test_other_marks_are_told(tmp_path: Path) -> None:
    for at, (name, capacity) in enumerate((("a", "64M"), ("b", "128M"))):
        _save(tmp_path, name, [1.0] * 6, at=at, spec={"marks": [{"capacity": capacity}]})
    made = _compared(tmp_path).comparison
    assert made is not None
    assert [note for note in made.notes if "marks differ" in note and "128M" in note]


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
    with pytest.raises(InputError, match=r"no measurements in .*/nothing \(expected a folder in which --sblk-save"):
        runs(tmp_path / "nothing")
    with pytest.raises(InputError, match=r"no measurements in .*/c \(expected one of its sets: a, b\)"):
        runs(tmp_path / "runs", "c")
    with pytest.raises(InputError, match="name: '\\*'"):
        runs(tmp_path / "runs", "*")


def test_what_lies_beside_the_rounds_of_a_set_is_none(tmp_path: Path) -> None:
    _save(tmp_path, "a", [1.0] * 6, at=1)
    home = tmp_path / "runs/a"
    shutil.copytree(home / "0001", home / "0001.bak")
    (home / "\N{SUPERSCRIPT TWO}").mkdir()
    _save(tmp_path, "a", [1.0] * 6, at=2)
    (home / "9999").mkdir()
    _save(tmp_path, "a", [1.0] * 6, at=3)
    assert list(runs(tmp_path / "runs", "a")["round"]) == [1, 2, 10000]


def test_the_latest_set_holds_one_session(tmp_path: Path) -> None:
    for at in range(3):
        _save(tmp_path, store.LATEST, [1.0] * 6, at=at)
    assert list(runs(tmp_path / "runs")["round"]) == [1]


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("measurements.json", "[{", r"at byte \d+: expected JSON"),
        ("measurements.json", "\udcff", "at byte 0: expected JSON in UTF-8"),
        ("measurements.json", "{}", "expected the whole to be a list"),
        ("measurements.json", "[1]", r"expected \[0\] to be an object"),
        ("measurements.json", "[{}]", "measurement 0 to have 'name', a string"),
        ("measurements.json", "SAMPLES []", "measurement 0 to have 'samples', numbers above 0"),
        ("measurements.json", "SAMPLES [1, 0]", "measurement 0 to have 'samples', numbers above 0"),
        ("measurements.json", "SAMPLES [NaN]", "measurement 0 to have 'samples', numbers above 0"),
        ("measurements.json", 'SAMPLES ["1"]', "measurement 0 to have 'samples', numbers above 0"),
        ("measurements.json", "TWICE", "expected one measurement named ''"),
        ("spec.json", "[]", "expected the whole to be an object"),
        ("spec.json", "{}", "expected 'test', a string"),
        ("env.json", "null", "expected the whole to be an object"),
        ("env.json", '{"host": "x"}', "expected host to be an object"),
        ("env.json", '{"host": {"memory_mib": "much"}}', "'memory_mib' to be a number"),
    ],
)
def test_a_broken_file_is_named(tmp_path: Path, file: str, text: str, said: str) -> None:
    _save(tmp_path, "a", [1.0] * 6, at=1)
    (path,) = (tmp_path / "runs").glob(f"*/*/*/{file}")
    if text.startswith("SAMPLES "):
        (measured,) = json.loads(path.read_text())
        text = json.dumps([{**measured, "samples": 0}]).replace('"samples": 0', f'"samples": {text[8:]}')
    if text == "TWICE":
        text = json.dumps(json.loads(path.read_text()) * 2)
    path.write_text(text, errors="surrogateescape")
    with pytest.raises(FormatError, match=f"{file}: at byte .*{said.removeprefix('at byte ')}"):
        runs(tmp_path / "runs")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    _save(tmp_path, "a", [1.0] * 6, at=1)
    (path,) = (tmp_path / "runs").glob("*/*/*/env.json")
    path.unlink()
    with pytest.raises(FileNotFoundError, match=r"env.json"):
        runs(tmp_path / "runs")


def test_sessions_that_end_together_have_rounds_of_their_own(tmp_path: Path) -> None:
    def save(number: int) -> str:
        (tmp_path / f"{number}/test").mkdir(parents=True)
        made = store.add_round(tmp_path / "runs", "a", [tmp_path / f"{number}/test"])
        assert made is not None
        return made.name

    with concurrent.futures.ThreadPoolExecutor(16) as sessions:
        assert sorted(sessions.map(save, range(200))) == [f"{number + 1:04d}" for number in range(200)]


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_round_that_finds_no_room_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, elsewhere: bool) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm" if elsewhere else None) as made:
        tests = [Path(made, name) for name in "abc"]

        def save() -> None:
            for test in tests:
                (test / "inside").mkdir(parents=True)
                (test / "inside/it").write_text(test.name)
            store.add_round(tmp_path / "runs", "a", tests)

        save()
        assert not any(Path(made).iterdir())
        assert [path.read_text() for path in sorted((tmp_path / "runs/a/0001").glob("*/inside/it"))] == ["a", "b", "c"]
        rename, copy = os.rename, shutil.copyfile

        def renamed(source: Any, target: Any) -> None:
            if Path(source).name == "b" and not elsewhere:
                raise OSError(errno.ENOSPC, "no room", source)
            rename(source, target)

        def copied(source: Any, target: Any, **options: Any) -> Any:
            if "/b/" in os.fspath(source):
                raise OSError(errno.ENOSPC, "no room", source)
            return copy(source, target, **options)

        with monkeypatch.context() as full:
            full.setattr(os, "rename", renamed)
            full.setattr(shutil, "copyfile", copied)
            with pytest.raises(OSError, match="no room"):
                save()
        assert [path.name for path in (tmp_path / "runs/a").iterdir()] == ["0001"]
        assert [path.read_text() for path in sorted(Path(made).glob("*/inside/it"))] == ["a", "b", "c"]


def test_of_sessions_that_end_together_the_latest_set_holds_one(tmp_path: Path) -> None:
    def save(number: int) -> None:
        tests = [tmp_path / f"{number}/{test}" for test in range(5)]
        for test in tests:
            test.mkdir(parents=True)
            (test / "note").write_text(str(number))
        store.add_round(tmp_path / "runs", store.LATEST, tests)

    with concurrent.futures.ThreadPoolExecutor(4) as sessions:
        list(sessions.map(save, range(100)))
    (kept,) = (tmp_path / "runs/latest").iterdir()
    notes = [path.read_text() for path in kept.glob("*/note")]
    assert len(notes) == 5
    assert len(set(notes)) == 1


def test_the_latest_set_is_not_what_a_link_leads_to(tmp_path: Path) -> None:
    _save(tmp_path, "a", [1.0] * 6, at=1)
    (tmp_path / "runs/latest").symlink_to("a")
    with pytest.raises(OSError, match="latest"):
        _save(tmp_path, store.LATEST, [1.0] * 6, at=2)
    assert len(runs(tmp_path / "runs", "a")) == 1


@pytest.mark.parametrize(("name", "value"), [("value", 1.3), ("low", 1.2), ("high", 1.0), ("samples", [2.0, 2.1])])
def test_a_measurement_that_cannot_be_is_refused(name: str, value: object, tmp_path: Path) -> None:
    whole = {"name": "", "unit": "ns", "better": "lower", "samples": [1.0, 1.2], "stopped": "narrow"}
    whole |= {"value": 1.1, "low": 1.05, "high": 1.4}
    path = tmp_path / "measurements.json"
    path.write_text(json.dumps([whole]))
    store.measurements(path)
    path.write_text(json.dumps([{**whole, name: value}]))
    with pytest.raises(FormatError, match=r"expected measurement 0 to have 'value'"):
        store.measurements(path)


def test_what_is_not_known_at_all_is_read_again(tmp_path: Path) -> None:
    """One sample far off, the others all but the same: the interval is from 0 to infinity."""
    values = iter([1000.001, 1000.002, 1000.003, 1000.001, 1000.002, 500.0])
    made = measure(lambda: next(values), warmup=0, min_repeats=6, max_repeats=6)
    assert (made.estimate.low, made.estimate.high) == (0, math.inf)
    store.write(tmp_path / "runs/a/0001/t", "t", {}, [made.to_json()])
    text = (tmp_path / "runs/a/0001/t/measurements.json").read_text()
    json.loads(text, parse_constant=pytest.fail)
    table = runs(tmp_path / "runs")
    assert (table["low"][0], table["high"][0]) == (0, math.inf)
    (row,) = compare_sets(store.load(tmp_path / "runs"), store.load(tmp_path / "runs"))
    assert row.verdict == "no difference shown"
    store.write(tmp_path / "large/a/0001/t", "t", {}, [measure(lambda: 1e30, max_repeats=10).to_json()])
    assert runs(tmp_path / "large")["value"][0] == pytest.approx(1e30)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
_ABOUT = st.fixed_dictionaries(
    {},
    optional=dict.fromkeys(("kernel", "accel", "vm", "host", "started", "started_ns"), _JSON),
) | st.fixed_dictionaries(
    {
        "host": st.fixed_dictionaries({}, optional=dict.fromkeys(HOST, _JSON)),
        "vm": st.fixed_dictionaries({}, optional=dict.fromkeys(VM, _JSON)),
    }
)
_MEASURED = st.fixed_dictionaries(
    {"name": st.text(max_size=3), "unit": st.text(max_size=3), "better": st.sampled_from(["lower", "higher", ""])},
    optional={name: _JSON | st.floats(0.1, 9) for name in ("value", "low", "high", "stopped")}
    | {"samples": st.lists(st.floats(0.1, 9) | _JSON, max_size=9)},
)


@settings(max_examples=400, deadline=None)
@given(about=_ABOUT | _JSON, measured=st.lists(_MEASURED | _JSON, max_size=3) | _JSON, spec=_JSON)
def test_any_file_is_taken_or_named(
    tmp_path_factory: pytest.TempPathFactory, about: object, measured: object, spec: object
) -> None:
    root = tmp_path_factory.mktemp("any")
    _save(root, "a", [1.0] * 6, at=1)
    (folder,) = (root / "runs").glob("a/*/*")
    files = {"env.json": about, "measurements.json": measured}
    if not isinstance(spec, str):
        files["spec.json"] = spec
    for name, value in files.items():
        (folder / name).write_text(json.dumps(value))
    try:
        found = store.load(root / "runs")
    except FormatError:
        return
    text(compare_sets(found, found))
    if count := sum(len(run.measurements) for run in found):
        assert len(runs(root / "runs")) == count
