# SPDX-License-Identifier: MIT
"""Everything that the package needs of a machine, looked at one by one. Changes and downloads nothing."""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import os
import platform
import shutil
import stat
import sys
import tempfile
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sampleblk_lab.errors import SampleblkError, UnsupportedError
from sampleblk_lab.paths import find_program

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
    "modprobe": ("kmod", "loading the driver"),
    "depmod": ("kmod", "the index of a kernel's modules"),
    "mount": ("mount", "mounting file systems"),
    "dpkg-deb": ("dpkg", "unpacking kernels"),
    "apt-get": ("apt", "fetching kernels"),
    "mkfs.ext4": ("e2fsprogs", "ext4 in the guest"),
    "mkfs.xfs": ("xfsprogs", "xfs in the guest"),
    "mkfs.btrfs": ("btrfs-progs", "btrfs in the guest"),
    "mkfs.f2fs": ("f2fs-tools", "f2fs in the guest"),
}
_NEEDED_TOOLS = ("make", "gcc", "modprobe", "depmod", "mount", "dpkg-deb", "apt-get")

# distribution -> (extra, what it is for)
_EXTRAS = {
    "pytest": ("pytest", "tests in VMs"),
    "pytest-xdist": ("pytest", "tests in several VMs at a time"),
    "ipykernel": ("notebook", "notebooks"),
    "jupyter-client": ("notebook", "notebook kernels in VMs"),
    "tqdm": ("notebook", "progress bars in notebooks"),
    "matplotlib": ("plot", "plots"),
    "drgn": ("inspect", "the running kernel's structures"),
    "pyarrow": ("sweep", "sweeps"),
    "distributed": ("sweep", "sweeps on a cluster"),
}


