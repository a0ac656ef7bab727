# SPDX-License-Identifier: MIT
from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import sampleblk_lab as lab
from sampleblk_lab import run_files

DATA = Path(__file__).parents[1] / "data" / "trace"


def test_a_directory_and_a_bare_file_open_alike(tmp_path):
    (tmp_path / "trace.dat").write_bytes((DATA / "6.1-syscalls.dat").read_bytes())
    in_directory = lab.open_run(tmp_path).counts()
    bare = lab.open_run(DATA / "6.1-syscalls.dat").counts()
    assert list(in_directory.rows()) == list(bare.rows())
    assert len(bare) > 10


def test_a_saved_run_takes_the_place_of_the_one_before(tmp_path):
    """It had been given the other one's profile and result; and who had that open read the new bytes."""
    first, second, kept = (tmp_path / name for name in ("first", "second", "kept"))
    for folder, name in ((first, "6.1-syscalls"), (second, "6.1-switch")):
        folder.mkdir()
        (folder / "trace.dat").write_bytes((DATA / f"{name}.dat").read_bytes())
        (folder / "recording.json").write_text("{}")
        run_files.attach(folder, "result.json", "{}")
    for name in ("perf.data", "kallsyms", "command.json", "bpf/out", "symbols/of/elf"):
        (first / name).parent.mkdir(parents=True, exist_ok=True)
        (first / name).write_text("first")
    run_files.attach(first, "notes.txt", "first")
    (first / "symbols/link").symlink_to("of")
    kept.mkdir()
    (kept / "mine").write_text("mine")
    (kept / "result-2.json").write_text("{}")

    before = lab.open_run(first).save(kept)
    counts = list(before.counts().rows())
    assert before.options["attached"] == ["notes.txt", "result.json"]
    after = lab.open_run(second).save(kept)
    assert sorted(path.name for path in kept.iterdir()) == [
        *("mine", "recording.json", "result-2.json", "result.json", "trace.dat")
    ]
    with pytest.raises(lab.UnsupportedError, match=r"no perf\.data"):
        after.profile()
    assert list(before.counts().rows()) == counts
    assert before.events("sys_enter_openat", fields=["common_pid"])["common_pid"].values.tolist()
    assert list(after.counts().rows()) == list(lab.open_run(second).counts().rows())

    lab.open_run(DATA / "6.1-syscalls.dat").save(kept)
    assert sorted(path.name for path in kept.iterdir()) == ["mine", "result-2.json", "trace.dat"]
    # Into itself, and below itself.
    assert list(lab.open_run(second).save(second).counts().rows()) == list(after.counts().rows())
    assert list(lab.open_run(second).save(second / "below").counts().rows()) == list(after.counts().rows())
    assert sorted(path.name for path in (second / "below").iterdir()) == ["recording.json", "result.json", "trace.dat"]


@pytest.mark.parametrize("export", ["export_perfetto", "export_chrome", "export_trace_dat"])
def test_an_export_is_written_whole_or_not_at_all(tmp_path, export):
    """Over the recording itself, too, whoever has it open; a half one would pass for all there was."""
    path = tmp_path / "trace.dat"
    data = (DATA / "6.1-switch.dat").read_bytes()
    path.write_bytes(data)
    run = lab.open_run(path)
    counts, inode = list(run.counts().rows()), path.stat().st_ino
    getattr(run, export)(path)
    assert path.stat().st_ino != inode
    assert list(run.counts().rows()) == counts
    assert list(run.events("sched_switch", fields=["common_pid"]).rows())
    path.write_bytes(data[: len(data) * 2 // 3])
    (tmp_path / "out").write_text("of before")
    with pytest.raises(lab.SampleblkError):
        getattr(lab.open_run(path), export)(tmp_path / "out")
    assert (tmp_path / "out").read_text() == "of before"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "trace.dat"]


def test_a_broken_note_of_a_run_names_no_file_elsewhere(tmp_path):
    outside = tmp_path / "outside"
    outside.write_text("stays")
    folder = tmp_path / "run"
    folder.mkdir()
    for told in ('{"attached": ["../outside", "..", "."]}', '{"attached": 3}', "{", "[]"):
        (folder / "recording.json").write_text(told)
        (folder / "trace.dat").touch()
        run_files.remove_recording(folder)
        assert list(folder.iterdir()) == []
        assert outside.read_text() == "stays"


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


def test_python_ends_where_not_all_batches_were_taken():
    """Its decoder came back to a Python that was no more, which aborted the process."""
    code = "import sys, sampleblk_lab as lab; left = lab.open_run(sys.argv[1]).batches('sched_switch', 10); next(left)"
    subprocess.run([sys.executable, "-c", code, DATA / "6.1-switch.dat"], check=True)


@pytest.mark.parametrize("rows", [0, -1, 1.5, True, None])
def test_a_batch_has_a_row_or_more(rows):
    run = lab.open_run(DATA / "6.1-switch.dat")
    with pytest.raises(lab.InputError, match=f"rows={rows} .*a whole number from 1 "):
        run.batches("sched_switch", rows)


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


def test_a_run_that_is_not_there_is_told_when_it_is_opened(tmp_path):
    with pytest.raises(FileNotFoundError, match="nosuch"):
        lab.open_run(tmp_path / "nosuch")


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
