# SPDX-License-Identifier: MIT
"""In a guest on another host: the session's folders, at the paths that they have where the session is."""

from __future__ import annotations

import ctypes
import json
import os
from dataclasses import dataclass
from pathlib import Path

_VARIABLE = "SAMPLEBLK_PLACES"

# unshare(2), mount(2)
_CLONE_NEWNS = 0x00020000
_MS_BIND, _MS_REC, _MS_PRIVATE = 0x1000, 0x4000, 0x40000


@dataclass(frozen=True)
class Places:
    """What a guest's process makes of its own file system before anything else.

    Attributes:
        mounts: Folders of this host, each with the path that it is to have.
        cwd: The working directory.
    """

    mounts: tuple[tuple[str, str], ...]
    cwd: str

    def environment(self) -> dict[str, str]:
        """The variable that tells a guest."""
        return {_VARIABLE: json.dumps([self.mounts, self.cwd])}

    def enter(self) -> None:
        """Mounts them, for this process and those that it starts. Raises OSError."""
        libc = ctypes.CDLL(None, use_errno=True)

        def mount(source: str, target: str, flags: int) -> None:
            if libc.mount(os.fsencode(source), os.fsencode(target), None, flags, None):
                code = ctypes.get_errno()
                raise OSError(code, f"mount --bind {source}: {os.strerror(code)}", target)

        if libc.unshare(_CLONE_NEWNS):
            code = ctypes.get_errno()
            raise OSError(code, f"unshare: {os.strerror(code)}")
        mount("none", "/", _MS_REC | _MS_PRIVATE)
        for source, target in self.mounts:
            Path(target).mkdir(parents=True, exist_ok=True)
            mount(source, target, _MS_BIND)
        Path(self.cwd).mkdir(parents=True, exist_ok=True)
        os.chdir(self.cwd)

    def search_path(self, told: list[str], own: list[str]) -> list[str]:
        """Where modules are looked for: where the session does within the folders, and where this host has them."""
        targets = [Path(target) for _, target in self.mounts]
        kept = [path for path in told if any(Path(self.cwd, path).is_relative_to(target) for target in targets)]
        return list(dict.fromkeys([*kept, *own]))


def given() -> Places | None:
    """What the process that started us wants; None: everything is where it was. Later processes are not told."""
    text = os.environ.pop(_VARIABLE, None)
    if text is None:
        return None
    mounts, cwd = json.loads(text)
    return Places(tuple((source, target) for source, target in mounts), cwd)
