# SPDX-License-Identifier: MIT
"""What building for another Debian's kernel takes and this system lacks: its compiler, and a libc for kbuild's tools.

The headers of a kernel of trixie name gcc-14, and their fixdep, modpost and objtool want trixie's libc. Those packages
are unpacked into the cache, and each program there is replaced by a two-line script that runs it under the loader and
with the libraries beside it (ld.so(8), ``--library-path``). That needs no root, no chroot and no user namespace, and
the programs mix with the system's own shell, make and Python.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from sampleblk_lab.errors import UnsupportedError
from sampleblk_lab.kernels import debian
from sampleblk_lab.paths import built_directory, cache_root, find_program, locked
from sampleblk_lab.progress import step

if TYPE_CHECKING:
    from collections.abc import Sequence

_LIBRARIES = ("usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu")
_LOADER = "ld-linux-x86-64.so.2"

# Where the packages of a compiler keep programs: what the user calls, and what the compiler calls.
_PROGRAMS = ("usr/bin", "usr/libexec", "usr/lib/gcc")

# The end of a program's name once a script stands in its place.
_MOVED = ".elf"


def compiler_of(headers: Path) -> str | None:
    """The compiler that a headers package names, such as ``"gcc-14"``; None when it names none."""
    variables = headers / ".kernelvariables"
    found = re.search(r"gcc-\d+", variables.read_text()) if variables.exists() else None
    return found.group() if found else None


def programs(folder: Path) -> list[Path]:
    """The ELF programs in a folder and below it; no links, and no libraries."""
    found = []
    for path in sorted(folder.rglob("*")):
        if path.is_symlink() or not path.is_file() or not os.access(path, os.X_OK) or ".so" in path.suffixes:
            continue
        with path.open("rb") as file:
            if file.read(4) == b"\x7fELF":
                found.append(path)
    return found


def runs_here(program: Path) -> bool:
    """Whether the system's loader finds every library, and every version of one, that a program wants (ldd(1))."""
    done = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=False)
    return "not found" not in done.stdout + done.stderr


def wrap(found: Sequence[Path], root: Path, *, scratch: Path, final: Path) -> None:
    """Puts a script in each program's place that runs it under the loader of the packages unpacked in `root`.

    Args:
        found: The programs.
        root: What the loader and the libraries are in, now or (where that is `final`) as soon as it has that name.
        scratch: The folder that the programs are in now.
        final: The folder that `scratch` is going to be.
    """
    now = scratch if root == final else root
    loader = next(now / name / _LOADER for name in _LIBRARIES if (now / name / _LOADER).exists())
    at = root / loader.relative_to(now)
    libraries = ":".join(str(root / name) for name in _LIBRARIES)
    # Programs find their parts by the name they are called by; glibc 2.33 and later can keep that.
    keeps_name = b"--argv0" in loader.read_bytes()
    for path in found:
        moved = path.with_name(f"{path.name}{_MOVED}")
        path.rename(moved)
        target = final / moved.relative_to(scratch)
        name = '--argv0 "$0" ' if keeps_name else ""
        path.write_text(f'#!/bin/sh\nexec "{at}" --library-path "{libraries}" {name}"{target}" "$@"\n')
        path.chmod(0o755)


def _suites(suite: str) -> list[debian.Suite]:
    """A suite and the one that it adds to: backports and security updates depend on packages of the release."""
    names = dict.fromkeys([suite, suite.split("-")[0]])
    return [debian.Suite(name) for name in names]


def _closure(wanted: Sequence[str], suites: Sequence[debian.Suite]) -> dict[str, debian.Suite]:
    """The packages and all that they depend on, each with the suite that has it."""
    known = {suite: set(suite.names(".*")) for suite in suites}
    found: dict[str, debian.Suite] = {}
    left = set(wanted)
    while left:
        below: list[str] = []
        for suite in suites:
            # A name that no suite has is one that another package provides; ld.so says so if it is missed.
            here = sorted(left & known[suite] - set(found))
            found.update(dict.fromkeys(here, suite))
            if here:
                below += suite.dependencies(*here)
        left = set(below) - set(found)
    return found


