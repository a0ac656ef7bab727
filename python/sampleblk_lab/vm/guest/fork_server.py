# SPDX-License-Identifier: MIT
"""A Python in the guest that has imported what experiments import, and forks one of itself for each command.

It is started before the machine is saved (:mod:`sampleblk_lab.vm.template`): a clone has it from its first moment, and
a command begins in milliseconds instead of seconds. A fork does what ``python ARGS…`` would, in the guest's real root;
where a new interpreter could do something else, it becomes one by execve(2).
"""

from __future__ import annotations

import _io
import atexit
import builtins
import contextlib
import ctypes
import fcntl
import gc
import importlib.machinery
import io
import linecache
import os
import random
import runpy
import signal
import site
import socket
import struct
import sys
import sysconfig
import termios
import threading
import time
import types
import warnings
import weakref
from importlib.machinery import BuiltinImporter, SourceFileLoader
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from sampleblk_lab.vm import channel
from sampleblk_lab.vm.guest.read_once import read_at_start

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

# What commands import: the toolkit's parts that a guest works with, pytest's own plugins, and what a call or a worker
# of pytest-xdist comes by. No pytest plugin of others: one that is imported before pytest does it is a warning.
_OURS = (
    *("_native", "called", "cli.device", "cli.job_guest", "crash", "demo", "device", "leftovers", "profiling"),
    *("pytest_plugin.artefacts", "pytest_plugin.debugger", "pytest_plugin.fixtures", "pytest_plugin.internals"),
    *("pytest_plugin.kernel_log", "pytest_plugin.messages", "pytest_plugin.options", "pytest_plugin.residue"),
    *("pytest_plugin.selection", "pytest_plugin.worker", "recording.recorder", "results.machine", "splat", "table"),
    *("tasks", "workload", "workload.run"),
)
_OTHERS = (
    *("numpy", "pytest", "_pytest._argcomplete", "asyncio", "cloudpickle", "execnet.gateway_base", "csv"),
    *("faulthandler", "pdb", "platform", "statistics", "uuid"),
)

# What the interpreter imports before its first line, wherever sys.path has it (site).
_CUSTOMIZERS = frozenset({"sitecustomize", "usercustomize"})

# Our end of the socket to the guest's init, who sends with each command: its three streams, where to say why it cannot
# run, and the root.
_SERVER = 3
_DESCRIPTORS = 5

# What a rehearsal goes through, once a clone runs. It ends later than a short command, which would have to do so at the
# same time: two CPUs that translate the same are slower than one.
_REHEARSED = ("-c", "import time; time.sleep(0.4)")

_signal_to_end_by = 0


def import_all(preload: Iterable[str] = ()) -> None:
    """Imports what commands will; what is not installed they do not import either.

    Args:
        preload: Modules besides ours. Who imports one that cannot be is told why then.

    What cannot be imported where the guest's files are chosen, as the plugin without pytest, has no file in the guest;
    an editable install names one all the same.
    """
    # Importing it reads the terminal's description, which is the command's; its libraries can be here. From Python 3.13
    # on pdb imports rlcompleter, which does without it.
    sys.modules["readline"] = None  # type: ignore[assignment]
    for name in (*_OTHERS, *(f"sampleblk_lab.{part}" for part in _OURS)):
        with contextlib.suppress(ImportError, FileNotFoundError):
            importlib.import_module(name)
    for name in preload:
        with contextlib.suppress(Exception):
            importlib.import_module(name)
    with contextlib.suppress(ImportError, FileNotFoundError):
        importlib.import_module("sampleblk_lab.pytest_plugin.internals").begin()
    del sys.modules["readline"]
    with contextlib.suppress(ImportError, OSError, AttributeError):
        ctypes.CDLL(importlib.machinery.PathFinder.find_spec("readline").origin)  # type: ignore[union-attr]


class _NewInterpreterError(Exception):
    """A fork might do something else than a new interpreter."""


