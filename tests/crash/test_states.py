# SPDX-License-Identifier: MIT
"""The states that the core enumerates, held against an enumeration in plain Python that shares nothing with it."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import itertools
import os
import random
import re
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crash.logs import DISCARD, FLUSH, FUA, MARK, SECTOR, Op, journal, log_writes
from sampleblk_lab import FormatError, InputError, SampleblkError, ToolError, UnsupportedError, crash
from sampleblk_lab._native import core
from sampleblk_lab.crash import reproduce, workers
from sampleblk_lab.crash.explore import reduce
from sampleblk_lab.crash.resident import ResidentTools

SECTORS = 6


def _fill(number: int, sectors: int) -> bytes:
    return b"".join(bytes([number, i]) * (SECTOR // 2) for i in range(sectors))


@st.composite
def recordings(draw: st.DrawFn, most: int = 6) -> list[Op]:
    """Up to `most` writes and some flushes, of which any may be on their way at the same time."""
    ops: list[dict[str, object]] = []
    for number in range(draw(st.integers(1, most))):
        sector = draw(st.integers(0, SECTORS - 1))
        sectors = draw(st.integers(1, min(3, SECTORS - sector)))
        kind = draw(st.sampled_from(["write", "write", "write", "zeroes"]))
        # Now and then the same contents, so that different states are the same image.
        data = sectors if kind == "zeroes" else _fill(draw(st.sampled_from([number + 1, 1])), sectors)
        ops.append(
            {
                "kind": kind,
                "sector": sector,
                "data": data,
                "fua": draw(st.booleans()) and draw(st.booleans()),
                "atomic": kind == "write" and draw(st.integers(0, 4)) == 0,
                "failed": draw(st.integers(0, 9)) == 0,
            }
        )
    for _ in range(draw(st.integers(0, 3))):
        ops.insert(draw(st.integers(0, len(ops))), {"kind": "flush", "failed": draw(st.integers(0, 5)) == 0})
    # Submitted in the order of execution, completed at any time later, some never.
    rng = random.Random(draw(st.integers(0, 2**32)))
    events: list[tuple[int, str]] = []
    for i in range(len(ops)):
        at = rng.randrange(events.index((i - 1, "submit")) + 1, len(events) + 1) if i else 0
        events.insert(at, (i, "submit"))
    for i in range(len(ops)):
        if rng.random() < 0.85:
            events.insert(rng.randrange(events.index((i, "submit")) + 1, len(events) + 1), (i, "complete"))
    orders = {event: order for order, event in enumerate(events, 1)}
    return [
        Op(submit=orders[i, "submit"], complete=orders.get((i, "complete"), 0), **op)  # type: ignore[arg-type]
        for i, op in enumerate(ops)
    ]


def _image(contents: list[dict[int, bytes]]) -> bytes:
    image = [bytes(SECTOR)] * SECTORS
    for one in contents:
        for sector, data in one.items():
            image[sector] = data
    return b"".join(image)


def _durable(op: Op, ops: list[Op], now: int, *, flush: bool = True, fua: bool = True) -> bool:
    """writeback_cache_control.rst: FUA when it has completed; else a flush submitted after that has completed."""
    if op.failed or not 0 < op.complete < now:
        return False
    flushed = flush and any(
        one.kind == "flush" and not one.failed and op.complete < one.submit and 0 < one.complete < now for one in ops
    )
    return flushed or (fua and op.fua)


def _image_of(state: crash.State, ops: list[Op]) -> bytes:
    """A state's image: its log's sequences are places in `ops`, from 1."""
    there = state.log.sequences[state.log.order[: state.submitted]]
    return _image([op.contents for number, op in enumerate(ops, 1) if number in there and number not in state.lost])


def _left_by_crashes(
    ops: list[Op], *, torn: int = 0, since: int = 0, until: int = 1 << 32, **promises: bool
) -> set[bytes]:
    """The image after a crash from `since` on and before `until`, with any of the writes that are not durable then.

    Or all of them, with one of these ended where a block of the disk ends: `torn` sectors each.
    """
    found = set()
    for now in range(since, min(until, 4 * len(ops) + 3)):
        there = [op for op in ops if op.contents and op.submit < now]
        volatile = [op for op in there if not _durable(op, ops, now, **promises)]
        for lost in itertools.product([False, True], repeat=len(volatile)):
            gone = [op for op, is_lost in zip(volatile, lost, strict=True) if is_lost]
            kept = [op for op in there if op not in gone]
            found.add(_image([op.contents for op in kept]))
            if torn and not gone:
                for op in volatile:
                    for length in range(1, len(op.contents) if not op.atomic else 0):
                        if (op.sector + length) % torn:
                            continue
                        begin = {sector: op.contents[sector] for sector in sorted(op.contents)[:length]}
                        found.add(_image([begin if one is op else one.contents for one in there]))
    return found


def _log(folder: Path, data: bytes, **options: bool) -> crash.Log:
    (folder / "log").write_bytes(data)
    return crash.Log(folder / "log", base="zeros", size_bytes=SECTORS * SECTOR, **options)


def _built(log: crash.Log, model: crash.Model, folder: Path) -> dict[bytes, list[crash.State]]:
    """The images of all states, and the states of each; the core's digest tells images apart as their bytes do."""
    image = core.CrashImage(log.native, str(folder / "image"), "", log.size_bytes)
    found: dict[bytes, list[crash.State]] = {}
    digests: dict[bytes, bytes] = {}
    for state in log.states(model):
        image.take(state.native)
        image.write()
        data = (folder / "image").read_bytes()
        found.setdefault(data, []).append(state)
        assert digests.setdefault(image.digest, data) == data
    assert len(digests) == len(found)
    return found


