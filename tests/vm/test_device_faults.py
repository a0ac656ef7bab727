# SPDX-License-Identifier: MIT
"""Bad sectors that a rewrite repairs, time windows, fixed bytes, held requests and flushes that promise nothing."""

from __future__ import annotations

import errno
import fcntl
import os
import random
import shutil
import struct
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from blockio import Background, aligned, flush, read, until, write

import sampleblk_lab as lab
from sampleblk_lab.device import names, tuning

both_modes = pytest.mark.parametrize("mode", ["mq", "bio"])

# linux/fs.h: _IO(0x12, 127)
_BLKZEROOUT = 0x127F


def errno_of(call: object, *arguments: object) -> int | None:
    """The errno that a call ends with."""
    return Background(call, *arguments).error(20)  # type: ignore[arg-type]


@both_modes
def test_a_bad_sector_fails_reads_until_it_is_rewritten(mode: str) -> None:
    with lab.Device("1M", mode=mode) as dev:
        write(dev.path, b"o" * 65536)
        dev.set_faults(
            [lab.Fault(action="bad_sector", ops=("read", "write", "write_zeroes"), first_sector=20, last_sector=29)]
        )
        assert read(dev.path, 10240) == b"o" * 10240
        assert errno_of(read, dev.path, 512, 20 * 512) == errno.ENODATA
        assert errno_of(read, dev.path, 65536, 0) == errno.ENODATA
        # What lies beside it is not repaired with it.
        write(dev.path, b"n" * 2048, 20 * 512)
        assert read(dev.path, 2048, 20 * 512) == b"n" * 2048
        assert errno_of(read, dev.path, 512, 24 * 512) == errno.ENODATA
        assert dev.faults()[0].repaired == 4
        fd = os.open(dev.path, os.O_WRONLY)
        fcntl.ioctl(fd, _BLKZEROOUT, struct.pack("QQ", 12288, 4096))
        os.close(fd)
        assert read(dev.path, 65536) == b"o" * 10240 + b"n" * 2048 + bytes(4096) + b"o" * 49152
        assert dev.faults()[0].repaired == 10


@both_modes
def test_what_lies_before_a_bad_sector_is_read_and_written(mode: str) -> None:
    with lab.Device("1M", mode=mode) as dev:
        write(dev.path, b"o" * 8192)
        dev.set_faults(
            [lab.Fault(action="bad_sector", ops=("read", "write"), first_sector=3, last_sector=3, bad_writes=True)]
        )
        fd = os.open(dev.path, os.O_RDWR | os.O_DIRECT)
        buffer = aligned(b"?" * 8192)
        with pytest.raises(OSError, match="No data"):
            os.preadv(fd, [buffer], 0)
        assert buffer[:] == b"o" * 1536 + b"?" * 6656
        with pytest.raises(OSError, match="No data"):
            os.pwrite(fd, aligned(b"n" * 8192), 0)
        os.close(fd)
        dev.set_faults([])
        assert read(dev.path, 8192) == b"n" * 1536 + b"o" * 6656


@both_modes
def test_rules_that_are_added_leave_those_that_are_there_as_they_are(mode: str) -> None:
    with lab.Device("1M", mode=mode) as dev:
        dev.add_faults([lab.Fault(action="bad_sector", ops=("read", "write"), first_sector=8, last_sector=23)])
        write(dev.path, b"n" * 4096, 4096)
        assert errno_of(read, dev.path, 4096, 8192) == errno.ENODATA
        dev.add_faults([lab.Fault(action="hold", first_sector=100, last_sector=107)])
        held = Background(write, dev.path, b"h" * 4096, 51200)
        until(lambda: dev.faults()[1].hits == 1)
        dev.add_faults([lab.Fault(action="error", ops="write", count=1)])
        with pytest.raises(OSError, match="Invalid argument: a device has at most 256 rules"):
            dev.add_faults([lab.Fault(action="error")] * 254)
        assert [(rule.action, rule.hits, rule.repaired) for rule in dev.faults()] == [
            ("bad_sector", 1, 8),
            ("hold", 1, 0),
            ("error", 0, 0),
        ]
        assert read(dev.path, 4096, 4096) == b"n" * 4096, "repaired as before"
        assert errno_of(read, dev.path, 4096, 8192) == errno.ENODATA
        assert errno_of(write, dev.path, b"x" * 4096) == errno.EIO
        assert held.running
        dev.set_faults([])
        assert held.error(20) is None


