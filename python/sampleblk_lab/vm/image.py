# SPDX-License-Identifier: MIT
"""Images: machines that are saved with a command in them, which goes on in each clone.

What all commands of a session do first is done once. An image is made by a clone of a template that has its memory to
itself. It is in the memory of the process that makes it, so that nothing is left of it when that one ends.
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sampleblk_lab.vm.template import Saved

if TYPE_CHECKING:
    from sampleblk_lab.vm.template import Template


@dataclass(frozen=True)
class Image(Saved):
    """One image.

    Attributes:
        ram: The guest's memory.
        state: The rest of the machine.
        memory_mib: The guest's memory.
        fds: What :func:`begun_from` opened of them.
    """

    ram: Path
    state: Path
    memory_mib: int
    fds: tuple[int, ...] = ()
    copy_on_write: bool = True

    def close(self) -> None:
        """Closes them; clones keep what they have mapped."""
        for fd in self.fds:
            os.close(fd)

    def options_to_make(self) -> list[str]:
        """Of the clone that is saved."""
        return [*super().options_to_make(), "-incoming", "defer"]


def begun_from(made: Template) -> Image:
    """One with the memory of a template; it is there until it is closed, or this process ends. Raises OSError."""
    ram, state = (os.memfd_create(f"sampleblk-{name}") for name in ("ram", "state"))
    own = Path(f"/proc/{os.getpid()}/fd")
    begun = Image(own / str(ram), own / str(state), made.memory_mib, (ram, state))
    try:
        with made.ram.open("rb") as file:
            _copy(file.fileno(), ram)
    except BaseException:
        begun.close()
        raise
    return begun


def _copy(source: int, target: int) -> None:
    """Copies a file with its holes."""
    size = os.fstat(source).st_size
    os.truncate(target, size)
    end = 0
    while end < size:
        try:
            at = os.lseek(source, end, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # there is no more data
                return
            raise
        end = os.lseek(source, at, os.SEEK_HOLE)
        os.lseek(target, at, os.SEEK_SET)
        while at < end:
            at += os.sendfile(target, source, at, end - at)
