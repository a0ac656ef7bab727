# SPDX-License-Identifier: MIT
"""Finding a QEMU that can be trusted with a tracing guest."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from sampleblk_lab.errors import SampleblkError, UnsupportedError
from sampleblk_lab.kernels import debian
from sampleblk_lab.paths import built_directory, cache_root, locked
from sampleblk_lab.progress import step

PROGRAM = "qemu-system-x86_64"

# Before this, TCG translates code without holding its page, so with one thread a CPU a guest loses code patches: the
# kernel's text_poke() ends in int3 oopses and lockups as soon as ftrace is switched on with two CPUs.
# Fixed by "accel/tcg: Always lock pages before translation", QEMU 8.1.
_SAFE_MTTCG = (8, 1)

# The packages of a QEMU that runs from a folder of the cache.
_PACKAGES = ("qemu-system-x86", "qemu-system-common", "qemu-system-data", "seabios")


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
        status = self.program.stat()
        return f"{self.program} {status.st_size} {status.st_mtime_ns} {self.version_text}"


def _version(program: Path) -> tuple[int, ...]:
    # An executable does not change its version: asked once, the answer is cached beside what identifies it.
    status = program.stat()
    cached = cache_root() / "qemu" / f"version-{status.st_size}-{status.st_mtime_ns}"
    if cached.exists():
        text = cached.read_text()
    else:
        text = subprocess.run([str(program), "--version"], capture_output=True, text=True, check=True).stdout
        cached.parent.mkdir(parents=True, exist_ok=True)
        cached.write_text(text)
    found = re.search(r"version (\d+(?:\.\d+)+)", text)
    if found is None:
        raise UnsupportedError(str(program), f"it does not say its version: {text.strip()!r}")
    return tuple(int(number) for number in found[1].split("."))


def _cached(suite: str) -> Qemu | None:
    root = cache_root() / "qemu" / suite
    program = root / "usr/bin" / PROGRAM
    if not program.exists():
        return None
    return Qemu(program, (root / "usr/share/qemu", root / "usr/share/seabios"), _version(program))


def _fetch_newer(suite: str) -> Qemu | None:
    """A newer QEMU from the system's backports, in the cache; None when it cannot be had or does not run here."""
    target = cache_root() / "qemu" / suite
    refused = target.with_name(f"{suite}.refused")
    if refused.exists():
        return None
    with locked(target):
        if _cached(suite) is None:
            try:
                with step(f"fetching a newer QEMU from {suite}"), built_directory(target) as scratch:
                    debian.Suite(suite).unpack(_PACKAGES, scratch)
                    _version(scratch / "usr/bin" / PROGRAM)
            except (SampleblkError, OSError, subprocess.CalledProcessError) as error:
                refused.write_text(str(error))
                return None
    return _cached(suite)


@lru_cache(maxsize=1)
def find() -> Qemu:
    """The QEMU to use: ``$SAMPLEBLK_QEMU``, else the system's; where that is too old, one from Debian's backports.

    Raises:
        UnsupportedError: There is none.
    """
    override = os.environ.get("SAMPLEBLK_QEMU")
    found = shutil.which(override or PROGRAM)
    if found is None:
        raise UnsupportedError(override or PROGRAM, "not found", "apt-get install qemu-system-x86")
    system = Qemu(Path(found), (), _version(Path(found)))
    if override or system.version >= _SAFE_MTTCG:
        return system
    release = Path("/etc/os-release").read_text() if Path("/etc/os-release").exists() else ""
    codename = re.search(r'^VERSION_CODENAME="?(\w+)', release, re.MULTILINE)
    if codename is None or "ID=debian" not in release:
        return system
    return _cached(f"{codename[1]}-backports") or _fetch_newer(f"{codename[1]}-backports") or system
