# SPDX-License-Identifier: MIT
"""A guest's command on our terminal: raw here, cooked there."""

from __future__ import annotations

import os
import signal
import termios
import tty
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sampleblk_lab.vm.machine import VM


def run_on_terminal(vm: VM, command: Sequence[str], env: Mapping[str, str], timeout: float | None) -> int:
    """Runs a command that has the terminal on descriptors 0 and 1 as its own; returns its status."""
    before = termios.tcgetattr(0)
    columns, rows = os.get_terminal_size(1)
    try:
        tty.setraw(0)
        done = vm.run(
            command,
            stdin=0,
            stdout=1,
            stderr=2,
            env=env,
            timeout=timeout,
            window=(rows, columns),
            forward_signals=(signal.SIGTERM, signal.SIGHUP, signal.SIGWINCH),
        )
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, before)
    return done.returncode
