# SPDX-License-Identifier: MIT
"""What proc(5) says of a process. Its name may be any bytes, and may end within a character: the kernel cuts it."""

from __future__ import annotations

import os
from pathlib import Path


def text(pid: int, name: str) -> str:
    """A file of a process's. Raises FileNotFoundError, ProcessLookupError: it is gone."""
    return os.fsdecode(Path(f"/proc/{pid}/{name}").read_bytes())


def status(pid: int) -> dict[str, str]:
    """The fields of ``status``, by their names."""
    parts = (line.partition(":") for line in text(pid, "status").split("\n"))
    return {name: value.strip() for name, _, value in parts}


def stat(pid: int) -> list[str]:
    """The fields of ``stat`` that follow the name, which is the second: the state is the first."""
    return text(pid, "stat").rpartition(") ")[2].split()
