# SPDX-License-Identifier: MIT
"""The part of the demo that runs in the VM: it does the work and records it; nothing is decoded here."""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path

import sampleblk_lab as lab
from sampleblk_lab.progress import step
from sampleblk_lab.results.machine import environment
from sampleblk_lab.workload.run import run_to_end

# What lies between fadvise64() and the driver: page cache, writeback, file system, block layer. All functions of the
# kernel would take half a minute to switch on and off; each of these patterns takes a fifth of a second to look up.
ON_THE_WAY = (
    *("*:mod:ext4", "*:mod:jbd2", "*:mod:sampleblk"),
    *("*fadvise*", "*writepages*", "*writeback*", "*invalidate*", "*folio*"),
    *("blk_*", "*submit_bio*"),
)

JOB_FILE = Path(__file__).with_name("fs_seq_write_sync_001")


def record(run_dir: Path, loops: int, *, progress: bool = False) -> None:
    """Runs the job twice: all of it with its system calls recorded, then two loops with the function graph.

    Args:
        run_dir: The folder that everything is written to.
        loops: Of each of the two jobs.
        progress: Show the jobs' own progress bar instead of a line.

    Raises:
        UnsupportedError: This machine has no driver, or cannot trace: not in a VM.
    """

    def running(what: str) -> AbstractContextManager[None]:
        return nullcontext() if progress else step(what)

    with step("making ext4 on a new sampleblk device"):
        device = lab.Device(capacity="64M", queues=2)
    with device, device.mkfs("ext4").mount("/mnt"):
        before = device.counters()
        with lab.JobFile(JOB_FILE, loops=loops).prepare() as job, ExitStack() as stack:
            recording = lab.record(syscalls=True, block=True, events=["sampleblk:*"], pids=job.pids)
            with step("switching on system-call, block and driver events"):
                stack.enter_context(recording)
            with running(f"running {JOB_FILE.name}, {loops} loops of 2 jobs"):
                result = run_to_end(job, progress, check=True)
        recording.save(run_dir / "job")
        after = device.counters()

        one = lab.Job(rw="write", ioengine="sync", bs="4k", size="2M", loops=2, filename="/mnt/test")
        with one.prepare() as job, ExitStack() as stack:
            recording = lab.record(graph="*sys_fadvise64", only=ON_THE_WAY, pids=job.pids)
            with step("switching on the function graph below fadvise64"):
                stack.enter_context(recording)
            with running("running two loops of one job"):
                run_to_end(job, progress, check=True)
        recording.save(run_dir / "fadvise64")

    (run_dir / "result.json").write_text(result.json_text(bins=True))
    (run_dir / "report.txt").write_text(result.text())
    counters = {name: after[name] - before[name] for name in after}
    (run_dir / "counters.json").write_text(json.dumps(counters, indent=1))
    (run_dir / "env.json").write_text(json.dumps(environment(), indent=1))


def main() -> int:
    """The same as a command."""
    parser = argparse.ArgumentParser()
    parser.add_argument("run_dir", type=Path)
    parser.add_argument("--loops", type=int, required=True)
    parser.add_argument("--progress", action="store_true")
    options = parser.parse_args()
    record(options.run_dir, options.loops, progress=options.progress)
    return 0


if __name__ == "__main__":
    sys.exit(main())
