# SPDX-License-Identifier: MIT
"""One self-contained HTML page for a run: no network, no scripts, readable on paper and on a phone."""

from __future__ import annotations

from sampleblk_lab.analysis.outline import CallOutline
from sampleblk_lab.report.page import Page

__all__ = ["CallOutline", "Page"]
