# SPDX-License-Identifier: MIT
"""Sampling, as a context manager."""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from sampleblk_lab import checked, renamed, run_files, tasks, trust
from sampleblk_lab._native import core
from sampleblk_lab.blocks import StopsAtEnd
from sampleblk_lab.errors import InputError
from sampleblk_lab.paths import scratch_of
from sampleblk_lab.profiling.recorded import Profile, Report, open_profile

if TYPE_CHECKING:
    from os import PathLike

    from sampleblk_lab.profiling.heatmap import HeatMap
    from sampleblk_lab.profiling.stacks import FlameGraph, Stacks
    from sampleblk_lab.table import Table
    from sampleblk_lab.tasks import Who

_PAGE = 4096
_MOST_HZ = 2**31 - 1
_MOST_STACK = 65528  # as perf_event_open(2) has it


@dataclass(frozen=True)
class SampleSource:
    """A source of samples beside the clock, for `events` of :func:`profile`.

    Attributes:
        event: Any name of perf list: a trace point (``"block:block_rq_issue"``), ``"page-faults"``,
            ``"context-switches"``, ``"LLC-load-misses"``, ``"r01c2"``; ``":u"`` or ``":k"`` behind one keeps to there.
        filter: Of a trace point's fields, as the kernel takes it: ``"nr_sector > 8 && dev == 266338304"``.
        period: A sample each so many times.
        hz: Instead of `period`: as often as comes to this many samples a second.
        stacks: Whether each has its stack.
        everywhere: On all CPUs, whatever the processes of the profile. None: trace points are, for what is done for a
            process is often done by another; the rest is not.
    """

    event: str
    filter: str | None = None
    period: int = 1
    hz: int | None = None
    stacks: bool = True
    everywhere: bool | None = None

    def _native(self) -> core.SampleSource:
        everywhere = (
            is_trace_point(self.event) if self.everywhere is None else checked.flag("everywhere", self.everywhere)
        )
        return core.SampleSource(
            self.event,
            filter=self.filter or "",
            period=checked.count("period", self.period, 1, (1 << 63) - 1),
            frequency_hz=0 if self.hz is None else checked.count("hz", self.hz, 1, _MOST_HZ),
            stacks=checked.flag("stacks", self.stacks),
            everywhere=everywhere,
        )


def is_trace_point(event: str) -> bool:
    """Whether it is system:name, rather than an event with the modifiers u and k behind its colon."""
    return re.fullmatch(r"[^:]+:(?![uk]+$).+", event) is not None


def online() -> dict[str, int]:
    """The CPUs that are online, each with a number that is another one when it has gone and come back."""
    found = {}
    for folder in Path("/sys/devices/system/cpu").glob("cpu[0-9]*/topology"):
        with contextlib.suppress(FileNotFoundError):
            found[folder.parent.name] = folder.stat().st_ino
    return found


def of_cpus(before: dict[str, int]) -> list[trust.Check]:
    """What is missing since `before`, which was :func:`online`: an event is opened on a CPU, and goes with it."""
    moved = ", ".join(sorted(dict(before.items() ^ online().items())))
    told = trust.Check("lost", "CPUs that went or came while they were looked at", moved, "incomplete", is_doubt=True)
    return [told] if moved else []


