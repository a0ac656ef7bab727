# SPDX-License-Identifier: MIT
"""What is asked of a state: that its file system recovers, and that its contents are right.

:func:`recovers` and :func:`mounted` take a state's image and give its files to a check of them; the others are such
checks, for both.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import json
import operator
import os
import re
import shutil
import sqlite3
import struct
import subprocess
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from fcntl import LOCK_EX, flock, ioctl
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec

import numpy as np

from sampleblk_lab import checked, leftovers, trust
from sampleblk_lab._native import core
from sampleblk_lab.crash import resident
from sampleblk_lab.device.filesystem import BusyError, ToolError, checker, find_tool, holders, run_tool
from sampleblk_lab.errors import InputError, UnsupportedError
from sampleblk_lab.functions import check_ran, check_takes
from sampleblk_lab.paths import is_full, scratch_directory

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator, Sequence

    from sampleblk_lab.crash.log import State

# type -> the command that replays its log without the kernel, with the exit statuses that are well, and the Debian
# package; empty: nothing is replayed, and its checker is content with what a crash leaves.
_REPLAY: dict[str, tuple[list[str], tuple[int, ...], str]] = {
    # e2fsck(8): 1 is "errors corrected", as the journal replayed.
    "ext4": (["e2fsck", "-y", "-E", "journal_only"], (0, 1), "e2fsprogs"),
    "btrfs": ([], (0,), "btrfs-progs"),
}

# type -> options of its checker that say the same for less: no threads that read ahead, of which xfs_repair(8) starts
# some forty, and a table of buffers that is not as large as the memory of the machine allows.
_CHEAPLY = {"xfs": ["-P", "-o", "bhash=1024"]}

# e2fsck(8) says so of orphans that it releases. What it leaves in the orphan file only a check that may write removes
# (e2fsck/super.c, process_orphan_file()), and their extended attributes' blocks stay in the quotas
# (release_inode_blocks()): where nothing else is wrong, that is all of what a check after it says.
_RELEASED = " orphaned inode "
# Linux has it set as long as an ext4 with an orphan file is mounted, whatever is in that.
_PRESENT = "Feature orphan_present is set but orphan file is clean.\nClear? no\n"
_LEFT_BY_ORPHANS = re.compile(
    r"(Orphan file \(inode \d+\) block \d+ is not clean\.\nClear\? no\n"
    r"|Failed to initialize orphan file\.\nRecreate\? no\n"
    rf"|{re.escape(_PRESENT)}"
    r"|Free (blocks|inodes) count wrong \(\d+, counted=\d+\)\.\nFix\? no\n"
    r"|\[QUOTA WARNING\] Usage inconsistent for ID \d+:"
    r"actual \(\d+, (?P<inodes>\d+)\) != expected \(\d+, (?P=inodes)\)\n"
    r"|Update quota info for quota type \d\? no\n"
    r"|e2fsck \d.*\n|Pass \d: .*\n"
    r"|.*: \*+ WARNING: Filesystem still has errors \*+\n"
    r"|.*: \d+/\d+ files \(.* non-contiguous\), \d+/\d+ blocks\n"
    r"|\n)*"
)

# e2fsck goes on without a journal that it cannot replay (e2fsck/unix.c, e2fsck/journal.c), with the status that it has
# for others. Linux does not mount it. Not "Operation canceled while recovering journal": of a fast commit that was cut
# short, which e2fsck drops.
_NOT_REPLAYED = re.compile(
    r"Journal (checksum error found|corrupted) in |Journal transaction \d+ was corrupt|invalid journal"
    r"|ournal superblock is corrupt"
)

# Told to only replay the journal, e2fsck also takes a backup of a superblock that it cannot read, and where it has set
# anything right it goes on with all the rest (e2fsck/unix.c, check_if_skip()). What is checked then was repaired.
_REPAIRED = re.compile(r"\? yes$|^Pass 1: |: Superblock invalid, trying backup blocks", re.MULTILINE)

# As Linux follows (namei(7), MAXSYMLINKS).
_MOST_LINKS = 40

# Of such an ext4 debugfs, as it was until 2025, gives short files other lengths (lib/ext2fs/fileio.c). Place and bit of
# INCOMPAT_INLINE_DATA in the superblock (fs/ext4/ext4.h).
_INCOMPAT_AT, _INLINE_DATA = 1024 + 0x60, 0x8000

# debugfs has one exit status; what it complains of it says on standard error, after a line with its version.
_DUMPED = "debugfs "

# Who asks for one of these has a say in when a file was read.
_ATIMES = {"atime", "noatime", "relatime", "norelatime", "strictatime", "nostrictatime", "lazytime"}

_VERIFY_ONLY = ("--verify_only", "--verify_state_load=1")
_BTRFS_CONTROL = Path("/dev/btrfs-control")
# Since 6.7 a btrfs can be mounted beside another one of its UUID.
_BTRFS_TWICE = Path("/sys/fs/btrfs/features/temp_fsid")
_BTRFS_FORGET = 0x50009405  # BTRFS_IOC_FORGET_DEV of linux/btrfs.h

#: Whether the files that a check is given are without FIFOs, sockets and devices, which debugfs does not write out.
plain_only: ContextVar[bool] = ContextVar("plain_only", default=False)

P = ParamSpec("P")


def ask(check: Callable[..., object], *asked: Any) -> None:
    """Calls a check, whose own raising is its verdict.

    Raises:
        AssertionError: It returned False, as functions do that tell yes from no, or a command that failed.
        InputError: No state would fail: nothing of it has run, as it is an async function or a generator; or it
            returned a number that is not 0, which may be the status of what failed.
    """
    process = os.getpid()
    try:
        with trust.collected():  # Ctrl-C under a job of the check's is no verdict
            said = check(*asked)
    finally:
        if os.getpid() != process:  # a fork that it has let return, which would go on as the exploration
            if sys.exc_info()[0] is not None:
                traceback.print_exc()
            os._exit(1)
    check_ran(said, "the check")
    if isinstance(said, (bool, np.bool_)) and not said:
        raise AssertionError(f"the check {getattr(check, '__name__', check)!s} returned False")
    if isinstance(said, subprocess.CompletedProcess) and said.returncode:
        raise AssertionError(f"{said.args} had exit status {said.returncode}")
    if isinstance(said, (int, float, np.number)) and not isinstance(said, bool) and said:
        raise InputError(
            f"the check returned {said!r}",
            expected="nothing, True or False; or raise, as subprocess.run(check=True) does",
        )


def refuse_full(error: BaseException, *folders: Path) -> None:
    """Raises UnsupportedError where one of the folders is full: that, not what is checked, is what failed."""
    for folder in filter(is_full, folders):
        said = str(error).partition("\n")[0]
        raise UnsupportedError("checking a state", f"no room left in {folder} ({said})", "make room there") from error


@dataclass(frozen=True)
class Check:
    """A ready check, and how it was made: so that a failure can be written down as a program.

    Attributes:
        name: The function of :mod:`sampleblk_lab.crash` that made it.
        arguments: What it was given.
        keywords: The same of what was named.
        run: Called with a path and a state.
    """

    name: str
    arguments: tuple[Any, ...]
    keywords: dict[str, Any]
    run: Callable[[Path, State], object]

    def __call__(self, path: Path, state: State) -> None:
        """Checks; what it raises is the failure."""
        self.run(path, state)

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        # Another host may have its tools elsewhere, or lack them: it is made anew there.
        return _made, (self.name, self.arguments, self.keywords)


def _made(name: str, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Check:
    """The check again that a function of :mod:`sampleblk_lab.crash` made."""
    made: Check = operator.attrgetter(name)(import_module("sampleblk_lab.crash"))(*arguments, **keywords)
    return made


def ready(make: Callable[P, Callable[[Path, State], object]]) -> Callable[P, Check]:
    """Makes a function that returns a check return a :class:`Check`."""

    @functools.wraps(make)
    def made(*arguments: P.args, **keywords: P.kwargs) -> Check:
        home = make.__module__.removeprefix("sampleblk_lab.crash").removeprefix(".checks").removeprefix(".")
        return Check(
            f"{home}.{make.__name__}" if home else make.__name__,
            arguments,
            dict(keywords),
            make(*arguments, **keywords),
        )

    return made


@ready
def recovers(
    fstype: str = "ext4", check: Callable[[Path, State], object] | None = None
) -> Callable[[Path, State], object]:
    """A check that the file system is whole once its log has been replayed, by its own tools, on any machine.

    ext4: ``e2fsck -E journal_only``, then ``e2fsck -fn``. btrfs: ``btrfs check``, which replays no log.

    Args:
        fstype: ``"ext4"`` or ``"btrfs"``.
        check: Called with a folder that has the files of the recovered file system, and the state; ext4 only, whose
            debugfs writes them there, but for FIFOs, sockets and devices. Not of one with ``inline_data``.

    Raises:
        InputError: Another file system: only the kernel replays its log, see :func:`mounted`. The same with `check` for
            all but ext4. Or `check` is no function of two arguments.
        UnsupportedError: The tool is not installed.
    """
    if fstype not in _REPLAY:
        raise InputError(f"file system {fstype!r}", expected=f"{' or '.join(_REPLAY)}; for others crash.mounted()")
    replay, well, package = _REPLAY[fstype]
    if replay:
        replay = [find_tool(replay[0], package), *replay[1:]]
    whole = checker(fstype)
    if check is not None and fstype != "ext4":
        raise InputError(f"the files of a {fstype} without its kernel", expected="ext4; for others crash.mounted()")
    if check is not None:
        check_takes(check, "check", "folder", "state")
    debugfs = "" if check is None else find_tool("debugfs", package)

    def run(image: Path, state: State) -> None:
        replayed = resident.run([*replay, str(image)], ok=well) if replay else ""
        if _NOT_REPLAYED.search(replayed):
            raise AssertionError(f"{' '.join(replay)} could not replay the journal: {replayed.strip()}")
        if _REPAIRED.search(replayed):
            raise AssertionError(f"{' '.join(replay)} did not only replay the journal: {replayed.strip()}")
        try:
            resident.check(whole, str(image))
        except ToolError as error:
            expected = _RELEASED in replayed or (
                _PRESENT in error.output and not re.search(r"Orphan file \(|\[QUOTA", error.output)
            )
            if not expected or _LEFT_BY_ORPHANS.fullmatch(error.output) is None:
                raise
        if check is not None:
            _refuse_inline_data(image)
            with scratch_directory("files") as scratch, tempfile.TemporaryDirectory(dir=scratch) as folder:
                quoted = folder.replace('"', '""')
                said = resident.run([debugfs, "-R", f'rdump / "{quoted}"', str(image)])
                # It cannot give them to their owners where it is not root: that is not asked for.
                wrong = [
                    line for line in said.splitlines() if not line.startswith(_DUMPED) and "changing owner" not in line
                ]
                if wrong:
                    undumped = ToolError([debugfs, "-R", "rdump", str(image)], 0, "\n".join(wrong))
                    refuse_full(undumped, Path(folder))
                    raise undumped
                token = plain_only.set(True)
                try:
                    ask(check, Path(folder), state)
                finally:
                    plain_only.reset(token)

    return run


def _refuse_inline_data(image: Path) -> None:
    """Raises UnsupportedError for an ext4 whose files debugfs does not give as they are."""
    with image.open("rb") as file:
        file.seek(_INCOMPAT_AT)
        if int.from_bytes(file.read(4), "little") & _INLINE_DATA:
            reason = "debugfs gives short ones another length"
            raise UnsupportedError("files of an ext4 with inline_data", reason, "check them with crash.mounted()")


@ready
def mounted(
    fstype: str, check: Callable[[Path, State], object] | None = None, *, options: str = "", fsck: bool = True
) -> Callable[[Path, State], object]:
    """A check that the kernel mounts the state, that `check` passes on it, and that it is whole afterwards.

    Runs as root where loop devices are: in a VM, or here if you mean it. Several states may be mounted at the same
    time, although they have one UUID: an xfs with ``nouuid``; those of a btrfs wait for each other before Linux 6.7.

    Args:
        fstype: Such as ``"xfs"``.
        check: Called with the mount point and the state: your own, or :func:`promised`, :func:`replaced`,
            :func:`appended`, :func:`sqlite`, and several of them by :func:`all_of`.
        options: As after ``mount -o``; ``noatime`` unless they say when a file counts as read.
        fsck: Ask the file system's checker when it is unmounted, where that could say anything new: e2fsck only if it
            would read anything that it has not read before.

    Raises:
        InputError: `check` is no function of two arguments.
        UnsupportedError: The tool that checks it is not installed.
    """
    if check is not None:
        check_takes(check, "check", "folder", "state")
    whole = [*checker(fstype), *_CHEAPLY.get(fstype, ())]
    # Two states have the UUID of their file system in common; and what is looked at shall not change by that.
    ours = ["nouuid"] * (fstype == "xfs") + ["noatime"] * (not _ATIMES & set(options.split(",")))
    options = ",".join(filter(None, (*ours, options)))

    def run(image: Path, state: State) -> None:
        with contextlib.ExitStack() as stack:
            lock = stack.enter_context(_only_btrfs()) if fstype == "btrfs" else None
            path = stack.enter_context(_mounted(image, fstype, options))
            if lock is not None and _BTRFS_TWICE.exists():
                lock.close()
            if check is not None:
                ask(check, path, state)
        if fsck:
            resident.check(whole, str(image))

    return run


@contextlib.contextmanager
def _mounted(image: Path, fstype: str, options: str) -> Iterator[Path]:
    """An image's files, for the block. Raises BusyError where somebody still uses them at its end, unless it raised."""
    with resident.mount_point(f"{image.name}-") as place:
        mount = _mount(image, place, fstype, options)
        try:
            # Within: as long as Ctrl-C has this frame, it has the mount.
            leftovers.note("mount", str(place), device=mount.device, made=True)
            yield place
        except BaseException as error:
            # Such as of a check whose assertion failed while its server ran: what it said is the verdict.
            try:
                _unmount(mount, place)
            except BusyError as busy:
                error.add_note(str(busy))
            raise
        _unmount(mount, place)


