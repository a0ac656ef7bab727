# SPDX-License-Identifier: MIT
"""Block views of random recordings whose truth is known, in each form that is imported.

A small block layer queues, splits, merges, requeues and completes in parts, on several devices; what it does is written
as other tools would, from its beginning or from the middle, and every view is held against what it did.
"""

from __future__ import annotations

import dataclasses
import json
import random
import struct
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sampleblk_lab as lab
from analysis.test_import_run import categories

DEVICES = ((8, 0), (8, 16), (253, 1))
BIO_DEVICE = (252, 0)
TASKS = {100: "fio", 101: "Web Content 2", 102: "kworker/1:2-x", 103: "a [001] b"}
IRQ = 0


@dataclasses.dataclass
class Event:
    time: int
    cpu: int
    pid: int
    name: str
    dev: tuple[int, int]
    rwbs: str
    sector: int
    sectors: int
    error: int = 0
    new_sector: int = 0


@dataclasses.dataclass
class Request:
    dev: tuple[int, int]
    sector: int
    sectors: int
    rwbs: str
    pid: int
    queued: int = 0
    gotten: int = 0
    inserted: int = 0
    issued: int = 0
    completed: int = 0
    merges: int = 0
    error: int = 0
    done: int = 0


class Layer:
    """Does what the block layer does, at random, and remembers both the events and the truth."""

    def __init__(self, seed: int, steps: int = 300, *, whole_only: bool = False, places: int = 0) -> None:
        self.random = random.Random(seed)
        self.now = 10**9
        self.places = places  # so few that several requests are at one at once
        self.whole_only = whole_only  # nothing is merged, split, requeued or completed in parts
        self.events: list[Event] = []
        self.requests: list[Request] = []
        self.held: list[Request] = []  # in a plug or a scheduler
        self.flying: list[Request] = []
        self.bios: list[Request] = []  # of a driver without requests
        self.flushes: dict[tuple[int, int], Iterator[None]] = {}  # one at a time of each device
        self.counts: Counter[str] = Counter()
        self.changes: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)  # of the driver's depth
        self.place = 0
        self.free = dict.fromkeys(DEVICES, 4096)
        for _ in range(steps):
            self.step()
        self.middle = self.now
        while self.flying or self.held or self.bios or self.flushes:
            self.step(begin=False)

    def tell(self, name: str, request: Request, pid: int, **more: Any) -> int:
        self.now += self.random.randrange(1, 2000)
        place = {"sector": request.sector + request.done, "sectors": request.sectors - request.done, **more}
        rwbs = request.rwbs
        self.events.append(Event(self.now, self.random.randrange(4), pid, name, request.dev, rwbs, **place))
        return self.now

    def step(self, *, begin: bool = True) -> None:
        more = [self.command, self.bio_of_a_driver_of_bios, self.begin_flush]
        choices: list[Callable[[], None]] = [self.queue] * 6 + more if begin else []
        choices += [self.end_bio] if self.bios else []
        choices += [self.go_on_with_a_flush] * 3 if self.flushes else []
        choices += [self.issue] * 6 if self.held else []
        choices += [self.join] if len(self.held) > 1 and not self.whole_only else []
        choices += [self.complete] * 6 + [self.requeue] * 2 if self.flying else []
        self.random.choice(choices)()

    def queue(self) -> None:
        dev = self.random.choice(DEVICES)
        pid = self.random.choice(list(TASKS))
        rwbs = self.random.choice(["W", "R", "WS", "FWS", "RA", "D", "WFS", "RSM"])
        # Far from all others, or right behind one that waits.
        size = self.random.choice([1, 8, 16, 64])
        bio = Request(dev, self.free[dev], size, rwbs, pid)
        neighbours = [
            one for one in self.held if one.dev == dev and one.rwbs == rwbs and "F" not in rwbs and not one.done
        ]
        if neighbours and not self.whole_only and self.random.random() < 0.5:
            return self.merge(self.random.choice(neighbours), bio)
        self.free[dev] += 100_000
        bio.sector = self.free[dev] - self.random.randrange(50_000)
        if self.places:
            bio.sector, bio.sectors, bio.rwbs = self.random.randrange(self.places) * 8, 8, "R"
        bio.queued = self.tell("block_bio_queue", bio, pid)
        parts = [bio]
        while parts[-1].sectors > 8 and not self.whole_only and self.random.random() < 0.3:
            whole = parts[-1]
            cut = self.random.randrange(1, whole.sectors)
            self.tell("block_split", whole, pid, new_sector=whole.sector + cut)
            self.counts["splits"] += 1
            rest = dataclasses.replace(whole, sector=whole.sector + cut, sectors=whole.sectors - cut)
            whole.sectors = cut
            parts.append(rest)
        for part in parts:
            part.gotten = self.tell("block_getrq", part, pid)
            if self.random.random() < 0.5:
                part.inserted = self.tell("block_rq_insert", part, pid)
            self.requests.append(part)
            self.held.append(part)
        return None

    def merge(self, into: Request, bio: Request) -> None:
        front = self.random.random() < 0.4
        bio.sector = into.sector - bio.sectors if front else into.sector + into.sectors
        inside = range(bio.sector, bio.sector + bio.sectors)
        if any(one is not into and one.dev == into.dev and {one.sector, one.sector + one.sectors - 1} & set(inside)
               for one in [*self.held, *self.flying]):  # fmt: skip
            return
        self.tell("block_bio_queue", bio, bio.pid)
        self.tell("block_bio_frontmerge" if front else "block_bio_backmerge", bio, bio.pid)
        into.sector = min(into.sector, bio.sector)
        into.sectors += bio.sectors
        into.merges += 1
        self.counts["merges"] += 1

    def join(self) -> None:
        """The last bio of a request made it end where another begins."""
        for one in self.held:
            for other in self.held:
                same = (one.dev, one.rwbs) == (other.dev, other.rwbs) and "F" not in one.rwbs
                if same and one.sector + one.sectors == other.sector and not one.done and not other.done:
                    self.tell("block_rq_merge", other, other.pid)
                    self.counts["merges"] += 1
                    one.sectors += other.sectors
                    one.merges += 1 + other.merges
                    self.held.remove(other)
                    self.requests.remove(other)
                    return

    def command(self) -> None:
        """Of the driver's own, such as a SCSI INQUIRY: without a place."""
        if not self.whole_only and not any(one.rwbs == "N" for one in [*self.held, *self.flying]):
            request = Request(self.random.choice(DEVICES), 0, 0, "N", 100)
            request.issued = self.tell("block_rq_issue", request, 100)
            self.changes[request.dev].append((request.issued, 1))
            self.requests.append(request)
            self.flying.append(request)

    def begin_flush(self) -> None:
        dev = self.random.choice(DEVICES)
        if not self.whole_only and dev not in self.flushes:
            self.flushes[dev] = self.flush(dev)

    def go_on_with_a_flush(self) -> None:
        dev = self.random.choice(list(self.flushes))
        if next(self.flushes[dev], 0) == 0:
            del self.flushes[dev]

    def flush(self, dev: tuple[int, int]) -> Iterator[None]:
        """A write of a device with a cache: flushes before and behind it, and its second end (block/blk-flush.c)."""
        before, size, behind = self.random.choice([(1, 0, 0), (1, 8, 0), (0, 8, 1), (1, 8, 1)])
        self.free[dev] += 100_000
        write = Request(dev, self.free[dev] if size else 0, size, "FWFS" if behind else "FWS", 100)
        write.queued = self.tell("block_bio_queue", write, 100)
        write.gotten = self.tell("block_getrq", write, 100)
        self.requests.append(write)
        yield None
        if before:
            yield from self.flush_alone(dev)
        if size:
            write.rwbs = "WS"  # what the driver need not do is taken off
            write.issued = self.tell("block_rq_issue", write, 102)
            self.changes[dev].append((write.issued, 1))
            yield None
            write.completed = self.tell("block_rq_complete", write, IRQ)
            self.changes[dev].append((write.completed, -1))
            yield None
            if behind:
                yield from self.flush_alone(dev)
            self.tell("block_rq_complete", write, IRQ, sectors=0)
            self.counts["flush_sequences"] += 1
        else:
            write.completed = self.tell("block_rq_complete", write, IRQ)

    def flush_alone(self, dev: tuple[int, int]) -> Iterator[None]:
        flush = Request(dev, 0, 0, "FF", 102)
        flush.issued = self.tell("block_rq_issue", flush, 102)
        self.changes[dev].append((flush.issued, 1))
        self.requests.append(flush)
        yield None
        flush.completed = self.tell("block_rq_complete", flush, IRQ)
        self.changes[dev].append((flush.completed, -1))

    def bio_of_a_driver_of_bios(self) -> None:
        self.place += 1000
        bio = Request(BIO_DEVICE, self.place, 8, self.random.choice(["W", "R"]), 101)
        bio.queued = self.tell("block_bio_queue", bio, 101)
        self.requests.append(bio)
        self.bios.append(bio)

    def end_bio(self) -> None:
        bio = self.bios.pop(self.random.randrange(len(self.bios)))
        bio.error = self.random.choice([0, 5])
        bio.completed = self.tell("block_bio_complete", bio, IRQ, error=-bio.error)

    def issue(self) -> None:
        request = self.held.pop(self.random.randrange(len(self.held)))
        request.issued = self.tell("block_rq_issue", request, self.random.choice([request.pid, 102]))
        self.changes[request.dev].append((request.issued, 1))
        self.flying.append(request)

    def requeue(self) -> None:
        if self.whole_only or self.random.random() < 0.7:
            return
        request = self.flying.pop(self.random.randrange(len(self.flying)))
        self.tell("block_rq_requeue", request, IRQ)
        self.counts["requeues"] += 1
        self.changes[request.dev] = [one for one in self.changes[request.dev] if one != (request.issued, 1)]
        request.issued = request.inserted = 0
        self.held.append(request)

    def complete(self) -> None:
        request = self.flying[self.random.randrange(len(self.flying))]
        left = request.sectors - request.done
        if request.rwbs == "N":
            # To the events a command ends at -1, with the sectors of its data.
            request.completed = self.tell("block_rq_complete", request, IRQ, sector=2**64 - 1, sectors=8)
            self.changes[request.dev].append((request.completed, -1))
            self.flying.remove(request)
            return
        if left > 1 and not self.whole_only and self.random.random() < 0.1:
            part = self.random.randrange(1, left)
            self.tell("block_rq_complete", request, IRQ, sectors=part)
            request.done += part
            return
        error = self.random.choice([0, 0, 0, 5])
        request.completed = self.tell("block_rq_complete", request, IRQ, error=-error)
        request.error = error
        self.changes[request.dev].append((request.completed, -1))
        self.flying.remove(request)


