# SPDX-License-Identifier: MIT
"""These cases need root and the driver: they run inside the VM."""

import os
import subprocess
from pathlib import Path

import pytest


def _driver_at_hand() -> bool:
    if os.geteuid() != 0:
        return False
    if Path("/dev/sampleblk-control").exists():
        return True
    try:
        return subprocess.run(["modinfo", "sampleblk"], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    ours = [item for item in items if here in item.path.parents]
    if ours and not _driver_at_hand():
        for item in ours:
            item.add_marker(pytest.mark.skip(reason="no sampleblk driver on this machine: run inside the VM"))
