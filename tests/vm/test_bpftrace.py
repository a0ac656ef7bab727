# SPDX-License-Identifier: MIT
"""bpftrace beside a job: its counts are the driver's, the job's and our own recording's of the same job."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import sampleblk_lab as lab
from sampleblk_lab.bpftrace import find, names

pytestmark = pytest.mark.sampleblk(capacity="16M")

OWN = "\n".join(find(name).text for name in names())


def test_our_scripts_count_what_driver_job_and_recording_count(sampleblk):
    """All of them as one script: starting bpftrace is what takes its time here."""
    job = lab.Job(rw="randrw", ioengine="psync", direct=1, bs="12k", size="3M", filename=sampleblk.path, name="counted")
    before = sampleblk.counters()
    with (
        lab.bpf(OWN, args=[sampleblk]) as found,
        lab.record(syscalls=["pread64", "pwrite64"], block=True, clock="mono") as recording,
    ):
        result = job.run()
    counters = sampleblk.counters() - before
    assert found.output.lost_events == 0
    assert len(found.output.helper_errors()) == 0
    assert found.output.warnings == []
    told = result.json()["jobs"][0]
    reads, writes = told["read"]["total_ios"], told["write"]["total_ios"]
    assert reads + writes == 256
    assert min(reads, writes) > 50

    run = recording.run
    calls = run.offsets(pids=result).table()
    for operation, sizes, at in (
        ("read", found["@reads"], found["@reads_at"]),
        ("write", found["@writes"], found["@writes_at"]),
    ):
        mine = Counter(calls["offset"].codes[calls["operation"].values == operation].tolist())
        assert mine
        # Nobody else makes calls of this size. The offsets are of one command and descriptor.
        assert sum(row["value"] for row in sizes if row["bytes"] == 12288) == sum(mine.values())
        by_file: dict[object, Counter[object]] = {}
        for row in at:
            by_file.setdefault((row["comm"], row["fd"]), Counter())[row["offset_bytes"]] += row["value"]
        assert mine in by_file.values()
    assert found["@reads"]["bytes"].unit == "bytes"

    # The driver's counters.
    latency = found["@latency_ns"]
    assert found["@ambiguous"]["value"][0] == 0
    device = Path(sampleblk.path).stat().st_rdev
    assert set(latency["dev"].codes.tolist()) == {os.major(device) << 20 | os.minor(device)}
    kinds = np.array([str(kind)[0] for kind in latency["rwbs"]])
    for kind, count, moved in (
        ("R", counters.reads, counters.read_bytes),
        ("W", counters.writes, counters.write_bytes),
    ):
        rows = latency.take(kinds == kind)
        assert rows["count"].codes.sum() == count > 50
        assert (rows["count"].codes * rows["bytes"].codes).sum() == moved
    assert latency["low"].unit == latency["high"].unit == "ns"

    # The recording of the same job: bios by operation, and each request by its time.
    bios = run.events("block:block_bio_queue")
    mine = bios.take(bios["dev"].codes == latency["dev"][0])
    assert Counter(mine["rwbs"].values.tolist()) == {
        kind: sum(row["value"] for row in found["@bios"] if row["rwbs"] == kind) for kind in set(found["@bios"]["rwbs"])
    }
    assert "submit_bio_noacct_nocheck" in found.output.stacks("@bios").folded()
    lines = found.output.printed_table()
    assert lines.metadata["unread_rows"] == "0"
    for event, told_by in (("issue", "block:block_rq_issue"), ("complete", "block:block_rq_complete")):
        ours = lines.take(lines["EVENT"].values == event)
        recorded = run.events(told_by)
        recorded = recorded.take(recorded["dev"].codes == latency["dev"][0])
        assert len(ours) == len(recorded) == counters.reads + counters.writes + counters.flushes
        order, other = np.argsort(ours["TIME"].codes), np.argsort(recorded["time"].codes)
        assert (ours["SECTOR"].codes[order] == recorded["sector"].codes[other]).all()
        # One clock: both programs are called by the same event, one after the other.
        apart = ours["TIME"].codes[order].astype(np.int64) - recorded["time"].codes[other].astype(np.int64)
        assert abs(np.median(apart)) < 1e6
    steps = np.where(lines["EVENT"].values == "issue", 1, -1)[np.argsort(lines["TIME"].codes, kind="stable")]
    assert steps.cumsum().max() == 1  # psync
    assert steps.sum() == 0


@pytest.mark.full
def test_stock_tools_and_what_a_kernel_lacks(sampleblk, tmp_path):
    functions = Path("/sys/kernel/tracing/available_filter_functions").read_text().split()
    traced = {"start": {"blk_account_io_start", "__blk_account_io_start"}, "done": {"blk_account_io_done"}}
    traced["done"].add("__blk_account_io_done")
    job = lab.Job(rw="write", ioengine="psync", direct=1, bs="16k", size="1M", filename=sampleblk.path)
    if all(names & set(functions) for names in traced.values()):
        with lab.bpf("biosnoop.bt") as found:
            job.run()
        lines = found.output.printed_table()
        assert lines.columns == ["TIME", "DISK", "COMM", "PID", "LAT"]
        assert sum(disk == Path(sampleblk.path).name for disk in lines["DISK"]) == 64
    else:  # inlined, in Debian's 6.1
        with pytest.raises(lab.UnsupportedError, match="blk_account_io_start"), lab.bpf("biosnoop.bt"):
            pytest.fail("it ran")
    with lab.bpf("bitesize.bt") as found:
        job.run()
    [name] = found.output.maps
    of_size = found[name].take(found[name]["low"].codes == 16384)
    assert of_size["count"].codes.sum() == 64
    again = lab.read_bpftrace(found.output.save(tmp_path / "kept"))
    assert list(again[name]) == list(found[name])
    with lab.bpf("vfscount.bt") as found:
        job.run()
    counts = found["@"]
    assert counts.columns == ["func", "value"]
    assert {row["func"]: row["value"] for row in counts}["vfs_write"] >= 64
    # Nothing stays mounted that bpftrace had mounted.
    assert " /sys/kernel/debug/tracing " not in Path("/proc/self/mountinfo").read_text()
