# SPDX-License-Identifier: MIT
"""A kernel as a drgn program whose types are BTF's and whose names are kallsyms': this one, as it runs."""

from __future__ import annotations

import functools
import itertools
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import drgn
from drgn.helpers.linux.fs import fget
from drgn.helpers.linux.pid import find_task

from sampleblk_lab import tasks
from sampleblk_lab._native import core
from sampleblk_lab.errors import InputError, UnsupportedError
from sampleblk_lab.inspect.btf_types import BtfTypes, shape

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_BTF = Path("/sys/kernel/btf")
_MODULES = Path("/proc/modules")

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
    # Without these the helpers take it that there is one node, and that there are no huge pages.
    "nr_node_ids": "unsigned int",
    "hugetlb_max_hstate": "int",
    "hstates": "struct hstate [2]",
}


def _loaded_modules() -> dict[str, str]:
    """Where each loaded module is, by name (/proc/modules); none of a kernel without CONFIG_MODULES."""
    lines = _MODULES.read_text().splitlines() if _MODULES.exists() else []
    return {fields[0]: fields[5] for fields in map(str.split, lines)}


class KernelProgram:
    """A kernel as a drgn program.

    Args:
        program: That reads the kernel's memory.
        names: The kernel's.
        types: Its BTF, without that of modules.
    """

    def __init__(self, program: drgn.Program, names: core.KernelNames, types: core.Btf) -> None:
        self.program = program
        self.names = names
        self.base = types
        self.types = BtfTypes(program, types)
        program.register_type_finder("btf", self._find_type, enable_index=0)
        program.register_object_finder("kallsyms", self._find_object, enable_index=0)
        program.register_symbol_finder("kallsyms", self._find_symbols, enable_index=0)

    def _find_type(self, _: drgn.Program, kinds: drgn.TypeKindSet, name: str, filename: str | None) -> drgn.Type | None:
        if filename is None and (own := self.types.find(kinds, name)) is not None:
            return own
        modules = [(module, types) for module, types in self._of_modules() if filename in (None, module)]
        found = {module: made for module, types in modules if (made := types.find(kinds, name)) is not None}
        if len(set(map(shape, found.values()))) > 1:
            raise InputError(
                f"types named {name!r} of modules {', '.join(found)} are unlike each other",
                expected=f"one module's: kernel().type({name!r}, {next(iter(found))!r})",
            )
        return next(iter(found.values()), None)

    def _of_modules(self) -> Iterator[tuple[str, BtfTypes]]:
        """The names of modules that have types, with these."""
        yield from ()

    def _find_object(
        self, program: drgn.Program, name: str, flags: drgn.FindObjectFlags, filename: str | None
    ) -> drgn.Object | None:
        known = filename is None and bool(self.names.named(name))
        if flags & drgn.FindObjectFlags.VARIABLE and known:
            kind = _GLOBALS.get(name)
            if kind is not None:
                return drgn.Object(program, kind, address=only_place(self.names, name, "variable"))
            for _, types in itertools.chain([("", self.types)], self._of_modules()):
                variable = types.variable(name)
                if variable is not None:
                    return drgn.Object(program, variable, address=only_place(self.names, name, "variable"))
        if flags & drgn.FindObjectFlags.CONSTANT and filename is None:
            if (own := self.types.constant(name)) is not None:
                return own
            found = {module: made for module, types in self._of_modules() if (made := types.constant(name)) is not None}
            if len({made.value_() for made in found.values()}) > 1:
                shown = ", ".join(f"{made.value_()} of {module}" for module, made in found.items())
                raise InputError(f"constants {name!r} are unlike each other", expected=f"one of one value: {shown}")
            return next(iter(found.values()), None)
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
                drgn.SymbolKind.UNKNOWN,
            )
            for place in places
        ]
        return symbols[:1] if one else symbols


