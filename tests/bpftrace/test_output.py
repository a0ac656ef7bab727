# SPDX-License-Identifier: MIT
"""What bpftrace printed, read: a recording of each kind, and what is cut, mixed up or unknown."""

from __future__ import annotations

import json
import pickle
import random
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sampleblk_lab as lab
from sampleblk_lab.bpftrace import BpfOutput, Script

DATA = Path(__file__).parents[1] / "data" / "bpftrace"
RECORDED = DATA / "0.17-kinds"


def said(*records: object, script: str = "", **rest: object) -> BpfOutput:
    """What bpftrace would have printed of these."""
    lines = [json.dumps(record, ensure_ascii=False) for record in records]
    return BpfOutput(("\n".join(lines) + "\n").encode(), script=Script(script) if script else None, **rest)


def rows(found: BpfOutput, name: str = "@") -> list[tuple[object, ...]]:
    return [tuple(row.values()) for row in found.table(name)]


# --- a recording of bpftrace 0.17 on Linux 6.1, each kind once


@pytest.fixture(scope="module")
def recorded() -> BpfOutput:
    return lab.read_bpftrace(RECORDED)


def test_a_command_prints_all_keys_of_a_map(recorded):
    found = said({"type": "map", "data": {"@": {f"key{number}": number for number in range(100)}}})
    assert "key50" not in repr(found)
    assert all(f"key{number} " in found.text() for number in range(100))
    assert recorded.text() == repr(recorded)


def test_counts_of_dd_are_those_of_its_calls(recorded):
    calls = recorded["@calls"]
    assert calls.columns == ["comm", "key_count", "value"]
    assert {row["key_count"]: row["value"] for row in calls if row["key_count"] == 4096} == {4096: 10}
    assert set(calls["comm"]) == {"dd"}