@both_modes
def test_a_bad_sector_may_fail_once(mode: str) -> None:
    with lab.Device("1M", mode=mode) as dev:
        dev.set_faults([lab.Fault(action="bad_sector", ops="read", first_sector=0, last_sector=15, once=True)])
        assert errno_of(read, dev.path, 4096) == errno.ENODATA
        assert read(dev.path, 4096) == bytes(4096)
        assert errno_of(read, dev.path, 4096, 4096) == errno.ENODATA
        assert read(dev.path, 8192) == bytes(8192)


@both_modes
def test_a_rule_sleeps_and_acts_alternately(mode: str) -> None:
    with lab.Device("1M", mode=mode) as dev:
        up, down = 400_000_000, 600_000_000
        dev.set_faults([lab.Fault(action="error", ops="read", up_ns=up, down_ns=down)])
        (rule,) = dev.faults()
        assert (rule.up_ns, rule.down_ns) == (up, down)
        begin = time.monotonic_ns()
        seen = set()
        while time.monotonic_ns() - begin < 2_500_000_000:
            before = time.monotonic_ns() - begin
            failed = errno_of(read, dev.path, 512) is not None
            after = time.monotonic_ns() - begin
            seen.add(failed)
            # The table was set a little before `begin`: only what lies well within a phase is sure.
            if before // (up + down) == after // (up + down) and before % (up + down) > 0:
                if after % (up + down) < up - 200_000_000:
                    assert not failed
                if up < before % (up + down) and after % (up + down) < up + down - 200_000_000:
                    assert failed
            time.sleep(0.02)
        assert seen == {True, False}
        with pytest.raises(lab.InputError, match="up_ns=1 without down_ns"):
            dev.set_faults([lab.Fault(action="error", up_ns=1)])


@both_modes
def test_a_byte_is_set_of_what_is_read_and_of_what_is_written(mode: str) -> None:
    for cache in (False, True):
        with lab.Device("1M", mode=mode, cache=cache) as dev:
            write(dev.path, b"o" * 8192)
            dev.set_faults([lab.Fault(action="set_byte", ops="read", byte=5000, value=0x42, count=1)])
            assert read(dev.path, 4096) == b"o" * 4096
            assert read(dev.path, 8192) == b"o" * 5000 + b"B" + b"o" * 3191
            assert read(dev.path, 8192) == b"o" * 8192
            dev.set_faults([lab.Fault(action="set_byte", ops="write", byte=4095, value=0)])
            write(dev.path, b"n" * 8192)
            dev.set_faults([])
            assert read(dev.path, 8192) == b"n" * 4095 + b"\0" + b"n" * 4096


@both_modes
def test_a_held_write_is_there_and_not_answered(mode: str) -> None:
    with lab.Device("1M", mode=mode, cache=True) as dev:
        dev.set_faults([lab.Fault(action="hold", ops="write", count=1)])
        held = Background(write, dev.path, b"h" * 4096)
        until(dev.volatile_writes)
        time.sleep(0.1)
        assert held.running
        assert read(dev.path, 4096) == b"h" * 4096
        flush(dev.path)
        assert [w.in_flight for w in dev.volatile_writes()] == [True]
        dev.set_faults([])
        assert held.error(5) is None
        flush(dev.path)
        assert dev.volatile_writes() == []


@both_modes
def test_a_call_that_needs_an_idle_device_has_held_writes_answered(mode: str) -> None:
    with lab.Device("1M", mode=mode) as dev:
        dev.set_faults([lab.Fault(action="hold", ops="write")])
        held = Background(write, dev.path, b"h" * 4096)
        until(lambda: dev.counters().faults)
        dev.snapshot_take()
        assert held.error(5) is None


