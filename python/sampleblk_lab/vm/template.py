# SPDX-License-Identifier: MIT
"""Templates: machines that have booted and wait, before their first 9p mount (a mounted share blocks migration).

A VM is a clone of one. Its memory is the template's file, mapped copy-on-write, so that starting it reads next to
nothing and VMs share what none of them changed; the state of CPUs and devices is half a megabyte beside it. What QEMU
before 8.2 cannot map so is a stream that each VM reads. There is a template for each kernel, initramfs, QEMU and
machine shape, and for each Python that it has ready (:mod:`sampleblk_lab.vm.contents.interpreter`), in the cache.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shlex
import shutil
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sampleblk_lab.paths import CacheError, built_directory, cache_root, fingerprint, keep_newest, locked, remove
from sampleblk_lab.progress import note
from sampleblk_lab.vm.errors import BootError, GuestLostError
from sampleblk_lab.vm.qemu import option_value

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sampleblk_lab.vm.qmp import Qmp

# Templates that were not used for longest go when there are more than this. One takes up to 500 MB.
_KEPT = 12

# A guest that has booted has touched about 110 MB, with a Python and programs 390, and page structures for each page of
# its memory; meanwhile their files are beside it. A file system that fills up below a shared mapping would end QEMU by
# SIGBUS.
_ROOM_BYTES = 768 << 20
_STRUCTS_OF_MEMORY = 32

# The memory file may be mapped privately and yet not be ROM ("rom=off") from this QEMU on; "file:" is as old.
_COPY_ON_WRITE = (8, 2)

_RAM, _STATE, _ABOUT = "ram", "state", "template.json"


class SaveError(BootError):
    """The machine booted and could not be saved."""


class Saved:
    """A machine that is saved, for clones of it.

    Attributes:
        ram: Its memory, which clones map copy-on-write.
        state: The rest of it.
        memory_mib: The guest's memory.
        copy_on_write: Whether clones map its memory; else they read it.
    """

    memory_mib: int
    copy_on_write: bool

    if TYPE_CHECKING:

        @property
        def ram(self) -> Path:
            """Its memory."""

        @property
        def state(self) -> Path:
            """The rest of it."""

    # --- QEMU's options ---------------------------------------------------------------------------------------

    def options_to_make(self) -> list[str]:
        """Of the machine that is saved."""
        return self._memory("share=on")

    def options_to_clone(self) -> list[str]:
        """Of a machine that :meth:`load` brings to life."""
        return [*self._memory("share=off,readonly=on,rom=off"), "-incoming", "defer"]

    def _memory(self, how: str) -> list[str]:
        if not self.copy_on_write:
            return []
        path = option_value(self.ram)
        backend = f"memory-backend-file,id=ram,size={self.memory_mib}M,mem-path={path},{how}"
        return ["-object", backend, "-machine", "memory-backend=ram"]

    # --- saving and loading -----------------------------------------------------------------------------------

    def save(self, qmp: Qmp, end: float) -> None:
        """Saves the machine behind `qmp`, which has no use after it. Raises SaveError."""
        try:
            self._prepare(qmp, end)
            # Saved while it runs (there is next to nothing to do in it): a state saved stopped is restored stopped.
            qmp.execute("migrate-set-parameters", end, **{"max-bandwidth": 1 << 34})
            where = f"file:{self.state}" if self.copy_on_write else f"exec:cat > {shlex.quote(str(self.state))}"
            qmp.execute("migrate", end, uri=where)
            while (status := qmp.execute("query-migrate", end).get("status")) != "completed":
                if status in ("failed", "cancelled"):
                    raise BootError(f"QEMU could not save the machine's state: migration {status}")
                time.sleep(0.002)
        except (BootError, GuestLostError) as error:
            raise SaveError(error.message) from None

    def load(self, qmp: Qmp, end: float) -> None:
        """Brings a machine with :meth:`options_to_clone` to life. Raises BootError."""
        self._prepare(qmp, end)
        where = f"file:{self.state}" if self.copy_on_write else f"exec:cat {shlex.quote(str(self.state))}"
        qmp.execute("migrate-incoming", end, uri=where)

    def _prepare(self, qmp: Qmp, end: float) -> None:
        if self.copy_on_write:
            capability: dict[str, Any] = {"capability": "x-ignore-shared", "state": True}
            qmp.execute("migrate-set-capabilities", end, capabilities=[capability])


@dataclass(frozen=True)
class Template(Saved):
    """One template.

    Attributes:
        folder: Where it is, or would be.
        memory_mib: The guest's memory.
        copy_on_write: Whether clones map its memory; else they read it.
        made_of: What it is only good for, a line each.
    """

    folder: Path
    memory_mib: int
    copy_on_write: bool
    made_of: str = ""

    @property
    def ram(self) -> Path:
        """As :class:`Saved` has it."""
        return self.folder / _RAM

    @property
    def state(self) -> Path:
        """As :class:`Saved` has it."""
        return self.folder / _STATE

    def exists(self) -> bool:
        """Whether it is there, as it was made."""
        try:
            made = json.loads((self.folder / _ABOUT).read_bytes())
            return bool(made == self._about())
        except (OSError, ValueError):
            return False

    def _about(self) -> dict[str, str]:
        paths = [self.folder / name for name in self._names()]
        return {path.name: fingerprint(path).removeprefix(str(path.resolve())) for path in paths}

    def _names(self) -> tuple[str, ...]:
        return (_RAM, _STATE) if self.copy_on_write else (_STATE,)

    def forget(self) -> None:
        """Removes it; those who run from it keep what they have open."""
        remove(self.folder)

    def seal(self) -> None:
        """Notes what the files are, once nobody writes to them any more."""
        for name in self._names():
            (self.folder / name).chmod(0o400)
        (self.folder / _ABOUT).write_text(json.dumps(self._about()))

    def load(self, qmp: Qmp, end: float) -> None:
        """As :class:`Saved` has it."""
        super().load(qmp, end)
        with contextlib.suppress(OSError):
            os.utime(self.folder)  # so that it is not the one to go


def of(identity: str, memory_mib: int, qemu_version: tuple[int, ...]) -> Template:
    """The template of a machine.

    Args:
        identity: What it is only good for.
        memory_mib: The guest's memory.
        qemu_version: Of the QEMU that makes and clones it.
    """
    name = hashlib.sha256(identity.encode()).hexdigest()[:24]
    return Template(cache_root() / "templates" / name, memory_mib, qemu_version >= _COPY_ON_WRITE, identity)


@contextlib.contextmanager
def making(template: Template) -> Iterator[Template | None]:
    """Makes a template in the block: yields where to, or None when another process has just made it.

    Raises:
        CacheError: It cannot be written, or there is no room for it.
    """
    folder = template.folder
    with locked(folder):
        if template.exists():
            yield None
            return
        free = shutil.disk_usage(folder.parent).free
        if free < _ROOM_BYTES + (template.memory_mib << 20) // _STRUCTS_OF_MEMORY:
            raise CacheError(errno.ENOSPC, f"no room ({free >> 20} MiB free in {folder.parent})")
        with built_directory(folder) as scratch:
            made = replace(template, folder=scratch)
            yield made
            made.seal()
        _forget_oldest(folder.parent)


def say_not_saved(template: Template, error: Exception) -> None:
    """Tells that a template could not be made, and what follows from it."""
    free = shutil.disk_usage(template.folder.parent).free if template.folder.parent.exists() else None
    room = f" ({free >> 20} MiB free in {template.folder.parent})" if free is not None and free < _ROOM_BYTES else ""
    said = str(error.args[-1]).partition("\n")[0]  # a note has no room for a console
    note(f"the booted machine was not saved, so the next start boots again: {said}{'' if room in said else room}")


def _forget_oldest(folder: Path) -> None:
    keep_newest((path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")), _KEPT)
