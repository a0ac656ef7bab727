# SPDX-License-Identifier: MIT
"""A kernel that does not run here, such as one that hangs in a VM: what its memory tells of requests and tasks."""

from __future__ import annotations

import itertools
import struct
from typing import TYPE_CHECKING

import drgn
from drgn.helpers.linux.block import for_each_disk
from drgn.helpers.linux.list import list_for_each_entry
from drgn.helpers.linux.percpu import per_cpu_ptr

from sampleblk_lab._native import core
from sampleblk_lab.errors import SampleblkError
from sampleblk_lab.inspect.blocks import hardware_queues
from sampleblk_lab.inspect.kernel import KernelProgram
from sampleblk_lab.texts import readable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

# Of include/linux/sched.h.
_UNINTERRUPTIBLE, _NOLOAD = 0x2, 0x400
# The stack of a task is so large, or twice that with KASAN, and begins at a multiple of it.
_STACK_BYTES = 16 << 10
# What is below these on a stack is of user space, or was of an earlier call.
_BOTTOM = ("do_syscall_64", "ret_from_fork", "ret_from_fork_asm", "kthread")
_MOST_TASKS, _MOST_FRAMES, _MOST_REQUESTS = 40, 30, 200
# Elf64_Sym: name, info, other, section, value, size.
_SYMBOL = struct.Struct("<IBBHQQ")
_MOST_SYMBOLS = 1 << 20


