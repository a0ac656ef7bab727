# SPDX-License-Identifier: MIT
"""A perf.data opened: report, samples, stacks."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sampleblk_lab import checked, renamed, tasks
from sampleblk_lab._native import core
from sampleblk_lab.errors import InputError
from sampleblk_lab.paths import in_home
from sampleblk_lab.profiling.heatmap import HeatMap
from sampleblk_lab.profiling.stacks import FlameGraph, Stacks
from sampleblk_lab.table import Table
from sampleblk_lab.texts import readable

if TYPE_CHECKING:
    from os import PathLike

# What of a profile's metadata goes with every picture, when it is not nothing.
_LOSSES = (
    "lost_records",
    "lost_samples",
    "throttled",
    "not_unwound",
    "unwound_to_the_end_of_the_copy",
    "unwound_to_unknown_code",
)
# perf_event_open(2)'s types, and a configuration: perf names it "dummy:HG" or "dummy:u".
_TRACE_POINT, _DUMMY = 2, (1, 9)


class Report(Table):
    """The table that ``perf report`` prints, in its order: by share with children.

    Columns: children and self (percent), samples, comm, module, space (``k`` for the kernel, else ``.``), symbol, and
    the two sums behind the shares, children_period and self_period.
    """

    def text(self, *, limit: int = 40) -> str:
        """Perf report's layout, the first `limit` rows."""
        lines = ["# Children      Self  Command          Shared Object         Symbol"]
        for number, row in enumerate(self.rows()):
            if number == limit:
                lines.append(f"({len(self) - limit} rows more)")
                break
            comm, module, symbol = (readable(str(row[name])) for name in ("comm", "module", "symbol"))
            lines.append(
                f"{row['children']:9.2f}% {row['self']:8.2f}%  {comm:15}  "
                f"{_base_name(module):20}  [{row['space']}] {symbol}"
            )
        lines.extend(f"# {line}" for line in self._notes())
        return "\n".join(lines)

    def __repr__(self) -> str:
        return self.text()


def _base_name(module: str) -> str:
    return module.rpartition("/")[2] or module


