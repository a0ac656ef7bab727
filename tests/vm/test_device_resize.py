# SPDX-License-Identifier: MIT
"""A device that grows and shrinks while it is used."""

from __future__ import annotations

import errno
import fcntl
import os
import random
import struct
import subprocess
import threading
from pathlib import Path

import pytest
from blockio import Background, aligned, discard, flush, read, until, write

import sampleblk_lab as lab
from sampleblk_lab.errors import SampleblkError

pytestmark = pytest.mark.each_kernel

both_modes = pytest.mark.parametrize("mode", ["mq", "bio"])

# linux/fs.h: _IOR(0x12, 114, size_t)
_BLKGETSIZE64 = 0x80081272


def size_of(path: str) -> int:
    """The size that the kernel gives a block device."""
    fd = os.open(path, os.O_RDONLY)
    try:
        return int(struct.unpack("Q", fcntl.ioctl(fd, _BLKGETSIZE64, bytes(8)))[0])
    finally:
        os.close(fd)


@both_modes
def test_what_is_new_is_zero_and_what_is_cut_off_is_gone(mode: str) -> None:
    with lab.Device("1M", mode=mode) as dev:
        write(dev.path, b"a" * (1 << 20))
        dev.resize("64M")
        assert size_of(dev.path) == dev.info().capacity_bytes == 64 << 20
        assert read(dev.path, 2 << 20) == b"a" * (1 << 20) + bytes(1 << 20)
        write(dev.path, b"b" * 4096, (64 << 20) - 4096)
        assert read(dev.path, 4096, (64 << 20) - 4096) == b"b" * 4096
        dev.resize(66048)
        assert size_of(dev.path) == 66048
        assert dev.info().allocated_bytes == 17 * 4096
        fd = os.open(dev.path, os.O_RDONLY)
        assert os.pread(fd, 4096, 66048) == b""
        os.close(fd)
        dev.resize("64M")
        assert read(dev.path, 131072) == b"a" * 66048 + bytes(65024)
        assert read(dev.path, 4096, (64 << 20) - 4096) == bytes(4096)
        dev.resize("64M")


@both_modes
def test_a_size_that_cannot_be_is_refused_and_changes_nothing(mode: str) -> None:
    def refused(code: int, capacity: int | str) -> None:
        before = dev.info().capacity_bytes
        with pytest.raises(OSError, match=os.strerror(code)) as caught:
            dev.resize(capacity)
        assert caught.value.errno == code
        assert size_of(dev.path) == dev.info().capacity_bytes == before

    with lab.Device("1M", mode=mode, logical_block=4096) as dev:
        refused(errno.EINVAL, (1 << 20) + 512)
        refused(errno.EINVAL, 0)
        refused(errno.EINVAL, 2**64 - 4096)
        refused(errno.EFBIG, "4T")
        snapshot = dev.snapshot_take()
        refused(errno.EBUSY, "2M")
        refused(errno.EBUSY, "512K")
        with dev.snapshot_clone(snapshot) as clone, pytest.raises(OSError, match="busy"):
            clone.resize("2M")
        dev.snapshot_delete(snapshot)
        dev.journal_start("1M")
        refused(errno.EBUSY, "2M")
        dev.journal_stop()
        dev.resize("2M")


def test_a_snapshot_after_a_resize_holds_what_was_there() -> None:
    with lab.Device("8M") as dev:
        write(dev.path, b"1" * 4096, (8 << 20) - 4096)
        dev.resize("1M")
        write(dev.path, b"2" * 4096)
        snapshot = dev.snapshot_take()
        write(dev.path, b"3" * 4096)
        with dev.snapshot_clone(snapshot) as clone:
            assert size_of(clone.path) == 1 << 20
            assert read(clone.path, 4096) == b"2" * 4096
        dev.snapshot_restore(snapshot)
        assert read(dev.path, 1 << 20) == b"2" * 4096 + bytes((1 << 20) - 4096)
        dev.snapshot_delete(snapshot)
        dev.resize("16M")
        assert read(dev.path, 4096, (8 << 20) - 4096) == bytes(4096)


@both_modes
def test_what_is_volatile_stays_so_where_the_device_grows(mode: str) -> None:
    with lab.Device(66048, mode=mode, cache=True) as dev:  # its last page has one sector
        write(dev.path, b"o" * 66048)
        flush(dev.path)
        write(dev.path, b"v" * 8704, 57344)
        discard(dev.path, 0, 8192)
        dev.resize("64M")
        write(dev.path, b"n" * 8192, 61440)
        assert read(dev.path, 8192 + 4096, 57344) == b"v" * 4096 + b"n" * 8192
        first, second, third = dev.volatile_writes()
        assert dev.power_cut("explicit", survivors={first.id: 16, third.id: 9}).dropped == 1
        dev.power_on()
        left = b"o" * 57344 + b"v" * 4096 + b"n" * 4608
        assert read(dev.path, 131072) == left + bytes(131072 - len(left))
        assert second.zeroes


