# SPDX-License-Identifier: MIT
"""Modes, queues, completion, timing, limits and faults, changed while I/O runs."""

import contextlib
import dataclasses
import errno
import mmap
import os
import signal
import subprocess
import threading
import time
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
from blockio import Background, aligned, read, until, write

import sampleblk_lab as lab

pytestmark = pytest.mark.two_cpus

VERSION = tuple(map(int, os.uname().release.split(".")[:2]))


@pytest.mark.parametrize("mode", ["mq", "bio"])
@pytest.mark.parametrize("completion", ["inline", "softirq", "timer"])
def test_every_mode_and_completion_moves_data(mode: str, completion: str) -> None:
    with lab.Device("16M", queues=2, mode=mode, completion=completion, cache=True) as dev:
        data = os.urandom(256 << 10)
        write(dev.path, data, 4096)
        assert read(dev.path, len(data), 4096) == data
        write(dev.path, data[:4096], 0, dsync=True)
        assert dev.info().mode == mode
        assert dev.info().completion == completion
        counters = dev.counters()
        assert counters.write_bytes == len(data) + 4096
        assert counters.flushes + counters.fua_writes >= 1
        assert counters.errors == 0


@pytest.mark.usefixtures("second_cpu")
def test_queues_change_under_io() -> None:
    with lab.Device("32M", queues=1, mode="mq") as dev:
        stop = threading.Event()
        problems: list[str] = []

        def work(base: int) -> None:
            fd = os.open(dev.path, os.O_RDWR | os.O_DIRECT)
            n = 0
            while not stop.is_set():
                data = aligned(bytes([n % 251]) * 4096)
                os.pwrite(fd, data, base + n % 64 * 4096)
                back = aligned(bytes(4096))
                os.preadv(fd, [back], base + n % 64 * 4096)
                if back[:] != data[:]:
                    problems.append(f"{base} {n}")
                n += 1
            os.close(fd)

        threads = [threading.Thread(target=work, args=(i << 20,)) for i in range(3)]
        for thread in threads:
            thread.start()
        for queues in (2, 1, 2, 1, 2):
            assert dev.tune(queues=queues)["queues"] == queues
            time.sleep(0.1)
        stop.set()
        for thread in threads:
            thread.join()
        assert problems == []
        assert len(list(Path(f"/sys/block/{dev.name}/mq").iterdir())) == 2
        with pytest.raises(OSError, match=r"Invalid.*at most as many as CPUs") as caught:
            dev.tune(queues=1000)
        assert caught.value.errno == errno.EINVAL


@pytest.mark.usefixtures("second_cpu")
def test_a_signal_leaves_all_or_nothing_of_a_call_that_tunes() -> None:
    """Each setting waited for itself, so that a signal in the second's wait left the first."""

    class AlarmError(Exception):
        pass

    def ring(*_: object) -> None:
        raise AlarmError

    with lab.Device("1M", queues=2, mode="mq") as dev:
        dev.tune(queues=1)
        dev.set_timing("constant", 300_000_000, ops="write")
        stop = threading.Event()

        def work() -> None:
            fd = os.open(dev.path, os.O_RDWR | os.O_DIRECT)
            while not stop.is_set():
                os.pwrite(fd, aligned(bytes(4096)), 0)
            os.close(fd)

        threads = [threading.Thread(target=work) for _ in range(2)]
        before = signal.signal(signal.SIGALRM, ring)
        outcomes = []
        try:
            for thread in threads:
                thread.start()
            for after in (0.05, 0.2, 0.35, 0.35, 0.45, 0.45, 0.55):
                signal.setitimer(signal.ITIMER_REAL, after)
                with contextlib.suppress(AlarmError, InterruptedError):
                    dev.tune(queues=2, sector_atomic=True)
                    signal.setitimer(signal.ITIMER_REAL, 0)
                signal.setitimer(signal.ITIMER_REAL, 0)
                outcomes.append((dev.info().queues, dev.info().sector_atomic))
                dev.tune(queues=1, sector_atomic=False)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
            stop.set()
            for thread in threads:
                thread.join()
        assert (1, False) in outcomes
        assert set(outcomes) <= {(1, False), (2, True)}, outcomes


