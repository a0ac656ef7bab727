# SPDX-License-Identifier: MIT
"""What a test can leave in a kernel is seen, by its name, and is not seen any more when it has been undone."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from multiprocessing import resource_tracker
from pathlib import Path

import pytest

import sampleblk_lab as lab
from sampleblk_lab.pytest_plugin import residue

TRACEFS = Path("/sys/kernel/tracing")
CGROUPS = Path("/sys/fs/cgroup")


def _run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout.strip()


@contextmanager
def _written(path: Path, text: str) -> Iterator[None]:
    before = path.read_text()
    path.write_text(text)
    try:
        yield
    finally:
        path.write_text(before)


@contextmanager
def _folder(path: Path) -> Iterator[None]:
    path.mkdir()
    try:
        yield
    finally:
        path.rmdir()


@contextmanager
def _mount(tmp_path: Path) -> Iterator[None]:
    _run("mount", "-t", "tmpfs", "none", str(tmp_path))
    yield
    _run("umount", str(tmp_path))


@contextmanager
def _device(_: Path) -> Iterator[None]:
    with lab.Device(capacity="16M"):
        yield


@contextmanager
def _loop(tmp_path: Path) -> Iterator[None]:
    (tmp_path / "disk").write_bytes(bytes(1 << 20))
    name = _run("losetup", "-f", "--show", str(tmp_path / "disk"))
    yield
    _run("losetup", "-d", name)


@contextmanager
def _mapped(_: Path) -> Iterator[None]:
    if not any((Path(folder) / "dmsetup").exists() for folder in ("/sbin", "/usr/sbin")):
        pytest.skip("dmsetup is not installed")
    _run("dmsetup", "create", "left-here", "--table", "0 8 zero")
    yield
    _run("dmsetup", "remove", "left-here")


@contextmanager
def _swap(_: Path) -> Iterator[None]:
    with lab.Device(capacity="16M") as device:
        _run("mkswap", str(device.path))
        _run("swapon", str(device.path))
        yield
        _run("swapoff", str(device.path))


@contextmanager
def _process(_: Path) -> Iterator[None]:
    # The middle one ends, so that its child is nobody's here.
    code = "import subprocess as s; print(s.Popen(['sleep', '1000'], stdout=s.DEVNULL, stderr=s.DEVNULL).pid)"
    pid = int(_run(sys.executable, "-c", code))
    yield
    os.kill(pid, signal.SIGKILL)


@contextmanager
def _clock(_: Path) -> Iterator[None]:
    time.clock_settime(time.CLOCK_REALTIME, time.time() + 3600)
    yield
    time.clock_settime(time.CLOCK_REALTIME, time.time() - 3600)


@contextmanager
def _shared_memory(_: Path) -> Iterator[None]:
    libc = ctypes.CDLL(None, use_errno=True)
    made = libc.shmget(0, 4096, 0o1600)  # IPC_PRIVATE, IPC_CREAT
    assert made >= 0
    yield
    libc.shmctl(made, 0, None)  # IPC_RMID


@contextmanager
def _namespace(_: Path) -> Iterator[None]:
    before = os.open("/proc/self/ns/uts", os.O_RDONLY)
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.unshare(0x04000000) == 0  # CLONE_NEWUTS
    yield
    assert libc.setns(before, 0) == 0
    os.close(before)


@contextmanager
def _processor(_: Path) -> Iterator[None]:
    switch = Path("/sys/devices/system/cpu/cpu1/online")
    if not switch.exists():
        pytest.skip("the VM has one processor")
    with _written(switch, "0"):
        yield


@contextmanager
def _called(do: Callable[[], object], undo: Callable[[], object]) -> Iterator[None]:
    do()
    yield
    undo()


def _umask(_: Path) -> AbstractContextManager[None]:
    before = os.umask(0)
    os.umask(before)
    return _called(lambda: os.umask(0o77), lambda: os.umask(before))


def _affinity(_: Path) -> AbstractContextManager[None]:
    before = os.sched_getaffinity(0)
    return _called(lambda: os.sched_setaffinity(0, {0}), lambda: os.sched_setaffinity(0, before))


def _nice(_: Path) -> AbstractContextManager[None]:
    return _called(lambda: os.nice(3), lambda: os.setpriority(os.PRIO_PROCESS, 0, 0))


def _prctl(option: int, value: int, before: int) -> Callable[[Path], AbstractContextManager[None]]:
    prctl = ctypes.CDLL(None).prctl
    return lambda _: _called(lambda: prctl(option, value, 0, 0, 0), lambda: prctl(option, before, 0, 0, 0))


def _personality(_: Path) -> AbstractContextManager[None]:
    personality = ctypes.CDLL(None).personality
    return _called(lambda: personality(0x40000), lambda: personality(0))


def _io_priority(_: Path) -> AbstractContextManager[None]:
    def set_to(priority: int) -> None:
        assert ctypes.CDLL(None).syscall(251, 1, 0, priority) == 0  # ioprio_set(2)

    return _called(lambda: set_to(3 << 13), lambda: set_to(0))


def _limit(_: Path) -> AbstractContextManager[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    changed = (1 << 20, before[1])
    return _called(
        lambda: resource.setrlimit(resource.RLIMIT_FSIZE, changed),
        lambda: resource.setrlimit(resource.RLIMIT_FSIZE, before),
    )


def _working_folder(tmp_path: Path) -> AbstractContextManager[None]:
    before = Path.cwd()
    return _called(lambda: os.chdir(tmp_path), lambda: os.chdir(before))


def _ignored_signal(_: Path) -> AbstractContextManager[None]:
    # With this the status of every process that is waited for is lost, and subprocess says 0.
    return _called(
        lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN), lambda: signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    )


def _blocked_signal(_: Path) -> AbstractContextManager[None]:
    return _called(
        lambda: signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1}),
        lambda: signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR1}),
    )


@contextmanager
def _ram_disk(_: Path) -> Iterator[None]:
    if Path("/sys/block/ram0").exists() or subprocess.run(["modprobe", "-n", "brd"], check=False).returncode:
        pytest.skip("brd is no module here")
    _run("modprobe", "brd", "rd_nr=1", "rd_size=4096")
    yield
    _run("rmmod", "brd")


def _queue(_: Path) -> AbstractContextManager[None]:
    return _written(Path("/sys/block/loop1/queue/nomerges"), "1")  # 2 on 5.10, 0 since


def _unless_missing(path: str, text: str) -> Callable[[Path], AbstractContextManager[None]]:
    def made(_: Path) -> AbstractContextManager[None]:
        try:
            Path(path).read_text()
        except OSError as error:  # 5.10 has a blktrace of devices that are open alone
            pytest.skip(f"this kernel has none: {error}")
        return _written(Path(path), text)

    return made


def _not_graphed(_: Path) -> AbstractContextManager[None]:
    path = TRACEFS / "set_graph_notrace"
    return _called(lambda: path.write_text("vfs_read"), lambda: path.write_text("\n"))


def _buffer(_: Path) -> AbstractContextManager[None]:
    path = TRACEFS / "buffer_size_kb"
    before = path.read_text().rpartition(" ")[2].strip(")\n")  # 7 (expanded: 1408)
    return _called(lambda: path.write_text("64"), lambda: path.write_text(before))


def _filter(_: Path) -> AbstractContextManager[None]:
    if not (TRACEFS / "show_event_filters").exists():
        pytest.skip("this kernel does not list filters")
    path = TRACEFS / "events/sched/sched_switch/filter"
    return _called(lambda: path.write_text("prev_pid == 1"), lambda: path.write_text("0"))


def _remount(_: Path) -> AbstractContextManager[None]:
    return _called(lambda: _run("mount", "-o", "remount,ro", "/sys"), lambda: _run("mount", "-o", "remount,rw", "/sys"))


def _propagation(_: Path) -> AbstractContextManager[None]:
    return _called(lambda: _run("mount", "--make-shared", "/"), lambda: _run("mount", "--make-private", "/"))


KINDS: dict[str, tuple[Callable[[Path], object], str]] = {
    "mount": (_mount, "mount /tmp/"),
    "remount": (_remount, "mount /sys (sysfs of sysfs: ro,"),
    "propagation": (_propagation, "mount / (overlay of overlay: rw,"),
    "device": (_device, "block device sampleblk"),
    "loop": (_loop, "block device loop"),
    "dm": (_mapped, "block device dm-0 (left-here)"),
    "swap": (_swap, "swap on /dev/sampleblk"),
    "process": (_process, "process sleep (pid "),
    "clock": (_clock, "clock set by +3600 s"),
    "shared memory": (_shared_memory, "System V shm "),
    "namespace": (_namespace, "namespace of pytest uts:"),
    "processor": (_processor, "processors online: 0"),
    "sysctl": (lambda _: _written(Path("/proc/sys/vm/swappiness"), "17"), "sysctl vm.swappiness is 17"),
    "sysctl below": (
        lambda _: _written(Path("/proc/sys/fs/inotify/max_user_watches"), "4321"),
        "sysctl fs.inotify.max_user_watches is 4321",
    ),
    "trace buffer": (_buffer, "tracing buffer_size_kb is "),
    "trace filter": (_filter, "show_event_filters: sched:sched_switch"),
    "control group": (lambda _: _folder(CGROUPS / "left-here"), "control group /left-here"),
    "instance": (lambda _: _folder(TRACEFS / "instances/left-here"), "tracing instance left-here"),
    "tracer": (lambda _: _written(TRACEFS / "current_tracer", "blk"), "tracer blk"),
    "tracing": (lambda _: _written(TRACEFS / "tracing_on", "0"), "tracing tracing_on is 0"),
    "umask": (_umask, "umask of pytest: 0077"),
    "affinity": (_affinity, "processors of pytest: 0"),
    "nice": (_nice, "scheduling of pytest: policy 0, priority 0, nice 3"),
    "groups": (
        lambda _: _called(lambda: os.setgroups([4, 24]), lambda: os.setgroups([])),
        "supplementary groups of pytest: 4 24",
    ),
    "secure bits": (_prctl(28, 1 << 6, 0), "secure bits of pytest: 0x40"),
    "timer slack": (_prctl(29, 70000, 0), "timer slack of pytest: 70000"),
    "huge pages": (_prctl(41, 1, 0), "transparent huge pages of pytest: 0"),
    "personality": (_personality, "personality of pytest: 0x40000"),
    "I/O priority": (_io_priority, "I/O priority of pytest: 24576"),
    "limit": (_limit, "limit of pytest: Max file size 1048576 "),
    "working folder": (_working_folder, "working folder of pytest: /tmp/"),
    "ignored signal": (_ignored_signal, "ignored signals of pytest: "),
    "blocked signal": (_blocked_signal, "blocked signals of pytest: "),
    "alarm": (lambda _: _called(lambda: signal.alarm(1000), lambda: signal.alarm(0)), "a timer of pytest's real time"),
    "out of memory": (lambda _: _written(Path("/proc/self/oom_score_adj"), "500"), "readiness of pytest to be killed"),
    "RAM disk": (_ram_disk, "block device ram0"),
    "queue": (_queue, "nomerges of block device loop1 is 1"),
    "I/O statistics": (
        lambda _: _written(Path("/sys/block/loop1/queue/iostats"), "0"),
        "iostats of block device loop1 is 0",
    ),
    "size of requests": (
        lambda _: _written(Path("/sys/block/loop1/queue/max_sectors_kb"), "64"),
        "max_sectors_kb of block device loop1 is 64",
    ),
    "blktrace": (_unless_missing("/sys/block/loop1/trace/enable", "1"), "blktrace of block device loop1"),
    "not graphed": (_not_graphed, "tracing set_graph_notrace is vfs_read"),
    "kernel probes": (_unless_missing("/sys/kernel/debug/kprobes/enabled", "0"), "kernel probes: 0"),
    "fault-around": (
        _unless_missing("/sys/kernel/debug/fault_around_bytes", "4096"),
        "bytes mapped around a fault: 4096",
    ),
    "writeback": (
        _unless_missing("/sys/bus/workqueue/devices/writeback/cpumask", "1"),
        "processors that write back: ",
    ),
    "merging": (lambda _: _written(Path("/sys/kernel/mm/ksm/run"), "1"), "same-page merging: 1"),
}


@pytest.mark.in_vm
@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=[pytest.mark.two_cpus] * (kind in ("processor", "affinity", "writeback")))
        for kind in KINDS
    ],
)
def test_it_is_seen_until_it_is_undone(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make, name = KINDS[kind]
    with suppress(subprocess.CalledProcessError):
        _run("modprobe", "loop")
    before = residue.present()
    with make(tmp_path), monkeypatch.context() as patch:  # type: ignore[attr-defined]
        patch.setattr(residue, "_SETTLE_S", 0.1)  # it does not end by itself
        assert any(line.startswith(name) for line in residue.since(before)), residue.since(before)
    assert residue.since(before) == [], "undone"


@pytest.mark.in_vm
def test_a_mount_over_one_of_its_own_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(residue, "_SETTLE_S", 0.1)
    with _mount(tmp_path):
        before = residue.present()
        with _mount(tmp_path):
            [left] = residue.since(before)
            assert left.startswith(f"mount {tmp_path} (tmpfs of none: rw,")
            assert left.endswith("), 2 times")
        assert residue.since(before) == []


@pytest.mark.in_vm
def test_what_ends_by_itself_is_not_left() -> None:
    before = residue.present()
    code = "import subprocess as s; s.Popen(['sleep', '0.2'], stdout=s.DEVNULL, stderr=s.DEVNULL)"
    _run(sys.executable, "-c", code)
    assert residue.since(before) == []


@pytest.mark.in_vm
def test_what_the_kernel_mounts_by_itself_is_not_left() -> None:
    before = residue.present()
    assert Path("/sys/kernel/debug/tracing/current_tracer").read_text() == "nop\n"
    assert residue.present() == before
    _run("umount", "/sys/kernel/debug/tracing")


@pytest.mark.in_vm
def test_io_alone_leaves_nothing() -> None:
    """To older kernels, such as 5.10, a process without an I/O priority has another number before its first I/O.

    The C library's own signals are ignored in what posix_spawn(3) starts until it needs them.
    """
    script = """
