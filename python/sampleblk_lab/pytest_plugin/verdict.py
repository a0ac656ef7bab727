# SPDX-License-Identifier: MIT
"""For ``sampleblk-lab kernel bisect``, which loads it: a session in which no test ran is no verdict on a kernel."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sampleblk_lab.pytest_plugin import artefacts, options, selection

#: The exit status of such a session: what git-bisect(1) skips a commit for.
NOT_TESTED = 125

# Whether any test ran to an end, of those in VMs and of the others.
_RAN = pytest.StashKey[dict[bool, bool]]()
# Whether reports that failed say something of the kernel.
_FAILED = pytest.StashKey[set[bool]]()


def pytest_configure(config: pytest.Config) -> None:
    """Refuses what would test something else than the kernel that was built, wherever it comes from."""
    kernel, kernels = os.environ.get("SAMPLEBLK_KERNEL"), options.of(config).kernels
    if kernels != (kernel,) and not selection.in_vm():
        raise pytest.UsageError(f"--sblk-kernel {','.join(kernels)} in a bisection (expected {kernel}, as is built)")


@pytest.hookimpl(hookwrapper=True)
def pytest_report_teststatus(report: pytest.TestReport, config: pytest.Config) -> object:
    """Notes that a test ran to an end, as expected or not."""
    in_vm, found = getattr(report, "sblk_in_vm", False), config.stash.setdefault(_RAN, {})
    ran = report.when == "call" and (not report.skipped or hasattr(report, "wasxfail"))
    found[in_vm] = found.get(in_vm, False) or ran
    if report.failed:
        config.stash.setdefault(_FAILED, set()).add(getattr(report, "sblk_judged", True))
    return (yield)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Ends the session as not tested if all was skipped or left out, or nothing failed but the start of VMs.

    One in which no test failed, and none was slower, ends as one that was interrupted: what failed it is the collection
    of some files, the coverage, or results that could not be kept or compared.
    """
    if selection.in_vm() or hasattr(session.config, "workerinput"):
        return
    found = session.config.stash.get(_RAN, {})
    # Where there are tests for VMs, others say nothing of the kernel.
    nothing_ran = session.exitstatus == pytest.ExitCode.OK and not found.get(True, found.get(False, False))
    failed = session.config.stash.get(_FAILED, set())
    some_failed = session.exitstatus == pytest.ExitCode.TESTS_FAILED
    if nothing_ran or (some_failed and failed == {False}):
        session.exitstatus = NOT_TESTED
    elif some_failed and not failed and (session.testsfailed or not artefacts.session_of(session.config).slower):
        session.exitstatus = pytest.ExitCode.INTERRUPTED
    elif session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        Path(os.environ["SAMPLEBLK_JUDGED"]).touch()