# --- as other tools write it

PLACE = "{major},{minor} {rwbs} "
BODIES = {
    "block_bio_queue": PLACE + "{sector} + {sectors} [{comm}]",
    "block_rq_issue": PLACE + "{bytes} () {sector} + {sectors} [{comm}]",
    "block_rq_complete": PLACE + "() {sector} + {sectors} [{error}]",
    "block_split": PLACE + "{sector} / {new_sector} [{comm}]",
}
BODIES |= dict.fromkeys(("block_getrq", "block_bio_backmerge", "block_bio_frontmerge"), BODIES["block_bio_queue"])
BODIES |= dict.fromkeys(("block_rq_insert", "block_rq_merge"), BODIES["block_rq_issue"])
BODIES |= {
    "block_rq_requeue": BODIES["block_rq_complete"],
    "block_bio_complete": PLACE + "{sector} + {sectors} [{error}]",
}


def lines(events: list[Event], form: str) -> str:
    out = []
    for event in events:
        comm = TASKS.get(event.pid, "swapper/0")
        values = {**dataclasses.asdict(event), "major": event.dev[0], "minor": event.dev[1], "comm": comm[:15]}
        body = BODIES[event.name].format(**values, bytes=event.sectors * 512)
        time = f"{event.time // 10**9}.{event.time % 10**9:09}"
        if form == "perf":
            out.append(f"{comm:>16} {event.pid:7} [{event.cpu:03}] {time}: {'block:' + event.name:>24}: {body}")
        elif form == "trace-cmd":
            out.append(f"{comm:>16}-{event.pid:<5} [{event.cpu:03}] {time}: {event.name + ':':<21} {body}")
        else:
            out.append(f"{comm:>16}-{event.pid:<7} [{event.cpu:03}] d.h2. {time}: {event.name}: {body}")
    return "".join(f"{line}\n" for line in out)


