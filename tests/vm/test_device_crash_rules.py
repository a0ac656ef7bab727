# SPDX-License-Identifier: MIT
"""What a power cut may leave, rule by rule (docs/explanation/crash-states.md), in both modes."""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import struct
import subprocess
import threading
import time
from pathlib import Path

import pytest
from blockio import Background, aligned, discard, flush, little_memory, read, until, write

import sampleblk_lab as lab

pytestmark = pytest.mark.two_cpus

both_modes = pytest.mark.parametrize("mode", ["mq", "bio"])

# linux/fs.h: _IO(0x12, 119) and _IO(0x12, 127)
_BLKDISCARD, _BLKZEROOUT = 0x1277, 0x127F


def slow(first_sector: int, delay_ns: int, ops: str = "write") -> lab.Fault:
    return lab.Fault(action="delay", ops=ops, delay_ns=delay_ns, first_sector=first_sector, last_sector=first_sector)


@both_modes
def test_a_flush_makes_durable_only_what_had_completed_when_it_was_submitted(mode: str) -> None:
    with lab.Device("1M", mode=mode, cache=True) as dev:
        write(dev.path, b"o" * 4096)
        flush(dev.path)
        dev.set_faults([slow(0, 2_000_000_000)])
        late = Background(write, dev.path, b"n" * 4096)
        until(dev.volatile_writes)
        write(dev.path, b"m" * 4096, 65536)
        flush(dev.path)
        assert late.running
        (left,) = [w for w in dev.volatile_writes() if not w.durable]
        assert (left.sector, left.in_flight) == (0, True)
        cut = dev.power_cut("all")
        assert cut.dropped == 1
        assert late.error() == errno.EIO
        dev.set_faults([])
        dev.power_on()
        assert read(dev.path, 4096) == b"o" * 4096
        assert read(dev.path, 4096, 65536) == b"m" * 4096


@both_modes
def test_a_flush_that_the_power_cut_interrupts_has_promised_nothing(mode: str) -> None:
    with lab.Device("1M", mode=mode, cache=True) as dev:
        write(dev.path, b"o" * 4096)
        flush(dev.path)
        write(dev.path, b"n" * 4096)
        dev.set_timing("constant", 5_000_000_000, ops="flush")
        late = Background(flush, dev.path)
        until(lambda: dev.counters().delayed)
        assert [w.durable for w in dev.volatile_writes()] == [False]
        dev.power_cut("all")
        assert late.error(3) == errno.EIO
        dev.set_timing("none", ops="flush")
        dev.power_on()
        assert read(dev.path, 4096) == b"o" * 4096


@both_modes
def test_a_failed_flush_promises_nothing(mode: str) -> None:
    with lab.Device("1M", mode=mode, cache=True) as dev:
        write(dev.path, b"n" * 4096)
        dev.set_faults([lab.Fault(action="error", ops="flush", count=1)])
        with pytest.raises(OSError, match="error"):
            flush(dev.path)
        assert len(dev.volatile_writes()) == 1
        assert dev.power_cut("all").dropped == 1


@both_modes
def test_fua_is_durable_when_it_completes_and_not_before(mode: str) -> None:
    with lab.Device("1M", mode=mode, cache=True) as dev:
        dev.set_faults([slow(8, 5_000_000_000)])
        late = Background(write, dev.path, b"f" * 4096, 4096, dsync=True)
        until(dev.volatile_writes)
        assert [(w.sector, w.in_flight, w.durable) for w in dev.volatile_writes()] == [(8, True, False)]
        dev.power_cut("all")
        assert late.error(3) == errno.EIO
        dev.set_faults([])
        dev.power_on()
        assert read(dev.path, 4096, 4096) == bytes(4096)


def column(table: lab.Table, name: str) -> list[int]:
    return [row[name] for row in table.rows()]


