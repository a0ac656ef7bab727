# SPDX-License-Identifier: MIT
"""The magics. Their options are checked by name, and their results are ordinary objects."""

from __future__ import annotations

import contextlib
import functools
import os
import shlex
import threading
import time
from typing import TYPE_CHECKING, Any, TypeVar

from IPython.core import magic_arguments
from IPython.core.error import UsageError
from IPython.core.magic import Magics, cell_magic, line_magic, magics_class
from IPython.display import display as _display

import sampleblk_lab as lab
from sampleblk_lab import checked
from sampleblk_lab.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_F = TypeVar("_F", bound="Callable[..., Any]")
_arguments: Any = magic_arguments  # IPython has no types for it


def _with_arguments(function: _F) -> _F:
    """The magic's help is made of its arguments, which ``?`` shows."""
    made: _F = _arguments.magic_arguments()(function)
    return made


def _argument(name: str, **options: Any) -> Callable[[_F], _F]:
    made: Callable[[_F], _F] = _arguments.argument(name, **options)
    return made


def _show(value: object) -> None:
    _display(value)  # type: ignore[no-untyped-call]


def _name(name: str, magic: str) -> str:
    if not name.isidentifier():
        raise UsageError(f"{magic}: {name!r} is not a name of a variable")
    return name


def _unquoted(word: str) -> str:
    """A word of a magic's line without the quotes around it, which IPython leaves there."""
    return word[1:-1] if len(word) > 1 and word[0] == word[-1] and word[0] in "'\"" else word


def job_keys(line: str) -> dict[str, str]:
    """The keys of a ``%sblk_job`` line: ``rw=write bs=4k size=2M``.

    Raises:
        UsageError: A word is no ``key=value``, or a quote has no end.
    """
    keys: dict[str, str] = {}
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise UsageError(f"%sblk_job: {line!r}: {error}") from None
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise UsageError(f"%sblk_job: {word!r} is not key=value, such as rw=write bs=4k size=2M filename=/mnt/x")
        keys[key.removeprefix("--")] = value
    return keys


