# SPDX-License-Identifier: MIT
"""Sweeps in processes of this machine: what they return, what is run again, and what becomes of failures."""

from __future__ import annotations

import concurrent.futures
import enum
import errno
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sampleblk_lab as lab
from sampleblk_lab.functions import named
from sampleblk_lab.sweeps import artefacts, host, place, processes, store
from support import files_of_at_most


@pytest.fixture(autouse=True)
def _no_launcher_is_left() -> Any:
    yield
    processes.close()


def counted(log: str, a: int, b: str) -> dict[str, Any]:
    """Leaves a line for each time that it ran."""
    with Path(log).open("a") as file:
        file.write(f"{a}{b}\n")
    return {"sum": a + len(b), "ratio": a / 2, "text": b * a, "good": a > 1, "pid": os.getpid()}


def test_a_sweep_is_a_table(tmp_path: Path) -> None:
    made = lab.sweep(counted, log=str(tmp_path / "log"), a=[1, 2, 3], b=["x", "yy"], repeat=2, folder=tmp_path / "s")
    assert made.complete
    assert len(made) == 12
    table = made.table()
    assert table.columns[:8] == ["log", "a", "b", "sum", "ratio", "text", "good", "pid"]
    found = Counter((row["a"], row["b"], row["sum"], row["ratio"], row["text"], row["good"]) for row in table)
    assert found == {(a, b, a + len(b), a / 2, b * a, a > 1): 2 for a in (1, 2, 3) for b in ("x", "yy")}
    assert len(set(table["pid"])) == 12
    assert os.getpid() not in set(table["pid"])
    runs = Counter((tmp_path / "log").read_text().split())
    assert runs == {f"{a}{b}": 2 for a in (1, 2, 3) for b in ("x", "yy")}
    assert table["seconds"].unit == "s"
    assert set(table["release"]) == {os.uname().release}
    assert set(table["attempts"]) == {1}
    assert len(made.missing()) == 0
    assert table.metadata["missing"] == "0"


def test_a_trial_is_the_process_that_was_begun(tmp_path: Path) -> None:
    def forks(a: str) -> str:
        child = os.fork()
        if child:
            os.waitpid(child, 0)
        return a if child else "a fork, which returns first"

    assert list(lab.sweep(forks, a="the one", folder=tmp_path).table()["value"]) == ["the one"]


def _surroundings(number: int) -> dict[str, Any]:  # noqa: ARG001
    return {
        "environment": os.environ.get("SWEPT", "none"),
        "folder": str(Path.cwd()),
        "umask": os.umask(0o22),
        "processors": str(sorted(os.sched_getaffinity(0))),
        "files": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
    }


