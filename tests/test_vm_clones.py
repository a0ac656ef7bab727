# SPDX-License-Identifier: MIT
"""Many clones, and clones whose QEMU, keeper or session is killed at any moment: nothing of them stays."""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from sampleblk_lab.paths import cache_root
from sampleblk_lab.vm import VM

# How many one after another, and how many with something killed; SAMPLEBLK_CLONES=1000,200 takes an hour.
CLONES, KILLED = (int(number) for number in os.environ.get("SAMPLEBLK_CLONES", "100,12").split(","))
SEED = int(os.environ.get("SAMPLEBLK_SEED", "15"))

# What is killed, by the name of its process; a session is what has the others below it.
VICTIMS = ("qemu-system-x86", "sampleblk-keep", "session")

# What differs between clones: the random pool, the boot id, what numpy and random draw; and the clock, which is ours.
ABOUT = (
    "import os, random, time, numpy; boot = open('/proc/sys/kernel/random/boot_id').read().strip(); "
    "print(os.urandom(16).hex(), boot, numpy.random.random(), random.random(), time.time())"
)

_MARK = "SAMPLEBLK_TEST_OF_CLONES"


@dataclass
class Watched:
    """What the processes with our mark use, and what they leave."""

    mark: str
    folder: Path
    before: set[str]

    @property
    def environment(self) -> dict[str, str]:
        """For a process whose children, theirs included, are watched."""
        return {**os.environ, _MARK: self.mark, "TMPDIR": str(self.folder)}

    def processes(self) -> dict[int, tuple[str, int]]:
        """The name and the parent of each process with the mark."""
        found = {}
        for path in Path("/proc").iterdir():
            if not path.name.isdecimal() or int(path.name) == os.getpid():
                continue
            with contextlib.suppress(OSError):
                if f"{_MARK}={self.mark}".encode() in (path / "environ").read_bytes().split(b"\0"):
                    left, _, right = (path / "stat").read_text().rpartition(")")
                    state, parent, *_ = right.split()
                    if state != "Z":
                        found[int(path.name)] = (left.partition("(")[2], int(parent))
        return found

    def left(self) -> dict[str, object]:
        """What is still there: processes, files, shared memory, held locks of the cache."""
        # One that another process holds goes with it, and those of ours are told above; other streams have theirs.
        opened = [os.readlink(path) for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]  # noqa: PTH115
        locks = [path for path in opened if path.startswith(str(cache_root())) and path.endswith(".lock")]
        found = {
            "processes": self.processes(),
            "files": [path.name for path in self.folder.iterdir()],
            "shared memory and unfinished parts of the cache": sorted(_shared() - self.before),
            "locks": locks,
        }
        return {kind: what for kind, what in found.items() if what}


def _is_locked(path: Path) -> bool:
    """Whether somebody works on what a lock of the cache is for."""
    with contextlib.suppress(FileNotFoundError), path.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _shared() -> set[str]:
    parts = [path for path in cache_root().glob("*/.*") if path.parent.name in ("templates", "initramfs")]
    unfinished = [path for path in parts if not _is_locked(path.with_name(f"{path.name.split('.')[1]}.lock"))]
    return {str(path) for path in [*Path("/dev/shm").glob("*qemu*"), *unfinished]}


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    """Fails the test when something is left after some seconds."""
    VM().make_template()  # so that none is made beside the work, as where Python has changed
    folder = tmp_path / "tmp"
    folder.mkdir()
    found = Watched(secrets.token_hex(8), folder, _shared())
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setenv(_MARK, found.mark)
    yield found
    end = time.monotonic() + 30
    while found.left() and time.monotonic() < end:
        time.sleep(0.2)
    assert found.left() == {}


