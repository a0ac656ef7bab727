# SPDX-License-Identifier: MIT
"""Volatile cache and power cuts, journal, snapshots and clones."""

import errno
import os
import random
import signal
from pathlib import Path

import pytest
from blockio import aligned, discard, flush, read, write

import sampleblk_lab as lab


def test_what_needs_a_journal_says_so() -> None:
    with lab.Device("1M") as dev:
        for asks in (lambda: dev.mark("a"), dev.seek, dev.journal, dev.journal_stop):
            with pytest.raises(FileNotFoundError, match=r"journal_start\(\)"):
                asks()


def test_what_was_not_flushed_is_lost_and_fua_is_not() -> None:
    with lab.Device("1M", cache=True) as dev:
        write(dev.path, b"a" * 8192)
        flush(dev.path)
        write(dev.path, b"b" * 4096)
        write(dev.path, b"c" * 4096, 16384, dsync=False)
        assert [(w.sector, w.sectors, w.durable) for w in dev.volatile_writes()] == [(0, 8, False), (32, 8, False)]
        cut = dev.power_cut("all")
        assert (cut.dropped, cut.survived, cut.torn) == (2, 0, 0)
        assert not dev.info().powered
        with pytest.raises(OSError, match="Input/output"):
            read(dev.path, 4096)
        with pytest.raises(OSError, match="Input/output"):
            write(dev.path, b"d" * 4096)
        with pytest.raises(OSError, match=r"off already: power_on\(\)") as caught:
            dev.power_cut("all")
        assert caught.value.errno == errno.EALREADY
        dev.power_on()
        assert read(dev.path, 8192) == b"a" * 8192
        assert read(dev.path, 4096, 16384) == bytes(4096)
        assert dev.volatile_writes() == []


def test_an_explicit_cut_keeps_what_it_names() -> None:
    with lab.Device("1M", cache=True) as dev:
        for n, fill in enumerate(b"abc"):
            write(dev.path, bytes([fill]) * 4096, n * 4096)
        ids = [w.id for w in dev.volatile_writes()]
        cut = dev.power_cut("explicit", survivors={ids[0]: 8, ids[2]: 3})
        assert (cut.dropped, cut.survived, cut.torn) == (1, 1, 1)
        dev.power_on()
        assert read(dev.path, 12288) == b"a" * 4096 + bytes(4096) + b"c" * 1536 + bytes(2560)


def test_acknowledged_flushes_survive_a_thousand_cuts() -> None:
    """After each cut every sector holds what was durable, or a write since then; and FUA writes are all there."""
    chance = random.Random(11)
    blocks = 32
    with lab.Device("1M", cache=True) as dev:
        fd = os.open(dev.path, os.O_RDWR | os.O_DIRECT)
        plain = os.open(dev.path, os.O_WRONLY)
        allowed: list[list[bytes]] = [[bytes(512)] for _ in range(blocks * 8)]
        totals = [0, 0, 0]
        for n in range(1000):
            for _ in range(chance.randrange(1, 12)):
                fill = bytes([chance.randrange(1, 256)]) * 512
                first = chance.randrange(blocks * 8 - 16)
                count = chance.randrange(1, 16)
                os.pwrite(fd, aligned(fill * count), first * 512)
                for sector in range(first, first + count):
                    allowed[sector].append(fill)
                if chance.random() < 0.2:
                    os.fsync(plain)
                    for versions in allowed:
                        del versions[:-1]
            cut = dev.power_cut("random", survive_percent=chance.randrange(101), torn=True, seed=n)
            totals = [total + part for total, part in zip(totals, (cut.dropped, cut.survived, cut.torn), strict=True)]
            dev.power_on()
            back = aligned(bytes(blocks * 4096))
            os.preadv(fd, [back], 0)
            for sector, versions in enumerate(allowed):
                got = back[sector * 512 : sector * 512 + 512]
                assert got in versions, f"cut {n}: sector {sector}"
                versions[:] = [got]
        os.close(fd)
        os.close(plain)
        assert min(totals) > 100