@both_modes
def test_what_is_volatile_is_durable_where_the_device_shrinks(mode: str) -> None:
    with lab.Device("1M", mode=mode, cache=True) as dev:
        write(dev.path, b"v" * 4096)
        write(dev.path, b"w" * 4096, (1 << 20) - 4096)
        dev.resize("512K")
        assert dev.volatile_writes() == []
        dev.resize("1M")
        write(dev.path, b"x" * 4096, 4096)
        assert dev.power_cut("all").dropped == 1
        dev.power_on()
        assert read(dev.path, 1 << 20) == b"v" * 4096 + bytes((1 << 20) - 4096)


def test_a_misdirected_write_does_not_leave_the_device() -> None:
    with lab.Device("8M") as dev:
        dev.set_faults([lab.Fault(action="misdirected_write", sector=16000)])
        dev.resize("1M")
        write(dev.path, b"m" * 4096)
        assert read(dev.path, 1 << 20) == bytes(1 << 20)


@both_modes
def test_a_device_is_resized_under_load(mode: str) -> None:
    with lab.Device("4M", mode=mode, queues=2, cache=True) as dev:
        stop = threading.Event()

        def load(seed: int) -> None:
            chance = random.Random(seed)
            fd = os.open(dev.path, os.O_RDWR | os.O_DIRECT)
            data = aligned(bytes([seed + 1]) * 16384)
            while not stop.is_set():
                try:
                    if chance.random() < 0.5:
                        os.pwrite(fd, data, chance.randrange(16 << 8) * 4096)
                    else:
                        os.preadv(fd, [data], chance.randrange(16 << 8) * 4096)
                except OSError as error:
                    # Beyond the end, which moves.
                    assert error.errno in (errno.ENOSPC, errno.EIO)  # noqa: PT017
            os.close(fd)

        workers = [Background(load, seed) for seed in range(3)]
        for n in range(30):
            dev.resize(("16M", "1M", "4M", 1056768)[n % 4])
        stop.set()
        for worker in workers:
            assert worker.error(20) is None
        flush(dev.path)


@both_modes
def test_a_resize_that_is_refused_is_noticed_by_nobody(mode: str) -> None:
    with lab.Device("16M", mode=mode) as dev:
        snapshot = dev.snapshot_take()
        with dev.snapshot_clone(snapshot) as clone:
            dev.snapshot_delete(snapshot)
            stop = threading.Event()

            def look() -> None:
                fd = os.open(clone.path, os.O_RDONLY | os.O_DIRECT)
                buffer = aligned(bytes(4096))
                while not stop.is_set():
                    if os.preadv(fd, [buffer], 15 << 20) != 4096:
                        raise OSError(errno.EIO, "the end has moved")
                os.close(fd)

            looker = Background(look)
            # So long does each of them wait for those that look.
            clone.set_timing("constant", 20_000_000)
            for _ in range(5):
                with pytest.raises(OSError, match="busy"):
                    clone.resize("1M")
            stop.set()
            assert looker.error() is None


@both_modes
def test_a_device_is_resized_when_its_clones_are_gone(mode: str) -> None:
    with lab.Device("2M", mode=mode, cache=True) as dev:
        write(dev.path, b"1" * 4096)
        snapshot = dev.snapshot_take()
        write(dev.path, b"2" * 4096, 4096)
        with dev.snapshot_clone(snapshot):
            dev.snapshot_delete(snapshot)
        dev.resize("1M")
        assert read(dev.path, 8192) == b"1" * 4096 + b"2" * 4096


@both_modes
def test_what_is_sent_beyond_an_end_that_has_moved_fails(mode: str) -> None:
    """Of a partition the block layer knows the size as it was."""
    with lab.Device("16M", mode=mode, cache=True) as dev:
        subprocess.run(["addpart", dev.path, "1", "16384", "16384"], check=True)
        partition = f"{dev.path}p1"
        until(Path(partition).exists)
        write(partition, b"p" * 8192, 1 << 20)
        fd = os.open(partition, os.O_RDWR)
        assert os.pread(fd, 4096, 1 << 20) == b"p" * 4096
        dev.resize((9 << 20) + 4096)
        errors = dev.counters().errors
        for refused in (lambda: write(partition, b"q" * 8192, 1 << 20), lambda: read(partition, 8192, 2 << 20)):
            with pytest.raises(OSError, match=os.strerror(errno.EIO)):
                refused()
        assert dev.counters().errors == errors + 2
        write(partition, b"r" * 4096, 1 << 20)
        assert [each.sector for each in dev.volatile_writes()] == [18432]
        # In the page cache only.
        os.pwrite(fd, b"s" * 4096, 3 << 20)
        with pytest.raises(OSError, match=os.strerror(errno.EIO)):
            os.fsync(fd)
        dev.resize("16M")
        assert os.pread(fd, 8 << 20, 0) == read(partition, 8 << 20)
        os.close(fd)
        assert read(partition, 8 << 20) == bytes(1 << 20) + b"r" * 4096 + bytes((7 << 20) - 4096)