ALL = crash.Reorder(complete_up_to=24)
_HYPOTHESIS = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@_HYPOTHESIS
@given(ops=recordings(), promises=st.sampled_from([{}, {}, {"flush": False}, {"fua": False}]))
def test_all_subsets_are_those_of_plain_python(tmp_path: Path, ops: list[Op], promises: dict[str, bool]) -> None:
    log = _log(tmp_path, journal(ops), **promises)
    found = _built(log, ALL, tmp_path)
    assert set(found) == _left_by_crashes(ops, **promises)
    states = list(log.states(ALL))
    assert len(states) == log.count(ALL) == len({(state.submitted, tuple(state.lost)) for state in states})


@_HYPOTHESIS
@given(ops=recordings(), block=st.sampled_from([1, 2, 3, 8]))
def test_torn_writes_are_those_of_plain_python(tmp_path: Path, ops: list[Op], block: int) -> None:
    log = _log(tmp_path, journal(ops))
    torn = crash.Torn(block_bytes=block * SECTOR)
    found = {**_built(log, ALL, tmp_path), **_built(log, torn, tmp_path)}
    assert set(found) == _left_by_crashes(ops, torn=block)
    assert log.count(torn) == len(list(log.states(torn)))
    # Drawn ones are torn at both ends, there as well.
    for state in itertools.islice(log.states(crash.Sample(block_bytes=block * SECTOR)), 300):
        for sequence, first, count in state.torn:
            op = ops[sequence - 1]
            ends = (op.sector + first, op.sector + first + count)
            assert 0 < count < len(op.contents)
            assert not op.atomic
            assert all(at % block == 0 or at in (op.sector, op.sector + len(op.contents)) for at in ends)


