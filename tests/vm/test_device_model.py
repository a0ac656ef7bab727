# SPDX-License-Identifier: MIT
"""The device against a model of it, in steps that hypothesis invents and shortens when they disagree.

The how-to ``docs/how-to/model-a-device.md`` shows the same for a file system.
"""

from __future__ import annotations

import dataclasses
import fcntl
import os
import random
import struct

import pytest
from blockio import Background, flush, read, until, write

import sampleblk_lab as lab

pytest.importorskip("hypothesis")

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

pytestmark = pytest.mark.each_kernel

PAGE = 4096
PAGES = 64

# linux/fs.h: _IO(0x12, 119)
_BLKDISCARD = 0x1277


def discard(path: str, offset: int, length: int) -> None:
    """One discard, without a process of its own: hypothesis makes many."""
    fd = os.open(path, os.O_WRONLY)
    try:
        fcntl.ioctl(fd, _BLKDISCARD, struct.pack("QQ", offset, length))
    finally:
        os.close(fd)


pages = st.integers(0, PAGES - 1)
lengths = st.integers(1, 8)
fills = st.integers(1, 255)


class DeviceModel(RuleBasedStateMachine):
    """A device with a volatile cache, beside two arrays: what reads return, and what a power cut leaves."""

    snapshots = Bundle("snapshots")

    def __init__(self) -> None:
        super().__init__()
        self.device = lab.Device(PAGES * PAGE, cache=True)
        self.seen = bytearray(PAGES * PAGE)
        self.durable = bytearray(PAGES * PAGE)
        self.looked_at = 0

    def teardown(self) -> None:
        self.device.close()

    @rule(page=pages, length=lengths, fill=fills, dsync=st.booleans())
    def write(self, page: int, length: int, fill: int, dsync: bool) -> None:
        """With O_DSYNC the kernel flushes the whole cache behind the write (block/fops.c, generic_write_sync())."""
        begin, end = page * PAGE, min(page + length, PAGES) * PAGE
        data = bytes([fill]) * (end - begin)
        write(self.device.path, data, begin, dsync=dsync)
        self.seen[begin:end] = data
        if dsync:
            self.durable[:] = self.seen

    @rule(page=pages, length=lengths)
    def discard(self, page: int, length: int) -> None:
        """Discarded is zero at once and for good, once it is flushed."""
        begin, end = page * PAGE, min(page + length, PAGES) * PAGE
        discard(self.device.path, begin, end - begin)
        self.seen[begin:end] = bytes(end - begin)
        self.flush()

    @rule()
    def flush(self) -> None:
        flush(self.device.path)
        self.durable[:] = self.seen

    @rule()
    def cut_the_power(self) -> None:
        self.device.power_cut("all")
        self.device.power_on()
        self.seen[:] = self.durable

    @rule(target=snapshots)
    def take_a_snapshot(self) -> tuple[int, bytes]:
        self.flush()
        return self.device.snapshot_take(), bytes(self.seen)

    @rule(snapshot=snapshots)
    def restore(self, snapshot: tuple[int, bytes]) -> None:
        number, content = snapshot
        self.device.snapshot_restore(number)
        self.seen[:] = content
        self.durable[:] = content

    @invariant()
    def reads_return_what_was_written(self) -> None:
        assert read(self.device.path, PAGES * PAGE) == bytes(self.seen)


@dataclasses.dataclass
class Change:
    """A write or discard that a power cut could lose, or that lies over one."""

    id: int
    begin: int
    data: bytes
    on_its_way: Background | None
    durable: bool = False

    def survives(self, image: bytearray, length: int) -> None:
        image[self.begin : self.begin + length] = self.data[:length]


