# SPDX-License-Identifier: MIT
"""An oracle that writes itself: a program runs, and what its calls promise is known when they return.

:func:`watched` runs any program beside a recording and takes down, at each fsync(2), fdatasync(2), syncfs(2), sync(2)
and write through O_SYNC or O_DSYNC, what is durable from then on; at each call that changes a file or a name, what may
be otherwise from then on::

    with crash.recording(device, folder) as log:
        with fs.mount() as mount:
            promises = crash.watched(["./my-program"], mount, device.mark)
    crash.Log(log, base=folder / "base.img").explore(crash.mounted("ext4", crash.as_watched(promises)))

Both are taken from the live file system and from the calls themselves; nothing is asked of the program. A file or name
that was changed after it was made durable may be as it was or as it is, and of a file only the bytes that were changed.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import hashlib
import mmap
import os
import resource
import socket
import stat
import time
from array import array
from dataclasses import dataclass, field
from fcntl import ioctl
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sampleblk_lab import leftovers, proc
from sampleblk_lab.crash import intercept
from sampleblk_lab.crash.checks import check_marks, plain_only, ready
from sampleblk_lab.errors import InputError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from sampleblk_lab.crash.intercept import Call
    from sampleblk_lab.crash.log import State

RULES = ("posix", "ext4")

_BLOCK = 4096
# The begin of the marks, so that other marks can be beside them.
_MARK = "watched "
# What an event has that makes something durable.
_PROMISES = frozenset({"names", "facts", "pieces"})

# What a name stands for that a call was about to make.
_ANY = "?"

_SYNCS = ("fsync", "fdatasync", "sync", "syncfs")
_RESOLVE_IN_ROOT = 0x10  # openat2(2)
_OPENS = {"open": (0, 1), "creat": (0, None), "openat": (1, 2), "openat2": (1, None)}
_RENAMES = {"rename": (None, 0, None, 1), "renameat": (0, 1, 2, 3), "renameat2": (0, 1, 2, 3)}
_LINKS = {"link": (None, 0, None, 1), "linkat": (0, 1, 2, 3)}
_MAKES = {"mkdir": 0, "mknod": 0, "symlink": 1, "mkdirat": 1, "mknodat": 1, "symlinkat": 2}
_REMOVES = {"unlink": 0, "rmdir": 0, "unlinkat": 1}
_WRITES = ("write", "writev", "pwrite64", "pwritev", "pwritev2", "ftruncate", "fallocate")
_COPIES = {"sendfile": 0, "splice": 2, "copy_file_range": 2}
# Those that generic_write_sync() of the kernel makes durable before they return.
_THROUGH = ("write", "writev", "pwrite64", "pwritev", "pwritev2")
# Bytes of one write that are copied to make it in the program's place.
_MOST = 1 << 30
_SEEN = (
    *_SYNCS,
    *_OPENS,
    *_RENAMES,
    *_LINKS,
    *_MAKES,
    *_REMOVES,
    *_WRITES,
    *_COPIES,
    *("truncate", "mmap", "mprotect", "pkey_mprotect", "ioctl", "open_by_handle_at", "chroot", "bind"),
    # Writes that no call of the program's makes. Programs that find these missing use others.
    *("io_uring_setup", "io_setup"),
)

# linux/falloc.h, linux/fs.h, linux/fcntl.h
_KEEP_SIZE, _PUNCH_HOLE, _ZERO_RANGE = 0x01, 0x02, 0x10
_CLONES = (0x40049409, 0x4020940D, 0xC0189436)
_RWF_DSYNC, _RWF_SYNC, _RWF_APPEND, _RWF_NOAPPEND, _RWF_ATOMIC = 0x02, 0x04, 0x10, 0x20, 0x40
_DIRECTORY_SYNC, _FILE_SYNC = 0x10000, 0x8
# ioctls that neither change nor sync a file: TCGETS, FIONREAD, FIONBIO, FIOCLEX, FIONCLEX, TIOCGWINSZ, TIOCGPGRP,
# FIBMAP, FIGETBSZ, FS_IOC_GETFLAGS, FS_IOC_GETVERSION, FS_IOC_FIEMAP, FS_IOC_FSGETXATTR, FITRIM.
_HARMLESS = (
    *(0x5401, 0x541B, 0x5421, 0x5451, 0x5450, 0x5413, 0x540F, 1, 2),
    *(0x80086601, 0x80087601, 0xC020660B, 0x801C581F, 0xC0185879),
)
_GET_FLAGS = 0x80086601
_EXCHANGE, _WHITEOUT = 2, 4
_FAMILY_BYTES, _MOST_OF_ADDRESS = 2, 110  # linux/un.h
_AT_SYMLINK_FOLLOW, _AT_EMPTY_PATH = 0x400, 0x1000
_REALTIME_COARSE = 5  # linux/time.h

# What is another file for each process.
_OWN = (
    *(("/proc/self", ""), ("/proc/thread-self", ""), ("/dev/fd", "/fd")),
    *(("/dev/stdin", "/fd/0"), ("/dev/stdout", "/fd/1"), ("/dev/stderr", "/fd/2")),
)

Event = dict[str, Any]


@dataclass
class Watched:
    """What a program was promised.

    Attributes:
        rule: Whose promises.
        events: Promises and changes, in their order; a mark of the recording has the number of each.
        status: The program's exit status; negative: the signal that it died of.
        unjudged: What is not looked at, and why; what a program has left undone that failed.
    """

    rule: str
    events: list[Event] = field(default_factory=list)
    status: int = 0
    unjudged: list[str] = field(default_factory=list)

    @property
    def promises(self) -> int:
        """How many calls promised something."""
        return sum(not _PROMISES.isdisjoint(event) for event in self.events)


def watched(
    what: Sequence[str] | Callable[[], object],
    mount: str | os.PathLike[str],
    mark: Callable[[str], object],
    *,
    rule: str = "ext4",
    auto_da_alloc: bool = False,
) -> Watched:
    """Runs a program on a file system and takes down what it is promised, for :func:`as_watched`.

    Its threads and what it starts are watched too. A write through a descriptor that was opened with O_SYNC or O_DSYNC,
    or with RWF_SYNC or RWF_DSYNC, promises what it wrote; sync_file_range(2) promises nothing. Extended attributes,
    modes and owners are not looked at. What else could promise something that is not checked, or change what nobody
    sees, is in :attr:`Watched.unjudged`, such as shared mappings; io_uring and Linux AIO are refused with ENOSYS, on
    which programs use other calls. Nobody else may change the file system meanwhile.

    Args:
        what: The command, or a function, which runs in a fork.
        mount: Where the file system is mounted; it is synced first, and all that it holds then is promised.
        mark: Such as :meth:`Device.mark`.
        rule: ``"posix"``: a file's contents are promised by its own fsync, a name by its folder's. ``"ext4"``: an fsync
            also commits all names that were changed before, as ext4 does with its journal (without ``fast_commit``).
        auto_da_alloc: A file that replaces another one by rename has its contents when it has its name, as ext4 has it
            with that mount option.

    Raises:
        InputError: Another rule, no folder, an empty command.
        UnsupportedError: This machine's system calls are not known; the file system gives no handles of its files.
        OSError: The program cannot be executed.
    """
    if rule not in RULES:
        raise InputError(f"rule {rule!r}", expected=" or ".join(RULES))
    top = Path(mount).resolve()
    if not top.is_dir():
        raise InputError(f"{mount} is not a folder", expected="where the file system is mounted")
    try:
        _identity(str(top))
    except OSError as error:
        reason = f"files at {top} have no handles: {error.strerror}"
        raise UnsupportedError("watching a program", reason, "use ext4, xfs, btrfs, f2fs or tmpfs") from None
    watcher = _Watcher(top, mark, rule, auto_da_alloc)
    watcher.begin()
    found = watcher.found
    found.status = intercept.run(what, _SEEN, watcher.see)
    if found.status:
        how = f"by signal {-found.status}" if found.status < 0 else f"with status {found.status}"
        found.unjudged.append(f"what the program has left undone, which ended {how}")
    return found


# --- while it runs


class _Watcher:
    def __init__(self, top: Path, mark: Callable[[str], object], rule: str, auto_da_alloc: bool) -> None:
        self._top = top
        self._device = top.stat().st_dev
        self._mount = _mount_of(top)
        self._mark = mark
        self._replaces = auto_da_alloc
        self.found = Watched(rule)
        self._last: dict[int, tuple[int, int]] = {}  # of a thread: its newest change, and that call's number
        self._noted_ns: list[int] = []  # when each event was noted, by the clock that files get their times from

    def begin(self) -> None:
        os.sync()
        if (mount := leftovers.mount_of(self._top)) is not None:
            for option in sorted(mount.options & {"sync", "dirsync", "wsync"}):
                self._unjudged(f"what the mount option {option} promises")
        for path in _walk(self._top):
            self._look_at_flags(path)
        self._note({"names": _names(self._top), "facts": self._all_facts()})

    def see(self, call: Call) -> int | None:
        """Called before each call of the program's that could matter."""
        if call.name in ("io_uring_setup", "io_setup"):
            self._unjudged(f"nothing of {call.name}(2), which was refused: the program ran as on a kernel without it")
            return -errno.ENOSYS
        event: Event | None = None
        result = None
        with contextlib.suppress(OSError):  # it is gone, or the call will fail as ours did
            if call.name in _SYNCS:
                event, result = self._sync(call)
            elif (event := self._change(call)) is not None:
                self._last[call.thread] = len(self.found.events), call.code
                if call.name in _THROUGH and (flags := self._durable_by(call)):
                    file = event["file"]
                    self._note(event)
                    event = None
                    event, result = self._write_through(call, file, flags)
        if event is not None:
            self._note(event)
        return result

    def _note(self, event: Event) -> None:
        self._mark(f"{_MARK}{len(self.found.events)}")
        self._noted_ns.append(time.clock_gettime_ns(_REALTIME_COARSE))
        self.found.events.append(event)

    def _unjudged(self, why: str) -> None:
        if why not in self.found.unjudged:
            self.found.unjudged.append(why)

    # -- promises

    def _sync(self, call: Call) -> tuple[Event | None, int | None]:
        """Makes the call in the program's place: what is promised, and its result."""
        whole = call.name in ("sync", "syncfs")
        event: Event = {"by": call.name, "open": self._on_their_way(call.thread)}
        descriptor = -1 if call.name == "sync" else call.borrow(call.number(0, 32))
        try:
            if descriptor >= 0 and not self._is_ours(os.getpid(), descriptor):
                return None, None
            if whole:
                event.update(names=_names(self._top), facts=self._all_facts())
            else:
                event.update(self._of_file(descriptor, call.name))
            try:
                {"fsync": os.fsync, "fdatasync": os.fdatasync, "syncfs": _sync_one}.get(call.name, _sync_all)(
                    descriptor
                )
            except OSError as error:
                return None, -(error.errno or errno.EIO)
        finally:
            if descriptor >= 0:
                os.close(descriptor)
        return event, 0

    def _durable_by(self, call: Call) -> int:
        """O_SYNC, O_DSYNC or 0: what a write promises by its descriptor or its own flags."""
        opened = int(self._opened_as(call)["flags"], 8)
        flags = call.arguments[5] if call.name == "pwritev2" else 0
        if flags & _RWF_ATOMIC:
            self._unjudged("that writes with RWF_ATOMIC are there whole or not at all")
        if flags & _RWF_SYNC or opened & os.O_SYNC == os.O_SYNC:
            return os.O_SYNC
        return os.O_DSYNC if flags & _RWF_DSYNC or opened & os.O_DSYNC else 0

    def _write_through(self, call: Call, file: str, durable: int) -> tuple[Event | None, int | None]:
        """Makes a write that is durable at its return in the program's place: what is promised, and its result."""
        name = call.name
        offset = call.number(3) if name.startswith("pwrite") else -1
        here = name in ("write", "writev") or (name == "pwritev2" and offset == -1)
        opened = self._opened_as(call)
        flags = call.arguments[5] & 0xFFFFFFFF if name == "pwritev2" else 0
        append = flags & _RWF_APPEND or (int(opened["flags"], 8) & os.O_APPEND and not flags & _RWF_NOAPPEND)
        where = self._relative(str(Path(f"/proc/{call.thread}/fd/{call.number(0, 32)}").readlink()))
        why = f"what {name}(2) has written to {where or 'a file without a name'} through O_SYNC or O_DSYNC"
        if resource.prlimit(call.thread, resource.RLIMIT_FSIZE)[0] != resource.RLIM_INFINITY:
            self._unjudged(f"{why}, under RLIMIT_FSIZE")
            return None, None
        if offset < 0 and not here:
            return None, None  # it will fail
        if not call.once and (append or here):
            self._unjudged(f"{why}, on a kernel older than 5.19")
            return None, None
        data = self._data(call)
        event: Event = {"by": name, "of": where, "open": self._on_their_way(call.thread)}
        names = _names(self._top) if self.found.rule == "ext4" and durable == os.O_SYNC else None
        descriptor = call.borrow(call.number(0, 32))
        try:
            # pwritev2(2), of which an offset of -1 is the file's own.
            count = os.pwritev(descriptor, data, offset, flags)
            status = os.fstat(descriptor)
            first = os.lseek(descriptor, 0, os.SEEK_CUR) - count if here else offset
            if append:
                first = status.st_size - count
        except OSError as error:
            return None, -(error.errno or errno.EIO)
        finally:
            os.close(descriptor)
        self._last.pop(call.thread, None)  # it has ended
        if not count:
            return None, 0  # what writes nothing syncs nothing
        event["pieces"] = {file: _pieces(b"".join(data)[:count], first)}
        if names is not None:
            event.update(names=names, until=self._changed_last(file, where, status))
        return event, count

    @staticmethod
    def _data(call: Call) -> list[memoryview]:
        """What a write would write, at addresses that are aligned as the program's are (O_DIRECT)."""
        if call.name in ("write", "pwrite64"):
            parts = [(call.arguments[1], call.arguments[2])]
        else:
            count = call.number(2)
            if not 0 <= count <= os.sysconf("SC_IOV_MAX"):
                raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
            vector = array("Q", call.bytes(1, 16 * count))
            parts = list(zip(vector[::2], vector[1::2], strict=True))
        if sum(size for _, size in parts) > _MOST:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        found = []
        for address, size in parts:
            skip = address % mmap.PAGESIZE
            view = memoryview(mmap.mmap(-1, skip + size + 1))[skip : skip + size]
            call.read(address, view)
            found.append(view)
        return found

    @staticmethod
    def _opened_as(call: Call, descriptor: int | None = None) -> dict[str, str]:
        """What /proc says of an open file, unless told the one that a call's first argument is: flags, pos."""
        return _about_descriptor(call.thread, call.number(0, 32) if descriptor is None else descriptor)

    def _look_at_flags(self, path: Path) -> None:
        """Whether a file has chattr's +S or +D, which make calls promise what is not looked at."""
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            return
        flags = array("i", [0])
        with contextlib.suppress(OSError):
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
            try:
                ioctl(descriptor, _GET_FLAGS, flags)
            finally:
                os.close(descriptor)
        if flags[0] & (_FILE_SYNC | _DIRECTORY_SYNC):
            self._unjudged(f"what the flag S or D of {self._relative(str(path))} promises (chattr(1))")

    def _on_their_way(self, thread: int) -> list[int]:
        """The changes of other threads that may come before or after what this one does now."""
        for other, (_, code) in list(self._last.items()):
            try:
                now = proc.text(other, "syscall").split()[0]
            except OSError:
                now = ""  # it has ended
            if other == thread or now not in (str(code), "running"):
                del self._last[other]
        return [number for number, _ in self._last.values()]

    def _of_file(self, descriptor: int, name: str) -> Event:
        event: Event = {"facts": {}}
        way = f"/proc/self/fd/{descriptor}"
        status = os.fstat(descriptor)
        file = _identity(way)
        path = self._relative(str(Path(way).readlink())) if status.st_nlink else None
        event["of"] = path
        if stat.S_ISREG(status.st_mode):
            event["facts"][file] = _facts(way)
        if self.found.rule == "ext4" and name == "fsync":
            event.update(names=_names(self._top), until=self._changed_last(file, path, status))
        elif stat.S_ISDIR(status.st_mode) and path is not None and name == "fsync":
            event.update(names=_names(self._top), folder=path)
        return event

    def _changed_last(self, file: str, path: str | None, status: os.stat_result) -> int:
        """The newest event for which the file's inode is in the journal for certain; -1: none."""
        for number in range(len(self.found.events) - 1, -1, -1):
            event = self.found.events[number]
            if self._noted_ns[number] > status.st_ctime_ns:
                continue  # it failed, did nothing, or moved no more than a folder that the file is in
            if event.get("file") == file and event["grows_to"] is not None and status.st_size >= event["grows_to"]:
                return number
            for name, value in event.get("changes", ()):
                if path is not None and (name == path or (file[0] == "d" and _parent(name) == path)):
                    return number
                if value == file:
                    return number
        return -1

    def _all_facts(self) -> dict[str, Any]:
        found = {}
        for path in _walk(self._top):
            if path.is_file() and not path.is_symlink():
                found[_identity(str(path))] = _facts(str(path))
        return found

    # -- changes

    def _change(self, call: Call) -> Event | None:
        name = call.name
        if name in _OPENS:
            return self._opened(call)
        if name in _WRITES:
            return self._written(call, call.number(0, 32))
        if name in _COPIES:
            descriptor = call.number(_COPIES[name], 32)
            way = self._descriptor(call, descriptor)
            self._not_through(call, descriptor, way)
            return self._touched(way, 0, None)
        if name == "truncate":
            return self._cut(self._resolved(call, None, 0), call.number(1))
        if name == "mmap":
            # PROT_WRITE of a file, MAP_SHARED or MAP_SHARED_VALIDATE
            if call.arguments[2] & 2 and call.arguments[3] & 0xF in (1, 3) and not call.arguments[3] & 0x20:
                return self._mapped(self._descriptor(call, call.number(4, 32)))
            return None
        if name in ("mprotect", "pkey_mprotect"):
            return self._made_writable(call) if call.arguments[2] & 2 else None
        if name == "ioctl":
            return self._controlled(call)
        if name == "open_by_handle_at":
            if call.arguments[2] & (os.O_TRUNC | os.O_WRONLY | os.O_RDWR):
                self._unjudged("which files open_by_handle_at(2) has cut")
            return None
        if name == "chroot":
            self._unjudged("whose files paths are after chroot(2)")
            return None
        return self._bound(call) if name == "bind" else self._named(call)

    def _mapped(self, way: str | None) -> Event | None:
        event = self._touched(way, 0, None)
        if event is not None:
            event["for_ever"] = True
            self._unjudged(f"the contents of {event['of']}, which is mapped writable and shared")
        return event

    def _made_writable(self, call: Call) -> Event | None:
        """A shared mapping that becomes writable; more than one at a time are noted here but for the last."""
        first, end = call.arguments[0], call.arguments[0] + call.arguments[1]
        event = None
        for line in proc.text(call.thread, "maps").split("\n")[:-1]:
            fields = line.split(None, 5)
            begin, stop = (int(value, 16) for value in fields[0].split("-"))
            if begin < end and stop > first and fields[1][3] == "s" and len(fields) == 6:
                path = fields[5]
                if not Path(path).exists():
                    path = path.replace("\\012", "\n")  # the one character that maps escapes
                if self._relative(path) is None:
                    continue
                if not Path(path).is_file():
                    self._unjudged(f"the contents of {self._relative(path)}, which is mapped writable and shared")
                    continue
                if event is not None:
                    self._note(event)
                event = self._mapped(path)
        return event

    def _controlled(self, call: Call) -> Event | None:
        request = call.arguments[1] & 0xFFFFFFFF
        descriptor = call.number(0, 32)
        if request in _CLONES:
            way = self._descriptor(call, descriptor)
            self._not_through(call, descriptor, way)
            return self._touched(way, 0, None)
        if request not in _HARMLESS and self._is_ours(call.thread, descriptor):
            path = self._relative(str(Path(f"/proc/{call.thread}/fd/{descriptor}").readlink()))
            self._unjudged(f"what ioctl(2) 0x{request:x} of {path or 'a file without a name'} changes or promises")
        return None

    def _not_through(self, call: Call, descriptor: int, way: str | None) -> None:
        """Says that a call which changes a file by other means promises nothing, though the descriptor would."""
        if way is None:
            return
        if int(self._opened_as(call, descriptor)["flags"], 8) & os.O_DSYNC:
            of = self._relative(str(Path(way).readlink())) or "a file without a name"
            self._unjudged(f"what {call.name}(2) has changed of {of} through O_SYNC or O_DSYNC")

    def _descriptor(self, call: Call, descriptor: int) -> str | None:
        """A way to a regular file of ours that the program has open."""
        way = f"/proc/{call.thread}/fd/{descriptor}"
        is_file = stat.S_ISREG(os.stat(way).st_mode)  # noqa: PTH116
        return way if is_file and self._is_ours(call.thread, descriptor) else None

    def _is_ours(self, process: int, descriptor: int) -> bool:
        if os.stat(f"/proc/{process}/fd/{descriptor}").st_dev == self._device:  # noqa: PTH116
            return True
        # Each subvolume of a btrfs has a device number of its own.
        return _about_descriptor(process, descriptor)["mnt_id"] == self._mount

    def _touched(
        self, way: str | None, first: int, last: int | None, *, size: int | None = None, end: int = 0
    ) -> Event | None:
        """Bytes from `first` to before `last` may change, and the file may be as short as `size`.

        `end` is where it ends for certain when the call has succeeded.
        """
        if way is None:
            return None
        name = self._relative(str(Path(way).readlink() if way.startswith("/proc/") else way))
        grows_to = end if end > os.stat(way).st_size else None  # noqa: PTH116
        return {"file": _identity(way), "of": name, "first": first, "last": last, "size": size, "grows_to": grows_to}

    def _cut(self, way: str | None, size: int) -> Event | None:
        return None if size < 0 else self._touched(way, size, None, size=size, end=size)

    def _written(self, call: Call, descriptor: int) -> Event | None:
        way = self._descriptor(call, descriptor)
        if way is None:
            return None
        if call.name == "ftruncate":
            return self._cut(way, call.number(1))
        if call.name == "fallocate":
            self._not_through(call, descriptor, way)
            mode, first, size = call.arguments[1] & 0xFFFFFFFF, call.number(2), call.number(3)
            if mode & ~(_KEEP_SIZE | _PUNCH_HOLE | _ZERO_RANGE):
                return self._touched(way, max(first, 0), None, size=0)  # collapses or inserts a range
            return self._touched(way, max(first, 0), first + size)
        opened = self._opened_as(call)
        flags = call.arguments[5] if call.name == "pwritev2" else 0
        if flags & _RWF_APPEND or (int(opened["flags"], 8) & os.O_APPEND and not flags & _RWF_NOAPPEND):
            size = os.stat(way).st_size  # noqa: PTH116
            return self._touched(way, size, None, end=size + (call.arguments[2] if call.name == "write" else 0))
        if call.name == "pwrite64":
            first = max(call.number(3), 0)
            return self._touched(way, first, first + call.arguments[2], end=first + call.arguments[2])
        if call.name in ("write", "writev") or (call.name == "pwritev2" and call.number(3) == -1):
            first = int(opened["pos"])
            return self._touched(way, first, None, end=first + (call.arguments[2] if call.name == "write" else 0))
        return self._touched(way, max(call.number(3), 0), None)

    def _opened(self, call: Call) -> Event | None:
        at, index = _OPENS[call.name]
        if call.name == "openat2":
            flags = int.from_bytes(call.bytes(2, 8), "little")
        else:
            flags = os.O_CREAT | os.O_TRUNC if index is None else call.arguments[index] & 0xFFFFFFFF
        if not flags & (os.O_CREAT | os.O_TRUNC):
            return None
        if call.name == "openat2" and int.from_bytes(call.bytes(2, 24)[16:], "little") & _RESOLVE_IN_ROOT:
            path = self._resolved_in_root(call)
        else:
            path = self._resolved(call, 0 if at else None, at)
        if path is None:
            return None
        if not Path(path).exists():
            return {"changes": [[self._relative(path), _ANY]]} if flags & os.O_CREAT else None
        return self._cut(path, 0) if flags & os.O_TRUNC and Path(path).is_file() else None

    def _named(self, call: Call) -> Event | None:
        name = call.name
        if name in _RENAMES or name in _LINKS:
            places = _RENAMES.get(name) or _LINKS[name]
            old = self._place(call, places[0], places[1])
            new = self._place(call, places[2], places[3])
            if name == "linkat" and call.arguments[4] & _AT_SYMLINK_FOLLOW:
                old = self._relative(os.path.realpath(self._absolute(call, 0, 1)))
            if new is None:
                return None
            if name in _LINKS:
                there = old is not None and old in (names := _names(self._top))
                return {"changes": [[new, names[old] if there and old is not None else _ANY]]}
            flags = call.arguments[4] if name == "renameat2" else 0
            return None if old is None else self._renamed(old, new, flags)
        index = (_MAKES | _REMOVES)[name]
        # The folder's descriptor is before the path.
        place = self._place(call, index - 1 if name.endswith("at") else None, index)
        if place is None:
            return None
        return {"changes": [[place, _ANY if name in _MAKES else None]]}

    def _bound(self, call: Call) -> Event | None:
        """A local socket's address is a name, which is made."""
        size = call.number(2, 32)
        if not _FAMILY_BYTES < size <= _MOST_OF_ADDRESS:
            return None
        address = call.bytes(1, size)
        path = os.fsdecode(address[_FAMILY_BYTES:].split(b"\0", 1)[0])  # empty: an abstract one
        if int.from_bytes(address[:_FAMILY_BYTES], "little") != socket.AF_UNIX or not path:
            return None
        place = self._placed(self._begun(call, None, path))
        return None if place is None else {"changes": [[place, _ANY]]}

    def _renamed(self, old: str, new: str, flags: int) -> Event | None:
        names = _names(self._top)
        if old not in names:
            return None
        exchange = bool(flags & _EXCHANGE)
        changes: list[list[str | None]] = []
        gone = []
        for there, here in ((old, new), (new, old)) if exchange else ((old, new),):
            for path in names:
                if path == there or path.startswith(f"{there}/"):
                    changes.append([here + path[len(there) :], names[path]])
                    gone.append(path)
        # Of two that are exchanged, one may have below it what the other has not.
        come = {path for path, _ in changes}
        changes += [[path, None] for path in gone if path not in come]
        if flags & _WHITEOUT:
            changes.append([old, _ANY])
        event: Event = {"changes": changes}
        if not exchange:
            event["moves"] = [old, new, names[old]]
            source = self._top / old
            if self._replaces and new in names and source.is_file() and not source.is_symlink():
                event["replaces"] = _facts(str(source))
        return event

    def _resolved(self, call: Call, folder: int | None, index: int) -> str | None:
        """The file that a path means, symbolic links followed, if it is one of ours."""
        path = os.path.realpath(self._absolute(call, folder, index))
        return path if self._relative(path) is not None else None

    def _resolved_in_root(self, call: Call) -> str | None:
        """The same of openat2(2), to which the folder is the root, where no link and no ".." needs that known."""
        path = self._absolute(call, 0, None)
        inner = call.text(1).strip("/")
        plain = os.path.join(path, inner)  # noqa: PTH118
        if ".." in inner.split("/") or os.path.realpath(plain) != os.path.join(os.path.realpath(path), inner):  # noqa: PTH118
            self._unjudged("which files openat2(2) has made or cut by RESOLVE_IN_ROOT, links and ..")
            return None
        return plain if self._relative(plain) is not None else None

    def _place(self, call: Call, folder: int | None, index: int) -> str | None:
        """The name that a path is, below the top."""
        return self._placed(self._absolute(call, folder, index))

    def _placed(self, path: str) -> str | None:
        parent, name = os.path.split(path.rstrip("/"))
        return self._relative(os.path.join(os.path.realpath(parent), name))  # noqa: PTH118

    def _absolute(self, call: Call, folder: int | None, index: int | None) -> str:
        return self._begun(call, folder, "" if index is None else call.text(index))

    @staticmethod
    def _begun(call: Call, folder: int | None, path: str) -> str:
        for alias, meant in _OWN:
            if path == alias or path.startswith(f"{alias}/"):
                # Of the program, not of us.
                path = f"/proc/{call.thread}{meant}{path[len(alias) :]}"
                break
        at = -100 if folder is None else call.number(folder, 32)
        if at == -100:  # AT_FDCWD
            base = Path(f"/proc/{call.thread}/cwd").readlink()
        else:
            base = Path(f"/proc/{call.thread}/fd/{at}").readlink()
        return os.path.join(base, path) if path else str(base)  # noqa: PTH118

    def _relative(self, path: str) -> str | None:
        if path == str(self._top):
            return "."
        return path[len(str(self._top)) + 1 :] if path.startswith(f"{self._top}/") else None


