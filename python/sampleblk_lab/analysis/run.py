# SPDX-License-Identifier: MIT
"""A run: a directory with a trace.dat in it, or a bare trace.dat by whomever it was recorded."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sampleblk_lab._native import core
from sampleblk_lab.table import Table

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator

    from sampleblk_lab.analysis.block import Block
    from sampleblk_lab.analysis.follow_through import FollowThrough
    from sampleblk_lab.analysis.graph import Graph
    from sampleblk_lab.analysis.io_sizes import IoSizes
    from sampleblk_lab.analysis.offsets import Offsets
    from sampleblk_lab.analysis.syscalls import Syscalls


def open_run(path: str | os.PathLike[str], *, errors: str = "strict") -> Run:
    """Opens a saved run's directory, or a trace.dat file.

    Args:
        path: The directory or the file.
        errors: ``"strict"`` raises at what cannot be read; ``"skip"`` reads all that can be and counts the rest.

    Raises:
        FormatError: The file is no trace.dat, or truncated or corrupt; says where and what was expected.
        OSError: It cannot be opened.
    """
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

    @functools.cached_property
    def file(self) -> core.TraceFile:
        """The core's view of the trace.dat."""
        return core.TraceFile(str(self.trace_path), self._errors)

    @functools.cached_property
    def options(self) -> dict[str, Any]:
        """What the recording was asked for (recording.json); empty for others' files."""
        path = self.directory / "recording.json" if self.directory else None
        if path is None or not path.exists():
            return {}
        options: dict[str, Any] = json.loads(path.read_text())
        return options

    def _job(self, pid: int | Iterable[int] | None) -> dict[str, Any]:
        """The tasks that a view is about: those asked for, else those that the recording was."""
        if pid is not None:
            return {"pids": [pid] if isinstance(pid, int) else list(pid), "children": False}
        if self.options.get("pids_by_kernel", False):
            return {"pids": [], "children": False}
        return {"pids": self.options.get("pids", []), "children": self.options.get("children", False)}

    # -- events

    def counts(self, **selection: Any) -> Table:
        """How often each event occurs: columns event, count, first and last (ns). Key: event."""
        return Table(self.file.count_events(**selection), key="event")

    def events(self, event: str, **selection: Any) -> Table:
        """All events of one kind as typed columns.

        Args:
            event: ``"name"`` or ``"system:name"``.
            selection: ``fields`` (names), ``pids`` (common_pid), ``cpus``, ``start`` and ``stop`` (ns),
                ``buffer`` (an instance's name), ``comm`` and ``symbols`` (True: more columns).

        Returns:
            Columns ``time`` (ns), ``cpu`` and the fields of the event's format.

        Raises:
            InputError: The recording knows no such event.
            FormatError: The file is damaged there; open the run with ``errors="skip"`` to read the rest.
        """
        tables = self.file.decode([event], **selection)
        return Table(next(iter(tables.values())))

    def tables(self, *events: str, **selection: Any) -> dict[str, Table]:
        """Several kinds of events in one pass, by name; globs allowed, none means all."""
        return {name: Table(table) for name, table in self.file.decode(list(events), **selection).items()}

    def batches(self, event: str, rows: int = 1 << 20, **selection: Any) -> Iterator[Table]:
        """The same as :meth:`events` in tables of at most `rows` rows, for recordings larger than memory."""
        from sampleblk_lab.analysis.batches import batches

        return batches(self.file, event, rows, selection)

    # -- views

    def syscalls(self, *, pid: int | Iterable[int] | None = None, **selection: Any) -> Syscalls:
        """The system calls, enter and exit joined.

        Args:
            pid: Only these tasks; default those that the recording was made for, else all.
            selection: ``start`` and ``stop`` (ns), ``buffer``.
        """
        from sampleblk_lab.analysis.syscalls import Syscalls

        return Syscalls(self.file, {**self._job(pid), **selection})

    def graph(
        self, function: str | Iterable[str] | None = None, *, pid: int | Iterable[int] | None = None, **selection: Any
    ) -> Graph:
        """The function graph as call trees.

        Args:
            function: Only trees whose root is this function, or matches one of these globs.
            pid: Only these tasks; default all that were traced.
            selection: ``start`` and ``stop`` (ns), ``cpus``, ``buffer``.
        """
        from sampleblk_lab.analysis.graph import Graph

        functions = [] if function is None else [function] if isinstance(function, str) else list(function)
        pids = [] if pid is None else [pid] if isinstance(pid, int) else list(pid)
        return Graph(core.CallGraph(self.file, functions=functions, pids=pids, **selection))

    def io_sizes(self, *, pid: int | Iterable[int] | None = None, **selection: Any) -> IoSizes:
        """How large reads and writes were, as SystemTap's fiohist shows it. Arguments as for :meth:`syscalls`."""
        from sampleblk_lab.analysis.io_sizes import IoSizes

        return IoSizes(self.syscalls(pid=pid, **selection).table(), self.file.commands)

    def offsets(self, *, pid: int | Iterable[int] | None = None, **selection: Any) -> Offsets:
        """Where in their files reads and writes went. Arguments as for :meth:`syscalls`."""
        from sampleblk_lab.analysis.offsets import Offsets

        return Offsets(self.syscalls(pid=pid, **selection).table())

    def block(self, **selection: Any) -> Block:
        """The life of block requests: queued, issued, completed, with latencies and queue depth.

        Args:
            selection: ``start`` and ``stop`` (ns), ``buffer``.
        """
        from sampleblk_lab.analysis.block import Block

        return Block(Table(core.block_table(self.file, **selection)))

    def follow_through(self, syscall: str, index: int = 0, *, pid: int | Iterable[int] | None = None) -> FollowThrough:
        """One system call as one tree: its functions, its block requests and where its time went.

        Args:
            syscall: Its name.
            index: Which of its calls, in time order; negative from the end.
            pid: Only calls of these tasks.

        Raises:
            IndexError: There are not so many.
        """
        from sampleblk_lab.analysis.follow_through import FollowThrough

        return FollowThrough.of(self, syscall, index, pid)

    # -- exports

    def export_trace_dat(self, path: str | os.PathLike[str], *, prune: bool = False, **selection: Any) -> None:
        """Writes the recording, or a part of it, as a version 6 trace.dat.

        Args:
            path: The file.
            prune: Leave out the formats and symbols that no event needs.
            selection: ``start`` and ``stop`` (ns; whole pages stay), ``buffer``.
        """
        core.export_trace_file(self.file, str(path), prune=prune, **selection)

    def export_perfetto(self, path: str | os.PathLike[str], **selection: Any) -> None:
        """Writes a Perfetto trace with tracks per CPU, task and device, for https://ui.perfetto.dev.

        Args:
            path: The file.
            selection: ``start`` and ``stop`` (ns), ``buffer``.
        """
        core.write_perfetto(self.file, str(path), **self._job(None), **selection)

    def export_chrome(self, path: str | os.PathLike[str], **selection: Any) -> None:
        """Writes the same as Chrome's trace-event JSON. Arguments as for :meth:`export_perfetto`."""
        core.write_chrome(self.file, str(path), **self._job(None), **selection)

    def export_csv(self, event: str, path: str | os.PathLike[str], **selection: Any) -> None:
        """Writes one event's table as CSV. Arguments as for :meth:`events`."""
        from sampleblk_lab.analysis.export import write_csv

        write_csv(self.events(event, **selection), Path(path))

    def export_parquet(self, event: str, path: str | os.PathLike[str], **selection: Any) -> None:
        """Writes one event's table as Parquet. Needs pyarrow. Arguments as for :meth:`events`."""
        from sampleblk_lab.analysis.export import write_parquet

        write_parquet(self.events(event, **selection), Path(path))

    def __repr__(self) -> str:
        return f"<Run {self.directory or self.trace_path}>"
