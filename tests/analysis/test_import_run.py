# SPDX-License-Identifier: MIT
"""What other tools recorded, as runs: held against the same recording read as it is, and against trace-cmd."""

from __future__ import annotations

import csv
import itertools
import json
import os
import re
import shlex
import struct
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

import sampleblk_lab as lab
from sampleblk_lab.analysis.trust import of_recording
from sampleblk_lab.cli.main import main

RECORDED = Path(__file__).parents[1] / "data/trace"
KERNELS = ("5.10", "6.1", "6.12", "7.2")

# trace-cmd report: "    fio-95069 [001]    12.345678901: block_rq_issue:       253,1 W 4096 () 2048 + 8 [fio]"
LINE = re.compile(
    r"^\s*(?P<comm>.+)-(?P<pid>\d+)\s+\[(?P<cpu>\d+)\](?:\s+[^\s\d]\S+)?\s+(?P<time>\d+\.\d+): "
    r"(?P<event>\S+):\s+(?P<text>.*)$"
)


def reported(path: Path) -> list[str]:
    """What trace-cmd prints of a recording, in its order."""
    done = subprocess.run(["trace-cmd", "report", "-t", path], capture_output=True, check=True)
    lines = done.stdout.decode(errors="surrogateescape").split("\n")
    # A buffer that a call of 7.2 shows may have bytes of any kind, and line ends: what follows one is left out.
    return [line for line in lines if LINE.match(line) or line.startswith("cpus=")]


def written(path: Path, lines: Iterable[str]) -> Path:
    path.write_bytes("".join(f"{line}\n" for line in lines).encode(errors="surrogateescape"))
    return path


def as_perf(line: str) -> str:
    """The same line as perf script prints it."""
    found = LINE.match(line)
    assert found is not None, line
    system = "block" if found["event"].startswith("block_") else "other"
    task = f"{found['comm']:>16} {found['pid']:>7} [{found['cpu']}]"
    return f"{task} {found['time']}: {system}:{found['event']}: {found['text']}"


def requests(run: lab.Run) -> list[dict[str, Any]]:
    return list(run.block().table().rows())


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("form", ["trace-cmd", "perf", "trace_pipe"])
def test_text_gives_the_requests_of_the_recording_that_it_was_printed_from(
    kernel: str, form: str, tmp_path: Path
) -> None:
    original = lab.open_run(RECORDED / f"{kernel}-io.dat")
    lines = reported(original.trace_path)
    if form == "perf":
        lines = [as_perf(line) if LINE.match(line) else f"# {line}" for line in lines]
    elif form == "trace_pipe":  # with its flags before the time
        lines = [re.sub(r"(\[\d+\]) +(\d+\.)", r"\1 d..2. \2", line) for line in lines]
    run = lab.import_run(written(tmp_path / "text", lines), directory=tmp_path / "run")
    assert len(requests(original)) > 10
    assert requests(run) == requests(original)
    assert run.block().table().metadata == original.block().table().metadata
    assert run.options["imported"]["events"] == sum(1 for line in lines if not line.startswith(("cpus=", "# ")))
    assert list(run.block().latency().rows()) == list(original.block().latency().rows())


@pytest.mark.parametrize("kernel", KERNELS)
def test_trace_cmd_prints_an_imported_text_as_it_was(kernel: str, tmp_path: Path) -> None:
    """Every event of it: those that are known, and the text of all others."""
    lines = reported(RECORDED / f"{kernel}-io.dat")
    run = lab.import_run(written(tmp_path / "text", lines), directory=tmp_path / "run")

    def parts(texts: list[str]) -> list[tuple[str, ...]]:
        # trace-cmd does not know the kernel's names of priority classes, which our formats have.
        texts = [text.replace(" 0x2,0,", " be,0,").replace(" 0x0,0,", " none,0,") for text in texts]
        return [tuple(map(str.strip, found.groups())) for text in texts if (found := LINE.match(text))]

    ours, theirs = parts(reported(run.trace_path)), parts(lines)
    assert len(theirs) > 100
    assert ours == theirs


# --- blktrace

ACTIONS = {
    "block_bio_queue": (1, 1 << 4),
    "block_bio_backmerge": (2, 1 << 4),
    "block_getrq": (4, 1 << 4),
    "block_rq_issue": (7, 1 << 6 | 1 << 8),
    "block_rq_complete": (8, 1 << 7 | 1 << 8),
    "block_plug": (9, 1 << 4),
    "block_unplug": (10, 1 << 4),
    "block_rq_insert": (12, 1 << 4 | 1 << 8),
}


def categories(rwbs: str) -> int:
    """enum blktrace_cat of include/uapi/linux/blktrace_api.h."""
    flush = 1 << 2 if rwbs[0] == "F" else 0
    rest = rwbs[1:] if flush else rwbs
    found = flush | (1 << 1 if rest.startswith("W") else 1 << 13 if rest.startswith("D") else 0)
    for letter, bit in (("A", 11), ("S", 3), ("M", 12), ("F", 15)):
        found |= 1 << bit if letter in rest[1:] else 0
    return found


def record(version: int, order: str, event: dict[str, Any], sequence: int, *, cgroup: bool = False) -> bytes:
    action, kind = ACTIONS[event["event"]]
    action |= (kind | categories(event.get("rwbs") or "N")) << 16
    data = struct.pack(">Q", event["nr_rq"]) if event["event"] == "block_unplug" else b""
    if cgroup:
        action, data = action | 1 << 8, bytes(8) + data
    size = event.get("nr_sector", 0) * 512
    error = event.get("error", 0) & 0xFFFF
    magic, device, pid = 0x65617400 | version, event.get("dev", 0), event["common_pid"]
    head = (magic, sequence, event["time"], event.get("sector", 0), size)
    if version == 7:
        return struct.pack(f"{order}IIQQIIIIIHH", *head, action, pid, device, event["cpu"], error, len(data)) + data
    packed = struct.pack(f"{order}IIQQIIQIIHH12x", *head, pid, action, device, event["cpu"], error, len(data))
    return packed + data


