# SPDX-License-Identifier: MIT
from __future__ import annotations

import itertools
import json
import re
import shutil
import subprocess
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

import sampleblk_lab as lab
from sampleblk_lab.analysis import strace_lines
from sampleblk_lab.analysis.io_sizes import IoSizes
from sampleblk_lab.analysis.offsets import Offsets
from support import protobuf_fields

DATA = Path(__file__).parents[1] / "data"


def test_the_articles_graphs_come_back_as_they_were_written():
    for path in sorted((DATA / "lktm").glob("funcgraph_*.log")):
        lines = [line.strip() for line in path.read_text().splitlines() if "|" in line]
        ours = [line.strip() for line in lab.read_funcgraph(path).text().splitlines()]
        assert len(lines) > 400
        assert ours == lines, path


def test_the_articles_strace_log():
    log = lab.read_strace(next((DATA / "lktm").glob("strace_*.log")))
    table = log.table()
    calls = dict(zip(*np.unique(table["syscall"].values.astype(str), return_counts=True), strict=True))
    assert calls["write"] > 500
    assert calls["fadvise64"] >= 2
    assert table["time"].codes[0] == 1466326568892834000
    assert table["duration"].codes[0] == 9000
    assert table["args"][1] == "3"
    summary = log.summary()
    assert summary["calls"]["write"] == 84992
    assert summary["usecs_per_call"]["fadvise64"] == 216
    assert summary.text().splitlines()[-1].split()[-1] == "total"


def test_strace_of_several_tasks_is_joined(tmp_path):
    path = tmp_path / "log"
    path.write_text(
        '[pid 12] 1.5 write(3, "a\\"b", 4 <unfinished ...>\n'
        '[pid 13] 1.6 openat(AT_FDCWD, "/x", O_RDONLY) = -1 ENOENT (No such file or directory) <0.000004>\n'
        "[pid 12] 1.7 <... write resumed>) = 4 <0.250000>\n"
        "[pid 12] --- SIGINT {si_signo=SIGINT} ---\n"
    )
    rows = list(lab.read_strace(path).table().rows())
    assert rows[0]["error"] == "ENOENT"
    assert rows[1]["args"] == '3, "a\\"b", 4'
    assert (rows[1]["time"], rows[1]["duration"], rows[1]["ret"]) == (1_500_000_000, 250_000_000, 4)


@pytest.mark.parametrize(
    ("seconds", "calls", "errors"),
    [("13.012345", 1, 3), ("0.100000", 1, 100), ("0.000000", 100, 100), ("100.000000", 7, 0), ("3.000003", 30, 3)],
)
def test_the_summary_s_total_is_the_sum(tmp_path, seconds, calls, errors):
    """As strace 6.1 prints it (call_summary_pers() in its src/count.c): "%6.2f %11.6f %11lu %9lu %9lu %s"."""
    path = tmp_path / "log"
    usecs = int(float(seconds) * 1e6 / calls)
    shown = errors or ""
    head = "% time     seconds  usecs/call     calls    errors syscall"
    rule = "------ ----------- ----------- --------- --------- ----------------"
    body = f"{seconds:>11s} {usecs:11d} {calls:9d} {shown!s:>9s}"
    path.write_text(f"{head}\n{rule}\n100.00 {body} write\n{rule}\n100.00 {body} total\n")
    assert lab.read_strace(path).summary().text() == path.read_text().rstrip("\n")


@pytest.mark.skipif(shutil.which("strace") is None, reason="no strace here")
def test_the_summary_reads_as_strace_wrote_it(tmp_path):
    path = tmp_path / "log"
    script = "for i in 1 2 3 4 5 6 7 8 9 10 11; do test -e /nonexistent/$i; done; sleep 0.02"
    done = subprocess.run(["strace", "-c", "-f", "-o", path, "sh", "-c", script], capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"strace cannot trace here: {done.stderr}")
    theirs, ours = path.read_text().splitlines(), lab.read_strace(path).summary().text().splitlines()
    assert ours[:-1] == theirs[:-1]
    # The total is theirs but for the rounding of each row's microseconds.
    total, expected = ours[-1].split(), theirs[-1].split()
    assert total[0] == "100.00"
    assert total[3:] == expected[3:]
    assert abs(float(total[1]) - float(expected[1])) < 1e-6 * len(theirs)


def test_foreign_lines_are_named_or_counted(tmp_path):
    path = tmp_path / "log"
    path.write_text(" 0)   0.740 us    |  f();\nwhat is this\n")
    with pytest.raises(lab.FormatError, match="at byte 26: expected a line of function_graph"):
        lab.read_funcgraph(path)
    skipped = lab.read_funcgraph(path, errors="skip").table().metadata
    assert skipped["unread_lines"] == "1"
    assert "at byte 26: expected" in skipped["unread_because"]
    path.write_text("write(1, 2) = 2\nwhat is this\n")
    with pytest.raises(lab.FormatError, match="at byte 16: expected a line of strace"):
        lab.read_strace(path)
    skipped = lab.read_strace(path, errors="skip").table().metadata
    assert skipped["unread_lines"] == "1"
    assert "at byte 16: expected" in skipped["unread_because"]


