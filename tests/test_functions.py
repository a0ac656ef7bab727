# SPDX-License-Identifier: MIT
"""Functions that users name, whose files change from one commit to the next."""

from __future__ import annotations

import os
import py_compile
import sys
from importlib.util import cache_from_source
from pathlib import Path

import pytest

from sampleblk_lab.errors import InputError
from sampleblk_lab.functions import named


def _write(path: Path, value: int) -> None:
    """Of the same size and the same second each time, by which Python would take the bytecode for this file's."""
    path.write_text(f"def value():\n    return {value}\n")
    os.utime(path, (1_000_000_000, 1_000_000_000))


def test_a_file_is_what_it_says_now(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    _write(file, 1)
    py_compile.compile(str(file), invalidation_mode=py_compile.PycInvalidationMode.TIMESTAMP)
    _write(file, 2)
    assert named("mine.py:value", "a test", files_in=tmp_path)() == 2
    _write(file, 3)
    assert named("mine.py:value", "a test", files_in=tmp_path)() == 3


@pytest.mark.parametrize("text", ["mine.py:value", "mine:value"])
def test_no_bytecode_is_left_behind(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(sys, "path", [*sys.path])
    _write(tmp_path / "neighbour_of_mine.py", 4)
    (tmp_path / "mine.py").write_text("from neighbour_of_mine import value\n")
    try:
        assert named(text, "a test", files_in=tmp_path)() == 4
    finally:
        for name in ("mine", "neighbour_of_mine"):
            sys.modules.pop(name, None)
    assert not Path(cache_from_source(tmp_path / "neighbour_of_mine.py")).parent.exists()
    assert not sys.dont_write_bytecode


@pytest.mark.parametrize("text", ["mine", ":value", "mine:", ".mine:value", "..mine:value", ".:value"])
@pytest.mark.parametrize("files_in", [None, Path()])
def test_what_names_no_function_is_refused(text: str, files_in: Path | None) -> None:
    with pytest.raises(InputError, match="is not the name of a function"):
        named(text, "a test", files_in=files_in)