def _about_descriptor(process: int, descriptor: int) -> dict[str, str]:
    lines = proc.text(process, f"fdinfo/{descriptor}").splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line)


def _mount_of(top: Path) -> str:
    """The number of its mount, as /proc has it."""
    descriptor = os.open(top, os.O_RDONLY | os.O_DIRECTORY)
    try:
        return _about_descriptor(os.getpid(), descriptor)["mnt_id"]
    finally:
        os.close(descriptor)


def _sync_all(_: int) -> None:
    os.sync()


def _sync_one(descriptor: int) -> None:
    if ctypes.CDLL(None, use_errno=True).syncfs(descriptor):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def _identity(way: str) -> str:
    """What no other file of the file system has or has had: its handle, with the generation of its inode."""
    handle = ctypes.create_string_buffer(8 + 128)
    ctypes.c_uint32.from_buffer(handle).value = 128
    mount = ctypes.c_int()
    libc = ctypes.CDLL(None, use_errno=True)
    flags = _AT_SYMLINK_FOLLOW if way.startswith("/proc/") else 0
    if libc.name_to_handle_at(-100, os.fsencode(way), handle, ctypes.byref(mount), flags):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), way)
    size = ctypes.c_uint32.from_buffer(handle).value
    kind = stat.S_IFMT(os.stat(way, follow_symlinks=flags != 0).st_mode)  # noqa: PTH116
    letter = {stat.S_IFREG: "f", stat.S_IFDIR: "d", stat.S_IFLNK: "l"}.get(kind, "o")
    return letter + handle.raw[4 : 8 + size].hex()


