# SPDX-License-Identifier: MIT
"""Replay: of fio's iologs, of blktrace's files, of tables of system calls and of block requests."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from beside_fio import needs_fio, needs_strace, on_files, strace

import sampleblk_lab as lab

TRACES = Path(__file__).parent.parent / "data" / "trace"

# include/uapi/linux/blktrace_api.h
QUEUE, COMPLETE = 1, 8
READ, WRITE, DISCARD = 1 << 16, 1 << 17, 1 << 29


def blktrace_record(time_us: int, sector: int, size: int, action: int) -> bytes:
    return struct.pack("<IIQQIIIIIHH", 0x65617407, 1, time_us * 1000, sector, size, action, 1, 8 << 20, 0, 0, 0)


def io_rows(result: lab.Result) -> list[tuple[object, ...]]:
    log = result.io_log()
    return [tuple(row[name] for name in ("direction", "offset", "size")) for row in log.rows()]


def test_blktrace_file(tmp_path: Path) -> None:
    trace = tmp_path / "sda.blktrace.0"
    trace.write_bytes(
        blktrace_record(0, 0, 4096, QUEUE | WRITE)
        + blktrace_record(50, 0, 4096, COMPLETE | WRITE)
        + blktrace_record(2000, 64, 8192, QUEUE | WRITE)
        + blktrace_record(4000, 0, 4096, QUEUE | READ)
        + blktrace_record(60000, 64, 4096, QUEUE | DISCARD | WRITE)
    )
    job = lab.Job(read_iolog=trace, replay_redirect=tmp_path / "disk", io_log_entries=10)
    result = job.run(progress=False)
    assert io_rows(result) == [("write", 0, 4096), ("write", 32768, 8192), ("read", 0, 4096), ("trim", 32768, 4096)]
    begins = result.io_log()["time"].codes.astype(np.int64)
    # With the recorded pauses: none is earlier than it was.
    assert (begins >= np.array([0, 2_000_000, 4_000_000, 60_000_000]) - 10_000).all()
    hurried = lab.Job(read_iolog=trace, replay_redirect=tmp_path / "disk", io_log_entries=10, replay_no_stall=1)
    quick = hurried.run(progress=False)
    assert io_rows(quick) == io_rows(result)
    times = quick.io_log()["time"].codes
    assert int(times[-1] - times[0]) < 59_990_000


@pytest.mark.parametrize("version", [7, 8])
def test_blktrace_files_of_later_kernels_and_with_cgroups(version: int, tmp_path: Path) -> None:
    """Version 8 (Linux 6.19) has wider records; a record may have its cgroup's id behind it."""
    action = QUEUE | 1 << 8 | WRITE  # __BLK_TA_CGROUP
    head = (0x65617400 | version, 1, 5_000, 64, 8192)
    if version == 7:
        record = struct.pack("<IIQQIIIIIHH", *head, action, 1, 8 << 20, 0, 0, 8)
    else:
        record = struct.pack("<IIQQIIQIIHH12x", *head, 1, action, 8 << 20, 0, 0, 8)
    trace = tmp_path / "t"
    trace.write_bytes((record + struct.pack("<Q", 77)) * 2)
    job = lab.Job(read_iolog=trace, replay_redirect=tmp_path / "disk", io_log_entries=10)
    assert io_rows(job.run(progress=False)) == [("write", 32768, 8192)] * 2


@needs_fio
@pytest.mark.parametrize(("keys", "least_ms", "most_ms"), [
    ({}, 440, 700),
    ({"replay_time_scale": 200}, 220, 400),
    ({"replay_time_scale": 50}, 880, 1300),
    ({"replay_no_stall": 1, "thinktime": 40_000}, 160, 400),
])  # fmt: skip
def test_pauses_of_an_iolog_are_fios(keys: dict[str, int], least_ms: int, most_ms: int, tmp_path: Path) -> None:
    """Stamped with the time of day, and of two that were joined."""
    log = tmp_path / "log"
    day = 1_790_000_000_000_000
    stamps = [day, day, day + 220_000, 30, 220_030]
    lines = [f"{stamp} {tmp_path}/f write {4096 * i} 4096" for i, stamp in enumerate(stamps)]
    log.write_text(f"fio version 3 iolog\n{day} {tmp_path}/f add\n{day} {tmp_path}/f open\n" + "\n".join(lines) + "\n")
    for who in (None, "fio"):
        (job,) = lab.Job(read_iolog=log, engine=who, **keys).run(progress=False).json()["jobs"]
        assert job["write"]["total_ios"] == 5
        assert least_ms <= job["job_runtime"] < most_ms


