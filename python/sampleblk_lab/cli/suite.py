# SPDX-License-Identifier: MIT
"""``sampleblk-lab xfstests`` and ``sampleblk-lab blktests``: a peer suite in clones of a VM, on our devices."""

from __future__ import annotations

import argparse
import dataclasses
import os
from pathlib import Path
from typing import TYPE_CHECKING

from sampleblk_lab import run_files
from sampleblk_lab.cli.output import add_json, any_text, show, show_table
from sampleblk_lab.errors import InputError
from sampleblk_lab.interrupts import INTERRUPTED
from sampleblk_lab.texts import counted
from sampleblk_lab.vm.options import add_shape, mebibytes

if TYPE_CHECKING:
    from sampleblk_lab.suites import running

_STATUS = """\
exit status: 0 if something was tested and nothing of it is a new failure; 1 on a new failure, on a test that was run in
the baseline and is not run any more, on one of which nothing can be said, or if all tests were not run; 130 when
interrupted. A test that was not run has not passed.
"""


# The file system that is tested where none is named.
_FS = {"xfstests": "ext4", "blktests": ""}


def configure_xfstests(parser: argparse.ArgumentParser) -> None:
    """Adds the options of xfstests."""
    fs = _FS["xfstests"]
    parser.add_argument("--fs", metavar="NAME", help=f"ext2, ext3, ext4, xfs, btrfs or f2fs ({fs})")
    parser.add_argument("--mkfs-options", type=any_text, metavar="TEXT", help="of mkfs, as MKFS_OPTIONS has them")
    parser.add_argument("--mount-options", type=any_text, metavar="LIST", help="after -o, of test and scratch")
    _configure(parser, "xfstests", "generic/001, 'generic/00?', ext4")


def configure_blktests(parser: argparse.ArgumentParser) -> None:
    """Adds the options of blktests."""
    parser.set_defaults(fs=None, mkfs_options=None, mount_options=None)
    _configure(parser, "blktests", "block/003, block, loop")


def _configure(parser: argparse.ArgumentParser, suite: str, example: str) -> None:
    from sampleblk_lab.suites import SUITES
    from sampleblk_lab.suites.suite import DEVICES, MODES

    variable = SUITES[suite].variable
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _STATUS
    parser.add_argument("tests", nargs="*", metavar="TEST", help=f"names, patterns or folders: {example}")
    parser.add_argument(
        "-g", "--group", action="append", default=[], help="tests of this group: quick, auto; repeatable"
    )
    parser.add_argument(
        "-x", "--exclude-group", action="append", default=[], metavar="GROUP", help="but not of this one"
    )
    parser.add_argument("-e", "--exclude", action="append", default=[], metavar="TEST", help="but not these")
    parser.add_argument("-E", "--exclude-file", metavar="FILE", help="but not those that a file names, one in a line")
    parser.add_argument("--list", action="store_true", help="the tests, what they ask for, and what of it is lacking")
    parser.add_argument("-n", "--workers", type=int, metavar="N", help="tests at a time (by processors and memory)")
    parser.add_argument("--checkout", metavar="PATH", help=f"of {suite}; it is only read; ${variable}")
    parser.add_argument("--folder", metavar="PATH", help="where results go (runs/SUITE-DATE)")
    parser.add_argument("--resume", action="store_true", help="go on with the run in --folder")
    parser.add_argument(
        "--baseline",
        metavar="PATH",
        help="an earlier run's folder or results.json, or what the suite left elsewhere: its failures are known",
    )
    parser.add_argument(
        "--known", action="append", default=[], metavar="FILE", help="failures that are known, see the docs"
    )
    parser.add_argument(
        "--deadline", type=float, default=None, metavar="SECONDS", help="how long a test may take (900)"
    )
    parser.add_argument("--device", choices=DEVICES, help="what tests run on (sampleblk)")
    parser.add_argument("--mode", choices=MODES, help="the driver's (mq)")
    parser.add_argument("--capacity", metavar="SIZE", help="of each device (2G)")
    group = parser.add_argument_group("virtual machine")
    group.add_argument(
        "--kernel",
        metavar="NAME",
        help="release or its beginning (6.1), path, Debian suite, or host; $SAMPLEBLK_KERNEL",
    )
    add_shape(group, cpus=1, memory="2G", memory_help="memory; devices take what is written of it")
    parser.add_argument("--quiet", dest="progress", action="store_false", help="show no progress")
    add_json(parser)
    # What is not asked for is a run's that goes on, or as its help says.
    parser.set_defaults(run=_run, suite=suite, cpus=None, memory=None)


