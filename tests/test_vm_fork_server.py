# SPDX-License-Identifier: MIT
"""The Python that a VM has ready: what a fork of it does is what the same interpreter does here, started anew."""

from __future__ import annotations

import importlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path

import pytest

from sampleblk_lab.jupyter import host
from sampleblk_lab.vm import VM, CommandError, background
from sampleblk_lab.vm.contents import interpreter
from sampleblk_lab.vm.guest import fork_server, read_once

# Its command line tells a fork from a process that has started by itself; this text is in that of the latter.
FORKED = "b'fork' b'_server' in open('/proc/self/cmdline', 'rb').read()"


@pytest.fixture(scope="module")
def machine() -> Iterator[VM]:
    """A clone that has a Python ready."""
    vm = VM(driver=False)
    vm.make_template()
    with vm:
        assert vm.restored
        yield vm


def forked(machine: VM, *options: str, **keywords: object) -> bool:
    done = machine.run([sys.executable, *options, "-c", f"print({FORKED})"], timeout=60, **keywords)  # type: ignore[arg-type]
    assert done.returncode == 0, done.stderr
    return {b"True": True, b"False": False}[done.stdout.splitlines()[-1]]


PROGRAMS = {
    "arguments": "import sys; print(sys.argv, sys.orig_argv[1:2], sys.path[0], __name__, sys.flags.interactive)",
    "its module": "import sys; print(sorted(globals()), sys.modules['__main__'].__dict__ is globals())",
    "status": "raise SystemExit(7)",
    "status as text": "import sys; sys.exit('no room')",
    "exception": "def f():\n    1 / 0\nf()",
    "exception of another": "try:\n    int('x')\nexcept ValueError as e:\n    raise KeyError('y') from e",
    "syntax": "print(1\nx =",
    "names": "print(undefined_name)",
    "group": "raise ExceptionGroup('two', [ValueError(1), OSError(2)])",
    "hook": "import sys\nsys.excepthook = lambda *a: print('hook', a[0].__name__)\nraise OSError",
    "streams": "import sys\nfor s in (sys.stdin, sys.stdout, sys.stderr): print(s.name, s.mode, s.encoding, s.errors, "
    "s.line_buffering, s.write_through, s.isatty(), s.fileno(), type(s.buffer).__name__)",
    "input": "import sys; print(sys.stdin.readline(), sys.stdin.buffer.read())",
    "left to the end": "f = open('/dev/stdout', 'w'); f.write('flushed at the end')",
    "at exit": "import atexit; atexit.register(print, 'last'); print('first')",
    "thread": "import threading, time\nthreading.Thread(target=lambda: (time.sleep(0.2), print('late'))).start()",
    "killed": "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
    "interrupted": "import os, signal; print('x', end=''); os.kill(os.getpid(), signal.SIGINT); print('y')",
    "broken pipe": "import signal; print(signal.getsignal(signal.SIGPIPE), signal.getsignal(signal.SIGINT).__name__)",
    "signals": "import signal; print(signal.pthread_sigmask(signal.SIG_BLOCK, []))",
    "descriptors": "import os; print([f for f in range(100) if os.path.exists(f'/proc/self/fd/{f}')])",
    "child": "import subprocess, sys\nprint(subprocess.run([sys.executable, '-c', 'print(3)'], capture_output=True))",
    "pool": "import multiprocessing as m\nwith m.get_context('fork').Pool(2) as p: print(p.map(abs, [-1, -2]))",
    "threads of numpy": "import numpy as n; a = n.ones((300, 300)); print((a @ a).sum())",
    "time zone": "import time; print(time.strftime('%H %Z', time.gmtime(0)), time.localtime(0).tm_hour)",
    "environment": "import os; print(os.environ['MARK'], os.environb[b'MARK'], os.getenv('GONE'), os.getcwd())",
    "warnings": "import warnings; warnings.warn('old', DeprecationWarning); print(len(warnings.filters) > 3)",
    "import": "import colorsys, email.mime.text; print(colorsys.__file__)",
    "no module": "import not_there_at_all",
    # How it ends, which a fork does by itself.
    "objects at the end": "class C:\n    n = 0\n    def __del__(self): print('gone', self.n)\n"
    "a = C(); a.n = 1; b = [C()]; b[0].n = 2; b.append(b)\ndef f(): return c\nc = C(); c.n = 3",
    "kept by a module": "import os; os.kept = open(os.dup(1), 'w'); os.kept.write('kept')",
    "written by C": "import ctypes; ctypes.CDLL(None).printf(b'from C')",
    "standard output closed": "import sys; print(1); sys.stdout.close()",
    "standard output replaced": "import io, sys; print(1); sys.stdout = io.StringIO(); print('lost')",
    "standard output full": "import os; os.dup2(os.open('/dev/full', os.O_WRONLY), 1); print('x')",
    "failing at exit": "import atexit\nclass C:\n    def __repr__(self): return 'it'\n    def __call__(self): 1 / 0\n"
    "atexit.register(C())",
    "status above 255": "raise SystemExit(300)",
    "status below 0": "raise SystemExit(-1)",
    "true as status": "raise SystemExit(True)",
    "finalizer": "import weakref\nclass C: pass\nc = C(); weakref.finalize(c, print, 'finalized')",
    "temporary folder": "import tempfile, os; t = tempfile.TemporaryDirectory(); print(os.path.isdir(t.name))",
    "daemon": "import threading, time; threading.Thread(target=time.sleep, args=(100,), daemon=True).start()",
    "pool of threads": "import concurrent.futures as c; c.ThreadPoolExecutor().submit(print, 'pooled')",
    "generator": "def g():\n    try: yield 1\n    finally: print('closed')\nx = g(); next(x)",
    "own fork": "import os; p = os.fork(); p and os.waitpid(p, 0); print('parent' if p else 'child')",
    "modules are none": "import colorsys, sys\nclass C:\n    def __del__(self): print(sys.modules.get('colorsys'))\n"
    "colorsys.kept = C()",
    "completion": "import pdb, readline, rlcompleter\n"
    "print(rlcompleter._readline_available, readline.get_completer() is None, pdb.__file__)",
    "recursion": "def f(): f()\ntry:\n    f()\nexcept RecursionError as e: print(e)",
}


