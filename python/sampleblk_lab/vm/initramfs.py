# SPDX-License-Identifier: MIT
"""The initramfs of a VM: our init, and the modules it needs to reach the host (usr/gen_init_cpio.c has the format)."""

from __future__ import annotations

import hashlib
import lzma
import stat
import subprocess
import zlib
from typing import TYPE_CHECKING

from sampleblk_lab.errors import UnsupportedError
from sampleblk_lab.paths import cache_root, resource, write_atomically

if TYPE_CHECKING:
    from pathlib import Path

    from sampleblk_lab.kernels import Kernel

# What the guest needs before it can see the host's files, and the file systems that its root is made of.
MODULES = ("virtio_pci", "virtio_console", "9pnet_virtio", "9p", "overlay")

_FOLDERS = ("dev", "host", "modules", "newroot", "overlay", "proc", "sys")


def _module_name(path: str) -> str:
    return path.rsplit("/", 1)[-1].split(".ko")[0].replace("-", "_")


def module_files(kernel: Kernel, wanted: tuple[str, ...] = MODULES) -> list[Path]:
    """The files of the wanted modules and of what they depend on, each after its dependencies (modules.dep(5)).

    Raises:
        UnsupportedError: The kernel has a wanted module neither built in nor as a file.
    """
    if kernel.modules is None:
        return []
    builtin = {_module_name(line) for line in (kernel.modules / "modules.builtin").read_text().split()}
    needs: dict[str, tuple[str, list[str]]] = {}
    for line in (kernel.modules / "modules.dep").read_text().splitlines():
        path, _, below = line.partition(":")
        needs[_module_name(path)] = (path, below.split())
    ordered: dict[str, None] = {}
    for name in wanted:
        if name in builtin:
            continue
        if name not in needs:
            raise UnsupportedError(f"kernel {kernel.release}", f"it has no module {name}, which the VM needs")
        path, dependencies = needs[name]
        # modules.dep lists what must be loaded last first.
        for file in [*reversed(dependencies), path]:
            ordered[file] = None
    return [kernel.modules / file for file in ordered]


def _unpacked(path: Path) -> bytes:
    data = path.read_bytes()
    if path.suffix == ".xz":
        return lzma.decompress(data)
    if path.suffix == ".gz":
        return zlib.decompress(data, wbits=31)
    if path.suffix == ".zst":
        return subprocess.run(["zstd", "-dcq"], input=data, stdout=subprocess.PIPE, check=True).stdout
    return data


def cpio(entries: list[tuple[str, int, bytes]]) -> bytes:
    """A newc archive of (name, mode, content) entries."""
    out = bytearray()
    for inode, (name, mode, content) in enumerate([*entries, ("TRAILER!!!", 0, b"")], start=1):
        path = name.encode() + b"\0"
        # magic, then ino mode uid gid nlink mtime filesize devmajor devminor rdevmajor rdevminor namesize check
        fields = (inode, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(path), 0)
        out += b"070701" + b"".join(b"%08x" % field for field in fields) + path
        out += b"\0" * (-len(out) % 4)
        out += content
        out += b"\0" * (-len(out) % 4)
    return bytes(out)


def _stamp(path: Path) -> str:
    status = path.stat()
    return f"{path} {status.st_size} {status.st_mtime_ns}\n"


def build(kernel: Kernel) -> Path:
    """The initramfs for a kernel, built once into the cache. The file's name is the hash of what went into it."""
    init = resource("vm/bin/sampleblk-init")
    modules = module_files(kernel)
    parts = "".join([kernel.release, *map(_stamp, [init, *modules])])
    target = cache_root() / "initramfs" / f"{hashlib.sha256(parts.encode()).hexdigest()[:24]}.cpio"
    if not target.exists():
        entries = [(folder, stat.S_IFDIR | 0o755, b"") for folder in _FOLDERS]
        entries.append(("init", stat.S_IFREG | 0o755, init.read_bytes()))
        names = []
        for path in modules:
            names.append(f"{_module_name(path.name)}.ko")
            entries.append((f"modules/{names[-1]}", stat.S_IFREG | 0o644, _unpacked(path)))
        entries.append(("modules/order", stat.S_IFREG | 0o644, "".join(f"{name}\n" for name in names).encode()))
        write_atomically(target, cpio(entries))
    return target
