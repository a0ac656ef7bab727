# SPDX-License-Identifier: MIT
"""Drivers that are loaded when their device node is opened, as on a system with udev."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.in_vm
KERNEL_MODULES = Path("/lib/modules", os.uname().release)


def test_all_that_depmod_lists_are_there() -> None:
    lines = [line.split() for line in (KERNEL_MODULES / "modules.devname").read_text().splitlines() if line[0] != "#"]
    assert {"loop-control", "mapper/control"} <= {name for _, name, _ in lines}
    for _, name, number in lines:
        about = Path("/dev", name).stat()
        kind = {"c": stat.S_ISCHR, "b": stat.S_ISBLK}[number[0]]
        assert kind(about.st_mode), name
        assert f"{os.major(about.st_rdev)}:{os.minor(about.st_rdev)}" == number[1:], name


def test_mount_makes_a_loop_device_of_a_file(tmp_path: Path) -> None:
    subprocess.run(["modprobe", "-r", "loop"], check=True)
    image, mount = tmp_path / "disk.img", Path("/tmp/static-nodes")
    image.write_bytes(b"")
    os.truncate(image, 8 << 20)
    subprocess.run(["mkfs.ext4", "-q", image], check=True)
    mount.mkdir()
    subprocess.run(["mount", "-o", "loop", image, mount], check=True)
    try:
        assert (mount / "lost+found").is_dir()
    finally:
        subprocess.run(["umount", mount], check=True)
        mount.rmdir()
        subprocess.run(["modprobe", "-r", "loop"], check=True)
