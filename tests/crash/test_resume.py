# SPDX-License-Identifier: MIT
"""Explorations in several runs: together they find what one finds, and check nothing twice."""

from __future__ import annotations

import concurrent.futures
import contextlib
import json
import multiprocessing
import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from crash.logs import SECTOR, log_writes, picky, recorded, told
from sampleblk_lab import FormatError, InputError, crash
from sampleblk_lab.cli import main
from sampleblk_lab.crash import resume, submitters
from sampleblk_lab.crash.submitters import Submitter

pytestmark = pytest.mark.usefixtures("own_host")

WAYS: dict[str, Callable[[], dict[str, Any]]] = {
    "here": dict,
    "two processes": lambda: {"workers": 2},
    "three processes": lambda: {"workers": 3},
    "executor": lambda: {"client": concurrent.futures.ThreadPoolExecutor(2)},
}


def noted(path: Path) -> dict[str, Any]:
    """What the file says was reached."""
    reached: dict[str, Any] = json.loads(path.read_bytes())["reached"]
    return reached


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "asked",
    [
        {"model": crash.Reorder(), "failures": 1000},
        {"model": crash.Reorder(complete_up_to=3, at_most=1), "failures": 4},
        {"model": crash.Torn(), "failures": 1000},
    ],
    ids=repr,
)
def test_runs_together_find_what_one_finds(tmp_path: Path, way: str, asked: dict[str, Any]) -> None:
    if way == "executor":
        pytest.importorskip("cloudpickle", reason="needs the extra 'sweep'")
    log = recorded(tmp_path / "log")
    whole = log.explore(picky, **asked)
    assert len(whole.failures) > 2
    chance = random.Random(way)
    file = tmp_path / "file.json"
    found, runs = None, 0
    while found is None or not (found.complete or len(found.failures) == asked["failures"]):
        before = noted(file)["number"] if file.exists() else 0
        found = log.explore(picky, states=chance.randrange(1, 25), resume=file, **asked, **WAYS[way]())
        if len(found.failures) < asked["failures"]:
            # Nothing of a run that ended by itself is done again.
            assert noted(file)["number"] == found.checked
            assert found.checked > before or found.complete
        runs += 1
    assert runs > 1
    assert told(found) == told(whole)
    # There is nothing more to do, whatever is asked for.
    again = log.explore(picky, resume=file, **asked)
    assert told(again) == told(whole)


def test_no_content_is_checked_twice(tmp_path: Path) -> None:
    log = recorded(tmp_path / "log")
    seen = tmp_path / "seen"
    seen.touch()

    def sees(image: Path, _state: crash.State) -> None:
        with seen.open("ab") as file:
            file.write(image.read_bytes().hex().encode() + b"\n")

    while not log.explore(sees, states=23, workers=2, resume=tmp_path / "file").complete:
        pass
    lines = seen.read_bytes().splitlines()
    assert len(lines) == len(set(lines)) == log.explore(_passes).checked


def test_the_file_stays_where_it_is_wherever_a_check_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = recorded(tmp_path / "log")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()

    def goes(_image: Path, _state: crash.State) -> None:
        os.chdir(elsewhere)

    for checked in (3, 6):
        monkeypatch.chdir(tmp_path)
        assert log.explore(goes, states=3, resume="file").checked == checked
    assert list(elsewhere.iterdir()) == []


def _passes(_image: Path, _state: crash.State) -> None:
    """Passes."""


def _slow(image: Path, state: crash.State) -> None:
    time.sleep(0.02)
    picky(image, state)


def _explore(folder: Path, file: Path, workers: int) -> None:
    resume._EVERY_S = 0
    log = crash.Log(folder / "log", base=folder / "base.img")
    log.explore(_slow, model=crash.Reorder(), failures=1000, workers=workers, resume=file)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_what_was_killed_or_interrupted_goes_on(tmp_path: Path, workers: int, how: signal.Signals) -> None:
    log = recorded(tmp_path / "log")
    file = tmp_path / "file"
    chance = random.Random(workers)
    stopped = 0
    for _ in range(3):
        before = noted(file)["number"] if file.exists() else 0
        child = multiprocessing.get_context("fork").Process(target=_explore, args=(tmp_path / "log", file, workers))
        child.start()
        deadline = time.monotonic() + 60
        least = before + chance.randrange(1, 12)
        while child.is_alive() and (not file.exists() or noted(file)["number"] < least):
            assert time.monotonic() < deadline
            time.sleep(0.005)
        assert child.pid is not None
        if child.is_alive():
            with contextlib.suppress(ProcessLookupError):
                os.kill(child.pid, how)
            stopped += 1
        child.join()
    assert stopped
    found = log.explore(_slow, model=crash.Reorder(), failures=1000, resume=file)
    assert told(found)[1:] == told(log.explore(_slow, model=crash.Reorder(), failures=1000))[1:]