@pytest.mark.parametrize(
    ("microseconds", "mark"),
    [("9.0", " "), ("12.206", "+"), ("101.0", "!"), ("1001.0", "#"), ("10001.0", "*"), ("100001.0", "@")],
)
def test_marks_of_long_calls(tmp_path, microseconds, mark):
    path = tmp_path / "log"
    path.write_text(f" 0) {mark} {microseconds} us |  f();\n")
    assert lab.read_funcgraph(path).text()[4] == mark


def graph(name: str) -> lab.analysis.graph.Graph:
    return lab.open_run(DATA / "trace" / f"{name}.dat").graph("ksys_write")


def test_aggregates_add_up():
    one = graph("6.1-graph")
    table = one.table()
    for by in ("function", "path", "module"):
        sums = one.aggregate(by=by)
        assert sums["calls"].codes.sum() == len(table)
        assert sums["self"].codes.sum() == table["self"].codes.sum()
    with pytest.raises(lab.InputError, match="by='colour'"):
        one.aggregate(by="colour")


def test_folding_keeps_the_time():
    one = lab.read_funcgraph(next((DATA / "lktm").glob("funcgraph_write_*.log")))
    deep, flat = one.aggregate(by="path"), one.aggregate(by="path", depth=2)
    assert max(path.count(";") for path in flat["path"]) == 1
    assert flat["self"].codes.sum() == one.table()["self"].codes.sum()
    for path in flat["path"]:
        assert flat["total"][path] == deep["total"][path]
        if ";" in path:
            assert flat["self"][path] == pytest.approx(flat["total"][path], abs=50 * flat["calls"][path])


def test_a_folded_module_is_one_call(tmp_path):
    path = tmp_path / "log"
    path.write_text(
        " 0)               |  write() {\n"
        " 0)               |    outer [ext4]() {\n"
        " 0)   2.000 us    |      inner [ext4]();\n"
        " 0)   1.000 us    |      lock();\n"
        " 0)   6.000 us    |    }\n"
        " 0)   8.000 us    |  }\n"
    )
    one = lab.read_funcgraph(path)
    table = one.aggregate(by="path", fold_modules=True)
    rows = {row["path"]: (row["calls"], row["total"], row["self"]) for row in table.rows()}
    assert rows == {
        "write": (1, 8000, 2000),
        "write;[ext4]": (1, 6000, 5000),
        "write;[ext4];lock": (1, 1000, 1000),
    }
    assert one.folded(fold_modules=["xfs"]) == one.folded()
    # A module's name is one name, not its letters.
    assert one.folded(fold_modules="ext4") == one.folded(fold_modules=["ext4"]) != one.folded()
    modules = one.aggregate(by="module", fold_modules=True)
    assert dict(zip(modules["module"], modules["calls"], strict=True)) == {"kernel": 2, "ext4": 1}


@pytest.mark.parametrize("kernel", ["5.10", "6.1", "6.12", "7.2"])
def test_block_life_cycle(kernel):
    block = lab.open_run(DATA / "trace" / f"{kernel}-io.dat").block()
    table, latency = block.table(), block.latency()
    assert table.metadata["unpaired"] == "0"
    issued = table["issued"].codes > 0
    assert (table["completed"].codes[issued] > table["issued"].codes[issued]).all()
    assert set(table["rwbs"].values[~issued]) <= {"FWS"}  # nothing but a flush, which others are issued for
    # dd read 64 KiB back with O_DIRECT, 8 KiB at a time, and wrote it 16 KiB at a time
    direct = np.isin(table["rwbs"].values, ["R", "RS"])
    assert table["sectors"].codes[direct].tolist() == [16] * 8
    queued = table["queued"].codes > 0
    assert set(table["rwbs"].values[~queued]) <= {"FF"}
    assert latency["count"]["D2C"] == issued.sum()
    assert latency["count"]["Q2C"] == queued.sum() == latency["count"]["Q2Q"] + 1
    both = latency["count"]["Q2G"] - (~issued).sum()
    assert sum(latency["count"][step] for step in ("G2D", "G2I") if step in list(latency["step"])) == both
    depth = block.queue_depth()["depth"].codes
    assert depth.min() == 0
    assert depth[-1] == 0


def test_flushes_of_the_block_layer_are_requests_of_their_own():
    table = lab.open_run(DATA / "trace" / "5.10-io.dat").block().table()
    flush = table["operation"].values == "F"
    assert flush.sum() == 3
    assert (table["completed"].codes[flush] > table["issued"].codes[flush]).all()
    assert table.metadata["flush_sequences"] == "1"  # the journal's commit block: flush, write, flush


