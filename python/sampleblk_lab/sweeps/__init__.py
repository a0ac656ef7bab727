# SPDX-License-Identifier: MIT
"""Sweeps: one experiment over kernels, file systems and parameters, on this machine or on many.

What users call is in :mod:`sampleblk_lab.sweeps.api`, and how combinations are chosen in
:mod:`sampleblk_lab.sweeps.choice`. This file imports nothing until it is asked, because every trial's process and guest
imports it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sampleblk_lab.sweeps.choice import Choice as Choice
    from sampleblk_lab.sweeps.choice import optuna as optuna
    from sampleblk_lab.sweeps.choice import random as random
    from sampleblk_lab.sweeps.wheels import install as install

__all__ = ["Choice", "install", "optuna", "random"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{'wheels' if name == 'install' else 'choice'}"), name)
