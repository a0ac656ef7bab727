# SPDX-License-Identifier: MIT
"""The part of the demo that runs here: it starts the VM, then decodes and shows what the guest recorded."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sampleblk_lab.analysis.run import open_run
from sampleblk_lab.errors import FormatError
from sampleblk_lab.progress import step
from sampleblk_lab.report.run_page import longest_call, run_page
from sampleblk_lab.table import Table
from sampleblk_lab.vm.errors import VMError

if TYPE_CHECKING:
    from sampleblk_lab.report import CallOutline
    from sampleblk_lab.vm import VM

# One job's writes: 2 MiB in 4 KiB calls.
_WRITES_PER_LOOP = 512
_JOBS = 2

_TARGET = "sampleblk_queue_rq*"
_ARTICLE = "In 2016, on Linux 4.6, strace gave the article 2 us for each write and 216 us for each fadvise64."


def record(vm: VM, run_dir: Path, loops: int, timeout: float | None) -> None:
    """Runs the guest's part in `vm`, whose run directory is `run_dir`. Raises VMError."""
    with step(f"starting a VM with Linux {vm.kernel.release}"):
        vm.start()
    command = [sys.executable, "-m", "sampleblk_lab.demo.guest", str(run_dir), "--loops", str(loops)]
    if sys.stderr.isatty():
        command.append("--progress")
    done = vm.run(command, stdout=1, stderr=2, timeout=timeout)
    if done.returncode != 0:
        raise VMError(f"the guest's part of the demo ended with status {done.returncode}", vm.console.tail())
    machine = json.loads(vm.describe())
    environment = {**json.loads((run_dir / "env.json").read_text()), "vm": machine, "accel": machine["accel"]}
    (run_dir / "env.json").write_text(json.dumps(environment, indent=1))


def outline(run_dir: Path) -> CallOutline:
    """The longest fadvise64() that went down to the driver: the one that had pages to write back."""
    found = longest_call(open_run(run_dir / "fadvise64"), _TARGET)
    if found is None:
        raise FormatError(str(run_dir / "fadvise64/trace.dat"), 0, "a call of fadvise64")
    return found


def facts(run_dir: Path) -> dict[str, Any]:
    """What the recording in `run_dir` says, for programs: machine, result, system calls, one call's path, counters."""
    path = outline(run_dir)
    return {
        "environment": json.loads((run_dir / "env.json").read_text()),
        "result": json.loads((run_dir / "result.json").read_text()),
        "syscalls": list(open_run(run_dir / "job").syscalls().summary().rows()),
        "fadvise64": {"calls": path.calls, "target_calls": path.target_calls, "outline": path.text()},
        "counters": json.loads((run_dir / "counters.json").read_text()),
    }


def show(run_dir: Path, loops: int, *, quiet: bool = False) -> Path:
    """Prints what the recording in `run_dir` says, and writes ``report.html`` there; returns its path.

    Args:
        run_dir: As :func:`record` filled it.
        loops: Of each of the two jobs.
        quiet: Print nothing.
    """
    with step("decoding"):
        run = open_run(run_dir / "job")
        calls = run.syscalls().summary()
        sizes = run.io_sizes()
        path = outline(run_dir)
    counters = json.loads((run_dir / "counters.json").read_text())
    written = loops * _JOBS * _WRITES_PER_LOOP * 4096
    cache_note = (
        f"The jobs wrote {written / 2**20:.0f} MiB into the page cache; both write the same 2 MiB file, and only what "
        f"is dirty when POSIX_FADV_DONTNEED comes is written back: {counters['write_bytes'] / 2**20:.1f} MiB reached "
        "the device, metadata included."
    )
    depth_note = (
        f"One fadvise64(POSIX_FADV_DONTNEED): {path.calls:,} calls recorded on the way, {path.target_calls} of "
        "them of the driver's sampleblk_queue_rqs or _rq. The path to the first one, and what took longest beside it."
    )
    report = (run_dir / "report.txt").read_text()

    for heading, text in (
        ("The job, as fio reports it", report),
        ("System calls of the job phase", f"{calls}\n{_ARTICLE}"),
        ("Sizes of reads and writes", str(sizes)),
        ("One fadvise64 down into the driver", f"{depth_note}\n\n{path.text()}"),
        ("What the driver counted", f"{Table.of(_columns(counters), key='counter')}\n{cache_note}"),
    ):
        if not quiet:
            print(f"\n== {heading} ==\n\n{text.rstrip()}")

    spec = {
        "title": "sampleblk-lab demo",
        "source": f"Linux Block Driver 2, lab 1: fs_seq_write_sync_001, {loops} loops of {_JOBS} jobs, in one command",
        "target": _TARGET,
        "notes": {
            "Job": "The report that fio's users know, from the C++ engine that ran the article's job file.",
            "System calls": _ARTICLE,
            "Call tree": depth_note,
            "Driver": cache_note,
        },
        "files": {
            "job/trace.dat": "system calls, block and driver events of the job (trace-cmd report, KernelShark)",
            "fadvise64/trace.dat": "the function graph",
            "result.json": "the job's result in fio's JSON",
            "env.json": "the machine it ran on",
        },
    }
    (run_dir / "spec.json").write_text(json.dumps(spec, indent=1))
    target = run_dir / "report.html"
    with step("drawing the report"):
        target.write_text(run_page(run_dir).html())
    return target


def _columns(counters: dict[str, int]) -> dict[str, np.ndarray | list[str]]:
    return {"counter": list(counters), "value": np.array(list(counters.values()), dtype=np.uint64)}
