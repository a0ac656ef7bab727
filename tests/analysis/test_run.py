# SPDX-License-Identifier: MIT
from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import sampleblk_lab as lab

DATA = Path(__file__).parents[1] / "data" / "trace"


def test_a_directory_and_a_bare_file_open_alike(tmp_path):
    (tmp_path / "trace.dat").write_bytes((DATA / "6.1-syscalls.dat").read_bytes())
    in_directory = lab.open_run(tmp_path).counts()
    bare = lab.open_run(DATA / "6.1-syscalls.dat").counts()
    assert list(in_directory.rows()) == list(bare.rows())
    assert len(bare) > 10


def test_event_columns_are_typed_by_the_format():
    table = lab.open_run(DATA / "6.1-switch.dat").events("sched_switch")
    assert table["time"].unit == "ns"
    assert table["time"].type == "uint64"
    assert table["prev_pid"].type == "int32"
    assert table["prev_comm"].type == "string"
    assert (np.diff(table["time"].codes.astype(np.int64)) >= 0).all()
    assert table.metadata["lost_events"] == "0"


def test_selections_agree_with_the_whole_table():
    run = lab.open_run(DATA / "6.1-switch.dat")
    whole = run.events("sched:sched_switch")
    time, cpu, pid = (whole[name].codes for name in ("time", "cpu", "common_pid"))
    start, stop = int(time[40]), int(time[160])
    inside = (time >= start) & (time < stop)
    assert run.events("sched_switch", start=start, stop=stop)["time"].codes.tolist() == time[inside].tolist()
    assert run.events("sched_switch", cpus=[1])["time"].codes.tolist() == time[cpu == 1].tolist()
    some = int(pid[pid != 0][0])
    assert run.events("sched_switch", pids=[some])["time"].codes.tolist() == time[pid == some].tolist()
    assert run.events("sched_switch", fields=["next_pid"]).columns == ["time", "cpu", "next_pid"]


def test_batches_join_to_the_whole_table():
    run = lab.open_run(DATA / "6.1-switch.dat")
    parts = [table["next_pid"].codes for table in run.batches("sched_switch", 10)]
    assert all(len(part) <= 10 for part in parts)
    assert np.concatenate(parts).tolist() == run.events("sched_switch")["next_pid"].codes.tolist()


@pytest.mark.parametrize("name", ["6.1-switch", "7.2-syscalls"])
def test_threads_decode_the_same(name):
    run = lab.open_run(DATA / f"{name}.dat")
    one, many = run.tables(threads=1), run.tables(threads=5)
    assert one.keys() == many.keys()
    for event, table in one.items():
        assert list(table.rows()) == list(many[event].rows())


def test_batches_pass_errors_on_and_can_be_left():
    run = lab.open_run(DATA / "6.1-switch.dat")
    with pytest.raises(lab.InputError, match="no event 'nonesuch'"):
        list(run.batches("nonesuch"))
    for _ in run.batches("sched_switch", 10):
        break


def test_a_name_of_several_events_is_no_event():
    run = lab.open_run(DATA / "7.2-syscalls.dat")
    with pytest.raises(lab.InputError, match=r"one event's name; it matches sys_enter_access, "):
        run.events("sys_enter_*")
    with pytest.raises(lab.InputError, match="it matches none"):
        run.events("nonesuch_*")
    with pytest.raises(lab.InputError, match="one event's name; it matches syscalls:"):
        list(run.batches("sys_enter_*"))


def test_unknown_event_is_named():
    with pytest.raises(lab.InputError, match="no event 'sched_swish'"):
        lab.open_run(DATA / "6.1-switch.dat").events("sched_swish")


def test_a_foreign_file_is_refused_with_its_offset(tmp_path):
    path = tmp_path / "trace.dat"
    path.write_bytes(b"#!/bin/sh\n" * 10)
    with pytest.raises(lab.FormatError, match=r"at byte 0: expected the magic of a trace\.dat") as caught:
        lab.open_run(path).counts()
    assert caught.value.path == str(path)