def test_kblockd_issues_what_a_task_queued():
    table = lab.open_run(DATA / "trace" / "7.2-io.dat").block().table()
    other = table["issuer"].codes != table["pid"].codes
    assert table["rwbs"].values[other].tolist() == ["RAM"] * 3  # ext4's read-ahead
    assert (table["inserted"].codes[other] > 0).all()


def test_a_merge_is_one_request():
    table = lab.open_run(DATA / "trace" / "6.12-fsync.dat").block().table()
    assert table.metadata["merges"] == "6"
    assert table["merges"].codes.sum() == 6
    merged = table["merges"].codes > 0
    assert table["sectors"].codes[merged].tolist() == [14]


def test_follow_through_reaches_the_journals_thread_and_the_driver():
    story = lab.open_run(DATA / "trace" / "6.12-fsync.dat").follow_through("fsync")
    contexts = story.contexts()
    assert contexts[0].startswith("dd-")
    assert contexts[1] == "driver"
    assert contexts[2].startswith("jbd2/")
    times = dict(zip(story.times()["where"], story.times()["time"], strict=True))
    assert times["on CPU"] + times["off CPU"] == story.root.duration
    assert 0 < times["other tasks"] < times["off CPU"]
    assert times["driver"] > 0
    lines = story.text().splitlines()
    commit = next(i for i, line in enumerate(lines) if "jbd2_journal_commit_transaction()" in line)
    # Under way while the task slept, and the journal's requests are below it.
    assert any("off CPU" in line for line in lines[:commit])
    assert sum("issue to completion  [driver]" in line for line in lines[commit:]) == 2
    # The journal's are not this task's: that is told, for others' would look the same.
    assert story.times().metadata["requests_of_others"] == "2"
    assert "requests_of_others: 2" in story.text()
    with pytest.raises(IndexError, match="call 7 of 1 calls of fsync"):
        lab.open_run(DATA / "trace" / "6.12-fsync.dat").follow_through("fsync", 7)


def test_times_without_sched_switch_claim_nothing_about_sleep():
    run = lab.open_run(DATA / "trace" / "6.1-syscalls.dat")
    times = run.follow_through("write").times()
    assert list(times["where"]) == ["on and off CPU", "driver", "other tasks"]


def test_every_view_has_a_notebook_form_with_its_losses():
    run = lab.open_run(DATA / "trace" / "6.12-fsync.dat")
    views = (
        run.graph(),
        run.graph().tree(0),
        run.syscalls(),
        run.syscalls().summary(),
        run.io_sizes(),
        run.block(),
        run.follow_through("fsync"),
        run.counts(),
        run.graph().aggregate(),
    )
    for view in views:
        assert "lost_events: 0" in repr(view), type(view)
        assert "lost_events: 0" in view._repr_html_(), type(view)
    tree = run.graph("*sys_fsync").tree(0)
    page = tree._repr_html_()
    assert page.count("<details") == page.count("</details>") > 5
    assert page.count("<summary>") + (page.count("<li>") - page.count("<li><details")) == len(tree)
    assert "lost_events: 0" in repr(run.offsets())  # a picture in a notebook


def test_folded_stacks_hold_all_self_time():
    one = graph("6.1-graph")
    total = sum(int(line.rsplit(" ", 1)[1]) for line in one.folded().splitlines())
    assert total == one.table()["self"].codes.sum()
    assert any(line.startswith("ksys_write;vfs_write;rw_verify_area") for line in one.folded().splitlines())


def test_diff_of_two_kernels():
    before, after = graph("6.1-graph"), graph("7.2-graph")
    table = before.diff(after)
    assert table["calls_before"]["vfs_write"] == before.aggregate()["calls"]["vfs_write"]
    assert table["calls_after"]["vfs_write"] == after.aggregate()["calls"]["vfs_write"]
    same = before.diff(before)
    assert (same["change"].codes[same["average_before"].codes > 0] == 1).all()


def test_strace_lines():
    lines = list(lab.open_run(DATA / "trace" / "7.2-syscalls.dat").syscalls().lines())
    openat = next(line for line in lines if "/nonexistent" in line and "openat" in line)
    assert 'openat(AT_FDCWD, "/nonexistent", O_RDONLY) = -1 ENOENT <' in openat
    assert any("close(3</lib/x86_64-linux-gnu/libc.so.6>)" in line for line in lines)
    assert any("fadvise64(" in line and "POSIX_FADV_SEQUENTIAL" in line for line in lines)


