# SPDX-License-Identifier: MIT
"""The VM as a library: several commands, templates, and what becomes of a broken one."""

import contextlib
import hashlib
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from sampleblk_lab import kernels
from sampleblk_lab._native import core
from sampleblk_lab.errors import InputError
from sampleblk_lab.vm import (
    VM,
    BootError,
    CommandError,
    DeadlineError,
    GuestLostError,
    GuestPanicError,
    VMError,
    machine,
    outside,
    registers,
    template,
)
from sampleblk_lab.vm.calls import call
from sampleblk_lab.vm.console import Console
from sampleblk_lab.vm.contents import initramfs, interpreter
from sampleblk_lab.vm.errors import BootTimeoutError, WrongClockError
from sampleblk_lab.vm.transfer import Transfer


@pytest.mark.usefixtures("no_leftovers")
def test_runs_one_command_after_the_other() -> None:
    with VM(driver=False) as vm:
        assert vm.run(["/bin/echo", "-n", "one"]).stdout == b"one"
        done = vm.run(["sh", "-c", "cat; echo two >&2; exit 3"], stdin=b"in")
        assert (done.returncode, done.stdout, done.stderr) == (3, b"in", b"two\n")
        before = os.umask(0o027)
        try:
            assert vm.run(["sh", "-c", "umask"]).stdout == b"0027\n"
        finally:
            os.umask(before)
        with pytest.raises(CommandError, match="No such file"):
            vm.run(["/nowhere"])
        with pytest.raises(CommandError, match="chdir to /no/such/folder"):
            vm.run(["true"], cwd="/no/such/folder")
        with pytest.raises(CommandError, match=r"/dev/shm/here: No such file .* guest, which has a /dev of its own"):
            vm.run(["true"], cwd="/dev/shm/here")
        # A command that leaves a child behind with its pipes open has ended all the same.
        assert vm.run(["sh", "-c", "sleep 1000 & echo done"]).stdout == b"done\n"
        assert vm.run(["true"]).returncode == 0
        with pytest.raises(VMError, match="runs already"):
            vm.start()
        for timeout in (float("nan"), float("inf"), -1, True):
            with pytest.raises(InputError, match="seconds, 0 or more, or None"):
                vm.run(["true"], timeout=timeout)
        assert vm.run(["echo", "-n", "late"], timeout=1e300).stdout == b"late"
        _check_cut_short(vm)
    vm.close()  # a second close is nothing
    with pytest.raises(VMError, match="not running"):
        vm.run(["true"])
    with vm:  # nor is the first one the last
        assert vm.console.path.is_relative_to(vm._scratch)
    assert not vm._scratch.exists()


def _check_cut_short(vm: VM) -> None:
    """A command of which an exception here makes an end leaves nothing that answers the next one."""
    with Path("/dev/full").open("wb") as full:
        with pytest.raises(OSError, match="No space left"):
            vm.run(["echo", "first"], stdout=full.fileno())
        done = vm.run(["sh", "-c", "cat; exit 3"], stdin=b"second")
        assert (done.returncode, done.stdout) == (3, b"second")
    for command in ("while :; do echo first; sleep 0.1; done", "trap '' INT; while :; do echo first; sleep 0.1; done"):
        interrupt = threading.Timer(1, signal.raise_signal, [signal.SIGINT])
        interrupt.start()
        with pytest.raises(KeyboardInterrupt):
            vm.run(["sh", "-c", command], stdin=b"x" * (2 << 20))
        interrupt.join()
        done = vm.run(["sh", "-c", "cat; pgrep -cf 'sleep 0[.]1'"], stdin=b"next ")
        assert (done.stdout, done.stderr) == (b"next 0\n", b"")
    _check_its_own_end(vm)


