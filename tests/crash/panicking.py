# SPDX-License-Identifier: MIT
"""A check that takes the kernel down, in a module that can be saved with a failure: it imports none of the tests'."""

from __future__ import annotations

import os
from pathlib import Path

from sampleblk_lab import crash


def there(path: Path) -> list[int]:
    """The writes that an image holds."""
    data = path.read_bytes()
    return [number for number in (1, 2, 3, 4) if data[number * 512] == number]


def falls_over(path: Path, state: crash.State) -> None:
    """Panics where only the second write is missing, fails where the first and the third are and the fourth is not."""
    found = there(path)
    if found == [1, 3, 4]:
        if "SAMPLEBLK_VM" not in os.environ:
            raise RuntimeError("a panic")
        Path("/proc/sysrq-trigger").write_text("c")
    assert 4 not in found or {1, 3} & set(found), state