@pytest.mark.parametrize("kernel", ["5.10", "6.1", "6.12", "7.2"])
def test_an_outline_is_of_a_call_that_goes_down_to_its_target(kernel):
    """The journal's thread submits what the longer fsync waits for."""
    graph = lab.open_run(DATA / "trace" / f"{kernel}-fsync.dat").graph()
    table = graph.table()
    rows = range(len(table))
    root_of = list(itertools.accumulate(rows, lambda root, row: row if table["parent"].codes[row] < 0 else root))
    hits = [root_of[row] for row in rows if str(table["function"].values[row]).startswith("submit_bio")]
    longest = max(set(hits), key=lambda root: table["duration"].codes[root])
    outline = graph.outline("submit_bio*")
    assert outline.target_calls == hits.count(longest) > 0
    assert f"→ {table['function'].values[longest]}" in outline.text()
    assert "→ __x64_sys_fsync" in graph.outline("nothing_has_this_name").text()


def test_strace_lines_have_the_flags_of_newfstatat():
    lines = list(lab.open_run(DATA / "trace" / "6.1-syscalls.dat").syscalls().lines())
    of_descriptors = [line for line in lines if re.search(r" newfstatat\(\d", line)]
    assert len(of_descriptors) > 3
    assert all(", AT_EMPTY_PATH) = 0 <" in line for line in of_descriptors)
    table = calls_of(("newfstatat", [3, 99, 98, 0x1100], 0), ("newfstatat", [3, 99, 98, 0], 0))
    shown = list(strace_lines.lines(Probed(), table, {}, None))
    assert [line.partition("0x62, ")[2].partition(")")[0] for line in shown] == [
        "AT_SYMLINK_NOFOLLOW|AT_EMPTY_PATH",
        "0",
    ]


def test_offsets_of_dd_are_sequential():
    offsets = lab.open_run(DATA / "trace" / "6.1-syscalls.dat").offsets()
    table = offsets.table()
    writes = (table["operation"].values == "write") & (table["size"].codes == 4096) & (table["fd"].codes == 1)
    assert table["offset"].codes[writes].tolist() == [4096 * i for i in range(64)]
    counts, times, places = offsets.heatmap(10, 4)
    assert counts.sum() == table["size"].codes.sum()
    assert (len(times), len(places)) == (11, 5)
    assert "KiB |" in offsets.text()


def calls_of(*calls: tuple[str, list[int], int], pids: int | list[int] = 7) -> lab.Table:
    """A table of system calls: their names, arguments and results."""
    number = len(calls)
    columns = {
        "time": np.arange(number, dtype=np.uint64),
        "duration": np.ones(number, dtype=np.uint64),
        "pid": np.full(number, pids, dtype=np.int32),
        "syscall": [name for name, _, _ in calls],
        "ret": np.array([ret for _, _, ret in calls], dtype=np.int64),
        "errno": np.array([max(-ret, 0) for _, _, ret in calls], dtype=np.int32),
    }
    columns |= {
        f"arg{place}": np.array([[*args, *[0] * 6][place] for _, args, _ in calls], dtype=np.uint64)
        for place in range(6)
    }
    return lab.Table.of(columns, units={"time": "ns", "duration": "ns"})


APPEND, CLOEXEC, RWF_APPEND, OWN, DUP_CLOEXEC, SETFD, SETFL = 0o2000, 0o2000000, 0x10, 2**64 - 1, 1030, 2, 4


