# SPDX-License-Identifier: MIT
from __future__ import annotations

import pytest

import sampleblk_lab as lab
from sampleblk_lab.recording.hist import hist_command, parse_hist
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


def test_stacks_and_symbols():
    rows = list(parse_hist(STACKS).rows())
    assert rows[0]["stacktrace"] == "vfs_open;kmem_cache_alloc"
    assert rows[1]["call_site"] == "vfs_write+0x10"


def test_entries_that_were_not_understood_are_an_error():
    with pytest.raises(lab.FormatError, match="2 entries, as its totals say; 1"):
        parse_hist(BY_PARENT.replace("{ parent_pid:        572 } hitcount:          1\n", ""))
    with pytest.raises(lab.FormatError, match="# event histogram"):
        parse_hist("nothing")


def test_commands_are_built():
    command = hist_command(["a.log2", "b"], ["c"], "hitcount", 512, "c > 1", "h", ["onmax($x).save(y)"], {"x": "now"})
    assert command == "hist:keys=a.log2,b:vals=c:x=now:sort=hitcount:size=512:name=h:onmax($x).save(y) if c > 1"


def test_trace_stat_of_several_cpus_is_joined():
    head = "  Function                               Hit    Time            Avg             s^2\n"
    one = head + "  tcp_push                               2    30.000 us     15.000 us       50.000 us\n"
    two = head + "  tcp_push                               1    30.000 us     30.000 us       0.000 us\n"
    hits, time, squares = parse_trace_stat([one, two])["tcp_push"]
    # the samples 10, 20 and 30
    assert (hits, time) == (3, 60.0)
    assert squares == pytest.approx(200.0)
