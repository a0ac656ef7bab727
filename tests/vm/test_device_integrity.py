# SPDX-License-Identifier: MIT
"""T10 protection information.

From Linux 6.11 on it is the kernel's own code that makes and checks tags on the other side; before it is ours, and
scsi_debug is what both are held against.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import random
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from blockio import discard, leave_pages, little_memory, read, write

import sampleblk_lab as lab

pytestmark = pytest.mark.each_kernel

BLOCKS = pytest.mark.parametrize("block", [512, 4096])


@pytest.fixture(autouse=True)
def _has_integrity() -> None:
    with lab.Device("1M") as dev:
        if not Path(f"/sys/block/{dev.name}/integrity").exists():
            pytest.skip("a kernel without CONFIG_BLK_DEV_INTEGRITY")


def setting(dev: lab.Device, name: str, value: int | None = None) -> str:
    """One of /sys/block/NAME/integrity, set where a value is given."""
    path = Path(f"/sys/block/{dev.name}/integrity/{name}")
    if value is not None:
        path.write_text(str(value))
    return path.read_text().strip()


def outcome(path: str, offset: int, size: int) -> bytes | str:
    """What a direct read gives, or the name of its errno."""
    try:
        return read(path, size, offset)
    except OSError as error:
        return errno.errorcode[error.errno or 0]


@BLOCKS
def test_what_the_kernel_is_told(block: int) -> None:
    with lab.Device("1M", logical_block=block, integrity=True) as dev:
        assert dev.info().integrity
        assert setting(dev, "format") == "T10-DIF-TYPE1-CRC"
        assert setting(dev, "device_is_integrity_capable") == "1"
        assert int(setting(dev, "protection_interval_bytes")) == block
    with lab.Device("1M") as dev:
        assert not dev.info().integrity
        assert setting(dev, "format") == "none"


@BLOCKS
@pytest.mark.parametrize("made_by", ["kernel", "device"])
def test_each_checks_what_the_other_made(block: int, made_by: str) -> None:
    chance = random.Random(block)
    with lab.Device("1M", logical_block=block, integrity=True) as dev:
        setting(dev, "write_generate", int(made_by == "kernel"))
        expected = bytearray(1 << 20)
        for _ in range(30):
            length = block * chance.randrange(1, 20)
            offset = block * chance.randrange((len(expected) - length) // block + 1)
            data = chance.randbytes(length)
            write(dev.path, data, offset)
            expected[offset : offset + length] = data
        # Many requests of one block, requests of many blocks, and what was never written.
        assert read(dev.path, len(expected)) == expected
        assert b"".join(read(dev.path, block, at) for at in range(0, 65536, block)) == expected[:65536]
        # With nobody to check them, wrong tags are no harm; with somebody, they are.
        dev.set_faults([lab.Fault(action="corrupt_tag", ops="read", flip=0x8000)])
        setting(dev, "read_verify", 0)
        assert read(dev.path, len(expected)) == expected
        setting(dev, "read_verify", 1)
        assert outcome(dev.path, 0, 65536) == "EILSEQ"
        assert dev.faults()[0].flip == 0x8000


@BLOCKS
def test_silent_faults_that_are_found_and_those_that_are_not(block: int) -> None:
    new, old = b"n" * 8 * block, b"o" * 8 * block
    sector = block // 512
    with lab.Device("1M", logical_block=block, integrity=True) as dev:

        def after(fault: lab.Fault) -> list[bytes | str]:
            """What became of two neighbours of eight blocks each, once the first was written under a rule."""
            dev.set_faults([])
            write(dev.path, old + old)
            dev.set_faults([fault])
            write(dev.path, new)
            dev.set_faults([])
            return [outcome(dev.path, at, 8 * block) for at in (0, 8 * block)]

        assert after(lab.Fault(action="corrupt", bits=1)) == ["EILSEQ", old]
        assert after(lab.Fault(action="set_byte", byte=block, value=0)) == ["EILSEQ", old]
        # It has tags of another place.
        assert after(lab.Fault(action="misdirected_write", sector=8 * sector)) == [old, "EILSEQ"]
        # The block and its tags are both as they were: type 1 cannot see that.
        assert after(lab.Fault(action="lost_write")) == [old, old]
        assert after(lab.Fault(action="torn_write", sectors=3 * sector)) == [new[: 3 * block] + old[3 * block :], old]
        if block > 512:
            assert after(lab.Fault(action="torn_write", sectors=3 * sector + 1)) == ["EILSEQ", old]
        # On the way to the host.
        dev.set_faults([lab.Fault(action="corrupt", ops="read", count=1)])
        assert [outcome(dev.path, 8 * block, block) for _ in range(2)] == ["EILSEQ", old[:block]]
    with lab.Device("1M", logical_block=block) as dev:
        write(dev.path, old)
        dev.set_faults([lab.Fault(action="corrupt", ops="read", count=1)])
        assert isinstance(outcome(dev.path, 0, block), bytes)


@BLOCKS
@pytest.mark.parametrize("ops", ["read", "write"])
@pytest.mark.parametrize(("tag", "found"), [("guard", True), ("ref", True), ("app", False)])
def test_a_tag_is_spoiled_in_the_blocks_that_are_named(block: int, ops: str, tag: str, found: bool) -> None:
    sector = block // 512
    with lab.Device("1M", logical_block=block, integrity=True) as dev:
        rule = lab.Fault(
            action="corrupt_tag", ops=ops, tag=tag, flip=0x100, first_sector=2 * sector, last_sector=3 * sector - 1
        )
        dev.set_faults([rule])
        write(dev.path, b"d" * 8 * block)
        if ops == "write":
            dev.set_faults([])
        spoiled = [outcome(dev.path, at * block, block) == "EILSEQ" for at in range(8)]
        assert spoiled == [found and at == 2 for at in range(8)]
        if ops == "write" and found:
            # A rewrite makes it good.
            write(dev.path, b"e" * block, 2 * block)
            assert outcome(dev.path, 0, 8 * block) == b"d" * 2 * block + b"e" * block + b"d" * 5 * block


def test_all_ones_in_the_application_tag_switch_the_check_off() -> None:
    with lab.Device("1M", integrity=True) as dev:
        dev.set_faults([lab.Fault(action="corrupt_tag", tag="app", flip=0xFFFF)])
        write(dev.path, b"d" * 4096)
        dev.set_faults([lab.Fault(action="corrupt", ops="read", bits=8)])
        assert isinstance(outcome(dev.path, 0, 4096), bytes)


@BLOCKS
def test_what_was_discarded_or_zeroed_reads_as_zeroes(block: int) -> None:
    with lab.Device("1M", logical_block=block, physical_block=4096, integrity=True) as dev:
        write(dev.path, b"d" * 65536)
        discard(dev.path, 8192, 16384)
        subprocess.run(["blkdiscard", "-z", "-o", "32768", "-l", str(block), dev.path], check=True)
        expected = b"d" * 8192 + bytes(16384) + b"d" * 8192 + bytes(block)
        assert read(dev.path, 65536) == expected + b"d" * (65536 - len(expected))


@BLOCKS
def test_a_buffer_that_begins_within_a_page_is_checked_rightly_or_refused(block: int) -> None:
    data = random.Random(block).randbytes(65536)
    memory = mmap.mmap(-1, 1 << 17)
    memory[512 : 512 + len(data)] = data
    with lab.Device("1M", logical_block=block, integrity=True) as dev:
        fd = os.open(dev.path, os.O_RDWR | os.O_DIRECT)
        try:
            if block > 512:
                # Where the device does not ask for it, 6.1 and 6.12 give such a block wrong tags.
                with pytest.raises(OSError, match="Invalid argument"):
                    os.pwrite(fd, memoryview(memory)[512 : 512 + len(data)], 0)
            else:
                os.pwrite(fd, memoryview(memory)[512 : 512 + len(data)], 0)
                back = mmap.mmap(-1, 1 << 17)
                assert os.preadv(fd, [memoryview(back)[512 : 512 + len(data)]], 0) == len(data)
                assert back[512 : 512 + len(data)] == data
        finally:
            os.close(fd)


def test_snapshots_and_clones_have_the_tags_of_their_blocks() -> None:
    with lab.Device("1M", integrity=True) as dev:
        write(dev.path, b"1" * 65536)
        first = dev.snapshot_take()
        write(dev.path, b"2" * 32768)
        with dev.snapshot_clone(first) as clone:
            assert clone.info().integrity
            assert setting(clone, "format") == "T10-DIF-TYPE1-CRC"
            assert read(clone.path, 65536) == b"1" * 65536
            write(clone.path, b"3" * 4096, 4096)
            assert read(clone.path, 8192) == b"1" * 4096 + b"3" * 4096
        assert read(dev.path, 65536) == b"2" * 32768 + b"1" * 32768
        dev.snapshot_restore(first)
        assert read(dev.path, 65536) == b"1" * 65536
        dev.snapshot_delete(first)
        assert read(dev.path, 65536) == b"1" * 65536


def test_the_device_refuses_a_write_whose_bytes_are_not_those_of_its_tags() -> None:
    """The host changes its buffer while the write is on its way: what stable pages are for."""
    stop = threading.Event()
    size = 65536
    buffer = mmap.mmap(-1, size)

    def scribble() -> None:
        value = 0
        while not stop.is_set():
            value = (value + 1) % 256
            buffer[:] = bytes([value]) * size
            stop.wait(0.001)  # or on another CPU no write would find it at rest

    with lab.Device("1M", integrity=True) as dev:
        fd = os.open(dev.path, os.O_WRONLY | os.O_DIRECT)
        thread = threading.Thread(target=scribble)
        thread.start()
        refused = admitted = 0
        try:
            deadline = time.monotonic() + 60
            while not (refused and admitted > 40) and time.monotonic() < deadline:
                try:
                    os.pwrite(fd, buffer, 0)
                except OSError as error:
                    if error.errno != errno.EILSEQ:
                        raise
                    refused += 1
                else:
                    admitted += 1
                    read(dev.path, size)  # what was let in is whole, also where it changed while it was stored
        finally:
            stop.set()
            thread.join()
            os.close(fd)
        assert refused
        assert dev.counters().errors == refused


def test_no_reader_gets_a_block_with_the_tags_of_another() -> None:
    size = 32768
    failed: list[OSError] = []

    def run(dev: lab.Device, fill: int) -> None:
        try:
            for _ in range(60):
                if fill:
                    write(dev.path, bytes([fill]) * size)
                else:
                    read(dev.path, size)
        except OSError as error:
            failed.append(error)

    with lab.Device("1M", queues=2, integrity=True) as dev:
        write(dev.path, bytes(size))
        threads = [threading.Thread(target=run, args=(dev, fill)) for fill in (1, 2, 0, 0)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failed


def test_latency_polling_and_a_power_cut() -> None:
    with lab.Device("4M", integrity=True, completion="softirq", poll_queues=1) as dev:
        dev.set_timing("constant", 1_000_000)
        job = lab.Job(filename=dev.path, rw="randrw", size="1M", bs="4k", direct=1, verify="crc32c", ioengine="psync")
        assert job.run().errors == []
        job = lab.Job(filename=dev.path, rw="randread", size="1M", bs="4k", direct=1, ioengine="io_uring", hipri=1)
        assert job.run().errors == []
        write(dev.path, b"d" * 4096)
        dev.power_cut()
        assert outcome(dev.path, 0, 4096) == "EIO"
        dev.power_on()
        assert read(dev.path, 4096) == b"d" * 4096


def test_a_file_system_lives_on_it_and_is_told_of_bad_blocks() -> None:
    with lab.Device("32M", integrity=True) as dev:
        filesystem = dev.mkfs("ext4")
        with filesystem.mount() as mount:
            data = random.Random(0).randbytes(1 << 20)
            (mount / "file").write_bytes(data)
            os.sync()
            Path("/proc/sys/vm/drop_caches").write_text("3")
            assert (mount / "file").read_bytes() == data
            Path("/proc/sys/vm/drop_caches").write_text("3")
            dev.set_faults([lab.Fault(action="corrupt", ops="read")])
            with pytest.raises(OSError, match=r"Input/output error|Invalid or incomplete|Structure needs"):
                (mount / "file").read_bytes()
            dev.set_faults([])
        filesystem.fsck()


@BLOCKS
def test_partitions_and_mapped_devices_count_blocks_from_their_own_start(block: int) -> None:
    data = random.Random(block).randbytes(65536)
    with lab.Device("8M", logical_block=block, integrity=True) as dev:
        table = f"0 8192 linear {dev.path} 2048"
        subprocess.run(["dmsetup", "create", "shifted", "--table", table], check=True)
        try:
            minor = os.minor(Path("/dev/mapper/shifted").stat().st_rdev)
            assert Path(f"/sys/block/dm-{minor}/integrity/format").read_text() == "T10-DIF-TYPE1-CRC\n"
            write("/dev/mapper/shifted", data, 4096)
            assert read("/dev/mapper/shifted", 65536, 4096) == data
            # The tags are those of the disk's blocks: who reads it there finds them right.
            assert read(dev.path, 65536, 4096 + (1 << 20)) == data
            write(dev.path, data[::-1], 4096 + (1 << 20))
            assert read("/dev/mapper/shifted", 65536, 4096) == data[::-1]
            dev.set_faults([lab.Fault(action="corrupt_tag", ops="read", tag="ref")])
            assert outcome("/dev/mapper/shifted", 4096, 65536) == "EILSEQ"
        finally:
            subprocess.run(["dmsetup", "remove", "shifted"], check=True)


@contextlib.contextmanager
def scsi_debug(block: int) -> Iterator[str]:
    """The kernel's own device with protection information, of 8 MiB; its path."""
    options = ["dif=1", "dix=1", "dev_size_mb=8", f"sector_size={block}", "lbpu=1", "delay=0", "max_luns=1"]
    if subprocess.run(["modprobe", "sd_mod"], check=False, capture_output=True).returncode:
        pytest.skip("no sd_mod")
    if subprocess.run(["modprobe", "scsi_debug", *options], check=False, capture_output=True).returncode:
        pytest.skip("no scsi_debug")
    try:
        deadline = time.monotonic() + 30
        pattern = "adapter*/host*/target*/*/block/sd*"
        while not (found := list(Path("/sys/bus/pseudo/drivers/scsi_debug").glob(pattern))):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        path = f"/dev/{found[0].name}"
        # Its queue is scanned in the background, too.
        while not Path(path).exists() or Path(f"/sys/block/{found[0].name}/integrity/format").read_text() == "none\n":
            assert time.monotonic() < deadline
            time.sleep(0.05)
        yield path
    finally:
        subprocess.run(["modprobe", "-r", "scsi_debug"], check=True)


