# SPDX-License-Identifier: MIT
"""The driver's calls as its header has them, for cases that make calls of their own.

tests/device/test_abi.py holds what is read here against the C compiler.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

HEADER = (Path(__file__).resolve().parents[2] / "module/include/uapi/linux/sampleblk.h").read_text()
MAGIC = 0xBD
_DIRECTIONS = {"_IOW": 1, "_IOR": 2, "_IOWR": 3}
_SIZES = {"__u8": 1, "__u16": 2, "__u32": 4, "__u64": 8, "__s32": 4, "__s64": 8, "char": 1}


class Field(NamedTuple):
    """A field of a structure."""

    name: str
    #: From the structure's first byte.
    offset: int
    #: In bytes, an array's whole.
    size: int


class Call(NamedTuple):
    """A call of /dev/sampleblk-control."""

    name: str
    #: As in _IOC_DIR: 1 takes its argument, 2 gives it, 3 both.
    direction: int
    number: int
    #: Of the argument, in bytes.
    size: int
    fields: list[Field]

    @property
    def request(self) -> int:
        """What ioctl(2) is given."""
        return ioc(self.direction, self.number, self.size)


def ioc(direction: int, number: int, size: int) -> int:
    """The request of a call whose argument is of any size."""
    return direction << 30 | size << 16 | MAGIC << 8 | number


def _constant(text: str) -> int:
    """An array's length: a number, a constant of the header, or one divided by a number."""
    name, _, divisor = (part.strip() for part in text.partition("/"))
    if not name.isdigit():
        found = re.search(rf"#define {name} (\d+)", HEADER)
        assert found, f"{name} is no plain number in the header"
        name = found[1]
    return int(name) // int(divisor or 1)


def _structures() -> dict[str, tuple[int, int, list[Field]]]:
    """Size, alignment and fields of every structure, as x86-64's C lays them out."""
    known = {name: (size, size, list[Field]()) for name, size in _SIZES.items()}
    plain = re.sub(r"/\*.*?\*/", "", HEADER, flags=re.DOTALL)
    for structure, body in re.findall(r"^struct (\w+) \{\n(.*?)^\};", plain, re.DOTALL | re.MULTILINE):
        at, aligned, fields = 0, 1, list[Field]()
        for line in filter(None, map(str.strip, body.splitlines())):
            member = re.fullmatch(r"(?:struct )?(\w+) (\w+)(?:\[([^]]*)\])?;", line)
            assert member, f"{structure}: {line} is not understood"
            size, alignment, _ = known[member[1]]
            at = -(-at // alignment) * alignment
            # An array without a length is what follows the structure.
            total = size if member[3] is None else size * _constant(member[3] or "0")
            fields.append(Field(member[2], at, total))
            at += total
            aligned = max(aligned, alignment)
        known[structure] = (-(-at // aligned) * aligned, aligned, fields)
    return known


def _calls() -> list[Call]:
    structures = _structures()
    found = re.findall(r"#define SAMPLEBLK_IOC_(\w+) (_IO\w+)\(SAMPLEBLK_IOC_MAGIC, (0x\w+), struct (\w+)\)", HEADER)
    return [
        Call(name, _DIRECTIONS[kind], int(number, 0), structures[structure][0], structures[structure][2])
        for name, kind, number, structure in found
    ]


CALLS = _calls()
