# SPDX-License-Identifier: MIT
"""Trims on every engine: as many as fio makes, and paced as fio paces them. fio trims devices only, so both get one."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from beside_fio import FIO_VERSION, needs_fio

import sampleblk_lab as lab

ENGINES = ["psync", "libaio", "io_uring"]


@pytest.fixture(scope="module")
def loop_device(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if os.geteuid() != 0 or shutil.which("losetup") is None:
        pytest.skip("a loop device needs root")
    image = tmp_path_factory.mktemp("loop") / "image"
    image.write_bytes(bytes(1 << 20))
    done = subprocess.run(
        ["losetup", "--find", "--show", str(image)], capture_output=True, text=True, check=False, timeout=30
    )
    if done.returncode != 0:
        pytest.skip(f"no loop device here: {done.stderr.strip()}")
    device = done.stdout.strip()
    try:
        yield device
    finally:
        subprocess.run(["losetup", "--detach", device], check=True, timeout=30)


def both(device: str, directory: Path, **keys: Any) -> list[dict[str, Any]]:
    keys = {"size": "256k", "filename": device, **keys}
    mine = lab.Job(**keys).run(progress=False).json()["jobs"][0]
    done = subprocess.run(
        ["fio", "--name=job", "--output-format=json", *(f"--{key}={value}" for key, value in keys.items())],
        capture_output=True, text=True, check=True, timeout=60, cwd=directory,
    )  # fmt: skip
    return [mine, json.loads(done.stdout[done.stdout.index("{") :])["jobs"][0]]


def moved(job: dict[str, Any]) -> dict[str, tuple[int, int]]:
    return {way: (job[way]["total_ios"], job[way]["io_bytes"]) for way in ("read", "write", "trim")}


@needs_fio
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    "keys",
    [
        {"rw": "trim"},
        {"rw": "randtrim"},
        {"rw": "trimwrite"},
        {"rw": "randtrimwrite"},
        {"rw": "trimwrite", "number_ios": 10},
        {"rw": "trimwrite", "loops": 2},
        {"rw": "trimwrite", "io_size": "128k"},
        {"rw": "trimwrite", "bs": "4k,8k,16k"},
    ],
    ids=lambda keys: "-".join(str(value) for value in keys.values()),
)
def test_as_many_as_fios(keys: dict[str, Any], engine: str, loop_device: str, tmp_path: Path) -> None:
    mine, theirs = both(loop_device, tmp_path, ioengine=engine, iodepth=4, **keys)
    assert moved(mine) == moved(theirs)
    assert moved(mine)["trim"][0] > 0


@needs_fio
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("rw", ["trimwrite", "randtrimwrite"])
def test_mixed_sizes_lose_no_trim(rw: str, engine: str, loop_device: str, tmp_path: Path) -> None:
    for job in both(loop_device, tmp_path, rw=rw, ioengine=engine, iodepth=4, bsrange="4k-16k"):
        assert moved(job)["trim"] == moved(job)["write"]
        assert moved(job)["trim"][1] == 256 << 10


@pytest.mark.parametrize("engine", ENGINES)
def test_trims_longer_than_the_block_size_of_the_writes(engine: str, loop_device: str) -> None:
    """fio's map of random blocks counts in one of the sizes only, and here it stops early."""
    keys = {"rw": "randtrimwrite", "bs": "4k,8k,16k", "size": "256k", "filename": loop_device}
    job = lab.Job(**keys, ioengine=engine, iodepth=4).run(progress=False).json()["jobs"][0]
    assert moved(job) == {"read": (0, 0), "write": (16, 256 << 10), "trim": (16, 256 << 10)}


@needs_fio
@pytest.mark.parametrize("engine", ENGINES)
def test_paced_as_fios_are(engine: str, loop_device: str, tmp_path: Path) -> None:
    for job in both(loop_device, tmp_path, rw="trim", size="80k", rate_iops=200, ioengine=engine, iodepth=4):
        assert job["trim"]["total_ios"] == 20
        assert job["job_runtime"] >= 95 - 5  # the first is not late
    mine, theirs = both(loop_device, tmp_path, rw="trim", size="40k", thinktime=5000, ioengine=engine, iodepth=4)
    assert mine["job_runtime"] >= 45
    if FIO_VERSION == "fio-3.33":  # 3.39 leaves out some of the pauses of a deep queue
        assert theirs["job_runtime"] >= 45


def test_vsync_trims_are_paced(tmp_path: Path) -> None:
    """fio 3.33's vsync fails on a trim (EFAULT), so without it; on a file, whose trims are holes."""
    job = lab.Job(rw="trim", bs="4k", size="80k", rate_iops=200, ioengine="vsync", iodepth=4, filename=tmp_path / "f")
    result = job.run(progress=False).json()["jobs"][0]
    assert result["trim"]["total_ios"] == 20
    assert result["job_runtime"] >= 90
