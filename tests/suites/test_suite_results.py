# SPDX-License-Identifier: MIT
"""What suites left elsewhere: the texts are what xfstests' own common/report and check, and blktests' check, write."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

import pytest

import sampleblk_lab as lab
from sampleblk_lab import suites
from sampleblk_lab.cli.main import main
from sampleblk_lab.suites import known
from sampleblk_lab.suites.folder import Folder, Plan
from sampleblk_lab.suites.suite import Setup

XUNIT = """<?xml version="1.0" encoding="UTF-8"?>
<testsuite
 xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"
 xsi:schemaLocation="https://git.kernel.org/pub/scm/fs/xfs/xfstests-dev.git https://git.kernel.org/"

 name="xfstests"
 failures="1" skipped="1" tests="3" time="19"
 hostname="lab"
  start_timestamp="2026-11-23T10:00:00+00:00"
        timestamp="2026-11-23T10:00:00+00:00"
 report_timestamp="2026-11-23T13:03:32+00:00"
>
\t<properties>
\t\t<property name="FSTYP" value="xfs"/>
\t\t<property name="KERNEL" value="6.12.5"/>
\t\t<property name="MKFS_OPTIONS" value="-b size=4096 -m &apos;x&apos;"/>
\t\t<property name="SECTION" value="xfs_4k"/>
\t</properties>
\t<testcase classname="xfstests.xfs_4k" name="generic/001" time="12">
\t</testcase>
\t<testcase classname="xfstests.xfs_4k" name="generic/002" time="0">
\t\t<skipped message="requires a block device that&apos;s &lt;special&gt;" />
\t</testcase>
\t<testcase classname="xfstests.xfs_4k" name="generic/003" time="7">
\t\t<failure message="- output mismatch (see generic/003.out.bad)" type="TestFail" />
\t\t<system-err>
<![CDATA[
--- src/generic/003.out
+b ]]]]><![CDATA[> c
]]>
\t\t</system-err>
\t</testcase>
</testsuite>
"""
CHECK_LOG = """
Kernel version: 6.1.0
Mon Nov 23 12:20:00 UTC 2026
Ran: generic/001 generic/004 generic/005
Not run: generic/004
Failures: generic/005
Failed 1 of 3 tests

