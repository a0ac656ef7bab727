# SPDX-License-Identifier: MIT
"""Ten experiments on two kernels, two virtual machines at a time."""

from __future__ import annotations

import collections
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from sampleblk_lab.paths import cache_root
from support import QUICK

pytestmark = pytest.mark.full

KERNELS = ("6.1", "6.12")

# Looked up now: pytester gives its tests a home of their own.
CACHE = str(cache_root())

EXPERIMENTS = """
import os
import time
from pathlib import Path

import pytest

import sampleblk_lab as lab


@pytest.mark.sampleblk(capacity="16M", queues=2)
@pytest.mark.parametrize("bs", ["512", "4k", "64k"])
def test_job(sampleblk, workload, bs):
    done = workload(rw="write", bs=bs, size="256k", ioengine="psync", direct=1, filename=sampleblk.path)
    assert done.summary()["ios"][0] == (256 << 10) // {"512": 512, "4k": 4096, "64k": 65536}[bs]


@pytest.mark.parametrize("fs", ["ext4", "xfs"])
def test_mount(sampleblk_mount, fs):
    (sampleblk_mount / "file").write_text(fs)


def test_panic(sampleblk):
    Path("/proc/sysrq-trigger").write_text("c")
    time.sleep(60)


def test_record(sampleblk, record):
    with record(syscalls=["pwrite64"], pids=os.getpid()) as recording:
        with open(sampleblk.path, "r+b", buffering=0) as file:
            os.pwrite(file.fileno(), bytes(512), 0)
    assert recording.syscalls().summary()["calls"]["pwrite64"] == 1


def test_fault(sampleblk, faults):
    faults(lab.Fault(action="error", ops="write"))
    with pytest.raises(OSError), open(sampleblk.path, "r+b", buffering=0) as file:
        file.write(bytes(4096))
        os.fsync(file.fileno())


def test_folder(sampleblk_folder, sampleblk):
    (sampleblk_folder / "kernel").write_text(os.uname().release)


@pytest.mark.in_vm
def test_plain():
    assert os.uname().nodename == "sampleblk"
"""


@pytest.mark.usefixtures("no_leftovers")
def test_every_case_runs_twice_and_a_panic_disturbs_none(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SAMPLEBLK_CACHE", CACHE)
    pytester.makepyfile(test_ten=EXPERIMENTS)
    options = ["-v", "-n", "2", "--sblk-kernel", ",".join(KERNELS), "--sblk-keep", "--junit-xml", "junit.xml"]
    result = pytester.runpytest_subprocess(*options, *QUICK, timeout=500)
    result.assert_outcomes(passed=18, failed=2)

    cases = ET.parse(pytester.path / "junit.xml").getroot().iter("testcase")
    names = collections.Counter(case.get("name") for case in cases)
    plain = [
        *(f"test_job[{bs}-{{}}]" for bs in ("512", "4k", "64k")),
        *(f"test_mount[{fs}-{{}}]" for fs in ("ext4", "xfs")),
    ]
    plain += [f"test_{name}[{{}}]" for name in ("panic", "record", "fault", "folder", "plain")]
    assert names == {name.format(kernel): 1 for name in plain for kernel in KERNELS}

    text = result.stdout.str()
    assert re.findall(r"FAILED \S*test_panic\[(\S+)\] - the guest's kernel panicked", text) == list(KERNELS)
    # Two machines at a time: both took part.
    assert set(re.findall(r"^\[(gw\d)\]", text, re.MULTILINE)) >= {"gw0", "gw1"}
    # The run directories stay, and each was written on its own kernel.
    kept = sorted((pytester.path / "runs/latest/0001").glob("*test_folder*/kernel"))
    releases = [Path(path).read_text() for path in kept]
    assert len(releases) == 2
    assert all(any(release.startswith(f"{kernel}.") for release in releases) for kernel in KERNELS)
