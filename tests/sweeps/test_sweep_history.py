# SPDX-License-Identifier: MIT
"""One sweep over the revisions of what it measures."""

from __future__ import annotations

import json
import math
import statistics
import subprocess
from pathlib import Path
from typing import Any

import pytest

import sampleblk_lab as lab
from sampleblk_lab.cli.main import main
from sampleblk_lab.functions import named

CODE = """
SPEED = {speed}

def measured(fs, repeat):
    base = {{"ext4": 10.0, "xfs": 20.0}}[fs] * SPEED
    return {{"time": base * (1 + 0.001 * ((repeat * 7) % 5)), "note": fs}}
"""


def _git(folder: Path, *words: str) -> str:
    command = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@b", *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository whose function has other speeds at each of four commits; the last one is like the third."""
    folder = tmp_path / "project"
    folder.mkdir()
    _git(folder, "init", "-q")
    for number, speed in enumerate((1.0, 1.0, 2.0, 2.0)):
        (folder / "bench.py").write_text(CODE.format(speed=speed) + f"# {number}\n")
        _git(folder, "add", "bench.py")
        _git(folder, "commit", "-qm", f"{number}")
    return folder


def _function(folder: Path) -> Any:
    return named("bench.py:measured", "a test", files_in=folder)


def _commits(folder: Path) -> list[str]:
    return _git(folder, "log", "--reverse", "--format=%h", "--abbrev=12").split()


def test_each_commit_has_trials_of_its_own(project: Path, tmp_path: Path) -> None:
    made = None
    for commit in _commits(project):
        _git(project, "checkout", "-q", commit)
        asked: dict[str, Any] = {"fs": ["ext4", "xfs"], "repeat": 7, "revision": "git", "folder": tmp_path / "s"}
        assert lab.sweep(_function(project), dry_run=True, **asked).done == 0
        made = lab.sweep(_function(project), progress=False, **asked)
        assert made.complete
        assert lab.sweep(_function(project), dry_run=True, **asked).done == 14
    assert made is not None
    found = made.history("time")
    assert found.revisions == _commits(project)
    rows = list(found.table())
    assert [(row["fs"], row["revision"]) for row in rows if row["fs"] == "ext4"] == [
        ("ext4", commit) for commit in _commits(project)
    ]
    for row in rows:
        # The same numbers, made by hand.
        speed = 2.0 if row["revision"] in _commits(project)[2:] else 1.0
        base = {"ext4": 10.0, "xfs": 20.0}[row["fs"]] * speed
        median = statistics.median(base * (1 + 0.001 * ((repeat * 7) % 5)) for repeat in range(7))
        assert row["median"] == pytest.approx(median)
        assert row["low"] <= row["median"] <= row["high"]
        assert row["repeats"] == 7
    by_commit = [row["verdict"] for row in rows if row["fs"] == "xfs"]
    assert by_commit == ["", "no difference shown", "slower", "no difference shown"]
    assert math.isnan(rows[0]["ratio"])
    assert [(row["fs"], row["revision"]) for row in found.changes()] == [
        (fs, _commits(project)[2]) for fs in ("ext4", "xfs")
    ]
    assert next(iter(found.changes()))["ratio"] == pytest.approx(2, rel=0.01)
    # The interval is of the confidence that was asked for.
    narrow = made.history("time", confidence=0.6).table()
    for row, less in zip(rows, narrow, strict=True):
        assert row["low"] < less["low"] < less["high"] < row["high"]
    with pytest.raises(lab.InputError, match="confidence=98"):
        made.history("time", confidence=98)
    better = made.history("time", better="higher").changes()
    assert list(better["verdict"]) == ["faster", "faster"]
    # What an earlier commit has measured is still done there.
    _git(project, "checkout", "-q", _commits(project)[0])
    again = {"fs": ["ext4", "xfs"], "repeat": 7, "revision": "git", "folder": tmp_path / "s"}
    assert lab.sweep(_function(project), dry_run=True, **again).done == 14


