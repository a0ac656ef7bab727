# SPDX-License-Identifier: MIT
"""``sampleblk-lab report``: a run's recording and results as one page."""

from __future__ import annotations

import argparse
from pathlib import Path

from sampleblk_lab.cli.output import add_json, path_of, show
from sampleblk_lab.errors import InputError


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options to the command's parser."""
    parser.add_argument(
        "directory", nargs="?", metavar="RUN", help="the run's directory; without one, the measurements below --runs"
    )
    parser.add_argument("--runs", metavar="DIR", help="where tests keep their runs (runs)")
    parser.add_argument("-o", "--output", metavar="FILE", help="the page (report.html in the run's directory)")
    add_json(parser)
    parser.set_defaults(run=report)


def report(options: argparse.Namespace) -> int:
    """Writes the page and says where it is; without a run, lists the measurements there are."""
    if options.directory is None:
        if options.output is not None:
            raise InputError(f"--output {options.output!r} without a RUN", expected="the run that becomes a page")
        from sampleblk_lab.cli.output import show_table
        from sampleblk_lab.results import runs

        # Without the option there may be none yet.
        if options.runs is not None and not Path(options.runs).is_dir():
            raise InputError(f"--runs {options.runs!r} is not a directory", expected="where tests keep their runs")
        where = options.runs or "runs"
        show_table(options, runs(where), f"no measurements below {where}")
        return 0
    from sampleblk_lab.report.run_page import run_page

    directory = path_of(options.directory, "RUN", "the directory of a run")
    if not directory.is_dir():
        raise InputError(f"{directory} is not a directory", expected="the directory of a run")
    target = Path(options.output) if options.output else directory / "report.html"
    target.write_text(run_page(directory).html(), encoding="utf-8")
    show(options, {"report": str(target)}, f"The report: {target}")
    return 0
