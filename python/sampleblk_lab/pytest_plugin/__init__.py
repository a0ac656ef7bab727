# SPDX-License-Identifier: MIT
"""The pytest plugin: experiments as tests.

Tests that use a fixture of ours, or carry ``@pytest.mark.in_vm``, run inside a virtual machine; plain ``pytest``
starts it, shows each result as it comes, and replaces it when a test takes its kernel down. Everything else in the
session runs as it always did. :mod:`.selection` decides what runs where, :mod:`.guests` and, in the guest,
:mod:`.worker` run it, :mod:`.artefacts` has what a test leaves behind. This module and those that it imports here,
which every pytest run loads, import nothing heavy.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest

from sampleblk_lab.pytest_plugin import internals, options, selection, suites
from sampleblk_lab.pytest_plugin.fixtures import _sampleblk_fs as _sampleblk_fs
from sampleblk_lab.pytest_plugin.fixtures import crash as crash
from sampleblk_lab.pytest_plugin.fixtures import faults as faults
from sampleblk_lab.pytest_plugin.fixtures import measure as measure
from sampleblk_lab.pytest_plugin.fixtures import record as record
from sampleblk_lab.pytest_plugin.fixtures import sampleblk as sampleblk
from sampleblk_lab.pytest_plugin.fixtures import sampleblk_each_fs as sampleblk_each_fs
from sampleblk_lab.pytest_plugin.fixtures import sampleblk_factory as sampleblk_factory
from sampleblk_lab.pytest_plugin.fixtures import sampleblk_folder as sampleblk_folder
from sampleblk_lab.pytest_plugin.fixtures import sampleblk_kernel as sampleblk_kernel
from sampleblk_lab.pytest_plugin.fixtures import sampleblk_mount as sampleblk_mount
from sampleblk_lab.pytest_plugin.fixtures import workload as workload
from sampleblk_lab.pytest_plugin.suites import suite_test as suite_test

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

# Set once a phase of the test failed.
FAILED = pytest.StashKey[bool]()

# What to say of the test if it passes without having asked what its fixture is for; empty: it has.
NOT_JUDGED = pytest.StashKey[str]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options, all prefixed ``--sblk-``, and the values of the ini-file."""
    options.add(parser)


def pytest_configure(config: pytest.Config) -> None:
    """Declares the marks, so that ``--strict-markers`` knows them, and checks the options."""
    config.addinivalue_line(
        "markers",
        "sampleblk(**parameters): the device that the `sampleblk` fixture makes, as keywords of sampleblk_lab.Device, "
        "and for `sampleblk_mount` its file system, fs='ext4'",
    )
    config.addinivalue_line(
        "markers",
        "in_vm(deadline=None, fresh=None): run this test inside a virtual machine, for so many seconds at most; in one "
        "of its own (fresh='test'), or of its module ('module')",
    )
    config.addinivalue_line(
        "markers",
        "kernel_warning(*patterns): what the kernel may complain of under this test in a VM, regular expressions that "
        "are looked for in the lines that fail it otherwise",
    )
    suites.declare(config)
    options.of(config)
    config.pluginmanager.register(_Order(), "sampleblk-order")
    if any(map(config.getoption, ("--sblk-save", "--sblk-compare", "--sblk-across", "--sblk-fail-slower"))):
        from sampleblk_lab.pytest_plugin import artefacts

        artefacts.check_options(config)


# --- what runs where -------------------------------------------------------------------------------------------------


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Takes the kernel off the names of tests that may get it only when all are collected."""
    selection.widen_arguments(session.config)


@pytest.hookimpl(trylast=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Makes tests of those of a suite; with several kernels, puts the kernel last into each VM test's name."""
    suites.parametrize(metafunc)
    selection.parametrize(metafunc)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The same for those that could not have it as a parameter: after conftests set marks, before ``-k`` looks."""
    selection.expand(config, items)


class _Order:
    """A plugin of its own, because a module has one hook of a name."""

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Puts the host's tests first, and the tests of one kernel together."""
        if selection.delegates(config):
            selection.expand(config, items)  # what was marked after the first time
            selection.order(config, items)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Sends a VM test to the VM; in a VM, notes where the kernel's log is when a test begins."""
    if selection.in_guest(item.config):
        from sampleblk_lab.pytest_plugin import kernel_log

        kernel_log.begin(item)
        return None
    if not (selection.delegates(item.config) and selection.needs_guest(item)):
        return None
    from sampleblk_lab.pytest_plugin import guests

    guests.of(item.config).run(item, nextitem)
    return True


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Ends fixtures of modules and sessions with the last test that runs here: a VM test is none that uses them."""
    if nextitem is not None and selection.delegates(item.config) and selection.needs_guest(nextitem):
        internals.end_fixtures(item.session)


@pytest.hookimpl(optionalhook=True, tryfirst=True)
def pytest_timeout_set_timer(item: pytest.Item) -> bool | None:
    """Leaves pytest-timeout's timer of a VM test to the guest: here it would count the VM's start."""
    return True if selection.delegates(item.config) and selection.needs_guest(item) else None


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtestloop(session: pytest.Session) -> Generator[None, Any, Any]:
    """Ends the last guest before whoever measures the session, such as pytest-cov, is done."""
    interrupted = False
    try:
        return (yield)
    except BaseException as error:
        # Not what pytest derives from it, such as the end that -x brings.
        interrupted = type(error) is KeyboardInterrupt
        raise
    finally:
        # Who has imported it may have guests; a session without them does not pay for it.
        guests = sys.modules.get(f"{__name__}.guests")
        if guests is not None and selection.delegates(session.config):
            guests.close(session.config, at_once=interrupted)


# --- what a test leaves ----------------------------------------------------------------------------------------------


def pytest_deselected(items: Sequence[pytest.Item]) -> None:
    """For ``--sblk-compare``: what the command line leaves out need not be measured."""
    if items and items[0].config.getoption("--sblk-compare"):
        from sampleblk_lab.pytest_plugin import artefacts

        artefacts.note_deselected(items[0].config, items)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Fails a test that has judged nothing; in a VM, one under which the kernel warned, oopsed or locked up."""
    report = yield
    if report.when == "call" and report.passed and (said := item.stash.get(NOT_JUDGED, "")):
        report.outcome, report.longrepr = "failed", f"{item.nodeid}: {said}"
    if report.failed:
        item.stash[FAILED] = True
    if selection.in_guest(item.config):
        from sampleblk_lab.pytest_plugin import kernel_log

        kernel_log.check(item, report)
    return report


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Under xdist: tells each worker where its tests' run directories go."""
    from sampleblk_lab.pytest_plugin import artefacts

    artefacts.tell_worker(node)
