# SPDX-License-Identifier: MIT
"""The fixture ``crash``, as its users meet it: a pytest of its own, whose tests run in the VM."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from sampleblk_lab.paths import cache_root
from support import QUICK

TESTS = """
import os
import sampleblk_lab as lab

def _write(path, data):
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())

def has_b(mount, state):
    if "b" in state.marks:
        assert (mount / "a").read_bytes() == b"b", "b is not there"

def _workload(crash, promise_too_early):
    with crash.recording(before=lambda mount: _write(mount / "a", b"a"), stacks=True) as mount:
        if promise_too_early:
            crash.mark("b")
        _write(mount / "a", b"b")
        if not promise_too_early:
            crash.mark("b")

def test_kept(crash):
    _workload(crash, False)
    found = crash.explore(has_b, model=lab.crash.Prefix(), workers=2)
    assert found.complete

def test_broken(crash):
    _workload(crash, True)
    crash.explore(lab.crash.mounted("ext4", has_b), model=lab.crash.Prefix())

def test_broken_by_a_function_within(crash):
    _workload(crash, True)
    crash.explore(lambda mount, state: has_b(mount, state), model=lab.crash.Prefix())

def test_nothing_recorded(crash):
    crash.explore()

def test_mark_too_late(crash):
    _workload(crash, False)
    crash.mark("late")

def test_forgot(crash):
    _workload(crash, True)

def test_on_its_own(crash):
    _workload(crash, False)
    assert crash.log.explore(lab.crash.recovers("ext4"), states=2).ok
"""


@pytest.fixture(autouse=True)
def _same_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """pytester has a home of its own; kernels and states stay where they are."""
    monkeypatch.setenv("SAMPLEBLK_CACHE", str(cache_root()))


@pytest.mark.full
@pytest.mark.usefixtures("no_leftovers")
def test_one_test_is_one_exploration(pytester: pytest.Pytester, tmp_path: Path) -> None:
    pytester.makepyfile(test_it=TESTS)
    result = pytester.runpytest_subprocess(*QUICK, timeout=500)
    result.assert_outcomes(passed=2, failed=5)
    text = result.stdout.str()
    assert re.search(r"1 failed\n<crash after write \d+>: AssertionError: b is not there", text), text
    assert "nothing was recorded" in text
    assert "test_forgot: nothing of the recording was explored: call crash.explore()" in text
    assert "crash.mark() is for the block of crash.recording()" in text
    # The failure is kept, and the one whose check has no name too.
    [runs] = re.findall(r"run directories in (\S+)", text)
    [saved] = re.findall(r"reproduce it with pytest on (\S*crash-1) of the run directories", text)
    saved = f"{runs}/{saved}"
    [kept] = re.findall(r"kept in (\S*crash-1) of the run directories, without a test of its own", text)
    kept = f"{runs}/{kept}"
    names = {path.name for path in Path(saved).iterdir()}
    assert names == {"test_crash_state.py", "log.gz", "base.img.gz", "submitters.json", "checked_test_it.py"}
    assert {path.name for path in Path(kept).iterdir()} == {"base.img", "log", "submitters.json", "failure.txt"}
    [page] = re.findall(r"with pictures in (\S*crash-1.html)", text)[:1]
    shown = (Path(runs) / page).read_text()
    assert "b is not there" in shown
    assert "<svg" in shown or "svg+xml" in shown
    assert "pytest crash-1" in shown
    assert "b is not there" in (Path(kept) / "failure.txt").read_text()
    # It says the same by itself, in a VM of its own.
    command = [sys.executable, "-m", "pytest", "-q", *QUICK, "--rootdir", saved, saved]
    again = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert again.returncode == 1, again.stdout
    assert "b is not there" in again.stdout
    assert "1 failed" in again.stdout
