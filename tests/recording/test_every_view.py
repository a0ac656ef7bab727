# SPDX-License-Identifier: MIT
"""Every recording in tests/data through every view and export.

What a view says is held against a model of a few lines, fed by `trace-cmd report -R` alone: calls are pairs of enter
and exit, a request is an issue and a completion, a function an entry and an exit of one depth.
"""

from __future__ import annotations

import contextlib
import csv
import json
import re
import sys
from collections import Counter, defaultdict
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import sampleblk_lab as lab

sys.path.insert(0, str(Path(__file__).parent))
import trace_cmd

RECORDINGS = sorted((Path(__file__).parents[1] / "data" / "trace").glob("*.dat"))
READS, WRITES = ("read", "pread64", "readv", "preadv"), ("write", "pwrite64", "writev", "pwritev")

pytestmark = [
    pytest.mark.skipif(not trace_cmd.AVAILABLE, reason="needs trace-cmd: apt-get install trace-cmd"),
    pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem),
]


@cache
def report(path: Path) -> list[dict[str, Any]]:
    return trace_cmd.report(str(path))


def field(entry: dict[str, Any], name: str) -> str:
    found = re.search(rf"(?:^|\s){name}=(\S*)", entry["rest"])
    assert found is not None, entry
    return found[1]


def number(text: str) -> int:
    """Of a raw report: "0x1f", "31", and times as bare hexadecimal digits."""
    return int(text, 0) if re.fullmatch(r"0x[0-9a-f]+|-?\d+", text) else int(text, 16)


def signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def calls(path: Path) -> tuple[list[tuple[int, int, int, str, int]], int, int]:
    """(time, duration, pid, name, ret) of each system call; how many did not end, and how many have no beginning."""
    open_calls: dict[int, tuple[str, int]] = {}
    out = []
    unfinished = unpaired = 0
    for entry in report(path):
        event, pid = entry["event"], entry["pid"]
        if event.startswith("sys_enter_"):
            unfinished += pid in open_calls
            open_calls[pid] = (event.removeprefix("sys_enter_"), entry["time"])
        elif event.startswith("sys_exit_"):
            name, begin = open_calls.pop(pid, ("", 0))
            if name != event.removeprefix("sys_exit_"):
                unpaired += 1
                continue
            out.append((begin, entry["time"] - begin, pid, name, signed(number(field(entry, "ret")))))
    return out, unfinished + len(open_calls), unpaired


def functions(path: Path) -> Counter[tuple[int, str, int]]:
    """(pid, function, duration) of each call that has both ends."""
    stacks: dict[int, dict[int, str]] = defaultdict(dict)
    out: Counter[tuple[int, str, int]] = Counter()
    for entry in report(path):
        if entry["event"] == "funcgraph_entry":
            stacks[entry["pid"]][int(field(entry, "depth"), 0)] = field(entry, "func")
        elif entry["event"] == "funcgraph_exit":
            depth, function = int(field(entry, "depth"), 0), field(entry, "func")
            if stacks[entry["pid"]].pop(depth, None) == function:
                duration = int(field(entry, "rettime"), 16) - int(field(entry, "calltime"), 16)
                out[entry["pid"], function, duration] += 1
    return out


def requests(path: Path) -> Counter[tuple[str, int, int, int]]:
    """(device, sector, issued, completed) of each request that was seen to be both."""
    issued: dict[tuple[int, int], int] = {}
    out: Counter[tuple[str, int, int, int]] = Counter()
    for entry in report(path):
        if entry["event"] not in ("block_rq_issue", "block_rq_complete") or number(field(entry, "nr_sector")) == 0:
            continue
        dev, sector = number(field(entry, "dev")), number(field(entry, "sector"))
        if entry["event"] == "block_rq_issue":
            issued[dev, sector] = entry["time"]
        elif (begin := issued.pop((dev, sector), None)) is not None:
            out[f"{dev >> 20},{dev & 0xFFFFF}", sector, begin, entry["time"]] += 1
    return out


