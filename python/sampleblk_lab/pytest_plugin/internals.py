# SPDX-License-Identifier: MIT
"""What we use of pytest that has no public name, in one place.

pyproject.toml has the range of releases that this holds for; tests/test_pytest_releases.py runs the plugin on its ends.
"""

# ruff: noqa: SLF001

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import importlib
import itertools
import os
import sys
import types
from pathlib import Path
from typing import TYPE_CHECKING, Any

import _pytest.config
import _pytest.junitxml
import _pytest.main
import pytest
from _pytest.capture import FDCapture
from _pytest.config import default_plugins

if TYPE_CHECKING:
    import argparse
    from collections.abc import Container, Iterator, Mapping, Sequence


def rename(item: Any, nodeid: str) -> None:
    """Gives a test another id."""
    if hasattr(item, "_id"):  # since pytest 9.1
        item._id = type(item._id).parse(nodeid)
    else:
        item._nodeid = nodeid


def copy_of(item: pytest.Item, name: str, nodeid: str) -> pytest.Item:
    """A test of another name, to be listed, selected and reported, not to be run."""
    made: Any = copy.copy(item)
    made.name = name
    rename(made, nodeid)
    made.__dict__.pop("location", None)  # kept by functools.cached_property
    made.stash = made._store = pytest.Stash()
    made.own_markers = list(item.own_markers)
    made.extra_keyword_matches = set(item.extra_keyword_matches)
    return made  # type: ignore[no-any-return]


def fixtures_of(item: Any) -> Mapping[str, Sequence[pytest.FixtureDef[Any]]]:
    """The definitions of each fixture that a test uses, the one that counts last."""
    info = getattr(item, "_fixtureinfo", None)
    return {} if info is None else info.name2fixturedefs


def fixtures_in(module: object) -> set[str]:
    """The names of the fixtures that a module defines."""
    found = set()
    for name, value in vars(module).items():
        if type(value).__name__ == "FixtureFunctionDefinition":  # since pytest 8.4
            found.add(getattr(value, "name", None) or name)
        elif isinstance(value, types.FunctionType) and hasattr(value, "_pytestfixturefunction"):
            found.add(value._pytestfixturefunction.name or name)
    return found


@functools.cache
def own_plugins() -> dict[types.ModuleType, list[str]]:
    """The plugins that pytest registers in each session, and which of their names can be a hook or a fixture.

    Imports all of them.
    """
    modules = [importlib.import_module(f"_pytest.{name}") for name in default_plugins]
    return {
        module: [name for name, value in vars(module).items() if name.startswith("pytest_") or not _is_plain(value)]
        for module in modules
    }


def _is_plain(value: object) -> bool:
    """Whether a module's attribute is for certain no fixture."""
    plain = isinstance(value, (types.ModuleType, type)) or type(value).__module__ in ("builtins", "typing")
    return plain and not hasattr(value, "_pytestfixturefunction")  # before pytest 8.4 it is a function


@contextlib.contextmanager
def plugins_seen_through() -> Iterator[None]:
    """Lets pytest look only at what can be a hook or a fixture in its own plugins, for the block.

    It looks at each name of each, twice: half a second of an emulated guest.
    """
    for module, names in own_plugins().items():
        module.__dict__["__dir__"] = functools.partial(list, names)
    try:
        yield
    finally:
        for module in own_plugins():
            module.__dict__.pop("__dir__", None)


# A session's configuration before it is told anything: made once, for the first one.
_begun: list[Any] = []
# Variables that such a one depends on.
_READ = frozenset({"PYTEST_DEBUG", "TOX_ENV_DIR"})


def begin() -> None:
    """Makes what every session begins with, pytest's own plugins and their options, for one session to come.

    Of this process, or of each fork of it.
    """
    with plugins_seen_through():
        _begun[:] = [_pytest.config.get_config([])]


@contextlib.contextmanager
def begun_before() -> Iterator[None]:
    """Lets a session that begins in the block take what :func:`begin` has made, where it would make the same."""
    made = _pytest.config.get_config

    def get_config(args: Any = None, plugins: Any = None, **others: Any) -> Any:
        args = args or []
        if not _begun or _READ & os.environ.keys() or _blocks_own(args):
            return made(args, plugins, **others)
        config = _begun.pop()
        config.invocation_params = config.InvocationParams(args=args, plugins=plugins, dir=Path.cwd())
        if "prog" in others:
            config._parser.prog = others["prog"]
        config.pluginmanager.consider_preparse(args, exclude_only=True)
        return config

    _pytest.config.get_config = get_config
    try:
        yield
    finally:
        _pytest.config.get_config = made


def _blocks_own(args: Sequence[str]) -> bool:
    """Whether arguments take away one of pytest's own plugins."""
    named = [word[2:] for word in args if word.startswith("-p") and word != "-p"]
    named += [word for option, word in itertools.pairwise(args) if option == "-p"]
    return any(word.strip().startswith("no:") and word.strip()[3:] in default_plugins for word in named)