def block_events(run: lab.Run) -> list[dict[str, Any]]:
    """The events that blktrace has as well, as time goes."""
    names = {str(row["event"]) for row in run.counts()}
    found = [
        {**row, "event": name}
        for name in ACTIONS
        if f"block:{name}" in names
        for row in run.events(f"block:{name}").rows()
    ]
    return sorted(found, key=lambda row: int(row["time"]))


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("version", [7, 8])
@pytest.mark.parametrize("order", ["<", ">"])
def test_blktrace_gives_the_requests_of_the_same_events(kernel: str, version: int, order: str, tmp_path: Path) -> None:
    original = lab.open_run(RECORDED / f"{kernel}-io.dat")
    files: dict[int, bytes] = {0: b"", 1: b"", 2: b""}
    for number, event in enumerate(block_events(original)):
        files[event["cpu"]] += record(version, order, event, number, cgroup=number % 3 == 0)
    for cpu, data in files.items():
        (tmp_path / f"nullb0.blktrace.{cpu}").write_bytes(data)
    run = lab.import_run(tmp_path / "nullb0", directory=tmp_path / "run")
    assert run.options["sources"] == [str(tmp_path / f"nullb0.blktrace.{cpu}") for cpu in range(3)]

    def comparable(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        # An empty flush is FN to blktrace, and FF to the events.
        return [{**row, "rwbs": str(row["rwbs"]).replace("FF", "FN")} for row in rows]

    assert comparable(requests(run)) == comparable(requests(original))


def test_blktrace_of_several_devices_is_one_recording(tmp_path: Path) -> None:
    """Each has a file of its own for a CPU, and more events in it than may be out of order."""
    event = {"event": "block_bio_queue", "nr_sector": 8, "rwbs": "WS", "common_pid": 77, "cpu": 0}
    count = 70_000
    for minor, name in enumerate(("sda", "sdb")):
        own = {"dev": 8 << 20 | minor, **event}
        rows = ({"time": 10 * number + minor, "sector": number, **own} for number in range(count))
        data = b"".join(record(7, "<", row, number) for number, row in enumerate(rows, 1))
        (tmp_path / f"{name}.blktrace.0").write_bytes(data)
    run = lab.import_run(tmp_path / "sda", tmp_path / "sdb", directory=tmp_path / "run")
    assert run.options["imported"] == {"format": "blktrace", "events": 2 * count}
    found = run.events("block_bio_queue")
    assert found["time"].values.tolist() == [10 * number + minor for number in range(count) for minor in (0, 1)]
    assert (found["dev"].values & 1).tolist() == [0, 1] * count


def test_blktrace_tells_names_and_what_it_cannot_take(tmp_path: Path) -> None:
    event = {"event": "block_bio_queue", "time": 5, "sector": 8, "nr_sector": 8, "rwbs": "WS", "dev": 253 << 20 | 1}
    event |= {"common_pid": 77, "cpu": 1}
    notice = struct.pack("<IIQQIIIIIHH", 0x65617407, 0, 0, 0, 0, 1 << 26, 77, 0, 1, 0, 8) + b"fio\0\0\0\0\0"
    notice += struct.pack("<IIQQIIIIIHH", 0x65617407, 0, 0, 0, 0, 1 << 26, 78, 0, 1, 0, 8) + b"a\n1 evil"
    message = struct.pack("<IIQQIIIIIHH", 0x65617407, 0, 0, 0, 0, 1 << 26 | 2, 77, 0, 1, 0, 4) + b"text"
    source = tmp_path / "all"
    source.write_bytes(notice + message + record(7, "<", event, 1) + record(7, "<", event, 2)[:30])
    run = lab.import_run(source, directory=tmp_path / "run")
    [row] = run.events("block_bio_queue").rows()
    assert (row["comm"], row["rwbs"], row["sector"], row["nr_sector"]) == ("fio", "WS", 8, 8)
    assert run.file.commands == {77: "fio", 78: "a?1 evil"}
    assert run.options["imported"] == {"format": "blktrace", "events": 1, "skipped_message": 1, "cut_off": 1}
    assert [row["device"] for row in requests(run)] == ["253,1"]


@pytest.mark.parametrize(
    ("numbers", "gaps"), [([1, 2, 3], 0), ([1, 3, 4], 1), ([1, 1, 2], 1), ([2, 1, 3], 2), ([7, 8, 9], 0)]
)
def test_blktrace_s_own_numbers_tell_what_is_missing(numbers: list[int], gaps: int, tmp_path: Path) -> None:
    event = {"event": "block_bio_queue", "time": 5, "sector": 8, "nr_sector": 8, "rwbs": "WS", "dev": 253 << 20 | 1}
    event |= {"common_pid": 77, "cpu": 1}
    notice = struct.pack("<IIQQIIIIIHH", 0x65617407, 99, 0, 0, 0, 1 << 26, 77, 0, 1, 0, 4) + b"fio\0"
    (tmp_path / "all").write_bytes(notice.join(record(7, "<", event, number) for number in numbers))
    run = lab.import_run(tmp_path / "all", directory=tmp_path / "run")
    doubts = [str(check) for check in of_recording(run) if check.is_doubt]
    assert doubts == ([f"imported: gaps: {gaps}: incomplete"] if gaps else [])


def test_what_follows_a_record_that_is_cut_off_is_not_left_out(tmp_path: Path) -> None:
    """Its end is taken from the next one, whose sector then says how much there is of it."""
    event = {"event": "block_bio_queue", "time": 5, "sector": 0x20002000, "nr_sector": 8, "rwbs": "WS", "dev": 1}
    one = record(7, "<", event | {"common_pid": 77, "cpu": 1}, 1)
    source = tmp_path / "joined"
    source.write_bytes(one + one[:-20] + 100 * one)
    with pytest.raises(lab.FormatError, match="at byte 48: expected a blktrace record with at most 4096 bytes"):
        lab.import_run(source, directory=tmp_path / "run")


def test_blktrace_tells_a_name_once_in_the_file_of_one_cpu(tmp_path: Path) -> None:
    event = {"event": "block_bio_queue", "time": 5, "sector": 8, "nr_sector": 8, "rwbs": "WS", "dev": 253 << 20 | 1}
    event |= {"common_pid": 77, "cpu": 0}
    notice = struct.pack("<IIQQIIIIIHH", 0x65617407, 0, 0, 0, 0, 1 << 26, 77, 0, 1, 0, 4) + b"fio\0"
    (tmp_path / "x.blktrace.0").write_bytes(record(7, "<", event, 1))
    (tmp_path / "x.blktrace.1").write_bytes(notice)
    run = lab.import_run(tmp_path / "x", directory=tmp_path / "run")
    assert [row["comm"] for row in run.events("block_bio_queue").rows()] == ["fio"]


# --- snoopers

BIOSNOOP = """\
Tracing block device I/O... Hit Ctrl-C to end.
TIME(s)     COMM           PID     DISK      T SECTOR     BYTES  QUE(ms) LAT(ms)
0.004301    supervise      1950    xvda1     W 13092560   4096      0.10    0.74
0.006000    Web Content 2  2046    nvme0n1   R 13092432   8192      0.00    1.50
0.007000    -              0       xvda1     W 13092561   512       0.00    0.25
"""


def test_biosnoop_s_lines_are_requests(tmp_path: Path) -> None:
    run = lab.import_run(written(tmp_path / "text", BIOSNOOP.splitlines()), directory=tmp_path / "run")
    found = [
        (row["device"], row["operation"], row["sector"], row["sectors"], row["pid"], row["issued"], row["completed"])
        for row in requests(run)
    ]
    assert found == [
        ("0,1", "W", 13092560, 8, 1950, 3_561_000, 4_301_000),
        ("0,2", "R", 13092432, 16, 2046, 4_500_000, 6_000_000),
        ("0,1", "W", 13092561, 1, 0, 6_750_000, 7_000_000),
    ]
    assert [row["inserted"] for row in requests(run)] == [3_461_000, 4_500_000, 6_750_000]
    assert [row["completer"] for row in requests(run)] == [-1, -1, -1]
    assert [row["comm"] for row in run.events("block_rq_issue").rows()] == ["supervise", "Web Content 2", "-"]
    about = run.options["imported"]
    assert (about["device 0,1"], about["device 0,2"]) == ("xvda1", "nvme0n1")
    assert about["format"] == "biosnoop or iosnoop"


def test_biosnoop_s_patterns_may_touch_its_bytes(tmp_path: Path) -> None:
    """As biosnoop -P -Q of bcc 0.31 prints them: there is no blank between the two."""
    text = """\
TIME(s)     COMM           PID     DISK      T SECTOR     BYTES  P QUE(ms) LAT(ms)
0.000000    fio            1950    vda       W 2048       4096   S    0.00    0.74
0.001000    fio            1950    vda       R 4096       1048576R    0.00    0.80
0.002000    a b            1950    vda       R 8192       16777216?    0.00    0.80
"""
    run = lab.import_run(written(tmp_path / "text", text.splitlines()), directory=tmp_path / "run")
    assert [(row["sector"], row["sectors"]) for row in requests(run)] == [(2048, 8), (4096, 2048), (8192, 32768)]
    lacking = text.replace("4096   S ", "1234567 ")
    with pytest.raises(lab.FormatError, match="a line of the columns of its heading"):
        lab.import_run(written(tmp_path / "lacks", lacking.splitlines()), directory=tmp_path / "other")


def test_a_disk_named_like_a_number_keeps_its_name(tmp_path: Path) -> None:
    text = BIOSNOOP.replace("xvda1  ", "007    ").replace("nvme0n1", "\N{SUPERSCRIPT TWO}      ")
    run = lab.import_run(written(tmp_path / "text", text.splitlines()), directory=tmp_path / "run")
    about = run.options["imported"]
    assert (about["device 0,1"], about["device 0,2"]) == ("007", "\N{SUPERSCRIPT TWO}")


def test_biosnoop_counts_from_the_first_completion(tmp_path: Path) -> None:
    """So the first request begins before 0, and completions that other CPUs saw before have negative times."""
    text = """\
TIME(s)     COMM           PID     DISK    T    SECTOR     BYTES   QUE(ms) LAT(ms)
0.000000    supervise      1950    xvda1   W    13092560   4096     0.100   0.740
18446744073.709549 supervise      1951    xvda1   W    8          4096    -1.000   1.000
-0.000002   supervise      1952    xvda1   F    -1         0       -1.000   2.000
"""
    run = lab.import_run(written(tmp_path / "text", text.splitlines()), directory=tmp_path / "run")
    assert run.options["imported"]["added_ns"] == 1_000_000_000
    rows = {row["pid"]: row for row in requests(run)}
    assert [rows[1950][name] for name in ("inserted", "issued", "completed")] == [999_160_000, 999_260_000, 10**9]
    assert rows[1951]["inserted"] == 0  # no scheduler had it
    assert rows[1951]["completed"] - rows[1951]["issued"] == 1_000_000
    assert rows[1951]["completed"] == pytest.approx(10**9 - 3_000, abs=1_000)
    assert [rows[1952][name] for name in ("operation", "sector", "issued", "completed")] == [
        *("F", 0, 997_998_000, 999_998_000)
    ]


@pytest.mark.parametrize("bad", ["1e9", "99999999999.000000", "-", "nan", "1"])
def test_a_snooper_s_time_that_is_none_is_refused(bad: str, tmp_path: Path) -> None:
    source = written(tmp_path / "text", [*BIOSNOOP.splitlines(), f"{bad} x 1 sda W 8 4096 0.10 0.74"])
    with pytest.raises(lab.FormatError, match="in line 6"):
        lab.import_run(source, directory=tmp_path / "run")


def test_iosnoop_s_lines_are_requests(tmp_path: Path) -> None:
    text = """\
Tracing block I/O. Ctrl-C to end.
STARTs          ENDs            COMM             PID    TYPE DEV      BLOCK        BYTES     LATms
5982800.302061  5982800.302679  supervise        1809   W    202,1    17039600     4096       0.62
5982800.302423  5982800.302842  supervise        1809   WS   202,1    17039608     4096       0.42

Ending tracing...
"""
    run = lab.import_run(written(tmp_path / "text", text.splitlines()), directory=tmp_path / "run")
    assert [(row["device"], row["rwbs"], row["issued"], row["completed"]) for row in requests(run)] == [
        ("202,1", "W", 5982800302061000, 5982800302679000),
        ("202,1", "WS", 5982800302423000, 5982800302842000),
    ]


@pytest.mark.parametrize(
    ("heading", "lacking"),
    [
        ("COMM PID TYPE DEV BLOCK BYTES LATms", "the time"),
        ("TIME(ms) DISK COMM PID LAT(ms)", "SECTOR"),
        ("TIME(s) COMM PID DISK T SECTOR LAT(ms)", "BYTES"),
    ],
)
def test_a_snooper_s_heading_without_what_it_takes_is_refused(heading: str, lacking: str, tmp_path: Path) -> None:
    source = written(tmp_path / "text", [heading, "1 2 3"])
    with pytest.raises(lab.FormatError, match=re.escape(lacking)):
        lab.import_run(source, directory=tmp_path / "run")
    assert not (tmp_path / "run").exists()


# --- lines

ISSUE = "block:block_rq_issue: 253,1 W 4096 () 2048 + 8 [fio]"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("fio 12 [001] 1.000000: " + ISSUE, (12, 1, 1_000_000_000, "fio")),
        ("fio 12/34 [001] 1.5: " + ISSUE, (34, 1, 1_500_000_000, "fio")),
        ("Web Content 12 [000] 0.000001: " + ISSUE, (12, 0, 1_000, "Web Content")),
        ("a-1 [002] 12 [000] 1.000000: " + ISSUE, (12, 0, 1_000_000_000, "a-1 [002]")),
        ("kworker/u4:1-12 (-----) [003] d..1. 1.000000001: " + ISSUE, (12, 3, 1_000_000_001, "kworker/u4:1")),
        ("fio-12    ( 12)  [003] ....  1.000000: block_rq_issue: 8,0 W 0 () 1 + 1 [f]", (12, 3, 1_000_000_000, "fio")),
        ("fio 12 [001] 1.000000:     1 " + ISSUE, (12, 1, 1_000_000_000, "fio")),
        (
            "fio 12 [001] 1.0: block:block_rq_issue: 8,0 W 4 (28 0) 8 + 8 be,0,4 [a [b] c]",
            (12, 1, 1_000_000_000, "fio"),
        ),
    ],
)
def test_forms_of_a_line(line: str, expected: tuple[int, int, int, str], tmp_path: Path) -> None:
    run = lab.import_run(written(tmp_path / "text", [line]), directory=tmp_path / "run")
    [row] = run.events("block_rq_issue").rows()
    assert (row["common_pid"], row["cpu"], row["time"], run.file.commands[row["common_pid"]]) == expected
    assert row["comm"] == line[line.index("[", line.index("+")) + 1 : -1][:15]
    if "be,0,4" in line:
        assert (row["ioprio"], row["cmd"]) == (2 << 13 | 4, "28 0")


