# SPDX-License-Identifier: MIT
"""What a discard frees of what it names: all, or the granules that lie whole in it, as the device is asked to be."""

from __future__ import annotations

import fcntl
import os
import random
import struct
from pathlib import Path
from typing import Any

import pytest
from blockio import flush, read, write

import sampleblk_lab as lab

pytestmark = pytest.mark.each_kernel

both_modes = pytest.mark.parametrize("mode", ["mq", "bio"])
# linux/fs.h
_BLKDISCARD = 0x1277
_BLKZEROOUT = 0x127F

BLOCK = 512
SIZE = 1 << 20

# As the driver changes what it holds: at once, behind a volatile cache, in a journal.
SHAPES: dict[str, dict[str, Any]] = {"plain": {}, "cache": {"cache": True}, "journal": {}}


def ask(path: str, request: int, offset: int, length: int) -> None:
    fd = os.open(path, os.O_WRONLY)
    try:
        fcntl.ioctl(fd, request, struct.pack("QQ", offset, length))
    finally:
        os.close(fd)


def freed(offset: int, length: int, granule: int, first: int) -> range:
    """The bytes of whole granules, found granule by granule."""
    whole = [at for at in range(first, offset + length, granule) if at >= offset and at + granule <= offset + length]
    return range(whole[0], whole[-1] + granule) if whole else range(0)


def parts(offset: int, length: int, granule: int, mode: str) -> list[tuple[int, int]]:
    """As a discard comes: split at the first multiple of the granularity, whatever the alignment.

    See bio_discard_limit() in block/blk-lib.c. What belongs together becomes one request again; a bio stays as it is.
    """
    split = -(-offset // granule) * granule
    if mode == "mq" or split == offset or split >= offset + length:
        return [(offset, length)]
    return [(offset, split - offset), (split, offset + length - split)]


@both_modes
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("granule", "first"), [(16384, 4096), (8192, 512), (65536, 65024)])
def test_a_discard_frees_whole_granules(mode: str, shape: str, granule: int, first: int) -> None:
    chance = random.Random(f"{mode} {shape} {granule}")
    options = {"discard_granularity": granule, "discard_alignment": first, "partitions": False}
    with lab.Device(SIZE, mode=mode, **options, **SHAPES[shape]) as dev:
        # (The file discard_alignment shows another number: disk_discard_alignment_show() of block/genhd.c.)
        assert int(Path(f"/sys/block/{dev.name}/queue/discard_granularity").read_text()) == granule
        info = dev.info()
        assert (info.discard_granularity_bytes, info.discard_alignment_bytes) == (granule, first)
        if shape == "journal":
            dev.journal_start()
        expected = bytearray(b"\xaa" * SIZE)
        write(dev.path, bytes(expected))
        ranges = [(0, granule), (first, granule), (first, granule - BLOCK), (first + BLOCK, granule), (0, SIZE)]
        for _ in range(20):
            offset = chance.randrange(0, SIZE // BLOCK) * BLOCK
            ranges.append((offset, chance.randrange(1, min(4 * granule, SIZE - offset) // BLOCK + 1) * BLOCK))
        for offset, length in ranges:
            refill = chance.randrange(0, SIZE // 65536) * 65536
            write(dev.path, b"\xbb" * 65536, refill)
            expected[refill : refill + 65536] = b"\xbb" * 65536
            ask(dev.path, _BLKDISCARD, offset, length)
            for part in parts(offset, length, granule, mode):
                gone = freed(*part, granule, first)
                expected[gone.start : gone.stop] = bytes(len(gone))
            assert read(dev.path, SIZE) == expected, (offset, length)
        if shape == "journal":
            rows = [row for row in dev.journal().rows() if row["type"] == "discard"]
            told = [range(row["sector"] * BLOCK, (row["sector"] + row["sectors"]) * BLOCK) for row in rows]
            # A large one is split by the block layer, at a granule.
            bounds = {at for gone in told for at in (gone.start, gone.stop)}
            assert all((at - first) % granule == 0 for at in bounds)
            dev.seek(0)
            assert read(dev.path, SIZE) == bytes(SIZE)
            dev.seek()
            assert read(dev.path, SIZE) == expected


def test_what_was_freed_is_volatile_and_what_was_not_stays() -> None:
    with lab.Device(SIZE, cache=True, discard_granularity="16K", partitions=False) as dev:
        write(dev.path, b"\xaa" * SIZE)
        flush(dev.path)
        ask(dev.path, _BLKDISCARD, 4096, 4096)
        assert dev.volatile_writes() == []
        ask(dev.path, _BLKDISCARD, 4096, 32768)
        assert read(dev.path, 49152) == b"\xaa" * 16384 + bytes(16384) + b"\xaa" * 16384
        dev.power_cut("all")
        dev.power_on()
        assert read(dev.path, 49152) == b"\xaa" * 49152


@both_modes
def test_write_zeroes_are_no_hint(mode: str) -> None:
    with lab.Device(SIZE, mode=mode, discard_granularity="64K", partitions=False) as dev:
        write(dev.path, b"\xaa" * SIZE)
        ask(dev.path, _BLKZEROOUT, 512, 1024)
        assert read(dev.path, 2048) == b"\xaa" * 512 + bytes(1024) + b"\xaa" * 512


def test_without_one_a_discard_frees_all_that_it_names() -> None:
    with lab.Device(SIZE, partitions=False) as dev:
        assert int(Path(f"/sys/block/{dev.name}/queue/discard_granularity").read_text()) == 4096
        write(dev.path, b"\xaa" * SIZE)
        ask(dev.path, _BLKDISCARD, 512, 1024)
        assert read(dev.path, 2048) == b"\xaa" * 512 + bytes(1024) + b"\xaa" * 512


@pytest.mark.parametrize(
    "wrong",
    [
        {"discard_granularity": 2048},  # below the physical block
        {"discard_granularity": 12288},
        {"discard_granularity": 2 << 30},
        {"discard_granularity": 16384, "discard_alignment": 16384},
        {"discard_granularity": 16384, "discard_alignment": 256},
        {"discard_alignment": 512},
        {"discard_granularity": 16384, "discard": False},
    ],
)
def test_no_device_can_be_like_that(wrong: dict[str, Any]) -> None:
    with pytest.raises(lab.InputError, match=r"^discard_\w+ "):
        lab.Device(SIZE, **wrong)
