# SPDX-License-Identifier: MIT
"""Telling a kernel's complaint from its chatter."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# The first lines of what the kernel prints when something in it went wrong. A WARNING begins the message: with a name
# before it, it is what a file system says of its medium (zonefs: "zonefs (sda) WARNING: ...").
_SPLAT = re.compile(
    r"Kernel panic|\bBUG:|Oops|(?:^|\]\s*)WARNING: |kernel BUG at|Unable to handle kernel|"
    # That of a program is told too: "traps: PROGRAM[PID] general protection fault ip:... sp:... error:0".
    r"general protection fault(?! ip:)|"
    # How other exceptions of the kernel's own began up to 6.9, without "Oops": "divide error: 0000 [#1] PREEMPT SMP".
    r": [0-9a-f]{4} \[#\d+\]|"
    r"INFO: task .* blocked|INFO: rcu.* stall|soft lockup|hard LOCKUP|possible circular locking|"
    # lockdep: of a lock that was never initialised, it says nothing else.
    r"INFO: trying to register non-static key|"
    # SLUB: "BUG kmalloc-64 (Not tainted): Right Redzone overwritten".
    r"\bBUG \S+ \((?:Not tainted|Tainted: )|"
    # kmemleak's thread counts those that it found, and tells each only if asked.
    r"unreferenced object|kmemleak: \d+ new suspected memory leaks|"
    # Up to 6.1 without a WARNING: what still has them will use what is freed.
    r"VFS: Busy inodes after unmount|"
    r"UBSAN:|KASAN:"
)


def is_splat(line: str) -> bool:
    """Whether a line of the kernel's log begins a panic, oops, warning, lockup, hung task or leak."""
    return _SPLAT.search(line) is not None


def log_lines(fd: int, read: Callable[[int, int], bytes] = os.read) -> Iterator[str | None]:
    """What has come of /dev/kmsg; None where records were overwritten before they were read.

    Args:
        fd: Of the log; it does not block.
        read: Not what a test made of it.
    """
    while True:
        try:
            record = read(fd, 8192)
        except BlockingIOError:
            return
        except BrokenPipeError:
            yield None
            continue
        # "priority,sequence,microseconds,flags;text", then continuation lines
        prefix, _, text = record.decode(errors="replace").partition(";")
        stamp = int(prefix.split(",")[2])
        yield f"[{stamp // 1_000_000:5d}.{stamp % 1_000_000:06d}] {text.splitlines()[0] if text else ''}"