@dataclass(frozen=True)
class Check:
    """One thing that was looked at.

    Attributes:
        name: What.
        state: ``"ok"``, ``"missing"`` (something cannot be done without it) or ``"failed"`` (nothing can).
        found: What there is.
        remedy: How to fix it; empty when it is well.
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

    qemu = find(download=False)
    single = "" if "multi" in qemu.tcg else ", too old to run two CPUs in two threads"
    return f"{qemu.version_text} ({qemu.program}){single}"


def _system() -> str:
    """What programs rely on, and a chroot may lack."""
    with open("/proc/self/stat"), open("/dev/null", "r+b") as null:  # noqa: PTH123
        if not stat.S_ISCHR(os.fstat(null.fileno()).st_mode):
            raise OSError("/dev/null is a file that keeps what is written to it")
    return "/proc is mounted, and there is a /dev/null"


def _driver_source() -> str:
    from sampleblk_lab.paths import module_source

    source = module_source()
    if not (source / "Makefile").exists():
        raise FileNotFoundError(f"no Makefile in {source}")
    return str(source)


def _kernel() -> str:
    from sampleblk_lab import kernels

    kernel = kernels.resolve(None, download=False)
    if kernel.build is None or not kernel.build.exists():
        raise FileNotFoundError(f"{kernel.release} has no headers")
    return f"{kernel.release}, with headers"


def _settings() -> str:
    """What the environment says of VMs, which every command takes."""
    from sampleblk_lab import kernels
    from sampleblk_lab.vm import options as vm_options

    vm_options.check(vm_options.parsed())
    with contextlib.suppress(UnsupportedError):  # it is not in the cache yet, which is said beside it
        kernels.resolve(None, download=False)
    named = [variable for _, _, variable in vm_options.OPTIONS.values() if os.environ.get(variable)]
    return ", ".join(f"{name}={os.environ[name]}" for name in named) or "none in the environment"


def _builds() -> str:
    from sampleblk_lab import kernels
    from sampleblk_lab.kernels import toolchain

    told = []
    for kernel in kernels.installed():
        lacks = ["headers"] if kernel.build is None else toolchain.missing(kernel.build, kernel.tools)
        if lacks:
            raise FileNotFoundError(f"the driver cannot be built for {kernel.release}: no {', '.join(lacks)}")
        told.append(kernel.release)
    return f"the driver can be built for {', '.join(told)}" if told else "no kernel is in the cache yet"


def _whole() -> str:
    from sampleblk_lab.kernels import store

    damaged = store.damaged()
    if damaged:
        raise FileNotFoundError(f"not whole: {', '.join(map(str, damaged))}")
    return "every kernel is as it was unpacked"


def _space() -> str:
    from sampleblk_lab.kernels import driver
    from sampleblk_lab.paths import cache_root, writing_cache

    folder = cache_root()
    driver.check_path(folder)
    there = next(path for path in (folder, *folder.parents) if path.exists())
    with writing_cache(there), tempfile.TemporaryFile(dir=there):
        pass
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
    from sampleblk_lab.vm import accel
    from sampleblk_lab.vm.qemu import find

    try:
        verdict = accel.known(find(download=False))
    except SampleblkError:
        verdict = None  # said beside QEMU
    if verdict is None:
        return Check(name, WELL, "/dev/kvm opens; the first VM finds out whether guests boot with it")
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(verdict.when))
    if verdict.accel == "kvm":
        return Check(name, WELL, f"KVM: {verdict.why} ({when})")
    found = f"/dev/kvm opens, but VMs are emulated (TCG): {verdict.why} ({when})"
    if not verdict.final:
        found += f"; tried again after {time.strftime('%Y-%m-%d %H:%M', time.localtime(verdict.again_at))}"
    return Check(name, MISSING, found, "sampleblk-lab vm probe tries KVM again now")


def _tool(name: str) -> Check:
    package, purpose = _TOOLS[name]
    found = find_program(name)
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


def _host_kernel() -> str:
    from sampleblk_lab.leftovers import CONTROL_PATH

    release = platform.release()
    if CONTROL_PATH.exists():
        return f"the driver is loaded in {release}"
    if not os.path.exists("/proc/modules"):  # noqa: PTH110
        raise OSError(f"{release} is built without loadable modules")
    if not os.path.exists(f"/lib/modules/{release}/build"):  # noqa: PTH110
        raise OSError(f"{release} has no headers to build the driver against (/lib/modules/{release}/build)")
    return f"the driver can be built for {release}: make -C module dkms-install"


def _host_rights() -> str:
    if os.geteuid() != 0:
        raise OSError("not root: devices, mounts and tracing take it")
    for folder in ("/sys/kernel/tracing", "/sys/kernel/debug/tracing"):
        if os.path.exists(f"{folder}/available_tracers"):  # noqa: PTH110
            with open(f"{folder}/available_tracers") as file:  # noqa: PTH123
                tracers = file.read().split()
            if "function_graph" not in tracers:
                raise OSError(f"this kernel has no function_graph tracer, only {', '.join(tracers)}")
            return f"root, with tracing in {folder}"
    raise OSError("there is no tracefs")


def _host_leftovers() -> str:
    from sampleblk_lab import leftovers

    left = leftovers.pending()
    if left:
        raise OSError(f"a killed experiment left {', '.join(left)}")
    return "nothing is left of killed experiments"


def _in_vm() -> str:
    from sampleblk_lab.vm import VM

    with VM() as vm:
        done = vm.run(["modprobe", "sampleblk"], timeout=60)
        if done.returncode != 0:
            raise OSError((done.stderr or b"").decode(errors="replace").strip() or "modprobe sampleblk failed")
        how = "restored" if vm.restored else "booted"
        return f"Linux {vm.kernel.release} {how} under {vm.accel}, the driver loads"


def examine(*, host: bool = False, vm: bool = False) -> list[Check]:
    """Looks at everything.

    Args:
        host: Also what experiments on this machine itself take (``pytest --sblk-host``).
        vm: Also start a VM and load the driver there; that may download a kernel.
    """
    from sampleblk_lab.kernels import store

    kernel = os.environ.get("SAMPLEBLK_KERNEL") or store.DEFAULT
    checks = [
        Check("Python", WELL, f"{platform.python_version()} ({sys.executable})"),
        _attempt(
            "C++ core", _core, "install what the message names, then: pip install --force-reinstall sampleblk-lab"
        ),
        _attempt("system", _system, "mount -t proc proc /proc; mount -t devtmpfs devtmpfs /dev"),
        _attempt("driver source", _driver_source, "pip install --force-reinstall sampleblk-lab"),
        _attempt("QEMU", _qemu, "apt-get install qemu-system-x86"),
        _accelerator(),
        _attempt("memory", _memory, "close something, or give VMs less: --memory 512M"),
        _attempt("cache", _space, "make room, or set SAMPLEBLK_CACHE to a folder elsewhere"),
        _attempt(
            "settings", _settings, "correct the variable: sampleblk-lab run --help names those of the environment"
        ),
        *map(_tool, _TOOLS),
        _attempt("kernel", _kernel, f"sampleblk-lab kernel fetch {kernel}", state=MISSING),
        _attempt("kernels whole", _whole, "the next use fetches it again", state=MISSING),
        _attempt("kernels' tools", _builds, "sampleblk-lab kernel fetch the kernel again", state=MISSING),
        *map(_extra, _EXTRAS),
    ]
    if host:
        checks += [
            _attempt(
                "host: driver", _host_kernel, "use the VM, which needs nothing of the host's kernel", state=MISSING
            ),
            _attempt("host: rights", _host_rights, "run as root on a kernel with ftrace, or use the VM", state=MISSING),
            _attempt("host: leftovers", _host_leftovers, "the next experiment takes it away", state=MISSING),
        ]
    if vm:
        checks.append(_attempt("VM", _in_vm, "sampleblk-lab vm run --cold -- true shows the console"))
    return checks
