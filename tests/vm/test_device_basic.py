# SPDX-License-Identifier: MIT
"""Devices made, used and taken away; the counters say what happened; misuse is refused."""

import ctypes
import errno
import fcntl
import mmap
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from abi import CALLS, Call, ioc
from blockio import until

import sampleblk_lab as lab
from sampleblk_lab import leftovers

pytestmark = pytest.mark.each_kernel

CONTROL = Path("/dev/sampleblk-control")
REQUESTS = {call.name: call.request for call in CALLS}
ADD, REMOVE, LIST, INFO = (REQUESTS[name] for name in ("ADD", "REMOVE", "LIST", "INFO"))
SNAPSHOT, POWER = (next(call for call in CALLS if call.name == name) for name in ("SNAPSHOT", "POWER"))


@pytest.fixture
def control() -> Iterator[int]:
    """The raw control device, with one device made through the package so that the driver is loaded."""
    with lab.Device("1M"):
        fd = os.open(CONTROL, os.O_RDWR)
        yield fd
        os.close(fd)


def refused(fd: int, request: int, data: bytes) -> int:
    with pytest.raises(OSError) as caught:  # noqa: PT011 (the errno is what the caller looks at)
        fcntl.ioctl(fd, request, bytearray(data), True)
    assert caught.value.errno is not None
    return caught.value.errno


def direct(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_DIRECT)


def fill(fd: int, chunk: mmap.mmap) -> None:
    for i in range(4096):
        os.pwrite(fd, chunk, i << 20)


def aligned(data: bytes) -> mmap.mmap:
    buffer = mmap.mmap(-1, len(data))
    buffer.write(data)
    return buffer


def test_a_device_of_the_same_number_that_was_made_since_is_not_removed(control: int) -> None:
    first = lab.Device("1M")
    fcntl.ioctl(control, REMOVE, first.index.to_bytes(4, "little") + bytes(20))
    with lab.Device("1M", index=first.index) as second:
        first.close()
        assert second.info().capacity_bytes == 1 << 20
        assert ("device", str(second.index)) in leftovers._noted
    assert not Path(second.path).exists()
    gone = lab.Device("1M")
    fcntl.ioctl(control, REMOVE, gone.index.to_bytes(4, "little") + bytes(20))
    gone.close()


def test_what_is_written_is_read_back_and_counted() -> None:
    with lab.Device("64M", queues=2) as dev:
        fd = direct(dev.path, os.O_RDWR)
        data = os.urandom(1 << 20)
        assert os.pwrite(fd, aligned(data), 12 << 20) == len(data)
        back = mmap.mmap(-1, 1 << 20)
        os.preadv(fd, [back], 12 << 20)
        assert back[:] == data
        os.preadv(fd, [back], 40 << 20)
        assert back[:] == bytes(1 << 20)
        os.close(fd)
        counters = dev.counters()
        assert counters.write_bytes == 1 << 20
        assert counters.read_bytes >= 2 << 20
        assert counters.errors == 0
        assert dev.info().allocated_bytes == 1 << 20
        per_queue = [dev.counters(queue).write_bytes for queue in range(dev.info().queues)]
        assert sum(per_queue) == 1 << 20


def test_sectors_are_written_without_touching_their_neighbours() -> None:
    with lab.Device("1M") as dev:
        fd = direct(dev.path, os.O_RDWR)
        os.pwrite(fd, aligned(b"a" * 4096), 0)
        os.pwrite(fd, aligned(b"b" * 512), 1024)
        back = mmap.mmap(-1, 4096)
        os.preadv(fd, [back], 0)
        assert back[:] == b"a" * 1024 + b"b" * 512 + b"a" * 2560
        os.close(fd)


def test_discard_gives_memory_back_and_reads_as_zero() -> None:
    with lab.Device("16M") as dev:
        fd = direct(dev.path, os.O_RDWR)
        os.pwrite(fd, aligned(b"x" * (1 << 20)), 0)
        subprocess.run(["blkdiscard", "-o", "4096", "-l", "65536", dev.path], check=True)
        back = mmap.mmap(-1, 1 << 20)
        os.preadv(fd, [back], 0)
        assert back[:] == b"x" * 4096 + bytes(65536) + b"x" * ((1 << 20) - 4096 - 65536)
        assert dev.info().allocated_bytes == (1 << 20) - 65536
        subprocess.run(["blkdiscard", "-z", "-o", "512", "-l", "1024", dev.path], check=True)
        os.preadv(fd, [back], 0)
        assert back[:2048] == b"x" * 512 + bytes(1024) + b"x" * 512
        counters = dev.counters()
        assert (counters.discard_bytes, counters.write_zeroes_bytes) == (65536, 1024)
        os.close(fd)


