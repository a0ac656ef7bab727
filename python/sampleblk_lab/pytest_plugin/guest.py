# SPDX-License-Identifier: MIT
"""The part of a session that runs in virtual machines: one more round of pytest-xdist.

The host's tests run first, by whatever runs them (pytest itself, or xdist with ``-n``). Then the VM's tests go to xdist
workers whose interpreter is ``sampleblk-python``, as many as ``-n`` says, and their reports come back live. A worker
that dies took its kernel with it: the test that ran fails with the end of that VM's console, and a new VM goes on.
"""

from __future__ import annotations

import copy
import shlex
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sampleblk_lab.pytest_plugin import artefacts, needs_guest
from sampleblk_lab.results import machine

if TYPE_CHECKING:
    from collections.abc import Generator

WORKER_OUTPUT = "sampleblk_guest_items"

# In the guest, the kernel's name as the user gave it, where each test runs on several.
LABEL = "SAMPLEBLK_PYTEST_KERNEL"

# Reports of one test come from one VM, so a VM that dies over and over dies of its tests: every crash fails one.
_RESTARTS = "1000000"


def _address(item: pytest.Item) -> str:
    """The test as a command-line argument that finds it from any folder."""
    _, _, inner = item.nodeid.partition("::")
    return f"{item.path}::{inner}" if inner else str(item.path)


def take_guest_items(items: list[pytest.Item]) -> list[str]:
    """Removes the VM's tests from `items` and returns them as command-line arguments."""
    taken = [_address(item) for item in items if needs_guest(item)]
    items[:] = [item for item in items if not needs_guest(item)]
    return taken


class _Gatherer:
    """Under ``-n``: learns from the host's workers which tests they left."""

    def __init__(self) -> None:
        self.addresses: dict[str, None] = {}

    def pytest_testnodedown(self, node: Any) -> None:
        for address in getattr(node, "workeroutput", {}).get(WORKER_OUTPUT, ()):
            self.addresses[address] = None


def run_loop(session: pytest.Session) -> Generator[None, Any, Any]:
    """The test loop: the host's round, then the VM's. Yields once, for the host's round."""
    config = session.config
    gatherer = _Gatherer()
    config.pluginmanager.register(gatherer, "sampleblk-gatherer")
    addresses = take_guest_items(session.items)
    result = yield
    counted = bool(addresses)
    addresses = addresses or list(gatherer.addresses)
    if addresses and not session.shouldstop and not session.shouldfail:
        # pytest counted every test that it collected, xdist only those of the host's round.
        before = session.testscollected - (len(addresses) if counted else 0)
        _run_in_guests(session, addresses, before)
    return result


def _labelled(address: str, label: str | None) -> str:
    """The address of a test in a guest that puts its kernel last into each test's name."""
    if label is None:
        return address
    return f"{address[:-1]}-{label}]" if address.endswith("]") else f"{address}[{label}]"


def _options(invocation: pytest.Config.InvocationParams, named: list[str]) -> list[str]:
    """The command line without the files and folders it named, which xdist would hand to its workers as they are."""
    options = [str(argument) for argument in invocation.args]
    for path in reversed(named or []):
        if path in options:
            # Named files come after the options as a rule: the last one is the file, not an option's value.
            del options[len(options) - 1 - options[::-1].index(path)]
    return options


class _ConsoleOnCrash:
    """Puts the end of the dead VM's console into the report of the test that it died under, and all of it beside."""

    def __init__(self, session: artefacts.Session) -> None:
        self._session = session
        self._crashed: list[Any] = []

    def pytest_handlecrashitem(self, crashitem: str, report: Any) -> None:
        from sampleblk_lab.vm.console import Console

        gateway = report.node.gateway
        path, _, name = crashitem.partition("::")
        report.location = (path, None, name.replace("::", "."))
        console = Console(Path(_console_of(str(gateway.spec))))
        what = "the guest's kernel panicked" if console.has_panic() else "the virtual machine ended"
        # In the text itself, so that JUnit has it as well.
        report.longrepr = f"{what} under this test ({gateway.id})\n\n--- Guest console ---\n{console.tail()}"
        folder = self._session.scratch() / artefacts.folder_name(crashitem)
        folder.mkdir(exist_ok=True)
        (folder / "console.log").write_text(console.text())
        # xdist's phase "???" is one that pytest-html drops and JUnit never closes.
        report.when = "call"
        self._crashed.append(report)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_logreport(self, report: Any) -> Generator[None, Any, Any]:
        result = yield
        if self._crashed and report is self._crashed[-1]:
            self._crashed.pop()
            end = copy.copy(report)
            end.when, end.outcome, end.longrepr, end.sections = "teardown", "passed", None, []
            end.duration = 0.0
            self._session.config.hook.pytest_runtest_logreport(report=end)
        return result


