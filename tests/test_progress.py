# SPDX-License-Identifier: MIT
"""Progress on stderr; how a job's is shown: tests/workload/test_progress_bar.py."""

from __future__ import annotations

import os
import sys

import pytest

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
