# SPDX-License-Identifier: MIT
"""The pytest plugin: experiments as tests.

Tests that use a fixture of ours, or carry ``@pytest.mark.in_vm``, run inside a virtual machine; plain ``pytest``
starts it, shows each result as it comes, and replaces it when a test takes its kernel down. Everything else in the
session runs as it always did. What runs where is decided in :mod:`.guest`, what a test leaves behind in
:mod:`.artefacts`; this module and :mod:`.fixtures`, which every pytest run loads, import nothing else.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from sampleblk_lab.pytest_plugin.fixtures import GUEST_FIXTURES
from sampleblk_lab.pytest_plugin.fixtures import _sampleblk_fs as _sampleblk_fs
from sampleblk_lab.pytest_plugin.fixtures import faults as faults
from sampleblk_lab.pytest_plugin.fixtures import measure as measure
from sampleblk_lab.pytest_plugin.fixtures import record as record
from sampleblk_lab.pytest_plugin.fixtures import sampleblk as sampleblk
from sampleblk_lab.pytest_plugin.fixtures import sampleblk_each_fs as sampleblk_each_fs
from sampleblk_lab.pytest_plugin.fixtures import sampleblk_folder as sampleblk_folder
from sampleblk_lab.pytest_plugin.fixtures import sampleblk_mount as sampleblk_mount
from sampleblk_lab.pytest_plugin.fixtures import workload as workload

if TYPE_CHECKING:
    from collections.abc import Generator

# Set once a phase of the test failed.
FAILED = pytest.StashKey[bool]()

# In the guest, where the plugin must not start another one.
_IN_VM = "SAMPLEBLK_VM"


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options, all prefixed ``--sblk-``."""
    group = parser.getgroup("sampleblk", "sampleblk-lab: experiments on the Linux storage stack")
    group.addoption(
        "--sblk-host", action="store_true", help="run VM tests on this machine, as root, instead of in a VM"
    )
    group.addoption(
        "--sblk-kernel",
        metavar="NAME",
        default=None,
        help="the kernel of the VM: release or its beginning (6.1), path, or Debian suite; several, with commas "
        "between them: run each VM test on each",
    )
    group.addoption("--sblk-memory", metavar="SIZE", default=None, help="memory of the VM (1G)")
    group.addoption("--sblk-cpus", metavar="N", default=None, help="virtual CPUs of the VM (2)")
    group.addoption(
        "--sblk-runs", metavar="DIR", default=None, help="where run directories are kept (runs, beside the ini-file)"
    )
    group.addoption(
        "--sblk-keep",
        action="store_true",
        help="keep the run directory of every test that has one, not only of those that measured or failed",
    )
    group.addoption(
        "--sblk-save",
        metavar="NAME",
        default=None,
        help="save this session's measurements as a round of the set NAME",
    )
    group.addoption(
        "--sblk-compare",
        metavar="NAME",
        default=None,
        help="compare this session's measurements with those of the set NAME",
    )
    group.addoption(
        "--sblk-across",
        metavar="ASPECT",
        action="append",
        default=[],
        help="let --sblk-compare compare results of different accelerators, kernels or machines: "
        "accelerator, kernel, machine; may be given again",
    )
    group.addoption(
        "--sblk-fail-slower",
        action="store_true",
        help="with --sblk-compare: end with status 1 when a measurement is slower",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Declares the marks, so that ``--strict-markers`` knows them."""
    config.addinivalue_line(
        "markers",
        "sampleblk(**parameters): the device that the `sampleblk` fixture makes, as keywords of sampleblk_lab.Device, "
        "and for `sampleblk_mount` its file system, fs='ext4'",
    )
    config.addinivalue_line("markers", "in_vm: run this test inside a virtual machine")
    if config.getoption("--sblk-save") or config.getoption("--sblk-compare"):
        from sampleblk_lab.pytest_plugin import artefacts

        artefacts.check_options(config)


def needs_guest(item: pytest.Item) -> bool:
    """Whether a test must run where modules can be loaded and functions traced."""
    fixtures = getattr(item, "fixturenames", ())
    return (
        not GUEST_FIXTURES.isdisjoint(fixtures)
        or item.get_closest_marker("in_vm") is not None
        or item.get_closest_marker("sampleblk") is not None
    )


def _delegates(config: pytest.Config) -> bool:
    """Whether this process hands VM tests to another one."""
    return not (config.getoption("--sblk-host") or _IN_VM in os.environ or config.option.collectonly)


@pytest.fixture
def _sampleblk_kernel(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.hookimpl(trylast=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """In a guest that is one of several kernels: puts the kernel last into each test's name."""
    label = os.environ.get("SAMPLEBLK_PYTEST_KERNEL")
    if label is not None and _IN_VM in os.environ:
        metafunc.fixturenames.append("_sampleblk_kernel")
        metafunc.parametrize("_sampleblk_kernel", [label], indirect=True, ids=[label])


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """On an xdist worker of the host: leaves VM tests to the VM, and tells the controller which there are."""
    if hasattr(config, "workerinput") and _delegates(config):
        from sampleblk_lab.pytest_plugin import guest

        config.workeroutput[guest.WORKER_OUTPUT] = guest.take_guest_items(items)  # type: ignore[attr-defined]


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> Generator[None, Any, Any]:
    """Runs the host's tests as pytest or xdist would, then the VM's tests in the VM."""
    config = session.config
    if hasattr(config, "workerinput") or not _delegates(config):
        return (yield)
    # Under xdist the controller has no items: the workers tell what they left.
    controller = config.pluginmanager.has_plugin("dsession")
    if not controller and not any(map(needs_guest, session.items)):
        return (yield)
    from sampleblk_lab.pytest_plugin import guest

    return (yield from guest.run_loop(session))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> None:
    """In the guest, notes where the kernel's log was when a test began."""
    if _IN_VM in os.environ:
        from sampleblk_lab.pytest_plugin import kernel_log

        kernel_log.begin(item)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """In the guest, fails a test under which the kernel warned, oopsed or locked up, with what it said."""
    report = yield
    if report.failed:
        item.stash[FAILED] = True
    if _IN_VM in os.environ:
        from sampleblk_lab.pytest_plugin import kernel_log

        kernel_log.check(item, report)
    return report


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Under xdist: tells each worker where its tests' run directories go."""
    from sampleblk_lab.pytest_plugin import artefacts

    artefacts.tell_worker(node)