def _check_its_own_end(vm: VM) -> None:
    """A command that has time for its end says what it has to say, and its status; it may not take more."""
    ends = "trap 'echo last; exit 7' INT; echo first; while :; do sleep 0.1; done"
    interrupt = threading.Timer(1, signal.raise_signal, [signal.SIGINT])
    interrupt.start()
    done = vm.run(["sh", "-c", ends], grace_s=60)
    assert (done.returncode, done.stdout) == (7, b"first\nlast\n")
    goes_on = ["sh", "-c", "trap '' INT; while :; do echo first; sleep 0.1; done"]
    for grace_s, presses in ((60.0, (1.0, 2.0)), (1.0, (1.0,)), (None, (1.0, 1.5))):
        for after in presses:
            threading.Timer(after, signal.raise_signal, [signal.SIGINT]).start()
        with pytest.raises(KeyboardInterrupt):
            vm.run(goes_on, grace_s=grace_s)
        done = vm.run(["sh", "-c", "cat; pgrep -cf 'sleep 0[.]1'"], stdin=b"next ")
        assert (done.stdout, done.stderr) == (b"next 0\n", b"")
    # Somebody else's signal is somebody else's, such as an event loop's.
    read, write = socket.socketpair()
    with read, write, contextlib.ExitStack() as stack:
        write.setblocking(False)
        stack.callback(signal.set_wakeup_fd, signal.set_wakeup_fd(write.fileno()))
        stack.callback(signal.signal, signal.SIGUSR1, signal.signal(signal.SIGUSR1, lambda *_: None))
        threading.Timer(0.5, signal.raise_signal, [signal.SIGUSR1]).start()
        vm.run(["sleep", "1"])
        assert read.recv(9) == bytes([signal.SIGUSR1])
    end = time.monotonic() + 60

    def press() -> None:
        while "it has begun" not in vm.console.text(0) and time.monotonic() < end:
            time.sleep(0.1)
        signal.raise_signal(signal.SIGINT)

    threading.Thread(target=press).start()
    assert call(vm, _interrupted, (), {}, grace_s=60) == "interrupted"
    threading.Timer(2, signal.raise_signal, [signal.SIGINT]).start()
    with pytest.raises(KeyboardInterrupt):  # as one that its Python's start does not survive
        call(vm, _ended, (), {}, grace_s=60)
    with pytest.raises(InputError, match="grace_s=-1"):
        vm.run(["true"], grace_s=-1)


def _ended() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    time.sleep(300)


def _interrupted() -> str:
    try:
        Path("/dev/kmsg").write_text("<3>it has begun\n")
        time.sleep(300)
    except KeyboardInterrupt:
        return "interrupted"
    return "slept"


def test_what_would_be_another_command_in_the_guest_is_refused() -> None:
    for argv, env, cwd, named in (
        ("uname", {}, None, "the command 'uname' is one text"),
        (["rm", "a\0b"], {}, None, "null byte"),
        (["true"], {"A": "b\0c"}, None, "null byte"),
        (["true"], {"A=B": "c"}, None, "a variable 'A=B'"),
        (["true"], {}, "/tmp\0x", "null byte"),
    ):
        with pytest.raises(InputError, match=named):
            machine._command_of(argv, env, cwd)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("keywords", "named"),
    [
        ({"cpus": True}, "cpus=True"),
        ({"cpus": 1.5}, "cpus=1.5"),
        ({"cpus": 256}, "1 to 255"),
        ({"memory_mib": float("nan")}, "memory_mib=nan"),
        ({"memory_mib": 64}, "from 128"),
        ({"accel": "xen"}, "accel='xen' .expected 'kvm' or 'tcg'"),
        ({"resident": "/etc"}, "resident='/etc' .expected a list of folders"),
        ({"preload": "numpy"}, "preload='numpy' .expected names of modules"),
        ({"preload": ["numpy", "a-b"]}, "preload='a-b' .expected names of modules"),
        ({"preload": [""]}, "preload='' .expected names of modules"),
        ({"console": "/no-such-folder/console"}, "console='/no-such-folder/console' .expected a file in a folder"),
        ({"console": "/tmp"}, "console='/tmp' .expected a file"),
    ],
)
def test_a_machine_that_there_is_none_of_is_refused(keywords: dict[str, object], named: str) -> None:
    with pytest.raises(InputError, match=named):
        VM(**keywords)  # type: ignore[arg-type]