def test_counts(path):
    times = defaultdict(list)
    for entry in report(path):
        times[entry["event"]].append(entry["time"])
    counts = {str(row["event"]).split(":")[1]: row for row in lab.open_run(path).counts()}
    assert {name: row["count"] for name, row in counts.items()} == {name: len(seen) for name, seen in times.items()}
    if report(path)[0]["digits"] == 9:
        for name, seen in times.items():
            assert (counts[name]["first"], counts[name]["last"]) == (min(seen), max(seen))


def has(path, events):
    """Whether the recording has such events; a view of others says that there are none."""
    return any(re.match(events, entry["event"]) for entry in report(path))


def test_views_of_what_was_not_recorded_say_so(path):
    run = lab.open_run(path)
    views = {run.syscalls: "sys_", run.offsets: "sys_exit_", run.io_sizes: "sys_exit_", run.graph: "funcgraph_"}
    for view, events in {**views, run.block: "block_(bio|getrq|rq)_?"}.items():
        with contextlib.nullcontext() if has(path, events) else pytest.raises(lab.UnsupportedError, match="no such"):
            view()


def test_system_calls(path):
    expected, unfinished, unpaired = calls(path)
    if not has(path, "sys_"):
        return
    syscalls = lab.open_run(path).syscalls()
    table = syscalls.table()
    got = [(row["time"], row["duration"], row["pid"], row["syscall"], row["ret"]) for row in table]
    assert sorted(got) == sorted(expected)
    assert int(table.metadata.get("unfinished", 0)) == unfinished
    assert int(table.metadata.get("unpaired", 0)) == unpaired
    spent: Counter[str] = Counter()
    failed: Counter[str] = Counter()
    for _, duration, _, name, ret in expected:
        spent[name] += duration
        failed[name] += -4096 < ret < 0
    summary = syscalls.summary()
    assert {row["syscall"]: (row["calls"], row["errors"]) for row in summary} == {
        name: (count, failed[name]) for name, count in Counter(name for *_, name, _ in expected).items()
    }
    for row in summary:
        assert row["seconds"] == pytest.approx(spent[row["syscall"]] / 1e9, abs=1e-9)
    assert len(summary.text().splitlines()) == 4 + len(summary) + len(summary.metadata)
    assert len(list(syscalls.lines())) == len(expected)


def test_sizes_and_offsets(path):
    expected, *_ = calls(path)
    if not has(path, "sys_exit_"):
        return
    run = lab.open_run(path)
    for names, column in ((READS, "reads"), (WRITES, "writes")):
        sizes = [ret for *_, name, ret in expected if name in names and ret >= 0]
        assert run.io_sizes().histogram()[column].codes.sum() == len(sizes)
        total = run.io_sizes().summary()[f"{column[:-1]}_bytes"].codes.sum()
        assert total == sum(sizes)
    moved = sorted((time, pid, ret) for time, _, pid, name, ret in expected if name in (*READS, *WRITES) and ret >= 0)
    offsets = run.offsets()
    assert sorted((row["time"], row["pid"], row["size"]) for row in offsets.table()) == moved
    grid, _, _ = offsets.heatmap()
    assert grid.sum() == sum(row["size"] for row in offsets.table())
    assert len(offsets.text().splitlines()) > 20
    assert run.io_sizes().text().startswith("IO Summary")


def test_follow_through(path):
    """Of each name the call that ended first: when, how long and with what, as trace-cmd has it."""
    expected, *_ = calls(path)
    run = lab.open_run(path)
    first: dict[str, tuple[int, int, str]] = {}
    for begin, duration, _, name, ret in sorted(expected, key=lambda call: call[0] + call[1]):
        first.setdefault(name, (begin, duration, f"{name} = {ret}"))
    for name, (begin, duration, shown) in first.items():
        story = run.follow_through(name)
        assert (story.root.start, story.root.duration) == (begin, duration)
        assert story.root.name == shown
        assert all(begin <= node.start for node in story.root.walk() if node.timed)
        assert sum(row["time"] for row in story.times() if row["where"].endswith("CPU")) == duration
        assert len(story.text().splitlines()) >= 1
    if not first:
        with pytest.raises((IndexError, lab.UnsupportedError)):
            run.follow_through("write")


