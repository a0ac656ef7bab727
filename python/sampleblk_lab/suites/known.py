# SPDX-License-Identifier: MIT
"""Failures that are known: those of an earlier run, and those that a file lists."""

from __future__ import annotations

import fnmatch
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sampleblk_lab.errors import FormatError, InputError
from sampleblk_lab.suites import folder, others
from sampleblk_lab.suites.suite import BAD, FAILED, NOTRUN, PASSED, STATUSES, UNJUDGED
from sampleblk_lab.texts import read_json, read_text, readable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sampleblk_lab.suites.folder import Plan

_CONDITIONS = ("kernel", "fs", "device", "mode")
_STATUS = "status"


@dataclass(frozen=True)
class Known:
    """A line of a list of known failures.

    Attributes:
        pattern: Of the tests' names.
        conditions: On what: ``kernel``, ``fs``, ``device``, ``mode``.
        reason: Why, or where it is told.
        status: How it ends.
    """

    pattern: str
    conditions: tuple[tuple[str, str], ...]
    reason: str
    status: str = FAILED

    def covers(self, test: str, plan: Plan) -> bool:
        """Whether it is about a test of a run."""
        own = {"fs": plan.setup.fs, "device": plan.setup.device, "mode": plan.setup.mode}
        return fnmatch.fnmatchcase(test, self.pattern) and all(
            _is_of(plan.release, value) if name == "kernel" else own[name] == value for name, value in self.conditions
        )


def _is_of(release: str, series: str) -> bool:
    """Whether a release is of a series: 6.1.0-56-amd64 is of 6.1, and not of 6.12."""
    return release == series or (release.startswith(series) and not release[len(series)].isdigit())


def read(path: Path) -> list[Known]:
    """The failures that a file lists: ``generic/475 kernel=6.1 fs=ext4  # why``, a test or a pattern in each line.

    Raises:
        InputError: A line is something else.
    """
    found = []
    for number, line in enumerate(read_text(path).splitlines(), 1):
        said, _, reason = line.partition("#")
        words = said.split()
        if not words:
            continue
        conditions = []
        status = FAILED
        for word in words[1:]:
            name, equals, value = word.partition("=")
            if name == _STATUS and value in BAD:
                status = value
            elif name in _CONDITIONS and equals and value:
                conditions.append((name, value))
            else:
                names = ", ".join(f"{each}=" for each in _CONDITIONS)
                expected = f"a test, conditions ({names}, {_STATUS}={'|'.join(BAD)}) and # why"
                raise InputError(f"{word!r} is not a condition", str(path), number, expected)
        found.append(Known(words[0], tuple(conditions), reason.strip() or str(path), status))
    return found


def baseline(path: Path) -> dict[str, str]:
    """What came of each test in an earlier run.

    Args:
        path: Its folder, or its ``results.json``; or a folder with what the suite itself left somewhere else.

    Raises:
        InputError: There is none, or nothing ended in it.
        FormatError: It is not what a run writes.
    """
    found = _baseline(path)
    if not found:
        raise InputError(f"no test has ended in {path}", expected="an earlier run to hold this one against")
    return found


def _baseline(path: Path) -> dict[str, str]:
    if path.is_dir() and not (path / folder.ABOUT).exists():
        return others.as_baseline(path)
    if path.is_dir():
        return {record["test"]: record["status"] for record in folder.results(path)[1]}
    try:
        value = read_json(path, {"tests": [{"test": str, "status": str}], "counts": {...: int}})
        found = {row["test"]: row["status"] for row in value["tests"]}
        # Each once, and as many as it says: one that was cut, or joined with another, would be held against less.
        counts = Counter(found.values())
        if (
            not set(counts) <= set(STATUSES)
            or len(found) != len(value["tests"])
            or value.get("counts", counts) != counts
            or any(readable(name) != name for name in found)  # JUnit's XML has them all
        ):
            raise ValueError
    except FileNotFoundError:
        raise InputError(f"there is no {path}", expected="the folder of a run, or its results.json") from None
    except (ValueError, TypeError, KeyError):
        raise FormatError(str(path), 0, "the results.json of a run of a suite") from None
    return found


