# SPDX-License-Identifier: MIT
"""The user's checkout is only read; what is built of it is known by its content, and what it needs is told."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sampleblk_lab.cli import main
from sampleblk_lab.errors import FormatError, InputError, UnsupportedError
from sampleblk_lab.suites import SUITES, checkout, packages
from sampleblk_lab.suites.checkout import SuiteBuildError
from sampleblk_lab.suites.folder import Folder, Plan
from sampleblk_lab.suites.suite import Setup
from sampleblk_lab.sweeps.trial import Shape

XFSTESTS = SUITES["xfstests"]
ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _everything_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "check", lambda _: [])


@pytest.mark.usefixtures("cache")
def test_a_build_is_known_by_the_content_of_the_checkout(miniature: Path) -> None:
    first = checkout.build(XFSTESTS, miniature)
    assert (first.folder / "src/program").stat().st_mode & 0o777 == 0o755
    assert [test.name for test in XFSTESTS.tests(first.folder, "ext4")][:2] == ["generic/001", "generic/002"]
    assert not (miniature / "src/program").exists()
    assert not first.commit.endswith("-dirty")
    # Neither the time of a file nor what git ignores is a part of it; nothing is built again.
    os.utime(miniature / "check")
    (miniature / "ignored").write_text("x")
    made = (first.folder / "src/program").stat().st_mtime_ns
    again = checkout.build(XFSTESTS, miniature)
    assert (again.folder, (again.folder / "src/program").stat().st_mtime_ns) == (first.folder, made)
    # A changed file is, and a new one, and who may execute one.
    folders = {first.folder}
    (miniature / "tests/generic/001").write_text("changed\n")
    folders.add((changed := checkout.build(XFSTESTS, miniature)).folder)
    assert changed.commit.endswith("-dirty")
    assert (changed.folder / "tests/generic/001").read_text() == "changed\n"
    (miniature / "tests/generic/new").write_text("new\n")
    folders.add(checkout.build(XFSTESTS, miniature).folder)
    (miniature / "tests/generic/new").chmod(0o755)
    folders.add(checkout.build(XFSTESTS, miniature).folder)
    assert len(folders) == 4
    # What nobody has used for a week goes with the next build.
    os.utime(first.folder, (0, 0))
    (miniature / "tests/generic/new").write_text("newer\n")
    checkout.build(XFSTESTS, miniature)
    assert [folder for folder in folders if not folder.exists()] == [first.folder]


def test_a_checkout_is_not_taken_for_the_repository_whose_git_runs_us(
    miniature: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Git's hooks, and rebase --exec in a worktree, have these in their environment."""
    names = checkout.files(miniature)
    other = tmp_path / "other"
    subprocess.run(["git", "init", "-q", str(other)], check=True)
    (other / "check").touch()
    subprocess.run(["git", "-C", str(other), "add", "check"], check=True)
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(other))
    assert checkout.files(miniature) == names
    monkeypatch.delenv("GIT_DIR")
    monkeypatch.delenv("GIT_WORK_TREE")
    monkeypatch.setenv("GIT_INDEX_FILE", str(other / ".git/index"))
    assert checkout.files(miniature) == names


@pytest.mark.usefixtures("cache")
def test_a_checkout_that_does_not_build_is_told_with_what_make_said(miniature: Path, cache: Path) -> None:
    (miniature / "Makefile").write_text("default:\n\t@echo no such header; false\n")
    with pytest.raises(SuiteBuildError, match="no such header") as raised:
        checkout.build(XFSTESTS, miniature)
    log = cache / "suites/xfstests-build.log"
    assert str(log) in str(raised.value)
    assert "no such header" in log.read_text()
    assert [path for path in (cache / "suites").iterdir() if path.is_dir()] == []


def test_a_folder_without_git_is_taken_whole(miniature: Path) -> None:
    listed = checkout.files(miniature)
    (miniature / ".git").rename(miniature.with_name("git"))
    assert checkout.files(miniature) == listed