@both_modes
def test_the_journal_has_epochs_and_the_export_the_order_of_dm_log_writes(mode: str, tmp_path: Path) -> None:
    """``W1 W2 W3 C3 C2 Wflush C1`` is ``W3 W2 flush W1`` (log-writes.rst)."""
    with lab.Device("1M", mode=mode, cache=True) as dev:
        dev.journal_start("1M")
        dev.set_faults([slow(0, 1_500_000_000), slow(8, 700_000_000)])
        first = Background(write, dev.path, b"1" * 4096, 0)
        until(lambda: len(dev.volatile_writes()) == 1)
        second = Background(write, dev.path, b"2" * 4096, 4096)
        until(lambda: len(dev.volatile_writes()) == 2)
        write(dev.path, b"3" * 4096, 8192)
        assert second.error() is None
        flush(dev.path)
        assert first.running
        assert first.error() is None
        table = dev.journal()
        assert list(table["type"].values) == ["write", "write", "write", "flush"]
        submitted, completed = column(table, "submit_order"), column(table, "complete_order")
        assert submitted == sorted(submitted)
        assert sorted(range(4), key=completed.__getitem__) == [2, 1, 3, 0]
        assert completed[1] < submitted[3] < completed[0]
        # The first completed after the flush was submitted: it is of the epoch that the next flush closes.
        assert column(table, "epoch") == [1, 0, 0, 0]
        assert table.metadata["epoch"] == "1"
        assert [w.sector for w in dev.volatile_writes() if not w.durable] == [0]
        assert dev.export_log_writes(tmp_path / "log") == 4
    log = (tmp_path / "log").read_bytes()
    order = []
    at = 512
    while at < len(log):
        sector, sectors, flags, _ = struct.unpack_from("<QQQQ", log, at)
        order.append("flush" if flags & 1 else sector // 8 + 1)
        at += 512 + sectors * 512
    assert order == [3, 2, "flush", 1]


def test_the_cache_bounds_what_is_volatile_on_a_sparse_device_too() -> None:
    with lab.Device("16M", cache=True, cache_size="64K") as dev:
        for n in range(256):
            write(dev.path, b"v" * 4096, n * 4096)
        assert sum(w.sectors for w in dev.volatile_writes()) * 512 <= 64 << 10
        assert dev.written_back() == 240
        dev.power_cut("all")
        dev.power_on()
        assert read(dev.path, 1 << 20) == b"v" * (240 * 4096) + bytes(16 * 4096)


@both_modes
def test_nothing_is_torn_within_a_logical_block(mode: str) -> None:
    with lab.Device("1M", mode=mode, cache=True, logical_block=4096) as dev:
        torn = 0
        for seed in range(40):
            write(dev.path, b"o" * 65536)
            flush(dev.path)
            write(dev.path, b"n" * 65536)
            torn += dev.power_cut("random", torn=True, survive_percent=100, seed=seed).torn
            dev.power_on()
            data = read(dev.path, 65536)
            for at in range(0, 65536, 4096):
                assert data[at : at + 4096] in (b"o" * 4096, b"n" * 4096), (seed, at)
        assert torn > 10
        write(dev.path, b"n" * 65536)
        (volatile,) = dev.volatile_writes()
        with pytest.raises(OSError, match=r"Invalid.*whole logical blocks"):
            dev.power_cut("explicit", survivors={volatile.id: 3})
        assert dev.info().powered
        dev.power_cut("explicit", survivors={volatile.id: 8})


@pytest.mark.parametrize("block", [512, 2048, 4096])
def test_recordings_are_torn_between_the_logical_blocks_of_their_device(block: int, tmp_path: Path) -> None:
    device = lab.Device("1M", cache=True, logical_block=block)
    with device as dev, lab.crash.recording(dev, tmp_path) as path:
        write(dev.path, b"n" * 16384)
        flush(dev.path)
        dev.export_log_writes(tmp_path / "writes")
    for file in (path, tmp_path / "writes"):
        log = lab.crash.Log(file, base=tmp_path / "base.img")
        assert log.block_bytes == block
        torn = [sectors * 512 for state in log.states(lab.crash.Torn(places=99)) for _, _, sectors in state.torn]
        assert torn == list(range(block, 16384, block))


@both_modes
@pytest.mark.parametrize("request_", [_BLKZEROOUT, _BLKDISCARD], ids=["write_zeroes", "discard"])
def test_what_is_larger_than_a_request_is_cut_between_logical_blocks(mode: str, request_: int) -> None:
    with lab.Device("9G", mode=mode, cache=True, logical_block=4096) as dev:
        dev.journal_start("1M")
        fd = os.open(dev.path, os.O_WRONLY)
        fcntl.ioctl(fd, request_, struct.pack("QQ", 4096, 8 << 30))
        os.close(fd)
        sectors = dev.journal()["sectors"].values
        assert len(sectors) == 3
        assert sectors.sum() == (8 << 30) // 512
        assert not (sectors % 8).any()


def test_zeroes_without_unmap_keep_their_memory() -> None:
    for cache in (False, True):
        with lab.Device("1M", cache=cache) as dev:
            write(dev.path, b"x" * 65536)
            fd = os.open(dev.path, os.O_WRONLY)
            fcntl.ioctl(fd, _BLKZEROOUT, struct.pack("QQ", 4096, 16384))
            os.close(fd)
            assert dev.counters().write_zeroes_bytes == 16384
            assert read(dev.path, 65536) == b"x" * 4096 + bytes(16384) + b"x" * 45056
            assert dev.info().allocated_bytes == 65536


def test_snapshots_keep_what_is_volatile_volatile() -> None:
    with lab.Device("1M", cache=True) as dev:
        write(dev.path, b"o" * 65536)
        flush(dev.path)
        write(dev.path, b"n" * 3072, 512)
        discard(dev.path, 8192, 12288)
        one = dev.snapshot_take()
        write(dev.path, b"m" * 4096, 32768)
        seen = b"o" * 512 + b"n" * 3072 + b"o" * 4608 + bytes(12288) + b"o" * 45056
        assert len(dev.volatile_writes()) == 3
        ids = [w.id for w in dev.volatile_writes()]
        cut = dev.power_cut("explicit", survivors={ids[0]: 2, ids[2]: 8})
        assert (cut.dropped, cut.survived, cut.torn) == (1, 1, 1)
        dev.power_on()
        after = b"o" * 512 + b"n" * 1024 + b"o" * (32768 - 1536) + b"m" * 4096 + b"o" * (32768 - 4096)
        assert read(dev.path, 65536) == after
        dev.snapshot_restore(one)
        assert read(dev.path, 65536) == seen
        dev.snapshot_delete(one)
        assert read(dev.path, 65536) == seen


# sampleblk_journal_header and sampleblk_journal_entry of linux/sampleblk.h
_HEADER = struct.Struct("<9Q")
_ENTRY = struct.Struct("<QIIIIQQQQQQQQII")


@both_modes
def test_what_lies_before_the_journals_head_is_whole(mode: str) -> None:
    """The mapping is read while it is written: 32 KiB of redo data take long enough to be caught without."""
    incomplete = entries = moves = 0
    with lab.Device("16M", mode=mode, queues=2) as dev:
        dev.journal_start("64M")
        fd = os.open("/dev/sampleblk-control", os.O_RDWR)
        with mmap.mmap(fd, 64 << 20, mmap.MAP_SHARED, mmap.PROT_READ, offset=dev.index << 40) as journal:
            first, head = struct.unpack_from("<QQ", journal, 16)
            writer = Background(lambda: [write(dev.path, b"r" * 131072, n % 8 * 131072) for n in range(150)])
            at = first
            running = True
            while running and not incomplete:
                # Asked before the head is looked at, or the last entries would be missed.
                running = writer.running
                before, head = head, struct.unpack_from("<Q", journal, 24)[0]
                assert head >= before, "the head moved back"
                moves += head > before
                while at < head:
                    entry = _ENTRY.unpack_from(journal, at)
                    if entry[1] == 0 or entry[14] < 131072:
                        incomplete += 1
                        break
                    entries += 1
                    at += entry[1]
            assert writer.error() is None
            mark = dev.mark("a mark is whole, too")
            head = struct.unpack_from("<Q", journal, 24)[0]
            assert journal[head - 24 : head].rstrip(b"\0").endswith(b"a mark is whole, too")
        os.close(fd)
        assert mark == entries + 1
    assert incomplete == 0
    assert moves > 5


def test_the_mapped_header_is_told_and_not_asked() -> None:
    """Its fields follow the driver's own after everything that changes them."""
    with lab.Device("1M", cache=True) as dev:
        dev.journal_start("1M")
        fd = os.open("/dev/sampleblk-control", os.O_RDWR)
        with mmap.mmap(fd, 1 << 20, mmap.MAP_SHARED, mmap.PROT_READ, offset=dev.index << 40) as journal:

            def agrees() -> None:
                magic, size, _, head, entries, overflow, following, position, epoch = _HEADER.unpack_from(journal, 0)
                info = dev.journal_info()
                assert magic == int.from_bytes(b"SBLKJNL2", "little")
                assert (size, head, entries, overflow, following, position, epoch) == (
                    info.bytes, info.used_bytes, info.entries, info.overflow, info.next_sequence, info.position,
                    info.epoch,
                )  # fmt: skip

            agrees()
            write(dev.path, b"1" * 4096)
            agrees()
            flush(dev.path)
            agrees()
            dev.mark("here")
            agrees()
            dev.seek(1)
            agrees()
            dev.seek()
            agrees()
            for n in range(200):
                write(dev.path, b"f" * 8192, n % 64 * 8192)
            agrees()
            assert dev.journal_info().overflow > 0
        os.close(fd)


@pytest.mark.usefixtures("no_driver")
def test_a_discarded_devices_memory_can_be_written_again_at_the_limit() -> None:
    """`memory_percent` bounds all devices; what was discarded a moment ago is waited for."""
    subprocess.run(["modprobe", "sampleblk", "devices=1", "capacity=1G", "memory_percent=2"], check=True)
    try:
        total = next(line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemTotal"))
        total_kib = int(total.split()[1])
        size = total_kib * 1024 // 100 * 3 // 2 >> 20 << 20
        for _ in range(10):
            write("/dev/sampleblk1", b"x" * size)
            discard("/dev/sampleblk1", 0, size)
        with pytest.raises(OSError, match="space"):
            write("/dev/sampleblk1", b"x" * (2 * size))
    finally:
        subprocess.run(["rmmod", "sampleblk"], check=True)


def test_what_is_durable_leaves_its_memory_to_what_is_written_at_the_limit() -> None:
    with little_memory():
        lines = Path("/proc/meminfo").read_text().splitlines()
        total_kib = next(int(line.split()[1]) for line in lines if line.startswith("MemTotal"))
        # Twice that, as it is and as it was, is nearly all that devices may have.
        size = total_kib * 1024 // 100 // 2 - (192 << 10) & -4096
        with lab.Device(size, cache=True, cache_size="64M") as dev:
            for fill in range(1, 6):
                write(dev.path, bytes([fill]) * size)
                flush(dev.path)
            assert read(dev.path, size) == b"\x05" * size


@pytest.mark.parametrize("how", ["journal", "cache", "asked"])
def test_no_reader_sees_half_a_sector(how: str) -> None:
    with lab.Device("1M", queues=2, cache=how == "cache", sector_atomic=how == "asked") as dev:
        if how == "journal":
            dev.journal_start("64M")
        stop = threading.Event()

        def work() -> None:
            fd = os.open(dev.path, os.O_WRONLY | os.O_DIRECT)
            n = 0
            while not stop.is_set():
                n += 1
                os.pwrite(fd, aligned(bytes([n % 255 + 1]) * 16384), 0)
            os.close(fd)

        writer = Background(work)
        end = time.monotonic() + 2
        while time.monotonic() < end:
            data = read(dev.path, 16384)
            for at in range(0, 16384, 512):
                assert len(set(data[at : at + 512])) == 1
        stop.set()
        assert writer.error() is None
