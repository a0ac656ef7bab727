# SPDX-License-Identifier: MIT
"""Texts of the function_graph tracer and of strace: every form of one recording holds the same calls."""

from __future__ import annotations

import itertools
import re
import shutil
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import pytest

import sampleblk_lab as lab

DATA = Path(__file__).parents[1] / "data"
GRAPHS = DATA / "funcgraph"
NAMES = ("function", "module", "depth", "duration", "cpu", "pid")


def calls(path: Path, *, without: tuple[str, ...] = ()) -> list[tuple[object, ...]]:
    table = lab.read_funcgraph(path).table()
    assert "unread_lines" not in table.metadata
    return [tuple(row[name] for name in NAMES if name not in without) for row in table.rows()]


def test_the_default_text_holds_the_calls_as_the_tracer_wrote_them():
    graph = lab.read_funcgraph(GRAPHS / "6.1-default.txt")
    rows = list(graph.table().rows())
    assert [(row["function"], row["depth"], row["duration"], row["cpu"]) for row in rows[:5]] == [
        ("mutex_unlock", 0, 2523625, 1),
        ("irq_enter_rcu", 1, 184160, 1),
        ("__sysvec_apic_timer_interrupt", 1, 384774, 1),
        ("hrtimer_interrupt", 2, 337979, 1),
        ("_raw_spin_lock_irqsave", 3, 4393, 1),
    ]
    text = (GRAPHS / "6.1-default.txt").read_text()
    named = [line for line in text.splitlines() if line.endswith(("() {", "();"))]
    assert len(rows) == len(named)


@pytest.mark.parametrize(
    ("variant", "without"),
    [
        ("6.1-abstime", ()),
        ("6.1-all", ()),
        ("6.1-latency-format", ()),
        ("6.1-overrun", ()),
        ("6.1-proc", ()),
        ("6.1-tail", ()),
        ("6.1-nocpu-proc", ("cpu", "pid")),
        ("6.1-duration", ("duration",)),
        ("7.2-all", ("pid",)),
    ],
)
def test_every_set_of_columns_gives_the_same_calls(variant, without):
    default = GRAPHS / f"{variant.partition('-')[0]}-default.txt"
    assert calls(GRAPHS / f"{variant}.txt", without=without) == calls(default, without=without)


TEXTS = [path for path in sorted(GRAPHS.glob("*.txt")) if path.stem != "6.1-cpu"]


