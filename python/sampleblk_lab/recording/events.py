# SPDX-License-Identifier: MIT
"""The events of one place to trace in: which are on, their filters, triggers and histograms, and those made here."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from glob import has_magic
from pathlib import Path
from typing import TYPE_CHECKING

from sampleblk_lab import checked
from sampleblk_lab.errors import InputError, UnsupportedError
from sampleblk_lab.recording.control import ControlFiles, refusals

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sampleblk_lab.recording.hist import Hist

# A line of an event's format: how its field is declared, its name, its places, its size and whether it has a sign.
_FIELD = re.compile(r"\tfield:([^;]*\W)(\w+)(\[[^;]*)?;\toffset:\d+;\tsize:(\d+);\tsigned:(\d);")


class Events(ControlFiles):
    """The part of :class:`~sampleblk_lab.Session` that is about events."""

    def __init__(self, *, top_level: bool = False, name: str | None = None) -> None:
        self._probes: set[str] = set()
        super().__init__(top_level=top_level, name=name)

    # -- which are on

    def enable(self, events: str | Iterable[str]) -> list[str]:
        """Enables events by ``"system:name"`` or ``"system"``, with globs. Returns all that are enabled now.

        Raises:
            InputError: Nothing matches one of them.
        """
        for event in checked.names("events", events):
            try:
                for pattern in self._patterns(event):
                    self.set("set_event", pattern, append=True)
            except OSError as error:
                raise InputError(
                    f"no event {event!r} on this kernel",
                    expected="one of available_events, such as 'block:block_rq_issue'",
                ) from error
        return self.enabled()

    def _patterns(self, event: str) -> list[str]:
        """What set_event takes for it: of globs the kernel knows a "*" that stands for a whole word."""
        if all(word == "*" or not has_magic(word) for word in event.split(":")):
            return [event if ":" in event else f"{event}:*" if self.has(f"events/{event}") else f"*:{event}"]
        globs = [event] if ":" in event else [f"{event}:*", f"*:{event}"]
        return [name for name in self._known() if any(fnmatchcase(name, glob) for glob in globs)] or [event]

    def _known(self) -> list[str]:
        return Path(f"{self._top}/available_events").read_text().split()

    def enabled(self) -> list[str]:
        """The enabled events, as ``"system:name"``."""
        return self.read("set_event").split()

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

        An empty one keeps all.

        Raises:
            TraceCommandError: The condition is wrong; says where.
        """
        self.set(f"{self._event_dir(event)}/filter", "0" if condition == "" else condition)

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
        values: str | Iterable[str] = (),
        sort: str | None = None,
        size: int | None = None,
        condition: str | None = None,
        name: str | None = None,
        actions: str | Iterable[str] = (),
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
        fields = {"lat": "u64"} | ({save: self._carried(stop, save)} if save else {})
        event = self.synthetic(name, fields)
        # An event's histograms share their variables.
        began, lasted = f"ts_{name}", f"lat_{name}"
        self.hist(start, key[0], variables={began: "common_timestamp.usecs"})
        arguments = f"${lasted}" + (f",{save}" if save else "")
        self.hist(
            stop,
            key[1],
            variables={lasted: f"common_timestamp.usecs-${began}"},
            actions=[f"onmatch({start.replace(':', '.')}).{name}({arguments})"],
        )
        return self.hist(event, [f"lat.{bucket}" if bucket else "lat", *([save] if save else [])], sort="lat")

    def _carried(self, event: str, field: str) -> str:
        """The type of a synthetic event's field that takes this one: by size alone it takes those without a sign."""
        fields = {name: (declared, *rest) for declared, name, *rest in _FIELD.findall(self.format(event))}
        if field not in fields:
            raise InputError(f"no field {field!r} of {event}", expected=", ".join(fields))
        declared, array, size, signed = fields[field]
        if "char" in declared and (array or "[" in declared):
            return "char[]"
        return declared.strip() if signed == "1" else f"u{8 * int(size)}"

    def _probe(self, file: str, kind: str, name: str, place: str, arguments: Mapping[str, str]) -> str:
        # Without a name it would be one of the kernel's choice.
        checked.names("name", [name])
        fetches = "".join(f" {argument}={fetch}" for argument, fetch in arguments.items())
        line = f"{kind}:sampleblk/{name} {place}{fetches}"
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
        return self._probe("kprobe_events", "p", name, function, arguments)

    def kretprobe(self, name: str, function: str, **arguments: str) -> str:
        """An event at a kernel function's return; ``ret="$retval:s64"``. See :meth:`kprobe`."""
        return self._probe("kprobe_events", "r", name, function, arguments)

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
        return self._probe("uprobe_events", "p", name, f"{path}:{offset:#x}", arguments)

    def uretprobe(self, name: str, path: str, offset: int, **arguments: str) -> str:
        """An event at the return of the function at that offset. See :meth:`kprobe`."""
        return self._probe("uprobe_events", "r", name, f"{path}:{offset:#x}", arguments)

    def eprobe(self, name: str, event: str, **arguments: str) -> str:
        """An event on top of another, such as ``path="+0($filename):ustring"``. See :meth:`kprobe`."""
        return self._probe("dynamic_events", "e", name, event.replace(":", "/"), arguments)
