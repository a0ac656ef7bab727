# SPDX-License-Identifier: MIT
"""A name that several places of the kernel have is an answer for none of them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from sampleblk_lab._native import core
from sampleblk_lab.errors import InputError

pytest.importorskip("drgn")
from sampleblk_lab.inspect.kernel import only_place


def test_only_one_place_is_an_answer(tmp_path: Path) -> None:
    path = tmp_path / "kallsyms"
    path.write_text(
        "ffffffff81000000 T _text\n"
        "ffffffff81000100 t show\n"
        "ffffffff81000200 T store\n"
        "ffffffff81000200 t store_alias\n"
        "ffffffffc0000000 t show\t[ext4]\n"
    )
    names = core.KernelNames(str(path))
    assert only_place(names, "store", "function") == only_place(names, "store_alias", "function") == 0xFFFFFFFF81000200
    with pytest.raises(InputError, match=r"2 places of this kernel are named 'show'.*0xffffffffc0000000 \[ext4\]"):
        only_place(names, "show", "function")
    with pytest.raises(InputError, match="no function 'nonesuch' in this kernel"):
        only_place(names, "nonesuch", "function")


def test_a_kernel_without_modules_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = sys.modules[only_place.__module__]
    monkeypatch.setattr(kernel, "_MODULES", tmp_path / "modules")
    assert kernel._loaded_modules() == {}
    (tmp_path / "modules").write_text("ext4 1 0 - Live 0xffffffffc0000000\n")
    assert kernel._loaded_modules() == {"ext4": "0xffffffffc0000000"}
