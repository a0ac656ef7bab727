# SPDX-License-Identifier: MIT
"""One place to trace in: an ftrace instance of our own, or the top level of tracefs."""

from __future__ import annotations

import itertools
import os
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self

from sampleblk_lab import leftovers, renamed
from sampleblk_lab._native import core
from sampleblk_lab.errors import InputError, TraceCommandError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from types import TracebackType

    from sampleblk_lab.recording.hist import Hist

_numbers = itertools.count()


@contextmanager
def refusals(command: str) -> Iterator[None]:
    """Turns the kernel's refusal of `command` into a :class:`TraceCommandError`."""
    try:
        yield
    except OSError as error:
        raise TraceCommandError(error.errno or 0, error.strerror or str(error), error.filename or "", command) from None


def _other_mappings(path: str) -> list[str]:
    """Where this process maps other files under that name: a VM's Python may run from copies (vm/fork_server.py)."""
    real = Path(path).resolve()
    found: dict[tuple[int, int], str] = {}
    for span in Path("/proc/self/maps").read_text().splitlines():
        address, _, _, _, _, *mapped = span.split(maxsplit=5)
        if mapped == [str(real)]:
            place = Path(f"/proc/{os.getpid()}/map_files/{address}")
            with suppress(OSError):
                status, own = place.stat(), real.stat()
                if not os.path.samestat(status, own):
                    found[status.st_dev, status.st_ino] = str(place)
    return list(found.values())


