# SPDX-License-Identifier: MIT
"""Recording ftrace to a trace.dat, as a context manager."""

from __future__ import annotations

import contextlib
import difflib
import errno
import itertools
import json
import os
import platform
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, overload

from sampleblk_lab import checked, renamed, run_files, tasks, trust
from sampleblk_lab._native import core
from sampleblk_lab.analysis.run import Run, open_run
from sampleblk_lab.analysis.trust import of_recording
from sampleblk_lab.blocks import StopsAtEnd
from sampleblk_lab.errors import InputError, TraceCommandError, UnsupportedError
from sampleblk_lab.paths import scratch_of
from sampleblk_lab.recording.control import buffer_counts
from sampleblk_lab.recording.session import Session

if TYPE_CHECKING:
    from sampleblk_lab.analysis.block import Block
    from sampleblk_lab.analysis.follow_through import FollowThrough
    from sampleblk_lab.analysis.graph import Graph
    from sampleblk_lab.analysis.io_sizes import IoSizes
    from sampleblk_lab.analysis.offsets import Offsets
    from sampleblk_lab.analysis.syscalls import Syscalls
    from sampleblk_lab.bpftrace import Bpf, BpfOutput
    from sampleblk_lab.profiling import Profile, Profiler
    from sampleblk_lab.table import Table
    from sampleblk_lab.tasks import Who

_probe_numbers = itertools.count()

# How many the kernel is to remember; by default 128, in newer ones thousands.
_TASK_NAMES = 4096

# The systems of events that no interrupt causes, and how many tasks a filter of them has room for: it is of a page.
_OF_CALLS = ("syscalls", "raw_syscalls")
_MOST_FILTERED = 150

# What people call a system call -> what the kernel's event is called.
_KERNEL_NAMES = {
    "stat": "newstat",
    "fstat": "newfstat",
    "lstat": "newlstat",
    "uname": "newuname",
    "umount2": "umount",
    "sendfile": "sendfile64",
}


def _profiler(asked: bool | int | Profiler | None) -> Profiler | None:
    """What samples during a recording that was given ``profile=``."""
    if asked is None or asked is False:
        return None
    from sampleblk_lab.profiling import Profiler, profile

    if isinstance(asked, Profiler):
        return asked
    if not isinstance(asked, int):
        raise InputError(f"profile={asked!r}", expected="samples a second, True, or what lab.profile() returns")
    return profile() if asked is True else profile(hz=asked)


def _bpf(asked: str | os.PathLike[str] | Bpf | None) -> Bpf | None:
    """The script that goes with a recording."""
    if asked is None:
        return None
    from sampleblk_lab.bpftrace import Bpf, bpf

    return asked if isinstance(asked, Bpf) else bpf(asked)


def _kept(script: Bpf) -> BpfOutput:
    """What a script has found; where it failed, what it had printed, which says in each table that it is incomplete."""
    from sampleblk_lab.bpftrace import BpftraceError

    try:
        return script.stop()
    except BpftraceError as error:
        if error.output is None:
            raise
        return error.output


def _condition(text: str) -> tuple[str, str]:
    """An event, and the filter behind its "if"."""
    event, _, condition = (part.strip() for part in text.partition(" if ")) if isinstance(text, str) else ("", "", "")
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
        self.path, self.remove = scratch_of(self, "trace")


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What a recording is asked for, as :func:`record` has it.

    Attributes:
        until: An event and its filter.
    """

    syscalls: bool | list[str]
    graph: list[str]
    only: list[str]
    functions: list[str]
    timed: list[str]
    events: list[str]
    block: bool
    children: bool
    depth: int | None
    buffer_bytes: int
    clock: str
    kallsyms: bool | None
    keep_bytes: int | None
    paths: bool
    until: tuple[str, str] | None
    stacks: bool

    def __post_init__(self) -> None:
        if self.depth is not None and not self.graph:
            raise InputError(f"depth={self.depth} without graph=", expected="the functions whose calls are recorded")
        if self.only and not self.graph:
            raise InputError("only= without graph=", expected="the functions whose calls are recorded, as graph=")
        if (bool(self.graph) + bool(self.functions) + bool(self.timed)) > 1:
            raise InputError(
                "graph=, functions= and timed= together", expected="one of them: there is one tracer at a time"
            )
        if self.paths and self.syscalls is False:
            raise InputError("paths=True without system calls", expected="syscalls=True, or the names of some")

    @property
    def tracer(self) -> str:
        """The kernel's tracer that this takes; empty: none."""
        return "function_graph" if self.graph or self.timed else "function" if self.functions else ""


