# SPDX-License-Identifier: MIT
"""Exploring in VMs: a state that takes the kernel down is one failure among others."""

from __future__ import annotations

import importlib.util
import re
import sys
import time
from pathlib import Path

import pytest

from crash.logs import SECTOR, log_writes
from crash.panicking import falls_over, there
from sampleblk_lab import InputError, crash
from sampleblk_lab.paths import cache_root
from sampleblk_lab.vm import GuestPanicError
from support import QUICK

# pytester has a home of its own.
CACHE = cache_root()
# One write a sector, no flush: what is lost of them is any subset.
WRITES = [bytes([number]) * SECTOR for number in (1, 2, 3, 4)]


@pytest.fixture
def log(tmp_path: Path) -> crash.Log:
    path = tmp_path / "log"
    path.write_bytes(log_writes(*((0, number, data) for number, data in enumerate(WRITES, start=1))))
    return crash.Log(path, base="zeros", size_bytes=16 * SECTOR)


def _found(exploration: crash.Exploration) -> list[tuple[object, object]]:
    return [(one.state.bare, one.reduced.bare) for one in exploration.failures]


@pytest.mark.parametrize(("kernel", "workers"), [("6.1", 2), pytest.param("6.12", 1, marks=pytest.mark.full)])
def test_a_state_that_panics_is_a_failure_and_the_rest_is_checked(
    kernel: str, workers: int, log: crash.Log, tmp_path: Path
) -> None:
    here = log.explore(falls_over, failures=9)
    assert [type(one.error).__name__ for one in here.failures].count("RuntimeError") == 1
    assert len(here.failures) == 3
    resume = tmp_path / "explored.json"
    found = log.explore(falls_over, failures=9, workers=workers, vm={"kernel": kernel}, resume=resume)
    assert _found(found) == _found(here)
    assert (found.states, found.checked, found.complete) == (here.states, here.checked, here.complete)
    panics = [one for one in found.failures if isinstance(one.error, GuestPanicError)]
    assert [[one.reduced.lost, one.reduced.torn] for one in panics] == [[[2], []]]
    assert "sysrq triggered crash" in str(panics[0].error)
    assert "sysrq" in panics[0].error.console
    assert {one.kernel.startswith(f"{kernel}.") for one in found.failures} == {True}
    # Who reads the page is told the kernel as well.
    page = found.report(tmp_path / "found.html", saved=["saved"])
    assert f"pytest --sblk-kernel {found.failures[0].kernel} saved" in page.read_text()
    page.unlink()
    # Another run has nothing more to do, and knows what this one found.
    again = log.explore(falls_over, failures=9, workers=workers, vm={"kernel": kernel}, resume=resume)
    assert _found(again) == _found(here)
    with pytest.raises(InputError, match=r"an exploration of another kernel \(expected kernel none; or"):
        log.explore(falls_over, failures=9, resume=resume)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["explored.json", "log"]


def test_what_was_checked_by_one_kernel_is_not_checked_by_another(log: crash.Log, tmp_path: Path) -> None:
    resume = tmp_path / "explored.json"
    assert log.explore(falls_over, model=crash.Prefix(), failures=9, resume=resume).complete
    with pytest.raises(InputError, match="an exploration of another kernel"):
        log.explore(falls_over, model=crash.Prefix(), failures=9, resume=resume, vm={"kernel": "6.1"})


def test_a_saved_failure_allows_what_was_allowed(log: crash.Log, tmp_path: Path) -> None:
    state = log.state(4, lost=[2])
    error = GuestPanicError("the guest's kernel panicked")
    found = crash.Failure(state, state, error, falls_over, "6.1.0", ("at fs/own/", "it's"))
    text = (found.save(tmp_path / "saved") / "test_crash_state.py").read_text()
    assert """pytestmark = [pytest.mark.in_vm, pytest.mark.kernel_warning('at fs/own/', "it's")]\n""" in text


