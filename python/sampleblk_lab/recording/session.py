# SPDX-License-Identifier: MIT
"""One place to trace in: an ftrace instance of our own, or the top level of tracefs."""

from __future__ import annotations

import contextlib
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sampleblk_lab import checked, renamed
from sampleblk_lab._native import core
from sampleblk_lab.errors import InputError, UnsupportedError
from sampleblk_lab.recording.control import refusals
from sampleblk_lab.recording.events import Events

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator

# PID_MAX_LIMIT of include/linux/threads.h; of a larger number the kernel drops the upper bits.
_MOST_PID = 1 << 22


class Session(Events):
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
        self._marker: core.Marker | None = None
        self._lost = 0  # of what follow() told
        self._followers: weakref.WeakSet[Generator[dict[str, Any], None, None]] = weakref.WeakSet()
        super().__init__(top_level=top_level, name=name)

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
        # Of a number that is too large the kernel drops the upper bits.
        size_bytes = checked.count("size_bytes", size_bytes, 0, (1 << 63) - 1)
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

    def mark(self, text: str) -> None:
        """Writes a line into the trace (an ``ftrace:print`` event); the kernel cuts it, at 1 KiB or later.

        Raises:
            InputError: No text, or one with a byte 0, where the line would end.
        """
        if not isinstance(text, str) or "\0" in text:
            raise InputError(f"mark {text!r:.60}", expected="a text without a byte 0")
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

    def functions(self, *names: str, notrace: str | Iterable[str] = (), module: str | None = None) -> None:
        """Limits the function tracers to functions by name or glob.

        Args:
            names: Functions to trace; none: all.
            notrace: Functions to leave out.
            module: Only those of this kernel module (``:mod:``).
        """
        traced, hidden = checked.names("functions", names), checked.names("notrace", notrace)
        if module is not None:
            checked.names("module", [module])
            traced, hidden = ([f"{name}:mod:{module}" for name in found] for found in (traced or ["*"], hidden))
        self._list(self.set, "set_ftrace_filter", traced)
        self._list(self.set, "set_ftrace_notrace", hidden)

    def graph_functions(self, *names: str, notrace: str | Iterable[str] = (), depth: int = 0) -> None:
        """Limits function_graph to what these functions call, `depth` levels down (0: all)."""
        traced, hidden = checked.names("functions", names), checked.names("notrace", notrace)
        self._list(self.set_top, "set_graph_function", traced)
        self._list(self.set_top, "set_graph_notrace", hidden)
        self.set_top("max_graph_depth", str(checked.count("depth", depth, 0)))

    @staticmethod
    def _list(write: Callable[..., None], file: str, patterns: list[str]) -> None:
        """Has a filter's file list these, and nothing else."""
        write(file, "\n")
        for pattern in patterns:
            # Without the line end the kernel looks at the name only at close(2), which reports no error.
            write(file, f"{pattern}\n", append=True)

    def threshold(self, microseconds: int) -> None:
        """function_graph records only calls that take longer (``tracing_thresh``); 0: all."""
        self.set_top("tracing_thresh", str(checked.count("microseconds", microseconds, 0, 1 << 40)))

    def pids(self, *pids: int, children: bool = True) -> None:
        """Limits events and function tracers to these tasks, and to what they fork where `children` is set."""
        text = " ".join(str(checked.count("pid", pid, 0, _MOST_PID)) for pid in pids) or "\n"
        children = checked.flag("children", children)
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
        """Traces on these CPUs only (``tracing_cpumask``).

        Raises:
            InputError: None, or one that this machine does not have.
        """
        wanted = set(cpus)
        there = sorted(int(path.name[3:]) for path in Path(f"{self.path}/per_cpu").glob("cpu*"))
        if not wanted or not wanted.issubset(there):
            # The kernel takes both, and traces nothing.
            what = f"no CPU {min(wanted.difference(there))}" if wanted else "no CPU"
            raise InputError(what, expected="some of " + ", ".join(map(str, there)))
        mask = sum(1 << cpu for cpu in there if cpu in wanted)
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
            return self._known()
        if what == "functions":
            return [
                line.split()[0] for line in Path(f"{self._top}/available_filter_functions").read_text().splitlines()
            ]
        if what == "clocks":
            return self.read("trace_clock").replace("[", "").replace("]", "").split()
        if what == "options":
            return sorted(path.name for path in Path(f"{self.path}/options").iterdir())
        raise InputError(f"no list of {what!r}", expected="tracers, events, functions, clocks or options")

    # -- what is in the buffer

    def trace_text(self) -> str:
        """The buffer as the kernel prints it (``trace``); it stays in the buffer, which takes no events meanwhile."""
        # To one that takes those of read(2) each reading would add another, without an end.
        pause = "options/pause-on-trace"
        paused = self.read(pause)
        self.set(pause, "1")
        try:
            return self.read("trace")
        finally:
            self.set(pause, paused)

    def snapshot(self) -> str:
        """Swaps the buffer with its spare and returns that as the kernel prints it.

        Raises:
            UnsupportedError: The kernel is built without snapshots.
        """
        if not self.has("snapshot"):
            raise UnsupportedError("a snapshot", "this kernel is built without it", "CONFIG_TRACER_SNAPSHOT")
        self.set("snapshot", "1")
        try:
            return self.read("snapshot")
        finally:
            self.set("snapshot", "2")  # at the next swap it would come back with what is in it

    def follow(self, *, idle: float = 0.05) -> Iterator[dict[str, object]]:
        """Events as they come, each as a dict of time (ns), cpu, event and its fields; they leave the buffer.

        While the caller is busy the ring buffer holds what comes; what it cannot hold is counted and shows up as an
        event ``"lost"``. Ends with Ctrl-C, or when the caller stops asking.

        Args:
            idle: How long to wait between looks at an empty buffer, in seconds.
        """
        from sampleblk_lab.recording.follow import follow

        events = follow(self, idle)
        self._followers.add(events)
        return events

    def close(self) -> None:
        """Puts every change back and removes the instance. The second call does nothing.

        Raises:
            OSError: Something could not be put back; the rest was.
        """
        # An open file would keep the instance from going.
        self._marker = None
        for events in self._followers:
            with contextlib.suppress(ValueError):  # another thread is in it
                events.close()
        super().close()
