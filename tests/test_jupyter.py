# SPDX-License-Identifier: MIT
"""Notebook kernels in the VM, the magics, and what carries the bytes between."""

import asyncio
import contextlib
import io
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from importlib.metadata import entry_points
from pathlib import Path

import nbformat
import pytest
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from traitlets.config import Config

from sampleblk_lab.errors import InputError
from sampleblk_lab.jupyter import frames, guest, host, magics
from sampleblk_lab.jupyter.install import install, kernelspec
from sampleblk_lab.jupyter.provisioner import VMProvisioner
from sampleblk_lab.kernels import resolve
from sampleblk_lab.paths import IN_VM, cache_root
from sampleblk_lab.profiling import profile
from sampleblk_lab.vm import VM


@pytest.fixture
def _specs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Jupyter of the test's own, with our kernelspec in it."""
    monkeypatch.setenv("SAMPLEBLK_CACHE", str(cache_root()))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "share/jupyter"))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    install("6.1", prefix=str(tmp_path))


def _notebook(*cells: str) -> nbformat.NotebookNode:
    return nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])


def _texts(cell: nbformat.NotebookNode) -> str:
    return "".join(
        str(output.get("text", "")) + str(output.get("data", {}).get("text/plain", "")) for output in cell.outputs
    )


def test_any_kernel_that_a_vm_takes_can_be_a_notebook_s_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = resolve("6.1").image
    monkeypatch.chdir(image.parent)

    def told(kernel: str) -> tuple[str, str]:
        made = install(kernel, prefix=str(tmp_path))
        provisioner = json.loads((made / "kernel.json").read_text())["metadata"]["kernel_provisioner"]
        return made.name, provisioner["config"]["kernel"]

    assert told("6.12.0+mine") == ("sampleblk-vm-6.12.0-mine", "6.12.0+mine")
    assert told(f"./{image.name}")[1] == str(image)
    names = set()
    for path in ("b-c", "b/c", "B/c"):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).symlink_to(image)
        names.add(told(str(tmp_path / path))[0].lower())
    assert len(names) == 3
    for wrong in ("", "nix", "./nix", "nix.deb"):
        with pytest.raises(InputError):
            install(wrong, prefix=str(tmp_path))


@pytest.mark.usefixtures("_specs")
def test_the_kernelspec_is_found_and_names_the_provisioner() -> None:
    spec = KernelSpecManager().get_kernel_spec("sampleblk-vm-6.1")
    assert Path(spec.resource_dir).stat().st_mode & 0o077 == Path(spec.resource_dir).parent.stat().st_mode & 0o077
    assert spec.display_name == "Python (sampleblk VM, 6.1)"
    assert spec.metadata["kernel_provisioner"]["provisioner_name"] == "sampleblk-vm"
    (entry,) = entry_points(group="jupyter_client.kernel_provisioners", name="sampleblk-vm")
    assert entry.load() is VMProvisioner


def test_what_a_guest_said_outlives_restarts_and_other_notebooks(tmp_path: Path) -> None:
    """QEMU empties the file that it is given, and another VM's panic would be taken for ours."""
    (tmp_path / "runs").mkdir()
    first, other = (VMProvisioner(kernel_id=kernel_id) for kernel_id in ("1" * 36, "2" * 36))

    def console(provisioner: VMProvisioner) -> Path:
        command = provisioner.wrapped(["python"], "/c.json", str(tmp_path))
        return Path(command[command.index("--console") + 1])

    console(first).write_text("panic")
    assert not console(other).exists()
    assert not console(first).exists()
    assert (tmp_path / "runs/console-11111111.before.log").read_text() == "panic"


def test_the_command_is_wrapped(tmp_path: Path) -> None:
    provisioner = VMProvisioner(kernel="6.12", memory="2G", kernel_id="0123456789")
    command = provisioner.wrapped(["python", "-m", "ipykernel"], "/c.json", str(tmp_path))
    assert command == [
        *(sys.executable, "-m", "sampleblk_lab.jupyter.host", "/c.json", "--kernel", "6.12", "--memory", "2G"),
        *(
            "--run-dir",
            f"{tmp_path}/runs",
            "--console",
            f"{tmp_path}/runs/console-01234567.log",
            "--",
            "python",
            "-m",
            "ipykernel",
        ),
    ]
    assert "sampleblk_lab.jupyter" in kernelspec("6.1")["argv"][-1]


