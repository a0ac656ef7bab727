# SPDX-License-Identifier: MIT
"""``sampleblk-python`` behaves as ``python`` does, and says so when it cannot."""

import os
import pty
import select
import signal
import subprocess
import time
from pathlib import Path

import pytest

from sampleblk_lab.vm import BootError, CommandError, DeadlineError, GuestPanicError
from support import RunsInVM, script

PANIC = "open('/proc/sysrq-trigger', 'w').write('c')"


def test_streams_are_binary_clean(sampleblk_python: RunsInVM) -> None:
    data = os.urandom(8 << 20)
    done = sampleblk_python("-c", "import sys; sys.stdout.buffer.write(sys.stdin.buffer.read())", input=data)
    assert done.returncode == 0, done.stderr
    assert done.stdout == data


def test_exit_status_stderr_environment_folder_and_umask(sampleblk_python: RunsInVM, tmp_path: Path) -> None:
    code = (
        "import os, sys\n"
        "print(os.environ['MARK'], os.getcwd(), os.uname().nodename, oct(os.umask(0)), file=sys.stderr)\n"
        "sys.exit(7)"
    )
    done = sampleblk_python("-c", code, cwd=tmp_path, env={**os.environ, "MARK": "ä b=c"}, umask=0o027)
    assert (done.returncode, done.stdout) == (7, b"")
    assert done.stderr.decode() == f"ä b=c {tmp_path} sampleblk 0o27\n"


def test_runs_as_root_with_the_driver_at_hand(sampleblk_python: RunsInVM) -> None:
    code = (
        "import os, subprocess\n"
        "subprocess.run(['modprobe', 'sampleblk'], check=True)\n"
        "print(os.getuid(), os.path.exists('/dev/sampleblk1'))\n"
    )
    assert sampleblk_python("-c", code).stdout == b"0 True\n"


@pytest.mark.parametrize(("kernel", "cpus"), [("6.1", "1"), ("6.12", "2")])
def test_boots_the_kernel_that_was_asked_for(sampleblk_python: RunsInVM, kernel: str, cpus: str) -> None:
    code = "import os; print(os.uname().release, os.cpu_count())"
    release, found = sampleblk_python("--kernel", kernel, f"--cpus={cpus}", "-c", code).stdout.decode().split()
    assert release.startswith(f"{kernel}.")
    assert found == cpus


def test_the_host_s_files_are_safe(sampleblk_python: RunsInVM, tmp_path: Path) -> None:
    outside, run_dir = tmp_path / "outside", tmp_path / "run"
    outside.write_text("before")
    code = (
        "import os, pathlib, sys\n"
        "pathlib.Path(sys.argv[1]).write_text('changed')\n"  # lands in the overlay
        "assert pathlib.Path(sys.argv[1]).read_text() == 'changed'\n"
        "pathlib.Path(os.environ['SAMPLEBLK_RUN_DIR'], 'result').write_bytes(bytes(range(256)) * 5000)\n"
        "try: os.system('mount -t 9p -o remount,rw /host; mount -t 9p -o trans=virtio sampleblk-root /mnt')\n"
        "finally: print(os.system('echo changed > /mnt' + sys.argv[1]) != 0)\n"
    )
    done = sampleblk_python("--run-dir", str(run_dir), "-c", code, str(outside))
    assert done.stdout == b"True\n", done.stderr
    assert outside.read_text() == "before"
    assert (run_dir / "result").read_bytes() == bytes(range(256)) * 5000


def test_clock_and_entropy_are_fresh_in_each_restored_guest(sampleblk_python: RunsInVM) -> None:
    seen = []
    for _ in range(2):
        before = time.time()
        done = sampleblk_python("-c", "import os, time; print(time.time(), os.urandom(16).hex())")
        clock, entropy = done.stdout.decode().split()
        assert before - 1 < float(clock) < time.time() + 1
        seen.append(entropy)
    assert seen[0] != seen[1]