def test_a_full_cache_writes_back_the_oldest() -> None:
    with lab.Device("4M", cache=True, cache_size="64K") as dev:
        base = b"x" * (1 << 20)
        write(dev.path, base)
        flush(dev.path)
        for n in range(64):
            write(dev.path, b"y" * 4096, n * 4096)
        left = dev.volatile_writes()
        assert 0 < len(left) < 64
        dev.power_cut("all")
        dev.power_on()
        kept = 64 - len(left)
        assert read(dev.path, 64 * 4096) == b"y" * 4096 * kept + b"x" * 4096 * (64 - kept)


@pytest.mark.parametrize(
    ("fstype", "capacity"),
    [
        ("ext4", "64M"),
        pytest.param("xfs", "320M", marks=pytest.mark.full),
        pytest.param("btrfs", "160M", marks=pytest.mark.full),
        pytest.param("f2fs", "128M", marks=pytest.mark.full),
    ],
)
def test_a_file_system_recovers_from_a_cut(fstype: str, capacity: str, request: pytest.FixtureRequest) -> None:
    if fstype == "btrfs" and os.uname().release.startswith("5.10."):
        # It warns of itself where a transaction is aborted.
        request.applymarker(pytest.mark.kernel_warning("btrfs_assert_delayed_root_empty"))
    with lab.Device(capacity, cache=True) as dev:
        fs = dev.mkfs(fstype)
        with fs.mount() as mnt:
            fd = os.open(mnt / "kept", os.O_CREAT | os.O_WRONLY)
            os.write(fd, b"k" * 100_000)
            os.fsync(fd)
            os.close(fd)
            os.sync()
            (mnt / "volatile").write_bytes(b"v" * 100_000)
            dev.power_cut("random", seed=5)
        dev.power_on()
        with fs.mount() as mnt:
            assert (mnt / "kept").read_bytes() == b"k" * 100_000
        assert fs.fsck()


def test_the_journal_tells_and_seeks_both_ways() -> None:
    with lab.Device("1M", cache=True) as dev:
        write(dev.path, b"before" + bytes(4090))
        dev.journal_start("4M")
        states = {0: read(dev.path, 65536)}
        for n in range(1, 30):
            if n % 7 == 0:
                discard(dev.path, 4096 * (n % 5), 8192)
            elif n % 5 == 0:
                dev.mark(f"step {n}")
            else:
                write(dev.path, bytes([n]) * 1024 * (n % 9 + 1), 512 * (n * 5 % 60))
            states[dev.journal_info().next_sequence - 1] = read(dev.path, 65536)
        flush(dev.path)
        table = dev.journal()
        assert table.metadata["overflow"] == "0"
        sequences = table["sequence"].codes.tolist()
        assert sequences == list(range(1, len(sequences) + 1))
        assert set(table["type"].values) == {"write", "discard", "mark", "flush"}
        assert list(table["mark"].values).count("step 5") == 1
        assert (table["complete_ns"].codes >= table["submit_ns"].codes).all()
        chance = random.Random(4)
        for sequence in chance.sample(sorted(states), len(states)):
            dev.seek(sequence)
            assert read(dev.path, 65536) == states[sequence], sequence
            assert dev.journal_info().position == sequence
        # What is written in the past goes with the next seek, and is in no entry.
        dev.seek(3)
        write(dev.path, b"elsewhere" + bytes(503))
        assert read(dev.path, 512)[:9] == b"elsewhere"
        dev.seek()
        assert read(dev.path, 65536) == states[max(states)]
        assert len(dev.journal()) == len(sequences)
        write(dev.path, b"goes on" + bytes(505))
        assert len(dev.journal()) == len(sequences) + 1
        dev.journal_stop()
        assert dev.journal_info().bytes == 0
        with pytest.raises(FileNotFoundError):
            dev.journal()


