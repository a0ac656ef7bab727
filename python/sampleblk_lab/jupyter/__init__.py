# SPDX-License-Identifier: MIT
"""Jupyter: notebook kernels in a VM, and magics. ``%load_ext sampleblk_lab.jupyter`` loads the magics.

Cells of the kernels that ``sampleblk-lab jupyter install`` makes run in the guest; the magics are loaded there.
"""

from __future__ import annotations

from typing import Any


def load_ipython_extension(ipython: Any) -> None:
    """Registers ``%sblk_job``, ``%%sblk_trace`` and ``%%sblk_profile``."""
    from sampleblk_lab.jupyter import magics

    ipython.register_magics(magics.SampleblkMagics)
