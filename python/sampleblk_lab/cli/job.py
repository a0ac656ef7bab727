# SPDX-License-Identifier: MIT
"""``sampleblk-lab run`` and ``record``: a job file on a fresh device, in a VM or here."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

from sampleblk_lab.cli.output import add_json
from sampleblk_lab.errors import InputError
from sampleblk_lab.vm import options as vm_options


def configure(parser: argparse.ArgumentParser, *, record: bool = False) -> None:
    """Adds the options to the command's parser."""
    parser.add_argument(
        "job_file", help="a fio job file; its files are relative to the mount, or DEVICE for the device"
    )
    parser.add_argument("keys", nargs="*", metavar="KEY=VALUE", help="set for every job, whatever the file says")
    parser.add_argument("--fs", default="ext4", help="ext4, xfs, btrfs, f2fs, or none for the bare device (ext4)")
    parser.add_argument("--device", action="append", default=[], metavar="NAME=VALUE", help="as sampleblk_lab.Device")
    if record:
        parser.add_argument("--syscalls", action="store_true", help="record the jobs' system calls")
        parser.add_argument("--graph", action="append", metavar="GLOB", help="record the call graph of these functions")
        parser.add_argument("--functions", action="append", metavar="GLOB", help="record each call of these functions")
        parser.add_argument("--events", action="append", metavar="EVENT", help="record these events")
        parser.add_argument("--block", action="store_true", help="record the block layer and the driver")
    parser.add_argument("--here", action="store_true", help="on this machine, as root, instead of in a VM")
    add_json(parser)
    vm_options.add_to(parser)
    parser.set_defaults(run=_record if record else _run)


def configure_record(parser: argparse.ArgumentParser) -> None:
    """The same with a recording."""
    configure(parser, record=True)


def _recorded(options: argparse.Namespace) -> dict[str, object]:
    return {
        "syscalls": options.syscalls or not (options.graph or options.functions or options.events or options.block),
        "graph": options.graph,
        "functions": options.functions,
        "events": options.events or [],
        "block": options.block,
    }


def _run(options: argparse.Namespace) -> int:
    return _work(options, None)


def _record(options: argparse.Namespace) -> int:
    return _work(options, _recorded(options))


def _work(options: argparse.Namespace, recorded: dict[str, object] | None) -> int:
    run_dir = Path(options.run_dir or Path("runs") / time.strftime("job-%Y%m%d-%H%M%S")).absolute()
    job_file = Path(options.job_file)
    for word in options.keys:
        if "=" not in word:
            raise InputError(f"{word!r} is no key of a job", expected="KEY=VALUE")
    spec = {
        "job_file": job_file.read_text(),
        "source": str(job_file),
        "keys": dict(word.split("=", 1) for word in options.keys),
        "fs": options.fs,
        "device": options.device,
        "record": recorded,
    }
    # Refused here, before a VM starts, with the file's name and line.
    from sampleblk_lab.workload import JobFile

    JobFile.parse(spec["job_file"], str(job_file), **spec["keys"])
    run_dir.mkdir(parents=True, exist_ok=True)
    (run_dir / "spec.json").write_text(json.dumps(spec, indent=1) + "\n")
    status = _do(options, run_dir)
    result = run_dir / "result.json"
    if not result.exists():
        return status or 1
    if options.json:
        print(json.dumps({"run": str(run_dir), "result": json.loads(result.read_text())}, indent=1))
    else:
        print((run_dir / "report.txt").read_text())
        print(f"The run: {run_dir}   (sampleblk-lab report {run_dir})")
    return status


def _do(options: argparse.Namespace, run_dir: Path) -> int:
    from sampleblk_lab.cli import job_guest

    if options.here:
        return job_guest.work(run_dir)
    options.run_dir = str(run_dir)
    machine = vm_options.build(options)
    with machine:
        done = machine.run(
            [sys.executable, "-m", job_guest.__name__, str(run_dir)],
            stdout=2,  # ours is for the result
            stderr=2,
            env=job_guest.guest_environment(machine),
            timeout=vm_options.timeout_of(options),
        )
    return done.returncode
