# SPDX-License-Identifier: MIT
"""The driver built for a kernel, in a module tree that the guest's modprobe can use."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from sampleblk_lab.errors import SampleblkError, UnsupportedError
from sampleblk_lab.paths import built_directory, cache_root, kbuild_environment, keep_newest, locked, module_source
from sampleblk_lab.progress import step

if TYPE_CHECKING:
    from sampleblk_lab.kernels.store import Kernel

# What a build leaves in a source tree; a checkout that somebody built in must not differ from a clean one.
_BUILT = (".ko", ".o", ".mod", ".mod.c", ".cmd", ".order", ".symvers")


# Trees of a kernel that stay, those used last: of several checkouts, and of who goes back and forth between commits.
_KEPT = 8

# Beside a tree: its driver's path and hash, written last. Versions that write another one have trees of their own.
_MARK = "sha256"


# What make, or the shell that it has run commands, takes for something else in a path.
_SPECIAL = re.compile(r"""[\s:#$%'"`\\;&|<>()*?]""")


class DriverBuildError(SampleblkError, RuntimeError):
    """kbuild failed; the message ends with what it printed."""


# The user-space tests of the driver are no part of the module; touching one must not rebuild it. What was made for one
# kernel is not for another.
_NOT_SOURCES = frozenset({"tests", "generated"})


def _sources(folder: Path) -> list[Path]:
    found = []
    for at, folders, names in os.walk(folder):
        top = Path(at) == folder
        folders[:] = [name for name in folders if not name.startswith(".") and not (top and name in _NOT_SOURCES)]
        found += [Path(at, name) for name in names if not name.startswith(".") and not name.endswith(_BUILT)]
    return sorted(found)


def source_identity() -> str:
    """Changes with the driver's source."""
    return _digest_of(module_source(), b"")


def _key(folder: Path, kernel: Kernel) -> str:
    return _digest_of(folder, f"{_MARK}\n{kernel.build_identity}".encode())


def _digest_of(folder: Path, begin: bytes) -> str:
    digest = hashlib.sha256(begin)
    for path in _sources(folder):
        digest.update(f"{path.relative_to(folder)}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def module_tree(kernel: Kernel) -> Path | None:
    """The folder to be ``/lib/modules/RELEASE`` in the guest: the kernel's own modules, and ``updates/sampleblk.ko``.

    Built once for each kernel and each state of the driver's source, in the cache.

    Returns:
        The folder; the kernel's own when it has no headers to build against; None when it has no modules either.

    Raises:
        DriverBuildError: The driver does not build for this kernel.
    """
    if kernel.build is None or not (module_source() / "Makefile").exists():
        return kernel.modules
    source = module_source()
    target = cache_root() / "modules" / f"{kernel.release}-{_key(source, kernel)}"
    tree = target / "lib/modules" / kernel.release
    if _whole(target):
        with contextlib.suppress(OSError):
            os.utime(target)  # of several checkouts the one in use keeps its tree
        return tree
    with locked(target):
        if not _whole(target):
            with step(f"building the driver for {kernel.release}"), built_directory(target) as scratch:
                _build(kernel, source, scratch)
            _forget_older(target, kernel)
    return tree


def _whole(target: Path) -> bool:
    """Whether a tree is there and its driver is as it was when it was built: the guest's kernel runs whatever it is."""
    try:
        module, digest = (target / _MARK).read_text().split()
        return hashlib.sha256((target / module).read_bytes()).hexdigest() == digest
    except (OSError, ValueError):
        return False


def check_path(folder: Path) -> None:
    """Raises UnsupportedError where kbuild cannot work with a folder."""
    if found := _SPECIAL.search(str(folder)):
        raise UnsupportedError(
            f"building the driver with {folder}",
            f"kbuild takes no path with {found[0]!r}",
            "use another one; SAMPLEBLK_CACHE says where the cache is",
        )


def _build(kernel: Kernel, source: Path, scratch: Path) -> None:
    from sampleblk_lab.kernels import toolchain

    for path in filter(None, (scratch, kernel.build)):
        check_path(path)
    work = scratch / "source"
    for path in _sources(source):
        copy = work / path.relative_to(source)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, copy)
    done = subprocess.run(
        ["make", "-C", str(work), f"-j{os.cpu_count() or 1}", f"KDIR={kernel.build}"],
        env=kbuild_environment(kernel.search_path),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0 or not (work / "sampleblk.ko").exists():
        tail = "\n".join(done.stdout.splitlines()[-40:])
        lacks = [] if kernel.build is None else toolchain.missing(kernel.build, kernel.tools)
        why = f"; not installed: {', '.join(lacks)}" if lacks else ""
        raise DriverBuildError(
            f"the driver does not build for {kernel.release} (make KDIR={kernel.build}){why}:\n{tail}"
        )
    tree = scratch / "lib/modules" / kernel.release
    (tree / "updates").mkdir(parents=True)
    shutil.copy2(work / "sampleblk.ko", tree / "updates")
    shutil.rmtree(work)
    if kernel.modules is not None:
        for path in kernel.modules.iterdir():
            if path.name in ("build", "source") or path.name == "updates":
                continue
            if path.is_dir():
                (tree / path.name).symlink_to(path)
            elif path.name in ("modules.order", "modules.builtin", "modules.builtin.modinfo"):
                shutil.copy2(path, tree)
    toolchain.run_depmod(scratch, kernel.release)
    module = tree / "updates/sampleblk.ko"
    digest = hashlib.sha256(module.read_bytes()).hexdigest()
    (scratch / _MARK).write_text(f"{module.relative_to(scratch)} {digest}\n")


def _forget_older(target: Path, kernel: Kernel) -> None:
    """Keeps the trees of this kernel that were used last, and those that running VMs look into."""
    keep_newest((path for path in target.parent.glob(f"{kernel.release}-*") if path.is_dir()), _KEPT)