class Profiler(StopsAtEnd):
    """Samples while its with block runs; afterwards it has what was sampled. Made by :func:`profile`."""

    _KEPT = "what was sampled"

    def __init__(self, options: dict[str, Any]) -> None:
        self._options = options
        self._sampler: core.Sampler | None = None
        self._spool: str | None = None
        self._stats: dict[str, Any] = {}
        self._online: dict[str, int] = {}
        self._moved: list[trust.Check] = []
        self._profile: Profile | None = None

    def start(self) -> Self:
        """Begins to sample.

        Raises:
            PermissionError: The kernel does not let this user sample; says which setting.
            UnsupportedError: This machine does not count the event.
            InputError: No such event or trace point.
        """
        if self._spool is not None:
            raise RuntimeError("a Profiler samples once; make another one with profile()")
        self._note_process()
        spool, self._finalizer = scratch_of(self, "profile")
        self._online = online()
        try:
            sampler = core.Sampler(f"{spool}/perf.data", **self._options)
            sampler.start()
        except BaseException:
            self._finalizer()
            raise
        self._spool, self._sampler = spool, sampler
        return self

    def stop(self) -> Self:
        """Ends the sampling and completes the file. Does nothing the second time."""
        if self._sampler is not None:
            self._refuse_in_fork()
            sampler, self._sampler = self._sampler, None
            self._stats = sampler.stop()
            self._moved = of_cpus(self._online)
            trust.later(self._checks)
            # Now: a module that is unloaded later takes its names along.
            names = Path("/proc/kallsyms").read_bytes()
            if not _hidden(names):
                Path(f"{self._spool}/kallsyms").write_bytes(names)
        return self

    close = stop

    def _checks(self) -> list[trust.Check]:
        found = [trust.of_losses(f"samples {name}", int(self._stats[name])) for name in ("lost", "throttled")]
        if dropped := int(self._stats["dropped_bytes"]):
            found.append(trust.of_losses("bytes of samples beyond the limit", dropped))
        return found + self._moved

    def limit_to(self, pids: list[int], *, children: bool = True) -> None:
        """Samples only these processes, unless it was told whom to sample; before it starts.

        Args:
            pids: The processes; none: what it was told.
            children: Their descendants, too.
        """
        if self._spool is not None:
            raise RuntimeError("a Profiler is limited before it starts")
        if pids and not self._options["pids"]:
            self._options |= {"pids": list(pids), "children": children}

    def hand_over(self, directory: Path) -> None:
        """Moves ``perf.data`` and ``kallsyms`` into a recording's directory, which has them from now on."""
        if self._spool is None or self._sampler is not None:
            raise RuntimeError("the sampling has not ended yet")
        for name in ("perf.data", "kallsyms"):
            if (file := Path(self._spool) / name).exists():
                shutil.move(file, directory / name)
        self._finalizer()
        self._spool = str(directory)

    @property
    def stats(self) -> dict[str, Any]:
        """Counts of the recording.

        event (what was sampled), fallback (why it is not cycles, else empty), bytes, samples, lost, throttled,
        dropped_bytes.
        """
        return dict(self._stats)

    @property
    def profile(self) -> Profile:
        """What was sampled. Raises RuntimeError while it is still going on."""
        if self._spool is None or self._sampler is not None:
            raise RuntimeError("the sampling has not ended yet")
        if self._profile is None:
            self._profile = open_profile(self._spool)
        return self._profile

    @property
    def result(self) -> Profile:
        """The old name of :attr:`profile`."""
        renamed.warn("Profiler.result", "Profiler.profile")
        return self.profile

    # Every view of the profile, each as it is there: tests/test_public_names.py compares the signatures.

    def report(self, **selection: Any) -> Report:
        """See :meth:`Profile.report`."""
        return self.profile.report(**selection)

    def samples(self, **selection: Any) -> Table:
        """See :meth:`Profile.samples`."""
        return self.profile.samples(**selection)

    def stack(self, sample: int) -> list[str]:
        """See :meth:`Profile.stack`."""
        return self.profile.stack(sample)

    def stacks(self, *, weight: str = "samples", **selection: Any) -> Stacks:
        """See :meth:`Profile.stacks`."""
        return self.profile.stacks(weight=weight, **selection)

    def tree(self, *, min_percent: float = 0.5, max_depth: int = 200, **selection: Any) -> str:
        """See :meth:`Profile.tree`."""
        return self.profile.tree(min_percent=min_percent, max_depth=max_depth, **selection)

    def flamegraph(self, path: str | PathLike[str] | None = None, **options: Any) -> FlameGraph:
        """See :meth:`Profile.flamegraph`."""
        return self.profile.flamegraph(path, **options)

    def heatmap(self, *, rows: int = 50, **selection: Any) -> HeatMap:
        """See :meth:`Profile.heatmap`."""
        return self.profile.heatmap(rows=rows, **selection)

    def off_cpu(self, **selection: Any) -> Stacks:
        """See :meth:`Profile.off_cpu`."""
        return self.profile.off_cpu(**selection)

    def wall_clock(self, **selection: Any) -> Stacks:
        """See :meth:`Profile.wall_clock`."""
        return self.profile.wall_clock(**selection)

    def waits(self, **selection: Any) -> Table:
        """See :meth:`Profile.waits`."""
        return self.profile.waits(**selection)

    def syscalls(self, **selection: Any) -> Table:
        """See :meth:`Profile.syscalls`."""
        return self.profile.syscalls(**selection)

    def locks(self, **selection: Any) -> Table:
        """See :meth:`Profile.locks`."""
        return self.profile.locks(**selection)

    def save(self, directory: str | PathLike[str], *, symbols: bool = True) -> Profile:
        """Keeps the recording, with what it takes to read it on another machine.

        Args:
            directory: It gets ``perf.data``, ``kallsyms`` (where this user may see addresses) and ``symbols/``, a
                build-id cache of the files whose functions were sampled.
            symbols: False leaves the latter two out.

        Returns:
            The profile, opened from there. ``perf --buildid-dir DIR/symbols report -i DIR/perf.data --kallsyms
            DIR/kallsyms`` shows the same.
        """
        profile = self.profile
        target = Path(directory)
        target.mkdir(parents=True, exist_ok=True)
        moved = target.resolve() != profile.path.parent.resolve()
        if moved:
            run_files.remove(target, "perf.data", "kallsyms", run_files.SYMBOLS)  # of another recording
            shutil.copyfile(profile.path, target / "perf.data")
        if symbols:
            names = profile.path.with_name("kallsyms")
            if moved and names.exists():
                shutil.copyfile(names, target / "kallsyms")
            profile.save_symbols(target / run_files.SYMBOLS)
        return open_profile(target)

    def __repr__(self) -> str:
        if self._spool is None:
            return "<Profiler, not started>"
        if self._sampler is not None:
            return "<Profiler, sampling>"
        return repr(self.profile)

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        if self._spool is None or self._sampler is not None:
            return {"text/plain": repr(self)}
        return self.profile._repr_mimebundle_()