def test_flush_and_fua_reach_a_device_with_a_cache() -> None:
    with lab.Device("16M", cache=True) as dev:
        fd = direct(dev.path, os.O_RDWR)
        os.pwrite(fd, aligned(b"x" * 4096), 0)
        os.fsync(fd)
        os.close(fd)
        assert (dev.counters().flushes, dev.counters().fua_writes) == (1, 0)
        fd = direct(dev.path, os.O_RDWR | os.O_DSYNC)
        os.pwrite(fd, aligned(b"y" * 4096), 0)
        os.close(fd)
        assert dev.counters().fua_writes == 1
    with lab.Device("16M") as dev:
        fd = direct(dev.path, os.O_RDWR)
        os.pwrite(fd, aligned(b"x" * 4096), 0)
        os.fsync(fd)
        os.close(fd)
        assert dev.counters().flushes == 0


def test_far_larger_than_memory() -> None:
    with lab.Device("64T") as dev:
        fd = direct(dev.path, os.O_RDWR)
        end = (64 << 40) - 4096
        os.pwrite(fd, aligned(b"z" * 4096), end)
        back = mmap.mmap(-1, 4096)
        os.preadv(fd, [back], end)
        assert back[:] == b"z" * 4096
        os.close(fd)
        assert dev.info().allocated_bytes == 4096


@pytest.mark.usefixtures("no_driver")
def test_a_full_machine_fails_the_write_and_lives() -> None:
    subprocess.run(["modprobe", "sampleblk", "devices=0", "memory_percent=5"], check=True)
    try:
        with lab.Device("1T") as dev:
            fd = direct(dev.path, os.O_RDWR)
            chunk = aligned(b"m" * (1 << 20))
            with pytest.raises(OSError, match="No space left") as caught:
                fill(fd, chunk)
            assert caught.value.errno == errno.ENOSPC
            assert dev.counters().errors > 0
            subprocess.run(["blkdiscard", dev.path], check=True)
            # Freed after a grace period: the write that waits for it may be the second.
            for _ in range(100):
                try:
                    os.pwrite(fd, chunk, 0)
                    break
                except OSError:
                    os.sched_yield()
            os.close(fd)
            assert dev.info().allocated_bytes == 1 << 20
    finally:
        subprocess.run(["rmmod", "sampleblk"], check=True)


@pytest.mark.usefixtures("no_driver", "outlives_us")
def test_devices_lists_them_and_close_takes_them_away() -> None:
    with lab.Device("1M", index=9) as one, lab.Device("2M", logical_block=4096) as two:
        listed = {info.index: info for info in lab.devices()}
        assert set(listed) == {one.index, two.index}
        assert listed[9].capacity_bytes == 1 << 20
        assert listed[two.index].logical_block_bytes == 4096
        with pytest.raises(FileExistsError):
            lab.Device("1M", index=9)
        assert Path(one.path).is_block_device()
    assert not Path(one.path).exists()
    one.close()
    assert lab.devices() == []
    assert not Path("/sys/module/sampleblk").exists()


def test_in_a_vm_of_ours_the_driver_stays_loaded() -> None:
    lab.Device("1M").close()
    assert lab.devices() == []
    assert Path("/sys/module/sampleblk").exists()


def outcome(call: Callable[[], object]) -> object:
    """What a call returns, or the errno that it fails with."""
    try:
        return call()
    except OSError as error:
        return error.errno


def test_an_open_device_is_not_removed_unless_forced() -> None:
    dev = lab.Device("1M")
    fd = os.open(dev.path, os.O_RDWR)
    with pytest.raises(OSError, match="busy") as caught:
        dev.close()
    assert caught.value.errno == errno.EBUSY
    assert os.pread(fd, 512, 0) == bytes(512)
    dev.close(force=True)
    assert not Path(dev.path).exists()
    # As with a disk that was pulled: it has no length any more. On 5.10 it fails instead.
    assert outcome(lambda: os.pread(fd, 512, 1 << 19)) in (b"", errno.EIO)
    assert outcome(lambda: (os.pwrite(fd, b"x" * 512, 1 << 19), os.fsync(fd))) in (errno.ENOSPC, errno.EIO)
    os.close(fd)
    assert subprocess.run(["rmmod", "sampleblk"], check=False).returncode == 0


