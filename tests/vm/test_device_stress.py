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
from collections.abc import Callable, Iterator, Sequence
from ctypes import Array, addressof, c_char, create_string_buffer
from pathlib import Path
from typing import Any, TypeVar

import pytest
from abi import CALLS, Call, Field, ioc
from blockio import aligned, flush, read, write

import sampleblk_lab as lab
from sampleblk_lab.device.names import OPS

pytestmark = pytest.mark.two_cpus

T = TypeVar("T")
FULL = os.environ.get("SAMPLEBLK_STRESS") == "full"
IOCTLS = 100_000 if FULL else 5_000
CYCLES = 1_000 if FULL else 20
FAILSLAB = Path("/sys/kernel/debug/failslab")
KMEMLEAK = Path("/sys/kernel/debug/kmemleak")
ADD, REMOVE, LIST, JOURNAL, SNAPSHOT = (
    next(call for call in CALLS if call.name == name) for name in ("ADD", "REMOVE", "LIST", "JOURNAL", "SNAPSHOT")
)


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


# What is likely to get past a field's check; any word, for a field that is not here.
LIKELY: dict[str, Sequence[int]] = {
    "flags": [*[0] * 8, *[1] * 4, *(1 << bit for bit in range(1, 11))],
    # Not a device of a petabyte in eager memory: that would take too long.
    "capacity_bytes": [1 << 20, 3 << 20, 4096, 513, 0],
    "mode": range(4),
    "action": [0, 0, 1, 1, 2, 3, 4, 5],
    "completion": range(4),
    "model": range(9),
    "op": range(6),
    "ops": [1 << n for n in range(5)] + [0, 3, 31, 32],
    "set": range(32),
    "queue": [0, 1, 2**32 - 1],
    "sequence": [0, 1, 2, 2**64 - 1],
    "id": [0, 0, 0, 0, 1, 2, 3],
    "clone": range(5),
    "length": [0, 1, 5, 128, 129],
    "bytes": [0, 1, 1 << 16, 1 << 20, 1 << 62],
    "nr_rules": [0, 1, 2, 256, 257],
    "nr_bins": [0, 1, 2, 4096, 4097],
    "nr_survivors": [0, 1, 2, 100],
    "nr": [0, 1, 100],
    "survive_percent": [0, 50, 100, 101],
    "snapshot": [*[1] * 8, 0, 2],
    "target": [0, 0, 1, 2, 3, 200],
    "nr_parts": [*[0] * 6, 1, 2, 100, 1 << 20],
}
# Without which nothing comes of a call.
NEEDED = {"snapshot"}
POINTERS = {"rules", "bins", "survivors", "list", "parts"}
POINTED_TO = 64 << 10


def random_argument(chance: random.Random, call: Call, pointed_to: Array[c_char]) -> bytearray:
    """Mostly zeroes and what a field is likely to take, so that not every call ends at the first check."""
    argument = bytearray(call.size)
    words = [0, 1, 2, 3, 7, 8, 64, 512, 4096, 65536, 1 << 20, 1 << 40, 2**32 - 1, 2**63, 2**64 - 1]

    def put(field: Field, word: int) -> None:
        # Of an array the first bytes.
        size = min(field.size, 8)
        argument[field.offset : field.offset + size] = (word & (1 << 8 * size) - 1).to_bytes(size, "little")

    for field in call.fields:
        if field.name in LIKELY and chance.random() < (0.9 if field.name in NEEDED else 0.5):
            put(field, chance.choice(LIKELY[field.name]))
        elif field.name in POINTERS and chance.random() < 0.8:
            for _ in range(20):
                # Structures of words, those before the others oftener.
                at = 4 * min(chance.randrange(64), chance.randrange(64))
                pointed_to[at : at + 4] = chance.choice([0, 0, *words, *range(12)]).to_bytes(8, "little")[:4]
            put(field, addressof(pointed_to))
    for _ in range(chance.choice([0, 0, 0, 1, 2, 4])):
        field = chance.choice(call.fields)
        if field.name != "capacity_bytes":
            put(field, chance.choice([*words, 1 << chance.randrange(64)]))
    argument[:4] = chance.choice([0, 1, 2, 3, 3, 3, 200, 200, 200, 257, 2**32 - 1]).to_bytes(4, "little")
    return argument