@pytest.mark.full
@pytest.mark.usefixtures("_specs", "no_leftovers")
def test_cells_run_in_the_guest(tmp_path: Path) -> None:
    VM(kernel="6.1", preload=host.PRELOAD).make_template()
    notebook = _notebook(
        "import os; print(os.uname().nodename, os.uname().release)",
        "import sampleblk_lab as lab\ndev = lab.Device(capacity='16M')\npath = dev.path",
        "%%sblk_trace run --syscalls\nresult = %sblk_job rw=write bs=4k size=64k filename={path} ioengine=psync",
        "calls = run.syscalls().summary()['calls']['pwrite64']; print(calls, result.summary()['ios'][0])",
        "%%sblk_profile where\nfor _ in range(300_000): pass",
        "print(len(where) > 0)",
        "open(os.environ['SAMPLEBLK_RUN_DIR'] + '/note', 'w').write('from the guest')",
        "print(open('/proc/sys/kernel/hostname').read()); dev.close()",
        # A fork of what has imported it all, and as a kernel that was started anew.
        "import sys; print('fork_server' in open('/proc/self/cmdline').read(), sys.argv[0].endswith('launcher.py'))",
        "import matplotlib.pyplot as plt; print(plt.get_backend(), os.getppid() == int(os.environ['JPY_PARENT_PID']))",
    )
    client = NotebookClient(
        notebook,
        timeout=200,
        startup_timeout=200,
        kernel_name="sampleblk-vm-6.1",
        resources={"metadata": {"path": str(tmp_path)}},
    )
    client.execute()
    assert _texts(notebook.cells[0]).startswith("sampleblk 6.1.")
    shown = notebook.cells[2].outputs[-1]["data"]  # a slow machine shows progress before
    assert "pwrite64" in shown["text/plain"]
    assert "<table" in shown["text/html"]
    assert _texts(notebook.cells[3]).split() == ["16", "16"]
    assert "flame graph" in notebook.cells[4].outputs[-1]["data"]["text/html"]
    assert _texts(notebook.cells[5]).strip() == "True"
    assert _texts(notebook.cells[8]).split() == ["True", "True"]
    assert _texts(notebook.cells[9]).split() == ["module://matplotlib_inline.backend_inline", "True"]
    assert (tmp_path / "runs/note").read_text() == "from the guest"
    assert list((tmp_path / "runs").glob("console-*.log"))


@pytest.mark.full
@pytest.mark.usefixtures("_specs", "no_leftovers")
def test_interrupt_and_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    async def run() -> None:
        manager = AsyncKernelManager(kernel_name="sampleblk-vm-6.1")
        await manager.start_kernel()
        client = manager.client()
        client.start_channels()
        try:
            await client.wait_for_ready(timeout=200)
            asked = client.execute("import time; marker = 1\nprint('sleeping', flush=True)\ntime.sleep(600)")
            while True:
                message = await client.get_iopub_msg(timeout=60)
                if message["msg_type"] == "stream":
                    break
            await manager.interrupt_kernel()
            while (reply := await client.get_shell_msg(timeout=60))["parent_header"].get("msg_id") != asked:
                pass
            assert reply["content"]["ename"] == "KeyboardInterrupt"
            reply = await client.execute("marker", reply=True, timeout=60)
            assert reply["content"]["status"] == "ok"
            await manager.restart_kernel(now=True)
            await client.wait_for_ready(timeout=200)
            reply = await client.execute("marker", reply=True, timeout=60)
            assert reply["content"]["ename"] == "NameError"
        finally:
            client.stop_channels()
            await manager.shutdown_kernel(now=True)

    asyncio.run(run())


