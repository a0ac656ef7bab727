# SPDX-License-Identifier: MIT
"""Finding a QEMU that can be trusted with a tracing guest."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import subprocess
import time
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from sampleblk_lab.errors import SampleblkError, UnsupportedError
from sampleblk_lab.kernels import debian
from sampleblk_lab.paths import (
    CacheError,
    built_directory,
    cache_root,
    find_program,
    fingerprint,
    locked,
    write_atomically,
)
from sampleblk_lab.progress import step

PROGRAM = "qemu-system-x86_64"

# Before this, TCG translates code without holding its page, so with one thread a CPU a guest loses code patches: the
# kernel's text_poke() ends in int3 oopses and lockups as soon as ftrace is switched on with two CPUs.
# Fixed by "accel/tcg: Always lock pages before translation", QEMU 8.1.
_SAFE_MTTCG = (8, 1)

_VERSION = re.compile(r"version (\d+(?:\.\d+)+)")

# A mirror that did not answer may answer tomorrow.
_ASK_AGAIN_S = 24 * 3600

# The packages of a QEMU that runs from a folder of the cache.
_PACKAGES = ("qemu-system-x86", "qemu-system-common", "qemu-system-data", "seabios")


def option_value(path: str | os.PathLike[str]) -> str:
    """A path as QEMU's options take it, with each comma twice."""
    return os.fspath(path).replace(",", ",,")


@dataclass(frozen=True)
class Qemu:
    """A QEMU system emulator for x86-64.

    Attributes:
        program: Its executable.
        firmware: Folders of its firmware, where they are not the built-in ones.
        version: Such as ``(10, 0, 2)``.
    """

    program: Path
    firmware: tuple[Path, ...]
    version: tuple[int, ...]

    @property
    def command(self) -> list[str]:
        """The executable and the options that every use of it needs."""
        return [str(self.program), *(part for folder in self.firmware for part in ("-L", str(folder)))]

    @property
    def version_text(self) -> str:
        """Such as ``"10.0.2"``."""
        return ".".join(map(str, self.version))

    @property
    def tcg(self) -> str:
        """The ``-accel`` value for emulation: one thread a CPU where that is safe."""
        return "tcg,thread=multi" if self.version >= _SAFE_MTTCG else "tcg,thread=single"

    @property
    def identity(self) -> str:
        """Changes when the executable does."""
        return f"{self.program} {fingerprint(self.program, ctime=False)}"


def _version(program: Path) -> tuple[int, ...]:
    # Asked once, since starting it takes a quarter of a second; the answer is cached under what identifies it.
    key = hashlib.sha256(fingerprint(program, ctime=False).encode()).hexdigest()[:16]
    cached = cache_root() / "qemu" / f"version-{key}"
    try:
        found = _VERSION.search(cached.read_text(errors="replace"))
    except OSError:
        found = None
    if found is None:
        done = subprocess.run([str(program), "--version"], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            said = f"exit status {done.returncode}: {done.stderr.strip()}"
            raise UnsupportedError(str(program), f"it does not say its version: {said}", "install it again")
        text = done.stdout
        found = _VERSION.search(text)
        with contextlib.suppress(OSError):  # then it is asked again
            write_atomically(cached, text.encode())
    if found is None:
        raise UnsupportedError(str(program), f"it does not say its version: {text.strip()!r}")
    return tuple(int(number) for number in found[1].split("."))


def _cached(suite: str) -> Qemu | None:
    # One path, whatever links lead there: templates are of the QEMU that has it.
    root = (cache_root() / "qemu" / suite).resolve()
    program = root / "usr/bin" / PROGRAM
    try:
        version = _version(program)
    except (OSError, UnsupportedError):
        return None  # not there, or damaged: fetched again
    return Qemu(program, (root / "usr/share/qemu", root / "usr/share/seabios"), version)


def _fetch_newer(suite: str) -> Qemu | None:
    """A newer QEMU from the system's backports, in the cache; None when it cannot be had or does not run here."""
    target = cache_root() / "qemu" / suite
    if refusal(suite):
        return None
    with locked(target):
        if _cached(suite) is None:
            try:
                with step(f"fetching a newer QEMU from {suite}"), built_directory(target) as scratch:
                    debian.Suite(suite).unpack(_PACKAGES, scratch)
                    _version(scratch / "usr/bin" / PROGRAM)
            except CacheError:
                raise
            except (SampleblkError, OSError) as error:
                write_atomically(_refused(suite), str(error).encode())
                return None
    return _cached(suite)


def _refused(suite: str) -> Path:
    return cache_root() / "qemu" / f"{suite}.refused"


def refusal(suite: str) -> str:
    """Why a newer QEMU could not be had of late; empty when nothing speaks against trying."""
    path = _refused(suite)
    try:
        recent = time.time() - path.stat().st_mtime < _ASK_AGAIN_S
        return path.read_text(errors="replace") if recent else ""
    except OSError:
        return ""


@lru_cache(maxsize=2)
def find(*, download: bool = True) -> Qemu:
    """The QEMU to use: ``$SAMPLEBLK_QEMU``, else the system's; where that is too old, one from Debian's backports.

    Args:
        download: Fetch the newer one if the cache lacks it.

    Raises:
        UnsupportedError: There is none.
    """
    override = os.environ.get("SAMPLEBLK_QEMU")
    found = find_program(override or PROGRAM)
    if found is None:
        raise UnsupportedError(override or PROGRAM, "not found", "apt-get install qemu-system-x86")
    system = Qemu(Path(found), (), _version(Path(found)))
    if override or system.version >= _SAFE_MTTCG:
        return system
    release = Path("/etc/os-release").read_text() if Path("/etc/os-release").exists() else ""
    codename = re.search(r'^VERSION_CODENAME="?(\w+)', release, re.MULTILINE)
    if codename is None or "ID=debian" not in release:
        return system
    suite = f"{codename[1]}-backports"
    return _cached(suite) or (_fetch_newer(suite) if download else None) or system
