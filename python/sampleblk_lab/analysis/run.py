# SPDX-License-Identifier: MIT
"""A run: a directory with a trace.dat in it, or a bare trace.dat by whomever it was recorded."""

from __future__ import annotations

import functools
import os
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sampleblk_lab import checked, renamed, run_files, tasks
from sampleblk_lab._native import core
from sampleblk_lab.errors import InputError, UnsupportedError
from sampleblk_lab.results import machine
from sampleblk_lab.table import Table
from sampleblk_lab.texts import Whole, read_json, read_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from sampleblk_lab.analysis.block import Block
    from sampleblk_lab.analysis.follow_through import FollowThrough
    from sampleblk_lab.analysis.graph import Graph
    from sampleblk_lab.analysis.io_sizes import IoSizes
    from sampleblk_lab.analysis.offsets import Offsets
    from sampleblk_lab.analysis.syscalls import Syscalls
    from sampleblk_lab.bpftrace import BpfOutput
    from sampleblk_lab.profiling import Profile
    from sampleblk_lab.tasks import Who
    from sampleblk_lab.workload import FioResult

# What the files of a run's directory may have (texts.read_json).
_OPTIONS = {
    "pids": [int],
    "threads": {...: [int]},
    "children": bool,
    "pids_by_kernel": bool,
    "missed_probes": int,
    "imported": dict,
}
_COMMAND = Whole({"command": [str], "returncode": int, "elapsed_s": float, "user_s": float, "system_s": float})

# What selects events beside start, stop and buffer.
_OF_BATCHES = ("fields", "pids", "cpus", "comm", "symbols")
_OF_EVENTS = (*_OF_BATCHES, "threads")

_CLONE_THREAD = 0x10000  # include/uapi/linux/sched.h

# Of which events views are made.
_SYSCALLS = "(raw_)?syscalls:sys_.*"
_TRANSFERS = "raw_syscalls:sys_.*|syscalls:sys_exit_p?(read|write)(64|v|v2)?"
_BLOCK = "block:block_(bio_|getrq|rq_).*"
_GRAPH = "ftrace:(funcgraph|fgraph)_.*"


def open_run(path: str | os.PathLike[str], *, errors: str = "strict") -> Run:
    """Opens a saved run's directory, or a trace.dat file.

    Args:
        path: The directory or the file.
        errors: ``"strict"`` raises at what cannot be read; ``"skip"`` reads all that can be and counts the rest.

    Raises:
        OSError: There is no such directory or file. What it has is looked at when it is asked for: only then a file
            that is no trace.dat, or truncated or corrupt, is a FormatError, which says where and what was expected.
    """
    Path(path).stat()
    return Run(path, errors=errors)