# The action, and the category's bit.
BLKTRACE = {
    "block_bio_queue": (1, 4), "block_bio_backmerge": (2, 4), "block_bio_frontmerge": (3, 4), "block_getrq": (4, 4),
    "block_rq_requeue": (6, 5), "block_rq_issue": (7, 6), "block_rq_complete": (8, 7), "block_rq_insert": (12, 4),
    "block_split": (13, 4), "block_rq_merge": (2, 4), "block_bio_complete": (8, 7),
}  # fmt: skip


def blktrace(events: list[Event], version: int) -> bytes:
    out = b""
    for number, event in enumerate(events):
        action, category = BLKTRACE[event.name]
        command = event.rwbs == "N"
        kind = 1 << 9 if command else 1 << 8 if "_rq_" in event.name else 0
        action |= (1 << category | kind | categories(event.rwbs)) << 16
        data = struct.pack(">Q", event.new_sector) if event.new_sector else b""
        device, error = event.dev[0] << 20 | event.dev[1], event.error & 0xFFFF
        place = (0, 4096) if command else (event.sector, event.sectors * 512)
        head = (0x65617400 | version, number, event.time, *place)
        if version == 7:
            out += struct.pack("<IIQQIIIIIHH", *head, action, event.pid, device, event.cpu, error, len(data))
        else:
            out += struct.pack("<IIQQIIQIIHH12x", *head, event.pid, action, device, event.cpu, error, len(data))
        out += data
    return out


