# SPDX-License-Identifier: MIT
"""Recording ftrace to a trace.dat, as a context manager."""

from __future__ import annotations

import difflib
import itertools
import json
import os
import platform
import shutil
import tempfile
import weakref
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from sampleblk_lab._native import core
from sampleblk_lab.analysis.run import Run, open_run
from sampleblk_lab.errors import InputError, TraceCommandError, UnsupportedError
from sampleblk_lab.recording.session import Session

if TYPE_CHECKING:
    from types import TracebackType

    from sampleblk_lab.analysis.graph import Graph
    from sampleblk_lab.analysis.io_sizes import IoSizes
    from sampleblk_lab.analysis.syscalls import Syscalls
    from sampleblk_lab.table import Table

_probe_numbers = itertools.count()

# What people call a system call -> what the kernel's event is called.
_KERNEL_NAMES = {
    "stat": "newstat",
    "fstat": "newfstat",
    "lstat": "newlstat",
    "uname": "newuname",
    "umount2": "umount",
    "sendfile": "sendfile64",
}


def _names(value: str | Iterable[str]) -> list[str]:
    return [value] if isinstance(value, str) else list(value)


def _pids(value: int | Iterable[int] | None) -> list[int]:
    if value is None:
        return []
    return [value] if isinstance(value, int) else list(value)


def _condition(text: str) -> tuple[str, str]:
    """An event, and the filter behind its "if"."""
    event, _, condition = (part.strip() for part in text.partition(" if "))
    if event.count(":") != 1 or " " in event:
        raise InputError(f"until={text!r}", expected="'system:event', or 'system:event if field == 1'")
    return event, condition


def _path_probes(session: Session) -> list[str]:
    """Makes the probes that read path names where they are in the kernel already: a user's page may be away."""
    number = next(_probe_numbers)
    out: list[str] = []
    refusal: TraceCommandError | None = None
    # Compilers put the one into the other or not; where both are passed, both tell the same.
    for function in ("getname_flags", "getname"):
        name = f"path_{os.getpid()}_{number}_{function}"
        try:
            # struct filename begins with its name and the user's pointer to it, since 3.7 (include/linux/fs.h).
            out.append(session.kretprobe(name, function, path="+0(+0($retval)):string", pointer="+8($retval):x64"))
        except TraceCommandError as error:
            refusal = error
    # From 6.19 on the events of the calls carry the names themselves.
    if not out and "__filename_val" not in session.format("syscalls:sys_enter_openat"):
        raise UnsupportedError("paths=True", f"this kernel takes no probe of getname(): {refusal}")
    return out


class _Spool:
    """A temporary directory that goes when nobody can reach its recording any more."""

    def __init__(self) -> None:
        self.path = tempfile.mkdtemp(prefix="sampleblk-trace-")
        self.remove = weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)


