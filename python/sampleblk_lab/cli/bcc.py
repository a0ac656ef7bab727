# SPDX-License-Identifier: MIT
"""``sampleblk-lab bcc``: a tool of bcc's beside a command, in a VM or here."""

from __future__ import annotations

import argparse
from pathlib import Path

from sampleblk_lab.bpftrace.tool import find_tool, run_beside_tool
from sampleblk_lab.cli.output import add_json, show
from sampleblk_lab.errors import InputError
from sampleblk_lab.paths import located
from sampleblk_lab.vm import options as vm_options


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options to the command's parser."""
    parser.usage = "sampleblk-lab bcc [options] TOOL [ARG...] -- CMD [ARG...]"
    parser.epilog = "The exit status is the command's."
    parser.add_argument("tool", help="one of libbpf-tools (ext4dist), of bcc's in Python, or a path")
    parser.add_argument("args", nargs=argparse.REMAINDER, metavar="ARG", help="the tool's arguments")
    parser.add_argument("--here", action="store_true", help="on this machine, as root, instead of in a VM")
    add_json(parser)
    vm_options.add_to(parser)
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    if not options.words:
        raise InputError("no command to run the tool beside", expected="-- and a command")
    find_tool(options.tool)  # refused here, before a VM starts
    command = located(options.words)
    if options.here:
        found, status = run_beside_tool(options.tool, options.args, command)
    else:
        with vm_options.build(options) as machine:
            found, status = machine.call(run_beside_tool, options.tool, options.args, command, cwd=str(Path.cwd()))
    show(options, found.as_json(), repr(found))
    return status
