# SPDX-License-Identifier: MIT
"""bcc's tools beside a job: what they count is what the driver and the job count."""

from __future__ import annotations

import os

import pytest

import sampleblk_lab as lab

pytestmark = pytest.mark.sampleblk(capacity="64M")


@pytest.fixture(autouse=True, scope="module")
def _installed():
    try:
        lab.bcc("fsdist")
    except lab.UnsupportedError as error:
        pytest.skip(str(error))


def counts(table, name, value):
    return sum(row["count"] for row in table if row[name] == value)


@pytest.fixture
def _tools_of_requests():
    """Debian 12's load no program into Linux 5.10, whose tracepoint has other arguments, and say so."""
    if os.uname().release.startswith("5.10."):
        with pytest.raises(lab.UnsupportedError, match="biolatency: this kernel cannot run it"), lab.bcc("biolatency"):
            pytest.fail("the block ran")
        pytest.skip("this kernel cannot run biolatency")


@pytest.mark.usefixtures("_tools_of_requests")
def test_histograms_count_what_the_job_and_the_driver_count(sampleblk):
    job = lab.Job(
        rw="randwrite", ioengine="psync", direct=1, bs="16k", size="1M", filename=sampleblk.path, name="counted"
    )
    before = sampleblk.counters()
    with lab.bcc("biolatency", "-D", "-F") as latency, lab.bcc("bitesize") as sizes:
        job.run()
    issued = (sampleblk.counters() - before)["writes"]
    assert issued == 64
    name = f"sampleblk{sampleblk.index}"
    assert counts(latency.histogram(), "disk", name) == issued
    assert latency.histogram()["low"].unit == "us"
    # By the process that was running when they were issued, which need not be the job's.
    sized = [(row["low"], row["high"]) for row in sizes.histogram() for _ in range(row["count"])]
    assert sized == [(16, 31)] * issued


def test_calls_of_a_file_system(sampleblk_mount):
    path = sampleblk_mount / "file"
    with lab.bcc("fsdist", "-t", "ext4") as calls, lab.bcc("fsslower", "-t", "ext4", "-m", "0") as each:
        job = lab.Job(rw="write", ioengine="psync", bs="4k", size="200k", filename=path, name="calls", end_fsync=1)
        job.run()
    assert counts(calls.histogram(), "operation", "fsync") == 1
    # An fsync has LL_MAX for its bytes.
    writes = [row for row in each.table() if row["T"] == "W" and row["FILENAME"] == "file"]
    assert [(int(row["BYTES"]), row["OFF_KB"]) for row in writes] == [(4096, number * 4) for number in range(50)]
    assert counts(calls.histogram(), "operation", "write") >= 50
    assert each.output.lost_events == 0


def test_what_the_kernel_lacks_is_said_before_the_job():
    with (
        pytest.raises(lab.UnsupportedError, match="this kernel has no nosuchfunction"),
        lab.bcc("funclatency", "nosuchfunction"),
    ):
        pytest.fail("the block ran")