def _mount(image: Path, place: Path, fstype: str, options: str) -> core.CrashMount:
    try:
        return core.CrashMount(str(image), str(place), fstype, options)
    except OSError as error:
        # That nobody may mount here, or that there is no loop device, is nothing that a state is to blame for.
        if error.errno in (errno.EPERM, errno.EACCES, errno.ENODEV) or error.filename != str(image):
            raise UnsupportedError(f"mounting a {fstype}", str(error), "run as root, or in the VM") from error
        raise


def _unmount(mount: core.CrashMount, path: Path) -> None:
    busy = None
    try:
        mount.unmount()
    except OSError as error:
        held = holders(path)
        mount.unmount(detach=True)
        busy = BusyError(["umount", str(path)], error.errno or 0, str(error), path, held)
    if busy is not None:
        raise busy


@contextlib.contextmanager
def _only_btrfs() -> Iterator[contextlib.ExitStack]:
    """Keeps other processes of this machine from mounting a state of a btrfs.

    What btrfs knows of a loop device that has been detached, or of a device of ours that has held another state, is
    forgotten: as long as it lasts, the same file system of an older generation is "File exists" to it.
    """
    with contextlib.ExitStack() as stack:
        # The machine's, whatever TMPDIR a process has; who may not write there cannot mount either.
        folder = "/run" if os.access("/run", os.W_OK) else tempfile.gettempdir()
        lock = stack.enter_context(Path(folder, "sampleblk-crash-btrfs.lock").open("w"))
        flock(lock, LOCK_EX)
        with contextlib.suppress(FileNotFoundError), _BTRFS_CONTROL.open("wb", buffering=0) as control:
            detached = [loop for loop in Path("/sys/block").glob("loop*") if not (loop / "loop").exists()]
            for disk in [*detached, *Path("/sys/block").glob("sampleblk*")]:
                with contextlib.suppress(OSError):  # it does not know it, or it is mounted
                    arguments = struct.pack("=q4088s", 0, f"/dev/{disk.name}".encode())
                    ioctl(control, _BTRFS_FORGET, bytearray(arguments))
        yield stack


