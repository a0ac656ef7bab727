# SPDX-License-Identifier: MIT
"""What the set-up says where it cannot install, and what the package says where a library is missing."""

import functools
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from bench import bench_vm
from sampleblk_lab import kernels
from sampleblk_lab._native import _explain
from sampleblk_lab.kernels import driver
from sampleblk_lab.paths import cache_root

ROOT = Path(__file__).parents[1]
PACKAGES = ROOT / "packaging/debian.txt"


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


def test_what_the_vm_benchmark_s_peer_needs_is_listed() -> None:
    listed = re.findall(r"^(\S+) *\| *\w+:(\S+) *\| tests and benchmarks:", PACKAGES.read_text(), re.MULTILINE)
    assert set(bench_vm.PEER_NEEDS.items()) <= {(probe, package) for package, probe in listed}


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


def test_cpp_meets_the_kernel_s_headers_in_one_place() -> None:
    """They are C and change under us; linux_headers.hpp keeps C++'s own words out of their way."""
    ours = {"linux/sampleblk.h"}
    wrapper = ROOT / "cpp/include/sampleblk/linux_headers.hpp"
    sources = [path for path in (ROOT / "cpp").rglob("*") if path.suffix in (".hpp", ".cpp") and path != wrapper]
    assert len(sources) > 100
    strays = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in sources
        for name in re.findall(r"#\s*include\s*<((?:linux|asm|asm-generic)/[^>]+)>", path.read_text())
        if name not in ours
    ]
    assert not strays


