# SPDX-License-Identifier: MIT
"""Peer suites: xfstests and blktests, from a checkout of the user's, in clones of a VM, on our devices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sampleblk_lab.suites.blktests import Blktests
from sampleblk_lab.suites.others import read_results
from sampleblk_lab.suites.xfstests import Xfstests

if TYPE_CHECKING:
    from sampleblk_lab.suites.suite import Suite

#: The suites, by name.
SUITES: dict[str, Suite] = {suite.name: suite for suite in (Xfstests(), Blktests())}

__all__ = ["SUITES", "Blktests", "Xfstests", "read_results"]
