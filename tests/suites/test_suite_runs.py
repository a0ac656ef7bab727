# SPDX-License-Identifier: MIT
"""A run's folder, and a run held against what is known: without a VM."""

from __future__ import annotations

import dataclasses
import json
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from sampleblk_lab.errors import FormatError, InputError
from sampleblk_lab.suites import folder, known, running
from sampleblk_lab.suites.folder import Folder, Plan
from sampleblk_lab.suites.known import judge
from sampleblk_lab.suites.suite import Selection, Setup, Test, Verdict, words_of_excludes
from sampleblk_lab.sweeps.work import Outcome
from support import files_of_at_most

PLAN = Plan(
    suite="xfstests",
    content="c",
    commit="v1",
    kernel="6.1",
    machine={"release": "6.1.0-56-amd64", "cpus": 1},
    setup=Setup(fs="ext4"),
    deadline_s=60.0,
    tests=("generic/001", "generic/002", "generic/003", "generic/004"),
)


def _record(test: str, status: str, reason: str = "", output: str = "") -> dict[str, Any]:
    return {"test": test, "status": status, "reason": reason, "output": output, "seconds": 1.5, "files": ""}


def _records(*statuses: str) -> list[dict[str, Any]]:
    return [_record(test, status) for test, status in zip(PLAN.tests, statuses, strict=False)]


# --- the folder


def test_what_ended_is_kept_and_what_was_not_judged_is_run_again(tmp_path: Path) -> None:
    with Folder(tmp_path, PLAN) as made:
        made.add(_record("generic/002", "failed"))
        made.add(_record("generic/001", "unjudged"))
        made.add(_record("generic/003", "hang"))
    with (tmp_path / "journal.jsonl").open("ab") as file:
        file.write(b'{"test": "generic/004", "sta')  # killed while it wrote
    with Folder(tmp_path, PLAN) as made:
        assert made.waiting() == ["generic/001", "generic/004"]
        made.add(_record("generic/001", "passed"))
    plan, records = folder.results(tmp_path)
    assert plan == PLAN
    assert [(each["test"], each["status"]) for each in records] == [
        ("generic/001", "passed"),
        ("generic/002", "failed"),
        ("generic/003", "hang"),
    ]


def test_what_a_full_disk_took_half_of_is_not_in_the_journal(tmp_path: Path) -> None:
    with Folder(tmp_path, PLAN) as made:
        made.add(_record("generic/001", "passed"))
        size = (tmp_path / "journal.jsonl").stat().st_size
        with files_of_at_most(size + 10), pytest.raises(OSError, match=r"File too large: '.*/journal.jsonl'"):
            made.add(_record("generic/002", "passed"))
        assert made.waiting() == ["generic/002", "generic/003", "generic/004"]
        made.add(_record("generic/003", "failed"))
    assert [each["test"] for each in folder.results(tmp_path)[1]] == ["generic/001", "generic/003"]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("content", "other"),
        ("machine", {"release": "6.12.1", "cpus": 1}),
        ("setup", Setup(fs="xfs")),
        ("tests", ("generic/001",)),
    ],
)
def test_a_folder_of_another_run_is_refused(field: str, value: object, tmp_path: Path) -> None:
    with Folder(tmp_path, PLAN):
        pass
    other = dataclasses.replace(PLAN, **{field: value})
    with pytest.raises(InputError, match=f"another run: {field} "), Folder(tmp_path, other):
        pass
    with Folder(tmp_path, dataclasses.replace(PLAN, deadline_s=90.0)):
        pass  # how long is waited decides nothing that ended


def test_of_another_machine_the_message_has_what_differs() -> None:
    long = {"cpus": 1, "memory_mib": 2048, "accel": None, "driver": "0" * 16, "release": "6.1.0", "image": "0" * 64}
    one, other = (dataclasses.replace(PLAN, machine={**long, "release": name}) for name in ("6.1.0", "6.12.1"))
    assert other.differs(one) == ["machine {'release': '6.1.0'}, now {'release': '6.12.1'}"]