@pytest.mark.full
def test_a_saved_panic_panics_again(
    log: crash.Log, tmp_path: Path, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SAMPLEBLK_CACHE", str(CACHE))
    state = log.state(4, lost=[2])
    found = crash.Failure(state, state, GuestPanicError("the guest's kernel panicked"), falls_over, "6.1.0")
    folder = found.save(tmp_path / "saved")
    assert "# Found in a VM: pytest --sblk-kernel 6.1.0\n" in (folder / "test_crash_state.py").read_text()
    done = pytester.runpytest_subprocess("--sblk-kernel", "6.1", *QUICK, folder)
    done.assert_outcomes(passed=1, failed=1)
    done.stdout.fnmatch_lines(["*sysrq triggered crash*"])


def test_a_check_of_a_module_that_a_vm_does_not_find(
    log: crash.Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "own_checks.py"
    file.write_text("def fails(path, state):\n    assert path.read_bytes()[512] != 1, 'the first is there'\n")
    spec = importlib.util.spec_from_file_location("own_checks", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "own_checks", module)
    spec.loader.exec_module(module)
    found = log.explore(crash.all_of(module.fails), model=crash.Prefix(), vm={"kernel": "6.1"})
    assert [str(one.error).splitlines()[0] for one in found.failures] == ["the first is there"]


def hangs(path: Path, state: crash.State) -> None:
    """Does not end where only the third write is missing."""
    if state.lost == [3] and state.submitted == 4 and path.exists():
        time.sleep(1000)


def test_a_state_that_hangs_is_a_failure_and_the_rest_is_checked(log: crash.Log) -> None:
    found = log.explore(hangs, failures=9, vm={"kernel": "6.1", "deadline_s": 12})
    assert found.complete
    [failure] = found.failures
    assert (failure.reduced.lost, failure.reduced.torn) == ([3], [])
    assert isinstance(failure.error, GuestPanicError)
    assert failure.error.message == "a state was checked for more than 12 s, and the guest ended for it"
    assert "one state has been checked for 12 s" in failure.error.console


def complains(path: Path, state: crash.State) -> None:
    """The kernel warns where the third write is missing, once, and then of what it always says."""
    said = Path("/tmp/warned")
    if 3 not in there(path) and state.submitted == 4 and not said.exists():
        said.touch()
        Path("/dev/kmsg").write_text("WARNING: CPU: 0 PID: 1 at fs/own/inode.c:7 evict+0x1/0x2 [own]\n")
    Path("/dev/kmsg").write_text("WARNING: CPU: 0 PID: 1 at fs/own/harmless.c:7 own+0x1/0x2 [own]\n")


def test_a_state_of_which_the_kernel_complains_is_a_failure(log: crash.Log) -> None:
    options = {"kernel": "6.1", "kernel_warning": [r"harmless\.c"]}
    [failure] = log.explore(complains, workers=2, vm=options).failures
    assert (failure.reduced.lost, failure.kernel_warning) == ([3], (r"harmless\.c",))
    assert isinstance(failure.error, GuestPanicError)
    said = r"the guest's kernel complained: \[ *[\d.]+\] WARNING: CPU: 0 PID: 1 at fs/own/inode\.c:7 .*"
    assert re.fullmatch(said, failure.error.message)
    passed = log.explore(complains, vm={**options, "kernel_warning": "at fs/own/"})
    assert (passed.ok, passed.complete) == (True, True)


def sometimes_falls_over(path: Path, _: crash.State) -> None:
    """Panics at the third of the states that a VM is given."""
    seen = Path("/tmp/states-seen")
    count = int(seen.read_text()) if seen.exists() else 0
    seen.write_text(f"{count + 1}")
    if count == 2 and path.exists():
        Path("/proc/sysrq-trigger").write_text("c")


def test_a_panic_that_no_state_makes_alone_ends_it_and_is_told(log: crash.Log) -> None:
    found = log.explore(sometimes_falls_over, vm={"kernel": "6.1", "cpus": 1})
    assert not found.failures
    assert not found.complete
    # Also where some had passed by then.
    assert crash.Exploration(checked=3).ok
    assert not crash.Exploration(checked=3, lost=found.lost).ok
    assert "under contents 2, but under none of them alone" in found.lost
    assert "sysrq triggered crash" in found.lost


def test_what_is_meant_by_no_vm_is_told(log: crash.Log, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="vm has 'processors'"):
        log.explore(falls_over, vm={"processors": 3})
    for text in ("", "(", 5, b"WARNING"):
        with pytest.raises(InputError, match=r"kernel_warning .* \(expected regular expressions"):
            log.explore(falls_over, vm={"kernel_warning": text})
    with pytest.raises(InputError, match="a VM beside a client"):
        log.explore(falls_over, vm={}, client="tcp://127.0.0.1:1")
    with pytest.raises(InputError, match="deadline_s 0"):
        log.explore(falls_over, vm={"deadline_s": 0})
    with pytest.raises(InputError, match="deadline_s=nan"):
        log.explore(falls_over, vm={"deadline_s": float("nan")})
    with pytest.raises(InputError, match="a VM beside a client"):
        log.explore(falls_over, vm=True, client="tcp://127.0.0.1:1")
    shared = Path("/dev/shm") / tmp_path.name
    shared.write_bytes(Path(log.path).read_bytes())
    try:
        with pytest.raises(InputError, match="which a VM does not see"):
            crash.Log(shared, base="zeros", size_bytes=16 * SECTOR).explore(falls_over, vm=True)
    finally:
        shared.unlink()
