# SPDX-License-Identifier: MIT
"""The guest's side: a pytest session whose tests are told one by one, and whose reports go back as they come."""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import pickle
import random
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sampleblk_lab.pytest_plugin import artefacts, internals, kernel_log, places, residue, selection
from sampleblk_lab.pytest_plugin.debugger import GuestTerminal, Shape
from sampleblk_lab.pytest_plugin.messages import Link, can_be_sent
from sampleblk_lab.vm.guest.park import park

if TYPE_CHECKING:
    import warnings
    from collections.abc import Callable, Generator


_TMP_PATH = pytest.StashKey[Path]()


@dataclass(frozen=True)
class Setup:
    """What a session tells its guest.

    Attributes:
        args: pytest's arguments: those that matter before plugins are loaded, and the files to collect.
        options: The other options' values, by destination; pickled one by one, because a class of the tests may be
            found only when a conftest has been imported.
        plugins: Name and module of each plugin to load.
        rewritten: Modules whose assertions the session rewrites: those of installed plugins, which pytest marks.
        inis: Ini values that no plugin declares here.
        tests: File and name of each test, in the session's order.
        shared: Whether another test may come after one.
        kernel: The kernel that is part of the tests' names; None: it is not.
        scratch: The folder that both sides write to.
        xdist: What an xdist worker was told, if the session is one.
        debugger: Whether a debugger may be opened.
        shape: The terminal to give it.
        columns: Width of the session's terminal.
        colours: Whether it shows colours.
        coverage: Arguments of coverage.Coverage; None: not measured.
    """

    args: list[str]
    options: dict[str, bytes]
    plugins: list[tuple[str, str]]
    rewritten: list[str]
    inis: list[str]
    tests: list[tuple[str, str]]
    shared: bool
    kernel: str | None
    scratch: str
    xdist: dict[str, Any] | None
    debugger: bool
    shape: Shape
    columns: int
    colours: bool
    coverage: dict[str, Any] | None
    junit: str | None


class _SessionTerminal(io.TextIOBase):
    """A text file that is the terminal of the session."""

    def __init__(self, link: Link, colours: bool) -> None:
        self._link = link
        self._colours = colours

    def isatty(self) -> bool:
        return self._colours

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self._link.send("text", text)
        return len(text)


class _Reporter:
    """Stands for pytest's terminal reporter, without its hooks: the session's own reporter shows the reports.

    What writes to it on purpose (live logs, ``--setup-show``) is shown there.
    """

    def __init__(self, reporter: Any) -> None:
        self._reporter = reporter

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reporter, name)


class _Junit:
    """Stands for the session's JUnit report to the fixtures that add to it."""

    def __init__(self, link: Link, family: str) -> None:
        self._link = link
        self.family = family

    def add_global_property(self, name: str, value: object) -> None:
        """What ``record_testsuite_property`` is."""
        self._link.send("junit", False, name, str(value))

    def node_reporter(self, _: object) -> _Junit:
        """That of the test that runs."""
        return self

    def add_attribute(self, name: str, value: object) -> None:
        """What ``record_xml_attribute`` is."""
        self._link.send("junit", True, name, str(value))


