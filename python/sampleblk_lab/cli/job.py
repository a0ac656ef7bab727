# SPDX-License-Identifier: MIT
"""``sampleblk-lab run`` and ``record``: a job file, or a command, on a fresh device, in a VM or here."""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from sampleblk_lab import run_files
from sampleblk_lab.cli.device import device_parameters
from sampleblk_lab.cli.output import add_json, input_of, refuse_unused
from sampleblk_lab.errors import InputError
from sampleblk_lab.interrupts import GRACE_S, INTERRUPTED
from sampleblk_lab.paths import located
from sampleblk_lab.texts import read_text
from sampleblk_lab.vm import options as vm_options

if TYPE_CHECKING:
    from sampleblk_lab.vm import VM

# What there is of a job, and of a command, that ran.
_RESULTS = ("result.json", "command.json")


def configure(parser: argparse.ArgumentParser, *, record: bool = False) -> None:
    """Adds the options to the command's parser."""
    parser.add_argument(
        "job_file",
        nargs="?" if record else None,
        help="a fio job file; its files are relative to the mount, or DEVICE for the device",
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
        parser.add_argument("--profile", action="store_true", help="sample what the CPUs run")
        parser.add_argument("--hz", type=int, help="samples a second, with --profile (997)")
        parser.usage = "sampleblk-lab record [options] JOB_FILE [KEY=VALUE...] | [options] -- CMD [ARG...]"
        parser.epilog = "In a command, the words MOUNT and DEVICE stand for the file system and the device."
    parser.add_argument("--here", action="store_true", help="on this machine, as root, instead of in a VM")
    add_json(parser)
    vm_options.add_to(parser)
    parser.set_defaults(run=_record if record else _run)


def configure_record(parser: argparse.ArgumentParser) -> None:
    """The same with a recording."""
    configure(parser, record=True)


def _recorded(options: argparse.Namespace) -> dict[str, object]:
    if options.hz is not None and not options.profile:
        raise InputError(f"--hz {options.hz} of no profile", expected="--profile")
    if options.hz is not None and options.hz < 1:
        raise InputError(f"--hz {options.hz}", expected="samples a second, from 1 on")
    others = (options.graph, options.functions, options.events, options.block, options.profile)
    return {
        "syscalls": options.syscalls or not any(others),
        "graph": options.graph,
        "functions": options.functions,
        "events": options.events or [],
        "block": options.block,
        "profile": (997 if options.hz is None else options.hz) if options.profile else None,
    }


def _run(options: argparse.Namespace) -> int:
    return _work(options, None)


def _record(options: argparse.Namespace) -> int:
    return _work(options, _recorded(options))


def _work(options: argparse.Namespace, recorded: dict[str, object] | None) -> int:
    from sampleblk_lab.device.filesystem import Filesystem

    what = _command(options) if options.words else _job(options)
    # Refused here, too, before a VM starts and before an earlier run goes.
    device_parameters(options.device)
    if options.fs != "none":
        Filesystem("", options.fs)
    spec = {**what, "fs": options.fs, "device": options.device, "record": recorded}
    if options.here:
        refuse_unused(options, vm_options.defaults(), "no option of a VM with --here")
    machine = None if options.here else vm_options.build(options)
    if options.run_dir:
        run_dir = Path(options.run_dir).absolute()
        run_dir.mkdir(parents=True, exist_ok=True)
        run_files.remove_recording(run_dir)
        run_files.remove(run_dir, *run_files.OF_A_JOB)
    else:
        run_dir = run_files.new_directory("command" if options.words else "job")
    (run_dir / "spec.json").write_text(json.dumps(spec, indent=1) + "\n")
    try:
        status = _do(machine, run_dir, vm_options.timeout_of(options))
    finally:
        # Nothing ran, such as without the driver.
        if not options.run_dir and [path.name for path in run_dir.iterdir()] == ["spec.json"]:
            shutil.rmtree(run_dir)
    result = run_dir / _RESULTS[bool(options.words)]
    if not result.exists():
        return status or 1
    told = json.loads(result.read_text())
    if options.json:
        print(json.dumps({"run": str(run_dir), "command" if options.words else "result": told}, indent=1))
        return status
    if options.words:
        code = told["returncode"]
        ended = f"exit status {code}" if code >= 0 else f"ended by signal {-code} ({signal.strsignal(-code)})"
        print(f"{shlex.join(told['command'])}: {ended} after {told['elapsed_s']:.3f} s")
    else:
        print((run_dir / "report.txt").read_text())
    print(f"The run: {run_dir}   (sampleblk-lab report {shlex.quote(str(run_dir))})")
    return status


def _job(options: argparse.Namespace) -> dict[str, object]:
    """What to run, of a job file; refused here, before a VM starts, with the file's name and line."""
    from sampleblk_lab.workload import JobFile

    if options.job_file is None:
        raise InputError("nothing to record", expected="a job file, or -- and a command")
    job_file = input_of(options.job_file, "job_file", "a fio job file")
    for word in options.keys:
        if "=" not in word:
            raise InputError(f"{word!r} is not a key of a job", expected="KEY=VALUE")
    text = read_text(job_file)
    keys = dict(word.split("=", 1) for word in options.keys)
    JobFile.parse(text, str(job_file), **keys)
    return {"job_file": text, "source": str(job_file), "keys": keys}


def _command(options: argparse.Namespace) -> dict[str, object]:
    """What to run, of a command; its program is looked up here, where the user sees it."""
    if options.job_file is not None:
        raise InputError(f"both {options.job_file!r} and a command", expected="one of them")
    return {"command": located(options.words), "source": " ".join(options.words), "cwd": str(Path.cwd())}


def _do(machine: VM | None, run_dir: Path, timeout_s: float | None) -> int:
    from sampleblk_lab.cli import job_guest

    if machine is None:
        return job_guest.work(run_dir)
    machine.run_dir = run_dir.resolve()
    with machine:
        done = machine.run(
            [sys.executable, "-m", job_guest.__name__, str(run_dir)],
            stdout=2,  # ours is for the result
            stderr=2,
            env=job_guest.guest_environment(machine),
            timeout=timeout_s,
            grace_s=GRACE_S,
        )
    # Before the work began, Python says something else.
    cut_short = done.interrupted and not any((run_dir / name).exists() for name in _RESULTS)
    return INTERRUPTED if cut_short or done.returncode == -signal.SIGINT else done.returncode