@pytest.mark.parametrize(
    ("calls", "offsets", "known"),
    [
        # Where a file that is appended to ends is in no call.
        ([("openat", [0, 0, APPEND], 3), ("read", [3], 9), ("write", [3], 4), ("read", [3], 1)], [0, 9, 13], [1, 0, 0]),
        (
            [("open", [0, APPEND], 3), ("lseek", [3], 8), ("read", [3], 1), ("pwrite64", [3, 0, 5, 6], 5)],
            [8, 6],
            [1, 0],
        ),
        # It may be told to append later, or no more, by any descriptor of it.
        (
            [
                *(("creat", [0], 3), ("dup", [3], 4), ("fcntl", [4, SETFL, APPEND], 0), ("write", [3], 4)),
                *(("lseek", [3], 0), ("write", [3], 4), ("fcntl", [3, SETFL, 0], 0), ("lseek", [3], 8)),
                ("write", [4], 4),
            ],
            [0, 0, 8],
            [0, 0, 1],
        ),
        # The flags of openat2 are in the caller's memory, and may have O_APPEND.
        ([("openat2", [0, 0, 0], 3), ("read", [3], 9), ("write", [3], 4), ("read", [3], 1)], [0, 9, 13], [1, 0, 0]),
        ([("openat", [0, 0, 0], 3), ("pwritev2", [3, 0, 1, 6, 0, RWF_APPEND], 5)], [6], [0]),
        # An offset of -1 is the file's own.
        ([("openat", [0, 0, 0], 3), ("preadv2", [3, 0, 1, OWN], 100), ("read", [3], 7)], [0, 100], [1, 1]),
        # Descriptors of one file share its offset.
        (
            [("creat", [0], 3), ("dup", [3], 4), ("write", [3], 10), ("write", [4], 1), ("write", [3], 1)],
            [0, 10, 11],
            [1] * 3,
        ),
        ([("creat", [0], 3), ("fcntl", [3, DUP_CLOEXEC], 9), ("write", [9], 10), ("write", [3], 1)], [0, 10], [1, 1]),
        # What closed a descriptor leaves its number to a pipe, or to another file.
        ([("creat", [0], 3), ("close_range", [3, 2**32 - 1], 0), ("read", [3], 5)], [0], [0]),
        ([("creat", [0], 3), ("close_range", [4, 2**32 - 1], 0), ("read", [3], 5)], [0], [1]),
        ([("creat", [0], 3), ("close", [3], -5), ("read", [3], 5)], [0], [0]),
        ([("creat", [0], 3), ("close", [4], -9), ("read", [3], 5)], [0], [1]),
        (
            [
                ("openat", [0, 0, CLOEXEC], 3),
                ("dup3", [3, 4, CLOEXEC], 4),
                ("dup", [3], 5),
                ("dup", [3], 6),
                ("fcntl", [6, SETFD, 1], 0),
                ("dup", [3], 7),
                ("close_range", [7, 9, 4], 0),
                ("execve", [0], 0),
                *(("read", [fd], 5) for fd in (3, 4, 5, 6, 7)),
            ],
            [0] * 5,
            [0, 0, 1, 0, 0],
        ),
        # The kernel moves bytes from where a descriptor stands.
        ([("creat", [0], 3), ("sendfile64", [9, 3, 0], 5), ("read", [3], 1), ("read", [9], 1)], [5, 5], [1, 0]),
        ([("creat", [0], 3), ("sendfile64", [9, 3, 77], 5), ("read", [3], 1)], [0], [1]),
        (
            [("creat", [0], 3), ("copy_file_range", [3, 0, 4, 0], 5), ("splice", [3, 0, 4, 7], 2), ("read", [3], 1)],
            [7],
            [1],
        ),
    ],
)
def test_an_offset_that_is_said_to_be_known_is_right(calls, offsets, known):
    found = Offsets(calls_of(*calls))
    assert found.table()["offset"].codes.tolist() == offsets
    assert found.table()["known"].codes.tolist() == known
    unknown = found.table().metadata.get("unknown_offsets", "0")
    assert unknown == str(known.count(0))
    assert ("unknown_offsets" in found.text()) == (0 in known)


@pytest.mark.parametrize("lost", [{"lost_events": "3"}, {"lost_events": "0", "gaps": "1"}, {"unread_lines": "1"}])
def test_no_position_is_known_where_calls_are_missing(lost):
    table = calls_of(("creat", [0], 3), ("write", [3], 10), ("write", [3], 10), ("pwrite64", [3, 0, 0, 5], 10))
    columns = {name: table[name].values for name in table.columns}
    made = lab.Table.of(columns, units={"time": "ns", "duration": "ns"}, metadata=lost)
    assert Offsets(made).table()["known"].codes.tolist() == [0, 0, 1]


@pytest.mark.parametrize(
    ("call", "flags", "execs", "last", "known"),
    [
        ("fork", 0, "read", 15, 1),
        ("clone", 0x400, "read", 0, 0),
        ("clone3", 0, "read", 0, 0),
        ("clone3", 0, "execve", 15, 1),
    ],
)
def test_offsets_of_a_child_are_its_parent_s(call: str, flags: int, execs: str, last: int, known: int) -> None:
    """One position; what a thread closes is closed, and what a child closes is not."""
    begun = [("creat", [0], 3), ("write", [3], 10), (call, [flags], 8), ("write", [3], 5), ("close", [3], 0)]
    calls = calls_of(*begun, (execs, [9], 0), ("write", [3], 1), pids=[7, 7, 7, 8, 8, 8, 7])
    rows = [(row["offset"], row["known"]) for row in Offsets(calls).table().rows() if row["fd"] == 3]
    assert rows == [(0, 1), (10, 1), (last, known)]


class Probed:
    """A recording in which the calls of the task 7 at these times were given the paths /1, /2, …"""

    events: tuple[str, ...] = ()

    def __init__(self, *times: int) -> None:
        self._times = times

    def decode(self, *_: object, **__: object) -> dict[str, object]:
        number = len(self._times)
        columns = {
            "time": np.array(self._times, dtype=np.uint64),
            "path": [f"/{at}" for at in range(1, number + 1)],
            "pointer": np.full(number, 99, dtype=np.uint64),
            "common_pid": np.full(number, 7, dtype=np.int32),
        }
        return {"sampleblk:path_openat": lab.Table.of(columns)._table}