def test_call_graph(path):
    expected = functions(path)
    if not has(path, "funcgraph_"):
        return
    graph = lab.open_run(path).graph()
    rows = list(graph.table())
    got = Counter((row["pid"], row["function"], row["duration"]) for row in rows if row["complete"])
    assert got == expected
    sums = graph.aggregate()
    assert sums["calls"].codes.sum() == len(rows)
    assert sums["timed"].codes.sum() >= sum(expected.values())
    by_name: Counter[str] = Counter()
    for (_, function, duration), count in expected.items():
        by_name[function] += duration * count
    if all(row["complete"] for row in rows):
        assert {row["function"]: row["total"] for row in sums} == by_name
    folded = sum(int(line.rsplit(" ", 1)[1]) for line in graph.folded().splitlines())
    assert folded == graph.table()["self"].codes.sum()
    # Each call has a line, and those that call others a second one.
    assert sum(" | " in line and "}" not in line for line in graph.text().splitlines()) == len(rows)
    if rows:
        assert len(list(graph.diff(graph))) == len(sums)
        assert graph.tree().text() != ""


def test_block_requests(path):
    expected = requests(path)
    if not has(path, "block_(bio|getrq|rq)"):
        return
    block = lab.open_run(path).block()
    rows = list(block.table())
    got = Counter(
        (row["device"], row["sector"], row["issued"], row["completed"])
        for row in rows
        if row["issued"] and row["completed"] and row["operation"] != "F" and row["sectors"]
    )
    assert got == expected
    queued = Counter(entry["time"] for entry in report(path) if entry["event"] == "block_bio_queue")
    assert Counter(row["queued"] for row in rows if row["queued"]) <= queued
    steps = {row["step"]: row for row in block.latency()}
    if expected and len(rows) == len(got):
        times = [completed - issued for (_, _, issued, completed) in expected.elements()]
        assert (steps["D2C"]["count"], steps["D2C"]["minimum"], steps["D2C"]["maximum"]) == (
            len(times),
            min(times),
            max(times),
        )
    for device in {row["device"] for row in rows}:
        depth = block.queue_depth(device)
        assert len(depth) == 0 or depth["depth"].codes[-1] >= 0


def test_exports(path, tmp_path):
    run = lab.open_run(path)
    for prune in (False, True):
        run.export_trace_dat(tmp_path / "copy.dat", prune=prune)
        assert trace_cmd.report(str(tmp_path / "copy.dat")) == report(path)
    run.export_chrome(tmp_path / "x.json")
    run.export_perfetto(tmp_path / "x.pftrace")
    shown = Counter(event["ph"] for event in json.loads((tmp_path / "x.json").read_text())["traceEvents"])
    known = sum(requests(path).values()) + len(calls(path)[0]) + sum(functions(path).values())
    assert shown["X"] >= known
    assert ((tmp_path / "x.pftrace").stat().st_size > 0) == (shown.total() > 0)
    event = str(max(run.counts(), key=lambda row: row["count"])["event"])
    run.export_parquet(event, tmp_path / "x.parquet")
    assert pq.read_table(tmp_path / "x.parquet").num_rows == len(run.events(event))
    run.export_csv(event, tmp_path / "x.csv")
    with (tmp_path / "x.csv").open(newline="") as file:
        assert sum(1 for _ in csv.DictReader(file)) == len(run.events(event))
    assert sum(len(batch) for batch in run.batches(event, rows=7)) == len(run.events(event))
