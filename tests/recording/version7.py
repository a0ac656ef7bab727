# SPDX-License-Identifier: MIT
"""A version 6 trace.dat as version 7 with zlib (trace-cmd.dat.v7(5)), which Debian's trace-cmd cannot write."""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PAGE = 4096


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def number(self, form: str) -> int:
        (value,) = struct.unpack_from("<" + form, self.data, self.at)
        self.at += struct.calcsize(form)
        return int(value)

    def skip(self, size: int) -> None:
        self.at += size

    def text(self) -> bytes:
        end = self.data.index(b"\0", self.at)
        text = self.data[self.at : end]
        self.at = end + 1
        return text

    def section(self, read: Callable[[], object]) -> bytes:
        start = self.at
        read()
        return self.data[start : self.at]


def _end_of_data(chunk: bytes) -> int:
    """Where the committed data of its last page end (include/linux/ring_buffer.h)."""
    page = len(chunk) - PAGE
    return page + 16 + int(struct.unpack_from("<Q", chunk, page + 8)[0] & 0xFFFFF)


def convert(
    source: Path,
    target: Path,
    *,
    pages_a_chunk: int = 3,
    spoil_chunk: bool = False,
    cut_pages: bool = False,
    clocks: dict[str, str] | None = None,
    cpu_numbers: list[int] | None = None,
) -> None:
    """Writes `source`, of one buffer, as version 7.

    Args:
        source: A version 6 file.
        target: What is written.
        pages_a_chunk: How many pages are compressed as one.
        cut_pages: Each chunk ends where the data of its last page does.
        spoil_chunk: Makes the first chunk of pages unreadable.
        clocks: Buffers by name, each with all the pages, and their clocks; default one, of mono.
        cpu_numbers: What the CPUs are numbered as, instead of 0, 1, …
    """
    data = source.read_bytes()
    assert data[10:12] == b"6\0"
    reader = _Reader(data)
    reader.skip(12 + 1 + 1 + 4)

    def header() -> None:
        for _ in range(2):
            reader.text()
            reader.skip(reader.number("Q"))

    def formats() -> None:
        for _ in range(reader.number("I")):
            reader.skip(reader.number("Q"))

    def systems() -> None:
        for _ in range(reader.number("I")):
            reader.text()
            formats()

    def sized(form: str) -> Callable[[], None]:
        return lambda: reader.skip(reader.number(form))

    sections = {
        16: reader.section(header),
        17: reader.section(formats),
        18: reader.section(systems),
        19: reader.section(sized("I")),
        20: reader.section(sized("I")),
        21: reader.section(sized("Q")),
    }
    cpus = reader.number("I")
    reader.skip(10)
    options = b""
    while (number := reader.number("H")) != 0:
        size = reader.number("I")
        options += struct.pack("<HI", number, size) + data[reader.at : reader.at + size]
        reader.skip(size)
    reader.skip(10)
    table = [(cpu, reader.number("Q"), reader.number("Q")) for cpu in range(cpus)]

    out = bytearray(data[:10] + b"7\0" + data[12:18] + b"zlib\0001.0\0")
    head = len(out)
    out += bytes(8)

    def add(number: int, body: bytes) -> int:
        packed = zlib.compress(body)
        offset = len(out)
        packed_sizes = struct.pack("<II", len(packed), len(body))
        out.extend(struct.pack("<HHIQ", number, 1, 0, len(packed) + 8) + packed_sizes + packed)
        return offset

    for number, body in sections.items():
        options += struct.pack("<HIQ", number, 8, add(number, body))
    numbers = cpu_numbers if cpu_numbers is not None else list(range(len(table)))
    for name, clock in (clocks or {"": "mono"}).items():
        buffer_at = len(out)
        out += struct.pack("<HHIQ", 3, 1, 0, 0)
        places = b""
        for cpu, offset, size in table:
            own = data[offset : offset + size]
            step = PAGE * pages_a_chunk
            chunks = [own[at : at + step] for at in range(0, len(own), step)]
            if cut_pages:
                chunks = [chunk[: _end_of_data(chunk)] for chunk in chunks]
            start = len(out)
            out += struct.pack("<I", len(chunks))
            for chunk in chunks:
                packed = zlib.compress(chunk)
                if spoil_chunk:
                    packed, spoil_chunk = bytes(len(packed)), False
                out += struct.pack("<II", len(packed), len(chunk)) + packed
            places += struct.pack("<IQQ", numbers[cpu], start, len(out) - start)
        names = name.encode() + b"\0" + clock.encode() + b"\0"
        body = struct.pack("<Q", buffer_at) + names + struct.pack("<II", PAGE, cpus) + places
        options += struct.pack("<HI", 3, len(body)) + body
    options += struct.pack("<HIQ", 0, 8, 0)
    struct.pack_into("<Q", out, head, len(out))
    out += struct.pack("<HHIQ", 0, 0, 0, len(options)) + options
    target.write_bytes(out)
