# SPDX-License-Identifier: MIT
"""A test of a suite, in the guest: its devices, what the system lacks, the suite's ``check``.

All of it is thrown away with the guest, so nothing is undone.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sampleblk_lab.device import Device
    from sampleblk_lab.suites.suite import Setup

# Of a file that a test leaves, the host gets so much: its beginning.
_MOST_BYTES = 8 << 20

# The first of the user numbers that the suites' users get, where nobody has them.
_FIRST_USER = 61000


def run(suite: str, folder: str, test: str, setup: Setup, config: str | None, directory: Path) -> dict[str, Any]:
    """Runs one test; called in the guest.

    Args:
        suite: The suite's name.
        folder: Its build.
        test: The test's name.
        setup: What it runs on.
        config: The path of the kernel's configuration, on the host; None: it is not known.
        directory: The host's folder that outlives the guest.

    Returns:
        The suite's verdict as plain data, and the seconds that the test took with its devices and file systems.
    """
    from sampleblk_lab.suites import SUITES

    begin = time.monotonic()
    _system(config)
    devices = _devices(setup, SUITES[suite].devices(setup))
    verdict = SUITES[suite].run(Path(folder), test, setup, devices, directory)
    _shorten(directory)
    return {**verdict.json(), "seconds": time.monotonic() - begin}


def _system(config: str | None) -> None:
    """What the suites expect of a system that has booted."""
    release = os.uname().release
    if config is not None:
        boot = made("/boot") / f"config-{release}"
        boot.unlink(missing_ok=True)
        shutil.copyfile(config, boot)
    modules = Path(f"/lib/modules/{release}/kernel")
    if modules.is_symlink():
        # blktests looks for modules by find(1), which does not go through a link.
        real = modules.resolve()
        modules.unlink()
        bound(real, str(modules))
    subprocess.run(["modprobe", "-q", "configfs"], check=False)
    for kind, where in (("configfs", "/sys/kernel/config"), ("debugfs", "/sys/kernel/debug")):
        if Path(where).is_dir() and not os.path.ismount(where):
            subprocess.run(["mount", "-t", kind, kind, where], check=False, stderr=subprocess.DEVNULL)
    # Tests' filters put a word in the place of this name, which must not be within those of our devices.
    socket.sethostname("guest-of-suites")
    # LVM takes devices by their drivers' names, and knows these not by itself (lvm.conf(5), devices/types).
    lvm = made("/etc/lvm") / "lvmlocal.conf"
    lvm.unlink(missing_ok=True)
    lvm.write_text('devices { types = ["sampleblk", 16, "nullb", 16] }\n')


def environment(*, udevd: bool) -> dict[str, str]:
    """What both suites' ``check`` runs with.

    Args:
        udevd: Whether one runs here, and libdevmapper is to wait for it; without, a guest has it make the nodes itself.
    """
    settings = {"HOME": "/root", "LC_ALL": "C", "TMPDIR": "/tmp", "TERM": "dumb"}
    ours = {name: value for name, value in os.environ.items() if not udevd or name != "DM_DISABLE_UDEV"}
    return ours | settings


def started_udevd() -> bool:
    """Starts systemd's udevd, which loads drivers for new devices and is what ``udevadm settle`` waits for.

    Returns:
        Whether it runs; not where the system has none.
    """
    for folder in ("/usr/lib/systemd", "/lib/systemd"):
        program = Path(folder, "systemd-udevd")
        if program.exists():
            made("/run/udev")
            done = subprocess.run([program, "--daemon"], check=False, stderr=subprocess.DEVNULL)
            if done.returncode == 0:
                pinged = subprocess.run(["udevadm", "control", "--ping"], check=False, stderr=subprocess.DEVNULL)
                return pinged.returncode == 0
    return False


def made(path: str | Path) -> Path:
    """A folder, made where it is missing."""
    Path(path).mkdir(parents=True, exist_ok=True)
    return Path(path)


def bound(source: Path, target: str) -> Path:
    """A folder under a second path, which every user may come through: its own may lead through somebody's home."""
    subprocess.run(["mount", "--bind", str(source), str(made(target))], check=True)
    return Path(target)