@pytest.mark.parametrize("task", [":-1    -1", ":-1  -1/-1"])
def test_a_task_that_has_exited_is_none(task: str, tmp_path: Path) -> None:
    """As perf prints it; 1 is init."""
    run = lab.import_run(written(tmp_path / "text", [f"  {task} [001] 1.000000: {ISSUE}"]), directory=tmp_path / "run")
    assert [row["common_pid"] for row in run.events("block_rq_issue").rows()] == [-1]
    assert run.file.commands == {}


def test_other_events_keep_their_text_and_stacks_are_counted(tmp_path: Path) -> None:
    lines = [
        "fio 12 [001] 1.000000: syscalls:sys_enter_write: fd: 0x3, count: 4096",
        "\tffffffff8116a5a1 submit_bio+0x1 ([kernel.kallsyms])",
        "\t    7f0000001000 write+0x10 (/lib/libc.so.6)",
        "",
        "fio 12 [001] 2.000000: " + ISSUE,
        "CPU:1 [LOST 7 EVENTS]",
        "fio 12 [001] 3.000000: block:block_rq_complete: 253,1 W () 2048 + 8 [-5]",
    ]
    run = lab.import_run(written(tmp_path / "text", lines), directory=tmp_path / "run")
    [row] = run.events("syscalls:sys_enter_write").rows()
    assert row["text"] == "fd: 0x3, count: 4096"
    assert run.options["imported"] | {"format": ""} == {"format": "", "events": 3, "stack_lines": 2, "lost_events": 7}
    [request] = requests(run)
    assert (request["completed"] - request["issued"], request["error"]) == (1_000_000_000, 5)
    assert run.block().table().metadata["lost_events"] == "7"