@pytest.mark.parametrize(("says", "block"), [(4096, 4096), (512, 512), (0, 512), (None, 512)])
def test_writes_are_torn_between_the_blocks_that_the_log_knows(tmp_path: Path, says: int | None, block: int) -> None:
    log = _log(tmp_path, journal([Op("write", 1, 2, 8, b"w" * (3 * 4096))], block=says))
    assert log.block_bytes == (says or None)
    ends = [sectors for state in log.states(crash.Torn(places=99)) for _, _, sectors in state.torn]
    assert ends == list(range(block // SECTOR, 24, block // SECTOR))
    drawn = itertools.islice(log.states(crash.Sample()), 300)
    assert {at * SECTOR % block for state in drawn for _, *part in state.torn for at in part} == {0}
    assert log.count(crash.Torn(512, places=99)) == 1 + 23


def test_a_log_of_dm_log_writes_has_the_block_of_its_disk(tmp_path: Path) -> None:
    log = _log(tmp_path, log_writes((0, 1, b"w" * 8192), sector_bytes=4096))
    assert log.block_bytes == 4096
    assert [state.torn for state in log.states(crash.Torn())] == [[], [(1, 0, 8)]]


def test_a_block_that_no_disk_has_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="a logical block of a power of two"):
        _log(tmp_path, journal([], block=3))


@_HYPOTHESIS
@given(ops=recordings(), at_most=st.integers(0, 2), complete_up_to=st.integers(0, 3))
def test_bounded_models_are_subsets(tmp_path: Path, ops: list[Op], at_most: int, complete_up_to: int) -> None:
    log = _log(tmp_path, journal(ops))
    model = crash.Reorder(complete_up_to=complete_up_to, at_most=at_most)
    keys = [(state.submitted, tuple(state.lost)) for state in log.states(model)]
    everything = {(state.submitted, tuple(state.lost)) for state in log.states(ALL)}
    assert len(keys) == len(set(keys)) == log.count(model)
    assert everything.issuperset(keys)
    for submitted, lost in everything:
        open_writes = (
            next(len(state.lost) for state in reversed(list(log.states(ALL))) if state.submitted == submitted)
            if submitted
            else 0
        )
        wanted = open_writes <= complete_up_to or len(lost) <= at_most or open_writes - len(lost) <= at_most
        assert ((submitted, lost) in keys) == wanted


@_HYPOTHESIS
@given(ops=recordings(), seed=st.integers(0, 2**64 - 1))
def test_samples_are_states_that_can_be_and_the_same_for_a_seed(tmp_path: Path, ops: list[Op], seed: int) -> None:
    log = _log(tmp_path, journal(ops))
    drawn = list(itertools.islice(log.states(crash.Sample(seed=seed)), 50))
    assert drawn == list(itertools.islice(log.states(crash.Sample(seed=seed)), 50))
    image = core.CrashImage(log.native, str(tmp_path / "image"), "", log.size_bytes)
    can_be = _left_by_crashes(ops)
    for state in drawn:
        image.take(state.native)  # refuses what is durable
        if not state.torn:
            image.write()
            assert (tmp_path / "image").read_bytes() in can_be


@_HYPOTHESIS
@given(ops=recordings())
def test_marks_are_those_that_a_crash_after_them_may_leave_so(tmp_path: Path, ops: list[Op]) -> None:
    # A mark between any two events.
    doubled = [
        Op(one.kind, 2 * one.submit, 2 * one.complete, one.sector, one.data, one.fua, one.atomic, one.failed)
        for one in ops
    ]
    marks = [Op("mark", 2 * i + 1, 2 * i + 1, data=b"%d" % (2 * i + 1)) for i in range(2 * len(ops) + 1)]
    log = _log(tmp_path, journal([*doubled, *marks]))
    for state in log.states(ALL):
        there = [doubled[log.sequences[write] - 1] for write in log.order[: state.submitted]]
        there = [op for op in there if doubled.index(op) + 1 not in state.lost]
        possible = [
            str(mark.submit)
            for mark in marks
            if all(
                op in there or not op.contents or op.submit > mark.submit or not _durable(op, doubled, mark.submit)
                for op in doubled
            )
        ]
        assert state.marks == possible
        # The same by a crash after the last of them, of which it is known by then what was submitted.
        late = state.at_last_mark()
        assert late.marks == possible
        before = [op for op in doubled if op.contents and op.submit < int(possible[-1])] if possible else []
        assert len(before) <= late.submitted
        assert set(late.lost) - set(state.lost) == {
            doubled.index(op) + 1 for op in before if op not in there and doubled.index(op) + 1 not in state.lost
        }


@_HYPOTHESIS
@given(data=st.data(), ops=recordings(most=6), promises=st.sampled_from([{}, {"flush": False}, {"fua": False}]))
@pytest.mark.parametrize("order", ["log", "unlike"])
def test_what_is_promised_of_contents_is_asked_wherever_a_crash_may_break_it(
    tmp_path: Path, order: str, data: st.DataObject, ops: list[Op], promises: dict[str, bool]
) -> None:
    """A promise is that contents are gone from a mark on, until another: explored, it is broken as in plain Python."""
    number, length = data.draw(st.integers(0, 2 * len(ops))), data.draw(st.integers(0, 2 * len(ops)))
    doubled = [
        Op(one.kind, 2 * one.submit, 2 * one.complete, one.sector, one.data, one.fua, one.atomic, one.failed)
        for one in ops
    ]
    mark = Op("mark", 2 * number + 1, 2 * number + 1, data=b"gone")
    end = Op("mark", mark.submit + 2 * length, mark.submit + 2 * length, data=b"over")
    log = _log(tmp_path, journal([*doubled, mark, *[end] * bool(length)]), **promises)
    # The moment of a mark is before that of the operations that follow it.
    until = end.submit + 1 if length else 1 << 32
    after = _left_by_crashes(doubled, since=mark.submit, until=until, **promises)
    bad = data.draw(st.sampled_from(sorted(_left_by_crashes(doubled, **promises))))

    def check(image: Path, state: crash.State) -> None:
        assert ["gone"] not in state.moments or image.read_bytes() != bad

    found = log.explore(check, model=ALL, order=order, progress=False)
    assert found.complete or found.failures
    assert found.ok == (bad not in after)
    for failure in found.failures:
        assert _image_of(failure.reduced, doubled) == bad


# --- logs of dm-log-writes -------------------------------------------------------------------------------------------


def test_a_log_of_dm_log_writes_is_read(tmp_path: Path) -> None:
    a, b, c = (_fill(number, 1) for number in (1, 2, 3))
    data = log_writes(
        (0, 0, a), (MARK, 0, b"begin"), (FLUSH, 0, 0), (FLUSH | FUA, 1, b), (DISCARD, 0, 2), (0, 2, c + c)
    )
    log = _log(tmp_path, data)
    assert [mark for _, _, mark in log.native.marks] == ["begin"]
    assert [row["type"] for row in log.table().rows()] == ["write", "write", "zeroes", "write"]
    found = {image[: 4 * SECTOR] for image in _built(log, ALL, tmp_path)}
    z = bytes(SECTOR)
    # The second write's flush covers the first one; it is durable itself once it has completed.
    assert found == {z * 4, a + z * 3, a + b + z * 2, z * 4, a + b + c + c, z * 2 + c + c}


def test_a_device_with_a_log_may_have_more_than_there_is_memory(tmp_path: Path) -> None:
    log = tmp_path / "log"
    large, small = _fill(1, 250) * 12, _fill(2, 1)
    log.write_bytes(log_writes((0, 0, large), (MARK, 0, b"m"), (FLUSH, 0, 0), (DISCARD, 0, 9), (0, 1, small)))
    size = log.stat().st_size
    os.truncate(log, 1 << 40)
    program = (
        "import resource, sys; from sampleblk_lab import crash; resource.setrlimit(resource.RLIMIT_AS, (3 << 30,) * 2);"
        "log = crash.Log(sys.argv[1], base='zeros'); print(len(log), log.native.file_bytes)"
    )
    done = subprocess.run([sys.executable, "-c", program, log], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == (f"3 {size}\n", "")


def test_sectors_of_a_log_may_be_larger(tmp_path: Path) -> None:
    data = _fill(7, 8)
    (tmp_path / "log").write_bytes(log_writes((0, 2, data), sector_bytes=4096))
    log = crash.Log(tmp_path / "log", base="zeros")
    assert (log.size_bytes, [row["sector"] for row in log.table().rows()]) == (3 * 4096, [16])
    log.write(log.state(1), tmp_path / "image")
    assert (tmp_path / "image").read_bytes() == bytes(8192) + data


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda data: data[:-1], "bytes of data"),
        (lambda data: data[:600], "entry 0 of 1"),
        (lambda data: data[:20], "superblock"),
        (lambda data: b"\0" * len(data), "magic number"),
        (lambda _data: b"", "magic number"),
        (lambda data: data[:8] + b"\2" + data[9:], "version 1"),
        (lambda data: data[:24] + b"\1\0\0\0" + data[28:], "power of two"),
        (lambda data: data[:16] + b"\xff" * 8 + data[24:], "entry 1 of"),
        (lambda data: data[:528] + b"\xff" * 8 + data[536:], "flags"),
        (lambda data: data[:512] + b"\xff" * 7 + b"\0" + data[520:], "sectors of a disk"),
        (lambda data: data[:520] + b"\xff" * 7 + b"\0" + data[528:], "sectors of a disk"),
        (lambda data: data[:528] + b"\x08" + data[529:536] + b"\xff\xff" + data[538:], "fits into its sector"),
    ],
)
def test_a_damaged_log_is_refused(tmp_path: Path, damage: object, said: str) -> None:
    (tmp_path / "log").write_bytes(damage(log_writes((0, 0, _fill(1, 1)))))  # type: ignore[operator]
    with pytest.raises(FormatError, match=said):
        crash.Log(tmp_path / "log", base="zeros")


