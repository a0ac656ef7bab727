# SPDX-License-Identifier: MIT
"""What bcc's tools print, read as tables; and how one is started and stopped. tests/vm has the real ones."""

from __future__ import annotations

import json
import os
import pickle
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import sampleblk_lab as lab
from sampleblk_lab import trust
from sampleblk_lab.bpftrace import process, tool
from sampleblk_lab.bpftrace.printed import lines_of, printed_table
from sampleblk_lab.cli.main import main

FAKE = Path(__file__).with_name("fake_tool.py")

# Of libbpf-tools 0.26 on Linux 6.1, shortened.
BIOLATENCY = """Tracing block device I/O... Hit Ctrl-C to end.


disk = sampleblk1	flags = Idle-Metadata-Sync-Write
     usecs               : count    distribution
         0 -> 1          : 0        |                                        |
         2 -> 3          : 1        |****************************************|

disk = sampleblk1	flags = Sync-Write
     usecs               : count    distribution
         0 -> 1          : 9        |****************************************|
"""
SLOWER = """Tracing ext4 operations... Hit Ctrl-C to end.
TIME     COMM             PID     T BYTES   OFF_KB   LAT(ms) FILENAME
16:08:28 dd               118     O 0       0           0.14 f
16:08:28 tmux: server     118     W 4096    4          12.08 a file
16:08:28 dd               1234567 W 4096    8           0.04 f
"""
SYSCOUNT = """Tracing syscalls, printing top 10... Ctrl+C to quit.
[16:10:19]
SYSCALL                   COUNT        TIME (us)
clock_nanosleep               5      4851935.100
vfork                         1        99292.323
"""


def rows(table: lab.Table) -> list[dict[str, object]]:
    return [dict(row) for row in table]


def test_histograms_have_the_names_above_them() -> None:
    table = lab.BccOutput(BIOLATENCY.encode()).histogram()
    sync = {"disk": "sampleblk1", "flags": "Idle-Metadata-Sync-Write"}
    assert rows(table) == [
        {**sync, "low": 0, "high": 1, "count": 0},
        {**sync, "low": 2, "high": 3, "count": 1},
        {"disk": "sampleblk1", "flags": "Sync-Write", "low": 0, "high": 1, "count": 9},
    ]
    assert table["low"].unit == table["high"].unit == "us"
    assert table.metadata["measured"] == "usecs"


def test_histograms_of_intervals_are_snapshots_and_linear_ones_have_one_number() -> None:
    one = "\n     runqlen  : count     distribution\n        0     : {}      |****|\n        1     : 2      |*   |\n"
    table = lab.BccOutput(("Sampling...\n" + one.format(202) + one.format(198)).encode()).histogram()
    assert [tuple(row.values()) for row in table] == [(0, 0, 0, 202), (0, 1, 1, 2), (1, 0, 0, 198), (1, 1, 1, 2)]
    assert list(table.columns) == ["snapshot", "low", "high", "count"]
    assert table.metadata["unread_rows"] == "0"
    large = lab.BccOutput(("\n" + one.format(2**63)).encode()).histogram()
    assert (large["count"].values.tolist(), large.metadata["unread_rows"]) == ([2], "1")
    with pytest.raises(lab.InputError, match="histograms of msecs and of usecs"):
        lab.BccOutput(b"usecs : count distribution\n0 -> 1 : 1 |*|\n\nmsecs : count distribution\n").histogram()
    with pytest.raises(lab.InputError, match="has printed no histogram"):
        lab.BccOutput(SLOWER.encode()).histogram()


def test_what_is_printed_in_one_interval_is_one_snapshot() -> None:
    one = "disk = {}\n     usecs : count distribution\n  0 -> 1 : {} |**|\n\n"
    text = one.format("a", 1) + one.format("a", 2) + one.format("b", 3) + one.format("a", 4)
    read = lab.BccOutput(text.encode()).histogram()
    assert [(row["snapshot"], row["disk"], row["count"]) for row in read] == [
        (0, "a", 1),
        (1, "a", 2),
        (1, "b", 3),
        (2, "a", 4),
    ]
    timed = lab.BccOutput(("12:00:01\n" + one.format("a", 1) + "12:00:02\n" + one.format("b", 2)).encode()).histogram()
    assert [(row["snapshot"], row["disk"], row["count"]) for row in timed] == [(0, "a", 1), (1, "b", 2)]


