# SPDX-License-Identifier: MIT
"""Where a script is found, and what of its text is understood."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import sampleblk_lab as lab
from sampleblk_lab.bpftrace import Script, find, names
from sampleblk_lab.bpftrace.script import Key, probe_lists, unit_of


def keys(text: str, name: str = "@") -> tuple[Key, ...] | None:
    return Script(text).maps[name].keys


def test_the_keys_of_a_map_are_named_and_typed_as_the_script_has_them():
    text = (
        "tracepoint:a:b { @[comm, args->count, args.bytes, pid, kstack(3), str(args->name), $size, (uint64)arg0, "
        '-3, "x,y", ((struct request *)arg0)->q->disk->disk_name, f(1)] = count(); }'
    )
    assert keys(text) == (
        Key("comm", "text"),
        Key("count"),
        Key("bytes"),
        Key("pid", "number"),
        Key("kstack", "stack"),
        Key("name", "text"),
        Key("size"),
        Key("arg0", "number"),
        Key("key_8", "number"),
        Key("key_9", "text"),
        Key("disk_name"),
        Key("key_11"),
    )


def test_comments_and_strings_are_no_code():
    text = '// @a[1, 2] = count();\n/* @b[1] = 1; */ BEGIN { printf("@c[1] // not a comment"); @d[tid] = nsecs; }'
    assert set(Script(text).maps) == {"@d"}


def test_two_uses_of_a_map_that_disagree_leave_its_keys_unknown():
    assert keys("a:b { @[1] = 1; @[1, 2] = 1; }") is None
    assert keys("a:b { @x = 1; }", "@x") == ()


@pytest.mark.parametrize(
    ("text", "unit"),
    [
        ("@took_ns = hist(nsecs - @s[tid]);", "ns"),
        ("@usecs = hist(1);", "us"),
        ("@bytes[comm] = sum(args->bytes);", "bytes"),
        ("@bytes[args->bytes] = count();", ""),
        ("@bytes[args->bytes]++;", ""),
        ("@start = nsecs;", "ns"),
        ("@since[tid] = nsecs - @s[tid]; @since[tid] = 0 }", ""),
        ("@since[tid] = nsecs - @s[args->pid, tid] }", "ns"),
        ("@start = nsecs(sw_tai);", "ns"),
        ("@start = nsecs / 1000;", ""),
        ("@start_us = nsecs / 1000;", "us"),
        ("@since = elapsed >> 10 }", ""),
        ("@since = nsecs - @s[tid] / 1000;", ""),
        ("@bonus = 1;", ""),
    ],
)
def test_units_are_those_that_names_end_in_but_for_counts(text, unit):
    [name] = [name for name in Script(f"a:b {{ {text} }}").maps if name != "@s"]
    assert Script(f"a:b {{ {text} }}").maps[name].unit == unit


@pytest.mark.parametrize(
    ("printed", "divided"),
    [
        ("print(@x_ns, 0, 1000)", True),
        ("print(@x_ns, 5, $1)", True),
        ("print(@x_ns, 5)", False),
        ("print(@x_ns, 0, 1)", False),
        ("print(@x_ns)", False),
        ("print(@y, 0, 1000)", False),
        ('printf("print(@x_ns, 0, 5)")', False),
    ],
)
def test_print_may_divide_a_maps_values(printed, divided):
    found = Script(f"a:b {{ @x_ns = max(1); @y = 1; }} END {{ {printed}; }}").maps["@x_ns"]
    assert (found.divided, found.unit) == (divided, "ns")


@pytest.mark.parametrize(
    ("expression", "name"),
    [
        ("512 * args->nr_bytes", "key_0"),
        ("args->end_ns - args->begin_ns", "key_0"),
        ("args->a + args->b_ns", "key_0"),
        ("((struct bio *)arg0)->bi_iter.bi_size", "bi_size"),
        ("(struct bio *) arg0->x", "x"),
        ("*args->x", "x"),
        ("(*args).x", "x"),
    ],
)
def test_what_is_calculated_has_not_the_name_of_its_last_part(expression, name):
    assert keys(f"a:b {{ @[{expression}] = count(); }}") == (Key(name),)


def test_units_of_names():
    assert [unit_of(name) for name in ("@latency_ns", "size_bytes", "@ms", "@", "@items", "ns")] == [
        *("ns", "bytes", "ms", "", "", "ns")
    ]


def test_lists_of_probes():
    text = 'BEGIN { printf("a:b {"); }\nkprobe:a,\nkprobe:__a\n/@x[1] != 0/ { }\ninterval:s:1{ exit(); } END { }'
    assert probe_lists(text) == [["kprobe:a", "kprobe:__a"], ["interval:s:1"]]


def test_scripts_are_found_by_name_path_and_text(tmp_path):
    path = tmp_path / "my.bt"
    path.write_text("BEGIN { exit(); }")
    assert find(path).text == find(str(path)).text == "BEGIN { exit(); }"
    assert find("BEGIN { }") == Script("BEGIN { }")
    assert {"block-latency", "io-sizes"} <= set(names())
    # What an end clears is not what a script is for: each has a map or a line that stays.
    for name in names():
        assert (
            set(find(name).maps) - set(re.findall(r"clear\((@\w+)\)", find(name).text)) or "printf" in find(name).text
        )
    assert Path(find("io-sizes").source).name == "io-sizes.bt"
    assert find("io-sizes.bt") == find("io-sizes")
    for wrong in ("", "no-such-tool", "no/such.bt"):
        with pytest.raises(lab.InputError):
            find(wrong)


@pytest.mark.parametrize("name", names())
def test_each_script_of_ours_probes_tracepoints_only_and_says_what_it_does(name):
    text = find(name).text
    assert text.startswith("// SPDX-License-Identifier: MIT\n// ")
    probes = [probe for group in probe_lists(text) for probe in group]
    assert probes
    assert all(probe.startswith("tracepoint:") for probe in probes)
    assert all(one.keys is not None for one in find(name).maps.values())


def test_the_scripts_of_ours_share_no_map():
    used = [one for name in names() for one in find(name).maps]
    assert len(used) == len(set(used)) > 5