def test_a_journal_that_says_less_than_all_is_refused(tmp_path: Path) -> None:
    write = Op("write", 1, 2, data=_fill(1, 1))
    for data, said in (
        (journal([write], overflow=3), "no room for 3 operations"),
        (journal([write, Op("power_cut", 3, 4)]), "a power cut, entry 2"),
    ):
        (tmp_path / "log").write_bytes(data)
        with pytest.raises(InputError, match=said):
            crash.Log(tmp_path / "log", base="zeros")
    (tmp_path / "log").write_bytes(journal([write])[:-600])
    with pytest.raises(FormatError):
        crash.Log(tmp_path / "log", base="zeros")


@pytest.mark.parametrize(
    "altered",
    [
        lambda head, entries, _size: head + b"".join(entries[:-1]),  # cut off where an entry ends
        lambda head, entries, size: size(head, entries[:-1]),
        lambda head, entries, size: size(head, entries[1:]),
        lambda head, entries, size: size(head, [*entries[:1], *entries[2:]]),
        lambda head, entries, size: size(head, [entries[0], entries[2], entries[1], entries[3]]),
        lambda head, entries, size: size(head, [*entries[:2], *entries[1:]]),
        lambda head, entries, _size: head[:32] + struct.pack("<Q", 3) + head[40:] + b"".join(entries),
        lambda head, entries, _size: head + b"".join(entries[:3]) + _field(entries[3], 32, 9),  # sector
        lambda head, entries, _size: head + b"".join(entries[:3]) + _field(entries[3], 40, 3),  # sectors
        lambda head, entries, _size: head + b"".join(entries[:3]) + _field(entries[3], 72, 1),  # complete_order
        lambda head, entries, _size: head + b"".join(entries[:3]) + _field(entries[3], 96, 9),  # its chunk's sector
    ],
)
def test_a_journal_that_was_altered_is_refused(tmp_path: Path, altered: Callable[..., bytes]) -> None:
    """Each was believed: a shorter story, or another one."""
    ops = [
        *(Op("write", 1, 2, data=_fill(1, 1)), Op("flush", 3, 4)),
        *(Op("write", 5, 6, 1, data=_fill(2, 1)), Op("write", 7, 8, 2, data=_fill(3, 2))),
    ]
    ends = [72, *(len(journal(ops[: count + 1])) for count in range(4))]
    whole = journal(ops)
    head, entries = whole[:72], [whole[begin:end] for begin, end in itertools.pairwise(ends)]

    def size(head: bytes, entries: list[bytes]) -> bytes:
        body = b"".join(entries)
        return _field(_field(head, 24, 72 + len(body)), 8, 72 + len(body)) + body

    (tmp_path / "log").write_bytes(head + b"".join(entries))
    assert len(crash.Log(tmp_path / "log", base="zeros")) == 3
    (tmp_path / "log").write_bytes(altered(head, entries, size))
    with pytest.raises(FormatError):
        crash.Log(tmp_path / "log", base="zeros")


def _field(data: bytes, at: int, value: int) -> bytes:
    return data[:at] + struct.pack("<Q", value) + data[at + 8 :]


# --- the image -------------------------------------------------------------------------------------------------------