def test_a_kernel_header_may_use_cpp_s_words(tmp_path: Path) -> None:
    """As <linux/ioprio.h> of linux-libc-dev 6.1.192 does, and any other may tomorrow."""
    headers = re.findall(
        r"^#include <((?:linux|asm)/[^>]+)>",
        (ROOT / "cpp/include/sampleblk/linux_headers.hpp").read_text(),
        re.MULTILINE,
    )
    assert "linux/ioprio.h" in headers
    (tmp_path / "linux").mkdir()
    (tmp_path / "asm").mkdir()
    words = "class delete explicit friend namespace new operator private public template this throw typename using"
    parameters = ", ".join(f"int {word}" for word in words.split())
    for name in headers:
        # The three that have C++ of their own come first in the wrapper, without its protection.
        hostile = name not in ("linux/ioctl.h", "linux/stddef.h", "linux/types.h")
        function = (
            f"static inline int {re.sub(r'[/.]', '_', name)}({parameters}) {{ return new; }}\n" if hostile else ""
        )
        (tmp_path / name).write_text(f"#pragma once\n#include_next <{name}>\n{function}")
    command = [
        "g++",
        "-std=c++20",
        "-fsyntax-only",
        "-Werror",
        f"-I{tmp_path}",
        f"-I{ROOT}/cpp/include",
        "-x",
        "c++",
        "-",
    ]
    done = subprocess.run(
        command, input='#include "sampleblk/linux_headers.hpp"\n', capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@functools.cache
def _system() -> frozenset[str]:
    """The packages that every Debian has, and what they depend on."""
    listed = subprocess.run(
        ["dpkg-query", "-W", "-f=${Package} ${Essential} ${Priority}\n"], capture_output=True, text=True, check=True
    ).stdout
    base = [
        line.split()[0] for line in listed.splitlines() if line.split()[1:] in (["yes", "required"], ["no", "required"])
    ]
    return _with_dependencies(tuple(base))


@functools.cache
def _with_dependencies(packages: tuple[str, ...]) -> frozenset[str]:
    command = ["apt-cache", "depends", "--recurse", "--installed", "--no-recommends", "--no-suggests", "--no-enhances"]
    command += ["--no-conflicts", "--no-breaks", "--no-replaces", *packages]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return frozenset(re.findall(r"[a-z0-9][a-z0-9+.-]+", said))


def _listed() -> tuple[str, ...]:
    """The packages of packaging/debian.txt that whoever runs make demo gets."""
    entries = (ROOT / "packaging/debian.txt").read_text().splitlines()
    wanted = [line.split("|") for line in entries if line.strip() and not line.startswith("#")]
    return tuple(fields[0].strip() for fields in wanted if not fields[2].strip().startswith("tests"))


def _executed(command: list[str], log: Path) -> set[Path]:
    """The programs that a command and all below it run (strace(1)); other calls are not stopped at."""
    options = ["-fqq", "--seccomp-bpf", "-e", "trace=execve", "-e", "signal=none", "-s", "4096", "-o", str(log)]
    done = subprocess.run(["strace", *options, *command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return _succeeded(log.read_text())


def _succeeded(log: str) -> set[Path]:
    """Of the execve calls of a strace log, on a busy machine split over two lines, those that succeeded."""
    programs, begun = set(), {}
    for line in log.splitlines():
        pid, _, call = line.partition(" ")
        if found := re.match(r' *execve\("([^"]+)"', call):
            begun[pid] = Path(found[1])
        if call.endswith(" = 0") and ("execve(" in call or "<... execve resumed>" in call):
            programs.add(begun[pid])
    return programs


def test_calls_that_strace_split_are_counted() -> None:
    log = """\
12 execve("/usr/bin/make", ["make"], 0x7ffd /* 9 vars */) = 0
13 execve("/usr/local/bin/as", ["as"], 0x7ffd /* 9 vars */) = -1 ENOENT (No such file or directory)
13 execve("/usr/bin/as", ["as"], 0x7ffd /* 9 vars */ <unfinished ...>
14 execve("/usr/bin/ld", ["ld"], 0x7ffd /* 9 vars */ <unfinished ...>
13 <... execve resumed>)                   = 0
14 <... execve resumed>)                   = -1 ENOENT (No such file or directory)
"""
    assert _succeeded(log) == {Path("/usr/bin/make"), Path("/usr/bin/as")}


def _strays(programs: set[Path]) -> set[str]:
    """Those that come neither from a package of the list, nor with every Debian, nor from our own folders."""
    known = _with_dependencies(_listed()) | _system()
    ours = (
        cache_root(),
        ROOT,
        Path(sys.prefix),
        Path(sys.base_prefix) if sys.base_prefix != "/usr" else ROOT,
        Path("/tmp"),
    )
    strays = set()
    for program in programs:
        if any(folder in program.parents or folder in program.resolve().parents for folder in ours):
            continue
        if program.name == "awk":
            continue  # base-files depends on one; which, mawk or gawk, is the system's choice
        owners = set()
        for path in {
            program,
            program.resolve(),
            Path("/usr") / program.relative_to("/"),
            Path(f"/{str(program).removeprefix('/usr/')}"),
        }:
            found = subprocess.run(["dpkg-query", "-S", str(path)], capture_output=True, text=True, check=False).stdout
            owners |= {
                owner.split(":")[0] for line in found.splitlines() for owner in line.partition(": ")[0].split(", ")
            }
        if not owners & known:
            strays.add(f"{program} ({', '.join(sorted(owners)) or 'no package'})")
    return strays


@pytest.mark.skipif("ID=debian" not in Path("/etc/os-release").read_text(), reason="the list is Debian's")
@pytest.mark.parametrize("series", ["6.1", "6.12"])
def test_what_building_the_driver_runs_is_in_the_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, series: str
) -> None:
    """From a cold cache: the driver is built as for a kernel that has just been fetched."""
    # As within somebody's `make -j2 CC=false`.
    monkeypatch.setenv("MAKEFLAGS", " -j2 --jobserver-auth=3,4 -- CC=false")
    monkeypatch.setenv("MAKELEVEL", "1")
    kernel = kernels.resolve(series)
    code = (
        "import sys\nfrom pathlib import Path\n"
        "from sampleblk_lab import kernels\nfrom sampleblk_lab.kernels import driver\n"
        "folder = Path(sys.argv[2]); folder.mkdir()\n"
        "driver._build(kernels.resolve(sys.argv[1]), driver.module_source(), folder)"
    )
    programs = _executed([sys.executable, "-c", code, kernel.release, str(tmp_path / "tree")], tmp_path / "log")
    names = {program.name for program in programs}
    assert {"make", "as", "modpost"} <= names
    if series == "6.12":
        assert "pahole" in names
    assert driver._whole(tmp_path / "tree")
    assert not _strays(programs)


@pytest.mark.skipif("ID=debian" not in Path("/etc/os-release").read_text(), reason="the list is Debian's")
def test_what_a_vm_runs_is_in_the_list(tmp_path: Path) -> None:
    programs = _executed([sys.executable, "-m", "sampleblk_lab.vm.python", "--cold", "-c", "pass"], tmp_path / "log")
    assert any(program.name.startswith("qemu-system") for program in programs)
    assert not _strays(programs)


def test_a_program_of_no_listed_package_is_found() -> None:
    assert _strays({Path("/usr/bin/strace")}) == {"/usr/bin/strace (strace)"}
