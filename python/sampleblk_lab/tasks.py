# SPDX-License-Identifier: MIT
"""Whom a recording is about: ids, jobs, processes and threads, as ``pids=`` takes them everywhere."""

from __future__ import annotations

import operator
import os
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol

from sampleblk_lab import proc
from sampleblk_lab.errors import InputError, UnsupportedError


class _HasPid(Protocol):
    """A process, such as a subprocess.Popen or a multiprocessing.Process."""

    @property
    def pid(self) -> int | None: ...


class _HasNativeId(Protocol):
    """A thread, as threading.Thread."""

    @property
    def native_id(self) -> int | None: ...


class _HasPids(Protocol):
    """Jobs: a JobRun, or a Result."""

    @property
    def pids(self) -> list[int]: ...


class Thread(int):
    """The id of one thread, which is not its process, even where it is that process's first and has its id."""


#: What ``pids=`` takes.
Who = int | _HasPid | _HasNativeId | _HasPids | Iterable["int | _HasPid | _HasNativeId | _HasPids"]

_CPUS = 1 << 16
_LAST_ID = (1 << 31) - 1  # of pid_t
_EXPECTED = "an id, a JobRun, a Result, a process, a thread that was started, or a list of these"


# PROC_PID_INIT_INO of include/linux/proc_ns.h.
_FIRST_PIDS = 0xEFFFFFFC


def require_first_pids(what: str) -> None:
    """Raises UnsupportedError in a pid namespace of a container, where the pids that `what` tells are not ours."""
    own = Path("/proc/self/ns/pid")  # not there on a kernel without CONFIG_PID_NS
    if own.exists() and own.stat().st_ino != _FIRST_PIDS:
        reason = "this process is in a pid namespace of its own, and the kernel has the pids of the first one"
        raise UnsupportedError(what, reason, "run it outside of the container, or start that with --pid=host")


def ids(who: Who | None, *, jobs_by: str = "thread_ids") -> list[int]:
    """The ids that `who` stands for, each once, in their order.

    Args:
        who: What ``pids=`` was given.
        jobs_by: ``"thread_ids"`` names a job by its thread, ``"pids"`` by its process: with ``thread=1`` several jobs
            share one.

    Raises:
        InputError: It is none of what ``pids=`` takes, or a process or thread that was not started; or it stands for
            nobody: an empty list means all of them to the core and to the kernel.
    """
    if who is None:
        return []
    out: list[int] = []
    _add(who, jobs_by, out)
    if not out:
        named = repr(who) if isinstance(who, (list, tuple, set, frozenset)) else f"{type(who).__name__} without a task"
        raise InputError(f"pids={named}, nobody", expected=_EXPECTED)
    for number in out:
        if not 0 <= number <= _LAST_ID:
            raise InputError(f"pids={number}", expected=_EXPECTED)
    # Who names the process, too, means all of it.
    whole = {number for number in out if not isinstance(number, Thread)}
    return list(dict.fromkeys(int(number) if number in whole else number for number in out))


def cpus(chosen: Iterable[int]) -> list[int]:
    """The processors that ``cpus=`` was given.

    Raises:
        InputError: They are no numbers, or none.
    """
    try:
        numbers = [-1 if isinstance(one, bool) else operator.index(one) for one in chosen]
    except TypeError:
        numbers = []
    if not numbers or not 0 <= min(numbers) <= max(numbers) < _CPUS:
        raise InputError(f"cpus={chosen!r}", expected="a list of CPUs' numbers, such as [0, 1]")
    return numbers


def _add(who: Any, jobs_by: str, out: list[int]) -> None:
    if isinstance(who, (bool, str, bytes)):
        raise InputError(f"pids={who!r}", expected=_EXPECTED)
    if isinstance(who, int):
        out.append(who)
    elif hasattr(who, "pids"):
        out.extend(getattr(who, jobs_by, who.pids))
    elif hasattr(who, "native_id") or hasattr(who, "pid"):
        thread = hasattr(who, "native_id")
        one = _thread_id(who) if thread else who.pid
        if one is None:
            raise InputError(f"pids={who!r}", expected="one that was started")
        out.append(Thread(one) if thread else int(one))
    elif isinstance(who, Iterable):
        for one in who:
            _add(one, jobs_by, out)
    elif hasattr(who, "__index__"):  # numpy's integers
        out.append(int(who))
    else:
        raise InputError(f"pids={who!r}", expected=_EXPECTED)


def _thread_id(thread: Any) -> int | None:
    # Python (3.11 at least) leaves a forked process's one thread the id of the thread that it is a copy of.
    if thread is threading.current_thread():
        return threading.get_native_id()
    if thread is threading.main_thread():
        return os.getpid()
    number: int | None = thread.native_id
    return number


def threads(numbers: Iterable[int]) -> dict[int, list[int]]:
    """All threads of each process among `numbers`; a thread that is not its process's first stands for itself.

    So do a :class:`Thread`, and a process that is gone.
    """
    out: dict[int, list[int]] = {}
    for number in numbers:
        if isinstance(number, Thread):
            out[number] = [int(number)]
            continue
        try:
            leads = proc.status(number)["Tgid"] == str(number)
            found = sorted(int(path.name) for path in Path(f"/proc/{number}/task").iterdir()) if leads else []
        except (FileNotFoundError, ProcessLookupError):
            found = []
        out[number] = found or [number]
    return out
