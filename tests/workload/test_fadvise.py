# SPDX-License-Identifier: MIT
"""ioengine=fadvise: advice as a workload of its own."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from beside_fio import needs_strace, on_files, strace

import sampleblk_lab as lab

_RUN = """
import sys
import sampleblk_lab as lab
lab.Job(ioengine="fadvise", fadvise_hint=0, invalidate=0, filename=sys.argv[1], **eval(sys.argv[2])).run(progress=False)
"""

EVERY = ["normal", "sequential", "random", "willneed", "dontneed", "noreuse"]


def advice_of(path: Path, **keys: object) -> list[tuple[int, int, str]]:
    path.write_bytes(bytes(64 << 10))
    calls = strace([sys.executable, "-c", _RUN, str(path), repr(keys)], path.with_suffix(".log"))
    lines = [line for lines in on_files(calls, path.parent).values() for line in lines if line.startswith("fadvise64")]
    found = [re.fullmatch(r"fadvise64 \S+ (\d+), (\d+), POSIX_FADV_(\w+) = 0", line) for line in lines]
    assert all(found)
    return [(int(match[1]), int(match[2]), match[3].lower()) for match in found if match]


@needs_strace
def test_every_advice_in_turn_on_every_range(tmp_path: Path) -> None:
    made = advice_of(tmp_path / "f", rw="read", bs="4k", size="64k", advice=",".join(EVERY))
    assert made == [(4096 * i, 4096, EVERY[i % 6]) for i in range(16)]


@needs_strace
def test_random_ranges(tmp_path: Path) -> None:
    made = advice_of(tmp_path / "f", rw="randread", bs="8k", size="64k", advice="willneed")
    assert sorted(made) == [(8192 * i, 8192, "willneed") for i in range(8)]
    assert made != sorted(made)


@needs_strace
def test_the_whole_file_as_the_article_has_it(tmp_path: Path) -> None:
    made = advice_of(tmp_path / "f", rw="read", bs="4k", size="64k", number_ios=5, advice_whole_file=1)
    assert made == [(0, 0, "dontneed")] * 5


def test_latencies_are_those_of_the_advice(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(bytes(64 << 10))
    result = lab.Job(ioengine="fadvise", rw="read", bs="4k", size="64k", filename=tmp_path / "f").run(progress=False)
    assert result.json()["jobs"][0]["read"]["clat_ns"]["N"] == 16


def test_an_advice_that_is_none() -> None:
    with pytest.raises(lab.InputError, match=r"advice: 'wontneed' is not known .*willneed, dontneed"):
        lab.Job(ioengine="fadvise", rw="read", size="4k", advice="wontneed")
