# SPDX-License-Identifier: MIT
"""The folder of a suite's run: what it was to do, and what came of each test.

``suite.json`` has the former. ``journal.jsonl`` has a line for each test that ended, written when it ends and never
changed: it is what counts. ``results.json`` and ``junit.xml`` are made of both, and made again whenever a run ends.
"""

from __future__ import annotations

import json
import math
import os
import xml.etree.ElementTree as ET
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sampleblk_lab.errors import FormatError, InputError
from sampleblk_lab.paths import append_whole, locked, naming, replace_file
from sampleblk_lab.suites.suite import BAD, HANG, NOTRUN, PANIC, STATUSES, UNJUDGED, Selection, Setup
from sampleblk_lab.texts import readable

if TYPE_CHECKING:
    from typing import Self

    from sampleblk_lab.suites.known import Judged

ABOUT, JOURNAL, RESULTS, JUNIT = "suite.json", "journal.jsonl", "results.json", "junit.xml"

_LOCK = "suite"
# White space of a text that JUnit's XML has.
_KEPT = "\t\n"
_FORMAT = 1


@dataclass(frozen=True)
class Plan:
    """What a run is to do: the content of ``suite.json``.

    Attributes:
        suite: The suite's name.
        content: The digest of the checkout's files.
        commit: What git calls the checkout.
        kernel: As it was asked for.
        machine: The VM of each test, as :class:`sampleblk_lab.sweeps.trial.Machines` tells it.
        setup: What the tests run on.
        deadline_s: How long a test may take.
        tests: Their names, in order.
        asked: How they were asked for, which also says what tests would be of them if the suite had them; None: an
            older version has written the plan.
    """

    suite: str
    content: str
    commit: str
    kernel: str | None
    machine: dict[str, Any]
    setup: Setup
    deadline_s: float
    tests: tuple[str, ...]
    asked: Selection | None = None

    @property
    def release(self) -> str:
        """The kernel's."""
        return str(self.machine["release"])

    def json(self) -> dict[str, Any]:
        """As plain data."""
        return {"format": _FORMAT, **asdict(self)}

    @classmethod
    def load(cls, folder: Path) -> Plan:
        """The one of a folder.

        Raises:
            InputError: There is none.
            FormatError: It is not what a run writes.
        """
        path = folder / ABOUT
        try:
            value = json.loads(path.read_text())
            if value.pop("format") != _FORMAT:
                raise ValueError
            value["setup"] = Setup(**value["setup"])
            value["tests"] = tuple(value["tests"])
            names = (value["suite"], value["setup"].fs, value["machine"]["release"], *value["tests"])
            # JUnit's XML and the terminal have them all.
            if any(not isinstance(name, str) or readable(name) != name for name in names):
                raise ValueError
            if not math.isfinite(value["deadline_s"]):
                raise ValueError
            if asked := value.get("asked"):
                value["asked"] = Selection(**{name: tuple(words) for name, words in asked.items()})
            return cls(**value)
        except FileNotFoundError:
            raise InputError(f"there is no run of a suite in {folder}", expected=f"a folder with {ABOUT}") from None
        except (ValueError, TypeError, KeyError, AttributeError):
            raise FormatError(str(path), 0, f"a run of a suite of format {_FORMAT}") from None

    def differs(self, other: Plan) -> list[str]:
        """What an earlier part of the same run had otherwise, for people: then its results say nothing of this one."""
        mine, theirs = asdict(self), asdict(other)
        wanted = ("suite", "content", "machine", "setup", "tests")
        pairs = [(name, *_unlike(theirs[name], mine[name])) for name in wanted if mine[name] != theirs[name]]
        return [f"{name} {before!r:.80}, now {now!r:.80}" for name, before, now in pairs]


def _unlike(one: Any, other: Any) -> tuple[Any, Any]:
    """Two values, of dictionaries only what differs: the rest would take the place of it in a message."""
    if not (isinstance(one, dict) and isinstance(other, dict)):
        return one, other
    names = [name for name in {**one, **other} if one.get(name) != other.get(name)]
    return {name: one.get(name) for name in names}, {name: other.get(name) for name in names}


