# SPDX-License-Identifier: MIT
"""Which parts of a file are in the page cache, and which of those are dirty, by offset."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import drgn
from drgn.helpers.linux.fs import for_each_file
from drgn.helpers.linux.pid import find_task
from drgn.helpers.linux.xarray import xa_for_each, xa_is_value

from sampleblk_lab.inspect.kernel import kernel

if TYPE_CHECKING:
    from os import PathLike

_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass
class PageCache:
    """What of a file is cached.

    Attributes:
        size_bytes: The file's size.
        pages: Page number in the file to its flags, of those that are cached.
        faults: Pages that went away while they were looked at.
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
        marks = "".join(
            "." if page not in self.pages else "D" if "dirty" in self.pages[page] else "#" for page in range(total)
        )
        rows = [f"{start * _PAGE:#12x} {marks[start : start + 64]}" for start in range(0, total, 64)]
        head = f"{len(self.pages)} of {total} pages cached, {len(self.dirty)} dirty (# cached, D dirty, . not cached)"
        return "\n".join([head, *rows])


def _flags(program: drgn.Program, word: int) -> frozenset[str]:
    """The page flags that matter here, by their place in the kernel's enum pageflags."""
    found = set()
    for enumerator in program.type("enum pageflags").enumerators:
        name = enumerator.name.removeprefix("PG_")
        if (
            name in ("dirty", "uptodate", "locked", "writeback", "referenced", "active")
            and word >> enumerator.value & 1
        ):
            found.add(name)
    return frozenset(found)


def page_cache(path: str | PathLike[str]) -> PageCache:
    """The cached pages of a file.

    Args:
        path: The file; it is opened for as long as this looks.

    Raises:
        OSError: The file cannot be opened.
        PermissionError: Not root.
    """
    program = kernel()
    number = os.open(path, os.O_RDONLY)
    try:
        mapping = next(file.f_mapping for fd, file in for_each_file(find_task(program, os.getpid())) if fd == number)
        out = PageCache(os.fstat(number).st_size)
        large = _large_page_order
        for index, entry in xa_for_each(mapping.i_pages.address_of_()):
            if xa_is_value(entry):
                continue  # a shadow of a page that was evicted
            try:
                page = drgn.cast("struct page *", entry)
                word = page.flags
                # A struct of its own since 6.18.
                value = word.f.value_() if word.type_.kind == drgn.TypeKind.STRUCT else word.value_()
                flags = _flags(program, value)
                for part in range(1 << large(program, page, value)):
                    out.pages[index + part] = flags
            except drgn.FaultError:
                out.faults += 1
        return out
    finally:
        os.close(number)


def _large_page_order(program: drgn.Program, page: drgn.Object, flags: int) -> int:
    """The order of the folio that begins with `page`; 0 for one page."""
    head = next((e.value for e in program.type("enum pageflags").enumerators if e.name == "PG_head"), None)
    if head is None or not flags >> head & 1:
        return 0
    # The first tail page has the order: in its flags' low byte since 6.6, before that in a byte of its own.
    tail = page + 1
    if any(member.name == "compound_order" for inner in page.type_.type.members for member in _inner(inner)):
        return int(tail.compound_order)
    word = tail.flags
    value = word.f.value_() if word.type_.kind == drgn.TypeKind.STRUCT else word.value_()
    return int(value) & 0xFF


def _inner(member: drgn.TypeMember) -> list[drgn.TypeMember]:
    """A member, or what an anonymous struct or union has."""
    if member.name is not None or member.type.kind not in (drgn.TypeKind.STRUCT, drgn.TypeKind.UNION):
        return [member]
    return [deep for inner in member.type.members for deep in _inner(inner)]
