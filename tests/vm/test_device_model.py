# SPDX-License-Identifier: MIT
"""The device against a model of it, in steps that hypothesis invents and shortens when they disagree.

The how-to ``docs/how-to/model-a-device.md`` shows the same for a file system.
"""

from __future__ import annotations

import fcntl
import os
import struct

import pytest
from blockio import flush, read, write

import sampleblk_lab as lab

pytest.importorskip("hypothesis")

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

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
