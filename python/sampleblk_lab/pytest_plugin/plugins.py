# SPDX-License-Identifier: MIT
"""Which of the session's pytest plugins a guest loads: those that its tests use.

Importing a plugin costs a guest from a tenth of a second to several (hypothesis), and most of those that an environment
has only report. What is not known here is loaded where it may change how a test runs.
"""

from __future__ import annotations

import inspect
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from sampleblk_lab.pytest_plugin import internals, selection

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pytest

# A plugin that implements none of these does its work in the session's own process, with the reports.
_RUNNING = frozenset(
    {
        "pytest_runtest_protocol",
        "pytest_runtest_setup",
        "pytest_runtest_call",
        "pytest_runtest_teardown",
        "pytest_runtest_makereport",
        "pytest_pyfunc_call",
        "pytest_fixture_setup",
        "pytest_fixture_post_finalizer",
        "pytest_generate_tests",
        "pytest_make_parametrize_id",
        "pytest_collect_file",
        "pytest_collect_directory",
        "pytest_pycollect_makemodule",
        "pytest_pycollect_makeitem",
        "pytest_collection_modifyitems",
        "pytest_itemcollected",
        "pytest_assertrepr_compare",
        "pytest_assertion_pass",
    }
)

# Plugins, by the names of their entry points, that implement some and yet change nothing for a test that does not ask
# for them: by a fixture, a mark, an option, an ini value, a variable of the environment, or a word in its file.
_WHEN_ASKED_FOR = frozenset(
    {"anyio", "asyncio", "benchmark", "faker", "hypothesispytest", "pytest_mock", "rerunfailures", "timeout"}
)

# Plugins whose options are about the report, or the distribution, of the whole session.
_FOR_THE_SESSION = frozenset({"html", "html_fixtures", "metadata", "pytest_cov", "xdist", "xdist.looponfail"})

# Fixtures, and what they come from, that keep in their own process what its end shows, saves, compares and deletes,
# such as a snapshot that no test there has asked for; and what there is instead.
_KEEP_ACCOUNTS = {
    "snapshot": ("syrupy", "--sblk-host, or values in the test"),
    "benchmark": ("pytest_benchmark", "the fixture measure, --sblk-host or --benchmark-disable"),
    "benchmark_weave": ("pytest_benchmark", "the fixture measure, --sblk-host or --benchmark-disable"),
}

_OURS = "sampleblk"


_BUILT_IN_MARKS = frozenset(
    {"parametrize", "skip", "skipif", "xfail", "usefixtures", "filterwarnings", "in_vm", "kernel_warning", "sampleblk"}
)

_FLAGS = {"store_true": False, "store_false": True, "count": 0}


class _Declared:
    """Stands in for pytest's parser, to learn which options and ini values a plugin has."""

    def __init__(self) -> None:
        self.options: dict[str, Any] = {}  # destination -> default
        self.names: set[str] = set()
        self.inis: dict[str, Any] = {}
        self.is_whole = True

    def getgroup(self, *_: Any, **__: Any) -> _Declared:
        return self

    def addoption(self, *names: str, **attributes: Any) -> None:
        long = [name for name in names if name.startswith("--")] or list(names)
        dest = attributes.get("dest") or long[0].lstrip("-").replace("-", "_")
        self.options.setdefault(dest, attributes.get("default", _FLAGS.get(attributes.get("action", ""))))
        self.names.update(names)

    _addoption = addoption

    def addini(self, name: str, *_: Any, **attributes: Any) -> None:
        self.inis[name] = attributes.get("default")

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: None


class _Asked:
    """Stands in for pytest's plugin manager: answers what the real one does, and registers nothing a second time."""

    def __init__(self, manager: pytest.PytestPluginManager) -> None:
        self._manager = manager

    def add_hookspecs(self, *_: Any, **__: Any) -> None:
        pass

    register = unregister = set_blocked = unblock = import_plugin = add_hookspecs

    def __getattr__(self, name: str) -> Any:
        return getattr(self._manager, name)


@dataclass
class Plugin:
    """One of the session's plugins that came from an entry point.

    Attributes:
        name: That of the entry point.
        module: What it imports.
        declared: Its options and ini values.
        roots: Top-level modules of its distribution.
        fixtures: The names of its fixtures.
    """

    name: str
    module: ModuleType
    declared: _Declared
    roots: frozenset[str]
    fixtures: frozenset[str]

    def runs(self) -> bool:
        """Whether it may change how a test runs."""
        return not _RUNNING.isdisjoint(dir(self.module))

    def sources(self) -> str:
        """The text of its module and of those beside it."""
        file = getattr(self.module, "__file__", None)
        if file is None:
            return ""
        path = Path(file)
        return _text(path.parent.glob("*.py") if self.module.__package__ else [path])

    def is_set(self, config: pytest.Config) -> bool:
        """Whether an option, an ini value or a variable of the environment asks for it."""
        unset: Any = None
        for dest, default in self.declared.options.items():
            value = getattr(config.option, dest, unset)
            if value != default and (value or default):
                return True
        for name, default in self.declared.inis.items():
            value = config.getini(name)
            if value != default and (value or default):
                return True
        words = tuple(word.upper() for word in (self.name, *self.roots))
        return any(name.startswith(words) or name.startswith(f"PYTEST_{self.name.upper()}") for name in os.environ)


@dataclass(frozen=True)
class Choice:
    """What a guest loads.

    Attributes:
        load: Name and module of each plugin.
        left_out: Names of the others.
        inis: The ini values that only those declare.
    """

    load: list[tuple[str, str]]
    left_out: list[str]
    inis: list[str]


