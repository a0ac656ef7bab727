# SPDX-License-Identifier: MIT
"""What a killed experiment left on this machine, put back by the next one: devices, mounts, the module, tracing state.

Each process that makes any of these on a machine that outlives it notes them in a file of its own, which it keeps
locked (flock(2)); a file that nobody holds is a dead process's. Notes are by identity: a device of the same number that
somebody else has made since is not ours to remove.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import json
import os
import re
import stat
import subprocess
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from sampleblk_lab._native import core
from sampleblk_lab.errors import UnsupportedError
from sampleblk_lab.paths import find_program

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import IO, TextIO

CONTROL_PATH = Path("/dev/sampleblk-control")

# SAMPLEBLK_FAULT_HANG and SAMPLEBLK_FAULT_HOLD
_WAITS = frozenset({2, 7})

_SUFFIX = ".made"
_numbers = itertools.count()
_lock = threading.Lock()
_file: IO[bytes] | None = None
_noted: dict[tuple[str, str], dict[str, Any]] = {}


def directory() -> Path:
    """Where notes lie: per machine, gone at the next boot as what they tell of is.

    Raises:
        UnsupportedError: The place is another user's.
    """
    if os.geteuid() == 0:
        return Path("/run/sampleblk-lab")
    if own := os.environ.get("XDG_RUNTIME_DIR"):
        return Path(own) / "sampleblk-lab"
    folder = Path(f"/tmp/user-{os.getuid()}")
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    status = folder.lstat()
    if status.st_uid != os.geteuid() or not stat.S_ISDIR(status.st_mode):  # its notes would have us write anywhere
        raise UnsupportedError(
            "notes of what is made here", f"{folder} is somebody else's", "set XDG_RUNTIME_DIR to a folder of your own"
        )
    return folder / "sampleblk-lab"


def device_identity(index: int) -> int:
    """A number that no other device of this machine has had since it booted: its folder's inode in sysfs; 0: none."""
    try:
        return Path(f"/sys/block/sampleblk{index}").stat().st_ino
    except FileNotFoundError:
        return 0


def end_waits(control: core.DeviceControl, index: int, identity: int) -> bool:
    """Ends the rules of a device of which one lets requests wait for just that; whether one did."""
    with contextlib.suppress(OSError):  # the device is gone
        if device_identity(index) == identity and any(rule["action"] in _WAITS for rule in control.faults(index)):
            control.set_faults(index, [], 0, False)
            return True
    return False


def note(kind: str, key: str, **detail: Any) -> None:
    """Notes what this process has just made.

    Args:
        kind: ``"device"``, ``"mount"`` or ``"module"``.
        key: Its number or its path.
        detail: What undoing it takes.
    """
    with _lock:
        if _noted.get((kind, key)) == detail:
            return
        _noted[kind, key] = detail
        _append({"kind": kind, "key": key, **detail})


def drop(kind: str, key: str, **detail: Any) -> None:
    """Notes that something is gone again, or is to stay.

    Args:
        kind: As :func:`note` has it.
        key: Likewise.
        detail: Likewise, where something else may have been noted by that key since; none: whatever it is.
    """
    with _lock:
        if detail and _noted.get((kind, key)) != detail:
            return
        if _noted.pop((kind, key), None) is None:
            return
        _append({"kind": kind, "key": key, "gone": True})
        if not _noted:
            _close()


def _leave_notes() -> None:
    """In a forked child: what its parent made is the parent's own to undo, whose lock ends with the parent."""
    global _file, _lock
    _lock = threading.Lock()  # another thread of the parent's may have held it
    if _file is not None:
        _file.close()
        _file = None
    _noted.clear()


os.register_at_fork(after_in_child=_leave_notes)


