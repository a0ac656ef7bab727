# SPDX-License-Identifier: MIT
"""What recordings show: runs, their event tables and views."""

from sampleblk_lab.analysis.run import Run, open_run

__all__ = ["Run", "open_run"]
