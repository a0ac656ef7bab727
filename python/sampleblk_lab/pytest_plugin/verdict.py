# SPDX-License-Identifier: MIT
"""For ``sampleblk-lab kernel bisect``, which loads it: a session in which no test ran is no verdict on a kernel."""

from __future__ import annotations

import pytest

from sampleblk_lab.pytest_plugin import selection

#: The exit status of such a session: what git-bisect(1) skips a commit for.
NOT_TESTED = 125

_RAN = pytest.StashKey[bool]()


@pytest.hookimpl(hookwrapper=True)
def pytest_report_teststatus(report: pytest.TestReport, config: pytest.Config) -> object:
    """Notes that a test ran to an end, as expected or not."""
    if report.when == "call" and (not report.skipped or hasattr(report, "wasxfail")):
        config.stash[_RAN] = True
    return (yield)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Ends the session as not tested if all was skipped or left out."""
    ran = session.config.stash.get(_RAN, False)
    if session.exitstatus == pytest.ExitCode.OK and not ran and not selection.in_vm():
        session.exitstatus = NOT_TESTED
