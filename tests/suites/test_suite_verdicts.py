# SPDX-License-Identifier: MIT
"""What the suites' ``check`` leaves of a test, as it was seen, and what is made of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from sampleblk_lab.suites import SUITES, blktests, xfstests
from sampleblk_lab.suites.suite import Setup, Verdict

HEAD = "FSTYP         -- ext4\nMKFS_OPTIONS  -- -F /dev/sampleblk2\n\n"


def _xfstests(folder: Path, log: str, output: str, **files: str) -> Verdict:
    (folder / "generic").mkdir(parents=True)
    if log:
        (folder / "check.log").write_text(f"\nKernel version: 6.1.0\nMon Nov 23 12:20:00 UTC 2026\n{log}")
    for name, text in files.items():
        (folder / f"generic/001.{name}").write_text(text)
    return xfstests.verdict("generic/001", folder, HEAD + output)


def test_xfstests_passed(tmp_path: Path) -> None:
    (tmp_path / "check.time").write_text("generic/001 46\n")
    found = _xfstests(tmp_path, "Ran: generic/001\nPassed all 1 tests\n", "generic/001         46s\n")
    assert (found.status, found.reason, found.seconds) == ("passed", "", 46.0)


def test_xfstests_that_was_not_run_has_not_passed(tmp_path: Path) -> None:
    log = "Ran: generic/001\nNot run: generic/001\nPassed all 1 tests\n"
    output = "generic/001       [not run] fsverity utility required, skipped this test\n"
    found = _xfstests(tmp_path, log, output, notrun="fsverity utility   required,\n skipped this test\n")
    assert (found.status, found.reason) == ("notrun", "fsverity utility required, skipped this test")


def test_xfstests_of_a_test_that_was_run_again_the_last_run_counts(tmp_path: Path) -> None:
    failed = (
        "Ran: generic/001\nFailures: generic/001\nFailed 1 of 1 tests\n\nKernel version: 6.1.0\nMon Nov 23 12:30:00\n"
    )
    assert _xfstests(tmp_path / "a", f"{failed}Ran: generic/001\nPassed all 1 tests\n", "").status == "passed"
    assert _xfstests(tmp_path / "b", failed, "").status == "unjudged"


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        (
            "generic/001       - output mismatch (see /mnt/results/generic/001.out.bad)\n    --- tests/a.out\n",
            "output mismatch (see 001.out.bad)",
        ),
        ("generic/001       [failed, exit status 1]\nRan: generic/001\n", "[failed, exit status 1]"),
        (
            "generic/001        12s ... _check_dmesg: something found in dmesg (see /mnt/results/generic/001.dmesg)\n",
            "_check_dmesg: something found in dmesg (see 001.dmesg)",
        ),
        (
            "generic/001       [failed, exit status 1]_check_generic_filesystem: /dev/sampleblk1 is inconsistent\n"
            "- output mismatch (see /mnt/results/generic/001.out.bad)\n",
            "[failed, exit status 1]_check_generic_filesystem: /dev/sampleblk1 is inconsistent"
            " - output mismatch (see 001.out.bad)",
        ),
    ],
)
def test_xfstests_failed(output: str, reason: str, tmp_path: Path) -> None:
    found = _xfstests(tmp_path, "Ran: generic/001\nFailures: generic/001\nFailed 1 of 1 tests\n", output)
    assert (found.status, found.reason) == ("failed", reason)


@pytest.mark.parametrize(
    ("log", "output", "reason"),
    [
        ("", "generic/001 ", "generic/001"),  # check was killed
        ("", "mount: /mnt/test: wrong fs type\ncheck: failed to mount\n", "check: failed to mount"),
        ("Ran: generic/001\nInterrupted!\nPassed all 1 tests\n", "Interrupted!\n", "Interrupted!"),
        ("Passed all 0 tests\n", "generic/001 - unknown test, ignored\n", "generic/001 - unknown test, ignored"),
        ("Ran: generic/0011\nPassed all 1 tests\n", "odd\n", "odd"),
        (
            "Interrupted!\n",
            "log too large\ncheck: failed to mkfs $SCRATCH_DEV\nInterrupted!\nPassed all 0 tests\n",
            "check: failed to mkfs $SCRATCH_DEV",
        ),
    ],
)
def test_xfstests_that_says_nothing_of_the_test_is_not_believed(
    log: str, output: str, reason: str, tmp_path: Path
) -> None:
    found = _xfstests(tmp_path, log, output)
    assert (found.status, found.reason) == ("unjudged", reason)


@pytest.mark.parametrize(
    ("fs", "text", "settings"),
    [
        (
            "ext4",
            "# _require_logdev\n_require_realtime\n",
            {"TEST_DEV": "0", "SCRATCH_DEV": "1", "LOGWRITES_DEV": "2"},
        ),
        (
            "ext4",
            " _require_logdev\n",
            {"TEST_DEV": "0", "SCRATCH_DEV": "1", "LOGWRITES_DEV": "2", "SCRATCH_LOGDEV": "3", "USE_EXTERNAL": "yes"},
        ),
        (
            "xfs",
            "_require_realtime\n",
            {"TEST_DEV": "0", "SCRATCH_DEV": "1", "LOGWRITES_DEV": "2", "SCRATCH_RTDEV": "4", "USE_EXTERNAL": "yes"},
        ),
        (
            "btrfs",
            "_require_logdev\n",
            {"TEST_DEV": "0", "SCRATCH_DEV_POOL": "1 2 3 4 5", "LOGWRITES_DEV": "6"},
        ),
    ],
)
def test_devices_beside_the_scratch_one_are_named_where_a_test_asks(
    fs: str, text: str, settings: dict[str, str]
) -> None:
    # What it does for a test in a VM: test_suite_in_vm.py.
    capacities = SUITES["xfstests"].devices(Setup(fs=fs))
    assert xfstests._device_settings(fs, [str(number) for number in range(len(capacities))], text) == settings


def test_what_a_test_runs_on_does_not_come_from_the_users_environment() -> None:
    """Of devices and options the results say what the run was given; who uses xfstests elsewhere has others set."""
    for_others = {
        *("TEST_DEV", "TEST_LOGDEV", "SCRATCH_DEV_POOL", "SCRATCH_RTDEV", "LOGWRITES_DEV", "USE_EXTERNAL"),
        *("MKFS_OPTIONS", "MOUNT_OPTIONS", "TEST_FS_MOUNT_OPTS", "TEST_OPTIONS", "XFS_MKFS_OPTIONS", "RUN_SECTION"),
    }
    stays = {"PATH", "HOME", "SOAK_DURATION", "TIME_FACTOR", "TEST_FS_MODULE_RELOAD", "DM_DISABLE_UDEV"}
    assert xfstests._without_setup(dict.fromkeys(for_others | stays, "x")).keys() == stays


@pytest.mark.parametrize(
    ("text", "makes"),
    [
        (". ./common/dmflakey\n", True),
        ("_require_dm_target linear\n", True),
        ('_dmsetup_create $node --table "$table"\n', True),
        ("_require_loop\n", True),
        ("_udev_wait /dev/mapper/$vgname-$lvname\n", True),
        ("$UDEVADM_PROG settle\n", True),
        (". ./common/filter\nfor ((i = 0; i < 9; i++)); do # loop\n\t_scratch_mount\ndone\n", False),
    ],
)
def test_udevd_runs_where_a_test_waits_for_it(text: str, makes: bool) -> None:
    """Without one `udevadm wait` does not end; what it does for a test in a VM: test_suite_in_vm.py."""
    assert bool(xfstests._MAKES_DEVICES.search(text)) is makes


def test_an_external_log_is_no_larger_than_xfs_takes() -> None:
    assert SUITES["xfstests"].devices(Setup(fs="xfs", capacity_bytes=2 << 30)) == [2 << 30] * 3 + [512 << 20, 2 << 30]
    assert SUITES["xfstests"].devices(Setup(fs="xfs", capacity_bytes=300 << 20)) == [300 << 20] * 5


def _blktests(folder: Path, output: str, **records: str) -> Verdict:
    for where, text in records.items():
        path = folder / where / "block/024"
        path.parent.mkdir(parents=True)
        path.write_text(text)
    return blktests.verdict("block/024", folder, output)


def _status(status: str, more: str = "", seconds: str = "5.336s") -> str:
    return f"date\t2026-11-23 12:29:09\ndescription\tdo I/O\nstatus\t{status}\n{more}runtime\t{seconds}\n"


def test_blktests_passed(tmp_path: Path) -> None:
    found = _blktests(tmp_path, "block/024 (do I/O)  [passed]\n    runtime    ...  5.336s\n", nodev=_status("pass"))
    assert (found.status, found.seconds) == ("passed", 5.336)


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ("reason\toutput\nexit_status\t0\n", "output mismatch (see .out.bad)"),
        ("reason\texit\nexit_status\t3\n", "exited with status 3"),
        ("reason\tdmesg\nexit_status\t0\n", "something found in dmesg (see .dmesg)"),
        ("reason\tkmemleak\nexit_status\t0\n", "memory leaked (see .kmemleak)"),
    ],
)
def test_blktests_failed_under_one_of_its_conditions(more: str, reason: str, tmp_path: Path) -> None:
    found = _blktests(tmp_path, "", nodev_a=_status("pass"), nodev_b=_status("fail", more), sda=_status("not run"))
    assert (found.status, found.reason) == ("failed", reason)


def test_blktests_that_was_not_run_has_its_reasons(tmp_path: Path) -> None:
    output = "block/024 (do I/O)    [not run]\n    module a is not available\n    command b is not available\n"
    found = _blktests(tmp_path, output, nodev="date\t2026\nstatus\tnot run\n")
    assert (found.status, found.reason) == ("notrun", "module a is not available; command b is not available")


def test_what_was_measured_of_a_test_that_found_out_late_is_no_reason(tmp_path: Path) -> None:
    output = "block/024 (do I/O)   [not run]\n    runtime    ...  0.001s\n    iops  12  ...\n    no room ... here\n"
    found = _blktests(tmp_path, output, nodev=_status("not run"))
    assert (found.status, found.reason) == ("notrun", "no room ... here")


def test_a_whole_group_of_blktests_that_was_not_run(tmp_path: Path) -> None:
    found = _blktests(tmp_path, "block/***            [not run]\n    not running as root\n")
    assert (found.status, found.reason) == ("notrun", "not running as root")


def test_blktests_that_was_run_in_part_says_so(tmp_path: Path) -> None:
    output = (
        "block/024 => sda    [not run]\n    sda is a zoned block device\nblock/024 => sdb   [passed]\n    runtime  1s\n"
    )
    found = _blktests(tmp_path, output, sda="status\tnot run\n", sdb=_status("pass"))
    assert (found.status, found.reason) == ("passed", "1 of 2 not run: sda is a zoned block device")


@pytest.mark.parametrize("left", ["sda/block/024.out", "sda/block/024.runtime", "sda/block"])
def test_blktests_that_ended_only_in_part_has_not_passed(left: str, tmp_path: Path) -> None:
    """Where a part's shell ends, by exit or a signal, check goes on without a word of it."""
    path = tmp_path / left
    if path.suffix:
        path.parent.mkdir(parents=True)
        path.touch()
    else:
        path.mkdir(parents=True)
    found = _blktests(tmp_path, "", nodev=_status("pass"))
    reason = "check did not say how each part of the test ended: nodev: pass, sda: nothing"
    assert (found.status, found.reason) == ("unjudged", reason)