@pytest.mark.parametrize("count", [3, pytest.param(CLONES, marks=pytest.mark.full)])
def test_clones_one_after_another_differ_and_leave_nothing(watched: Watched, count: int) -> None:
    descriptors = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    drawn: list[list[bytes]] = []
    running: set[int] = set()
    for _ in range(count):
        with VM() as vm:
            assert vm.restored
            before = time.time()
            *random_ones, clock = vm.run([sys.executable, "-c", ABOUT]).stdout.split()
            assert before - 1 < float(clock) < time.time() + 1
            running |= set(watched.processes())
        assert watched.left() == {}, "once it is closed"
        drawn.append(random_ones)
    for kind in zip(*drawn, strict=True):
        assert len(set(kind)) == count
    assert len(running) == 2 * count  # a keeper and a QEMU each, which nobody had before
    assert len(os.listdir("/proc/self/fd")) == descriptors  # noqa: PTH208


def test_what_is_left_where_both_owner_and_keeper_were_killed_goes_with_the_next(watched: Watched) -> None:
    command = [sys.executable, "-m", "sampleblk_lab.vm.python", "-c", "print('here', flush=True); input()"]
    with subprocess.Popen(command, env=watched.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"here\n"
        with VM():
            pass
        assert len(watched.left()["files"]) == 1, "it is in use"  # type: ignore[arg-type]
        keeper = next(pid for pid, (name, _) in watched.processes().items() if name == "sampleblk-keep")
        process.send_signal(signal.SIGSTOP)
        os.kill(keeper, signal.SIGKILL)
        process.kill()
    end = time.monotonic() + 30
    while watched.processes() and time.monotonic() < end:
        time.sleep(0.1)
    assert len(watched.left()["files"]) == 1  # type: ignore[arg-type]
    with VM() as vm:
        assert [path.name for path in watched.folder.iterdir()] == [vm._scratch.name]


TESTS = """
    import pytest
    pytestmark = pytest.mark.in_vm(fresh="test")
    @pytest.mark.parametrize("number", range(6))
    def test_it(number): pass
"""


@pytest.mark.full
def test_whatever_is_killed_nothing_stays(watched: Watched, pytester: pytest.Pytester) -> None:
    """A session with VMs that wait, or a command; its QEMU, its keeper or itself is killed at any moment of it."""
    path = pytester.makepyfile(TESTS)
    session = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--sblk-pool", "2", str(path)]
    command = [sys.executable, "-m", "sampleblk_lab.vm.python", "-c", "import time; time.sleep(600)"]
    chance = random.Random(SEED)
    hit = dict.fromkeys(VICTIMS, 0)
    for number in range(KILLED):
        victim = VICTIMS[number % 3] if number < 3 else chance.choice(VICTIMS)
        run = chance.choice((session, command))
        with subprocess.Popen(
            run,
            env=watched.environment,
            cwd=pytester.path,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        ) as process:
            later = chance.uniform(0, 3)
            pid = _first(watched, victim, process)
            if pid is not None:
                time.sleep(later)
                if process.poll() is not None:
                    assert (run, process.returncode) == (session, 0), "it ended by itself"
                    continue
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    hit[victim] += 1
            if run is session and pid != process.pid:
                assert process.wait(timeout=300) in (0, 1), "a test fails at most, and the session goes on"
            else:
                _kill_what_takes_its_place(watched, victim, process, pid)
                assert process.wait(timeout=60) != 0
    assert min(hit.values()) > 0, hit
    # The folder of a killed session goes with the next session.
    done = subprocess.run(session, env=watched.environment, cwd=pytester.path, capture_output=True, check=False)
    assert done.returncode == 0, done.stdout


def _first(watched: Watched, victim: str, process: subprocess.Popen[bytes]) -> int | None:
    """The process to kill, when it is there: of several the one started last."""
    if victim == "session":
        return process.pid
    while process.poll() is None:
        found = [pid for pid, (name, _) in watched.processes().items() if name.startswith(victim[:15])]
        if found:
            return max(found)
        time.sleep(0.02)
    return None


def _kill_what_takes_its_place(
    watched: Watched, victim: str, process: subprocess.Popen[bytes], pid: int | None
) -> None:
    """Whoever has lost a VM that was being started starts another one, until there is no other way left."""
    end = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < end:
        time.sleep(0.02)
        for other, (name, _) in watched.processes().items():
            if victim != "session" and other != pid and name.startswith(victim[:15]):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(other, signal.SIGKILL)