def test_what_has_no_effect_on_a_replay_is_said(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(f"fio version 2 iolog\n{tmp_path}/f write 0 4096\n{tmp_path}/f write 4096 4096\n")
    result = lab.Job("a", read_iolog=log, rate_iops=1, number_ios=1, io_size="4k", io_log_entries=9).run(progress=False)
    assert len(io_rows(result)) == 2
    for key in ("rate", "number_ios", "io_size"):
        assert f"a: {key} has no effect on a replay, as in fio" in result.messages


def test_pauses_are_scaled(tmp_path: Path) -> None:
    trace = tmp_path / "t"
    trace.write_bytes(b"".join(blktrace_record(i * 20_000, 8 * i, 4096, QUEUE | WRITE) for i in range(4)))
    job = lab.Job(read_iolog=trace, replay_redirect=tmp_path / "disk", io_log_entries=10, replay_time_scale=33)
    times = job.run(progress=False).io_log()["time"].codes
    assert int(times[-1] - times[0]) >= 170_000_000


def test_iolog(tmp_path: Path) -> None:
    log = tmp_path / "log"
    name = tmp_path / "data"
    log.write_text(
        f"fio version 2 iolog\n{name} add\n{name} open\n{name} write 0 4096\n{name} sync\n{name} read 0 4096\n"
        f"{name} close\n"
    )
    result = lab.Job(read_iolog=log, io_log_entries=10).run(progress=False)
    assert io_rows(result) == [("write", 0, 4096), ("read", 0, 4096)]
    assert result.json()["jobs"][0]["sync"]["total_ios"] == 1


@pytest.mark.parametrize("text", ["no log\n", "fio version 2 iolog\nf read 5\n", "fio version 2 iolog\n"])
def test_a_log_that_is_none_names_the_place(text: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(text)
    with pytest.raises(lab.FormatError, match="at byte"):
        lab.Job(read_iolog=log, replay_redirect=tmp_path / "f").run(progress=False)


def test_block_requests(tmp_path: Path) -> None:
    table = lab.Table.of(
        {
            "time": np.array([0, 1000, 2000, 3000]),
            "rwbs": ["WS", "R", "FF", "D"],
            "sector": np.array([8, 8, 0, 128]),
            "nr_sector": np.array([8, 8, 0, 8]),
        },
        units={"time": "ns"},
    )
    result = lab.Replay(table, replay_redirect=tmp_path / "disk", io_log_entries=10).run(progress=False)
    assert io_rows(result) == [("write", 4096, 4096), ("read", 4096, 4096), ("trim", 65536, 4096)]
    assert result.json()["jobs"][0]["sync"]["total_ios"] == 1


def test_a_request_that_began_before_its_recording_is_not_replayed(tmp_path: Path) -> None:
    """It has no time: all others came hours after it. What a zone is told is no flush, however its letters end."""
    at = 5000 * 10**9
    events = [(at, "complete", "W () 8 + 8 [0]"), (at + 1000, "issue", "W 0 () 16 + 8 [x]")]
    events += [(at + 2000, "complete", "W () 16 + 8 [0]"), (at + 3000, "issue", "ZF 0 () 64 + 0 [x]")]
    text = tmp_path / "text"
    text.write_text(
        "".join(f"x 1 [000] {t // 10**9}.{t % 10**9:09}: block:block_rq_{n}: 8,0 {w}\n" for t, n, w in events)
    )
    run = lab.import_run(text, directory=tmp_path / "run")
    assert len(run.block()) == 3
    job = lab.Replay(run.block(), replay_redirect=tmp_path / "disk", io_log_entries=10, runtime=60)
    result = job.run(progress=False)
    assert io_rows(result) == [("write", 8192, 4096)]
    assert result.json()["jobs"][0]["sync"]["total_ios"] == 0


def syscalls() -> lab.Table:
    return lab.Table.of(
        {
            "time": np.arange(7) * 1000,
            "pid": np.full(7, 10),
            "syscall": ["openat", "write", "write", "pread64", "lseek", "read", "fsync"],
            "fd": np.array([-100, 3, 3, 3, 3, 3, 3]),
            "count": np.array([0, 4096, 4096, 512, 0, 1024, 0]),
            "offset": np.array([0, 0, 0, 4096, 0, 0, 0]),
            "ret": np.array([3, 4096, 4096, 512, 2048, 1024, 0]),
            "path": ["data", "", "", "", "", "", ""],
        },
        units={"time": "ns"},
    )


def test_system_calls_follow_their_position(tmp_path: Path) -> None:
    result = lab.Replay(syscalls(), directory=tmp_path, io_log_entries=10).run(progress=False)
    assert io_rows(result) == [("write", 0, 4096), ("write", 4096, 4096), ("read", 4096, 512), ("read", 2048, 1024)]
    assert result.json()["jobs"][0]["sync"]["total_ios"] == 1
    assert (tmp_path / "data").stat().st_size == 8192


def test_a_descriptor_that_was_duplicated_is_the_file_it_is_of(tmp_path: Path) -> None:
    """With its position. An offset of -1 is that of the file itself."""
    calls = [
        ("openat", -100, 0, 0, 3, "one"),
        ("openat", -100, 0, 0, 4, "two"),
        ("write", 3, 4096, 0, 4096, ""),
        ("dup2", 3, 0, 0, 4, ""),
        ("write", 4, 512, 0, 512, ""),
        ("pwritev2", 3, 1, -1, 1024, ""),
        ("pwritev2", 3, 1, 0, 2048, ""),
    ]
    columns = dict(zip(("syscall", "fd", "count", "offset", "ret", "path"), zip(*calls, strict=True), strict=True))
    table = lab.Table.of({"time": np.arange(7), "pid": np.full(7, 10), **{k: list(v) for k, v in columns.items()}})
    result = lab.Replay(table, directory=tmp_path, io_log_entries=10).run(progress=False)
    assert io_rows(result) == [("write", 0, 4096), ("write", 4096, 512), ("write", 4608, 1024), ("write", 0, 2048)]
    assert (tmp_path / "one").stat().st_size == 5632
    assert (tmp_path / "two").stat().st_size == 0


# Of Linux's headers.
_CLOEXEC, _CLONE_FILES, _SETFD, _DUPFD = 0o2000000, 0x400, 2, 0
_OPEN = ("openat", -100, 0, 0, 3)


def followed(tmp_path: Path, *calls: tuple[Any, ...]) -> dict[str, int]:
    """The sizes of the files after a replay of (task, call, arg0, arg1, arg2, ret, path), one after another."""
    rows = [(*call, "")[:7] for call in calls]
    names = ("pid", "syscall", "fd", "arg1", "arg2", "ret", "path")
    columns = dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))
    table = lab.Table.of({"time": np.arange(len(rows)), "count": columns["arg2"], **columns})
    lab.Replay(table, directory=tmp_path).run(progress=False)
    return {path.name: path.stat().st_size for path in tmp_path.iterdir() if path.stat().st_size}