class Profile:
    """A perf.data with its names resolved. Made by :func:`open_profile`.

    Every view takes the same selection: ``event`` (a name of :attr:`event_names`; by default the first that is no trace
    point), ``pids`` (one or several), ``children`` (with what those forked), ``comm`` (a thread's name), ``cpus``,
    ``start`` and ``stop`` (ns of the recording's clock) and ``idle`` (False leaves the idle task out). Time off the CPU
    is of the CPU and the moment at which it began.
    """

    def __init__(self, native: core.PerfProfile) -> None:
        self._native = native
        # What keeps the file of a recording that was not saved.
        self._keep: object = None

    @property
    def path(self) -> Path:
        """The file."""
        return Path(self._native.path)

    @property
    def event_names(self) -> list[str]:
        """The recorded events."""
        return [str(event["name"]) for event in self._native.events]

    @property
    def events(self) -> list[str]:
        """The old name of :attr:`event_names`."""
        renamed.warn("Profile.events", "Profile.event_names")
        return self.event_names

    @property
    def header(self) -> dict[str, str]:
        """What the file tells of the machine: hostname, os_release, arch, cpu, command_line."""
        return self._native.header

    @property
    def metadata(self) -> dict[str, str]:
        """Losses (lost_records, lost_samples, throttled), where symbols came from, and damage that was skipped."""
        return self._native.metadata

    def __len__(self) -> int:
        return len(self._native)

    def samples(self, **selection: Any) -> Table:
        """One row a sample: time (ns), cpu, pid, tid, comm, period, symbol and module (the innermost), stack."""
        return Table(self._native.table(_selection(selection)))

    def stack(self, sample: int) -> list[str]:
        """The functions of one sample's stack, from the outermost to the innermost.

        Args:
            sample: Its number: the row of :meth:`samples` without a selection.

        Raises:
            IndexError: There is no such sample.
        """
        if sample < 0:
            raise IndexError(f"no sample {sample}")
        return self._native.stack(sample)

    def report(self, **selection: Any) -> Report:
        """The table that ``perf report`` prints, with its sums."""
        return Report(self._native.report(_selection(selection)))

    def stacks(self, *, weight: str = "samples", **selection: Any) -> Stacks:
        """The samples' stacks.

        Args:
            weight: ``"samples"`` counts each once, ``"period"`` as many times as its event had happened.
            **selection: Which samples; see the class.
        """
        if weight not in ("samples", "period"):
            raise InputError(f"weight={weight!r}", expected="'samples' or 'period'")
        tree = self._native.stacks(_selection(selection), weight == "period")
        event = selection.get("event") or self._default_event()
        return Stacks(tree, f"On CPU ({event})", self._notes())

    def off_cpu(self, **selection: Any) -> Stacks:
        """Stacks by time off the CPU, each ending in what it waited for: a CPU, I/O, a lock, a timer, or else.

        Needs ``sched:sched_switch`` with stacks in the recording: ``profile(offcpu=True)``.

        Raises:
            UnsupportedError: The recording has no sched_switch.
        """
        return Stacks(self._native.off_cpu_stacks(_selection(selection)), "Off CPU", self._notes())

    def wall_clock(self, **selection: Any) -> Stacks:
        """Stacks by time on and off the CPU together; needs what :meth:`off_cpu` needs."""
        return Stacks(self._native.wall_clock_stacks(_selection(selection)), "Wall clock", self._notes())

    def waits(self, **selection: Any) -> Table:
        """One row a stretch off the CPU: time, duration and runnable (ns), tid, pid, comm, wait, syscall, function.

        `duration` is from when the thread stopped until it ran again, `runnable` its part after it was woken. Where
        the recording lacks the switch back in (lost records; idle threads that some kernels do not trace), the stretch
        ends when the thread was woken; ``metadata["missed_switches"]`` counts those. ``metadata["across_gaps"]``, here
        and of :meth:`syscalls` and :meth:`locks`, counts the stretches in which records were lost, and the thread may
        have run.
        """
        return Table(self._native.off_cpu_table(_selection(selection)))

    def syscalls(self, **selection: Any) -> Table:
        """Where the time of each system call goes, keyed by ``syscall``.

        Columns: syscall, on_cpu_percent (of all selected samples), on_cpu, runnable, blocked_io, blocked_lock,
        sleeping, waiting (all ns), samples. The row ``(user)`` is code of a process outside any call, ``(kernel
        thread)`` that of the kernel's own threads, ``(idle)`` the idle task.
        Times off the CPU are 0 where the recording has no sched_switch; ``metadata["off_cpu"]`` says so. Those on it
        are 0 where a sample is of so many events, as of cycles by ``perf record -c``; ``metadata["on_cpu"]`` says so.
        """
        return Table(self._native.syscall_split(_selection(selection)), key="syscall")

    def locks(self, **selection: Any) -> Table:
        """Hot locks: lock (the function that takes it), caller, spin and blocked (ns), samples, waits."""
        return Table(self._native.lock_table(_selection(selection)))

    def heatmap(self, *, rows: int = 50, **selection: Any) -> HeatMap:
        """Samples by second (across) and by part of the second (up), as subsecond-offset heat maps show them.

        Args:
            rows: Into how many parts each second is cut.
            **selection: Which samples; see the class.
        """
        times = self.samples(**selection)["time"].codes
        return HeatMap.of(times, checked.count("rows", rows))

    def export_perfetto(self, path: str | PathLike[str], **selection: Any) -> Path:
        """Writes each sample at its time, on its thread, for https://ui.perfetto.dev. Raises OSError.

        Its times are those of the recording; a timeline of the same run (:meth:`Run.export_perfetto`) recorded with the
        clock ``mono`` can be appended to the same file.
        """
        self._native.write_perfetto(_selection(selection), os.fspath(path))
        return Path(path)

    def flamegraph(self, path: str | PathLike[str] | None = None, **options: Any) -> FlameGraph:
        """A flame graph of the samples; options of :meth:`Stacks.flamegraph` and of the selection.

        Args:
            path: Where to write the SVG; None: nowhere.
            **options: title, before, min_percent, inverted, and the selection.
        """
        names = ("title", "before", "min_percent", "inverted")
        drawing = {name: options.pop(name) for name in names if name in options}
        return self.stacks(**options).flamegraph(path, **drawing)

    def tree(self, *, min_percent: float = 0.5, max_depth: int = 200, **selection: Any) -> str:
        """The call tree as text; see :meth:`Stacks.tree`."""
        return self.stacks(**selection).tree(min_percent=min_percent, max_depth=max_depth)

    def save_symbols(self, directory: str | PathLike[str]) -> None:
        """Copies the files whose functions were sampled to `directory`, as perf's build-id cache keeps them.

        Args:
            directory: It gets ``.build-id/``; ``perf --buildid-dir`` takes it, and so does :func:`open_profile` when it
                is named ``symbols`` and lies beside the recording.
        """
        for recorded, (build_id, here) in self._native.symbol_files.items():
            if not build_id:
                continue
            # A recording of another may name anything: it stays below the directory.
            home = Path(directory) / os.path.normpath(f"/{recorded}").lstrip("/") / build_id
            home.mkdir(parents=True, exist_ok=True)
            if here == "[vdso]":  # of this process's memory, not of a file
                (home / "vdso").write_bytes(core.own_vdso())
            elif not (home / "elf").exists():
                shutil.copyfile(here, home / ("vdso" if recorded == "[vdso]" else "elf"))
            link = Path(directory) / ".build-id" / build_id[:2] / build_id[2:]
            link.parent.mkdir(parents=True, exist_ok=True)
            if not link.is_symlink():
                link.symlink_to(os.path.relpath(home, link.parent))

    def _default_event(self) -> str:
        for event in self._native.events:
            if event["type"] != _TRACE_POINT and (event["type"], event["config"]) != _DUMMY:
                return str(event["name"])
        return self.event_names[0]

    def _notes(self) -> dict[str, str]:
        # The kinds of damage are the core's.
        return {
            name: value
            for name, value in self.metadata.items()
            if (name in _LOSSES or name.startswith("damage_")) and value != "0"
        }

    def __repr__(self) -> str:
        return f"<Profile {self.path}: {len(self)} samples of {', '.join(self.event_names)}>"

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        return {**self.flamegraph()._repr_mimebundle_(), "text/plain": repr(self)}


