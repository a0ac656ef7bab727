# SPDX-License-Identifier: MIT
"""Zoned devices: their rules held against null_blk's, what faults and power cuts do to them, and file systems."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import struct
import subprocess
import threading
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from blockio import Background, leave_pages, little_memory, read, until, write

import sampleblk_lab as lab
from sampleblk_lab.device import zones

pytestmark = pytest.mark.each_kernel

MIB = 1 << 20
VERSION = tuple(map(int, os.uname().release.split(".")[:2]))
NULLB = Path("/sys/kernel/config/nullb")
ACTIONS = ("reset", "open", "close", "finish")
OPEN = ("implicitly-open", "explicitly-open")


@contextlib.contextmanager
def null_blk(size: int, **attributes: int) -> Iterator[str]:
    """The kernel's own zoned device of zones of 1 MiB, which keeps what is written; its path."""
    subprocess.run(["modprobe", "null_blk", "nr_devices=0"], check=True)
    mounted = not NULLB.exists()
    if mounted:
        subprocess.run(["mount", "-t", "configfs", "none", "/sys/kernel/config"], check=True)
    folder = NULLB / "peer"
    folder.mkdir()
    try:
        values = {"size": size // MIB, "blocksize": 512, "memory_backed": 1, "zoned": 1, "zone_size": 1, **attributes}
        for attribute, value in {**values, "power": 1}.items():
            (folder / attribute).write_text(str(value))
        index = (folder / "index").read_text().strip()
        yield next(path for path in ("/dev/peer", f"/dev/nullb{index}") if Path(path).exists())
    finally:
        with contextlib.suppress(OSError):
            (folder / "power").write_text("0")
        folder.rmdir()
        if mounted:
            subprocess.run(["umount", "/sys/kernel/config"], check=True)
        # Without configfs, whose inodes that of Linux 5.10 frees by RCU, and does not wait for it as it goes.
        subprocess.run(["rmmod", "null_blk"], check=True)


def outcome(call: str, path: str, start: int, length: int, data: bytes) -> int:
    """The errno of one operation; 0 for success."""
    try:
        if call == "write":
            write(path, data, start)
        else:
            zones.manage(path, call.removesuffix("-all"), start, length)
    except OSError as error:
        return error.errno or 0
    return 0


def conditions(path: str) -> list[tuple[str, int]]:
    """Of each zone; where a write pointer means nothing it is 0."""
    return [
        (zone.condition, 0 if zone.condition in ("conventional", "full") else zone.written_bytes)
        for zone in zones.report(path)
    ]


@pytest.mark.parametrize(("opens", "actives"), [(0, 0), (3, 5), (4, 4)])
def test_zones_are_what_they_are_to_null_blk(opens: int, actives: int) -> None:
    if opens and VERSION < (5, 13):
        pytest.skip("until 5.13 null_blk let always the first open zone make way")
    count, conventional = 12, 2
    size = count * MIB
    chance = random.Random(f"{opens} {actives}")
    limits = {"zone_max_open": opens, "zone_max_active": actives}
    options = {"conventional_zones": conventional, "max_open_zones": opens, "max_active_zones": actives}
    with null_blk(size, zone_nr_conv=conventional, **limits) as peer, lab.Device(size, zone="1M", **options) as dev:
        before = conditions(peer)
        met = set()
        for step in range(300):
            assert conditions(dev.path) == before
            number = chance.randrange(count)
            condition, pointer = before[number]
            start = number * MIB
            call = chance.choices(("write", *ACTIONS, "reset-all"), (12, 2, 3, 3, 1, 0.1))[0]
            length, data = MIB, b""
            at = pointer
            if call == "write":
                at = pointer if chance.random() < 0.85 else chance.randrange(0, MIB // 512) * 512
                # Of no size at which null_blk's requests are split: then it is the last part's error that is told.
                length = min(chance.choice((512, 4096, 65536)), MIB - at)
                start += at
                data = chance.randbytes(512) * (length // 512)
            elif call == "reset-all":
                start, length = 0, size
            states = [name for name, _ in before]
            is_open = sum(states.count(name) for name in OPEN)
            if opens and condition == "closed" and is_open == opens and is_open + states.count("closed") == actives:
                # null_blk lets no open zone make way here, although that would leave as many active as there are.
                continue
            said = outcome(call, dev.path, start, length, data)
            expected = outcome(call, peer, start, length, data)
            if at != pointer and condition not in ("conventional", "full"):
                # Where two things are wrong, 5.10 tells of the other one.
                said, expected = bool(said), bool(expected)
            assert said == expected, f"step {step}: {call} at {start}, {length} bytes, {condition}"
            before = conditions(peer)
            met.add((call, said))
        for zone in zones.report(peer):
            if zone.condition != "full" and zone.written_bytes:
                length = zone.written_bytes
                assert read(dev.path, length, zone.start_bytes) == read(peer, length, zone.start_bytes)
    # Or nothing was tried.
    assert {("write", 0), ("write", errno.EIO), *((each, 0) for each in ACTIONS)} <= met
    if actives:
        assert {("write", errno.ETOOMANYREFS), ("write", errno.EOVERFLOW)} & met


def test_what_a_device_is_told_of() -> None:
    with lab.Device("32M", zone="4M", zone_capacity="3M", conventional_zones=2, max_open_zones=2) as dev:
        info = dev.info()
        assert (info.zone_bytes, info.zone_capacity_bytes, info.conventional_zones) == (4 * MIB, 3 * MIB, 2)
        assert (info.max_open_zones, info.max_active_zones) == (2, 0)
        assert not info.discard
        assert not info.write_zeroes
        queue = Path(f"/sys/block/{dev.name}/queue")
        assert (queue / "zoned").read_text().strip() == "host-managed"
        assert int((queue / "nr_zones").read_text()) == 8
        assert int((queue / "chunk_sectors").read_text()) == 4 * MIB // 512
        assert int((queue / "max_open_zones").read_text()) == 2
        report = dev.zones()
        assert [zone.condition for zone in report] == ["conventional"] * 2 + ["empty"] * 6
        assert [zone.capacity_bytes for zone in report] == [4 * MIB] * 2 + [3 * MIB] * 6
        # Not a byte behind the capacity.
        for offset in range(0, 3 * MIB, MIB):
            write(dev.path, bytes(MIB), 8 * MIB + offset)
        with pytest.raises(OSError, match="Input/output error"):
            write(dev.path, bytes(512), 11 * MIB)
        assert dev.zones()[2].condition == "full"
        dev.zone("reset", 2)
        assert dev.zones()[2] == report[2]
        with pytest.raises(lab.InputError, match=r"'wipe'.*reset, open, close, finish"):
            dev.zone("wipe")
        for first, count in ((8, 1), (-1, 1), (1.5, 1), (0, 0), (7, 2)):
            with pytest.raises(lab.InputError, match=r"first=.*from 0 to 7|count=.*from 1 to [18]"):
                dev.zone("open", first, count)  # type: ignore[arg-type]
    with lab.Device("32M") as dev:
        assert dev.zones() == []
        with pytest.raises(lab.InputError, match=f"a zone of {dev.path}.*a zoned device"):
            dev.zone("reset")


def test_a_reset_forgets_data_and_memory() -> None:
    with lab.Device("8M", zone="1M", partitions=False) as dev:
        for number in range(4):
            write(dev.path, b"\xaa" * MIB, number * MIB)
        assert dev.info().allocated_bytes == 4 * MIB
        dev.zone("reset", 1, 2)
        assert dev.info().allocated_bytes == 2 * MIB
        expected = b"\xaa" * MIB + bytes(2 * MIB) + b"\xaa" * MIB
        assert read(dev.path, 4 * MIB) == expected


@pytest.mark.parametrize(
    ("fault", "written", "fails"),
    [
        (lab.Fault(action="error"), 0, True),
        (lab.Fault(action="torn_write", sectors=3, errno=errno.EIO), 3 * 512, True),
        (lab.Fault(action="torn_write", sectors=3), 8192, False),
        (lab.Fault(action="lost_write"), 8192, False),
        (lab.Fault(action="misdirected_write", sector=5 * MIB // 512), 8192, False),
    ],
    ids=["error", "torn", "torn-silently", "lost", "misdirected"],
)
def test_the_write_pointer_moves_as_the_host_is_told(fault: lab.Fault, written: int, fails: bool) -> None:
    with lab.Device("8M", zone="1M", partitions=False) as dev:
        dev.set_faults([fault])
        with pytest.raises(OSError, match="Input/output") if fails else contextlib.nullcontext():
            write(dev.path, b"\xbb" * 8192, 2 * MIB)
        dev.set_faults([])
        zone = dev.zones()[2]
        assert zone.written_bytes == written
        assert zone.condition == ("implicitly-open" if written else "empty")
        # It goes on there.
        write(dev.path, b"\xcc" * 512, 2 * MIB + written)
        # What landed in another zone lies behind its write pointer: there is nothing.
        assert read(dev.path, MIB, 5 * MIB) == bytes(MIB)


def test_without_power_nothing_is_open() -> None:
    with lab.Device("8M", zone="1M", partitions=False) as dev:
        write(dev.path, b"\xaa" * 4096)
        dev.zone("open", 1)
        dev.power_cut()
        with pytest.raises(OSError, match="Input/output"):
            dev.zone("reset")
        dev.power_on()
        assert [zone.condition for zone in dev.zones()[:3]] == ["closed", "empty", "empty"]
        assert read(dev.path, 4096) == b"\xaa" * 4096


class Cramped:
    """A zoned device with few pages left, and a stream of writes to it that wait for more than there are, in vain."""

    FIRST = 64  # of the sequential zones
    START = FIRST << 36

    def __init__(self) -> None:
        # Its table comes in pieces of sixteen pages, of 32 MiB each.
        self.dev = lab.Device("32T", zone="64G", conventional_zones=self.FIRST, partitions=False)
        Path(f"/sys/block/{self.dev.name}/queue/scheduler").write_text("none")
        write(self.dev.path, bytes(512), self.START)
        self.dev.zone("reset", self.FIRST)
        self._filler = leave_pages(8)
        self._waiting: list[Background] = []
        self._stop = threading.Event()
        self._churn = threading.Thread(target=self._keep_rcu_busy)
        self._churn.start()

    def _keep_rcu_busy(self) -> None:
        """Else nothing would have to be waited for."""
        while not self._stop.is_set():
            os.close(os.open("/dev/null", os.O_RDONLY))

    def fill_the_line(self) -> None:
        for number in range(1, 41):
            self._waiting.append(Background(write, self.dev.path, bytes(512), number << 26))
        until(lambda: self.dev.counters().deferred == 40)

    def zone(self) -> zones.Zone:
        return self.dev.zones()[self.FIRST]

    def close(self) -> None:
        self._stop.set()
        self._churn.join()
        for each in self._waiting:
            assert each.error() in (errno.ENOSPC, errno.EIO)
        self._filler.close()
        self.dev.close()


@pytest.fixture
def cramped(request: pytest.FixtureRequest) -> Iterator[Cramped]:
    request.getfixturevalue("no_driver")
    with little_memory(), contextlib.closing(Cramped()) as device:
        yield device


def test_a_write_that_finds_no_memory_leaves_its_zone_as_it_was(cramped: Cramped) -> None:
    before = cramped.zone()
    with pytest.raises(OSError, match="No space left"):
        write(cramped.dev.path, b"1" * 65536, cramped.START)
    assert cramped.zone() == before
    write(cramped.dev.path, b"2" * 512, cramped.START)
    assert read(cramped.dev.path, 65536, cramped.START) == b"2" * 512 + bytes(65024)


def test_a_write_that_waits_for_memory_does_not_land_in_the_zone_after_its_reset(cramped: Cramped) -> None:
    """Without a scheduler or the zones' plugs, that is, from which another would wait for it."""
    cramped.fill_the_line()
    late = Background(write, cramped.dev.path, b"1" * 65536, cramped.START)
    until(lambda: cramped.dev.counters().deferred == 41)
    cramped.dev.zone("reset", cramped.FIRST)
    time.sleep(0.2)
    write(cramped.dev.path, b"2" * 4096, cramped.START)
    late.error()
    assert cramped.zone().written_bytes == 4096
    assert read(cramped.dev.path, 4096, cramped.START) == b"2" * 4096


def test_the_write_pointer_is_not_behind_what_a_power_cut_left_unwritten(cramped: Cramped) -> None:
    cramped.fill_the_line()
    late = Background(write, cramped.dev.path, b"1" * 65536, cramped.START)
    until(lambda: cramped.dev.counters().deferred == 41)
    cramped.dev.power_cut()
    # With one CPU, or on a busy host, it may have been told before the cut that there is no memory.
    assert late.error() in (errno.EIO, errno.ENOSPC)
    cramped.dev.power_on()
    assert (cramped.zone().condition, cramped.zone().written_bytes) == ("empty", 0)


@pytest.mark.parametrize(
    "options",
    [
        {"zone": "3M"},
        {"zone": "32K"},
        {"zone": "64M"},
        {"zone": "1M", "cache": True},
        {"zone": "1M", "discard": True},
        {"zone": "1M", "write_zeroes": True},
        {"zone": "1M", "sector_atomic": True},
        {"zone": "1M", "mode": "bio"},
        {"zone": "1M", "conventional_zones": 32},
        {"zone": "1M", "zone_capacity": "2M"},
        {"zone": "1M", "zone_capacity": 513},
        {"zone": "1M", "max_open_zones": 3, "max_active_zones": 2},
        {"zone_capacity": "1M"},
        {"max_open_zones": 1},
    ],
    ids=str,
)
def test_what_no_zoned_device_can_be(options: dict[str, object]) -> None:
    with pytest.raises(lab.InputError, match="zone"):
        lab.Device("32M", **options)  # type: ignore[arg-type]


def test_what_zones_cannot_be_taken_back_by() -> None:
    with lab.Device("8M", zone="1M") as dev:
        for call in (dev.journal_start, dev.snapshot_take, lambda: dev.resize("16M")):
            with pytest.raises(OSError, match=r"not supported: a zoned device.*(journal|snapshots|size)") as raised:
                call()
            assert raised.value.errno == errno.EOPNOTSUPP


# f2fs needs conventional zones for what it writes in place.
FILE_SYSTEMS = {
    "btrfs": ("256M", {"zone": "4M"}, ("-O", "zoned", "-d", "single", "-m", "single")),
    "f2fs": ("512M", {"zone": "4M", "conventional_zones": 8}, ("-m",)),
}


@pytest.mark.parametrize("fstype", FILE_SYSTEMS)
def test_file_systems(fstype: str) -> None:
    if fstype == "btrfs" and VERSION < (5, 12):
        pytest.skip("btrfs knows zones from Linux 5.12 on")
    size, options, made = FILE_SYSTEMS[fstype]
    chance = random.Random(1)
    contents = {f"file{number}": chance.randbytes(chance.randrange(1, 3 * MIB)) for number in range(12)}
    with lab.Device(size, partitions=False, **options) as dev:  # type: ignore[arg-type]
        filesystem = dev.mkfs(fstype, options=made)
        with filesystem.mount() as mount:
            for name, data in contents.items():
                (mount.path / name).write_bytes(data)
            os.sync()
            for name in list(contents)[::3]:
                (mount.path / name).unlink()
                del contents[name]
        with filesystem.mount() as mount:
            assert {path.name: path.read_bytes() for path in mount.path.iterdir() if path.is_file()} == contents
        conditions_met = {zone.condition for zone in dev.zones()}
        assert conditions_met & {"implicitly-open", "closed", "full"}


def zonefs_superblock() -> bytes:
    """What mkzonefs would write, which Debian lacks (struct zonefs_super of the kernel's fs/zonefs/zonefs.h)."""
    block = bytearray(4096)
    struct.pack_into("<II64s16sQIII", block, 0, 0x5A4F4653, 0, b"lab", bytes(range(16)), 0, 0, 0, 0o640)
    # The kernel's crc32() does not invert its result, zlib's does.
    struct.pack_into("<I", block, 4, zlib.crc32(block) ^ 0xFFFFFFFF)
    return bytes(block)


@pytest.mark.skipif(
    VERSION == (6, 1),
    reason="zonefs of Linux 6.1.y takes each synchronous append for misplaced, on null_blk, too",
)
def test_zonefs_shows_a_file_for_each_zone(tmp_path: Path) -> None:
    subprocess.run(["modprobe", "zonefs"], check=False)
    zone, data = 4 * MIB, random.Random(3).randbytes(16384)

    @contextlib.contextmanager
    def mounted(path: str) -> Iterator[Path]:
        subprocess.run(["mount", "-t", "zonefs", "-o", "errors=repair", path, tmp_path], check=True)
        try:
            yield tmp_path
        finally:
            subprocess.run(["umount", tmp_path], check=True)

    with lab.Device("32M", zone="4M", conventional_zones=3, partitions=False) as dev:
        write(dev.path, zonefs_superblock())
        with mounted(dev.path) as mount:
            # The first zone has the superblock.
            assert {path.name: path.stat().st_size for path in (mount / "cnv").iterdir()} == {"0": zone, "1": zone}
            assert {path.name: path.stat().st_size for path in (mount / "seq").iterdir()} == dict.fromkeys("01234", 0)
            write(str(mount / "cnv/1"), data, MIB)
            appended = str(mount / "seq/0")
            write(appended, data)
            write(appended, data[::-1], len(data))
            with pytest.raises(OSError, match="Invalid argument"):
                write(appended, data, 0)
            os.truncate(mount / "seq/1", zone)
            dev.set_faults([lab.Fault(action="torn_write", sectors=8, errno=errno.EIO)])
            with pytest.raises(OSError, match="Input/output error"):
                write(str(mount / "seq/2"), data)
            dev.set_faults([])
            # It asks the device how far it came.
            assert (mount / "seq/2").stat().st_size == 4096 == dev.zones()[5].written_bytes
            write(str(mount / "seq/3"), data)
            os.truncate(mount / "seq/3", 0)
        assert [zone.condition for zone in dev.zones()[3:]] == [OPEN[0], "full", OPEN[0], "empty", "empty"]
        with mounted(dev.path) as mount:
            assert [(mount / f"seq/{number}").stat().st_size for number in range(5)] == [32768, zone, 4096, 0, 0]
            assert read(str(mount / "seq/0"), 32768) == data + data[::-1]
            assert read(str(mount / "cnv/1"), len(data), MIB) == data
            assert read(str(mount / "seq/2"), 4096) == data[:4096]
