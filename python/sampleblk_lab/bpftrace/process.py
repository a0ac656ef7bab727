# SPDX-License-Identifier: MIT
"""A program that traces with BPF beside a ``with`` block: attached before, and ended as by Ctrl-C after."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
import weakref
from abc import abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, Self, TypeVar

from sampleblk_lab import checked, leftovers, paths, proc, trust
from sampleblk_lab._native import core
from sampleblk_lab.blocks import StopsAtEnd
from sampleblk_lab.errors import InputError, UnsupportedError
from sampleblk_lab.interrupts import end_of, shell_status, started

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

#: The files that have what it prints.
OUT, ERR = "out", "err"

_POLL_S = 0.02
# From SIGINT to the end: detaching waits for RCU, and then all is printed.
_STOP_S = 60.0
# After which SIGINT is sent again; sent, although it is not seen to wait for events.
_AGAIN_S = 1.0
_BUSY_S = 5.0
# debugfs mounts tracefs here when somebody looks, as bpftrace does; it stays until it is unmounted.
_AUTOMOUNT = "/sys/kernel/debug/tracing"


def require_kernel(what: str, where: str) -> None:
    """Raises UnsupportedError where nobody can run BPF programs of `what`; `where` is what to do then."""
    if os.geteuid() != 0:
        raise UnsupportedError(what, "only root may load BPF programs", f"run as root, or {where}")
    if not Path("/proc/sys/kernel/unprivileged_bpf_disabled").exists():
        raise UnsupportedError(what, "this kernel is built without CONFIG_BPF_SYSCALL", where)
    if not Path("/sys/kernel/btf/vmlinux").exists():
        raise UnsupportedError(what, "this kernel is built without CONFIG_DEBUG_INFO_BTF", where)
    core.tracefs_dir()  # mounts it where it is not, or raises


class Output(Protocol):
    """What such a program has printed."""

    @property
    def lost_events(self) -> int:
        """How many it said that it lost."""

    @property
    def incomplete(self) -> str:
        """Why it is not all of it; empty: it is."""


Found = TypeVar("Found", bound=Output)


class Tracer(StopsAtEnd, Generic[Found]):
    """One such program, which runs once.

    Args:
        timeout_s: How long starting may take, and ending.
        lossy: What it may lose, for the trust checks.
    """

    # The kernel's functions in which it waits for events.
    _WAITS: ClassVar[tuple[str, ...]]

    def __init__(self, timeout_s: float, lossy: str) -> None:
        self._timeout_s = checked.seconds("timeout_s", timeout_s)
        self._lossy = lossy
        self._found: Found | None = None
        self._files: tuple[str, weakref.finalize[Any, Any]] | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._mounts = False
        self._descriptors = 0

    # -- what each program does in its own way

    @abstractmethod
    def _begin(self) -> None:
        """Makes its files and calls :meth:`_launch`."""

    @abstractmethod
    def _is_attached(self, pid: int) -> bool:
        """Whether all its probes are. Raises where they are not those that were asked for."""

    @abstractmethod
    def _failure(self, status: int | None) -> Exception:
        """Why it ended before it was attached, or did not attach its probes in time (None)."""

    @abstractmethod
    def _incomplete(self, status: int, *, early: bool) -> str:
        """Why what it printed is not all of it, by its exit status, and whether it ended by itself; empty: it is."""

    @abstractmethod
    def _output(self, incomplete: str) -> Found:
        """What it has printed, from its files."""

    @abstractmethod
    def _error(self, message: str, found: Found) -> Exception:
        """That it failed, with what it had printed by then."""

    def _lost(self, found: Found) -> list[trust.Check]:
        """What is missing of what it found."""
        checks = [trust.of_losses(self._lossy, found.lost_events)]
        if found.incomplete:
            checks.append(trust.Check("lost", self._KEPT, found.incomplete, "incomplete", is_doubt=True))
        return checks

    def _ended_early(self, status: int) -> None:
        """Called when it ended without having been seen attached. Raises where that is wrong."""
        if status != 0:
            raise self._failure(status)

    def _listens(self, pid: int) -> bool:  # noqa: ARG002
        """Whether SIGINT still means to it to come to its end."""
        return True

    # -- starting

    def start(self) -> Self:
        """Starts it, and returns when all its probes are attached.

        Raises:
            UnsupportedError: It cannot run here, or the kernel lacks what it probes.
            InputError: What it was given is wrong.
            SampleblkError: It failed otherwise, or did not attach its probes in time.
        """
        if self._found is not None:
            raise RuntimeError(f"a {type(self).__name__} runs once; make another one")
        if self._files is not None:
            raise RuntimeError("it runs already")
        self._note_process()
        try:
            self._begin()
        except BaseException:
            self.close()
            raise
        return self

    @property
    def _folder(self) -> Path:
        """Where its files are, from :meth:`_prepare` to :meth:`close`."""
        assert self._files is not None
        return Path(self._files[0])

    def _prepare(self) -> Path:
        """Makes the folder for its files."""
        self._mounts = not _is_mounted(_AUTOMOUNT)
        self._files = paths.scratch_of(self, "bpf")
        return self._folder

    def _launch(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        """Starts it, and returns when its probes are attached. Raises what :meth:`_failure` and the others return."""
        # It ends with us, whatever happens to us.
        command = paths.tied(command, "INT")
        environment = {**os.environ, "LC_ALL": "C", "PATH": paths.search_path(), **environment}
        end = time.monotonic() + self._timeout_s
        with (self._folder / OUT).open("wb") as out, (self._folder / ERR).open("wb") as err:
            # Ctrl-C in a terminal is for us, who then stop it.
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=environment, start_new_session=True
            )
        self._process = process
        while process.poll() is None:
            if self._is_attached(process.pid):
                self._descriptors = len(descriptors_of(process.pid))
                return
            if time.monotonic() > end:
                raise self._failure(None)
            time.sleep(_POLL_S)
        self._ended_early(process.returncode)

    # -- what it has printed

    def _read(self, name: str) -> bytes:
        """The content of a file of its folder."""
        return (self._folder / name).read_bytes()

    @property
    def running(self) -> bool:
        """Whether it still runs: it may end itself."""
        return self._process is not None and self._process.poll() is None

    # -- stopping

    def stop(self) -> Found:
        """Ends it as Ctrl-C does, so that it prints what it has, and returns all. Idempotent.

        Raises:
            SampleblkError: It had failed, or did not end and was killed; what it had printed is the error's ``output``.
        """
        if self._found is not None:
            return self._found
        self._refuse_in_fork()
        early = not self.running
        status = self._interrupt(max(_STOP_S, self._timeout_s))
        why = "it did not end and was killed, so that what it prints at its end is missing"
        incomplete = why if status is None else self._incomplete(status, early=early)
        # As it may: what it found is told to be of a part of the block.
        found = self._output(incomplete or ("it ended by itself before the block did" if early else ""))
        self.close()
        self._found = found
        trust.later(lambda: self._lost(found))
        if incomplete:
            raise self._error(incomplete, found)
        return found

    def _interrupt(self, timeout_s: float) -> int | None:
        """Sends SIGINT until it is heard, and waits for the end.

        It may notice the signal only while it waits for events, and else wait on (bpftrace 0.17 at least).

        Args:
            timeout_s: After which it is killed.

        Returns:
            Its exit status, negative for a signal; None: it was killed.
        """
        process = self._process
        if process is None:
            raise RuntimeError("it was not started")
        try:
            end = time.monotonic() + timeout_s
            due = time.monotonic()
            busy = due + _BUSY_S
            while process.poll() is None:
                now = time.monotonic()
                if now > end:
                    return None
                attached = len(descriptors_of(process.pid)) >= self._descriptors and self._listens(process.pid)
                # With very many events it may never be seen to wait.
                if attached and now >= due and (waits_in(process.pid, self._WAITS) or now >= busy):
                    process.send_signal(signal.SIGINT)
                    due, busy = now + _AGAIN_S, now + _BUSY_S
                time.sleep(_POLL_S)
            return process.returncode
        except BaseException:
            self.close()
            raise
        finally:
            _kill(process)

    def close(self) -> None:
        """Ends it where it still runs, without keeping what it found. Idempotent; in a fork it does nothing."""
        if self._in_fork:
            return
        process, self._process = self._process, None
        if process is not None:
            _kill(process)
        if self._files is not None:
            self._files[1]()
            self._files = None
            if self._mounts and _is_mounted(_AUTOMOUNT):
                with contextlib.suppress(subprocess.CalledProcessError):  # somebody uses it by now
                    leftovers.unmount(_AUTOMOUNT)

    # -- afterwards

    @property
    def output(self) -> Found:
        """What it found."""
        if self._found is None:
            raise RuntimeError(f"{self!r} still runs, or was not started; what it found is there after the with block")
        return self._found


def run_beside(tracer: Tracer[Any], command: Sequence[str], cwd: str | None) -> int:
    """Runs a command to its end beside a tracer.

    Returns:
        The command's exit status: 128 and the signal where one ended it, INTERRUPTED where Ctrl-C did.

    Raises:
        InputError: There is no such program.
    """
    program = shutil.which(command[0])
    if program is None:
        raise InputError(f"no program {command[0]!r}", expected="one on the PATH, or its path")
    with tracer:
        ended = end_of(started([program, *command[1:]], cwd=cwd))
    return shell_status(ended.returncode, interrupted=ended.interrupted)


def waits_in(pid: int, functions: Collection[str]) -> bool:
    """Whether a process waits in one of these functions of the kernel."""
    try:
        where = proc.text(pid, "wchan")
        if where == "0" and proc.stat(pid)[0] == "S":
            # Before Linux 5.16 x86 looked for it by frame pointers only, which kernels with ORC lack.
            where = proc.text(pid, "stack").partition("+")[0].rpartition(" ")[2]
    except OSError:
        return False
    return where in functions


def descriptors_of(pid: int) -> list[str]:
    """What a process has open, as the links of proc(5) have it."""
    found = []
    with contextlib.suppress(OSError):
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                found.append(str(link.readlink()))
    return found


def told(messages: bytes) -> str:
    """What a program had to say, after a colon; empty where that is nothing."""
    said = messages.decode(errors="backslashreplace").strip()
    return f": {said}" if said else ""


def _is_mounted(path: str) -> bool:
    return any(mount.path == path for mount in leftovers.mounts())


def _kill(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.kill()
    process.wait()