@pytest.mark.parametrize("clock", ["12:00:0{}", "[12:00:0{}]", "12:00:0{}:"])
def test_a_time_above_histograms_begins_a_snapshot(clock: str) -> None:
    """The last is that of ext4dist, btrfsdist, nfsdist, xfsdist and zfsdist of bcc."""
    one = "\n{}\n\noperation = {}\n     msecs : count distribution\n  0 -> 1 : {} |**|\n"
    text = one.format(clock.format(1), "read", 5) + one.format(clock.format(2), "write", 6)
    read = lab.BccOutput(text.encode()).histogram()
    assert [(row["snapshot"], row["operation"], row["count"]) for row in read] == [(0, "read", 5), (1, "write", 6)]


@pytest.mark.parametrize(
    ("text", "unread"),
    [
        ("0 -> 1 : 5 |**|\n2 -> 3 : 6", 1),
        ("0 -> 1 : 5 |**|\n2 -> ", 1),
        ("0 -> 1 : 5 |**|\n2 -> 3 : -6 |**|\n4 -> 7 : 1 |*|\n", 2),
        ("0 -> 1 : 5 |**|\nlost 5 events on CPU #1\n2 -> 3 : 6 |**|\n4 -> 7 : 1 |*|\n", 2),
        ("0 -> 1 : 5 |**|\n\n12:00:01\navg = 3 usecs, total: 6 usecs, count: 2\n", 0),
    ],
)
def test_buckets_that_cannot_be_read_are_counted(text: str, unread: int) -> None:
    read = lab.BccOutput(("     usecs : count distribution\n" + text).encode()).histogram()
    assert [(row["low"], row["count"]) for row in read] == [(0, 5)]
    assert read.metadata["unread_rows"] == str(unread)


def test_what_is_told_below_a_histogram_is_not_of_the_next() -> None:
    # biolatency -e of bcc, 0.26 and others
    one = "     usecs : count distribution\n  0 -> 1 : {} |**|\n\navg = 3 usecs, total: 6 usecs, count: 2\n\n"
    read = lab.BccOutput((one.format(2) + one.format(3)).encode()).histogram()
    assert [tuple(row.values()) for row in read] == [(0, 0, 1, 2), (1, 0, 1, 3)]
    assert read.columns == ["snapshot", "low", "high", "count"]


def test_lines_are_cut_where_the_header_says() -> None:
    table = lab.BccOutput(SLOWER.encode()).table()
    assert [row["COMM"] for row in table] == ["dd", "tmux: server", "dd"]
    assert [row["LAT"] for row in table] == [0.14, 12.08, 0.04]
    assert [row["FILENAME"] for row in table] == ["f", "a file", "f"]
    assert table["PID"].values.tolist() == [118, 118, 1234567]
    assert table["LAT"].unit == "ms"
    assert table.metadata["unread_rows"] == "0"


@pytest.mark.parametrize("name", ["a\x1cb", "a\u2028b", "a\x0bb", "a\x85b", "a\xa0b", "abc  d", "Näme", "日本 xyz"])
@pytest.mark.parametrize("file", ["/x/MY FILE (old)", "two  blanks", "ä\u2028b", "x"])
def test_cells_are_as_they_were_printed(name: str, file: str) -> None:
    head = "TIME     COMM             PID     T BYTES   OFF_KB   LAT(ms) FILENAME\n"
    # C pads by bytes.
    padded = name + " " * (16 - len(name.encode()))
    for comm, kinds in ((padded, (True, False)), (f"{name:16}", (True,))):
        line = f"{'12:34:56':8} {comm} {7:<7} R {7:<7} {2:<8} {0.07:7.2f} {file}\n"
        for loose in kinds:
            table = printed_table(lines_of(head + line), head, {}, loose=loose)
            assert [(row["COMM"], row["LAT"], row["FILENAME"]) for row in table] == [(name, 0.07, file)]


def test_a_line_that_stands_below_the_heads_in_two_ways_is_not_guessed_at() -> None:
    head = "PID    COMM               FD ERR PATH"
    line = "7      é1日日b         43   0 日(1M /"
    bytes_first = {"PID": 7, "COMM": "é1日日b", "FD": 43, "ERR": 0, "PATH": "日(1M /"}
    assert rows(printed_table([head, line], None, {})) == [bytes_first]
    assert printed_table([head, line], None, {}, loose=True).metadata["unread_rows"] == "1"