def add(fd: int, index: int) -> None:
    """Makes a device of 1 MiB."""
    config = index.to_bytes(4, "little") + bytes(4) + (1 << 20).to_bytes(8, "little")
    fcntl.ioctl(fd, ADD.request, bytearray(config.ljust(ADD.size, b"\0")), True)


def remove(fd: int, index: int) -> None:
    """Takes a device away, whoever has it open."""
    forced = index.to_bytes(4, "little") + (1).to_bytes(4, "little")
    fcntl.ioctl(fd, REMOVE.request, bytearray(forced.ljust(REMOVE.size, b"\0")), True)


def clean_up(fd: int) -> None:
    """Takes every device away."""
    listed = bytearray(LIST.size)
    fcntl.ioctl(fd, LIST.request, listed, True)
    bits = int.from_bytes(listed[8:40], "little")
    for index in range(1, 257):
        if bits >> (index - 1) & 1:
            with contextlib.suppress(OSError):
                remove(fd, index)


def test_random_calls_break_nothing() -> None:
    chance = random.Random(1)
    seen: set[int] = set()
    succeeded: set[str] = set()
    pointed_to = create_string_buffer(POINTED_TO)
    with lab.Device("1M", index=200):
        fd = os.open("/dev/sampleblk-control", os.O_RDWR)
        begin = time.monotonic()
        for n in range(IOCTLS):
            progress(n, IOCTLS, begin)
            call = chance.choice(CALLS)
            number, size = call.number, call.size
            argument = random_argument(chance, call, pointed_to)
            if chance.random() < 0.05:
                number = chance.randrange(256)
            if chance.random() < 0.05:
                size = chance.randrange(16, 2000)
                argument = argument[:size].ljust(size, b"\0")
            try:
                fcntl.ioctl(fd, ioc(call.direction, number, size), argument, True)
                if number == call.number:
                    succeeded.add(call.name)
                seen.add(0)
            except OSError as error:
                seen.add(error.errno or -1)
            if n % 500 == 499:
                clean_up(fd)
            if n % 10 == 9 and not Path("/dev/sampleblk200").exists():
                add(fd, 200)
            if n % 10 == 9 and chance.random() < 0.3:
                # By chance there is a journal too seldom for the calls that want one, and a snapshot with it.
                start = bytes((200).to_bytes(4, "little") + bytes(4) + (1 << 18).to_bytes(8, "little"))
                take = bytes((200).to_bytes(4, "little"))
                for call, given in ((JOURNAL, start), (SNAPSHOT, take)):
                    with contextlib.suppress(OSError):
                        fcntl.ioctl(fd, call.request, bytearray(given.ljust(call.size, b"\0")), True)
        clean_up(fd)  # the one of that number is not the one above any more, which so leaves it alone
        os.close(fd)
    assert {0, errno.EINVAL, errno.ENOTTY, errno.ENODEV} <= seen
    # No call that only ever ends at its first check.
    assert succeeded == {call.name for call in CALLS}
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


