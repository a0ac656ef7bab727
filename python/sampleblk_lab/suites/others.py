# SPDX-License-Identifier: MIT
"""What the suites left where somebody else ran them: result folders of xfstests, of blktests, and of kdevops.

kdevops keeps what the suites left as they left it, a folder for each kernel and section. Of xfstests the tests in the
XML of ``-R xunit`` count where there is one (common/report), else those in ``check.log`` with ``check.time`` (check),
and where both are missing, as in lists of what failed, the files of single tests. blktests has a file for each
test (check). Of a run of ours its journal counts: of a test that ended its guest, the suite has left nothing.
"""

from __future__ import annotations

import os
import re
import xml.etree.ElementTree as ET
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from sampleblk_lab.errors import InputError
from sampleblk_lab.paths import naming
from sampleblk_lab.suites import blktests
from sampleblk_lab.suites import folder as folders
from sampleblk_lab.suites.suite import FAILED, NOTRUN, PASSED, UNJUDGED
from sampleblk_lab.table import Table
from sampleblk_lab.texts import utf8

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

XUNIT, LOG, TIMES = "result.xml", "check.log", "check.time"

_TEST = re.compile(r"[a-z][\w-]*/\d{3,}(?:-[\w-]+)?", re.ASCII)
# The last line of a run in check.log, before which it may still say that a test failed or was not run.
_SUMMED_UP = re.compile(r"Passed all \d+ tests|Failed \d+ of \d+ tests", re.ASCII)
_LISTS = {"Ran": PASSED, "Not run": NOTRUN, "Failures": FAILED}
# What blktests writes of a test that ended, beside its status. While it runs there is a file NUMBER.runtime.
_RECORDED = frozenset({"date", "description", "reason", "exit_status", "runtime"})
# What of a single test says how it ended.
_LEFT = {".out.bad": FAILED, ".dmesg": FAILED, ".core": FAILED, ".notrun": NOTRUN}


@dataclass(frozen=True)
class Ended:
    """A test that ended.

    Attributes:
        where: Its folder below the one that was read; tests of one name in several were run on several things.
        test: Its name.
        status: One of :data:`sampleblk_lab.suites.suite.STATUSES`.
        seconds: How long it took; NaN where nothing says so.
        reason: Why it failed, or was not run, as far as anything says so.
        kernel: The release, as far as anything says so.
        fs: The file system, as far as anything says so.
    """

    where: str
    test: str
    status: str
    seconds: float = float("nan")
    reason: str = ""
    kernel: str = ""
    fs: str = ""


def read_results(path: str | os.PathLike[str]) -> Table:
    """What came of each test that a folder has results of, at any depth.

    Args:
        path: The folder: xfstests' ``results``, blktests' ``results``, or one that has several of them, as kdevops'.

    Returns:
        Columns where, test, status, seconds, reason, kernel, fs: see :class:`Ended`. Of a test that ran several times
        in one folder the last counts.

    Raises:
        InputError: There are no results, or a file of them is not what the suite writes; with its line.
        OSError: A file cannot be read.
    """
    rows = [asdict(one) for one in read(Path(path))]
    columns = list(Ended.__dataclass_fields__)
    return Table.of({name: [row[name] for row in rows] for name in columns}, units={"seconds": "s"}, key="test")


def read(root: Path) -> list[Ended]:
    """The same, one by one."""
    if not root.is_dir():
        raise InputError(f"{root} is not a folder", expected="a folder with results of xfstests or blktests")
    found: dict[tuple[str, str], Ended] = {}
    # Folders of whose tests something better is known than the files that single ones left.
    told: set[Path] = set()
    for folder, names, files in _walk(root):
        with_own = any((folder / name / each).exists() for name in names for each in (XUNIT, LOG))
        if folders.ABOUT in files and folders.JOURNAL in files:
            names.clear()
            ended: Iterable[Ended] = _of_run(folder, _name(root, folder))
        elif XUNIT in files or (LOG in files and not with_own):  # else it repeats what the sections have
            told.add(folder)
            ended = _of_check(folder, _name(root, folder), files)
        elif told.intersection((folder, *folder.parents)):
            continue
        else:
            ended = _of_files(root, folder, files)
        for one in ended:
            found[one.where, one.test] = one
    if not found:
        expected = f"{XUNIT}, {LOG}, files such as generic/001.out.bad, or blktests' nodev/block/001"
        raise InputError(f"{root} has no results of tests", expected=expected)
    return list(found.values())