class Recorder(StopsAtEnd):
    """A recording under way, and then what it recorded. Made by :func:`record`."""

    _KEPT = "the recording"

    def __init__(self, asked: Asked, pids: Who | None, profiler: Profiler | None, bpf: Bpf | None) -> None:
        self._asked = asked
        self._profiler = profiler
        self._bpf = bpf
        self._pids = tasks.ids(pids)
        self._processes = tasks.ids(pids, jobs_by="pids")
        # Each process with the threads that it had when its recording began.
        self._threads: dict[int, list[int]] = {}
        self._session: Session | None = None
        self._readers: core.BufferReaders | None = None
        self._spool: _Spool | None = None
        self._run: Run | None = None
        self._kernel_filters_pids = False
        self._was_triggered = False
        self._enabled: set[str] = set()

    # -- starting

    def start(self) -> Self:
        """Starts recording.

        Raises:
            UnsupportedError: This kernel lacks what was asked for; says what and the remedy.
            InputError: No such event, system call or function.
        """
        if self._session is not None or self._run is not None:
            raise RuntimeError("a Recorder records once; make another one with record()")
        self._note_process()
        # Also without pids=: our own threads are left out by theirs.
        tasks.require_first_pids("a recording")
        self._spool = _Spool()
        try:
            if self._bpf is not None:
                self._bpf.start()  # first: its compiler and its probes take long
            self._session = self._open_session(self._asked.tracer)
            self._configure(self._session)
        except BaseException:
            self._abandon()
            raise
        return self

    def _open_session(self, tracer: str) -> Session:
        """An instance of our own; the top level for a tracer that this kernel allows only there."""
        if not tracer:
            return Session()
        available = Path(f"{core.tracefs_dir()}/available_tracers").read_text()
        if tracer not in available.split():
            raise UnsupportedError(
                f"the {tracer} tracer",
                "this kernel is built without it",
                "use a kernel with CONFIG_FUNCTION_GRAPH_TRACER, such as Debian's in the VM",
            )
        session = Session()
        # Before 6.11 function_graph works for the top level only; an instance lists what it allows.
        if tracer in session.read("available_tracers").split():
            return session
        session.close()
        return Session(top_level=True)

    def _configure(self, session: Session) -> None:
        tracer = self._asked.tracer
        session.stop()
        session.clock(self._asked.clock)
        if self._asked.keep_bytes is None:
            session.buffer_size(self._asked.buffer_bytes)
        else:
            session.option("overwrite")
            session.buffer_size(self._asked.keep_bytes // (os.cpu_count() or 1))
        # Any write forgets the names that are there, also those of a recording beside this one.
        names = Path(f"{core.tracefs_dir()}/saved_cmdlines_size")
        if names.exists() and int(names.read_text()) < _TASK_NAMES:
            session.set_top(names.name, str(_TASK_NAMES))
        # Before the readers, which may be threads of a traced process.
        self._threads = tasks.threads(self._pids)
        if tracer:
            self._configure_tracer(session)
            # Before the readers: with one of them open the kernel changes no tracer (EBUSY).
            session.set("current_tracer", tracer)
        # The readers before the events: as threads of a traced task they would otherwise be its children.
        assert self._spool is not None
        if self._asked.keep_bytes is None:
            self._readers = core.BufferReaders(session.path, self._spool.path)
        wanted = [*self._asked.events]
        if self._asked.block:
            wanted.append("block")
            # The driver's, and not the probes of sessions beside this one, which have the same system.
            found = sorted(Path(session.path, "events/sampleblk").glob("sampleblk_*"))
            wanted += [f"sampleblk:{path.name}" for path in found]
        in_interrupts = any(name.partition(":")[0] not in _OF_CALLS for name in wanted)
        self._kernel_filters_pids = bool(self._pids) and not wanted
        if self._pids and not self._kernel_filters_pids and self._asked.children:
            # Who belongs to the job is then worked out afterwards, and block events of kernel threads stay in.
            wanted.append("sched:sched_process_fork")
        wanted.extend(self._syscall_events(session))
        if (self._pids or self._asked.syscalls) and session.has("events/task/task_newtask"):
            wanted.append("task:task_newtask")  # says which tasks are threads of a process that was there before
        if self._asked.paths:
            wanted.extend(_path_probes(session))
            if session.has("syscall_user_buf_size"):
                session.set("syscall_user_buf_size", "165")  # the most it takes; for longer names there are the probes
        if self._kernel_filters_pids:
            session.set("set_event_pid", self._tasks())
        if self._asked.stacks:
            session.option("stacktrace")
        session.enable(wanted)
        self._enabled = set(session.enabled())
        if self._readers is not None and not self._kernel_filters_pids:
            readers = self._readers.thread_ids
            if in_interrupts:
                # With set_event_notrace_pid all would be missing that interrupts do while a reader runs, such as ending
                # requests.
                others = " && ".join(f"common_pid != {thread}" for thread in readers[:_MOST_FILTERED])
                for system, _, name in (event.partition(":") for event in wanted):
                    if system in _OF_CALLS:
                        one = f"{name}/" if name.isidentifier() else ""
                        session.set(f"events/{system}/{one}filter", others)
            elif session.has("set_event_notrace_pid"):
                session.set("set_event_notrace_pid", " ".join(map(str, readers)))
        if self._asked.until is not None:
            event, condition = self._asked.until
            session.trigger(event, "traceoff" + (f" if {condition}" if condition else ""))
        if self._profiler is not None:
            self._profiler.limit_to(self._processes, children=self._asked.children)
            self._profiler.start()
        # Last, or the threads that record would be followed as children of the process that they are of.
        if self._kernel_filters_pids:
            session.set("options/event-fork", "1" if self._asked.children else "0")
        if tracer and self._pids:
            session.set("options/function-fork", "1" if self._asked.children else "0")
        session.start()

    def _tasks(self) -> str:
        return " ".join(str(thread) for found in self._threads.values() for thread in found)

    def _configure_tracer(self, session: Session) -> None:
        asked = self._asked
        try:
            if asked.graph:
                session.graph_functions(*asked.graph, depth=asked.depth or 0)
            # Of one level nothing is seen but the roots, and all functions take long to be switched on and off.
            part = [*asked.graph, *asked.only] if asked.only or asked.depth == 1 else []
            if traced := asked.functions or asked.timed or part:
                session.functions(*traced)
        except OSError as error:
            names = ", ".join(map(repr, [*(asked.graph or asked.functions or asked.timed), *asked.only]))
            raise InputError(
                f"no traceable function matches {names}", expected="a name or glob of available_filter_functions"
            ) from error
        if self._pids:
            session.set("set_ftrace_pid", self._tasks())

    def _syscall_events(self, session: Session) -> list[str]:
        if self._asked.syscalls is False:
            return []
        if not session.has("events/syscalls"):
            raise UnsupportedError(
                "recording system calls", "this kernel has no syscalls events", "use one with CONFIG_FTRACE_SYSCALLS"
            )
        if self._asked.syscalls is True:
            return ["syscalls"]
        out: list[str] = []
        for name in self._asked.syscalls:
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

    def add_pids(self, pids: Who) -> None:
        """Also traces these, as `pids` of :func:`record` names them, such as a job right after it was forked.

        A profile that is under way keeps to those that it was begun with.
        """
        added = tasks.ids(pids)
        self._pids += added
        if self._session is None:
            self._processes += tasks.ids(pids, jobs_by="pids")
            return
        threads = tasks.threads(added)
        self._threads |= threads
        text = " ".join(str(thread) for found in threads.values() for thread in found)
        if self._kernel_filters_pids:
            self._session.set("set_event_pid", text, append=True)
        if self._asked.tracer:
            self._session.set("set_ftrace_pid", text, append=True)

    @property
    def triggered(self) -> bool:
        """Whether the condition of `until` came true and ended the recording."""
        if self._session is None:
            return self._was_triggered
        return self._asked.until is not None and self._session.read("tracing_on").strip() == "0"

    def mark(self, text: str) -> None:
        """Writes a line into the trace, an ``ftrace:print`` event; after `until` came true none, as of other events."""
        if self._session is None:
            raise RuntimeError("mark() is for a recording that runs")
        try:
            self._session.mark(text)
        except OSError as error:
            if error.errno != errno.EBADF or not self.triggered:  # what the kernel says of a buffer that is off
                raise

    # -- stopping

    def stop(self) -> Run:
        """Ends the recording, puts everything back and returns what was recorded. Idempotent."""
        if self._run is not None:
            return self._run
        self._refuse_in_fork()
        session, readers, spool = self._session, self._readers, self._spool
        if session is None or spool is None:
            raise RuntimeError("this recording was not started")
        try:
            self._was_triggered = self.triggered
            missed = session.missed_probes()
            session.stop()
            if self._profiler is not None:
                self._profiler.stop()
                self._profiler.hand_over(Path(spool.path))
            if self._bpf is not None:
                _kept(self._bpf).save(Path(spool.path, run_files.BPF))
            if readers is None:
                readers = core.BufferReaders(session.path, spool.path)
            files = readers.stop()
            # The kernel's own count, from when the buffer was emptied last: by us, as it began.
            read = buffer_counts(session.path)["read events"]
            gone = self._enabled - set(session.enabled())
            clock = session.read("trace_clock").partition("[")[2].partition("]")[0]
            path = f"{spool.path}/trace.dat"
            addresses = bool(self._asked.tracer) or self._asked.stacks
            kallsyms = addresses if self._asked.kallsyms is None else self._asked.kallsyms
            core.write_trace_file(path, session.path, session.enabled(), kallsyms, files)
            for file in files:
                os.unlink(file.path)  # noqa: PTH108
            found = {"missed_probes": missed, "read_events": read, "gone_events": sorted(gone), "last_clock": clock}
            self._note_options(Path(spool.path), **found)
        except BaseException as error:
            self._abandon()
            if isinstance(error, OSError) and error.errno == errno.ENOSPC:
                why = f"{error.strerror}: nothing of the recording is kept; $TMPDIR says where it is collected"
                raise OSError(error.errno, why, error.filename) from error
            raise
        self._session = None
        self._readers = None
        session.close()
        self._run = open_run(spool.path)
        # The files stay for as long as somebody has the run.
        self._run._spool = spool  # noqa: SLF001
        run = self._run
        trust.later(lambda: of_recording(run))
        return run

    def attach(self, name: str, text: str) -> None:
        """Puts a file beside what was recorded, such as a job's ``result.json``; :meth:`save` keeps it.

        Args:
            name: The file's name, without folders.
            text: Its content.
        """
        directory = self.run.directory
        assert directory is not None
        if Path(name).name != name:
            raise InputError(f"name={name!r}", expected="a file's name without folders")
        run_files.attach(directory, name, text)

    def _note_options(self, directory: Path, **found: Any) -> None:
        asked = self._asked
        note: dict[str, Any] = {
            "syscalls": asked.syscalls,
            "graph": asked.graph,
            "functions": asked.functions,
            "timed": asked.timed,
            "events": asked.events,
            "block": asked.block,
            "pids": list(dict.fromkeys(thread for found in self._threads.values() for thread in found)),
            "threads": {str(pid): found for pid, found in self._threads.items()},
            "children": asked.children,
            # Then all that is in the recording is of these tasks and their children.
            "pids_by_kernel": self._kernel_filters_pids,
            "clock": asked.clock,
            "buffer_bytes": asked.buffer_bytes,
            "until": asked.until,
            "triggered": self._was_triggered,
            **found,
            "kernel": platform.release(),
        }
        (directory / run_files.RECORDING).write_text(json.dumps(note, indent=2) + "\n")
        from sampleblk_lab.results.machine import environment

        (directory / "env.json").write_text(json.dumps(environment(), indent=1) + "\n")

    def _abandon(self) -> None:
        """Ends everything without a recording; nothing stays behind."""
        session, readers, spool = self._session, self._readers, self._spool
        self._session = self._readers = self._spool = None
        with contextlib.ExitStack() as last_first:  # each, whatever the one before it says
            if spool is not None:
                last_first.callback(spool.remove)
            if session is not None:
                last_first.callback(session.close)
            if readers is not None:
                last_first.callback(readers.stop)
            if self._bpf is not None:
                last_first.callback(self._bpf.close)
            if self._profiler is not None:
                last_first.callback(self._profiler.stop)
            if session is not None:
                last_first.callback(session.stop)

    def close(self) -> None:
        """Ends a recording that still runs, without keeping it, and puts everything back.

        Idempotent; in a fork it does nothing.
        """
        if self._session is not None and not self._in_fork:
            self._abandon()

    # -- afterwards

    @property
    def run(self) -> Run:
        """What was recorded."""
        if self._run is None:
            raise RuntimeError("the recording still runs, or was not started; its views exist after the with block")
        return self._run

    def save(self, directory: str | os.PathLike[str]) -> Run:
        """See :meth:`Run.save`."""
        return self.run.save(directory)

    # Every view of the run, each as it is there: tests/test_public_names.py compares the signatures.

    @renamed.parameters(pid="pids")
    def syscalls(self, *, pids: Who | None = None, **selection: Any) -> Syscalls:
        """See :meth:`Run.syscalls`."""
        return self.run.syscalls(pids=pids, **selection)

    @renamed.parameters(pid="pids")
    def graph(self, function: str | Iterable[str] | None = None, *, pids: Who | None = None, **selection: Any) -> Graph:
        """See :meth:`Run.graph`."""
        return self.run.graph(function, pids=pids, **selection)

    @renamed.parameters(pid="pids")
    def io_sizes(self, *, pids: Who | None = None, **selection: Any) -> IoSizes:
        """See :meth:`Run.io_sizes`."""
        return self.run.io_sizes(pids=pids, **selection)

    @renamed.parameters(pid="pids")
    def offsets(self, *, pids: Who | None = None, **selection: Any) -> Offsets:
        """See :meth:`Run.offsets`."""
        return self.run.offsets(pids=pids, **selection)

    @renamed.parameters(pid="pids")
    def follow_through(self, syscall: str, index: int = 0, *, pids: Who | None = None) -> FollowThrough:
        """See :meth:`Run.follow_through`."""
        return self.run.follow_through(syscall, index, pids=pids)

    def block(self, **selection: Any) -> Block:
        """See :meth:`Run.block`."""
        return self.run.block(**selection)

    def profile(self, **options: Any) -> Profile:
        """See :meth:`Run.profile`."""
        return self.run.profile(**options)

    def bpf(self) -> BpfOutput:
        """See :meth:`Run.bpf`."""
        return self.run.bpf()

    def counts(self, **selection: Any) -> Table:
        """See :meth:`Run.counts`."""
        return self.run.counts(**selection)

    def events(self, event: str, **selection: Any) -> Table:
        """See :meth:`Run.events`."""
        return self.run.events(event, **selection)

    def tables(self, *events: str, **selection: Any) -> dict[str, Table]:
        """See :meth:`Run.tables`."""
        return self.run.tables(*events, **selection)

    def batches(self, event: str, rows: int = 1 << 20, **selection: Any) -> Iterator[Table]:
        """See :meth:`Run.batches`."""
        return self.run.batches(event, rows, **selection)


@overload
def record(*, command: None = None, pids: Who | None = None, **what: Any) -> Recorder: ...
@overload
def record(*, command: str | Sequence[str | os.PathLike[str]], **what: Any) -> Run: ...
@renamed.parameters(pid="pids")
def record(
    *,
    command: str | Sequence[str | os.PathLike[str]] | None = None,
    syscalls: bool | str | Iterable[str] = False,
    graph: str | Iterable[str] | None = None,
    only: str | Iterable[str] = (),
    functions: str | Iterable[str] | None = None,
    events: str | Iterable[str] = (),
    block: bool = False,
    pids: Who | None = None,
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
    profile: bool | int | Profiler | None = None,
    bpf: str | os.PathLike[str] | Bpf | None = None,
    **options: Any,
) -> Recorder | Run:
    """Records ftrace while the with block runs, or while a command does.

    Runs as root on a kernel with tracefs: inside the VM (``sampleblk-python``), or here when you mean it. It uses an
    ftrace instance of its own; for a tracer that this kernel allows only at the top level (function_graph before
    6.11) it uses that, when nobody else does. Everything is put back afterwards, also what a killed recording left.

    Args:
        command: Runs this to its end and records it, from its ``execve`` on, with all that it starts; a text is split
            as a shell would. The run is returned. None: records while the with block of the result runs.
        syscalls: True for all system calls, or the names of some.
        graph: Functions, or globs, whose call graph is recorded (``set_graph_function``).
        only: Of the call graph only these functions or globs (``"*:mod:ext4"``: of a module) and its roots; what others
            take is their callers'. Fewer functions are switched on and off sooner: all of them take an emulated guest
            11 s each way, a tenth of them 1 s.
        functions: Functions, or globs, each call of which is recorded.
        events: More events, as ``"system:name"``, ``"system"`` or with globs.
        block: Also the block layer's events and those of the sampleblk driver.
        pids: Only these: a JobRun, processes (all their threads, those to come included), threads, or the ids of
            either. Default: all tasks, and of our own readers no system calls.
        children: With `pids`: also what those tasks fork.
        depth: How many levels of the call graph; default all. With 1 no other functions are switched on.
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
        profile: Also samples what the CPUs run, so many times a second (True: 997), or as :func:`profile` was told,
            ``profile=lab.profile(hz=99, offcpu=True)``; see :meth:`Run.profile`. Processes are sampled whole.
        bpf: Also a bpftrace script, by name, path or text, or what :func:`bpf` returns for one with arguments; see
            :meth:`Run.bpf`. Its probes are attached before the recording begins; it sees all tasks, and its ``nsecs``
            is of the clock ``mono``.
        **options: For the command, as :class:`subprocess.Popen` takes them.

    Returns:
        The recording: start it with ``with``, then ``save()`` it or use its views. With a command: the :class:`Run`,
        whose ``command`` has the exit status.

    Raises:
        FileNotFoundError: No such command.
    """
    if command is None and options:
        raise TypeError(f"record() has no argument {', '.join(options)}")
    if command is not None and pids is not None:
        raise InputError("both a command and pids", expected="one of them")
    words = [] if command is None else checked.command(command)
    asked = Asked(
        syscalls=syscalls if isinstance(syscalls, bool) else checked.names("syscalls", syscalls),
        graph=[] if graph is None else checked.names("graph", graph),
        only=checked.names("only", only),
        functions=[] if functions is None else checked.names("functions", functions),
        timed=checked.names("timed", timed),
        events=checked.names("events", events),
        block=checked.flag("block", block),
        children=checked.flag("children", children),
        depth=None if depth is None else checked.count("depth", depth),
        buffer_bytes=core.parse_bytes(str(buffer), "buffer"),
        clock=clock,
        kallsyms=None if kallsyms is None else checked.flag("kallsyms", kallsyms),
        keep_bytes=None if keep is None else core.parse_bytes(str(keep), "keep"),
        paths=checked.flag("paths", paths),
        until=None if until is None else _condition(until),
        stacks=checked.flag("stacks", stacks),
    )
    recorder = Recorder(asked, pids, _profiler(profile), _bpf(bpf))
    if command is None:
        return recorder
    from sampleblk_lab.recording.command import record_command

    return record_command(recorder, words, options)