def test_a_seek_to_where_the_device_is_makes_nothing_durable() -> None:
    with lab.Device("1M", cache=True) as dev:
        dev.journal_start("1M")
        write(dev.path, b"1" * 4096)
        flush(dev.path)
        write(dev.path, b"2" * 4096)
        assert [write.sectors for write in dev.volatile_writes()] == [8]
        for sequence in (None, dev.journal_info().next_sequence - 1):
            assert dev.seek(sequence) == 0
            assert [write.sectors for write in dev.volatile_writes()] == [8]
        # Refused, as it has no such sequence.
        with pytest.raises(OSError, match="Invalid argument"):
            dev.seek(dev.journal_info().next_sequence)
        dev.power_cut("all")
        dev.power_on()
        assert read(dev.path, 4096) == b"1" * 4096


def test_a_seek_counts_what_it_did_before_a_signal_too() -> None:
    with lab.Device("8M") as dev:
        dev.journal_start("512M")
        for number in range(2000):
            write(dev.path, b"s" * 65536, number % 100 * 65536)
        heard: list[int] = []
        before = signal.signal(signal.SIGALRM, lambda number, _: heard.append(number))
        signal.setitimer(signal.ITIMER_REAL, 0.01, 0.02)
        try:
            moved = [dev.seek(0), dev.seek()]
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        assert heard
        assert moved == [2000, 2000]


def test_an_open_device_is_not_moved_unless_forced() -> None:
    with lab.Device("1M") as dev:
        dev.journal_start("1M")
        write(dev.path, b"1" * 4096)
        fd = os.open(dev.path, os.O_RDONLY)
        assert os.pread(fd, 4096, 0) == b"1" * 4096
        with pytest.raises(OSError, match="busy"):
            dev.seek(0)
        dev.seek(0, force=True)
        # The page cache has forgotten what it read.
        assert os.pread(fd, 4096, 0) == bytes(4096)
        os.close(fd)


def test_a_full_journal_counts_what_it_lost_and_refuses_to_seek() -> None:
    with lab.Device("4M") as dev:
        dev.journal_start("64K")
        for n in range(40):
            write(dev.path, b"z" * 4096, n * 4096)
        info = dev.journal_info()
        assert info.overflow > 0
        assert info.entries + info.overflow == 40
        assert info.next_sequence == 41
        assert dev.journal().metadata["overflow"] == str(info.overflow)
        with pytest.raises(OSError, match="its journal has a gap") as caught:
            dev.seek(0)
        assert caught.value.errno == errno.EOVERFLOW


def test_a_power_cut_is_in_the_journal(tmp_path: Path) -> None:
    with lab.Device("1M", cache=True) as dev:
        dev.journal_start("4M")
        write(dev.path, b"1" * 4096)
        flush(dev.path)
        write(dev.path, b"2" * 4096)
        before = dev.journal_info().next_sequence - 1
        dev.power_cut("all")
        dev.power_on()
        assert read(dev.path, 4096) == b"1" * 4096
        dev.seek(before)
        assert read(dev.path, 4096) == b"2" * 4096
        dev.seek()
        assert read(dev.path, 4096) == b"1" * 4096
        assert dev.export_log_writes(tmp_path / "log") == len(dev.journal())
        assert (tmp_path / "log").read_bytes()[:8] == (0x6A736677736872).to_bytes(8, "little")


def test_a_failed_write_of_a_fault_rule_is_no_lie_in_the_journal() -> None:
    with lab.Device("1M") as dev:
        dev.journal_start("1M")
        dev.set_faults([lab.Fault(action="torn_write", sectors=2, errno=errno.EIO)])
        with pytest.raises(OSError, match="error"):
            write(dev.path, b"t" * 4096)
        (row,) = dev.journal().rows()
        assert (row["sectors"], row["failed"]) == (2, 1)
        dev.seek(0)
        assert read(dev.path, 4096) == bytes(4096)


