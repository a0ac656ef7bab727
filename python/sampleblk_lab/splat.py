# SPDX-License-Identifier: MIT
"""Telling a kernel's complaint from its chatter."""

from __future__ import annotations

import re

# The first lines of what the kernel prints when something in it went wrong. A WARNING begins the message: with a name
# before it, it is what a file system says of its medium (zonefs: "zonefs (sda) WARNING: ...").
_SPLAT = re.compile(
    r"Kernel panic|BUG:|Oops|(?:^|\]\s*)WARNING: |general protection fault|kernel BUG at|Unable to handle kernel|"
    r"INFO: task .* blocked|INFO: rcu.* stall|soft lockup|hard LOCKUP|unreferenced object|possible circular locking|"
    r"UBSAN:|KASAN:"
)


def is_splat(line: str) -> bool:
    """Whether a line of the kernel's log begins a panic, oops, warning, lockup, hung task or leak."""
    return _SPLAT.search(line) is not None
