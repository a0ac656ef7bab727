# SPDX-License-Identifier: MIT
"""Where the package keeps things: its own resources, and the per-user cache."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import os
import shutil
import tempfile
import threading
import time
import weakref
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, Any

import sampleblk_lab
from sampleblk_lab.errors import InputError, SampleblkError, UnsupportedError
from sampleblk_lab.progress import note

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence


# Set in a VM of ours, to what there is to know about it.
IN_VM = "SAMPLEBLK_VM"

# How long a host keeps what was sent to it and nobody uses.
_KEPT_S = 7 * 24 * 3600.0

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_HARDLY_ANY = 1 << 20  # bytes
# What programs of LC_ALL=C say of it.
_NO_ROOM = "No space left on device"
_UNWRITABLE = _FULL | {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR}


def cache_root() -> Path:
    """The per-user cache: ``$SAMPLEBLK_CACHE``, else ``sampleblk-lab`` in ``$XDG_CACHE_HOME`` or ``~/.cache``.

    Without symbolic links: the guest, whose own root is another one, is told of paths below it.

    Raises:
        CacheError: None of these is set, and this user has no home.
    """
    override = os.environ.get("SAMPLEBLK_CACHE")
    if override:
        return Path(override).resolve()
    base = Path(os.environ.get("XDG_CACHE_HOME") or in_home("~/.cache"))
    if base.parts[0] == "~":  # as where a container runs as a user that it does not know
        raise CacheError(errno.ENOENT, "no place for the cache: this user has no home; set SAMPLEBLK_CACHE to a folder")
    return (base / "sampleblk-lab").resolve()


def in_home(path: str | os.PathLike[str]) -> Path:
    """A path as a user gives it, of whose ``~`` nothing becomes where that user has no home."""
    return Path(os.path.expanduser(path))  # noqa: PTH111  # Path's own raises RuntimeError there


def fingerprint(path: Path, *, ctime: bool = True) -> str:
    """A text that changes when `path` becomes another file or is written to: where it is, inode, size and times.

    Args:
        path: The file.
        ctime: With the time that another link to it changes, too, as ``perf record -a`` makes them to programs.
    """
    real = path.resolve()
    status = real.stat()
    changed = f" {status.st_ctime_ns}" if ctime else ""
    return f"{real} {status.st_ino} {status.st_size} {status.st_mtime_ns}{changed}"


class CacheError(SampleblkError, OSError):
    """The cache cannot be written; says where it is and what to do."""


@contextlib.contextmanager
def writing_cache(path: Path, failures: frozenset[int] = _UNWRITABLE) -> Iterator[None]:
    """Turns a failure to write below the cache into a :class:`CacheError` that names the path and the remedy.

    Args:
        path: What is written, for an error that has no path.
        failures: The errnos that are meant.
    """
    try:
        yield
    except CacheError:
        raise
    except OSError as error:
        if error.errno not in failures:
            raise
        where = error.filename or path
        remedy = "make room there" if error.errno in _FULL else "make it writable"
        raise CacheError(
            error.errno,
            f"cannot write the cache: {where}: {error.strerror}; {remedy}, or set SAMPLEBLK_CACHE to another folder",
        ) from None


def is_full(folder: Path) -> bool:
    """Whether there is so little room that whatever could not be done there was for that."""
    return shutil.disk_usage(folder).free < _HARDLY_ANY


@contextlib.contextmanager
def filling_cache(path: Path) -> Iterator[None]:
    """The same for a lack of room alone, which programs that the block runs may have met.

    Args:
        path: What is written; its parent exists.
    """
    with writing_cache(path, _FULL):
        try:
            yield
        except SampleblkError as error:
            # Not each says why it could not write: tar has "Wrote only 512 of 10240 bytes". Those may make room, too.
            full = _NO_ROOM in str(error) or is_full(path.parent)
            if isinstance(error, CacheError) or not full:
                raise
            said = str(error).partition("\n")[0]  # tar has a line for each file
            raise OSError(errno.ENOSPC, f"{_NO_ROOM} ({said})", str(path)) from None


# Where Debian puts programs that root calls: an ordinary user's PATH has none of these.
_SYSTEM_FOLDERS = ("/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/local/bin", "/usr/bin", "/bin")


def search_path(own: str | None = None) -> str:
    """A PATH that finds every program of the system: `own`, then each folder that Debian has them in.

    Args:
        own: What comes first; None: our own PATH.
    """
    if own is None:
        own = os.environ.get("PATH", "")
    folders = own.split(os.pathsep) if own else []
    return os.pathsep.join(dict.fromkeys([*folders, *_SYSTEM_FOLDERS]))


# What make hands down to a make that it runs: options, a jobserver, and variables that go before any makefile's own.
_OF_MAKE = ("MAKEFLAGS", "MFLAGS", "MAKEOVERRIDES", "MAKELEVEL", "MAKEFILES", "GNUMAKEFLAGS")


def make_environment(path: str | None = None) -> dict[str, str]:
    """The environment for a make of our own: nothing in it comes from a make that we run under.

    Args:
        path: Its PATH; None: :func:`search_path`.
    """
    kept = {name: value for name, value in os.environ.items() if name not in _OF_MAKE}
    return {**kept, "PATH": search_path() if path is None else path}


# By what people have their own kernels, or modules, built in another folder, or from another configuration
# (Documentation/kbuild/kbuild.rst, kconfig.rst).
_OF_KBUILD = ("KBUILD_OUTPUT", "KBUILD_EXTMOD", "KBUILD_EXTMOD_OUTPUT", "KCONFIG_CONFIG")


def kbuild_environment(path: str | None = None) -> dict[str, str]:
    """The same for a kernel's make, which builds in the folder that we name, by the configuration there."""
    return {name: value for name, value in make_environment(path).items() if name not in _OF_KBUILD}


