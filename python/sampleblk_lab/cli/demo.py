# SPDX-License-Identifier: MIT
"""``sampleblk-lab demo``."""

from __future__ import annotations

import argparse
import contextlib
from pathlib import Path

from sampleblk_lab import run_files
from sampleblk_lab.cli.output import add_json, as_json
from sampleblk_lab.errors import InputError
from sampleblk_lab.vm import options as vm_options


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options to the command's parser."""
    parser.add_argument("--loops", type=int, default=20, metavar="N", help="loops of each of the two jobs (20)")
    add_json(parser)
    vm_options.add_to(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Runs the demo; returns the exit status."""
    if options.loops < 1:
        raise InputError(f"--loops {options.loops} is out of range", expected="1 or more")
    from sampleblk_lab.demo import host

    machine = vm_options.build(options)
    run_dir = Path(options.run_dir).absolute() if options.run_dir else run_files.new_directory("demo")
    machine.run_dir = run_dir.resolve()
    try:
        host.record(machine, run_dir, options.loops, vm_options.timeout_of(options))
    finally:
        machine.close()
        if not options.run_dir:
            with contextlib.suppress(OSError):
                run_dir.rmdir()  # nothing was recorded
    report = host.show(run_dir, options.loops, quiet=options.json)
    if options.json:
        print(as_json({"run": str(run_dir), "report": str(report), **host.facts(run_dir)}))
    else:
        print(f"\nThe report: {report}")
    return 0