@ready
def all_of(*checks: Callable[[Path, State], object]) -> Callable[[Path, State], object]:
    """A check that all of these pass, one after another.

    Raises:
        InputError: There is none, which every state would pass; or one is no function of two arguments.
    """
    if not checks:
        raise InputError("all_of() has no checks", expected="one or more")
    for each in checks:
        check_takes(each, "check", "folder", "state")

    def run(path: Path, state: State) -> None:
        for check in checks:
            ask(check, path, state)

    return run


def check_marks(state: State, marks: Container[str]) -> None:
    """Raises InputError where the log has none of these: it is another one, of which nothing would be asked."""
    if not any(text in marks for _, _, text in state.log.native.marks):
        raise InputError("no mark of the promises is in the log", str(state.log.path), expected="what was promised to")


def _set(state: State, promises: Mapping[str, Any]) -> dict[str, Any]:
    """What the marks of a state promise, in the order in which they were set last. Raises InputError for others."""
    known = {text for _, _, text in state.log.native.marks}
    for mark in promises:
        if mark not in known:
            raise InputError(f"mark {mark!r}", str(state.log.path), expected=f"a mark of the log: {sorted(known)}")
    latest = list(dict.fromkeys(reversed(state.marks)))
    return {mark: promises[mark] for mark in reversed(latest) if mark in promises}