def memory(target: str) -> Path:
    """A folder in the guest's memory."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", str(made(target))], check=True)
    return Path(target)


def add_users(*names: str) -> None:
    """Users and groups of these names, where the system has none."""
    users, groups, shadow = Path("/etc/passwd"), Path("/etc/group"), Path("/etc/shadow")
    for number, name in enumerate(names, _FIRST_USER):
        if f"\n{name}:" not in f"\n{groups.read_text()}":
            with groups.open("a") as file:
                file.write(f"{name}:x:{number}:\n")
        if f"\n{name}:" not in f"\n{users.read_text()}":
            home = made(f"/home/{name}")
            os.chown(home, number, number)
            with users.open("a") as file:
                file.write(f"{name}:x:{number}:{number}::{home}:/bin/bash\n")
            _shadowed(shadow, name)


def _shadowed(shadow: Path, name: str) -> None:
    """A line for a user without a password: where there is none, not even root becomes the user by su(1)."""
    try:
        before = shadow.read_text()
    except OSError:
        # The host's file, and the host's user who runs the VM may not read it.
        names = [line.partition(":")[0] for line in Path("/etc/passwd").read_text().splitlines()]
        before = "".join(f"{each}:*:::::::\n" for each in names if each != name)
        shadow.unlink(missing_ok=True)
    shadow.write_text(f"{before}{name}:*:::::::\n")


def recorded(command: Sequence[str], where: Path, environment: Mapping[str, str], path: Path) -> tuple[str, int]:
    """What a command prints, also in a file as it comes, and its exit status; a test may be the guest's last."""
    with path.open("wb") as file:
        done = subprocess.run(
            command,
            cwd=where,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            check=False,
        )
    return path.read_text(errors="replace"), done.returncode


def copy_files(source: Path, target: Path) -> None:
    """Copies regular files, each up to a limit."""
    for where, _, names in os.walk(source):
        for name in names:
            path = Path(where, name)
            if path.is_file() and not path.is_symlink():
                with path.open("rb") as file:
                    data = file.read(_MOST_BYTES)
                (made(target / Path(where).relative_to(source)) / name).write_bytes(data)


def _shorten(directory: Path) -> None:
    for where, _, names in os.walk(directory):
        for name in names:
            path = Path(where, name)
            if not path.is_symlink() and path.is_file() and path.stat().st_size > _MOST_BYTES:
                os.truncate(path, _MOST_BYTES)


# --- devices

# They go with the guest.
_kept: list[Device] = []


def _devices(setup: Setup, capacities: Sequence[int]) -> list[str]:
    if setup.device == "brd":
        return _brd(setup, len(capacities))
    if setup.device == "null_blk":
        return _null_blk(capacities)
    from sampleblk_lab.device import Device

    cpus = os.cpu_count() or 1
    _kept.extend(Device(capacity, cpus, mode=setup.mode) for capacity in capacities)
    return [device.path for device in _kept]


def _brd(setup: Setup, count: int) -> list[str]:
    # Its devices all have the same size.
    kib = setup.capacity_bytes >> 10
    subprocess.run(["modprobe", "brd", f"rd_nr={count}", f"rd_size={kib}"], check=True)
    return [f"/dev/ram{number}" for number in range(count)]


def _null_blk(capacities: Sequence[int]) -> list[str]:
    subprocess.run(["modprobe", "null_blk", "nr_devices=0"], check=True)
    found = []
    for number, capacity in enumerate(capacities):
        folder = made(f"/sys/kernel/config/nullb/nullb{number}")
        values = {
            "memory_backed": 1,
            "size": capacity >> 20,
            "submit_queues": os.cpu_count() or 1,
            "discard": 1,
        }
        for name, value in {**values, "power": 1}.items():
            (folder / name).write_text(f"{value}\n")
        found.append(f"/dev/nullb{(folder / 'index').read_text().strip()}")
    return found
