# SPDX-License-Identifier: MIT
"""The part of ``sampleblk-lab run`` and ``record`` that works where the device is."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sampleblk_lab.vm import VM


def guest_environment(machine: VM) -> dict[str, str]:
    """Our environment, and what the guest cannot see of its machine."""
    from sampleblk_lab.results import machine as machines

    machines.tell_guest()
    return {**os.environ, "SAMPLEBLK_VM": machine.describe()}


def work(run_dir: Path) -> int:
    """Does what ``spec.json`` in `run_dir` says, and writes the result beside it; returns 1 when a job failed."""
    import inspect

    import sampleblk_lab as lab
    from sampleblk_lab.cli.device import parameters_of
    from sampleblk_lab.results.machine import environment
    from sampleblk_lab.workload.run import run_to_end

    spec = json.loads((run_dir / "spec.json").read_text())
    known = [name for name in inspect.signature(lab.Device).parameters if name not in ("self", "adopt")]
    parameters = {"capacity": "512M", **parameters_of(spec["device"], known, "a device")}
    with contextlib.ExitStack() as stack:
        device = stack.enter_context(lab.Device(**parameters))
        if spec["fs"] != "none":
            mount = stack.enter_context(device.mkfs(spec["fs"]).mount())
            # So that relative file names of the job are on the device; left again before it is unmounted.
            stack.callback(os.chdir, Path.cwd())
            os.chdir(mount)
        text = spec["job_file"].replace("DEVICE", device.path)
        keys = {name: value.replace("DEVICE", device.path) for name, value in spec["keys"].items()}
        before = device.counters()
        job = stack.enter_context(lab.JobFile.parse(text, spec["source"], **keys).prepare())
        recording = None
        if spec["record"] is not None:
            recording = lab.record(**spec["record"], pid=job.pids)
            stack.enter_context(recording)
        result = run_to_end(job, sys.stderr.isatty(), check=False)
        if recording is not None:
            recording.stop()
            recording.save(run_dir)
        after = device.counters()
    (run_dir / "result.json").write_text(result.json_text(bins=True))
    (run_dir / "report.txt").write_text(result.text())
    (run_dir / "env.json").write_text(json.dumps(environment(), indent=1) + "\n")
    counters = {name: after[name] - before[name] for name in after}
    (run_dir / "counters.json").write_text(json.dumps(counters, indent=1) + "\n")
    for name, _, what in result.errors:
        print(f"sampleblk-lab: job {name}: {what}", file=sys.stderr)
    return 1 if result.errors else 0


if __name__ == "__main__":
    sys.exit(work(Path(sys.argv[1])))