class Session:
    """An ftrace instance, or the top level, whose every change is put back by :meth:`close`.

    The undo notes are on disk before a change is made, so what a killed session leaves is put back when the next
    one starts.

    Args:
        top_level: Trace in the top-level buffer instead of an instance of our own.
        name: The instance's name; by default one that no other session has.

    Raises:
        UnsupportedError: There is no tracefs, or we may not use it.
    """

    def __init__(self, *, top_level: bool = False, name: str | None = None) -> None:
        self._top = core.tracefs_dir()
        #: What killed processes had left and was put back now, a line each.
        self.recovered: list[str] = leftovers.clean()
        self._undo = core.UndoLog(str(leftovers.directory()))
        self.top_level = top_level
        self._closed = False
        self._marker: core.Marker | None = None
        self._probes: set[str] = set()
        try:
            if top_level:
                self.path = self._top
                self._refuse_if_busy()
            else:
                self.path = f"{self._top}/instances/{name or f'sampleblk-{os.getpid()}-{next(_numbers)}'}"
                # Making an instance touches the top level's buffer on some kernels; see restoring_writes() in the core.
                self._undo.keep(f"{self._top}/buffer_size_kb")
                self._undo.make_instance(self.path)
        except BaseException:
            self.close()
            raise

    def _refuse_if_busy(self) -> None:
        tracer = self.read("current_tracer").strip()
        events = self.read("set_event").strip()
        if tracer != "nop" or events:
            what = f"the {tracer} tracer" if tracer != "nop" else f"events ({events.splitlines()[0]}…)"
            raise UnsupportedError(
                "tracing at the top level",
                f"someone else uses {what} there",
                f"stop it: echo nop > {self._top}/current_tracer; echo > {self._top}/set_event",
            )

    # -- control files

    def has(self, file: str) -> bool:
        """Whether this kernel has the control file `file` here."""
        return os.path.exists(f"{self.path}/{file}")  # noqa: PTH110

    def read(self, file: str) -> str:
        """The text of a control file."""
        return Path(f"{self.path}/{file}").read_text(errors="replace")

    def set(self, file: str, text: str, *, append: bool = False) -> None:
        """Writes a control file, to be put back by :meth:`close`.

        Raises:
            TraceCommandError: The kernel refused; carries its error_log's words and where its caret points.
        """
        with refusals(text):
            if self.top_level:
                self._undo.set(f"{self.path}/{file}", text, append)
            else:  # goes away with the instance
                core.write_control(f"{self.path}/{file}", text, append)

    def set_top(self, file: str, text: str, *, append: bool = False) -> None:
        """The same for the files that only the top level has, such as ``set_graph_function``."""
        with refusals(text):
            self._undo.set(f"{self._top}/{file}", text, append)

    def has_top(self, file: str) -> bool:
        """Whether the top level has the control file `file`."""
        return os.path.exists(f"{self._top}/{file}")  # noqa: PTH110

    # -- the usual knobs

    def start(self) -> None:
        """Lets the buffer take events."""
        self.set("tracing_on", "1")

    def stop(self) -> None:
        """Stops the buffer from taking events; what is enabled stays enabled."""
        self.set("tracing_on", "0")

    def on(self) -> None:
        """The old name of :meth:`start`."""
        renamed.warn("Session.on()", "Session.start()")
        self.start()

    def off(self) -> None:
        """The old name of :meth:`stop`."""
        renamed.warn("Session.off()", "Session.stop()")
        self.stop()

    def buffer_size(self, size_bytes: int) -> None:
        """Sets the ring buffer's size, in bytes a CPU."""
        self.set("buffer_size_kb", str(max(size_bytes // 1024, 4)))

    def clock(self, name: str) -> None:
        """Chooses the trace clock, such as ``"mono"``.

        Raises:
            InputError: This kernel has no such clock.
        """
        known = self.read("trace_clock").replace("[", "").replace("]", "").split()
        if name not in known:
            raise InputError(f"no trace clock {name!r}", expected=", ".join(known))
        self.set("trace_clock", name)

    def enable(self, events: Iterable[str]) -> list[str]:
        """Enables events by ``"system:name"`` or ``"system"``, with globs. Returns all that are enabled now.

        Raises:
            InputError: Nothing matches one of them.
        """
        for event in events:
            pattern = event if ":" in event else f"{event}:*" if self.has(f"events/{event}") else f"*:{event}"
            try:
                self.set("set_event", pattern, append=True)
            except OSError as error:
                raise InputError(
                    f"no event {event!r} on this kernel",
                    expected="one of available_events, such as 'block:block_rq_issue'",
                ) from error
        return self.enabled()

    def enabled(self) -> list[str]:
        """The enabled events, as ``"system:name"``."""
        return self.read("set_event").split()

    def mark(self, text: str) -> None:
        """Writes a line into the trace (an ``ftrace:print`` event)."""
        if self._marker is None:
            self._marker = core.Marker(self.path)
        self._marker.write(text)

    # -- tracers and their filters

    def tracer(self, name: str) -> None:
        """Chooses the tracer: ``"function"``, ``"function_graph"``, ``"blk"``, ``"nop"`` or another.

        Raises:
            UnsupportedError: This kernel has it not, or not in instances.
        """
        known = self.available("tracers")
        if name not in known:
            top = Path(f"{self._top}/available_tracers").read_text().split()
            raise UnsupportedError(
                f"the {name} tracer",
                "this kernel allows it at the top level only" if name in top else "this kernel is built without it",
                "use Session(top_level=True)" if name in top else f"one of {', '.join(top)}",
            )
        self.set("current_tracer", name)

    def block_devices(self, *devices: str) -> None:
        """Lets the blk tracer see these devices, such as ``"sampleblk1"``; ``tracer("blk")`` comes first.

        Raises:
            InputError: There is no such block device.
            UnsupportedError: The kernel is built without blktrace.
        """
        for device in devices:
            folder = Path("/sys/block", device)
            if not folder.is_dir():
                known = sorted(path.name for path in Path("/sys/block").iterdir())
                raise InputError(f"no block device {device!r}", expected=", ".join(known) or "none is there")
            if not (folder / "trace/enable").exists():
                raise UnsupportedError("the blk tracer", f"{folder} has no trace/enable", "CONFIG_BLK_DEV_IO_TRACE")
            with refusals(device):
                self._undo.set(str(folder / "trace/enable"), "1")

    def functions(self, *names: str, notrace: Iterable[str] = (), module: str | None = None) -> None:
        """Limits the function tracers to functions by name or glob.

        Args:
            names: Functions to trace; none: all.
            notrace: Functions to leave out.
            module: Only those of this kernel module (``:mod:``).
        """
        suffix = f":mod:{module}" if module else ""
        for file, patterns in (
            ("set_ftrace_filter", names or (["*"] if module else [])),
            ("set_ftrace_notrace", notrace),
        ):
            self.set(file, "\n")
            for pattern in patterns:
                self.set(file, f"{pattern}{suffix}\n", append=True)

    def graph_functions(self, *names: str, notrace: Iterable[str] = (), depth: int = 0) -> None:
        """Limits function_graph to what these functions call, `depth` levels down (0: all)."""
        for file, patterns in (("set_graph_function", names), ("set_graph_notrace", notrace)):
            self.set_top(file, "\n")
            for pattern in patterns:
                self.set_top(file, f"{pattern}\n", append=True)
        self.set_top("max_graph_depth", str(depth))

    def threshold(self, microseconds: int) -> None:
        """function_graph records only calls that take longer (``tracing_thresh``); 0: all."""
        self.set_top("tracing_thresh", str(microseconds))

    def pids(self, *pids: int, children: bool = True) -> None:
        """Limits events and function tracers to these tasks, and to what they fork where `children` is set."""
        text = " ".join(map(str, pids)) or "\n"
        for option, file in (("event-fork", "set_event_pid"), ("function-fork", "set_ftrace_pid")):
            if self.has(file):
                if self.has(f"options/{option}"):
                    self.set(f"options/{option}", "1" if children else "0")
                self.set(file, text)

    def option(self, name: str, value: bool = True) -> None:
        """Sets a trace option.

        Raises:
            InputError: This kernel has no such option here.
        """
        if not self.has(f"options/{name}"):
            raise InputError(f"no trace option {name!r}", expected=", ".join(self.available("options")))
        self.set(f"options/{name}", "1" if value else "0")

    def cpus(self, cpus: Iterable[int]) -> None:
        """Traces on these CPUs only (``tracing_cpumask``)."""
        mask = sum(1 << cpu for cpu in set(cpus))
        words: list[str] = []
        while mask or not words:
            words.append(f"{mask & 0xFFFFFFFF:08x}")
            mask >>= 32
        self.set("tracing_cpumask", ",".join(reversed(words)))

    def available(self, what: str) -> list[str]:
        """What there is: ``"tracers"``, ``"events"``, ``"functions"``, ``"clocks"`` or ``"options"``.

        Raises:
            InputError: `what` is none of these.
        """
        if what == "tracers":
            return self.read("available_tracers").split()
        if what == "events":
            return Path(f"{self._top}/available_events").read_text().split()
        if what == "functions":
            return [
                line.split()[0] for line in Path(f"{self._top}/available_filter_functions").read_text().splitlines()
            ]
        if what == "clocks":
            return self.read("trace_clock").replace("[", "").replace("]", "").split()
        if what == "options":
            return sorted(path.name for path in Path(f"{self.path}/options").iterdir())
        raise InputError(f"no list of {what!r}", expected="tracers, events, functions, clocks or options")

    # -- events: filters, triggers, histograms

    def _event_dir(self, event: str) -> str:
        system, _, name = event.partition(":")
        if not name:
            found = sorted(Path(f"{self.path}/events").glob(f"*/{event}/enable"))
            if len(found) != 1:
                raise InputError(f"{len(found)} events are named {event!r}", expected="'system:name'")
            return f"events/{found[0].parent.parent.name}/{event}"
        if not self.has(f"events/{system}/{name}"):
            raise InputError(f"no event {event!r} on this kernel", expected="one of available_events")
        return f"events/{system}/{name}"

    def format(self, event: str) -> str:
        """The event's format file."""
        return self.read(f"{self._event_dir(event)}/format")

    def filter(self, event: str, condition: str) -> None:
        """Keeps only records of the event that fulfil the condition, such as ``"prev_pid > 0 && next_comm ~ 'fio*'"``.

        Raises:
            TraceCommandError: The condition is wrong; says where.
        """
        self.set(f"{self._event_dir(event)}/filter", condition)

    def trigger(self, event: str, command: str) -> None:
        """Adds a trigger, such as ``"stacktrace:5 if bytes > 4096"``, ``"snapshot"`` or ``"hist:keys=…"``.

        Raises:
            TraceCommandError: The command is wrong; says where.
            UnsupportedError: A histogram on a kernel that has none.
        """
        directory = f"{self.path}/{self._event_dir(event)}"
        file = f"{directory}/trigger"
        if command.startswith("hist") and Path(directory).is_dir() and not Path(directory, "hist").exists():
            raise UnsupportedError(
                f"a histogram of {event}",
                "the kernel is built without CONFIG_HIST_TRIGGERS (Debian's 5.10 is)",
                "record the event and count its column, as with numpy.unique()",
            )
        with refusals(command):
            # In an instance too: one whose histograms refer to each other's variables cannot be removed as it is.
            self._undo.add_line(file, command, f"!{command}")

    def hist(
        self,
        event: str,
        keys: str | Iterable[str],
        *,
        values: Iterable[str] = (),
        sort: str | None = None,
        size: int | None = None,
        condition: str | None = None,
        name: str | None = None,
        actions: Iterable[str] = (),
        variables: Mapping[str, str] | None = None,
    ) -> Hist:
        """A histogram that the kernel keeps itself (a hist trigger); see Documentation/trace/histogram.rst.

        Args:
            event: ``"system:name"``.
            keys: Fields, with modifiers: ``"bytes.log2"``, ``"ip.sym"``, ``"common_pid.execname"``, ``"stacktrace"``.
            values: Fields to be summed; the hit count is always there.
            sort: Field to sort by, such as ``"hitcount.descending"``.
            size: Entries of the table, a power of two.
            condition: A filter.
            name: A name by which several events share one histogram.
            actions: Such as ``"onmatch(sched.sched_waking).wakeup_latency($lat,next_pid)"``.
            variables: Name to expression, such as ``{"ts0": "common_timestamp.usecs"}``.

        Returns:
            The histogram; ``table()`` reads it.

        Raises:
            TraceCommandError: A key, value or action is wrong; says where.
            UnsupportedError: The kernel keeps no histograms.
        """
        from sampleblk_lab.recording.hist import Hist, hist_command

        command = hist_command(keys, values, sort, size, condition, name, actions, variables or {})
        self.trigger(event, command)
        return Hist(f"{self.path}/{self._event_dir(event)}/hist")

    # -- dynamic events

    def synthetic(self, name: str, fields: Mapping[str, str]) -> str:
        """Makes a synthetic event with these fields (name to C type). Returns its ``"synthetic:name"``.

        Raises:
            TraceCommandError: A name or type is wrong.
            UnsupportedError: The kernel makes none.
        """
        if not self.has_top("synthetic_events"):
            raise UnsupportedError(
                f"the synthetic event {name!r}",
                "the kernel is built without CONFIG_SYNTH_EVENTS (Debian's 5.10 is)",
                "record both events and join their rows by the key",
            )
        text = "; ".join(f"{kind} {field}" for field, kind in fields.items())
        with refusals(f"{name} {text}"):
            self._undo.add_dynamic(f"{self._top}/synthetic_events", f"{name} {text}", f"!{name}")
        return f"synthetic:{name}"

    def latency(
        self, name: str, start: str, stop: str, *, key: tuple[str, str], bucket: str = "log2", save: str | None = None
    ) -> Hist:
        """A histogram of the time from one event to another, in us, kept by the kernel (onmatch).

        Args:
            name: Of the synthetic event that carries each latency.
            start: The event that begins it, ``"system:name"``.
            stop: The event that ends it.
            key: The field of `start` and the field of `stop` that must be equal.
            bucket: ``"log2"``, ``"buckets=10"``, or ``""`` for exact values.
            save: A field of `stop` to keep as a second key.

        Returns:
            The histogram of ``lat``, and of `save`.
        """
        fields = {"lat": "u64"} | ({save: "s64"} if save else {})
        event = self.synthetic(name, fields)
        self.hist(start, key[0], variables={"ts0": "common_timestamp.usecs"})
        arguments = "$lat" + (f",{save}" if save else "")
        self.hist(
            stop,
            key[1],
            variables={"lat": "common_timestamp.usecs-$ts0"},
            actions=[f"onmatch({start.replace(':', '.')}).{name}({arguments})"],
        )
        return self.hist(event, [f"lat.{bucket}" if bucket else "lat", *([save] if save else [])], sort="lat")

    def _probe(self, file: str, kind: str, name: str, places: Sequence[str], arguments: Mapping[str, str]) -> str:
        """One event at all these places."""
        fetches = "".join(f" {argument}={fetch}" for argument, fetch in arguments.items())
        line = "\n".join(f"{kind}:sampleblk/{name} {place}{fetches}" for place in places)
        if not self.has_top(file):
            raise UnsupportedError(f"the probe {name!r}", f"this kernel has no {file}", "use a later kernel")
        with refusals(line):
            self._undo.add_dynamic(f"{self._top}/{file}", line, f"-:sampleblk/{name}")
        self._probes.add(name)
        return f"sampleblk:{name}"

    def kprobe(self, name: str, function: str, **arguments: str) -> str:
        """An event at a kernel function's entry (or ``"function+0x10"``).

        Args:
            name: Of the event, which is ``"sampleblk:name"``.
            function: Where.
            arguments: Field to fetch expression, such as ``count="$arg3:u64"`` or ``path="+0($arg2):ustring"``;
                see Documentation/trace/kprobetrace.rst.

        Returns:
            The event's name, to be enabled.

        Raises:
            TraceCommandError: The kernel refused the probe; says what of it.
        """
        return self._probe("kprobe_events", "p", name, [function], arguments)

    def kretprobe(self, name: str, function: str, **arguments: str) -> str:
        """An event at a kernel function's return; ``ret="$retval:s64"``. See :meth:`kprobe`."""
        return self._probe("kprobe_events", "r", name, [function], arguments)

    def missed_probes(self) -> int:
        """How often this session's kernel probes could not be taken, such as a return probe under recursion."""
        missed = 0
        for file in ("kprobe_profile", "uprobe_profile"):
            lines = Path(f"{self._top}/{file}").read_text().splitlines() if self._probes and self.has_top(file) else []
            for line in lines:
                fields = line.split()  # name, hits, misses; uprobes have no third
                if len(fields) > 2 and fields[0] in self._probes and fields[2].isdigit():
                    missed += int(fields[2])
        return missed

    def uprobe(self, name: str, path: str, offset: int, **arguments: str) -> str:
        """An event at an offset in a program's or library's file. See :meth:`kprobe`."""
        return self._user_probe("p", name, path, offset, arguments)

    def uretprobe(self, name: str, path: str, offset: int, **arguments: str) -> str:
        """An event at the return of the function at that offset. See :meth:`kprobe`."""
        return self._user_probe("r", name, path, offset, arguments)

    def _user_probe(self, kind: str, name: str, path: str, offset: int, arguments: Mapping[str, str]) -> str:
        # The kernel knows a file by its inode.
        places = [f"{file}:{offset:#x}" for file in (path, *_other_mappings(path))]
        return self._probe("uprobe_events", kind, name, places, arguments)

    def eprobe(self, name: str, event: str, **arguments: str) -> str:
        """An event on top of another, such as ``path="+0($filename):ustring"``. See :meth:`kprobe`."""
        return self._probe("dynamic_events", "e", name, [event.replace(":", "/")], arguments)

    # -- what is in the buffer

    def trace_text(self) -> str:
        """The buffer as the kernel prints it (``trace``); it stays in the buffer."""
        return self.read("trace")

    def snapshot(self) -> str:
        """Swaps the buffer with its spare and returns that as the kernel prints it.

        Raises:
            UnsupportedError: The kernel is built without snapshots.
        """
        if not self.has("snapshot"):
            raise UnsupportedError("a snapshot", "this kernel is built without it", "CONFIG_TRACER_SNAPSHOT")
        self.set("snapshot", "1")
        return self.read("snapshot")

    def follow(self, *, idle: float = 0.05) -> Iterator[dict[str, object]]:
        """Events as they come, each as a dict of time (ns), cpu, event and its fields; they leave the buffer.

        While the caller is busy the ring buffer holds what comes; what it cannot hold is counted and shows up as an
        event ``"lost"``. Ends with Ctrl-C, or when the caller stops asking.

        Args:
            idle: How long to wait between looks at an empty buffer, in seconds.
        """
        from sampleblk_lab.recording.follow import follow

        return follow(self, idle)

    # -- undoing

    def close(self) -> None:
        """Puts every change back and removes the instance. The second call does nothing.

        Raises:
            OSError: Something could not be put back; the rest was.
        """
        if self._closed:
            return
        self._closed = True
        self._marker = None  # an open file would keep the instance from going
        failed = self._undo.undo()
        if failed:
            raise OSError("tracing could not be put back as it was: " + "; ".join(failed))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