def test_bases_that_cannot_be_are_named(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(log_writes((0, 4, _fill(1, 2))))
    with pytest.raises(InputError, match="what the disk held before is not known"):
        crash.Log(tmp_path / "log")
    for size, said in ((3 * SECTOR, "writes up to sector 6, the image has 3"), (1000, "1000 bytes")):
        (tmp_path / "base").write_bytes(bytes(size))
        log = crash.Log(tmp_path / "log", base=tmp_path / "base")
        with pytest.raises(InputError, match=said):
            log.write(log.state(1), tmp_path / "image")
    with pytest.raises(InputError, match=r"base='/dev/null' is not a file"):
        crash.Log(tmp_path / "log", base="/dev/null")


def test_a_log_or_a_base_that_became_another_is_no_state_s(tmp_path: Path) -> None:
    data = log_writes((FLUSH, 0, b""), (0, 1, b"n" * SECTOR))
    path, base = tmp_path / "log", tmp_path / "base"
    for changed in (path, base):
        path.write_bytes(data)
        base.write_bytes(b"b" * 2 * SECTOR)
        log = crash.Log(path, base=base)
        for over in (path, base):
            before = over.read_bytes()
            with pytest.raises(InputError, match="the image of a state over what it is made of"):
                log.write(log.state(1), over)
            assert over.read_bytes() == before
        log.write(log.state(1), tmp_path / "image")
        assert (tmp_path / "image").read_bytes() == b"b" * SECTOR + b"n" * SECTOR
        changed.rename(tmp_path / "kept")
        changed.write_bytes((tmp_path / "kept").read_bytes())
        with pytest.raises(InputError, match=f"{changed.name}: it has changed since the log was read"):
            log.write(log.state(1), tmp_path / "image")
        with pytest.raises(InputError, match="it has changed since the log was read"):
            log.explore(lambda *_: None, progress=False)
        with pytest.raises(InputError, match="it has changed since the log was read"):
            reproduce.pack(log, tmp_path)


@pytest.mark.parametrize("workers", [None, 2])
def test_a_base_that_is_overwritten_meanwhile_is_no_state_s(tmp_path: Path, workers: int | None) -> None:
    base = tmp_path / "base"
    base.write_bytes(b"b" * 2 * SECTOR)
    (tmp_path / "log").write_bytes(log_writes((0, 1, b"n" * SECTOR)))

    def overwrites(*_: object) -> None:
        with base.open("r+b") as file:  # never shorter: another worker may just open it
            file.write(b"c" * 2 * SECTOR)

    with pytest.raises(InputError, match="base: it has changed since the log was read"):
        crash.Log(tmp_path / "log", base=base).explore(overwrites, workers=workers, progress=False)


def test_states_that_cannot_be_are_refused(tmp_path: Path) -> None:
    log = _log(tmp_path, log_writes((0, 0, _fill(1, 1)), (FLUSH, 0, 0), (0, 1, _fill(2, 1)), (0, 2, _fill(3, 1))))
    image = core.CrashImage(log.native, str(tmp_path / "image"), "", log.size_bytes)
    image.take(log.state(2, [3]).native)  # sequences count the log's entries
    for submitted, lost in ((2, [1]), (2, [4])):  # durable by then; not submitted yet
        with pytest.raises(InputError, match="one of this log"):
            image.take(log.state(submitted, lost).native)
    with pytest.raises(InputError, match=r"without .*99"):
        log.state(2, [99])
    for torn in ([(0, 0, 1)], [(2, 0, 1)], [(1, 0, 1), (1, 0, 1)]):
        with pytest.raises(InputError, match="one of this log"):
            image.take(core.CrashState(2, [], torn))


def test_a_write_that_a_state_names_twice_is_refused(tmp_path: Path) -> None:
    log = _log(tmp_path, journal([Op("write", 1, data=_fill(1, 3)), Op("write", 2, sector=1, data=_fill(2, 2))]))
    image = log.image("")
    for lost, torn in (([1, 1], []), ([1], [(1, 0, 1)]), ([2, 1, 2], [])):
        state = log.state(2, lost=lost, torn=torn)
        with pytest.raises(InputError, match="a state of 2 submissions"):
            image.take(state.native)
        with pytest.raises(InputError, match="a state of 2 submissions"):
            assert state.marks


def test_torn_writes_that_cannot_be_are_refused(tmp_path: Path) -> None:
    ops = [Op("write", 1, data=_fill(1, 3)), Op("write", 2, sector=3, data=_fill(2, 3), atomic=True)]
    log = _log(tmp_path, journal(ops))
    log.write(log.state(2, torn=[(1, 1, 2)]), tmp_path / "image")
    assert (tmp_path / "image").read_bytes() == bytes(SECTOR) + _fill(1, 3)[SECTOR:] + _fill(2, 3)
    for sequence, first, sectors in ((1, 0, 0), (1, 0, 3), (1, 1, 3), (1, 3, 1), (1, 2**64 - 1, 2), (2, 0, 2)):
        with pytest.raises(InputError, match="one of this log"):
            log.write(log.state(2, torn=[(sequence, first, sectors)]), tmp_path / "image")


@_HYPOTHESIS
@given(ops=recordings(), seed=st.integers(0, 2**32))
def test_whatever_a_check_does_to_the_image_is_undone(tmp_path: Path, ops: list[Op], seed: int) -> None:
    rng = random.Random(seed)
    log = _log(tmp_path, journal(ops))
    base = rng.randbytes(4 * SECTOR)
    (tmp_path / "base").write_bytes(base)
    image = core.CrashImage(log.native, str(tmp_path / "image"), str(tmp_path / "base"), 300 * SECTOR)
    states = list(log.states(ALL))
    for state in rng.sample(states, min(5, len(states))):
        image.take(state.native)
        image.write()
        before = (tmp_path / "image").read_bytes()
        with (tmp_path / "image").open("r+b") as file:
            for _ in range(3):
                file.seek(rng.randrange(300 * SECTOR))
                file.write(rng.randbytes(700))
            file.truncate(rng.choice([100 * SECTOR, 300 * SECTOR, 400 * SECTOR]))
        # As who replaces a file by a rename, or moves it away.
        if (other := rng.choice(["", "removed", "replaced", "a link"])) != "":
            (tmp_path / "image").unlink()
        if other == "replaced":
            (tmp_path / "image").write_bytes(b"other")
        elif other == "a link":
            (tmp_path / "image").symlink_to("base")
        image.restore()
        assert (tmp_path / "image").read_bytes() == before
        again = core.CrashImage(log.native, str(tmp_path / "again"), str(tmp_path / "base"), 300 * SECTOR)
        again.take(state.native)
        again.write()
        assert (tmp_path / "again").read_bytes() == before
        assert (tmp_path / "base").read_bytes() == base


@_HYPOTHESIS
@given(ops=recordings(), seed=st.integers(0, 2**32))
def test_parts_over_the_base_are_the_image(tmp_path: Path, ops: list[Op], seed: int) -> None:
    """What a device is told to build of its journal, put together in plain Python, is what the image file holds.

    There each write is an entry, or several.
    """
    rng = random.Random(seed)
    log = _log(tmp_path, journal(ops))
    base = rng.randbytes(SECTORS * SECTOR)
    (tmp_path / "base").write_bytes(base)
    file = core.CrashImage(log.native, str(tmp_path / "image"), str(tmp_path / "base"), SECTORS * SECTOR)
    bare = core.CrashImage(log.native, "", str(tmp_path / "base"), SECTORS * SECTOR)
    writes = [op for op in ops if op.contents]
    entries: dict[int, list[int]] = {}  # sequence -> the sectors of the disk that it wrote
    became = []
    for write in writes:
        sectors = sorted(write.contents)
        cuts = sorted(rng.sample(range(1, len(sectors)), rng.randrange(min(3, len(sectors))))) if sectors[1:] else []
        pieces = [sectors[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(sectors)], strict=True)]
        became.append([(len(entries) + number, len(piece)) for number, piece in enumerate(pieces, 1)])
        entries.update({sequence: piece for (sequence, _), piece in zip(became[-1], pieces, strict=True)})
    of = {sequence: write for write, pieces in zip(writes, became, strict=True) for sequence, _ in pieces}
    replayed = core.CrashReplayed(became)
    states = [*log.states(ALL), *log.states(crash.Torn())]
    for state in rng.sample(states, min(8, len(states))):
        for image in (file, bare):
            image.take(state.native)
        file.write()
        there = bytearray(base)
        parts = replayed.parts(bare).as_tuples()
        assert [sequence for sequence, _, _ in parts] == sorted({sequence for sequence, _, _ in parts})
        for sequence, first, length in parts:
            assert 0 < length <= len(entries[sequence]) - first
            for sector in entries[sequence][first : first + length]:
                there[sector * SECTOR : (sector + 1) * SECTOR] = of[sequence].contents[sector]
        assert (tmp_path / "image").read_bytes() == there
        assert bare.digest == file.digest
    for refused in (bare.write, bare.restore):
        with pytest.raises(InputError, match="without a file"):
            refused()