def choose(config: pytest.Config, items: Iterable[pytest.Item]) -> Choice:
    """Chooses the plugins for a guest that runs these tests."""
    chosen = list(items)
    found = _found(config)
    marks = {mark.name for item in chosen for mark in item.iter_markers()} - _BUILT_IN_MARKS
    roots = _fixture_roots(chosen)
    text = _texts(chosen)
    load, left_out = [], []
    inis: list[str] = []
    for plugin in found:
        if _is_used(plugin, config, marks, roots, text):
            load.append((plugin.name, plugin.module.__name__))
        else:
            left_out.append(plugin.name)
            inis += plugin.declared.inis
    return Choice(load, left_out, inis)


def own(config: pytest.Config) -> tuple[str, str]:
    """Ours, by the name that it has here: where entry points are not loaded, -p or a conftest names the module."""
    module = "sampleblk_lab.pytest_plugin"
    return config.pluginmanager.get_name(sys.modules[module]) or _OURS, module


def named(config: pytest.Config) -> list[str]:
    """The plugins given to pytest.main(plugins=…) that another process can import."""
    given = config.invocation_params.plugins or ()
    modules = [one if isinstance(one, str) else one.__name__ for one in given if isinstance(one, (str, ModuleType))]
    return [name for name in modules if name != "__main__"]


def refused(config: pytest.Config, item: pytest.Item) -> str | None:
    """Why a test cannot run in a VM: it has a fixture of which the VM, or this session, would have nothing."""
    definitions = internals.fixtures_of(item)
    given = config.invocation_params.plugins or ()
    objects = [one for one in given if not isinstance(one, str) and getattr(one, "__name__", "") not in named(config)]
    for name, found in definitions.items() if objects else ():
        owner = getattr(found[-1].func, "__self__", None)
        if any(owner is one or sys.modules.get(found[-1].func.__module__) is one for one in objects):
            return (
                f"the fixture {name} comes from an object that only this process has, given to "
                "pytest.main(plugins=…): the VM can load modules only"
            )
    # Beside workers of xdist's, pytest-benchmark measures nothing and says so.
    measures = not (getattr(config.option, "benchmark_disable", False) or hasattr(config, "workerinput"))
    for name, (module, expected) in _KEEP_ACCOUNTS.items():
        if selection.is_from(module, name, definitions.get(name, ())) and (measures or module != "pytest_benchmark"):
            return (
                f"the fixture {name} of {module} does not work in a VM: this session has nothing of what it does there "
                f"(expected {expected})"
            )
    return None


def _is_used(plugin: Plugin, config: pytest.Config, marks: set[str], roots: set[str], text: str) -> bool:
    if not roots.isdisjoint(plugin.roots):
        return True
    quoted = {plugin.name, *plugin.fixtures, *plugin.declared.names, *plugin.declared.options}
    if re.search(rf"""["'](?:{"|".join(map(re.escape, sorted(quoted)))})["']""", text):
        return True
    if plugin.name in _FOR_THE_SESSION:
        return False
    if re.search(rf"\b(?:{'|'.join(map(re.escape, sorted(plugin.roots)))})\b", text):
        return True
    if marks:
        source = plugin.sources()
        if any(re.search(rf"""["']{re.escape(mark)}\b""", source) for mark in marks):
            return True
    if not plugin.declared.is_whole or (plugin.runs() and plugin.name not in _WHEN_ASKED_FOR):
        return True
    return plugin.is_set(config)


def _found(config: pytest.Config) -> list[Plugin]:
    manager = config.pluginmanager
    found: dict[str, Plugin] = {}
    for module, distribution in manager.list_plugin_distinfo():
        name = manager.get_name(module)
        if name is None or name == _OURS or name in found or not isinstance(module, ModuleType):
            continue
        files = getattr(distribution, "files", None) or ()
        parts = {str(file).partition("/")[0] for file in files if str(file).endswith(".py")}
        roots = {part.removesuffix(".py") for part in parts} | {module.__name__.partition(".")[0]}
        fixtures = frozenset(internals.fixtures_in(module))
        found[name] = Plugin(name, module, _declared(module, manager), frozenset(roots), fixtures)
    return list(found.values())


def _declared(module: ModuleType, manager: pytest.PytestPluginManager) -> _Declared:
    declared = _Declared()
    add = getattr(module, "pytest_addoption", None)
    if add is not None:
        given = {"parser": declared, "pluginmanager": _Asked(manager)}
        try:
            add(**{name: given[name] for name in inspect.signature(add).parameters if name in given})
        except Exception:  # whatever it does besides, of which we have no stand-in
            declared.is_whole = False
    return declared


def _fixture_roots(items: Iterable[pytest.Item]) -> set[str]:
    """The top-level modules that the tests' fixtures come from."""
    found: set[str] = set()
    for item in items:
        for definitions in internals.fixtures_of(item).values():
            found.update(definition.func.__module__.partition(".")[0] for definition in definitions)
    return found


def _text(paths: Iterable[Path]) -> str:
    return "\n".join(path.read_text(errors="replace") for path in paths)


def _texts(items: Iterable[pytest.Item]) -> str:
    """The tests' files, and the conftests that go for them."""
    files = {item.path for item in items}
    conftests = {folder / "conftest.py" for file in files for folder in file.parents}
    return _text([*files, *(conftest for conftest in conftests if conftest.is_file())])
