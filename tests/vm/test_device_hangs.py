# SPDX-License-Identifier: MIT
"""Whatever is asked of a device, it goes when it is told to, and nobody waits for it in vain."""

from __future__ import annotations

import errno
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from blockio import Background, aligned, discard, read, until, write

import sampleblk_lab as lab
from sampleblk_lab.device import filesystem
from sampleblk_lab.device.filesystem import Mount

pytestmark = pytest.mark.two_cpus

both_modes = pytest.mark.parametrize("mode", ["mq", "bio"])
FULL = os.environ.get("SAMPLEBLK_STRESS") == "full"
STRESS_S = float(os.environ.get("SAMPLEBLK_RACE_SECONDS", "20" if FULL else "6"))


def test_sums_of_queues_do_not_wrap() -> None:
    with lab.Device("1M", queues=2, poll_queues=2) as dev:
        sysfs = Path(f"/sys/block/{dev.name}/sampleblk/queues")
        for queues in (2**32 - 1, 2**32 - 2, 2**31, 65):
            with pytest.raises(OSError, match="Invalid"):
                dev.tune(queues=queues)
            with pytest.raises(OSError, match="Invalid"):
                sysfs.write_text(str(queues))
        dev.tune(queues=1)
        write(dev.path, b"x" * 4096)
        assert read(dev.path, 4096) == b"x" * 4096
    for field in ({"queues": 2**32 - 1}, {"poll_queues": 2**32 - 1}, {"depth": 2**32 - 1}):
        with pytest.raises((OSError, lab.InputError)):
            lab.Device("1M", **field)


@both_modes
@pytest.mark.parametrize("code", [errno.ENOMEM, errno.EBUSY, errno.EAGAIN])
def test_a_torn_write_that_fails_with_a_passing_error_is_tried_once(mode: str, code: int) -> None:
    with lab.Device("1M", mode=mode) as dev:
        dev.set_faults([lab.Fault(action="torn_write", sectors=2, errno=code)])
        late = Background(write, dev.path, b"t" * 4096)
        assert late.error(5) == code
        assert dev.counters().writes == 1
        assert dev.counters().deferred == 0
        dev.set_faults([])
        assert read(dev.path, 4096) == b"t" * 1024 + bytes(3072)


def busy(path: str, stop: threading.Event, count: int) -> list[Background]:
    """So many threads that do I/O to a device until told to stop, whatever becomes of it; all have opened it."""
    return [
        Background(stay_busy, os.open(path, os.O_RDWR | os.O_DIRECT), stop, random.Random(seed))
        for seed in range(count)
    ]


def stay_busy(fd: int, stop: threading.Event, chance: random.Random) -> None:
    """What each of them does."""
    data = aligned(b"b" * 4096)
    while not stop.is_set():
        at = chance.randrange(64) * 4096
        try:
            if chance.random() < 0.5:
                os.pwrite(fd, data, at)
            else:
                os.preadv(fd, [data], at)
            if chance.random() < 0.05:
                os.fsync(fd)
        except OSError:
            stop.wait(0.001)
    os.close(fd)


@both_modes
def test_nothing_hangs_on_after_its_rule_is_gone(mode: str) -> None:
    """Rules come and go while requests meet them; each that hung ends with the table that it hung by."""
    with lab.Device("1M", mode=mode, queues=2) as dev:
        stop = threading.Event()
        workers = busy(dev.path, stop, 6)
        end = time.monotonic() + STRESS_S
        tables = 0
        while time.monotonic() < end:
            dev.set_faults([lab.Fault(action="hang", ops=("read", "write", "flush"), every=3)])
            tables += 1
            if tables % 3 == 0:
                time.sleep(0.01)
        dev.set_faults([])
        stop.set()
        for worker in workers:
            assert worker.error(20) is None
        assert tables > 5


@both_modes
@pytest.mark.parametrize("direct", [True, False])
def test_what_hangs_is_in_flight(mode: str, direct: bool) -> None:
    """Read-ahead is submitted from a plug, which the driver gets as a list (queue_rqs)."""
    with lab.Device("1M", mode=mode) as dev:
        dev.set_faults([lab.Fault(action="hang", ops="read")])
        with Path(dev.path).open("rb", buffering=0) as file:
            reader = (
                Background(read, dev.path, 4096, 8192) if direct else Background(os.pread, file.fileno(), 4096, 8192)
            )
            shown = Path(f"/sys/block/{dev.name}/inflight")
            until(lambda: shown.read_text().split()[0] != "0")
            dev.set_faults([])
            assert reader.error(20) in (None, errno.EIO)
        until(lambda: shown.read_text().split() == ["0", "0"])