FORMS = ("perf", "trace-cmd", "trace_pipe", "blktrace-7", "blktrace-8")


def imported(events: list[Event], form: str, tmp_path: Path, more: str = "") -> lab.Run:
    source = tmp_path / "source"
    if form.startswith("blktrace"):
        source.write_bytes(blktrace(events, int(form[-1])))
    else:
        source.write_text(lines(events, form) + more)
    return lab.import_run(source, directory=tmp_path / "run")


NAMES = (
    "device", "sector", "sectors", "rwbs", "pid", "queued", "gotten", "inserted", "issued", "completed", "merges",
    "error",
)  # fmt: skip


def told(requests: list[Request]) -> list[dict[str, Any]]:
    rows = [{**dataclasses.asdict(one), "device": f"{one.dev[0]},{one.dev[1]}"} for one in requests]
    return sorted(({name: row[name] for name in NAMES} for row in rows), key=lambda row: list(map(str, row.values())))


def seen(run: lab.Run) -> list[dict[str, Any]]:
    rows = [{name: row[name] for name in NAMES} for row in run.block().table().rows()]
    return sorted(rows, key=lambda row: list(map(str, row.values())))


def depths(changes: list[tuple[int, int]], start: int = 0) -> list[tuple[int, int]]:
    out, depth = [], start
    for time, step in sorted(changes):
        depth += step
        out.append((time, depth))
    return out


def depth_of(run: lab.Run, device: str | None = None) -> list[tuple[int, int]]:
    table = run.block().queue_depth(device)
    return list(zip(table["time"].codes.tolist(), table["depth"].codes.tolist(), strict=True))


def check_latencies(run: lab.Run, requests: list[Request]) -> None:
    spans = {
        "Q2G": [one.gotten - one.queued for one in requests if one.gotten],
        "G2I": [one.inserted - one.gotten for one in requests if one.inserted],
        "I2D": [one.issued - one.inserted for one in requests if one.inserted],
        "G2D": [one.issued - one.gotten for one in requests if one.gotten and one.issued and not one.inserted],
        "D2C": [one.completed - one.issued for one in requests if one.issued],
        "Q2C": [one.completed - one.queued for one in requests if one.queued],
    }
    for row in run.block().latency().rows():
        if row["step"] == "Q2Q":
            continue
        expected = spans.pop(row["step"])
        figures = [len(expected), min(expected), np.mean(expected), np.median(expected), max(expected)]
        got = [row[name] for name in ("count", "minimum", "average", "median", "maximum")]
        assert got == pytest.approx(figures)
    assert not any(spans.values())


