# SPDX-License-Identifier: MIT
"""The driver compiles without a warning, by the kernel's W=1 and sparse; and how it learns what a kernel has."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from sampleblk_lab.kernels import store
from sampleblk_lab.paths import make_environment
from support import copy_sources

MODULE = Path(__file__).parents[1] / "module"
FINDING = re.compile(r"^.*: (?:warning|error): .*$", re.MULTILINE)

needs_sparse = pytest.mark.skipif(shutil.which("sparse") is None, reason="needs sparse: apt-get install sparse")


def _check(folder: Path, version: str) -> tuple[int, str]:
    """`make check` for a kernel, in a copy."""
    kernel = store.resolve(version)
    done = subprocess.run(
        ["make", "-C", str(folder), "check", f"KDIR={kernel.build}"],
        env=make_environment(kernel.search_path),
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=500, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return copy_sources(MODULE, tmp_path)


@needs_sparse
@pytest.mark.parametrize(
    "version", ["6.1", *(pytest.param(other, marks=pytest.mark.full) for other in ("5.10", "6.12", "7.2"))]
)
def test_neither_the_compiler_nor_sparse_has_a_warning(copy: Path, version: str) -> None:
    sources = {path.stem for folder in ("core", "block", "control") for path in (copy / folder).glob("*.c")}
    assert len(sources) > 20
    status, said = _check(copy, version)
    assert status == 0, said
    assert FINDING.findall(said) == []
    # Sparse has seen each file of the driver.
    assert sources <= set(re.findall(r"CHECK +.*?(\w+)\.c$", said, re.MULTILINE))


@needs_sparse
@pytest.mark.full
def test_a_mistake_is_found(copy: Path) -> None:
    with (copy / "core/chunk_list.c").open("a") as file:
        file.write(
            "int sblk_mistake(const int __user *user);\n"
            "int sblk_mistake(const int __user *user)\n{\n\treturn *user;\n}\n"
        )
    _, said = _check(copy, "6.1")
    assert any("chunk_list.c" in line and "noderef" in line for line in FINDING.findall(said)), said


def _detect(copy: Path, version: str, *through: str | Path) -> tuple[int, set[str], str]:
    """What a kernel has, by the driver's probes, with kbuild called through a command."""
    kernel = store.resolve(version)
    # The stand-in for a compiler that is not installed comes with it.
    config = ["make", "-C", str(copy), f"KDIR={kernel.build}", f"{copy}/generated/config.h"]
    environment = make_environment(kernel.search_path)
    done = subprocess.run(config, env=environment, capture_output=True, text=True, timeout=300, check=False)
    if not through:
        defined = re.findall(r"^#define SBLK_HAVE_(\w+) 1$", (copy / "generated/config.h").read_text(), re.MULTILINE)
        return done.returncode, {name.lower() for name in defined}, done.stderr
    environment["PATH"] = f"{copy}/generated/bin:{environment['PATH']}"
    kbuild = ["make", "-C", str(kernel.build), f"SBLK_SRC={copy}"]
    done = subprocess.run(
        ["sh", copy / "probes/detect", copy, *through, *kbuild],
        env=environment, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    return done.returncode, set(done.stdout.split()) - {"always"}, done.stderr


@pytest.mark.full
@pytest.mark.parametrize("version", ["5.10", "6.1", "6.12", "7.2"])
def test_probes_find_together_what_each_finds_alone(copy: Path, tmp_path: Path, version: str) -> None:
    alone = tmp_path / "alone"
    alone.write_text('case "$*" in *passed.o) exit 1 ;; esac\nexec "$@"\n')
    status, together, said = _detect(copy, version)
    assert status == 0, said
    assert 3 < len(together) < len(list((copy / "probes").glob("*.c"))) - 5
    assert _detect(copy, version, "sh", alone) == (0, together, "")


def test_headers_that_compile_nothing_are_told_from_a_kernel_that_has_nothing(copy: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.write_text('echo "linux/kconfig.h: No such file"\nexit 1\n')
    status, found, said = _detect(copy, "6.1", "sh", broken)
    assert (status, found) == (1, set())
    assert "No such file" in said