def _walk(root: Path) -> Iterator[tuple[Path, list[str], list[str]]]:
    for folder, names, files in os.walk(root):
        names.sort()
        yield Path(folder), names, sorted(files)


def _name(root: Path, folder: Path) -> str:
    return utf8(str(folder.relative_to(root))) if folder != root else ""


def _of_run(path: Path, where: str) -> Iterator[Ended]:
    plan, records = folders.results(path)
    kernel, fs = plan.release, plan.setup.fs
    for one in records:
        yield Ended(where, one["test"], one["status"], float(one["seconds"]), one["reason"], kernel, fs)
    ended = {one["test"] for one in records}
    for test in plan.tests:
        if test not in ended:
            yield Ended(where, test, UNJUDGED, reason="it has not ended", kernel=kernel, fs=fs)


def _of_check(folder: Path, where: str, files: Iterable[str]) -> Iterator[Ended]:
    """What xfstests' check says of a folder's tests: the log, where it differs from the XML.

    The log is never the older one: a run without ``-R xunit`` adds to it only. And a test that check ran several times
    (``-L``) has failed there if it failed once.
    """
    log = {one.test: one for one in _of_log(folder, where)} if LOG in files else {}
    if XUNIT not in files:
        yield from log.values()
        return
    for one in _of_xunit(folder / XUNIT, where):
        last = log.get(one.test, one)
        yield one if one.status == last.status else replace(last, fs=one.fs)


def _of_xunit(path: Path, where: str) -> Iterator[Ended]:
    try:
        with naming(path):
            suite = ET.parse(path).getroot()
    except ET.ParseError as error:
        raise InputError(str(error), str(path), error.position[0], "the XML of check -R xunit") from None
    except (LookupError, ValueError) as error:  # an encoding that nobody knows
        raise InputError(str(error), str(path), 1, "the XML of check -R xunit") from None
    if suite.tag != "testsuite":
        raise InputError(f"<{suite.tag}>", str(path), 1, "<testsuite>, as check -R xunit writes it")
    about = {each.get("name", ""): each.get("value", "") for each in suite.iter("property")}
    kernel, fs = about.get("KERNEL", ""), about.get("FSTYP", "")
    for case in suite.iter("testcase"):
        name = case.get("name", "")
        if not _TEST.fullmatch(name):
            raise InputError(f"the test {name!r}", str(path), 0, "such as generic/001")
        try:
            seconds = float(case.get("time", "nan"))
        except ValueError:
            raise InputError(f"time={case.get('time')!r} of {name}", str(path), 0, "seconds") from None
        status, reason = PASSED, ""
        for part in case:
            if part.tag in ("failure", "error"):
                status, reason = FAILED, part.get("message", "")
            elif part.tag == "skipped" and status == PASSED:
                status, reason = NOTRUN, part.get("message", "")
        yield Ended(where, name, status, seconds, reason.strip(), kernel, fs)


def _text(path: Path) -> str:
    with naming(path):
        return path.read_text(errors="replace")


def _times(path: Path) -> dict[str, float]:
    found: dict[str, float] = {}
    if not path.exists():
        return found
    for number, line in enumerate(_text(path).splitlines(), 1):
        test, _, seconds = line.strip().partition(" ")
        if not test:
            continue
        if not _TEST.fullmatch(test) or not re.fullmatch("[0-9]{1,9}", seconds.strip()):
            raise InputError(f"{line!r}", str(path), number, "a test and its seconds")
        found[test] = float(seconds)
    return found


