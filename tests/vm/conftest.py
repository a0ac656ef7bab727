# SPDX-License-Identifier: MIT
"""What is in this folder runs inside the VM: it loads modules, mounts and traces."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.in_vm)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """On the debug kernel the console tells which case each complaint belongs to."""
    if os.environ.get("SAMPLEBLK_STRESS") == "full":
        Path("/dev/kmsg").write_text(f"case {item.name}")


def _unload() -> None:
    if Path("/sys/module/sampleblk").exists():
        subprocess.run(["rmmod", "sampleblk"], check=True)


@pytest.fixture(scope="module", autouse=True)
def unloaded() -> Iterator[None]:
    """Whoever unloads the driver is told of what it has leaked: after each file."""
    yield
    _unload()


@pytest.fixture
def outlives_us(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes this a machine that is not thrown away: of the driver nothing must be left there."""
    monkeypatch.delenv("SAMPLEBLK_VM")


@pytest.fixture
def second_cpu() -> Path:
    """The switch of the second CPU, for what cannot be without one."""
    switch = Path("/sys/devices/system/cpu/cpu1/online")
    if not switch.exists():
        pytest.skip("one CPU")
    return switch


@pytest.fixture
def no_driver() -> None:
    """Takes away the module that earlier tests have left loaded: modprobe would do nothing."""
    _unload()