class CrashModel(RuleBasedStateMachine):
    """Writes that are on their way, completed, flushed and torn: what is volatile, and what a power cut leaves of it.

    A write that touches the last quarter of the device is held: executed, but answered when the rules are set again.
    """

    mode = "mq"
    fua = False
    held_from = PAGES * 3 // 4 * PAGE

    def __init__(self) -> None:
        super().__init__()
        self.device = lab.Device(PAGES * PAGE, mode=self.mode, queues=2, cache=True, fua=self.fua, cache_size="64M")
        self.base = bytearray(PAGES * PAGE)  # what lies below the changes
        self.changes: list[Change] = []
        self.next_id = 1
        self.hold()

    def teardown(self) -> None:
        # Who has it open still is told so by close().
        self.answer()
        self.device.close()

    def hold(self) -> None:
        self.device.set_faults([lab.Fault(action="hold", ops="write", first_sector=self.held_from // 512)])

    def seen(self) -> bytearray:
        image = bytearray(self.base)
        for change in self.changes:
            change.survives(image, len(change.data))
        return image

    def forget_durable(self) -> None:
        while self.changes and self.changes[0].durable:
            self.changes[0].survives(self.base, len(self.changes[0].data))
            del self.changes[0]

    def add(self, begin: int, data: bytes, on_its_way: Background | None) -> Change:
        change = Change(self.next_id, begin, data, on_its_way)
        self.next_id += 1
        self.changes.append(change)
        return change

    @rule(sector=st.integers(0, PAGES * 8 - 1), length=st.integers(1, 40), fill=fills)
    def write(self, sector: int, length: int, fill: int) -> None:
        begin, end = sector * 512, min((sector + length) * 512, PAGES * PAGE)
        data = bytes([fill]) * (end - begin)
        if end > self.held_from:
            late = Background(write, self.device.path, data, begin)
            until(lambda: any(w.id == self.next_id for w in self.device.volatile_writes()))
            self.add(begin, data, late)
        else:
            write(self.device.path, data, begin)
            self.add(begin, data, None)

    @rule(page=st.integers(0, PAGES // 2), length=lengths)
    def discard(self, page: int, length: int) -> None:
        discard(self.device.path, page * PAGE, length * PAGE)
        self.add(page * PAGE, bytes(length * PAGE), None)

    @rule()
    def flush(self) -> None:
        flush(self.device.path)
        for change in self.changes:
            change.durable = change.durable or change.on_its_way is None
        self.forget_durable()

    @rule()
    def flush_that_fails(self) -> None:
        self.answer()
        self.device.set_faults([lab.Fault(action="error", ops="flush", count=1)])
        with pytest.raises(OSError, match="error"):
            flush(self.device.path)
        self.hold()

    @rule()
    def answer(self) -> None:
        """All that is on its way completes."""
        self.hold()
        for change in self.changes:
            if change.on_its_way:
                assert change.on_its_way.error() is None
                change.on_its_way = None

    @rule(chance=st.randoms(use_true_random=False))
    def cut_the_power(self, chance: random.Random) -> None:
        keeps = {
            change.id: chance.choice((0, len(change.data) // 512, chance.randint(0, len(change.data) // 512)))
            for change in self.changes
        }
        self.device.power_cut("explicit", survivors=keeps)
        for change in self.changes:
            change.survives(self.base, len(change.data) if change.durable else keeps[change.id] * 512)
            if change.on_its_way:
                assert change.on_its_way.error() is not None
        self.changes.clear()
        self.device.power_on()

    @invariant()
    def reads_return_what_was_written(self) -> None:
        assert read(self.device.path, PAGES * PAGE) == bytes(self.seen())

    @invariant()
    def what_is_volatile_is_listed(self) -> None:
        assert [
            (c.id, c.begin // 512, len(c.data) // 512, c.durable, c.on_its_way is not None) for c in self.changes
        ] == [(w.id, w.sector, w.sectors, w.durable, w.in_flight) for w in self.device.volatile_writes()]


def _settings(examples: int, steps: int, *, shorten: bool = True) -> settings:
    return settings(
        phases=tuple(phase for phase in Phase if shorten or phase is not Phase.shrink),
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        derandomize=True,
        database=None,
        print_blob=False,
    )


def test_the_device_does_what_the_model_does() -> None:
    run_state_machine_as_test(DeviceModel, settings=_settings(6, 15))


@pytest.mark.full
def test_the_device_does_what_the_model_does_for_longer() -> None:
    run_state_machine_as_test(DeviceModel, settings=_settings(60, 50))


class BioCrashModel(CrashModel):
    """The same of a device without requests."""

    mode = "bio"
    fua = True


models = pytest.mark.parametrize("model", [CrashModel, BioCrashModel])


@models
def test_a_crash_leaves_what_the_model_says(model: type[CrashModel]) -> None:
    run_state_machine_as_test(model, settings=_settings(5, 15))


@pytest.mark.full
@models
def test_a_crash_leaves_what_the_model_says_for_longer(model: type[CrashModel]) -> None:
    run_state_machine_as_test(model, settings=_settings(60, 50))


@pytest.mark.full
def test_a_device_that_loses_writes_is_found() -> None:
    """The model is worth something only if it notices."""

    class Lossy(DeviceModel):
        def __init__(self) -> None:
            super().__init__()
            self.device.set_faults([lab.Fault(action="lost_write", every=3)])

    with pytest.raises(AssertionError) as caught:
        run_state_machine_as_test(Lossy, settings=_settings(20, 15, shorten=False))
    assert "state.write(" in "\n".join(caught.value.__notes__)
