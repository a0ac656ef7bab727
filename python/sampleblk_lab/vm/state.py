# SPDX-License-Identifier: MIT
"""Saved machines: a guest that has booted and waits, before its first 9p mount (a mounted share blocks migration).

One file for each kernel, initramfs, QEMU and machine shape, 60 to 100 MB, in the cache.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import time
from typing import TYPE_CHECKING

from sampleblk_lab.paths import cache_root, locked
from sampleblk_lab.vm.errors import BootError

if TYPE_CHECKING:
    from pathlib import Path

    from sampleblk_lab.vm.qmp import Qmp

# States that were not used for longest go when there are more than this.
_KEPT = 12


def path_for(identity: str) -> Path:
    """Where the state of a machine is, or would be."""
    return cache_root() / "states" / f"{hashlib.sha256(identity.encode()).hexdigest()[:24]}.state"


def incoming(path: Path) -> str:
    """The ``-incoming`` value that restores a state."""
    return f"exec:cat {shlex.quote(str(path))}"


def save(qmp: Qmp, path: Path, end: float) -> None:
    """Saves the machine behind `qmp` and lets it go on. Another process that saves the same is not waited for."""
    with locked(path, wait=False) as ours:
        if not ours or path.exists():
            return
        scratch = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            # Saved while it runs (there is next to nothing to do in it): a state saved stopped is restored stopped.
            qmp.execute("migrate-set-parameters", end, **{"max-bandwidth": 1 << 34})
            qmp.execute("migrate", end, uri=f"exec:cat > {shlex.quote(str(scratch))}")
            while (status := qmp.execute("query-migrate", end).get("status")) != "completed":
                if status in ("failed", "cancelled"):
                    raise BootError(f"QEMU could not save the machine's state: migration {status}")
                time.sleep(0.01)
            qmp.execute("cont", end)
            scratch.rename(path)
        finally:
            scratch.unlink(missing_ok=True)
    _forget_oldest(path.parent)


def used(path: Path) -> None:
    """Notes that a state was used, so that it is not the one to go."""
    os.utime(path)


def _forget_oldest(folder: Path) -> None:
    states = sorted(folder.glob("*.state"), key=lambda path: path.stat().st_mtime)
    for old in states[:-_KEPT]:
        old.unlink(missing_ok=True)
        old.with_name(f"{old.name}.lock").unlink(missing_ok=True)