def test_each_aggregation_agrees_with_the_counts(recorded):
    calls = [(row["key_count"], row["value"]) for row in recorded["@calls"]]
    number, total = sum(count for _, count in calls), sum(size * count for size, count in calls)
    sizes = recorded["@size_bytes"]
    assert sizes.columns == ["comm", "low", "high", "count"]
    assert sizes["low"].unit == sizes["high"].unit == "bytes"
    for row in sizes:
        assert row["count"] == sum(count for size, count in calls if row["low"] <= size <= row["high"])
    assert sum(row["count"] for row in sizes) == number
    linear = recorded["@linear"]
    for row in linear:
        assert row["count"] == sum(count for size, count in calls if row["low"] <= size <= row["high"])
    assert linear["high"].values.max() == 2**63 - 1
    assert rows(recorded, "@stats") == [(number, total // number, total)]
    assert [row[1:] for row in rows(recorded, "@each")] == [(number, total // number, total)]
    assert rows(recorded, "@mean_bytes") == [("dd", total // number)]
    assert recorded["@mean_bytes"]["value"].unit == "bytes"
    sums = recorded["@sum_bytes"]
    assert sums.columns == ["snapshot", "value"]
    assert sums["value"][-1] == total
    assert sums["value"].unit == "bytes"


def test_numbers_and_strings_as_they_are(recorded):
    assert rows(recorded, "@one") == [(1,)]
    assert rows(recorded, "@deep") == [(-5, -3)]
    assert rows(recorded, "@text") == [(1, "a,b\nc", 'x"y\\\n')]
    assert rows(recorded, "@low_ns") == [(-(2**63), -1, 1)]
    assert recorded["@low_ns"]["high"].unit == "ns"
    assert rows(recorded, "@low") == [(-(2**63), -1, 1)]
    assert rows(recorded, "@last") == [("dd", 1, "abc")]


def test_stacks_are_paths_from_the_outermost_frame(recorded):
    assert recorded["@from"].columns == ["ustack", "comm", "value"]
    switched = recorded["@switched"]
    assert switched.columns == ["kstack", "cpu", "value"]
    assert any(str(path).endswith("schedule") or ";__schedule" in str(path) for path in switched["kstack"])
    stacks = recorded.stacks("@switched")
    assert stacks.total == sum(row["value"] for row in switched)
    with pytest.raises(lab.InputError, match="not a map of counts"):
        recorded.stacks("@one")


@pytest.mark.parametrize("name", ["a\nb", "a\u2028b", "", " x 5", "a;b"])
def test_a_tasks_name_above_a_stack_is_one_frame(name):
    found = said(
        {"type": "map", "data": {"@": {f"{name},\n    f+1\n    g+2\n": 5}}}, script="a:b { @[comm, kstack] = count(); }"
    )
    assert found["@"]["kstack"][0] == "g;f"
    root = name.replace(";", ":").replace("\n", " ")
    assert found.stacks("@").folded() == f"{root};g;f 5\n"


def test_frames_that_are_printed_as_perf_does_are_functions():
    script = "a:b { @[ustack(perf)] = count(); @k[kstack(perf, 3)] = count(); }"
    user = "\n\t7f12 foo(int)+12 (/lib/x.so)\n\t7f99 0x7f99 ([unknown])\n\t5500 main+0x1f (/a b)\n"
    kernel = "\n\tffffffff8116a5a1 submit_bio+1\n\tffffffff8116a5b7 ext4_io+0\n"
    found = said({"type": "map", "data": {"@": {user: 1}}}, {"type": "map", "data": {"@k": {kernel: 1}}}, script=script)
    assert found["@"]["ustack"][0] == "main;0x7f99;foo(int)"
    assert found["@k"]["kstack"][0] == "ext4_io;submit_bio"


def test_a_text_with_lines_is_no_stack():
    text = "\n :\t\n"
    assert rows(said({"type": "map", "data": {"@": text}})) == [(text,)]
    assert rows(said({"type": "map", "data": {"@": "\n        g+1\n        f+2\n"}})) == [("f;g",)]


def test_what_was_printed_in_its_order(recorded):
    assert recorded.printed.startswith("hello 3\né, no line end")
    assert recorded.printed.endswith("end\n")
    messages = list(recorded.texts())
    assert messages[0] == {"kind": "printf", "text": "hello 3\n"}
    first = [row["kind"] for row in messages[1:8]]
    assert first == ["time", "printf", "value", "value", "cat", "syscall", "time"]
    assert [row["text"] for row in messages[3:7]] == ["text", '[1, 2, "a"]', "Linux\n", "hi\n"]


def test_what_a_full_map_drops_is_counted(recorded):
    """Its maps have 40 entries; @full is given one more at each switch of a task."""
    errors = recorded.helper_errors()
    assert len(recorded["@full"]) == 40
    lines = (RECORDED / "bpftrace.json").read_text().splitlines()
    [(where, told)] = Counter(line for line in lines if "helper_error" in line).items()
    assert told > 100
    place = next(
        n for n, line in enumerate((RECORDED / "script.bt").read_text().splitlines(), 1) if "@full[nsecs]" in line
    )
    assert list(errors) == [
        {
            "helper": "map_update_elem",
            "error": "Argument list too long",
            "line": place,
            "column": json.loads(where)["col"],
            "count": told,
        }
    ]
    assert recorded["@one"].metadata["helper_errors"] == str(told)
    assert "map_update_elem" in repr(recorded)
    assert "map_update_elem" in recorded._repr_html_()


def test_kept_opened_and_pickled_it_is_the_same(recorded, tmp_path):
    again = lab.read_bpftrace(recorded.save(tmp_path / "kept"))
    assert repr(again) == repr(recorded)
    said({"type": "map", "data": {"@": 1}}, incomplete="killed").save(tmp_path / "other")
    assert repr(lab.read_bpftrace(recorded.save(tmp_path / "other"))) == repr(recorded)
    assert repr(pickle.loads(pickle.dumps(recorded))) == repr(recorded)
    with pytest.raises(KeyError, match="no map '@none' was printed; there are '@sum_bytes', '@calls'"):
        recorded["@none"]
    assert "@none" not in recorded
    assert "@calls" in recorded


# --- keys


def test_without_the_script_a_key_stays_whole(tmp_path):
    (tmp_path / "out").write_text('{"type": "map", "data": {"@": {"a,1": 5, "b,2": 6}}}\n')
    assert list(lab.read_bpftrace(tmp_path / "out")["@"]) == [{"key": "a,1", "value": 5}, {"key": "b,2", "value": 6}]
    split = lab.read_bpftrace(tmp_path / "out", script="a:b { @[comm, cpu] = count(); }")["@"]
    assert list(split) == [{"comm": "a", "cpu": 1, "value": 5}, {"comm": "b", "cpu": 2, "value": 6}]


@pytest.mark.parametrize(
    ("keys", "text", "parts"),
    [
        ("comm, cpu", "a,b,1", ["a,b", "1"]),
        ("cpu, comm", "1,a,b", ["1", "a,b"]),
        ("kstack, comm", "\n    f(int, char)+1\n    g+2\n,a,b", ["g;f(int, char)", "a,b"]),
        ("comm, kstack(3)", "a,", ["a", ""]),
        ("comm", "a,b", ["a,b"]),
        ("comm, args->filename", "a,b,c", None),
        ("pid, cpu", "1,x", None),
        ("pid, cpu, tid", "1,2", None),
    ],
)
def test_a_comma_in_a_key_is_cut_at_only_where_there_is_one_way(keys, text, parts):
    found = said({"type": "map", "data": {"@": {text: 7}}}, script=f"a:b {{ @[{keys}] = count(); }}")["@"]
    [row] = found
    if parts is None:
        assert row == {"key": text, "value": 7}
    else:
        assert [str(value) for value in row.values()] == [*parts, "7"]


def test_very_many_commas_are_given_up_at_once():
    text = "a:b { @[comm, args->x, args->y, args->z, args->v] = count(); }"
    assert said({"type": "map", "data": {"@": {"," * 5000: 7}}}, script=text)["@"].columns == ["key", "value"]


def test_keys_that_are_printed_alike_stay_apart():
    line = b'{"type": "map", "data": {"@": {"same": 1, "same": 2}}}\n'
    assert rows(BpfOutput(line)) == [("same", 1), ("same", 2)]


# --- numbers


def test_large_numbers_are_exact():
    big = 2**63 + 1
    found = said({"type": "map", "data": {"@": {"1": big, "2": 3}}})["@"]
    assert found["value"].type == "uint64"
    assert list(found["value"]) == [big, 3]
    # As newer releases have them.
    assert list(said({"type": "map", "data": {"@": {"1": str(big), "2": 3}}})["@"]["value"]) == [big, 3]
    assert list(said({"type": "map", "data": {"@": {"1": "12", "2": "x"}}})["@"]["value"]) == ["12", "x"]
    assert list(said({"type": "map", "data": {"@": {"1": big, "2": -3}}})["@"]["value"]) == [str(big), "-3"]


def test_stacks_as_bpftrace_0_23_escapes_them():
    # As it printed them: with a backslash and an n where a line ends.
    frames = "\\n        syscall_trace_enter+339\\n        do_syscall_64+330\\n"
    script = 'a:b { @d["R", 7, kstack(2), "a"] = count(); }'
    line = {"type": "map", "data": {"@d": {f"R,7,{frames},a": 51}}}
    older = {"type": "map", "data": {"@d": {f"R,7,{frames},a".replace("\\n", "\n"): 51}}}
    newer = list(said(line, script=script)["@d"])
    assert newer == list(said(older, script=script)["@d"])
    [row] = newer
    assert list(row.values()) == ["R", 7, "do_syscall_64;syscall_trace_enter", "a", 51]


def test_keys_that_bpftrace_0_22_and_0_23_escape_twice_come_back():
    """Values are escaped once; so are keys of other releases, in which a backslash is one."""
    lines = rb"""{"type": "map", "data": {"@": {"a\\\\b,1": "c\\d", "n\\uffffffc3\\uffffffa4,2": "x"}}}
{"type": "map", "data": {"@q": {"\\\"q\\\"": 1, "p,q\\t": 2, "\\uffffffff\\u0001": 3}}}
"""
    script = Script("a:b { @[comm, cpu] = comm; @q[comm] = count(); }")
    found = BpfOutput(lines, script=script)
    assert rows(found) == [("a\\b", 1, "c\\d"), ("nä", 2, "x")]
    assert rows(found, "@q") == [('"q"', 1), ("p,q\t", 2), ("\\xff\x01", 3)]
    # A key that is escaped once says that all are.
    once = BpfOutput(lines + b'{"type": "map", "data": {"@r": {"x\\\\x2dy": 5}}}\n', script=script)
    assert rows(once, "@r") == [("x\\x2dy", 5)]
    assert rows(once, "@q")[:2] == [('\\"q\\"', 1), ("p,q\\t", 2)]


def test_counts_that_bpftrace_0_24_prints_in_hex():
    """From the first character on that is no printable ASCII: its JSON writer leaves the stream in hex."""
    buckets = '{"max": -1, "count": %s},{"min": 0, "max": 12, "count": %s}'
    text = """{"type": "attached_probes", "count": 12, "data": {"probes": 12}}
{"type": "lost_events", "count": 10, "data": {"events": 10}}
{"type": "hist", "data": {"@": {"a": [A], "\\uffffffc3\\uffffffa4": [B], "count": [B]}}}
{"type": "stats", "data": {"@s": {"a": {"count": 10, "average": 11, "total": 110}}}}
{"type": "map", "data": {"@m": 10}}
{"type": "lost_events", "count": 1f, "data": {"events": 1f}}
{"type": "tseries", "data": {"@t": {"a": [{"interval_start":"x","value":1f}]}}}
"""
    found = BpfOutput(text.replace("A", buckets % (10, 11)).replace("B", buckets % ("10", "ff")).encode())
    lows = (-(2**63), -1), (0, 12)
    assert [row[3] for row in rows(found)] == [10, 11, 16, 255, 16, 255]
    assert [row[1:3] for row in rows(found)] == [*lows, *lows, *lows]
    assert rows(found, "@s") == [("a", 10, 11, 110)]
    assert rows(found, "@m") == [(10,)]
    assert rows(found, "@t") == [("a", "x", 31)]
    assert (found.lost_events, found.unread_lines, found.probes) == (10 + 31, 0, 12)
    # Older releases do not.
    old = text.partition("\n")[2].replace("A", buckets % (10, 11)).replace("B", buckets % (10, 10)).replace("1f", "15")
    assert [row[3] for row in rows(BpfOutput(old.encode()))] == [10, 11, 10, 10, 10, 10]


def test_an_empty_map_is_no_snapshot_and_has_no_kind():
    """bpftrace 0.24 prints it as a "map", whatever it is."""
    buckets = [{"min": 1, "max": 1, "count": 4}]
    empty = {"type": "map", "data": {"@": {}}}
    found = said(empty, {"type": "hist", "data": {"@": {"a": buckets}}}, empty)
    assert rows(found) == [("a", 1, 1, 4)]
    assert found.unread_lines == 0
    assert said(empty).maps == []


def test_the_last_bucket_of_older_histograms_has_all_from_2_to_the_31_on():
    # bpftrace 0.17 of hist(1 << 30), hist(1 << 31) and hist(1 << 40): it computes the ends in 32 bits.
    buckets = [{"min": 2**30, "max": 2**31 - 1, "count": 1}, {"min": -(2**31), "max": 0, "count": 2}]
    found = said({"type": "hist", "data": {"@latency_ns": {"a": buckets}}})
    assert rows(found, "@latency_ns") == [("a", 2**30, 2**31 - 1, 1), ("a", 2**31, 2**63 - 1, 2)]


def test_values_that_print_divides_have_no_unit():
    script = "a:b { @x_ns = max(1); @h_ns = hist(1); } END { print(@x_ns, 0, 1000); print(@h_ns, 0, 1000); }"
    buckets = [{"min": 1, "max": 1, "count": 4}]
    found = said({"type": "map", "data": {"@x_ns": 5}}, {"type": "hist", "data": {"@h_ns": buckets}}, script=script)
    assert found["@x_ns"]["value"].unit == ""
    assert found["@h_ns"]["low"].unit == "ns"  # of a histogram it divides the counts


def test_the_last_bucket_of_lhist_begins_where_the_one_before_ends():
    # bpftrace 0.17 of lhist(49, 0, 50, 7): it is in what is told to be from 50 on.
    buckets = [{"max": -1, "count": 1}, {"min": 0, "max": 41, "count": 0}, {"min": 42, "max": 48, "count": 2}]
    found = said({"type": "hist", "data": {"@": [*buckets, {"min": 50, "count": 3}]}})
    assert rows(found)[-2:] == [(42, 48, 2), (49, 2**63 - 1, 3)]
    alone = {"type": "hist", "data": {"@": [{"min": 50, "count": 3}]}}
    assert rows(said(alone)) == [(50, 2**63 - 1, 3)]
    assert rows(said(alone, script="a:b { @ = lhist(f(1, 2), 0, 50, 7); }")) == [(49, 2**63 - 1, 3)]
    assert rows(said(alone, script="a:b { @ = lhist(1, 0, 50, 10); }")) == [(50, 2**63 - 1, 3)]
    assert rows(said(alone, script="a:b { @ = lhist(1, 0, $1, 0); }")) == [(50, 2**63 - 1, 3)]


def test_a_histogram_without_a_bucket_has_its_columns():
    # What bpftrace prints after zero().
    found = said({"type": "hist", "data": {"@x_ns": {"a": []}}})["@x_ns"]
    assert found.columns == ["key", "low", "high", "count"]
    assert (found["count"].values.sum(), found["low"].unit) == (0, "ns")


def test_newer_kinds():
    found = said(
        {"type": "attached_probes", "count": 3, "data": {"probes": 3}},
        {"type": "tseries", "data": {"@": {"a": [{"interval_start": "x", "value": 3}]}}},
        {"type": "warnf", "msg": "careful", "filename": "x", "line": 3, "col": 1},
        {"type": "lost_events", "count": 7, "data": {"events": 7}},
        {"type": "lost_events", "data": {"events": 2}},
        {"type": "helper_error", "msg": "no", "helper": "probe_read", "retcode": -14, "line": 2, "col": 5},
        # bpftrace 0.23 of a missing key
        {"type": "helper_error", "msg": "no", "helper": "map_lookup_elem", "retcode": 0, "line": 10, "col": 5},
        {"type": "brand_new", "data": 1},
        {"type": "map", "data": {"@b": {"true": True, "x": None}}},
    )
    assert found.probes == 3
    assert list(found["@"]) == [{"key": "a", "interval_start": "x", "value": 3}]
    assert found.warnings == ["warnf: careful (line 3)"]
    assert found.lost_events == 9
    assert found.helper_errors()["error"][0] == "Bad address"
    assert found.unknown_kinds == {"brand_new": 1}
    assert found["@"].metadata == {
        "lost_events": "9",
        "helper_errors": "1",
        "unknown_kinds": "brand_new (1)",
        "warnings": "warnf: careful (line 3)",
    }


def test_bytes_that_are_no_ascii_come_back():
    line = b'{"type": "map", "data": {"@": {"\\uffffffc3\\uffffffa4": 1, "\\\\uffffffc3": 2, "\\uffffffff": 3}}}\n'
    assert rows(BpfOutput(line)) == [("ä", 1), ("\\uffffffc3", 2), ("\\xff", 3)]


# --- what is cut, mixed up or malformed


MAP = b'{"type": "map", "data": {"@": {"1": 5}}}'


@pytest.mark.parametrize(
    ("output", "unread"),
    [
        (b"text\n" + MAP + b"\n", 1),
        (b"text" + MAP + b"\n", 1),
        (MAP + b"text\n", 1),
        (MAP + MAP.replace(b"@", b"@b") + b"\n", 0),
        (b'{"type": "printf", "data": "cut' + MAP + b"\n", 1),
        (b'{"type": "printf", "da\n' + MAP + b"\n", 1),
        (b"[1, 2]\n\n\n" + MAP, 1),
        (b'{"type": "hist", "data": {"@h": [{"min": 1, "max": 2}]}}\n' + MAP, 1),
        (b'{"type": "hist", "data": {"@h": [{"min": 3, "max": 2, "count": 1}]}}\n' + MAP, 1),
        (b'{"type": "hist", "data": {"@h": 7}}\n' + MAP, 1),
        (b'{"type": "stats", "data": {"@h": {"x": {"count": 1}}}}\n' + MAP, 1),
        (b'{"type": "map", "data": {"h": 7}}\n' + MAP, 1),
        (b'{"type": "map", "data": 7}\n{"type": "map"}\n{"type": 7}\n' + MAP, 3),
        (MAP + b'\n{"type": "hist", "data": {"@": [{"min": 1, "max": 2, "count": 1}]}}\n', 1),
        (b'{"type": "map", "data": ' + b"[" * 100000 + b"\n" + MAP, 1),
        (b'{"type": "lost_events", "data": {}}\n' + MAP, 1),
        (b'{"type": "printf", "data": "\\ud800"}\n' + MAP, 1),
        (b'{"type": "printf", "data": "\\ud83d\\ude00"}\n' + MAP, 0),
        (b'{"type": "helper_error", "helper": "x", "retcode": 99999999999999}\n' + MAP, 1),
    ],
)
def test_what_cannot_be_read_is_counted_and_the_rest_is_read(output, unread):
    found = BpfOutput(output)
    assert rows(found) == [("1", 5)] or rows(found) == [(1, 5)]
    assert found.unread_lines == unread
    assert found["@"].metadata.get("unread_lines", "0") == str(unread)


def test_a_cut_output_says_so():
    assert BpfOutput(MAP + b"\n" + MAP[:20]).incomplete == "its last line is cut"
    assert "incomplete: its last line is cut" in repr(BpfOutput(MAP + b"\n" + MAP[:20]))
    assert BpfOutput(MAP + b"\n").incomplete == ""
    assert said({"type": "map", "data": {"@": 1}}, incomplete="killed")["@"].metadata["incomplete"] == "killed"


def test_a_file_of_something_else_is_refused(tmp_path):
    (tmp_path / "x").write_text("Attaching 3 probes...\n@: 5\n")
    with pytest.raises(lab.FormatError, match="bpftrace -f json"):
        lab.read_bpftrace(tmp_path / "x")


def lines_of(found: BpfOutput) -> dict[str, list[str]]:
    return {name: [str(row) for row in found[name]] for name in found.maps if "snapshot" not in found[name]}


@pytest.mark.parametrize("seed", range(40))
def test_a_damaged_recording_gives_what_is_whole_and_nothing_else(recorded, seed):
    """Lines that are whole are read as ever, whatever else is cut, lost, doubled or put between."""
    chance = random.Random(seed)
    output = (RECORDED / "bpftrace.json").read_bytes()
    kept, damaged = [], []
    for line in output.splitlines(keepends=True):
        fate = chance.random()
        if fate < 0.15 and len(line) > 40:
            damaged.append(line[: chance.randrange(1, len(line) - 2)] + b"\n")
        elif fate < 0.3:
            damaged += [bytes(chance.randrange(32, 127) for _ in range(chance.randrange(60))) + b"\n", line]
            kept.append(line)
        else:
            damaged.append(line)
            kept.append(line)
    script = recorded._script
    assert lines_of(BpfOutput(b"".join(damaged), script=script)) == lines_of(BpfOutput(b"".join(kept), script=script))


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_no_bytes_stop_the_reader(data):
    output = bytearray((RECORDED / "bpftrace.json").read_bytes()[:6000])
    for _ in range(data.draw(st.integers(0, 8))):
        place = data.draw(st.integers(0, len(output)))
        output[place : place + data.draw(st.integers(0, 30))] = data.draw(
            st.binary(max_size=20)
            | st.sampled_from([b'{"type"', b"\n", b"1e999", b"9" * 25, b"null", b"{}", b"[]", b'"', b"\\ud800"])
        )
    found = BpfOutput(bytes(output), bytes(output[:200]), script=Script((RECORDED / "script.bt").read_text()))
    assert "lost_events" in repr(found)
    for name in found.maps:
        assert len(list(found[name])) == len(found[name])
    found.texts()


# --- tools that print lines


def printed(text: str) -> BpfOutput:
    return said({"type": "printf", "data": text})


BIOSNOOP = """\
TIME(ms)     DISK    COMM             PID    LAT(ms)
611          nvme0n1 bash             4179        10
611          nvme0n1 tokio worker     4180         0
"""


def test_lines_under_a_header_are_a_table():
    table = printed(BIOSNOOP).printed_table()
    assert list(table) == [
        {"TIME": 611, "DISK": "nvme0n1", "COMM": "bash", "PID": 4179, "LAT": 10},
        {"TIME": 611, "DISK": "nvme0n1", "COMM": "tokio worker", "PID": 4180, "LAT": 0},
    ]
    assert table["LAT"].unit == "ms"
    assert table.metadata["unread_rows"] == "0"


def test_lines_that_several_functions_print():
    """Those of syncsnoop.bt and execsnoop.bt."""
    syncs = [
        ("printf", "TIME      PID    COMM             EVENT\n"),
        ("time", "11:02:03  "),
        ("printf", "12     sh               t:s\n"),
    ]
    execs = [("printf", "TIME(ms)   PID   ARGS\n")]
    for pid in (4179, 4180):
        execs += [("printf", f"{611:<10} {pid:<5} "), ("join", f"ls -l {pid}")]
    found = said(*({"type": kind, "data": text} for kind, text in syncs))
    assert list(found.printed_table()) == [{"TIME": "11:02:03", "PID": 12, "COMM": "sh", "EVENT": "t:s"}]
    assert "11:02:03  12 " in repr(found)
    assert "11:02:03  12 " in found._repr_html_()
    found = said(*({"type": kind, "data": text} for kind, text in execs))
    assert [(row["PID"], row["ARGS"]) for row in found.printed_table()] == [(4179, "ls -l 4179"), (4180, "ls -l 4180")]


def test_a_line_that_does_not_fit_is_counted_not_guessed():
    text = (
        BIOSNOOP
        + "612          nvme0n1-part7 x      4181         1\n"
        + "613                  bash             1  2\n\n"
    )
    table = printed("Tracing... Hit Ctrl-C to end.\n" + text).printed_table()
    assert len(table) == 2
    assert table.metadata["unread_rows"] == "2"
    assert len(printed(BIOSNOOP.splitlines()[0]).printed_table()) == 0
    with pytest.raises(lab.InputError, match="header"):
        printed("a b\n1 2\n").printed_table()
    assert list(printed("a b c\n1 2 3 4\n").printed_table(header="a b c")) == [{"a": 1, "b": 2, "c": "3 4"}]
