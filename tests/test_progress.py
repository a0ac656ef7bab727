# SPDX-License-Identifier: MIT
"""Progress on stderr; how a job's is shown: tests/workload/test_progress_bar.py."""

from __future__ import annotations

import os
import sys

import pytest

from sampleblk_lab import progress
from sampleblk_lab.progress import Line


def test_a_terminal_that_has_gone_ends_no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody saw what a night's tests came to: the first look at how far they were was an error (EIO)."""
    ours, theirs = os.openpty()
    with os.fdopen(theirs, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        line = Line()
        line.show("1 of 2")
        assert b"1 of 2" in os.read(ours, 100)
        os.close(ours)
        line.show("2 of 2")
        line.clear()
        print("generic/002 failed", file=terminal, flush=True)


def test_a_log_has_a_line_a_minute_of_what_takes_hours(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The log of a CI's job had nothing of a night's tests until the first failed."""
    now = 0.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    line = Line(logged=True)
    for second in range(0, 181, 20):
        now = second
        line.show(f"{second} of 1000")
    line.clear()
    assert capsys.readouterr().err == "60 of 1000\n120 of 1000\n180 of 1000\n"
    quiet = Line(logged=True, shown=False)
    now += 100
    quiet.show("more")
    assert capsys.readouterr().err == ""