@pytest.mark.usefixtures("no_driver")
def test_modprobe_gives_sampleblk1_and_a_mounted_one_keeps_the_module() -> None:
    subprocess.run(["modprobe", "sampleblk"], check=True)
    assert Path("/dev/sampleblk1").is_block_device()
    fs = lab.Filesystem("/dev/sampleblk1", "ext4")
    fs.make()
    with fs.mount() as mnt:
        (mnt / "file").write_text("kept")
        assert subprocess.run(["rmmod", "sampleblk"], check=False, capture_output=True).returncode != 0
        assert (mnt / "file").read_text() == "kept"
    subprocess.run(["rmmod", "sampleblk"], check=True)
    assert not Path("/dev/sampleblk1").exists()
    assert not CONTROL.exists()
    assert "sampleblk" not in Path("/proc/devices").read_text()


@pytest.mark.usefixtures("no_driver")
@pytest.mark.parametrize(
    ("capacity", "sectors"),
    [("0x2000", 16), ("3m", 6144), ("1P", 1 << 41), ("", 0), ("M", 0), ("64MB", 0), ("-1", 0),
     ("18446744073776660480", 0), ("16385P", 0), ("17592186044480M", 0), ("4" * 40, 0)],
)  # fmt: skip
def test_modprobe_takes_a_capacity_as_it_is_or_not_at_all(capacity: str, sectors: int) -> None:
    done = subprocess.run(["modprobe", "sampleblk", f"capacity={capacity}"], check=False, capture_output=True)
    assert (done.returncode == 0) == bool(sectors)
    if sectors:
        assert int(Path("/sys/block/sampleblk1/size").read_text()) == sectors
        until(lambda: subprocess.run(["rmmod", "sampleblk"], check=False, capture_output=True).returncode == 0)


@pytest.mark.parametrize(
    ("fstype", "capacity"), [("ext4", "64M"), ("xfs", "320M"), ("btrfs", "160M"), ("f2fs", "128M")]
)
def test_file_systems_live_on_it(fstype: str, capacity: str) -> None:
    with lab.Device(capacity, queues=2, cache=True) as dev:
        fs = dev.mkfs(fstype)
        contents = {f"f{i}": os.urandom(10_000 * i) for i in range(30)}
        with fs.mount() as mnt:
            for name, data in contents.items():
                (mnt / name).write_bytes(data)
            for name in list(contents)[::3]:
                (mnt / name).unlink()
                del contents[name]
            with pytest.raises(OSError, match="busy") as caught:
                fs.fsck()
            assert caught.value.errno == errno.EBUSY
        assert fs.fsck()
        with fs.mount() as mnt:
            assert {path.name: path.read_bytes() for path in Path(mnt).iterdir() if path.is_file()} == contents
        assert dev.counters().flushes > 0


def test_the_tracepoints_tell_of_a_write() -> None:
    tracefs = Path("/sys/kernel/tracing")
    with lab.Device("1M") as dev:
        events = tracefs / "events/sampleblk/enable"
        (tracefs / "trace").write_text("")
        events.write_text("1")
        try:
            fd = direct(dev.path, os.O_RDWR)
            os.pwrite(fd, aligned(b"t" * 4096), 8192)
            os.close(fd)
        finally:
            events.write_text("0")
        lines = [line for line in (tracefs / "trace").read_text().splitlines() if "write sector 16 bytes 4096" in line]
        assert len(lines) == 3
        for line, event in zip(lines, ("queue", "start", "complete"), strict=True):
            assert f"sampleblk_{event}:" in line
        assert int(lines[2].rsplit(" ", 1)[1]) > 0
        (tracefs / "trace").write_text("")


def test_bad_calls_are_refused(control: int) -> None:
    config = bytearray(136)
    config[8:16] = (1 << 20).to_bytes(8, "little")
    assert refused(control, ioc(3, 99, 8), bytes(8)) == errno.ENOTTY
    assert refused(control, ioc(3, 1, 136) ^ (1 << 30), config) == errno.ENOTTY
    assert refused(control, 0x5401, bytes(8)) == errno.ENOTTY
    flags = bytearray(config)
    flags[4:8] = b"\x00\x00\x00\x80"
    assert refused(control, ADD, flags) == errno.EINVAL
    reserved = bytearray(config)
    reserved[130] = 1
    assert refused(control, ADD, reserved) == errno.EINVAL
    assert refused(control, ioc(3, 1, 144), bytes(config) + b"\x01" + bytes(7)) == errno.E2BIG
    tiny = bytearray(136)
    assert refused(control, ADD, tiny) == errno.EINVAL
    assert refused(control, REMOVE, (200).to_bytes(4, "little") + bytes(20)) == errno.ENODEV
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.ioctl(control, ctypes.c_ulong(ADD), ctypes.c_void_p(8)) == -1
    assert ctypes.get_errno() == errno.EFAULT