def test_a_file_system_that_is_full_is_an_error(tmp_path: Path) -> None:
    log = _log(tmp_path, log_writes((0, 0, _fill(1, 1))))
    with pytest.raises(OSError, match="image"):
        core.CrashImage(log.native, str(tmp_path / "image"), "", 1 << 50)
    with pytest.raises(OSError, match="No such file"):
        core.CrashImage(log.native, str(tmp_path / "none/image"), "", 1 << 20)


# --- exploring -------------------------------------------------------------------------------------------------------


def _two_transfers(folder: Path) -> crash.Log:
    """An account in sector 0, another in sector 1; a transfer of two writes without a flush between."""
    old, new = _fill(1, 1), _fill(2, 1)
    return _log(
        folder,
        log_writes((0, 0, old), (0, 1, old), (FLUSH, 0, 0), (0, 5, old), (0, 4, old), (0, 0, new), (0, 1, new)),
    )


def _both_or_none(image: Path, _state: crash.State) -> None:
    data = image.read_bytes()
    if data[:1] and data[: 2 * SECTOR].count(b"\2") not in (0, 512) and data[0] != data[SECTOR]:
        image.write_bytes(b"whatever")
        raise AssertionError("half a transfer")


def test_a_failure_is_reduced_to_what_it_takes(tmp_path: Path) -> None:
    log = _two_transfers(tmp_path)
    found = log.explore(_both_or_none, model=crash.Sample(seed=5), states=60, failures=3)
    assert not found.ok
    for failure in found.failures:
        assert len(failure.reduced.lost) <= 1
        assert "half a transfer" in str(failure.error)
    assert "half a transfer" in found.text()
    everything = log.explore(_both_or_none, model=ALL, failures=1000)
    assert everything.complete
    assert everything.states == everything.total == log.count(ALL)
    assert everything.checked == len(_built(log, ALL, tmp_path))
    assert log.explore(lambda *_: None, model=ALL).ok
    assert not log.explore(lambda *_: None, states=0).ok  # nothing was checked


def test_ctrl_c_keeps_what_was_found(tmp_path: Path) -> None:
    log = _two_transfers(tmp_path)
    calls = []

    def check(image: Path, state: crash.State) -> None:
        calls.append(state)
        if len(calls) == 9:
            raise KeyboardInterrupt
        _both_or_none(image, state)

    found = log.explore(check, model=ALL, failures=1000)
    assert found.interrupted
    assert not found.complete
    assert found.checked == 8
    found.failures.clear()
    assert not found.ok  # what was not checked is not well
    assert "interrupted" in found.text()


def test_an_endless_model_needs_an_end(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="without an end"):
        _two_transfers(tmp_path).explore(_both_or_none, model=crash.Sample())
    for model in (crash.Torn(block_bytes=100), crash.Reorder(complete_up_to=25), crash.Torn(places=0)):
        with pytest.raises(InputError):
            _two_transfers(tmp_path).explore(_both_or_none, model=model)
    with pytest.raises(InputError, match="workers=0"):
        _two_transfers(tmp_path).explore(_both_or_none, workers=0)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"check": None}, "check=None"),
        ({"check": lambda _image: True}, "(_image) (expected a function of image, state)"),
        ({"check": os.getcwd}, "check=getcwd()"),
        (
            {"resume": "/nowhere/explored.json"},
            "resume='/nowhere/explored.json' (expected a file in a folder that exists)",
        ),
        ({"states": 2.5}, "states=2.5"),
        ({"states": float("nan")}, "states=nan"),
        ({"states": "5"}, "states='5'"),
        ({"failures": None}, "failures=None"),
        ({"workers": 1.5}, "workers=1.5"),
        ({"workers": 100_000}, "workers=100000 (expected a whole number from 1 to 4096)"),
        ({"model": crash.Prefix}, "(expected Prefix(), Reorder(), Torn() or Sample())"),
        ({"model": ""}, "model=''"),
        ({"model": crash.Torn(block_bytes="4096")}, "a block of '4096' bytes"),  # type: ignore[arg-type]
        ({"model": crash.Torn(block_bytes=1 << 45)}, "a block of 35184372088832 bytes"),
        ({"vm": "6.12"}, "vm='6.12' (expected True, or a dict"),
    ],
)
def test_what_no_exploration_is_asked_for_by_is_named(tmp_path: Path, asked: dict[str, Any], said: str) -> None:
    log = _two_transfers(tmp_path)
    with pytest.raises(InputError, match=re.escape(said)):
        log.explore(**{"check": _both_or_none, **asked})


