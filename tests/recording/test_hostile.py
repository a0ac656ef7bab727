# SPDX-License-Identifier: MIT
"""Files that lie: whatever they say, reading, viewing and exporting them ends in an answer or in an error of ours."""

from __future__ import annotations

import os
import re
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import sampleblk_lab as lab
from sampleblk_lab._native import core

sys.path.insert(0, str(Path(__file__).parent))
import version7

DATA = Path(__file__).parents[1] / "data" / "trace"


@pytest.mark.parametrize("number", [0xFFFFFFFF, 0x100000, 65536])
def test_a_cpu_that_no_machine_has_is_refused_or_left_out(tmp_path, number):
    version7.convert(DATA / "6.1-switch.dat", tmp_path / "v7.dat", cpu_numbers=[0, number])
    with pytest.raises(lab.FormatError, match=f"a CPU below 65536, each once, not {number}"):
        lab.open_run(tmp_path / "v7.dat").counts()
    run = lab.open_run(tmp_path / "v7.dat", errors="skip")
    assert set(run.events("sched_switch")["cpu"]) == {0}
    assert f"not {number}" in run.counts().metadata["unread_because"]
    run.export_trace_dat(tmp_path / "copy.dat")
    assert list(lab.open_run(tmp_path / "copy.dat").counts()) == list(run.counts())


def test_one_cpu_twice_is_refused_or_left_out(tmp_path):
    version7.convert(DATA / "6.1-switch.dat", tmp_path / "v7.dat", cpu_numbers=[1, 1])
    with pytest.raises(lab.FormatError, match="each once, not 1"):
        lab.open_run(tmp_path / "v7.dat").counts()
    run = lab.open_run(tmp_path / "v7.dat", errors="skip")
    run.export_trace_dat(tmp_path / "copy.dat")
    assert list(lab.open_run(tmp_path / "copy.dat").counts()) == list(run.counts())


def test_the_highest_cpu_survives_an_export(tmp_path):
    version7.convert(DATA / "6.1-switch.dat", tmp_path / "v7.dat", cpu_numbers=[0, 65535])
    run = lab.open_run(tmp_path / "v7.dat")
    run.export_trace_dat(tmp_path / "copy.dat")
    again = lab.open_run(tmp_path / "copy.dat").events("sched_switch")
    assert list(again) == list(run.events("sched_switch"))
    assert set(again["cpu"]) == {0, 65535}


def with_format(path: Path, pattern: bytes, replacement: bytes) -> lab.analysis.Run:
    """A recording whose formats say something else, of the same length."""
    data = (DATA / "6.1-switch.dat").read_bytes()
    changed, count = re.subn(pattern, lambda found: replacement.ljust(len(found[0])), data)
    assert count == 1
    assert len(changed) == len(data)
    path.write_bytes(changed)
    return lab.open_run(path)


@pytest.mark.parametrize(
    ("pattern", "replacement"),
    [
        (rb"field:pid_t next_pid;", b"field:pid_t nobodys;"),
        (rb"field:pid_t next_pid;\toffset:(\d+);\tsize:4;", b"field:u64 next_pid;\toffset:8;\tsize:8;"),
        (rb"field:pid_t next_pid;", b"field:pid_t x[2];"),
        (rb"field:char next_comm\[16\];", b"field:char nobody[16];"),
        (rb"field:char next_comm\[16\];\toffset:(\d+);\tsize:16;", b"field:u32 next_comm;\toffset:8;\tsize:4;"),
    ],
    ids=["no next_pid", "wide next_pid", "array", "no next_comm", "number next_comm"],
)
def test_a_switch_of_another_form_does_not_stop_an_export(tmp_path, pattern, replacement):
    run = with_format(tmp_path / "trace.dat", pattern, replacement)
    run.export_chrome(tmp_path / "x.json")
    run.export_perfetto(tmp_path / "x.pftrace")
    shown = (tmp_path / "x.json").read_text()
    assert shown.endswith("}}\n")
    assert ('"CPU 0"' in shown) == (b"next_pid" not in pattern)  # without tasks there is nothing to show
    assert len(run.events("sched_switch")) == len(lab.open_run(DATA / "6.1-switch.dat").events("sched_switch"))


