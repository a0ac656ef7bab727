# SPDX-License-Identifier: MIT
"""What the guest's kernel said while a test ran, from ``/dev/kmsg`` (Documentation/ABI/testing/dev-kmsg)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from sampleblk_lab.pytest_plugin import artefacts
from sampleblk_lab.splat import is_splat

if TYPE_CHECKING:
    from collections.abc import Iterator

_MARK = pytest.StashKey[int]()

#: What the kernel complained of during a test, a line for each.
COMPLAINTS = pytest.StashKey[list[str]]()


def _open() -> int | None:
    try:
        return os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None  # not root, or a container: nothing to watch


def begin(item: pytest.Item) -> None:
    """Opens the log at its end; :func:`check` reads what has come since."""
    fd = _open()
    if fd is not None:
        os.lseek(fd, 0, os.SEEK_END)
        item.stash[_MARK] = fd


def _lines(fd: int) -> Iterator[str]:
    while True:
        try:
            record = os.read(fd, 8192)
        except BlockingIOError:
            return
        except BrokenPipeError:
            continue  # records were overwritten before we read them; go on with the oldest there is
        # "priority,sequence,microseconds,flags;text", then continuation lines
        prefix, _, text = record.decode(errors="replace").partition(";")
        stamp = int(prefix.split(",")[2])
        yield f"[{stamp // 1_000_000:5d}.{stamp % 1_000_000:06d}] {text.splitlines()[0] if text else ''}"


def check(item: pytest.Item, report: pytest.TestReport) -> None:
    """Fails the report of a phase under which the log gained a panic, oops, warning, lockup, hung task or leak."""
    fd = item.stash.get(_MARK, None)
    if fd is None:
        return
    lines = list(_lines(fd))
    if report.when == "teardown":
        del item.stash[_MARK]
        os.close(fd)
    splats = [line for line in lines if is_splat(line)]
    if splats:
        item.stash.setdefault(COMPLAINTS, []).extend(f"the kernel complained: {line}" for line in splats)
        folder = artefacts.directory_of(item)
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "kernel.log").open("a") as log:
            log.write("\n".join(lines) + "\n")
        if not report.passed:
            report.sections.append(("Kernel log", "\n".join(lines)))
    if splats and report.passed:
        report.outcome = "failed"
        # In the text itself, so that JUnit has it as well.
        report.longrepr = "\n".join([f"the kernel complained: {splats[0]}", "", "--- Kernel log ---", *lines])