def test_what_ended_in_a_run_that_nobody_knows_is_not_taken_for_this_one_s(tmp_path: Path) -> None:
    with Folder(tmp_path, PLAN) as made:
        made.add(_record("generic/001", "passed"))
    before = (tmp_path / "journal.jsonl").read_bytes()
    (tmp_path / "suite.json").unlink()
    with pytest.raises(InputError, match=r"has a journal\.jsonl and no suite\.json"), Folder(tmp_path, PLAN):
        pass
    assert (tmp_path / "journal.jsonl").read_bytes() == before
    assert not (tmp_path / "suite.json").exists()


def test_two_processes_do_not_add_to_one_folder(tmp_path: Path) -> None:
    with (
        Folder(tmp_path, PLAN),
        pytest.raises(InputError, match="another process runs a suite"),
        Folder(tmp_path, PLAN),
    ):
        pass


def test_a_damaged_journal_is_told_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    line = json.dumps(_record("generic/001", "passed")).encode() + b"\n"
    path.write_bytes(line + b'{"test": "generic/002", "status": "fine"}\n')
    with pytest.raises(FormatError) as raised:
        folder.read_journal(path)
    assert raised.value.offset == len(line)


@pytest.mark.parametrize("value", ["1.5", None, float("inf")])
def test_a_journal_s_seconds_are_a_number(value: object, tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_text(json.dumps({**_record("generic/001", "passed"), "seconds": value}) + "\n")
    with pytest.raises(FormatError, match="a test that ended"):
        folder.read_journal(path)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("machine", []),
        ("machine", {}),
        ("machine", {"release": 6}),
        ("machine", {"release": "6.1\x1b[2J"}),
        ("setup", {"fs": "ext4\x1b[2J"}),
        ("setup", {"device": "ram"}),
        ("deadline_s", "long"),
        ("tests", ["generic/001\x1b[2J"]),
        ("tests", [1]),
    ],
)
def test_a_plan_that_is_none_is_told(field: str, value: object, tmp_path: Path) -> None:
    (tmp_path / "suite.json").write_text(json.dumps({**PLAN.json(), field: value}))
    with pytest.raises(FormatError, match="a run of a suite of format 1"):
        Plan.load(tmp_path)


def test_junit_has_every_test_that_was_asked_for() -> None:
    records = _records("passed", "failed", "notrun")
    records[1]["output"] = "bad\x00\x1b[0m <tag> ]]> byte\ud800 \U0001f9ea"
    suite = ET.fromstring(folder.junit(PLAN, judge(PLAN, records)))
    assert _counts(suite) == ("4", "1", "1", "1")
    cases = {case.get("name"): list(case) for case in suite}
    assert cases["generic/002"][0].text == "bad\\x00\\x1b[0m <tag> ]]> byte\\ud800 \U0001f9ea"
    assert cases["generic/004"][0].get("message") == "it has not ended"


def test_junit_counts_each_test_once() -> None:
    """A reader has as failed what is neither an error nor skipped of those that did not pass."""
    suite = ET.fromstring(folder.junit(PLAN, judge(PLAN, _records("panic", "failed", "hang", "unjudged"))))
    assert _counts(suite) == ("4", "1", "3", "0")
    assert [len(suite.findall(f"testcase/{kind}")) for kind in ("failure", "error")] == [1, 3]


def _counts(suite: ET.Element) -> tuple[str | None, ...]:
    return tuple(suite.get(name) for name in ("tests", "failures", "errors", "skipped"))


# --- what is known


def _well_in_junit(found: known.Judged) -> bool:
    """Whether who reads JUnit only finds that all is well."""
    suite = ET.fromstring(folder.junit(PLAN, found))
    tests, *bad, _ = map(int, filter(None, _counts(suite)))
    assert len(suite) == tests
    return not any(bad)


@pytest.mark.parametrize(
    ("statuses", "ok"),
    [
        (("passed", "passed", "passed", "passed"), True),
        (("passed", "notrun", "notrun", "notrun"), True),
        (("notrun", "notrun", "notrun", "notrun"), False),
        (("passed", "passed", "passed", "failed"), False),
        (("passed", "passed", "passed", "panic"), False),
        (("passed", "passed", "passed", "hang"), False),
        (("passed", "passed", "passed", "unjudged"), False),
        (("passed", "passed", "passed"), False),
        ((), False),
    ],
)
def test_a_run_is_well_if_something_was_tested_and_nothing_failed(statuses: tuple[str, ...], ok: bool) -> None:
    found = judge(PLAN, _records(*statuses))
    assert found.ok is ok
    assert _well_in_junit(found) is ok


