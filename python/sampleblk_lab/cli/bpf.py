# SPDX-License-Identifier: MIT
"""``sampleblk-lab bpf``: a bpftrace script beside a command, in a VM or here."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sampleblk_lab.bpftrace.recording import run_command
from sampleblk_lab.bpftrace.script import find, names
from sampleblk_lab.cli.output import add_json, show
from sampleblk_lab.errors import InputError
from sampleblk_lab.paths import located
from sampleblk_lab.vm import options as vm_options

if TYPE_CHECKING:
    import argparse

    from sampleblk_lab.bpftrace.output import BpfOutput


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options to the command's parser."""
    parser.usage = "sampleblk-lab bpf [options] SCRIPT [ARG...] -- CMD [ARG...]"
    parser.epilog = "The exit status is the command's."
    parser.add_argument(
        "script", help=f"a path, the text, {', '.join(names())}, or one of bpftrace's own tools, such as biosnoop.bt"
    )
    parser.add_argument("args", nargs="*", metavar="ARG", help="what the script has as $1, $2, …")
    parser.add_argument("--unsafe", action="store_true", help="allow system() and its like in the script")
    parser.add_argument("--save", metavar="DIR", help="keep what bpftrace printed, for lab.read_bpftrace()")
    parser.add_argument("--here", action="store_true", help="on this machine, as root, instead of in a VM")
    add_json(parser)
    vm_options.add_to(parser)
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    if not options.words:
        raise InputError("no command to run the script beside", expected="-- and a command")
    find(options.script)  # refused here, before a VM starts
    command = located(options.words)
    how = {"args": options.args, "unsafe": options.unsafe}
    if options.here:
        found, status = run_command(options.script, command, **how)
    else:
        with vm_options.build(options) as machine:
            found, status = machine.call(run_command, options.script, command, cwd=str(Path.cwd()), **how)
    if options.save:
        found.save(options.save)
    show(options, _told(found), repr(found))
    return status


def _told(found: BpfOutput) -> dict[str, object]:
    return {
        "maps": {name: list(found.table(name)) for name in found.maps},
        "printed": found.printed,
        "lost_events": found.lost_events,
        "helper_errors": list(found.helper_errors()),
        "unread_lines": found.unread_lines,
        "warnings": found.warnings,
    }
