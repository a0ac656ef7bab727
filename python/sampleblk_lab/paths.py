# SPDX-License-Identifier: MIT
"""Where the package keeps things: its own resources, and the per-user cache."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import sampleblk_lab
from sampleblk_lab.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Iterator


def cache_root() -> Path:
    """The per-user cache: ``$SAMPLEBLK_CACHE``, else ``sampleblk-lab`` in ``$XDG_CACHE_HOME`` or ``~/.cache``."""
    override = os.environ.get("SAMPLEBLK_CACHE")
    if override:
        return Path(override).absolute()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache").absolute() / "sampleblk-lab"


def resource(name: str) -> Path:
    """A file or folder that the wheel carries, such as ``vm/bin/sampleblk-init``.

    An editable install has two folders, the sources and what CMake installed; either may have it.

    Raises:
        UnsupportedError: This installation lacks it.
    """
    for base in sampleblk_lab.__path__:
        path = Path(base) / name
        if path.exists():
            return path
    raise UnsupportedError(
        name,
        f"not part of this installation ({', '.join(sampleblk_lab.__path__)})",
        "build and install again: pip install .",
    )


def module_source() -> Path:
    """The driver's source: ``module/`` of a source checkout, else the copy that the wheel carries."""
    checkout = Path(__file__).resolve().parents[2] / "module"
    return checkout if checkout.exists() else resource("_module")


@contextlib.contextmanager
def locked(path: Path, *, wait: bool = True) -> Iterator[bool]:
    """Holds an exclusive lock on `path` + ``.lock``; yields False when `wait` is off and another process has it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with Path(f"{path}.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
            return
        yield True


@contextlib.contextmanager
def built_directory(target: Path) -> Iterator[Path]:
    """A scratch folder beside `target` that takes its place when the block ends well, and goes when it does not."""
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        scratch.chmod(0o755)
        yield scratch
        if target.exists():
            shutil.rmtree(target)
        scratch.rename(target)
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise


def write_atomically(target: Path, data: bytes) -> None:
    """Writes a file whole or not at all."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=target.parent, prefix=f".{target.name}.", delete=False) as file:
        try:
            file.write(data)
            file.flush()
            Path(file.name).chmod(0o644)
            Path(file.name).rename(target)
        except BaseException:
            Path(file.name).unlink(missing_ok=True)
            raise
