# SPDX-License-Identifier: MIT
"""Recordings of several ring buffers, and of clocks that count no nanoseconds; trace-cmd report is the oracle."""

from __future__ import annotations

import json
import re
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import sampleblk_lab as lab
from sampleblk_lab import plot
from sampleblk_lab._native import core
from sampleblk_lab.report.run_page import run_page

sys.path.insert(0, str(Path(__file__).parent))
import trace_cmd
import version6

DATA = Path(__file__).parents[1] / "data" / "trace"
needs_trace_cmd = pytest.mark.skipif(not trace_cmd.AVAILABLE, reason="needs trace-cmd: apt-get install trace-cmd")
_LINE = re.compile(r"^ *(?:(\S+): )? *.*-\d+ +\[(\d+)\](?:-0x[0-9a-f]+)? +([\d.]+): ([^ :]+):")


def reported(path: Path) -> list[tuple[str, int, int, str]]:
    """Buffer, CPU, time and name of each event that trace-cmd report shows, in its order."""
    done = subprocess.run(["trace-cmd", "report", "-R", "-N", "-t", "-i", path], capture_output=True, check=True)
    found = map(_LINE.match, done.stdout.decode("utf-8", "replace").splitlines())
    return [(row[1] or "", int(row[2]), int(row[3].replace(".", "")), row[4]) for row in found if row]


def ours(run: lab.analysis.Run) -> list[tuple[str, int, int, str]]:
    rows = [
        (row.get("buffer") or "", row["cpu"], row["time"], name.split(":")[-1])
        for name, table in run.tables().items()
        for row in table
    ]
    return sorted(rows, key=lambda row: row[2])


def split(path: Path, source: str, **instances: set[str]) -> lab.analysis.Run:
    """A recording of which each CPU's pages lie in another instance: of a name, the CPUs of a source's."""
    file = version6.read(DATA / f"{source}.dat")
    file.instances = {
        name: [pages if str(cpu) in cpus else b"" for cpu, pages in enumerate(file.cpus)]
        for name, cpus in instances.items()
    }
    taken = set().union(*instances.values())
    file.cpus = [b"" if str(cpu) in taken else pages for cpu, pages in enumerate(file.cpus)]
    file.write(path)
    return lab.open_run(path)


@needs_trace_cmd
@pytest.mark.parametrize("source", ["6.1-switch", "6.12-io", "7.2-fsync"])
def test_every_buffer_is_shown_and_named(tmp_path, source):
    run = split(tmp_path / "trace.dat", source, first={"0"}, second={"1"})
    assert run.file.buffers == ["", "first", "second"]
    theirs = reported(tmp_path / "trace.dat")
    assert sorted(theirs) == sorted(ours(run))
    assert {row[0] for row in theirs} == {"first", "second"}
    counts = run.counts()
    whole = lab.open_run(DATA / f"{source}.dat").counts()
    assert sum(counts["count"]) == sum(whole["count"]) == len(theirs)
    assert counts.metadata["buffers"] == "'first', 'second'"
    for name in ("first", "second"):
        one = run.counts(buffer=name)
        assert "buffer" not in one
        assert sum(one["count"]) == sum(row[0] == name for row in theirs)


@needs_trace_cmd
def test_the_same_events_in_two_buffers_come_in_trace_cmds_order(tmp_path):
    file = version6.read(DATA / "6.1-switch.dat")
    file.instances = {"one": file.cpus, "two": file.cpus}
    file.write(tmp_path / "trace.dat")
    run = lab.open_run(tmp_path / "trace.dat")
    table = run.events("sched_switch")
    expected = [row for row in reported(tmp_path / "trace.dat") if row[3] == "sched_switch"]
    assert list(zip(table["buffer"], table["cpu"], table["time"], strict=True)) == [row[:3] for row in expected]
    once = lab.open_run(DATA / "6.1-switch.dat")
    assert run.counts(buffer="")["count"]["sched:sched_switch"] == once.counts()["count"]["sched:sched_switch"]
    with pytest.raises(KeyError, match="3 rows are named 'sched:sched_switch'"):
        run.counts()["count"]["sched:sched_switch"]
    with pytest.raises(lab.InputError, match=r"no buffer 'three'.*'', 'one', 'two'"):
        run.counts(buffer="three")


