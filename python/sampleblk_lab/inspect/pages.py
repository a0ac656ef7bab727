# SPDX-License-Identifier: MIT
"""Which parts of a file are in the page cache, and which of those are dirty, by offset."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import drgn
from drgn.helpers.linux.mm import compound_order, page_flags

from sampleblk_lab.inspect.kernel import kernel, own_file

if TYPE_CHECKING:
    from collections.abc import Iterator
    from os import PathLike

_PAGE = os.sysconf("SC_PAGE_SIZE")

# The page flags that matter here (include/linux/page-flags.h).
_FLAGS = ("locked", "writeback", "referenced", "uptodate", "dirty", "active")

# A row of the picture.
_ROW = 64

_HUGETLBFS_MAGIC = 0x958458F6  # include/uapi/linux/magic.h

# How often the cache is walked again when it changed during a walk.
_TRIES = 3


@dataclass
class PageCache:
    """What of a file is cached.

    Attributes:
        size_bytes: The file's size.
        pages: Page number in the file to its flags, of those that are cached.
        faults: Pages, or nodes of the tree that has them, that changed or went away while they were looked at.
    """

    size_bytes: int
    pages: dict[int, frozenset[str]] = field(default_factory=dict)
    faults: int = 0

    @property
    def dirty(self) -> list[int]:
        """Numbers of the pages that are not written back yet."""
        return [number for number, flags in self.pages.items() if "dirty" in flags]

    @property
    def resident_bytes(self) -> int:
        """How much of the file is cached."""
        return len(self.pages) * _PAGE

    def __str__(self) -> str:
        total = -(-self.size_bytes // _PAGE)
        rows, end = [], 0
        for row in sorted({page // _ROW for page in self.pages}):
            first = row * _ROW
            rows += _empty(end, first)
            end = min(first + _ROW, total)
            marks = (
                "." if page not in self.pages else "D" if "dirty" in self.pages[page] else "#"
                for page in range(first, end)
            )
            rows.append(f"{first * _PAGE:#12x} {''.join(marks)}")
        rows += _empty(end, total)
        head = f"{len(self.pages)} of {total} pages cached, {len(self.dirty)} dirty (# cached, D dirty, . not cached)"
        notes = [f"{self.faults} changed while this looked"] if self.faults else []
        return "\n".join([head, *rows, *notes])


def _empty(first: int, end: int) -> list[str]:
    """The rows without a cached page; a file may have no end of them."""
    if end - first <= _ROW:
        return [f"{first * _PAGE:#12x} {'.' * (end - first)}"] if first < end else []
    return [f"{first * _PAGE:#12x} nothing cached up to {end * _PAGE:#x}"]


def page_cache(path: str | PathLike[str]) -> PageCache:
    """The cached pages of a file.

    Args:
        path: The file, or a block device; it is opened for as long as this looks.

    Raises:
        OSError: The file cannot be opened.
        PermissionError: Not root.
    """
    program = kernel()
    number = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a FIFO would wait for a writer
    try:
        walk = _Walk(program, own_file(program, number).f_mapping.read_())
        for _ in range(_TRIES):
            out = PageCache(0)
            walk.into(out)
            # Afterwards, for it may grow. A large page reaches past the end, where there is no file. That of a block
            # device is in the inode of its pages, not in that of its name.
            out.size_bytes = walk.host.i_size.value_()
            end = -(-out.size_bytes // _PAGE)
            out.pages = {page: flags for page, flags in out.pages.items() if page < end}
            if out.faults == 0:
                break
        return out
    finally:
        os.close(number)


class _Walk:
    """Reads a tree of pages as a whole node or page at a time, each checked to be of the tree still."""

    def __init__(self, program: drgn.Program, mapping: drgn.Object) -> None:
        self.program = program
        self.host = mapping.host.read_()
        self.mapping = mapping.value_()
        self.hugetlb = self.host.i_sb.s_magic.value_() == _HUGETLBFS_MAGIC
        self.pages = mapping.i_pages.address_of_()
        self.node = program.type("struct xa_node")
        try:
            self.page = program.type("struct folio")  # since 5.16
        except LookupError:
            self.page = program.type("struct page")
        bits = {
            enumerator.name.removeprefix("PG_"): enumerator.value
            for enumerator in program.type("enum pageflags").enumerators
        }
        self.bits = {name: 1 << bits[name] for name in _FLAGS}
        self.head = 1 << bits["head"]
        self.known: dict[int, frozenset[str]] = {}

    def into(self, out: PageCache) -> None:
        for index, entry, shift in self._entries(self.pages.xa_head.value_(), 0, 0, out):
            try:
                # One read: flags and mapping of one moment.
                page = drgn.Object(self.program, self.page, address=entry).read_()
                flags = page_flags(page).value_()
                order = 0
                if flags & self.head:
                    order = compound_order(drgn.Object(self.program, "struct page *", entry)).value_()
                # A page that was taken out of the cache, and perhaps is another file's by now.
                if page.mapping.value_() != self.mapping or order > 20:
                    out.faults += 1
                    continue
            except drgn.FaultError:
                out.faults += 1
                continue
            names = self._names(flags)
            if self.hugetlb and shift == 0:
                index <<= order  # before 6.7 they are numbered as large pages
            # Before 5.17 a large page is in the slot of each of its parts.
            first = index >> order << order
            for part in range(1 << order):
                out.pages[first + part] = names

    def _entries(self, entry: int, index: int, above: int, out: PageCache) -> Iterator[tuple[int, int, int]]:
        """Index and address of each page below an entry, and its node's shift (include/linux/xarray.h)."""
        if entry & 3 == 2:
            if entry <= 4096:
                return  # a sibling of a large page's first entry, or reserved
            try:
                node = drgn.Object(self.program, self.node, address=entry - 2).read_()
            except drgn.FaultError:
                out.faults += 1
                return
            if node.array.value_() != self.pages.value_():
                out.faults += 1
                return
            shift = node.shift.value_()
            for slot, below in enumerate(node.slots.value_()):
                if below:
                    yield from self._entries(below, index + (slot << shift), shift, out)
        elif entry and not entry & 1:  # else a value, the shadow of a page that was evicted
            yield index, entry, above

    def _names(self, flags: int) -> frozenset[str]:
        found = self.known.get(flags)
        if found is None:
            found = self.known[flags] = frozenset(name for name, bit in self.bits.items() if flags & bit)
        return found
