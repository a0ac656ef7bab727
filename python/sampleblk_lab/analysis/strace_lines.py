# SPDX-License-Identifier: MIT
"""System calls in strace's own form, for the calls of file I/O; the rest with plain numbers."""

from __future__ import annotations

import bisect
import errno
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from sampleblk_lab._native import core
    from sampleblk_lab.table import Table

# asm-generic/fcntl.h
_OPEN = {
    0o100: "O_CREAT",
    0o200: "O_EXCL",
    0o400: "O_NOCTTY",
    0o1000: "O_TRUNC",
    0o2000: "O_APPEND",
    0o4000: "O_NONBLOCK",
    0o10000: "O_DSYNC",
    0o20000: "FASYNC",
    0o40000: "O_DIRECT",
    0o100000: "O_LARGEFILE",
    0o200000: "O_DIRECTORY",
    0o400000: "O_NOFOLLOW",
    0o1000000: "O_NOATIME",
    0o2000000: "O_CLOEXEC",
    0o4000000: "__O_SYNC",
    0o10000000: "O_PATH",
}
_ACCESS = ("O_RDONLY", "O_WRONLY", "O_RDWR", "O_ACCMODE")
_ADVICE = ("NORMAL", "RANDOM", "SEQUENTIAL", "WILLNEED", "DONTNEED", "NOREUSE")
_WHENCE = ("SEEK_SET", "SEEK_CUR", "SEEK_END", "SEEK_DATA", "SEEK_HOLE")
_FALLOCATE = {
    1: "FALLOC_FL_KEEP_SIZE",
    2: "FALLOC_FL_PUNCH_HOLE",
    8: "FALLOC_FL_COLLAPSE_RANGE",
    16: "FALLOC_FL_ZERO_RANGE",
}

# What the arguments are: f a descriptor, F a directory's, p a pointer, s a path, n a signed and u an unsigned number,
# o flags of open, m a mode, A advice, w whence, l fallocate's mode.
_SIGNATURES = {
    "open": "som",
    "openat": "Fsom",
    "creat": "sm",
    "close": "f",
    "read": "fpu",
    "write": "fpu",
    "pread64": "fpun",
    "pwrite64": "fpun",
    "readv": "fpu",
    "writev": "fpu",
    "lseek": "fnw",
    "fsync": "f",
    "fdatasync": "f",
    "fadvise64": "fnuA",
    "fallocate": "flnn",
    "ftruncate": "fn",
    "dup": "f",
    "dup2": "ff",
    "fstat": "fp",
    "newfstatat": "Fspm",
    "unlink": "s",
    "unlinkat": "Fsu",
    "sync": "",
    "exit_group": "n",
    "getpid": "",
}


def _flags(value: int, names: Mapping[int, str], first: list[str]) -> str:
    out = first
    for bit, name in names.items():
        if value & bit:
            out.append(name)
            value &= ~bit
    if value:
        out.append(hex(value))
    return "|".join(out) or "0"


def _signed(value: int, bits: int = 64) -> int:
    return value - (1 << bits) if value >= 1 << (bits - 1) else value


class _Paths:
    """The path behind each descriptor, and behind each user pointer, as far as the recording tells."""

    def __init__(self, strings: dict[str, tuple[list[int], list[str], list[int]]]) -> None:
        self._strings = strings
        self._open: dict[tuple[int, int], str] = {}

    def text(self, syscall: str, time: int, pid: int) -> str | None:
        found = self._strings.get(syscall)
        if found is None:
            return None
        times, texts, pids = found
        at = bisect.bisect_left(times, time)
        return texts[at] if at < len(times) and times[at] == time and pids[at] == pid else None

    def opened(self, pid: int, descriptor: int, path: str | None) -> None:
        if path is not None:
            self._open[pid, descriptor] = path
        else:
            self._open.pop((pid, descriptor), None)

    def closed(self, pid: int, descriptor: int) -> None:
        self._open.pop((pid, descriptor), None)

    def descriptor(self, pid: int, descriptor: int) -> str:
        path = self._open.get((pid, descriptor))
        return f"{descriptor}<{path}>" if path is not None else str(descriptor)