class Elsewhere:
    """That kernel. It is read as it is made and by :meth:`said`, and not after that.

    Args:
        read: Reads so many bytes at an address of the kernel; raises OSError where there is nothing.
        names: A file as /proc/kallsyms; what it says of modules is not taken, as theirs are read out of the memory.
        btf: A file as /sys/kernel/btf/vmlinux.
        scratch: A folder to write to.
    """

    def __init__(self, read: Callable[[int, int], bytes], names: Path, btf: Path, scratch: Path) -> None:
        self._read = read
        own = b"".join(line for line in names.read_bytes().splitlines(keepends=True) if b"\t[" not in line)
        self._text = [bounds for bounds in [_between(own, b"_stext", b"_etext")] if bounds is not None]
        self._program = drgn.Program(drgn.host_platform)
        self._program.add_memory_segment(0, (1 << 64) - 1, self._faulting)
        known = scratch / "names"
        known.write_bytes(own)
        # Its finders are the program's.
        KernelProgram(self._program, core.KernelNames(str(known)), core.Btf(str(btf)))
        known.write_bytes(own + self._names_of_modules())
        self._names = core.KernelNames(str(known))

    def _faulting(self, address: int, count: int, _offset: int, _physical: bool) -> bytes:
        try:
            return self._read(address, count)
        except OSError as error:
            raise drgn.FaultError(str(error), address) from None

    def _names_of_modules(self) -> bytes:
        """Lines of kallsyms for the functions of each module (struct mod_kallsyms)."""
        lines: list[str] = []
        try:
            modules = self._program["modules"]
            for module in list_for_each_entry("struct module", modules.address_of_(), "list"):
                name = module.name.string_().decode(errors="replace")
                self._text.append(_text_of(module))
                table = module.kallsyms.read_()
                count = min(table.num_symtab.value_(), _MOST_SYMBOLS)
                raw = self._read(table.symtab.value_(), count * _SYMBOL.size)
                symbols = [symbol for symbol in _SYMBOL.iter_unpack(raw) if symbol[3] and symbol[0]]
                texts = self._read(table.strtab.value_(), max((symbol[0] for symbol in symbols), default=0) + 1)
                for start, *_, value, _size in symbols:
                    end = texts.find(b"\0", start)
                    if end > start:
                        lines.append(f"{value:016x} t {texts[start:end].decode(errors='replace')}\t[{name}]\n")
        except (drgn.FaultError, LookupError, AttributeError, OSError):
            pass  # those that could be read are names, the others addresses
        return "".join(lines).encode()

    def at(self, address: int) -> tuple[str, int, int, str, bool] | None:
        """What :meth:`KernelNames.at` has for an address; None for one that no code is at."""
        return self._names.at(address) if any(low <= address < high for low, high in self._text) else None

    def said(self) -> Iterator[str]:
        """Lines that tell what is in flight, and which tasks wait for it, as far as it can be read."""
        for part in (self._disks, self._tasks):
            try:
                yield from part()
            except (drgn.FaultError, LookupError, AttributeError, SampleblkError) as error:
                yield f"(not all of it can be read: {error})"

    def _disks(self) -> Iterator[str]:
        for disk in for_each_disk(self._program):
            name = disk.disk_name.string_().decode(errors="replace")
            own = disk.queue.read_()
            if not own.mq_ops:
                counts = self._bios(disk)
                if any(counts):
                    yield f"{name}: takes bios, {counts[0]} reads and {counts[1]} others in flight"
                continue
            for hardware in hardware_queues(own)[0]:
                for request in hardware.requests[:_MOST_REQUESTS]:
                    yield f"{name}, hardware queue {hardware.number}: {request}"
                if len(hardware.requests) > _MOST_REQUESTS:
                    yield f"{name}, hardware queue {hardware.number}: {len(hardware.requests) - _MOST_REQUESTS} more"

    def _bios(self, disk: drgn.Object) -> tuple[int, int]:
        """Reads and others that a disk has in flight, as its statistics have it."""
        try:
            counters = disk.part0.bd_stats.read_()
        except AttributeError:
            counters = disk.part0.dkstats.read_()  # before 5.11
        total = [0, 0]
        for cpu in range(self._program["nr_cpu_ids"].value_()):
            own = per_cpu_ptr(counters, cpu).in_flight
            for kind in (0, 1):
                total[kind] += own[kind].a.counter.value_()
        return max(total[0], 0), max(total[1], 0)

    def _tasks(self) -> Iterator[str]:
        waiting = list(itertools.islice(self._waiting(), _MOST_TASKS + 1))
        for task in waiting[:_MOST_TASKS]:
            name = readable(task.comm.string_().decode(errors="replace"))
            what = "I/O" if task.in_iowait else "something"
            yield f"task {name} ({task.pid.value_()}) waits for {what} and for no signal:"
            for line in itertools.islice(self._stack(task), _MOST_FRAMES):
                yield f"  ? {line}"
        if len(waiting) > _MOST_TASKS:
            yield "and more tasks"

    def _waiting(self) -> Iterator[drgn.Object]:
        """The tasks in uninterruptible sleep, as sysrq-w has them."""
        first = self._program["init_task"]
        for leader in list_for_each_entry("struct task_struct", first.tasks.address_of_(), "tasks"):
            threads = leader.signal.thread_head.address_of_()
            for task in list_for_each_entry("struct task_struct", threads, "thread_node"):
                try:
                    state = task.member_("__state").value_()
                except LookupError:
                    state = task.state.value_()  # before 5.14
                if state & _UNINTERRUPTIBLE and not state & _NOLOAD:
                    yield task

    def _stack(self, task: drgn.Object) -> Iterator[str]:
        """Which words of its stack may be return addresses, from the innermost on, as the kernel prints with "?"."""
        begin = task.thread.sp.value_()
        raw = self._faulting(begin, -begin % _STACK_BYTES, 0, False)
        for (word,) in struct.iter_unpack("<Q", raw[: len(raw) // 8 * 8]):
            found = self.at(word)
            if found is None or found[1] == word:
                continue
            module = f" [{found[3]}]" if found[3] else ""
            yield f"{found[0]}+{word - found[1]:#x}{module}"
            if found[0] in _BOTTOM:
                return


def _between(names: bytes, low: bytes, high: bytes) -> tuple[int, int] | None:
    """The addresses of two names."""
    lines = (line.split() for line in names.splitlines())
    places = {fields[2]: int(fields[0], 16) for fields in lines if fields[2] in (low, high)}
    return (places[low], places[high]) if len(places) == 2 else None


def _text_of(module: drgn.Object) -> tuple[int, int]:
    """Where a module's functions are."""
    try:
        place = module.mem[0]  # MOD_TEXT, since 6.4
    except AttributeError:
        place = module.core_layout
    base = place.base.value_()
    return base, base + place.size.value_()