class Recorder:
    """A recording under way, and then what it recorded. Made by :func:`record`."""

    def __init__(
        self,
        *,
        syscalls: bool | str | Iterable[str],
        graph: str | Iterable[str] | None,
        functions: str | Iterable[str] | None,
        events: str | Iterable[str],
        block: bool,
        pid: int | Iterable[int] | None,
        children: bool,
        depth: int | None,
        buffer: int | str,
        clock: str,
        kallsyms: bool | None,
        keep: int | str | None,
        timed: str | Iterable[str],
        paths: bool,
        until: str | None,
        stacks: bool,
    ) -> None:
        self._stacks = stacks
        self._timed = _names(timed)
        self._keep = None if keep is None else core.parse_bytes(str(keep), "keep")
        self._syscalls = syscalls if isinstance(syscalls, bool) else _names(syscalls)
        self._graph = [] if graph is None else _names(graph)
        self._functions = [] if functions is None else _names(functions)
        if (bool(self._graph) + bool(self._functions) + bool(self._timed)) > 1:
            raise InputError(
                "graph=, functions= and timed= together", expected="one of them: there is one tracer at a time"
            )
        self._paths = paths
        if paths and syscalls is False:
            raise InputError("paths=True without system calls", expected="syscalls=True, or the names of some")
        self._until = None if until is None else _condition(until)
        self._events = _names(events)
        self._block = block
        self._pids = _pids(pid)
        self._children = children
        self._depth = depth
        self._buffer = core.parse_bytes(str(buffer), "buffer")
        self._clock = clock
        self._kallsyms = kallsyms
        self._session: Session | None = None
        self._readers: core.BufferReaders | None = None
        self._spool: _Spool | None = None
        self._run: Run | None = None
        self._kernel_filters_pids = False
        self._was_triggered = False

    # -- starting

    def start(self) -> Self:
        """Starts recording.

        Raises:
            UnsupportedError: This kernel lacks what was asked for; says what and the remedy.
            InputError: No such event, system call or function.
        """
        if self._session is not None or self._run is not None:
            raise RuntimeError("a Recorder records once; make another one with record()")
        self._spool = _Spool()
        tracer = "function_graph" if self._graph or self._timed else "function" if self._functions else ""
        try:
            self._session = self._open_session(tracer)
            self._configure(self._session, tracer)
        except BaseException:
            self._abandon()
            raise
        return self

    def _open_session(self, tracer: str) -> Session:
        """An instance of our own; the top level for a tracer that this kernel allows only there."""
        available = Path(f"{core.tracefs_dir()}/available_tracers").read_text()
        if tracer and tracer not in available.split():
            raise UnsupportedError(
                f"the {tracer} tracer",
                "this kernel is built without it",
                "use a kernel with CONFIG_FUNCTION_GRAPH_TRACER, such as Debian's in the VM",
            )
        session = Session()
        if not tracer:
            return session
        # Before 6.11 function_graph works for the top level only; an instance lists what it allows.
        if tracer in session.read("available_tracers").split():
            return session
        session.close()
        return Session(top_level=True)

    def _configure(self, session: Session, tracer: str) -> None:
        session.off()
        session.clock(self._clock)
        if self._keep is None:
            session.buffer_size(self._buffer)
        else:
            session.option("overwrite")
            session.buffer_size(self._keep // (os.cpu_count() or 1))
        if session.has_top("saved_cmdlines_size"):
            session.set_top("saved_cmdlines_size", "4096")
        if tracer:
            self._configure_tracer(session)
            # Before the readers: with one of them open the kernel changes no tracer (EBUSY).
            session.set("current_tracer", tracer)
        # The readers before the events: as threads of a traced task they would otherwise be its children.
        assert self._spool is not None
        if self._keep is None:
            self._readers = core.BufferReaders(session.path, self._spool.path)
        wanted = [*self._events]
        if self._block:
            wanted.append("block")
            if session.has("events/sampleblk"):
                wanted.append("sampleblk")
        self._kernel_filters_pids = bool(self._pids) and not wanted
        if self._pids and not self._kernel_filters_pids and self._children:
            # Who belongs to the job is then worked out afterwards, and block events of kernel threads stay in.
            wanted.append("sched:sched_process_fork")
        wanted.extend(self._syscall_events(session))
        if self._paths:
            wanted.extend(_path_probes(session))
            if session.has("syscall_user_buf_size"):
                session.set("syscall_user_buf_size", "165")  # the most it takes; for longer names there are the probes
        if self._kernel_filters_pids:
            text = " ".join(map(str, self._pids))
            session.set("options/event-fork", "1" if self._children else "0")
            session.set("set_event_pid", text)
        if self._stacks:
            session.option("stacktrace")
        session.enable(wanted)
        if self._readers is not None and not self._kernel_filters_pids and session.has("set_event_notrace_pid"):
            session.set("set_event_notrace_pid", " ".join(map(str, self._readers.thread_ids)))
        if self._until is not None:
            event, condition = self._until
            session.trigger(event, "traceoff" + (f" if {condition}" if condition else ""))
        session.on()

    def _configure_tracer(self, session: Session) -> None:
        try:
            # The line end matters: without it the kernel looks at the name only at close(2), which reports no error.
            if self._graph:
                session.set_top("set_graph_function", "\n")
                for name in self._graph:
                    session.set_top("set_graph_function", f"{name}\n", append=True)
                session.set_top("max_graph_depth", str(self._depth or 0))
            else:
                session.set("set_ftrace_filter", "\n")
                for name in self._functions or self._timed:
                    session.set("set_ftrace_filter", f"{name}\n", append=True)
        except OSError as error:
            names = ", ".join(map(repr, self._graph or self._functions or self._timed))
            raise InputError(
                f"no traceable function matches {names}", expected="a name or glob of available_filter_functions"
            ) from error
        if self._pids:
            session.set("options/function-fork", "1" if self._children else "0")
            session.set("set_ftrace_pid", " ".join(map(str, self._pids)))

    def _syscall_events(self, session: Session) -> list[str]:
        if self._syscalls is False:
            return []
        if not session.has("events/syscalls"):
            raise UnsupportedError(
                "recording system calls", "this kernel has no syscalls events", "use one with CONFIG_FTRACE_SYSCALLS"
            )
        if self._syscalls is True:
            return ["syscalls"]
        out: list[str] = []
        for name in self._syscalls:
            event = _KERNEL_NAMES.get(name, name)
            if not session.has(f"events/syscalls/sys_enter_{event}"):
                known = [
                    path.name.removeprefix("sys_enter_")
                    for path in Path(f"{session.path}/events/syscalls").glob("sys_enter_*")
                ]
                near = difflib.get_close_matches(name, known, 3)
                raise InputError(
                    f"no system call {name!r} on this kernel", expected=" or ".join(near) or "a known name"
                )
            out += [f"syscalls:sys_enter_{event}", f"syscalls:sys_exit_{event}"]
        return out

    # -- while it runs

    def add_pids(self, pids: int | Iterable[int]) -> None:
        """Also follows these processes, such as a job's right after they were forked."""
        added = _pids(pids)
        self._pids += added
        if self._session is None:
            return
        text = " ".join(map(str, added))
        if self._kernel_filters_pids:
            self._session.set("set_event_pid", text, append=True)
        if self._graph or self._functions or self._timed:
            self._session.set("set_ftrace_pid", text, append=True)

    @property
    def triggered(self) -> bool:
        """Whether the condition of `until` came true and ended the recording."""
        if self._session is None:
            return self._was_triggered
        return self._until is not None and self._session.read("tracing_on").strip() == "0"

    def mark(self, text: str) -> None:
        """Writes a line into the trace, an ``ftrace:print`` event."""
        if self._session is None:
            raise RuntimeError("mark() is for a recording that runs")
        self._session.mark(text)

    # -- stopping

    def stop(self) -> Run:
        """Ends the recording, puts everything back and returns what was recorded. Idempotent."""
        if self._run is not None:
            return self._run
        session, readers, spool = self._session, self._readers, self._spool
        if session is None or spool is None:
            raise RuntimeError("this recording was not started")
        try:
            self._was_triggered = self.triggered
            missed = session.missed_probes()
            session.off()
            if readers is None:
                readers = core.BufferReaders(session.path, spool.path)
            files = readers.stop()
            path = f"{spool.path}/trace.dat"
            addresses = bool(self._graph or self._functions or self._timed or self._stacks)
            kallsyms = addresses if self._kallsyms is None else self._kallsyms
            core.write_trace_file(path, session.path, session.enabled(), kallsyms, files)
            for file in files:
                os.unlink(file.path)  # noqa: PTH108
            self._note_options(Path(spool.path), missed)
        except BaseException:
            self._abandon()
            raise
        self._session = None
        self._readers = None
        session.close()
        self._run = open_run(spool.path)
        return self._run

    def _note_options(self, directory: Path, missed_probes: int) -> None:
        note: dict[str, Any] = {
            "syscalls": self._syscalls,
            "graph": self._graph,
            "functions": self._functions,
            "events": self._events,
            "block": self._block,
            "pids": self._pids,
            "children": self._children,
            # Then all that is in the recording is of these tasks and their children.
            "pids_by_kernel": self._kernel_filters_pids,
            "clock": self._clock,
            "buffer_bytes": self._buffer,
            "until": self._until,
            "triggered": self._was_triggered,
            "missed_probes": missed_probes,
            "kernel": platform.release(),
        }
        (directory / "recording.json").write_text(json.dumps(note, indent=2) + "\n")

    def _abandon(self) -> None:
        """Ends everything without a recording; nothing stays behind."""
        session, readers, spool = self._session, self._readers, self._spool
        self._session = self._readers = self._spool = None
        try:
            if session is not None:
                session.off()
            if readers is not None:
                readers.stop()
        finally:
            del readers
            if session is not None:
                session.close()
            if spool is not None:
                spool.remove()

    def close(self) -> None:
        """Ends a recording that still runs, without keeping it, and puts everything back. Idempotent."""
        if self._session is not None:
            self._abandon()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.stop()
            return
        # Keep what was recorded up to the exception, but let that one through whatever happens here.
        try:
            self.stop()
        except Exception as error:
            if value is not None:
                value.add_note(f"the recording could not be kept: {error}")

    # -- afterwards

    @property
    def run(self) -> Run:
        """What was recorded."""
        if self._run is None:
            raise RuntimeError("the recording still runs, or was not started; its views exist after the with block")
        return self._run

    def save(self, directory: str | os.PathLike[str]) -> Run:
        """Copies the recording into `directory`, which is made, and returns the run opened from there."""
        source = self.run.directory
        assert source is not None
        target = Path(directory)
        target.mkdir(parents=True, exist_ok=True)
        for file in source.iterdir():
            shutil.copyfile(file, target / file.name)
        return open_run(target)

    def syscalls(self, *, pid: int | Iterable[int] | None = None, **selection: Any) -> Syscalls:
        """See :meth:`Run.syscalls`."""
        return self.run.syscalls(pid=pid, **selection)

    def graph(
        self, function: str | Iterable[str] | None = None, *, pid: int | Iterable[int] | None = None, **selection: Any
    ) -> Graph:
        """See :meth:`Run.graph`."""
        return self.run.graph(function, pid=pid, **selection)

    def io_sizes(self, *, pid: int | Iterable[int] | None = None, **selection: Any) -> IoSizes:
        """See :meth:`Run.io_sizes`."""
        return self.run.io_sizes(pid=pid, **selection)

    def events(self, event: str, **selection: Any) -> Table:
        """See :meth:`Run.events`."""
        return self.run.events(event, **selection)


def record(
    *,
    syscalls: bool | str | Iterable[str] = False,
    graph: str | Iterable[str] | None = None,
    functions: str | Iterable[str] | None = None,
    events: str | Iterable[str] = (),
    block: bool = False,
    pid: int | Iterable[int] | None = None,
    children: bool = True,
    depth: int | None = None,
    buffer: int | str = "8M",
    clock: str = "mono",
    kallsyms: bool | None = None,
    keep: int | str | None = None,
    timed: str | Iterable[str] = (),
    paths: bool = False,
    until: str | None = None,
    stacks: bool = False,
) -> Recorder:
    """Records ftrace while the with block runs.

    Runs as root on a kernel with tracefs: inside the VM (``sampleblk-python``), or here when you mean it. It uses an
    ftrace instance of its own; for a tracer that this kernel allows only at the top level (function_graph before
    6.11) it uses that, when nobody else does. Everything is put back afterwards, also what a killed recording left.

    Args:
        syscalls: True for all system calls, or the names of some.
        graph: Functions, or globs, whose call graph is recorded (``set_graph_function``).
        functions: Functions, or globs, each call of which is recorded.
        events: More events, as ``"system:name"``, ``"system"`` or with globs.
        block: Also the block layer's events and those of the sampleblk driver.
        pid: Only these tasks (thread ids). Default: all tasks but our own readers.
        children: With `pid`: also what those tasks fork.
        depth: How many levels of the call graph; default all.
        buffer: The ring buffer, in bytes a CPU, such as ``"8M"``.
        clock: The trace clock; ``mono`` is CLOCK_MONOTONIC in ns, as ``time.monotonic_ns()`` reads it.
        kallsyms: Keep the kernel's symbols in the file; default only where functions or stacks are traced.
        timed: Functions, or globs, each call of which is recorded with its duration, but not what it calls.
        keep: A flight recorder: nothing is read while it runs, the ring buffer overwrites its oldest events, and at
            the end the last `keep` bytes of all CPUs together are kept. What was overwritten counts as lost.
        until: An event, ``"system:name"``, also under a condition, ``"block:block_rq_complete if error != 0"``: once
            it happens the buffer takes nothing more. With `keep` it holds what led to it; ``triggered`` tells.
        paths: Also the path names that the kernel copied from its callers (by a probe of ``getname_flags``), which
            ``syscalls().lines()`` then shows.
        stacks: Also the kernel stack of each event. ``open_profile("trace.dat").off_cpu()`` is then a picture of why
            threads slept, where ``sched:sched_switch`` and ``sched:sched_waking`` were recorded.

    Returns:
        The recording: start it with ``with``, then ``save()`` it or use its views.
    """
    return Recorder(
        syscalls=syscalls,
        graph=graph,
        functions=functions,
        events=events,
        block=block,
        pid=pid,
        children=children,
        depth=depth,
        buffer=buffer,
        clock=clock,
        kallsyms=kallsyms,
        keep=keep,
        timed=timed,
        paths=paths,
        until=until,
        stacks=stacks,
    )
