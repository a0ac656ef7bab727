# SPDX-License-Identifier: MIT
"""The initramfs of a VM: our init, the modules it needs to reach the host, and which nodes load others.

usr/gen_init_cpio.c of the kernel has the format.
"""

from __future__ import annotations

import contextlib
import hashlib
import lzma
import os
import re
import shlex
import stat
import struct
import subprocess
import zlib
from typing import TYPE_CHECKING, NamedTuple

from sampleblk_lab.errors import FormatError, UnsupportedError
from sampleblk_lab.kernels import config, image
from sampleblk_lab.paths import cache_root, fingerprint, last_used, resource, write_atomically

if TYPE_CHECKING:
    from pathlib import Path

    from sampleblk_lab.kernels import Kernel

# What the guest needs before it can see the host's files, and the file systems that its root is made of.
MODULES = tuple(config.MODULES)

# The oldest go when there are more.
_KEPT = 24

_FOLDERS = ("dev", "proc", "run", "run/modules", "sys")


def _module_name(path: str) -> str:
    return path.rsplit("/", 1)[-1].split(".ko")[0].replace("-", "_")


def module_files(kernel: Kernel, wanted: tuple[str, ...] = MODULES) -> list[Path]:
    """The files of the wanted modules and of what they depend on, each after its dependencies (modules.dep(5)).

    Raises:
        UnsupportedError: The kernel has a wanted module neither built in nor as a file.
    """
    if kernel.modules is None:
        return []
    for index in ("modules.builtin", "modules.dep"):
        if not (kernel.modules / index).is_file():
            root = kernel.modules.parents[2]
            raise UnsupportedError(
                f"kernel {kernel.release}",
                f"{kernel.modules} has no {index}",
                f"depmod -b {shlex.quote(str(root))} {kernel.release}",
            )
    builtin = (kernel.modules / "modules.builtin").read_text()
    files = (kernel.modules / "modules.dep").read_text()
    ordered: dict[str, None] = {}
    for name in wanted:
        if _line_of(name, builtin):
            continue
        path, _, below = _line_of(name, files).partition(":")
        if not path:
            option = config.MODULES.get(name, f"CONFIG_{name.upper()}")
            raise UnsupportedError(
                f"kernel {kernel.release}",
                f"it has no module {name}, which the VM needs",
                f"build it with {option}=m or =y",
            )
        # modules.dep lists what must be loaded last first.
        for file in [*reversed(below.split()), path]:
            ordered[file] = None
    return [kernel.modules / file for file in ordered]


def _line_of(name: str, index: str) -> str:
    """The line of an index that is about a module; empty where none is. There are some four thousand others."""
    for found in re.finditer(rf"{name.replace('_', '[-_]')}\.ko\b.*", index):
        begin = index.rfind("\n", 0, found.start()) + 1
        folder = index[begin : found.start()]
        if " " not in folder and (not folder or folder.endswith("/")):  # else it is another one, or what that one needs
            return index[begin : found.end()]
    return ""


def _unpacked(path: Path) -> bytes:
    """A module as insmod wants it. Raises FormatError when the file is damaged, UnsupportedError without zstd."""
    data = path.read_bytes()
    try:
        if path.suffix == ".xz":
            data = lzma.decompress(data)
        elif path.suffix == ".gz":
            data = zlib.decompress(data, wbits=31)
        elif path.suffix == ".zst":
            done = image.run_decompressor("zstd", data, path)
            done.check_returncode()
            data = done.stdout
    except (lzma.LZMAError, zlib.error, subprocess.CalledProcessError) as error:
        raise FormatError(str(path), 0, f"a module compressed as {path.suffix} ({error})") from None
    # An ELF file's section headers are at its end (elf(5), e_shoff, e_shnum of 64 bytes each).
    if len(data) < 64 or not data.startswith(b"\x7fELF"):
        raise FormatError(str(path), 0, "a kernel module")
    end = struct.unpack_from("<Q", data, 40)[0] + 64 * struct.unpack_from("<H", data, 60)[0]
    if len(data) < end:
        raise FormatError(str(path), len(data), f"a kernel module of at least {end} bytes")
    return data