def _console_of(spec: str) -> str:
    """The console's path in a worker's command, which :func:`_interpreter` put there last."""
    return shlex.split(spec.split("//python=", 1)[1].split("//", 1)[0])[-1]


def _interpreter(config: pytest.Config, kernel: str | None, label: str | None, console: Path) -> str:
    """The command of a worker's interpreter, for execnet to split."""
    script = Path(sys.executable).with_name("sampleblk-python")
    command = [str(script)] if script.exists() else [sys.executable, "-m", "sampleblk_lab.vm.python"]
    if label is not None:
        command = ["env", f"{LABEL}={label}", *command]
    chosen = {
        "--kernel": kernel,
        "--memory": config.getoption("--sblk-memory"),
        "--cpus": config.getoption("--sblk-cpus"),
        "--run-dir": str(artefacts.session_of(config).scratch()),
    }
    for option, value in chosen.items():
        if value is not None:
            command += [option, value]
    return shlex.join([*command, "--quiet", "--console", str(console)])


def _run_in_guests(session: pytest.Session, addresses: list[str], before: int) -> None:
    """Runs the tests at `addresses` in VMs, once for each kernel; `before` tests were counted already."""
    config = session.config
    manager = config.pluginmanager
    if not manager.has_plugin("xdist"):
        raise pytest.UsageError(
            f"{len(addresses)} tests need a virtual machine, which takes the pytest-xdist plugin: "
            "pip install 'sampleblk-lab[pytest]', or run them here with --sblk-host"
        )
    kernels: list[str | None] = [*(config.getoption("--sblk-kernel") or "").split(",")]
    kernels = [kernel.strip() or None for kernel in kernels if kernel is not None]
    total = before + len(addresses) * len(kernels)
    invocation = config.invocation_params
    saved = {name: getattr(config.option, name) for name in ("dist", "tx", "maxworkerrestart")}
    folder = Path(tempfile.mkdtemp(prefix="sampleblk-consoles-"))
    on_crash = _ConsoleOnCrash(artefacts.session_of(config))
    manager.register(on_crash)
    machine.tell_guest()
    try:
        config.option.dist = "load"
        config.option.maxworkerrestart = _RESTARTS
        for kernel in kernels:
            label = kernel if len(kernels) > 1 else None
            config.invocation_params = type(invocation)(
                args=(*_options(invocation, config.option.file_or_dir), *(_labelled(a, label) for a in addresses)),
                plugins=invocation.plugins,
                dir=invocation.dir,
            )
            consoles = [folder / f"{kernel}-{n}.log" for n in range(int(config.getoption("numprocesses", 0) or 1))]
            config.option.tx = [f"popen//python={_interpreter(config, kernel, label, path)}" for path in consoles]
            _round(session, total)
    finally:
        manager.unregister(on_crash)
        config.invocation_params = invocation
        for name, value in saved.items():
            setattr(config.option, name, value)
        session.testscollected = total
        shutil.rmtree(folder, ignore_errors=True)


def _round(session: pytest.Session, total: int) -> None:
    """One xdist session within ours."""
    from xdist.dsession import DSession

    class Guests(DSession):  # type: ignore[misc]
        def worker_collectionfinish(self, node: Any, ids: Any) -> None:
            super().worker_collectionfinish(node, ids)
            session.testscollected = total  # not this round's share, or the percentages would pass 100

    manager = session.config.pluginmanager
    for name in ("dsession", "terminaldistreporter"):
        if manager.has_plugin(name):
            manager.unregister(name=name)
    guests = Guests(session.config)
    manager.register(guests, "dsession")
    try:
        guests.pytest_sessionstart(session)
        guests.pytest_runtestloop()
    finally:
        guests.pytest_sessionfinish()
        manager.unregister(guests)