def test_of_many_that_were_not_judged_the_text_names_some(tmp_path: Path) -> None:
    plan = dataclasses.replace(PLAN, tests=tuple(f"generic/{number:03}" for number in range(1, 25)))
    ran = running.Ran(tmp_path, plan, judge(plan, []), interrupted=True, seconds=1.0)
    assert "not judged: generic/001 generic/002 " in ran.text()
    assert " generic/020 and 4 more, see results.json\n" in ran.text()
    assert len(ran.json()["unjudged"]) == 24


@pytest.mark.parametrize(
    "outcome",
    [
        Outcome(values={**Verdict("notrun", "no \x1b[2J\x07 disk").json(), "seconds": 1.5}),
        Outcome(kind="error", message="OSError: no \x1b[2J\x07 disk\nand more"),
        Outcome(kind="error", message="OSError: '/mnt/results/\udcff'"),
    ],
)
def test_the_words_of_a_test_do_nothing_to_the_terminal(outcome: Outcome, tmp_path: Path) -> None:
    record = {**_record("generic/003", "unjudged"), **running._record(outcome)}
    text = running.Ran(tmp_path, PLAN, judge(PLAN, [record]), interrupted=False, seconds=1.0).text()
    assert "\\x1b[2J\\x07 disk" in text or "/mnt/results/\\udcff" in text
    assert text.replace("\n", "").isprintable()


@pytest.mark.parametrize(
    ("before", "now", "new", "fixed", "skipped", "ok"),
    [
        ("failed", "failed", False, False, False, True),
        ("panic", "panic", False, False, False, True),
        ("hang", "failed", False, False, False, True),
        ("failed", "panic", True, False, False, False),
        ("passed", "failed", True, False, False, False),
        ("notrun", "failed", True, False, False, False),
        ("unjudged", "failed", True, False, False, False),
        ("failed", "passed", False, True, False, True),
        ("passed", "notrun", False, False, True, False),
        ("failed", "notrun", False, False, True, False),
        ("notrun", "notrun", False, False, False, True),
    ],
)
def test_a_run_beside_an_earlier_one(before: str, now: str, new: bool, fixed: bool, skipped: bool, ok: bool) -> None:
    found = judge(PLAN, _records(now, "passed", "passed", "passed"), before={"generic/001": before})
    assert (bool(found.new), bool(found.fixed), bool(found.skipped), found.ok) == (new, fixed, skipped, ok)
    assert _well_in_junit(found) is ok


@pytest.mark.parametrize(
    ("line", "covered"),
    [
        ("generic/001", True),
        ("generic/*", True),
        ("generic/002", False),
        ("generic/001 kernel=6.1", True),
        ("generic/001 kernel=6", True),
        ("generic/001 kernel=6.1.0-5", False),
        ("generic/001 kernel=6.12", False),
        ("generic/001 fs=ext4 device=sampleblk mode=mq", True),
        ("generic/001 fs=xfs", False),
        ("generic/001 kernel=6.1 device=brd", False),
    ],
)
def test_a_line_of_a_list_is_about_what_it_says(line: str, covered: bool, tmp_path: Path) -> None:
    path = tmp_path / "known"
    path.write_text(f"# ours\n\n{line}  # because\n")
    [one] = known.read(path)
    assert one.covers("generic/001", PLAN) is covered
    found = judge(PLAN, _records("failed", "passed", "passed", "passed"), [one])
    assert found.ok is covered
    assert found.rows[0]["known"] == ("because" if covered else "")


