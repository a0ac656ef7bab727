# SPDX-License-Identifier: MIT
"""Bounded black-box workloads: each operation on a small set of files, then each way to make it durable.

The way is that of ACE (Mohan et al., "Finding Crash-Consistency Bugs with Bounded Black-Box Crash Testing", OSDI 2018).
:func:`workloads` lists all sequences of one operation. Each has a folder of its own, so that one recording has any
number of them::

    chosen = ace.workloads()
    ace.prepare(mount, chosen)                        # before the recording
    promises = ace.run(mount, device.mark, chosen)    # while it is recorded
    log.explore(crash.mounted("ext4", crash.ace.kept(promises)), …)

What has to be durable is taken from the live file system when the call that promises it has returned. Which of it was
promised is the rule: ``"posix"`` promises what POSIX and fsync(2) do, ``"ext4"`` that fsync also commits all names that
were changed before, as ext4 does with its journal (without ``fast_commit``).
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sampleblk_lab.crash.checks import check_marks, ready
from sampleblk_lab.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sampleblk_lab.crash.log import State

RULES = ("posix", "ext4")

# Of linux/falloc.h.
_KEEP_SIZE, _PUNCH_HOLE, _ZERO_RANGE = 0x01, 0x02, 0x10

# Larger than most files of a state, to read one by two calls.
_AT_ONCE = 1 << 16

_FILES = {"foo": b"f" * 8192, "bar": b"b" * 4096, "A/foo": b"F" * 6000, "A/bar": b"B" * 100}

Facts = dict[str, Any]


@dataclass(frozen=True)
class Operation:
    """One operation on the files.

    Attributes:
        name: As it is told.
        run: Does it, in the workload's folder.
        files: Regular files that can be synced after it, by the name that they have then.
        folders: The same of folders.
        was: The name that one of those has without it, where that is another one.
        made: Those that did not exist before.
    """

    name: str
    run: Callable[[Path], object]
    files: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    was: tuple[tuple[str, str], ...] = ()
    made: tuple[str, ...] = ()


def _write(name: str, offset: int, data: bytes) -> Callable[[Path], object]:
    def run(folder: Path) -> None:
        with (folder / name).open("r+b", buffering=0) as file:
            file.seek(offset)
            file.write(data)

    return run


def _fallocate(name: str, mode: int, offset: int, length: int) -> Callable[[Path], object]:
    def run(folder: Path) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        fd = os.open(folder / name, os.O_RDWR)
        try:
            if libc.fallocate(fd, mode, ctypes.c_int64(offset), ctypes.c_int64(length)):
                code = ctypes.get_errno()
                raise OSError(code, os.strerror(code), str(folder / name))
        finally:
            os.close(fd)

    return run


_A, _TOP = "A", "."
_FOO = ("foo",)

OPERATIONS = (
    Operation("create A/new", lambda at: (at / "A/new").touch(), ("A/new",), (_A,), made=("A/new",)),
    Operation("mkdir A/sub", lambda at: (at / "A/sub").mkdir(), (), ("A/sub", _A), made=("A/sub",)),
    Operation(
        "link foo A/link",
        lambda at: os.link(at / "foo", at / "A/link"),
        *(("foo", "A/link"), (_A,), (("A/link", "foo"),)),
    ),
    Operation(
        "rename foo A/new",
        lambda at: (at / "foo").rename(at / "A/new"),
        *(("A/new",), (_A, _TOP), (("A/new", "foo"),)),
    ),
    Operation(
        "rename foo A/bar",
        lambda at: (at / "foo").rename(at / "A/bar"),
        *(("A/bar",), (_A, _TOP), (("A/bar", "foo"),)),
    ),
    Operation("rename A B", lambda at: (at / "A").rename(at / "B"), ("B/foo",), ("B", _TOP), (("B", "A"),)),
    Operation("unlink foo", lambda at: (at / "foo").unlink(), (), (_TOP,)),
    Operation("overwrite foo", _write("foo", 1000, b"o" * 5000), _FOO),
    Operation("append foo", _write("foo", 8192, b"a" * 5000), _FOO),
    Operation("write foo beyond its end", _write("foo", 20000, b"w" * 3000), _FOO),
    Operation("truncate foo shorter", lambda at: os.truncate(at / "foo", 3000), _FOO),
    Operation("truncate foo longer", lambda at: os.truncate(at / "foo", 15000), _FOO),
    Operation("fallocate foo", _fallocate("foo", 0, 8192, 8192), _FOO),
    Operation("fallocate foo, keeping its size", _fallocate("foo", _KEEP_SIZE, 8192, 8192), _FOO),
    Operation("punch a hole into foo", _fallocate("foo", _PUNCH_HOLE | _KEEP_SIZE, 2000, 5000), _FOO),
    Operation("zero a range of foo", _fallocate("foo", _ZERO_RANGE, 3000, 8000), _FOO),
    Operation("setxattr foo", lambda at: os.setxattr(at / "foo", "user.new", b"n" * 50), _FOO),
    Operation("removexattr foo", lambda at: os.removexattr(at / "foo", "user.old"), _FOO),
)


@dataclass(frozen=True)
class Workload:
    """An operation, and what makes it durable.

    Attributes:
        operation: The operation.
        durable: ``"sync"``, ``"fsync"`` or ``"fdatasync"``.
        target: What is synced; empty for sync.
    """

    operation: Operation
    durable: str
    target: str = ""

    @property
    def name(self) -> str:
        """What it does: also its mark."""
        return f"{self.operation.name}; {self.durable} {self.target}".rstrip()


def workloads() -> list[Workload]:
    """All sequences of one operation and one call that makes it durable, always the same."""
    found = []
    for operation in OPERATIONS:
        found.append(Workload(operation, "sync"))
        for name in operation.files:
            found += [Workload(operation, "fsync", name), Workload(operation, "fdatasync", name)]
        found += [Workload(operation, "fsync", name) for name in operation.folders]
    return found


def _folder(index: int) -> str:
    return f"w{index:03}"


def prepare(mount: str | os.PathLike[str], chosen: Sequence[Workload]) -> None:
    """Makes the files that each workload works on, in a folder for each, and syncs them."""
    for index in range(len(chosen)):
        folder = Path(mount) / _folder(index)
        (folder / _A).mkdir(parents=True)
        for name, data in _FILES.items():
            (folder / name).write_bytes(data)
        os.setxattr(folder / "foo", "user.old", b"old")
    os.sync()


def run(
    mount: str | os.PathLike[str], mark: Callable[[str], object], chosen: Sequence[Workload], *, rule: str = "ext4"
) -> dict[str, list[Facts]]:
    """Runs the workloads, with a mark after each; returns what is promised from that mark on, for :func:`kept`.

    Args:
        mount: Where :func:`prepare` made their files.
        mark: Such as :meth:`Device.mark`.
        chosen: The same as were prepared, each once.
        rule: Whose promises: ``"posix"`` or ``"ext4"``.

    Raises:
        InputError: Another rule; a workload twice.
    """
    if rule not in RULES:
        raise InputError(f"rule {rule!r}", expected=" or ".join(RULES))
    # A mark has one workload: of the second one with it, everything would be asked from the first one on.
    names = [workload.name for workload in chosen]
    if twice := [name for name in names if names.count(name) > 1]:
        raise InputError(f"the workload {twice[0]!r} is there twice", expected="each once")
    promises = {}
    for index, workload in enumerate(chosen):
        folder = Path(mount) / _folder(index)
        workload.operation.run(folder)
        if workload.durable == "sync":
            os.sync()
        else:
            fd = os.open(folder / workload.target, os.O_RDONLY)
            try:
                (os.fsync if workload.durable == "fsync" else os.fdatasync)(fd)
            finally:
                os.close(fd)
        promises[workload.name] = [
            {**fact, "folder": _folder(index)} for fact in _promised(str(folder), workload, rule)
        ]
        mark(workload.name)
    return promises


# What follows runs for every state, in an emulated machine: by os, as pathlib takes most of the time.
def _facts(path: str) -> Facts:
    """What a file or folder is; of a file its contents and extended attributes."""
    # Whatever a crash has made of it: nobody writes to a FIFO.
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            return {"type": "folder"}
        data = b"".join(iter(functools.partial(os.read, fd, _AT_ONCE), b""))
        attributes = {name: os.getxattr(fd, name).hex() for name in os.listxattr(fd) if name.startswith("user.")}
    finally:
        os.close(fd)
    return {"type": "file", "size": len(data), "sha256": _sha256(data), "xattrs": attributes}


# The same few contents in each state; what is emulated compares bytes for much less than it digests them.
@functools.lru_cache(maxsize=64)
def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _names(folder: str, *, flat: bool = False) -> list[str]:
    """What is in a folder and below it, by names that begin there."""
    found = []
    below = [""]
    while below:
        prefix = below.pop()
        with os.scandir(f"{folder}/{prefix}") as entries:
            for entry in entries:
                found.append(prefix + entry.name)
                if not flat and entry.is_dir(follow_symlinks=False):
                    below.append(f"{prefix}{entry.name}/")
    return sorted(found)


def _promised(folder: str, workload: Workload, rule: str) -> list[Facts]:
    """Facts, each with `at`: names of which one has it; or `names`: all there are in a folder."""
    if workload.durable == "sync":
        names = _names(folder)
        return [{"names": names, "of": _TOP}, *({"at": [name], **_facts(f"{folder}/{name}")} for name in names)]
    operation, target = workload.operation, workload.target
    facts = _facts(f"{folder}/{target}")
    is_folder = facts["type"] == "folder"
    if workload.durable == "fdatasync":
        # fdatasync(2): only the metadata that it takes to read the data.
        facts.pop("xattrs")
    at = [target]
    committed = rule == "ext4" and workload.durable == "fsync"
    if not committed:
        # A name is the folder's, not the file's: it is there as it was, or as it is.
        for now, before in operation.was:
            if target == now or target.startswith(f"{now}/"):
                at.append(before + target[len(now) :])
        if target in operation.made and not (rule == "ext4" and not is_folder):
            at = []
    found: list[Facts] = [{"at": at, **facts}] if at else []
    if committed:
        found.append({"names": _names(folder), "of": _TOP})
    elif is_folder and target not in operation.made and len(at) == 1:
        found.append({"names": _names(f"{folder}/{target}", flat=True), "of": target, "flat": True})
    return found


@ready
def kept(promises: dict[str, list[Facts]], *, xattrs: bool = True) -> Callable[[Path, State], object]:
    """A check that what :func:`run` says was promised is there.

    Args:
        promises: What :func:`run` returned; may have been JSON meanwhile.
        xattrs: Look at extended attributes too, which what :func:`~sampleblk_lab.crash.recovers` gives does not have.

    Raises:
        InputError: Nothing is promised, which every state would keep.
    """
    if not any(promises.values()):
        raise InputError(f"nothing is promised by {promises!r}", expected="what run() returned")

    def check(path: Path, state: State) -> None:
        check_marks(state, promises)
        for mark in dict.fromkeys(state.marks):
            for fact in promises.get(mark, ()):
                wrong = _wrong(f"{path}/{fact['folder']}", fact, xattrs)
                if wrong:
                    raise AssertionError(f"{mark!r} in {fact['folder']}: {wrong}")

    return check


def _wrong(folder: str, fact: Facts, xattrs: bool) -> str:
    """What a folder has otherwise than a fact says; empty when it is right."""
    if "names" in fact:
        try:
            found = _names(f"{folder}/{fact['of']}", flat=fact.get("flat", False))
        except (FileNotFoundError, NotADirectoryError):
            return f"the folder {fact['of']} is gone"
        return "" if found == fact["names"] else f"{fact['of']} has {found}, not {fact['names']}"
    wanted = {name: value for name, value in fact.items() if name in ("type", "size", "sha256", "xattrs")}
    if not xattrs:
        wanted.pop("xattrs", None)
    said = []
    for name in fact["at"]:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            facts = _facts(f"{folder}/{name}")
            different = [
                f"{key} {facts.get(key)}, not {value}" for key, value in wanted.items() if facts.get(key) != value
            ]
            if not different:
                return ""
            said.append(f"{name} has {', '.join(different)}")
    return "; ".join(said) or f"gone: {', '.join(fact['at'])}"