def test_it_is_drawn_and_on_the_page(project: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    function = _function(project)
    for revision in ("one", "two"):
        made = lab.sweep(
            function, fs=["ext4", "xfs"], repeat=2, revision=revision, folder=tmp_path / "s", progress=False
        )
    svg = made.history("time").plot().svg()
    assert "<!-- one -->" in svg
    assert "<!-- two -->" in svg
    page = made.report(tmp_path / "page.html", "time").read_text()
    assert "Over revisions: time" in page
    assert "2 repeats of revision one are done, fewer than 6" in page


def test_what_has_no_revision_says_so(project: Path, tmp_path: Path) -> None:
    function = _function(project)
    made = lab.sweep(function, fs=["ext4"], folder=tmp_path / "s", progress=False)
    with pytest.raises(lab.InputError, match="was run with a revision"):
        made.history("time")
    with pytest.raises(lab.InputError, match=r"revision=''") as caught:
        lab.sweep(function, fs=["ext4"], folder=tmp_path / "s", revision="")
    assert "git" in str(caught.value.expected)
    made = lab.sweep(function, fs=["ext4"], folder=tmp_path / "s", revision="one", progress=False)
    with pytest.raises(lab.InputError, match="not a column of numbers"):
        made.history("note")
    # What was measured without a revision is no part of it.
    assert len(made.history("time").table()) == 1


def test_a_commit_is_one_only_of_a_clean_tree(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    function = _function(project)
    commits = _commits(project)
    (project / "bench.py").write_text("changed = 1\n")
    with pytest.raises(lab.InputError, match=r"has changes that are not committed, such as bench\.py"):
        lab.sweep(function, fs=["ext4"], folder=tmp_path / "s", revision="git")
    _git(project, "checkout", "-q", "bench.py")
    (project / "untracked").touch()
    _git(tmp_path, "init", "-q", "other")
    # As in a hook of another repository's.
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "other/.git"))
    made = lab.sweep(function, fs=["ext4"], folder=tmp_path / "s", revision="git", progress=False)
    assert made.history("time").revisions == commits[-1:]
    monkeypatch.delenv("GIT_DIR")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "bench.py").write_text(CODE.format(speed=1))
    alone = _function(tmp_path / "elsewhere")
    with pytest.raises(lab.InputError, match="no commit of the function's file: fatal: not a git repository"):
        lab.sweep(alone, fs=["ext4"], folder=tmp_path / "t", revision="git")


def test_a_change_anywhere_in_the_tree_is_one(project: Path, tmp_path: Path) -> None:
    (project / "below").mkdir()
    (project / "below/bench.py").write_text(CODE.format(speed=1))
    _git(project, "add", "below")
    _git(project, "commit", "-qm", "below")
    _git(project, "config", "diff.relative", "true")
    (project / "bench.py").write_text("changed = 1\n")
    with pytest.raises(lab.InputError, match=r"has changes that are not committed, such as bench\.py"):
        lab.sweep(_function(project / "below"), fs=["ext4"], folder=tmp_path / "s", revision="git")


