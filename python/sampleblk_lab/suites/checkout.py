# SPDX-License-Identifier: MIT
"""The user's checkout of a suite, and its build in the cache. The checkout itself is only read."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sampleblk_lab.errors import InputError, SampleblkError
from sampleblk_lab.paths import (
    built_directory,
    cache_root,
    find_program,
    git_environment,
    in_home,
    locked,
    make_environment,
    remove_unused,
    scratch_directory,
    write_atomically,
)
from sampleblk_lab.progress import step
from sampleblk_lab.suites import packages

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sampleblk_lab.suites.suite import Suite

# How much of a failed build's output is told; all of it is in a file.
_TAIL_LINES = 30

# What each build depends on beside the sources.
_FORMAT = 1


class SuiteBuildError(SampleblkError, RuntimeError):
    """A suite does not build; has the end of what make said, and the file with all of it."""


@dataclass(frozen=True)
class Built:
    """A suite that can be run.

    Attributes:
        folder: The build, in the cache.
        content: The digest of the checkout's files.
        commit: What git calls the checkout; empty where it is none of git's.
    """

    folder: Path
    content: str
    commit: str


def find(suite: Suite, given: str | os.PathLike[str] | None) -> Path:
    """The user's checkout of a suite.

    Args:
        suite: Which.
        given: Where it is; None: ``$SAMPLEBLK_XFSTESTS`` or ``$SAMPLEBLK_BLKTESTS``.

    Raises:
        InputError: None is named, or what is named is none.
    """
    source = "" if given else suite.variable
    named = given or os.environ.get(suite.variable)
    if not named:
        raise InputError(
            f"no checkout of {suite.name} is named", expected=f"--checkout, or {suite.variable}: git clone {suite.home}"
        )
    path = in_home(named).absolute()
    lacking = [name for name in suite.marks if not (path / name).exists()]
    if lacking:
        raise InputError(f"{path} has no {lacking[0]}", source, expected=f"a checkout of {suite.home}")
    return path


def _git(path: Path, *words: str) -> bytes | None:
    """What git says of a checkout; None where it is none of git's. It may belong to another user."""
    program = find_program("git")
    if program is None or not (path / ".git").exists():
        return None
    command = [program, "-c", f"safe.directory={path}", "-C", str(path), *words]
    # No refreshed index is written to the user's checkout.
    environment = {**git_environment(), "GIT_OPTIONAL_LOCKS": "0"}
    done = subprocess.run(command, capture_output=True, check=False, env=environment)
    return done.stdout if done.returncode == 0 else None


def files(path: Path) -> list[Path]:
    """The files of a checkout, relative to it: git's, and new ones that git does not ignore; without git, all."""
    listed = _git(path, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    if listed is not None:
        found = {Path(os.fsdecode(name)) for name in listed.split(b"\0") if name}
    else:
        found = {
            Path(where, name).relative_to(path)
            for where, _, names in os.walk(path)
            for name in names
            if ".git" not in Path(where).relative_to(path).parts
        }
    return sorted(name for name in found if (path / name).is_symlink() or (path / name).is_file())


def content(path: Path, names: Sequence[Path]) -> str:
    """The digest of some files of a checkout: names, bytes, and who may execute them."""
    digest = hashlib.sha256()
    for name in names:
        whole = path / name
        status = whole.lstat()
        data = os.fsencode(os.readlink(whole)) if stat.S_ISLNK(status.st_mode) else whole.read_bytes()  # noqa: PTH115
        head = f"{stat.S_IFMT(status.st_mode)} {bool(status.st_mode & 0o100)} {len(data)} "
        digest.update(head.encode() + os.fsencode(name) + b"\0" + data)
    return digest.hexdigest()


def _system() -> str:
    """What a build is only good for, beside the sources."""
    release = Path("/etc/os-release")
    return f"{_FORMAT} {os.uname().machine} {release.read_text() if release.exists() else ''}"


def build(suite: Suite, checkout: Path) -> Built:
    """Builds a suite in the cache, unless it was.

    Args:
        suite: Which.
        checkout: Its sources, see :func:`find`.

    Raises:
        UnsupportedError: What the build needs is not installed.
        SuiteBuildError: It does not build.
        CacheError: The cache cannot be written.
    """
    names = files(checkout)
    digest = content(checkout, names)
    commit = (_git(checkout, "describe", "--always", "--abbrev=12") or b"").decode(errors="replace").strip()
    if _git(checkout, "status", "--porcelain"):  # not by describe --dirty, which writes the checkout's index anew
        commit += "-dirty"
    key = hashlib.sha256(f"{digest} {_system()}".encode()).hexdigest()[:24]
    target = cache_root() / "suites" / f"{suite.name}-{key}"
    with locked(target):
        if target.exists():
            os.utime(target)
        else:
            packages.check(suite.name)
            with step(f"building {suite.name} {commit or digest[:12]}"), built_directory(target) as scratch:
                _make(suite, checkout, names, scratch)
            remove_unused(target.parent)
    return Built(target, digest, commit)


def _make(suite: Suite, checkout: Path, names: Sequence[Path], target: Path) -> None:
    # Not where it will be: make writes there, and a test's own files must be readable for the users that tests become.
    with scratch_directory(suite.name) as scratch:
        for name in names:
            copy = scratch / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(checkout / name, copy, follow_symlinks=False)
        said = ""
        for command in suite.build:
            done = subprocess.run(
                [*command, *([f"-j{os.cpu_count() or 1}"] if command[0] == "make" else [])],
                cwd=scratch,
                env=make_environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                check=False,
            )
            said += done.stdout.decode(errors="replace")
            if done.returncode != 0:
                log = target.parent / f"{suite.name}-build.log"
                write_atomically(log, said.encode())
                tail = "\n".join(said.splitlines()[-_TAIL_LINES:])
                raise SuiteBuildError(f"{suite.name} does not build ({' '.join(command)}); all of it: {log}\n{tail}")
        shutil.copytree(scratch, target, symlinks=True, dirs_exist_ok=True)
    for where, folders, names_there in os.walk(target):
        for each in (*folders, *names_there):
            path = Path(where, each)
            if not path.is_symlink():
                mode = path.stat().st_mode
                path.chmod(mode | 0o444 | (0o111 if mode & 0o100 else 0))
    target.chmod(0o755)
