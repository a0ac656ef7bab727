# SPDX-License-Identifier: MIT
"""What the guest's kernel said while a test ran, from ``/dev/kmsg`` (Documentation/ABI/testing/dev-kmsg)."""

from __future__ import annotations

import functools
import os
import re
from dataclasses import dataclass, field

import pytest

from sampleblk_lab.pytest_plugin import artefacts, options, residue
from sampleblk_lab.splat import is_splat, log_lines


@dataclass
class _Watch:
    """What is known of the kernel during a test.

    Attributes:
        damage: The taints that say that something went wrong, as far as they have been told of.
        complaints: What it complained of, a line for each.
        allowed: Whether it complained of what the test allows.
    """

    damage: frozenset[str]
    complaints: list[str] = field(default_factory=list)
    allowed: bool = False


_WATCH = pytest.StashKey[_Watch]()


def allowed(item: pytest.Item) -> list[re.Pattern[str]]:
    """What the test's marks allow. Raises pytest.UsageError."""
    patterns = []
    for mark in item.iter_markers("kernel_warning"):
        if mark.kwargs or not mark.args or "" in mark.args:  # which is in every line
            raise pytest.UsageError(
                f"{item.nodeid}: {options.written(mark)} (expected regular expressions, such as 'at fs/btrfs/')"
            )
        for text in mark.args:
            try:
                pattern = re.compile(text)
                pattern.search("")  # one of bytes is none for text
                patterns.append(pattern)
            except (re.error, TypeError) as error:
                raise pytest.UsageError(
                    f"{item.nodeid}: kernel_warning({text!r}): {error} (expected regular expressions)"
                ) from None
    return patterns


@functools.cache
def _log() -> int | None:
    """The log, read as far as has been looked at. It stays open: after one begin a test may run several times."""
    try:
        return os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None  # not root, or a container: nothing to watch


def begin(item: pytest.Item) -> None:
    """Goes to the end of the log; :func:`check` reads what has come since."""
    fd = _log()
    if fd is not None:
        os.lseek(fd, 0, os.SEEK_END)
        item.stash[_WATCH] = _Watch(residue.damage())


def complaints(item: pytest.Item) -> list[str]:
    """What the kernel complained of during a test, a line for each."""
    return item.stash[_WATCH].complaints if _WATCH in item.stash else []


def is_spent(item: pytest.Item) -> bool:
    """Whether the kernel complained of nothing but what the test allows."""
    return _WATCH in item.stash and item.stash[_WATCH].allowed and not item.stash[_WATCH].complaints


def check(item: pytest.Item, report: pytest.TestReport) -> None:
    """Fails the report of a phase under which the kernel panicked, oopsed, warned, locked up, hung or leaked."""
    watch, fd = item.stash.get(_WATCH, None), _log()
    if watch is None or fd is None:
        return
    read = list(log_lines(fd))
    lines = [line for line in read if line is not None]
    if len(lines) != len(read):
        # What does not taint the kernel, such as a hung task, may be missing.
        artefacts.warn(item.config, f"{item.nodeid}: the kernel's log ran over; complaints may have been missed")
    splats = [line for line in lines if is_splat(line)]
    patterns = allowed(item) if splats else []
    told = [line for line in splats if not any(pattern.search(line) for pattern in patterns)]
    damage = residue.damage() - watch.damage
    watch.damage |= damage
    if not splats and not watch.allowed:
        told += [f"{line}, and its log does not say why" for line in sorted(damage)]
    watch.allowed = watch.allowed or len(told) < len(splats)
    if told:
        watch.complaints.extend(f"the kernel complained: {line}" for line in told)
        folder = artefacts.directory_of(item)
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "kernel.log").open("a") as log:
            log.write("\n".join(lines) + "\n")
    # One that is skipped has not been judged, but what the kernel did has. An expected failure stays one.
    fails = bool(told) and (report.passed or (report.skipped and not hasattr(report, "wasxfail")))
    if splats and not fails:
        report.sections.append(("Kernel log", "\n".join(lines)))
    if fails:
        report.outcome = "failed"
        # In the text itself, so that JUnit has it as well.
        report.longrepr = "\n".join([f"the kernel complained: {told[0]}", "", "--- Kernel log ---", *lines])