@both_modes
def test_a_flush_may_promise_nothing(mode: str) -> None:
    with lab.Device("1M", mode=mode, cache=True, fua=True) as dev:
        dev.journal_start("1M")
        write(dev.path, b"a" * 4096)
        dev.set_faults([lab.Fault(action="not_durable", ops=("flush", "write"))])
        flush(dev.path)
        write(dev.path, b"b" * 4096, 4096, dsync=True)
        assert [w.durable for w in dev.volatile_writes()] == [False, False]
        # Nor does who applies the rules to the journal think so.
        recorded = [(row["type"], row["fua"], row["failed"]) for row in dev.journal().rows()]
        assert recorded == [("write", 0, 0), ("flush", 0, 1), ("write", 0, 0), ("flush", 0, 1)]
        dev.power_cut("all")
        dev.set_faults([])
        dev.power_on()
        assert read(dev.path, 8192) == bytes(8192)


def test_what_makes_no_sense_is_refused() -> None:
    with lab.Device("1M") as dev:
        for fault in (
            lab.Fault(action="bad_sector", ops="write"),
            lab.Fault(action="bad_sector", ops="read", first_sector=2048),
            lab.Fault(action="set_byte", ops="read", value=256),
            lab.Fault(action="set_byte", ops="flush"),
            lab.Fault(action="not_durable", ops="read"),
        ):
            with pytest.raises((lab.InputError, OSError), match=r"of a fault|value=256|Invalid.*first bad sector"):
                dev.set_faults([fault])


def _raw(fault: lab.Fault, monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    with monkeypatch.context() as unchecked:
        unchecked.setattr(lab.Fault, "_check", lambda _fault: None)
        return fault.raw()


def test_what_is_refused_in_words_is_what_the_driver_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither more nor less, by chance: a rule that no request can follow must not end as a bare EINVAL."""
    chance = random.Random(4)
    ends = (0, 1, 7, 8, 64, 65, 255, 256, 4095, 4096, 2**16 - 1, 2**16, 60 * 10**9, 60 * 10**9 + 1, 2**32, 2**64 - 1)
    taken = refused = 0
    with lab.Device("1M", integrity=True) as dev:
        for _ in range(1500):
            action = chance.choice(names.FAULTS)
            words = {name: chance.choice(ends) for name in tuning._ARGUMENTS.get(action, ()) if chance.random() < 0.5}
            if "tag" in words:
                words["tag"] = chance.choice(names.TAGS)
            words |= {name: bool(words[name]) for name in ("once", "bad_writes") if name in words}
            if "sector" in words:
                words["sector"] %= 2048  # what the device has is the driver's to say
            if chance.random() < 0.2:
                words |= {"up_ns": chance.choice(ends), "down_ns": chance.choice((0, 1))}
            fault = lab.Fault(
                action=action,
                ops=tuple(op for op in names.OPS if chance.random() < 0.5),
                first_sector=chance.choice((0, 0, 9)),
                last_sector=chance.choice((2**64 - 1, 100, 8)),
                **words,
            )
            try:
                dev._control.set_faults(dev.index, [_raw(fault, monkeypatch)], 0, False)
            except OSError:
                refused += 1
                with pytest.raises(lab.InputError):
                    fault.raw()
            else:
                taken += 1
                fault.raw()
        dev.set_faults([])
    assert min(taken, refused) > 200


def test_a_recording_on_a_disk_that_fails_says_so(tmp_path: Path) -> None:
    """It is read through a mapping, where an error is a signal, as is that of a file that was cut."""

    def said(read: Callable[[], object]) -> str:
        try:
            return repr(read())
        except OSError as error:
            return str(error)

    with lab.Device("64M") as dev, dev.mkfs("ext4").mount() as mount:
        shutil.copyfile(Path(__file__).parents[1] / "data/trace/6.1-io.dat", mount / "trace.dat")
        (mount / "events").write_text("no zeros\n" * 1000)
        os.sync()
        Path("/proc/sys/vm/drop_caches").write_text("1")
        dev.set_faults([lab.Fault(action="error", ops="read")])
        counts = said(lambda: lab.open_run(mount / "trace.dat").counts())
        imported = said(lambda: lab.import_run(mount / "events", directory=tmp_path))
        dev.set_faults([])
    assert f"read '{mount}/trace.dat': Input/output error" in counts
    assert f"read '{mount}/events': Input/output error" in imported