def _walk(top: Path) -> Iterator[Path]:
    """All that is below, but for what fsck makes room with."""
    for folder, folders, files in os.walk(top):
        if Path(folder) == top and "lost+found" in folders:
            folders.remove("lost+found")
        for name in (*folders, *files):
            yield Path(folder) / name


def _names(top: Path) -> dict[str, str]:
    """Each name with what it stands for."""
    found = {}
    for path in _walk(top):
        with contextlib.suppress(FileNotFoundError):  # its thread goes on
            found[str(path.relative_to(top))] = _identity(str(path))
    return found


def _parent(path: str) -> str:
    return path.rpartition("/")[0] or "."


def _digests(data: bytes) -> list[str]:
    return [hashlib.blake2b(data[at : at + _BLOCK], digest_size=8).hexdigest() for at in range(0, len(data), _BLOCK)]


def _pieces(data: bytes, first: int) -> list[tuple[int, int, str]]:
    """Where bytes lie and their digests, in parts of a block each, so that what changes a part leaves the others."""
    found = []
    at = first
    while at < first + len(data):
        end = min((at // _BLOCK + 1) * _BLOCK, first + len(data))
        found.append((at, end, _digests(data[at - first : end - first])[0]))
        at = end
    return found


def _facts(way: str) -> dict[str, Any]:
    """What a regular file holds: its size and a digest of each block."""
    data = Path(way).read_bytes()
    return {"size": len(data), "blocks": _digests(data)}


# --- what it means for a state


class _Contents:
    """What is known of a file: its facts, and what may be otherwise since."""

    def __init__(self, facts: dict[str, Any] | None, why: str) -> None:
        self.facts = facts
        self.why = why
        self.changed: list[Event] = []
        self.pieces: list[tuple[int, int, str, str]] = []  # first, last, digest, why; not changed since

    def change(self, event: Event) -> None:
        """Some of it may be otherwise from now on."""
        self.changed.append(event)
        self.pieces = [each for each in self.pieces if not _overlaps(event, each[0], each[1])]

    def know(self, pieces: Sequence[tuple[int, int, str]], why: str) -> None:
        """Some of it is durable now."""
        if not any(each.get("for_ever") for each in self.changed):
            self.pieces += [(first, last, digest, why) for first, last, digest in pieces]

    def wrong(self, data: bytes) -> str:
        """How the file differs from all that it may be; empty when it does not."""
        for first, last, digest, why in self.pieces:
            if len(data) < last:
                return f"has {len(data)} bytes, not at least {last} ({why})"
            if _digests(data[first:last])[0] != digest:
                return f"has other bytes from {first} to {last} than were written ({why})"
        if self.facts is None:
            return ""
        size = self.facts["size"]
        least = min([size, *(each["size"] for each in self.changed if each["size"] is not None)])
        if len(data) < least or (not self.changed and len(data) > size):
            return f"has {len(data)} bytes, not {'at least ' if self.changed else ''}{least} ({self.why})"
        found = _digests(data[:size])
        for block, digest in enumerate(self.facts["blocks"]):
            first, last = block * _BLOCK, min((block + 1) * _BLOCK, size)
            if len(data) < last or any(_overlaps(each, first, last) for each in self.changed):
                continue
            if found[block] != digest:
                return f"has other bytes from {first} to {last} than it had ({self.why})"
        return ""


def _is_left_out(value: str | None) -> bool:
    """Whether what a name stands for is not looked at, as nobody could have written it there."""
    return value is not None and value.startswith("o") and plain_only.get()


def _overlaps(event: Event, first: int, last: int) -> bool:
    return bool(event["first"] < last and (event["last"] is None or event["last"] > first))


class _Known:
    """What is durable after some of the events, and what may be there instead."""

    def __init__(self, events: Sequence[Event]) -> None:
        self.names: dict[str, str | None] = {}
        self.pending: list[tuple[str, str | None, int]] = []  # with the number of its event
        self.moves: list[tuple[str, str, str, int]] = []
        self.contents: dict[str, _Contents] = {}
        self.replaced: dict[tuple[str, str], _Contents] = {}
        for number, event in enumerate(events):
            self._apply(number, event)
            for open_ in event.get("open", ()):
                self._apply(open_, events[open_])

    def _apply(self, number: int, event: Event) -> None:
        if "names" in event:
            self._commit(event["names"], event.get("folder"), event.get("until", number))
        for file, facts in event.get("facts", {}).items():
            kept = [each for each in self._of(file).changed if each.get("for_ever")]
            self.contents[file] = _Contents(facts, self._because(number, event))
            self.contents[file].changed = kept
            for (name, each), _ in list(self.replaced.items()):
                if each == file:
                    del self.replaced[name, each]
        for file, pieces in event.get("pieces", {}).items():
            self._of(file).know(pieces, self._because(number, event))
        if "moves" in event:
            old, new, value = event["moves"]
            # What has its old name for certain cannot lose both.
            if self.names.get(old) == value and all(path != old for path, _, _ in self.pending):
                self.moves.append((old, new, value, number))
            if "replaces" in event:
                self.replaced[new, value] = _Contents(event["replaces"], f"when it replaced {new}")
        for path, value in event.get("changes", ()):
            self.pending.append((path, value, number))
        if "file" in event:
            self._of(event["file"]).change(event)
            for (_, file), contents in self.replaced.items():
                if file == event["file"]:
                    contents.change(event)

    def _of(self, file: str) -> _Contents:
        return self.contents.setdefault(file, _Contents(None, ""))

    @staticmethod
    def _because(number: int, event: Event) -> str:
        return f"promise {number}: {event['by']} {event.get('of') or ''}".rstrip() if "by" in event else "at the start"

    def _commit(self, names: dict[str, str], folder: str | None, until: int) -> None:
        """All changes up to an event are durable; `names` is what they came to, where nothing changed after it."""
        open_ = {path for path, _, number in self.pending if number > until}
        for path in {*names, *self.names, *(path for path, _, _ in self.pending)} - open_:
            if folder is None or _parent(path) == folder:
                self.names[path] = names.get(path)
                self.pending = [each for each in self.pending if each[0] != path]
        left = {path for path, _, _ in self.pending}
        self.moves = [each for each in self.moves if each[0] in left or each[1] in left]

    def wrong(self, top: Path) -> str:
        """What a folder has otherwise than it may; empty when it is right."""
        there = {str(path.relative_to(top)): path for path in _walk(top)}
        for path in sorted({*self.names, *(path for path, _, _ in self.pending), *there}):
            if said := self._wrong_name(path, there.get(path)):
                return said
        for old, new, value, number in self.moves:
            later = any(changed in (old, new) for changed, _, at in self.pending if at > number)
            if not later and old not in there and not _is_left_out(value) and self._differs(new, value, there.get(new)):
                return f"neither {old} nor {new} is the file that was renamed from one to the other"
        return ""

    def _wrong_name(self, path: str, found: Path | None) -> str:
        allowed = [self.names.get(path), *(value for name, value, _ in self.pending if name == path)]
        if found is None:
            if None in allowed or _ANY in allowed or any(_is_left_out(value) for value in allowed):
                return ""
            return f"{path} is gone"
        if _ANY in allowed:
            return ""
        said = [self._differs(path, value, found) for value in allowed if value is not None]
        if not said:
            return f"{path} is there, which " + ("was removed" if path in self.names else "never was")
        return "" if "" in said else f"{path} {said[0]}"

    def _differs(self, path: str, value: str, found: Path | None) -> str:
        """How what a name has differs from what that may be; empty when it does not."""
        if found is None:
            return "is gone"
        kind = found.lstat().st_mode
        letter = {stat.S_IFREG: "f", stat.S_IFDIR: "d", stat.S_IFLNK: "l"}.get(stat.S_IFMT(kind), "o")
        if letter != value[0]:
            return "is of another type than it was"
        if letter != "f":
            return ""
        data = found.read_bytes()
        for contents in (self.contents.get(value), self.replaced.get((path, value))):
            if contents is not None and (said := contents.wrong(data)):
                return said
        return ""


@ready
def as_watched(promises: Watched) -> Callable[[Path, State], object]:
    """A check that all is there that a program was promised, and nothing that it had removed.

    Args:
        promises: What :func:`watched` returned. A log that has none of its marks fails, of which nothing was asked.
    """

    @functools.lru_cache(maxsize=64)
    def known(count: int) -> _Known:
        return _Known(promises.events[:count])

    def check(path: Path, state: State) -> None:
        check_marks(state, (f"{_MARK}0",))
        reached = [
            max((int(mark.removeprefix(_MARK)) for mark in marks if mark.startswith(_MARK)), default=-1)
            for marks in state.moments
        ]
        # A change allows more than was allowed before it: what a promise asks, it asks most of at once.
        asked = {number for number in reached if number >= 0 and not _PROMISES.isdisjoint(promises.events[number])}
        for number in sorted({reached[0], *asked, reached[-1]} - {-1}, reverse=True):
            if wrong := known(number + 1).wrong(path):
                raise AssertionError(wrong)

    return check
