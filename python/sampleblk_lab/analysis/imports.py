# SPDX-License-Identifier: MIT
"""Recordings by other tools: texts, and blktrace's files."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

from sampleblk_lab._native import core
from sampleblk_lab.analysis.graph import Graph
from sampleblk_lab.analysis.run import Run, open_run
from sampleblk_lab.analysis.syscalls import SyscallSummary
from sampleblk_lab.errors import InputError
from sampleblk_lab.table import Table
from sampleblk_lab.texts import read_bytes


def read_funcgraph(path: str | os.PathLike[str], *, errors: str = "strict") -> Graph:
    """The text of the function_graph tracer: ``trace``, ``trace_pipe``, or the output of perf-tools' funcgraph.

    Any of the tracer's columns may be there (``funcgraph-abstime``, ``-proc``, ``-tail``, ``latency-format``) or not;
    one of CPU and task must be.

    Args:
        path: The file.
        errors: ``"skip"`` counts lines that the tracer did not print (metadata ``unread_lines``).

    Raises:
        FormatError: There is such a line; says where.
    """
    return Graph(core.read_graph_text(read_bytes(Path(path)), os.fspath(path), errors == "skip"))


def import_run(*sources: str | os.PathLike[str], directory: str | os.PathLike[str], errors: str = "strict") -> Run:
    """Block I/O that another tool recorded, as a run: with every view, report, comparison and export.

    What it is shows in its first bytes:

    - the text of ``perf script``, ``trace-cmd report``, or ftrace's ``trace`` and ``trace_pipe``. ``block:*`` events
      keep their fields (include/trace/events/block.h, kernels 3.0 to 7.2); of other events the text is kept, in the
      field ``text``. Stacks below events are left out, and counted.
    - the text of ``biosnoop`` (bcc, libbpf-tools) or of perf-tools' ``iosnoop -s`` or ``-t``: a line becomes the events
      of a request. Disks that are named instead of numbered are ``0,1``, ``0,2`` …; ``options`` says which is which.
    - ``blktrace``'s binary files, versions 7 and 8, of one recording: all files, or the name before ``.blktrace.0``.

    Args:
        sources: The file, or blktrace's files.
        directory: Where the run goes: its ``trace.dat``, and ``recording.json`` with what was found
            (``run.options["imported"]``: ``format``, ``events``, ``lost_events``, ``unread_lines``, ``stack_lines`` …).
        errors: ``"skip"`` counts what cannot be read instead of raising.

    Raises:
        FormatError: A line (or record) that the tool did not write; says file and line.
        InputError: There is a recording in `directory` already, or a source does not exist.
    """
    target = Path(directory)
    if (target / "trace.dat").exists():
        raise InputError(f"{target} has a recording already", expected="a directory without a trace.dat")
    files = [file for source in sources for file in _files(source)]
    made = not target.exists()
    target.mkdir(parents=True, exist_ok=True)
    try:
        found = core.import_events([str(file) for file in files], str(target / "trace.dat"), errors == "skip")
    except BaseException:
        if made:
            target.rmdir()
        raise
    # A device's name may look like a number, also of another alphabet.
    facts = {
        name: int(value) if value.isdigit() and not name.startswith("device ") else value
        for name, value in found.items()
    }
    about = {"imported": facts, "sources": [str(file) for file in files]}
    (target / "recording.json").write_text(json.dumps(about, indent=1) + "\n")
    return open_run(target)


def _files(source: str | os.PathLike[str]) -> list[Path]:
    """The file; or those of blktrace -o with that name, by CPU."""
    name = os.fspath(source)
    path = Path(name)
    if path.exists() and not path.is_dir():
        return [path]
    found = [
        (int(match[1]), each)
        for each in path.parent.glob(f"{path.name}.blktrace.*")
        if (match := re.search(r"\.blktrace\.(\d+)$", each.name))
    ]
    if not found:
        what = "is a folder" if path.is_dir() and name else "does not exist"
        raise InputError(f"{name!r} {what}", expected="a recording, or its name before .blktrace.0")
    return [each for _, each in sorted(found)]


class StraceLog:
    """A log of strace."""

    def __init__(self, calls: core.Table, recorded: core.Table) -> None:
        self._calls = calls
        self._recorded = recorded

    def table(self) -> Table:
        """A row per call: time, duration (ns; 0 in a log without -T), pid, syscall, args (text), ret, error (name)."""
        return Table(self._calls)

    def summary(self) -> SyscallSummary:
        """The table of -C at the log's end as strace itself counted it; no rows where the log has none."""
        return SyscallSummary(self._recorded, key="syscall")

    def __repr__(self) -> str:
        return repr(self.summary() if len(self.summary()) else self.table())

    def _repr_html_(self) -> str:
        return (self.summary() if len(self.summary()) else self.table())._repr_html_()


def read_strace(path: str | os.PathLike[str], *, errors: str = "strict") -> StraceLog:
    """A log of strace, by -o or from its stderr, with any of -t -tt -ttt -r -T -f -k -n -i -y -Y -C.

    Times are since midnight with -t and -tt, and since the first line with -r alone.

    Args:
        path: The file.
        errors: ``"skip"`` counts lines that strace did not print (metadata ``unread_lines``).

    Raises:
        FormatError: There is such a line; says where.
    """
    text, name = read_bytes(Path(path)), os.fspath(path)
    return StraceLog(core.read_strace_log(text, name, errors == "skip"), core.read_strace_summary(text, name))