def fetch(suite: str, packages: Sequence[str]) -> Path:
    """Unpacks packages, with all that they need, into the cache, once, with each program runnable here.

    Args:
        suite: The Debian suite that a kernel came from; what it lacks comes from the release that it adds to.
        packages: Names of packages, such as ``gcc-14``.

    Returns:
        The folder they are unpacked in; its ``usr/bin`` is to come first in ``PATH``.

    Raises:
        UnsupportedError: No suite has one of `packages`.
        sampleblk_lab.kernels.debian.PackageError: apt could not get them.
    """
    key = hashlib.sha256("\n".join(sorted(packages)).encode()).hexdigest()[:8]
    target = cache_root() / "tools" / f"{suite.split('-')[0]}-{key}"
    with locked(target):
        if not _is_wrapped_for(target):
            with step(f"fetching {', '.join(packages)} of {suite}"), built_directory(target) as scratch:
                found = _closure(packages, _suites(suite))
                lacking = [name for name in packages if name not in found]
                if lacking:
                    raise UnsupportedError(f"building for kernels of {suite}", f"it has no package {lacking[0]}")
                for each in dict.fromkeys(found.values()):
                    each.unpack([name for name, its in found.items() if its is each], scratch)
                there = [path for name in _PROGRAMS for path in programs(scratch / name)]
                wrap(there, target, scratch=scratch, final=target)
    return target


def run_depmod(root: Path, release: str) -> None:
    """Writes the indices of ``lib/modules/RELEASE`` below `root` (depmod(8)). Raises UnsupportedError."""
    depmod = find_program("depmod")
    if depmod is None:
        raise UnsupportedError("module dependencies", "the depmod program is not installed", "apt-get install kmod")
    debian.run([depmod, "-b", str(root), release])


def relocate_headers(root: Path, release: str, final: Path) -> None:
    """Debian's header tree names itself and its common half by absolute paths: point those to where they will be.

    Args:
        root: What the headers' packages are unpacked in.
        release: The kernel's.
        final: The folder that `root` is going to be.
    """
    makefile = root / "usr/src" / f"linux-headers-{release}" / "Makefile"
    text = makefile.read_text()
    makefile.write_text(
        re.sub(r"^(include |KBUILD_OUTPUT=)/usr/src/", rf"\g<1>{final}/usr/src/", text, flags=re.MULTILINE)
    )


def _is_wrapped_for(tools: Path) -> bool:
    """Whether programs are there that were unpacked for there: scripts of a cache that was moved name where it was."""
    moved = next((tools / "usr/bin").glob(f"*{_MOVED}"), None)
    return (tools / "usr/bin").is_dir() and (moved is None or f'"{tools}/' in moved.with_suffix("").read_text())


def _found(package: str) -> bool:
    """Whether what a package of kbuild's dependencies is for can be run here: the program of its name."""
    return find_program(package) is not None


def missing(build: Path, tools: Path | None) -> list[str]:
    """The programs that building a module against a header tree runs and that are nowhere to be found.

    Args:
        build: The folder that ``make -C`` takes.
        tools: The folder of programs that came with the kernel.
    """
    wanted = [compiler_of(build) or "gcc", "make"]
    if (build / "vmlinux").exists():
        wanted.append("pahole")  # for the module's BTF (scripts/Makefile.modfinal)
    return [name for name in wanted if not _found(name) and not (tools is not None and (tools / name).exists())]


def _is_library(package: str, suite: str) -> bool:
    for each in _suites(suite):
        if each.names(re.escape(package)):
            return each.show(package)[package].get("Section") == "libs"
    return False


def prepare(suite: debian.Suite, headers: Path, kbuild: str | None, *, scratch: Path, final: Path) -> Path | None:
    """Makes freshly unpacked kernel headers fit to build against on this system.

    kbuild runs programs of other packages too: the kernel's compiler, and pahole where the headers bring a vmlinux
    (scripts/Makefile.modfinal, CONFIG_DEBUG_INFO_BTF_MODULES). What its packages depend on says which.

    Args:
        suite: Where they came from.
        headers: The headers' folder.
        kbuild: The package of kbuild's tools among what was unpacked.
        scratch: The folder that everything was unpacked in.
        final: The folder that it is going to be.

    Returns:
        The folder of programs that a build must find first, or None when the system's own are good.
    """
    compiler = compiler_of(headers)
    tools = [path for folder in scratch.glob("usr/lib/linux-kbuild-*") for path in programs(folder)]
    foreign = [path for path in tools if not runs_here(path)]
    wanted = []
    if compiler is not None and not _found(compiler):
        wanted.append(compiler)
    if kbuild is not None:
        needs = suite.dependencies(kbuild)
        # The libraries are there, or the tools would be foreign.
        wanted += [name for name in needs if foreign or not (_found(name) or _is_library(name, suite.name))]
    if not wanted:
        return None
    root = fetch(suite.name, wanted)
    if foreign:
        wrap(foreign, root, scratch=scratch, final=final)
    return root / "usr/bin"