def test_a_number_is_another_file_s_after_close_range(tmp_path: Path) -> None:
    opened = (10, *_OPEN, "one")
    closed = (10, "close_range", 3, 2**32 - 1, 0, 0)
    assert followed(tmp_path, opened, closed, (10, "write", 3, 0, 512, 512)) == {"fd3": 512}


@pytest.mark.parametrize("how", ["open", "fcntl", "close_range", "not"])
def test_a_program_that_is_executed_has_what_it_inherits(how: str, tmp_path: Path) -> None:
    flags = _CLOEXEC if how == "open" else 0
    calls = [(10, "openat", -100, 0, flags, 3, "one"), (10, "fcntl", 3, _DUPFD, 7, 7)]
    if how == "fcntl":
        calls.append((10, "fcntl", 3, _SETFD, 1, 0))
    elif how == "close_range":
        calls.append((10, "close_range", 3, 3, 4, 0))
    calls += [(10, "execve", 0, 0, 0, 0), (10, "write", 3, 0, 512, 512), (10, "write", 7, 0, 1024, 1024)]
    assert followed(tmp_path, *calls) == ({"one": 1536} if how == "not" else {"one": 1024, "fd3": 512})


@pytest.mark.parametrize("call", ["fork", "clone", "clone3"])
def test_what_a_child_closes_its_parent_has(call: str, tmp_path: Path) -> None:
    """It may run before the call that made it returns, as vfork's does. A program's start is clone3 and execve."""
    made = (10, call, 17, 0, 0, 11)
    child = [(11, "write", 3, 0, 512, 512), (11, "close", 3, 0, 0, 0), (11, "execve", 0, 0, 0, 0)]
    calls = [(10, *_OPEN, "one"), made, *child, (10, "write", 3, 0, 1024, 1024)]
    assert followed(tmp_path, *calls) == {"one": 1536}


