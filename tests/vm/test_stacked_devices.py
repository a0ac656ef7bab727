# SPDX-License-Identifier: MIT
"""Block requests of a device that sends them on to another."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

import sampleblk_lab as lab

pytestmark = pytest.mark.each_kernel


@pytest.mark.skipif(
    tuple(map(int, os.uname().release.split(".")[:2])) < (5, 18),
    reason="dm splits the front of a bio off, whose end no event tells",
)
def test_a_bio_that_dm_sends_on_in_pieces_is_one_row() -> None:
    with lab.Device("16M") as device:
        # Of targets that end within each write.
        table = "".join(f"{at} 24 linear {device.path} {at}\n" for at in range(0, 24 * 16, 24))
        made = subprocess.run(["dmsetup", "create", "pieces"], input=table, text=True, check=False)
        if made.returncode:
            pytest.skip("no device-mapper")
        try:
            upper = Path("/dev/mapper/pieces")
            numbers = [path.stat().st_rdev for path in (upper, Path(device.path))]
            with lab.record(block=True) as rec:
                job = ["dd", "if=/dev/zero", f"of={upper}", "bs=16k", "count=12", "oflag=direct", "status=none"]
                subprocess.run(job, check=True)
        finally:
            subprocess.run(["dmsetup", "remove", "pieces"], check=True)
        names = [f"{os.major(number)},{os.minor(number)}" for number in numbers]
        rows = [[row for row in rec.run.block().table().rows() if row["device"] == name] for name in names]
        assert [(row["sector"], row["sectors"]) for row in rows[0]] == [(32 * i, 32) for i in range(12)]
        assert all(row["queued"] < row["completed"] for row in rows[0])
        assert sum(row["sectors"] for row in rows[1]) == 32 * 12
        assert all(row["issued"] < row["completed"] for row in rows[1])
