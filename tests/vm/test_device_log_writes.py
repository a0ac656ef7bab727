# SPDX-License-Identifier: MIT
"""The exported journal against readers that know nothing of us: dm-log-writes' format as its kernel file has it, and
replay-log (https://github.com/josefbacik/log-writes, and xfstests) where that is installed."""

import os
import random
import shutil
import struct
import subprocess
from pathlib import Path

import pytest
from blockio import discard, flush, read, write

import sampleblk_lab as lab

pytestmark = pytest.mark.each_kernel

BYTES = 1 << 20
# drivers/md/dm-log-writes.c: struct log_write_super, struct log_write_entry and the flags.
SUPER = struct.Struct("<QQQL")
ENTRY = struct.Struct("<QQQQ")
FLUSH, FUA, DISCARD, MARK = 1, 2, 4, 8


def recorded(dev: lab.Device, chance: random.Random, operations: int) -> list[tuple[str, bytes]]:
    """Does something and marks it now and then, flushed, as dm-log-writes logs a write when it is durable.

    Returns what the device held at each mark.
    """
    states = []
    for n in range(operations):
        sector = chance.randrange(0, BYTES // 4096)  # few enough for writes over those that no flush has made durable
        what = chance.random()
        if what < 0.7:
            size = chance.randrange(1, 64) * 512
            write(dev.path, os.urandom(1) * size, sector * 512, dsync=chance.random() < 0.2)
        elif what < 0.85:
            discard(dev.path, sector * 512, chance.randrange(1, 64) * 512)
        else:
            flush(dev.path)
        if n % 10 == 9:
            flush(dev.path)
            name = f"step-{n}"
            dev.mark(name)
            states.append((name, read(dev.path, BYTES)))
    return states


def test_a_recording_that_fails_leaves_no_log_of_the_one_before(tmp_path: Path) -> None:
    """Its base and the log of before would have been states that never were."""
    with lab.Device("1M", cache=True) as dev:
        with lab.crash.recording(dev, tmp_path) as log:
            write(dev.path, b"a" * 4096, 0)
        before = lab.crash.Log(log, base=tmp_path / "base.img")
        write(dev.path, b"b" * 4096, 0)
        flush(dev.path)
        with pytest.raises(RuntimeError, match="in the middle"), lab.crash.recording(dev, tmp_path):
            raise RuntimeError("in the middle")
        assert not log.exists()
        with pytest.raises(lab.InputError, match=r"base\.img: it has changed since the log was read"):
            before.write(before.state(0), tmp_path / "image")


def test_the_export_replays_to_what_the_device_held_at_each_mark(tmp_path: Path) -> None:
    with lab.Device(BYTES, cache=True) as dev:
        dev.journal_start("16M")
        states = dict(recorded(dev, random.Random(21), 100))
        assert dev.journal_info().overflow == 0
        count = dev.export_log_writes(tmp_path / "log")
    log = (tmp_path / "log").read_bytes()
    magic, version, entries, sector_bytes = SUPER.unpack_from(log)
    assert (magic, version, entries, sector_bytes) == (0x6A736677736872, 1, count, 512)
    disk = bytearray(BYTES)
    seen: set[str] = set()
    flags_seen = 0
    at = sector_bytes
    for _ in range(entries):
        sector, sectors, flags, length = ENTRY.unpack_from(log, at)
        flags_seen |= flags
        if flags & MARK:
            name = log[at + ENTRY.size : at + ENTRY.size + length].decode()
            assert disk == states[name], name
            seen.add(name)
        at += sector_bytes
        if flags & DISCARD:
            disk[sector * 512 : (sector + sectors) * 512] = bytes(sectors * 512)
        elif not flags & MARK:
            disk[sector * 512 : (sector + sectors) * 512] = log[at : at + sectors * 512]
            at += sectors * 512
    assert at == len(log)
    assert seen == set(states)
    assert flags_seen & (FLUSH | FUA | DISCARD | MARK) == FLUSH | FUA | DISCARD | MARK


@pytest.mark.skipif(shutil.which("replay-log") is None, reason="replay-log is not installed")
def test_replay_log_agrees_at_every_mark(tmp_path: Path) -> None:
    with lab.Device(BYTES, cache=True) as dev, lab.Device(BYTES) as replayed:
        dev.journal_start("16M")
        states = recorded(dev, random.Random(22), 60)
        dev.export_log_writes(tmp_path / "log")
        for name, state in states:
            discard(replayed.path, 0, BYTES)
            command = ["replay-log", "--log", str(tmp_path / "log"), "--replay", replayed.path, "--end-mark", name]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stdout + done.stderr
            flush(replayed.path)
            assert read(replayed.path, BYTES) == state, name
