# SPDX-License-Identifier: MIT
"""What a guest was doing that does not answer, read out of its memory by QEMU's monitor.

Its kernel's names and types are those of a twin: another VM of its kernel, whose addresses are the same as both are
started with ``nokaslr``.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from sampleblk_lab.errors import UnsupportedError
from sampleblk_lab.paths import scratch_directory
from sampleblk_lab.vm.errors import VMError
from sampleblk_lab.vm.qmp import ANSWER_S

if TYPE_CHECKING:
    from pathlib import Path

    from sampleblk_lab.vm.machine import VM
    from sampleblk_lab.vm.qmp import Qmp
    from sampleblk_lab.vm.registers import Symbols

_TITLE = "--- read out of the guest's memory ---"
# The twin is restored in half a second, or boots.
_TWIN_S = 60.0
# A walk reads a few hundred pages, each in less than a millisecond; one that goes in circles ends, too.
_WALK_S = 20.0
_PAGE_BYTES = 4096
# Symbols of modules are read so many at a time.
_CHUNK_BYTES = 16 * _PAGE_BYTES


class _Memory:
    """The kernel's memory by virtual address, as the first processor has it mapped.

    Args:
        qmp: The monitor of its VM.
        scratch: A folder for QEMU to write to.
    """

    def __init__(self, qmp: Qmp, scratch: Path) -> None:
        self._qmp = qmp
        self._file = scratch / "memory"
        self._pages: dict[int, bytes] = {}
        self._end = time.monotonic() + _WALK_S

    def read(self, address: int, count: int) -> bytes:
        """So many bytes at an address. Raises OSError where nothing is mapped, or when it takes too long."""
        if time.monotonic() > self._end:  # in a circle all pages are known
            raise TimeoutError(f"reading it took longer than {_WALK_S:g} s")
        first, last = address // _PAGE_BYTES, (address + count - 1) // _PAGE_BYTES
        for page in range(first, last + 1):
            if page not in self._pages:
                self._load(page, last)
        whole = b"".join(self._pages[page] for page in range(first, last + 1))
        offset = address - first * _PAGE_BYTES
        return whole[offset : offset + count]

    def _load(self, page: int, last: int) -> None:
        """A page, and those behind it up to the last that is wanted, where they are mapped, too."""
        ahead = min(last + 1 - page, _CHUNK_BYTES // _PAGE_BYTES)
        for pages in dict.fromkeys((ahead, 1)):
            wanted = {"val": page * _PAGE_BYTES, "size": pages * _PAGE_BYTES, "filename": str(self._file)}
            try:
                self._qmp.execute("memsave", self._end, **wanted)
            except VMError as error:
                if pages == 1:
                    raise OSError(f"{page * _PAGE_BYTES:#x}: {error.message}") from None
                continue
            data = self._file.read_bytes()
            for number in range(pages):
                self._pages[page + number] = data[number * _PAGE_BYTES : (number + 1) * _PAGE_BYTES]
            return


def report(qmp: Qmp, twin: VM) -> tuple[str, Symbols | None]:
    """The requests in flight of a guest whose virtual processors are stopped for it, and its tasks that wait.

    Args:
        qmp: The monitor of its VM.
        twin: A VM as it is, which was not started.

    Returns:
        Its text, and the names of the guest's functions if they are known.
    """
    try:
        kernel, lines = _read(qmp, twin)
    except UnsupportedError as error:
        return f"{_TITLE}\n({error})", None
    except (VMError, OSError, ValueError) as error:
        return f"{_TITLE}\n(it cannot be: {error.message if isinstance(error, VMError) else error})", None
    return "\n".join([_TITLE, *(lines or ["nothing is in flight, and no task waits without a signal"])]), kernel


def _read(qmp: Qmp, twin: VM) -> tuple[Symbols, list[str]]:
    from sampleblk_lab.inspect.elsewhere import Elsewhere

    qmp.execute("stop", time.monotonic() + ANSWER_S)
    with scratch_directory("memory") as scratch:
        names, types = scratch / "kallsyms", scratch / "btf"
        with twin:
            for path, source in ((names, "/proc/kallsyms"), (types, "/sys/kernel/btf/vmlinux")):
                path.write_bytes(twin.run(["cat", source], timeout=_TWIN_S).stdout)
        if not types.stat().st_size:
            raise UnsupportedError(
                "reading a guest's memory", "its kernel has no BTF: it was built without CONFIG_DEBUG_INFO_BTF"
            )
        memory = _Memory(qmp, scratch)
        kernel = Elsewhere(memory.read, names, types, scratch)
        return kernel, list(kernel.said())