class _Command:
    """The fields of an EXEC frame (cpp/vm/protocol.h)."""

    def __init__(self, payload: bytes) -> None:
        self.argv: list[str] = []
        self.environment: dict[str, str] = {}
        self.folder = "/"
        self.umask = 0o022
        self.terminal = False
        at = 0
        while at < len(payload):
            kind, length = struct.unpack_from("<II", payload, at)
            text = os.fsdecode(payload[at + 8 : at + 8 + length])
            at += 8 + length
            match chr(kind):
                case "a":
                    self.argv.append(text)
                case "v":
                    name, _, value = text.partition("=")
                    self.environment[name] = value
                case "d":
                    self.folder = text
                case "m":
                    self.umask = int.from_bytes(payload[at - length : at], "little")
                case "w":
                    self.terminal = True


def main(not_found: set[str], preload: Iterable[str]) -> None:
    """Serves; in each fork, is the program.

    Args:
        not_found: The top-level modules that were looked for and are nowhere, which grows meanwhile.
        preload: As :func:`import_all` has it.
    """
    atexit.register(_end_by_signal)  # the first to be registered is the last to run
    at_start = read_at_start(os.environ.items(), preloads=bool(preload))

    def reads_other(environment: Mapping[str, str]) -> bool:
        return read_at_start(environment.items(), preloads=bool(preload)) != at_start

    import_all(preload)
    del sys.meta_path[-1]
    origins = _origins(not_found)
    sys.modules.pop("rlcompleter", None)  # who imports it has readline
    imported = {name: id(module) for name, module in sys.modules.items() if name != "__main__"}
    _forget_folders()
    gc.collect()
    gc.freeze()  # a collection in a fork would write to all that it shares
    status = _run(_become(*_serve(), reads_other, origins))
    _end(status, imported)
    raise SystemExit(status)


def _serve() -> tuple[_Command, list[int]]:
    """Returns, in a fork, the command that it is for.

    The fork for the first one is made here, before the machine is saved: an emulated one takes a tenth of a second.
    """
    server = socket.socket(fileno=_SERVER)
    rehearsing = _rehearsal(server)
    if isinstance(rehearsing, socket.socket):
        return _receive(rehearsing)
    waits, taken = os.pipe()
    if _is_fork():
        os.close(waits)
        server.send(struct.pack("<I", rehearsing))
        command, descriptors = _receive(server)
        server.send(struct.pack("<I", os.getpid()))
        os.close(taken)
        server.close()
        # Each clone has the state that this fork drew from; os.fork() has seen to it in the others.
        random.seed()
        return command, descriptors
    os.close(taken)
    os.read(waits, 1)  # until it has what is its own, or is gone
    os.close(waits)
    while True:
        command, descriptors = _receive(server)
        if _is_fork():
            server.send(struct.pack("<I", os.getpid()))
            server.close()
            return command, descriptors
        for each in descriptors:
            os.close(each)