def test_from_the_command_line(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = project / "bench.toml"
    file.write_text('function = "bench.py:measured"\nfolder = "out"\n[axes]\nfs = ["ext4"]\n')
    for revision in ("before", "after"):
        assert main(["sweep", "run", str(file), "--quiet", "--revision", revision]) == 0
    capsys.readouterr()
    assert main(["sweep", "show", str(file), "--history", "--metric", "time", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    rows = told["rows"] if isinstance(told, dict) else told
    assert [row["revision"] for row in rows] == ["before", "after"]


def _revision(folder: Path, speed: float, revision: str = "one") -> Any:
    def measured(a: int, repeat: int) -> float:
        return a * speed * (1 + 0.001 * repeat)

    return lab.sweep(measured, a=[1, 2], repeat=6, revision=revision, folder=folder, progress=False)


def test_two_codes_of_one_revision_are_not_mixed(tmp_path: Path) -> None:
    folder = tmp_path / "s"
    for speed, superseded in ((1.0, None), (10.0, "12"), (1.0, "12")):  # the last one is done already
        found = _revision(folder, speed).history().table()
        assert [row["repeats"] for row in found] == [6, 6]
        assert [row["median"] for row in found] == pytest.approx([speed * 1.0025, 2 * speed * 1.0025])
        assert found.metadata.get("superseded") == superseded
    found = _revision(folder, 5.0, "two").history().table()
    # Of a revision that the plan has no more, what was measured last.
    assert [(row["revision"], round(row["median"])) for row in found if row["a"] == 1] == [("one", 10), ("two", 5)]


def test_a_clock_that_was_set_back_does_not_reorder_revisions(tmp_path: Path) -> None:
    folder = tmp_path / "s"
    for revision in ("one", "two"):
        made = _revision(folder, 1.0, revision)
    lines = [json.loads(line) for line in (folder / "journal.jsonl").read_text().splitlines()]
    for line in lines:
        if line["trial"]["revision"] == "two":
            line["facts"]["started_ns"] -= 10**13
    (folder / "journal.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert made.history().revisions == ["one", "two"]


def test_axes_may_be_called_as_the_columns_are(tmp_path: Path) -> None:
    axes: dict[str, Any] = {"low": [1, 2], "low_": [5], "verdict": ["x"], "ratio": [3]}
    for name, speed in (("one", 1), ("two", 2)):

        def timed(repeat: int, speed: int = speed, **axes: Any) -> float:
            return float(speed * axes["low"] * (1 + 0.001 * repeat))

        made = lab.sweep(timed, repeat=6, revision=name, folder=tmp_path / "s", progress=False, **axes)
    table = made.history().table()
    assert list(table["low"]) == [1, 1, 2, 2]
    assert all(row["low__"] <= row["median"] <= row["high"] for row in table)
    assert set(table["verdict"]) == {"x"}
    assert list(made.history().changes()["verdict_"]) == ["slower", "slower"]
    assert "Revisions: value" in made.report(tmp_path / "page.html").read_text()


def test_the_order_of_the_axes_is_none_of_the_revision_s(tmp_path: Path) -> None:
    def measured(a: int, b: int = 1, c: int = 1) -> float:
        return 10.0 * a + b + c

    lab.sweep(measured, a=[1, 2], b=[3, 4], revision="r1", folder=tmp_path)
    made = lab.sweep(measured, b=[3, 4], a=[1, 2], revision="r2", folder=tmp_path)
    history = made.history()
    assert history.revisions == ["r1", "r2"]
    assert list(zip(history.table()["a"], history.table()["b"], strict=True))[::2] == [(1, 3), (2, 3), (1, 4), (2, 4)]
    # Revisions that were measured with other axes are counted.
    history = lab.sweep(measured, a=[1, 2], c=[3], revision="r3", folder=tmp_path).history()
    assert history.revisions == ["r3"]
    assert history.table().metadata["other_axes"] == "8"
    made = lab.sweep(measured, a=[1, 2], c=[3], revision="r4", folder=tmp_path)
    assert "8 outcomes are of revisions that were measured with other axes" in made.report(
        tmp_path / "page.html"
    ).read_text(encoding="utf-8")


def test_an_int_that_no_table_has_as_a_number_is_none(tmp_path: Path) -> None:
    def returns(a: int) -> dict[str, Any]:
        return {"x": a + 0.5, "big": 10**400 if a == 1 else 2}

    made = lab.sweep(returns, a=[1, 2], revision="one", folder=tmp_path)
    assert made.metrics() == ["x"]
    assert made.history("x").table()["median"].values.tolist() == [1.5, 2.5]
    assert math.isnan(made.history("big").table()["median"].values[0])