def _both(machine: VM, words: list[str], folder: Path, stdin: bytes = b"", **more: str) -> None:
    """The same command here and there. What a host's name or process makes different is not asked for."""
    env = {**os.environ, "MARK": "ä=b", "TZ": "Asia/Kolkata", **more}
    env.pop("COLUMNS", None)
    here = subprocess.run(
        [sys.executable, *words], input=stdin, capture_output=True, check=False, cwd=folder, env=env, timeout=60
    )
    there = machine.run([sys.executable, *words], stdin=stdin, cwd=folder, env=env, timeout=60)
    assert (there.returncode, there.stdout, there.stderr) == (here.returncode, here.stdout, here.stderr)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_fork_does_as_a_new_interpreter(machine: VM, tmp_path: Path, name: str) -> None:
    assert forked(machine, cwd=tmp_path)
    _both(machine, ["-c", PROGRAMS[name], "a", "-b"], tmp_path, b"line\nrest")


def test_so_does_a_script(machine: VM, tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("print('beside', __file__)")
    script = tmp_path / "run.py"
    script.write_text(
        f"import sys, beside\nprint({FORKED} or sys.platform)\n"
        "print(sys.argv, sys.path[0], __file__, __cached__, __spec__, type(__loader__).__name__)\n"
        "def fails():\n    raise OSError('ä')\nfails()\n"
    )
    (tmp_path / "link.py").symlink_to(script)
    here = subprocess.run(
        [sys.executable, "link.py", "x"], capture_output=True, check=False, cwd=tmp_path, env={**os.environ}
    )
    there = machine.run([sys.executable, "link.py", "x"], cwd=tmp_path, timeout=60)
    assert there.stdout == here.stdout.replace(b"linux", b"True")
    assert (there.returncode, there.stderr) == (here.returncode, here.stderr)


def test_so_does_a_module(machine: VM, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("import sys; print(sys.argv[1:], sys.path[0], __name__, __spec__.name); 1 / 0")
    for words in (["own", "x"], ["json.tool", "--help"], ["not_there"], ["numpy.nothing"], ["sampleblk_lab.called"]):
        _both(machine, ["-m", *words], tmp_path, b"no call")


def test_so_does_one_with_folders_and_a_home_of_its_own(machine: VM, tmp_path: Path) -> None:
    """As pytester, or whoever works in a source tree, has them."""
    home, lib = tmp_path / "home", tmp_path / "lib"
    home.mkdir()
    lib.mkdir()
    (tmp_path / "beside.py").write_text("where = 'beside'")
    (lib / "beside.py").write_text("where = 'in lib'")
    code = (
        "import beside, os, site, sys, sysconfig\n"
        "print(sys.path, beside.where, os.path.expanduser('~'), site.USER_BASE, sysconfig.get_config_var('userbase'))"
    )
    installed = str(Path(pytest.__file__).parent.parent)
    paths = [
        f"{lib}",
        f"lib:{lib}/:{tmp_path}/lib/../lib:",
        ":",
        "",
        "/not/there:lib",
        f"{installed}:lib",
        str(tmp_path),
    ]
    for path in paths:
        env = {"PYTHONPATH": path, "HOME": str(home)}
        assert forked(machine, cwd=tmp_path, env={**os.environ, **env})
        _both(machine, ["-c", code], tmp_path, **env)
        _both(machine, ["-m", "beside"], tmp_path, **env)


# copy looks for Jython's org.python before Python 3.13.
SHADOWS = ["sitecustomize", "numpy", "zipfile", *(["org"] if sys.version_info < (3, 13) else [])]


@pytest.mark.parametrize("name", SHADOWS)
def test_modules_that_would_have_been_others_are(machine: VM, tmp_path: Path, name: str) -> None:
    """What a new interpreter would import of these folders before its first line, or in the place of what is there."""
    (tmp_path / f"{name}.py").write_text(f"print('own {name}')")
    path = str(tmp_path)
    if name == "zipfile":
        path = str(tmp_path / "archive.zip")
        with zipfile.ZipFile(path, "w") as archive:
            archive.write(tmp_path / "zipfile.py", "sitecustomize.py")
    (tmp_path / "elsewhere").mkdir()
    assert not forked(machine, cwd=tmp_path / "elsewhere", env={**os.environ, "PYTHONPATH": path})
    _both(machine, ["-c", "import copy, numpy, pytest"], tmp_path / "elsewhere", PYTHONPATH=path)
    if name == "org":
        _both(machine, ["-c", "import copy"], tmp_path)


@pytest.mark.parametrize("value", ["", "1"])
def test_what_it_has_compiled_is_written_or_not_as_the_command_has_it(machine: VM, tmp_path: Path, value: str) -> None:
    (tmp_path / "beside.py").write_text("")
    env = {"PYTHONDONTWRITEBYTECODE": value}
    assert forked(machine, cwd=tmp_path, env={**os.environ, **env})
    _both(machine, ["-c", "import beside, sys; print(sys.dont_write_bytecode)"], tmp_path, **env)


def test_unbuffered(machine: VM, tmp_path: Path) -> None:
    assert forked(machine, "-u", cwd=tmp_path)
    _both(machine, ["-u", "-c", PROGRAMS["streams"].replace("type(s.buffer)", "type(s)")], tmp_path)


def test_what_only_a_new_interpreter_heeds_gets_one(machine: VM, tmp_path: Path) -> None:
    assert not forked(machine, "-P")
    assert not forked(machine, "-O")
    assert not forked(machine, env={**os.environ, "PYTHONHASHSEED": "7"})
    assert forked(machine, cwd=tmp_path)
    (tmp_path / "json").mkdir()  # a namespace package, which is found last
    assert forked(machine, cwd=tmp_path)
    (tmp_path / "numpy.py").write_text("print('mine')")
    done = machine.run([sys.executable, "-c", "import numpy"], cwd=tmp_path, timeout=60)
    assert done.stdout == b"mine\n"


def test_input_reaches_an_interpreter_that_is_new(machine: VM) -> None:
    code = "import os, sys; print(len(sys.stdin.buffer.read()), os.listdir('/proc/self/fd'))"
    done = machine.run([sys.executable, "-P", "-c", code], stdin=b"x" * 1_000_000, timeout=60)
    assert done.stdout == b"1000000 ['0', '1', '2', '3']\n"


def test_what_cannot_be_started_says_why(machine: VM, tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"chdir to .*/nowhere: No such file"):
        machine.run([sys.executable, "-c", "pass"], cwd=tmp_path / "nowhere")
    assert forked(machine)  # and it goes on


def test_signals_reach_it(machine: VM) -> None:
    code = "import signal, time\nprint('up', flush=True)\ntime.sleep(60)"
    reading, writing = os.pipe()

    def kill_when_it_is_up() -> None:
        os.read(reading, 3)
        os.kill(os.getpid(), signal.SIGUSR1)

    killer = threading.Thread(target=kill_when_it_is_up)
    killer.start()
    try:
        command = [sys.executable, "-c", code]
        done = machine.run(command, stdout=writing, forward_signals=[signal.SIGUSR1], timeout=60)
    finally:
        os.close(writing)
        killer.join()
        os.close(reading)
    assert done.returncode == -signal.SIGUSR1


def test_clones_draw_other_random_numbers() -> None:
    drawing = "random.random(), numpy.random.random(), uuid.uuid4(), os.urandom(4).hex()"
    code = f"import numpy, os, random, uuid; print({drawing})"
    drawn = []
    for _ in range(2):
        vm = VM(driver=False)
        vm.make_template()
        with vm:
            assert forked(vm)
            drawn += [vm.run([sys.executable, "-c", code]).stdout.split() for _ in range(2)]
    for kind in zip(*drawn, strict=True):
        assert len(set(kind)) == 4


def test_there_is_none_for_files_that_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interpreter, "cache_root", lambda: tmp_path)
    assert interpreter.ready() is None  # never asked before
    first = interpreter.ready()
    assert first is not None
    assert sys.executable in first.files
    assert shutil.which("bash") in first.files
    assert any(path.endswith("/numpy/__init__.py") for path in first.files)
    assert interpreter.ready() == first
    monkeypatch.setenv("LANG", "C")
    assert interpreter.ready() is None
    monkeypatch.undo()
    monkeypatch.setattr(interpreter, "cache_root", lambda: tmp_path)
    own = str(Path(interpreter.__file__))
    touched = Path(own).stat().st_mtime_ns
    try:
        os.utime(own, ns=(touched, touched + 10**9))
        assert interpreter.ready() is None
        second = interpreter.ready()
        assert second is not None
        assert second.identity != first.identity
    finally:
        os.utime(own, ns=(touched, touched))
    third = interpreter.ready(at_once=True)
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    monkeypatch.setenv("HOME", "/somewhere/else")
    assert interpreter.ready() == third
    monkeypatch.setenv("PYTHONSAFEPATH", "1")
    assert interpreter.ready(at_once=True) is None


def test_what_changes_while_a_template_is_made_makes_none(
    own_builds: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ready = interpreter.ready(at_once=True)
    assert ready is not None
    assert ready.is_unchanged()
    monkeypatch.setattr(interpreter.Interpreter, "is_unchanged", lambda _: False)
    assert VM(driver=False).make_template() is None
    assert "its Python has changed meanwhile" in capsys.readouterr().err
    assert not list(own_builds.glob("templates/*/template.json"))


@pytest.mark.full
def test_a_python_that_changed_is_made_ready_beside_the_work(own_builds: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(interpreter, "ready", lambda *_, **__: None)  # as it is for files that have just changed
        with VM(driver=False) as vm:
            assert not vm.restored
    interpreter.ready(at_once=True)
    monkeypatch.setenv("SAMPLEBLK_BACKGROUND", "1")
    for _ in range(2):
        with VM(driver=False) as vm:  # does not wait for it
            assert vm.restored
            assert not forked(vm)
    assert background.is_under_way()
    end = time.monotonic() + 1200
    while background.is_under_way() and time.monotonic() < end:
        time.sleep(0.5)
    assert len(list(own_builds.glob("templates/*/template.json"))) == 2
    with VM(driver=False) as vm:
        assert vm.restored
        assert forked(vm)


@pytest.mark.full
@pytest.mark.usefixtures("own_builds")
def test_what_is_preloaded_is_there_and_sees_what_is_installed() -> None:
    """numpy.testing looks what is installed when it is imported: in the template's root there is nothing else."""
    code = (
        "import sys; print('zmq' in sys.modules, 'numpy.testing' in sys.modules)\n"
        "from importlib import metadata; print(len(metadata.entry_points()), metadata.version('pyzmq'))"
    )
    program = [sys.executable, "-c", code]
    here = subprocess.run(program, capture_output=True, text=True, check=True).stdout.splitlines()
    vm = VM(driver=False, preload=["zmq", "numpy.testing", "not_installed"])
    vm.make_template()
    with vm:
        assert vm.restored
        assert forked(vm)
        there = vm.run(program, timeout=60).stdout.decode().splitlines()
    assert there == ["True True", here[1]]
    assert here[0] == "False False"


# The guest's init, as far as rehearsals go: it has a process go through a command, or ends it.
REHEARSAL = """
import contextlib, ctypes, os, socket, struct, sys
from sampleblk_lab.vm.contents import interpreter
from sampleblk_lab.vm.guest import fork_server

path, number = sys.argv[1], int(sys.argv[2])
ctypes.CDLL(None).prctl(36, 1)  # PR_SET_CHILD_SUBREAPER, as init is
near, far = socket.socketpair()
if os.fork() == 0:
    os.dup2(far.fileno(), 3)
    os.cpu_count = lambda: 2
    fork_server._REHEARSED = ("-c", f"import sys; open({path!r}, 'w').write(repr(sys.argv))")
    exec(interpreter.START.format(preload=()))
far.close()
pid = struct.unpack("<I", near.recv(4, socket.MSG_WAITALL))[0]
os.kill(pid, number)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
near.close()
with contextlib.suppress(ChildProcessError):
    while True:
        os.wait()
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="a fork changes its root")
@pytest.mark.parametrize("wanted", [True, False])
def test_a_rehearsal_goes_through_a_command_where_it_is_wanted(wanted: bool, tmp_path: Path) -> None:
    path, number = tmp_path / "rehearsed", signal.SIGCONT if wanted else signal.SIGKILL
    done = subprocess.run(
        [sys.executable, "-c", REHEARSAL, path, str(int(number))],
        env={**os.environ, "PYTHONPATH": ""},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert (done.stdout, done.stderr) == (f"{0 if wanted else -signal.SIGKILL}\n", "")
    assert (path.read_text() if path.exists() else "") == ("['-c']" if wanted else "")


# How many processes of the server there are, once there are two, or after ten seconds. The bracket keeps the shell out.
COUNT_OURS = """
for i in $(seq 100); do
    n=$(grep -las '[f]ork_server' /proc/[0-9]*/cmdline | wc -l)
    [ $n -gt 2 ] || break
    sleep 0.1
done
echo $n
"""


@pytest.mark.parametrize("idle", [True, False])
def test_a_clone_keeps_no_process_of_a_rehearsal(idle: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sampleblk_lab.vm.machine._has_idle_processor", lambda: idle)
    vm = VM(driver=False)
    vm.make_template()
    with vm:
        assert vm.restored
        done = vm.run(["sh", "-c", COUNT_OURS], timeout=60)
        # The process that forks, and the fork that is there already for the first command.
        assert (done.stdout, done.stderr) == (b"2\n", b"")
        assert vm.run([sys.executable, "-c", f"print({FORKED})"], timeout=60).stdout == b"True\n"


def test_a_module_that_puts_another_into_its_place_has_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "replaced").mkdir()
    for file in ("replaced/__init__.py", "replaced/inner.py", "outer.py"):
        (tmp_path / file).write_text("import json, sys\nsys.modules[__name__] = json\n" if "init" not in file else "")
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("outer", "replaced.inner"):
        importlib.import_module(name)
    try:
        files = interpreter.of_modules()
    finally:
        for name in ("outer", "replaced", "replaced.inner"):
            del sys.modules[name]
    names = {str(tmp_path / file) for file in ("replaced/__init__.py", "replaced/inner.py", "outer.py")}
    assert names <= files


def test_what_the_guest_has_no_file_of_is_not_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    """An editable install finds the plugin where there is no pytest, and so no file of it in the guest either."""

    asked = []

    class Finder:
        @staticmethod
        def find_spec(name: str, *_: object) -> ModuleSpec | None:
            if not name.startswith("sampleblk_lab.not_there"):
                return None
            asked.append(name)
            return spec_from_file_location(name, "/not/there.py")

    monkeypatch.setattr(sys, "meta_path", [Finder, *sys.meta_path])
    monkeypatch.setattr(fork_server, "_OURS", ("not_there", "not_there_either"))
    with pytest.raises(FileNotFoundError):
        importlib.import_module("sampleblk_lab.not_there")
    asked.clear()
    fork_server.import_all()
    assert asked == ["sampleblk_lab.not_there", "sampleblk_lab.not_there_either"]


GETENV = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

static char *told(const char *function, const char *name)
{
    dprintf(2, "read %s\n", name);
    return ((char *(*)(const char *))dlsym(RTLD_NEXT, function))(name);
}
char *getenv(const char *name) { return told("getenv", name); }
char *secure_getenv(const char *name) { return told("secure_getenv", name); }
"""
IMPORTS = """
import os, sys

def told(function):
    def call(self, name):
        print("read", name, file=sys.stderr)
        return function(self, name)
    return call

kind = type(os.environ)
kind.__getitem__, kind.__contains__ = told(kind.__getitem__), told(kind.__contains__)
from sampleblk_lab.vm.guest import fork_server
fork_server.import_all(sys.argv[1:])
import hashlib
hashlib.sha256(b"")
"""
# Read each time that it matters: by shutil, tempfile, pytest_plugin/internals.py for pytest.
READ_AGAIN = {"COLUMNS", "LINES", "PATH", "PYTEST_DEBUG", "TMPDIR", "TOX_ENV_DIR"}
# A guest completes no command line and rebuilds no editable install.
OF_NO_GUEST = {"_ARGCOMPLETE", "SKBUILD_EDITABLE_SKIP", "_PYTHON_PROJECT_BASE", "__PYVENV_LAUNCHER__"}
# A notebook kernel has no terminal and makes no manual, and who sends its messages is told by nobody.
OF_NO_KERNEL = {"ANDROID_DATA", "IN_SPHINX_RUN", "TERM", "USER", "_PYTHON_SYSCONFIGDATA_NAME"}


@pytest.mark.parametrize("preload", [(), host.PRELOAD], ids=["of all", "of notebooks"])
def test_what_imports_read_of_the_environment_is_what_a_new_interpreter_is_made_for(
    preload: tuple[str, ...], tmp_path: Path
) -> None:
    source, library = tmp_path / "getenv.c", tmp_path / "getenv.so"
    source.write_text(GETENV)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source], check=True)
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS, *preload],
        env={**os.environ, "LD_PRELOAD": str(library)},
        capture_output=True,
        text=True,
        check=True,
    )
    names = {line.partition(" ")[2] for line in done.stderr.splitlines() if line.startswith("read ")}
    assert {"NPY_PROMOTION_STATE", "OPENBLAS_NUM_THREADS", "PYTHONPATH"} <= names
    known = set(read_once.read_at_start(((name, "") for name in names), preloads=bool(preload)))
    unknown = names - known - read_once._HEEDED
    assert unknown <= READ_AGAIN | OF_NO_GUEST | (OF_NO_KERNEL if preload else set())


def test_a_configuration_that_the_template_has_not_makes_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert interpreter.ready(at_once=True) is not None
    monkeypatch.setenv("OPENSSL_CONF", "/nowhere/openssl.cnf")
    assert interpreter.ready(at_once=True) is None