def _append(record: dict[str, Any]) -> None:
    global _file
    if _file is None:
        folder = directory()
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{os.getpid()}-{next(_numbers)}{_SUFFIX}"
        fresh = path.with_name(f".{path.name}")
        # Locked under another name first, so that nobody meets it unlocked.
        _file = fresh.open("wb", buffering=0)
        fcntl.flock(_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fresh.rename(path)
    _file.write((json.dumps(record) + "\n").encode())


def _close() -> None:
    global _file
    if _file is not None:
        with contextlib.suppress(FileNotFoundError):
            (directory() / Path(_file.name).name.removeprefix(".")).unlink()
        _file.close()
        _file = None


def clean() -> list[str]:
    """Puts back what dead processes have left.

    Returns:
        A line for each thing that was undone; one that begins with "not undone: " for each that could not be.
    """
    folder = directory()
    done: list[str] = core.recover_tracing(str(folder))
    for path in _files(folder):
        with contextlib.suppress(FileNotFoundError), path.open("r+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue  # its owner lives
            done += _undo(_read(file))
            path.unlink()
    return done


def pending() -> list[str]:
    """What :func:`clean` would look at: the notes of dead processes. Changes nothing."""
    found = []
    for path in _files(directory()):
        # One that is locked has an owner who lives; another user's is not ours to read.
        with contextlib.suppress(OSError), path.open("r+") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            found += [f"{kind} {key}" for kind, key in _read(file)]
    return found


def _files(folder: Path) -> list[Path]:
    """Those with notes; not one that has its first name, and may not be locked yet."""
    return sorted(folder.glob(f"[!.]*{_SUFFIX}"))


def _read(file: TextIO) -> dict[tuple[str, str], dict[str, Any]]:
    noted: dict[tuple[str, str], dict[str, Any]] = {}
    for line in file:
        try:
            record = json.loads(line)
            name = record.pop("kind"), record.pop("key")
        except (ValueError, LookupError, TypeError, AttributeError):
            continue  # cut off by the end of its writer
        if record.pop("gone", False):
            noted.pop(name, None)
        else:
            noted[name] = record
    return noted


def _undo(noted: dict[tuple[str, str], dict[str, Any]]) -> list[str]:
    done = []
    for (kind, key), detail in noted.items():
        if kind == "device" and CONTROL_PATH.exists():  # or unmounting would wait, too
            with contextlib.suppress(OSError), contextlib.closing(core.DeviceControl(str(CONTROL_PATH))) as control:
                end_waits(control, int(key), detail.get("identity", 0))
    for (kind, key), detail in reversed(noted.items()):
        try:
            if _UNDO[kind](key, detail):
                done.append(f"{kind} {key}")
        except subprocess.CalledProcessError as error:
            done.append(f"not undone: {kind} {key}: {(error.stderr or str(error)).strip()}")
        except (OSError, subprocess.SubprocessError) as error:
            done.append(f"not undone: {kind} {key}: {error}")
    return done


def _undo_mount(path: str, detail: dict[str, Any]) -> bool:
    mounted = any(each[:2] == (detail.get("device"), path) for each in mounts())
    if mounted:
        # Whoever has a file open keeps it; nobody finds the file system by its path any more.
        unmount(path, detach=True)
    if detail.get("made"):
        with contextlib.suppress(OSError):
            os.rmdir(path)  # noqa: PTH106
    return mounted


def _undo_device(index: str, detail: dict[str, Any]) -> bool:
    identity = device_identity(int(index))
    if not identity or identity != detail.get("identity") or not CONTROL_PATH.exists():
        return False
    control = core.DeviceControl(str(CONTROL_PATH))
    try:
        control.remove(int(index), True)
    finally:
        control.close()
    return True


def _undo_module(_key: str, _detail: dict[str, Any]) -> bool:
    if not CONTROL_PATH.exists():
        return False
    control = core.DeviceControl(str(CONTROL_PATH))
    try:
        if control.list():
            return False  # somebody else has come to use it
    finally:
        control.close()
    return unload()


_UNDO = {"mount": _undo_mount, "device": _undo_device, "module": _undo_module}


class Mount(NamedTuple):
    """A file system's device, where it is mounted, and the options of the mount and of the file system."""

    device: str
    path: str
    options: frozenset[str]


def mounts() -> list[Mount]:
    """Each file system that is mounted here (proc(5), mountinfo), in order."""
    found = []
    # Only "\n" ends a line: names have all else.
    for line in os.fsdecode(Path("/proc/self/mountinfo").read_bytes()).split("\n")[:-1]:
        mount, _, file_system = (words.split(" ") for words in line.partition(" - "))
        options = frozenset([*mount[5].split(","), *file_system[2].split(",")])
        found.append(Mount(_plain(file_system[1]), _plain(mount[4]), options))
    return found


def mount_of(path: Path, among: Iterable[Mount] | None = None) -> Mount | None:
    """The mount that is seen at a path without links; ``among``: a table that was read before."""
    above = [mount for mount in (mounts() if among is None else among) if path.is_relative_to(mount.path)]
    # Of those at the same place, the last is what is seen.
    return max(reversed(above), key=lambda mount: len(mount.path), default=None)


def _plain(text: str) -> str:
    """What mountinfo says: it writes blanks, backslashes and, of devices, hashes as octal numbers."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)


def unmount(path: str, *, detach: bool = False) -> None:
    """Unmounts (umount(8)), or detaches from the tree what is in use. Raises subprocess.CalledProcessError."""
    command = [find_program("umount") or "umount", *(["--lazy"] if detach else []), path]
    subprocess.run(command, capture_output=True, errors="backslashreplace", check=True)


def unload() -> bool:
    """Unloads the driver, unless somebody uses it: the kernel knows."""
    command = [find_program("rmmod") or "rmmod", "sampleblk"]
    return subprocess.run(command, capture_output=True, check=False, timeout=60).returncode == 0
