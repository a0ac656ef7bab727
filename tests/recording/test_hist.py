# SPDX-License-Identifier: MIT
from __future__ import annotations

from pathlib import Path

import pytest

import sampleblk_lab as lab
from sampleblk_lab.recording.hist import Hist, hist_command, parse_hist
from sampleblk_lab.recording.profile import parse_trace_stat

# From the ftrace article, shortened.
BY_PARENT = """# event histogram
#
# trigger info: hist:keys=parent_pid:vals=hitcount:sort=hitcount:size=2048 [active]
#

{ parent_pid:        572 } hitcount:          1
{ parent_pid:      24493 } hitcount:         24

Totals:
    Hits: 25
    Entries: 2
    Dropped: 3
"""

OF_EVERY_KIND = """# event histogram
#

{ id: sys_write             [  1], common_pid: fio     [  123], bytes: ~ 2^12 } hitcount:   10  bytes:  40960
{ id: sys_read              [  0], common_pid: a c    [  124], bytes: ~ 10-19 } hitcount:   2  bytes:     30

Totals:
    Hits: 12
    Entries: 2
    Dropped: 0
"""

STACKS = """# event histogram
#

{ stacktrace:
         kmem_cache_alloc+0x1a/0x20
         vfs_open+0x2d/0x30
} hitcount:          7
{ call_site: [ffffffff81234567] vfs_write+0x10                          } hitcount:          1

Totals:
    Hits: 8
    Entries: 2
    Dropped: 0
"""


def test_the_articles_histogram():
    table = parse_hist(BY_PARENT)
    assert list(table.rows()) == [{"parent_pid": 572, "hitcount": 1}, {"parent_pid": 24493, "hitcount": 24}]
    assert table.metadata["lost_events"] == "3"


def test_modifiers():
    rows = list(parse_hist(OF_EVERY_KIND).rows())
    assert rows[0] == {
        "id": "sys_write",
        "id_number": 1,
        "common_pid": "fio",
        "common_pid_number": 123,
        "bytes": 4096,
        "hitcount": 10,
        "bytes_sum": 40960,
    }
    assert rows[1]["bytes"] == 10


def test_what_is_below_zero_is_so_in_fields_that_have_signs(tmp_path: Path):
    """The kernel prints all without signs; as Linux 6.1 says it of pread64(2)."""
    (tmp_path / "format").write_text(
        "\tfield:int __syscall_nr;\toffset:8;\tsize:4;\tsigned:1;\n\tfield:long ret;\toffset:16;\tsize:8;\tsigned:1;\n"
        "\tfield:u64 at;\toffset:24;\tsize:8;\tsigned:0;\n"
    )
    entries = (
        "{ ret: 18446744073709551607 } hitcount:          3  ret: 18446744073709551589",
        "{ ret: ~ 2^64 } hitcount:          9",
        "{ ret: ~ 18446744073709551610-3 } hitcount:         33",
        "{ at: 18446744073709551607 } hitcount:          1",
        "{ at: ~ 2^64 } hitcount:          1",
    )
    rows = []
    for entry in entries:
        (tmp_path / "hist").write_text(f"# event histogram\n\n{entry}\n\nTotals:\n    Entries: 1\n")
        rows += Hist(str(tmp_path / "hist")).table().rows()
    assert rows == [
        {"ret": -9, "hitcount": 3, "ret_sum": -27},
        {"ret": -1, "hitcount": 9},
        {"ret": -6, "hitcount": 33},
        {"at": 2**64 - 9, "hitcount": 1},
        {"at": 2**64 - 1, "hitcount": 1},
    ]


def test_stacks_and_symbols():
    rows = list(parse_hist(STACKS).rows())
    assert rows[0]["stacktrace"] == "vfs_open;kmem_cache_alloc"
    assert rows[1]["call_site"] == "vfs_write+0x10"


def test_a_field_s_stack_has_no_colon():
    """As Linux 7.2 prints a key of a synthetic event."""
    text = """# event histogram
#
# trigger info: hist:keys=lat.buckets=100,stack.stacktrace:vals=hitcount:sort=hitcount:size=2048 [active]
#

{ lat: ~ 6400-6499, stack.stacktrace         __schedule+0x8e2/0x1060
         p9_client_rpc+0x160/0x420 [9pnet]
} hitcount:          1

Totals:
    Hits: 1
    Entries: 1
    Dropped: 0
"""
    assert list(parse_hist(text).rows()) == [{"lat": 6400, "stack": "p9_client_rpc;__schedule", "hitcount": 1}]
    alone = parse_hist(text.replace("lat.buckets=100,", "").replace("lat: ~ 6400-6499, ", ""))
    assert list(alone.rows()) == [{"stack": "p9_client_rpc;__schedule", "hitcount": 1}]


