# SPDX-License-Identifier: MIT
"""``sampleblk-lab doctor``: what works on this machine, and how to fix what does not."""

from __future__ import annotations

import argparse

from sampleblk_lab.cli.output import add_json, show


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options to the command's parser."""
    add_json(parser)
    parser.add_argument("--host", action="store_true", help="also look at what pytest --sblk-host takes")
    parser.add_argument("--vm", action="store_true", help="also start a VM and look inside")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Prints each check; returns 1 when one that everything needs has failed."""
    from sampleblk_lab import doctor

    checks = doctor.examine(host=options.host, vm=options.vm)
    width = max(len(check.name) for check in checks)
    lines = []
    for check in checks:
        lines.append(f"{check.state:7} {check.name:{width}}  {check.found}")
        if check.remedy:
            lines.append(f"{'':8}{'':{width}}  → {check.remedy}")
    worst = [check for check in checks if check.state == doctor.FAILED]
    lines.append("")
    lines.append(f"{len(worst)} of {len(checks)} failed" if worst else "ready: sampleblk-lab demo")
    values = [{"name": c.name, "state": c.state, "found": c.found, "remedy": c.remedy} for c in checks]
    show(options, {"ready": not worst, "checks": values}, "\n".join(lines))
    return 1 if worst else 0
