# SPDX-License-Identifier: MIT
"""What proc(5) says of a process. Its name may be any bytes, and may end within a character: the kernel cuts it."""

from __future__ import annotations

import contextlib
import ctypes
import os
from pathlib import Path

# Of status: what is passed on, or decides what system calls do.
_PASSED_ON = {
    "Umask": "umask",
    "Uid": "user",
    "Gid": "group",
    "Groups": "supplementary groups",
    "SigBlk": "blocked signals",
    "SigIgn": "ignored signals",
    "CapEff": "capabilities",
    "NoNewPrivs": "no new privileges",
    "Seccomp": "seccomp mode",
    "THP_enabled": "transparent huge pages",
    "Cpus_allowed_list": "processors",
}

# Signals 32 and 33 are the C library's own. It ignores them in what posix_spawn(3) starts, as subprocess does since
# Python 3.13, until that process needs them.
_OF_THE_C_LIBRARY = 0b11 << 31

_IOPRIO_GET, _IOPRIO_WHO_PROCESS = 252, 1  # ioprio_get(2), which neither Python nor glibc has
_IOPRIO_CLASS_SHIFT = 13
_GET_SECUREBITS, _GET_TIMERSLACK = 27, 30  # prctl(2)
_GET_PERSONALITY = 0xFFFFFFFF  # personality(2)


def text(pid: int, name: str) -> str:
    """A file of a process's. Raises FileNotFoundError, ProcessLookupError: it is gone."""
    return os.fsdecode(Path(f"/proc/{pid}/{name}").read_bytes())


def status(pid: int) -> dict[str, str]:
    """The fields of ``status``, by their names."""
    parts = (line.partition(":") for line in text(pid, "status").split("\n"))
    return {name: value.strip() for name, _, value in parts}


def stat(pid: int) -> list[str]:
    """The fields of ``stat`` that follow the name, which is the second: the state is the first."""
    return text(pid, "stat").rpartition(") ")[2].split()


def cpu_model() -> str:
    """The processor's name; nothing where the kernel has none."""
    with contextlib.suppress(OSError), Path("/proc/cpuinfo").open() as lines:
        for line in lines:  # the kernel takes milliseconds for those of many processors
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return ""


def passed_on() -> list[tuple[str, str]]:
    """What of our process the ones that it starts have, too, besides the environment: names and values."""
    us = os.getpid()
    of_status = status(us)
    for name in ("SigBlk", "SigIgn"):
        of_status[name] = f"{int(of_status[name], 16) & ~_OF_THE_C_LIBRARY:016x}"
    found = [(_PASSED_ON[name], " ".join(value.split())) for name, value in of_status.items() if name in _PASSED_ON]
    # proc(5), limits: name, soft limit, hard limit, unit, in columns
    found += [("limit", " ".join(line.split())) for line in text(us, "limits").splitlines()[1:]]
    for link, name in (("cwd", "working folder"), ("root", "root")):
        with contextlib.suppress(OSError):
            found.append((name, os.readlink(f"/proc/{us}/{link}")))  # noqa: PTH115  # also of one that is gone
    libc = ctypes.CDLL(None)
    found.append(("secure bits", hex(libc.prctl(_GET_SECUREBITS))))
    found.append(("timer slack", str(libc.prctl(_GET_TIMERSLACK))))
    found.append(("personality", hex(libc.personality(_GET_PERSONALITY))))
    policy, priority = os.sched_getscheduler(0), os.sched_getparam(0).sched_priority
    found.append(("scheduling", f"policy {policy}, priority {priority}, nice {os.getpriority(os.PRIO_PROCESS, 0)}"))
    if os.uname().machine == "x86_64":
        priority = libc.syscall(_IOPRIO_GET, _IOPRIO_WHO_PROCESS, 0)
        # The number of none, which has no class, is another one before a process' first I/O on 5.10.
        found.append(("I/O priority", str(priority if priority >> _IOPRIO_CLASS_SHIFT else 0)))
    return found