@pytest.mark.parametrize("size", [-1, 0, "24M", 1 << 70])
def test_a_size_that_no_disk_has_is_named(tmp_path: Path, size: Any) -> None:
    (tmp_path / "log").write_bytes(log_writes())
    with pytest.raises(InputError, match=re.escape(f"size_bytes={size!r}")):
        crash.Log(tmp_path / "log", base="zeros", size_bytes=size)


# --- in several processes --------------------------------------------------------------------------------------------


def _told(found: crash.Exploration) -> tuple[object, ...]:
    """All that an exploration says but the time it took."""
    failures = [
        (failure.state.native.submitted, failure.state.lost, failure.state.torn, repr(failure.reduced), failure.text())
        for failure in found.failures
    ]
    return found.states, found.checked, found.total, found.complete, found.interrupted, failures


@pytest.mark.parametrize("model", [ALL, crash.Prefix(), crash.Torn(), crash.Sample(seed=9)])
@pytest.mark.parametrize("failures", [1, 2, 1000])
def test_several_workers_find_what_one_finds(tmp_path: Path, model: crash.Model, failures: int) -> None:
    log = _two_transfers(tmp_path)
    found = [
        _told(log.explore(_both_or_none, model=model, states=25, failures=failures, workers=workers))
        for workers in (1, 2, np.int64(3))
    ]
    assert found[0] == found[1] == found[2]


def test_each_content_is_checked_by_one_worker(tmp_path: Path) -> None:
    log = _two_transfers(tmp_path)
    seen = tmp_path / "seen"

    def check(image: Path, _state: crash.State) -> None:
        with seen.open("ab", buffering=0) as file:
            file.write(b"%d %s\n" % (os.getpid(), hashlib.sha256(image.read_bytes()).hexdigest().encode()))

    found = log.explore(check, model=ALL, workers=2)
    lines = [line.split() for line in seen.read_text().splitlines()]
    assert found.complete
    assert found.checked == len(lines) == len({digest for _, digest in lines}) == len(_built(log, ALL, tmp_path))
    workers = {worker for worker, _ in lines}
    assert len(workers) == 2
    assert str(os.getpid()) not in workers
    # Half of them each, but for the last run of neighbours (test_shares.py).
    counts = sorted(sum(worker == one for worker, _ in lines) for one in workers)
    assert 0 < counts[0] <= counts[1] <= counts[0] + 16


@pytest.fixture
def images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where images are kept: other explorations of this machine have theirs in /dev/shm too."""
    folder = tmp_path / "images"
    folder.mkdir()
    monkeypatch.setattr("sampleblk_lab.crash.explore.folder_for", lambda _: folder)
    return folder


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Not ignored, as it is where these tests run in the background of a script."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_ends_the_workers_and_keeps_what_they_found(tmp_path: Path, images: Path) -> None:
    log = _two_transfers(tmp_path)
    parent = os.getpid()
    interrupted = tmp_path / "interrupted"

    def check(image: Path, state: crash.State) -> None:
        with (tmp_path / "workers").open("a") as file:
            file.write(f"{os.getpid()}\n")
        if state.submitted == len(log) and not interrupted.exists():
            interrupted.touch()
            os.kill(parent, signal.SIGINT)
            # Longer than the test may take: only an interrupt gets a worker out of here.
            time.sleep(600)
        _both_or_none(image, state)

    begin = time.monotonic()
    found = log.explore(check, model=crash.Sample(seed=5), states=100_000, failures=1000, workers=2)
    assert time.monotonic() - begin < 500  # the worker did not sleep to its end
    assert found.interrupted
    assert not found.complete
    assert 0 < found.checked < 100_000
    for worker in set((tmp_path / "workers").read_text().split()):
        with pytest.raises(ProcessLookupError):
            os.kill(int(worker), 0)
    assert list(images.iterdir()) == []
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_ctrl_c_may_come_at_any_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the workers, while they start, check, tell of failures, or end."""
    log = _two_transfers(tmp_path)
    chance = random.Random(3)

    def press(children: list[int]) -> None:
        for child in children:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child, signal.SIGINT)

    class Pressed(workers._Crew):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            children = list(self._ids.values())
            delay = chance.choice((0.002, 0.01, 0.2)) * chance.random()
            self.timer = threading.Timer(delay, press, [children])
            self.timer.start()

        def end(self) -> None:
            if hasattr(self, "timer"):
                self.timer.join()
            super().end()

    monkeypatch.setattr(workers, "_Crew", Pressed)

    def check(image: Path, state: crash.State) -> None:
        time.sleep(0.002)
        _both_or_none(image, state)

    outcomes = {
        log.explore(check, model=crash.Sample(seed=5), seconds=5, failures=1000, workers=2, progress=False).interrupted
        for _ in range(40)
    }
    assert True in outcomes


