# SPDX-License-Identifier: MIT
"""What the runner of the debug kernels takes for a complaint."""

import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

import pytest

RUNNER = Path(__file__).resolve().parents[1] / "module/debug/run"

# As kernel/kcsan/report.c prints it.
RACE = """\
[   12.1] ==================================================================
[   12.1] BUG: KCSAN: data-race in {first} / {second}
[   12.1]
[   12.1] write to 0xffff88800a1b2c30 of 8 bytes by task 210 on cpu 0:
[   12.1]  {first}+0x15c/0x2a0{first_module}
[   12.1]  control_ioctl+0x1a1/0x310 [sampleblk]
[   12.1]  __x64_sys_ioctl+0x60/0x90
[   12.1]
[   12.1] read to 0xffff88800a1b2c30 of 8 bytes by interrupt on cpu 1:
[   12.1]  {second}+0x23/0x50{second_module}
[   12.1]  blk_mq_submit_bio+0x51c/0x910
[   12.1]
[   12.1] Reported by Kernel Concurrency Sanitizer on:
[   12.1] CPU: 1 PID: 12 Comm: ksoftirqd/1 Not tainted 7.2.0 #1
[   12.1] ==================================================================
"""


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    # Else a folder of byte code comes to lie beside it.
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    loader = SourceFileLoader("debug_run", str(RUNNER))
    spec = spec_from_loader("debug_run", loader)
    assert spec
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


def race(first: str, second: str, *, first_ours: bool, second_ours: bool) -> str:
    of_us = (" [sampleblk]" if ours else "" for ours in (first_ours, second_ours))
    first_module, second_module = of_us
    return RACE.format(first=first, second=second, first_module=first_module, second_module=second_module)


def test_a_race_is_ours_if_one_of_its_accesses_is(runner: ModuleType) -> None:
    kernels = race("blk_mq_free_request", "blk_mq_get_tag", first_ours=False, second_ours=False)
    ours = race("reset_counters", "blk_mq_get_tag", first_ours=True, second_ours=False)
    also = race("blk_mq_get_tag", "cmd_complete", first_ours=False, second_ours=True)
    told, others = runner.complaints(kernels + ours + kernels + also)
    assert others == 2
    lines = (kernels + ours + kernels + also).splitlines()
    assert [lines[number].split("data-race in ")[1] for number in told] == [
        "reset_counters / blk_mq_get_tag",
        "blk_mq_get_tag / cmd_complete",
    ]


def test_a_race_whose_places_are_not_told_counts(runner: ModuleType) -> None:
    told, others = runner.complaints("BUG: KCSAN: data-race in cmd_complete\n\nrace at unknown origin\n")
    assert (told, others) == ([0], 0)
    # The value changed, and KCSAN did not see by whom.
    where = "race at unknown origin, with read to 0xffff88 of 4 bytes by task 0 on cpu 1:"
    one = f"BUG: KCSAN: data-race in do_idle\n\n{where}\n"
    assert runner.complaints(f"{one} do_idle+0x1/0x2\n") == ([], 1)
    assert runner.complaints(f"{one} cmd_end+0x1/0x2 [sampleblk]\n") == ([0], 0)


def test_other_complaints_always_count(runner: ModuleType) -> None:
    text = "starts\nBUG: KASAN: slab-use-after-free in end_io\nWARNING: possible circular locking dependency detected\n"
    told, others = runner.complaints(text)
    assert (told, others) == ([1, 2], 0)
    assert "slab-use-after-free" in runner.complaint(text, told[0])


def test_kcsan_that_is_off_or_saw_nothing_is_told(runner: ModuleType) -> None:
    # As kernel/kcsan/debugfs.c prints it.
    text = "enabled: {enabled}\nused_watchpoints: 3\nsetup_watchpoints: {count}\ndata_races: 0\n"
    assert runner.watchpoints(text.format(enabled=1, count=812)) == 812
    assert runner.watchpoints(text.format(enabled=1, count=0)) == 0
    assert runner.watchpoints(text.format(enabled=0, count=812)) == 0
    assert runner.watchpoints("") == 0