def _check_promise(name: str, *contents: object) -> None:
    """Raises InputError for a file of this machine's own, and for contents that no file has."""
    if not isinstance(name, (str, os.PathLike)) or Path(name).is_absolute() or ".." in Path(name).parts:
        raise InputError(f"file {name!r}", expected="its name below the mount point, such as 'folder/file'")
    for content in contents:
        if not isinstance(content, (bytes, bytearray, type(None))):
            raise InputError(f"{name} has {content!r}", expected="bytes, such as b'text', or None")


def _in(top: Path, name: str | os.PathLike[str]) -> Path:
    """Where a file is, as after chroot(2): no symbolic link of a state leads to this machine's own files."""
    place, rest, links = top, list(reversed(Path(name).parts)), 0
    while rest:
        part = rest.pop()
        if part in ("/", ".."):
            place = top if part == "/" or place == top else place.parent
        elif (place / part).is_symlink():
            links += 1
            if links > _MOST_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), os.fspath(name))
            rest.extend(reversed((place / part).readlink().parts))
        else:
            place /= part
    return place


def _content(path: Path) -> bytes | None:
    """What a file holds; None when there is none."""
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None


def _told(content: bytes | None) -> str:
    if content is None:
        return "nothing, there is no such file"
    shown = repr(content[:40]) + ("..." if len(content) > 40 else "")
    return f"{len(content)} bytes, {shown}"


