# SPDX-License-Identifier: MIT
"""Debian packages of any suite, without root and without touching the system's apt (apt_preferences(5), apt.conf(5)).

Each suite gets a private apt root in the cache: its own sources, lists and archives, signed by the system's Debian
keyring. The mirror is the one that the system's own apt uses.
"""

from __future__ import annotations

import functools
import os
import re
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

from sampleblk_lab.errors import SampleblkError, UnsupportedError
from sampleblk_lab.paths import cache_root, filling_cache, find_program, locked, scratch_directory, tied

if TYPE_CHECKING:
    from collections.abc import Sequence

KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"

# A suite's package lists are asked for again after this long.
_LISTS_MAX_AGE_S = 24 * 3600


class PackageError(SampleblkError, RuntimeError):
    """apt, dpkg or depmod could not do what was asked; the message carries what it printed."""


def run(command: Sequence[str], cwd: Path | None = None) -> str:
    """What a program of the system prints. It ends when we do: apt-get holds a lock. Raises PackageError."""
    environment = {**os.environ, "LC_ALL": "C"}
    done = subprocess.run(
        tied(command, "KILL"), cwd=cwd, capture_output=True, errors="backslashreplace", check=False, env=environment
    )
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip()
        raise PackageError(f"{' '.join([command[0], *command[-2:]])}: exit status {done.returncode}: {said}")
    return done.stdout


def control(package: Path) -> dict[str, str]:
    """What a package file says of itself: the first line of each field. Raises PackageError."""
    text = run(["dpkg-deb", "--field", str(package)])
    return dict(re.findall(r"^([A-Za-z-]+): *(.*)$", text, re.MULTILINE))


def extract(package: Path, into: Path) -> None:
    """Unpacks the files of a package file under `into`, where its links stay, whatever it is. Raises PackageError."""
    run(["dpkg", "-x", str(package), str(into)])  # tar writes through none of the links in the same package
    root = into.resolve()
    for at, folders, names in os.walk(root):
        for link in (path for path in (Path(at, name) for name in (*folders, *names)) if path.is_symlink()):
            target = str(link.readlink())
            if target.startswith("/"):  # from the root that it would be installed in
                link.unlink()
                link.symlink_to(os.path.relpath(f"{root}{target}", at))
            if not Path(os.path.realpath(link)).is_relative_to(root):
                raise PackageError(f"{package}: its link {link.relative_to(root)} -> {target} leads out of the package")


def mirror() -> str:
    """The Debian mirror to take packages from: ``$SAMPLEBLK_DEBIAN_MIRROR``, else the one the system's apt uses.

    Raises:
        UnsupportedError: This is not a Debian system and no mirror was named.
    """
    override = os.environ.get("SAMPLEBLK_DEBIAN_MIRROR")
    return override.rstrip("/") if override else _mirror_of_apt()


@functools.cache  # apt reads all of the system's lists to answer
def _mirror_of_apt() -> str:
    if find_program("apt-get") is None or find_program("dpkg") is None:
        raise UnsupportedError(
            "Debian packages",
            "apt-get and dpkg are not installed",
            "install the packages apt and dpkg, or give the path of a kernel of your own",
        )
    listing = run(["apt-get", "indextargets", "--format", "$(ORIGIN) $(LABEL) $(SITE)", "Created-By: Packages"])
    for line in listing.splitlines():
        origin, _, rest = line.partition(" ")
        label, _, site = rest.rpartition(" ")
        if origin == "Debian" and label == "Debian":
            return site.rstrip("/")
    raise UnsupportedError(
        "Debian packages",
        "the system's apt has no Debian mirror",
        "run apt-get update, or set SAMPLEBLK_DEBIAN_MIRROR to the URL of one (…/debian)",
    )


class Suite:
    """One Debian suite, such as ``trixie-backports``, behind a private apt root.

    Args:
        name: The suite's name in the archive.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.root = cache_root() / "apt" / name

    def _options(self) -> list[str]:
        root = self.root
        pairs = {
            "Dir::Etc::SourceList": root / "sources.list",
            "Dir::Etc::SourceParts": "/dev/null",
            "Dir::Etc::Preferences": "/dev/null",
            "Dir::Etc::PreferencesParts": "/dev/null",
            "Dir::State": root / "state",
            "Dir::State::Lists": root / "lists",
            "Dir::State::Status": root / "status",
            "Dir::Cache": root / "cache",
            # Containers are told to keep none, and then each question reads all of the lists again.
            "Dir::Cache::pkgcache": "pkgcache.bin",
            "Dir::Cache::srcpkgcache": "",
            "APT::Sandbox::User": "",
            "Acquire::Languages": "none",
            "APT::Update::Error-Mode": "any",  # else a mirror that does not answer is a warning
        }
        return [part for key, value in pairs.items() for part in ("-o", f"{key}={value}")]

    def _source_line(self) -> str:
        base = mirror()
        if self.name.endswith("-security"):
            base += "-security"
        return f"deb [signed-by={KEYRING}] {base} {self.name} main\n"

    def update(self) -> None:
        """Asks for the suite's package lists, unless they are less than a day old. Raises PackageError."""
        with locked(self.root), filling_cache(self.root):
            stamp = self.root / "updated"
            source = self._source_line()
            listed = self.root / "sources.list"
            if stamp.exists() and listed.read_text() == source:
                age = time.time() - stamp.stat().st_mtime
                if 0 <= age < _LISTS_MAX_AGE_S and any((self.root / "lists").glob("*Packages*")):
                    return
            for folder in ("state", "lists/partial", "cache/archives/partial"):
                (self.root / folder).mkdir(parents=True, exist_ok=True)
            (self.root / "status").touch()
            stamp.unlink(missing_ok=True)  # of another mirror's lists
            listed.write_text(source)
            run(["apt-get", *self._options(), "-qq", "update"])
            stamp.touch()

    def names(self, pattern: str) -> list[str]:
        """The packages whose whole name matches the regular expression."""
        self.update()
        names = run(["apt-cache", *self._options(), "pkgnames"]).split()
        return sorted(name for name in names if re.fullmatch(pattern, name))

    def show(self, *packages: str) -> dict[str, dict[str, str]]:
        """The newest control fields of packages, such as ``Version`` and ``Depends``. Raises PackageError."""
        self.update()
        text = run(["apt-cache", *self._options(), "show", "--no-all-versions", *packages])
        found: dict[str, dict[str, str]] = {}
        for paragraph in text.split("\n\n"):
            fields: dict[str, str] = {}
            for line in paragraph.splitlines():
                name, colon, value = line.partition(": ")
                if colon and not line.startswith(" "):
                    fields[name] = value
            if "Package" in fields:
                found.setdefault(fields["Package"], fields)
        return found

    def dependencies(self, *packages: str) -> list[str]:
        """The names of the packages that these depend on, the first of each alternative."""
        depends = ", ".join(fields.get("Depends", "") for fields in self.show(*packages).values())
        return [part.split("|")[0].split("(")[0].strip().split(":")[0] for part in depends.split(",") if part.strip()]

    def unpack(self, packages: Sequence[str], into: Path) -> None:
        """Downloads packages and unpacks their files under `into`. Raises PackageError."""
        self.update()
        with scratch_directory("packages", self.root / "cache") as folder:
            try:
                run(["apt-get", *self._options(), "-qq", "download", *packages], cwd=folder)
            except PackageError:
                (self.root / "updated").unlink(missing_ok=True)  # lists of today may name what is gone since
                raise
            for deb in sorted(folder.glob("*.deb")):
                extract(deb, into)
