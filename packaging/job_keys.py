# SPDX-License-Identifier: MIT
"""Writes the table of job-file keys into docs/reference/workload.md, from the one that the parser reads.

    python packaging/job_keys.py [--check] docs/reference/workload.md

With --check nothing is written: exit status 1 says that the page is out of date.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import sampleblk_lab as lab

BEGIN = "<!-- keys: written by packaging/job_keys.py -->\n"
END = "<!-- end of keys -->\n"

SUPPORT = {"full": "yes", "accepted": "no effect here", "refused": "refused"}


def cell(text: object) -> str:
    """Text for a cell of a Markdown table."""
    return str(text or "").replace("|", "\\|")


def table() -> str:
    """The keys as a Markdown table, in the order of the parser's."""
    lines = ["| key | form | default | changes the | supported | |", "|---|---|---|---|---|---|"]
    for row in lab.job_keys().rows():
        names = ", ".join(f"`{name}`" for name in [str(row["key"]), *str(row["alias"] or "").split()])
        form = f"`{cell(row['form'])}`" if row["form"] else ""
        lines.append(
            f"| {names} | {form} | {cell(row['default'])} | {row['changes']} | {SUPPORT[str(row['support'])]} "
            f"| {cell(row['help'])} |"
        )
    return "\n".join(lines) + "\n"


def main() -> int:
    """Writes or checks the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("page", type=Path)
    arguments = parser.parse_args()
    page = arguments.page.read_text()
    begin = page.index(BEGIN) + len(BEGIN)
    fresh = page[:begin] + table() + page[page.index(END) :]
    if fresh == page:
        return 0
    if arguments.check:
        print(f"{arguments.page}: the table of keys is out of date; run {sys.argv[0]} {arguments.page}")
        return 1
    arguments.page.write_text(fresh)
    return 0


if __name__ == "__main__":
    sys.exit(main())