def read_journal(path: Path) -> list[dict[str, Any]]:
    """The tests that ended; what was only begun to be written is none.

    Raises:
        FormatError: A line is not what a run writes.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return []
    found = []
    at = 0
    for line in data[: data.rfind(b"\n") + 1].split(b"\n")[:-1]:
        try:
            value = json.loads(line)
            texts = (value["test"], value["reason"], value["output"])
            if value["status"] not in STATUSES or not all(isinstance(text, str) for text in texts):
                raise ValueError
            if not math.isfinite(value["seconds"]):
                raise ValueError
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
            raise FormatError(str(path), at, "a test that ended") from None
        found.append(value)
        at += len(line) + 1
    return found


class Folder:
    """The one process that adds to a folder. A context manager.

    Args:
        path: Where.
        plan: What is to be done.

    Attributes:
        ended: What came of each test that ended, by name. A test that could not be judged has not.

    Raises:
        InputError: Another process adds to it, or what is there is of another run, or of an unknown one.
    """

    def __init__(self, path: Path, plan: Plan) -> None:
        self.path = path
        self.plan = plan
        self.ended: dict[str, dict[str, Any]] = {}
        self._descriptor = -1
        self._written_bytes = 0
        self._lock = locked(path / _LOCK, wait=False)

    def __enter__(self) -> Self:
        self.path.mkdir(parents=True, exist_ok=True)
        if not self._lock.__enter__():
            self._lock.__exit__(None, None, None)
            raise InputError(f"another process runs a suite in {self.path}", expected="another folder")
        try:
            if (self.path / ABOUT).exists():
                if differs := self.plan.differs(Plan.load(self.path)):
                    raise InputError(f"{self.path} has another run: {'; '.join(differs)}", expected="another folder")
            elif (self.path / JOURNAL).exists():
                # Of which kernel, device and sources nobody knows.
                raise InputError(f"{self.path} has a {JOURNAL} and no {ABOUT}", expected="another folder")
            else:
                replace_file(self.path / ABOUT, (json.dumps(self.plan.json(), indent=1) + "\n").encode())
            for record in read_journal(self.path / JOURNAL):
                self._take(record)
            self._descriptor = os.open(self.path / JOURNAL, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            self._written_bytes = (self.path / JOURNAL).read_bytes().rfind(b"\n") + 1
            os.ftruncate(self._descriptor, self._written_bytes)
        except BaseException:
            self._lock.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        os.close(self._descriptor)
        self._lock.__exit__(None, None, None)

    def add(self, record: dict[str, Any]) -> None:
        """Adds a test that ended, for good.

        Raises:
            OSError: It could not be written, and then nothing of it is.
        """
        line = json.dumps(record, default=str).encode() + b"\n"
        with naming(self.path / JOURNAL):
            self._written_bytes = append_whole(self._descriptor, self._written_bytes, line)
            os.fdatasync(self._descriptor)
        self._take(record)

    def _take(self, record: dict[str, Any]) -> None:
        if record["status"] == UNJUDGED:
            self.ended.pop(record["test"], None)
        else:
            self.ended[record["test"]] = record

    def waiting(self) -> list[str]:
        """The tests that have not ended."""
        return [test for test in self.plan.tests if test not in self.ended]


def results(path: Path) -> tuple[Plan, list[dict[str, Any]]]:
    """What a run was to do, and what came of it: the last word on each test that ended, in order."""
    plan = Plan.load(path)
    last = {record["test"]: record for record in read_journal(path / JOURNAL)}
    return plan, [last[test] for test in plan.tests if test in last]


def junit(plan: Plan, judged: Judged) -> bytes:
    """The results as JUnit's XML, in which fails what makes a run fail.

    Args:
        plan: What was to be done.
        judged: What came of it.
    """
    name = ".".join(filter(None, (plan.suite, plan.setup.fs, plan.setup.device, plan.release)))
    suite = ET.Element("testsuite", {"name": name})
    by_name = {row["test"]: row for row in judged.rows}
    for test in (*plan.tests, *judged.gone):
        row = by_name.get(test)
        case = ET.SubElement(suite, "testcase", {"classname": name, "name": test})
        if test in judged.gone:
            ET.SubElement(case, "failure", {"message": "the suite does not have it any more"})
            continue
        if row is None:
            ET.SubElement(case, "error", {"message": "it has not ended"})
            continue
        case.set("time", f"{row['seconds']:.3f}")
        reason = readable(row["reason"], _KEPT)
        if test in judged.skipped:
            ET.SubElement(case, "failure", {"message": f"not run any more: {reason}"})
        elif row["status"] == NOTRUN:
            ET.SubElement(case, "skipped", {"message": reason})
        elif row["status"] in BAD and row["known"]:
            ET.SubElement(case, "skipped", {"message": f"known to fail: {readable(row['known'])}: {reason}"})
        elif row["status"] in (*BAD, UNJUDGED):
            kind = "error" if row["status"] in (PANIC, HANG, UNJUDGED) else "failure"
            ET.SubElement(case, kind, {"message": reason, "type": row["status"]}).text = readable(row["output"], _KEPT)
    if not judged.judged:
        case = ET.SubElement(suite, "testcase", {"classname": name, "name": plan.suite})
        ET.SubElement(case, "error", {"message": "nothing was tested"})
    cases = {"tests": "testcase", "failures": "testcase/failure", "errors": "testcase/error"}
    for count, kind in {**cases, "skipped": "testcase/skipped"}.items():
        suite.set(count, str(len(suite.findall(kind))))
    text: bytes = ET.tostring(suite, encoding="utf-8", xml_declaration=True)
    return text + b"\n"