class Worker:
    """The plugin that makes a pytest session a guest's."""

    def __init__(self, link: Link, setup: Setup) -> None:
        self._link = link
        self._setup = setup
        self._terminal = GuestTerminal(link, setup.shape)
        self._collect_errors: dict[str, str] = {}
        self._environment: dict[str, str] = {}
        self._kept: frozenset[str] = frozenset()
        self._kept_by: dict[pytest.FixtureDef[Any], frozenset[str]] = {}
        self._loading = contextlib.ExitStack()
        self._numbers = _numbers()

    # --- configuration ------------------------------------------------------------------------------------------

    def run(self) -> int:
        """The whole session; returns pytest's exit status."""
        # The session has read these, and our arguments have what they say.
        self._environment = {name: os.environ.pop(name) for name in ("PYTEST_ADDOPTS",) if name in os.environ}
        os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
        with self._loading:
            self._loading.enter_context(internals.plugins_seen_through())
            self._loading.enter_context(internals.begun_before())
            return int(pytest.main(self._setup.args, plugins=[self]))

    def pytest_addoption(self, parser: pytest.Parser) -> None:
        """Declares what only plugins that are not here would declare."""
        for name in self._setup.inis:
            parser.addini(name, "of a plugin that no test of this guest uses", default=None)

    @pytest.hookimpl(tryfirst=True)
    def pytest_load_initial_conftests(self, early_config: pytest.Config) -> None:
        """Loads plugins, and takes over the session's options before anything reads them."""
        internals.rewrite(early_config, self._setup.rewritten)
        for name, module in self._setup.plugins:
            if not early_config.pluginmanager.is_blocked(name) and not early_config.pluginmanager.has_plugin(name):
                early_config.pluginmanager.register(importlib.import_module(module), name=name)
        for dest, pickled in self._setup.options.items():
            setattr(early_config.option, dest, pickle.loads(pickled))
        early_config.stash[selection.IN_GUEST] = self._setup.kernel
        early_config.stash[artefacts.SCRATCH] = Path(self._setup.scratch)
        if self._setup.xdist is not None:
            early_config.workerinput = self._setup.xdist  # type: ignore[attr-defined]
            early_config.workeroutput = {}  # type: ignore[attr-defined]

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        """Puts our reporter in the place of pytest's, after that was made and before anything keeps it."""
        # A test that runs pytest has the user's environment.
        del os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"]
        os.environ.update(self._environment)
        if self._setup.junit is not None:
            internals.take_for_junit(config, _Junit(self._link, self._setup.junit))
        reporter = config.pluginmanager.unregister(name="terminalreporter")
        if reporter is not None:
            terminal = _SessionTerminal(self._link, self._setup.colours)
            shown = internals.reporter_on(terminal, reporter, config, self._setup.columns)
            config.pluginmanager.register(_Reporter(shown), "terminalreporter")

    # --- collection ---------------------------------------------------------------------------------------------

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> None:
        """All plugins are there: what is imported from now on sees them as they are."""
        self._loading.close()
        internals.take_as_files({file for file, _ in self._setup.tests})

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Leaves the tests that the session has for us, in its order."""
        turn = {test: number for number, test in enumerate(self._setup.tests)}
        items[:] = sorted(
            (item for item in items if selection.key_of(item) in turn), key=lambda item: turn[selection.key_of(item)]
        )

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Keeps why a file could not be collected."""
        if report.failed:
            self._collect_errors[report.nodeid] = report.longreprtext

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Tells what there is."""
        self._link.send("collected", [selection.key_of(item) for item in session.items], self._collect_errors)

    # --- running ------------------------------------------------------------------------------------------------

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Runs what the session asks for, until it has finished."""
        self._kept = residue.present() if self._setup.shared else frozenset()
        item = nextitem = None
        while True:
            message = self._link.receive()
            if message[0] == "park":
                self._park(session.config)
                continue
            if message[0] != "run":
                if item is not None and nextitem is not None:
                    self._end_with(item)
                return True
            _, index, following, failures = message
            # For what a test itself does at the last failure, such as not to begin its next subtest.
            session.testsfailed, session.config.option.maxfail = 0, failures
            item = session.items[index]
            nextitem = None if following is None else session.items[following]
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=nextitem)
            # The session counts these itself.
            shouldfail = not 0 < failures <= session.testsfailed and session.shouldfail
            left, spent = self._left_by(item)
            self._link.send("done", shouldfail, session.shouldstop, left, spent)

    def _park(self, config: pytest.Config) -> None:
        """Has this session saved; what comes after is each clone's own."""
        internals.capture_in_memory(config)
        park()
        for name, (seed, state) in _numbers().items():
            if name in self._numbers and _were_only_drawn(self._numbers[name][1], state):
                seed()  # who has seeded them while tests were collected wants what comes of that
        self._link.send("awake")

    @staticmethod
    def _end_with(item: pytest.Item) -> None:
        """Ends what fixtures kept for a test that does not come any more."""
        kernel_log.begin(item)
        report = internals.end_with(item)
        if report.failed:
            item.ihook.pytest_runtest_logreport(report=report)

    def _left_by(self, item: pytest.Item) -> tuple[list[str], bool]:
        """What is to be said of a test that the next one must not meet; whether there is what need not be said, too."""
        if not self._setup.shared:
            return [], False
        spent = kernel_log.is_spent(item)
        kept = self._kept.union(*self._kept_by.values(), residue.damage() if spent else ())
        return [*kernel_log.complaints(item), *residue.since(kept)], spent

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Sends a report back."""
        if not self._link.is_ours():
            # The test's result, its fixtures and the tests to come are its parent's.
            if report.failed:
                os.write(2, f"in a fork of {report.nodeid}:\n{report.longreprtext}\n".encode(errors="replace"))
            os._exit(1 if report.failed else 0)
        # Which is where a test fails by its subtests, and they are counted here.
        self._config.hook.pytest_report_teststatus(report=report, config=self._config)
        report.user_properties = [
            (name, value if can_be_sent(value) else repr(value)) for name, value in report.user_properties
        ]
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._link.send("report", data if can_be_sent(data) else _plain(data))

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Keeps the configuration for the hooks that are not given it."""
        self._config = session.config
        self._link.send("ready")

    def pytest_warning_recorded(
        self, warning_message: warnings.WarningMessage, when: str, nodeid: str, location: tuple[str, int, str] | None
    ) -> None:
        """Sends a warning of a test back; what came before, the session has met itself."""
        if when != "runtest":
            return
        text = str(warning_message.message)
        category = warning_message.category if can_be_sent(warning_message.category) else UserWarning
        self._link.send(
            "warning", text, category, warning_message.filename, warning_message.lineno, when, nodeid, location
        )

    @pytest.hookimpl(tryfirst=True)
    def pytest_internalerror(self, excrepr: object) -> bool:
        """Tells of an error in a hook."""
        self._link.send("internal", str(excrepr))
        return True  # said; not once more on standard error

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Tells that a test, or whoever debugs it, ended the session."""
        if isinstance(excinfo.value, pytest.exit.Exception):
            self._link.send("interrupted", str(excinfo.value), excinfo.value.returncode)
        else:
            self._link.send("interrupted", None, None)

    # --- files --------------------------------------------------------------------------------------------------

    @pytest.hookimpl(hookwrapper=True)  # the other kind is in the traceback of a fixture that fails
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
    ) -> Generator[None, Any, None]:
        """Notes the test's temporary folder, and what a fixture keeps for the tests to come."""
        wider = fixturedef.scope != "function" and not fixturedef.func.__module__.startswith("_pytest.")
        wider = wider and self._setup.shared
        before = residue.present() if wider else frozenset()
        outcome = yield
        if outcome.exception is not None:
            return
        if wider:
            self._kept_by[fixturedef] = residue.may_stay(residue.present() - before)
        if fixturedef.argname == "tmp_path":
            request.node.stash[_TMP_PATH] = outcome.get_result()

    def pytest_fixture_post_finalizer(self, fixturedef: pytest.FixtureDef[Any]) -> None:
        """Forgets what a fixture kept that has ended; what is there still, those that it used may undo."""
        kept, uses = self._kept_by.pop(fixturedef, frozenset()), fixturedef.argnames
        heirs = [each for each in self._kept_by if each.argname in uses or "request" in uses]
        if kept and heirs:
            kept &= residue.present()
            self._kept_by.update({heir: self._kept_by[heir] | kept for heir in heirs})

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Keeps the temporary folder of a test that failed, before pytest removes it."""
        report = yield
        if report.failed and _TMP_PATH in item.stash:
            try:
                artefacts.keep_files(item.stash[_TMP_PATH], artefacts.directory_of(item) / "tmp_path")
            except Exception as error:  # of what the test has put in the place of open() or of os
                artefacts.warn(item.config, f"{item.nodeid}: files of its tmp_path may be missing: {error!r}")
            del item.stash[_TMP_PATH]
        return report

    # --- debugging ----------------------------------------------------------------------------------------------

    def pytest_enter_pdb(self, config: pytest.Config) -> None:
        """Gives the debugger the session's terminal."""
        if self._setup.debugger:
            self._terminal.open()
            return
        capture = config.pluginmanager.get_plugin("capturemanager")
        if capture is not None:
            capture.resume()
        pytest.fail("a debugger in the VM needs the terminal of the session: run it without -n", pytrace=False)

    def pytest_leave_pdb(self) -> None:
        """Gives it back."""
        self._terminal.close()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logfinish(self) -> None:
        """Gives it back after a debugger that told nobody that it was left."""
        self._terminal.close()


