# SPDX-License-Identifier: MIT
"""Files of the host that a template has in its memory, where its guest opens them without asking the host.

They are in the initramfs by the paths that they have on the host, and the guest's root has the initramfs over the
host's files. A mounted 9p share would keep the machine from being saved; and emulated, to start a program from there
takes twice as long.
"""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from sampleblk_lab.vm.contents import initramfs

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


def state(files: Iterable[str], folders: Iterable[str]) -> str:
    """A text that changes when one of the files does, or something comes to a folder.

    Args:
        files: Paths of files, which are the same file when they are one by following links.
        folders: Paths of folders.

    Raises:
        OSError: One of them does not exist.
    """
    digest = hashlib.sha256()
    for path in files:
        digest.update(f"{path} {_about(os.stat(path))}\n".encode())  # noqa: PTH116  # a thousand at each start of a VM
    for path in folders:
        digest.update(f"{path} {_about(Path(path).stat())}\n".encode())
    return digest.hexdigest()


def tree_state(folder: Path) -> str:
    """A text that changes when something below a folder does.

    Raises:
        OSError: The folder cannot be read.
    """
    status = folder.stat()
    digest = hashlib.sha256(f"{status.st_mode:o} {status.st_uid} {status.st_gid}\n".encode())  # others touch its times
    for entry in _walk(str(folder)):
        digest.update(os.fsencode(entry.path) + f" {_about(entry.stat(follow_symlinks=False))}\n".encode())
    return digest.hexdigest()


def _about(status: os.stat_result) -> str:
    """What changes with a file, its mode and its owner: a time of modification can be set, an inode's cannot."""
    return f"{status.st_ino} {status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}"


def archive(paths: Iterable[str], trees: Iterable[Path] = ()) -> bytes:
    """An initramfs with some of the host's files.

    Args:
        paths: Files and folders, with the links and folders on the way to each.
        trees: Folders with all that is below them, in which links stay what they are.
    """
    entries: dict[str, initramfs.Entry] = {}
    for path in paths:
        _add(entries, "", path.split("/")[1:])
    for folder in trees:
        real = str(folder.resolve())
        _add(entries, "", real.split("/")[1:])
        for entry in _walk(real):
            entries.setdefault(entry.path, _entry(entry.path))
    return initramfs.cpio(list(entries.values()))


def _walk(folder: str) -> Iterator[os.DirEntry[str]]:
    """All files, links and folders below a folder, each folder before what is in it."""
    with os.scandir(folder) as found:
        for entry in sorted(found, key=lambda entry: entry.name):
            if entry.is_dir(follow_symlinks=False):
                yield entry
                yield from _walk(entry.path)
            elif entry.is_symlink() or entry.is_file():
                yield entry


def _entry(path: str) -> initramfs.Entry:
    status = os.lstat(path)
    content = b""
    if stat.S_ISLNK(status.st_mode):
        content = os.fsencode(os.readlink(path))  # noqa: PTH115
    elif stat.S_ISREG(status.st_mode):
        content = Path(path).read_bytes()
    return initramfs.Entry(path[1:], status.st_mode, content, int(status.st_mtime), (status.st_uid, status.st_gid))


def _add(entries: dict[str, initramfs.Entry], at: str, rest: list[str]) -> None:
    """Adds a path below a folder of which all is known, and the folders and links on the way to it."""
    while rest:
        name, *rest = rest
        if name in ("", "."):
            continue
        if name == "..":
            at = at.rpartition("/")[0]
            continue
        path = f"{at}/{name}"
        entry = entries[path] if path in entries else entries.setdefault(path, _entry(path))
        if stat.S_ISLNK(entry.mode):
            target = os.fsdecode(entry.content)
            rest = [*target.split("/"), *rest]
            at = "" if target.startswith("/") else at
        elif stat.S_ISDIR(entry.mode):
            at = path