@both_modes
def test_devices_go_under_rules_that_let_all_hang(mode: str) -> None:
    begin = time.monotonic()
    rounds = 0
    while rounds < 3 or time.monotonic() - begin < STRESS_S:
        dev = lab.Device("1M", mode=mode, queues=2, cache=rounds % 2 == 0)
        stop = threading.Event()
        workers = busy(dev.path, stop, 4)
        dev.set_faults([lab.Fault(action="hang", ops=("read", "write", "flush"), every=2)])
        time.sleep(0.02)
        before = time.monotonic()
        dev.close(force=True)
        assert time.monotonic() - before < (20 if FULL else 4)
        stop.set()
        for worker in workers:
            assert worker.error(20) is None
        rounds += 1


def written_under_a_rule(dev: lab.Device, rule: str) -> Mount:
    """A mounted file system with something to be written, which a rule keeps waiting."""
    mount = dev.mkfs("ext4").mount()
    (mount / "file").write_bytes(b"w" * 4096)
    dev.set_faults([lab.Fault(action=rule, ops=("read", "write", "flush"))])
    return mount


@both_modes
@pytest.mark.parametrize("rule", ["hang", "hold"])
def test_a_device_is_unmounted_and_goes_under_a_rule_that_lets_all_wait(mode: str, rule: str) -> None:
    dev = lab.Device("16M", mode=mode)
    written_under_a_rule(dev, rule)
    assert Background(dev.close).error(20) is None
    assert not Path(dev.path).exists()


def test_unmounting_ends_a_rule_that_it_has_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filesystem, "_UNMOUNT_S", 0.5)
    with lab.Device("16M", mode="bio") as dev:
        mount = written_under_a_rule(dev, "hang")
        said: list[str] = []

        def close() -> None:
            with pytest.raises(lab.SampleblkError, match=rf"waited 0.5 s for what a rule of {dev.path} let hang"):
                mount.close()
            said.append("told")

        Background(close).error(20)
        assert said
        assert dev.faults() == []
        assert not mount.path.exists()


@both_modes
@pytest.mark.parametrize("what", ["iops", "latency", "hang", "bandwidth"])
def test_a_forced_removal_does_not_wait_for_what_was_asked_of_the_device(mode: str, what: str) -> None:
    dev = lab.Device("1M", mode=mode)
    other = lab.Device("1M")
    if what == "iops":
        dev.set_limits(iops=1)
    elif what == "bandwidth":
        dev.set_limits(bytes_per_second=4096)
    elif what == "latency":
        dev.set_timing("constant", 60_000_000_000, ops=("read", "write"))
    else:
        dev.set_faults([lab.Fault(action="hang", ops=("read", "write"))])
    workers = [Background(write, dev.path, b"w" * 4096, n * 4096) for n in range(32)]
    until(lambda: dev.counters().delayed + dev.counters().faults >= 20)
    removal = Background(dev.close, force=True)
    begin = time.monotonic()
    # Others are not kept waiting meanwhile.
    assert any(info.index == other.index for info in lab.devices())
    lab.Device("1M").close()
    assert removal.error(20) is None
    assert removal.done_s - begin < (20 if FULL else 4)
    ended = [worker.error(5) for worker in workers]
    assert ended.count(errno.EIO) >= 10
    # One that nothing was asked of had its write done; one that came late met no device, or one of no size.
    assert set(ended) <= {errno.EIO, None, errno.ENXIO, errno.ENOSPC}
    other.close()