@pytest.mark.parametrize(
    "line",
    [
        "fio 12 [001] 1.000000: block:block_rq_issue: 253,1 W 4096 () 2048 + [fio]",
        "fio 12 [001] 12345: " + ISSUE,  # a clock that does not count ns
        "fio [001] 1.000000: " + ISSUE,
        "fio 12 [99999] 1.000000: " + ISSUE,
        "fio 12 [001] 1.000000: block:block_rq_issue: 253,1 W 99999999999 () 2048 + 8 [fio]",
        "fio 12 [001] 1.000000: block:block_rq_complete: 253,1 W () 2048 + 8 [fio]",
        "fio 12 [001] 99999999999999.000000: " + ISSUE,
        "  fade 12 [001] 1: " + ISSUE,  # of a task that is named like an address
        "nonsense",
    ],
)
def test_what_is_no_event_is_refused_with_its_line_or_counted(line: str, tmp_path: Path) -> None:
    good = "fio 12 [001] 1.000000: " + ISSUE
    source = written(tmp_path / "text", [good, line, good])
    with pytest.raises(lab.FormatError) as caught:
        lab.import_run(source, directory=tmp_path / "run")
    assert (caught.value.path, caught.value.offset) == (str(source), len(good) + 1)
    assert f'in line 2, which is "{line[:60]}' in str(caught.value)
    assert not (tmp_path / "run").exists()
    run = lab.import_run(source, directory=tmp_path / "run", errors="skip")
    assert run.options["imported"]["unread_lines"] == 1
    assert "line 2" in run.options["imported"]["unread_because"]
    assert len(run.events("block_rq_issue")) == 2


def lines_of(times: Iterable[int], *, cpu: Callable[[int], int] = lambda _: 0) -> list[str]:
    return [f"fio 12 [{cpu(time):03}] {time}.000000: block:block_getrq: 8,0 W {time} + 8 [fio]" for time in times]


def test_events_come_out_by_time_whatever_the_order_of_their_lines(tmp_path: Path) -> None:
    """As far as the window goes; beyond it the line is named."""
    backwards = lines_of(range(3000, 0, -1), cpu=lambda time: time % 2)
    run = lab.import_run(written(tmp_path / "text", backwards), directory=tmp_path / "run")
    assert [row["sector"] for row in run.events("block_getrq").rows()] == list(range(1, 3001))
    late = written(tmp_path / "late", [*lines_of(range(2, 70_000)), *lines_of([1])])
    with pytest.raises(lab.FormatError, match=r"sort the file by time, in line 69999"):
        lab.import_run(late, directory=tmp_path / "late-run")
    skipped = lab.import_run(late, directory=tmp_path / "late-run", errors="skip")
    assert skipped.options["imported"]["unread_lines"] == 1
    assert skipped.options["imported"]["events"] == len(skipped.events("block_getrq")) == 69_998