def test_views_find_their_events_in_any_buffer_and_never_join_over_two(tmp_path):
    file = version6.read(DATA / "6.12-io.dat")
    file.instances = {"twin": file.cpus}
    file.write(tmp_path / "trace.dat")
    run, once = lab.open_run(tmp_path / "trace.dat"), lab.open_run(DATA / "6.12-io.dat")
    for view in (lambda run, **of: run.syscalls(**of).table(), lambda run, **of: run.block(**of).table()):
        single, both = view(once), view(run)
        assert len(both) == 2 * len(single)
        for buffer in ("", "twin"):
            rows = [{k: v for k, v in row.items() if k != "buffer"} for row in both if row["buffer"] == buffer]
            assert rows == list(single)
            assert list(view(run, buffer=buffer)) == list(single)
    summary = run.syscalls().summary()
    assert len(summary) == 2 * len(once.syscalls().summary())
    assert set(summary["buffer"]) == {"", "twin"}
    assert "[twin]" in summary.text()
    assert run.syscalls(buffer="twin").summary().text() == once.syscalls().summary().text()
    more = [lambda view=view: lab.Replay(view) for view in (run.syscalls(), run.block())]
    more += [lambda: plot.bandwidth(run.offsets()), lambda: plot.block_life(run.block())]
    for total in (run.block().latency, run.block().queue_depth, run.io_sizes, run.offsets().heatmap, *more):
        with pytest.raises(lab.InputError, match=r"over the buffers '', 'twin' \(expected one of them: buffer=''\)"):
            total()
    assert repr(run.block(buffer="twin").latency()) == repr(once.block().latency())


@pytest.mark.parametrize("source", ["7.2-fsync", "6.12-graph"])
def test_a_page_says_which_views_take_one_buffer(source, tmp_path):
    file = version6.read(DATA / f"{source}.dat")
    file.instances = {"twin": file.cpus}
    file.write(tmp_path / "trace.dat")
    (tmp_path / "counters.json").write_text('{"write_bytes": 4096}')
    page = run_page(tmp_path).html()
    assert "over the buffers &#x27;&#x27;, &#x27;twin&#x27;" in page
    assert "<h2>Events</h2>" in page
    assert "requests, driver" not in page


def test_a_time_that_goes_back_is_no_duration(tmp_path):
    file = version6.read(DATA / "6.1-syscalls.dat")
    pages, at = bytearray(file.cpus[1]), 5 * 4096  # a call lies across the beginning of that page
    struct.pack_into("<Q", pages, at, struct.unpack_from("<Q", pages, at)[0] - 5 * 10**9)
    file.cpus = [file.cpus[0], bytes(pages)]
    file.write(tmp_path / "trace.dat")
    calls = lab.open_run(tmp_path / "trace.dat").syscalls()
    once = lab.open_run(DATA / "6.1-syscalls.dat").syscalls().table()
    table = calls.table()
    assert table["duration"].codes.max() <= once["duration"].codes.max()
    assert table.metadata["gaps"] == "1"
    assert len(table) == calls.summary()["calls"].codes.sum() == len(once) - 1
    assert [int(table.metadata[name]) - int(once.metadata[name]) for name in ("unpaired", "unfinished")] == [1, 1]


def test_a_time_that_goes_back_is_no_time_on_a_cpu(tmp_path):
    file = version6.read(DATA / "6.1-switch.dat")
    pages = bytearray(file.cpus[0])
    struct.pack_into("<Q", pages, 4096, struct.unpack_from("<Q", pages, 4096)[0] - 5 * 10**9)
    file.cpus = [bytes(pages), file.cpus[1]]
    file.write(tmp_path / "trace.dat")
    lab.open_run(tmp_path / "trace.dat").export_chrome(tmp_path / "chrome.json")
    slices = [one["dur"] for one in json.loads((tmp_path / "chrome.json").read_text())["traceEvents"] if "dur" in one]
    assert max(slices) < 1e6  # us; one was of 584 years


def test_only_instances_are_no_empty_recording(tmp_path):
    file = version6.read(DATA / "6.1-graph.dat")
    file.instances, file.cpus = {"only": file.cpus}, [b""] * len(file.cpus)
    file.write(tmp_path / "trace.dat")
    run, once = lab.open_run(tmp_path / "trace.dat"), lab.open_run(DATA / "6.1-graph.dat")
    assert list(run.graph().table()) == list(once.graph().table())
    assert list(run.counts()) == list(once.counts())