def check_exports(run: lab.Run, requests: list[Request], tmp_path: Path) -> None:
    run.export_chrome(tmp_path / "x.json")
    found = json.loads((tmp_path / "x.json").read_text())["traceEvents"]
    shown = sorted(
        (one["name"], round(one["ts"] * 1000), round(one["dur"] * 1000)) for one in found if one["ph"] == "X"
    )
    # A driver of bios has them from their queueing on.
    begun = [(one, one.queued if one.dev == BIO_DEVICE else one.issued) for one in requests if one.completed]
    assert shown == sorted(
        (f"{one.rwbs} {one.sector} + {one.sectors}", begin, one.completed - begin) for one, begin in begun if begin
    )
    counters: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for one in found:
        if one["ph"] == "C":
            counters[one["name"].split()[0]].append((round(one["ts"] * 1000), one["args"]["depth"]))
    assert counters == {device: depth_of(run, device) for device in counters}
    assert "252,0" in counters


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("seed", range(3))
def test_a_whole_recording_is_what_happened(form: str, seed: int, tmp_path: Path) -> None:
    layer = Layer(seed)
    run = imported(layer.events, form, tmp_path)
    for one in layer.requests:
        # An empty flush is FN to blktrace, and FF to the events.
        one.rwbs = one.rwbs.replace("FF", "FN") if form.startswith("blktrace") else one.rwbs
    assert seen(run) == told(layer.requests)
    metadata = run.block().table().metadata
    counted = {name: int(metadata[name]) for name in ("splits", "requeues", "merges", "unpaired", "flush_sequences")}
    names = ("splits", "requeues", "merges", "flush_sequences")
    assert counted == {"unpaired": 0} | {name: layer.counts[name] for name in names}
    everything = [change for changes in layer.changes.values() for change in changes]
    assert depth_of(run) == depths(everything)
    for (major, minor), changes in layer.changes.items():
        assert depth_of(run, f"{major},{minor}") == depths(changes)
    bios = [one for one in layer.requests if one.dev == BIO_DEVICE]
    changes = [change for one in bios for change in ((one.queued, 1), (one.completed, -1)) if change[0]]
    assert depth_of(run, "252,0") == depths(changes)
    assert run.block().queue_depth().metadata["bios_left_out"] == "252,0"
    check_latencies(run, layer.requests)
    check_exports(run, layer.requests, tmp_path)


@pytest.mark.parametrize("version", [7, 8])
def test_what_only_blktrace_tells_in_its_own_way(version: int, tmp_path: Path) -> None:
    zone_append, sync = 1 << 16, 1 << 3

    def record(time: int, action: int, more: int, sector: int, size: int) -> bytes:
        action |= more << 16
        head = (0x65617400 | version, 0, time, sector, size)
        if version == 7:
            return struct.pack("<IIQQIIIIIHH", *head, action & (2**32 - 1), 7, 8 << 20, 0, 0, 0)
        return struct.pack("<IIQQIIQIIHH12x", *head, 7, action, 8 << 20, 0, 0, 0)

    issue, complete, request, command, write = 1 << 6, 1 << 7, 1 << 8, 1 << 9, 1 << 1
    # A command that writes, beside a write of the first sectors of the same size.
    out = record(10, 7, issue | command | write, 0, 4096) + record(20, 7, issue | request | write, 0, 4096)
    out += record(30, 8, complete | command | write, 0, 4096) + record(40, 8, complete | request | write, 0, 4096)
    rows = [("N", 0, 0, 10, 30), ("W", 0, 8, 20, 40)]
    if version == 8:
        append = request | zone_append | sync | write
        out += record(50, 7, issue | append, 1024, 4096) + record(60, 8, complete | append, 1048, 4096)
        out += record(61, 8, append, 1048, 4096)  # BLK_TA_ZONE_APPEND
        out += record(70, 7, issue | request | 1 << 19, 1024, 0) + record(80, 8, complete | request | 1 << 19, 1024, 0)
        rows += [("ZAS", 1024, 8, 50, 0), ("ZAS", 1048, 8, 0, 60), ("ZF", 1024, 0, 70, 80)]
    (tmp_path / "sda.blktrace.0").write_bytes(out)
    run = lab.import_run(tmp_path / "sda", directory=tmp_path / "run")
    names = ("rwbs", "sector", "sectors", "issued", "completed")
    assert [tuple(row[name] for name in names) for row in run.block().table().rows()] == rows
    assert run.options["imported"].get("skipped_zone_append", 0) == version - 7
    assert set(run.block().queue_depth()["depth"].codes.tolist()) == {0, 1, 2}