def test_long_texts_and_many_cpus(tmp_path: Path) -> None:
    lines = [f"fio 12 [{cpu:03}] 1.0: other:event: {'x' * (cpu * 9)}" for cpu in range(600)]
    run = lab.import_run(written(tmp_path / "text", lines), directory=tmp_path / "run")
    assert run.options["imported"]["cut_texts"] == sum(cpu * 9 > 4072 - 12 - 1 for cpu in range(600))
    lengths = [len(str(row["text"])) for row in run.events("other:event").rows()]
    assert lengths == [min(cpu * 9, 4072 - 12 - 1) for cpu in range(600)]


def test_gaps_of_time_are_kept(tmp_path: Path) -> None:
    """Beyond 27 bits of ns, which is where a record needs a stamp of its own."""
    times = [0, 1, (1 << 27) - 1, 1 << 27, (1 << 27) + 1, 1 << 40, 1 << 61]
    lines = [f"fio 12 [000] {t // 10**9}.{t % 10**9:09}: block:block_getrq: 8,0 W 1 + 8 [fio]" for t in times]
    run = lab.import_run(written(tmp_path / "text", lines), directory=tmp_path / "run")
    assert [row["time"] for row in run.events("block_getrq").rows()] == times


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = written(tmp_path / "text", reported(RECORDED / "6.1-io.dat"))
    assert main(["import", str(source), "-o", str(tmp_path / "run"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["events"] > 100
    assert main(["import", str(source), "-o", str(tmp_path / "run")]) == 2
    assert "has a recording already" in capsys.readouterr().err
    spaced = str(tmp_path / "it's mine")
    assert main(["import", str(source), "-o", spaced]) == 0
    assert capsys.readouterr().out.endswith(f": sampleblk-lab report {shlex.quote(spaced)}\n")
    assert main(["import", str(source), str(source), "-o", str(tmp_path / "two")]) == 2
    assert "blktrace's files of one recording" in capsys.readouterr().err
    assert not (tmp_path / "two").exists()
    assert main(["import", str(tmp_path / "nothing"), "-o", str(tmp_path / "two")]) != 0
    assert main(["report", str(tmp_path / "run")]) == 0
    assert (tmp_path / "run/report.html").stat().st_size > 10_000


def test_the_page_of_an_import_says_what_was_not_read(tmp_path: Path) -> None:
    lines = [*reported(RECORDED / "6.1-io.dat"), "nonsense", "CPU:1 [LOST 3 EVENTS]"]
    run = lab.import_run(written(tmp_path / "text", lines), directory=tmp_path / "run", errors="skip")
    assert main(["report", str(tmp_path / "run")]) == 0
    page = re.sub(r"<[^>]+>", " ", (tmp_path / "run/report.html").read_text())
    assert re.search(r"imported: unread lines\s+1\s+incomplete", page)
    assert re.search(r"lost events\s+3: the counts below are too small", page)
    assert run.options["imported"]["lost_events"] == 3


def test_a_path_of_any_kind_is_named_as_it_is(tmp_path: Path) -> None:
    """os.scandir() gives paths whose str() is no path."""
    (tmp_path / "text").write_text("nonsense")
    (tmp_path / "folder").mkdir()
    with os.scandir(tmp_path) as found:
        file, folder = sorted(found, key=os.DirEntry.is_dir)
    for read in (lab.read_funcgraph, lab.read_strace, lab.read_folded):
        with pytest.raises((lab.FormatError, lab.InputError), match=re.escape(file.path)):
            read(file)
    with pytest.raises(lab.InputError, match=f"^{re.escape(repr(folder.path))} is a folder"):
        lab.import_run(folder, directory=tmp_path / "run")
    assert lab.read_bcc(file).tool == file.path


def test_a_directory_is_no_recording(tmp_path: Path) -> None:
    with pytest.raises(lab.InputError, match="is a folder"):
        lab.import_run(tmp_path, directory=tmp_path / "run")


def test_an_empty_file_is_no_recording(tmp_path: Path) -> None:
    with pytest.raises(lab.FormatError, match="at least one event"):
        lab.import_run(written(tmp_path / "text", []), directory=tmp_path / "run")


# --- requests, of events whose truth is known

PLACE = {
    "block_bio_queue": "{rwbs} {sector} + {sectors} [x]",
    "block_rq_complete": "{rwbs} () {sector} + {sectors} [{e}]",
}
PLACE |= dict.fromkeys(("block_getrq", "block_bio_backmerge", "block_bio_frontmerge"), PLACE["block_bio_queue"])
PLACE |= dict.fromkeys(("block_rq_insert", "block_rq_issue", "block_rq_merge"), "{rwbs} 0 () {sector} + {sectors} [x]")
PLACE |= {"block_rq_requeue": PLACE["block_rq_complete"], "block_split": "{rwbs} {sector} / {sectors} [x]"}
PLACE |= {"block_bio_complete": "{rwbs} {sector} + {sectors} [{e}]"}
SHORT = {"Q": "bio_queue", "G": "getrq", "I": "rq_insert", "D": "rq_issue", "C": "rq_complete", "c": "bio_complete"}
SHORT |= {"M": "bio_backmerge", "F": "bio_frontmerge", "J": "rq_merge", "R": "rq_requeue", "X": "split"}

Life = tuple[int, str, int, int, int]


def lived(tmp_path: Path, *events: Life, rwbs: str = "W", error: int = 0) -> tuple[list[dict[str, Any]], lab.Run]:
    """The requests of (ns, blktrace's letter, pid, sector, sectors)."""
    tmp_path.mkdir(exist_ok=True)
    lines = []
    for time, letter, pid, sector, sectors in events:
        name = f"block_{SHORT[letter]}"
        what = PLACE[name].format(rwbs=rwbs, sector=sector, sectors=sectors, e=error)
        lines.append(f"x {pid} [000] {time // 10**9}.{time % 10**9:09}: block:{name}: 8,0 {what}")
    run = lab.import_run(written(tmp_path / "text", lines), directory=tmp_path / "run")
    return requests(run), run


def spans(rows: list[dict[str, Any]], *names: str) -> list[tuple[int, ...]]:
    return [tuple(row[name] for name in names) for row in rows]


def test_tasks_that_do_the_same_at_once_have_a_request_each(tmp_path: Path) -> None:
    events = [(10, "Q", 1, 64, 8), (11, "G", 1, 64, 8), (12, "D", 1, 64, 8)]
    events += [(20, "Q", 2, 64, 8), (21, "G", 2, 64, 8), (22, "D", 2, 64, 8)]
    rows, run = lived(tmp_path, *events, (30, "C", 1, 64, 8), (50, "C", 2, 64, 8))
    assert spans(rows, "pid", "queued", "gotten", "issued", "completed") == [(1, 10, 11, 12, 30), (2, 20, 21, 22, 50)]
    assert run.block().table().metadata["unpaired"] == "0"
    assert run.block().queue_depth()["depth"].codes.tolist() == [1, 2, 1, 0]


HALVES = [(10, "C", 0, 8, 8), (20, "D", 1, 64, 8), (30, "C", 0, 64, 8), (35, "C", 0, 16, 8), (40, "D", 1, 128, 8)]


def depth_title(run: lab.Run) -> str:
    return lab.plot.queue_depth(run.block()).figure().axes[0].get_title(loc="left")


def test_what_was_in_flight_as_the_recording_began_or_ended_is_in_the_depth(tmp_path: Path) -> None:
    rows, run = lived(tmp_path, *HALVES, error=-5)
    assert spans(rows, "pid", "completer", "sector", "issued", "completed", "error") == [
        (-1, 0, 8, 0, 10, 5),
        (1, 0, 64, 20, 30, 5),
        (-1, 0, 16, 0, 35, 5),
        (1, -1, 128, 40, 0, 0),
    ]
    depth = run.block().queue_depth("8,0")
    assert depth["depth"].codes.tolist() == [1, 2, 1, 0, 1]
    assert depth["least"].codes.tolist() == [0, 1, 0, 0, 0]
    assert (depth.metadata["unpaired"], depth.metadata["unfinished"]) == ("2", "1")
    assert depth_title(run) == "Queue depth\nlighter: 1 without completion and 2 without issue in the recording"
    # A window is a recording that begins and ends there.
    assert run.block(start=25).queue_depth()["depth"].codes.tolist() == [1, 0, 1]


@pytest.mark.parametrize(
    ("lost", "count"),
    [
        ("CPU:0 [LOST 3 EVENTS]", 3),
        ("CPU:0 [LOST EVENTS]", 1),
        ("CPU:0 [EVENTS DROPPED]", 1),
        ("CPU:0 [3 EVENTS DROPPED]", 3),
        ("sh 9 [000] 0.000000005: PERF_RECORD_LOST lost 3", 3),  # perf script --show-lost-events
    ],
)
def test_the_other_end_of_a_request_may_be_among_what_was_lost(lost: str, count: int, tmp_path: Path) -> None:
    source = tmp_path / "text"
    lived(tmp_path / "whole", *HALVES)
    source.write_text(f"{lost}\n" + (tmp_path / "whole/text").read_text())
    run = lab.import_run(source, directory=tmp_path / "lost")
    assert run.options["imported"]["lost_events"] == count
    depth = run.block().queue_depth()
    assert depth_title(run) == "Queue depth\nleft out: 1 without completion and 2 without issue in the recording"
    assert depth["depth"].codes.tolist() == [1, 0]
    assert (depth.metadata["unpaired"], depth.metadata["unfinished"]) == ("2", "1")


def test_a_line_that_was_not_read_may_have_been_the_other_end(tmp_path: Path) -> None:
    lived(tmp_path / "whole", *HALVES)
    lines = (tmp_path / "whole/text").read_text().splitlines()
    source = written(tmp_path / "text", [*lines[:3], "nonsense", "more of it", *lines[3:]])
    block = lab.import_run(source, directory=tmp_path / "run", errors="skip").block()
    assert block.queue_depth()["depth"].codes.tolist() == [1, 0]
    assert (block.table().metadata["lost_events"], block.table().metadata["gaps"]) == ("0", "1")


@pytest.mark.parametrize("kind", ["D", "C"])
def test_a_recording_of_one_kind_of_events_has_no_depth(kind: str, tmp_path: Path) -> None:
    _, run = lived(tmp_path, *[event for event in HALVES if event[1] == kind])
    for view in (run.block().queue_depth, run.block().latency):
        with pytest.raises(lab.UnsupportedError, match="recorded"):
            view()
    run.export_chrome(tmp_path / "x.json")
    assert json.loads((tmp_path / "x.json").read_text())["traceEvents"] == []


def test_a_driver_of_bios_has_their_depth(tmp_path: Path) -> None:
    """From their queueing on, and of no request's: a request is not the driver's as long as it waits."""
    bios = [(10, "Q", 1, 64, 8), (20, "Q", 1, 128, 8), (30, "c", 0, 64, 8), (40, "c", 0, 128, 8), (50, "Q", 1, 0, 8)]
    _, run = lived(tmp_path / "bios", *bios)
    depth = run.block().queue_depth("8,0")
    assert depth["depth"].codes.tolist() == [1, 2, 1, 0, 1]
    assert depth["least"].codes.tolist() == [1, 2, 1, 0, 0]
    assert depth.metadata["unfinished"] == "1"
    shown = json.loads(run.export_chrome(tmp_path / "x.json").read_text())["traceEvents"]
    assert [(one["name"], one["ts"], one["dur"]) for one in shown if one["ph"] == "X"] == [
        ("W 64 + 8", 0.01, 0.02),
        ("W 128 + 8", 0.02, 0.02),
    ]
    tracks = {one["args"]["name"] for one in shown if one["name"] == "thread_name"}
    assert tracks == {"8,0 bios 0", "8,0 bios 1", "8,0 queue depth"}
    assert [one["args"]["depth"] for one in shown if one["ph"] == "C"] == depth["depth"].codes.tolist()
    _, run = lived(tmp_path / "requests", *[event for event in bios if event[1] == "Q"], (60, "C", 0, 64, 8))
    with pytest.raises(lab.UnsupportedError, match="issues and completions were not both recorded"):
        run.block().queue_depth()


def test_parts_of_which_linux_5_10_tells_no_end_end_with_the_last(tmp_path: Path) -> None:
    """As with a large discard, or a bio that the driver had split: what follows the others has the only completion."""
    parts = [(10, "Q", 1, 0, 8), (11, "Q", 1, 8, 8), (12, "Q", 1, 16, 8), (15, "Q", 2, 24, 8), (20, "c", 0, 16, 8)]
    _, run = lived(tmp_path, *parts, (30, "c", 0, 24, 8), (40, "Q", 1, 0, 8), (41, "Q", 2, 8, 8), (50, "c", 0, 8, 8))
    depth = run.block().queue_depth()
    assert depth["depth"].codes.tolist() == [1, 2, 3, 4, 3, 2, 1, 0, 1, 2, 1]  # the one at 40 is another task's
    assert depth["least"].codes.tolist() == [0, 0, 1, 2, 2, 2, 1, 0, 0, 1, 0]
    assert depth.metadata["unfinished"] == "1"
    shown = json.loads(run.export_chrome(tmp_path / "x.json").read_text())["traceEvents"]
    assert [one["args"]["depth"] for one in shown if one["ph"] == "C"] == depth["depth"].codes.tolist()


def test_an_append_completes_where_it_was_written(tmp_path: Path) -> None:
    """In which order those of a zone were, nothing tells: none is paired, not even by chance."""
    events = [(10, "D", 1, 4096, 8), (20, "D", 1, 4096, 8), (30, "C", 0, 4104, 8), (35, "C", 0, 4096, 8)]
    rows, run = lived(tmp_path, *events, (40, "D", 1, 4096, 8), (50, "C", 0, 4112, 8), rwbs="ZA")
    assert spans(rows, "sector", "issued", "completed") == [
        *((4096, 10, 0), (4096, 20, 0), (4104, 0, 30), (4096, 0, 35)),
        *((4096, 40, 0), (4112, 0, 50)),
    ]
    assert run.block().queue_depth()["depth"].codes.tolist() == [1, 2, 1, 0, 1, 0]
    assert run.block().table().metadata["appends"] == "3"
    run.export_chrome(tmp_path / "x.json")
    shown = [one for one in json.loads((tmp_path / "x.json").read_text())["traceEvents"] if one["ph"] == "C"]
    assert [one["args"]["depth"] for one in shown] == [1, 2, 1, 0, 1, 0]


def test_an_append_of_before_its_letters_is_a_request_with_one_end(tmp_path: Path) -> None:
    events = [(10, "D", 1, 4096, 8), (30, "C", 0, 4104, 8), (40, "D", 1, 4096, 16), (50, "C", 0, 4112, 16)]
    rows, run = lived(tmp_path, *events, rwbs="N")
    assert spans(rows, "issued", "completed") == [(10, 0), (0, 30), (40, 0), (0, 50)]
    assert run.block().queue_depth()["depth"].codes.tolist() == [1, 0, 1, 0]


def test_a_time_of_day_is_drawn_as_exactly_as_any_other(tmp_path: Path) -> None:
    """In ns it has more digits than a float holds: what is 100 ns long was nothing, or 256 ns."""
    begin = 1_764_000_000 * 10**9 + 1
    _, run = lived(tmp_path, *[(begin + time, letter, 1, 64, 8) for time, letter in ((0, "Q"), (100, "D"), (350, "C"))])
    life = lab.plot.block_life(run.block()).figure().axes[0]
    assert [bar.get_width() for bar in life.patches] == [0, 100, 250]
    depth = lab.plot.queue_depth(run.block()).figure().axes[0]
    assert depth.lines[0].get_xdata().tolist() == [0, 250]
    # What reads it has doubles of microseconds.
    written = json.loads(run.export_chrome(tmp_path / "x.json").read_text())
    before = int(written["otherData"]["subtracted_ns"])
    slices = [event for event in written["traceEvents"] if event["ph"] == "X"]
    assert {(round(one["ts"] * 1000) + before, round(one["dur"] * 1000)) for one in slices} == {(begin + 100, 250)}


def test_whose_interrupt_it_was_does_not_change_counts_and_sums(tmp_path: Path) -> None:
    events = [(10, "D", 1, 64, 8), (20, "D", 2, 64, 8), (30, "C", 0, 64, 8), (50, "C", 0, 64, 8)]
    _, run = lived(tmp_path, *events)
    latency = run.block().latency()
    assert (latency["count"]["D2C"], latency["average"]["D2C"]) == (2, 25)


def test_flushes_at_once_have_a_request_each(tmp_path: Path) -> None:
    events = [(time, "Q", time, 0, 0) for time in range(10, 15)] + [(time + 10, "C", 1, 0, 0) for time in range(10, 15)]
    rows, run = lived(tmp_path, *events, rwbs="FWS")
    assert len(rows) == 5
    assert run.block().latency()["average"]["Q2C"] == 10


def test_an_end_that_was_not_seen_is_not_made_up_for_by_the_next(tmp_path: Path) -> None:
    rows, _ = lived(tmp_path, (10, "D", 1, 64, 8), (20, "D", 1, 64, 8), (25, "C", 0, 64, 8))
    assert spans(rows, "issued", "completed") == [(10, 0), (20, 25)]


@pytest.mark.parametrize("error", [0, -5])
def test_a_request_that_completes_in_parts_is_done_with_the_last(error: int, tmp_path: Path) -> None:
    events = [(10, "D", 1, 64, 8), (20, "C", 0, 64, 2), (30, "R", 0, 66, 6), (40, "D", 0, 66, 6), (60, "C", 0, 66, 6)]
    rows, run = lived(tmp_path, *events, error=error)
    assert spans(rows, "sector", "sectors", "issued", "completed", "error") == [(64, 8, 40, 60, -error)]
    assert run.block().table().metadata["unpaired"] == "0"


def test_a_request_that_joins_another_is_none_of_its_own(tmp_path: Path) -> None:
    events = [(10, "Q", 1, 64, 8), (11, "G", 1, 64, 8), (20, "Q", 1, 72, 8), (21, "G", 1, 72, 8)]
    events += [(22, "Q", 1, 80, 8), (23, "M", 1, 80, 8), (30, "J", 1, 72, 16)]
    rows, _ = lived(tmp_path, *events, (40, "D", 1, 64, 24), (50, "C", 1, 64, 24))
    assert spans(rows, "sector", "sectors", "queued", "issued", "completed", "merges") == [(64, 24, 10, 40, 50, 2)]


def test_a_merge_is_with_what_still_waits(tmp_path: Path) -> None:
    issued = [(10, "D", 1, 64, 8), (20, "G", 2, 64, 8), (30, "Q", 2, 72, 8), (31, "M", 2, 72, 8)]
    rows, _ = lived(tmp_path, *issued, (40, "D", 2, 64, 16), (50, "C", 2, 64, 16), (60, "C", 1, 64, 8))
    assert spans(rows, "sectors", "issued", "completed", "merges") == [(8, 10, 60, 0), (16, 40, 50, 1)]


@pytest.mark.parametrize("driver", ["requests", "bios"])
def test_the_parts_of_a_bio_were_queued_with_it(driver: str, tmp_path: Path) -> None:
    events = [(10, "Q", 1, 0, 24), (11, "X", 1, 0, 8), (15, "X", 1, 8, 16)]
    if driver == "requests":
        for part in range(3):
            events += [(20 + part, "G", 1, part * 8, 8), (30 + part, "D", 1, part * 8, 8)]
    events += [(40 + part, "C" if driver == "requests" else "c", 1, part * 8, 8) for part in range(3)]
    rows, run = lived(tmp_path, *sorted(events), (99, "Q", 1, 640, 8))
    assert spans(rows[:3], "sector", "sectors", "queued", "completed") == [
        (0, 8, 10, 40),
        (8, 8, 10, 41),
        (16, 8, 10, 42),
    ]
    latency = run.block().latency()
    assert (latency["count"]["Q2Q"], latency["average"]["Q2Q"], latency["count"]["Q2C"]) == (1, 89, 3)


def test_what_a_text_has_of_one_microsecond_keeps_its_order(tmp_path: Path) -> None:
    """Whichever CPU saw it: a request is not completed before it is issued."""
    lines = [
        "x 1 [003] 1.000001: block:block_rq_issue: 8,0 W 4096 () 64 + 8 [x]",
        "x 1 [001] 1.000001: block:block_rq_complete: 8,0 W () 64 + 8 [0]",
        "x 1 [000] 1.000001: block:block_rq_issue: 8,0 W 4096 () 64 + 8 [x]",
        "x 1 [001] 1.000002: block:block_rq_complete: 8,0 W () 64 + 8 [0]",
    ]
    run = lab.import_run(written(tmp_path / "text", lines), directory=tmp_path / "run")
    second = 10**9
    assert spans(requests(run), "issued", "completed") == [
        (second + 1000, second + 1001),
        (second + 1002, second + 2000),
    ]


def test_bios_of_one_microsecond_were_each_queued(tmp_path: Path) -> None:
    """A text without --ns or -t has no finer times."""
    bios = [(1000 * time, "Q", 1, sector, 8) for time, sector in ((1, 0), (1, 64), (1, 128), (7, 192))]
    _, run = lived(tmp_path, *bios)
    latency = run.block().latency()
    assert (latency["count"]["Q2Q"], latency["average"]["Q2Q"]) == (3, 2000)


@pytest.mark.parametrize("driver", ["dm", "md"])
def test_a_bio_that_is_sent_on_piece_by_piece_ends_with_its_last(driver: str, tmp_path: Path) -> None:
    """As dm does since 5.18, which tells the place of the remainder twice, and md, whose pieces end as well."""
    events = [(10, "Q", 1, 0, 24), (15, "Q", 1, 24, 8)]
    pieces = [(20, "X", 1, 8, 8), (21, "X", 1, 16, 16)] if driver == "dm" else [(20, "c", 0, 0, 8), (21, "c", 0, 8, 8)]
    rows, _ = lived(tmp_path, *events, *pieces, (30, "c", 0, 16, 8), (40, "c", 0, 24, 8), (50, "c", 0, 28, 4))
    assert spans(rows, "sector", "sectors", "queued", "completed") == [(0, 24, 10, 30), (24, 8, 15, 40)]


def test_an_event_at_the_clock_s_zero_is_one(tmp_path: Path) -> None:
    """As perf script --reltime has the first."""
    rows, run = lived(tmp_path, (0, "Q", 1, 64, 8), (0, "D", 1, 64, 8), (20, "C", 0, 64, 8))
    assert spans(rows, "queued", "issued", "completed") == [(1, 1, 20)]
    assert run.block().queue_depth()["depth"].codes.tolist() == [1, 0]


def test_a_write_that_ends_again_after_its_flush_ends_no_other(tmp_path: Path) -> None:
    events = [(10, "D", 1, 64, 8), (20, "C", 1, 64, 8), (25, "D", 2, 64, 8), (30, "C", 1, 64, 0), (40, "C", 2, 64, 8)]
    rows, run = lived(tmp_path, *events)
    assert spans(rows, "issued", "completed") == [(10, 20), (25, 40)]
    assert run.block().table().metadata["flush_sequences"] == "1"


def test_a_command_of_the_driver_s_is_nowhere_when_it_ends(tmp_path: Path) -> None:
    rows, _ = lived(tmp_path, (10, "D", 1, 0, 0), (15, "D", 1, 0, 8), (20, "C", 1, 2**64 - 1, 8), rwbs="N")
    assert spans(rows, "sector", "sectors", "issued", "completed") == [(0, 0, 10, 20), (0, 8, 15, 0)]


# What a program may call itself (PR_SET_NAME): each is like something else that a text has.
NAMES = [
    "#1",
    "version = 6",
    "cpus=2",
    "CPU 1 is empty",
    "CPU:1",
    "(sd-pam)",
    "a [001] 5",
    "a-5 7",
    "1/2",
    "=> x",
    "x\ry",
    "J\udcfc",
    "",
]


@pytest.mark.parametrize(
    "task", ["{:>16} 123 [001] ", "{:>16} 100/123 [001] ", "{:>16}-123 [001] d..1. ", "{:>16}-123 (100) [001] "]
)
def test_no_event_is_lost_for_its_task_s_name(task: str, tmp_path: Path) -> None:
    events = ("bio_queue: 8,0 W 8 + 8 [{}]", "rq_issue: 8,0 W 4096 () 8 + 8 [{}]", "rq_complete: 8,0 W () 8 + 8 [0]")
    lines = [
        f"{task.format(name)}5.{at:06d}: block:block_{event.format(name)}"
        for at, (name, event) in enumerate(itertools.product(NAMES, events))
    ]
    # What is none of them: a comment, headings.
    more = ["# tracer: nop", "    # tracer: nop", "version = 6", "cpus=2", "CPU 1 is empty"]
    run = lab.import_run(written(tmp_path / "text", [*more, *lines]), directory=tmp_path / "run")
    assert run.options["imported"] == run.options["imported"] | {"events": len(lines)}
    assert [(row["pid"], row["completed"] - row["queued"]) for row in requests(run)] == [(123, 2000)] * len(NAMES)
    names = [name.encode(errors="surrogateescape").decode(errors="backslashreplace") for name in NAMES]
    assert list(run.events("block:block_rq_issue")["comm"]) == names
    run.export_csv("block:block_rq_issue", tmp_path / "csv")
    with (tmp_path / "csv").open(newline="", encoding="utf-8") as file:
        assert [row["comm"] for row in csv.DictReader(file)] == names