def test_graphs_of_two_buffers_stay_apart(tmp_path):
    file = version6.read(DATA / "6.12-graph.dat")
    file.instances = {"twin": file.cpus}
    file.write(tmp_path / "trace.dat")
    graph, once = lab.open_run(tmp_path / "trace.dat").graph(), lab.open_run(DATA / "6.12-graph.dat").graph()
    table = graph.table()
    assert sorted(zip(table["function"], table["duration"], table["self"], strict=True)) == sorted(
        2 * list(zip(*(once.table()[name] for name in ("function", "duration", "self")), strict=True))
    )
    assert "# buffer: twin\n" in graph.text()
    with pytest.raises(lab.InputError, match="sums of calls over the buffers"):
        graph.aggregate()


def test_an_export_keeps_every_buffer(tmp_path):
    run = split(tmp_path / "trace.dat", "6.12-fsync", first={"0"}, second={"1"})
    run.export_trace_dat(tmp_path / "copy.dat", prune=True)
    copy = lab.open_run(tmp_path / "copy.dat")
    assert copy.file.buffers == ["", "first", "second"]
    assert ours(copy) == ours(run)
    run.export_trace_dat(tmp_path / "one.dat", buffer="second")
    one = lab.open_run(tmp_path / "one.dat")
    assert ours(one) == [("", *row[1:]) for row in ours(run) if row[0] == "second"]
    if trace_cmd.AVAILABLE:
        assert reported(tmp_path / "copy.dat") == reported(tmp_path / "trace.dat")


def test_timelines_have_tracks_of_each_buffer(tmp_path):
    file = version6.read(DATA / "7.2-io.dat")
    file.instances = {"twin": file.cpus}
    file.write(tmp_path / "trace.dat")
    for name, source in (("both", tmp_path / "trace.dat"), ("once", DATA / "7.2-io.dat")):
        lab.open_run(source).export_chrome(tmp_path / f"{name}.json")
    both, once = ((tmp_path / f"{name}.json").read_text() for name in ("both", "once"))
    assert both.count('"ph": "X"') == 2 * once.count('"ph": "X"')
    groups = set(re.findall(r'"process_name", "pid": \d+, "args": {"name": "([^"]*)"', both))
    assert groups == {f"{kind} ({of})" for kind in ("CPUs", "Tasks", "Device 254,0") for of in ("top level", "twin")}


# -- clocks


def with_clock(path: Path, source: str, clock: str, **options: bytes) -> lab.analysis.Run:
    file = version6.read(DATA / f"{source}.dat")
    file.replace(version6.CLOCK, f"local global counter [{clock}] mono\0".encode())
    for name, value in options.items():
        file.replace(getattr(version6, name), value)
    file.write(path)
    return lab.open_run(path)


@needs_trace_cmd
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"TSC2NSEC": struct.pack("<IIQ", (1 << 20) + 77, 21, 1234)},
        {"TSC2NSEC": struct.pack("<IIQ", 3, 0, 0), "OFFSET": b"5000000\0"},
        {"TSC2NSEC": struct.pack("<IIQ", 0x7FFFFFFF, 31, 0), "DATE": b"0x10\0"},
    ],
    ids=["ticks", "tsc2nsec", "offset", "date"],
)
def test_times_are_those_of_trace_cmd(tmp_path, options):
    run = with_clock(tmp_path / "trace.dat", "6.1-switch", "x86-tsc", **options)
    theirs = [row[2] for row in reported(tmp_path / "trace.dat") if row[3] == "sched_switch"]
    table = run.events("sched_switch")
    assert table["time"].codes.tolist() == theirs
    assert table["time"].unit == ("ns" if options else "ticks")
    # The options go along into an export.
    run.export_trace_dat(tmp_path / "copy.dat")
    assert reported(tmp_path / "copy.dat") == reported(tmp_path / "trace.dat")
    assert lab.open_run(tmp_path / "copy.dat").events("sched_switch")["time"].unit == table["time"].unit