@BLOCKS
def test_it_is_what_scsi_debug_is(block: int) -> None:
    chance = random.Random(block)
    size = 1 << 20
    with scsi_debug(block) as peer, lab.Device("8M", logical_block=block, integrity=True) as dev:
        folders = [Path(f"/sys/block/{Path(path).name}/integrity") for path in (peer, dev.path)]
        for name in ("format", "tag_size", "device_is_integrity_capable", "protection_interval_bytes"):
            assert len({(folder / name).read_text() for folder in folders}) == 1, name
        for step in range(60):
            length = block * chance.randrange(1, 64)
            at = block * chance.randrange((size - length) // block)
            call = chance.choice(("write", "read", "discard"))
            data = chance.randbytes(length)
            results = []
            for path in (peer, dev.path):
                if call == "write":
                    write(path, data, at)
                elif call == "discard":
                    discard(path, at // 4096 * 4096, 4096)
                results.append(outcome(path, at, length))
            assert results[0] == results[1], f"step {step}: {call} of {length} bytes at {at}"


def test_what_it_cannot_have_is_refused() -> None:
    for options in (
        {"cache": True},
        {"sector_atomic": True},
        {"mode": "bio"},
        {"zone": "64K"},
        {"logical_block": 8192},
    ):
        with pytest.raises(lab.InputError, match="integrity together with"):
            lab.Device("1M", integrity=True, **options)  # type: ignore[arg-type]
    with lab.Device("1M", integrity=True) as dev:
        calls = (dev.journal_start, lambda: dev.resize("2M"), lambda: dev.tune(sector_atomic=True))
        for call in calls:
            with pytest.raises(OSError, match=r"not supported: .*with protection information") as raised:
                call()
            assert raised.value.errno == errno.EOPNOTSUPP
        for wrong in ({"flip": 0}, {"flip": 1 << 16}, {"tag": "ref", "flip": 1 << 32}, {"ops": "discard"}):
            with pytest.raises(lab.InputError, match=r"flip=|ops="):
                dev.set_faults([lab.Fault(action="corrupt_tag", **wrong)])  # type: ignore[arg-type]
        with pytest.raises(lab.InputError, match="guard, app, ref"):
            dev.set_faults([lab.Fault(action="corrupt_tag", tag="colour")])
        assert dev.faults() == []
    with lab.Device("1M") as dev, pytest.raises(OSError, match="not supported"):
        dev.set_faults([lab.Fault(action="corrupt_tag")])


@pytest.mark.usefixtures("no_driver")
def test_without_memory_for_a_write_blocks_have_the_tags_that_they_had() -> None:
    with little_memory(), lab.Device("1M", integrity=True, partitions=False) as dev:
        write(dev.path, b"o" * 8192)
        with leave_pages(2):
            with pytest.raises(OSError, match="No space left"):
                write(dev.path, b"n" * 65536)
            assert outcome(dev.path, 0, 8192) == b"o" * 8192
        # Of a snapshot they have to be copied first.
        snapshot = dev.snapshot_take()
        with leave_pages(1):
            with pytest.raises(OSError, match="No space left"):
                write(dev.path, b"n" * 4096)
            assert outcome(dev.path, 0, 8192) == b"o" * 8192
        dev.snapshot_delete(snapshot)
