# SPDX-License-Identifier: MIT
"""The running kernel as a drgn program whose types are BTF's and whose names are kallsyms'."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import TYPE_CHECKING

from sampleblk_lab._native import core
from sampleblk_lab.errors import UnsupportedError

try:
    import drgn
except ImportError as _error:
    raise UnsupportedError(
        "looking into the kernel", "drgn is not installed", "pip install 'sampleblk-lab[inspect]'"
    ) from _error

from sampleblk_lab.inspect.btf_types import BtfTypes

if TYPE_CHECKING:
    from collections.abc import Sequence

_BTF = Path("/sys/kernel/btf")

# BTF has the types of per-CPU variables only; these are of the others that drgn's helpers ask for.
_GLOBALS = {
    "init_task": "struct task_struct",
    "init_pid_ns": "struct pid_namespace",
    "init_uts_ns": "struct uts_namespace",
    "init_mm": "struct mm_struct",
    "init_fs": "struct fs_struct",
    "super_blocks": "struct list_head",
    "file_systems": "struct file_system_type *",
    "modules": "struct list_head",
    "block_class": "struct class",
    "class_kset": "struct kset *",
    "bus_kset": "struct kset *",
    "devices_kset": "struct kset *",
    "disk_type": "struct device_type",
    "part_type": "struct device_type",
    "slab_caches": "struct list_head",
    "vmlist": "struct vm_struct *",
    "page_offset_base": "unsigned long",
    "vmalloc_base": "unsigned long",
    "vmemmap_base": "unsigned long",
    "nr_cpu_ids": "unsigned int",
    "__per_cpu_offset": "unsigned long [8192]",
    "__cpu_online_mask": "struct cpumask",
    "__cpu_possible_mask": "struct cpumask",
    "jiffies_64": "u64",
    "kernel_cpustat": "struct kernel_cpustat",
}


class _Kernel:
    """One program with its finders."""

    def __init__(self) -> None:
        if os.geteuid() != 0:
            raise PermissionError("looking into the kernel needs root: it reads /proc/kcore and /proc/kallsyms")
        if not (_BTF / "vmlinux").exists():
            raise UnsupportedError(
                "looking into the kernel",
                f"{_BTF}/vmlinux is not there: this kernel was built without CONFIG_DEBUG_INFO_BTF",
                "use a kernel that has it, such as Debian's in the VM",
            )
        self.names = core.KernelNames()
        if len(self.names) == 0:
            raise PermissionError("/proc/kallsyms shows no addresses: kernel.kptr_restrict hides them")
        self.program = drgn.Program()
        self.program.set_kernel()
        self.base = core.Btf(str(_BTF / "vmlinux"))
        self.types = [BtfTypes(self.program, self.base)]
        self.program.register_type_finder("btf", self._find_type, enable_index=0)
        self.program.register_object_finder("kallsyms", self._find_object, enable_index=0)
        self.program.register_symbol_finder("kallsyms", self._find_symbols, enable_index=0)

    def add_module(self, name: str) -> bool:
        path = _BTF / name
        if any(types.btf is not self.base and name == getattr(types, "module", "") for types in self.types):
            return True
        if not path.exists():
            return False
        types = BtfTypes(self.program, core.Btf(str(path), self.base))
        types.module = name  # type: ignore[attr-defined]
        self.types.append(types)
        return True

    def _find_type(self, _: drgn.Program, kinds: drgn.TypeKindSet, name: str, filename: str | None) -> drgn.Type | None:
        if filename is not None:
            return None
        for types in self.types:
            found = types.find(kinds, name)
            if found is not None:
                return found
        return None

    def _find_object(
        self, program: drgn.Program, name: str, flags: drgn.FindObjectFlags, filename: str | None
    ) -> drgn.Object | None:
        places = self.names.named(name) if filename is None else []
        if flags & drgn.FindObjectFlags.VARIABLE:
            kind = _GLOBALS.get(name)
            if kind is not None and places:
                return drgn.Object(program, kind, address=places[0][1])
            for types in self.types:
                variable = types.variable(name)
                if variable is not None and places:
                    return drgn.Object(program, variable, address=places[0][1])
        if flags & drgn.FindObjectFlags.CONSTANT and filename is None:
            for types in self.types:
                constant = types.constant(name)
                if constant is not None:
                    return constant
        return None

    def _find_symbols(self, _: drgn.Program, name: str | None, address: int | None, one: bool) -> Sequence[drgn.Symbol]:
        if address is not None:
            found = self.names.at(address)
            places = [found] if found is not None and name in (None, found[0]) else []
        else:
            places = self.names.named(name) if name is not None else []
        symbols = [
            drgn.Symbol(
                place[0],
                place[1],
                place[2],
                drgn.SymbolBinding.GLOBAL if place[4] else drgn.SymbolBinding.LOCAL,
                drgn.SymbolKind.NOTYPE,
            )
            for place in places
        ]
        return symbols[:1] if one else symbols


@functools.cache
def _kernel() -> _Kernel:
    return _Kernel()


def kernel() -> drgn.Program:
    """The running kernel, as a drgn program; drgn's helpers work on it.

    Raises:
        PermissionError: Not root, or the kernel hides its addresses.
        UnsupportedError: The kernel has no BTF, or drgn is missing.
    """
    return _kernel().program


def names() -> core.KernelNames:
    """Every name of the kernel, both ways."""
    return _kernel().names


def module_types(name: str) -> bool:
    """Adds the types of a loaded module; False when it has none (built outside the kernel's tree)."""
    return _kernel().add_module(name)


def symbol_name(address: int) -> str:
    """The name at that address, with ``+0x…`` past its start; the address in hex where there is none."""
    found = _kernel().names.at(address)
    if found is None:
        return hex(address)
    offset = address - found[1]
    return found[0] if offset == 0 else f"{found[0]}+{offset:#x}"