@pytest.mark.parametrize(
    ("between", "pids", "told"),
    [
        ([("close", [3], 0)], 7, "3"),
        ([("close", [3], -5)], 7, "3"),
        ([("close", [3], -9)], 7, "3</1>"),
        ([("openat", [0, 99], 4), ("dup2", [4, 3], 3)], 7, "3</2>"),
        ([("close_range", [3, 9], 0)], 7, "3"),
        ([("openat2", [0, 99], 3)], 7, "3"),  # whose path is not read
        ([("fork", [], 8)], [7, 7, 8], "3</1>"),
        ([("clone", [0x400], 8), ("close", [3], 0)], [7, 7, 8, 7], "3"),  # a thread
        ([("clone", [0], 8), ("close", [3], 0)], [7, 7, 8, 7], "3</1>"),
        ([("execve", [0], 0)], 7, "3</1>"),
    ],
)
def test_a_descriptor_has_the_path_of_its_file(
    between: list[tuple[str, list[int], int]], pids: int | list[int], told: str
) -> None:
    table = calls_of(("openat", [0, 99], 3), *between, ("read", [3, 99, 5], 5), pids=pids)
    opens = [at for at, call in enumerate(["openat", *(call for call, _, _ in between)]) if call == "openat"]
    shown = list(strace_lines.lines(Probed(*opens), table, {}, None))
    assert f" read({told}, 0x63, 5)" in shown[-1]


def test_a_large_call_is_at_all_the_offsets_that_it_moved_bytes_of():
    offsets = Offsets(calls_of(("pread64", [3, 0, 0, 0], 4096), ("pread64", [3, 0, 0, 1024], 2048), ("read", [3], 0)))
    counts, _, places = offsets.heatmap(1, 4)
    assert places.tolist() == [0, 1024, 2048, 3072, 4096]
    assert counts[:, 0].tolist() == [1024, 2048, 2048, 1024]


def test_sizes_are_counted_by_their_power_of_two():
    sizes = [0, 1, 2, 3, 4095, 4096, 2**31 - 1, 2**50 - 1, 2**53 - 1, 2**62 - 1, 2**62, 2**63 - 1]
    table = IoSizes(calls_of(*(("read", [3], size) for size in sizes)), {}).histogram()
    found = dict(zip(table["value"].codes.tolist(), table["reads"].codes.tolist(), strict=True))
    expected = [1 << (size.bit_length() - 1) if size else 0 for size in sizes]
    assert {value: count for value, count in found.items() if count} == Counter(expected)


class Perfetto:
    """A Perfetto trace as its protos say (trace_packet.proto, track_event.proto, track_descriptor.proto)."""

    def __init__(self, path: Path) -> None:
        self.tracks: dict[int, str] = {}
        self.parents: dict[int, int] = {}
        self.slices: dict[int, list[tuple[int, int, str]]] = {}  # start, end, name; callers before their callees
        self.counters: dict[int, list[tuple[int, int]]] = {}
        open_slices: dict[int, list[tuple[int, str, int]]] = {}
        for tag, packet in protobuf_fields(path.read_bytes()):
            assert tag == 1
            fields = dict(protobuf_fields(packet))
            assert fields[10] == 1
            if 60 in fields:
                about = dict(protobuf_fields(fields[60]))
                assert about[1] not in self.tracks
                self.tracks[about[1]] = about[2].decode()
                if 5 in about:
                    self.parents[about[1]] = about[5]
                continue
            event = dict(protobuf_fields(fields[11]))
            track, time = event[11], fields[8]
            assert track in self.tracks
            if event[9] == 4:
                self.counters.setdefault(track, []).append((time, event[30]))
            elif event[9] == 1:
                own = self.slices.setdefault(track, [])
                open_slices.setdefault(track, []).append((time, event[23].decode(), len(own)))
                own.append((time, -1, event[23].decode()))
            else:
                start, name, place = open_slices[track].pop()
                assert start <= time
                self.slices[track][place] = (start, time, name)
        assert not any(open_slices.values())

    def track(self, name: str) -> int:
        (found,) = (uuid for uuid, text in self.tracks.items() if text == name)
        return found


def test_calls_across_a_gap_are_counted(tmp_path):
    """The end of one and the beginning of the next may be among what is lost, which then look like one long call."""
    data = bytearray((DATA / "trace" / "7.2-syscalls.dat").read_bytes())
    data[57344 + 11] |= 0x80  # RB_MISSED_EVENTS of a page in whose time only wait4 is under way
    (tmp_path / "trace.dat").write_bytes(data)
    whole, cut = (lab.open_run(path).syscalls().table() for path in (DATA / "trace/7.2-syscalls.dat", tmp_path))
    assert "across_gaps" not in whole.metadata
    assert (cut.metadata["across_gaps"], cut.metadata["gaps"], len(cut)) == ("1", "1", len(whole))


