# SPDX-License-Identifier: MIT
"""Random calls, devices that come and go under I/O, and creation without memory.

A stock kernel gets a short run; `make test-debug-kernel` sets SAMPLEBLK_STRESS=full and boots one with KASAN, lockdep,
kmemleak and fault injection, where a splat fails the case and a leak is asked for at the end.
"""

import contextlib
import errno
import fcntl
import os
import random
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from blockio import aligned

import sampleblk_lab as lab

FULL = os.environ.get("SAMPLEBLK_STRESS") == "full"
IOCTLS = 100_000 if FULL else 2_000
CYCLES = 1_000 if FULL else 20
FAILSLAB = Path("/sys/kernel/debug/failslab")
KMEMLEAK = Path("/sys/kernel/debug/kmemleak")


def progress(done: int, of: int, begin: float) -> None:
    """On a debug kernel under TCG these cases take minutes: a sign of life at each tenth."""
    if done % max(1, of // 10) == 0:
        print(f"{done} of {of} after {time.monotonic() - begin:.0f} s", flush=True)


@pytest.fixture(scope="module", autouse=True)
def short_grace_periods() -> Iterator[None]:
    """Nearly all the time of a call that changes something is a wait for RCU: what runs is the same, sooner."""
    switch = Path("/sys/kernel/rcu_expedited")
    before = switch.read_text() if switch.exists() else None
    if before is not None:
        switch.write_text("1")
    yield
    if before is not None:
        switch.write_text(before)


# (direction, number, size) as in linux/sampleblk.h
CALLS = [
    (3, 1, 136), (1, 2, 24), (2, 3, 56), (3, 4, 216), (3, 5, 200), (3, 6, 552), (1, 7, 24), (3, 8, 64), (1, 9, 80),
    (1, 10, 80), (1, 11, 56), (3, 12, 56), (3, 13, 104), (3, 14, 64), (3, 15, 96), (3, 16, 144), (3, 17, 40),
    (3, 18, 320),
]  # fmt: skip


def random_argument(chance: random.Random, number: int, size: int) -> bytearray:
    """Mostly zeroes with a few words that could mean something, so that not every call ends at the first check."""
    argument = bytearray(size)
    argument[:4] = chance.choice([0, 1, 2, 3, 3, 3, 4, 257, 2**32 - 1]).to_bytes(4, "little")
    words = [0, 1, 2, 3, 7, 8, 64, 512, 4096, 65536, 1 << 20, 1 << 40, 2**32 - 1, 2**63, 2**64 - 1]
    for _ in range(chance.randrange(5)):
        at = chance.randrange(0, size - 8, 4)
        width = chance.choice([4, 8])
        word = chance.choice(words) & (1 << 8 * width) - 1
        argument[at : at + width] = word.to_bytes(width, "little")
    if number == 1:
        # Not a device of a petabyte in eager memory: that is a test of patience.
        argument[8:16] = chance.choice([1 << 20, 4096, 513, 0]).to_bytes(8, "little")
    return argument


def clean_up(fd: int) -> None:
    """Takes every device away."""
    listed = bytearray(56)
    fcntl.ioctl(fd, 2 << 30 | 56 << 16 | 0xBD << 8 | 3, listed, True)
    bits = int.from_bytes(listed[8:40], "little")
    for index in range(1, 257):
        if bits >> (index - 1) & 1:
            argument = bytearray(index.to_bytes(4, "little") + (1).to_bytes(4, "little") + bytes(16))
            with contextlib.suppress(OSError):
                fcntl.ioctl(fd, 1 << 30 | 24 << 16 | 0xBD << 8 | 2, argument, True)


def test_random_calls_break_nothing() -> None:
    chance = random.Random(1)
    seen: set[int] = set()
    with lab.Device("1M", index=200):
        fd = os.open("/dev/sampleblk-control", os.O_RDWR)
        begin = time.monotonic()
        for n in range(IOCTLS):
            progress(n, IOCTLS, begin)
            direction, number, size = chance.choice(CALLS)
            if chance.random() < 0.05:
                number = chance.randrange(256)
            if chance.random() < 0.05:
                size = chance.randrange(16, 2000)
            try:
                fcntl.ioctl(
                    fd, direction << 30 | size << 16 | 0xBD << 8 | number, random_argument(chance, number, size), True
                )
                seen.add(0)
            except OSError as error:
                seen.add(error.errno or -1)
            if n % 500 == 499:
                clean_up(fd)
                if not Path("/dev/sampleblk200").exists():
                    fcntl.ioctl(
                        fd,
                        3 << 30 | 136 << 16 | 0xBD << 8 | 1,
                        bytearray(
                            (200).to_bytes(4, "little") + bytes(4) + (1 << 20).to_bytes(8, "little") + bytes(120)
                        ),
                        True,
                    )
        os.close(fd)
    assert {0, errno.EINVAL, errno.ENOTTY, errno.ENODEV} <= seen
    assert seen <= {
        0,
        errno.EINVAL,
        errno.ENOTTY,
        errno.ENODEV,
        errno.EBUSY,
        errno.EEXIST,
        errno.ENOENT,
        errno.E2BIG,
        errno.EFAULT,
        errno.EALREADY,
        errno.EOVERFLOW,
        errno.ENOSPC,
        errno.ENOMEM,
        errno.EOPNOTSUPP,
    }


def test_devices_come_and_go_under_io() -> None:
    chance = random.Random(2)
    with lab.Device("1M", index=100):
        stop = threading.Event()

        def work(index: int) -> None:
            path = f"/dev/sampleblk{index}"
            data = aligned(b"s" * 16384)
            while not stop.is_set():
                try:
                    fd = os.open(path, os.O_RDWR | os.O_DIRECT)
                except OSError:
                    # Not there just now. Trying at once would keep Python's lock from whoever makes it.
                    stop.wait(0.002)
                    continue
                with contextlib.suppress(OSError):
                    for n in range(20):
                        os.pwrite(fd, data, n * 16384)
                        os.preadv(fd, [data], n * 16384)
                os.close(fd)

        threads = [threading.Thread(target=work, args=(index,)) for index in (11, 12)]
        for thread in threads:
            thread.start()
        try:
            begin = time.monotonic()
            for n in range(CYCLES):
                progress(n, CYCLES, begin)
                dev = lab.Device(
                    "1M", queues=chance.randrange(1, 3), mode=chance.choice(["mq", "bio"]), index=11 + n % 2,
                    cache=chance.random() < 0.5, completion=chance.choice(["inline", "softirq", "timer"]),
                )  # fmt: skip
                if chance.random() < 0.3:
                    dev.journal_start("256K")
                if chance.random() < 0.3:
                    dev.snapshot_take()
                if chance.random() < 0.3:
                    dev.set_timing("uniform", 0, 100_000)
                dev.close(force=True)
        finally:
            stop.set()
            for thread in threads:
                thread.join()


@pytest.mark.skipif(not FAILSLAB.exists(), reason="this kernel has no failslab")
@pytest.mark.parametrize("mode", [0, 1], ids=["mq", "bio"])
def test_creation_survives_every_allocation_that_fails(mode: int) -> None:
    (FAILSLAB / "ignore-gfp-wait").write_text("N")
    (FAILSLAB / "verbose").write_text("0")
    (FAILSLAB / "probability").write_text("0")
    made = failed = 0
    errors: set[int] = set()
    with lab.Device("1M", index=200):
        fd = os.open("/dev/sampleblk-control", os.O_RDWR)
        # Opened once: what a creation did not use up must not hit the opening of this.
        fail_nth = os.open("/proc/thread-self/fail-nth", os.O_RDWR)
        injected = True
        nth = 0
        while injected:
            nth += 1
            config = bytearray(136)
            config[:4] = (50).to_bytes(4, "little")
            config[4:8] = (0x1C).to_bytes(4, "little")
            config[8:16] = (1 << 20).to_bytes(8, "little")
            config[52:56] = mode.to_bytes(4, "little")
            os.pwrite(fail_nth, str(nth).encode(), 0)
            try:
                fcntl.ioctl(fd, 3 << 30 | 136 << 16 | 0xBD << 8 | 1, config, True)
                ok = True
            except OSError as error:
                errors.add(error.errno or -1)
                ok = False
            injected = os.pread(fail_nth, 16, 0).strip() == b"0"
            os.pwrite(fail_nth, b"0", 0)
            if ok:
                made += 1
                argument = bytearray((50).to_bytes(4, "little") + bytes(20))
                fcntl.ioctl(fd, 1 << 30 | 24 << 16 | 0xBD << 8 | 2, argument, True)
            else:
                failed += 1
            assert not Path("/dev/sampleblk50").exists()
            if nth % 20 == 0:
                print(f"{nth} allocations: {failed} failed creations, {made} that went on without", flush=True)
        os.close(fail_nth)
        os.close(fd)
    assert errors <= {errno.ENOMEM, errno.ENOSPC, errno.EINVAL}
    assert failed > 10
    assert made > 0


@pytest.mark.skipif(not KMEMLEAK.exists(), reason="this kernel has no kmemleak")
def test_nothing_leaked() -> None:
    """Runs last: what the cases above left behind."""
    subprocess.run(["rmmod", "sampleblk"], check=False, capture_output=True)
    for _ in range(2):
        KMEMLEAK.write_text("scan")
    leaks = KMEMLEAK.read_text()
    assert "sampleblk" not in leaks
    assert "sblk_" not in leaks
