# SPDX-License-Identifier: MIT
"""The magics. Their options are checked by name, and their results are ordinary objects."""

from __future__ import annotations

import argparse
import os
import shlex
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError
from IPython.core.magic import Magics, cell_magic, line_magic, magics_class
from IPython.display import display as _display

import sampleblk_lab as lab
from sampleblk_lab.errors import InputError

if TYPE_CHECKING:
    from typing import NoReturn


def _show(value: object) -> None:
    _display(value)  # type: ignore[no-untyped-call]


class _Parser(argparse.ArgumentParser):
    """Complains as magics do, instead of ending the process."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{self.prog}: {message}\n{self.format_usage().strip()}")

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        raise UsageError(message or f"{self.prog} ended with status {status}")


def _trace_parser() -> _Parser:
    parser = _Parser(prog="%%sblk_trace", add_help=False)
    parser.add_argument("name", nargs="?", default="trace", help="the variable that the run is put in (trace)")
    parser.add_argument("--syscalls", action="store_true", help="record system calls (the default if nothing else is)")
    parser.add_argument("--graph", metavar="GLOB", action="append", help="record the call graph of these functions")
    parser.add_argument("--functions", metavar="GLOB", action="append", help="record each call of these functions")
    parser.add_argument("--events", metavar="EVENT", action="append", default=[], help="record these events")
    parser.add_argument("--block", action="store_true", help="record the block layer")
    parser.add_argument("--all", action="store_true", help="record all tasks, not only this kernel and what it starts")
    return parser


def _profile_parser() -> _Parser:
    parser = _Parser(prog="%%sblk_profile", add_help=False)
    parser.add_argument("name", nargs="?", default="profile", help="the variable that the profile is put in (profile)")
    parser.add_argument("--hz", type=int, default=997, help="samples a second and CPU (997)")
    parser.add_argument("--offcpu", action="store_true", help="also where threads wait")
    parser.add_argument("--all", action="store_true", help="all tasks, not only this kernel and what it starts")
    return parser


def _name(name: str, magic: str) -> str:
    if not name.isidentifier():
        raise UsageError(f"{magic}: {name!r} is no name of a variable")
    return name


def job_keys(line: str) -> dict[str, str]:
    """The keys of a ``%sblk_job`` line: ``rw=write bs=4k size=2M``.

    Raises:
        UsageError: A word is no ``key=value``.
    """
    keys: dict[str, str] = {}
    for word in shlex.split(line):
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise UsageError(f"%sblk_job: {word!r} is no key=value, such as rw=write bs=4k size=2M filename=/mnt/x")
        keys[key.removeprefix("--")] = value
    return keys


@magics_class
class SampleblkMagics(Magics):
    """``%sblk_job``, ``%%sblk_trace`` and ``%%sblk_profile``."""

    @line_magic
    def sblk_job(self, line: str) -> lab.Result:
        """Runs one job, its keys as fio names them, and returns its result.

        ``%sblk_job rw=write bs=4k size=2M filename=/mnt/test``; ``{name}`` puts a variable in. Interrupting the cell
        stops the job and keeps what ran.
        """
        keys: dict[str, Any] = dict(job_keys(line))
        try:
            job = lab.Job(**keys)
        except InputError as error:
            raise UsageError(f"%sblk_job: {error}") from None
        return job.run()

    @cell_magic
    def sblk_trace(self, line: str, cell: str) -> None:
        """Records while the cell runs: ``%%sblk_trace [NAME] [--syscalls] [--graph GLOB] [--block] [--events E]``.

        Afterwards the run is in the variable NAME (``trace``), and its system calls or call graph are shown.
        """
        options = _trace_parser().parse_args(shlex.split(line))
        name = _name(options.name, "%%sblk_trace")
        nothing = not (options.graph or options.functions or options.events or options.block)
        syscalls = options.syscalls or nothing
        pid = None if options.all else os.getpid()
        recording = lab.record(
            syscalls=syscalls,
            graph=options.graph,
            functions=options.functions,
            events=options.events,
            block=options.block,
            pid=pid,
        )
        shell: Any = self.shell
        with recording:
            shell.run_cell(cell).raise_error()
        shell.user_ns[name] = recording.run
        if syscalls:
            _show(recording.run.syscalls().summary())
        if options.graph:
            _show(recording.run.graph(options.graph))
        if options.block:
            _show(recording.run.block().latency())
        if options.functions or options.events:
            _show(recording.run.counts())

    @cell_magic
    def sblk_profile(self, line: str, cell: str) -> None:
        """Profiles while the cell runs: ``%%sblk_profile [NAME] [--hz N] [--offcpu] [--all]``.

        Afterwards the profile is in the variable NAME (``profile``), and its flame graph is shown; with ``--offcpu``
        also the one of the waiting.
        """
        options = _profile_parser().parse_args(shlex.split(line))
        name = _name(options.name, "%%sblk_profile")
        shell: Any = self.shell
        with lab.profile(hz=options.hz, offcpu=options.offcpu, pid=None if options.all else os.getpid()) as profiler:
            shell.run_cell(cell).raise_error()
        shell.user_ns[name] = profiler.result
        _show(profiler.result.flamegraph())
        if options.offcpu:
            _show(profiler.result.off_cpu().flamegraph())
