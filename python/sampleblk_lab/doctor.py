# SPDX-License-Identifier: MIT
"""Everything that the package needs of a machine, looked at one by one. Changes and downloads nothing."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import shutil
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sampleblk_lab.errors import SampleblkError

if TYPE_CHECKING:
    from collections.abc import Callable

# A check that everything needs; one that some things need; one that is well.
FAILED, MISSING, WELL = "failed", "missing", "ok"

# What a debug build of the driver and two kernels take in the cache.
_CACHE_BYTES = 2 << 30
_MEMORY_BYTES = 2 << 30

# command -> (Debian package, what it is for)
_TOOLS = {
    "make": ("make", "building the driver for a kernel"),
    "gcc": ("gcc", "building the driver for a kernel"),
    "dpkg-deb": ("dpkg", "unpacking kernels"),
    "apt-get": ("apt", "fetching kernels"),
    "mkfs.ext4": ("e2fsprogs", "ext4 in the guest"),
    "mkfs.xfs": ("xfsprogs", "xfs in the guest"),
    "mkfs.btrfs": ("btrfs-progs", "btrfs in the guest"),
    "mkfs.f2fs": ("f2fs-tools", "f2fs in the guest"),
}
_NEEDED_TOOLS = ("make", "gcc", "dpkg-deb", "apt-get")

# distribution -> (extra, what it is for)
_EXTRAS = {
    "pytest-xdist": ("pytest", "tests in VMs"),
    "ipykernel": ("notebook", "notebooks"),
    "jupyter-client": ("notebook", "notebook kernels in VMs"),
    "tqdm": ("notebook", "progress bars in notebooks"),
    "matplotlib": ("plot", "plots"),
    "drgn": ("inspect", "the running kernel's structures"),
}


@dataclass(frozen=True)
class Check:
    """One thing that was looked at.

    Attributes:
        name: What.
        state: ``"ok"``, ``"missing"`` (something cannot be done without it) or ``"failed"`` (nothing can).
        found: What there is.
        remedy: How to mend it; empty when it is well.
    """

    name: str
    state: str
    found: str
    remedy: str = ""


def _attempt(name: str, look: Callable[[], str], remedy: str, *, state: str = FAILED) -> Check:
    try:
        return Check(name, WELL, look())
    except (SampleblkError, OSError, ImportError) as error:
        # An error of ours has its own remedy, after the last semicolon.
        return Check(name, state, str(error).splitlines()[0], remedy)


def _core() -> str:
    from sampleblk_lab._native import core

    return f"loaded, with {len(core.job_keys())} job keys"


def _qemu() -> str:
    from sampleblk_lab.vm.qemu import find

    return f"QEMU {find().version_text}"


def _driver_source() -> str:
    from sampleblk_lab.paths import module_source

    source = module_source()
    if not (source / "main.c").exists():
        raise FileNotFoundError(f"no main.c in {source}")
    return str(source)


def _kernel() -> str:
    from sampleblk_lab import kernels

    kernel = kernels.resolve(None, download=False)
    if kernel.build is None or not kernel.build.exists():
        raise FileNotFoundError(f"{kernel.release} has no headers")
    return f"{kernel.release}, with headers"


def _space() -> str:
    from sampleblk_lab.paths import cache_root

    folder = cache_root()
    there = next(path for path in (folder, *folder.parents) if path.exists())
    free = shutil.disk_usage(there).free
    if free < _CACHE_BYTES:
        raise OSError(f"{free / 2**30:.1f} GiB free for {folder}")
    return f"{free / 2**30:.0f} GiB free for {folder}"


def _memory() -> str:
    available = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        with open("/proc/meminfo") as file:  # noqa: PTH123
            for line in file:
                if line.startswith("MemAvailable:"):
                    available = int(line.split()[1]) * 1024
    except OSError:
        pass
    if available < _MEMORY_BYTES:
        raise OSError(f"{available / 2**30:.1f} GiB available")
    return f"{available / 2**30:.0f} GiB available, {os.cpu_count()} CPUs"


def _accelerator() -> Check:
    name = "acceleration"
    if not os.path.exists("/dev/kvm"):  # noqa: PTH110
        return Check(name, WELL, "none: VMs are emulated (TCG), about ten times slower; compare ratios, not times")
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return Check(
            name, MISSING, "/dev/kvm is there, but not for this user", f"adduser {os.environ.get('USER', 'YOU')} kvm"
        )
    return Check(name, WELL, "/dev/kvm opens; the first VM finds out whether guests boot with it")


def _tool(name: str) -> Check:
    package, purpose = _TOOLS[name]
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin:/usr/local/sbin")
    if found:
        return Check(name, WELL, found)
    state = FAILED if name in _NEEDED_TOOLS else MISSING
    return Check(name, state, f"not installed: {purpose}", f"apt-get install {package}")


def _extra(distribution: str) -> Check:
    extra, purpose = _EXTRAS[distribution]
    try:
        return Check(distribution, WELL, importlib.metadata.version(distribution))
    except importlib.metadata.PackageNotFoundError:
        return Check(distribution, MISSING, f"not installed: {purpose}", f"pip install 'sampleblk-lab[{extra}]'")


def _in_vm() -> str:
    from sampleblk_lab.vm import VM

    with VM() as vm:
        done = vm.run(["modprobe", "sampleblk"], timeout=60)
        if done.returncode != 0:
            raise OSError((done.stderr or b"").decode(errors="replace").strip() or "modprobe sampleblk failed")
        how = "restored" if vm.restored else "booted"
        return f"Linux {vm.kernel.release} {how} under {vm.accel}, the driver loads"


def examine(*, vm: bool = False) -> list[Check]:
    """Looks at everything.

    Args:
        vm: Also start a VM and load the driver there; that may download a kernel.
    """
    checks = [
        Check("Python", WELL, f"{platform.python_version()} ({sys.executable})"),
        _attempt(
            "C++ core", _core, "install what the message names, then: pip install --force-reinstall sampleblk-lab"
        ),
        _attempt("driver source", _driver_source, "pip install --force-reinstall sampleblk-lab"),
        _attempt("QEMU", _qemu, "apt-get install qemu-system-x86"),
        _accelerator(),
        _attempt("memory", _memory, "close something, or give VMs less: --memory 512M"),
        _attempt("cache", _space, "make room, or set SAMPLEBLK_CACHE to a folder elsewhere"),
        *map(_tool, _TOOLS),
        _attempt("kernel", _kernel, "sampleblk-lab kernel fetch 6.1", state=MISSING),
        *map(_extra, _EXTRAS),
    ]
    if vm:
        checks.append(_attempt("VM", _in_vm, "sampleblk-lab vm run --cold -- true shows the console"))
    return checks