def _selection(fields: dict[str, Any]) -> dict[str, Any]:
    """The selection as the core takes it. Raises TypeError for a word it does not know."""
    fields = dict(fields)
    renamed.keyword(fields, "pid", "pids", "a profile's view", level=3)
    known = {"event", "pids", "children", "comm", "cpus", "start", "stop", "idle"}
    unknown = set(fields) - known
    if unknown:
        raise TypeError(f"no selection by {', '.join(sorted(unknown))}; there are {', '.join(sorted(known))}")
    out = {name: value for name, value in fields.items() if value is not None}
    if "pids" in out:
        out["pids"] = tasks.ids(out["pids"], jobs_by="pids")
    if "cpus" in out:
        out["cpus"] = tasks.cpus(out["cpus"])
    checked.moments(out)
    for name in out.keys() & {"children", "idle"}:
        checked.flag(name, out[name])
    for name in out.keys() & {"comm", "event"}:
        checked.text(name, out[name])
    return out


@renamed.parameters(on_error="errors")
def open_profile(
    path: str | PathLike[str],
    *,
    errors: str = "strict",
    kallsyms: str | PathLike[str] | None = None,
    symbols: str | PathLike[str] | Iterable[str | PathLike[str]] = (),
    root: str | PathLike[str] = "",
    use_paths: bool = True,
    inlines: bool = True,
) -> Profile:
    """Opens a perf.data, of ours or of ``perf record`` (pipe mode and compressed ones included).

    A trace.dat is taken, too: its events that have kernel stacks (``trace-cmd record -T``, ftrace's option
    ``stacktrace``) are the samples, so that :meth:`Profile.off_cpu` and what goes with it work on
    ``sched:sched_switch`` of any recorder. Its processes are threads, for it does not tell which belong together.

    Args:
        path: The file, a directory that has a ``perf.data``, or one that perf made (``perf record --threads``,
            ``--kcore``, whose symbols are then used).
        errors: ``"strict"`` raises on the first damage, ``"skip"`` reads what there is and counts the rest in
            :attr:`Profile.metadata`.
        kallsyms: The recorded kernel's symbols. None: a ``kallsyms`` beside the file, a build-id cache's, or the
            running kernel's if the recording is of it and of this boot.
        symbols: Build-id directories as perf keeps them, looked at before ``symbols`` beside the file and ``~/.debug``.
        root: Put before recorded paths, as ``perf report --symfs`` does.
        use_paths: Whether recorded paths are looked at at all; a file is used only if its build id is the recorded one.
            Those that the recording has none for are named in :attr:`Profile.metadata`.
        inlines: Whether functions that were inlined get frames, where the file or its separate debugging information
            has DWARF.

    Copied user stacks (``perf record --call-graph dwarf``, ``profile(callgraph="dwarf")``) are unwound by the files'
    call frame information; the metadata then has ``unwound``, the number of stacks, and how many of them ended for a
    bad reason: ``unwound_to_the_end_of_the_copy`` and ``unwound_to_unknown_code``. Those of another kind of machine
    and of 32-bit programs are not, and counted as ``not_unwound``.

    Raises:
        FormatError: The file is neither, cut short or corrupt; gives the offset and what was expected there.
        UnsupportedError: A trace.dat without stacks, or of another kind of machine.
        OSError: The file cannot be read.
    """
    if errors not in ("strict", "skip"):
        raise InputError(f"errors={errors!r}", expected="'strict' or 'skip'")
    file = Path(path)
    if file.is_dir() and not (file / "data").is_file():
        file = file / "perf.data"
    places = [symbols] if isinstance(symbols, (str, os.PathLike)) else list(symbols)
    native = core.PerfProfile(
        os.fspath(file),
        skip=errors == "skip",
        kallsyms=os.fspath(kallsyms) if kallsyms is not None else "",
        build_id_dirs=[
            *(os.fspath(place) for place in places),
            str(file.parent / "symbols"),
            str(in_home("~/.debug")),
        ],
        root=os.fspath(root),
        use_paths=use_paths,
        use_running_kernel=True,
        inlines=inlines,
    )
    return Profile(native)
