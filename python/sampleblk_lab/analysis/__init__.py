# SPDX-License-Identifier: MIT
"""What recordings show: runs, their event tables and views."""

from sampleblk_lab.analysis.imports import import_run, read_funcgraph, read_strace
from sampleblk_lab.analysis.run import Run, open_run

__all__ = ["Run", "import_run", "open_run", "read_funcgraph", "read_strace"]
