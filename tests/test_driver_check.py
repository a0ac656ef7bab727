# SPDX-License-Identifier: MIT
"""The driver compiles without a warning: the kernel's W=1, and sparse."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from sampleblk_lab.kernels import store
from support import copy_sources

MODULE = Path(__file__).parents[1] / "module"
FINDING = re.compile(r"^.*: (?:warning|error): .*$", re.MULTILINE)

pytestmark = pytest.mark.skipif(shutil.which("sparse") is None, reason="needs sparse: apt-get install sparse")


def _check(folder: Path, version: str) -> tuple[int, str]:
    """`make check` for a kernel, in a copy."""
    kernel = store.resolve(version)
    done = subprocess.run(
        ["make", "-C", str(folder), "check", f"KDIR={kernel.build}"],
        env={**os.environ, "PATH": kernel.search_path},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=500, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return copy_sources(MODULE, tmp_path)


@pytest.mark.parametrize(
    "version", ["6.1", *(pytest.param(other, marks=pytest.mark.full) for other in ("5.10", "6.12", "7.2"))]
)
def test_neither_the_compiler_nor_sparse_has_a_warning(copy: Path, version: str) -> None:
    sources = {path.stem for path in copy.glob("*.c")}
    status, said = _check(copy, version)
    assert status == 0, said
    assert FINDING.findall(said) == []
    # Sparse has seen each file of the driver.
    assert sources <= set(re.findall(r"CHECK +.*?(\w+)\.c$", said, re.MULTILINE))


@pytest.mark.full
def test_a_mistake_is_found(copy: Path) -> None:
    with (copy / "log.c").open("a") as file:
        file.write(
            "int sblk_mistake(const int __user *user);\n"
            "int sblk_mistake(const int __user *user)\n{\n\treturn *user;\n}\n"
        )
    _, said = _check(copy, "6.1")
    assert any("log.c" in line and "noderef" in line for line in FINDING.findall(said)), said