def test_texts_that_look_like_numbers_are_texts():
    """Such as dd, the program. Padded as hist_trigger_print_key() pads them."""
    names = ("dd", "1234", "a0 [12]", "a" * 60)
    entries = "".join(f"{{ pid: {pid:10}, comm: {name:<50} }} hitcount: {1:10}\n" for pid, name in enumerate(names))
    entries += f"{{ pid: {4:10}, comm: {'':<50} }} hitcount: {1:10}\n"
    table = parse_hist(f"# event histogram\n#\n\n{entries}\nTotals:\n    Hits: 5\n    Entries: 5\n    Dropped: 0\n")
    assert table["comm"].values.tolist() == [*names, ""]
    assert table["pid"].codes.tolist() == [0, 1, 2, 3, 4]
    reversed_keys = parse_hist(f"# event histogram\n\n{{ comm: {'dd':<35}, pid: {7:10} }} hitcount: {1:10}\n")
    assert list(reversed_keys.rows()) == [{"comm": "dd", "pid": 7, "hitcount": 1}]
    command = parse_hist(f"# event histogram\n\n{{ common_pid: {'dd':<16}[{7:10}] }} hitcount: {1:10}\n")
    assert list(command.rows()) == [{"common_pid": "dd", "common_pid_number": 7, "hitcount": 1}]


@pytest.mark.parametrize(
    "name",
    [
        "x, pid: 7",
        "} hitcount: 99",
        "a\nb",
        ", comm: , pid: ",
        "a, n: 3, pid: 9",
        "x" * 55 + ", n: 3",
        "[12] y",
        "{ pid: 3 }",
    ],
)
@pytest.mark.parametrize("order", [("comm", "pid"), ("pid", "comm"), ("comm",), ("pid", "comm", "n")])
def test_a_name_that_looks_like_the_rest_is_a_name(name, order):
    if len(name) > 50 and order[-1] != "comm":
        name = name.replace(",", ";")  # it is not padded, so that nothing tells where it ends
    printed = {"comm": f"comm: {name:<50}", "pid": f"pid: {5:10}", "n": f"n: {6:10}"}
    entry = f"{{ {', '.join(printed[key] for key in order)} }} hitcount: {3:10}  bytes: {70:10}\n"
    text = (
        f"# event histogram\n#\n# trigger info: hist:keys={','.join(order)}:vals=hitcount,bytes:size=64 [active]\n#\n\n"
    )
    [row] = parse_hist(text + entry + "\nTotals:\n    Hits: 3\n    Entries: 1\n    Dropped: 0\n").rows()
    values = {"comm": name.rstrip(), "pid": 5, "n": 6}
    assert row == {**{key: values[key] for key in order}, "hitcount": 3, "bytes": 70}


def test_hexadecimal_numbers_have_no_mark_of_it():
    info = "# event histogram\n#\n# trigger info: hist:keys=addr.hex,n:vals=hitcount,len.hex:sort=hitcount [active]\n"
    entries = "".join(f"{{ addr: {v:x}, n: {v:10} }} hitcount: {1:10}  len: {v:10x}\n" for v in (16, 160, 2**64 - 1))
    rows = list(parse_hist(info + entries).rows())
    assert [(row["addr"], row["n"], row["len"]) for row in rows] == [(v, v, v) for v in (16, 160, 2**64 - 1)]


def test_shares_and_bars_take_no_sum_away():
    """As Linux 7.2 prints them."""
    entries = "".join(
        f"{{ fd: {fd:10} }} hitcount: {hits:10}  hitcount (%): {share:6}  hitcount: {bar:20}  count: {count:10}\n"
        for fd, hits, share, bar, count in ((3, 1, 2.85, "", 832), (4, 34, 97.14, "#" * 20, 125307))
    )
    totals = "\nTotals:\n    Hits: 35\n    Entries: 2\n    Dropped: 0\n"
    rows = list(parse_hist(f"# event histogram\n#\n\n{entries}{totals}").rows())
    assert rows == [
        {"fd": 3, "hitcount": 1, "hitcount_percent": 2.85, "hitcount_graph": "", "count": 832},
        {"fd": 4, "hitcount": 34, "hitcount_percent": 97.14, "hitcount_graph": "#" * 20, "count": 125307},
    ]
    with pytest.raises(lab.FormatError, match="2 entries, as its totals say; 1"):
        parse_hist(f"# event histogram\n#\n\n{entries.replace('832', '8.3e2')}{totals}")


