# SPDX-License-Identifier: MIT
"""What runs where: which tests need a VM, and on which kernels."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sampleblk_lab.paths import IN_VM
from sampleblk_lab.pytest_plugin import fixtures, internals, options

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# The parameter, and the fixture, that has the kernel's name where there are several.
KERNEL = "sampleblk_kernel"

# In a guest that a session of the host started: the kernel that it is one of, as the user named it; None when there is
# only one.
IN_GUEST = pytest.StashKey[str | None]()

# The kernel of a test that could not take it as a parameter.
_OWN_KERNEL = pytest.StashKey[str]()

# The tests of the command line that were named with their kernel, before `widen_arguments` took it off.
_NAMED = pytest.StashKey[dict[int, str]]()


def in_vm() -> bool:
    """Whether this process is in a VM, where the plugin must not start another one."""
    return IN_VM in os.environ


def in_guest(config: pytest.Config) -> bool:
    """The same of a session, whose tests may change the environment."""
    return IN_GUEST in config.stash or in_vm()


def delegates(config: pytest.Config) -> bool:
    """Whether this process hands VM tests to another one."""
    return not (config.getoption("--sblk-host") or in_guest(config))


def _matrix(config: pytest.Config) -> tuple[str, ...]:
    """The kernels that become part of the tests' names here."""
    if IN_GUEST in config.stash:
        mine = config.stash[IN_GUEST]
        return () if mine is None else (mine,)
    settings = options.of(config)
    return settings.kernels if delegates(config) and settings.matrix else ()


def is_from(module: str, name: str, definitions: Sequence[pytest.FixtureDef[Any]]) -> bool:
    """Whether a fixture's name stands for a module's: a project may have one of its own, or one that builds on that."""
    for definition in reversed(definitions):
        if f"{definition.func.__module__}.".startswith(f"{module}."):
            return True
        if name not in definition.argnames:
            return False
    return False


def needs_guest(item: pytest.Item) -> bool:
    """Whether a test must run where modules can be loaded and functions traced."""
    if any(item.get_closest_marker(mark) is not None for mark in ("in_vm", "sampleblk")):
        return True
    definitions = internals.fixtures_of(item)
    return any(is_from(fixtures.__name__, name, definitions.get(name, ())) for name in fixtures.GUEST_FIXTURES)


def kernel_of(item: pytest.Item) -> str | None:
    """The kernel that a VM test runs on, as the user named it; None: the only one there is."""
    parameters = getattr(getattr(item, "callspec", None), "params", {})
    kernel = parameters.get(KERNEL) or item.stash.get(_OWN_KERNEL, None)
    if kernel is None:
        kernels = options.of(item.config).kernels
        return kernels[0] if kernels else None
    return str(kernel)


# --- the matrix ------------------------------------------------------------------------------------------------------


def parametrize(metafunc: pytest.Metafunc) -> None:
    """Makes the kernel the last parameter of a VM test."""
    kernels = _matrix(metafunc.config)
    if kernels and needs_guest(metafunc.definition):
        if KERNEL not in metafunc.fixturenames:
            metafunc.fixturenames.append(KERNEL)
        metafunc.parametrize(KERNEL, kernels, indirect=True, ids=kernels, scope="session")


def _with_kernel(name: str, kernel: str) -> str:
    return f"{name[:-1]}-{kernel}]" if name.endswith("]") else f"{name}[{kernel}]"


def _group(item: pytest.Item) -> str:
    """What xdist's --dist=loadgroup appended to the test's id."""
    if not getattr(item.config.option, "loadgroup", False):
        return ""
    _, at, group = item.nodeid.rpartition("@")
    return at + group if at and item.get_closest_marker("xdist_group") else ""


def _copy(item: pytest.Item, kernel: str) -> pytest.Item:
    """The test on one kernel, to be listed and reported here; it runs elsewhere."""
    group = _group(item)
    nodeid = _with_kernel(item.nodeid.removesuffix(group), kernel) + group
    made = internals.copy_of(item, _with_kernel(item.name, kernel), nodeid)
    made.stash[_OWN_KERNEL] = kernel
    return made


def expand(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Gives a kernel to the VM tests that could not take it as a parameter.

    Those are tests that became VM tests during collection, by a conftest that marks a folder or by the marks of one
    parameter, and tests that are no functions, such as unittest's methods.
    """
    kernels = _matrix(config)
    if kernels:
        found: list[pytest.Item] = []
        for item in items:
            has_one = _OWN_KERNEL in item.stash or KERNEL in getattr(getattr(item, "callspec", None), "params", {})
            if has_one or not needs_guest(item):
                found.append(item)
            elif IN_GUEST in config.stash:
                internals.rename(item, _with_kernel(item.nodeid, kernels[0]))
                found.append(item)
            else:
                found.extend(_copy(item, kernel) for kernel in kernels)
        items[:] = found
    _keep_named(config, items)


def order(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Puts the host's tests first, and the tests of one kernel together."""
    kernels = options.of(config).kernels

    def turn(item: pytest.Item) -> int:
        if not needs_guest(item):
            return 0
        kernel = kernel_of(item)
        return 1 + (kernels.index(kernel) if kernel in kernels else 0)

    items.sort(key=turn)


# --- names on the command line ---------------------------------------------------------------------------------------


def _split(config: pytest.Config, argument: str) -> tuple[Path, str]:
    base, _, inner = argument.partition("::")
    return Path(os.path.normpath(config.invocation_params.dir / base)), inner


def widen_arguments(config: pytest.Config) -> None:
    """Before collection: a test that is named with its kernel may get that name only after it."""
    ends = tuple(f"{mark}{kernel}]" for kernel in _matrix(config) for mark in "[-")
    named = config.stash.setdefault(_NAMED, {})
    for number, argument in enumerate(config.args):
        path, colons, inner = argument.partition("::")
        if colons and ends and inner.endswith(ends):
            named[number] = argument
            config.args[number] = f"{path}::{inner.partition('[')[0]}"


def arguments(config: pytest.Config) -> list[str]:
    """What the command line names, as it names it."""
    named = config.stash.get(_NAMED, {})
    return [named.get(number, argument) for number, argument in enumerate(config.args)]


def covers(config: pytest.Config, argument: str, test: tuple[Path, str]) -> bool:
    """Whether a name of the command line, a folder, file or test, stands for a test."""
    base, chosen = _split(config, argument)
    path, inner = test
    if config.getoption("pyargs", False) and not base.exists():  # a module
        module = argument.partition("::")[0].replace(".", "/")
        there = f"/{module}/" in f"{path.with_suffix('')}/"
    else:
        there = path.is_relative_to(base)
    return there and (not chosen or inner == chosen or inner.startswith((f"{chosen}::", f"{chosen}[")))


def _keep_named(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what :func:`widen_arguments` let in."""
    named = config.stash.get(_NAMED, {})
    if not named:
        return
    tests = [(item, (item.path, key_of(item)[1])) for item in items]
    missing = [name for name in named.values() if not any(covers(config, name, test) for _, test in tests)]
    if missing:
        raise pytest.UsageError(*(f"not found: {name}" for name in missing))
    names = arguments(config)
    items[:] = [item for item, test in tests if any(covers(config, name, test) for name in names)]


def key_of(item: pytest.Item) -> tuple[str, str]:
    """What identifies a test here and in a guest: its file, and its name in it."""
    _, _, inner = item.nodeid.removesuffix(_group(item)).partition("::")
    return str(item.path), inner


def files_of(items: Iterable[pytest.Item]) -> list[str]:
    """The files that a guest collects to find these tests."""
    return list(dict.fromkeys(str(item.path) for item in items))