@pytest.mark.parametrize(
    ("lines", "now", "fixed"),
    [
        ("generic/*", ("failed", "passed"), []),  # which of them fail it does not say
        ("generic/*", ("passed", "passed"), ["generic/001", "generic/002"]),
        ("generic/* status=hang", ("failed", "passed"), ["generic/002"]),
        ("generic/*\ngeneric/002", ("failed", "passed"), ["generic/002"]),
        ("generic/00[12]", ("failed", "notrun"), []),
    ],
)
def test_what_a_pattern_covers_is_fixed_when_nothing_of_it_fails(
    lines: str, now: tuple[str, str], fixed: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "known"
    path.write_text(f"{lines}\n")
    assert judge(PLAN, _records(*now), known.read(path)).fixed == fixed


@pytest.mark.parametrize("told", ["", "failed", "panic", "hang"])
@pytest.mark.parametrize("now", ["failed", "panic", "hang", "passed"])
def test_a_line_of_a_list_is_about_one_way_to_end(told: str, now: str, tmp_path: Path) -> None:
    """Who knows that a test fails knows nothing of its panic."""
    path = tmp_path / "known"
    path.write_text(f"generic/001 {f'status={told}' if told else ''}\n")
    found = judge(PLAN, _records(now, "passed", "passed", "passed"), known.read(path))
    assert found.ok is (now in ("passed", told or "failed"))
    assert bool(found.fixed) is (now == "passed")
    # A list's word on how it ends holds also beside an earlier run in which it failed.
    beside = judge(PLAN, _records(now, "passed", "passed", "passed"), known.read(path), {"generic/001": "failed"})
    assert beside.ok is (found.ok or now == "failed")


@pytest.mark.parametrize(
    ("selection", "gone"),
    [
        (Selection(groups=("auto",)), ["generic/003"]),
        (Selection(groups=("generic/auto",), without=("generic/001",)), ["generic/003"]),
        (Selection(groups=("auto",), without=("generic/003",)), []),
        (Selection(("generic/*",)), ["generic/003"]),
        (Selection(("generic",)), ["generic/003"]),
        (Selection(("generic/001", "generic/002")), []),
    ],
)
def test_a_test_that_is_gone_is_missed_where_it_may_be_meant(selection: Selection, gone: list[str]) -> None:
    """It may have another name now, and nobody has looked at what it looked at."""
    there = frozenset({"generic/001", "generic/002"})
    prepared = running.Prepared(PLAN, None, [], None, None, selection, there)  # type: ignore[arg-type]
    before = {"generic/001": "passed", "generic/003": "passed", "generic/004": "notrun", "xfs/001": "passed"}
    assert prepared.gone(before) == gone
    passed = _records("passed", "passed", "passed", "passed")
    found = judge(PLAN, passed, before=before, gone=gone)
    assert found.ok is not bool(gone)
    assert _well_in_junit(found) is found.ok


def test_a_run_that_goes_on_misses_what_was_asked_for_when_it_was_begun(tmp_path: Path) -> None:
    """The part that goes on is told the names of its tests, in which one that is gone cannot be."""
    asked = Selection(groups=("auto",), without=("generic/007",))
    machine = {**PLAN.machine, "memory_mib": 512, "accel": None, "driver": None}
    begun = dataclasses.replace(PLAN, machine=machine, asked=asked)
    with Folder(tmp_path, begun) as made:
        for test in PLAN.tests:
            made.add(_record(test, "passed"))
    names = Selection(PLAN.tests)
    plan = dataclasses.replace(begun, asked=names)
    there = frozenset(PLAN.tests)
    prepared = running.Prepared(plan, None, [], None, None, names, there)  # type: ignore[arg-type]
    before = dict.fromkeys((*PLAN.tests, "generic/005", "generic/007"), "passed")
    ran = running.run(prepared, tmp_path, before=before, progress=False, workers=1)
    assert (ran.judged.gone, ran.judged.ok) == (["generic/005"], False)
    assert folder.Plan.load(tmp_path).asked == asked


@pytest.mark.parametrize("word", ["6.1", "release=6.1", "kernel=", "status=", "status=passed"])
def test_a_list_that_is_none_is_told_with_its_line(word: str, tmp_path: Path) -> None:
    path = tmp_path / "known"
    path.write_text(f"generic/001\ngeneric/002 {word}\n")
    with pytest.raises(InputError, match=rf"known:2: '{word}' is not a condition"):
        known.read(path)


def test_an_earlier_run_is_a_folder_or_its_results(tmp_path: Path) -> None:
    with Folder(tmp_path, PLAN) as made:
        made.add(_record("generic/002", "failed"))
    assert known.baseline(tmp_path) == {"generic/002": "failed"}
    path = tmp_path / "results.json"
    path.write_text(json.dumps({"tests": [_record("generic/002", "hang")]}))
    assert known.baseline(path) == {"generic/002": "hang"}
    row = _record("generic/002", "failed")
    path.write_text(json.dumps({"tests": [row], "counts": {"failed": 1}}))
    assert known.baseline(path) == {"generic/002": "failed"}
    for altered in (
        {"tests": [_record("generic/002", "fine")]},
        {"tests": [row, _record("generic/002", "passed")]},
        {"tests": [row], "counts": {"failed": 1, "passed": 1}},
        {"tests": [row], "counts": {"failed": 2}},
        {"tests": [_record("generic/002\x00", "passed")]},
    ):
        path.write_text(json.dumps(altered))
        with pytest.raises(FormatError):
            known.baseline(path)
    with pytest.raises(InputError, match="there is no"):
        known.baseline(tmp_path / "none")
    # With nothing in it nothing could be missed.
    path.write_text(json.dumps({"tests": []}))
    (tmp_path / folder.JOURNAL).unlink()
    for empty in (path, tmp_path):
        with pytest.raises(InputError, match="no test has ended in"):
            known.baseline(empty)


def test_what_an_earlier_run_was_of_is_told(tmp_path: Path) -> None:
    with Folder(tmp_path / "run", PLAN):
        pass
    assert known.origin(tmp_path / "run", "xfstests") == "ext4 on sampleblk, Linux 6.1.0-56-amd64"
    setup = {"fs": "xfs", "device": "sampleblk", "mode": "bio", "mkfs": "-m crc=0", "mount": ""}
    path = tmp_path / "results.json"
    path.write_text(json.dumps({"suite": "xfstests", "release": "6.12.1", "setup": setup, "tests": []}))
    assert known.origin(path, "xfstests") == "xfs on bio of sampleblk, mkfs -m crc=0, Linux 6.12.1"
    path.write_text(json.dumps({"tests": []}))
    assert known.origin(path, "xfstests") == ""
    path.write_text(json.dumps({"release": "6.1\x1b[2J"}))
    assert known.origin(path, "xfstests") == "Linux 6.1\\x1b[2J"
    with pytest.raises(InputError, match="has a run of xfstests"):
        known.origin(tmp_path / "run", "blktests")
    (tmp_path / "theirs/generic").mkdir(parents=True)
    (tmp_path / "theirs/check.log").write_text("Kernel version: 6.6.1\nRan: generic/001\nPassed all 1 tests\n")
    assert known.origin(tmp_path / "theirs", "xfstests") == "Linux 6.6.1"


# --- which tests

TESTS = [
    Test("generic/001", ("rw", "auto", "quick")),
    Test("generic/002", ("auto", "dangerous")),
    Test("generic/010", ("quick",)),
    Test("ext4/001", ("auto", "quick")),
]


@pytest.mark.parametrize(
    ("selection", "names"),
    [
        (Selection(("generic/001",)), ["generic/001"]),
        (Selection(("tests/generic/001",)), ["generic/001"]),
        (Selection(("generic/00?",)), ["generic/001", "generic/002"]),
        (Selection(("ext4",)), ["ext4/001"]),
        (Selection((), ("quick",)), ["generic/001", "generic/010", "ext4/001"]),
        (Selection((), ("generic/quick",)), ["generic/001", "generic/010"]),
        (Selection(("generic/002",), ("ext4/auto",)), ["generic/002", "ext4/001"]),
        (Selection((), ("auto",), ("dangerous",)), ["generic/001", "ext4/001"]),
        (Selection((), ("all",), (), ("generic/0?0", "ext4")), ["generic/001", "generic/002"]),
        (Selection((), ("all",), (), ("tests/generic/0?0", "tests/ext4/")), ["generic/001", "generic/002"]),
    ],
)
def test_tests_are_named_by_name_pattern_folder_and_group(selection: Selection, names: list[str]) -> None:
    assert [test.name for test in selection.of(TESTS)] == names


@pytest.mark.parametrize(
    "selection",
    [Selection(), Selection(("generic/999",)), Selection((), ("quik",)), Selection(("ext4",), (), ("quik",))],
)
def test_a_name_that_means_nothing_is_refused(selection: Selection) -> None:
    with pytest.raises(InputError):
        selection.of(TESTS)


def test_an_exclude_file_has_a_name_in_each_line(tmp_path: Path) -> None:
    (tmp_path / "exclude").write_text("# slow\ngeneric/001\n  generic/002   # crashes\n\n#generic/003\n")
    assert words_of_excludes(tmp_path / "exclude") == ["generic/001", "generic/002"]
