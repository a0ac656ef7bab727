# SPDX-License-Identifier: MIT
"""Who submitted the writes of a recording, on this kernel: programs whose every write is known beforehand."""

import ctypes
import os
import threading
from pathlib import Path

import pytest
from blockio import aligned

import sampleblk_lab as lab

pytestmark = pytest.mark.each_kernel

KIB = 1024
PUNCH_HOLE, KEEP_SIZE = 2, 1


def named(name: str, call: object, *arguments: object) -> None:
    """Calls it in a thread that the kernel knows by this name."""

    def run() -> None:
        ctypes.CDLL(None).prctl(15, name.encode(), 0, 0, 0)  # PR_SET_NAME
        call(*arguments)  # type: ignore[operator]

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()


@pytest.mark.parametrize("mode", ["mq", "bio"])
def test_each_write_is_its_own_system_call_s(mode: str, tmp_path: Path) -> None:
    """Direct, buffered, synchronous writes and discards, over each other, of several threads."""
    said = []
    with lab.Device("1M", mode=mode, discard=True, cache=True) as dev:
        with lab.crash.recording(dev, tmp_path, stacks=True):
            direct = os.open(dev.path, os.O_RDWR | os.O_DIRECT)
            synchronous = os.open(dev.path, os.O_RDWR | os.O_DIRECT | os.O_DSYNC)
            for number in range(3):
                named("first", os.pwrite, direct, aligned(b"a" * 8 * KIB), 0)
                said.append((0, 16, "first", "pwrite64"))
                named("second", os.pwritev, synchronous, [aligned(b"b" * 4 * KIB)], 4 * KIB * number)
                said.append((8 * number, 8, "second", "pwritev"))
                named("third", ctypes.CDLL(None).fallocate64, direct, PUNCH_HOLE | KEEP_SIZE,
                      *map(ctypes.c_long, (4 * KIB, 8 * KIB)))  # fmt: skip
                said.append((8, 16, "third", "fallocate"))
            os.close(direct)
            os.close(synchronous)
            buffered = os.open(dev.path, os.O_RDWR)
            os.pwrite(buffered, b"c" * 4 * KIB, 64 * KIB)
            named("fourth", os.fdatasync, buffered)
            said.append((128, 8, "fourth", "fdatasync"))
            os.close(buffered)
        # Not of the recording: it must not be taken for one of its writes.
        fd = os.open(dev.path, os.O_RDWR | os.O_DIRECT)
        os.pwrite(fd, aligned(b"d" * 4 * KIB), 0)
        os.close(fd)
    log = lab.crash.Log(tmp_path / "log", base=tmp_path / "base.img")
    table = log.table()
    found = []
    for sequence, sector, sectors in zip(*(table[name].values.tolist() for name in ("sequence", "sector", "sectors")),
                                         strict=True):  # fmt: skip
        [(first, length, who)] = log.submitters(sequence)
        assert (first, length) == (0, sectors)
        assert who.stack[-1].startswith("submit_bio")
        # pwritev's own function is not on all kernels' stacks: it jumps into the one that does the work.
        assert who.syscall or who.task == "second"
        found.append((sector, sectors, who.task, who.text().removeprefix("do_").partition(" ")[0]))
    assert found == said


def test_a_merged_request_has_the_parts_of_each_submitter(tmp_path: Path) -> None:
    """Writeback of what two inodes have next to each other is one request at times; each part is the inode's own."""
    with lab.Device("24M", cache=True) as dev:
        filesystem = dev.mkfs("ext4")
        with lab.crash.recording(dev, tmp_path, stacks=True), filesystem.mount() as mount:
            for number in range(4):
                with (mount / f"{number}").open("wb") as file:
                    file.write(bytes([number + 1]) * 20 * KIB)
                    file.flush()
                    named(f"writer-{number}", os.fsync, file.fileno())
            named("syncer", os.sync)
    log = lab.crash.Log(tmp_path / "log", base=tmp_path / "base.img")
    data = {}
    for sequence in log.sequences.tolist():
        parts = log.submitters(sequence)
        # Every sector of every write is somebody's.
        assert sum(length for _, length, _ in parts) == int(
            log.table()["sectors"].values[list(log.sequences).index(sequence)]
        )
        what = log.names(sequence)
        for first, _, who in parts:
            named_part = next(name for begin, length, name in what if begin <= first < begin + length)
            if named_part.startswith("data of inode"):
                data[named_part] = (who.task, who.syscall)
            elif named_part.startswith("journal, commit"):
                assert who.task.startswith("jbd2/"), who
    assert sorted(data.values()) == [(f"writer-{number}", "fsync") for number in range(4)]
