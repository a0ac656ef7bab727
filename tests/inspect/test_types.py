# SPDX-License-Identifier: MIT
"""Types of a made-up BTF file as drgn's."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from sampleblk_lab._native import core

pytest.importorskip("drgn")
import drgn

from sampleblk_lab.inspect.btf_types import BtfTypes


@pytest.mark.parametrize(("signed", "values"), [(False, (2**64 - 128, 5)), (True, (-128, 5))])
def test_an_enumerator_of_64_bits_is_of_its_type(tmp_path: Path, signed: bool, values: tuple[int, int]) -> None:
    strings = b"\0context\0KERNEL\0USER\0"
    types = struct.pack("<III", 1, signed << 31 | 19 << 24 | 2, 8)
    for name, value in zip((9, 16), values, strict=True):
        types += struct.pack("<IQ", name, value % 2**64)
    header = struct.pack("<HBBIIIII", 0xEB9F, 1, 0, 24, 0, len(types), len(types), len(strings))
    (tmp_path / "btf").write_bytes(header + types + strings)
    found = BtfTypes(drgn.Program(drgn.Platform(drgn.Architecture.X86_64)), core.Btf(str(tmp_path / "btf")))
    enumeration = found.get(1)
    assert [(one.name, one.value) for one in enumeration.enumerators] == [("KERNEL", values[0]), ("USER", values[1])]
    constant = found.constant("KERNEL")
    assert constant is not None
    assert constant.value_() == values[0]
