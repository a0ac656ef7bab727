# SPDX-License-Identifier: MIT
"""Exploring in VMs: a state that takes the kernel down is one failure among others."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from crash.logs import SECTOR, log_writes
from sampleblk_lab import InputError, crash
from sampleblk_lab.vm import GuestPanicError

# One write a sector, no flush: what is lost of them is any subset.
WRITES = [bytes([number]) * SECTOR for number in (1, 2, 3, 4)]


def _there(path: Path) -> list[int]:
    """The writes that an image holds."""
    data = path.read_bytes()
    return [number for number in (1, 2, 3, 4) if data[number * SECTOR] == number]


def falls_over(path: Path, state: crash.State) -> None:
    """Panics where only the second write is missing, fails where the first and the third are and the fourth is not."""
    there = _there(path)
    if there == [1, 3, 4]:
        if "SAMPLEBLK_VM" not in os.environ:
            raise RuntimeError("a panic")
        Path("/proc/sysrq-trigger").write_text("c")
    assert 4 not in there or {1, 3} & set(there), state


@pytest.fixture
def log(tmp_path: Path) -> crash.Log:
    path = tmp_path / "log"
    path.write_bytes(log_writes(*((0, number, data) for number, data in enumerate(WRITES, start=1))))
    return crash.Log(path, base="zeros", size_bytes=16 * SECTOR)


def _found(exploration: crash.Exploration) -> list[tuple[object, object]]:
    return [(one.state.bare, one.reduced.bare) for one in exploration.failures]


@pytest.mark.parametrize(("kernel", "workers"), [("6.1", 1), ("6.12", 2)])
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
    # Another run has nothing more to do, and knows what this one found.
    again = log.explore(falls_over, failures=9, workers=workers, vm={"kernel": kernel}, resume=resume)
    assert _found(again) == _found(here)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["explored.json", "log"]


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
    assert "under contents 2, but under none of them alone" in found.lost
    assert "sysrq triggered crash" in found.lost


def test_what_is_meant_by_no_vm_is_told(log: crash.Log, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="vm has 'processors'"):
        log.explore(falls_over, vm={"processors": 3})
    with pytest.raises(InputError, match="a VM beside a client"):
        log.explore(falls_over, vm=True, client="tcp://127.0.0.1:1")
    shared = Path("/dev/shm") / tmp_path.name
    shared.write_bytes(Path(log.path).read_bytes())
    try:
        with pytest.raises(InputError, match="which a VM does not see"):
            crash.Log(shared, base="zeros", size_bytes=16 * SECTOR).explore(falls_over, vm=True)
    finally:
        shared.unlink()
