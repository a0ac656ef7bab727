# SPDX-License-Identifier: MIT
"""``sampleblk-lab compare``: two saved sets, or two ways to run the same tests, alternately."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path

from sampleblk_lab import checked, interrupts
from sampleblk_lab.cli.output import add_json, show
from sampleblk_lab.errors import InputError
from sampleblk_lab.texts import readable


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options to the command's parser."""
    parser.usage = "sampleblk-lab compare [options] BEFORE AFTER [-- PYTEST ARGUMENTS]"
    parser.description = (
        "Compares the sets BEFORE and AFTER, as --sblk-save named them. With --rounds it makes them first: it runs "
        "pytest with the arguments after -- and those of --before-args or --after-args, alternately (A B, B A, A B, "
        "…), so that a machine that changes meanwhile changes both."
    )
    parser.add_argument("before", metavar="BEFORE", help="the one set")
    parser.add_argument("after", metavar="AFTER", help="the other")
    parser.add_argument("--rounds", type=int, default=0, metavar="N", help="run both N times, alternately; 6 or more")
    parser.add_argument("--before-args", default="", metavar="ARGS", help="pytest's arguments for BEFORE only")
    parser.add_argument("--after-args", default="", metavar="ARGS", help="pytest's arguments for AFTER only")
    parser.add_argument("--across", action="append", default=[], help="accelerator, kernel, machine: may differ")
    parser.add_argument("--runs", default="runs", metavar="DIR", help="where tests keep their runs (runs)")
    parser.add_argument(
        "--fail-slower", action="store_true", help="end with status 1 when one is slower or cannot be compared"
    )
    parser.add_argument("--allow-new", action="store_true", help="with --fail-slower: pass what only AFTER has")
    parser.add_argument("-o", "--output", metavar="FILE", help="also write a page")
    add_json(parser)
    parser.set_defaults(run=run)


def _pytest(options: argparse.Namespace, name: str, own: list[str]) -> set[str]:
    """Runs the tests once, for a set; returns those that measured anything."""
    from sampleblk_lab.results import store

    before = set((Path(options.runs) / name).glob("[0-9]*"))
    command = [sys.executable, "-m", "pytest", "-q", *options.words, *own]
    command += ["--sblk-save", name, "--sblk-runs", str(Path(options.runs).absolute())]
    # Standard output is the comparison's.
    status = interrupts.run(command, end_factor=interrupts.END_FACTOR, stdout=2)
    if status != 0:
        raise InputError(f"pytest ended with status {status}: {shlex.join(command)}", expected="tests that pass")
    made = set((Path(options.runs) / name).glob("[0-9]*")) - before
    found = {run.test for folder in made for run in store.load_round(folder) if run.measurements}
    if not found:
        raise InputError(f"no test measured anything: {shlex.join(command)}", expected="tests that are not skipped")
    return found


def run(options: argparse.Namespace) -> int:
    """Runs what is to be run, and prints the verdicts."""
    from sampleblk_lab.results import sets, store

    if options.before == options.after:
        raise InputError(f"{options.before!r} beside itself", expected="two sets")
    if options.rounds < 0:
        raise InputError(f"--rounds {options.rounds}", expected="0 or more")
    if options.rounds and store.LATEST in (options.before, options.after):
        raise InputError(f"--rounds of {store.LATEST!r}, which keeps one session", expected="two other sets")
    own = [
        checked.words(option, text)
        for option, text in (("--before-args", options.before_args), ("--after-args", options.after_args))
    ]
    unused = [*options.words, *own[0], *own[1]]
    if unused and not options.rounds:
        raise InputError(f"{shlex.join(unused)!r} for pytest, which is not run", expected="--rounds N")
    measured: dict[str, set[str]] = {options.before: set(), options.after: set()}
    if options.rounds:
        sides = list(zip((options.before, options.after), own, strict=True))
        for number in range(options.rounds):
            for name, arguments in sides if number % 2 == 0 else reversed(sides):
                measured[name] |= _pytest(options, name, arguments)
    runs = Path(options.runs)
    found = {}
    for name in (options.before, options.after):
        kept = store.load(runs, store.check_name(name, "compare"))
        # What only rounds of before have says nothing of how it is now.
        found[name] = [run for run in kept if not options.rounds or run.test in measured[name]]
        if not any(run.measurements for run in found[name]):
            raise InputError(f"there are no measurements in {runs / name}", expected="a set that --sblk-save made")
    rows = sets.compare_sets(found[options.before], found[options.after], across=options.across)
    show(options, sets.to_json(rows), "\n".join(sets.text(rows)))
    if options.output:
        from sampleblk_lab.report.run_page import comparison_page

        page = comparison_page(options.before, options.after, rows).html()
        Path(options.output).write_text(page, encoding="utf-8")
    failing = sets.failures(rows, allow_new=options.allow_new)
    if not options.fail_slower or not failing:
        return 0
    for row in failing:
        print(readable(f"sampleblk-lab compare: {row.name}: {row.refused or row.verdict}"), file=sys.stderr)
    return 1
