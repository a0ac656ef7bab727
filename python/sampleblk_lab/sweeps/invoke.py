# SPDX-License-Identifier: MIT
"""The call of the function itself, in the trial's process or in its VM. Few imports: each takes long in a guest."""

from __future__ import annotations

import pickle
import time
from typing import Any


def invoke(function: bytes, keywords: dict[str, Any]) -> tuple[Any, float]:
    """Calls a pickled function; returns its value and the seconds that it took."""
    called = pickle.loads(function)
    begin = time.perf_counter()
    value = called(**keywords)
    return value, time.perf_counter() - begin
