# SPDX-License-Identifier: MIT
"""Atomic writes, which are whole or not at all after a power cut, and what kernels without them say."""

from __future__ import annotations

import errno
import os
import subprocess
from pathlib import Path

import pytest
from blockio import aligned, flush, leave_pages, little_memory, read, write

import sampleblk_lab as lab

pytestmark = pytest.mark.each_kernel

both_modes = pytest.mark.parametrize("mode", ["mq", "bio"])

VERSION = tuple(map(int, os.uname().release.split(".")[:2]))

# linux/fs.h
_RWF_ATOMIC = 0x40


def has_atomic_writes() -> bool:
    """Whether the kernel has them: each block device then says how large one can be."""
    with lab.Device("1M") as dev:
        return Path(f"/sys/block/{dev.name}/queue/atomic_write_unit_max_bytes").exists()


def write_atomically(path: str, data: bytes, offset: int) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_DIRECT)
    try:
        assert os.pwritev(fd, [aligned(data)], offset, _RWF_ATOMIC) == len(data)
    finally:
        os.close(fd)


def test_a_kernel_without_atomic_writes_says_so() -> None:
    if has_atomic_writes():
        pytest.skip("this kernel has atomic writes")
    with pytest.raises(lab.UnsupportedError, match=r"atomic writes: Linux .* has none; use 6\.11 or newer"):
        lab.Device("1M", atomic_write="16K")


@both_modes
def test_a_cut_keeps_an_atomic_write_whole_or_not_at_all(mode: str) -> None:
    if not has_atomic_writes():
        pytest.skip("needs Linux 6.11")
    with lab.Device("1M", mode=mode, cache=True, atomic_write="16K", atomic_write_min=4096) as dev:
        queue = Path(f"/sys/block/{dev.name}/queue")
        assert (queue / "atomic_write_unit_max_bytes").read_text() == "16384\n"
        assert (queue / "atomic_write_unit_min_bytes").read_text() == "4096\n"
        assert dev.info().atomic_write_unit_max_bytes == 16384
        old, new = b"o" * 16384, b"n" * 16384
        outcomes = set()
        for seed in range(30):
            write(dev.path, old)
            write(dev.path, old, 65536)
            flush(dev.path)
            write_atomically(dev.path, new, 0)
            write(dev.path, new, 65536)
            dev.power_cut("random", torn=True, survive_percent=60, seed=seed)
            dev.power_on()
            atomic, plain = read(dev.path, 16384), read(dev.path, 16384, 65536)
            assert atomic in (old, new), seed
            outcomes.add(("atomic", atomic == new))
            outcomes.add(("torn", plain not in (old, new)))
        assert outcomes == {("atomic", True), ("atomic", False), ("torn", True), ("torn", False)}
        # Asked for a part of it, none is kept.
        write(dev.path, old)
        flush(dev.path)
        dev.journal_start("1M")
        write_atomically(dev.path, new, 0)
        (volatile,) = dev.volatile_writes()
        assert [row["atomic"] for row in dev.journal().rows()] == [1]
        assert dev.power_cut("explicit", survivors={volatile.id: 8}).dropped == 1
        dev.power_on()
        assert read(dev.path, 16384) == old


@both_modes
def test_what_cannot_be_atomic_is_refused(mode: str) -> None:
    if not has_atomic_writes():
        pytest.skip("needs Linux 6.11")
    with lab.Device("1M", mode=mode, atomic_write=16384, atomic_write_min=4096, atomic_write_boundary=16384) as dev:
        write_atomically(dev.path, b"a" * 16384, 16384)
        for size, offset in ((32768, 0), (2048, 0), (8192, 4096), (12288, 0)):
            with pytest.raises(OSError, match="Invalid") as caught:
                write_atomically(dev.path, b"b" * size, offset)
            assert caught.value.errno == errno.EINVAL
    for wrong in (
        {"atomic_write": 12288},
        {"atomic_write": 16384, "atomic_write_min": 256},
        {"atomic_write": 16384, "atomic_write_min": 32768},
        {"atomic_write": 16384, "atomic_write_boundary": 8192},
        {"atomic_write_min": 4096},
        {"atomic_write": 1 << 24},
        # A request has no segments for its pages.
        {"atomic_write": "512K"},
        {"atomic_write": 8192, "max_segments": 3},
    ):
        with pytest.raises(lab.InputError, match=r"^atomic_write"):
            lab.Device("1M", mode=mode, **wrong)


@both_modes
@pytest.mark.parametrize(("size", "segments"), [(256 << 10, 0), (512 << 10, 256), (512, 1), (4096, 3), (8192, 4)])
def test_what_can_be_atomic_is_so_to_the_kernel(mode: str, size: int, segments: int) -> None:
    """It may make less of it, and then refuses what the device was made for."""
    if not has_atomic_writes():
        pytest.skip("needs Linux 6.11")
    with lab.Device("1M", mode=mode, atomic_write=size, atomic_write_min=size, max_segments=segments) as dev:
        queue = Path(f"/sys/block/{dev.name}/queue")
        for name in ("unit_max", "unit_min", "max"):
            assert int((queue / f"atomic_write_{name}_bytes").read_text()) == size, name
        write_atomically(dev.path, b"a" * size, size)
        assert read(dev.path, size, size) == b"a" * size
        assert dev.counters().writes == 1


@both_modes
def test_write_zeroes_say_that_they_give_memory_back(mode: str) -> None:
    """FALLOC_FL_WRITE_ZEROES is for devices that do."""
    with lab.Device("1M", mode=mode) as dev:
        queue = Path(f"/sys/block/{dev.name}/queue")
        if not (queue / "write_zeroes_unmap_max_hw_bytes").exists():
            pytest.skip("needs Linux 6.17")
        unmap = int((queue / "write_zeroes_unmap_max_hw_bytes").read_text())
        assert unmap == int((queue / "write_zeroes_max_bytes").read_text()) > 0


@pytest.mark.usefixtures("no_driver")
@both_modes
def test_without_memory_an_atomic_write_is_not_done_in_part(mode: str) -> None:
    if not has_atomic_writes():
        pytest.skip("needs Linux 6.11")
    subprocess.run(["rmmod", "sampleblk"], check=True)
    with little_memory(), lab.Device("1M", mode=mode, atomic_write="32K", partitions=False) as dev:
        before = b"o" * 8192 + bytes(24576)
        write(dev.path, before[:8192])
        with leave_pages(2):
            with pytest.raises(OSError, match="No space left"):
                write_atomically(dev.path, b"n" * 32768, 0)
            assert read(dev.path, 32768) == before


@pytest.mark.usefixtures("no_driver")
@both_modes
def test_without_memory_a_logical_block_is_not_written_in_part(mode: str) -> None:
    if VERSION < (6, 15):
        pytest.skip("needs Linux 6.15")
    with little_memory(), lab.Device("1M", mode=mode, logical_block="32K", partitions=False) as dev:
        write(dev.path, bytes(32768), 65536)
        with leave_pages(2):
            with pytest.raises(OSError, match="No space left"):
                write(dev.path, b"n" * 32768)
            assert read(dev.path, 32768) == bytes(32768)