def _hidden(kallsyms: bytes) -> bool:
    """Whether kptr_restrict keeps the addresses from this user."""
    line = re.search(rb"^([0-9a-f]+) T _text$", kallsyms, re.M)
    return line is None or int(line[1], 16) == 0


@renamed.parameters(pid="pids")
def profile(
    *,
    hz: int = 997,
    event: str | None = None,
    pids: Who | None = None,
    children: bool = True,
    kernel: bool = True,
    user: bool = True,
    callgraph: str | None = "fp",
    stack_bytes: int = 8192,
    offcpu: bool = False,
    events: str | SampleSource | Iterable[str | SampleSource] = (),
    buffer: int | str = "512K",
    limit: int | str = "1G",
) -> Profiler:
    """Samples what the CPUs run while the with block runs, as ``perf record -g -F hz`` does.

    Args:
        hz: Samples a second and CPU; 0: only `events`. 997 is prime, so that it does not keep step with the timer tick.
        event: What is sampled `hz` times a second: ``"cycles"``, ``"cpu-clock"``, ``"page-faults"``, …, or a trace
            point, each time; None: cycles where the machine counts them, else cpu-clock, and ``stats["fallback"]`` says
            so.
        pids: This process or these, or a JobRun; with all their threads. None: all CPUs, which needs CAP_PERFMON.
        children: Their descendants, too: those of now and those to come. Before Linux 5.13, False leaves out threads to
            come, too.
        kernel: Whether kernel code is sampled.
        user: Whether user code is sampled.
        callgraph: ``"fp"`` follows frame pointers in user code (kernel stacks are always whole); ``"dwarf"`` copies
            registers and stack, to be unwound later; None takes no stacks.
        stack_bytes: How much of the user stack ``"dwarf"`` copies.
        offcpu: Records when threads stop and go on (sched_switch with stacks, sched_waking), on all CPUs: for
            :meth:`Profile.off_cpu` and what builds on it.
        events: More sources of samples, each with its stack: names of trace points (``"block:block_rq_issue"``, on all
            CPUs) and of other events (``"page-faults"``), or :class:`SampleSource` for a filter, a period, a frequency.
            Views of the result take ``event="block:block_rq_issue"``.
        buffer: Each CPU's ring buffer; rounded up to a power of two of 4 KiB pages.
        limit: The most that is written; what comes later is dropped and counted.

    Returns:
        A context manager; see :class:`Profiler`.
    """
    if callgraph not in ("fp", "dwarf", None):
        raise InputError(f"callgraph={callgraph!r}", expected="'fp', 'dwarf' or None")
    (event,) = checked.names("event", event) if event else [""]
    pages = max(1, -(-core.parse_bytes(str(buffer), "buffer") // _PAGE))
    chosen: list[str | SampleSource] = (
        list(events) if isinstance(events, Iterable) and not isinstance(events, str) else [events]
    )
    checked.names("events", [one for one in chosen if not isinstance(one, SampleSource)])
    sources = [SampleSource(one) if isinstance(one, str) else one for one in chosen]
    if checked.flag("offcpu", offcpu):
        tasks.require_first_pids("offcpu=True")
        switches = [SampleSource("sched:sched_switch"), SampleSource("sched:sched_waking", stacks=False)]
        sources = switches + [source for source in sources if source.event != "sched:sched_switch"]
    checked.count("hz", hz, 0, _MOST_HZ)
    if not hz and not sources:
        raise InputError(f"hz={hz!r} without events=", expected="samples a second, or what else is sampled, as events")
    stack = checked.count("stack_bytes", stack_bytes, 1, _MOST_STACK)  # 0 is no copy: by frame pointers
    names = [source.event for source in sources]
    options: dict[str, Any] = {
        "frequency_hz": hz,
        "event": event,
        "pids": tasks.ids(pids, jobs_by="pids"),
        "children": checked.flag("children", children),
        "kernel": checked.flag("kernel", kernel),
        "user": checked.flag("user", user),
        "callchains": callgraph is not None,
        "user_stack_bytes": stack if callgraph == "dwarf" else 0,
        "sources": [source._native() for source in sources],  # noqa: SLF001
        "buffer_pages": 1 << (pages - 1).bit_length(),
        "limit_bytes": core.parse_bytes(str(limit), "limit"),
        "tracefs": core.tracefs_dir() if any(map(is_trace_point, [event, *names])) else "",
    }
    return Profiler(options)