def _is_fork() -> bool:
    """Forks; true in the fork, whose parent is the guest's init."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a library that has threads stops them before a fork
        between = os.fork()
        if between == 0:
            if os.fork() > 0:
                os._exit(0)
            return True
    os.waitpid(between, 0)
    return False


def _rehearsal(server: socket.socket) -> int | socket.socket:
    """Forks a process that waits for SIGCONT; returns its process ID, and in the fork, once that has come, a command's.

    It then does what a fork for a command does, while init mounts the guest's root. Emulated, most of the time that a
    short command takes goes into translating what no CPU of this clone has executed yet, and a second CPU is idle then.
    With one CPU there is no such process, and 0 is returned.
    """
    if os.cpu_count() == 1:
        return 0
    tells, told = os.pipe()
    if _is_fork():
        server.close()  # init must see the end of the server
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCONT})  # so that one before the wait is not lost
        os.write(told, struct.pack("<I", os.getpid()))
        os.close(tells)
        os.close(told)
        command = _rehearsed()
        signal.sigwait({signal.SIGCONT})
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCONT})
        return command
    os.close(told)
    pid: int = struct.unpack("<I", os.read(tells, 4))[0]
    os.close(tells)
    return pid


def _rehearsed() -> socket.socket:
    """What init would send a command by, with one that does nothing."""
    near, far = socket.socketpair()
    with far:
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        root = os.open("/", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        argv = [os.fsencode(each) for each in (sys.executable, *_REHEARSED)]
        frame = channel.execute(argv, dict(os.environb), b"/", 0o022, None)
        # Of the frame init passes on its length, with the descriptors beside it, and what follows.
        socket.send_fds(far, [frame[4:8]], [null, null, null, null, root])
        far.sendall(frame[8:])
        os.close(null)
        os.close(root)
    return near


def _receive(server: socket.socket) -> tuple[_Command, list[int]]:
    """Waits for a command."""
    head, descriptors, _, _ = socket.recv_fds(server, 4, _DESCRIPTORS)
    for each in descriptors:
        os.set_inheritable(each, False)  # recv_fds() does not pass MSG_CMSG_CLOEXEC on
    length = struct.unpack("<I", head)[0] if len(head) == 4 else 0
    payload = bytearray()
    while len(payload) < length and (part := server.recv(length - len(payload))):
        payload += part
    if not length or len(payload) < length:
        os._exit(0)  # init has given us up
    return _Command(bytes(payload)), descriptors


def _origins(not_found: set[str]) -> dict[str, str | None]:
    """Where each top-level module came from that has a file; None for those that were looked for in vain."""
    found = {name: getattr(module, "__file__", None) for name, module in list(sys.modules.items()) if "." not in name}
    return {**dict.fromkeys(not_found), **{name: path for name, path in found.items() if isinstance(path, str)}}


def _forget_folders() -> None:
    """Forgets what folders have, which was seen in a root with the files of this server alone."""
    sys.path_importer_cache.clear()
    importlib.invalidate_caches()
    # What is installed; only from 3.12 on that was it.
    for name in ("importlib.metadata", "importlib_metadata"):
        with contextlib.suppress(KeyError, AttributeError):
            cast("Any", sys.modules[name]).FastPath.__new__.cache_clear()


# --- in the fork ------------------------------------------------------------------------------------------------------


def _become(
    command: _Command,
    descriptors: list[int],
    reads_other: Callable[[Mapping[str, str]], bool],
    origins: dict[str, str | None],
) -> Callable[[], object]:
    """Makes this process what one of the command's own would be, up to its first line; returns what to do then."""
    stdin, stdout, stderr, report, root = descriptors
    os.setsid()
    try:
        os.fchdir(root)
        os.chroot(".")
        os.close(root)
        for number, each in enumerate((stdin, stdout, stderr)):
            os.dup2(each, number)
            os.close(each)
        if command.terminal:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        os.umask(command.umask)
        os.chdir(command.folder)
        try:
            program = _program(command, reads_other, origins)
        except _NewInterpreterError:
            os.execve(command.argv[0], command.argv, command.environment)
    except OSError as error:
        os.write(report, struct.pack("<i", error.errno or 0))
        os._exit(127)
    os.close(report)
    return program