def window(layer: Layer, begin: int, end: int) -> tuple[list[Event], list[Request]]:
    """The events of that time, and what of the requests they tell."""
    events = [event for event in layer.events if begin <= event.time < end]
    requests = []
    for one in layer.requests:
        moments = {name: getattr(one, name) for name in ("queued", "gotten", "inserted", "issued", "completed")}
        inside = {name: time if begin <= time < end else 0 for name, time in moments.items()}
        # The completion of a bio alone may be that of one whose request completed: it has no row.
        if any(inside.values()) and (one.dev != BIO_DEVICE or inside["queued"]):
            requests.append(dataclasses.replace(one, **inside))
    return events, requests


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("seed", range(3))
def test_a_recording_of_the_middle_tells_what_it_saw_of_each_request(form: str, seed: int, tmp_path: Path) -> None:
    layer = Layer(seed, whole_only=True)
    first, last = layer.events[len(layer.events) // 4].time, layer.events[len(layer.events) * 3 // 4].time
    events, requests = window(layer, first, last)
    run = imported(events, form, tmp_path)
    ends = [(row["device"], row["sector"], row["issued"], row["completed"], row["error"]) for row in seen(run)]
    assert Counter(end for end in ends if end[2] or end[3]) == Counter(
        (f"{one.dev[0]},{one.dev[1]}", one.sector, one.issued, one.completed, one.error if one.completed else 0)
        for one in requests
        if one.issued or one.completed
    )
    for dev, changes in layer.changes.items():
        depth = run.block().queue_depth(f"{dev[0]},{dev[1]}")
        own = [one for one in requests if one.dev == dev]
        assert depth.metadata["unfinished"] == str(sum(one.issued > 0 and not one.completed for one in own))
        assert depth.metadata["unpaired"] == str(sum(one.completed > 0 and not one.issued for one in own))
        inside = [change for change in changes if first <= change[0] < last]
        before = sum(step for time, step in changes if time < first)
        got = list(zip(depth["time"].codes.tolist(), depth["depth"].codes.tolist(), strict=True))
        assert [time for time, _ in got] == [time for time, _ in sorted(inside)]
        # What was in flight from before its beginning until after its end no event of it tells.
        unseen = {truth - value for (_, truth), (_, value) in zip(depths(inside, before), got, strict=True)}
        assert len(unseen) == 1
        assert min(unseen) >= 0
        whole = [
            change for one in own if one.issued and one.completed for change in ((one.issued, 1), (one.completed, -1))
        ]
        least = dict(zip(depth["time"].codes.tolist(), depth["least"].codes.tolist(), strict=True))
        assert {time: least[time] for time, _ in whole} == dict(depths(whole))


def test_a_request_that_hangs_is_no_reason_to_count_another_less(tmp_path: Path) -> None:
    text = (
        "fio-1 [000] 1.000000: block_rq_issue: 8,0 W 4096 () 8 + 8 [fio]\n"
        "fio-1 [000] 2.000000: block_rq_complete: 8,0 R () 800 + 8 [0]\n"  # issued before the recording
        "fio-1 [000] 3.000000: block_rq_issue: 8,0 W 4096 () 88 + 8 [fio]\n"
        "fio-1 [000] 4.000000: block_rq_complete: 8,0 W () 88 + 8 [0]\n"
    )
    run = imported([], "trace_pipe", tmp_path, text)
    assert [depth for _, depth in depth_of(run)] == [2, 1, 2, 1]
    chrome = json.loads(run.export_chrome(tmp_path / "run.json").read_text())
    assert [event["args"]["depth"] for event in chrome["traceEvents"] if event["ph"] == "C"] == [2, 1, 2, 1]


@pytest.mark.parametrize("form", FORMS[::3])
@pytest.mark.parametrize("seed", range(3))
def test_several_requests_at_one_place_at_once_change_no_count_and_no_sum(form: str, seed: int, tmp_path: Path) -> None:
    layer = Layer(seed, whole_only=True, places=3)
    run = imported(layer.events, form, tmp_path)
    rows, ends = seen(run), [one for one in layer.requests if one.issued]
    for name in ("queued", "gotten", "inserted", "issued", "completed"):
        assert sorted(row[name] for row in rows) == sorted(getattr(one, name) for one in layer.requests)
    latency = run.block().latency()
    assert latency["count"]["D2C"] == len(ends)
    assert latency["average"]["D2C"] == pytest.approx(np.mean([one.completed - one.issued for one in ends]))
    assert all(row["completed"] > row["issued"] for row in rows if row["issued"])
    assert depth_of(run) == depths([change for changes in layer.changes.values() for change in changes])


@pytest.mark.parametrize("seed", range(3))
def test_lost_events_make_no_wrong_pair(seed: int, tmp_path: Path) -> None:
    layer = Layer(seed, whole_only=True)
    chance = random.Random(seed)
    text, lost = "", 0
    for event in layer.events:
        if chance.random() < 0.2:
            lost += 1
            text += f"CPU:{event.cpu} [LOST 1 EVENTS]\n"
        else:
            text += lines([event], "trace_pipe")
    run = imported([], "trace_pipe", tmp_path, text)
    truth = {(f"{one.dev[0]},{one.dev[1]}", one.sector): one for one in layer.requests}
    for row in seen(run):
        one = truth[row["device"], row["sector"]]
        for name in ("queued", "gotten", "inserted", "issued", "completed"):
            assert row[name] in (0, getattr(one, name)), (row, one)
    assert run.block().table().metadata["lost_events"] == str(lost)
    changes = sorted(change for one in layer.changes.values() for change in one)
    true = dict(depths(changes))
    depth = run.block().queue_depth()
    assert depth["depth"].codes.tolist() == depth["least"].codes.tolist()
    assert depth["depth"].codes[-1] == 0
    assert all(0 <= value <= true[time] for time, value in depth_of(run))


@pytest.mark.parametrize("form", ["biosnoop", "iosnoop"])
@pytest.mark.parametrize("seed", range(3))
def test_a_snooper_s_lines_are_the_requests_as_exactly_as_it_prints_them(form: str, seed: int, tmp_path: Path) -> None:
    layer = Layer(seed, whole_only=True)
    done = sorted((one for one in layer.requests if one.issued), key=lambda one: one.completed)
    first = done[0].completed
    out = []
    for one in done:
        task, size, kind = TASKS[one.pid], one.sectors * 512, one.rwbs
        latency, waited = (one.completed - one.issued) / 1e6, (one.issued - one.inserted) / 1e6 if one.inserted else -1
        if form == "biosnoop":
            head = f"{(one.completed - first) / 1e9:<11.6f} {task:14.14} {one.pid:<7} {one.dev[0]},{one.dev[1]:<4}"
            out.append(f"{head} {kind:1} {one.sector:<10} {size:<7} {waited:7.3f} {latency:7.3f}\n")
        else:
            head = f"{one.issued / 1e9:.6f} {one.completed / 1e9:.6f} {task:12.12} {one.pid:<6} {kind:4}"
            out.append(f"{head} {one.dev[0]},{one.dev[1]:<4} {one.sector:<12} {size:<8} {latency:>9.2f}\n")
    heading = {
        "biosnoop": "TIME(s)     COMM           PID     DISK      T SECTOR     BYTES  QUE(ms) LAT(ms)\n",
        "iosnoop": "STARTs          ENDs            COMM         PID    TYPE DEV      BLOCK        BYTES     LATms\n",
    }[form]
    source = tmp_path / "source"
    source.write_text(heading + "".join(out))
    run = lab.import_run(source, directory=tmp_path / "run")
    rows = {(row["device"], row["sector"]): row for row in run.block().table().rows()}
    assert len(rows) == len(run.block()) == len(done)
    for one in done:
        row = rows[f"{one.dev[0]},{one.dev[1]}", one.sector]
        assert (row["sectors"], row["rwbs"], row["pid"]) == (one.sectors, one.rwbs, one.pid)
        assert row["completed"] - row["issued"] == pytest.approx(one.completed - one.issued, abs=1001)
        assert bool(row["inserted"]) == (bool(one.inserted) and form == "biosnoop")
        if row["inserted"]:
            assert row["issued"] - row["inserted"] == pytest.approx(one.issued - one.inserted, abs=1001)
    base = rows[f"{done[0].dev[0]},{done[0].dev[1]}", done[0].sector]["completed"]
    for one in done:
        row = rows[f"{one.dev[0]},{one.dev[1]}", one.sector]
        assert row["completed"] - base == pytest.approx(one.completed - first, abs=1001)