def test_a_truncated_file_is_refused_or_read_as_far_as_it_goes(tmp_path):
    whole = (DATA / "6.1-switch.dat").read_bytes()
    path = tmp_path / "cut.dat"
    path.write_bytes(whole[:-6000])
    with pytest.raises(lab.FormatError, match="the file ends at"):
        lab.open_run(path).counts()
    kept = lab.open_run(path, errors="skip").counts()
    assert 0 < int(kept.metadata["events"]) < int(lab.open_run(DATA / "6.1-switch.dat").counts().metadata["events"])
    assert "bytes" in kept.metadata["unread"]


def test_commands_and_symbols_become_columns_where_asked():
    run = lab.open_run(DATA / "6.12-kprobes.dat")
    table = run.events("myp", comm=True, symbols=True)
    assert set(table["__probe_ip_symbol"]) == {"vfs_write"}
    assert "dd" in set(table["comm"])


@pytest.mark.parametrize("kernel", ["5.10", "6.1", "6.12", "7.2"])
def test_graph_of_each_kernel_is_a_tree(kernel):
    graph = lab.open_run(DATA / f"{kernel}-graph.dat").graph("*sys_write")
    table = graph.table()
    parent, depth, time = (table[name].codes for name in ("parent", "depth", "time"))
    duration, own, complete = (table[name].codes for name in ("duration", "self", "complete"))
    children = np.flatnonzero(parent >= 0)
    assert len(children) > 10
    assert (depth[children] == depth[parent[children]] + 1).all()
    assert (parent[children] < children).all()
    inner = children[(complete[children] == 1) & (complete[parent[children]] == 1)]
    assert (duration[inner] <= duration[parent[inner]]).all()
    assert (time[inner] >= time[parent[inner]]).all()
    assert (own <= duration).all()
    assert "vfs_write" in graph.tree(0).functions()


def test_graph_text_is_the_kernels():
    text = lab.open_run(DATA / "6.1-graph.dat").graph("ksys_write").tree(0).text()
    lines = text.splitlines()
    assert lines[0] == " 0)               |  ksys_write() {"
    assert lines[-1].endswith("us   |  }")
    assert any(line.endswith("|      __fget_light();") for line in lines)
    assert text.count("{") == text.count("}")


def test_tree_depth_folds_what_lies_below():
    tree = lab.open_run(DATA / "6.1-graph.dat").graph("ksys_write").tree(0, depth=1)
    assert len(tree.text().splitlines()) == 1
    with pytest.raises(IndexError, match="root call 99"):
        lab.open_run(DATA / "6.1-graph.dat").graph("ksys_write").tree(99)


def test_syscall_summary_counts_calls_and_errors():
    run = lab.open_run(DATA / "6.1-syscalls.dat")
    summary = run.syscalls().summary()
    calls = run.syscalls().table()
    assert summary["calls"]["write"] == sum(name == "write" for name in calls["syscall"])
    assert summary["errors"]["openat"] == 1  # cat /nonexistent
    assert summary["percent_time"].codes.sum() == pytest.approx(100)
    assert summary.text().splitlines()[0] == "% time     seconds  usecs/call     calls    errors syscall"
    assert summary.text().splitlines()[len(summary) + 3].endswith("total")
    # Calls that were under way when the recording began and ended are counted, not invented.
    assert int(summary.metadata["unfinished"]) > 0


def test_io_sizes_of_dd():
    sizes = lab.open_run(DATA / "6.1-syscalls.dat").io_sizes()
    histogram = sizes.histogram()
    at_4k = histogram["value"].codes.tolist().index(4096)
    assert histogram["writes"].codes[at_4k] == 64
    assert histogram["reads"].codes[at_4k] == 64
    assert sizes.summary()["write_bytes"]["dd"] > 64 * 4096
    assert " 4096 |@@@@" in sizes.text()