def _run(options: argparse.Namespace) -> int:
    from sampleblk_lab.suites import known, packages, running
    from sampleblk_lab.suites.folder import ABOUT, RESULTS, Plan
    from sampleblk_lab.suites.suite import DEADLINE_S, Selection, Setup, words_of_excludes
    from sampleblk_lab.sweeps.trial import Shape

    if options.deadline is not None and not 0 < options.deadline < float("inf"):
        raise InputError(f"--deadline {options.deadline}", expected="a positive number of seconds")
    if options.resume and not options.folder:
        raise InputError("--resume without --folder", expected="the folder of the run that is to go on")
    path = Path(options.folder or "").absolute()
    own = (path.resolve(), path.resolve() / RESULTS)
    if options.baseline and options.folder and Path(options.baseline).resolve() in own:
        raise InputError(f"--baseline {options.baseline} is of the run itself", expected="an earlier run")
    # Before the long part: a name that is wrong is told at once.
    known_failures = [line for name in options.known for line in known.read(Path(name))]
    before = known.baseline(Path(options.baseline)) if options.baseline else None
    beside = known.origin(Path(options.baseline), options.suite) if options.baseline else ""
    lacking = packages.check(options.suite)
    excluded = words_of_excludes(options.exclude_file) if options.exclude_file else []
    selection = Selection(
        tuple(options.tests),
        tuple(_split(options.group)),
        tuple(_split(options.exclude_group)),
        (*options.exclude, *excluded),
    )
    asked = {
        "fs": options.fs,
        "device": options.device,
        "mode": options.mode,
        "capacity_bytes": _bytes(options.capacity, "--capacity"),
        "mkfs": options.mkfs_options,
        "mount": options.mount_options,
    }
    memory_mib = None if options.memory is None else mebibytes("--memory", options.memory)
    vm = {"cpus": options.cpus, "memory_mib": memory_mib, "accel": options.accel}
    setup, machine = Setup(fs=_FS[options.suite]), {"cpus": 1, "memory_mib": 2048}
    deadline_s = options.deadline or DEADLINE_S
    kernel = options.kernel or os.environ.get("SAMPLEBLK_KERNEL")
    if options.resume:
        plan = Plan.load(path)
        if plan.suite != options.suite:
            raise InputError(f"{path} has a run of {plan.suite}", expected=f"one of {options.suite}")
        if not (options.tests or options.group):
            # What is asked for beside it makes another run, and that is refused below.
            selection = dataclasses.replace(selection, names=plan.tests)
            setup = plan.setup
            kernel = options.kernel or plan.kernel
            machine = {name: plan.machine[name] for name in vm if plan.machine[name] is not None}
            deadline_s = options.deadline or plan.deadline_s
    elif options.folder and (path / ABOUT).exists() and not options.list:
        raise InputError(f"{path} has a run already", expected="--resume, or another --folder")
    setup = dataclasses.replace(setup, **{name: value for name, value in asked.items() if value is not None})
    machine |= {name: value for name, value in vm.items() if value is not None}
    prepared = running.prepare(
        options.suite,
        selection,
        setup,
        where=options.checkout,
        kernel=kernel,
        shape=Shape.of(machine),
        deadline_s=deadline_s,
    )
    if options.list:
        show_table(options, prepared.requirements(), "no test")
        return 0
    if options.progress:
        _say_lacking(prepared, [package.name for package in lacking])
    ran = running.run(
        prepared,
        path if options.folder else run_files.new_directory(options.suite, "--folder"),
        workers=options.workers,
        known_failures=known_failures,
        before=before,
        beside=beside,
        progress=options.progress,
    )
    show(options, ran.json(), ran.text())
    if ran.interrupted:
        return INTERRUPTED
    return 0 if ran.judged.ok else 1


def _bytes(text: str | None, option: str) -> int | None:
    from sampleblk_lab._native import core

    return None if text is None else core.parse_bytes(text, option)


def _split(groups: list[str]) -> list[str]:
    return [each for group in groups for each in group.split(",") if each]


def _say_lacking(prepared: running.Prepared, packages_: list[str]) -> None:
    """What is known to be lacking before anything runs: those tests will not be run."""
    from sampleblk_lab.progress import note

    if packages_:
        note(f"some tests want Debian's {', '.join(dict.fromkeys(packages_))}")
    for what, count in prepared.lacking().most_common():
        note(f"{count} of {counted(len(prepared.tests), 'test')} ask for {what}, which is lacking")