def take_as_files(files: Container[str]) -> None:
    """Has pytest take these arguments for files, whatever their names: in others [ and :: begin the name of a test."""
    resolve = _pytest.main.resolve_collection_argument

    def as_file(invocation_path: Path, arg: str, *others: Any, **named: Any) -> Any:
        if arg not in files:
            return resolve(invocation_path, arg, *others, **named)
        found = resolve(invocation_path, os.curdir, *others, **named)
        if isinstance(found, tuple):  # before pytest 8.1
            return Path(arg), *found[1:]
        return dataclasses.replace(found, path=Path(arg))

    _pytest.main.resolve_collection_argument = as_file


def end_fixtures(session: Any) -> None:
    """Ends all fixtures that are alive here."""
    session._setupstate.teardown_exact(None)


def end_with(item: Any) -> pytest.TestReport:
    """Ends all fixtures that are alive, as one more phase of a test that has ended."""
    capture: Any = item.config.pluginmanager.get_plugin("capturemanager")
    if getattr(item, "funcargs", {}) is None:
        item.funcargs = {}  # hooks look into it

    def end() -> None:
        with contextlib.nullcontext() if capture is None else capture.item_capture("teardown", item):
            end_fixtures(item.session)

    call = pytest.CallInfo.from_call(end, "teardown", reraise=(pytest.exit.Exception, KeyboardInterrupt))
    report: pytest.TestReport = item.ihook.pytest_runtest_makereport(item=item, call=call)
    return report


def hide_from_summary(report: Any) -> None:
    """Leaves a failure's traceback out of the summary, as pytest does after a debugger has shown it."""
    report._pdbshown = True


def reporter_on(file: Any, reporter: Any, config: pytest.Config, columns: int) -> Any:
    """A terminal reporter like another one, that writes to a file."""
    made = type(reporter)(config, file)
    made._tw.fullwidth = columns
    return made


def columns_and_colours(config: pytest.Config) -> tuple[int, bool]:
    """The width of the session's terminal, and whether it shows colours."""
    writer = getattr(config.pluginmanager.get_plugin("terminalreporter"), "_tw", None)
    return getattr(writer, "fullwidth", 80), bool(getattr(writer, "hasmarkup", False))


@contextlib.contextmanager
def own_input(config: pytest.Config) -> Iterator[None]:
    """Gives the process its standard input back for the block, which pytest covers even between tests."""
    capture: Any = config.pluginmanager.get_plugin("capturemanager")
    if capture is None:
        yield
        return
    capture.suspend_global_capture(in_=True)
    try:
        yield
    finally:
        capture.resume_global_capture()
        capture.suspend_global_capture(in_=False)


def capture_in_memory(config: pytest.Config) -> None:
    """Has pytest capture output in files that lie on no disk, the same objects: handlers of logging keep them."""
    capture: Any = config.pluginmanager.get_plugin("capturemanager")
    captures = capture and capture._global_capturing
    for one in (captures.out, captures.err) if captures else ():
        if isinstance(one, FDCapture):
            fd = one.tmpfile.fileno()
            memory = os.memfd_create("sampleblk-capture")
            os.write(memory, os.pread(fd, os.fstat(fd).st_size, 0))
            os.lseek(memory, os.lseek(fd, 0, os.SEEK_CUR), os.SEEK_SET)
            os.dup2(memory, fd, inheritable=False)
            os.close(memory)


def rewritten(config: pytest.Config) -> list[str]:
    """The modules whose assertions this session rewrites, with all below them; ours need it not."""
    marked: set[str] = getattr(config.pluginmanager.rewrite_hook, "_must_rewrite", set())  # none: --assert=plain
    return sorted(name for name in marked if name.partition(".")[0] != "sampleblk_lab")


def rewrite(config: pytest.Config, modules: Sequence[str]) -> None:
    """Rewrites the assertions of modules, where these are yet to be imported."""
    config.pluginmanager.rewrite_hook.mark_rewrite(*(name for name in modules if name not in sys.modules))


def early_options(config: pytest.Config) -> argparse.Namespace:
    """The options that pytest read before it loaded plugins."""
    return config.known_args_namespace


def quiet(coverage: Any) -> None:
    """Lets a coverage.Coverage that has seen nothing say nothing."""
    coverage._warn_no_data = False


def junit_family(config: pytest.Config) -> str | None:
    """The kind of JUnit report that this session writes; None: it writes none."""
    xml: Any = config.stash.get(_pytest.junitxml.xml_key, None)
    return None if xml is None else str(xml.family)


def add_to_junit(config: pytest.Config, nodeid: str | None, name: str, value: str) -> None:
    """Adds an attribute of a test to the JUnit report, or a property of all of it."""
    xml: Any = config.stash.get(_pytest.junitxml.xml_key, None)
    if xml is not None and nodeid is not None:
        xml.node_reporter(nodeid).add_attribute(name, value)
    elif xml is not None:
        xml.add_global_property(name, value)


def take_for_junit(config: pytest.Config, report: Any) -> None:
    """Lets fixtures take `report` for the JUnit report. pytest unregisters it at the end."""
    config.stash[_pytest.junitxml.xml_key] = report
    config.pluginmanager.register(report)
