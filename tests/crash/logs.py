# SPDX-License-Identifier: MIT
"""Logs of writes, made by hand: of dm-log-writes, and journals of the driver as their mapping has them (its ABI)."""

from __future__ import annotations

import hashlib
import random
import struct
import tempfile
from dataclasses import dataclass
from pathlib import Path

from sampleblk_lab.crash import Exploration, Log, State

SECTOR = 512
# Of the disk that recorded() is of.
SECTORS = 12
FLUSH, FUA, DISCARD, MARK = 1, 2, 4, 8


def log_writes(*entries: tuple[int, int, bytes | int], sector_bytes: int = SECTOR) -> bytes:
    """A log of dm-log-writes: (flags, sector, data, or the sectors of a discard)."""
    found = struct.pack("<QQQI", 0x6A736677736872, 1, len(entries), sector_bytes).ljust(sector_bytes, b"\0")
    for flags, sector, data in entries:
        if flags & MARK:
            assert isinstance(data, bytes)
            found += (struct.pack("<QQQQ", 0, 0, flags, len(data)) + data).ljust(sector_bytes, b"\0")
        elif isinstance(data, int):
            found += struct.pack("<QQQQ", sector, data, flags, 0).ljust(sector_bytes, b"\0")
        else:
            found += struct.pack("<QQQQ", sector, len(data) // sector_bytes, flags, 0).ljust(sector_bytes, b"\0") + data
    return found


@dataclass(frozen=True)
class Op:
    """What a journal has: `kind` is write, zeroes, flush or mark; `data` of a mark is its text, of zeroes how many."""

    kind: str
    submit: int
    complete: int = 0
    sector: int = 0
    data: bytes | int = b""
    fua: bool = False
    atomic: bool = False
    failed: bool = False

    @property
    def contents(self) -> dict[int, bytes]:
        """Sector -> what the operation puts there."""
        if self.kind == "zeroes":
            assert isinstance(self.data, int)
            return {self.sector + i: bytes(SECTOR) for i in range(self.data)}
        if self.kind != "write":
            return {}
        assert isinstance(self.data, bytes)
        return {self.sector + i: self.data[i * SECTOR : (i + 1) * SECTOR] for i in range(len(self.data) // SECTOR)}


_TYPES = {"write": 1, "discard": 2, "zeroes": 3, "flush": 4, "mark": 16, "power_cut": 17}


def journal(ops: list[Op], *, overflow: int = 0, block: int | None = None) -> bytes:
    """A journal of the driver, in the order of execution: uapi/linux/sampleblk.h, sampleblk_journal_header and on.

    Without a logical block it is one of an older driver, whose header is shorter.
    """
    body = b""
    previous = 0
    last = b"" if block is None else struct.pack("<Q", block)
    header_bytes = 9 * 8 + len(last)
    for sequence, op in enumerate(ops, 1):
        if op.kind == "mark":
            assert isinstance(op.data, bytes)
            redo = op.data
        elif op.contents:
            data = b"" if op.kind == "zeroes" else op.data
            assert isinstance(data, bytes)
            redo = struct.pack("<QQII", op.sector, len(op.contents), op.kind == "zeroes", 0) + data
        else:
            redo = b""
        size = 96 + -(-len(redo) // 8) * 8
        flags = op.fua | op.failed << 1 | op.atomic << 2
        entry = struct.pack(
            "<QIIIIQQQQQ",
            sequence,
            size,
            previous,
            _TYPES[op.kind],
            flags,
            0,
            op.sector,
            len(op.contents),
            0,
            op.complete,
        )
        entry += struct.pack("<QQQII", op.submit, op.complete, 0, 0, len(redo))
        body += (entry + redo).ljust(size, b"\0")
        previous = size
    end = header_bytes + len(body)
    return (
        struct.pack("<9Q", 0x324C4E4A4B4C4253, end, header_bytes, end, len(ops), overflow, len(ops) + 1, len(ops), 0)
        + last
        + body
    )


def _marked(marks: tuple[str, ...], *more: tuple[int, int, bytes | int]) -> State:
    with tempfile.NamedTemporaryFile(prefix="sampleblk-log-") as file:
        file.write(log_writes(*((MARK, 0, mark.encode()) for mark in marks), *more))
        file.flush()
        return Log(file.name, base="zeros", size_bytes=SECTOR).state(len(more))


def with_marks(*marks: str) -> State:
    """The end of a log that has these marks, and then a write: when the crash came, all of them were set."""
    return _marked(marks, (FUA, 0, bytes(SECTOR)))


def at_any_time(*marks: str) -> State:
    """What a log that has these marks only leaves: before the first one, after the last one, or between them."""
    return _marked(marks)


def recorded(folder: Path, seed: int = 3) -> Log:
    """Two dozen writes to a few sectors, some of them equal, with a flush now and then, on a base that is not empty."""
    rng = random.Random(seed)
    entries: list[tuple[int, int, bytes | int]] = [(MARK, 0, b"begin")]
    for number in range(24):
        sectors = rng.randrange(1, 4)
        data = b"".join(bytes([rng.choice([number + 1, 1])]) * SECTOR for _ in range(sectors))
        entries.append((0, rng.randrange(SECTORS - sectors), data))
        if number % 6 == 5:
            entries.append((FLUSH, 0, 0))
    entries.append((MARK, 0, b"end"))
    folder.mkdir(exist_ok=True)
    (folder / "log").write_bytes(log_writes(*entries))
    (folder / "base.img").write_bytes(b"\xee" * SECTOR * SECTORS)
    return Log(folder / "log", base=folder / "base.img")


def picky(image: Path, _state: State) -> None:
    """Fails for about one content in thirty; writes to the image, which must be undone."""
    data = image.read_bytes()
    image.write_bytes(b"whatever")
    if hashlib.sha256(data).digest()[0] < 9:
        raise AssertionError(f"not this one: {hashlib.sha256(data).hexdigest()}")


def told(found: Exploration) -> tuple[object, ...]:
    """All that an exploration says but the time it took."""
    failures = [(repr(failure.state), repr(failure.reduced), failure.text()) for failure in found.failures]
    return found.states, found.checked, found.total, found.complete, found.interrupted, found.lost, failures
