# SPDX-License-Identifier: MIT
"""The moment of a power cut under load, and what the page cache and file systems see of a device that is moved."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import struct
import threading
import time
from pathlib import Path

import pytest
from blockio import Background, aligned, flush, read, until, write

import sampleblk_lab as lab

pytestmark = pytest.mark.each_kernel

both_modes = pytest.mark.parametrize("mode", ["mq", "bio"])

# linux/blkpg.h
_BLKPG, _BLKPG_ADD_PARTITION = 0x1269, 1


def buffered(fd: int, size: int, offset: int = 0) -> bytes:
    """A read through the page cache."""
    return os.pread(fd, size, offset)


def add_partition(path: str, number: int, start: int, length: int) -> str:
    """Makes a partition, in bytes, without a table on the disk; its path."""
    partition = struct.pack("qqi64s64s4x", start, length, number, b"", b"")
    buffer = ctypes.create_string_buffer(partition, len(partition))
    argument = struct.pack("iiixxxxP", _BLKPG_ADD_PARTITION, 0, len(partition), ctypes.addressof(buffer))
    fd = os.open(path, os.O_RDONLY)
    try:
        fcntl.ioctl(fd, _BLKPG, argument)
    finally:
        os.close(fd)
    return f"{path}p{number}"


@both_modes
def test_nothing_is_written_or_acknowledged_after_a_cut_without_a_cache(mode: str) -> None:
    """A bio of many MiB that is being copied when the power goes ends before the call does, or not at all.

    What a write submits later must not be mistaken for it: the power stays off until the write has ended. Its source is
    another one from the cut on, from its end, so that a copy that goes on meets it.
    """
    size, step = 24 << 20, 1 << 20
    later = b"\xee" * step
    with lab.Device("32M", mode=mode, max_sectors=size >> 9 if mode == "bio" else 0, max_segments=1024) as dev:
        data = mmap.mmap(-1, size)
        if Path("/sys/kernel/mm/transparent_hugepage").exists():  # not of PREEMPT_RT: then its bios are of less
            data.madvise(mmap.MADV_HUGEPAGE)
        fd = os.open(dev.path, os.O_RDWR | os.O_DIRECT)
        back = mmap.mmap(-1, size)
        for n in range(1, 9):
            data[:] = bytes([n]) * size
            late = Background(os.pwrite, fd, data, 0)
            time.sleep(0.002 * n)
            dev.power_cut()
            for at in range(size - step, -1, -step):
                data[at : at + step] = later
            error = late.error()
            dev.power_on()
            os.preadv(fd, [back], 0)
            assert b"\xee" not in back[:], f"cut {n}: something came later"
            if error is None:
                assert back[:] == bytes([n]) * size, f"cut {n}: acknowledged, and not there"
        os.close(fd)


@both_modes
def test_no_read_succeeds_on_data_that_is_half_rolled_back(mode: str) -> None:
    size = 1 << 20
    with lab.Device("2M", mode=mode, queues=2, cache=True, cache_size="4M") as dev:
        wrong: list[int] = []
        for n in range(25):
            write(dev.path, b"o" * size)
            flush(dev.path)
            write(dev.path, b"n" * size)
            stop = threading.Event()

            def reads(stop: threading.Event = stop, n: int = n) -> None:
                fd = os.open(dev.path, os.O_RDONLY | os.O_DIRECT)
                back = mmap.mmap(-1, size)
                while not stop.is_set():
                    try:
                        os.preadv(fd, [back], 0)
                    except OSError:
                        break
                    if back[:] != b"n" * size:
                        wrong.append(n)
                os.close(fd)

            reader = Background(reads)
            time.sleep(0.01)
            dev.power_cut("all")
            stop.set()
            assert reader.error() is None
            dev.power_on()
        assert wrong == []


@both_modes
def test_without_power_everything_fails_at_once_also_what_a_rule_would_let_hang(mode: str) -> None:
    with lab.Device("1M", mode=mode) as dev:
        dev.set_faults([lab.Fault(action="hang", ops=("read", "write", "flush"))])
        dev.set_timing("constant", 10_000_000_000, ops=("read", "write"))
        hung = Background(read, dev.path, 4096)
        until(lambda: dev.counters().faults)
        begin = time.monotonic()
        dev.power_cut()
        assert hung.error(3) == errno.EIO
        assert Background(read, dev.path, 4096).error(3) == errno.EIO
        assert Background(write, dev.path, b"x" * 4096).error(3) == errno.EIO
        assert time.monotonic() - begin < 3
        assert dev.faults()[0].hits == 1


@both_modes
def test_what_was_on_its_way_when_the_power_went_does_not_come_to_the_medium_later(mode: str) -> None:
    """Deferred commands of before the cut fail also when the power is back before the worker comes to them."""
    with lab.Device("1M", mode=mode, cache=True) as dev:
        dev.set_timing("constant", 3_000_000_000, ops="write")
        late = Background(write, dev.path, b"n" * 4096)
        until(lambda: dev.counters().delayed)
        dev.power_cut("all")
        dev.power_on()
        assert late.error(2) == errno.EIO
        assert read(dev.path, 4096) == bytes(4096)
        assert dev.volatile_writes() == []


def test_power_on_empties_the_page_cache_of_open_partitions_too() -> None:
    with lab.Device("2M", cache=True) as dev:
        partition = add_partition(dev.path, 1, 1 << 20, 1 << 20)
        write(partition, b"o" * 4096)
        flush(dev.path)
        with Path(partition).open("rb", buffering=0) as part, Path(dev.path).open("rb", buffering=0) as whole:
            write(partition, b"n" * 4096)
            assert buffered(part.fileno(), 4096) == buffered(whole.fileno(), 4096, 1 << 20) == b"n" * 4096
            dev.power_cut("all")
            dev.power_on()
            assert buffered(whole.fileno(), 4096, 1 << 20) == b"o" * 4096
            assert buffered(part.fileno(), 4096) == b"o" * 4096


@pytest.mark.parametrize("how", ["restore", "seek"])
def test_a_device_that_is_moved_by_force_shows_nothing_old_in_its_partitions(how: str) -> None:
    with lab.Device("2M") as dev:
        partition = add_partition(dev.path, 1, 1 << 20, 1 << 20)
        snapshot = dev.snapshot_take()
        if how == "seek":
            dev.journal_start("1M")
        write(partition, b"n" * 4096)
        fd = os.open(partition, os.O_RDWR)
        assert buffered(fd, 4096) == b"n" * 4096
        # Dirty, and so to be written to the store that it knows nothing of.
        os.pwrite(fd, b"d" * 4096, 4096)
        with pytest.raises(OSError, match="busy"):
            dev.seek(0) if how == "seek" else dev.snapshot_restore(snapshot)
        if how == "seek":
            dev.seek(0, force=True)
        else:
            dev.snapshot_restore(snapshot, force=True)
        os.sync()
        assert buffered(fd, 8192) == bytes(8192)
        assert read(dev.path, 8192, 1 << 20) == bytes(8192)
        os.close(fd)


def test_a_mounted_device_is_not_moved_by_any_force() -> None:
    with lab.Device("64M", cache=True) as dev:
        fs = dev.mkfs("ext4")
        snapshot = dev.snapshot_take()
        with fs.mount() as mnt:
            (mnt / "a").write_text("a")
            with pytest.raises(OSError, match=r"journal_stop\(\); or it is mounted"):
                dev.snapshot_restore(snapshot, force=True)
            dev.journal_start("1M")
            with pytest.raises(OSError, match="unmount it; force=True is for what is only open"):
                dev.seek(0, force=True)
            dev.journal_stop()
            dev.power_cut()
            with pytest.raises(OSError, match="it is mounted: unmount it") as caught:
                dev.power_on()
            assert caught.value.errno == errno.EBUSY
            assert not dev.info().powered
        dev.power_on()
        with fs.mount():
            pass
        assert fs.fsck()


def test_an_idle_file_system_keeps_its_page_cache() -> None:
    """One whose buffers were taken away answered with EBADMSG, and oopsed in its journal."""
    with lab.Device("64M", cache=True) as dev:
        fs = dev.mkfs("ext4")
        with fs.mount() as mnt:
            (mnt / "a").write_text("a")
            os.sync()
            dev.power_cut("all")
            with pytest.raises(OSError, match="busy"):
                dev.power_on()
            assert (mnt / "a").read_text() == "a"
            (mnt / "a").write_text("b")
        dev.power_on()


@both_modes
def test_a_device_that_becomes_read_only_fails_the_writes_of_a_mount(mode: str) -> None:
    with lab.Device("64M", mode=mode) as dev:
        fs = dev.mkfs("ext4")
        mnt = fs.mount().__enter__()
        try:
            file = os.open(mnt / "a", os.O_CREAT | os.O_WRONLY)
            os.write(file, b"a" * 4096)
            os.fsync(file)
            raw = os.open(dev.path, os.O_WRONLY | os.O_DIRECT)
            written = dev.counters()
            dev.tune(read_only=True)
            os.pwrite(file, b"b" * 4096, 0)
            with pytest.raises(OSError):  # noqa: PT011 (which one is the file system's choice)
                os.fsync(file)
            with pytest.raises(OSError):  # noqa: PT011 (EPERM by the kernel or EIO by us)
                os.pwrite(raw, aligned(b"c" * 4096), 0)
            os.close(raw)
            os.close(file)
            now = dev.counters()
            assert now.write_bytes - written.write_bytes == 0 or now.errors > written.errors
            dev.tune(read_only=False)
        finally:
            fs.close()
        assert read(dev.path, 4096)[1080:1082] == b"\x53\xef"


def test_a_device_that_becomes_read_only_fails_the_writes_of_a_mapping() -> None:
    with lab.Device("1M") as dev:
        fd = os.open(dev.path, os.O_RDWR)
        with mmap.mmap(fd, 4096) as mapped:
            dev.tune(read_only=True)
            mapped[:4] = b"late"
            with pytest.raises(OSError):  # noqa: PT011 (EIO, or what the kernel makes of it)
                mapped.flush()
        os.close(fd)
        dev.tune(read_only=False)
        assert read(dev.path, 4096) == bytes(4096)