def _program(
    command: _Command, reads_other: Callable[[Mapping[str, str]], bool], origins: dict[str, str | None]
) -> Callable[[], object]:
    """Sets up the interpreter for a command. Raises _NewInterpreterError before anything is changed."""
    if reads_other(command.environment):
        raise _NewInterpreterError
    words = command.argv[1:]
    unbuffered = bool(command.environment.get("PYTHONUNBUFFERED"))
    while words[:1] == ["-u"]:
        del words[0]
        unbuffered = True
    program: Callable[[], object]
    match words:
        case ["-c", text, *_]:
            first, argv = "", ["-c", *words[2:]]
            program = _Text(text)
        case ["-m", name, *_]:
            first, argv = str(Path.cwd()), ["-m", *words[2:]]
            program = _Module(name)
        case [path, *_] if path.endswith(".py") and not path.startswith("-") and Path(path).is_file():
            first, argv = str(Path(path).resolve().parent), words
            program = _Script(str(Path.cwd() / path))
        case _:
            raise _NewInterpreterError
    given = _python_path(command.environment)
    everywhere = {**dict.fromkeys(_CUSTOMIZERS), **origins}
    if _shadows(first or ".", origins) or any(_shadows(each, everywhere) for each in given):
        raise _NewInterpreterError
    os.environ.clear()
    os.environ.update(command.environment)
    time.tzset()
    sys.orig_argv[:] = command.argv
    sys.argv[:] = argv
    sys.path[:] = [first, *dict.fromkeys([*given, *sys.path[1:]])]
    sys.dont_write_bytecode = bool(command.environment.get("PYTHONDONTWRITEBYTECODE"))
    _find_user_base()
    _open_streams(unbuffered)
    _renew_main()
    # os.fork() has given the module random another seed, and knows nothing of this one.
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()
    return program


def _renew_main() -> None:
    main_module = types.ModuleType("__main__")
    main_module.__loader__ = BuiltinImporter
    main_module.__dict__.update(__annotations__={}, __builtins__=builtins)
    sys.modules["__main__"] = main_module


def run_module(name: str, argv: Sequence[str]) -> None:
    """Does what ``python -m NAME ARGV…`` would, in a fork of a program that was itself started so."""
    sys.argv[:] = ["-m", *argv]
    sys.orig_argv[1:] = ["-m", name, *argv]
    _renew_main()
    _Module(name)()


def _python_path(environment: Mapping[str, str]) -> list[str]:
    """The folders that PYTHONPATH puts before those of the interpreter (Modules/getpath.py).

    Raises _NewInterpreterError where one is something else, such as an archive.
    """
    text = environment.get("PYTHONPATH", "")
    found = [str(Path.cwd() / each) for each in text.split(os.pathsep)] if text else []
    found = [os.path.abspath(each) for each in found]  # noqa: PTH100  # as site has it: ".." without regard to links
    if any(Path(each).is_file() for each in found):
        raise _NewInterpreterError
    return found


def _shadows(folder: str, origins: Mapping[str, str | None]) -> bool:
    """Whether a folder that comes before others in sys.path has another module of a name that we have imported."""
    with contextlib.suppress(OSError):
        for entry in os.listdir(folder):  # noqa: PTH208  # emulated, iterdir() takes 10 ms more
            name = entry.partition(".")[0]
            if name not in origins:
                continue
            path = origins[name]
            if path is None:
                return True
            where = Path(folder, entry)
            file = where / "__init__.py" if where.is_dir() else where
            if file.suffix in (".py", ".pyc", ".so") and file.exists() and not file.samefile(path):
                return True
    return False


def _find_user_base() -> None:
    """Puts modules of the user's where HOME is now, as :func:`site.main` does, even if none are taken from there."""
    site.USER_BASE = site.USER_SITE = None
    site.getusersitepackages()
    variables = getattr(sysconfig, "_CONFIG_VARS", None)
    if variables:
        variables["userbase"] = site.USER_BASE


def _open_streams(unbuffered: bool) -> None:
    """The standard streams over descriptors that are new (Python/pylifecycle.c, create_stdio())."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        old = getattr(sys, f"__{name}__")
        raw = io.FileIO(number, "rb" if number == 0 else "wb", closefd=False)
        raw.name = f"<{name}>"
        binary: Any = io.BufferedReader(raw) if number == 0 else raw if unbuffered else io.BufferedWriter(raw)
        stream = io.TextIOWrapper(
            binary,
            encoding=old.encoding,
            errors=old.errors,
            newline="\n",
            line_buffering=not unbuffered and (number == 2 or raw.isatty()),
            write_through=unbuffered,
        )
        cast("Any", stream).mode = "r" if number == 0 else "w"
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


class _Text:
    """``-c TEXT``."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __call__(self) -> None:
        code = compile(self._text, "<string>", "exec", dont_inherit=True)
        # From 3.13 on the interpreter does so, for tracebacks; else they have the lines of this server's own -c.
        register = getattr(linecache, "_register_code", None)
        if register is not None:
            # 3.13.0 has it by the name, those after it by the code.
            register(code if hasattr(linecache, "_interactive_cache") else "<string>", self._text, "<string>")
        exec(code, sys.modules["__main__"].__dict__)