@pytest.mark.full
@pytest.mark.usefixtures("_specs", "no_leftovers")
def test_a_panic_ends_the_kernel_and_the_console_says_why(tmp_path: Path) -> None:
    notebook = _notebook("open('/proc/sysrq-trigger', 'w').write('c')\nimport time; time.sleep(60)")
    client = NotebookClient(
        notebook,
        timeout=200,
        startup_timeout=200,
        kernel_name="sampleblk-vm-6.1",
        resources={"metadata": {"path": str(tmp_path)}},
    )
    with pytest.raises(Exception, match="Kernel died") as caught:
        client.execute()
    assert not isinstance(caught.value, CellExecutionError)
    [console] = (tmp_path / "runs").glob("console-*.log")
    assert "sysrq triggered crash" in console.read_text()


# --- without a VM


@pytest.mark.parametrize(
    ("command", "status", "said"),
    [
        (["sh", "-c", "echo no frame; exit 7"], 7, "no frame"),
        (["sh", "-c", "kill -9 $$"], 128 + 9, ""),
        ([sys.executable, "-m", "this"], 0, "Beautiful is better"),
        ([sys.executable, "-m", "no_such_module"], 1, "No module named no_such_module"),
        (["no-such-program"], 1, "no-such-program: No such file or directory"),
    ],
)
def test_a_kernel_s_end_is_told(command: list[str], status: int, said: str, tmp_path: Path) -> None:
    """What it prints is no frame, and its folder goes with it."""
    (tmp_path / "connection").write_text(json.dumps({"key": "x"}))
    with subprocess.Popen(
        [sys.executable, "-m", "sampleblk_lab.jupyter.guest", str(tmp_path / "connection"), *command],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read() == ""
        assert said in process.stderr.read()
    assert process.returncode == status
    assert [path.name for path in tmp_path.iterdir()] == ["connection"]


_STARTS_A_KERNEL_AND_DIES = """
import os, pathlib, subprocess, sys, time
up, *command = sys.argv[1:]
subprocess.Popen(command, env={**os.environ, "JPY_PARENT_PID": str(os.getpid())})
while not pathlib.Path(up).exists():
    time.sleep(0.1)
os._exit(3)
"""


def test_a_kernel_ends_with_a_front_end_that_was_killed(tmp_path: Path) -> None:
    """Nobody else would ever end its VM."""
    connection, up = tmp_path / "connection", tmp_path / "up"
    connection.write_text(json.dumps({"ip": "127.0.0.1", **dict.fromkeys(frames.CHANNELS, 0)}))
    kernel = ["sh", "-c", 'touch "$0"; while kill -0 $PPID 2>/dev/null; do sleep 1; done', str(up)]
    done = subprocess.run(
        [
            *(sys.executable, "-c", _STARTS_A_KERNEL_AND_DIES, str(up)),
            *(sys.executable, "-m", "sampleblk_lab.jupyter.host", str(connection), "--", *kernel),
        ],
        env={**os.environ, IN_VM: "{}", "TMPDIR": str(tmp_path)},  # the guest's side is here, then
        capture_output=True,  # to the end of all that have these pipes
        timeout=60,
        check=False,
    )
    assert done.returncode == 3


_SAYS_AND_ENDS = """
import json, os, socket, sys
listener = socket.socket(socket.AF_UNIX)
listener.bind(json.load(open(sys.argv[1]))["ip"] + "-2")
listener.listen()
listener.accept()[0].sendall(bytes(150_000))
print("ended", file=sys.stderr, flush=True)
os._exit(0)
"""


def test_what_a_kernel_says_last_arrives(tmp_path: Path) -> None:
    """The answer to a request to shut down is such; so is what a cell prints before quit()."""
    connection = tmp_path / "connection"
    connection.write_text(json.dumps({"key": "x"}))
    kernel = [sys.executable, "-c", _SAYS_AND_ENDS, str(connection)]
    with subprocess.Popen(
        [sys.executable, "-m", "sampleblk_lab.jupyter.guest", str(connection), *kernel],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        wire = frames.Wire(process.stdout, process.stdin)
        wire.send(frames.Frame(frames.OPEN, 5, 1))
        assert process.stderr.readline() == b"ended\n"
        time.sleep(0.05)  # the guest has seen it; the pipe is full
        came = list(iter(wire.receive, None))
    assert sum(len(frame.payload) for frame in came) == 150_000
    assert came[-1] == frames.Frame(frames.CLOSE, 5)


def test_the_end_of_a_connection_is_waited_for() -> None:
    """The process ended between taking note of it and telling it."""
    told: list[bytes] = []

    class SlowWire(frames.Wire):
        def send(self, frame: frames.Frame) -> None:
            time.sleep(0.2)
            told.append(frame.kind)

    connections = frames.Connections(SlowWire(io.BytesIO(), io.BytesIO()))
    ours, theirs = socket.socketpair()
    connections.add(5, ours)
    theirs.sendall(b"last words")
    theirs.close()
    connections.drain(5)
    assert told == [frames.DATA, frames.CLOSE]


Wires = tuple[frames.Wire, frames.Wire, Callable[[], None]]


@pytest.fixture
def pipes() -> Iterator[Wires]:
    """Two ends of a wire, and what ends it."""
    left, right = socket.socketpair()
    files = [left.makefile("rb"), left.makefile("wb"), right.makefile("rb"), right.makefile("wb")]

    def finish() -> None:
        for end in (left, right):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    yield frames.Wire(files[0], files[1]), frames.Wire(files[2], files[3]), finish
    # First the sockets: closing a file that a thread reads from waits for the thread.
    finish()
    for file in files:
        file.close()
    left.close()
    right.close()


def test_frames_come_out_as_they_went_in(pipes: Wires) -> None:
    left, right, _ = pipes
    sent = [frames.Frame(frames.OPEN, 1, 3), frames.Frame(frames.DATA, 1, 0, bytes(range(256))), frames.Frame(b"c", 1)]
    for frame in sent:
        left.send(frame)
    assert [right.receive() for _ in sent] == sent


@pytest.mark.parametrize("cut", [1, 5, 12])
def test_a_wire_that_ends_within_a_frame_says_so(cut: int) -> None:
    whole = io.BytesIO()
    frames.Wire(io.BytesIO(), whole).send(frames.Frame(frames.DATA, 1, 0, b"12345678"))
    with pytest.raises(ConnectionError, match="ends"):
        frames.Wire(io.BytesIO(whole.getvalue()[:cut]), io.BytesIO()).receive()
    assert frames.Wire(io.BytesIO(), io.BytesIO()).receive() is None


def test_connections_carry_bytes_both_ways_and_end_together(pipes: Wires) -> None:
    left, right, finish = pipes
    outer, near = socket.socketpair()
    far, inner = socket.socketpair()
    ends = frames.Connections(left), frames.Connections(right)
    threads = [
        threading.Thread(target=frames.serve, args=(wire, lambda _: None, connections))
        for wire, connections in ((left, ends[0]), (right, ends[1]))
    ]
    for thread in threads:
        thread.start()
    ends[0].add(7, near)
    ends[1].add(7, far)
    outer.sendall(b"ping" * 50_000)
    inner.settimeout(10)
    outer.settimeout(10)
    came = b""
    while len(came) < 200_000:
        came += inner.recv(65536)
    assert came == b"ping" * 50_000
    inner.sendall(b"pong")
    assert outer.recv(4, socket.MSG_WAITALL) == b"pong"
    inner.close()
    assert outer.recv(1) == b""
    outer.close()
    for end in ends:
        end.close()
    finish()
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()


def test_a_front_end_that_does_not_read_holds_up_no_other(pipes: Wires) -> None:
    left, right, finish = pipes
    ends = frames.Connections(left), frames.Connections(right)
    for wire, connections in ((left, ends[0]), (right, ends[1])):
        threading.Thread(target=frames.serve, args=(wire, lambda _: None, connections), daemon=True).start()
    joined: tuple[list[socket.socket], ...] = [], []
    for number, sockets in enumerate(joined):
        for end in ends:
            near, far = socket.socketpair()
            far.settimeout(5)
            end.add(number, near)
            sockets.append(far)
    (idle, kernel), (busy, other) = joined
    said = bytes(range(256)) * 80_000
    saying = threading.Thread(target=kernel.sendall, args=(said,))
    saying.start()
    saying.join(0.1)
    assert saying.is_alive()  # what nobody reads is not kept
    other.sendall(b"pong")
    assert busy.recv(4, socket.MSG_WAITALL) == b"pong"
    came = bytearray()
    while len(came) < len(said):
        came += idle.recv(1 << 20)
    assert came == said
    saying.join(5)
    kernel.sendall(b"the end")
    kernel.close()
    assert (idle.recv(7, socket.MSG_WAITALL), idle.recv(1)) == (b"the end", b"")
    for end in ends:
        end.close()
    assert busy.recv(1) == b""
    finish()
    for far in (idle, busy, other):
        far.close()


def test_an_answer_that_comes_at_once_finds_its_connection() -> None:
    near, outer = socket.socketpair()

    class Hasty:
        """A wire whose other side answers before the one that opened a connection has gone on."""

        def send(self, frame: frames.Frame) -> None:
            if frame.kind == frames.OPEN:
                connections.deliver(frames.Frame(frames.DATA, frame.connection, 0, b"greeting"))

    connections = frames.Connections(Hasty())  # type: ignore[arg-type]
    connections.add(7, near, 2)
    outer.settimeout(10)
    assert outer.recv(8) == b"greeting"
    connections.close()
    outer.close()


@pytest.mark.parametrize("line", ["rw", "=write", "rw=write 4k"])
def test_a_job_line_that_cannot_be_is_named(line: str) -> None:
    with pytest.raises(UsageError, match="is not key=value"):
        magics.job_keys(line)


def test_a_job_line_s_open_quote_is_named() -> None:
    with pytest.raises(UsageError, match="No closing quotation"):
        magics.job_keys("rw=write filename='/a b")


class _Recorded:
    """What records, or samples, or runs a script, for a magic that is to be looked at."""

    def __init__(self, **asked: object) -> None:
        self.asked = asked

    def __enter__(self) -> None:
        self.run = self.profile = self.output = self

    def __exit__(self, *_: object) -> None:
        pass

    def __getattr__(self, view: str) -> Callable[..., "_Recorded"]:
        return lambda *_: self


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> InteractiveShell:
    """A shell whose magics record nothing."""
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    # It would write its history as pytest ends, when the folder has gone.
    shell = InteractiveShell(config=Config(HistoryManager={"enabled": False}))
    shell.register_magics(magics.SampleblkMagics)
    monkeypatch.setattr(magics.lab, "record", _Recorded)
    monkeypatch.setattr(magics.lab, "profile", _Recorded)
    monkeypatch.setattr(magics.lab, "bpf", lambda script, **asked: _Recorded(script=script, **asked))
    monkeypatch.setattr(magics, "_show", str)
    return shell


@pytest.mark.parametrize("magic", ["sblk_trace kept", "sblk_profile kept", "bpftrace kept --run 1/0"])
def test_what_was_recorded_of_a_cell_that_raises_is_kept(shell: InteractiveShell, magic: str) -> None:
    assert isinstance(shell.run_cell(f"%%{magic}\n1 / 0").error_in_exec, ZeroDivisionError)
    assert isinstance(shell.user_ns["kept"], _Recorded)


@pytest.mark.parametrize("magic", ["sblk_trace", "sblk_profile", "bpftrace --run 'await f()'"])
def test_a_cell_that_awaits_is_refused_before_it_is_recorded(shell: InteractiveShell, magic: str) -> None:
    error = shell.run_cell(f"%%{magic}\nawait f()").error_in_exec
    assert isinstance(error, UsageError)
    assert "'await' outside of a function" in str(error)
    assert not {"trace", "profile", "found"} & shell.user_ns.keys()
    assert shell.run_cell("%%sblk_trace\nasync def f():\n    await g()").success


@pytest.mark.parametrize("cell", ["1 / 0", "x = )"])
def test_the_error_of_a_cell_is_shown_once(
    shell: InteractiveShell, cell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    shell.run_line_magic("colors", "nocolor")
    for code in (f"%%sblk_trace\n{cell}", cell):
        assert not shell.run_cell(code).success
        assert len(re.findall("^(?:ZeroDivision|Syntax)Error: ", capsys.readouterr().out, re.M)) == 1


def test_what_another_cell_has_found_is_not_what_one_did_that_could_not_begin(
    shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert shell.run_cell("%%sblk_profile kept\npass").success
    assert "kept" in shell.user_ns

    def refused(*_: object, **__: object) -> None:
        raise PermissionError("perf_event_paranoid")

    monkeypatch.setattr("sampleblk_lab.profiling.profiler.core.Sampler", refused)
    monkeypatch.setattr(magics.lab, "profile", profile)
    assert isinstance(shell.run_cell("%%sblk_profile kept\npass").error_in_exec, PermissionError)
    assert "kept" not in shell.user_ns
    shell.user_ns["kept"] = "of another cell"
    assert isinstance(shell.run_cell("%%sblk_profile kept --hz 0\npass").error_in_exec, InputError)
    assert "kept" not in shell.user_ns


@pytest.mark.parametrize("quote", ["'", '"'])
def test_globs_may_be_quoted(shell: InteractiveShell, quote: str) -> None:
    line = f"--events {quote}block:*{quote} --functions {quote}ext4_*{quote} --functions vfs_*"
    assert shell.run_cell(f"%%sblk_trace run {line}\npass").success
    assert shell.user_ns["run"].asked["events"] == ["block:*"]
    assert shell.user_ns["run"].asked["functions"] == ["ext4_*", "vfs_*"]


@pytest.mark.parametrize("statement", ["""'x = "a"'""", "\"x = 'a'\"", "x='a'"])
def test_a_statement_keeps_its_own_quotes(shell: InteractiveShell, statement: str) -> None:
    assert shell.run_cell(f"%%bpftrace --run {statement}\nBEGIN {{ }}").success
    assert shell.user_ns["x"] == "a"


@pytest.mark.parametrize(
    ("magic", "line", "said"),
    [
        ("sblk_trace", "a-b", "'a-b' is not a name of a variable"),
        ("sblk_trace", "--graf x", "unrecognized arguments: --graf"),
        ("sblk_profile", "--hz fast", "invalid int value: 'fast'"),
        ("bpftrace", "", "either --run 'a statement', or --seconds how long"),
        ("bpftrace", "x --run f() --seconds 1", "either --run 'a statement', or --seconds how long"),
        ("bpftrace", "a-b --seconds 1", "'a-b' is not a name of a variable"),
        ("bpftrace", "--seconds nan", "--seconds=nan"),
        ("bpftrace", "--seconds -1", "--seconds=-1"),
    ],
)
def test_a_magic_s_options_are_checked(magic: str, line: str, said: str) -> None:
    with pytest.raises(UsageError, match=re.escape(said)):
        getattr(magics.SampleblkMagics(), magic)(line, "pass")


@pytest.mark.parametrize(
    ("magic", "options"),
    [
        (
            "sblk_trace",
            ["[name]", "--syscalls", "--graph GLOB", "--functions GLOB", "--events EVENT", "--block", "--all"],
        ),
        ("sblk_profile", ["[name]", "--hz HZ", "--offcpu", "--all"]),
        ("bpftrace", ["[name]", "--run STATEMENT", "--seconds SECONDS", "--unsafe"]),
    ],
)
def test_a_magic_s_help_has_its_options(magic: str, options: list[str]) -> None:
    """What `%%sblk_trace?` shows, which IPython makes of the arguments."""
    text = getattr(magics.SampleblkMagics, magic).__doc__
    assert f"%{magic} " in text
    for option in options:
        assert option in text, text


def test_job_lines_may_have_dashes() -> None:
    assert magics.job_keys("--rw=write filename='/a b/c'") == {"rw": "write", "filename": "/a b/c"}


def test_what_the_guest_imports_is_the_standard_library() -> None:
    code = (
        "import sys; before = set(sys.modules); import sampleblk_lab.jupyter.guest; "
        "print(*(m for m in set(sys.modules) - before if m.split('.')[0] not in sys.stdlib_module_names))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) <= {
        *("sampleblk_lab", "sampleblk_lab.jupyter", "sampleblk_lab.jupyter.frames", "sampleblk_lab.jupyter.guest")
    }
    assert json.dumps(guest.CHANNELS)
    assert host.CHANNELS is guest.CHANNELS
