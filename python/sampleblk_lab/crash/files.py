# SPDX-License-Identifier: MIT
"""The bytes of a recording's files, of which a log may be only the begin: a device that was written to has more."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

from sampleblk_lab.paths import naming

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

_BLOCK = 1 << 20


def copy_start(source: Path, target: SupportsWrite[bytes], size: int) -> None:
    """The first `size` bytes of a file or a device."""
    with source.open("rb") as file:
        while size:
            with naming(source):  # not what `target` raises
                data = file.read(min(size, _BLOCK))
            if not data:
                return
            target.write(data)
            size -= len(data)


class _Hash:
    """A SHA-256 that can be written to as a file."""

    def __init__(self) -> None:
        self.sha256 = hashlib.sha256()

    def write(self, data: bytes) -> int:
        self.sha256.update(data)
        return len(data)


def digest(*files: tuple[Path, int]) -> str:
    """SHA-256 of the first so many bytes of each of them, with their numbers."""
    made = _Hash()
    for path, size in files:
        made.sha256.update(size.to_bytes(8, "little"))
        copy_start(path, made, size)
    return made.sha256.hexdigest()