@both_modes
@pytest.mark.parametrize("rule", ["hang", "hold"])
def test_no_call_waits_for_one_who_waits_for_a_rule_as_he_closes_the_disk(mode: str, rule: str) -> None:
    """What the page cache has of a disk is written as its last partition is closed, with the lock of opening."""

    def closing() -> Background:
        part = os.open(partition, os.O_RDWR)
        whole = os.open(dev.path, os.O_RDWR)
        os.pwrite(whole, b"c" * 4096, 0)
        os.close(whole)
        faults = dev.counters().faults
        dev.set_faults([lab.Fault(action=rule, ops="write")])
        closer = Background(os.close, part)
        until(lambda: dev.counters().faults > faults)
        return closer

    with lab.Device("2M", mode=mode) as dev:
        subprocess.run(["addpart", dev.path, "1", "2048", "1024"], check=True)
        partition = Path(f"{dev.path}p1")
        until(partition.exists)
        snapshot = dev.snapshot_take()
        closer = closing()
        restored = Background(dev.snapshot_restore, snapshot, force=True)
        assert restored.error(10) is None
        assert closer.error(10) is None
        # Nor one who waits for the lock with a claim on the disk.
        closer = closing()
        claimer = Background(lambda: os.close(os.open(dev.path, os.O_RDWR | os.O_EXCL)))
        time.sleep(0.1)
        restored = Background(dev.snapshot_restore, snapshot, force=True)
        assert restored.error(10) in (None, errno.EBUSY)
        assert closer.error(10) is None
        assert claimer.error(10) in (None, errno.EBUSY)
        # Nor one who has a claim, for the pages that he discards, and waits for those that are written.
        dev.set_faults([])
        fd = os.open(dev.path, os.O_RDWR)
        os.pwrite(fd, b"d" * 4096, 0)
        faults = dev.counters().faults
        dev.set_faults([lab.Fault(action=rule, ops="write")])
        writer = Background(os.fsync, fd)
        until(lambda: dev.counters().faults > faults)
        discarder = Background(discard, dev.path, 0, 4096)
        time.sleep(0.2)
        restored = Background(dev.snapshot_restore, snapshot, force=True)
        assert restored.error(10) in (None, errno.EBUSY)
        assert writer.error(10) in (None, errno.EIO)
        discarder.error(10)
        os.close(fd)
        dev.set_faults([])


@both_modes
def test_a_call_that_waits_for_delayed_io_ends_with_a_signal_and_changes_nothing(mode: str) -> None:
    with lab.Device("1M", mode=mode) as dev:
        script = (
            "import signal, sys, sampleblk_lab as lab\n"
            "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
            f"dev = lab.Device(adopt={dev.index})\n"
            "print('there', flush=True)\n"
            "sys.stdin.readline()\n"
            "dev.journal_start('1M')\n"
        )
        with subprocess.Popen(
            [sys.executable, "-c", script],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        ) as process:  # fmt: skip
            assert process.stdin
            assert process.stdout
            assert process.stdout.readline() == "there\n"
            dev.set_timing("constant", 60_000_000_000, ops="write")
            late = Background(write, dev.path, b"w" * 4096)
            until(lambda: dev.counters().delayed)
            process.stdin.write("go\n")
            process.stdin.flush()
            time.sleep(1)
            assert process.poll() is None
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=40)
        assert "KeyboardInterrupt" in said
        assert late.running
        assert dev.journal_info().bytes == 0
        dev.set_timing("none", ops="write")
        dev.power_cut()
        assert late.error(5) == errno.EIO
        dev.power_on()
        write(dev.path, b"w" * 4096)


@pytest.mark.usefixtures("second_cpu")
def test_the_number_of_queues_changes_under_rules_and_delays() -> None:
    with lab.Device("1M", queues=2) as dev:
        dev.set_faults([lab.Fault(action="hang", ops="write", every=5)])
        dev.set_timing("constant", 20_000_000, ops=("read", "write"))
        stop = threading.Event()
        workers = busy(dev.path, stop, 4)
        for n in range(6):
            assert dev.tune(queues=1 + n % 2)["queues"] == 1 + n % 2
        stop.set()
        dev.set_faults([])
        for worker in workers:
            assert worker.error(20) is None


def test_taking_all_memory_can_be_killed() -> None:
    """EAGER population is a long loop in the kernel."""
    script = (
        "import sampleblk_lab as lab\nprint('there', flush=True)\nlab.Device('400M', eager=True, index=77).leave()\n"
    )
    for delay in (0.0, 0.02, 0.1):
        with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout
            process.stdout.readline()
            time.sleep(delay)
            process.kill()
            begin = time.monotonic()
            process.wait(20)
            assert time.monotonic() - begin < 2
        if Path("/dev/sampleblk77").exists():
            lab.Device(adopt=77).close()


def test_everybody_who_asks_at_once_is_answered() -> None:
    """Calls of one device wait for each other, those of others do not; a signal ends the waiting."""
    with lab.Device("1M") as slow, lab.Device("1M") as quick:
        slow.set_timing("constant", 3_000_000_000, ops="write")
        late = Background(write, slow.path, b"w" * 4096)
        until(lambda: slow.counters().delayed)
        waiting = Background(slow.reset)
        time.sleep(0.2)
        begin = time.monotonic()
        quick.reset()
        quick.tune(histograms=True)
        assert time.monotonic() - begin < 2
        assert waiting.running
        assert waiting.error(10) is None
        assert late.error(5) is None