import os, sampleblk_lab as lab
from sampleblk_lab import proc
before = proc.passed_on()
with lab.Device("1M") as device:
    fd = os.open(device.path, os.O_RDONLY)
    os.pread(fd, 4096, 0)
    os.close(fd)
assert proc.passed_on() == before, (before, proc.passed_on())
"""
    arguments = [sys.executable, "-c", script]
    assert os.waitpid(os.posix_spawn(sys.executable, arguments, os.environ), 0)[1] == 0


@pytest.mark.in_vm
def test_a_process_with_another_name_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(residue, "_SETTLE_S", 0.1)
    process = subprocess.Popen(["sh", "-c", "read line; exec sleep 1000"], stdin=subprocess.PIPE)
    try:
        before = residue.present()
        assert f"process sh (pid {process.pid})" in before
        assert process.stdin is not None
        process.stdin.write(b"\n")
        process.stdin.close()
        while Path(f"/proc/{process.pid}/comm").read_text() != "sleep\n":
            time.sleep(0.01)
        assert residue.since(before) == []
    finally:
        process.kill()
        process.wait()


@pytest.mark.in_vm
def test_what_is_started_once_for_all_tests_is_not_left(tmp_path: Path) -> None:
    before = residue.present()
    resource_tracker.ensure_running()
    made = lab.sweep(lambda number: {"double": 2 * number}, number=[1, 2], folder=tmp_path / "sweep", progress=False)
    assert made.complete
    commands = [path.read_text() for path in Path("/proc").glob("[0-9]*/cmdline")]
    assert any("sweeps.launcher" in command for command in commands)
    assert any("resource_tracker" in command for command in commands)
    assert residue.since(before) == []


def test_damage_is_nothing_that_a_fixture_may_keep() -> None:
    lines = {
        "kernel taint 512 (a warning)",
        "kernel taint 16384 (a soft lockup)",
        "kernel taint 1 (a proprietary module)",
    }
    assert residue.may_stay({*lines, "mount /mnt (tmpfs of none)"}) == {
        "kernel taint 1 (a proprietary module)",
        "mount /mnt (tmpfs of none)",
    }


def test_a_module_of_somebody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    text = (
        "sampleblk 98304 0 - Live 0xffffffffc0a00000 (OE)\nmine 16384 0 - Live 0xffffffffc0b00000 (OE)\n"
        "xfs 1900544 0 - Live 0xffffffffc0c00000\n"
    )
    monkeypatch.setattr(residue, "_whole", lambda _: text)
    assert list(residue._modules()) == ["module mine"]
