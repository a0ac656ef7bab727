# SPDX-License-Identifier: MIT
"""System calls in strace's own form, for the calls of file I/O; the rest with plain numbers."""

from __future__ import annotations

import bisect
import errno
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from sampleblk_lab._native import core
from sampleblk_lab.texts import readable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

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
# include/uapi/linux/fcntl.h, those of newfstatat
_AT = {0x100: "AT_SYMLINK_NOFOLLOW", 0x800: "AT_NO_AUTOMOUNT", 0x1000: "AT_EMPTY_PATH"}

# What the arguments are: f a descriptor, F a directory's, p a pointer, s a path, n a signed and u an unsigned number,
# o flags of open, a of newfstatat, m a mode, A advice, w whence, l fallocate's mode.
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
    "newfstatat": "Fspa",
    "stat": "sp",
    "access": "su",
    "faccessat": "Fsu",
    "execve": "spp",
    "mkdir": "sm",
    "mkdirat": "Fsm",
    "rename": "ss",
    "renameat": "FsFs",
    "renameat2": "FsFsu",
    "link": "ss",
    "linkat": "FsFsu",
    "symlink": "ss",
    "truncate": "sn",
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


_ESCAPES = {"\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v"}


def _escaped(path: str, ends: str = "") -> str:
    """As strace writes it (string_quote() in its util.c), but UTF-8 as it is, and what is none as the core has it.

    Args:
        path: Any text.
        ends: What may not stand in it, beside a quote.
    """

    def escape(found: re.Match[str]) -> str:
        one = found[0]
        if one in '"\\':
            return f"\\{one}"
        return _ESCAPES.get(one) or "".join(f"\\{byte:03o}" for byte in one.encode())

    if path.isprintable() and not any(one in path for one in f'"\\{ends}'):
        return path
    return readable(re.sub(rf'["\x00-\x1f\x7f-\x9f{ends}]|\\(?!x[0-9a-f]{{2}})', escape, path))


class _Recorded(NamedTuple):
    """Path names in time order."""

    times: list[int]
    texts: list[str]
    pids: list[int]


class _Probed(NamedTuple):
    """A path name as the kernel had it, and the pointer by which the caller gave it."""

    time: int
    text: str
    pid: int
    pointer: int


class _Call(NamedTuple):
    name: str
    time: int
    duration: int
    pid: int


class _Paths:
    """The path behind each user pointer, as far as the recording tells."""

    def __init__(self, fields: dict[str, _Recorded], probed: list[_Probed]) -> None:
        self._fields = fields
        self._by_pid: dict[int, list[_Probed]] = {}
        for one in probed:
            self._by_pid.setdefault(one.pid, []).append(one)

    def text(self, call: _Call, pointer: int) -> str | None:
        """The path name that a call was given by that pointer."""
        found = self._fields.get(call.name)
        if found is not None:
            at = bisect.bisect_left(found.times, call.time)
            mine = at < len(found.times) and found.times[at] == call.time and found.pids[at] == call.pid
            # The kernel ends a text that had no room with dots (syscall_get_data() in kernel/trace/trace_syscalls.c).
            if mine and not found.texts[at].endswith("..."):
                return found.texts[at]
            return self._probed(call, pointer) or (found.texts[at] if mine else None)
        return self._probed(call, pointer)

    def _probed(self, call: _Call, pointer: int) -> str | None:
        own = self._by_pid.get(call.pid, [])
        for at in range(bisect.bisect_left(own, call.time, key=lambda probed: probed.time), len(own)):
            if own[at].time > call.time + call.duration:
                break
            if own[at].pointer == pointer:
                return own[at].text
        return None


def _texts(table: core.Table, field: str) -> _Recorded:
    column = table.column(field)
    words = column.categories or []
    return _Recorded(
        table.column("time").values.tolist(),
        [words[code] if code >= 0 else "" for code in column.values.tolist()],
        table.column("common_pid").values.tolist(),
    )


def _field_paths(file: core.TraceFile, window: dict[str, Any]) -> dict[str, _Recorded]:
    """Paths that the enter events themselves carry, as fields like ``__filename_val`` (from 6.19 on)."""
    out: dict[str, _Recorded] = {}
    for name in ("open", "openat", "creat", "unlink", "unlinkat", "newfstatat"):
        event = f"syscalls:sys_enter_{name}"
        if event not in file.events:
            continue
        fields = [field["name"] for field in file.format(event)["fields"]]
        texts = [field for field in fields if field in ("__filename_val", "__pathname_val")]
        if texts:
            table = next(iter(file.decode([event], fields=[texts[0], "common_pid"], **window).values()))
            out[name] = _texts(table, texts[0])
    return out


def _probed_paths(file: core.TraceFile, window: dict[str, Any]) -> list[_Probed]:
    """Paths that the probes of ``record(paths=True)`` read, in time order."""
    found: list[_Probed] = []
    for table in file.decode(["sampleblk:path_*"], fields=["path", "pointer", "common_pid"], **window).values():
        found += map(_Probed, *_texts(table, "path"), table.column("pointer").values.tolist())
    return sorted(found)


def _argument(kind: str, value: int, file: str | None, call: _Call, paths: _Paths) -> str:
    match kind:
        case "f" | "F":
            descriptor = _signed(value & 0xFFFFFFFF, 32)
            if kind == "F" and descriptor == -100:
                return "AT_FDCWD"
            return str(descriptor) if file is None else f"{descriptor}<{_escaped(file, '<>')}>"
        case "s":
            path = paths.text(call, value)
            return f'"{_escaped(path)}"' if path is not None else (hex(value) if value else "NULL")
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
        case "a":
            return _flags(value & 0xFFFFFFFF, _AT, [])
        case "l":
            return _flags(value & 0xFFFFFFFF, _FALLOCATE, [])
        case _:
            return str(value)


def lines(file: core.TraceFile, table: Table, selection: dict[str, Any], limit: int | None) -> Iterator[str]:
    """See :meth:`Syscalls.lines`."""
    window = {key: selection[key] for key in ("buffer", "start", "stop") if key in selection}
    paths = _Paths(_field_paths(file, window), _probed_paths(file, window))
    columns = [table[name].values for name in ("time", "duration", "pid", "syscall", "ret", "errno")]
    arguments = [table[f"arg{i}"].codes for i in range(6)]
    # The rows of the calls that opened what the arguments are descriptors of, and the paths that these opened.
    rows = len(table) if limit is None else min(limit, len(table))
    opened = [column.values[:rows].tolist() for column in core.opened_table(table._table).columns]  # noqa: SLF001
    files: dict[int, str | None] = {}
    several = len(set(columns[2].tolist())) > 1
    for row in range(rows):
        time, duration, pid, name, ret, error = (column[row] for column in columns)
        time, duration, pid, ret = int(time), int(duration), int(pid), int(ret)
        call = _Call(name, time, duration, pid)
        signature = _SIGNATURES.get(name)
        values = [int(column[row]) for column in arguments]
        if name in ("open", "openat") and signature is not None and not values[len(signature) - 2] & 0o100:
            signature = signature[:-1]  # without O_CREAT there is no mode
        if signature is None:
            while values and values[-1] == 0:
                values.pop()
            shown = [hex(value) if value > 0xFFFF else str(value) for value in values]
        else:
            of = [files.get(column[row]) for column in opened] + [None] * 3
            shown = [_argument(kind, values[i], of[i], call, paths) for i, kind in enumerate(signature)]
        if signature and name in ("open", "openat", "creat") and ret >= 0:
            files[row] = paths.text(call, values[signature.index("s")])
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