class _ThisKernel(KernelProgram):
    """The running one, with the types of its modules."""

    def __init__(self) -> None:
        if os.geteuid() != 0:
            raise PermissionError("looking into the kernel needs root: it reads /proc/kcore and /proc/kallsyms")
        if not (_BTF / "vmlinux").exists():
            raise UnsupportedError(
                "looking into the kernel",
                f"{_BTF}/vmlinux is missing: this kernel was built without CONFIG_DEBUG_INFO_BTF",
                "use a kernel that has it, such as Debian's in the VM",
            )
        self.modules = _loaded_modules()
        names = core.KernelNames()
        if len(names) == 0:
            raise PermissionError("/proc/kallsyms shows no addresses: kernel.kptr_restrict hides them")
        program = drgn.Program()
        program.set_kernel()
        self.types_of: dict[str, BtfTypes] = {}
        super().__init__(program, names, core.Btf(str(_BTF / "vmlinux")))

    def refresh(self) -> None:
        """Takes note of modules that came or went: their names, and their types, are others now."""
        modules = _loaded_modules()
        if modules == self.modules:
            return
        gone = [name for name, place in self.modules.items() if modules.get(name) != place]
        self.names, self.modules = core.KernelNames(), modules
        for name in gone:
            self.types_of.pop(name, None)

    def add_module(self, name: str) -> bool:
        path = _BTF / name
        if name not in self.types_of and path.exists():
            self.types_of[name] = BtfTypes(self.program, core.Btf(str(path), self.base))
        return name in self.types_of

    def _of_modules(self) -> Iterator[tuple[str, BtfTypes]]:
        """Those of all that are loaded, which are read for this."""
        for path in sorted(_BTF.iterdir()):
            if path.name != "vmlinux" and self.add_module(path.name):
                yield path.name, self.types_of[path.name]


@functools.cache
def _kernel() -> _ThisKernel:
    return _ThisKernel()


def _current() -> _ThisKernel:
    own = _kernel()
    own.refresh()
    return own


def kernel() -> drgn.Program:
    """The running kernel, as a drgn program; drgn's helpers work on it.

    Types are those of the kernel and of its modules, as long as these are loaded; names those of now.

    Raises:
        PermissionError: Not root, or the kernel hides its addresses.
        UnsupportedError: The kernel has no BTF, or drgn is missing.
    """
    return _current().program


def names() -> core.KernelNames:
    """Every name of the kernel, both ways."""
    return _current().names


def only_place(names: core.KernelNames, name: str, what: str) -> int:
    """The address of `name`, a `what` ("function", "variable", …).

    Raises:
        InputError: There is none, or several at different addresses, as static ones of several files may be.
    """
    places = {address: module for _, address, _, module, _ in names.named(name)}
    if not places:
        raise InputError(f"no {what} {name!r} in this kernel", expected="a name of /proc/kallsyms")
    if len(places) > 1:
        shown = ", ".join(f"{address:#x}" + (f" [{module}]" if module else "") for address, module in places.items())
        raise InputError(f"{len(places)} places of this kernel are named {name!r}", expected=f"one address: {shown}")
    return next(iter(places))


def module_types(name: str) -> bool:
    """Reads the types of a loaded module now; False when it has none (built outside the kernel's tree, or before 5.11).

    A type that the kernel itself has not is looked for in all modules anyway.
    """
    return _current().add_module(name)


def own_file(program: drgn.Program, fd: int) -> drgn.Object:
    """The ``struct file *`` of a descriptor of ours."""
    tasks.require_first_pids("looking at a file in the kernel")
    return fget(find_task(program, threading.get_native_id()), fd)


def symbol_name(address: int) -> str:
    """The name at that address, with ``+0x…`` past its start; the address in hex where there is none."""
    found = _kernel().names.at(address)
    if found is None:
        return hex(address)
    offset = address - found[1]
    return found[0] if offset == 0 else f"{found[0]}+{offset:#x}"
