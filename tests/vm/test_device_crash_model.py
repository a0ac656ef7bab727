# SPDX-License-Identifier: MIT
"""The crash rules, counted a second time: from what a journal recorded under load, in plain Python.

The driver decides with orders and layers of changes what is volatile and what a cut leaves. Here the same is told from
the submission and completion numbers of each entry, the rule of writeback_cache_control.rst and nothing else.
"""

from __future__ import annotations

import dataclasses
import fcntl
import itertools
import mmap
import os
import random
import struct

import pytest
from blockio import Background, flush, read, until, write

import sampleblk_lab as lab

pytestmark = pytest.mark.each_kernel

both_modes = pytest.mark.parametrize("mode", ["mq", "bio"])

SECTORS = 512
JOURNAL = 16 << 20

# sampleblk_journal_entry and sampleblk_chunk of linux/sampleblk.h
_ENTRY = struct.Struct("<QIIIIQQQQQQQQII")
_CHUNK = struct.Struct("<QQII")
_FUA, _FAILED = 1, 2
_FLUSH, _POWER_CUT = 4, 17
# linux/fs.h: _IO(0x12, 119) and _IO(0x12, 127)
_BLKDISCARD, _BLKZEROOUT = 0x1277, 0x127F


@dataclasses.dataclass(frozen=True)
class Entry:
    """What the journal says of one operation, and what it wrote: sector, data."""

    type: int
    fua: bool
    failed: bool
    epoch: int
    sector: int
    sectors: int
    submit: int
    complete: int
    volatile_id: int
    written: list[tuple[int, bytes]]


def entries(dev: lab.Device) -> list[Entry]:
    """The whole journal, from its mapping."""
    found = []
    control = os.open("/dev/sampleblk-control", os.O_RDWR)
    with mmap.mmap(control, JOURNAL, mmap.MAP_SHARED, mmap.PROT_READ, offset=dev.index << 40) as journal:
        at, head = struct.unpack_from("<QQ", journal, 16)
        while at < head:
            (_, size, _, kind, flags, epoch, sector, sectors, _, _, submit, complete, volatile_id, undo, redo) = (
                _ENTRY.unpack_from(journal, at)
            )
            written = []
            chunk = at + _ENTRY.size + undo
            end = chunk + redo
            while chunk < end:
                first, count, zero, _ = _CHUNK.unpack_from(journal, chunk)
                chunk += _CHUNK.size
                data = bytes(count * 512) if zero else journal[chunk : chunk + count * 512]
                chunk += 0 if zero else count * 512
                written.append((first, data))
            found.append(
                Entry(kind, bool(flags & _FUA), bool(flags & _FAILED), epoch, sector, sectors, submit, complete,
                      volatile_id, written)
            )  # fmt: skip
            at += size
    os.close(control)
    return found


def apply(image: bytearray, entry: Entry, sectors: int) -> None:
    """Writes the first `sectors` of an entry."""
    end = (entry.sector + sectors) * 512
    for first, data in entry.written:
        part = data[: max(0, end - first * 512)]
        image[first * 512 : first * 512 + len(part)] = part


def last_flush(story: list[Entry]) -> int:
    """When the latest flush that succeeded was submitted."""
    return max((e.submit for e in story if e.type == _FLUSH and e.complete and not e.failed), default=0)


def is_durable(entry: Entry, flushed: int) -> bool:
    return bool(entry.complete) and (entry.complete < flushed or entry.fua)


