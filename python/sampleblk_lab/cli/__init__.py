# SPDX-License-Identifier: MIT
"""``sampleblk-lab COMMAND …``: the command line."""

from __future__ import annotations

from sampleblk_lab.cli.main import main

__all__ = ["main"]
