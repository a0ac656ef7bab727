# SPDX-License-Identifier: MIT
"""Recording a workload for :class:`sampleblk_lab.crash.Log`: what the disk held, then all that was written."""

from __future__ import annotations

import contextlib
import mmap
import os
from pathlib import Path
from typing import TYPE_CHECKING

from sampleblk_lab import run_files
from sampleblk_lab.crash import submitters
from sampleblk_lab.crash.files import copy_start
from sampleblk_lab.errors import InputError, SampleblkError
from sampleblk_lab.recording import record

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sampleblk_lab.crash.log import Log
    from sampleblk_lab.device import Device

_BLOCK = 1 << 20


@contextlib.contextmanager
def recording(
    device: Device, folder: str | os.PathLike[str], *, journal: int | str = "64M", stacks: bool = False
) -> Iterator[Path]:
    """Records what is written to a device in the block.

    ``dev.mark(text)`` puts a note into the recording, such as what was promised by then (:attr:`State.marks`).

    Args:
        device: A device with a volatile cache (``cache=True``), without a journal. To one without a cache nobody sends
            flushes, from which a log says what is durable.
        folder: Where to put ``base.img``, what the device held, and ``log``; made if it does not exist.
        journal: Room for the recording, in bytes or a string such as ``"64M"``.
        stacks: Also trace who submits what, with the kernel's stack, into ``submitters.json``: :meth:`Log.submitters`.

    Yields:
        The path of ``log``, which is there when the block has ended.

    Raises:
        InputError: The device has no volatile cache.
        OSError: EBUSY, there is a journal; or the folder cannot be written.
        SampleblkError: Somebody else wrote to the device or resized it while the recording began, or it has no room for
            all; events of the trace were lost.
        UnsupportedError: `stacks` where the kernel cannot trace, or nobody may.
    """
    if not device.info().cache:
        raise InputError(
            "a device without a volatile cache, to which nobody sends flushes", device.path, expected="cache=True"
        )
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    log = target / "log"
    # Of another recording: its log beside this base would be of states that never were. Who has it open keeps it.
    run_files.remove(target, "base.img", "log", submitters.FILE)
    os.sync()
    before = _changes(device)
    _copy(device.path, target / "base.img")
    with contextlib.ExitStack() as stack:
        recorder = record(events=submitters.EVENT, stacks=True) if stacks else None
        if recorder is not None:
            stack.callback(recorder.close)
            recorder.start()
        device.journal_start(journal)
        stack.callback(device.journal_stop)
        if _changes(device) != before:
            raise SampleblkError(f"{device.path} was written to or resized while its recording began: is it mounted?")
        yield log
        if overflow := device.journal_info().overflow:
            raise SampleblkError(f"the journal of {journal} has no room for {overflow} operations; give it more")
        device.save_journal(log)
        if recorder is not None:
            submitters.keep(log, recorder.stop(), Path(device.path).stat().st_rdev)


def keep(log: Log, folder: str | os.PathLike[str]) -> Path:
    """Keeps a log that somebody else has recorded, as :func:`recording` does: ``base.img`` and ``log`` in a folder.

    Of a device of dm-log-writes only what it holds is kept.

    Raises:
        InputError: The folder has a recording; the log writes beyond its base.
        OSError: It cannot be written.
    """
    target = Path(folder)
    for name in ("base.img", "log", submitters.FILE):
        if (target / name).exists():
            raise InputError(f"{target / name} exists", expected="a new folder")
    if log.native.end_sector * 512 > log.size_bytes:
        raise InputError(
            f"the log writes up to byte {log.native.end_sector * 512}, its base has {log.size_bytes}",
            str(log.path),
            expected="what this disk held before",
        )
    target.mkdir(parents=True, exist_ok=True)
    if log.base is None:
        (target / "base.img").touch()
    else:
        _copy(str(log.base), target / "base.img", direct=False)
    os.truncate(target / "base.img", log.size_bytes)
    with (target / "log").open("wb") as file:
        copy_start(log.path, file, log.native.file_bytes)
    submitters.copy(log.path, target)
    return target


def _changes(device: Device) -> tuple[int, ...]:
    counted = device.counters()
    return counted.writes, counted.discards, counted.write_zeroes, device.info().capacity_bytes


def _copy(source: str, target: Path, *, direct: bool = True) -> None:
    """What a device or an image holds, with holes for zeros; `direct`: past the page cache."""
    fd = os.open(source, os.O_RDONLY | (os.O_DIRECT if direct else 0))
    try:
        # A flush: what is in a volatile cache is durable before the first crash.
        if direct:
            os.fsync(fd)
        with mmap.mmap(-1, _BLOCK) as buffer, target.open("wb") as file:
            size = 0
            zeros = bytes(_BLOCK)
            while count := os.preadv(fd, [buffer], size):
                if buffer[:count] != zeros[:count]:
                    file.seek(size)
                    file.write(buffer[:count])
                size += count
            file.truncate(size)
    finally:
        os.close(fd)
