# SPDX-License-Identifier: MIT
"""How jobs use a device, as their files say: what is then held against its counters."""

from __future__ import annotations

from pathlib import Path

import pytest

from sampleblk_lab.workload import checks


@pytest.mark.parametrize(
    ("keys", "told", "raw"),
    [
        ({}, True, True),
        ({"verify": "0", "ramp_time": "0", "pre_read": "0", "unified_rw_reporting": "none"}, True, True),
        ({"verify": "crc32c"}, True, False),
        ({"ramp_time": "2"}, True, False),
        # The two jobs' numbers are one; where that is switched off each has its own.
        ({"group_reporting": ""}, False, False),
        ({"group_reporting": "1"}, False, False),
        ({"group_reporting": "0"}, True, True),
    ],
)
def test_a_key_that_is_set_to_nothing_is_none(
    keys: dict[str, str], told: bool, raw: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "_on", lambda _path: checks._Place(3, is_device=True))
    places = (Path("/dev/sampleblk3"),)
    jobs = [checks.AsTold(name, keys, direct=True, places=places) for name in ("a", "b")]
    uses = checks._uses(jobs)
    assert bool(uses) is told
    if told:
        assert (uses[3].jobs, uses[3].direct, uses[3].raw) == ({"a", "b"}, True, raw)
