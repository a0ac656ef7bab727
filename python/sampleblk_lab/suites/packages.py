# SPDX-License-Identifier: MIT
"""What a suite needs of this system: ``packaging/debian-suites.txt``, which also installs it on Debian."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from sampleblk_lab.errors import FormatError, UnsupportedError
from sampleblk_lab.paths import find_program, resource

_LIST = "debian-suites.txt"


@dataclass(frozen=True)
class Package:
    """One line of the list.

    Attributes:
        name: Debian's name of the package.
        probe: How to see that it is there: ``cmd:NAME``, ``pc:NAME`` or ``file:PATH``.
        suite: Which suite needs it.
        need: ``"build"`` or ``"run"``: nothing goes without; ``"some"``: some tests.
        purpose: What for.
    """

    name: str
    probe: str
    suite: str
    need: str
    purpose: str

    def is_here(self) -> bool:
        """Whether this system has what is probed for."""
        kind, _, what = self.probe.partition(":")
        if kind == "cmd":
            return find_program(what) is not None
        if kind == "file":
            return Path(what).exists()
        program = find_program("pkg-config")
        done = None if program is None else subprocess.run([program, "--exists", what], check=False)
        return done is not None and done.returncode == 0


def list_path() -> Path:
    """The list: of a source checkout, else the copy that the wheel carries. Raises UnsupportedError."""
    checkout = Path(__file__).resolve().parents[3] / "packaging" / _LIST
    return checkout if checkout.exists() else resource(f"_packaging/{_LIST}")


def packages(suite: str, path: Path | None = None) -> list[Package]:
    """What the list has for a suite.

    Args:
        suite: Its name.
        path: Another list.

    Raises:
        FormatError: A line is not of the list's form.
    """
    path = path or list_path()
    found = []
    at = 0
    for line in path.read_text().splitlines(keepends=True):
        words = [word.strip() for word in line.partition("#")[0].split("|")]
        if words != [""]:
            about, _, purpose = words[-1].partition(":")
            of, _, need = about.partition(" ")
            kind = words[1].partition(":")[0] if len(words) == 3 else ""
            if kind not in ("cmd", "pc", "file") or need not in ("build", "run", "some"):
                raise FormatError(str(path), at, "package | cmd:, pc: or file: | SUITE build, run or some: purpose")
            if of == suite:
                found.append(Package(words[0], words[1], of, need, purpose.strip()))
        at += len(line.encode())
    return found


def check(suite: str, path: Path | None = None) -> list[Package]:
    """Looks whether what a suite needs is here.

    Args:
        suite: Its name.
        path: Another list.

    Returns:
        What only some tests need and is not here.

    Raises:
        UnsupportedError: What nothing goes without is not here; says what to install.
    """
    lacking = [package for package in packages(suite, path) if not package.is_here()]
    needed = [package for package in lacking if package.need != "some"]
    if needed:
        reasons = ", ".join(f"{package.probe.partition(':')[2]} ({package.purpose})" for package in needed)
        names = " ".join(dict.fromkeys(package.name for package in needed))
        raise UnsupportedError(
            suite, f"this system has no {reasons}", f"on Debian: apt-get install --no-install-recommends {names}"
        )
    return lacking