@both_modes
@pytest.mark.parametrize("written", ["clean", "dirty"])
def test_the_page_cache_forgets_what_is_cut_off(mode: str, written: str) -> None:
    with lab.Device("16M", mode=mode) as dev:
        fd = os.open(dev.path, os.O_RDWR)
        os.pwrite(fd, b"c" * 65536, 8 << 20)
        if written == "clean":
            os.fsync(fd)
        dev.resize("1M")
        dev.resize("16M")
        assert os.pread(fd, 65536, 8 << 20) == bytes(65536)
        os.close(fd)


@both_modes
@pytest.mark.parametrize("written", ["clean", "dirty"])
def test_the_page_cache_forgets_what_is_cut_off_of_its_last_page(mode: str, written: str) -> None:
    with lab.Device("1M", mode=mode) as dev:
        fd = os.open(dev.path, os.O_RDWR)
        os.pwrite(fd, b"c" * 8192, 65536)
        if written == "clean":
            os.fsync(fd)
        dev.resize(66048)
        dev.resize("1M")
        kept = os.pread(fd, 8192, 65536)
        assert kept[512:] == bytes(7680)
        assert kept[:512] == b"c" * 512
        os.fsync(fd)
        os.close(fd)
        assert read(dev.path, 8192, 65536) == b"c" * 512 + bytes(7680)


@both_modes
def test_bad_sectors_go_on_where_the_device_grows(mode: str) -> None:
    with lab.Device("1M", mode=mode) as dev:
        dev.set_faults([lab.Fault(action="bad_sector", first_sector=2040, ops=("read", "write"))])
        write(dev.path, b"r" * 512, 2041 * 512)
        dev.resize("2M")
        for sector, bad in ((2039, False), (2040, True), (2041, False), (2048, True), (4095, True)):
            if bad:
                with pytest.raises(OSError, match=os.strerror(errno.ENODATA)):
                    read(dev.path, 512, sector * 512)
            else:
                read(dev.path, 512, sector * 512)
        # A bit for each, of which there are not so many.
        with pytest.raises(OSError, match=os.strerror(errno.EINVAL)):
            dev.resize("16G")
        assert dev.info().capacity_bytes == 2 << 20
        dev.set_faults([])
        dev.resize("16G")


def test_a_mounted_ext4_grows() -> None:
    with lab.Device("64M") as dev:
        fs = dev.mkfs("ext4")
        with fs.mount() as mnt:
            before = os.statvfs(mnt).f_blocks
            (mnt / "a").write_text("a")
            dev.resize("128M")
            subprocess.run(["resize2fs", dev.path], check=True, capture_output=True)
            assert os.statvfs(mnt).f_blocks > before * 1.8
            (mnt / "b").write_bytes(b"b" * (80 << 20))
            assert (mnt / "a").read_text() == "a"
        assert fs.fsck()


def test_an_ext4_shrinks_and_its_device_after_it() -> None:
    with lab.Device("128M") as dev:
        fs = dev.mkfs("ext4")
        with fs.mount() as mnt:
            (mnt / "a").write_bytes(b"a" * (8 << 20))
        subprocess.run(["e2fsck", "-fy", dev.path], check=True, capture_output=True)
        subprocess.run(["resize2fs", dev.path, "64M"], check=True, capture_output=True)
        dev.resize("64M")
        with fs.mount() as mnt:
            assert (mnt / "a").read_bytes() == b"a" * (8 << 20)
        assert fs.fsck()


def test_a_mounted_xfs_grows() -> None:
    with lab.Device("320M") as dev:
        fs = dev.mkfs("xfs")
        with fs.mount() as mnt:
            before = os.statvfs(mnt).f_blocks
            dev.resize("512M")
            subprocess.run(["xfs_growfs", str(mnt)], check=True, capture_output=True)
            assert os.statvfs(mnt).f_blocks > before * 1.4


def test_a_recording_is_not_begun_with_what_another_size_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with lab.Device("1M", cache=True) as dev:
        start = dev.journal_start

        def late(size: int | str) -> None:
            dev.resize("2M")
            start(size)

        monkeypatch.setattr(dev, "journal_start", late)
        with pytest.raises(SampleblkError, match="written to or resized"), lab.crash.recording(dev, tmp_path):
            pass
        assert dev.journal_info().bytes == 0