class Entry(NamedTuple):
    """A file, folder or symbolic link of an archive; a link's content is its target, the owner a user and a group."""

    name: str
    mode: int
    content: bytes = b""
    mtime_s: int = 0
    owner: tuple[int, int] = (0, 0)


def cpio(entries: list[Entry]) -> bytes:
    """A newc archive; one may follow another."""
    out = bytearray()
    for inode, entry in enumerate([*entries, Entry("TRAILER!!!", 0)], start=1):
        path, size = os.fsencode(entry.name) + b"\0", len(entry.content)
        # magic, then ino mode uid gid nlink mtime filesize devmajor devminor rdevmajor rdevminor namesize check
        fields = (inode, entry.mode, *entry.owner, 1, entry.mtime_s, size, 0, 0, 0, 0, len(path), 0)
        out += b"070701" + b"".join(b"%08x" % field for field in fields) + path
        out += b"\0" * (-len(out) % 4)
        out += entry.content
        out += b"\0" * (-len(out) % 4)
    return bytes(out)


def build(kernel: Kernel) -> Path:
    """The initramfs for a kernel, built once into the cache.

    Its name begins with the hash of what went into it and ends with that of its content.

    Raises:
        UnsupportedError: The kernel lacks a module that the VM needs.
        FormatError: One of its modules is damaged.
        CacheError: It cannot be written.
    """
    init = resource("vm/bin/sampleblk-init")
    modules = module_files(kernel)
    nodes = _static_nodes(kernel)
    parts = "\n".join([kernel.release, *map(fingerprint, [init, *modules, *nodes])])
    folder, key = cache_root() / "initramfs", hashlib.sha256(parts.encode()).hexdigest()[:24]
    if built := next(folder.glob(f"{key}-*.cpio"), None):
        return built
    archive = cpio(_entries(init, modules, nodes))
    target = folder / _content_name(key, archive)
    write_atomically(target, archive)
    for old in sorted(folder.glob("*.cpio"), key=last_used)[:-_KEPT]:
        old.unlink(missing_ok=True)
    return target


def whole(path: Path, kernel: Kernel) -> Path:
    """One that was built for a kernel, and is what was written then, for a boot: else a guest would only panic."""
    if path.parent != cache_root() / "initramfs":
        return path
    with contextlib.suppress(FileNotFoundError):
        if _content_name(path.name.partition("-")[0], path.read_bytes()) == path.name:
            return path
        path.unlink()
    return build(kernel)


def _static_nodes(kernel: Kernel) -> list[Path]:
    """Depmod's list of the device nodes that load a module when they are opened; none where no module has one."""
    path = None if kernel.modules is None else kernel.modules / "modules.devname"
    return [path] if path is not None and path.is_file() else []


def _content_name(key: str, content: bytes) -> str:
    return f"{key}-{hashlib.sha256(content).hexdigest()[:24]}.cpio"


def _entries(init: Path, modules: list[Path], nodes: list[Path]) -> list[Entry]:
    entries = [Entry(folder, stat.S_IFDIR | 0o755) for folder in _FOLDERS]
    entries.append(Entry("init", stat.S_IFREG | 0o755, init.read_bytes()))
    names = []
    for path in modules:
        names.append(f"{_module_name(path.name)}.ko")
        entries.append(Entry(f"run/modules/{names[-1]}", stat.S_IFREG | 0o644, _unpacked(path)))
    entries.append(Entry("run/modules/order", stat.S_IFREG | 0o644, "".join(f"{name}\n" for name in names).encode()))
    entries += [Entry("run/modules/devname", stat.S_IFREG | 0o644, path.read_bytes()) for path in nodes]
    return entries
