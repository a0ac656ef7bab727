# SPDX-License-Identifier: MIT
"""Seeing ftrace itself: the first bytes of a function, a NOP until it is traced and a call while it is."""

from __future__ import annotations

import platform
import re
from dataclasses import dataclass
from pathlib import Path

from sampleblk_lab._native import core
from sampleblk_lab.errors import UnsupportedError
from sampleblk_lab.inspect.kernel import kernel, names, only_place, symbol_name

# What may be before the site: endbr64, and what the kernel puts in its place where nothing jumps to the function
# (arch/x86/include/asm/ibt.h: gen_endbr_poison(), of 5.18 and of 6.16).
_BEFORE = (bytes.fromhex("f30f1efa"), bytes.fromhex("660f1f00"), bytes.fromhex("0f1f40d6"))
# The 5-byte NOPs that the kernel has used (arch/x86/include/asm/nops.h).
_NOPS = (bytes.fromhex("0f1f440000"), bytes.fromhex("6666666690"), bytes.fromhex("3e8d742600"))
# "vfs_read (1)   tramp: 0xffffffffc0210000 (function_trace_call+0x0/0x1c0) ->…": ftrace.c, t_show().
_PATCHED = re.compile(r"^(\S+)(?: \[(\S+)\])? \((\d+)\)(.*)$")
_TRAMPOLINE = re.compile(r"tramp: \S+ \(([^)+]+)")


@dataclass(frozen=True)
class Entry:
    """How a function begins.

    Attributes:
        function: Its name.
        address: Where it is.
        site: Where its ``__fentry__`` site is: after ``endbr64``, if it has that.
        code: The bytes there.
        state: ``"nop"``, ``"call"`` or ``"other"``.
        target: What the call calls; empty for a NOP. A trampoline that ftrace made for one tracer has that tracer's
            function behind an arrow.
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


@dataclass(frozen=True)
class Patched:
    """A function whose site is a call now.

    Attributes:
        function: Its name.
        module: The module that it is of; empty for the kernel itself.
        users: How many tracers, probes and programs have it called.
        handler: The function that its one user's trampoline calls; empty where several share the general one.
    """

    function: str
    module: str
    users: int
    handler: str


def _disassemble(code: bytes, address: int, target: str) -> list[str]:
    try:
        import capstone
    except ImportError:
        return [f"{address:#x} <+0>: {code.hex(' ')}  (pip install capstone to see instructions)"]
    engine = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
    lines = []
    for one in engine.disasm(code, address):
        operands = one.op_str
        if one.mnemonic in ("call", "jmp") and operands.startswith("0x"):
            operands += f" <{target or symbol_name(int(operands, 16))}>"
            target = ""
        lines.append(f"{one.address:#x} <+{one.address - address}>: {one.mnemonic} {operands}".rstrip())
        if len(lines) == 4:
            break
    return lines


def _site(code: bytes) -> int:
    """Where in a function's first bytes its ``__fentry__`` site is."""
    return 4 if code[:4] in _BEFORE else 0


def entry(function: str | int) -> Entry:
    """How a kernel function begins, now.

    Args:
        function: Its name, or its address where several have the name.

    Raises:
        InputError: No such function, or several of that name.
        UnsupportedError: Not an x86-64 kernel.
    """
    if platform.machine() != "x86_64":
        raise UnsupportedError("looking at __fentry__ sites", f"this machine is {platform.machine()}", "use x86-64")
    program = kernel()
    if isinstance(function, int):
        name, address = symbol_name(function), function
    else:
        name, address = function, only_place(names(), function, "function")
    code = program.read(address, 32)
    site = address + _site(code)
    at = code[site - address : site - address + 5]
    state, target = "other", ""
    if at in _NOPS:
        state = "nop"
    elif at[0] == 0xE8:
        state = "call"
        target = symbol_name((site + 5 + int.from_bytes(at[1:], "little", signed=True)) & (1 << 64) - 1)
        # Static functions of several files may have the name, whose handlers are not this one's.
        place = names().at(address)
        module = place[3] if place is not None else ""
        handlers = {one.handler for one in patched() if (one.function, one.module) == (name, module)}
        if len(handlers) == 1 and (handler := handlers.pop()):
            target = f"ftrace_trampoline → {handler}"
    return Entry(name, address, site, at, state, target, _disassemble(code, address, target))


def patched() -> list[Patched]:
    """The functions that are a call now: tracefs's ``enabled_functions``."""
    out = []
    for line in (Path(core.tracefs_dir()) / "enabled_functions").read_text().splitlines():
        found = _PATCHED.match(line)
        if found:  # else it goes on about the function above
            handler = _TRAMPOLINE.search(found[4])
            out.append(Patched(found[1], found[2] or "", int(found[3]), handler[1] if handler else ""))
    return out


def patched_sites() -> int:
    """How many functions are a call now."""
    return len(patched())


def sites() -> int:
    """How many functions can become one: tracefs's ``available_filter_functions``.

    Those of weak functions that another took the place of are left out: the kernel lists them since 5.18 as
    ``__ftrace_invalid_address___…``, and never patches them.
    """
    text = (Path(core.tracefs_dir()) / "available_filter_functions").read_bytes()
    return text.count(b"\n") - text.count(b"__ftrace_invalid_address__")