Kernel version: 6.1.1
Mon Nov 23 12:40:00 UTC 2026
Ran: generic/005 generic/006 generic/007
Interrupted!
Failures: generic/006
Failed 1 of 3 tests
"""


def _put(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def _found(folder: Path) -> dict[tuple[str, str], tuple[str, str]]:
    rows = suites.read_results(folder).rows()
    return {(str(row["where"]), str(row["test"])): (str(row["status"]), str(row["reason"])) for row in rows}


def test_the_xml_of_xfstests(tmp_path: Path) -> None:
    (tmp_path / "result.xml").write_text(XUNIT)
    # It is known of the XML, and better.
    _put(tmp_path, generic__003_dot_out_dot_bad="b\n", check_dot_log="Ran: generic/009\nPassed all 1 tests\n")
    table = suites.read_results(tmp_path)
    assert list(table["test"]) == ["generic/001", "generic/002", "generic/003"]
    assert list(table["status"]) == ["passed", "notrun", "failed"]
    assert table["seconds"].values.tolist() == [12, 0, 7]
    assert table.row("generic/002")["reason"] == "requires a block device that's <special>"
    assert table.row("generic/003")["reason"] == "- output mismatch (see generic/003.out.bad)"
    assert set(table["kernel"]) == {"6.12.5"}
    assert set(table["fs"]) == {"xfs"}


def test_a_log_that_says_otherwise_than_the_xml_is_newer(tmp_path: Path) -> None:
    """A run without ``-R xunit`` has left the XML of the one before."""
    log = "Kernel version: 6.12.6\nRan: generic/001 generic/003\nFailures: generic/001\nFailed 1 of 2 tests\n"
    _put(tmp_path, result_dot_xml=XUNIT, check_dot_log=log, generic__001_dot_out_dot_bad="b\n")
    table = suites.read_results(tmp_path)
    assert list(table["status"]) == ["failed", "notrun", "passed"]
    assert list(table["reason"])[::2] == ["see .out.bad", ""]
    assert list(table["kernel"]) == ["6.12.6", "6.12.5", "6.12.6"]
    assert set(table["fs"]) == {"xfs"}


def test_the_log_of_xfstests_where_the_last_run_counts(tmp_path: Path) -> None:
    (tmp_path / "check.log").write_text(CHECK_LOG)
    (tmp_path / "check.time").write_text("generic/001 46\ngeneric/005 3\n")
    _put(tmp_path, generic__004_dot_notrun="no quota\n", generic__006_dot_dmesg="WARNING\n")
    table = suites.read_results(tmp_path)
    rows = {str(row["test"]): (row["status"], row["reason"], row["kernel"]) for row in table.rows()}
    assert rows == {
        "generic/001": ("passed", "", "6.1.0"),
        "generic/004": ("notrun", "no quota", "6.1.0"),
        "generic/005": ("passed", "", "6.1.1"),
        "generic/006": ("failed", "see .dmesg", "6.1.1"),
        # It was under way when the run was stopped: it has not passed.
        "generic/007": ("unjudged", "the run was interrupted", "6.1.1"),
    }
    assert table.row("generic/001")["seconds"] == 46


def test_a_test_that_failed_and_was_stopped_has_failed(tmp_path: Path) -> None:
    (tmp_path / "check.log").write_text("Kernel version: 6\nRan: generic/001\nInterrupted!\nFailures: generic/001\n")
    assert _found(tmp_path) == {("", "generic/001"): ("failed", "")}


@pytest.mark.parametrize(
    ("log", "statuses"),
    [
        ("Ran: generic/001 generic/002\n", ["unjudged", "unjudged"]),
        ("Ran: generic/001 generic/002\nNot run: generic/001\n", ["notrun", "unjudged"]),
        ("Ran: generic/001 generic/002\nFailures: generic/001\nFailed 1 of 2 te", ["failed", "unjudged"]),
        ("Ran: generic/001 generic/002\nFailures: generic/001\nFailed 1 of 2 tests", ["failed", "passed"]),
        (
            "Ran: generic/001 generic/002\n\nKernel version: 6.2\nRan: generic/001\nPassed all 1 tests\n",
            ["passed", "unjudged"],
        ),
    ],
)
def test_a_log_that_was_cut_has_no_test_passed(log: str, statuses: list[str], tmp_path: Path) -> None:
    """As a full disk, or a machine that went down, leaves it: what failed comes after what was run."""
    (tmp_path / "check.log").write_text(f"\nKernel version: 6.1\nMon Nov 23 12:20:00 UTC 2026\n{log}")
    assert [status for status, _ in _found(tmp_path).values()] == statuses


def test_a_tree_of_kernels_and_sections_as_kdevops_has(tmp_path: Path) -> None:
    for kernel in ("6.12.5", "6.13.0"):
        for section in ("xfs_4k", "xfs_crc"):
            folder = tmp_path / kernel / section
            folder.mkdir(parents=True)
            (folder / "result.xml").write_text(XUNIT.replace("6.12.5", kernel))
        # All sections together once more, without their names.
        (tmp_path / kernel / "check.log").write_text("Kernel version: 6\nRan: generic/001 generic/099\n")
    # Of a section that ended badly only single tests are left.
    _put(tmp_path / "6.13.0/xfs_nocrc", generic__388_dot_out_dot_bad="x", generic__389_dot_notrun="no dax")
    found = _found(tmp_path)
    assert len(found) == 4 * 3 + 2
    assert found["6.13.0/xfs_crc", "generic/003"][0] == "failed"
    assert found["6.13.0/xfs_nocrc", "generic/388"] == ("failed", "see .out.bad")
    assert found["6.13.0/xfs_nocrc", "generic/389"] == ("notrun", "no dax")


def test_what_blktests_left(tmp_path: Path) -> None:
    failed = "status\tfail\nreason\toutput\nexit_status\t0\nruntime\t2.512s\ndate\t2026-11-23 12:00:00\n"
    passed = "status\tpass\ndescription\tdo a lot\nruntime\t1.5s\n"
    _put(tmp_path / "nodev", block__001=passed, block__002=failed, block__002_dot_full="a log")
    _put(tmp_path / "sampleblk1", block__003="status\tnot run\n")
    table = suites.read_results(tmp_path)
    assert [(row["where"], row["test"], row["status"], row["reason"]) for row in table.rows()] == [
        ("nodev", "block/001", "passed", ""),
        ("nodev", "block/002", "failed", "output"),
        ("sampleblk1", "block/003", "notrun", ""),
    ]
    assert table["seconds"].values.tolist()[:2] == [1.5, 2.512]


def test_a_test_of_blktests_that_was_under_way_is_not_judged(tmp_path: Path) -> None:
    _put(tmp_path / "nodev", block__001_dot_out="", block__001_dot_runtime="", block__002="date\tx\nruntime\t1s\n")
    # Somebody else's files of such names.
    _put(
        tmp_path / "nodev", block__003="#!/bin/bash\n\techo x\n", block__004="status\tpass\n", block__004_dot_runtime=""
    )
    assert _found(tmp_path) == {
        ("nodev", "block/001"): ("unjudged", "the run was interrupted"),
        ("nodev", "block/002"): ("unjudged", "its file has no status"),
        ("nodev", "block/004"): ("passed", ""),
    }


def test_of_a_run_of_ours_no_test_is_lost(tmp_path: Path) -> None:
    """What panicked has left nothing that the suite wrote of how it ended."""
    tests = tuple(f"generic/00{number}" for number in range(1, 5))
    plan = Plan("xfstests", "", "", "6.1", {"release": "6.1.0"}, Setup(fs="ext4"), 7.0, tests)
    with Folder(tmp_path / "run", plan) as made:
        for test, status in zip(tests, ("passed", "panic", "hang"), strict=False):
            made.add({"test": test, "status": status, "reason": "why", "output": "", "seconds": 1.5})
    _put(tmp_path / "run/trials/generic/001/results", check_dot_log="Ran: generic/001\nPassed all 1 tests\n")
    _put(tmp_path / "run/trials/generic/002/results", generic__002_dot_full="")
    assert _found(tmp_path) == {
        ("run", "generic/001"): ("passed", "why"),
        ("run", "generic/002"): ("panic", "why"),
        ("run", "generic/003"): ("hang", "why"),
        ("run", "generic/004"): ("unjudged", "it has not ended"),
    }
    [row, *_] = suites.read_results(tmp_path).rows()
    assert (row["seconds"], row["kernel"], row["fs"]) == (1.5, "6.1.0", "ext4")


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("result.xml", XUNIT[:600], r"result\.xml:17: unclosed token.*expected the XML of check -R xunit"),
        ("result.xml", "<html/>", r"result\.xml:1: <html>"),
        ("result.xml", XUNIT.replace("generic/003", "../3"), r"result\.xml: the test '\.\./3'"),
        ("result.xml", XUNIT.replace('time="7"', 'time="x"'), r"time='x' of generic/003"),
        (
            "check.log",
            "\nKernel version: 6\nRan: generic/001 nonsense\n",
            r"check\.log:3: 'nonsense' in the tests of 'Ran'",
        ),
        ("check.log", "\n", "has no results of tests"),
        ("nodev/block/001", "status\tperhaps\n", r"block/001: status 'perhaps'.*expected pass, fail, not run"),
        ("readme", "text", "has no results of tests .*result.xml"),
    ],
)
def test_what_cannot_be_read_is_named(name: str, text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text(text)
    with pytest.raises(lab.InputError, match=said):
        suites.read_results(tmp_path)
    with pytest.raises(lab.InputError, match="is not a folder"):
        suites.read_results(tmp_path / "not there")


def _read_or_refused(folder: Path) -> str:
    try:
        suites.read_results(folder)
    except lab.InputError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("name", ["result.xml", "check.log", "check.time", "nodev/block/001"])
def test_damage_is_an_error_with_a_name_or_harmless(name: str, tmp_path: Path) -> None:
    texts = {"result.xml": XUNIT, "check.log": CHECK_LOG, "check.time": "generic/001 46\n"}
    good = texts.get(name, "status\tfail\nreason\toutput\nruntime\t2.512s\n").encode()
    (tmp_path / "nodev/block").mkdir(parents=True)
    (tmp_path / "check.log").write_text(CHECK_LOG)
    chance = random.Random(7)
    read = 0
    for _ in range(300):
        damaged = bytearray(good)
        for _ in range(chance.randrange(1, 4)):
            at = chance.randrange(len(damaged) + 1)
            damaged[at : at + chance.choice((0, 1, 20))] = chance.randbytes(chance.randrange(3))
        (tmp_path / name).write_bytes(damaged[: chance.choice((None, len(damaged) // 2))])
        said = _read_or_refused(tmp_path)
        assert said == "" or str(tmp_path) in said
        read += said == ""
    assert read


@pytest.mark.parametrize("name", ["result.xml", "check.log", "check.time", "generic/001.notrun", "block/001"])
def test_a_file_that_the_disk_does_not_give_is_named(name: str, tmp_path: Path) -> None:
    (tmp_path / "check.log").write_text("")
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    if path.parent != tmp_path:
        (tmp_path / "check.log").unlink()
    path.unlink(missing_ok=True)
    path.symlink_to("/proc/self/mem")  # not even root reads its first page
    with pytest.raises(OSError, match=rf"^\[Errno 5\] Input/output error: '{path}'$"):
        suites.read_results(tmp_path)


def test_a_folder_may_have_any_name(tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"kernel \xff:1")
    folder.mkdir()
    (folder / "check.log").write_bytes(b"Kernel version: 6.1\xff\nRan: generic/001\nFailures: generic/001\n")
    [row] = suites.read_results(tmp_path).rows()
    assert (row["where"], row["test"], row["status"]) == ("kernel \\udcff:1", "generic/001", "failed")


def test_times_that_are_none_are_named(tmp_path: Path) -> None:
    (tmp_path / "check.log").write_text("Kernel version: 6\nRan: generic/001\n")
    (tmp_path / "check.time").write_text("generic/001 5\ngeneric/002 soon\n")
    with pytest.raises(lab.InputError, match=r"check\.time:2: 'generic/002 soon'"):
        suites.read_results(tmp_path)


def test_others_results_are_a_baseline(tmp_path: Path) -> None:
    one = tmp_path / "one"
    one.mkdir()
    (one / "result.xml").write_text(XUNIT)
    assert known.baseline(one) == {"generic/001": "passed", "generic/002": "notrun", "generic/003": "failed"}
    (tmp_path / "two").mkdir()
    (tmp_path / "two/result.xml").write_text(XUNIT)
    with pytest.raises(lab.InputError, match=r"several places \(expected one of its folders: one, two\)"):
        known.baseline(tmp_path)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "result.xml").write_text(XUNIT)
    assert main(["suite-results", str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "generic/001  passed  12 s",
        "generic/002  notrun  0 s  requires a block device that's <special>",
        "generic/003  failed  7 s  - output mismatch (see generic/003.out.bad)",
        "1 passed, 1 notrun, 1 failed",
    ]
    assert main(["suite-results", "--bad", "--json", str(tmp_path)]) == 0
    assert [row["test"] for row in json.loads(capsys.readouterr().out)] == ["generic/003"]


def test_the_words_of_a_test_do_nothing_to_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "kernel\x1b[1m/generic"
    folder.mkdir(parents=True)
    (folder / "001.notrun").write_text("gone\x1b[2J\ngeneric/002  passed\r")
    assert main(["suite-results", str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "kernel\\x1b[1m  generic/001  notrun  gone\\x1b[2J\\ngeneric/002  passed",
        "1 notrun",
    ]