@ready
def promised(
    promises: Mapping[str, Any], check: Callable[[Path, dict[str, Any]], object] | None = None
) -> Callable[[Path, State], object]:
    """A check that what was promised when a mark was set is there.

    Without `check` a promise is a dictionary: a file's name -> what it holds, None where there must be none, or a tuple
    of which it must be one (for a file that is changed after the mark). Of several promises about a file the last one
    counts.

    Args:
        promises: Mark -> what holds from there on.
        check: Called with the path and the part of `promises` whose marks had been set for certain.

    Raises:
        InputError: Nothing is promised, which every state would keep; a name that is not below the mount point, or
            contents that are not bytes.
    """
    if not isinstance(promises, Mapping) or not promises or (check is None and not any(promises.values())):
        raise InputError(f"nothing is promised by {promises!r}", expected="mark -> what holds from there on")
    if check is not None:
        check_takes(check, "check", "folder", "promises")
    for mark, promise in promises.items() if check is None else ():
        if not isinstance(promise, Mapping):
            raise InputError(f"{mark!r} promises {promise!r}", expected="a file's name -> what it holds")
        for name, wanted in promise.items():
            _check_promise(name, *(wanted if isinstance(wanted, tuple) else (wanted,)))

    def run(path: Path, state: State) -> None:
        due = _set(state, promises)
        if check is not None:
            ask(check, path, due)
            return
        files: dict[str, tuple[str, Any]] = {}
        for mark, promise in due.items():
            files.update({name: (mark, wanted) for name, wanted in promise.items()})
        for name, (mark, wanted) in files.items():
            found = _content(_in(path, name))
            allowed = wanted if isinstance(wanted, tuple) else (wanted,)
            if found not in allowed:
                raise AssertionError(
                    f"{mark!r} promised that {name} has {' or '.join(map(_told, allowed))}; it has {_told(found)}"
                )

    return run