def test_geometry_is_what_was_asked() -> None:
    with lab.Device(
        "64M", logical_block=4096, physical_block=16384, io_min=32768, io_opt=65536, max_sectors=512, rotational=True
    ) as dev:
        queue = Path(f"/sys/block/{dev.name}/queue")
        values = {
            "logical_block_size": 4096,
            "physical_block_size": 16384,
            "minimum_io_size": 32768,
            "optimal_io_size": 65536,
            "max_hw_sectors_kb": 256,
            "rotational": 1,
        }
        assert {name: int((queue / name).read_text()) for name in values} == values


@pytest.mark.parametrize("mode", ["mq", "bio"])
@pytest.mark.parametrize("sectors", [8, 2560, 16384])
def test_a_request_is_as_large_as_was_asked(mode: str, sectors: int) -> None:
    """Of most drivers the kernel has it at most 1280 KiB."""
    with lab.Device("64M", mode=mode, max_sectors=sectors) as dev:
        for name in ("max_hw_sectors_kb", "max_sectors_kb"):
            assert int(Path(f"/sys/block/{dev.name}/queue/{name}").read_text()) == sectors // 2, name
        write(dev.path, b"x" * (8 << 20))
        assert dev.counters().write_bytes == 8 << 20
        assert dev.counters().writes >= (8 << 20) // (sectors << 9)


@pytest.mark.parametrize("mode", ["mq", "bio"])
def test_a_request_holds_a_block_of_whatever_pieces(mode: str) -> None:
    """Linux 6.1 stops with a BUG where it does not."""
    with pytest.raises(lab.InputError, match=r"max_segments of 7 \(expected from 8 to 1024\)"):
        lab.Device("1M", mode=mode, logical_block=4096, max_segments=7)
    with lab.Device("1M", mode=mode, logical_block=4096, max_segments=8, partitions=False) as dev:
        data = mmap.mmap(-1, 128 << 10)
        data[:] = os.urandom(len(data))
        # Until 6.17 each piece must be of whole blocks, and until 5.19 begin as one.
        size, apart, first = (512, 8192, 0) if VERSION >= (6, 18) else (8192, 16384, 512 if VERSION >= (6, 0) else 0)
        pieces = [memoryview(data)[at : at + size] for at in range(first, len(data), apart)]
        fd = os.open(dev.path, os.O_WRONLY | os.O_DIRECT)
        assert os.pwritev(fd, pieces, 0) == len(pieces) * size
        os.close(fd)
        assert read(dev.path, len(pieces) * size) == b"".join(pieces)


def test_a_number_that_cannot_be_is_named() -> None:
    with pytest.raises(lab.InputError, match=r"queues=-1 \(expected a whole number from 0 to 4294967295\)"):
        lab.Device("1M", queues=-1)
    for part in (Decimal("1.5"), np.float32(1.5)):
        with pytest.raises(lab.InputError, match=r"queues=.*1\.5"):
            lab.Device("1M", queues=part)  # type: ignore[arg-type]
    with lab.Device("1M") as dev:
        with pytest.raises(lab.InputError, match="count='two'"):
            dev.set_faults([lab.Fault(action="error", count="two")])  # type: ignore[arg-type]
        with pytest.raises(lab.InputError, match=r"iops=1\.5"):
            dev.set_limits(iops=1.5)  # type: ignore[arg-type]


def test_an_eager_device_has_its_memory_from_the_beginning() -> None:
    with lab.Device("8M", eager=True) as dev:
        assert dev.info().allocated_bytes == 8 << 20
        subprocess.run(["blkdiscard", dev.path], check=True)
        assert dev.info().allocated_bytes == 8 << 20
        assert read(dev.path, 4096) == bytes(4096)


def test_a_clone_of_an_eager_device_does_not_say_that_it_has_its_memory() -> None:
    with lab.Device("8M", eager=True) as dev, dev.snapshot_clone(dev.snapshot_take()) as clone:
        assert dev.info().eager
        assert not clone.info().eager
        before = clone.info().allocated_bytes
        write(clone.path, b"c" * 65536)
        assert clone.info().allocated_bytes - before == 65536


def test_read_only_can_change() -> None:
    with lab.Device("1M") as dev:
        dev.tune(read_only=True)
        with pytest.raises(OSError, match=r"not permitted|Read-only|denied"):
            write(dev.path, bytes(4096))
        dev.tune(read_only=False)
        write(dev.path, bytes(4096))