def _started(*args: str, code: str) -> subprocess.Popen[bytes]:
    """A guest that has come to the `ready()` in `code`, and goes on."""
    prelude = "import time\ndef ready(): print('ready', flush=True)\n"
    process = subprocess.Popen(
        [script("sampleblk-python"), *args, "-c", prelude + code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    return process


@pytest.mark.usefixtures("no_leftovers")
def test_signals_reach_the_command() -> None:
    # Sleeps are short: a signal that comes between Python's last look for one and its system call waits for their end.
    code = (
        "try:\n  ready()\n  for _ in range(600): time.sleep(0.1)\n"
        "except KeyboardInterrupt: print('interrupted'); raise SystemExit(3)"
    )
    with _started(code=code) as process:
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=30)[0] == b"interrupted\n"
        assert process.returncode == 3
    with _started(code="ready(); time.sleep(60)") as process:
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == -signal.SIGTERM


def test_a_signal_that_ends_the_command_ends_us_alike(sampleblk_python: RunsInVM) -> None:
    done = sampleblk_python("-c", "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
    assert done.returncode == -signal.SIGSEGV


def test_a_reader_that_left_is_a_broken_pipe() -> None:
    with _started(code="ready()\nwhile True: print('y')") as process:
        assert process.stdout is not None
        process.stdout.close()
        # Python's own answer to BrokenPipeError; the other one where its last flush meets it again.
        assert process.wait(timeout=30) in (1, 120)


@pytest.mark.usefixtures("no_leftovers")
def test_qemu_does_not_outlive_a_killed_parent() -> None:
    scratch_before = set(Path("/tmp").glob("sampleblk-vm-*"))
    with _started(code="ready(); time.sleep(600)") as process:
        keepers = subprocess.run(
            ["pgrep", "-P", str(process.pid)], capture_output=True, text=True, check=True
        ).stdout.split()
        qemus = subprocess.run(["pgrep", "-P", *keepers], capture_output=True, text=True, check=True).stdout.split()
        assert len(qemus) == 1
        process.kill()
        process.wait()
        assert _gone(qemus[0])
    deadline = time.monotonic() + 20
    while (left := set(Path("/tmp").glob("sampleblk-vm-*")) - scratch_before) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not left


def _gone(pid: str) -> bool:
    deadline = time.monotonic() + 20
    while Path("/proc", pid).exists():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def test_qemu_does_not_outlive_a_killed_keeper() -> None:
    with _started(code="ready(); time.sleep(600)") as process:
        keeper = subprocess.run(
            ["pgrep", "-P", str(process.pid)], capture_output=True, text=True, check=True
        ).stdout.split()
        qemus = subprocess.run(["pgrep", "-P", *keeper], capture_output=True, text=True, check=True).stdout.split()
        os.kill(int(keeper[0]), signal.SIGKILL)
        assert _gone(qemus[0])
        process.kill()


@pytest.mark.usefixtures("no_leftovers")
def test_each_failure_has_its_exit_status_and_the_console(sampleblk_python: RunsInVM) -> None:
    panic = sampleblk_python("-c", PANIC)
    assert panic.returncode == GuestPanicError.exit_status
    assert b"Kernel panic - not syncing: sysrq triggered crash" in panic.stderr

    late = sampleblk_python("--timeout", "3", "-c", "import time; time.sleep(60)")
    assert late.returncode == DeadlineError.exit_status
    assert b"deadline of 3.0 s" in late.stderr
    assert b"sysrq: Show Blocked State" in late.stderr

    unbootable = sampleblk_python(
        "--memory", "128M", "--kernel", "6.1", "--cold", "-c", "pass", env={**os.environ, "SAMPLEBLK_QEMU": "/bin/true"}
    )
    assert unbootable.returncode == BootError.exit_status

    missing = subprocess.run(
        [script("sampleblk-lab"), "vm", "run", "--", "no-such-command"], capture_output=True, check=False
    )
    assert missing.returncode == CommandError("", 2).exit_status == 127
    assert b"no-such-command" in missing.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--kernel", "9.9.9", "-c", "pass"], "9.9.9"),
        (["--kernel", "./nowhere", "-c", "pass"], "./nowhere"),
        (["--kernel", "sixpointone", "-c", "pass"], "neither a release, a path nor a suite"),
        (["--cpus", "none", "-c", "pass"], "--cpus 'none'"),
        (["--memory", "lots", "-c", "pass"], "--memory 'lots'"),
        (["--memory", "1M", "-c", "pass"], "memory_mib=1 (expected a whole number from 128 "),
        (["--memory", "512", "-c", "pass"], "--memory '512' is less than 1 MiB (expected a size with its unit"),
        (["--timeout", "-4", "-c", "pass"], "--timeout '-4'"),
        (["--accel", "hvf", "-c", "pass"], "--accel 'hvf'"),
    ],
)
def test_bad_options_are_named(sampleblk_python: RunsInVM, arguments: list[str], said: str) -> None:
    done = sampleblk_python(*arguments)
    assert done.returncode == 125
    assert said in done.stderr.decode()


def test_a_terminal_is_a_terminal() -> None:
    pid, master = pty.fork()
    if pid == 0:
        # The other one of Python 3.13.0 forgets the status of exit() after Ctrl-C, without a VM, too.
        environment = {**os.environ, "PYTHON_BASIC_REPL": "1"}
        os.execve(script("sampleblk-python"), ["sampleblk-python", "-q"], environment)
    output = b""

    def wait_for(what: bytes) -> None:
        nonlocal output
        deadline = time.monotonic() + 60
        while what not in output:
            assert time.monotonic() < deadline, output
            if select.select([master], [], [], 1)[0]:
                output += os.read(master, 65536)

    try:
        wait_for(b">>> ")
        output = b""
        os.write(master, b"import os; print(6 * 7, os.isatty(0), os.get_terminal_size() is not None)\n")
        wait_for(b"42 True True")
        os.write(master, b"import time; time.sleep(100)\n")
        time.sleep(1)
        output = b""
        os.write(master, b"\x03")
        wait_for(b"KeyboardInterrupt")
        os.write(master, b"exit(5)\n")
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 5
    finally:
        os.close(master)