def test_a_trial_has_the_environment_of_the_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trials of a later call had that of the first one of the session."""
    before, files = os.sched_getaffinity(0), resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        for number, umask in enumerate((0o27, 0o77)):
            (tmp_path / f"in{number}").mkdir()
            monkeypatch.chdir(tmp_path / f"in{number}")
            monkeypatch.setenv("SWEPT", f"call {number}")
            os.umask(umask)
            os.sched_setaffinity(0, {sorted(before)[-number]})
            resource.setrlimit(resource.RLIMIT_NOFILE, (files[0] - number, files[1]))
            [row] = lab.sweep(_surroundings, number=[1], folder=tmp_path / f"{number}").table()
            expected = _surroundings(1)
            os.umask(umask)
            assert {name: row[name] for name in expected} == {**expected, "umask": umask}
    finally:
        os.umask(0o22)
        os.sched_setaffinity(0, before)
        resource.setrlimit(resource.RLIMIT_NOFILE, files)


def test_another_environment_ends_no_trial_that_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with concurrent.futures.ThreadPoolExecutor(1) as threads:
        monkeypatch.setenv("SWEPT", "first")
        slow = threads.submit(lab.sweep, _waits, go=[str(tmp_path / "go")], folder=tmp_path / "slow")
        while not (tmp_path / "go.waits").exists():
            time.sleep(0.01)
        monkeypatch.setenv("SWEPT", "second")
        try:
            [row] = lab.sweep(_surroundings, number=[1], folder=tmp_path / "quick").table()
        finally:
            (tmp_path / "go").touch()
        assert row["environment"] == "second"
        assert [row["value"] for row in slow.result(60).table()] == ["first"]


def _waits(go: str) -> str:
    Path(f"{go}.waits").touch()
    while not Path(go).exists():
        time.sleep(0.01)
    return os.environ["SWEPT"]


def test_other_libraries_read_it(tmp_path: Path) -> None:
    import duckdb
    import pandas as pd
    import polars as pl

    lab.sweep(lambda a: {"x": a * 2}, a=[1, 2, 3], folder=tmp_path)
    path = tmp_path / "results.parquet"
    assert sorted(pd.read_parquet(path)["x"]) == [2, 4, 6]
    assert sorted(pl.read_parquet(path)["x"]) == [2, 4, 6]
    assert duckdb.sql(f"select sum(x) from '{path}'").fetchall() == [(12,)]
    assert sorted(lab.open_sweep(tmp_path).table().to_pandas()["x"]) == [2, 4, 6]


def test_what_is_done_is_not_run_again(tmp_path: Path) -> None:
    log = str(tmp_path / "log")

    def runs() -> int:
        return len(Path(log).read_text().split())

    lab.sweep(counted, log=log, a=[1, 2], b="x", folder=tmp_path / "s")
    assert runs() == 2
    lab.sweep(counted, log=log, a=[1, 2], b="x", folder=tmp_path / "s")
    assert runs() == 2
    dry = lab.sweep(counted, log=log, a=[1, 2, 3], b="x", folder=tmp_path / "s", repeat=2, dry_run=True)
    assert (dry.trials, dry.done, runs()) == (6, 2, 2)
    assert dry.seconds is not None
    wider = lab.sweep(counted, log=log, a=[1, 2, 3], b="x", folder=tmp_path / "s", repeat=2)
    assert runs() == 6
    assert len(wider.table()) == 6
    narrow = lab.sweep(counted, log=log, a=[2], b="x", folder=tmp_path / "s")
    assert runs() == 6
    assert narrow.table()["a"].values.tolist() == [2]


def test_other_code_is_another_sweep(tmp_path: Path) -> None:
    def experiment(factor: int) -> Any:
        return lambda a: a * factor

    assert lab.sweep(experiment(2), a=[1, 2], folder=tmp_path).table()["value"].values.sum() == 6
    assert lab.sweep(experiment(3), a=[1, 2], folder=tmp_path, dry_run=True).done == 0
    assert lab.sweep(experiment(3), a=[1, 2], folder=tmp_path).table()["value"].values.sum() == 9
    # The first results are kept.
    assert lab.sweep(experiment(2), a=[1, 2], folder=tmp_path, dry_run=True).done == 2


def test_a_trial_gets_a_seed_of_its_own(tmp_path: Path) -> None:
    made = lab.sweep(
        lambda a, seed, repeat: {"own": seed, "turn": repeat, "b": a}, a=[1, 2], repeat=3, folder=tmp_path / "s"
    )
    table = made.table()
    assert len(set(table["own"])) == 6
    assert table["own"].values.tolist() == table["seed"].values.tolist()
    assert table["turn"].values.tolist() == table["repeat"].values.tolist()


def test_values_of_many_kinds(tmp_path: Path) -> None:
    def kinds(a: int) -> dict[str, Any]:
        found: list[dict[str, Any]] = [
            {"n": 1, "mixed": "word", "some": 1.5, "big": 2**70},
            {"n": np.float32(0.5), "mixed": 3, "some": None, "big": 1},
            {"n": float("nan"), "mixed": True, "big": 1},
        ]
        return found[a]

    table = lab.sweep(kinds, a=[0, 1, 2], folder=tmp_path / "s").table().sort("a")
    assert np.array_equal(table["n"].values, [1, 0.5, float("nan")], equal_nan=True)
    assert list(table["mixed"]) == ["word", "3", "true"]
    assert np.array_equal(table["some"].values, [1.5, float("nan"), float("nan")], equal_nan=True)
    assert list(table["big"]) == [str(2**70), "1", "1"]
    lists = lab.sweep(lambda a: len(a), a=[[1, 2], [3], {"k": 1}], folder=tmp_path / "l").table()
    assert set(lists["a"]) == {"[1, 2]", "[3]", '{"k": 1}'}


@pytest.mark.parametrize("made", [np.float64(0.5), np.int64(3), 2.5], ids=repr)
def test_numbers_of_other_kinds_are_numbers(tmp_path: Path, made: float) -> None:
    found = lab.sweep(lambda a: type(made)(a), a=[made], folder=tmp_path)
    assert list(found.table()["value"]) == [float(made)]
    assert list(found.table()["a"]) == [float(made)]
    assert found.metrics() == ["value"]


class Level(enum.IntEnum):
    HIGH = 3


class Word(enum.StrEnum):
    NAME = "name"


class Seconds(float):
    pass


@pytest.mark.parametrize(
    ("made", "kept"),
    [(Level.HIGH, 3), (Word.NAME, "name"), (Seconds(1.5), 1.5), (np.str_("text"), "text"), (np.float64(2.5), 2.5)],
)
def test_values_of_classes_of_ones_own_are_what_they_are_of(tmp_path: Path, made: Any, kept: Any) -> None:
    table = lab.sweep(lambda a: {Word.NAME: made, "more": a}, a=1, folder=tmp_path).table()
    assert table.columns[1:3] == ["name", "more"]
    assert list(table["name"]) == [kept]


class SpeechlessError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize("how", ["close", "none", "close error", "descriptor"])
def test_what_becomes_of_standard_output_is_not_the_outcome(tmp_path: Path, how: str) -> None:
    def trial(how: str) -> str:
        print("not shown")
        if how == "close":
            sys.stdout.close()
        elif how == "none":
            sys.stdout = None  # type: ignore[assignment]
        elif how == "close error":
            sys.stderr.close()
        else:
            os.close(1)
        return how

    made = lab.sweep(trial, how=how, folder=tmp_path)
    assert list(made.table()["value"]) == [how], made.text()


def test_what_an_exception_cannot_say_is_told_of(tmp_path: Path) -> None:
    def fails(a: int) -> None:
        raise SpeechlessError(a)

    [row] = lab.sweep(fails, a=1, folder=tmp_path).missing()
    assert (row["kind"], row["message"]) == ("error", "SpeechlessError: <str() of it raised RuntimeError>")
    assert "in fails" in row["detail"]


def test_what_an_exception_says_does_not_reach_the_terminal_as_it_is(tmp_path: Path) -> None:
    def fails(a: str) -> None:
        raise ValueError(f"\x1b[2Jnothing is missing\rall is {a[:0]}well")

    said = lab.sweep(fails, a="one\ntwo", folder=tmp_path).text()
    assert "\\x1b[2Jnothing is missing\\rall is well: a=one\\ntwo (repeat 0)" in said
    assert all(line.isprintable() for line in said.split("\n"))


def test_an_int_that_json_cannot_hold_ends_its_trial_only(tmp_path: Path) -> None:
    made = lab.sweep(lambda a: 10**a, a=[1, 4298, 4300, 5000], folder=tmp_path)
    assert sorted(map(len, made.table()["value"])) == [2, 4299]
    said = {row["a"]: (row["kind"], row["message"]) for row in made.missing()}
    assert said.keys() == {4300, 5000}
    assert said[5000] == ("error", "TypeError: the function returned an int of 16610 bits; 14283 at most")


def test_columns_hold_what_other_trials_return(tmp_path: Path) -> None:
    def odd(a: int) -> dict[str, Any]:
        returned: list[dict[str, Any]] = [
            {"ns": 2**60 + 1, "some": 2**60 + 1, "word": "n/a"},
            {"ns": float("nan"), "word": float("nan")},
            {"ns": 1, "word": "\udcff"},
        ]
        return returned[a]

    table = lab.sweep(odd, a=[0, 1, 2], folder=tmp_path).table().sort("a")
    assert np.array_equal(table["ns"].values, [2.0**60, float("nan"), 1], equal_nan=True)
    assert list(table["some"]) == [str(2**60 + 1), None, None]
    assert list(table["word"]) == ["n/a", "nan", "\\udcff"]


def test_bytes_of_no_encoding_are_told_of(tmp_path: Path) -> None:
    def fails(a: str, directory: Path) -> None:
        (directory / "\udcff").touch()
        raise ValueError(a)

    made = lab.sweep(fails, a=["\udcfe"], folder=tmp_path)
    assert "missing, error: ValueError: \\udcfe: a=\\udcfe (repeat 0)" in made.text()
    [row] = made.artefacts()
    assert str(row["path"]).endswith("/\\udcff")


@pytest.mark.parametrize(
    "given", [range(2, 12), np.arange(2, 12), lambda b: [*range(2, b)]], ids=["range", "array", "dependent"]
)
def test_values_are_in_the_order_they_were_given(tmp_path: Path, given: Any) -> None:
    made = lab.sweep(lambda a, b: float(a * b), a=given, b=[12], folder=tmp_path)
    assert made.values_of("a") == [*range(2, 12)]
    assert made.compare("a")[0].test == "b=12 a=3"


def test_an_axis_may_be_called_as_a_column_of_other_tables(tmp_path: Path) -> None:
    def leaves(kind: str, path: str, directory: Path) -> float:
        (directory / "file").write_text(path)
        if kind == "b":
            raise ValueError(kind)
        return 1.0

    made = lab.sweep(leaves, kind=["a", "b"], path="/mnt", folder=tmp_path)
    [row] = made.missing()
    assert (row["kind"], row["path"], row["kind_"], row["message"]) == ("b", "/mnt", "error", "ValueError: b")
    assert "missing, error: ValueError: b: kind=b path=/mnt (repeat 0)" in made.text()
    assert made.json()["missing"] == {"error": 1}
    files = list(made.artefacts())
    assert {(row["kind"], row["path"], row["bytes"]) for row in files} == {("a", "/mnt", 4), ("b", "/mnt", 4)}
    page = made.report(tmp_path / "page.html").read_text()
    assert "<th>kind_</th>" in page
    assert all(f"<code>{row['path_']}</code>" in page for row in files)


def test_what_failed_is_missing_with_its_reason(tmp_path: Path) -> None:
    def odd(a: str) -> object:
        if a == "raises":
            raise ValueError("no such luck")
        if a == "exits":
            os._exit(7)
        return {"good": 1, "list": [1], "nameless": {3: 4}, "clash": {"seed": 1}, "axis": {"a": 1}}[a]

    every = ["good", "raises", "exits", "list", "nameless", "clash", "axis"]
    made = lab.sweep(odd, a=every, folder=tmp_path)
    assert list(made.table()["a"]) == ["good"]
    missing = {row["a"]: (row["kind"], row["message"], row["attempts"]) for row in made.missing()}
    assert missing == {
        "raises": ("error", "ValueError: no such luck", 1),
        "exits": ("exited", "the function ended its process, with exit status 7", 1),
        "list": (
            "error",
            "TypeError: the function returned [1]; it may return a number, a string, or a dict of these by name",
            1,
        ),
        "nameless": ("error", "TypeError: the function returned a value under 3, which is not a name", 1),
        "clash": ("value", "the function returned 'seed', which is a column of the table already", 1),
        "axis": ("value", "the function returned 'a', which is a column of the table already", 1),
    }
    [detail] = [row["detail"] for row in made.missing() if row["a"] == "raises"]
    assert 'raise ValueError("no such luck")' in str(detail)
    assert "missing, error: ValueError: no such luck: a=raises (repeat 0)" in made.text()
    assert not made.complete
    assert store.is_running(tmp_path) is False


def test_faults_of_the_machine_are_tried_again(tmp_path: Path) -> None:
    folder = str(tmp_path)

    def unlucky(a: str) -> int:
        with (Path(folder) / a).open("a") as file:
            file.write("x")
        turn = (Path(folder) / a).stat().st_size
        if a == "always" or (a == "twice" and turn < 3):
            os.kill(os.getpid(), signal.SIGKILL)
        if a == "full" and turn < 2:
            raise OSError(28, "No space left on device", "/data")
        if a == "slow" and turn < 2:
            time.sleep(60)
        return turn

    made = lab.sweep(unlucky, a=["always", "twice", "full", "slow", "well"], folder=tmp_path / "s", deadline_s=10)
    rows = {row["a"]: (row["value"], row["attempts"], row["retried"]) for row in made.table()}
    killed = "killed: the trial's process was killed by signal 9"
    assert rows == {
        "twice": (3, 3, f"{killed}; {killed}"),
        "full": (2, 2, "full disk: OSError: [Errno 28] No space left on device: '/data'"),
        "slow": (2, 2, "deadline: the trial ran past its deadline and was killed"),
        "well": (1, 1, ""),
    }
    [row] = made.missing().rows()
    assert (row["a"], row["kind"], row["attempts"]) == ("always", "killed", 3)


@pytest.mark.parametrize("name", ["scratch_directory", "artefacts.collected"])
def test_a_full_disk_beside_the_function_is_one_too(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = {"scratch_directory": host.scratch_directory, "artefacts.collected": artefacts.collected}[name]
    left = [OSError(errno.ENOSPC, "No space left on device"), MemoryError("none left")]

    def full(*arguments: Any) -> Any:
        if left:
            raise left.pop()
        return whole(*arguments)

    monkeypatch.setattr(f"sampleblk_lab.sweeps.host.{name}", full)
    [row] = lab.sweep(lambda a, directory: a, a=1, folder=tmp_path, workers=1).table()  # noqa: ARG005
    assert row["retried"] == "memory: MemoryError: none left; full disk: OSError: [Errno 28] No space left on device"


def test_what_a_trial_starts_goes_with_it(tmp_path: Path) -> None:
    def leaves(a: int) -> int:
        child = subprocess.Popen(["sleep", "60"])
        if a:
            time.sleep(60)
        return child.pid

    made = lab.sweep(leaves, a=[0], folder=tmp_path)
    [pid] = made.table()["value"]
    end = time.monotonic() + 20
    while Path(f"/proc/{pid}").exists() and time.monotonic() < end:
        time.sleep(0.05)
    assert not Path(f"/proc/{pid}").exists()


def test_processes_killed_at_random_lose_nothing(tmp_path: Path) -> None:
    """SIGKILL of the launcher and of trials, while 24 trials run."""
    pids = tmp_path / "pids"
    pids.mkdir()

    def works(a: int, b: int) -> int:
        (pids / str(os.getpid())).touch()
        time.sleep(0.1)
        return a * b

    killer = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import os, random, signal, sys, time, pathlib\n"
            "rng = random.Random(7); killed = 0; seen = set()\n"
            "while killed < 5:\n"
            "    names = [n for n in os.listdir(sys.argv[1]) if n not in seen]\n"
            "    if names:\n"
            "        name = rng.choice(names); seen.add(name)\n"
            "        stat = pathlib.Path(f'/proc/{name}/stat')\n"
            "        try:\n"
            "            target = int(name) if killed != 2 else int(stat.read_text().rpartition(')')[2].split()[1])\n"
            "            if target > 1: os.kill(target, signal.SIGKILL); killed += 1; print(target, flush=True)\n"
            "        except (OSError, ProcessLookupError): pass\n"
            "    time.sleep(0.02)\n",
            str(pids),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    made = lab.sweep(works, a=[1, 2, 3, 4], b=[1, 2, 3], repeat=2, retries=6, folder=tmp_path / "s", workers=3)
    said, _ = killer.communicate(timeout=60)
    assert len(said.split()) == 5
    assert made.complete, made
    table = made.table()
    assert Counter((row["a"], row["b"]) for row in table) == {(a, b): 2 for a in (1, 2, 3, 4) for b in (1, 2, 3)}
    assert len(set(table["key"])) == 24
    assert all(row["value"] == row["a"] * row["b"] for row in table)  # type: ignore[operator]
    assert sum(table["attempts"]) > 24
    outcomes, _ = store.read_journal(tmp_path / "s")
    assert Counter(one["key"] for one in outcomes if one["type"] == "done").most_common(1)[0][1] == 1


# Six trials: two end at once, and four wait for a file.
SCRIPT = """
import os, time
from pathlib import Path
import sampleblk_lab as lab

