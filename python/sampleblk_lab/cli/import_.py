# SPDX-License-Identifier: MIT
"""``sampleblk-lab import``: what another tool recorded, as a run."""

from __future__ import annotations

import argparse
import shlex

from sampleblk_lab.cli.output import add_json, show


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options to the command's parser."""
    parser.add_argument(
        "source",
        nargs="+",
        metavar="FILE",
        help="text of perf script, trace-cmd report, trace_pipe, biosnoop or iosnoop; or blktrace's files, or their "
        "name before .blktrace.0",
    )
    parser.add_argument("-o", "--output", required=True, metavar="RUN", help="the run's directory, which is made")
    parser.add_argument("--skip", action="store_true", help="count what cannot be read instead of stopping there")
    add_json(parser)
    parser.set_defaults(run=convert)


def convert(options: argparse.Namespace) -> int:
    """Writes the run and says what was found."""
    from sampleblk_lab.analysis.imports import import_run

    run = import_run(*options.source, directory=options.output, errors="skip" if options.skip else "strict")
    found = run.options["imported"]
    width = max(map(len, found))
    lines = [f"{name:{width}}  {value}" for name, value in found.items()]
    lines.append(f"The run: {options.output}; as a page: sampleblk-lab report {shlex.quote(options.output)}")
    show(options, {"run": options.output, **found}, "\n".join(lines))
    return 0
