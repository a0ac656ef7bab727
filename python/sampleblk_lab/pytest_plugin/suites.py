# SPDX-License-Identifier: MIT
"""Tests of xfstests and blktests as tests of pytest: ``@pytest.mark.xfstests("generic/001")``, and ``suite_test``."""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING, Any

import pytest

from sampleblk_lab.pytest_plugin import options

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from sampleblk_lab.suites.suite import Setup

MARKS = ("xfstests", "blktests")

# The keywords of the marks, besides the tests' names.
_KEYWORDS = ("group", "without", "fs", "device", "mode", "capacity", "mkfs", "mount", "deadline")


def declare(config: pytest.Config) -> None:
    """Declares the marks."""
    for name in MARKS:
        config.addinivalue_line(
            "markers",
            f"{name}(*tests, group=(), without=(), fs='ext4', device='sampleblk', mode='mq', capacity='2G', mkfs='', "
            f"mount='', deadline=900): parametrise `suite_test` with these tests of {name}, each in a fresh VM",
        )


def _variable(suite: str) -> str:
    """What tells a guest where the build is: there it is neither looked for nor built."""
    return f"SAMPLEBLK_BUILT_{suite.upper()}"


def _words(name: str, value: Any) -> tuple[str, ...]:
    from sampleblk_lab.errors import InputError

    if isinstance(value, str):
        return (value,)
    if not (isinstance(value, (list, tuple)) and all(isinstance(one, str) for one in value)):
        raise InputError(f"{name} {value!r}", expected="a string, or a list of them")
    return tuple(value)


def parametrize(metafunc: pytest.Metafunc) -> None:
    """Makes a test of each test that the marks name."""
    marks = [mark for name in MARKS for mark in metafunc.definition.iter_markers(name)]
    if not marks:
        return
    where = metafunc.definition.nodeid
    if "suite_test" not in metafunc.fixturenames:
        raise pytest.UsageError(f"{where}: @pytest.mark.{marks[0].name} is for tests with the fixture suite_test")
    parameters = [parameter for mark in marks for parameter in _parameters(mark, where)]
    metafunc.parametrize("suite_test", _told_apart(parameters), indirect=True)


def _told_apart(parameters: list[Any]) -> list[Any]:
    """Has the id of a test that several marks name say on what it runs: pytest would number them."""
    named: dict[str, list[dict[str, Any]]] = {}
    for one in parameters:
        if one.values[0] is not None:
            named.setdefault(one.id, []).append(dataclasses.asdict(one.values[0][-1]))
    made = []
    for one in parameters:
        setups = named.get(one.id, [])
        own = dataclasses.asdict(one.values[0][-1]) if setups else {}
        words = [f"{name}={value}" for name, value in own.items() if any(each[name] != value for each in setups)]
        made.append(one._replace(id="-".join([one.id, *words])))
    return made


def _parameters(mark: pytest.Mark, where: str) -> list[Any]:
    from sampleblk_lab._native import core
    from sampleblk_lab.errors import InputError, SampleblkError, UnsupportedError
    from sampleblk_lab.suites import SUITES
    from sampleblk_lab.suites.suite import DEADLINE_S, Selection, Setup

    given = dict(mark.kwargs)
    for name in given:
        if name not in _KEYWORDS:
            raise pytest.UsageError(
                f"{where}: @pytest.mark.{mark.name} has no {name!r}; there are {', '.join(_KEYWORDS)}"
            )
    suite = SUITES[mark.name]
    deadline = given.pop("deadline", DEADLINE_S)
    capacity = str(given.pop("capacity", "2G"))
    given.setdefault("fs", "ext4" if suite.name == "xfstests" else "")
    try:
        groups, without = (_words(name, given.pop(name, ())) for name in ("group", "without"))
        selection = Selection(_words("tests", mark.args), groups, (), without)
        setup = Setup(capacity_bytes=core.parse_bytes(capacity, "capacity"), **given)
        suite.check_setup(setup)
        folder = _folder(suite.name)
        names = [test.name for test in selection.of(suite.tests(folder, setup.fs, requires=False))]
    except InputError as error:
        raise pytest.UsageError(f"{where}: @pytest.mark.{mark.name}: {error}") from None
    except (_NoCheckoutError, UnsupportedError) as error:
        return [pytest.param(None, marks=pytest.mark.skip(reason=str(error)), id=mark.name)]
    except SampleblkError as error:
        raise pytest.UsageError(f"{where}: {error}") from None
    if not names:
        raise pytest.UsageError(f"{where}: {options.written(mark)} leaves no test of those that it names")
    fresh = pytest.mark.in_vm(fresh="test", deadline=deadline)
    return [pytest.param((suite.name, folder, name, setup), marks=fresh, id=name) for name in names]


class _NoCheckoutError(Exception):
    """No checkout is named."""


def _folder(suite: str) -> Path:
    from pathlib import Path

    from sampleblk_lab.suites import SUITES, checkout

    if known := os.environ.get(_variable(suite)):
        return Path(known)
    chosen = SUITES[suite]
    if not os.environ.get(chosen.variable):
        raise _NoCheckoutError(f"{chosen.variable} names no checkout of {suite}")
    folder = checkout.build(chosen, checkout.find(chosen, None)).folder
    os.environ[_variable(suite)] = str(folder)
    return folder


@pytest.fixture
def suite_test(request: pytest.FixtureRequest) -> Callable[[], dict[str, Any]]:
    """Runs the test of the suite that a mark has named, and returns its verdict; skips or fails as the suite says.

    What the suite leaves is in the test's run directory.
    """
    if not hasattr(request, "param"):
        pytest.fail("suite_test is for tests with @pytest.mark.xfstests or @pytest.mark.blktests", pytrace=False)
    from sampleblk_lab.pytest_plugin import NOT_JUDGED

    suite, folder, name, setup = request.param
    request.node.stash[NOT_JUDGED] = "the test of the suite was not run: call suite_test()"

    def run() -> dict[str, Any]:
        request.node.stash[NOT_JUDGED] = ""
        from sampleblk_lab.pytest_plugin import artefacts

        return _run(suite, folder, name, setup, artefacts.directory_of(request.node))

    return run


def _run(suite: str, folder: Path, name: str, setup: Setup, directory: Path) -> dict[str, Any]:
    from sampleblk_lab.suites import guest
    from sampleblk_lab.suites.suite import NOTRUN, PASSED

    directory.mkdir(parents=True, exist_ok=True)
    found = guest.run(suite, str(folder), name, setup, _config(), directory)
    if found["status"] == NOTRUN:
        pytest.skip(f"{name}: {found['reason']}")
    if found["status"] != PASSED:
        pytest.fail(f"{name} {found['status']}: {found['reason']}\n{found['output']}", pytrace=False)
    return found


def _config() -> str | None:
    """The configuration of this guest's kernel, where the host's cache has it."""
    from sampleblk_lab.errors import SampleblkError
    from sampleblk_lab.kernels import resolve

    try:
        kernel = resolve(os.uname().release, download=False)
    except SampleblkError:
        return None
    return next((str(path) for path in kernel.configurations if path.is_file()), None)