def test_offsets_take_only_system_call_tables():
    calls = core.syscall_table(core.TraceFile(str(DATA / "6.1-syscalls.dat")))
    columns = {column.name: column for column in calls.columns}
    rows = len(calls)

    def replaced(**changed: core.Column) -> core.Table:
        return core.Table(list({**columns, **changed}.values()))

    numbers = core.Column("syscall", np.zeros(rows, dtype=np.int32))
    with pytest.raises(lab.InputError, match=r"column 'syscall' of type int32.*string, as in a system-call table"):
        core.offset_table(replaced(syscall=numbers))
    with pytest.raises(lab.InputError, match="column 'pid' of type string"):
        core.offset_table(replaced(pid=core.Column.of_strings("pid", ["1"] * rows)))
    with pytest.raises(lab.InputError, match="no column 'time'"):
        core.offset_table(core.Table([]))
    assert len(core.offset_table(calls)) > 0


def test_calls_that_nest_without_end_are_refused(tmp_path):
    run = lab.open_run(DATA / "6.1-graph.dat")
    offset = next(f for f in run.file.format("ftrace:funcgraph_entry")["fields"] if f["name"] == "depth")
    entries = run.events("ftrace:funcgraph_entry")["depth"].codes
    data = bytearray((DATA / "6.1-graph.dat").read_bytes())
    # The depth of some entry: behind its function's address.
    func = int(run.events("ftrace:funcgraph_entry")["func"].codes[0])
    at = data.index(func.to_bytes(8, "little")) + 8
    assert int.from_bytes(data[at : at + 4], "little") == entries[0]
    assert offset["size"] == 4
    data[at : at + 4] = (1 << 30).to_bytes(4, "little")
    (tmp_path / "trace.dat").write_bytes(data)
    with pytest.raises(lab.FormatError, match="a call's depth below 4096, not 1073741824"):
        lab.open_run(tmp_path / "trace.dat").graph()
    graph = lab.open_run(tmp_path / "trace.dat", errors="skip").graph()
    assert "not 1073741824" in graph.metadata["unread_because"]
    assert len(graph) in (len(run.graph()), len(run.graph()) - 1)


@pytest.mark.parametrize("left", [0, 8192])
def test_a_recording_cut_while_it_is_read_is_an_error(tmp_path, left):
    path = tmp_path / "trace.dat"
    path.write_bytes((DATA / "7.2-fsync.dat").read_bytes())
    run = lab.open_run(path)
    run.counts()
    os.truncate(path, left)
    views = (run.counts, run.syscalls().summary, run.graph, run.block, lambda: run.tables(threads=4))
    for view in (*views, lambda: run.export_trace_dat(tmp_path / "copy.dat"), lambda: run.file.symbol(1 << 63)):
        with pytest.raises(lab.FormatError, match="it was truncated while it was read"):
            view()
    assert not (tmp_path / "copy.dat").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs trace points")
@pytest.mark.parametrize("left", [0, 4096])
def test_a_profile_cut_while_it_is_read_is_an_error(tmp_path, left):
    """What trace points recorded is read from the file when a view asks for it."""
    with lab.profile(hz=99, event="cpu-clock", events="sched:sched_switch") as profiler:
        time.sleep(0.2)
    path = profiler.save(tmp_path / "run").path
    profile = lab.open_profile(path)
    assert len(profile.waits()) > 0
    os.truncate(path, left)
    for view in (profile.off_cpu, profile.waits, profile.wall_clock):
        with pytest.raises(lab.FormatError, match="it was truncated while it was read"):
            view()