def _of_log(folder: Path, where: str) -> Iterator[Ended]:
    """What ``check.log`` has, to which each run adds; ``check.time`` has the last time of each test that passed."""
    path = folder / LOG
    times = _times(folder / TIMES)
    found: dict[str, Ended] = {}
    kernel, last = "", ""
    ran: list[str] = []

    def cut() -> None:
        """A run that was not written to its end has only said which tests it ran."""
        for test in ran:
            if found[test].status == PASSED:
                reason = f"{LOG} does not say how its run ended"
                found[test] = replace(found[test], status=UNJUDGED, seconds=float("nan"), reason=reason)
        ran.clear()

    for number, line in enumerate(_text(path).splitlines(), 1):
        head, colon, rest = line.partition(":")
        if head == "Kernel version" and colon:
            cut()
            kernel, last = rest.strip(), ""
        elif _SUMMED_UP.fullmatch(line.strip()):
            ran.clear()
        elif line.startswith("Interrupted!"):
            if last:  # it was under way
                found[last] = Ended(where, last, UNJUDGED, reason="the run was interrupted", kernel=kernel)
        elif colon and head in _LISTS:
            status = _LISTS[head]
            for test in rest.split():
                if not _TEST.fullmatch(test):
                    raise InputError(f"{test!r} in the tests of {head!r}", str(path), number, "such as generic/001")
                reason = _reason(folder, test, status)
                seconds = times.get(test, float("nan")) if status == PASSED else float("nan")
                found[test] = Ended(where, test, status, seconds, reason, kernel)
                if head == "Ran":
                    last = test
                    ran.append(test)
    cut()
    yield from found.values()


def _reason(folder: Path, test: str, status: str) -> str:
    if status == NOTRUN:
        path = folder / f"{test}.notrun"
        return _text(path).strip() if path.exists() else ""
    if status == FAILED:
        left = [end for end in _LEFT if end != ".notrun" and (folder / f"{test}{end}").exists()]
        return f"see {', '.join(left)}" if left else ""
    return ""


def _of_files(root: Path, folder: Path, files: Iterable[str]) -> Iterator[Ended]:
    """Single tests: of blktests, or what xfstests left of those that failed or were not run."""
    where = "" if folder == root else _name(root, folder.parent)
    seen: dict[str, Ended] = {}
    for name in files:
        number, dot, end = name.partition(".")
        test = f"{folder.name}/{number}"
        if not _TEST.fullmatch(test):
            continue
        if not dot:
            with naming(folder / name):
                record = blktests.record(folder / name)
            if "status" not in record:
                if record.keys() & _RECORDED:
                    seen[test] = Ended(where, test, UNJUDGED, reason="its file has no status")
                continue
            seen[test] = _of_record(folder / name, where, test, record)
        elif end == "runtime" and test not in seen:
            seen[test] = Ended(where, test, UNJUDGED, reason="the run was interrupted")
        elif (status := _LEFT.get(f".{end}")) is not None and seen.get(test, Ended("", "", NOTRUN)).status == NOTRUN:
            reason = _reason(folder.parent, test, status)
            seen[test] = Ended(where, test, status, reason=reason)
    yield from seen.values()


def _of_record(path: Path, where: str, test: str, record: dict[str, str]) -> Ended:
    statuses = {"pass": PASSED, "fail": FAILED, "not run": NOTRUN}
    if record["status"] not in statuses:
        raise InputError(f"status {record['status']!r}", str(path), 0, ", ".join(statuses))
    took = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)s", record.get("runtime", ""))
    seconds = float(took[1]) if took else float("nan")
    return Ended(where, test, statuses[record["status"]], seconds, record.get("reason", ""))


def as_baseline(root: Path) -> dict[str, str]:
    """What came of each test, for a comparison.

    Raises:
        InputError: As :func:`read_results`; or tests were run on several things, of which none is meant more.
    """
    ended = read(root)
    places = sorted({one.where for one in ended})
    found = {one.test: one.status for one in ended}
    if len(found) < len(ended):
        expected = f"one of its folders: {', '.join(places[:8])}{', …' if places[8:] else ''}"
        raise InputError(f"{root} has results of some tests in several places", expected=expected)
    return found