class FailingAllocations:
    """Does something once with each of its allocations failing, or each nth, and undoes it."""

    def __enter__(self) -> "FailingAllocations":
        (FAILSLAB / "ignore-gfp-wait").write_text("N")
        (FAILSLAB / "verbose").write_text("0")
        (FAILSLAB / "probability").write_text("0")
        # Opened once: what was not used up must not hit the opening of this.
        self.fail_nth = os.open("/proc/thread-self/fail-nth", os.O_RDWR)
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.fail_nth)

    def __call__(
        self, do: Callable[[], T], undo: Callable[[T], object], *, stride: int = 1, again: bool = True
    ) -> tuple[int, int, set[int]]:
        """How often it failed, how often it went on without, and the errors.

        What failed is done `again` at once, without failures; else the next time shows that nothing was left.
        """
        failed = made = 0
        errors: set[int] = set()
        injected = True
        while injected:
            os.pwrite(self.fail_nth, str(stride * (failed + made) + 1).encode(), 0)
            done: list[T] = []
            try:
                done.append(do())
                made += 1
            except OSError as error:
                errors.add(error.errno or -1)
                failed += 1
            injected = os.pread(self.fail_nth, 16, 0).strip() == b"0"
            os.pwrite(self.fail_nth, b"0", 0)
            if done or again:
                undo(done[0] if done else do())
            if (failed + made) % 20 == 0:
                print(f"{failed + made} allocations: {failed} failures, {made} that went on without", flush=True)
        return failed, made, errors


@pytest.mark.skipif(not FAILSLAB.exists(), reason="this kernel has no failslab")
@pytest.mark.parametrize(
    ("fields", "stride"),
    # Most allocations are the kernel's own and the same for all.
    [({}, 1), ({"mode": 1}, 3), ({"zone_bytes": 65536}, 7), ({"flags": 0x200}, 7), ({"flags": 0x80}, 7)],
    ids=["mq", "bio", "zoned", "integrity", "eager"],
)
def test_creation_survives_every_allocation_that_fails(fields: dict[str, int], stride: int) -> None:
    # With a cache, discards and write-zeroes where they go with it.
    config = {"index": 50, "flags": 0x1C, "capacity_bytes": 1 << 20, **fields}
    if "zone_bytes" in fields:
        config["flags"] = 0
    argument = bytearray(ADD.size)
    for name, at, size in ADD.fields:
        argument[at : at + size] = config.get(name, 0).to_bytes(size, "little")
    with lab.Device("1M", index=200), FailingAllocations() as each:
        fd = os.open("/dev/sampleblk-control", os.O_RDWR)

        def do() -> None:
            try:
                fcntl.ioctl(fd, ADD.request, bytearray(argument), True)
            except OSError:
                assert not Path("/dev/sampleblk50").exists()
                raise

        def undo(_: object) -> None:
            assert Path("/dev/sampleblk50").exists()
            remove(fd, 50)
            assert not Path("/dev/sampleblk50").exists()

        failed, made, errors = each(do, undo, stride=stride, again=False)
        os.close(fd)
    assert errors <= {errno.ENOMEM, errno.ENOSPC, errno.EINVAL}
    assert failed > 10
    assert made > 0