class _OddError(Exception):
    """Cannot be sent to another process."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"odd {one} {two}")


def test_what_a_worker_s_check_raises_is_told(tmp_path: Path, images: Path) -> None:
    log = _two_transfers(tmp_path)

    def odd(_image: Path, _state: crash.State) -> None:
        raise _OddError(1, 2)

    def tool(_image: Path, _state: crash.State) -> None:
        raise ToolError(["fsck", "x"], 4, "bad")

    def missing(_image: Path, _state: crash.State) -> None:
        raise UnsupportedError("fsck", "it is not installed", "install it")

    def dies(_image: Path, _state: crash.State) -> None:
        # What it leaves behind has its pipe, and nothing to say.
        if os.fork() == 0:
            time.sleep(30)
            os._exit(0)
        os.kill(os.getpid(), signal.SIGKILL)

    [failure] = log.explore(odd, workers=2).failures
    assert (type(failure.error).__name__, str(failure.error)) == ("_OddError", "odd 1 2")
    [failure] = log.explore(tool, workers=2).failures
    assert isinstance(failure.error, ToolError)
    assert (failure.error.command, failure.error.status, failure.error.output) == (["fsck", "x"], 4, "bad")
    with pytest.raises(UnsupportedError, match="install it"):
        log.explore(missing, workers=2)
    begin = time.monotonic()
    with pytest.raises(SampleblkError, match="ended by itself, with signal 9"):
        log.explore(dies, workers=2)
    assert time.monotonic() - begin < 20
    assert list(images.iterdir()) == []


@pytest.mark.parametrize("workers_", [None, 2])
def test_what_was_found_is_told_where_the_exploration_cannot_go_on(tmp_path: Path, workers_: int | None) -> None:
    log = _log(tmp_path, log_writes(*((0, number, _fill(number, 1)) for number in range(1, 5))))

    def missing(_image: Path, state: crash.State) -> None:
        if state.submitted == 4 or len(state.lost) == 1:
            raise UnsupportedError("fsck", "it is not installed", "install it")
        assert state.submitted != 1

    def killed(_image: Path, state: crash.State) -> None:
        if state.submitted == 4:
            os.kill(os.getpid(), signal.SIGKILL)
        assert state.submitted != 1

    asked: dict[str, Any] = {"failures": 9, "workers": workers_, "order": "log", "progress": False}
    for check in (missing, killed) if workers_ else (missing,):
        found = log.explore(check, model=crash.Prefix(), **asked)
        assert [(one.state.submitted, found.complete, found.ok) for one in found.failures] == [(1, False, False)]
    assert f"ended early ({found.lost})" in found.text()
    assert found.lost == ("SampleblkError: a worker ended by itself, with signal 9" if workers_ else
                          "UnsupportedError: fsck: it is not installed; install it")  # fmt: skip
    # Also where it is found out when the failure is reduced.
    state = log.state(3, lost=[1, 2])
    reduced, said, _ = reduce(lambda _: missing(tmp_path, log.state(4)), state, AssertionError("found"))
    assert (reduced.lost, str(said)) == ([1, 2], "found")


def test_ctrl_c_at_the_end_of_an_exploration_leaves_no_tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    close, closed = ResidentTools.close, []

    def pressed(self: ResidentTools) -> None:
        signal.raise_signal(signal.SIGINT)
        close(self)
        closed.append(self)

    monkeypatch.setattr(ResidentTools, "close", pressed)
    with pytest.raises(KeyboardInterrupt):
        _two_transfers(tmp_path).explore(_both_or_none, progress=False)
    assert len(closed) == 1


@pytest.mark.parametrize("number", [errno.EAGAIN, errno.ENOMEM])
def test_a_check_that_cannot_fork_has_found_nothing(tmp_path: Path, number: int) -> None:
    log = _two_transfers(tmp_path)

    def forks(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    def opens(path: Path, _: object) -> None:
        raise OSError(number, os.strerror(number), str(path))

    for workers_ in (None, 2):
        with pytest.raises(OSError, match=os.strerror(number)):
            log.explore(forks, workers=workers_, progress=False)
        assert log.explore(opens, workers=workers_, progress=False).failures


@pytest.mark.parametrize("workers_", [None, 2])
def test_a_check_that_cannot_start_a_thread_has_found_nothing(tmp_path: Path, workers_: int | None) -> None:
    def starts(*_: object) -> None:
        before = threading.stack_size(1 << 46)  # more than an address space has
        try:
            threading.Thread(target=tuple).start()
        finally:
            threading.stack_size(before)

    with pytest.raises(UnsupportedError, match="can't start new thread"):
        _two_transfers(tmp_path).explore(starts, workers=workers_, progress=False)


@pytest.mark.parametrize("workers_", [None, 2])
def test_a_check_that_exits_has_failed_and_ends_nothing_else(tmp_path: Path, workers_: int | None) -> None:
    log = _log(tmp_path, log_writes(*((0, number, _fill(number, 1)) for number in range(1, 5))))

    def exits(_image: Path, state: crash.State) -> None:
        if state.submitted == 2:
            sys.exit(0)

    found = log.explore(exits, model=crash.Prefix(), failures=9, workers=workers_, progress=False)
    assert (found.checked, found.complete) == (5, True)
    assert [str(failure.error) for failure in found.failures] == ["the check ended with SystemExit: 0"]
