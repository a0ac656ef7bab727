# SPDX-License-Identifier: MIT
"""What all suites have in common: their tests, how one of them is run in a guest, and what came of it."""

from __future__ import annotations

import abc
import fnmatch
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from sampleblk_lab.errors import InputError
from sampleblk_lab.paths import find_program
from sampleblk_lab.texts import read_text, readable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

#: How long a test may take, in seconds, when nobody says: emulated, the longest of xfstests' quick ones take minutes.
DEADLINE_S = 900.0

#: What a suite says of a test that ended, in the order from best to worst.
PASSED, NOTRUN, FAILED = "passed", "notrun", "failed"

#: How a test may end that its suite says nothing of.
PANIC, HANG, UNJUDGED = "panic", "hang", "unjudged"

STATUSES = (PASSED, NOTRUN, FAILED, PANIC, HANG, UNJUDGED)

#: Those in which something is wrong with the kernel, the device or the test.
BAD = (FAILED, PANIC, HANG)

#: What tests run on, and the driver's two ways for I/O, which its peers do not have.
DEVICES = ("sampleblk", "brd", "null_blk")
MODES = ("mq", "bio")

# How much of a test's output is kept in the table and in JUnit.
_TEXT = 4000


@dataclass(frozen=True)
class Requirement:
    """What a test asks for before it begins.

    Attributes:
        text: As the test has it.
        program: The program that it wants; empty: it wants none.
        options: Options of the kernel of which it wants one, such as ``CONFIG_DM_FLAKEY``.
    """

    text: str
    program: str = ""
    options: tuple[str, ...] = ()


@dataclass(frozen=True)
class Test:
    """A test of a suite.

    Attributes:
        name: Such as ``generic/001``.
        groups: The groups that it is in.
        requires: What it asks for, as far as that can be read from its text.
    """

    __test__: ClassVar[bool] = False  # for pytest, which takes classes of this name for its own

    name: str
    groups: tuple[str, ...] = ()
    requires: tuple[Requirement, ...] = ()

    def lacks(self, options: Mapping[str, str] | None) -> list[str]:
        """What it asks for and will not find: programs of this system, options of the kernel.

        Args:
            options: The kernel's, each with its value; None where they are not known.
        """
        found = [f"program {each.program}" for each in self.requires if each.program and not _has(each.program)]
        if options is not None:
            found += [
                f"kernel option {' or '.join(each.options)}"
                for each in self.requires
                if each.options and not any(options.get(option) in ("y", "m") for option in each.options)
            ]
        return list(dict.fromkeys(found))


def _has(program: str) -> bool:
    return find_program(program) is not None


@dataclass(frozen=True)
class Setup:
    """What a test runs on.

    Attributes:
        fs: The file system; empty: none.
        device: ``"sampleblk"``, or a peer: ``"brd"`` or ``"null_blk"``.
        mode: The driver's: ``"mq"`` or ``"bio"``; of a peer ``"mq"``.
        capacity_bytes: Of each device; that of an external log is less where it would be too large for one.
        mkfs: Options of mkfs, as the suite takes them.
        mount: Options of mount, as the suite takes them.
    """

    fs: str = ""
    device: str = "sampleblk"
    mode: str = "mq"
    capacity_bytes: int = 2 << 30
    mkfs: str = ""
    mount: str = ""

    def __post_init__(self) -> None:
        """Raises InputError on a device or a mode that does not exist."""
        if self.device not in DEVICES:
            raise InputError(f"device {self.device!r}", expected=", ".join(DEVICES))
        if self.mode not in MODES:
            raise InputError(f"mode {self.mode!r}", expected=", ".join(MODES))
        if self.device != DEVICES[0] and self.mode != MODES[0]:
            raise InputError(f"mode {self.mode} of {self.device}", expected=f"device {DEVICES[0]}")


@dataclass(frozen=True)
class Verdict:
    """What a suite says of a test.

    Attributes:
        status: ``"passed"``, ``"notrun"``, ``"failed"``, or ``"unjudged"`` where it says nothing.
        reason: Why it was not run, or failed, in a line.
        output: What the suite printed of it.
        seconds: How long the test took, as the suite has it; None where it says nothing.
    """

    status: str
    reason: str = ""
    output: str = ""
    seconds: float | None = None

    def json(self) -> dict[str, Any]:
        """As plain data. The reason may be a test's own words, and is shown on terminals."""
        seconds = {} if self.seconds is None else {"suite_seconds": self.seconds}
        return {"status": self.status, "reason": readable(self.reason), "output": self.output[-_TEXT:], **seconds}


