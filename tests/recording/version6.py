# SPDX-License-Identifier: MIT
"""A version 6 trace.dat taken apart and put together with other options and buffers (trace-cmd.dat.v6(5))."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

PAGE = 4096
DATE, CPU_STAT, BUFFER, CLOCK, UNAME, OFFSET, TSC2NSEC = 1, 2, 3, 4, 5, 7, 14


@dataclass
class File:
    """One file: what precedes the options, the options, and the pages of each CPU of each buffer."""

    head: bytes
    options: list[tuple[int, bytes]]
    cpus: list[bytes]
    instances: dict[str, list[bytes]] = field(default_factory=dict)

    def replace(self, number: int, value: bytes) -> None:
        """Sets an option; takes all others of its number away."""
        self.options = [option for option in self.options if option[0] != number] + [(number, value)]

    def write(self, path: Path) -> None:
        """Writes it, every CPU's pages at a page of their own."""
        count = len(self.cpus)
        assert all(len(own) == count for own in self.instances.values())
        names = [name.encode() + b"\0" for name in self.instances]
        options = b"".join(struct.pack("<HI", number, len(value)) + value for number, value in self.options)
        sizes = len(options) + sum(6 + 8 + len(name) for name in names) + 2
        tables = len(self.head) + 4 + 10 + sizes
        table_bytes = 10 + 16 * count
        at = -(-(tables + table_bytes * (1 + len(names))) // PAGE) * PAGE
        buffers = [self.cpus, *self.instances.values()]
        places: list[bytes] = []
        body = b""
        for own in buffers:
            table = b"flyrecord\0"
            for pages in own:
                table += struct.pack("<QQ", at + len(body), len(pages))
                body += pages + bytes(-len(pages) % PAGE)
            places.append(table)
        for number, name in enumerate(names, start=1):
            options += struct.pack("<HIQ", BUFFER, 8 + len(name), tables + table_bytes * number) + name
        head = self.head + struct.pack("<I", count) + b"options  \0" + options + struct.pack("<H", 0)
        assert len(head) == tables
        head += b"".join(places)
        path.write_bytes(head + bytes(at - len(head)) + body)


def read(path: Path) -> File:
    """Takes a file apart."""
    data = path.read_bytes()
    assert data[10:12] == b"6\0"
    at = 12 + 1 + 1 + 4

    def number(form: str) -> int:
        nonlocal at
        (value,) = struct.unpack_from("<" + form, data, at)
        at += struct.calcsize(form)
        return int(value)

    def text() -> str:
        nonlocal at
        end = data.index(b"\0", at)
        value = data[at:end].decode()
        at = end + 1
        return value

    def skip(form: str) -> None:
        nonlocal at
        size = number(form)
        at += size

    for _ in range(2):  # header_page, header_event
        text()
        skip("Q")
    for _ in range(number("I")):  # ftrace's formats
        skip("Q")
    for _ in range(number("I")):  # the systems'
        text()
        for _ in range(number("I")):
            skip("Q")
    skip("I")  # kallsyms
    skip("I")  # printk
    skip("Q")  # command lines
    head = data[:at]
    cpus = number("I")
    assert data[at : at + 10] == b"options  \0"
    at += 10
    options: list[tuple[int, bytes]] = []
    while (option := number("H")) != 0:
        size = number("I")
        options.append((option, data[at : at + size]))
        at += size
    assert data[at : at + 10] == b"flyrecord\0"
    at += 10
    table = [(number("Q"), number("Q")) for _ in range(cpus)]
    return File(head, options, [data[start : start + size] for start, size in table])
