# SPDX-License-Identifier: MIT
"""bpftrace beside a job: its counts are the driver's, the job's and our own recording's of the same job."""

from __future__ import annotations

import os
import sys
import threading
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import sampleblk_lab as lab
from sampleblk_lab.bpftrace import find, names

pytestmark = pytest.mark.sampleblk(capacity="16M")


@pytest.fixture(autouse=True, scope="module")
def _readable():
    """Debian 12's bpftrace cannot read the types of Linux 5.10, and says so."""
    if os.uname().release.startswith("5.10."):
        with pytest.raises(lab.UnsupportedError, match="cannot read this kernel's BTF"), lab.bpf("block-latency"):
            pytest.fail("it ran: these cases can, too")
        pytest.skip("this bpftrace does not read this kernel's BTF")


# Those that the next case has: a script has one END.
LATER = ("fsync-chains", "off-cpu", "slow-files")
OWN = "\n".join(find(name).text for name in names() if name not in LATER)


def test_our_scripts_count_what_driver_job_and_recording_count(sampleblk):
    """All of them as one script, which runs as a part of the recording."""
    job = lab.Job(rw="randrw", ioengine="psync", direct=1, bs="12k", size="3M", filename=sampleblk.path, name="counted")
    before = sampleblk.counters()
    script = lab.bpf(OWN, args=[sampleblk])
    with lab.record(syscalls=["pread64", "pwrite64"], block=True, bpf=script) as recording:
        result = job.run()
    found = recording.bpf()
    counters = sampleblk.counters() - before
    assert found.lost_events == 0
    assert len(found.helper_errors()) == 0
    assert found.warnings == []
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
    assert "submit_bio_noacct_nocheck" in found.stacks("@bios").folded()
    lines = found.printed_table()
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
@pytest.mark.sampleblk(capacity="32M", cache=True)
def test_files_waits_and_flushes_are_those_of_the_recording(sampleblk, tmp_path):
    """Slow files with their names, off-CPU time by reason, and what an fsync waits for."""
    events = ["sched:sched_switch", "sched:sched_process_exec"]
    with sampleblk.mkfs("ext4").mount() as mount:
        path, other = Path(mount) / "slow", Path(mount) / "other"
        program = tmp_path / "chained"
        program.write_text(
            "import os, sys, time\n"
            f"fd = os.open({str(path)!r}, os.O_CREAT | os.O_WRONLY)\n"
            "for _ in range(8):\n"
            "    os.write(fd, bytes(4096))\n"
            "    os.fsync(fd)\n"
            "    time.sleep(0.01)\n"
            "os.dup2(fd, 99)\n"
            "os.write(99, b'by another number')\n"
            f"os.dup2(os.open({str(other)!r}, os.O_CREAT | os.O_WRONLY), fd)\n"
            "os.write(fd, b'which has closed the first')\n"
        )
        comm = "sblkchained"
        (tmp_path / comm).symlink_to(sys.executable)
        before = sampleblk.counters()
        with lab.bpf("slow-files") as of_files, lab.bpf("off-cpu", max_map_keys=1000) as of_waits:
            run = lab.record(
                command=[tmp_path / comm, "-I", program],
                events=events,
                block=True,
                bpf=lab.bpf("fsync-chains", args=[sampleblk]),
            )
            for _ in range(1000):  # threads that have ended take no room in the maps
                thread = threading.Thread()
                thread.start()
                thread.join()
        counters = sampleblk.counters() - before
    found = run.save(tmp_path / "kept").bpf()
    for one in (found, of_files.output, of_waits.output):
        assert one.lost_events == 0
        # Two stacks may have one place in the kernel's table; the second is lost, and is counted.
        assert {row["helper"] for row in one.helper_errors()} <= {"get_stackid"}
    assert run.command["returncode"] == 0

    files = of_files["@file_ns"]
    assert files.columns == ["comm", "call", "path", "low", "high", "count"]
    mine = [row for row in files if row["path"] == str(path)]
    assert Counter({call: sum(row["count"] for row in mine if row["call"] == call) for call in ("write", "fsync")}) == {
        "write": 9,
        "fsync": 8,
    }
    assert sum(row["count"] for row in files if row["path"] == str(other)) == 1
    assert {row["comm"] for row in mine} == {comm}

    # Of each thread of that name: from leaving a CPU to being back on one, by the state that it left in.
    reasons: Counter[str] = Counter()
    left: dict[int, str] = {}
    for row in run.events("sched:sched_switch"):
        state = left.pop(row["next_pid"], None)
        if state is not None and row["next_comm"] == comm:
            reasons[state] += 1
        if row["prev_pid"]:
            bits = int(row["prev_state"]) & 0xFF
            left[row["prev_pid"]] = {0: "run", 1: "sleep", 2: "disk"}.get(bits, "other")
    waits = of_waits["@off_cpu_ns"]
    counted = Counter(
        {why: sum(r["count"] for r in waits if (r["comm"], r["reason"]) == (comm, why)) for why in reasons}
    )
    assert reasons["sleep"] >= 8
    assert counted == reasons
    assert "ext4_sync_file" in of_waits.output.stacks("@off_cpu_stacks_ns").folded()

    lines = found.printed_table()
    assert lines.metadata["unread_rows"] == "0"
    rows = sorted(lines, key=lambda row: row["TIME"])
    [tid] = {row["TID"] for row in rows if row["EVENT"] == "fsync"}
    chains: list[list[str]] = []
    for row in rows:
        if row["EVENT"] == "fsync":
            chains.append([])
        elif row["EVENT"] == "issue" and chains:
            chains[-1].append(row["RWBS"])
        elif row["EVENT"] == "return":
            assert row["TID"] == tid
            # ext4's ordered mode: the data, then the journal's record, then a flush or a write with one.
            assert any("F" in issued for issued in chains[-1])
    assert len(chains) == 8
    assert sum(row["count"] for row in found["@fsync_ns"] if row["comm"] == comm) == 8
    # The same requests as the recording has, from the first fsync to the end of the last one.
    begin = min(row["TIME"] for row in rows if row["EVENT"] == "fsync")
    end = max(row["TIME"] for row in rows if row["EVENT"] == "return")
    issued = Counter(row["RWBS"] for row in rows if row["EVENT"] == "issue" and begin < row["TIME"] < end)
    device = Path(sampleblk.path).stat().st_rdev
    recorded = Counter(
        row["rwbs"]
        for row in run.events("block:block_rq_issue")
        if row["dev"] == os.major(device) << 20 | os.minor(device) and begin < row["time"] < end
    )
    assert issued == recorded
    assert 8 <= issued["FF"] <= counters.flushes


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
