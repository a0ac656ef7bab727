# SPDX-License-Identifier: MIT
"""Types of a made-up BTF file as drgn's."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from sampleblk_lab._native import core
from sampleblk_lab.errors import FormatError, InputError

pytest.importorskip("drgn")
import drgn

from sampleblk_lab.inspect.btf_types import BtfTypes


def types_of(tmp_path: Path, types: bytes, strings: bytes) -> BtfTypes:
    header = struct.pack("<HBBIIIII", 0xEB9F, 1, 0, 24, 0, len(types), len(types), len(strings))
    (tmp_path / "btf").write_bytes(header + types + strings)
    return BtfTypes(drgn.Program(drgn.Platform(drgn.Architecture.X86_64)), core.Btf(str(tmp_path / "btf")))


def test_two_of_one_name_are_no_answer(tmp_path: Path) -> None:
    enumeration = [struct.pack("<IIIIi", 0, 6 << 24 | 1, 4, 1, value) for value in (3, 3, 4)]
    structure = [struct.pack("<IIIIII", 5, 4 << 24 | 1, size, 7, 0, 0) for size in (8, 8, 16)]
    strings = b"\0ONE\0s\0m\0"
    alike = types_of(tmp_path, b"".join(enumeration[:2] + structure[:2]), strings)
    one = alike.constant("ONE")
    assert one is not None
    assert one.value_() == 3
    kinds = drgn.TypeKindSet([drgn.TypeKind.STRUCT])
    found = alike.find(kinds, "s")
    assert found is not None
    assert found.size == 8
    unlike = types_of(tmp_path, b"".join(enumeration[1:] + structure[1:]), strings)
    with pytest.raises(InputError, match=r"2 enumerations have a 'ONE'.*3, 4"):
        unlike.constant("ONE")
    with pytest.raises(InputError, match="2 types are named 's'"):
        unlike.find(kinds, "s")


@pytest.mark.parametrize(("signed", "values"), [(False, (2**64 - 128, 5)), (True, (-128, 5))])
def test_an_enumerator_of_64_bits_is_of_its_type(tmp_path: Path, signed: bool, values: tuple[int, int]) -> None:
    strings = b"\0context\0KERNEL\0USER\0"
    types = struct.pack("<III", 1, signed << 31 | 19 << 24 | 2, 8)
    for name, value in zip((9, 16), values, strict=True):
        types += struct.pack("<IQ", name, value % 2**64)
    found = types_of(tmp_path, types, strings)
    enumeration = found.get(1)
    assert [(one.name, one.value) for one in enumeration.enumerators] == [("KERNEL", values[0]), ("USER", values[1])]
    constant = found.constant("KERNEL")
    assert constant is not None
    assert constant.value_() == values[0]


@pytest.mark.parametrize(
    "words",
    [
        (0, 8 << 24, 1),  # typedef
        (0, 2 << 24, 1),  # pointer
        (0, 10 << 24, 2, 0, 9 << 24, 1),  # const volatile
        (0, 3 << 24, 0, 1, 1, 3),  # array
    ],
)
def test_a_type_of_itself_is_malformed(tmp_path: Path, words: tuple[int, ...]) -> None:
    found = types_of(tmp_path, struct.pack(f"<{len(words)}I", *words), b"\0")
    for _ in range(2):
        with pytest.raises(FormatError, match="one of other types than itself"):
            found.get(1)


def test_a_pointer_within_its_own_structure_is_well(tmp_path: Path) -> None:
    """And so is a chain of types that ends."""
    structure = struct.pack("<IIIIII", 1, 4 << 24 | 1, 8, 6, 2, 0)
    pointers = b"".join(struct.pack("<III", 0, 2 << 24, one) for one in range(1, 33))
    found = types_of(tmp_path, structure + pointers, b"\0list\0next\0")
    assert str(found.get(1).members[0].type) == "struct list *"
    assert str(found.get(33)) == f"struct list {'*' * 32}"