class Suite(abc.ABC):
    """A peer suite: where it comes from, which tests it has, how one is run.

    Attributes:
        name: ``"xfstests"`` or ``"blktests"``.
        variable: The environment variable that names a checkout.
        home: Where a checkout comes from.
        marks: Files that each checkout has.
        build: The commands that build it.
        devices: How many devices a test gets.
    """

    name: ClassVar[str]
    variable: ClassVar[str]
    home: ClassVar[str]
    marks: ClassVar[tuple[str, ...]]
    build: ClassVar[tuple[tuple[str, ...], ...]]

    @abc.abstractmethod
    def tests(self, folder: Path, fs: str, *, requires: bool = True) -> list[Test]:
        """The tests that a build has for a file system, by name.

        Args:
            folder: The build.
            fs: The file system.
            requires: Whether what they ask for is wanted, too: all their texts are read for it.

        Raises:
            FormatError: The build is not as we know it.
        """

    @abc.abstractmethod
    def devices(self, setup: Setup) -> list[int]:
        """The devices that a test is given, each by its capacity in bytes."""

    @abc.abstractmethod
    def check_setup(self, setup: Setup) -> None:
        """Raises InputError or UnsupportedError where no test could run on `setup`."""

    @abc.abstractmethod
    def run(self, folder: Path, test: str, setup: Setup, devices: Sequence[str], results: Path) -> Verdict:
        """Runs a test in the guest.

        Args:
            folder: The build.
            test: Its name.
            setup: What it runs on.
            devices: The devices' paths.
            results: Where what it leaves is kept, even if the guest does not survive.
        """


@dataclass(frozen=True)
class Selection:
    """Which tests are asked for.

    Attributes:
        names: Names or patterns (``generic/00?``), or the names of folders (``block``).
        groups: Groups; ``generic/quick`` is that group of that folder.
        without_groups: Groups whose tests are left out.
        without: Names or patterns that are left out.
    """

    names: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    without_groups: tuple[str, ...] = ()
    without: tuple[str, ...] = field(default=())

    def of(self, tests: Iterable[Test]) -> list[Test]:
        """The tests that are meant, in their order, each once.

        Raises:
            InputError: A name or a group means no test.
        """
        known = list(tests)
        wanted: set[str] = set()
        for pattern in self.names:
            wanted |= _named(known, pattern)
        for group in self.groups:
            wanted |= _grouped(known, group)
        if not self.names and not self.groups:
            raise InputError("no test is named", expected="names such as generic/001, or -g and a group")
        left_out: set[str] = set()
        for group in self.without_groups:
            left_out |= _grouped(known, group)
        for pattern in self.without:
            left_out |= {test.name for test in known if _fits(test.name, pattern)}
        return [test for test in known if test.name in wanted - left_out]

    def may_mean(self, name: str) -> bool:
        """Whether a test is meant that the suite does not have, whose groups nobody knows."""
        folders = [group.rpartition("/")[0] for group in self.groups]
        named = any(_fits(name, pattern) for pattern in self.names)
        grouped = any(not folder or name.startswith(f"{folder}/") for folder in folders)
        return (named or grouped) and not any(_fits(name, pattern) for pattern in self.without)


def _fits(name: str, pattern: str) -> bool:
    pattern = pattern.removeprefix("tests/").rstrip("/")
    return name == pattern or name.startswith(f"{pattern}/") or fnmatch.fnmatchcase(name, pattern)


def _named(known: Sequence[Test], pattern: str) -> set[str]:
    found = {test.name for test in known if _fits(test.name, pattern)}
    if not found:
        folders = ", ".join(sorted({test.name.partition("/")[0] for test in known}))
        raise InputError(f"no test is named {pattern!r}", expected=f"a name, a pattern, or one of {folders}")
    return found


def _grouped(known: Sequence[Test], group: str) -> set[str]:
    folder, _, name = group.rpartition("/")
    found = {
        test.name
        for test in known
        if (name in test.groups or name == "all") and (not folder or test.name.startswith(f"{folder}/"))
    }
    if not found:
        groups = sorted({each for test in known for each in test.groups})
        raise InputError(f"no test is in group {group!r}", expected=f"all, {', '.join(groups)}")
    return found


def words_of_excludes(path: str | os.PathLike[str]) -> list[str]:
    """The names in an exclude file, such as xfstests' ``-E`` takes: one in a line, ``#`` begins a comment."""
    return re.findall(r"^\s*([^\s#]+)", read_text(Path(path)), re.MULTILINE)
