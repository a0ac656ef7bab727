# SPDX-License-Identifier: MIT
"""Who submitted the writes of a log: the task, its system call and the kernel's functions, of each part of each write.

A write of a log is a request as the driver got it, which several bios may have become, of several tasks. The kernel
tells of each bio when it is submitted (``block:block_bio_queue``), in the context of who submits it. A sector's writes
are the bios that cover it, one after another; where there are more or fewer of them than writes, nobody is named.
"""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sampleblk_lab._native import core
from sampleblk_lab.crash.files import digest
from sampleblk_lab.errors import FormatError, InputError, SampleblkError
from sampleblk_lab.paths import replace_file
from sampleblk_lab.table import Table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from sampleblk_lab.analysis.run import Run

#: The name of the file, beside the log.
FILE = "submitters.json"
EVENT = "block:block_bio_queue"

_FORMAT = "sampleblk-lab submitters 1"
_COLUMNS = ("sequence", "sector", "sectors", "submit_order")

# How a system call's own function is called: arch/*/include/asm/syscall_wrapper.h, include/linux/syscalls.h.
_SYSCALL = re.compile(r"(?:__(?:x64|ia32|arm64|s390x?|riscv|se|do)_sys_|ksys_)(\w+)")
# What all bios go through on their way from who makes them to the event, and the event's own functions.
_ON_THE_WAY = re.compile(r"(?:submit_bio|__submit_bio|submit_bh|blk_)")
_TRACING = re.compile(r"(?:trace_event_|__traceiter_|__bpf_trace_|perf_trace_)")
# And on their way in: arch/x86/entry.
_ENTRY = re.compile(r"entry_\w+|do_(?:fast_)?syscall_\w+|x64_sys_call|ia32_sys_call|do_int80_\w+|el0\w*|invoke_syscall")
_TASK_WORK = "task_work_run"


@dataclass(frozen=True)
class Submitter:
    """Who submitted a part of a write.

    Attributes:
        task: The thread's name, as the kernel has it.
        pid: Its id.
        stack: The kernel's functions, from the outermost to the one that submitted.
    """

    task: str
    pid: int
    stack: tuple[str, ...]

    @functools.cached_property
    def _names(self) -> list[str]:
        # Without what the compiler appends, as in ext4_map_blocks.part.0.
        return [name.partition(".")[0] for name in self.stack]

    @functools.cached_property
    def syscall(self) -> str:
        """The system call that it was in, such as ``"fsync"``.

        Empty for a kernel's thread, for what a task does on its way out of one, such as the end of umount, and where
        the kernel was compiled so that the call's own function is not on the stack.
        """
        calls = map(_SYSCALL.fullmatch, self._names)
        return next((call[1] for call in calls if call), "")

    @functools.cached_property
    def function(self) -> str:
        """The innermost function that is not of the block layer; empty where there is no stack."""
        return next((name for name in reversed(self._names) if not _ON_THE_WAY.match(name)), "")

    def text(self) -> str:
        """A phrase: ``"fsync of python3 in ext4_io_submit"``."""
        below = next((name for name in self._names if not _ENTRY.fullmatch(name)), "")
        if self.syscall:
            who = f"{self.syscall} of {self.task}"
        elif _TASK_WORK in self._names:
            who = f"{self.task} on its return to user space"
        elif below and below != self._names[0]:  # it came through an entry
            who = f"{below} of {self.task}"
        else:
            who = self.task
        return f"{who} in {self.function}" if self.function else who


#: (first sector, counted from the write's begin, sectors, who submitted them)
Part = tuple[int, int, Submitter]


def keep(log: Path, run: Run, device: int) -> None:
    """Puts the file beside a log.

    Args:
        log: A journal's file.
        run: As of :func:`submitters`, and so the next one.
        device: The disk.

    Raises:
        SampleblkError: The recording has lost events.
        OSError: The file cannot be written.
    """
    native = core.CrashLog.read(os.fspath(log))
    table = Table(native.table())
    found = submitters({name: table[name].values for name in _COLUMNS}, run, device)
    save(found, log.with_name(FILE), (log, native.file_bytes))


def copy(log: Path, folder: Path) -> None:
    """Puts the file that lies beside a log, if one does, into another folder, where the same log is."""
    if (beside := log.with_name(FILE)).exists():
        shutil.copyfile(beside, folder / FILE)