def test_what_a_wide_value_moved_is_not_of_the_column_below_which_it_comes_to_stand() -> None:
    head = "TIME     COMM             PID     T BYTES   OFF_KB   LAT(ms) FILENAME\n"
    moved = f"{'12:34:56':8} {'dd':16} {7:<7} R {7:<7} {2:<8} {123456.7:7.2f} /x/y z\n"
    table = lab.BccOutput((head + moved).encode()).table()
    assert (len(table), table.metadata["unread_rows"]) == (0, "1")
    one_word = moved.replace("/x/y z", "/x/y")
    assert [row["LAT"] for row in lab.BccOutput((head + one_word).encode()).table()] == [123456.7]


def test_units_apart_and_words_that_are_too_wide() -> None:
    table = lab.BccOutput(SYSCOUNT.encode()).table()
    assert rows(table)[0] == {"SYSCALL": "clock_nanosleep", "COUNT": 5, "TIME": 4851935.1}
    assert table["TIME"].unit == "us"
    assert rows(lab.BccOutput(SYSCOUNT.encode()).table(SYSCOUNT.splitlines()[2])) == rows(table)
    wide = "DISK     %RND  %SEQ    COUNT     KBYTES\nsampleblk1    50    50        2          9\nnot a row\n"
    table = lab.BccOutput(wide.encode()).table()
    assert rows(table) == [{"DISK": "sampleblk1", "%RND": 50, "%SEQ": 50, "COUNT": 2, "KBYTES": 9}]
    assert table.metadata["unread_rows"] == "1"
    huge = lab.BccOutput(b"A B\n1 99999999999999999999\n").table()
    assert rows(huge) == [{"A": 1, "B": "99999999999999999999"}]
    with pytest.raises(lab.InputError, match="no line of what was printed is a header"):
        lab.BccOutput(BIOLATENCY.encode()).table()


# As libbpf-tools print them (trace_helpers.c, print_log2_hist).
def printed(counts: list[int]) -> str:
    top = max(counts)
    lines = ["     usecs               : count    distribution"]
    for slot, count in enumerate(counts):
        low, high = (1 << slot) if slot else 0, (1 << slot + 1) - 1
        stars = "*" * (40 * count // top if top else 0)
        lines.append(f"{low:>10} -> {high:<10} : {count:<8} |{stars:<40}|")
    return "\n".join(lines) + "\n"


@given(
    st.lists(
        st.tuples(
            st.from_regex(r"[a-z]{1,8}", fullmatch=True), st.lists(st.integers(0, 2**40), min_size=1, max_size=30)
        ),
        max_size=4,
    )
)
def test_what_is_printed_is_what_is_read(found: list[tuple[str, list[int]]]) -> None:
    text = "Tracing\n\n" + "\n".join(f"operation = '{name}'\n{printed(counts)}" for name, counts in found)
    output = lab.BccOutput(text.encode())
    wanted = [(name, (1 << slot) if slot else 0, count) for name, counts in found for slot, count in enumerate(counts)]
    if not wanted:
        with pytest.raises(lab.InputError):
            output.histogram()
        return
    assert [(row["operation"], row["low"], row["count"]) for row in output.histogram()] == wanted


PIECES = [BIOLATENCY[:400], SLOWER, SYSCOUNT, "\n", "|", ": ", " -> ", "9" * 30, "TIME (us)", "a = b\t", "'", "\x80"]


@given(st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=30)), max_size=8).map("".join))
def test_no_text_is_too_odd(text: str) -> None:
    output = lab.BccOutput(text.encode(errors="surrogatepass"), text.encode(errors="surrogatepass"))
    for read in (output.histogram, output.table):
        try:
            assert len(read()) <= len(text)
        except lab.InputError:
            continue
    plain = output.as_json()
    assert json.dumps(plain, default=str)
    assert plain["lost_events"] == output.lost_events >= 0
    assert plain["warnings"] == output.warnings


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., None]:
    def behave(*how: str) -> None:
        monkeypatch.setenv("FAKE", " ".join(how))

    (tmp_path / "anon_inode:bpf-map").touch()
    monkeypatch.setenv("FAKE_BPF", str(tmp_path / "anon_inode:bpf-map"))
    monkeypatch.setattr(tool, "require_kernel", lambda *_: None)
    return behave


