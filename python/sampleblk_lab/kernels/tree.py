# SPDX-License-Identifier: MIT
"""Builds a kernel tree, in its sources, as a person would: configuration, image, modules beside it."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING

from sampleblk_lab import interrupts
from sampleblk_lab.errors import InputError, SampleblkError
from sampleblk_lab.kernels import config
from sampleblk_lab.paths import kbuild_environment, make_environment

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


class TreeError(SampleblkError, RuntimeError):
    """A kernel tree does not build; what its build printed has gone to our own output."""


def check(tree: Path, start: Path | None) -> None:
    """Looks whether a folder can be built by :func:`build` at all. Raises InputError."""
    if shutil.which("make", path=make_environment()["PATH"]) is None:
        raise InputError("the make program is not installed", expected="make, or a build command of your own")
    if not (tree / "Makefile").is_file():
        raise InputError(f"'{tree}' has no Makefile", expected="a kernel tree, or a build command of your own")
    wanted = tree / ".config" if start is None else start
    if not wanted.is_file() or config.read(wanted) is None:
        raise InputError(
            f"'{wanted}' is not a kernel configuration", expected="one to start from, as make defconfig writes"
        )


def build(tree: Path, *, jobs: int, start: Path | None = None) -> None:
    """Merges what a configuration lacks into it, makes image and modules, and installs these to ``lib/modules``.

    Args:
        tree: The sources.
        jobs: What ``make -j`` gets.
        start: The configuration to start from; None: the tree's own.

    Raises:
        TreeError: A step failed, or the tree cannot have an option that a VM needs.
    """
    own = tree / ".config"
    before = own.read_text(errors="replace") if own.exists() else ""
    text = before if start is None else config.read(start) or ""
    lacking = config.missing(text)
    if lacking:
        text = config.merged(text, lacking)
    if text != before:
        own.write_text(text)
    _make(tree, "olddefconfig")
    without = config.lacks(own.read_text(errors="replace"), modules=True)
    if without:
        raise TreeError(f"after make olddefconfig its configuration still lacks what a VM needs: {', '.join(without)}")
    _make(tree, f"-j{jobs}", "bzImage", "modules")
    _make(tree, f"INSTALL_MOD_PATH={tree}", "modules_install")


def run(tree: Path, command: str) -> None:
    """Builds a tree by a command for the shell. Raises TreeError."""
    _run(tree, ["sh", "-c", command], command, make_environment())


def _make(tree: Path, *arguments: str) -> None:
    _run(tree, ["make", *arguments], f"make {' '.join(arguments)}", kbuild_environment())


def _run(tree: Path, command: Sequence[str], shown: str, environment: Mapping[str, str]) -> None:
    # Nothing that it starts may wait for somebody to answer: a question of Kconfig is a failure.
    status = interrupts.run(list(command), cwd=tree, env=environment, stdin=subprocess.DEVNULL)
    if status < 0:
        raise TreeError(f"`{shown}` was ended by signal {-status}")
    if status > 0:
        raise TreeError(f"`{shown}` ended with status {status}")


def default_jobs() -> int:
    """As many as there are processors for us."""
    return len(os.sched_getaffinity(0))