class _Module:
    """``-m NAME``."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self) -> None:
        module = sys.modules.get(self._name)
        if module is not None and not hasattr(module, "__path__"):
            del sys.modules[self._name]  # as there, what imports it gets another one
        runpy._run_module_as_main(self._name)  # type: ignore[attr-defined] # noqa: SLF001


class _Script:
    """``PATH``."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __call__(self) -> None:
        main_module: Any = sys.modules["__main__"]
        main_module.__file__ = self._path
        main_module.__cached__ = None
        main_module.__loader__ = SourceFileLoader("__main__", self._path)
        with io.open_code(self._path) as file:
            text = file.read()
        exec(compile(text, self._path, "exec", dont_inherit=True), main_module.__dict__)


def _run(program: Callable[[], object]) -> int:
    """Runs it; returns the exit status of what ended as most do.

    Else it ends as ``python`` does when its program has: what was raised is told without the frames that are ours.
    """
    global _signal_to_end_by
    try:
        program()
    except SystemExit as error:
        if error.code is None or isinstance(error.code, int):
            return error.code or 0
        raise
    except BaseException as error:
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
            trace = trace.tb_next
        sys.excepthook(type(error), error.with_traceback(trace), trace)
        if isinstance(error, KeyboardInterrupt):
            _signal_to_end_by = signal.SIGINT
        raise SystemExit(1) from None
    return 0


def _end(status: int, imported: dict[str, int]) -> None:
    """Ends the process as the interpreter does (Python/pylifecycle.c, Py_FinalizeEx()), but for what was there before.

    To take all those modules apart would take an emulated fork an eighth of a second, since it writes to all that it
    shares. Returns, with the interpreter as it must be to end by itself, where a standard stream cannot be flushed.

    Args:
        status: The exit status.
        imported: The modules that the fork has not imported itself.
    """
    threading._shutdown()  # type: ignore[attr-defined] # noqa: SLF001
    atexit._run_exitfuncs()  # noqa: SLF001
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None and not stream.closed:
                stream.flush()
    except Exception:
        return  # the interpreter says so, and has a status of its own for it
    for name in ("stdin", "stdout", "stderr"):
        setattr(sys, name, getattr(sys, f"__{name}__"))
    own = {name: module for name, module in sys.modules.items() if imported.get(name) != id(module)}
    sys.modules.update(dict.fromkeys(own))  # type: ignore[arg-type]
    main_module = own.pop("__main__")
    left = [weakref.ref(module) for module in own.values() if isinstance(module, types.ModuleType)]
    del own
    gc.collect()
    for reference in reversed(left):
        if (module := reference()) is not None:
            _clear(module.__dict__)
    _clear(main_module.__dict__)
    gc.collect()
    # What is kept by a module that was there before.
    for each in gc.get_objects():
        if issubclass(type(each), _io._IOBase):  # noqa: SLF001
            with contextlib.suppress(OSError, ValueError):
                each.flush()
    ctypes.pythonapi.exit(status)  # libc's, which flushes what C has written


def _clear(names: dict[str, Any]) -> None:
    """Lets go of what a module has (Objects/moduleobject.c, _PyModule_ClearDict())."""
    for private in (True, False):
        for name in list(names):
            if name != "__builtins__" and (not private or (name[:1] == "_" and name[1:2] != "_")):
                names[name] = None


def _end_by_signal() -> None:
    """Whoever waits for us sees that Ctrl-C ended us (Modules/main.c, exit_sigint())."""
    if _signal_to_end_by:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        signal.signal(_signal_to_end_by, signal.SIG_DFL)
        os.kill(os.getpid(), _signal_to_end_by)