def test_the_block_runs_when_the_tool_waits_and_it_prints_after(fake: Callable[..., None]) -> None:
    fake("slow", "loses")
    begin = time.monotonic()
    with trust.collected() as told, lab.bcc(FAKE, "-m", 5) as found:
        assert time.monotonic() - begin > 1.0
        assert found.running
        with pytest.raises(RuntimeError, match="still runs"):
            found.histogram()
    assert found.histogram()["count"].values.tolist() == [7]
    assert "arguments: ['-m', '5']" in found.output.printed
    assert found.output.lost_events == 42
    assert [str(check) for check in told.doubts()] == ["events that fake_tool.py lost: 42: incomplete"]
    assert pickle.loads(pickle.dumps(found.output)).printed == found.output.printed
    with pytest.raises(RuntimeError, match="runs once"):
        found.start()


@pytest.mark.parametrize(
    ("how", "kind", "said"),
    [
        ("lacks", lab.UnsupportedError, "this kernel has no blk_account_io_start, which it probes"),
        ("kprobe", lab.UnsupportedError, "this kernel has no some_function, which it probes"),
        ("target", lab.UnsupportedError, "this kernel has no do_page_cache_ra, which it probes"),
        ("sampling", lab.UnsupportedError, "this kernel cannot run it: failed to init perf sampling: No such file"),
        ("usage", lab.InputError, "fake_tool.py: Too many arguments (expected"),
        ("broken", lab.BccError, "no message (exit status 3, before it traced anything)"),
        ("early", lab.BccError, "no message (exit status 0, before it traced anything)"),
    ],
)
def test_what_it_lacks_is_said_before_the_block(
    fake: Callable[..., None], how: str, kind: type[Exception], said: str
) -> None:
    fake(how)
    with pytest.raises(kind) as error, lab.bcc(FAKE):
        pytest.fail("the block ran")
    assert said in str(error.value)


def test_a_program_without_bpf_is_not_taken_for_a_tool(fake: Callable[..., None]) -> None:
    fake("idle")
    with (
        pytest.raises(lab.BccError, match="its probes were not attached after 1 s: Tracing"),
        lab.bcc(FAKE, timeout_s=1),
    ):
        pytest.fail("the block ran")


def test_one_that_fails_at_the_end_or_does_not_come_to_it(
    fake: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    fake("fails")
    with pytest.raises(lab.BccError, match="failed with exit status 1: on the last step") as error, lab.bcc(FAKE):
        pass
    assert error.value.output is not None
    assert error.value.output.histogram()["count"].values.tolist() == [7]
    fake("deaf")
    monkeypatch.setattr(process, "_STOP_S", 1.0)
    monkeypatch.setattr(process, "_AGAIN_S", 30.0)
    with pytest.raises(lab.BccError, match="it did not end and was killed"), lab.bcc(FAKE, timeout_s=1):
        pass


def test_a_tool_that_is_not_there() -> None:
    with pytest.raises(lab.UnsupportedError, match=r"'nosuchtool' of bcc's tools.*apt-get install libbpf-tools"):
        lab.bcc("nosuchtool")
    with pytest.raises(lab.InputError, match="no program '/nosuch/tool'"):
        lab.bcc("/nosuch/tool")
    assert lab.bcc(FAKE)._program == str(FAKE)


def test_the_names_that_distributions_give_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in ("a-tool-bpfcc", "a-tool", "a-tool-libbpf"):
        (tmp_path / name).write_text("")
        (tmp_path / name).chmod(0o755)
        assert lab.bcc("a-tool")._program == str(tmp_path / name)


def test_the_command_line(fake: Callable[..., None], capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    fake()
    assert main(["bcc", "--here", "--json", str(FAKE), "-D", "1", "--", "sh", "-c", "exit 5"]) == 5
    told = json.loads(capfd.readouterr().out)
    assert told["histogram"] == [{"low": 0, "high": 1, "count": 7}]
    assert "arguments: ['-D', '1']" in told["printed"]
    for wrong, said in (
        (["bcc", str(FAKE)], "no command to run it beside"),
        (["bcc", "nosuchtool", "--", "true"], "is not installed"),
    ):
        assert main(wrong) == 2 if "no command" in said else main(wrong) != 0
        assert said in capfd.readouterr().err
    kept = tmp_path / "kept.txt"
    kept.write_text(SLOWER)
    assert len(lab.read_bcc(kept).table()) == 3
    assert os.environ["FAKE"] == ""