# What git tells programs that it runs (hooks, rebase --exec) of its own repository: `git rev-parse --local-env-vars`,
# without the settings, which may be the user's.
_OF_GIT = (
    *("GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_COMMON_DIR", "GIT_DIR", "GIT_GRAFT_FILE", "GIT_IMPLICIT_WORK_TREE"),
    *("GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_PREFIX", "GIT_SHALLOW_FILE", "GIT_WORK_TREE"),
)


def git_environment() -> dict[str, str]:
    """The environment for a git of our own that is asked of a folder, and not of the repository that we run under."""
    return {name: value for name, value in os.environ.items() if name not in _OF_GIT}


def tied(command: Sequence[str], signal_name: str) -> list[str]:
    """A command that gets a signal when we end, however we do (setpriv(1), of util-linux; without it, it gets none)."""
    setpriv = find_program("setpriv")
    return [setpriv, "--pdeathsig", signal_name, *command] if setpriv else list(command)


def find_program(name: str) -> str | None:
    """The absolute path of one of this system's programs, wherever Debian puts it; None when it is not installed."""
    return shutil.which(name, path=search_path())


def located(words: Sequence[str]) -> list[str]:
    """A command with the path of its program, which is looked up here, where the user sees it. Raises InputError."""
    program = shutil.which(words[0])
    if program is None:
        raise InputError(f"no program {words[0]!r}", expected="one on the PATH, or its path")
    return [str(Path(program).absolute()), *words[1:]]


def resource(name: str) -> Path:
    """A file or folder that the wheel carries, such as ``vm/bin/sampleblk-init``.

    An editable install has two folders, the sources and what CMake installed; either may have it.

    Raises:
        UnsupportedError: This installation lacks it.
    """
    for base in sampleblk_lab.__path__:
        path = Path(base) / name
        if path.exists():
            return path
    raise UnsupportedError(
        name,
        f"not part of this installation ({', '.join(sampleblk_lab.__path__)})",
        "build and install again: pip install .",
    )


def module_source() -> Path:
    """The driver's source: ``module/`` of a source checkout, else the copy that the wheel carries."""
    checkout = Path(__file__).resolve().parents[2] / "module"
    return checkout if checkout.exists() else resource("_module")


# How long another process may have a lock before we say that we wait for it.
_SILENT_S = 10.0

# The lock files that this process has open.
_open_locks: set[IO[bytes]] = set()


