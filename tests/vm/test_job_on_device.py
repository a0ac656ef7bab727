# SPDX-License-Identifier: MIT
"""Jobs that ask for more than the device has: they end with it, as fio's do."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

import sampleblk_lab as lab

BLOCK = 64 << 10


def _ios(job: dict[str, Any]) -> int:
    assert job["error"] == 0
    return job["read"]["total_ios"] + job["write"]["total_ios"]


def _fio(path: str, **options: str) -> int:
    words = [f"--{key}={value}" for key, value in options.items()]
    command = ["fio", "--name=peer", f"--filename={path}", "--direct=1", "--output-format=json", *words]
    [job] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["jobs"]
    return _ios(job)


@pytest.mark.parametrize("rw", ["read", "write", "randread", "randwrite", "randrw"])
def test_a_job_ends_with_its_device(rw: str) -> None:
    with lab.Device("4M") as dev:
        before = dev.counters()
        result = lab.Job(rw=rw, bs=BLOCK, size="16M", filename=dev.path, direct=1, name="large").run()
        done = dev.counters() - before
        [job] = result.json()["jobs"]
        assert _ios(job) == 64 == _fio(dev.path, rw=rw, bs="64k", size="16M")
        assert done.read_bytes + done.write_bytes == 4 << 20
        [message] = result.messages
        assert message == f"large: '{dev.path}' ends at {4 << 20}, {12 << 20} bytes before the job's size= does"

        result = lab.Job(rw=rw, bs=BLOCK, offset="3M", size="4M", filename=dev.path, direct=1).run()
        [job] = result.json()["jobs"]
        assert _ios(job) == 16

        exact = lab.Job(rw=rw, bs=BLOCK, offset="3M", size="1M", filename=dev.path, direct=1).run()
        assert exact.messages == []


@pytest.mark.parametrize("rw", ["read", "randread", "randwrite"])
@pytest.mark.parametrize("offset", ["4M", "100M"])
def test_a_job_does_not_begin_beyond_its_device(rw: str, offset: str) -> None:
    with lab.Device("4M") as dev, pytest.raises(lab.InputError, match="offset"):
        lab.Job(rw=rw, bs=BLOCK, offset=offset, size="64k", filename=dev.path, direct=1).run()