@magics_class
class SampleblkMagics(Magics):
    """``%sblk_job``, ``%%sblk_trace``, ``%%sblk_profile`` and ``%%bpftrace``."""

    def _check(self, code: str, magic: str) -> None:
        """Raises UsageError where code awaits: a cell waits for its magics, in the loop that would have to run on."""
        shell: Any = self.shell
        if shell.should_run_async(code, transformed_cell=shell.transform_cell(code)):
            raise UsageError(f"{magic}: 'await' outside of a function; such a cell can use lab.record() itself")

    def _run(self, code: str) -> None:
        shell: Any = self.shell
        # Its error is raised, and so shown at the magic's own end: this would be the first of two times.
        shown, shell._showtraceback = shell._showtraceback, lambda *_: None  # noqa: SLF001 IPython's own override
        try:
            result = shell.run_cell(code)
        finally:
            shell._showtraceback = shown  # noqa: SLF001
        result.raise_error()

    @contextlib.contextmanager
    def _kept(
        self, name: str, begin: Callable[[], contextlib.AbstractContextManager[Any]], found: Callable[[Any], object]
    ) -> Iterator[Any]:
        """Records during the block, and puts what was found in the variable, also where the block raises."""
        shell: Any = self.shell
        try:
            recorder = begin()
        except Exception:  # what another cell has found is not what this one did
            shell.user_ns.pop(name, None)
            raise
        try:
            with recorder:
                yield recorder
        finally:
            try:
                shell.user_ns[name] = found(recorder)
            except RuntimeError:  # it did not begin
                shell.user_ns.pop(name, None)

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

    @_with_arguments
    @_argument("name", nargs="?", default="trace", help="the variable that the run is put in (trace)")
    @_argument("--syscalls", action="store_true", help="record system calls (the default if nothing else is)")
    @_argument(
        "--graph", metavar="GLOB", type=_unquoted, action="append", help="record the call graph of these functions"
    )
    @_argument(
        "--functions", metavar="GLOB", type=_unquoted, action="append", help="record each call of these functions"
    )
    @_argument("--events", metavar="EVENT", type=_unquoted, action="append", default=[], help="record these events")
    @_argument("--block", action="store_true", help="record the block layer")
    @_argument("--all", action="store_true", help="record all tasks, not only the cell's threads and processes")
    @cell_magic
    def sblk_trace(self, line: str, cell: str) -> None:
        """Records while the cell runs.

        Afterwards the run is in the variable, also where the cell raised or was interrupted, and its system calls or
        call graph are shown.
        """
        options = _arguments.parse_argstring(type(self).sblk_trace, line)
        name = _name(options.name, "%%sblk_trace")
        self._check(cell, "%%sblk_trace")
        nothing = not (options.graph or options.functions or options.events or options.block)
        syscalls = options.syscalls or nothing
        # Not the kernel's own threads, which talk to the front end meanwhile.
        pids = None if options.all else threading.current_thread()
        begin = functools.partial(
            lab.record,
            syscalls=syscalls,
            graph=options.graph,
            functions=options.functions,
            events=options.events,
            block=options.block,
            pids=pids,
        )
        with self._kept(name, begin, lambda its: its.run) as recording:
            self._run(cell)
        if syscalls:
            _show(recording.run.syscalls().summary())
        if options.graph:
            _show(recording.run.graph(options.graph))
        if options.block:
            _show(recording.run.block().latency())
        if options.functions or options.events:
            _show(recording.run.counts())

    @_with_arguments
    @_argument("name", nargs="?", default="profile", help="the variable that the profile is put in (profile)")
    @_argument("--hz", type=int, default=997, help="samples a second and CPU (997)")
    @_argument("--offcpu", action="store_true", help="also where threads wait")
    @_argument("--all", action="store_true", help="all tasks, not only this kernel and what it starts")
    @cell_magic
    def sblk_profile(self, line: str, cell: str) -> None:
        """Profiles while the cell runs.

        Afterwards the profile is in the variable, also where the cell raised or was interrupted, and its flame graph
        is shown; with ``--offcpu`` also the one of the waiting.
        """
        options = _arguments.parse_argstring(type(self).sblk_profile, line)
        name = _name(options.name, "%%sblk_profile")
        self._check(cell, "%%sblk_profile")
        pids = None if options.all else os.getpid()
        begin = functools.partial(lab.profile, hz=options.hz, offcpu=options.offcpu, pids=pids)
        with self._kept(name, begin, lambda its: its.profile) as profiler:
            self._run(cell)
        _show(profiler.profile.flamegraph())
        if options.offcpu:
            _show(profiler.profile.off_cpu().flamegraph())

    @_with_arguments
    @_argument("name", nargs="?", default="found", help="the variable that what it found is put in (found)")
    @_argument(
        "--run",
        metavar="STATEMENT",
        type=_unquoted,
        help="what runs beside the script, such as --run 'job.run()'",
    )
    @_argument("--seconds", type=float, help="how long the script runs, where nothing is to run beside it")
    @_argument("--unsafe", action="store_true", help="allow system() and its like")
    @cell_magic
    def bpftrace(self, line: str, cell: str) -> None:
        """Runs the cell, a bpftrace script, or the name of one, beside a statement.

        Afterwards what it found is in the variable, and its maps are shown. Interrupting the cell ends the script and
        keeps what it found.
        """
        options = _arguments.parse_argstring(type(self).bpftrace, line)
        name = _name(options.name, "%%bpftrace")
        if (options.run is None) == (options.seconds is None):
            raise UsageError("%%bpftrace: either --run 'a statement', or --seconds how long")
        if options.seconds is not None:
            try:
                checked.seconds("--seconds", options.seconds)
            except InputError as error:
                raise UsageError(f"%%bpftrace: {error}") from None
        if options.run is not None:
            self._check(options.run, "%%bpftrace")
        begin = functools.partial(lab.bpf, cell.strip(), unsafe=options.unsafe)
        with self._kept(name, begin, lambda its: its.output) as script:
            if options.run is not None:
                self._run(options.run)
            else:
                time.sleep(options.seconds)
        _show(script.output)