def test_another_exploration_is_not_gone_on_with(tmp_path: Path) -> None:
    log = recorded(tmp_path / "log")
    file = tmp_path / "file"
    log.explore(picky, states=5, resume=file)
    before = file.read_bytes()
    other = recorded(tmp_path / "other", seed=4)
    with pytest.raises(InputError, match="an exploration of another log"):
        other.explore(picky, resume=file)
    with pytest.raises(InputError, match="an exploration of another model") as raised:
        log.explore(picky, model=crash.Torn(), resume=file)
    assert "Torn(block_bytes=None" in str(raised.value)
    with pytest.raises(InputError, match="an exploration of another check"):
        log.explore(_passes, resume=file)
    with pytest.raises(InputError, match="an exploration of another log"):
        crash.Log(log.path, base=log.base, flush=False).explore(picky, resume=file)
    assert file.read_bytes() == before
    # The same one in another place.
    (tmp_path / "log").rename(tmp_path / "moved")
    moved = crash.Log(tmp_path / "moved/log", base=tmp_path / "moved/base.img")
    assert moved.explore(picky, states=5, failures=100, resume=file).checked == 10


def test_ready_checks_are_told_apart_by_what_they_were_made_of(tmp_path: Path) -> None:
    log = recorded(tmp_path / "log")
    file = tmp_path / "file"
    checks = [
        crash.replaced("a", None, b"1"),
        crash.replaced("a", None, b"2"),
        crash.replaced("b", None, b"1"),
        crash.appended("a", b"1", {}),
        crash.all_of(crash.replaced("a", None, b"1")),
        crash.all_of(crash.replaced("a", None, b"1"), _passes),
    ]
    assert len({resume.digest(check) for check in checks}) == len(checks)
    assert resume.digest(checks[0]) == resume.digest(crash.replaced("a", None, b"1"))
    log.explore(checks[0], states=1, failures=100, resume=file)
    with pytest.raises(InputError, match="another check"):
        log.explore(checks[1], resume=file)


@pytest.mark.parametrize(
    "damage",
    [
        lambda _: b"",
        lambda data: data[: len(data) // 2],
        lambda _: b"[1, 2]",
        lambda data: b"\xff" + data,
        lambda data: data.replace(b"exploration 5", b"exploration 1"),
        lambda data: data.replace(b'"number": 60', b'"number": "many"'),
        lambda data: data.replace(b'"number": 60', b'"number": 1'),
        lambda data: data.replace(b'"reduced"', b'"reduce"'),
        lambda data: data.replace(b'"torn"', b'"tear"').replace(b'"state": [', b'"state": [7, '),
    ],
)
def test_a_damaged_file_is_refused(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    log = recorded(tmp_path / "log")
    file = tmp_path / "file"
    log.explore(picky, states=60, failures=1000, resume=file)
    whole = file.read_bytes()
    assert b'"number": 60' in whole
    assert b'"reduced"' in whole
    file.write_bytes(damage(whole))
    with pytest.raises(FormatError, match="the file of an exploration") as raised:
        log.explore(picky, failures=1000, resume=file)
    assert raised.value.path == str(file)


@pytest.mark.parametrize("way", ["here", "two processes"])
def test_more_than_all_was_not_checked_before(tmp_path: Path, way: str) -> None:
    log = recorded(tmp_path / "log")
    file = tmp_path / "file"
    log.explore(picky, states=60, failures=1000, resume=file)
    file.write_bytes(file.read_bytes().replace(b'"number": 60', b'"number": 60000'))
    with pytest.raises(InputError, match=r"60000 contents that were checked before \(expected at most"):
        log.explore(picky, failures=1000, resume=file, **WAYS[way]())


def test_where_nothing_can_be_written_nothing_is_explored(tmp_path: Path) -> None:
    log = recorded(tmp_path / "log")
    with pytest.raises(InputError, match="no such folder/file"):
        log.explore(_never, resume=tmp_path / "no such folder/file")
    with pytest.raises(OSError, match="/proc/"):
        log.explore(_never, resume="/proc/file")


def _never(_image: Path, _state: crash.State) -> None:
    pytest.fail("something was checked")


def test_on_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "log").write_bytes(log_writes(*((0, n, bytes([n + 1]) * SECTOR) for n in range(6))))
    (tmp_path / "passing_check.py").write_text("def check(image, state):\n    pass\n")
    command = [
        "crash", "explore", str(tmp_path / "log"), "--base", "zeros", "--check", "passing_check:check",
        "--model", "prefix", "--workers", "1", "--states", "4", "--json", "--resume", str(tmp_path / "file"),
    ]  # fmt: skip
    checked = []
    for _ in range(10):
        assert main(command) == 0
        said = json.loads(capsys.readouterr().out)
        checked.append(said["checked"])
        if said["complete"]:
            break
    assert checked == [4, 7]


def test_without_the_submitters_by_which_states_were_ordered_it_is_another_exploration(tmp_path: Path) -> None:
    log = recorded(tmp_path / "log")
    who = {int(one): [(0, 1, Submitter(f"t{one % 5}", 1, (f"f{one % 5}",)))] for one in log.sequences}
    beside = log.path.with_name(submitters.FILE)
    submitters.save(who, beside, (log.path, log.native.file_bytes))
    file = tmp_path / "explored"
    crash.Log(log.path, base=log.base).explore(picky, states=9, resume=file, progress=False)
    beside.unlink()
    with pytest.raises(InputError, match="an exploration of another kinds of writes"):
        log.explore(picky, resume=file, progress=False)
