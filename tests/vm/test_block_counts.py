# SPDX-License-Identifier: MIT
"""Block requests of a recording, held against what the kernel counts of the device (Documentation/block/stat.rst)."""

from __future__ import annotations

import os
from pathlib import Path

import blockio
import numpy as np
import pytest

import sampleblk_lab as lab

pytestmark = pytest.mark.each_kernel


def _stat(device: lab.Device) -> np.ndarray:
    """Operations, merges, sectors and ms of reads, of writes, and of discards, shape ``(3, 4)``."""
    fields = np.array(Path("/sys/block", device.name, "stat").read_text().split(), dtype=np.int64)
    return np.array([fields[0:4], fields[4:8], fields[11:15]])


@pytest.mark.parametrize(
    ("mode", "scheduler"), [("mq", "none"), ("mq", "mq-deadline"), ("bio", "none")], ids=["none", "deadline", "bio"]
)
def test_a_recording_has_what_the_kernel_counts(mode: str, scheduler: str) -> None:
    with lab.Device("16M", mode=mode) as device:
        if mode == "mq":
            Path("/sys/block", device.name, "queue/scheduler").write_text(scheduler)
        with lab.record(block=True) as rec:
            before = _stat(device)
            blockio.write(device.path, b"d" * 4096, 8 << 20)
            with Path(device.path).open("r+b") as file:
                for page in (*range(40), *range(64, 128, 3)):  # some of which merge as they are written back
                    file.seek(page * 4096)
                    file.write(b"x" * 4096)
                os.fsync(file.fileno())
            blockio.read(device.path, 65536, 1 << 20)
            blockio.discard(device.path, 4 << 20, 1 << 20)
            counted = _stat(device) - before
        table = rec.run.block().table()
        assert table.metadata["lost_events"] == "0"
        number = Path(device.path).stat().st_rdev
        own = (table["device"].values == f"{os.major(number)},{os.minor(number)}") & (table["completed"].codes > 0)
        begins = np.where(table["gotten"].codes > 0, table["gotten"].codes, table["queued"].codes)
        spans = (table["completed"].codes - begins) / 1e6
        for operation, (ios, merges, sectors, ms) in zip("RWD", counted, strict=True):
            chosen = own & (table["operation"].values == operation)
            ours = (chosen.sum(), table["merges"].codes[chosen].sum(), table["sectors"].codes[chosen].sum())
            assert ours == (ios, merges, sectors), operation
            # In ms that are cut off each, of bios in ticks of the timer.
            assert spans[chosen].sum() == pytest.approx(int(ms), rel=0.3, abs=10 + 5 * int(ios)), operation
        assert counted[:, 0].min() >= 1
        assert counted[1, 1] >= 10 or mode == "bio"