def test_lines_name_no_file_where_calls_were_lost(tmp_path):
    """By then a number may be another file's."""
    data = bytearray((DATA / "trace/7.2-io.dat").read_bytes())
    data[32768 + 11] |= 0x80  # RB_MISSED_EVENTS
    (tmp_path / "trace.dat").write_bytes(data)
    whole, cut = (list(lab.open_run(path).syscalls().lines()) for path in (DATA / "trace/7.2-io.dat", tmp_path))
    assert (any("3</" in line for line in whole), any("3</" in line for line in cut)) == (True, False)
    assert len(whole) == len(cut)


def test_perfetto_has_tracks_of_cpus_tasks_and_devices(tmp_path):
    run = lab.open_run(DATA / "trace" / "7.2-io.dat")
    run.export_perfetto(tmp_path / "x.pftrace")
    trace = Perfetto(tmp_path / "x.pftrace")
    groups = {trace.tracks[parent] for parent in trace.parents.values()}
    assert groups == {"CPUs", "Tasks", "Device 254,0"}
    calls = [uuid for uuid, name in trace.tracks.items() if name.endswith(" system calls")]
    assert sum(len(trace.slices[uuid]) for uuid in calls) == len(run.syscalls().table())
    switches = run.events("sched_switch", cpus=[1])
    times, pids, comms = (switches[name].values.tolist() for name in ("time", "next_pid", "next_comm"))
    expected = [
        (time, after, f"{comm}-{pid}")
        for time, after, pid, comm in zip(times, times[1:], pids, comms, strict=False)
        if pid != 0
    ]
    assert trace.slices[trace.track("CPU 1")] == expected
    requests = run.block().table()
    lanes = [uuid for uuid, name in trace.tracks.items() if "254,0 requests" in name]
    assert len(lanes) == 3  # ext4 read three blocks ahead at once
    shown = sorted(one for uuid in lanes for one in trace.slices[uuid])
    assert [(start, end) for start, end, _ in shown] == sorted(
        zip(requests["issued"].codes.tolist(), requests["completed"].codes.tolist(), strict=True)
    )
    depth = run.block().queue_depth("254,0")
    assert trace.counters[trace.track("254,0 queue depth")] == list(
        zip(depth["time"].codes.tolist(), depth["depth"].codes.tolist(), strict=True)
    )


def test_perfetto_slices_of_functions_nest(tmp_path):
    run = lab.open_run(DATA / "trace" / "6.12-fsync.dat")
    run.export_perfetto(tmp_path / "x.pftrace")
    trace = Perfetto(tmp_path / "x.pftrace")
    table = run.graph().table()
    own = [uuid for uuid, name in trace.tracks.items() if name.endswith(" functions")]
    assert len(own) == len(set(table["pid"]))
    assert sum(len(trace.slices[uuid]) for uuid in own) == len(table)
    journal = next(uuid for uuid in own if trace.tracks[uuid].startswith("jbd2/"))
    first, *rest = trace.slices[journal]
    assert first[2] == "jbd2_journal_commit_transaction"
    assert sum(first[0] <= start and end <= first[1] for start, end, _ in rest) > 100


def test_chrome_json_has_every_call(tmp_path):
    run = lab.open_run(DATA / "trace" / "6.1-switch.dat")
    run.export_chrome(tmp_path / "x.json")
    trace = json.loads((tmp_path / "x.json").read_text())
    assert trace["otherData"]["lost_events"] == "0"
    slices = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    assert 50 < len(slices) < 213
    first = min(slices, key=lambda event: event["ts"])
    switches = run.events("sched_switch")
    busy = switches["next_pid"].codes != 0
    assert round(first["ts"] * 1000) == switches["time"].codes[busy][0]
    assert {"CPU 0", "CPU 1"} <= {event["args"]["name"] for event in trace["traceEvents"] if event["ph"] == "M"}


def test_no_task_runs_across_a_gap(tmp_path):
    """Who ran there, and until when, is among what was lost."""
    data = bytearray((DATA / "trace" / "6.1-switch.dat").read_bytes())
    data[16384 + 11] |= 0x80  # RB_MISSED_EVENTS of CPU 0's second page
    (tmp_path / "trace.dat").write_bytes(data)
    begin = int.from_bytes(data[16384 : 16384 + 8], "little")

    def ran(path):
        lab.open_run(path).export_chrome(tmp_path / "x.json")
        shown = json.loads((tmp_path / "x.json").read_text())["traceEvents"]
        return [(e["name"], round(e["ts"] * 1000), round(e["dur"] * 1000)) for e in shown if e["ph"] == "X"]

    gone = set(ran(DATA / "trace" / "6.1-switch.dat")) - set(ran(tmp_path))
    assert [start + duration for _, start, duration in gone] == [begin]


