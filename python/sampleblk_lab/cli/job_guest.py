# SPDX-License-Identifier: MIT
"""The part of ``sampleblk-lab run`` and ``record`` that works where the device is."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sampleblk_lab.cli.device import device_parameters
from sampleblk_lab.interrupts import INTERRUPTED, shell_status
from sampleblk_lab.paths import IN_VM

if TYPE_CHECKING:
    from sampleblk_lab.vm import VM


def guest_environment(machine: VM) -> dict[str, str]:
    """Our environment, and what the guest cannot see of its machine."""
    from sampleblk_lab.results import machine as machines

    machines.tell_guest()
    return {**os.environ, IN_VM: machine.describe()}


def work(run_dir: Path) -> int:
    """Does what ``spec.json`` in `run_dir` says, and writes the result beside it.

    Returns:
        1 when a job failed, INTERRUPTED when Ctrl-C ended the jobs or the command, else the command's status.
    """
    import sampleblk_lab as lab

    spec = json.loads((run_dir / "spec.json").read_text())
    with contextlib.ExitStack() as stack:
        device = stack.enter_context(lab.Device(**{"capacity": "512M", **device_parameters(spec["device"])}))
        mount = None
        if spec["fs"] != "none":
            mount = stack.enter_context(device.mkfs(spec["fs"]).mount())
        before = device.counters()
        if "command" in spec:
            status = _command(spec, run_dir, device.path, None if mount is None else str(mount))
        else:
            if mount is not None:
                # So that relative file names of the job are on the device; left again before it is unmounted.
                stack.callback(os.chdir, Path.cwd())
                os.chdir(mount)
            status = _job(spec, run_dir, device.path)
        after = device.counters()
    counters = {name: after[name] - before[name] for name in after}
    (run_dir / "counters.json").write_text(json.dumps(counters, indent=1) + "\n")
    return status


def _with(name: str, path: str, text: str) -> str:
    """A text with a path for each word that stands for it, and with longer words as they are."""
    return re.sub(rf"\b{name}\b", lambda _: path, text)


def _job(spec: dict[str, Any], run_dir: Path, device: str) -> int:
    import sampleblk_lab as lab
    from sampleblk_lab import trust
    from sampleblk_lab.results.machine import environment

    keys = {name: _with("DEVICE", device, value) for name, value in spec["keys"].items()}
    job = lab.JobFile.parse(_with("DEVICE", device, spec["job_file"]), spec["source"], **keys)
    show = sys.stderr.isatty()
    if spec["record"] is None:
        result = job.run(progress=show, check=False)
        (run_dir / "result.json").write_text(result.json_text(bins=True))
        (run_dir / "report.txt").write_text(result.text())
        (run_dir / "env.json").write_text(json.dumps(environment(), indent=1) + "\n")
    else:
        result, run = job.record(progress=show, check=False, **spec["record"])
        run.save(run_dir)
    checks = [*result.checks, *job.doubts_of_files(device)]
    (run_dir / "trust.json").write_text(trust.as_json(checks))
    for name, _, what in result.errors:
        print(f"sampleblk-lab: job {name}: {what}", file=sys.stderr)
    for check in checks:
        if check.is_doubt:
            print(f"sampleblk-lab: in doubt: {check}", file=sys.stderr)
    return 1 if result.errors else INTERRUPTED if result.interrupted else 0


def _command(spec: dict[str, Any], run_dir: Path, device: str, mount: str | None) -> int:
    import sampleblk_lab as lab

    words: list[str] = spec["command"]
    for name, path in (("DEVICE", device), ("MOUNT", mount)):
        if path is not None:
            words = [_with(name, path, word) for word in words]
    run = lab.record(command=words, cwd=spec["cwd"], **spec["record"])
    run.save(run_dir)
    return shell_status(run.command["returncode"], interrupted=run.command.get("interrupted", False))


if __name__ == "__main__":
    from sampleblk_lab.cli.main import status_of

    sys.exit(status_of(lambda: work(Path(sys.argv[1]))))