class Run:
    """One recording, opened for reading. Made by :func:`open_run` or ``Recorder.save``.

    Every table of it carries the recording's loss counts in its metadata (``lost_events``).
    """

    def __init__(self, path: str | os.PathLike[str], *, errors: str = "strict") -> None:
        path = Path(path)
        #: The run's directory; None for a bare trace.dat.
        self.directory: Path | None = path if path.is_dir() else None
        #: The trace.dat itself.
        self.trace_path = path / "trace.dat" if path.is_dir() else path
        self._errors = errors
        # What keeps the files of a run that was not saved.
        self._spool: object = None

    @functools.cached_property
    def file(self) -> core.TraceFile:
        """The core's view of the trace.dat."""
        return core.TraceFile(str(self.trace_path), self._errors)

    @functools.cached_property
    def options(self) -> dict[str, Any]:
        """What the recording was asked for (recording.json); empty for others' files."""
        return self._told(run_files.RECORDING, _OPTIONS)

    def _told(self, name: str, shape: dict[str, Any]) -> dict[str, Any]:
        """One of the directory's files, an object of JSON; empty where there is none."""
        path = self.directory / name if self.directory else None
        return {} if path is None or not path.exists() else read_json(path, shape)

    @property
    def environment(self) -> dict[str, Any]:
        """On what it was recorded (env.json); empty for others' files."""
        return self._told("env.json", machine.ENVIRONMENT)

    @functools.cached_property
    def result(self) -> FioResult | None:
        """What the run's job measured (result.json, fio's JSON+); None where no job ran."""
        path = self.directory / "result.json" if self.directory else None
        if path is None or not path.exists():
            return None
        # By its public name: jobs record themselves, so that their package comes after this one.
        import sampleblk_lab as lab
        from sampleblk_lab import trust

        text, told = path.with_name("report.txt"), path.with_name("trust.json")
        return lab.FioResult(
            read_json(path, dict),
            read_text(text) if text.exists() else "",
            source=str(path),
            judge=lambda _: trust.read(told) if told.exists() else [],
        )

    @property
    def command(self) -> dict[str, Any]:
        """The command that was recorded: command, returncode, elapsed_s, user_s, system_s; empty where none was.

        ``interrupted`` is true where Ctrl-C ended it.
        """
        return self._told("command.json", _COMMAND)

    def profile(self, **options: Any) -> Profile:
        """What the CPUs ran, of a run that was recorded with ``profile=``.

        Args:
            options: As :func:`open_profile` takes them.

        Raises:
            UnsupportedError: It was not.
        """
        from sampleblk_lab.profiling import open_profile

        if self.directory is None or not (self.directory / "perf.data").exists():
            raise UnsupportedError(f"a profile of {self!r}", "it has no perf.data", "record(profile=997)")
        profile = open_profile(self.directory, **options)
        profile._keep = self._spool  # noqa: SLF001
        return profile

    def bpf(self) -> BpfOutput:
        """What the bpftrace script found, of a run that was recorded with ``bpf=``.

        Raises:
            UnsupportedError: It was not.
        """
        from sampleblk_lab.bpftrace.output import read_bpftrace

        if self.directory is None or not (self.directory / run_files.BPF).exists():
            raise UnsupportedError(f"what bpftrace found beside {self!r}", "it has none", 'record(bpf="block-latency")')
        return read_bpftrace(self.directory / run_files.BPF)

    def save(self, directory: str | os.PathLike[str]) -> Run:
        """Copies everything of the run into `directory`, which is made, and returns the run opened from there.

        A run that was saved there before is replaced; other files of the directory stay.

        That is ``trace.dat``, ``recording.json`` and ``env.json`` (what was asked for, on what machine), for a job
        ``result.json`` and ``report.txt``, for a command ``command.json``, for a profile ``perf.data`` with what it
        takes to read it elsewhere (``kallsyms`` and ``symbols/``), and for a bpftrace script what it found, ``bpf/``.
        """
        target = Path(directory).resolve()
        target.mkdir(parents=True, exist_ok=True)
        if self.directory is None:
            if self.trace_path.resolve() != target / "trace.dat":
                run_files.remove_recording(target)
                shutil.copyfile(self.trace_path, target / "trace.dat")
            return open_run(target, errors=self._errors)
        if target != self.directory.resolve():
            run_files.remove_recording(target)
            for file in [file for file in self.directory.resolve().iterdir() if file not in (target, *target.parents)]:
                if file.is_dir():
                    shutil.copytree(file, target / file.name, symlinks=True, dirs_exist_ok=True)
                else:
                    (target / file.name).unlink(missing_ok=True)
                    shutil.copyfile(file, target / file.name)
        if (target / "perf.data").exists() and not (target / run_files.SYMBOLS).exists():
            self.profile(inlines=False).save_symbols(target / run_files.SYMBOLS)
        return open_run(target, errors=self._errors)

    @functools.cached_property
    def _later_threads(self) -> list[tuple[int, int]]:
        """Threads that were made while it recorded, as (who made it, its id), in time order."""
        if "task:task_newtask" not in self.file.events:  # somebody else's recording, or a pruned one
            return []
        found = self.tables("task:task_newtask", fields=["pid", "clone_flags", "common_pid"])
        if not found:
            return []
        made = next(iter(found.values()))
        threads = (made["clone_flags"].codes & np.uint64(_CLONE_THREAD)) != 0
        return list(zip(made["common_pid"].codes[threads].tolist(), made["pid"].codes[threads].tolist(), strict=True))

    def _tasks(self, who: Who) -> list[int]:
        """The tasks that `who` stands for: a process is all its threads, those that it made meanwhile included."""
        recorded: dict[str, list[int]] = self.options.get("threads", {})
        out: dict[int, None] = {}
        for number in tasks.ids(who):
            for thread in recorded.get(str(number), [number]):
                out[thread] = None
        for maker, thread in self._later_threads:
            if maker in out:
                out[thread] = None
        return list(out)

    def _job(self, pids: Who | None) -> dict[str, Any]:
        """The tasks that a view is about: those asked for, else those that the recording was."""
        if pids is not None:
            return {"pids": self._tasks(pids), "children": False}
        if self.options.get("pids_by_kernel", False):
            return {"pids": [], "children": False}
        return {"pids": self.options.get("pids", []), "children": self.options.get("children", False)}

    def _part(self, selection: dict[str, Any], *more: str) -> dict[str, Any]:
        """A selection as the core takes it, to which an empty list means all. Raises TypeError for other words."""
        known = {"start", "stop", "buffer", *more}
        if unknown := sorted(set(selection) - known):
            raise TypeError(f"no selection by {', '.join(unknown)}; there are {', '.join(sorted(known))}")
        out = {name: value for name, value in selection.items() if value is not None}
        if "pids" in out:
            out["pids"] = self._tasks(out["pids"])
        if "fields" in out:
            out["fields"] = checked.names("fields", out["fields"])
        if "cpus" in out:
            out["cpus"] = tasks.cpus(out["cpus"])
        if "buffer" in out:
            checked.text("buffer", out["buffer"])
        checked.moments(out)
        return out

    # -- events

    def counts(self, **selection: Any) -> Table:
        """How often each event occurs: columns event, count, first and last (ns), buffer where several. Key: event."""
        return Table(self.file.count_events(**self._part(selection, "cpus")), key="event")

    def events(self, event: str, **selection: Any) -> Table:
        """All events of one kind as typed columns.

        Args:
            event: ``"name"`` or ``"system:name"``.
            selection: ``fields`` (names), ``pids`` (as :func:`record` takes them), ``cpus``, ``start`` and ``stop``
                (ns), ``buffer`` (an instance's name), ``comm`` and ``symbols`` (True: more columns).

        Returns:
            Columns ``time`` (ns, or ticks of a clock that the file does not convert: see its unit), ``cpu``, ``buffer``
            where the file has several, and the fields of the event's format.

        Raises:
            InputError: The recording knows no such event, or several (a glob, a name in two systems): :meth:`tables`.
            FormatError: The file is damaged there; open the run with ``errors="skip"`` to read the rest.
        """
        tables = self.file.decode([checked.text("event", event)], **self._part(selection, *_OF_EVENTS))
        if len(tables) != 1:
            found = ", ".join(sorted(tables)) or "none"
            raise InputError(f"event {event!r} of {self.trace_path}", expected=f"one event's name; it matches {found}")
        return Table(next(iter(tables.values())))

    def tables(self, *events: str, **selection: Any) -> dict[str, Table]:
        """Several kinds of events in one pass, by name; globs allowed, none means all."""
        return {
            name: Table(table)
            for name, table in self.file.decode(
                [checked.text("event", event) for event in events], **self._part(selection, *_OF_EVENTS)
            ).items()
        }

    def batches(self, event: str, rows: int = 1 << 20, **selection: Any) -> Iterator[Table]:
        """The same as :meth:`events` in tables of at most `rows` rows, for recordings larger than memory."""
        from sampleblk_lab.analysis.batches import batches

        rows = checked.count("rows", rows, most=(1 << 63) - 1)
        return batches(self.file, checked.text("event", event), rows, self._part(selection, *_OF_BATCHES))

    # -- views

    def _require(self, view: str, events: str, asked: str) -> None:
        """Raises UnsupportedError where the recording knows none of the events that a view is made of."""
        if not any(re.fullmatch(events, event) for event in self.file.events):
            raise UnsupportedError(f"{view} of {self.trace_path}", "it has no such events", f"record({asked})")

    @renamed.parameters(pid="pids")
    def syscalls(self, *, pids: Who | None = None, **selection: Any) -> Syscalls:
        """The system calls, enter and exit joined.

        The kernel tells none of a 32-bit program's on a 64-bit kernel (``trace_get_syscall_nr()`` in
        kernel/trace/trace_syscalls.c), nor the execve() that starts it; ``raw_syscalls`` has them by their numbers, to
        which names of 64-bit calls are given here.

        Args:
            pids: Only these, as :func:`record` takes them; default those that the recording was made for, else all.
            selection: ``start`` and ``stop`` (ns), ``buffer``.

        Raises:
            UnsupportedError: None were recorded.
        """
        from sampleblk_lab.analysis.syscalls import Syscalls

        chosen = {**self._job(pids), **self._part(selection)}
        self._require("system calls", _SYSCALLS, "syscalls=True")
        return Syscalls(self.file, chosen)

    @renamed.parameters(pid="pids")
    def graph(self, function: str | Iterable[str] | None = None, *, pids: Who | None = None, **selection: Any) -> Graph:
        """The function graph as call trees.

        Args:
            function: Only trees whose root is this function, or matches one of these globs.
            pids: Only these, as :func:`record` takes them; default all that were traced.
            selection: ``start`` and ``stop`` (ns), ``cpus``, ``buffer``.

        Raises:
            UnsupportedError: The recording is one without a graph.
        """
        from sampleblk_lab.analysis.graph import Graph

        chosen = self._part({"pids": pids, **selection}, "pids", "cpus")
        functions = [] if function is None else [function] if isinstance(function, str) else list(function)
        # Ours have the formats of all tracers, and say which ran.
        ran = self.options.get("graph") or self.options.get("timed", True)
        self._require("the function graph", _GRAPH if ran else "", 'graph="*sys_fsync"')
        return Graph(core.CallGraph(self.file, functions=functions, **chosen))

    @renamed.parameters(pid="pids")
    def io_sizes(self, *, pids: Who | None = None, **selection: Any) -> IoSizes:
        """How large reads and writes were, as SystemTap's fiohist shows it. Arguments as for :meth:`syscalls`."""
        from sampleblk_lab.analysis.io_sizes import IoSizes

        calls = self.syscalls(pids=pids, **selection)
        self._require("sizes of reads and writes", _TRANSFERS, "syscalls=True")
        return IoSizes(calls.table(), self.file.commands)

    @renamed.parameters(pid="pids")
    def offsets(self, *, pids: Who | None = None, **selection: Any) -> Offsets:
        """Where in their files reads and writes went. Arguments as for :meth:`syscalls`."""
        from sampleblk_lab.analysis.offsets import Offsets

        calls = self.syscalls(pids=pids, **selection)
        self._require("offsets of reads and writes", _TRANSFERS, "syscalls=True")
        return Offsets(calls.table())

    def block(self, **selection: Any) -> Block:
        """The life of block requests: queued, issued, completed, with latencies and queue depth.

        Args:
            selection: ``start`` and ``stop`` (ns), ``buffer``.

        Raises:
            UnsupportedError: None were recorded.
        """
        from sampleblk_lab.analysis.block import Block

        chosen = self._part(selection)
        self._require("block requests", _BLOCK, "block=True")
        events = {event.removeprefix("block:") for event in self.file.events}
        newer = re.match(r"\S+ \S+ ([6-9]|\d\d)\.", self.file.uname) is not None
        return Block(Table(core.block_table(self.file, **chosen)), events, ends_of_parts=newer)

    @renamed.parameters(pid="pids")
    def follow_through(self, syscall: str, index: int = 0, *, pids: Who | None = None) -> FollowThrough:
        """One system call as one tree: its functions, its block requests and where its time went.

        Args:
            syscall: Its name.
            index: Which of its calls, in the order of :meth:`syscalls`: the first to end is 0. Negative from the end.
            pids: Only calls of these tasks.

        Raises:
            IndexError: There are not so many.
        """
        from sampleblk_lab.analysis.follow_through import FollowThrough

        return FollowThrough.of(self, syscall, index, None if pids is None else self._tasks(pids))

    # -- exports

    def export_trace_dat(self, path: str | os.PathLike[str], *, prune: bool = False, **selection: Any) -> Path:
        """Writes the recording, or a part of it, as a version 6 trace.dat.

        Args:
            path: The file.
            prune: Leave out the formats and symbols that no event needs.
            selection: ``start`` and ``stop`` (ns; whole pages stay), ``buffer``.
        """
        core.export_trace_file(self.file, os.fspath(path), prune=prune, **self._part(selection))
        return Path(path)

    def export_perfetto(self, path: str | os.PathLike[str], **selection: Any) -> Path:
        """Writes a Perfetto trace with tracks per CPU, task and device, for https://ui.perfetto.dev.

        Args:
            path: The file.
            selection: ``start`` and ``stop`` (ns), ``buffer``.
        """
        core.write_perfetto(self.file, os.fspath(path), **self._job(None), **self._part(selection))
        return Path(path)

    def export_chrome(self, path: str | os.PathLike[str], **selection: Any) -> Path:
        """Writes the same as Chrome's trace-event JSON. Arguments as for :meth:`export_perfetto`.

        Of times that a double does not hold, such as those of day, ``otherData["subtracted_ns"]`` is taken off.
        """
        core.write_chrome(self.file, os.fspath(path), **self._job(None), **self._part(selection))
        return Path(path)

    def export_csv(self, event: str, path: str | os.PathLike[str], **selection: Any) -> Path:
        """Writes one event's table as CSV. Arguments as for :meth:`events`."""
        from sampleblk_lab.analysis.export import write_csv

        write_csv(self.events(event, **selection), Path(path))
        return Path(path)

    def export_parquet(self, event: str, path: str | os.PathLike[str], **selection: Any) -> Path:
        """Writes one event's table as Parquet. Needs pyarrow. Arguments as for :meth:`events`."""
        from sampleblk_lab.analysis.export import write_parquet

        write_parquet(self.events(event, **selection), Path(path))
        return Path(path)

    def __repr__(self) -> str:
        return f"<Run {self.directory or self.trace_path}>"