def _leave_locks() -> None:
    """In a forked child: a lock is its parent's alone, which a pool's worker would hold for as long as it lives."""
    for file in _open_locks:
        file.close()
    _open_locks.clear()


os.register_at_fork(after_in_child=_leave_locks)


@contextlib.contextmanager
def locked(path: Path, *, wait: bool = True) -> Iterator[bool]:
    """Holds an exclusive lock on `path` + ``.lock``; yields False when `wait` is off and another process has it."""
    lock = Path(f"{path}.lock")
    while True:
        with writing_cache(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            file = lock.open("wb", buffering=0)
        with file:
            _open_locks.add(file)
            try:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    if not wait:
                        yield False
                        return
                    _wait_for(file, lock)
                # One that was removed meanwhile locks nothing: the next to come makes another.
                try:
                    if not os.path.samestat(lock.stat(), os.fstat(file.fileno())):
                        continue
                except FileNotFoundError:
                    continue
                yield True
                return
            finally:
                _open_locks.discard(file)


def _wait_for(file: IO[bytes], lock: Path) -> None:
    said = threading.Timer(_SILENT_S, note, [f"waiting for the process that holds {lock} (fuser(1) names it)"])
    said.daemon = True
    said.start()
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
    finally:
        said.cancel()


def is_kept(folder: Path) -> bool:
    """Whether the cache has a folder of what another host sent; one that is asked for stays for another week."""
    try:
        os.utime(folder)
    except FileNotFoundError:
        return False
    return True


def remove_unused(parent: Path) -> None:
    """Removes those below `parent` that nobody has asked for in a week, and what a killed process left of one."""
    for path in parent.iterdir():
        with contextlib.suppress(OSError):
            if path.is_dir() and time.time() - path.stat().st_mtime > _KEPT_S:
                remove_unless_held(path)


def hold(folder: Path) -> int:
    """Keeps a folder from those who remove what is not used, until the returned descriptor is closed.

    Raises:
        OSError: It does not exist.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def remove(folder: Path) -> None:
    """Removes a folder at once: if we are killed meanwhile, its rest has a hidden name and goes by remove_left()."""
    try:
        folder = folder.rename(folder.with_name(f".{folder.name}.{os.urandom(4).hex()}"))
    except FileNotFoundError:
        return
    except OSError:
        pass  # EXDEV: a folder of an image of containers (overlayfs) has no other name
    shutil.rmtree(folder, ignore_errors=True)


def remove_unless_held(folder: Path, removing: Callable[[Path], object] = remove) -> None:
    """Removes a folder, and its lock file, unless a process holds it (flock(2), so one that was killed does not)."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            lock = Path(f"{folder}.lock")
            with locked(folder, wait=False) if lock.exists() else contextlib.nullcontext(enter_result=True) as unused:
                if unused:
                    removing(folder)
                    lock.unlink(missing_ok=True)
        finally:
            os.close(descriptor)


def keep_newest(folders: Iterable[Path], most: int) -> None:
    """Removes all but those that were used last, and those that a process holds."""
    for old in sorted(folders, key=last_used)[:-most]:
        remove_unless_held(old)


def last_used(path: Path) -> float:
    """When a folder or file of the cache was used last; 0 where another process has just removed it."""
    with contextlib.suppress(FileNotFoundError):
        return path.stat().st_mtime
    return 0.0


def below(folder: Path, name: str) -> Path:
    """A path in a folder, of a relative one that another host sent. Raises ValueError where it leads out."""
    inside = PurePosixPath(name)
    if inside.is_absolute() or ".." in inside.parts:
        raise ValueError(f"{name!r} is not within {folder}")
    return folder / inside


@contextlib.contextmanager
def scratch_directory(kind: str, base: Path | None = None) -> Iterator[Path]:
    """A temporary folder that goes with the block; those of killed processes go with the next one of their kind.

    Args:
        kind: What it is for: a part of its name.
        base: Where it is made; None: where temporary files are.
    """
    where, prefix = base or Path(tempfile.gettempdir()), f"sampleblk-{kind}-"
    remove_left(where, f"{prefix}*")
    made, descriptor = _made_and_held(where, prefix)
    process = os.getpid()
    try:
        yield made
    finally:
        remove_as(process, made)
        os.close(descriptor)


def remove_as(process: int, made: Path) -> None:
    """Removes a folder, unless this is a fork of the process whose it is, and ends before it."""
    if os.getpid() == process:
        shutil.rmtree(made, ignore_errors=True)


def remove_left(parent: Path, pattern: str = ".*.????????") -> None:
    """Removes the scratch folders of killed processes: those that nobody holds."""
    for path in parent.glob(pattern):
        remove_unless_held(path, functools.partial(shutil.rmtree, ignore_errors=True))


def scratch_of(owner: object, kind: str) -> tuple[str, weakref.finalize[Any, Any]]:
    """A :func:`scratch_directory` that goes with an object, or when what is returned beside it is called."""
    stack = contextlib.ExitStack()
    made = stack.enter_context(scratch_directory(kind))
    return str(made), weakref.finalize(owner, stack.close)


def _made_and_held(base: Path, prefix: str) -> tuple[Path, int]:
    """A new folder, and the descriptor that holds it."""
    while True:
        made = Path(tempfile.mkdtemp(prefix=prefix, dir=base))
        descriptor = -1
        try:
            descriptor = hold(made)
            os.stat(made)  # noqa: PTH116  # another one may have met it before it was locked
            return made, descriptor
        except FileNotFoundError:
            if descriptor >= 0:
                os.close(descriptor)


@contextlib.contextmanager
def replaced_directory(target: Path) -> Iterator[Path]:
    """A scratch folder beside `target` that takes its place when the block ends well, and goes when it does not.

    Those that killed processes left there go with the next one.

    Raises:
        OSError: The folder cannot be made there.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    remove_left(target.parent)
    scratch, descriptor = _made_and_held(target.parent, f".{target.name}.")
    try:
        scratch.chmod(0o777 & ~umask())
        yield scratch
        remove(target)
        scratch.rename(target)
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def built_directory(target: Path) -> Iterator[Path]:
    """The same for a folder of the cache.

    Raises:
        CacheError: The folder cannot be made there, or there was no room for what the block wrote.
    """
    with contextlib.ExitStack() as stack:
        with writing_cache(target):
            scratch = stack.enter_context(replaced_directory(target))
        with filling_cache(target):
            yield scratch


def write_atomically(target: Path, data: bytes) -> None:
    """Writes a file of the cache whole or not at all. Raises CacheError."""
    with writing_cache(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        replace_file(target, data)


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Has errors say which file it was: those of read(2) and write(2), such as that of a full disk, do not."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


def replace_file(target: Path, data: bytes, *, durable: bool = False) -> None:
    """Writes a file whole or not at all. Raises OSError.

    Args:
        target: The file.
        data: Its content.
        durable: Wait until the content has reached the disk.
    """
    with (
        naming(target),
        tempfile.NamedTemporaryFile(dir=target.parent, prefix=f".{target.name}.", delete=False) as file,
    ):
        try:
            file.write(data)
            file.flush()
            if durable:
                os.fdatasync(file.fileno())
            Path(file.name).chmod(0o666 & ~umask())
            Path(file.name).rename(target)
        except BaseException:
            Path(file.name).unlink(missing_ok=True)
            raise


def umask() -> int:
    """The permissions that new files of this process do not get. The system call would change them to ask for them."""
    _, _, text = Path("/proc/self/status").read_text().partition("\nUmask:")
    return int(text.split(maxsplit=1)[0], 8)


def append_whole(descriptor: int, end: int, data: bytes) -> int:
    """Appends to a file that this process alone writes: all of `data`, or nothing.

    Args:
        descriptor: Of the file, opened for writing.
        end: Its size, in bytes.
        data: What to append.

    Returns:
        The new size.

    Raises:
        OSError: It could not be written.
    """
    written = 0
    try:
        while written < len(data):
            written += os.pwrite(descriptor, data[written:], end + written)
    except OSError:
        os.ftruncate(descriptor, end)
        raise
    return end + written
