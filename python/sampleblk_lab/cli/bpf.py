# SPDX-License-Identifier: MIT
"""``sampleblk-lab bpf`` and ``bcc``: a bpftrace script, or a tool of bcc's, beside a command, in a VM or here."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from sampleblk_lab.bpftrace.recording import run_command
from sampleblk_lab.bpftrace.script import find, names
from sampleblk_lab.bpftrace.tool import find_tool, run_beside_tool
from sampleblk_lab.cli.output import add_json, refuse_unused, show
from sampleblk_lab.errors import InputError
from sampleblk_lab.interrupts import GRACE_S
from sampleblk_lab.paths import located
from sampleblk_lab.vm import options as vm_options

if TYPE_CHECKING:
    from collections.abc import Callable

    from sampleblk_lab.bpftrace.output import BpfOutput

Found = TypeVar("Found")


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options of bpf."""
    parser.usage = "sampleblk-lab bpf [options] SCRIPT [ARG...] -- CMD [ARG...]"
    parser.add_argument(
        "script", help=f"a path, the text, {', '.join(names())}, or one of bpftrace's own tools, such as biosnoop.bt"
    )
    parser.add_argument("args", nargs="*", metavar="ARG", help="what the script has as $1, $2, …")
    parser.add_argument("--unsafe", action="store_true", help="allow system() and its like in the script")
    parser.add_argument("--save", metavar="DIR", help="keep what bpftrace printed, for lab.read_bpftrace()")
    _configure(parser, _bpf)


def configure_bcc(parser: argparse.ArgumentParser) -> None:
    """Adds the options of bcc."""
    parser.usage = "sampleblk-lab bcc [options] TOOL [ARG...] -- CMD [ARG...]"
    parser.add_argument("tool", help="one of libbpf-tools (ext4dist), of bcc's in Python, or a path")
    parser.add_argument("args", nargs=argparse.REMAINDER, metavar="ARG", help="the tool's arguments")
    _configure(parser, _bcc)


def _configure(parser: argparse.ArgumentParser, run: Callable[[argparse.Namespace], int]) -> None:
    parser.epilog = "The exit status is the command's."
    parser.add_argument("--here", action="store_true", help="on this machine, as root, instead of in a VM")
    add_json(parser)
    vm_options.add_to(parser)
    parser.set_defaults(run=run)


def _bpf(options: argparse.Namespace) -> int:
    find(options.script)  # refused here, before a VM starts
    found, status = _beside(options, run_command, options.script, args=options.args, unsafe=options.unsafe)
    if options.save:
        found.save(options.save)
    show(options, _told(found), found.text())
    return status


def _bcc(options: argparse.Namespace) -> int:
    find_tool(options.tool)
    found, status = _beside(options, run_beside_tool, options.tool, args=options.args)
    show(options, found.as_json(), repr(found))
    return status


def _beside(
    options: argparse.Namespace, run: Callable[..., tuple[Found, int]], what: str, **how: Any
) -> tuple[Found, int]:
    """Runs the command beside a tracer, here or in a VM."""
    if not options.words:
        raise InputError("no command to run it beside", expected="-- and a command")
    command = located(options.words)
    if options.here:
        refuse_unused(options, vm_options.defaults(), "no option of a VM with --here")
        return run(what, command, **how)
    from sampleblk_lab.vm.calls import call

    how["cwd"] = str(Path.cwd())
    with vm_options.build(options) as machine:
        timeout = vm_options.timeout_of(options)
        found: tuple[Found, int] = call(machine, run, (what, command), how, timeout=timeout, grace_s=GRACE_S)
        return found


def _told(found: BpfOutput) -> dict[str, object]:
    return {
        "maps": {name: list(found.table(name)) for name in found.maps},
        "printed": found.printed,
        "texts": list(found.texts()),
        "lost_events": found.lost_events,
        "helper_errors": list(found.helper_errors()),
        "unread_lines": found.unread_lines,
        "warnings": found.warnings,
        "incomplete": found.incomplete,
    }
