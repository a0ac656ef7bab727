# SPDX-License-Identifier: MIT
"""A name that several places of the kernel have is an answer for none of them."""

from __future__ import annotations

import platform
import subprocess
import sys
import types
from pathlib import Path

import pytest

from sampleblk_lab._native import core
from sampleblk_lab.errors import InputError

pytest.importorskip("drgn")
from sampleblk_lab.inspect import patching
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


@pytest.mark.skipif(platform.machine() != "x86_64", reason="x86-64's sites")
def test_a_handler_is_not_that_of_another_function_of_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "kallsyms"
    path.write_text(
        "ffffffff81000000 T _text\n"
        "ffffffff81000100 t show\n"
        "ffffffff81000200 t init\n"
        "ffffffff81000300 t init\n"
        "ffffffffc0000000 t show\t[ext4]\n"
    )
    known = core.KernelNames(str(path))
    called = types.SimpleNamespace(read=lambda *_: b"\xe8" + bytes(31))
    there = [("show", "ext4", "of_ext4"), ("show", "", "of_kernel"), ("init", "", "one"), ("init", "", "other")]
    monkeypatch.setattr(patching, "kernel", lambda: called)
    monkeypatch.setattr(patching, "names", lambda: known)
    monkeypatch.setattr(patching, "symbol_name", lambda address: (known.at(address) or ("trampoline",))[0])
    monkeypatch.setattr(patching, "patched", lambda: [patching.Patched(name, mod, 1, by) for name, mod, by in there])
    targets = [
        patching.entry(address).target for address in (0xFFFFFFFF81000100, 0xFFFFFFFFC0000000, 0xFFFFFFFF81000200)
    ]
    assert targets[:2] == ["ftrace_trampoline → of_kernel", "ftrace_trampoline → of_ext4"]
    assert "→" not in targets[2]


def test_without_drgn_it_is_said_what_to_install() -> None:
    """Also to who reads a guest that hangs, whose deadline ended with ModuleNotFoundError otherwise."""
    program = (
        "import sys\n"
        "sys.modules['drgn'] = None\n"
        "from sampleblk_lab.errors import UnsupportedError\n"
        "try: from sampleblk_lab.inspect.elsewhere import Elsewhere\n"
        "except UnsupportedError as error: print(error)\n"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert said == "looking into the kernel: drgn is not installed; pip install 'sampleblk-lab[inspect]'\n"