@pytest.mark.parametrize("clock", ["x86-tsc", "counter", "uptime"])
def test_ticks_are_no_nanoseconds(tmp_path, clock):
    run = with_clock(tmp_path / "trace.dat", "6.12-fsync", clock)
    once = lab.open_run(DATA / "6.12-fsync.dat")
    block, latency = run.block().table(), run.block().latency()
    assert {block[name].unit for name in ("queued", "issued", "completed")} == {"ticks"}
    assert latency["average"].unit == "ticks"
    assert latency["count"].codes.tolist() == once.block().latency()["count"].codes.tolist()
    assert {run.syscalls().table()[name].unit for name in ("time", "duration")} == {"ticks"}
    assert run.offsets().table()["time"].unit == "ticks"
    assert run.counts()["first"].unit == "ticks"
    assert " ticks" in run.offsets().text()
    pytest.importorskip("matplotlib")
    for made in (plot.offset_heatmap(run.offsets()), plot.block_life(run.block()), plot.queue_depth(run.block())):
        figure = made.figure()
        figure.draw_without_rendering()
        axes = figure.axes[0]
        assert axes.get_xlabel().endswith(" (ticks)")
        assert not any("s" in label.get_text() for label in axes.get_xticklabels())
    with pytest.raises(lab.UnsupportedError, match="times in ticks"):
        plot.bandwidth(run.offsets())
    for recorded in (run.syscalls(), run.block()):
        with pytest.raises(lab.UnsupportedError, match=r"a replay: .*times in ticks"):
            lab.Replay(recorded)
    page = run_page(tmp_path).html()
    assert f"ticks of the clock {clock}; record with the clock mono" in page
    assert "<h2>Block requests</h2>" in page
    # The tracer takes the times of a call from a clock of its own, in ns.
    graph = run.graph().table()
    assert (graph["time"].unit, graph["duration"].unit, graph["self"].unit) == ("ticks", "ns", "ns")
    assert graph["duration"].codes.tolist() == once.graph().table()["duration"].codes.tolist()
    for view in (
        run.syscalls().summary,
        run.syscalls().lines,
        lambda: run.follow_through("fsync"),
        lambda: run.export_perfetto(tmp_path / "x"),
        lambda: run.export_chrome(tmp_path / "x"),
    ):
        with pytest.raises(lab.UnsupportedError, match=f"ticks of the clock {clock}; record with the clock mono"):
            view()
    assert not (tmp_path / "x").exists()


def test_buffers_of_different_clocks_are_not_mixed(tmp_path):
    import version7

    version7.convert(DATA / "6.1-switch.dat", tmp_path / "v7.dat", clocks={"": "mono", "raw": "x86-tsc"})
    run = lab.open_run(tmp_path / "v7.dat")
    with pytest.raises(lab.InputError, match=r"different clocks.*buffer='' \(mono\) or buffer='raw' \(x86-tsc\)"):
        run.counts()
    assert run.counts(buffer="")["first"].unit == "ns"
    assert run.counts(buffer="raw")["first"].unit == "ticks"


# -- calls whose end is missing


def test_incomplete_calls_have_no_duration_to_count(tmp_path):
    path = tmp_path / "log"
    path.write_text(
        " 0)               |  outer() {\n"
        " 0)   2.000 us    |    inner();\n"
        " 0)   9.000 us    |  }\n"
        " 0)               |  outer() {\n"  # its end is not in the log
        " 0)   4.000 us    |    inner();\n"
        " 0)               |    never() {\n"
    )
    table = lab.read_funcgraph(path).aggregate()
    rows = {row["function"]: row for row in table}
    assert {name: (row["calls"], row["timed"]) for name, row in rows.items()} == {
        "outer": (2, 1),
        "inner": (2, 2),
        "never": (1, 0),
    }
    assert (rows["outer"]["minimum"], rows["outer"]["average"], rows["outer"]["maximum"]) == (9000, 9000, 9000)
    assert (rows["inner"]["minimum"], rows["inner"]["average"], rows["inner"]["maximum"]) == (2000, 3000, 4000)
    assert all(np.isnan(rows["never"][name]) for name in ("minimum", "average", "maximum"))
    assert table.metadata["incomplete_calls"] == "2"
    # What tracing_thresh leaves, an exit without its entry, tells its duration all the same.
    calls = lab.open_run(DATA / "6.1-graph.dat").graph().aggregate()
    assert (calls["minimum"].codes[calls["timed"].codes > 0] > 0).all()


