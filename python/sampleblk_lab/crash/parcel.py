# SPDX-License-Identifier: MIT
"""A recording and its check on their way to other machines: what they are known by, and where a host keeps the log."""

from __future__ import annotations

import contextlib
import functools
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sampleblk_lab.crash.checks import Check
from sampleblk_lab.crash.files import digest
from sampleblk_lab.crash.log import Log
from sampleblk_lab.crash.reproduce import pack, unpack
from sampleblk_lab.errors import SampleblkError
from sampleblk_lab.paths import (
    built_directory,
    cache_root,
    fingerprint,
    is_kept,
    locked,
    remove_unused,
    scratch_directory,
)
from sampleblk_lab.sweeps import identity
from sampleblk_lab.sweeps.spec import pickled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sampleblk_lab.crash.log import State

_LOG, _BASE = "log", "base.img"


def _digest(log: Log) -> str:
    base = [] if log.base is None else [(log.base, log.base.stat().st_size)]
    return digest((log.path, log.native.file_bytes), *base)


@dataclass(frozen=True)
class Parcel:
    """What a host is told of a log.

    Attributes:
        digest: SHA-256 of what the log and its base hold.
        size_bytes: As of :class:`Log`, and so the next two.
        flush: Whether flushes are believed.
        fua: Whether FUA is.
    """

    digest: str
    size_bytes: int
    flush: bool
    fua: bool

    @classmethod
    def of(cls, log: Log) -> Parcel:
        """The parcel that has this log."""
        return cls(_digest(log), log.size_bytes, log.flush, log.fua)

    @property
    def folder(self) -> Path:
        """Where this host keeps it."""
        return cache_root() / "crash" / self.digest

    def log(self) -> Log:
        """The log, once the host has it. Raises OSError."""
        base = self.folder / _BASE
        return Log(
            self.folder / _LOG,
            base=base if base.exists() else "zeros",
            size_bytes=self.size_bytes,
            flush=self.flush,
            fua=self.fua,
        )

    def is_here(self) -> bool:
        """Whether this host has it, as it was sent."""
        try:
            marks = [fingerprint(path) for name in (_LOG, _BASE) if (path := self.folder / name).exists()]
        except FileNotFoundError:
            return False
        return bool(marks) and is_kept(self.folder) and _verified(self, tuple(marks))

    def keep(self, data: bytes) -> None:
        """Puts it where this host keeps it, unless it is there.

        Args:
            data: What :func:`packed` made of it.

        Raises:
            SampleblkError: Something else has arrived.
            OSError: It cannot be written.
        """
        with locked(self.folder):
            if self.is_here():
                return
            remove_unused(self.folder.parent)
            with scratch_directory("crash-parcel") as name, built_directory(self.folder) as new:
                for file, content in pickle.loads(data).items():
                    (name / file).write_bytes(content)
                unpack(str(name), new, size_bytes=self.size_bytes, flush=self.flush, fua=self.fua)
            if not self.is_here():
                raise SampleblkError(f"the recording that arrived in {self.folder} is not the one that was sent")


def packed(log: Log) -> bytes:
    """A log and its base as they are sent."""
    with scratch_directory("crash-parcel") as name:
        pack(log, name)
        return pickle.dumps({path.name: path.read_bytes() for path in name.iterdir()})


@functools.cache
def _verified(parcel: Parcel, _fingerprints: tuple[str, ...]) -> bool:
    """Read once in each process; a file that changed since has another fingerprint."""
    with contextlib.suppress(OSError, SampleblkError):
        return _digest(parcel.log()) == parcel.digest
    return False


def check_by_value(check: Callable[[Path, State], object]) -> bytes:
    """A check as it is sent, with the user's own code that it refers to. Raises InputError for one that cannot be."""
    return pickled(check, identity.modules_of(list(_parts(check)), "the check"), "the check")


def _parts(check: object) -> Iterator[object]:
    """What a check was made of."""
    if isinstance(check, Check):
        for part in (*check.arguments, *check.keywords.values()):
            yield from _parts(part)
    else:
        yield check