HERE = {here!r}

def slow(a):
    Path(HERE, "pids", f"{{a}} {{os.getpid()}}").touch()
    while a > 1 and not Path(HERE, "go").exists():
        time.sleep(0.05)
    return a

if __name__ == "__main__":
    made = lab.sweep(slow, a=[*range(6)], folder=Path(HERE, "s"), workers=3, deadline_s=None)
    print("interrupted" if made.interrupted else "ended", len(made.table()), flush=True)
"""


def _experiment(here: Path) -> subprocess.Popen[str]:
    script = here / "experiment.py"
    script.write_text(SCRIPT.format(here=str(here)))
    (here / "pids").mkdir(exist_ok=True)
    return subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True, start_new_session=True)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_sweep_ends_its_trials_and_goes_on(tmp_path: Path, how: signal.Signals) -> None:
    process, folder = _experiment(tmp_path), tmp_path / "s"

    def begun() -> dict[int, int]:
        return {int(a): int(pid) for a, pid in (path.name.split() for path in (tmp_path / "pids").iterdir())}

    # Until all three that run at a time are such that wait.
    end = time.monotonic() + 120
    while time.monotonic() < end and len([a for a in begun() if a > 1]) < 3:
        time.sleep(0.05)
    assert lab.open_sweep(folder).running
    done = sorted(a for a in begun() if a < 2)
    os.killpg(process.pid, how)  # as a terminal does
    said, _ = process.communicate(timeout=60)
    assert said.split() == (["interrupted", str(len(done))] if how == signal.SIGINT else [])
    while any(Path(f"/proc/{pid}").exists() for pid in begun().values()) and time.monotonic() < end:
        time.sleep(0.05)
    assert not [pid for pid in begun().values() if Path(f"/proc/{pid}").exists()]
    kept = lab.open_sweep(folder)
    assert not kept.running
    assert sorted(kept.table()["a"]) == done
    assert set(kept.missing()["kind"]) == {"not run"}
    # What is left of a line that was being written is no outcome.
    with (folder / "journal.jsonl").open("a") as file:
        file.write('{"type": "done", "key": "')
    assert sorted(kept.table()["a"]) == done
    (tmp_path / "go").touch()
    for path in (tmp_path / "pids").iterdir():
        path.unlink()
    again = _experiment(tmp_path)
    said, _ = again.communicate(timeout=120)
    assert said.split() == ["ended", "6"]
    assert sorted(begun()) == sorted({*range(6)} - {*done})
    assert sorted(lab.open_sweep(folder).table()["a"]) == [0, 1, 2, 3, 4, 5]


def test_any_executor_will_do(tmp_path: Path) -> None:
    def work(a: int) -> int:
        return a + 1

    with concurrent.futures.ThreadPoolExecutor(2) as threads:
        assert lab.sweep(work, a=[1, 2], client=threads, folder=tmp_path / "t").table()["value"].values.sum() == 5
    with concurrent.futures.ProcessPoolExecutor(2) as pool:
        assert lab.sweep(work, a=[1, 2], client=pool, folder=tmp_path / "p").table()["value"].values.sum() == 5
    # One that is broken, or closed, is no reason to lose what was done.
    closed = lab.sweep(work, a=[1, 2, 3], client=pool, folder=tmp_path / "p")
    assert len(closed.table()) == 2
    assert "shutdown" in closed.lost
    assert [row["kind"] for row in closed.missing()] == ["not run"]


def test_what_functools_cache_has_made_goes_along(tmp_path: Path) -> None:
    (tmp_path / "bench.py").write_text(
        "import functools\n"
        "@functools.lru_cache(maxsize=3, typed=True)\n"
        "def fib(n): return n if n < 2 else fib(n - 1) + fib(n - 2)\n"
        "def measured(a):\n"
        "    return {'fib': fib(20 + a), 'hits': fib.cache_info().hits, 'maxsize': fib.cache_info().maxsize}\n"
    )
    function = named("bench.py:measured", "a test", files_in=tmp_path)
    rows = lab.sweep(function, a=[1, 2], folder=tmp_path / "s").table().rows()
    assert {row["a"]: (row["fib"], row["hits"], row["maxsize"]) for row in rows} == {
        1: (10946, 19, 3),
        2: (17711, 20, 3),
    }


def test_two_sweeps_do_not_write_to_one_folder(tmp_path: Path) -> None:
    plan = store.Plan({}, ["a"], [])
    with store.Writer(tmp_path, plan), pytest.raises(lab.InputError, match="another sweep writes to"):
        lab.sweep(lambda a: a, a=[1], folder=tmp_path)


def takes(a: int, needed: int) -> int:
    return a + needed


async def asked_later(a: int) -> bool:
    return a > 5


@pytest.mark.parametrize(
    ("function", "options", "said"),
    [
        (3, {"a": [1]}, "3 is not a function"),
        (takes, {"a": [1]}, r"takes\(\) needs 'needed'"),
        (takes, {"a": [1], "needed": 1, "b": [1]}, r"takes\(\) has no parameter 'b' .expected axes among a, needed"),
        (lambda a: a, {"a": [1], "repeat": 0}, "repeat=0 .expected a whole number of 1 or more"),
        (lambda a: a, {"a": [1], "repeat": "2"}, "repeat='2'"),
        (lambda a: a, {"a": [1], "retries": -1}, "retries=-1"),
        (lambda a: a, {"a": [1], "deadline_s": 0}, "deadline_s=0 .expected seconds above 0, or None"),
        (lambda a: a, {"a": [1], "deadline_s": float("inf")}, "deadline_s=inf .expected seconds above 0, or None"),
        (lambda a: a, {"a": [1], "deadline_s": 1e10}, "deadline_s=10000000000.0 .*1,000,000,000 at most"),
        (lambda a: a, {"a": [1], "deadline_s": 10**400}, "deadline_s=1000"),
        (lambda a: a, {"a": [1], "exclusive": asked_later}, "exclusive returned a coroutine and has not run"),
        (lambda a: a, {"a": [1], "pairwise": 2}, "pairwise=2"),
        (lambda a: a, {"a": [1], "workers": 0}, "workers=0"),
        (lambda a: a, {"a": [1], "client": 3}, "client=3 .expected a distributed.Client"),
        (lambda a: a, {"a": [1], "vm": "yes"}, "vm='yes'"),
        (lambda a: a, {"a": [1], "vm": {"cpu": 2}}, "vm has cpu=2 .expected cpus, memory_mib"),
        (lambda a: a, {"a": [1], "vm": {"cpus": 0}}, "vm cpus=0 .expected 1 to 255"),
        (lambda a: a, {"a": [1], "kernel": ["6.1"], "vm": False}, "vm=False with an axis 'kernel'"),
        (lambda a: a, {"a": [1], "kernel": [6.1]}, "axis 'kernel' has the value 6.1 .expected names of kernels"),
        (lambda seconds: seconds, {"seconds": [1]}, "an axis named 'seconds', which is a column of every sweep"),
        (lambda a: a, {"a": [1], "where": lambda a: a > 1}, "no combination is left"),
    ],
)
def test_what_cannot_be_run_says_what_would_be_accepted(
    function: Any, options: dict[str, Any], said: str, tmp_path: Path
) -> None:
    with pytest.raises(lab.InputError, match=said) as caught:
        lab.sweep(function, folder=tmp_path / "s", **options)
    assert caught.value.expected
    assert not (tmp_path / "s").exists()


def test_a_comparison_is_with_a_value_of_the_axis(tmp_path: Path) -> None:
    made = lab.sweep(lambda a: a, a=[1, 2], folder=tmp_path)
    for before in (3, float("nan"), object()):
        with pytest.raises(lab.InputError, match="a has no value"):
            made.compare("a", before=before)


def test_comparisons_along_an_axis(tmp_path: Path) -> None:
    def measured(fs: str, bs: int, repeat: int) -> dict[str, float]:
        base = {"ext4": 10.0, "xfs": 20.0}[fs] * (1 + 0.001 * ((repeat * 7) % 5))
        return {"time": base if bs == 4 else 10.0 + 0.01 * ((repeat * 3) % 7), "other": 1.0}

    made = lab.sweep(measured, fs=["ext4", "xfs"], bs=[4, 16], repeat=8, folder=tmp_path)
    with pytest.raises(lab.InputError, match=r"metric is not given.*'time', 'other'"):
        made.compare("fs")
    rows = made.compare("fs", "time")
    # In the order of the axis's values, not of their text.
    assert [row.test for row in rows] == ["bs=4 fs=xfs", "bs=16 fs=xfs"]
    slower, same = rows
    assert (slower.verdict, same.verdict) == ("slower", "no difference shown")
    assert slower.comparison is not None
    assert slower.comparison.ratio.value == pytest.approx(2)
    assert "fs=xfs against fs=ext4: slower" in rows.text()
    assert [row.verdict for row in made.compare("fs", "time", better="higher")][:1] == ["faster"]
    [back, _] = made.compare("fs", "time", before="xfs")
    assert back.verdict == "faster"
    few = lab.sweep(measured, fs=["ext4", "xfs"], bs=4, repeat=5, folder=tmp_path).compare("fs", "time")
    assert few[0].refused == "5 repeats of fs=ext4 are done, fewer than 6"
    for arguments, said in (
        (("depth",), "'depth' is not an axis"),
        (("fs", "none"), "'none' is not a column of numbers"),
    ):
        with pytest.raises(lab.InputError, match=said):
            made.compare(*arguments)
    with pytest.raises(lab.InputError, match="fs has no value 'btrfs'"):
        made.compare("fs", "time", before="btrfs")


def test_a_comparison_says_which_repeats_are_missing(tmp_path: Path) -> None:
    """What is left may be the fast ones."""

    def measured(fs: str, repeat: int) -> float:
        if fs == "xfs" and repeat >= 7:
            raise RuntimeError("too slow")
        return {"ext4": 10.0, "xfs": 20.0}[fs] + 0.01 * repeat

    made = lab.sweep(measured, fs=["ext4", "xfs"], repeat=9, folder=tmp_path)
    [row] = made.compare("fs")
    assert row.comparison is not None
    assert row.comparison.notes == ("2 repeats are missing (2 error) of fs=xfs",)
    assert "2 repeats are missing (2 error) of fs=xfs" in made.report(tmp_path / "page.html").read_text()


def test_a_comparison_says_that_a_trial_returned_no_number(tmp_path: Path) -> None:
    def measured(fs: str, repeat: int) -> dict[str, float | None]:
        return {"time": None if fs == "xfs" and repeat == 3 else 10.0 + repeat}

    [row] = lab.sweep(measured, fs=["ext4", "xfs"], repeat=7, folder=tmp_path).compare("fs")
    assert row.refused == "some trials did not return a number as 'time'"


def test_a_comparison_says_that_one_side_ran_alone(tmp_path: Path) -> None:
    made = lab.sweep(
        lambda a, repeat: a + repeat / 100, a=[1, 2], repeat=6, exclusive=lambda a: a == 2, folder=tmp_path
    )
    [row] = made.compare("a")
    assert row.comparison is not None
    assert row.comparison.notes == (
        "the repeats of a=1 may have had others beside them; the repeats of a=2 had their hosts to themselves",
    )


def test_unlike_hosts_are_not_compared(tmp_path: Path) -> None:
    made = lab.sweep(lambda a, repeat: 1.0 + a + repeat / 100, a=[1, 2], repeat=6, folder=tmp_path)
    path = tmp_path / "journal.jsonl"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0].replace('"host_cpus": ', '"host_cpus": 1'), *lines[1:]]) + "\n")
    (tmp_path / "results.parquet").unlink()
    [row] = made.compare("a")
    assert row.refused.startswith("the machine differs (")
    [row] = made.compare("a", across=["machine"])
    assert row.verdict == "slower"


def test_a_damaged_journal_is_named(tmp_path: Path) -> None:
    made = lab.sweep(lambda a: a, a=[1, 2], folder=tmp_path)
    path = tmp_path / "journal.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + b"rubbish\n" + lines[1])
    (tmp_path / "results.parquet").unlink()
    with pytest.raises(lab.FormatError, match=f"journal.jsonl: at byte {len(lines[0])}: expected an outcome"):
        made.table()
    whole = json.loads(lines[0])
    for wrong in (
        {"type": "other"},
        {"facts": []},
        {"values": {"a": [1]}},
        {"seconds": "1"},
        {"retried": "none"},
        {"trial": {"revision": 1, "parameters": {}, "repeat": 0}},
        {"trial": {"revision": "1", "parameters": {"a": float("nan")}, "repeat": 0}},
        {"trial": None},
        {"facts": {}},
        {"facts": {**whole["facts"], "host_memory_mib": 1.5}},
        {"facts": {**whole["facts"], "release": None}},
        {"facts": {**whole["facts"], "started_ns": None}},
        {"type": "failed", "kind": 3, "message": "", "detail": ""},
    ):
        path.write_text(json.dumps({**whole, **wrong}) + "\n")
        with pytest.raises(lab.FormatError, match="expected an outcome of a trial"):
            made.table()
    # The journal is what counts.
    path.write_bytes(b"".join(lines))
    (tmp_path / "results.parquet").write_bytes(b"")
    assert len(made.table()) == 2
    lab.sweep(lambda a: a, a=[1, 2], folder=tmp_path)
    path.write_bytes(lines[0])
    assert len(made.table()) == 1
    path.unlink()
    assert len(made.table()) == 0
    with pytest.raises(lab.InputError, match="there is no sweep in"):
        lab.open_sweep(tmp_path / "none")
    for text, said in (
        ("[1", "JSON"),
        ("[]", "a sweep of format 1"),
        ('{"format": 2}', "a sweep of format 1"),
        ('{"format": 1, "axes": ["a"]}', "axes, identity and count of a sweep"),
        ('{"format": 1, "axes": ["a"], "identity": "x", "count": 1}\n[3]', "the trials of a sweep in its second line"),
    ):
        (tmp_path / "plan.jsonl").write_text(text)
        with pytest.raises(lab.FormatError, match=f"expected {said}"):
            assert lab.open_sweep(tmp_path).plan.trials


def test_a_plan_whose_trials_are_others_is_refused(tmp_path: Path) -> None:
    made = lab.sweep(lambda a: a, a=[1, 2], folder=tmp_path)
    path = tmp_path / "plan.jsonl"
    first, second = path.read_text().splitlines()
    one, two = json.loads(second)
    for rows in ([one], [two, one], [one, two, two], [one, one]):
        path.write_text(f"{first}\n{json.dumps(rows)}\n")
        with pytest.raises(lab.FormatError, match="expected the trials of a sweep in its second line"):
            assert lab.open_sweep(tmp_path).plan.trials
    key, _, *rest = one
    for row in ([key, [float("inf")], *rest], [key, [1], None, *rest[1:]], [key, [1], *rest[:-1], None]):
        path.write_text(f"{first}\n{json.dumps([row, two])}\n")
        with pytest.raises(lab.FormatError, match="expected the trials of a sweep in its second line"):
            assert lab.open_sweep(tmp_path).plan.trials
    for about in (
        {"axes": ["a", "a"]},
        {"axes": ["\udcff"]},
        {"values": {"a": [1, 1]}},
        {"values": []},
        {"values": {"a": 1}},
        {"repeat": "6"},
        {"choose": "all"},
    ):
        path.write_text(f"{json.dumps({**json.loads(first), **about})}\n{second}\n")
        with pytest.raises(
            lab.FormatError, match=r"plan.jsonl: at byte 0: expected (axes|what a sweep was called with)"
        ):
            lab.open_sweep(tmp_path)
    path.write_text(f"{first}\n{second}\n")
    assert lab.open_sweep(tmp_path).plan.trials == made.plan.trials


def test_a_full_disk_leaves_the_journal_as_it_was(tmp_path: Path) -> None:
    trials = [lab.sweep(lambda a: a, a=[1, 2], folder=tmp_path / "s").plan.trials]
    plan = store.Plan({}, ["a"], trials[0])
    with store.Writer(tmp_path / "t", plan) as writer:
        record = {
            "type": "done",
            "key": trials[0][0].key,
            "values": {},
            "seconds": 1,
            "facts": dict.fromkeys(("host", "host_cpu", "release", "accelerator"), "")
            | {"host_cpus": 1, "host_memory_mib": 1},
            "attempts": 1,
            "retried": [],
        }
        with files_of_at_most(10), pytest.raises(OSError, match=r"File too large: .*/journal.jsonl"):
            writer.add(record)
        assert (tmp_path / "t/journal.jsonl").read_bytes() == b""
        assert writer.add(record)
        assert not writer.add(record)
    assert len(store.read_journal(tmp_path / "t")[0]) == 1


def test_workers_are_as_many_as_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(place.os, "sched_getaffinity", lambda _: set(range(16)))
    shape = running_shape(cpus=4, memory_mib=256)
    assert place.local_workers(None) == 16
    assert place.local_workers(shape) <= 4
    assert place.local_workers(running_shape(cpus=2, memory_mib=10**9)) == 1


def running_shape(**values: Any) -> Any:
    from sampleblk_lab.sweeps.trial import Shape

    return Shape(**values)


def test_importing_the_package_imports_nothing_of_it() -> None:
    code = (
        "import sys, sampleblk_lab; sampleblk_lab.__dir__()\n"
        "print([name for name in sys.modules if name.startswith(('sampleblk_lab.sweeps', 'pyarrow', 'distributed'))])\n"
        "from sampleblk_lab.sweeps import api\n"
        "print([name for name in sys.modules if name in ('pyarrow', 'distributed', 'dask')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == ["[]", "[]"]


def test_without_the_extra_it_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(lab.UnsupportedError, match=r"pyarrow is not installed; pip install 'sampleblk-lab\[sweep\]'"):
        lab.sweep(lambda a: a, a=[1], folder=tmp_path)
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(
        lab.UnsupportedError, match=r"distributed is not installed; pip install 'sampleblk-lab\[sweep\]'"
    ):
        lab.sweep(lambda a: a, a=[1], client="tcp://127.0.0.1:1", folder=tmp_path)


def test_a_program_that_swept_ends_without_a_word(tmp_path: Path) -> None:
    """What its trials are forked from was still running when the interpreter was taken down."""
    script = tmp_path / "swept.py"
    script.write_text(
        "import sampleblk_lab as lab\n"
        "def double(a):\n    return {'b': 2 * a}\n"
        "print(len(lab.sweep(double, a=[1, 2], folder='sweep')))\n"
    )
    command = [sys.executable, "-X", "dev", script]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=60)
    assert (done.returncode, done.stdout) == (0, "2\n")
    assert "Warning" not in done.stderr, done.stderr
