# SPDX-License-Identifier: MIT
"""What is in this folder runs inside the VM: it loads modules, mounts and traces."""

from pathlib import Path

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.in_vm)