def _numbers() -> dict[str, tuple[Callable[[], object], tuple[int, ...]]]:
    """How to seed the random numbers that a program has without a generator of its own, and their state."""
    found: dict[str, tuple[Callable[[], object], tuple[int, ...]]] = {"random": (random.seed, random.getstate()[1])}
    if numbers := sys.modules.get("numpy.random"):
        _, words, at, *_ = numbers.get_state()
        found["numpy"] = (numbers.seed, (*words.tolist(), at))
    return found


def _were_only_drawn(before: tuple[int, ...], now: tuple[int, ...]) -> bool:
    """Whether one state of a Mersenne Twister comes of the other, by some ten thousand numbers at most."""
    numbers = random.Random()
    numbers.setstate((3, before, None))
    for _ in range(32):
        if numbers.getstate()[1][:-1] == now[:-1]:
            return True
        numbers.getrandbits(32 * (len(before) - 1))  # the next of all words
    return False


def _plain(value: Any) -> Any:
    """A report's data with words in the place of what cannot be sent."""
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_plain(one) for one in value)
    return value if can_be_sent(value) else repr(value)


def main() -> int:
    """Takes its messages from standard input and writes its own to standard output; returns the exit status."""
    link = Link(os.dup(0), os.dup(1))
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # What pytest writes before it captures again must not wait in a buffer until the end.
        sys.stdout.reconfigure(line_buffering=True)
    here = places.given()
    if here is not None:
        here.enter()
    link.send("up")
    told = link.receive()[1]
    sys.path[:] = told if here is None else here.search_path(told, sys.path)
    setup: Setup = link.receive()[1]
    if setup.coverage is None:
        status = Worker(link, setup).run()
    else:
        from sampleblk_lab.pytest_plugin.coverage import measured

        with measured(setup.coverage):
            status = Worker(link, setup).run()
    link.send("end", status)
    return 0