@pytest.mark.parametrize("one_call", [True, False])
def test_a_graph_never_joins_two_calls_across_a_gap(tmp_path, one_call):
    """The end says when its call began: among what was lost, or where its entry is."""
    file = version6.read(DATA / "6.1-graph.dat")
    format_of = lab.open_run(DATA / "6.1-graph.dat").file.format
    records: list[tuple[int, bytes]] = []

    def record(name: str, time: int, **values: int) -> None:
        layout = format_of(f"ftrace:{name}")
        fields = {field["name"]: field for field in layout["fields"]}
        data = bytearray(-(-max(field["offset"] + field["size"] for field in fields.values()) // 4) * 4)
        for field, value in {"common_type": layout["id"], "common_pid": 7, **values}.items():
            at, size = fields[field]["offset"], fields[field]["size"]
            data[at : at + size] = value.to_bytes(size, "little")
        records.append((time, bytes(data)))

    def page(missed: bool) -> bytes:
        start = last = records[0][0]
        body = b""
        for time, data in records:
            body += struct.pack("<I", len(data) // 4 | (time - last) << 5) + data
            last = time
        records.clear()
        return (struct.pack("<QQ", start, len(body) | missed << 31) + body).ljust(version6.PAGE, b"\0")

    def inner(time: int) -> None:
        record("funcgraph_entry", time, func=2, depth=1)
        record("funcgraph_exit", time + 100, func=2, depth=1, calltime=time, rettime=time + 100)

    record("funcgraph_entry", 1000, func=1, depth=0)
    inner(1100)
    first = page(missed=False)
    inner(1_000_000)
    began = 1000 if one_call else 900_000
    record("funcgraph_exit", 1_100_000, func=1, depth=0, calltime=5, rettime=5 + 1_100_000 - began)
    file.cpus = [first + page(missed=True), b""]
    file.write(tmp_path / "trace.dat")
    table = lab.open_run(tmp_path / "trace.dat").graph().table()
    names = ("time", "duration", "self", "parent", "complete")
    rows = list(zip(*(table[name].values.tolist() for name in names), strict=True))
    if one_call:
        assert rows == [(1000, 1_099_000, 1_098_800, -1, 1), (1100, 100, 100, 0, 1), (1_000_000, 100, 100, 0, 1)]
        assert "across_gaps" not in table.metadata
    else:
        assert rows[:2] == [(1000, 0, 0, -1, 0), (1100, 100, 100, 0, 1)]
        assert rows[2:] == [(900_000, 200_000, 199_900, -1, 0), (1_000_000, 100, 100, 2, 1)]
        assert table.metadata["across_gaps"] == "1"
    latency = lab.FunctionLatency("vfs_*")
    latency._recorder._run = lab.open_run(tmp_path / "trace.dat")
    assert latency.table().metadata.get("across_gaps") == table.metadata.get("across_gaps")


def test_requests_across_a_gap_are_counted(tmp_path):
    requests = lab.open_run(DATA / "6.1-io.dat").block().table()
    assert "across_gaps" not in requests.metadata
    file = version6.read(DATA / "6.1-io.dat")
    starts = [
        (int.from_bytes(pages[at : at + 8], "little"), cpu, at)
        for cpu, pages in enumerate(file.cpus)
        for at in range(4096, len(pages), 4096)
    ]
    under_way = {
        at: sum(begin < at[0] < end for begin, end in zip(requests["queued"], requests["completed"], strict=True))
        for at in starts
    }
    (_, cpu, at), expected = max(under_way.items(), key=lambda item: item[1])
    assert expected > 0
    pages = bytearray(file.cpus[cpu])
    pages[at + 11] |= 0x80  # RB_MISSED_EVENTS
    file.cpus[cpu] = bytes(pages)
    file.write(tmp_path / "trace.dat")
    assert lab.open_run(tmp_path / "trace.dat").block().table().metadata["across_gaps"] == str(expected)


def test_core_says_the_unit_of_a_selection():
    file = core.TraceFile(str(DATA / "6.1-io.dat"))
    assert file.time_unit() == "ns"
    file.require_ns(None, "this")