@pytest.mark.skipif(not FAILSLAB.exists(), reason="this kernel has no failslab")
@pytest.mark.parametrize("mode", ["mq", "bio"])
def test_every_change_survives_every_allocation_that_fails(mode: str) -> None:
    """What fails changes nothing, can be done again, and leaves the data as they were."""
    data = random.Random(4).randbytes(1 << 20)
    rules = [lab.Fault(action="delay", delay_ns=1, first_sector=n, last_sector=n) for n in range(100)]
    bins = [(n * 1000, 1) for n in range(1, 200)]
    with lab.Device("1M", mode=mode, cache=True, discard=True) as dev, FailingAllocations() as each:
        write(dev.path, data)
        flush(dev.path)
        tuned: dict[str, Any] = {"queues": 2} if mode == "mq" and (os.cpu_count() or 1) > 1 else {"completion": "timer"}
        plain: dict[str, Any] = {"queues": 1} if "queues" in tuned else {"completion": "inline"}
        snapshot = dev.snapshot_take()

        def cut(_: object = None) -> None:
            write(dev.path, b"v" * 8192, 4096)
            dev.power_cut("all")

        changes: dict[str, tuple[Callable[[], Any], Callable[[Any], object]]] = {
            "set_timing": (
                lambda: dev.set_timing("empirical", ops=OPS, bins=bins),
                lambda _: dev.set_timing("none", ops=OPS),
            ),
            "set_faults": (lambda: dev.set_faults(rules), lambda _: dev.set_faults([])),
            "set_limits": (lambda: dev.set_limits(iops=10**6), lambda _: dev.set_limits()),
            "tune": (lambda: dev.tune(**tuned), lambda _: dev.tune(**plain)),
            "histograms": (lambda: dev.tune(histograms=True), lambda _: dev.tune(histograms=False)),
            "sector_atomic": (lambda: dev.tune(sector_atomic=True), lambda _: dev.tune(sector_atomic=False)),
            "snapshot_take": (dev.snapshot_take, dev.snapshot_delete),
            "snapshot_restore": (lambda: dev.snapshot_restore(snapshot), lambda _: None),
            "snapshot_clone": (
                lambda: dev._control.snapshot_clone(dev.index, snapshot, 60),
                lambda made: dev._control.remove(made, False),
            ),
            "journal_start": (lambda: dev.journal_start("256K"), lambda _: dev.journal_stop()),
        }
        told = {}
        for name, (do, undo) in changes.items():
            begin = time.monotonic()
            # What makes a queue or a disk has hundreds, nearly all the kernel's own.
            told[name] = each(do, undo, stride={"tune": 5, "snapshot_clone": 23}.get(name, 1))
            print(f"{name}: {time.monotonic() - begin:.0f} s", flush=True)
            assert read(dev.path, len(data)) == data, name
        dev.snapshot_delete(snapshot)
        told["resize"] = each(lambda: dev.resize("2M"), lambda _: dev.resize("1M"))
        assert read(dev.path, len(data)) == data
        write(dev.path, b"v" * 8192, 4096)
        told["volatile_writes"] = each(lambda: len(dev.volatile_writes()), lambda _: None)
        assert len(dev.volatile_writes()) == 1
        told["power_cut"] = each(lambda: dev.power_cut("all"), lambda _: dev.power_on())
        assert read(dev.path, len(data)) == data
        dev.journal_start("256K")
        for byte in range(1, 4):
            write(dev.path, bytes([byte]) * 8192, 4096)
        flush(dev.path)
        told["mark"] = each(lambda: dev.mark("here"), lambda _: None)
        told["seek"] = each(lambda: dev.seek(1), lambda _: dev.seek())
        first = dev.snapshot_take(0)
        with dev.snapshot_clone(first) as clone:
            told["state_give"] = each(lambda: dev.state_give(first, [1, 3, 2], clone), lambda _: None)
            assert read(clone.path, len(data)) == data[:4096] + bytes([2]) * 8192 + data[12288:]
        told["state_take"] = each(lambda: dev.state_take(first, [3, 1]), dev.snapshot_delete)
        dev.snapshot_delete(first)
        for sequence in range(4):
            dev.seek(sequence)
            there = bytes([sequence]) * 8192 if sequence else data[4096:12288]
            assert read(dev.path, len(data)) == data[:4096] + there + data[12288:]
    for name, (failed, made, errors) in told.items():
        print(f"{name}: {failed} failures, {made} that went on without, {sorted(errors)}", flush=True)
        # device_add_disk() does not look whether dev_set_name() had memory; device_add() finds no name then (6.1, 7.2).
        unnamed = {errno.EINVAL} if name == "snapshot_clone" else set()
        assert errors <= {errno.ENOMEM} | unnamed, name
    # What copies its argument or keeps something must have failed.
    assert {name for name, (failed, *_) in told.items() if failed} >= {
        "set_timing", "set_faults", "snapshot_take", "snapshot_clone", "journal_start", "state_give", "state_take",
    }  # fmt: skip


@pytest.mark.skipif(not KMEMLEAK.exists(), reason="this kernel has no kmemleak")
def test_nothing_leaked() -> None:
    """Runs last: what the cases above left behind."""
    subprocess.run(["rmmod", "sampleblk"], check=False, capture_output=True)
    for _ in range(2):
        KMEMLEAK.write_text("scan")
    leaks = KMEMLEAK.read_text()
    assert "sampleblk" not in leaks
    assert "sblk_" not in leaks