def test_what_onmax_and_onchange_keep_is_in_the_entrys_row():
    info = "# trigger info: hist:keys=next_pid:vals=hitcount:size=64:onmax($lat).save(next_comm,next_pid) [active]"
    entries = "".join(
        f"{{ next_pid: {pid:10} }} hitcount: {3:10}\n\tmax: {58:10}  next_comm: {name:<32}  next_pid: {pid:10}\n"
        for pid, name in ((14, "ksoftirqd/0"), (15, "12"), (16, "  next_pid: 9"))
    )
    text = f"# event histogram\n#\n{info}\n#\n\n{entries}\nTotals:\n    Hits: 9\n    Entries: 3\n    Dropped: 0\n"
    assert list(parse_hist(text).rows()) == [
        {"next_pid": pid, "hitcount": 3, "max": 58, "next_comm": name, "next_pid_saved": pid}
        for pid, name in ((14, "ksoftirqd/0"), (15, "12"), (16, "  next_pid: 9"))
    ]


def test_a_name_that_ends_inside_a_character_is_read(tmp_path: Path):
    (tmp_path / "format").write_text("")
    name = "abcdéééééé".encode()[:15]
    text = b"# event histogram\n\n{ common_pid: %-16s[%10d] } hitcount: %10d\n\nTotals:\n    Entries: 1\n" % (
        name,
        7,
        1,
    )
    (tmp_path / "hist").write_bytes(text)
    [row] = Hist(str(tmp_path / "hist")).table().rows()
    assert row == {"common_pid": "abcdééééé\ufffd", "common_pid_number": 7, "hitcount": 1}


def test_entries_that_were_not_understood_are_an_error():
    with pytest.raises(lab.FormatError, match="2 entries, as its totals say; 1"):
        parse_hist(BY_PARENT.replace("{ parent_pid:        572 } hitcount:          1\n", ""))
    with pytest.raises(lab.FormatError, match="# event histogram"):
        parse_hist("nothing")


def test_commands_are_built():
    command = hist_command(["a.log2", "b"], ["c"], "hitcount", 512, "c > 1", "h", ["onmax($x).save(y)"], {"x": "now"})
    assert command == "hist:keys=a.log2,b:vals=c:x=now:sort=hitcount:size=512:name=h:onmax($x).save(y) if c > 1"
    assert hist_command("ab", "cd", None, None, None, None, "ef", {}) == "hist:keys=ab:vals=cd:ef"


def test_trace_stat_of_several_cpus_is_joined():
    head = "  Function                               Hit    Time            Avg             s^2\n"
    one = head + "  tcp_push                               2    30.000 us     15.000 us       50.000 us\n"
    two = head + "  tcp_push                               1    30.000 us     30.000 us       0.000 us\n"
    hits, time, squares = parse_trace_stat([one, two])["tcp_push"]
    # the samples 10, 20 and 30
    assert (hits, time) == (3, 60.0)
    assert squares == pytest.approx(200.0)


def test_functions_whose_names_the_kernel_cuts_have_them_whole_or_are_told_to_be_several():
    head = "  Function                               Hit    Time            Avg             s^2\n"
    rows = (
        "  blk_mq_dispatch_rq_list_and_wa         2    30.000 us     15.000 us       50.000 us     \n"
        "  ext4_mb_discard_group_prealloc         1    10.000 us     10.000 us       0.000 us      \n"
        "  ext4_mb_discard_group_prealloc         1    20.000 us     20.000 us       0.000 us      \n"
    )
    functions = ["ext4_mb_discard_group_preallocations", "blk_mq_dispatch_rq_list_and_wait", "vfs_write"]
    functions += ["ext4_mb_discard_group_preallocs_of", *functions]
    found = parse_trace_stat([head + rows], functions)
    assert set(found) == {"blk_mq_dispatch_rq_list_and_wait", "ext4_mb_discard_group_prealloc…"}
    assert found["ext4_mb_discard_group_prealloc…"][:2] == (2, 30.0)