def test_what_a_test_of_blktests_leaves_in_its_temporary_folder_is_no_part_of_it(tmp_path: Path) -> None:
    (tmp_path / "tmpdir.block.024.x1A/block").mkdir(parents=True)
    assert _blktests(tmp_path, "", nodev=_status("pass")).status == "passed"


@pytest.mark.parametrize("status", [1, -9])
def test_blktests_that_passed_and_whose_check_failed_is_not_believed(status: int, tmp_path: Path) -> None:
    """A part that was killed before it began has left nothing."""
    path = tmp_path / "nodev_a/block/024"
    path.parent.mkdir(parents=True)
    path.write_text(_status("pass"))
    found = blktests.verdict("block/024", tmp_path, "", status)
    assert (found.status, found.reason) == (
        "unjudged",
        f"check ended with status {status}, and no part of the test failed",
    )
    path.write_text(_status("fail", "reason\texit\nexit_status\t3\n"))
    assert blktests.verdict("block/024", tmp_path, "", status).status == "failed"


@pytest.mark.parametrize("records", [{}, {"nodev": "date\t2026\n"}, {"nodev": _status("pass"), "sda": "status\t"}])
def test_blktests_that_says_nothing_is_not_believed(records: dict[str, str], tmp_path: Path) -> None:
    assert _blktests(tmp_path, "block/024 (do I/O)\n", **records).status == "unjudged"
