# SPDX-License-Identifier: MIT
"""One line on stderr for each long step, so that nobody wonders what the silence is."""

from __future__ import annotations

import contextlib
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def step(what: str) -> Iterator[None]:
    """Says what begins, and how long it took: ``sampleblk-lab: fetching kernel 6.1 … 14.2 s``."""
    print(f"sampleblk-lab: {what} …", end="", file=sys.stderr, flush=True)
    begin = time.monotonic()
    try:
        yield
    except BaseException:
        print(" failed", file=sys.stderr, flush=True)
        raise
    print(f" {time.monotonic() - begin:.1f} s", file=sys.stderr, flush=True)