def test_single_values_can_be_written_in_sysfs() -> None:
    with lab.Device("1M", queues=2) as dev:
        sysfs = Path(f"/sys/block/{dev.name}/sampleblk")
        for name, value in (
            ("queues", 1),
            ("completion", 1),
            ("histograms", 1),
            ("read_only", 1),
            ("sector_atomic", 1),
        ):
            (sysfs / name).write_text(str(value))
            assert int((sysfs / name).read_text()) == value
        now = dev.tune()
        assert (now["queues"], now["completion"]) == (1, "softirq")
        assert all(now[name] is True for name in ("histograms", "read_only", "sector_atomic"))
        (sysfs / "read_only").write_text("0")
        dev.set_limits(stall_period_ns=1_000_000_000, stall_ns=1)
        for name, value in (("iops", 1000), ("bytes_per_second", 1 << 30), ("iops", 0)):
            (sysfs / name).write_text(str(value))
            assert int((sysfs / name).read_text()) == value
        for name, text in (
            ("iops", "-1"),
            ("iops", "many"),
            ("read_only", "2"),
            ("queues", str(2**32 + 1)),
            ("powered", "2"),
        ):
            with pytest.raises(OSError, match=r"Invalid|out of range"):
                (sysfs / name).write_text(text)
        (sysfs / "powered").write_text("0")
        assert not dev.info().powered
        with pytest.raises(OSError, match="Input/output"):
            read(dev.path, 4096)
        (sysfs / "powered").write_text("1")
        read(dev.path, 4096)
        # Everything else is refused, whoever asks.
        with pytest.raises(PermissionError):
            (sysfs / "capacity_bytes").open("w").write("1")


@pytest.mark.parametrize("mode", ["mq", "bio"])
def test_latency_is_added_counted_and_seen_in_the_histogram(mode: str) -> None:
    with lab.Device("1M", mode=mode) as dev:
        dev.tune(histograms=True)
        dev.set_timing("constant", 100_000_000, ops="read")
        dev.reset()
        for _ in range(5):
            read(dev.path, 4096)
        write(dev.path, bytes(4096))
        reads = dev.histogram("read")
        assert sum(row["count"] for row in reads.rows() if row["to_ns"] > 100_000_000) == 5
        assert sum(row["count"] for row in reads.rows() if row["to_ns"] <= 100_000_000) == 0
        assert dev.counters().delayed == 5
        assert sum(dev.histogram("write")["count"].codes.tolist()) == 1
        dev.set_timing("none", ops="read")
        read(dev.path, 4096)
        assert dev.counters().delayed == 5


@pytest.mark.parametrize(
    ("model", "a", "b", "bins"),
    [
        ("uniform", 1_000_000, 3_000_000, ()),
        ("normal", 2_000_000, 100_000, ()),
        ("lognormal", 1_000_000, 300, ()),
        ("exponential", 500_000, 1_000_000, ()),
        ("pareto", 1_000_000, 3000, ()),
        ("empirical", 0, 0, ((1_000_000, 0), (2_000_000, 9), (8_000_000, 1))),
    ],
)
def test_every_model_delays(model: str, a: int, b: int, bins: tuple[tuple[int, int], ...]) -> None:
    with lab.Device("1M") as dev:
        dev.tune(histograms=True)
        dev.set_timing(model, a, b, bins=bins, seed=7)
        dev.reset()
        for _ in range(20):
            write(dev.path, bytes(512))
        # No model here ever draws less than a quarter of a millisecond.
        assert all(row["to_ns"] > 250_000 for row in dev.histogram("write").rows() if row["count"])
        # One that was due before the write was done needed no timer.
        assert dev.counters().delayed > 0


