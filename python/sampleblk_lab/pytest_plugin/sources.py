# SPDX-License-Identifier: MIT
"""The files of a project, as one archive that another host unpacks once."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import subprocess
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sampleblk_lab.errors import InputError
from sampleblk_lab.paths import built_directory, cache_root, git_environment, is_kept, locked, remove_unused

if TYPE_CHECKING:
    from collections.abc import Iterable

# It is in memory at both ends.
MOST_BYTES = 64 << 20

# Folders that hold what was made of the sources, or what is installed. Those of hidden names are left out, too.
_MADE = frozenset({"__pycache__", "build", "dist", "node_modules", "runs", "venv"})


def _by_git(root: Path) -> list[Path] | None:
    """What git tracks or would; None where it has no say."""
    command = ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        done = subprocess.run(command, capture_output=True, check=True, stdin=subprocess.DEVNULL, env=git_environment())
    except (OSError, subprocess.CalledProcessError):
        return None
    return [root / os.fsdecode(name) for name in done.stdout.split(b"\0") if name] or None


def _by_walking(root: Path) -> list[Path]:
    found = []
    for where, folders, names in os.walk(root):
        folders[:] = [
            name
            for name in folders
            if not name.startswith(".") and name not in _MADE and not Path(where, name, "pyvenv.cfg").exists()
        ]
        found += [Path(where, name) for name in names]
    return found


def packed(root: Path, also: Iterable[Path] = ()) -> bytes:
    """The files below a folder: what git tracks or would, else all but hidden ones and what was built.

    Args:
        root: The folder.
        also: Files below it that are needed whatever git says.

    Returns:
        A compressed tar archive, the same for the same files.

    Raises:
        InputError: They are too large, or one of `also` is elsewhere.
    """
    for path in also:
        if not path.is_relative_to(root):
            raise InputError(f"the test file {path}", expected=f"one below {root}, which is sent to other hosts")
    files = sorted({*(_by_git(root) or _by_walking(root)), *also})
    files = [path for path in files if path.is_symlink() or path.is_file()]
    sizes = {path: path.lstat().st_size for path in files}
    if sum(sizes.values()) > MOST_BYTES:
        largest = ", ".join(f"{path.relative_to(root)} ({sizes[path] >> 20} MiB)" for path in _largest(sizes))
        raise InputError(
            f"the files below {root} are {sum(sizes.values()) >> 20} MiB, such as {largest}",
            expected=f"{MOST_BYTES >> 20} MiB at most to send to other hosts; let git ignore what tests do not need",
        )
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for path in files:
            about = archive.gettarinfo(path, arcname=str(path.relative_to(root)))
            about.uid = about.gid = 0
            about.uname = about.gname = ""
            if about.islnk():  # another name of one that is there already: a file like any other
                about.type, about.linkname, about.size = tarfile.REGTYPE, "", sizes[path]
            if about.isreg():
                with path.open("rb") as file:
                    archive.addfile(about, file)
            elif about.issym():
                archive.addfile(about)
    return gzip.compress(out.getvalue(), 1, mtime=0)


def _largest(sizes: dict[Path, int]) -> list[Path]:
    return sorted(sizes, key=lambda path: -sizes[path])[:3]


def digest_of(archive: bytes) -> str:
    """What an archive is called."""
    return hashlib.sha256(archive).hexdigest()


def unpacked_to(digest: str) -> Path:
    """Where :func:`unpack` puts it in this user's cache."""
    return cache_root() / "sources" / digest


def unpack(archive: bytes) -> None:
    """Unpacks an archive into this user's cache, once. Raises CacheError."""
    target = unpacked_to(digest_of(archive))
    with locked(target):
        if is_kept(target):
            return
        with built_directory(target) as folder, tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            # It is from whoever has these hosts run his code. Debian 12's Python (3.11.2) has no filters.
            safe: dict[str, Any] = {"filter": "tar"} if hasattr(tarfile, "tar_filter") else {}
            tar.extractall(folder, **safe)
    remove_unused(target.parent)