@pytest.mark.parametrize(("call", "flags"), [("clone", _CLONE_FILES), ("clone3", 0)])
def test_threads_share_their_files(call: str, flags: int, tmp_path: Path) -> None:
    made = (10, call, flags, 0, 0, 11)
    opened = [(10, *_OPEN, "one"), made, (11, "openat", -100, 0, 0, 4, "two")]
    calls = [*opened, (10, "write", 4, 0, 512, 512), (11, "close", 3, 0, 0, 0), (10, *_OPEN, "three")]
    assert followed(tmp_path, *calls, (11, "write", 3, 0, 1024, 1024)) == {"two": 512, "three": 1024}


def test_a_child_that_runs_before_its_parent_goes_on(tmp_path: Path) -> None:
    """As a program's start with vfork does: the calls are in the order in which they ended."""
    calls = ["openat", "write", "execve", "vfork", "write"]
    columns = {
        "time": np.array([0, 20, 30, 10, 40]),
        "pid": np.array([10, 11, 11, 10, 10]),
        "syscall": calls,
        "fd": np.array([-100, 3, 0, 0, 3]),
        "count": np.array([0, 512, 0, 0, 1024]),
        "ret": np.array([3, 512, 0, 11, 1024]),
        "path": ["one", "", "", "", ""],
    }
    lab.Replay(lab.Table.of(columns), directory=tmp_path).run(progress=False)
    assert {path.name: path.stat().st_size for path in tmp_path.iterdir()} == {"one": 1536}


def test_a_file_whose_name_is_not_known_is_not_the_one_before(tmp_path: Path) -> None:
    calls = [(10, *_OPEN, "one"), (10, "write", 3, 0, 512, 512), (10, *_OPEN), (10, "write", 3, 0, 1024, 1024)]
    assert followed(tmp_path, *calls) == {"one": 512, "fd3": 1024}


_RUN = """
import sys
import sampleblk_lab as lab
run = lab.open_run(sys.argv[1])
lab.Replay(run.syscalls(), replay_redirect=sys.argv[2], replay_no_stall=1).run(progress=False)
"""


@needs_strace
def test_a_recording_makes_the_calls_that_it_recorded(tmp_path: Path) -> None:
    import sys

    trace = TRACES / "6.1-syscalls.dat"
    recorded = lab.open_run(trace).syscalls().table()
    moves = [
        (row["syscall"], row["ret"])
        for row in recorded.rows()
        if row["syscall"] in ("read", "write", "pread64", "pwrite64") and int(row["ret"] or 0) > 0
    ]
    assert moves
    calls = strace([sys.executable, "-c", _RUN, str(trace), str(tmp_path / "f")], tmp_path / "log")
    made = [line.split() for lines in on_files(calls, tmp_path).values() for line in lines]
    made_moves = [(words[0], int(words[-1])) for words in made if words[0] in ("pread64", "pwrite64")]
    assert [size for _, size in made_moves] == [size for _, size in moves]
    assert [name[:2] for name, _ in made_moves] == ["p" + str(name).lstrip("p")[0] for name, _ in moves]