def test_what_was_set_is_read_back() -> None:
    with lab.Device("1M") as dev:
        assert dev.timing("read") == lab.Latency("none")
        assert dev.limits() == dict.fromkeys(
            ("bytes_per_second", "iops", "stall_period_ns", "stall_ns", "stall_offset_ns"), 0
        )
        bins = ((1_000_000, 0), (2_000_000, 9), (8_000_000, 1))
        dev.set_timing("lognormal", 1_000_000, 300, ops=("write", "flush"), seed=7)
        dev.set_timing("empirical", ops="read", bins=bins, seed=2**64 - 1)
        assert dev.timing("write") == dev.timing("flush") == lab.Latency("lognormal", 1_000_000, 300, seed=7)
        assert dev.timing("read") == lab.Latency("empirical", bins=bins, seed=2**64 - 1)
        assert dev.timing("discard") == lab.Latency("none")
        limits = {
            "bytes_per_second": 1 << 20, "iops": 9, "stall_period_ns": 5000, "stall_ns": 7, "stall_offset_ns": 3,
        }  # fmt: skip
        dev.set_limits(**limits)
        assert dev.limits() == limits
        # As it was uploaded, it can be uploaded again.
        dev.set_timing(**dataclasses.asdict(dev.timing("read")), ops="discard")
        assert dev.timing("discard") == dev.timing("read")
        with pytest.raises(lab.InputError, match="'reed'"):
            dev.timing("reed")


def test_limits_hold() -> None:
    with lab.Device("16M") as dev:
        dev.set_limits(bytes_per_second=4 << 20)
        begin = time.monotonic()
        write(dev.path, bytes(2 << 20))
        # Longer is the machine's business, shorter would be a bug.
        assert time.monotonic() - begin > 0.45
        dev.set_limits(iops=20)
        begin = time.monotonic()
        for _ in range(10):
            write(dev.path, bytes(512))
        assert time.monotonic() - begin > 0.45
        dev.set_limits(stall_period_ns=400_000_000, stall_ns=300_000_000)
        begin = time.monotonic()
        for _ in range(30):
            write(dev.path, bytes(512))
            time.sleep(0.01)
        assert time.monotonic() - begin > 0.3
        dev.set_limits()


@pytest.mark.parametrize("mode", ["mq", "bio"])
@pytest.mark.parametrize("limit", ["iops", "bytes_per_second"])
def test_behind_a_limit_nobody_waits_for_the_latency_of_another(mode: str, limit: str) -> None:
    """A limit that nothing comes near: a write on its way for a minute keeps no read from being answered."""
    with lab.Device("16M", mode=mode) as dev:
        dev.set_limits(**{limit: 1 << 40 if limit == "bytes_per_second" else 1_000_000})
        dev.set_timing("constant", 60_000_000_000, ops="write")
        slow = Background(write, dev.path, b"s" * 4096)
        until(lambda: dev.counters().delayed)
        read(dev.path, 4096, 4096)
        assert slow.running
        dev.power_cut()
        assert slow.error() == errno.EIO


