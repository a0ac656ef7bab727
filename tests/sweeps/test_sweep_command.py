# SPDX-License-Identifier: MIT
"""``sampleblk-lab sweep``: sweeps as TOML files."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import sampleblk_lab as lab
from sampleblk_lab.cli import main
from sampleblk_lab.sweeps import choice, file, processes

CODE = """
import beside

def work(fs, bs, repeat):
    if fs == "bad":
        raise ValueError("no such file system")
    return {"time": beside.BASE[fs] + bs + repeat / 1000, "rate": 1.0}

def small(bs):
    return bs < 64

number = 3
"""

FILE = """
function = "experiment.py:work"
where = "experiment.py:small"
repeat = 6
workers = 2

[axes]
fs = ["ext4", "xfs"]
bs = [4, 8, 64]

[[exclude]]
fs = "xfs"
bs = [8]
"""


@pytest.fixture
def sweep_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "experiment.py").write_text(CODE)
    (tmp_path / "beside.py").write_text("BASE = {'ext4': 10.0, 'xfs': 20.0}\n")
    (tmp_path / "sweep.toml").write_text(FILE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "beside", raising=False)
    yield tmp_path / "sweep.toml"
    monkeypatch.delitem(sys.modules, "beside", raising=False)
    processes.close()


def test_run_status_show_and_resume(sweep_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(sweep_file)
    assert main(["sweep", "resume", path]) == 2
    assert "there is no sweep in" in capsys.readouterr().err
    assert main(["sweep", "run", path, "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert "18 trials: 3 combinations, 6 times each\n0 are done, 18 would be run" in said
    assert main(["sweep", "run", path, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["trials"], told["done"], told["missing"]) == (18, 18, {})
    assert (sweep_file.parent / "runs/sweeps/sweep/results.parquet").exists()
    assert main(["sweep", "status", path]) == 0
    assert "18 of 18 trials done" in capsys.readouterr().out
    assert main(["sweep", "run", path, "--dry-run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["done"] == 18
    assert main(["sweep", "show", path, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {(row["fs"], row["bs"]) for row in rows} == {("ext4", 4), ("ext4", 8), ("xfs", 4)}
    assert main(["sweep", "show", path, "--files"]) == 0
    assert "no trial has left a file" in capsys.readouterr().out
    page = sweep_file.parent / "page.html"
    assert main(["sweep", "show", path, "--html", str(page), "--metric", "time"]) == 0
    assert str(page) in capsys.readouterr().out
    assert "<h2>Matrix: time</h2>" in page.read_text()
    with pytest.raises(SystemExit, match="2"):  # one of them would be passed over
        main(["sweep", "show", path, "--compare", "fs", "--html", str(page)])
    capsys.readouterr()
    assert main(["sweep", "show", path]) == 0
    assert "(18 rows)" in capsys.readouterr().out or len(rows) == 18
    assert main(["sweep", "show", path, "--compare", "fs", "--metric", "time", "--json"]) == 0
    compared = {row["test"]: row for row in json.loads(capsys.readouterr().out)}
    assert compared["bs=4 fs=xfs"]["verdict"] == "slower"
    assert compared["bs=8 fs=xfs"]["verdict"] is None if "bs=8 fs=xfs" in compared else True
    assert main(["sweep", "show", path, "--compare", "fs", "--metric", "time"]) == 0
    assert "fs=xfs against fs=ext4: slower: ratio 1.7" in capsys.readouterr().out
    assert main(["sweep", "show", path, "--missing"]) == 0
    assert "nothing is missing" in capsys.readouterr().out
    assert main(["sweep", "resume", path, "--quiet"]) == 0


def test_what_fails_is_told_by_the_status(sweep_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sweep_file.write_text(FILE.replace('"ext4", "xfs"', '"ext4", "bad", "xfs"').replace("repeat = 6", "repeat = 1"))
    assert main(["sweep", "run", str(sweep_file)]) == 1
    said = capsys.readouterr().out
    assert "3 of 5 trials done" in said
    assert "missing, error: ValueError: no such file system: fs=bad" in said
    assert main(["sweep", "show", str(sweep_file), "--missing", "--json"]) == 0
    assert {row["fs"] for row in json.loads(capsys.readouterr().out)} == {"bad"}
    # Code that is mended: only its own trials count as done.
    experiment = sweep_file.parent / "experiment.py"
    experiment.write_text(CODE.replace('raise ValueError("no such file system")', "fs = 'ext4'"))
    assert main(["sweep", "run", str(sweep_file)]) == 0


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("repeat = 6", "repeats = 6", "unknown key 'repeats' (expected function, where, repeat"),
        ("repeat = 6", "repeat = '6'", "repeat = '6' (expected a whole number of 1 or more)"),
        ("repeat = 6", "repeat = true", "repeat = True (expected a whole number"),
        ("repeat = 6", "repeat = 0", "repeat=0 (expected a whole number of 1 or more)"),
        ("repeat = 6", "repeat 6", "not TOML: "),
        ("repeat = 6", "exclude = [3]", "exclude"),
        ('function = "experiment.py:work"', "", "function is missing"),
        ("experiment.py:work", "experiment.py:none", "has no attribute 'none'"),
        ("experiment.py:work", "experiment.py:number", "'experiment.py:number' is not a function"),
        ("experiment.py:work", "nowhere.py:work", "nowhere.py does not exist"),
        ("experiment.py:work", "no_such_module:work", "No module named 'no_such_module'"),
        ("experiment.py:work", "experiment.py", "'experiment.py' is not the name of a function"),
        ("experiment.py:work", "experiment.py:small", "small() has no parameter 'fs'"),
        ("bs = [8]", "bs = [9]", "sweep.toml: exclude[0]: bs=9 is not a value of that axis (expected 4, 8, 64)"),
        ("workers = 2", "vm = 'yes'", "vm = 'yes'"),
        ("workers = 2", "exclusive = 3", "exclusive = 3 (expected true, false, 'FILE.py:FUNCTION'"),
        ("workers = 2", "exclusive = 'experiment.py:work'", "exclusive names 'repeat', which is not an axis"),
        ("workers = 2", "choose = 3", "choose = 3 (expected a table with combinations"),
        ("workers = 2", "choose = {count = 3}", "unknown key 'count' (expected combinations, minimize"),
        ("workers = 2", "choose = {minimize = 'x'}", "choose has no combinations"),
        ("workers = 2", "choose = {combinations = 3, batch = 2}", "nothing to minimize or maximize"),
        ("workers = 2", "choose = {combinations = '3'}", "combinations='3' (expected a whole number of 1 or more)"),
        ("workers = 2", "workers = 0", "workers=0 (expected a whole number of 1 or more)"),
    ],
)
def test_a_file_that_cannot_be_says_what_would_be_accepted(
    sweep_file: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, said: str
) -> None:
    assert FILE.count(old) == 1
    sweep_file.write_text(FILE.replace(old, new))
    assert main(["sweep", "run", str(sweep_file)]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert "expected" in err or "TOML" in err


@pytest.mark.parametrize("more", [[], ["--dry-run"]])
def test_no_workers_are_refused(more: list[str], sweep_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", "run", str(sweep_file), "--workers", "0", *more]) == 2
    assert "workers=0 (expected a whole number of 1 or more)" in capsys.readouterr().err


def test_a_file_can_have_combinations_chosen(sweep_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sweep_file.write_text(FILE.replace("workers = 2", "choose = {combinations = 2}"))
    assert main(["sweep", "run", str(sweep_file), "--dry-run"]) == 0
    assert "12 trials: 2 combinations, 6 times each" in capsys.readouterr().out
    sweep_file.write_text(FILE.replace("workers = 2", "choose = {combinations = 2, minimize = 'time', batch = 1}"))
    assert main(["sweep", "run", str(sweep_file), "--dry-run", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["trials"], len(told["combinations"]), told["unchosen"]) == (12, 1, 1)
    assert main(["sweep", "run", str(sweep_file), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["trials"], told["done"], told["growing"]) == (12, 12, False)
    sweep_file.write_text(FILE.replace("workers = 2", "choose = {combinations = 2, minimize = 'tame'}"))
    assert main(["sweep", "run", str(sweep_file)]) == 2
    assert "no trial has returned 'tame'" in capsys.readouterr().err


def test_every_key_is_in_the_reference() -> None:
    page = (Path(__file__).parents[2] / "docs/reference/sweep.md").read_text()
    assert [key for key in (*file.KEYS, *choice.KEYS) if f"`{key}`" not in page] == []


def test_the_file_of_the_reference_is_one(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs/reference/sweep.md").read_text()
    [text] = [block.partition("```")[0] for block in page.split("```toml\n")[1:]]
    (tmp_path / "write.py").write_text("def speed(fs, bs, seed): pass\ndef fits(fs, bs): return True\n")
    (tmp_path / "write.toml").write_text(text)
    made = file.load(tmp_path / "write.toml")
    assert made.spec.shape is not None
    assert len(made.spec.build(download=False).plan) > 1
    (tmp_path / "write.py").write_text("def speed(seed): pass\ndef fits(fs, bs): return True\n")
    with pytest.raises(lab.InputError, match="no parameter"):
        file.load(tmp_path / "write.toml")
