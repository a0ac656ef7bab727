# SPDX-License-Identifier: MIT
"""What of a base is given to a device: all that is no zero, wherever its holes are."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from sampleblk_lab.crash.disks import _with_data


@pytest.mark.parametrize("seed", range(5))
def test_what_is_no_hole_is_all_that_is_not_zero(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    path = tmp_path / "base"
    size = rng.randrange(512, 1 << 21) // 512 * 512
    with path.open("wb") as file:
        for _ in range(rng.randrange(12)):
            file.seek(rng.randrange(size // 512) * 512)
            file.write(b"x" * 512)
        file.truncate(size)
        wanted = {at // 4096 for at, byte in enumerate(path.read_bytes()) if byte}
    with path.open("rb") as file:
        parts = list(_with_data(file.fileno()))
    assert all(begin % 4096 == end % 4096 == 0 and begin < end for begin, end in parts)
    assert wanted <= {page for begin, end in parts for page in range(begin // 4096, end // 4096)}
    assert parts == sorted(parts)
    # Holes are passed over, where the file system has them.
    held = -(-path.stat().st_blocks * 512 // 4096) * 4096
    assert sum(end - begin for begin, end in parts) <= held + 8192 * len(parts)