def test_an_argument_that_cannot_be_written_to_changes_nothing(control: int) -> None:
    """Where the answer cannot be told, a device would be made whose number nobody knows."""
    libc = ctypes.CDLL(None, use_errno=True)
    page = mmap.mmap(-1, mmap.PAGESIZE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(page))

    def refused_read_only(request: int, argument: bytes) -> int:
        page.seek(0)
        page.write(argument)
        assert libc.mprotect(ctypes.c_void_p(address), mmap.PAGESIZE, mmap.PROT_READ) == 0
        status = libc.ioctl(control, ctypes.c_ulong(request), ctypes.c_void_p(address))
        problem = ctypes.get_errno()
        assert libc.mprotect(ctypes.c_void_p(address), mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_WRITE) == 0
        return problem if status else 0

    config = bytearray(136)
    config[0:4] = (77).to_bytes(4, "little")
    config[8:16] = (1 << 20).to_bytes(8, "little")
    assert refused_read_only(ADD, bytes(config)) == errno.EFAULT
    assert not Path("/dev/sampleblk77").exists()
    with lab.Device("1M", cache=True) as dev:
        index = dev.index.to_bytes(4, "little")
        assert refused_read_only(SNAPSHOT.request, index.ljust(SNAPSHOT.size, b"\0")) == errno.EFAULT
        assert dev.snapshots() == []
        power = (index + bytes(4)).ljust(POWER.size, b"\0")
        assert refused_read_only(POWER.request, power) == errno.EFAULT
        assert dev.info().powered
    config[0:4] = (77).to_bytes(4, "little")
    fcntl.ioctl(control, ADD, config, True)
    fcntl.ioctl(control, REMOVE, (77).to_bytes(4, "little") + bytes(20))


def test_a_shorter_and_a_longer_structure_are_taken(control: int) -> None:
    config = bytearray(48)
    config[8:16] = (1 << 20).to_bytes(8, "little")
    fcntl.ioctl(control, ioc(3, 1, 40), config, True)
    index = int.from_bytes(config[:4], "little")
    assert index > 1
    longer = bytearray(index.to_bytes(4, "little") + bytes(60))
    fcntl.ioctl(control, ioc(1, 2, 64), longer, True)
    assert refused(control, INFO, index.to_bytes(4, "little") + bytes(212)) == errno.ENODEV


def allowed(control: int, call: Call, action: int) -> bool:
    """Whether a call to the first device gets past the question for the right."""
    argument = (1).to_bytes(4, "little") + action.to_bytes(4, "little") + bytes(call.size - 8)
    try:
        fcntl.ioctl(control, call.request, bytearray(argument), True)
    except PermissionError:
        return False
    except OSError:
        pass
    return True


def test_without_the_right_nothing_changes(control: int) -> None:
    # Calls that only ask, and of those that do both the actions that ask. Every other call needs the right.
    only_ask = {"LIST", "INFO", "COUNTERS", "HISTOGRAM", "GET_FAULTS", "GET_TIMING", "GET_LIMITS", "VOLATILE"}
    asking_action = {"JOURNAL": 2, "SNAPSHOT": 4}
    asking, changing = [], []
    for call in CALLS:
        for action in range(6):
            asks = call.name in only_ask or asking_action.get(call.name) == action
            (asking if asks else changing).append((call, action))
    assert {call.name for call, _ in asking} == only_ask | asking_action.keys()
    attributes = [path for path in Path("/sys/block/sampleblk1/sampleblk").iterdir() if path.stat().st_mode & 0o200]
    assert len(attributes) > 10
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.setgid(65534)
            os.setuid(65534)
            if any(allowed(control, *call) for call in changing):
                os._exit(2)
            if not all(allowed(control, *call) for call in asking):
                os._exit(3)
            status = 4 if any(os.access(path, os.W_OK) for path in attributes) else 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    (info,) = lab.devices()
    assert info.index == 1
    assert info.powered
