# SPDX-License-Identifier: MIT
"""Where a guest's processors are, as QEMU's monitor tells it (QEMU: target/i386/cpu-dump.c)."""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from sampleblk_lab._native import core
    from sampleblk_lab.kernels import Kernel


class Symbols(Protocol):
    """What names addresses, as :class:`KernelNames` does."""

    def at(self, address: int, /) -> tuple[str, int, int, str, bool] | None:
        """Name, address, size and module of what lies there, and whether it is global."""


# What asks for them, of all processors.
COMMAND = "info registers -a"

# Of what it prints: the processor, the general registers, the instruction pointer, CR0 to CR4. Not the rest, which is
# segments, descriptor tables and the registers of the FPU.
_LINE = re.compile(r"CPU#\d+|[RE](?:AX|[SI]I|IP|8 |12)=|CR0=")

_POINTER = re.compile(r"\b([RE]IP)=([0-9a-f]+)")


# Below it are, by System.map, the offsets of per-CPU variables.
_FIRST_ADDRESS = 1 << 20


def shown(printed: str, symbols: Symbols | None = None) -> str:
    """What is worth reading of what the monitor printed, with the name of what each processor runs."""

    def named(match: re.Match[str]) -> str:
        address = int(match[2], 16)
        found = symbols.at(address) if symbols is not None and address >= _FIRST_ADDRESS else None
        return match[0] if found is None else f"{match[0]} ({found[0]}+{address - found[1]:#x})"

    lines = [line.strip() for line in printed.replace("\r", "").splitlines() if _LINE.match(line.strip())]
    return "\n".join(_POINTER.sub(named, line) for line in lines)


def symbols_of(kernel: Kernel) -> core.KernelNames | None:
    """The System.map of a kernel; None where there is none to read.

    Its addresses are those of the running kernel, as that is started with ``nokaslr``.
    """
    from sampleblk_lab._native import core

    for path in kernel.beside("System.map"):
        with contextlib.suppress(OSError):  # Debian's in /boot is root's
            return core.KernelNames(str(path))
    return None