@pytest.mark.parametrize("path", [*TEXTS, *sorted((DATA / "lktm").glob("funcgraph_*.log"))], ids=lambda path: path.stem)
def test_every_text_of_the_tracer_goes_through_every_view(path, tmp_path):
    """Held against the text's own lines: one for each call, by its name and depth, and a time at each that has one."""
    graph = lab.read_funcgraph(path)
    found = re.findall(r"(?:\||^ *\d+\))( *)([^\s|/}(]+)(?: \[\w+\])?\(\)(?: \{|;)", path.read_text(), re.MULTILINE)
    rows = list(graph.table())
    assert len(rows) > 100
    assert [row["function"] for row in rows] == [name for _, name in found]
    least = min(len(space) for space, _ in found)
    assert [row["depth"] for row in rows] == [(len(space) - least) // 2 for space, _ in found]
    sums = graph.aggregate()
    assert {row["function"]: row["calls"] for row in sums} == Counter(name for _, name in found)
    for by in ("path", "module"):
        assert graph.aggregate(by=by, fold_modules=True)["self"].codes.sum() == graph.table()["self"].codes.sum()
    assert sum(int(line.rpartition(" ")[2]) for line in graph.folded().splitlines()) == sum(row["self"] for row in rows)
    (tmp_path / "again").write_text(graph.text())
    again = lab.read_funcgraph(tmp_path / "again").table()
    shown = ("function", "depth", "duration")
    assert [[row[name] for name in shown] for row in again] == [[row[name] for name in shown] for row in rows]
    assert list(graph.diff(graph)["calls_before"]) == list(graph.diff(graph)["calls_after"])
    assert rows[0]["function"] in graph.tree().text()
    assert rows[0]["function"] in graph._repr_html_()


def test_times_are_read_where_they_are():
    graph = lab.read_funcgraph(GRAPHS / "6.1-abstime.txt").table()
    assert graph["time"][0] == 25_283_804_000


def test_tasks_are_read_where_they_are():
    table = lab.read_funcgraph(GRAPHS / "6.1-proc.txt").table()
    assert set(table["pid"]) == {86}


def test_a_text_that_tells_neither_cpu_nor_task_is_refused():
    with pytest.raises(lab.FormatError, match=r"6\.1-cpu\.txt"):
        lab.read_funcgraph(GRAPHS / "6.1-cpu.txt")


def test_modules_are_a_column(tmp_path):
    log = tmp_path / "trace"
    log.write_text(" 0)   1.000 us    |  submit_bio();\n 0)   2.000 us    |  xfs_log_force [xfs]();\n")
    graph = lab.read_funcgraph(log)
    assert [(row["function"], row["module"]) for row in graph.table().rows()] == [
        ("submit_bio", None),
        ("xfs_log_force", "xfs"),
    ]
    assert dict(graph.modules) == {"xfs_log_force": "xfs"}


@pytest.mark.parametrize(
    "line", [" 0) garbage", " 0)  nan us  |  f();", "1.5 us | f();", " 0)   1.000 us    |  not a name();"]
)
def test_a_line_of_no_tracer_is_quoted_with_its_number(tmp_path, line):
    log = tmp_path / "trace"
    log.write_text(" 0)   1.000 us    |  before();\n" + line + "\n 0)   1.000 us    |  after();\n")
    with pytest.raises(lab.FormatError) as refused:
        lab.read_funcgraph(log)
    assert "line 2" in str(refused.value)
    assert line.strip() in str(refused.value)
    table = lab.read_funcgraph(log, errors="skip").table()
    assert table.metadata["unread_lines"] == "1"
    assert [row["function"] for row in table.rows()] == ["before", "after"]


def test_what_perf_tools_kept_is_still_read():
    for path in sorted((DATA / "lktm").glob("funcgraph_*.log")):
        assert len(lab.read_funcgraph(path).table()) > 0


STRACE = pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace: apt-get install strace")

PROGRAM = """
import os, sys, threading
fd = os.open("x|y) = 3", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
for _ in range(3):
    os.write(fd, b'a"b\\\\c(<...')
try:
    os.open("/nonexistent/file", os.O_RDONLY)
except OSError:
    pass
os.lseek(fd, 0, os.SEEK_SET)
os.read(fd, 16)
child = os.fork()
if child == 0:
    for _ in range(20):
        os.write(fd, b"child")
    os.fsync(fd)
    os._exit(3)
for _ in range(20):
    os.pwrite(fd, b"parent = 7", 0)
os.waitpid(child, 0)
os.close(fd)
os._exit(0)
"""
TRACED = "trace=clone,clone3,fork,vfork,openat,write,pwrite64,lseek,read,fsync,close"


def run_strace(directory: Path, options: list[str]) -> str:
    """What strace wrote to its stderr."""
    done = subprocess.run(
        ["strace", "-e", TRACED, *options, sys.executable, "-I", "-S", "-c", PROGRAM],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if "ptrace" in done.stderr and "not permitted" in done.stderr:
        pytest.skip("may not trace processes here")
    assert done.returncode == 0, done.stderr[-500:]
    return done.stderr


def by_process(table: lab.Table) -> list[list[tuple[str, int, str]]]:
    """Each process's calls in order; processes by their number of calls, as their ids differ between runs."""
    found: dict[int, list[tuple[str, int, str]]] = defaultdict(list)
    opened: dict[int, str] = {}
    for row in table.rows():
        # What starts a process returns its id, which is another in each run.
        ret = min(row["ret"], 1) if row["syscall"] in ("clone", "clone3", "fork", "vfork") else row["ret"]
        if row["syscall"] == "openat":
            opened[row["pid"]] = row["args"]
        # From 3.12 on fork() reads the process's own line of numbers, of any length.
        if row["syscall"] == "read" and "/proc/self/stat" in opened.get(row["pid"], ""):
            ret = 1
        found[row["pid"]].append((row["syscall"], ret, row["error"]))
    return sorted(found.values(), key=len)


@STRACE
@pytest.mark.parametrize(
    "options",
    [
        ["-f"],
        ["-f", "-q"],
        ["-f", "-ttt", "-T"],
        ["-f", "-tt", "-y", "-T"],
        ["-f", "-t", "-Y"],
        ["-f", "-r"],
        ["-f", "-r", "-tt"],
        ["-f", "-k"],
        ["-f", "-n", "-i"],
        ["-f", "-x", "-v", "-s", "3"],
        ["-f", "-C"],
        ["-f", "--absolute-timestamps=format:unix,precision:ns", "--syscall-times=ns"],
        ["-f", "--relative-timestamps=ms"],
    ],
    ids=" ".join,
)
def test_stderr_of_strace_holds_the_same_calls_as_a_log_with_pids(tmp_path, options):
    run_strace(tmp_path, ["-f", "-o", str(tmp_path / "reference")])
    reference = by_process(lab.read_strace(tmp_path / "reference").table())
    assert len(reference) == 2
    assert len(reference[0]) >= 21
    (tmp_path / "log").write_text(run_strace(tmp_path, options))
    table = lab.read_strace(tmp_path / "log").table()
    assert {name: value for name, value in table.metadata.items() if value != "0"} == {}
    assert by_process(table) == reference


@pytest.mark.parametrize(
    "log",
    [
        # The one that was there before is the first to be named.
        "read(3) = 1\nclone(x) = 12\n[pid 11] write(3) = 2\n[pid 12] write(3) = 3\n[pid 12] +++ exited with 0 +++\n",
        # The child is, before the call that started it has returned.
        "read(3) = 1\nclone(x <unfinished ...>\n[pid 12] write(3) = 3\n[pid 11] <... clone resumed>) = 12\n"
        "[pid 11] write(3) = 2\n[pid 12] +++ exited with 0 +++\n",
        # A child of the child is, likewise.
        "read(3) = 1\nclone(x) = 12\n[pid 12] write(3) = 3\n[pid 12] fork( <unfinished ...>\n[pid 13] read(4) = 4\n"
        "[pid 12] <... fork resumed>) = 13\n[pid 13] +++ exited with 0 +++\n[pid 12] +++ exited with 0 +++\n"
        "[pid 11] write(3) = 2\n",
    ],
    ids=["parent first", "child first", "grandchild first"],
)
def test_a_quiet_strace_names_the_first_process_late(tmp_path, log):
    (tmp_path / "log").write_text(log + "close(3) = 0\n")
    table = lab.read_strace(tmp_path / "log").table()
    owners = {(row["syscall"], row["ret"]): row["pid"] for row in table.rows()}
    assert owners == {
        ("read", 1): 11,
        ("clone", 12): 11,
        ("write", 2): 11,
        ("write", 3): 12,
        ("close", 0): 11,
        **({("read", 4): 13, ("fork", 13): 12} if "fork" in log else {}),
    }


@STRACE
@pytest.mark.parametrize("options", [["-ttt"], ["-t"], ["-tt", "-T"], ["-r"], ["-r", "-ttt"]], ids=" ".join)
def test_times_of_strace_rise(tmp_path, options):
    run_strace(tmp_path, ["-f", "-o", str(tmp_path / "log"), *options])
    table = lab.read_strace(tmp_path / "log").table()
    times = table["time"].codes
    assert np.all(np.diff(times[np.argsort(times, kind="stable")].astype(np.int64)) >= 0)
    assert times.max() > times.min() or options == ["-t"]
    for pid in np.unique(table["pid"]):
        assert np.all(np.diff(times[np.asarray(table["pid"]) == pid].astype(np.int64)) >= 0)


def test_midnight_does_not_turn_time_back(tmp_path):
    log = tmp_path / "log"
    log.write_text(
        '23:59:59.900000 write(1, "a", 1) = 1\n00:00:00.100000 write(1, "b", 1) = 1\n00:00:00.200000 close(1) = 0\n'
    )
    times = lab.read_strace(log).table()["time"].codes
    assert list(np.diff(times)) == [200_000_000, 100_000_000]


@pytest.mark.parametrize(
    "name", ["#1", "Tracing ", "^C", "", "(sd-pam", "a-5 b", "a|b", "a-1|b", "a=>b", "/*a", "/*a|*/"]
)
@pytest.mark.parametrize("cpu", [" 0) ", ""])
def test_no_call_is_lost_for_its_task_s_name(tmp_path, name, cpu):
    log = tmp_path / "trace"
    head = '# tracer: function_graph\n  # indented\nTracing "f"... Ctrl-C to end.\n^C\nEnding tracing...\n'
    lines = [
        f"{cpu} {name}-12  | {took:>10} | {call}\n"
        for took, call in (("", "f() {"), ("0.5 us", "  g();"), ("2 us", "}"))
    ]
    log.write_text(head + "".join(lines))
    rows = [(row["pid"], row["function"], row["duration"]) for row in lab.read_funcgraph(log).table()]
    assert rows == [(12, "f", 2000), (12, "g", 500)]


def test_a_switch_is_between_tasks_of_any_name(tmp_path):
    log = tmp_path / "trace"
    names = ("/*a", "a=>b", "b|c", "<idle>")
    switches = "".join(
        f" 0)    {before}-{at + 1}    =>    {after}-{at + 2}   \n 0)   0.5 us |  f();\n"
        for at, (before, after) in enumerate(itertools.pairwise(names))
    )
    log.write_text(f" 0)   0.5 us |  f();\n{switches}")
    assert list(lab.read_funcgraph(log).table()["pid"]) == [1, 2, 3, 4]


def test_events_between_calls_are_counted(tmp_path):
    log = tmp_path / "trace"
    events = ("sched_switch: prev=a-1 | next=b-2 => c-3", "a-1 | b */ /* 1", "marked")
    lines = [f" 0)               |  /* {text} */\n 0)  fio-12  |               |  /* {text} */\n" for text in events]
    log.write_text(" 0)  fio-12  |   0.5 us |  f();\n" + "".join(lines))
    table = lab.read_funcgraph(log).table()
    assert [(row["pid"], row["function"]) for row in table] == [(12, "f")]
    assert table.metadata == {"lost_events": "0", "comment_lines": "6"}


def test_what_a_call_or_a_command_is_named_is_no_mark_of_strace(tmp_path):
    calls = [
        ("write", '3, "x <unfinished ...>", 18', 18),
        ("write", r'3, "\" <unfinished ...>) = ?"..., 90', 90),
        ("sendto", '3<TCP:[127.0.0.1:2049->127.0.0.1:713]>, "a", 1, 0, NULL, 0', 1),
        ("read", '3</tmp/a:[b>, "c", 1', 1),
    ]
    log = tmp_path / "log"
    for task in ("[pid 12<a]b (x>] ", "12<a]b (x> ", "[pid 12] "):
        lines = [f"{task}{name}({arguments}) = {ret}\n" for name, arguments, ret in calls]
        log.write_text("".join(lines) + f"{task}futex(0x1, FUTEX_WAIT, 2, NULL <unfinished ...>) = ?\n")
        table = lab.read_strace(log).table()
        assert [(row["pid"], row["syscall"], row["args"], row["ret"]) for row in table] == [
            (12, *call) for call in calls
        ]
        assert table.metadata == {"lost_events": "0", "unfinished": "1"}


def test_a_line_of_no_strace_is_quoted_with_its_number(tmp_path):
    log = tmp_path / "log"
    log.write_text("close(1) = 0\nwhat is this\nclose(2) = 0\n")
    with pytest.raises(lab.FormatError, match=r"line 2.*what is this"):
        lab.read_strace(log)
    assert lab.read_strace(log, errors="skip").table().metadata["unread_lines"] == "1"


def test_an_error_quotes_a_line_without_doing_anything_to_the_terminal(tmp_path):
    (tmp_path / "log").write_bytes(b"no \x1b[31mred\x1b]0;title\x07 \xc2\x9b \xff call\n")
    with pytest.raises(lab.FormatError) as error:
        lab.read_strace(tmp_path / "log")
    assert str(error.value).isprintable()
    assert r"no \x1b[31mred\x1b]0;title\x07 \xc2\x9b \xff call" in str(error.value)


@pytest.mark.parametrize("errors", ["strict", "skip"])
def test_what_a_call_writes_is_no_table_of_strace(tmp_path, errors):
    log = tmp_path / "log"
    log.write_text('write(1, "50% time left\\n", 14)          = 14\nclose(1)                                = 0\n')
    found = lab.read_strace(log, errors=errors)
    assert list(found.table()["syscall"]) == ["write", "close"]
    assert len(found.summary()) == 0


def test_a_table_of_strace_with_other_columns_is_refused(tmp_path):
    head = "% time     seconds shortest  usecs/call     calls syscall"
    log = tmp_path / "log"
    log.write_text(f"{head}\n------ -----\n 50.00    0.000100 0.000007          50         2 read\n")
    with pytest.raises(lab.FormatError, match="usecs/call, calls, errors, syscall, in line 1"):
        lab.read_strace(log)


def test_quotes_in_the_path_of_a_descriptor_begin_no_string(tmp_path):
    log = tmp_path / "log"
    log.write_text(
        '7 pread64(3</x/a \\"b>,  <unfinished ...>\n'
        '8 write(4, "\\"<unfinished ...>", 3) = 3\n'
        '7 <... pread64 resumed>"ab", 10, 0) = 2\n'
    )
    table = lab.read_strace(log).table()
    assert [(row["syscall"], row["args"]) for row in table] == [
        ("write", '4, "\\"<unfinished ...>", 3'),
        ("pread64", '3</x/a \\"b>, "ab", 10, 0'),
    ]


def test_a_mode_that_umask_returns_is_octal(tmp_path):
    log = tmp_path / "log"
    log.write_text("umask(027) = 022\numask(0) = 0\nread(3) = 10\nbrk(NULL) = 0x10\n")
    assert lab.read_strace(log).table()["ret"].values.tolist() == [0o22, 0, 10, 0x10]


def test_calls_of_another_mode_have_a_table_of_their_own(tmp_path):
    """strace -C of a program that makes calls of 32 bits, too, or of nothing else."""
    head = "% time     seconds  usecs/call     calls    errors syscall\n------ ----------- ---------\n"
    own = f"{head}  0.00    0.000000           0        30         1 read\n100.00    0.000000           0 30 1 total\n"
    other = "System call usage summary for 32 bit mode:\n"
    other += f"{head}  0.00    0.000000           0         5           read\n100.00    0.000000           0 5 total\n"
    for text, calls in (
        (own, {"read": 30}),
        (own + other, {"read": 30, "read [32 bit]": 5}),
        (other, {"read [32 bit]": 5}),
    ):
        log = tmp_path / "log"
        log.write_text(f"close(1) = 0\n{text}")
        found = lab.read_strace(log)
        assert {row["syscall"]: row["calls"] for row in found.summary()} == calls
        assert list(found.table()["syscall"]) == ["close"]


def test_what_ends_among_lost_events_has_the_time_of_no_other(tmp_path):
    text = tmp_path / "trace"
    text.write_text(
        " 0)               |  a() {\n"
        " 0)               |    b() {\n"
        " 0)   0.500 us    |      c();\n"
        "CPU:0 [LOST 3 EVENTS]\n"
        " 0) ! 200.000 us  |  } /* a */\n"
        " 0)               |  d() {\n"
        " 0)               |    e() {\n"
        "CPU:0 [LOST 3 EVENTS]\n"
        " 0)   7.000 us    |    } /* f */\n"
        " 0)   1.000 us    |    g();\n"
        "CPU:0 [LOST 3 EVENTS]\n"
        " 0)   2.000 us    |  h();\n"
    )
    table = lab.read_funcgraph(text).table()
    rows = [(row["function"], row["depth"], row["duration"], row["complete"]) for row in table.rows()]
    assert rows == [
        ("a", 0, 200_000, 1),
        ("b", 1, 0, 0),
        ("c", 2, 500, 1),
        ("d", 0, 0, 0),
        ("e", 1, 0, 0),
        ("g", 1, 1000, 1),
        ("h", 0, 2000, 1),
    ]
    assert (table.metadata["unpaired"], table.metadata["across_gaps"]) == ("1", "1")


def test_what_the_articles_strace_kept_is_still_read():
    path = DATA / "lktm" / "strace_fio_fs_seq_write_sync_001.log"
    log = lab.read_strace(path)
    lines = re.findall(r"^(\d+)\.(\d{6}) (\w+)\(.*\) += (-?\d+).* <0\.(\d{6})>$", path.read_text(), re.MULTILINE)
    assert len(lines) > 500
    expected = [
        (int(seconds + micros) * 1000, int(took) * 1000, name, int(ret)) for seconds, micros, name, ret, took in lines
    ]
    assert [(row["time"], row["duration"], row["syscall"], row["ret"]) for row in log.table()] == expected
    # strace's own count, of the whole run of which the log is the beginning.
    rows = re.findall(r"^ *[\d.]+ +[\d.]+ +\d+ +(\d+) +(?:\d+ +)?(\w+)$", path.read_text(), re.MULTILINE)
    assert {row["syscall"]: row["calls"] for row in log.summary()} == {
        name: int(calls) for calls, name in rows if name != "total"
    }
    assert "fadvise64" in log.summary().text()
    assert "fadvise64" in log._repr_html_()