def load(dev: lab.Device, seed: int, operations: int) -> None:
    """Writes, discards, zeroes and flushes one after another, chosen by the seed."""
    chance = random.Random(seed)
    fd = os.open(dev.path, os.O_WRONLY)
    for n in range(operations):
        sectors = chance.randint(1, 24)
        sector = chance.randrange(SECTORS - sectors)
        what = chance.random()
        if what < 0.68:
            data = struct.pack("<QQ", seed + 1, n + 1) * (sectors * 32)
            write(dev.path, data, sector * 512, dsync=what < 0.06)
        elif what < 0.8:
            page = chance.randrange(SECTORS // 8 - 3) * 4096
            request = _BLKDISCARD if what < 0.75 else _BLKZEROOUT
            fcntl.ioctl(fd, request, struct.pack("QQ", page, 4096 * chance.randint(1, 3)))
        else:
            os.fsync(fd)
    os.close(fd)


def check(mode: str, seed: int, *, fua: bool) -> int:
    """One recording and one cut; returns how many writes were volatile."""
    chance = random.Random(seed)
    with lab.Device(SECTORS * 512, mode=mode, queues=2, cache=True, fua=fua, cache_size="64M") as dev:
        dev.journal_start(JOURNAL)
        dev.set_timing("uniform", 0, 8_000_000, ops=("write", "flush", "discard"), seed=seed)
        # A number of flushes is on its way when the power goes, and of writes, none of which has completed.
        workers = [Background(load, dev, seed * 16 + n, 14) for n in range(5)]
        for worker in workers:
            assert worker.error(60) is None
        dev.set_faults([lab.Fault(action="delay", ops=("write", "flush"), delay_ns=60_000_000_000)])
        before = dev.counters()
        late = [Background(load_one, dev, chance.randrange(SECTORS - 8)) for _ in range(3)]
        late.append(Background(flush, dev.path))
        late += [Background(load_one, dev, chance.randrange(SECTORS - 8)) for _ in range(2)]
        until(lambda: dev.counters().delayed - before.delayed == len(late))

        story = entries(dev)
        assert dev.written_back() == 0
        assert dev.journal_info().overflow == 0
        changes = [entry for entry in story if entry.volatile_id]
        flushes = [entry for entry in story if entry.type == _FLUSH]
        assert [entry.volatile_id for entry in changes] == list(range(1, len(changes) + 1))
        assert len(changes) + len(flushes) == len(story)

        # Orders are of one count, without a gap or a double but for parts of one command, of which there are none here.
        drawn = sorted(order for entry in story for order in (entry.submit, entry.complete) if order)
        assert drawn == list(range(1, len(drawn) + 1))

        # Epochs: flushes that were submitted before the completion.
        for entry in story:
            if entry.type == _FLUSH:
                assert entry.epoch == sum(other.submit < entry.submit for other in flushes)
            elif entry.complete:
                assert entry.epoch == sum(other.submit < entry.complete for other in flushes)
        done = [entry for entry in flushes if entry.complete]
        assert dev.journal_info().epoch == max((entry.epoch + 1 for entry in done), default=0)

        # What is volatile, from the first on that is not durable.
        flushed = last_flush(story)
        listed = list(itertools.dropwhile(lambda entry: is_durable(entry, flushed), changes))
        assert [
            (entry.volatile_id, entry.sector, entry.sectors, is_durable(entry, flushed), not entry.complete)
            for entry in listed
        ] == [(w.id, w.sector, w.sectors, w.durable, w.in_flight) for w in dev.volatile_writes()]

        image = bytearray(SECTORS * 512)
        for entry in changes:
            apply(image, entry, entry.sectors)
        assert read(dev.path, SECTORS * 512) == bytes(image)

        # A cut that keeps of each what chance says.
        keeps = {
            entry.volatile_id: chance.choice((0, entry.sectors, chance.randint(0, entry.sectors))) for entry in listed
        }
        cut = dev.power_cut("explicit", survivors=keeps)
        image = bytearray(SECTORS * 512)
        kept = []
        for entry in changes:
            durable = is_durable(entry, flushed)
            keep = entry.sectors if durable else keeps[entry.volatile_id]
            apply(image, entry, keep)
            if entry in listed:
                kept.append((keep, entry.sectors))
        assert (cut.dropped, cut.survived, cut.torn) == (
            sum(keep == 0 for keep, _ in kept),
            sum(keep == sectors for keep, sectors in kept),
            sum(0 < keep < sectors for keep, sectors in kept),
        )
        for one in late:
            assert one.error(5) is not None
        dev.set_faults([])
        dev.set_timing("none", ops=("write", "flush", "discard"))
        dev.power_on()
        assert read(dev.path, SECTORS * 512) == bytes(image)

        # The journal tells the same story, cut included.
        replayed = bytearray(SECTORS * 512)
        after = entries(dev)
        for entry in after:
            apply(replayed, entry, entry.sectors)
        assert replayed == image
        # What was on its way failed, with the power.
        assert all(entry.failed for entry in after if entry.complete > len(drawn) and entry.type != _POWER_CUT)
        return len(listed)


def load_one(dev: lab.Device, sector: int) -> None:
    """A write that will not complete."""
    write(dev.path, b"late" * 1024, sector * 512)


@both_modes
@pytest.mark.parametrize("fua", [True, False])
def test_the_driver_and_plain_python_agree_about_what_a_crash_leaves(mode: str, fua: bool) -> None:
    assert sum(check(mode, seed, fua=fua) for seed in range(3)) > 15


@pytest.mark.full
@both_modes
def test_the_driver_and_plain_python_agree_for_longer(mode: str) -> None:
    for seed in range(100, 140):
        check(mode, seed, fua=bool(seed % 2))
