# SPDX-License-Identifier: MIT
"""Recordings of trace-cmd on four kernels, decoded by us and by `trace-cmd report -R`."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from sampleblk_lab._native import core

sys.path.insert(0, str(Path(__file__).parent))
import trace_cmd

RECORDINGS = sorted((Path(__file__).parents[1] / "data" / "trace").glob("*.dat"))


@pytest.mark.skipif(not trace_cmd.AVAILABLE, reason="needs trace-cmd: apt-get install trace-cmd")
@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_every_field_is_what_trace_cmd_reports(path):
    file = core.TraceFile(str(path))
    assert len(trace_cmd.report(str(path))) > 100
    assert trace_cmd.differences(file, str(path)) == []


def test_there_are_recordings_of_four_kernels():
    assert {path.stem.split("-")[0] for path in RECORDINGS} == {"5.10", "6.1", "6.12", "7.2"}
