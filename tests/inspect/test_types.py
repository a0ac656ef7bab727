# SPDX-License-Identifier: MIT
"""Types of a made-up BTF file as drgn's."""

from __future__ import annotations

import struct
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from sampleblk_lab._native import core
from sampleblk_lab.errors import FormatError, InputError

pytest.importorskip("drgn")
import drgn

from sampleblk_lab.inspect.btf_types import BtfTypes
from sampleblk_lab.inspect.kernel import KernelProgram

if TYPE_CHECKING:
    from collections.abc import Iterator


def types_of(tmp_path: Path, types: bytes, strings: bytes, program: drgn.Program | None = None) -> BtfTypes:
    header = struct.pack("<HBBIIIII", 0xEB9F, 1, 0, 24, 0, len(types), len(types), len(strings))
    (tmp_path / "btf").write_bytes(header + types + strings)
    program = program or drgn.Program(drgn.Platform(drgn.Architecture.X86_64))
    return BtfTypes(program, core.Btf(str(tmp_path / "btf")))


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


def test_types_of_several_modules_are_no_answer_where_they_differ(tmp_path: Path) -> None:
    def module(name: str, size: int, value: int) -> BtfTypes:
        folder = tmp_path / name
        folder.mkdir()
        enumeration = struct.pack("<IIIIi", 0, 6 << 24 | 1, 4, 1, value)
        structure = struct.pack("<IIIIII", 5, 4 << 24 | 1, size, 7, 0, 0)
        return types_of(folder, enumeration + structure, b"\0ONE\0s\0m\0", program)

    class Kernel(KernelProgram):
        def _of_modules(self) -> Iterator[tuple[str, BtfTypes]]:
            yield from modules.items()

    program = drgn.Program(drgn.Platform(drgn.Architecture.X86_64))
    modules = {name: module(name, size, size) for name, size in (("dm", 8), ("md", 8), ("zz", 16))}
    (tmp_path / "nothing").write_bytes(struct.pack("<HBBIIIII", 0xEB9F, 1, 0, 24, 0, 0, 0, 1) + b"\0")
    names = cast("core.KernelNames", SimpleNamespace(named=lambda _: []))
    kernel = Kernel(program, names, core.Btf(str(tmp_path / "nothing")))
    with pytest.raises(InputError, match=r"'s' of modules dm, md, zz are unlike.*type\('s', 'dm'\)"):
        program.type("struct s")
    with pytest.raises(InputError, match=r"constants 'ONE' are unlike each other.*16 of zz"):
        program.constant("ONE")
    assert [program.type("struct s", each).size for each in modules] == [8, 8, 16]
    del modules["zz"]
    assert program.type("struct s").size == 8
    assert program.constant("ONE").value_() == 8
    kernel.types = modules["md"]
    modules["dm"] = module("of the kernel's name", 16, 16)
    assert program.type("struct s").size == 8
    assert program.constant("ONE").value_() == 8
