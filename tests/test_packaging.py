# SPDX-License-Identifier: MIT
"""What the set-up says where it cannot install, and what the package says where a library is missing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sampleblk_lab._native import _explain

ROOT = Path(__file__).parents[1]


def _install(tmp_path: Path, listed: str, *options: str) -> subprocess.CompletedProcess[str]:
    (tmp_path / "os-release").write_text("ID=fedora\n")
    (tmp_path / "list").write_text(listed)
    env = {**os.environ, "OS_RELEASE": str(tmp_path / "os-release"), "PACKAGE_LIST": str(tmp_path / "list")}
    script = ROOT / "packaging/install-packages.sh"
    return subprocess.run(["sh", str(script), *options], capture_output=True, text=True, check=False, env=env)


def test_another_distribution_is_told_what_to_install(tmp_path: Path) -> None:
    listed = (
        "# comment\nmake | cmd:make | building\nqemu-system-x86 | cmd:qemu-system-none | virtual machines\n"
        "libfoo-dev | pc:libfoo | foo  # why\nlibbar | file:/no/such/file | bar\n"
    )
    done = _install(tmp_path, listed)
    assert done.returncode == 1
    assert "qemu-system-none (Debian's package qemu-system-x86): virtual machines" in done.stderr
    assert "libfoo (Debian's package libfoo-dev): foo" in done.stderr
    assert "/no/such/file (Debian's package libbar): bar" in done.stderr
    assert "building" not in done.stderr


def test_another_distribution_with_everything_goes_on(tmp_path: Path) -> None:
    assert _install(tmp_path, "make | cmd:make | building\n").returncode == 0


def test_what_only_tests_need_is_left_out_unless_asked_for(tmp_path: Path) -> None:
    listed = "make | cmd:make | building\nperf | cmd:no-such-perf | tests and benchmarks: the peer\n"
    assert _install(tmp_path, listed).returncode == 0
    asked = _install(tmp_path, listed, "--tests")
    assert asked.returncode == 1
    assert "no-such-perf (Debian's package perf): tests and benchmarks: the peer" in asked.stderr
    assert _install(tmp_path, listed, "--test").returncode == 2


def test_the_list_s_probes_hold_here() -> None:
    if "ID=debian" not in Path("/etc/os-release").read_text():
        pytest.skip("the list is Debian's")
    env = {**os.environ, "OS_RELEASE": "/dev/null"}
    done = subprocess.run(
        ["sh", str(ROOT / "packaging/install-packages.sh"), "--tests"],
        capture_output=True,
        text=True,
        check=False,
        env=env,
    )
    assert done.returncode == 0, done.stderr


def test_a_missing_library_names_its_package() -> None:
    error = ImportError("libtracefs.so.1: cannot open shared object file: No such file or directory")
    assert "apt-get install libtracefs1" in str(_explain(error))
    other = ImportError("undefined symbol: foo")
    assert _explain(other) is other


def test_importing_without_the_library_fails_with_that_message(tmp_path: Path) -> None:
    """An extension that needs a library of that name which nobody has."""
    (tmp_path / "stub.c").write_text("int tracefs_stub(void) { return 0; }\n")
    (tmp_path / "user.c").write_text("int tracefs_stub(void);\nint PyInit__core(void) { return tracefs_stub(); }\n")
    library, extension = tmp_path / "libtracefs.so", tmp_path / "_core.so"
    run = lambda *command: subprocess.run(command, check=True, cwd=tmp_path)  # noqa: E731
    run("gcc", "-shared", "-fPIC", "-Wl,-soname,libtracefs.so.999", "-o", str(library), "stub.c")
    run("gcc", "-shared", "-fPIC", "-o", str(extension), "user.c", "-L.", "-ltracefs")
    code = (
        "import importlib.machinery, importlib.util, sys\n"
        "class Finder:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'sampleblk_lab._core':\n"
        f"            loader = importlib.machinery.ExtensionFileLoader(name, {str(extension)!r})\n"
        "            return importlib.util.spec_from_loader(name, loader)\n"
        "sys.meta_path.insert(0, Finder())\n"
        "import sampleblk_lab._native\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert (
        "sampleblk_lab needs the shared library libtracefs, which this system lacks; "
        "install the Debian package libtracefs1" in done.stderr
    )