def submitters(writes: Mapping[str, NDArray[Any]], run: Run, device: int) -> dict[int, list[Part]]:
    """Who submitted the writes of a log, by their sequence.

    Args:
        writes: Columns sequence, sector, sectors and submit_order: the log's.
        run: A recording of :data:`EVENT` with stacks, from before the log's first write on.
        device: The disk, as stat(2) has its number.

    Raises:
        SampleblkError: The recording has lost events.
    """
    from sampleblk_lab.profiling import open_profile

    if EVENT not in run.file.events:
        return {}
    bios = run.events(EVENT, fields=["dev", "sector", "nr_sector", "rwbs"])
    if lost := int(bios.metadata.get("lost_events", "0")):
        raise SampleblkError(f"{lost} events were lost, so that nobody knows who submitted what: record less at a time")
    profile = open_profile(run.trace_path)
    samples = profile.samples()
    if not all(np.array_equal(samples[name].values, bios[name].values) for name in ("time", "cpu")):
        raise SampleblkError(f"{run.trace_path} has other events than {EVENT}")
    # MAJOR and MINOR of include/linux/kdev_t.h.
    number = os.major(device) << 20 | os.minor(device)
    changes = np.array([not rwbs.removeprefix("F").startswith("R") for rwbs in map(str, bios["rwbs"])], dtype=bool)
    ours = np.flatnonzero(changes & (bios["dev"].values == number) & (bios["nr_sector"].values > 0))
    stacks: dict[int, tuple[str, ...]] = {}
    numbers: dict[Submitter, int] = {}
    who = []
    for bio in ours.tolist():
        stack = int(samples["stack"].values[bio])
        if stack not in stacks:
            stacks[stack] = tuple(name for name in profile.stack(bio) if not _TRACING.match(name))
        one = Submitter(str(samples["comm"][bio]), int(samples["tid"].values[bio]), stacks[stack])
        who.append(numbers.setdefault(one, len(numbers)))
    known = list(numbers)
    matched = match(writes, bios["sector"].values[ours], bios["nr_sector"].values[ours], who)
    return {
        sequence: [(first, sectors, known[number]) for first, sectors, number in parts]
        for sequence, parts in matched.items()
    }


def match(
    writes: Mapping[str, NDArray[Any]], sector: NDArray[Any], sectors: NDArray[Any], who: Sequence[int]
) -> dict[int, list[tuple[int, int, int]]]:
    """Who submitted each part of each write.

    Args:
        writes: As of :func:`submitters`.
        sector: Where each bio begins, in the order of their submission.
        sectors: How long each is.
        who: The number of who submitted it.

    Returns:
        Sequence -> (first sector, counted from the write's begin, sectors, who), in order. Sectors that more or fewer
        bios cover than writes are in no part.
    """
    begins, ends = writes["sector"].astype(np.int64), (writes["sector"] + writes["sectors"]).astype(np.int64)
    from_, to = sector.astype(np.int64), (sector + sectors).astype(np.int64)
    # Between two of these all sectors are covered by the same.
    edges = np.unique(np.concatenate([begins, ends, from_, to]))
    queued: dict[int, list[int]] = defaultdict(list)
    for bio, (first, last) in enumerate(_ranges(edges, from_, to)):
        for between in range(first, last):
            queued[between].append(bio)
    order = np.argsort(writes["submit_order"], kind="stable").tolist()
    spans = _ranges(edges, begins, ends)
    written: dict[int, list[int]] = defaultdict(list)
    for write in order:
        for between in range(*spans[write]):
            written[between].append(write)
    found: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    for between in sorted(written):
        bios = queued.get(between, [])
        if len(bios) != len(written[between]):
            continue
        for write, bio in zip(written[between], bios, strict=True):
            parts = found[int(writes["sequence"][write])]
            first = int(edges[between] - begins[write])
            length = int(edges[between + 1] - edges[between])
            if parts and parts[-1][2] == who[bio] and parts[-1][0] + parts[-1][1] == first:
                first, length = parts[-1][0], parts.pop()[1] + length
            parts.append((first, length, who[bio]))
    return dict(found)


def _ranges(edges: NDArray[np.int64], begins: NDArray[np.int64], ends: NDArray[np.int64]) -> list[tuple[int, int]]:
    return list(zip(np.searchsorted(edges, begins).tolist(), np.searchsorted(edges, ends).tolist(), strict=True))


def save(found: Mapping[int, Sequence[Part]], path: Path, log: tuple[Path, int]) -> None:
    """Writes them to a file.

    Args:
        found: By the writes' sequence.
        path: The file.
        log: The log that they are of, and how many bytes of it.

    Raises:
        OSError: It cannot be written.
    """
    numbers: dict[Submitter, int] = {}
    writes = [
        [sequence, [[first, sectors, numbers.setdefault(who, len(numbers))] for first, sectors, who in parts]]
        for sequence, parts in found.items()
    ]
    value = {
        "format": _FORMAT,
        "log": digest(log),
        "submitters": [{"task": who.task, "pid": who.pid, "stack": who.stack} for who in numbers],
        "writes": writes,
    }
    replace_file(path, json.dumps(value).encode() + b"\n")


def load(path: Path, log: tuple[Path, int]) -> dict[int, list[Part]]:
    """Reads what :func:`save` wrote.

    Raises:
        FormatError: It is another file, or damaged.
        InputError: It is of another log.
        OSError: It cannot be read.
    """
    try:
        value = json.loads(path.read_bytes())
        if value["format"] != _FORMAT:
            raise ValueError(f"format {value['format']!r}")
        of = [
            Submitter(str(who["task"]), int(who["pid"]), tuple(map(str, who["stack"]))) for who in value["submitters"]
        ]
        found = {
            int(sequence): [(int(first), int(sectors), of[_index(who)]) for first, sectors, who in parts]
            for sequence, parts in value["writes"]
        }
        known = value["log"]
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError, RecursionError) as error:
        raise FormatError(str(path), 0, f"the submitters of a log ({error!r})") from error
    if known != digest(log):
        raise InputError(f"submitters of another log than {log[0]}", str(path), expected="its own, or no such file")
    return found


def _index(number: Any) -> int:
    if not isinstance(number, int) or number < 0:
        raise ValueError(f"submitter {number!r}")
    return number