@ready
def replaced(
    name: str, old: bytes | None, new: bytes, *, begun: str | None = None, done: str | None = None
) -> Callable[[Path, State], object]:
    """A check that a file which was replaced by a rename is the old or the new one, never neither.

    Args:
        name: The file.
        old: What it held before; None: there was none.
        new: What it holds after.
        begun: A mark: before it nothing is asked. None: always.
        done: A mark: after it the file is the new one.

    Raises:
        InputError: A name that is not below the mount point, or contents that are not bytes.
    """
    _check_promise(name, old, new)

    def run(path: Path, state: State) -> None:
        due = _set(state, dict.fromkeys(mark for mark in (begun, done) if mark is not None))
        if begun is not None and begun not in due and done not in due:
            return
        found = _content(_in(path, name))
        if found == new or (found == old and done not in due):
            return
        if found == old:
            raise AssertionError(f"{done!r} promised the new {name}; it is the old one")
        raise AssertionError(f"{name} is neither old nor new: it has {_told(found)}")

    return run


@ready
def appended(name: str, content: bytes, acknowledged: Mapping[str, int]) -> Callable[[Path, State], object]:
    """A check that a file that is only appended to has a begin of what was written, with all that was acknowledged.

    Args:
        name: The file.
        content: All that was written to it, in the end.
        acknowledged: Mark -> the bytes that were there for certain when it was set.

    Raises:
        InputError: A name that is not below the mount point, contents that are not bytes, or more acknowledged than
            was appended.
    """
    _check_promise(name, content)
    for mark, least in acknowledged.items():
        checked.count(f"acknowledged[{mark!r}]", least, 0, len(content))

    def run(path: Path, state: State) -> None:
        due = _set(state, acknowledged)
        least = max(due.values(), default=0)
        found = _content(_in(path, name))
        if found is None:
            if due:
                raise AssertionError(f"{name} is gone, of which {least} bytes were acknowledged")
            return
        if len(found) < least:
            raise AssertionError(f"{name} has {len(found)} bytes, {least} were acknowledged")
        if found != content[: len(found)]:
            same = next((i for i, (a, b) in enumerate(zip(found, content, strict=False)) if a != b), len(content))
            raise AssertionError(f"{name} has {len(found)} bytes, which differ from what was appended at byte {same}")

    return run