def test_csv_and_parquet_hold_the_table(tmp_path):
    run = lab.open_run(DATA / "trace" / "6.1-switch.dat")
    table = run.events("sched_switch")
    run.export_csv("sched_switch", tmp_path / "x.csv")
    lines = (tmp_path / "x.csv").read_text().splitlines()
    assert lines[0] == ",".join(table.columns)
    assert len(lines) == len(table) + 1
    run.export_parquet("sched_switch", tmp_path / "x.parquet")
    import pyarrow.parquet as pq

    back = pq.read_table(tmp_path / "x.parquet")
    assert back["next_pid"].to_pylist() == table["next_pid"].codes.tolist()
    assert back["next_comm"].to_pylist() == list(table["next_comm"])


def test_export_keeps_the_events(tmp_path):
    run = lab.open_run(DATA / "trace" / "7.2-syscalls.dat")
    run.export_trace_dat(tmp_path / "x.dat", prune=True)
    assert list(lab.open_run(tmp_path / "x.dat").counts().rows()) == list(run.counts().rows())


class _Lists(HTMLParser):
    """A page as a viewer shows it that strips styles: each line of text with the lists that it is in."""

    def __init__(self) -> None:
        super().__init__()
        self.depth = -1
        self.lines: list[tuple[int, str]] = []

    def handle_starttag(self, tag, attrs):  # noqa: ARG002
        self.depth += tag == "ul"
        if tag == "li":
            self.lines.append((self.depth, ""))

    def handle_endtag(self, tag):
        self.depth -= tag == "ul"

    def handle_data(self, data):
        if self.lines and self.depth >= 0:
            depth, text = self.lines[-1]
            self.lines[-1] = (depth, text + data)


def test_a_call_tree_is_nested_without_its_styles():
    tree = lab.open_run(DATA / "trace" / "6.12-fsync.dat").graph("*sys_fsync").tree(0)
    shown = _Lists()
    shown.feed(re.sub("<style>.*?</style>", "", tree._repr_html_(), flags=re.DOTALL))
    assert shown.depth == -1
    begin = min(depth for depth, _ in shown.lines)
    assert len(shown.lines) == len(tree)
    assert shown.lines[0][1].endswith("sys_fsync")
    assert max(depth - begin for depth, _ in shown.lines) >= 4
    assert all(re.fullmatch(r"[\d.]+ (ns|us|ms|s) \S+( \[\w+\])?", text) for _, text in shown.lines), shown.lines[:5]


def odd(source: Path, target: Path, *words: tuple[bytes, bytes]) -> Path:
    """A recording in which these words are others of the same length."""
    data = source.read_bytes()
    for old, new in words:
        assert old in data
        assert len(old) == len(new)
        data = data.replace(old, new)
    target.write_bytes(data)
    return target


def test_lines_quote_the_names_of_files_as_strace_does(tmp_path):
    name = b'/\x1b[m"\n\\<b>\xff\xc2\x9bfgh'
    run = lab.open_run(odd(DATA / "trace/7.2-io.dat", tmp_path / "odd.dat", (b"/etc/ld.so.cache", name)))
    lines = list(run.syscalls().lines())
    assert all(line.isprintable() for line in lines)
    assert any('openat(AT_FDCWD, "/\\033[m\\"\\n\\\\<b>\\xff\\302\\233fgh", O_RDONLY' in line for line in lines)
    assert any('close(3</\\033[m\\"\\n\\\\\\074b\\076\\xff\\302\\233fgh>)' in line for line in lines)
    (tmp_path / "log").write_text("\n".join(lines))
    assert len(lab.read_strace(tmp_path / "log").table()) == len(lines)


def test_a_task_s_name_does_nothing_to_the_terminal(tmp_path):
    words = [(b" dd\n", b" \x1b<\n"), (b" jbd2/nullb0-8\n", b" jbd2\x9b\xff\x1b[31m-8\n")]
    run = lab.open_run(odd(DATA / "trace/7.2-fsync.dat", tmp_path / "odd.dat", *words))
    for view in (run.io_sizes(), run.follow_through("fsync"), run.offsets(), run.syscalls()):
        assert all(line.isprintable() for line in repr(view).splitlines())
    assert "\\x1b<" in repr(run.io_sizes())
    assert "jbd2" in repr(run.follow_through("fsync"))


def test_a_difference_to_no_calls_is_all_of_them():
    run = lab.open_run(DATA / "trace/6.1-graph.dat")
    whole, none = run.graph(), run.graph("nonesuch")
    names = set(whole.aggregate()["function"])
    assert (len(none.diff(none)), set(none.diff(whole)["function"])) == (0, names)
    assert set(none.diff(whole)["change"].values) <= {np.inf}
    gone = whole.diff(none)
    assert set(gone["function"]) == names
    assert gone["calls_after"].codes.sum() == 0
    assert gone["calls_before"].codes.sum() == len(whole)