def test_polled_queues_complete_what_is_polled() -> None:
    fio = "/usr/bin/fio"
    if not Path(fio).exists():
        pytest.skip("needs fio: apt-get install fio")
    with lab.Device("16M", queues=2, poll_queues=1) as dev:
        command = [
            fio, "--name=p", f"--filename={dev.path}", "--rw=randrw", "--bs=4k", "--direct=1", "--ioengine=io_uring",
            "--hipri=1", "--iodepth=8", "--size=8M", "--verify=crc32c",
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert dev.counters().polled > 0


def fault_device(mode: str) -> lab.Device:
    dev = lab.Device("1M", mode=mode)
    write(dev.path, b"o" * 65536)
    return dev


@pytest.mark.parametrize("mode", ["mq", "bio"])
class TestFaults:
    def test_an_error_is_the_one_asked_for_and_counted(self, mode: str) -> None:
        with fault_device(mode) as dev:
            dev.set_faults([lab.Fault(action="error", ops="read", errno=errno.ENOSPC, first_sector=8, last_sector=15)])
            assert read(dev.path, 4096) == b"o" * 4096
            with pytest.raises(OSError, match="space"):
                read(dev.path, 4096, 4096)
            (rule,) = dev.faults()
            assert (rule.matched, rule.hits) == (1, 1)
            assert (dev.counters().faults, dev.counters().errors) == (1, 1)
            dev.set_faults([])
            assert read(dev.path, 4096, 4096) == b"o" * 4096

    def test_lost_torn_and_misdirected_writes(self, mode: str) -> None:
        with fault_device(mode) as dev:
            dev.set_faults(
                [
                    lab.Fault(action="lost_write", count=1),
                    lab.Fault(action="torn_write", sectors=3, count=1),
                    lab.Fault(action="misdirected_write", sector=64, count=1),
                    lab.Fault(action="torn_write", sectors=1, errno=errno.EIO, count=1),
                ]
            )
            write(dev.path, b"1" * 4096, 0)
            assert read(dev.path, 4096, 0) == b"o" * 4096
            write(dev.path, b"2" * 4096, 0)
            assert read(dev.path, 4096, 0) == b"2" * 1536 + b"o" * 2560
            write(dev.path, b"3" * 4096, 0)
            assert read(dev.path, 4096, 0)[:4] == b"2222"
            assert read(dev.path, 4096, 64 * 512) == b"3" * 4096
            with pytest.raises(OSError, match="error"):
                write(dev.path, b"4" * 4096, 0)
            assert read(dev.path, 1024, 0) == b"4" * 512 + b"2" * 512
            assert [rule.hits for rule in dev.faults()] == [1, 1, 1, 1]

    def test_corruption_flips_the_bits_asked_for(self, mode: str) -> None:
        with fault_device(mode) as dev:
            dev.set_faults([lab.Fault(action="corrupt", ops="read", count=1)], seed=3)
            got = read(dev.path, 4096)
            wrong = [a ^ b for a, b in zip(got, b"o" * 4096, strict=True) if a != b]
            assert len(wrong) == 1
            assert wrong[0].bit_count() == 1
            assert read(dev.path, 4096) == b"o" * 4096
            dev.set_faults([lab.Fault(action="corrupt", ops="write", count=1)], seed=3)
            write(dev.path, b"w" * 4096)
            wrong = [a ^ b for a, b in zip(read(dev.path, 4096), b"w" * 4096, strict=True) if a != b]
            assert len(wrong) == 1
            # None twice, also where there is little room.
            dev.set_faults([lab.Fault(action="corrupt", ops=("read", "write"), bits=64)])
            got = read(dev.path, 512, 8192)
            assert sum((a ^ b).bit_count() for a, b in zip(got, b"o" * 512, strict=True)) == 64
            write(dev.path, b"w" * 512, 8192)
            dev.set_faults([])
            got = read(dev.path, 512, 8192)
            assert sum((a ^ b).bit_count() for a, b in zip(got, b"w" * 512, strict=True)) == 64

    def test_a_hung_request_ends_when_its_rule_goes(self, mode: str) -> None:
        with fault_device(mode) as dev:
            dev.set_faults([lab.Fault(action="hang", ops="read")])
            errors: list[int | None] = []

            def hang() -> None:
                try:
                    read(dev.path, 4096)
                except OSError as error:
                    errors.append(error.errno)

            thread = threading.Thread(target=hang)
            thread.start()
            while dev.counters().faults == 0:
                time.sleep(0.01)
            assert thread.is_alive()
            dev.set_faults([])
            thread.join(20)
            assert errors == [errno.EIO]
            assert read(dev.path, 4096) == b"o" * 4096

    def test_a_rule_that_says_nothing_is_refused(self, mode: str) -> None:
        with fault_device(mode) as dev:
            with pytest.raises(lab.InputError, match=r"ops='read' of a fault 'lost_write' .expected write or"):
                dev.set_faults([lab.Fault(action="lost_write", ops="read")])
            with pytest.raises(lab.InputError, match="'explode'"):
                dev.set_faults([lab.Fault(action="explode")])
            assert dev.faults() == []


def test_a_hung_request_times_out_in_mq() -> None:
    with fault_device("mq") as dev:
        Path(f"/sys/block/{dev.name}/queue/io_timeout").write_text("500")
        dev.set_faults([lab.Fault(action="hang", ops="read", count=1)])
        with pytest.raises(OSError, match=r"timed out|error"):
            read(dev.path, 4096)
        assert read(dev.path, 4096) == b"o" * 4096


def test_removal_ends_what_hangs() -> None:
    dev = fault_device("bio")
    dev.set_faults([lab.Fault(action="hang", ops="read")])
    pid = os.fork()
    if pid == 0:
        try:
            read(dev.path, 4096)
        except OSError:
            os._exit(0)
        os._exit(1)
    while dev.counters().faults == 0:
        time.sleep(0.01)
    dev.close(force=True)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