def _recorded_paths(
    file: core.TraceFile, selection: dict[str, Any]
) -> dict[str, tuple[list[int], list[str], list[int]]]:
    """Paths that the enter events themselves carry, as fields like ``__filename_val`` (from 6.19 on)."""
    out: dict[str, tuple[list[int], list[str], list[int]]] = {}
    for name in ("open", "openat", "creat", "unlink", "unlinkat", "newfstatat"):
        event = f"syscalls:sys_enter_{name}"
        if event not in file.events:
            continue
        fields = [field["name"] for field in file.format(event)["fields"]]
        texts = [field for field in fields if field in ("__filename_val", "__pathname_val")]
        if not texts:
            continue
        window = {key: selection[key] for key in ("buffer", "start", "stop") if key in selection}
        table = next(iter(file.decode([event], fields=[texts[0], "common_pid"], **window).values()))
        column = table.column(texts[0])
        words = column.categories or []
        out[name] = (
            table.column("time").values.tolist(),
            [words[code] if code >= 0 else "" for code in column.values.tolist()],
            table.column("common_pid").values.tolist(),
        )
    return out


def _argument(kind: str, value: int, pid: int, path: str | None, paths: _Paths) -> str:
    match kind:
        case "f":
            return paths.descriptor(pid, _signed(value & 0xFFFFFFFF, 32))
        case "F":
            directory = _signed(value & 0xFFFFFFFF, 32)
            return "AT_FDCWD" if directory == -100 else paths.descriptor(pid, directory)
        case "s":
            return f'"{path}"' if path is not None else (hex(value) if value else "NULL")
        case "p":
            return hex(value) if value else "NULL"
        case "n":
            return str(_signed(value))
        case "o":
            return _flags(value & ~3 & 0xFFFFFFFF, _OPEN, [_ACCESS[value & 3]])
        case "m":
            return f"{value & 0o7777:#o}".replace("0o", "0")
        case "A":
            return f"POSIX_FADV_{_ADVICE[value]}" if value < len(_ADVICE) else str(value)
        case "w":
            return _WHENCE[value] if value < len(_WHENCE) else str(value)
        case "l":
            return _flags(value & 0xFFFFFFFF, _FALLOCATE, [])
        case _:
            return str(value)


def lines(file: core.TraceFile, table: Table, selection: dict[str, Any], limit: int | None) -> Iterator[str]:
    """See :meth:`Syscalls.lines`."""
    paths = _Paths(_recorded_paths(file, selection))
    columns = [table[name].values for name in ("time", "duration", "pid", "syscall", "ret", "errno")]
    arguments = [table[f"arg{i}"].codes for i in range(6)]
    several = len(set(columns[2].tolist())) > 1
    rows = len(table) if limit is None else min(limit, len(table))
    for row in range(rows):
        time, duration, pid, name, ret, error = (column[row] for column in columns)
        time, duration, pid, ret = int(time), int(duration), int(pid), int(ret)
        path = paths.text(name, time, pid)
        signature = _SIGNATURES.get(name)
        values = [int(column[row]) for column in arguments]
        if name in ("open", "openat") and signature is not None and not values[len(signature) - 2] & 0o100:
            signature = signature[:-1]  # without O_CREAT there is no mode
        if signature is None:
            while values and values[-1] == 0:
                values.pop()
            shown = [hex(value) if value > 0xFFFF else str(value) for value in values]
        else:
            shown = [_argument(kind, values[i], pid, path, paths) for i, kind in enumerate(signature)]
        if name in ("open", "openat", "creat") and ret >= 0:
            paths.opened(pid, ret, path)
        elif name == "close":
            paths.closed(pid, values[0] if values else 0)
        result = (
            f"-1 {errno.errorcode.get(int(error), str(error))}"
            if error
            else str(ret)
            if abs(ret) < 1 << 32
            else hex(ret)
        )
        who = f"[pid {pid}] " if several else ""
        yield (
            f"{who}{time // 10**9}.{time % 10**9 // 1000:06d} {name}({', '.join(shown)})".ljust(39)
            + f" = {result} <{duration // 10**9}.{duration % 10**9 // 1000:06d}>"
        )