def origin(path: Path, suite: str) -> str:
    """What an earlier run was of, in words: ``ext4 on brd, Linux 6.1.0-56-amd64``.

    Args:
        path: As for :func:`baseline`, which has read it.
        suite: The suite that is run now.

    Raises:
        InputError: It was another suite's.
    """
    if path.is_dir() and not (path / folder.ABOUT).exists():
        ended = others.read(path)
        fs, kernels = (
            {each for each in one if each} for one in zip(*((one.fs, one.kernel) for one in ended), strict=True)
        )
        return _told(", ".join(sorted(fs)), "", ", ".join(sorted(kernels)))
    if path.is_dir():
        plan = folder.Plan.load(path)
        about: dict[str, Any] = {"suite": plan.suite, "release": plan.release, "setup": asdict(plan.setup)}
    else:
        # An older one may lack some of it.
        about = read_json(path, {"suite": str, "release": str, "setup": {...: object}})
    if about.get("suite") not in (None, suite):
        raise InputError(f"{path} has a run of {about['suite']}", expected=f"one of {suite}")
    setup = {name: str(value) for name, value in (about.get("setup") or {}).items() if value}
    options = [f"{name} {setup[name]}" for name in ("mkfs", "mount") if name in setup]
    mode = f"{setup.get('mode', '')} of" if setup.get("mode", "mq") != "mq" else ""
    device = " ".join(filter(None, ("on", mode, setup["device"]))) if "device" in setup else ""
    return _told(setup.get("fs", ""), ", ".join(filter(None, (device, *options))), about.get("release") or "")


def _told(fs: str, rest: str, release: str) -> str:
    return readable(
        ", ".join(filter(None, (" ".join(filter(None, (fs, rest))), f"Linux {release}" if release else "")))
    )


@dataclass(frozen=True)
class Judged:
    """A run beside what is known.

    Attributes:
        rows: A row for each test that ended, with ``known``: why its failure is none of news, or nothing.
        new: The tests whose failures are new.
        fixed: Those that pass, and were known to fail.
        skipped: Those that are not run any more, and were in the earlier run.
        gone: Those of them that the suite does not have any more.
        unjudged: Those of which nothing can be said, or that have not ended.
        judged: How many have passed or failed.
    """

    rows: list[dict[str, Any]]
    new: list[str]
    fixed: list[str]
    skipped: list[str]
    gone: list[str]
    unjudged: list[str]
    judged: int

    @property
    def ok(self) -> bool:
        """Whether something was tested, and all that was asked for is as good as it is known to be."""
        return self.judged > 0 and not (self.new or self.skipped or self.gone or self.unjudged)


def judge(
    plan: Plan,
    records: Iterable[Mapping[str, Any]],
    known: Sequence[Known] = (),
    before: Mapping[str, str] | None = None,
    gone: Sequence[str] = (),
) -> Judged:
    """Holds a run against what is known.

    Args:
        plan: What was to be done.
        records: What came of each test that ended.
        known: The failures that lists have.
        before: What came of each test in an earlier run.
        gone: The tests that were run then, and that the suite does not have any more.
    """
    before = before or {}
    rows = []
    records = list(records)
    # A pattern does not say that all of its tests fail: what of them passes beside one that fails was not known to.
    bad = [(record["test"], record["status"]) for record in records if record["status"] in BAD]
    some_fail = {
        each for each in known if any(each.status == status and each.covers(test, plan) for test, status in bad)
    }
    for record in records:
        test, status = record["test"], record["status"]
        # What fails there and panics now is news, and what passes is as it was not to be.
        told = (
            each
            for each in known
            if each.covers(test, plan)
            and (status == each.status if status in BAD else each.pattern == test or each not in some_fail)
        )
        reason = next((each.reason for each in told), "")
        was = before.get(test)
        # What failed there and ends the guest now is worse.
        worse = was == FAILED and status in BAD and status != FAILED
        if not reason and was in BAD and not worse:
            reason = f"{was} in the earlier run"
        rows.append({**record, "known": reason})
    ended = {row["test"] for row in rows if row["status"] != UNJUDGED}
    return Judged(
        rows=rows,
        new=[row["test"] for row in rows if row["status"] in BAD and not row["known"]],
        fixed=[row["test"] for row in rows if row["status"] == PASSED and row["known"]],
        skipped=[row["test"] for row in rows if row["status"] == NOTRUN and before.get(row["test"]) in (PASSED, *BAD)],
        gone=list(gone),
        unjudged=[test for test in plan.tests if test not in ended],
        judged=sum(row["status"] in (PASSED, *BAD) for row in rows),
    )
