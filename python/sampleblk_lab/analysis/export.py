# SPDX-License-Identifier: MIT
"""Recordings for other programs: Perfetto, Chrome's trace viewer, CSV, Parquet."""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from sampleblk_lab.analysis.run import Run
    from sampleblk_lab.table import Table


@dataclass
class _Track:
    """A line of the timeline."""

    uuid: int
    name: str
    group: str
    slices: list[tuple[int, int, str]] = field(default_factory=list)  # start, duration (ns), name
    counter: list[tuple[int, int]] = field(default_factory=list)  # time (ns), value


def _occurs(run: Run) -> set[str]:
    return set(map(str, run.counts()["event"].values.tolist()))


def _tracks(run: Run) -> Iterator[_Track]:
    """The tracks of a recording: CPUs, tasks, devices."""
    events = _occurs(run)
    number = iter(range(1, 1 << 62))
    commands = run.file.commands
    if "sched:sched_switch" in events:
        table = run.events("sched:sched_switch", fields=["next_comm", "next_pid"])
        time, cpu, pid = (table[name].codes for name in ("time", "cpu", "next_pid"))
        comm = table["next_comm"].values
        for one in np.unique(cpu):
            track = _Track(next(number), f"CPU {one}", "CPUs")
            rows = np.flatnonzero(cpu == one)
            for row, after in pairwise(rows):
                if pid[row] != 0:
                    track.slices.append((int(time[row]), int(time[after] - time[row]), f"{comm[row]}-{pid[row]}"))
            yield track
    tasks: dict[tuple[int, str], _Track] = {}

    def task(pid: int, kind: str) -> _Track:
        if (pid, kind) not in tasks:
            tasks[pid, kind] = _Track(next(number), f"{commands.get(pid, '?')}-{pid} {kind}", "Tasks")
        return tasks[pid, kind]

    if any(event.partition(":")[0] in ("syscalls", "raw_syscalls") for event in events):
        calls = run.syscalls().table()
        names = ("time", "duration", "pid", "syscall")
        for time, duration, pid, name in zip(*(calls[column].values.tolist() for column in names), strict=True):
            task(pid, "system calls").slices.append((time, duration, name))
    if "ftrace:funcgraph_exit" in events:
        graph = run.graph().table()
        names = ("time", "duration", "pid", "function")
        for time, duration, pid, name in zip(*(graph[column].values.tolist() for column in names), strict=True):
            task(pid, "functions").slices.append((time, duration, name))
    yield from tasks.values()
    if any(event.startswith("block:") for event in events):
        yield from _device_tracks(run, number)


def _device_tracks(run: Run, number: Iterator[int]) -> Iterator[_Track]:
    block = run.block()
    table = block.table()
    names = ("device", "issued", "completed", "rwbs", "sector", "sectors")
    lanes: dict[str, list[tuple[int, _Track]]] = {}
    for device, issued, completed, rwbs, sector, sectors in zip(
        *(table[column].values.tolist() for column in names), strict=True
    ):
        if not issued or not completed:
            continue
        # Requests overlap, slices of one track must not: each goes to the first lane that is free.
        own = lanes.setdefault(device, [])
        free = next((i for i, (end, _) in enumerate(own) if end <= issued), len(own))
        if free == len(own):
            own.append((0, _Track(next(number), f"{device} requests {free}", f"Device {device}")))
        track = own[free][1]
        track.slices.append((issued, completed - issued, f"{rwbs} {sector} + {sectors}"))
        own[free] = (completed, track)
    for device, own in lanes.items():
        for _, track in own:
            yield track
        depth = block.queue_depth(device)
        counter = _Track(next(number), f"{device} queue depth", f"Device {device}")
        counter.counter = list(zip(depth["time"].codes.tolist(), depth["depth"].codes.tolist(), strict=True))
        yield counter


# -- Perfetto: protos/perfetto/trace/{trace,trace_packet}.proto, track_event/{track_event,track_descriptor}.proto


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _number(tag: int, value: int) -> bytes:
    return _varint(tag << 3) + _varint(value)


def _bytes(tag: int, value: bytes) -> bytes:
    return _varint(tag << 3 | 2) + _varint(len(value)) + value


_BEGIN, _END, _COUNTER = 1, 2, 4
_SEQUENCE = 1


def _packet(body: bytes, *, time: int | None = None) -> bytes:
    stamp = b"" if time is None else _number(8, time)
    return _bytes(1, stamp + body + _number(10, _SEQUENCE))


def _event(time: int, kind: int, track: int, rest: bytes = b"") -> bytes:
    return _packet(_bytes(11, _number(9, kind) + _number(11, track) + rest), time=time)


def write_perfetto(run: Run, path: Path) -> None:
    """See :meth:`Run.export_perfetto`."""
    with path.open("wb") as out:
        groups: dict[str, int] = {}
        for track in _tracks(run):
            if track.group not in groups:
                groups[track.group] = (1 << 62) + len(groups)
                out.write(_packet(_bytes(60, _number(1, groups[track.group]) + _bytes(2, track.group.encode()))))
            descriptor = _number(1, track.uuid) + _bytes(2, track.name.encode()) + _number(5, groups[track.group])
            if track.counter:
                descriptor += _bytes(8, b"")
            out.write(_packet(_bytes(60, descriptor)))
            # Slices of one track nest: a begin before what it holds, an end after.
            open_ends: list[int] = []
            for start, duration, name in sorted(track.slices, key=lambda item: (item[0], -item[1])):
                while open_ends and open_ends[-1] <= start:
                    out.write(_event(open_ends.pop(), _END, track.uuid))
                out.write(_event(start, _BEGIN, track.uuid, _bytes(23, name.encode())))
                end = start + duration
                open_ends.append(min(end, open_ends[-1]) if open_ends else end)
            while open_ends:
                out.write(_event(open_ends.pop(), _END, track.uuid))
            for time, value in track.counter:
                out.write(_event(time, _COUNTER, track.uuid, _number(30, value)))


def write_chrome(run: Run, path: Path) -> None:
    """See :meth:`Run.export_chrome`. Times there are microseconds."""
    groups: dict[str, int] = {}
    events: list[dict[str, Any]] = []
    for track in _tracks(run):
        if track.group not in groups:
            groups[track.group] = len(groups) + 1
            events.append(
                {"ph": "M", "name": "process_name", "pid": groups[track.group], "args": {"name": track.group}}
            )
        place = {"pid": groups[track.group], "tid": track.uuid}
        events.append({"ph": "M", "name": "thread_name", **place, "args": {"name": track.name}})
        events += [
            {"ph": "X", "name": name, "ts": start / 1000, "dur": duration / 1000, **place}
            for start, duration, name in track.slices
        ]
        events += [
            {"ph": "C", "name": track.name, "ts": time / 1000, **place, "args": {"depth": value}}
            for time, value in track.counter
        ]
    losses = {name: value for name, value in run.counts().metadata.items() if name.startswith("lost")}
    path.write_text(json.dumps({"traceEvents": events, "displayTimeUnit": "ns", "otherData": losses}))


def write_csv(table: Table, path: Path) -> None:
    """A table as CSV, with a head line; missing strings are empty."""
    with path.open("w", newline="", encoding="utf-8") as out:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(table.columns)
        writer.writerows(zip(*(table[name].values.tolist() for name in table.columns), strict=True))


def write_parquet(table: Table, path: Path) -> None:
    """A table as Parquet, through pyarrow."""
    import pyarrow as pa  # type: ignore[import-untyped]
    import pyarrow.parquet as pq  # type: ignore[import-untyped]

    pq.write_table(pa.table(table), path)