@pytest.mark.parametrize("aborts", [1, 2])
def test_a_boot_that_qemu_aborts_is_tried_once_more(
    aborts: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    vm = VM(driver=False, memory_mib=512, cpus=1, warm=False)
    program = tmp_path / "qemu"
    program.write_text(
        f"#!/bin/sh\necho >> {tmp_path}/starts\n"
        f'[ $(wc -l < {tmp_path}/starts) -gt {aborts} ] && exec {vm.qemu.program} "$@"\n'
        'echo "$0: system/physmem.c:2678: iotlb_to_section: Assertion \\`index < number\' failed." >&2\nkill -ABRT $$\n'
    )
    program.chmod(0o755)
    vm.qemu = replace(vm.qemu, program=program)
    with contextlib.closing(vm):
        if aborts == 1:
            vm.start()
            assert vm.run(["true"]).returncode == 0
        else:
            with pytest.raises(BootError, match=r"QEMU ended: .*iotlb_to_section: Assertion"):
                vm.start()
    assert (tmp_path / "starts").read_text() == "\n\n"
    assert "failed.; starting it once more" in capsys.readouterr().err


def test_a_closed_stdin_is_an_end_of_file() -> None:
    with VM(driver=False) as vm:
        assert vm.run(["wc", "-c"], stdin=b"x" * 1_000_000).stdout.split() == [b"1000000"]
        assert vm.run(["wc", "-c"], stdin=b"").stdout.split() == [b"0"]


def test_a_command_that_does_not_read_is_no_deadlock() -> None:
    with VM(driver=False) as vm:
        assert vm.run(["true"], stdin=b"x" * (4 << 20)).returncode == 0
        assert vm.run(["cat"], stdin=b"after").stdout == b"after"
        # Nor is one that answers by the socket that it is asked by, as programs of inetd do.
        ours, theirs = socket.socketpair()
        with ours, theirs:
            ours.settimeout(60)
            answers: list[bytes] = []

            def ask() -> None:
                for question in (b"one\n", b"two\n"):
                    ours.sendall(question)
                    answers.append(ours.recv(100))
                ours.shutdown(socket.SHUT_WR)

            asking = threading.Thread(target=ask)
            asking.start()
            assert vm.run(["cat"], stdin=theirs.fileno(), stdout=theirs.fileno(), timeout=90).returncode == 0
            asking.join()
            assert answers == [b"one\n", b"two\n"]


def test_an_emulated_kernel_sums_by_tables() -> None:
    with VM(kernel="6.1", driver=False) as vm:
        if vm.accel != "tcg":
            pytest.skip("the machine has the instruction")
        vm.run(["modprobe", "crypto-crc32c"])
        known = vm.run(["cat", "/proc/crypto"]).stdout.decode().split("\n\n")
    drivers = [re.search(r"driver +: (.*)", one)[1] for one in known if re.search(r"name +: crc32c$", one, re.M)]  # type: ignore[index]
    assert drivers == ["crc32c-generic"]


# --- templates

# Too little for a Python: a template is made in a third of the time.
SMALL_MIB = 512


@pytest.fixture
def templates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the templates, of which there are none."""
    monkeypatch.setattr(template, "cache_root", lambda: tmp_path)
    interpreter.ready(at_once=True)  # all that come have it
    return tmp_path / "templates"


def _only(templates: Path) -> Path:
    [folder] = (path for path in templates.iterdir() if path.is_dir())
    return folder


def _digest(folder: Path) -> str:
    return hashlib.sha256((folder / "ram").read_bytes()).hexdigest()


@pytest.mark.usefixtures("no_leftovers")
def test_clones_share_a_template_that_none_of_them_changes(templates: Path) -> None:
    templates.mkdir()
    with VM(driver=False, memory_mib=SMALL_MIB) as first, VM(driver=False, memory_mib=SMALL_MIB) as second:
        assert not first.restored
        assert second.restored
        folder = _only(templates)
        made = _digest(folder)
        assert {
            path.name: path.stat().st_mode & 0o777 for path in folder.iterdir() if path.name != "template.json"
        } == {
            "ram": 0o400,
            "state": 0o400,
        }
        boots = []
        for vm, text in ((first, b"first"), (second, b"second")):
            assert vm.run(["sh", "-c", "cat > /tmp/mine; sync"], stdin=text * 100_000).returncode == 0
        for vm, text in ((first, b"first"), (second, b"second")):
            assert vm.run(["cat", "/tmp/mine"]).stdout == text * 100_000
            boots.append(vm.run(["head", "-c16", "/dev/urandom"]).stdout)
        assert boots[0] != boots[1]
    assert _digest(folder) == made


@pytest.mark.parametrize("how", ["truncated", "wrong"])
@pytest.mark.usefixtures("no_leftovers")
def test_a_template_that_is_damaged_is_made_again(templates: Path, how: str) -> None:
    with VM(driver=False, memory_mib=SMALL_MIB):
        pass
    folder = _only(templates)
    if how == "truncated":
        (folder / "ram").chmod(0o600)
        os.truncate(folder / "ram", 4096)
    else:
        (folder / "state").chmod(0o600)
        (folder / "state").write_bytes(b"not a saved machine" * 1000)
        (folder / "template.json").unlink()
        template.Template(folder, SMALL_MIB, copy_on_write=True).seal()  # so that only QEMU can tell
    unfinished = folder.with_name(f".{folder.name}.killed__")
    unfinished.mkdir()
    with VM(driver=False, memory_mib=SMALL_MIB) as vm:
        assert not vm.restored
        assert vm.run(["true"]).returncode == 0
    assert not unfinished.exists()
    with VM(driver=False, memory_mib=SMALL_MIB) as vm:
        assert vm.restored
        assert vm.run(["true"]).returncode == 0


@pytest.mark.usefixtures("no_leftovers")
def test_an_older_qemu_reads_its_memory_from_a_stream(templates: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template, "_COPY_ON_WRITE", (1000,))
    for restored in (False, True):
        with VM(driver=False, memory_mib=SMALL_MIB) as vm:
            assert vm.restored == restored
            assert vm.run(["echo", "up"]).stdout == b"up\n"
    assert {path.name for path in _only(templates).iterdir()} == {"state", "template.json"}


@pytest.mark.usefixtures("no_leftovers", "templates")
def test_a_python_that_does_not_start_is_said_and_commands_start_their_own(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(interpreter.Interpreter, "command", [sys.executable, "-c", "raise SystemExit(3)"])
    with VM(driver=False) as vm:
        assert "VMs have no Python ready, so each command starts its own" in capsys.readouterr().err
        assert vm.run([sys.executable, "-c", "print(1)"]).stdout == b"1\n"


READ_OF_A_DEVICE_THAT_HANGS = """
import os, sampleblk_lab as lab
device = lab.Device(capacity="16M")
device.set_faults([lab.Fault(action="hang", ops="read")])
os.pread(os.open(device.path, os.O_RDONLY), 4096, 8192)
"""


@pytest.mark.usefixtures("no_leftovers")
def test_a_command_that_hangs_in_the_kernel_says_where() -> None:
    with VM() as vm:
        # What is slow the first time is behind us when the deadline counts.
        once = "import sampleblk_lab as lab; lab.Device(capacity='16M').close()"
        assert vm.run([sys.executable, "-c", once]).returncode == 0
        with pytest.raises(DeadlineError) as caught:
            vm.run([sys.executable, "-c", READ_OF_A_DEVICE_THAT_HANGS], timeout=20)
        said = caught.value.console
        assert "state:D" in said
        # The innermost of our own read, and that each CPU was asked.
        assert "io_schedule" in said.split("state:D")[1]
        assert "pread64" in said.split("state:D")[1]
        assert "sysrq: Show backtrace of all active CPUs" in said
        # The request, and the state of the device that has it.
        assert "sampleblk1: 1 reads and 0 writes in flight" in said
        [request] = [line for line in said.splitlines() if " busy: " in line]
        told = r".*\{\.op=READ, .*\.state=in_flight, \.tag=(\d+), .*\.sector=16, \.bytes=(\d+)\}"
        match = re.fullmatch(rf"  sampleblk1 hctx\d+ busy: {told}", request)
        assert match
        waits = rf"^  sampleblk1 waiting: queue \d+ tag {match[1]}: read 16\+{int(match[2]) // 512}, hung for \d+ ms$"
        assert re.search(waits, said, re.MULTILINE)
        assert re.search(r"^  capacity_bytes: 16777216$", said, re.MULTILINE)
        for cpu in range(vm.cpus):
            assert re.search(rf"^CPU#{cpu}\nRAX=.*\n(?:R.*\n)+CR0=", said, re.MULTILINE)


def uptime_s(vm: VM) -> float:
    return float(vm.run(["cat", "/proc/uptime"]).stdout.split()[0])


def how_fast_time_passes(vm: VM) -> float:
    """In a guest, by the host's clock."""
    uptime_s(vm)
    began, before = uptime_s(vm), time.monotonic()
    time.sleep(2)
    return (uptime_s(vm) - began) / (time.monotonic() - before)


@pytest.mark.parametrize(
    "release", ["6.1", *(pytest.param(one, marks=pytest.mark.full) for one in ("5.10", "6.12", "7.2"))]
)
def test_a_guests_clock_has_the_hosts_rate(
    monkeypatch: pytest.MonkeyPatch, release: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Kernels that measured it on a busy host were off by a factor of three, and so was whatever they timed."""
    right = core.tsc_khz()
    assert right > 100_000
    with VM(kernel=release, driver=False) as vm:
        if vm.accel != "tcg":
            pytest.skip("KVM tells the guest")
        assert how_fast_time_passes(vm) == pytest.approx(1, rel=0.2)
        said = vm.run(["dmesg"]).stdout.decode()
        [mhz] = re.findall(r"tsc: Detected ([\d.]+) MHz processor", said)
        assert float(mhz) == pytest.approx(right / 1000, rel=0.01)
    # A machine with another clock is not used, and has a second chance. (Once it is asked for as QEMU starts.)
    rates = [2 * right] * 2
    monkeypatch.setattr(VM, "_tsc_khz", lambda _: rates.pop() if rates else right)
    with VM(kernel=release, driver=False) as vm:
        assert not rates
        assert not vm.restored  # a template with another clock is made anew
    assert "once more" not in capsys.readouterr().err
    with VM(kernel=release, driver=False) as vm:
        assert vm.restored
    rates = [2 * right] * 2
    with VM(kernel=release, driver=False, warm=False):
        assert not rates
    assert "the guest's clock goes 2.00 times as fast as it should; starting it once more" in capsys.readouterr().err
    monkeypatch.setattr(VM, "_tsc_khz", lambda _: right * 9 // 10)
    with pytest.raises(WrongClockError, match=r"clock goes 0\.90 times as fast"):
        VM(kernel=release, driver=False, warm=False).start()


def test_a_qemu_of_ones_own_may_have_a_clock_of_its_own() -> None:
    """One that counts instructions, which benchmarks take, has a counter of 1 GHz."""
    machine = "VM(driver=False, cpus=1, accel='tcg', warm=False)"
    program = f"from sampleblk_lab.vm import VM\nwith {machine} as vm: print(vm.run(['true']))"
    counted = os.environ | {"SAMPLEBLK_QEMU": str(Path(__file__).with_name("bench") / "qemu-counted")}

    def run(rate: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", program], env=counted | {"SAMPLEBLK_TSC_KHZ": rate}, capture_output=True, text=True
        )
        return done.stdout + done.stderr

    assert "returncode=0" in run("1000000")
    assert "SAMPLEBLK_TSC_KHZ='1 GHz' (expected a rate in kHz)" in run("1 GHz")


# Two writes by requests, one by a bio, and a call to the driver that waits; then init stops, as ptrace(2) may do to it.
GUEST_WHOSE_INIT_STOPS = """
import ctypes, mmap, os, threading, time
import sampleblk_lab as lab
mq, bio, slow = (lab.Device("1M", mode=mode) for mode in ("mq", "bio", "mq"))
for device in (mq, bio):
    device.set_faults([lab.Fault(action="hang", ops="write")])
slow.set_timing("constant", 10**10, ops="write")
def write(device, at, size):
    os.pwrite(os.open(device.path, os.O_RDWR | os.O_DIRECT), mmap.mmap(-1, size), at)
def begin(function, *arguments):
    threading.Thread(target=function, args=arguments, daemon=True).start()
for device, at, size in ((mq, 65536, 8192), (mq, 0, 4096), (bio, 4096, 4096), (slow, 0, 4096)):
    begin(write, device, at, size)
while open(f"/sys/block/{slow.name}/inflight").read().split()[1] == "0": time.sleep(0.01)
begin(lambda: slow.tune(sector_atomic=True))
time.sleep(1)
PTRACE_ATTACH = 16
assert ctypes.CDLL(None).ptrace(PTRACE_ATTACH, 1, 0, 0) == 0
open("/dev/kmsg", "w").write("<1>init is stopped\\n")
time.sleep(1000)
"""


@pytest.mark.parametrize(
    "release", ["6.1", *(pytest.param(one, marks=pytest.mark.full) for one in ("5.10", "6.12", "7.2"))]
)
@pytest.mark.usefixtures("no_leftovers")
def test_a_guest_whose_init_does_not_answer_is_read_from_outside(monkeypatch: pytest.MonkeyPatch, release: str) -> None:
    monkeypatch.setattr(machine, "_STACKS_S", 1.0)
    whole = Transfer.run

    def until_it_hangs(*_: object) -> None:
        monkeypatch.setattr(Transfer, "run", whole)
        while "init is stopped" not in vm.console.text():
            time.sleep(0.05)
        raise TimeoutError

    with VM(kernel=release) as vm:
        monkeypatch.setattr(Transfer, "run", until_it_hangs)
        with pytest.raises(DeadlineError) as caught:
            vm.run([sys.executable, "-c", GUEST_WHOSE_INIT_STOPS], timeout=20)
    said = caught.value.console.partition("--- read out of the guest's memory ---\n")[2]
    assert said
    told = r"tag \d+: request 0xffff[0-9a-f]+ WRITE sector (\d+) \+ (\d+) bytes, in flight"
    assert sorted(re.findall(rf"^sampleblk1, hardware queue \d+: {told}$", said, re.MULTILINE)) == [
        ("0", "4096"),
        ("128", "8192"),
    ]
    assert re.search(r"^sampleblk2: takes bios, 0 reads and 1 others in flight$", said, re.MULTILINE)
    tasks = said.split("\ntask ")[1:]
    assert sum("? __x64_sys_pwrite64+0x" in task for task in tasks) == 4, said
    # A function of a module, which the kernel's own names do not have.
    [tunes] = [task for task in tasks if "? __x64_sys_ioctl+0x" in task]
    assert re.search(r"\? sblk_freeze\+0x[0-9a-f]+ \[sampleblk\]\n", tunes)
    # That Debian's System.map has no names is no hindrance.
    assert re.search(r"^RIP=[0-9a-f]+ \([a-z_0-9]+\+0x[0-9a-f]+\)", said, re.MULTILINE), said


class MonitorOfOnePage:
    """Of a guest whose memory is one page, again and again."""

    def execute(self, _command: str, _end: float, *, filename: str, size: int, **_: object) -> None:
        Path(filename).write_bytes(bytes(size))


def test_a_walk_in_a_circle_ends(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As in a list that is damaged, which may be why the guest hangs: nothing new is read there."""
    monkeypatch.setattr(outside, "_WALK_S", 0.1)
    memory = outside._Memory(MonitorOfOnePage(), tmp_path)  # type: ignore[arg-type]
    end = time.monotonic() + 5

    def walk() -> None:
        while time.monotonic() < end:
            assert memory.read(0xFFFF888000000010, 8) == bytes(8)

    with pytest.raises(TimeoutError, match=r"longer than 0\.1 s"):
        walk()


@pytest.mark.usefixtures("no_leftovers")
def test_a_guest_that_does_not_answer_at_all_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_STACKS_S", 1.0)
    with VM(driver=False) as vm:
        assert vm._keeper is not None
        [qemu] = Path(f"/proc/{vm._keeper.pid}/task/{vm._keeper.pid}/children").read_text().split()
        os.kill(int(qemu), signal.SIGSTOP)
        with pytest.raises(DeadlineError, match=r"the guest did not print all that .* within 1 s") as caught:
            vm.run(["true"], timeout=1)
        assert "QEMU's monitor does not answer" in caught.value.console
        assert "(it cannot be: QEMU's monitor did not answer in time)" in caught.value.console


def test_a_process_that_is_killed_before_its_vm_starts_leaves_nothing(tmp_path: Path) -> None:
    code = "import os; from sampleblk_lab.vm import VM; vm = VM(driver=False); os.kill(os.getpid(), 9)"
    done = subprocess.run([sys.executable, "-c", code], env={**os.environ, "TMPDIR": str(tmp_path)}, check=False)
    assert done.returncode == -signal.SIGKILL
    assert list(tmp_path.iterdir()) == []


def test_a_process_that_is_killed_while_it_closes_its_vm_leaves_nothing(tmp_path: Path) -> None:
    """As by Ctrl-C of whoever runs it; QEMU and its memory take long to go on a busy machine."""
    code = (
        "import os, subprocess, time\n"
        "from sampleblk_lab.vm import VM\n"
        "with VM(driver=False) as vm:\n"
        "    print(vm._keeper.pid, flush=True)\n"
        "    vm._keeper.wait = lambda: os.kill(os.getpid(), 9)\n"
    )
    environment = {**os.environ, "TMPDIR": str(tmp_path), "SAMPLEBLK_BACKGROUND": "0"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, check=False)
    assert done.returncode == -signal.SIGKILL
    end = time.monotonic() + 20
    while Path("/proc", done.stdout.decode().strip()).exists() and time.monotonic() < end:
        time.sleep(0.05)
    assert list(tmp_path.iterdir()) == []


# --- boots that hang

# Prints one line, and never says that it is ready.
WAITING_INIT = r"""
#include <fcntl.h>
#include <sys/mount.h>
#include <unistd.h>
int main(void)
{
    mount("devtmpfs", "/dev", "devtmpfs", 0, 0);
    int console = open("/dev/console", O_WRONLY);
    (void)!write(console, "the init of the test waits\n", 27);
    for (;;)
        pause();
}
"""


@pytest.mark.usefixtures("no_leftovers")
def test_a_boot_that_hangs_in_its_init_says_where(tmp_path: Path) -> None:
    (tmp_path / "init.c").write_text(WAITING_INIT)
    subprocess.run(["gcc", "-static", "-Os", "-o", tmp_path / "init", tmp_path / "init.c"], check=True)
    archive = tmp_path / "initramfs"
    init = initramfs.Entry("init", 0o100755, (tmp_path / "init").read_bytes())
    archive.write_bytes(initramfs.cpio([initramfs.Entry("dev", 0o040755), init]))
    vm = VM(driver=False, warm=False, cpus=1)
    vm._initramfs = archive

    def waits() -> str:
        return "it waits" if "the init of the test waits" in vm.console.text() else ""

    # A deadline that is long enough for it to be there on any machine would be waited for on each.
    with contextlib.closing(vm), pytest.raises(BootError, match="it waits") as caught:
        vm.start(hopeless=waits)
    said = caught.value.console
    assert "the init of the test waits" in said.partition("sysrq: ")[0]
    # Asked by the keyboard, as nobody in the guest listens.
    assert "sysrq: Show Blocked State" in said
    assert "sysrq: Show backtrace of all active CPUs" in said
    assert re.search(r"^CPU#0\nRAX=.*\n(?:R.*\n)+CR0=", said, re.MULTILINE)


@pytest.mark.usefixtures("no_leftovers")
def test_a_kernel_that_hangs_at_its_first_instruction_says_where(tmp_path: Path) -> None:
    """Nothing is on the console then: the registers tell, with the kernel's own name of the place."""
    kernel = kernels.resolve("6.1")
    image = bytearray(kernel.image.read_bytes())
    # The entry that QEMU takes: xen/interface/elfnote.h, XEN_ELFNOTE_PHYS32_ENTRY; a note's name, then 8 bytes.
    note = image.index(struct.pack("<III", 4, 8, 18) + b"Xen\0")
    [entry] = struct.unpack_from("<Q", image, note + 16)
    [programs] = struct.unpack_from("<Q", image, 32)
    size, count = struct.unpack_from("<HH", image, 54)
    for at in range(programs, programs + size * count, size):
        offset, _, physical, length = struct.unpack_from("<QQQQ", image, at + 8)
        if physical <= entry < physical + length and image[at] == 1:  # PT_LOAD
            image[offset + entry - physical : offset + entry - physical + 2] = b"\xeb\xfe"  # jmp to itself
    own = tmp_path / "vmlinux"
    own.write_bytes(image)
    (tmp_path / f"System.map-{kernel.release}").write_text(
        f"{entry - 16:016x} T before\n{entry:016x} T where_it_begins\n{entry + 64:016x} T after\n"
    )
    mine = replace(kernel, image=own)
    vm = VM(kernel=mine, driver=False, warm=False, cpus=1)
    with contextlib.closing(vm), pytest.raises(BootTimeoutError) as caught:
        vm.start(5)
    assert f"EIP={entry:08x} (where_it_begins+0x0)" in caught.value.console


def test_of_the_registers_what_tells_where_a_processor_is(tmp_path: Path) -> None:
    printed = (
        "\r\nCPU#0\r\n"
        "RAX=0000000000000000 RBX=0000000000000001 RCX=0000000000000002 RDX=0000000000000003\r\n"
        "R8 =0000000000000000 R9 =0000000000000001 R10=0000000000000002 R11=0000000000000003\r\n"
        "R12=0000000000000000 R13=0000000000000001 R14=0000000000000002 R15=0000000000000003\r\n"
        "RIP=ffffffff81000014 RFL=00000246 [---Z-P-] CPL=0 II=0 A20=1 SMM=0 HLT=1\r\n"
        "ES =0000 0000000000000000 ffffffff 00c00000\r\n"
        "CR0=80050033 CR2=00007f0000000000 CR3=0000000002e0a000 CR4=000006f0\r\n"
        "XMM00=0000000000000000 0000000000000000 XMM01=0000000000000000 0000000000000000\r\n"
        "CPU#1\r\nRIP=ffffffffc0000000 RFL=00000246\r\n"
    )
    path = tmp_path / "System.map"
    path.write_text(
        "0000000000000000 D per_cpu\nffffffff81000040 T after\nffffffff81000000 T start\nffffffff81000050 t end\n"
    )
    symbols = core.KernelNames(str(path))
    said = registers.shown(f"{printed}CPU#2\r\nRIP=0000000000000014 RFL=00000246\r\n", symbols)
    assert [line.partition(" ")[0] for line in said.splitlines()] == [
        *("CPU#0", "RAX=0000000000000000", "R8", "R12=0000000000000000", "RIP=ffffffff81000014", "CR0=80050033"),
        *("CPU#1", "RIP=ffffffffc0000000", "CPU#2", "RIP=0000000000000014"),
    ]
    assert "RIP=ffffffff81000014 (start+0x14) RFL=" in said
    assert "RIP=ffffffffc0000000 RFL=" in said  # far above the last symbol: a module's, and not known
    assert "RIP=0000000000000014 RFL=" in said
    assert "RIP=ffffffff81000014 RFL=" in registers.shown(printed)


@pytest.mark.parametrize(("load", "times"), [(0.0, 1), (0.5, 1), (2.5, 2.5), (300.0, 10)])
def test_a_boot_on_a_busy_machine_may_take_longer(monkeypatch: pytest.MonkeyPatch, load: float, times: float) -> None:
    """What came up after two minutes, because others had the processors, was told as a kernel that does not boot."""
    monkeypatch.setattr("os.getloadavg", lambda: (load * (os.cpu_count() or 1), 0.0, 0.0))
    given: list[float] = []
    monkeypatch.setattr(VM, "_start", lambda _, timeout_s: given.append(timeout_s))
    vm = VM(driver=False, warm=False)
    vm.start()
    vm.start(7)
    assert given == [pytest.approx(120 * times), 7]


def test_symbols_that_cannot_be_read_are_none(tmp_path: Path) -> None:
    """Such as Debian's in /boot, which are root's: the report goes without names."""
    (tmp_path / "System.map-1").symlink_to("/proc/self/mem")  # not even root reads its first page
    first = kernels.Kernel("1", tmp_path / "bzImage", None, None)
    assert registers.symbols_of(first) is None
    # Debian since 7.0 and Fedora have it among the modules.
    second = kernels.Kernel("2", tmp_path / "bzImage", tmp_path / "lib/modules/2", None)
    assert registers.symbols_of(second) is None
    (tmp_path / "lib/modules/2").mkdir(parents=True)
    for path in (tmp_path / "lib/modules/2/System.map", tmp_path / "System.map-2"):
        path.write_text("ffffffff81000000 T start\nffffffff81000050 t end\n")
        found = registers.symbols_of(second)
        assert found is not None
        assert len(found) == 2
        path.unlink()


def test_a_panic_is_an_exception_with_the_console() -> None:
    with VM(driver=False) as vm:
        with pytest.raises(GuestPanicError) as caught:
            vm.run(["sh", "-c", "echo out; echo err >&2; sleep 1; echo c > /proc/sysrq-trigger; sleep 10"])
        assert "sysrq triggered crash" in caught.value.console
        assert (caught.value.stdout, caught.value.stderr) == (b"out\n", b"err\n")
        assert vm.console.splats()


def test_a_machine_that_ends_under_a_command_says_how() -> None:
    with VM(driver=False) as vm:
        for number, said in ((signal.SIGKILL, "; it was killed, as"), (signal.SIGTERM, "QEMU ended: .* signal 15 ")):
            assert vm._keeper is not None
            [qemu] = Path(f"/proc/{vm._keeper.pid}/task/{vm._keeper.pid}/children").read_text().split()
            kill = threading.Timer(0.5, os.kill, (int(qemu), number))
            kill.start()
            with pytest.raises(GuestLostError, match=said):
                vm.run(["sleep", "60"])
            kill.join()
            vm.start()


def test_console_finds_complaints_and_no_chatter(tmp_path: Path) -> None:
    log = tmp_path / "console.log"
    console = Console(log)
    assert console.text() == ""
    log.write_bytes(b"\x1bc\x1b[2J[    0.0] Linux version 6.1\r\n[    1.0] sampleblk: loaded\r\n")
    assert console.splats() == []
    mark = console.size()
    with log.open("ab") as file:
        file.write(b"[    2.0] zonefs (sda) WARNING: inode 5: invalid size 0 (should be 4096)\r\n")
        file.write(b"[    2.0] WARNING: CPU: 1 PID: 7 at block/blk-mq.c:99 blk_mq_x+0x1/0x2\r\n")
    assert console.splats(mark) == ["[    2.0] WARNING: CPU: 1 PID: 7 at block/blk-mq.c:99 blk_mq_x+0x1/0x2"]
    assert console.text().startswith("[    0.0] Linux version")
