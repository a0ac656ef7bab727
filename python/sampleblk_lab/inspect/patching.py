# SPDX-License-Identifier: MIT
"""Seeing ftrace itself: the first bytes of a function, a NOP until it is traced and a call while it is."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from pathlib import Path

from sampleblk_lab._native import core
from sampleblk_lab.errors import InputError, UnsupportedError
from sampleblk_lab.inspect.kernel import kernel, names, symbol_name

_ENDBR64 = bytes.fromhex("f30f1efa")
# The 5-byte NOPs that the kernel has used (arch/x86/include/asm/nops.h).
_NOPS = (bytes.fromhex("0f1f440000"), bytes.fromhex("6666666690"), bytes.fromhex("3e8d742600"))


@dataclass(frozen=True)
class Entry:
    """How a function begins.

    Attributes:
        function: Its name.
        address: Where it is.
        site: Where its ``__fentry__`` site is: after ``endbr64``, if it has that.
        code: The bytes there.
        state: ``"nop"``, ``"call"`` or ``"other"``.
        target: What the call calls; empty for a NOP.
        lines: The first instructions, disassembled.
    """

    function: str
    address: int
    site: int
    code: bytes
    state: str
    target: str
    lines: list[str]

    def __str__(self) -> str:
        return "\n".join([f"{self.function}: {self.state} {self.target}".rstrip(), *self.lines])


def _disassemble(code: bytes, address: int, start: int) -> list[str]:
    try:
        import capstone
    except ImportError:
        return [f"{address:#x} <+{address - start}>: {code.hex(' ')}  (pip install capstone to see instructions)"]
    engine = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
    lines = []
    for one in engine.disasm(code, address):
        operands = one.op_str
        if one.mnemonic in ("call", "jmp") and operands.startswith("0x"):
            operands += f" <{symbol_name(int(operands, 16))}>"
        lines.append(f"{one.address:#x} <+{one.address - start}>: {one.mnemonic} {operands}".rstrip())
        if len(lines) == 4:
            break
    return lines


def entry(function: str) -> Entry:
    """How a kernel function begins, now.

    Args:
        function: Its name.

    Raises:
        InputError: No such function.
        UnsupportedError: Not an x86-64 kernel.
    """
    if platform.machine() != "x86_64":
        raise UnsupportedError("looking at __fentry__ sites", f"this machine is {platform.machine()}", "use x86-64")
    places = names().named(function)
    if not places:
        raise InputError(f"no function {function!r} in this kernel", expected="a name of /proc/kallsyms")
    address = places[0][1]
    code = kernel().read(address, 32)
    site = address + (len(_ENDBR64) if code.startswith(_ENDBR64) else 0)
    at = code[site - address : site - address + 5]
    state, target = "other", ""
    if at in _NOPS:
        state = "nop"
    elif at[0] == 0xE8:
        state = "call"
        target = symbol_name((site + 5 + int.from_bytes(at[1:], "little", signed=True)) & (1 << 64) - 1)
    return Entry(function, address, site, at, state, target, _disassemble(code, address, address))


def patched_sites() -> int:
    """How many functions are a call now: the lines of tracefs's ``enabled_functions``."""
    text = (Path(core.tracefs_dir()) / "enabled_functions").read_text()
    return sum(1 for line in text.splitlines() if line and not line[0].isspace())