@ready
def sqlite(name: str, query: str, acknowledged: Mapping[str, Sequence[Any]]) -> Callable[[Path, State], object]:
    """A check that SQLite recovers a database, finds it sound, and that it has the rows that were acknowledged.

    With a rollback journal, ``PRAGMA synchronous=EXTRA`` is what keeps them: FULL does not sync the folder from which
    the journal was removed, and a journal that is back undoes the last transaction.

    Args:
        name: The database's file.
        query: Selects the rows.
        acknowledged: Mark -> rows, as tuples, that were committed when it was set and that nobody has removed since; a
            row that is there twice is listed twice.

    Raises:
        InputError: A row is not a tuple or a list: a text would be a row of its letters; a name that is not below the
            mount point.
    """
    _check_promise(name)
    for mark, rows in acknowledged.items():
        for row in [rows] if isinstance(rows, (str, bytes)) else rows:
            if not isinstance(row, (tuple, list)):
                raise InputError(f"acknowledged[{mark!r}] has the row {row!r}", expected="a tuple, such as (1, 'a')")

    def run(path: Path, state: State) -> None:
        due = _set(state, acknowledged)
        wanted: Counter[tuple[Any, ...]] = Counter()
        for rows in due.values():
            wanted |= Counter(map(tuple, rows))
        file = _in(path, name)
        if not file.exists():
            if due:
                raise AssertionError(f"{name} is gone, of which {wanted.total()} rows were acknowledged")
            return
        base = sqlite3.connect(file)
        try:
            said = [row[0] for row in base.execute("PRAGMA integrity_check")]
            if said != ["ok"]:
                raise AssertionError(f"{name}: integrity_check says {'; '.join(map(str, said))}")
            found = Counter(base.execute(query) if wanted else ())
        except sqlite3.Error as error:
            raise AssertionError(f"{name}: SQLite says {error}") from error
        finally:
            base.close()
        if gone := list((wanted - found).elements()):
            raise AssertionError(
                f"{name}: {len(gone)} of {wanted.total()} acknowledged rows are gone, such as {gone[0]}"
            )

    return run


@ready
def fio(job: str, states: str, done: str | None = None) -> Callable[[Path, State], object]:
    """A check by fio itself that what its verify state says was written is there (its ``verify_state_load``).

    The job ran with ``--verify_state_save=1 --aux-path=STATES`` and a relative ``filename``, below the mount point as
    ``--directory``; or its state was saved by fio's trigger. fio reads again what had completed by then.

    Args:
        job: Path of the job file; it has ``verify``. Its ``do_verify=0``, with which fio would look at nothing, does
            not count here.
        states: The folder of fio's files ``local-*-verify.state``.
        done: The mark that was set when what they list was durable, such as after the job's ``end_fsync``; before it
            nothing is asked. None: always.

    Raises:
        InputError: The job verifies nothing, or the folder has no such file.
        OSError: The job file cannot be read.
        UnsupportedError: fio is not installed.
    """
    tool = find_tool("fio", "fio")
    lines = Path(job).read_text().splitlines()
    names = [line.partition("=")[0].strip() for line in lines]
    if "verify" not in names:
        raise InputError("a job that verifies nothing", job, expected="verify=, such as crc32c")
    text = "\n".join(line for name, line in zip(names, lines, strict=True) if name != "do_verify") + "\n"
    if not list(Path(states).glob("local-*-verify.state")):
        raise InputError("no verify state of fio", states, expected="files local-*-verify.state: --verify_state_save=1")

    def run(path: Path, state: State) -> None:
        if done is not None and done not in _set(state, {done: None}):
            return
        # A folder of its own: fio leaves its files there.
        with scratch_directory("fio") as folder:
            (folder / "job.fio").write_text(text)
            for saved in Path(states).glob("local-*-verify.state"):
                shutil.copy(saved, folder)
            said = folder / "said.json"
            run_tool(
                [
                    *(tool, f"--directory={path}", f"--aux-path={folder}", *_VERIFY_ONLY),
                    *("--output-format=json", f"--output={said}", f"{folder}/job.fio"),
                ]
            )
            if not sum(each["read"]["total_ios"] for each in json.loads(said.read_bytes())["jobs"]):
                raise InputError("fio read nothing", job, expected="a verify state with completed writes")

    return run