def test_a_checkout_is_named_by_option_or_variable(
    miniature: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SAMPLEBLK_XFSTESTS", raising=False)
    with pytest.raises(InputError, match=r"SAMPLEBLK_XFSTESTS: git clone https://git\.kernel\.org"):
        checkout.find(XFSTESTS, None)
    assert checkout.find(XFSTESTS, miniature) == miniature
    monkeypatch.setenv("SAMPLEBLK_XFSTESTS", str(tmp_path))
    with pytest.raises(InputError, match=r"SAMPLEBLK_XFSTESTS: .* has no check"):
        checkout.find(XFSTESTS, None)


@pytest.mark.usefixtures("cache")
def test_what_tests_ask_for_and_what_is_lacking(miniature: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (miniature / "tests/generic/001").write_text(
        '_require_scratch\n_require_command "$NONE_PROG" none\n_require_dm_target flakey\n'
    )
    folder = checkout.build(XFSTESTS, miniature).folder
    test = XFSTESTS.tests(folder, "ext4")[0]
    assert [each.text for each in test.requires] == ["scratch", 'command "$NONE_PROG" none', "dm_target flakey"]
    assert test.groups == ("auto", "quick")
    assert test.lacks({"CONFIG_DM_FLAKEY": "m"}) == ["program no-such-program"]
    assert test.lacks({}) == ["program no-such-program", "kernel option CONFIG_DM_FLAKEY"]
    assert test.lacks(None) == ["program no-such-program"]
    # Options that cannot be are told at once.
    assert main(["xfstests", "--checkout", str(miniature), "--fs", "ntfs", "generic/001"]) == 2
    assert "--fs 'ntfs' (expected ext2" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("asked", "capacity_bytes", "cpus"),
    [([], 4 << 30, 3), (["--capacity", "2G"], 2 << 30, 3), (["--cpus", "1"], 4 << 30, 1)],
)
def test_a_run_that_goes_on_takes_what_is_not_asked_for_from_before(
    asked: list[str], capacity_bytes: int, cpus: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where what is asked for is the default: that is another run, and refused as such."""
    setup = Setup(fs="xfs", capacity_bytes=4 << 30)
    machine = {"cpus": 3, "memory_mib": 512, "accel": "tcg", "release": "6.1"}
    plan = Plan("xfstests", "", "", "6.1", machine, setup, 7.0, ("generic/001",))
    (tmp_path / "suite.json").write_text(json.dumps(plan.json()))
    seen: list[Any] = []

    def prepare(_suite: str, _selection: object, *made: object, **named: object) -> None:
        seen.extend([*made, named["shape"], named["deadline_s"]])
        raise InputError("enough")

    monkeypatch.setattr("sampleblk_lab.suites.running.prepare", prepare)
    assert main(["xfstests", "--resume", "--folder", str(tmp_path), *asked]) == 2
    assert seen == [replace(setup, capacity_bytes=capacity_bytes), Shape(cpus, 512, "tcg"), 7.0]


@pytest.mark.parametrize("baseline", ["", "results.json"])
def test_a_run_is_not_held_against_itself(baseline: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    machine = {"cpus": 1, "memory_mib": 512, "accel": "tcg", "release": "6.1"}
    plan = Plan("xfstests", "", "", "6.1", machine, Setup(fs="ext4"), 7.0, ("generic/001",))
    with Folder(tmp_path, plan) as made:
        made.add({"test": "generic/001", "status": "failed", "reason": "", "output": "", "seconds": 1.0})
    (tmp_path / "results.json").write_text('{"tests": [{"test": "generic/001", "status": "failed"}]}')
    link = tmp_path.with_name(f"{tmp_path.name}-link")
    link.symlink_to(tmp_path)
    assert main(["xfstests", "--resume", "--folder", str(tmp_path), "--baseline", str(link / baseline)]) == 2
    assert "is of the run itself (expected an earlier run)" in capsys.readouterr().err


# --- packages


@pytest.fixture
def listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.undo()
    path = tmp_path / "list"
    path.write_text(
        "# comment\nmake | cmd:make | a build: make\nnone-dev | file:/no/such.h | a build: headers\n"
        "gone | cmd:no-such | a run: a program\nodd | cmd:no-odd | a some: odd tests\nother | cmd:no-other | b run: b\n"
    )
    return path


def test_what_is_missing_is_named_with_what_to_install(listed: Path) -> None:
    with pytest.raises(UnsupportedError) as raised:
        packages.check("a", listed)
    assert raised.value.reason == "this system has no /no/such.h (headers), no-such (a program)"
    assert raised.value.remedy.endswith("apt-get install --no-install-recommends none-dev gone")


def test_what_only_some_tests_need_stops_nothing(listed: Path) -> None:
    text = listed.read_text()
    listed.write_text(
        "".join(line for line in text.splitlines(keepends=True) if "no-such" not in line and "/no/" not in line)
    )
    assert [package.name for package in packages.check("a", listed)] == ["odd"]


def test_a_list_of_another_form_is_refused(listed: Path) -> None:
    listed.write_text("make | cmd:make | a build: make\nmake | cmd:make | building\n")
    with pytest.raises(FormatError) as raised:
        packages.check("a", listed)
    assert raised.value.offset == 32


def test_the_list_s_own_lines_are_read() -> None:
    path = ROOT / "packaging/debian-suites.txt"
    found = {suite: packages.packages(suite, path) for suite in SUITES}
    lines = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
    assert sum(map(len, found.values())) == len(lines)
    assert {package.need for packages_ in found.values() for package in packages_} == {"build", "run", "some"}