def test_absolute_names_are_looked_for_in_the_directory_too(tmp_path: Path) -> None:
    """The files that were recorded are left alone."""
    (tmp_path / "recorded").write_text("mine")
    log = tmp_path / "log"
    log.write_text(f"fio version 2 iolog\n{tmp_path}/recorded write 0 4096\n")
    (tmp_path / "copy").mkdir()
    lab.Job(read_iolog=log, directory=tmp_path / "copy").run(progress=False)
    assert (tmp_path / "recorded").read_text() == "mine"
    assert Path(f"{tmp_path}/copy/{tmp_path}/recorded").stat().st_size == 4096


def test_the_log_of_a_job_is_replayed(tmp_path: Path) -> None:
    """As the refusal of write_iolog promises: the same I/Os, of all jobs and files, in the order of their issue."""
    keys = {"rw": "randrw", "bssplit": "4k/50:8k/50", "size": "128k", "directory": tmp_path, "nrfiles": 2, "numjobs": 2}
    log = lab.Job(**keys, ioengine="libaio", iodepth=4, io_log_entries=1000).run(progress=False).io_log()
    columns = ("path", "direction", "offset", "size")
    rows = sorted(zip(log["time"], *(log[name] for name in columns), strict=True), key=lambda row: row[0])
    again = lab.Replay(log, replay_no_stall=1, io_log_entries=1000).run(progress=False).io_log()
    assert [row[1:] for row in rows] == list(zip(*(again[name] for name in columns), strict=True))


def test_trims_of_a_log_are_left_out_and_counted(tmp_path: Path) -> None:
    job = lab.Job(rw="trimwrite", size="16k", filename=tmp_path / "f", io_log_entries=100)
    result = lab.Replay(job.run(progress=False).io_log(), io_log_entries=100).run(progress=False)
    assert io_rows(result) == [("write", at, 4096) for at in range(0, 16384, 4096)]
    assert any("leaves out 4 fallocate" in message for message in result.messages)


def test_a_table_of_something_else_is_refused() -> None:
    with pytest.raises(lab.InputError, match="a column syscall"):
        lab.Replay(lab.Table.of({"time": np.arange(3)}))
    with pytest.raises(lab.InputError, match="nothing to replay"):
        lab.Replay(lab.Table.of({"time": np.arange(1), "syscall": ["futex"]})).run(progress=False)


@pytest.mark.parametrize(
    ("column", "values", "told"),
    [
        ("sector", [0, np.nan], "row 1: sector is nan"),
        ("nr_sector", [8, 8.5], r"row 1: nr_sector is 8\.5"),
        ("sector", ["0", "8"], "column 'sector' holds strings"),
        ("rwbs", [1, 2], "column 'rwbs' holds numbers"),
        ("time", [1, np.nan], "row 1: time is nan"),
        ("time", [1, np.inf], "row 1: time is inf"),
        ("time", [-1, 2], "row 0: time is -1"),
        ("dev", [1, np.nan], "row 1: dev is nan"),
    ],
)
def test_a_value_that_no_request_has_is_refused(column: str, values: list[Any], told: str) -> None:
    requests = {"time": [1, 2], "rwbs": ["R", "W"], "sector": [0, 8], "nr_sector": [8, 8]}
    with pytest.raises(lab.InputError, match=told):
        lab.Replay(lab.Table.of({**requests, column: values}))


def test_a_value_that_no_call_has_is_refused_where_it_counts(tmp_path: Path) -> None:
    nan = np.nan
    calls = {
        "time": [1, 2, 3],
        "syscall": ["openat", "pwrite64", "pread64"],
        "fd": [nan, 3, 3],  # an open has none
        "ret": [3, 4096, nan],  # the recording ended before the last call did
        "offset": [nan, 4096, nan],
        "path": ["data", "", ""],
    }
    for column, values in {"fd": [0, nan, 3], "offset": [0, nan, 0]}.items():
        with pytest.raises(lab.InputError, match=f"row 1: {column} is nan"):
            lab.Replay(lab.Table.of({**calls, column: values}))
    with pytest.raises(lab.InputError, match="column 'fd' holds strings"):
        lab.Replay(lab.Table.of({**calls, "fd": ["a", "b", "c"]}))
    result = lab.Replay(lab.Table.of(calls), directory=tmp_path, replay_no_stall=1).run(progress=False)
    assert (tmp_path / "data").stat().st_size == 8192
    assert "replay: replay leaves out 1 calls whose end was not seen" in result.messages