def test_snapshots_restore_and_clones_live_apart() -> None:
    with lab.Device("1M") as dev:
        write(dev.path, b"1" * 65536)
        one = dev.snapshot_take()
        write(dev.path, b"2" * 4096, 4096)
        discard(dev.path, 16384, 8192)
        two = dev.snapshot_take()
        write(dev.path, b"3" * 1024, 512)
        assert dev.snapshots() == [one, two]
        state_two = b"1" * 4096 + b"2" * 4096 + b"1" * 8192 + bytes(8192) + b"1" * (65536 - 24576)
        with dev.snapshot_clone(two) as clone:
            assert read(clone.path, 65536) == state_two
            write(clone.path, b"c" * 512)
            dev.snapshot_delete(two)
            dev.snapshot_restore(one)
            assert read(dev.path, 65536) == b"1" * 65536
            assert read(clone.path, 65536) == b"c" * 512 + state_two[512:]
        with pytest.raises(FileNotFoundError):
            dev.snapshot_restore(two)
        dev.snapshot_delete(one)
        assert read(dev.path, 65536) == b"1" * 65536
        assert dev.info().allocated_bytes == 65536


def test_a_snapshot_that_is_gone_leaves_nothing_below_those_that_stay() -> None:
    with lab.Device("1M") as dev:
        kept = dev.snapshot_take()
        for fill in range(1, 9):
            write(dev.path, bytes([fill]) * 65536)
            before, kept = kept, dev.snapshot_take()
            dev.snapshot_delete(before)
            assert dev.info().allocated_bytes == 65536
        write(dev.path, b"n" * 4096)
        with dev.snapshot_clone(kept) as clone:
            assert read(clone.path, 65536) == b"\x08" * 65536
            # A clone of a clone, and so on, after whose devices nothing is left either.
            devices = [clone]
            try:
                for _ in range(4):
                    write(devices[-1].path, b"c" * 65536)
                    devices.append(devices[-1].snapshot_clone(devices[-1].snapshot_take()))
                    if len(devices) > 2:
                        devices.pop(-2).close()
                assert devices[-1].info().allocated_bytes <= 4 * 65536
                assert read(devices[-1].path, 65536) == b"c" * 65536
            finally:
                for one in devices[1:]:
                    one.close()
        dev.snapshot_restore(kept)
        assert read(dev.path, 65536) == b"\x08" * 65536


def test_the_memory_of_snapshots_is_counted_wherever_the_device_is() -> None:
    with lab.Device("1M") as dev:
        taken = []
        for fill in b"abc":
            write(dev.path, bytes([fill]) * 65536)
            taken.append(dev.snapshot_take())
        assert dev.info().allocated_bytes == 3 * 65536
        for snapshot in taken:
            dev.snapshot_restore(snapshot)
            assert dev.info().allocated_bytes == 3 * 65536
        dev.snapshot_restore(taken[0])
        dev.snapshot_delete(taken[2])
        assert dev.info().allocated_bytes == 2 * 65536


def test_what_is_in_the_way_of_a_snapshot_or_another_size_is_named() -> None:
    with lab.Device("1M") as dev, lab.Device("1M") as other:
        snapshots = [dev.snapshot_take() for _ in range(64)]
        with pytest.raises(OSError, match="it has 64 snapshots"):
            dev.snapshot_take()
        with pytest.raises(FileExistsError, match=f"{other.path}, which the clone was to be"):
            dev.snapshot_clone(snapshots[0], index=other.index)
        with pytest.raises(OSError, match="it has snapshots"):
            dev.resize("2M")


def test_the_state_of_a_sequence_is_mounted_while_recording_goes_on() -> None:
    with lab.Device("64M") as dev:
        fs = dev.mkfs("ext4")
        dev.journal_start("128M")
        with fs.mount() as mnt:
            (mnt / "first").write_text("1")
            os.sync()
            sequence = dev.mark("first is there")
            (mnt / "second").write_text("2")
            os.sync()
            snapshot = dev.snapshot_take(sequence)
            with dev.snapshot_clone(snapshot) as clone, clone.filesystem("ext4").mount() as past:
                assert (past / "first").read_text() == "1"
                assert not (past / "second").exists()
            (mnt / "third").write_text("3")
        assert dev.journal_info().overflow == 0
        dev.snapshot_delete(snapshot)


def test_memory_comes_back() -> None:
    with lab.Device("16M", cache=True) as dev:
        for _ in range(20):
            snapshot = dev.snapshot_take()
            write(dev.path, b"m" * (1 << 20))
            dev.snapshot_restore(snapshot)
            dev.snapshot_delete(snapshot)
        assert dev.info().allocated_bytes == 0
