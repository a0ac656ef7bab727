# SPDX-License-Identifier: MIT
"""``sampleblk-lab suite-results``: what xfstests, blktests or kdevops left elsewhere, as a table."""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path

from sampleblk_lab.cli.output import add_json, as_json
from sampleblk_lab.texts import readable


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options to the command's parser."""
    parser.add_argument(
        "folder",
        metavar="FOLDER",
        help="results of xfstests (result.xml, check.log, files of single tests) or of blktests, at any depth",
    )
    parser.add_argument("--bad", action="store_true", help="only tests that failed, or of which nothing can be said")
    add_json(parser)
    parser.set_defaults(run=_show)


def _show(options: argparse.Namespace) -> int:
    from sampleblk_lab.suites.others import read_results
    from sampleblk_lab.suites.suite import NOTRUN, PASSED

    found = read_results(Path(options.folder))
    rows = [row for row in found.rows() if not options.bad or row["status"] not in (PASSED, NOTRUN)]
    if options.json:
        print(as_json(rows))
        return 0
    for row in rows:
        took = "" if row["seconds"] != row["seconds"] else f"{row['seconds']:g} s"
        words = (str(row["where"]), str(row["test"]), str(row["status"]), took, str(row["reason"]))
        print(readable("  ".join(filter(None, words))))
    counts = Counter(str(status) for status in found["status"])
    print(", ".join(f"{count} {status}" for status, count in counts.most_common()))
    return 0
