# SPDX-License-Identifier: MIT
"""What several test modules import."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

RunsInVM = Callable[..., subprocess.CompletedProcess[bytes]]


def script(name: str) -> str:
    """One of the package's commands, beside the interpreter that runs the tests."""
    beside = Path(sys.executable).with_name(name)
    found = str(beside) if beside.exists() else shutil.which(name)
    assert found, f"{name} is not installed"
    return found
