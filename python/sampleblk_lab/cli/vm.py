# SPDX-License-Identifier: MIT
"""``sampleblk-lab vm run|shell``."""

from __future__ import annotations

import argparse
import os
import sys

from sampleblk_lab.vm import options as vm_options
from sampleblk_lab.vm.python import run_in_vm


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the actions to the command's parser."""
    actions = parser.add_subparsers(metavar="ACTION", required=True)

    running = actions.add_parser("run", help="run a command", usage="sampleblk-lab vm run [options] -- CMD [ARG...]")
    vm_options.add_to(running)
    running.add_argument("command", nargs=argparse.REMAINDER, metavar="-- CMD", help="the command and its arguments")
    running.set_defaults(run=_run)

    shell = actions.add_parser("shell", help="an interactive shell")
    vm_options.add_to(shell)
    shell.set_defaults(run=_shell)


def _vm_argv(options: argparse.Namespace) -> list[str]:
    argv = []
    for option in vm_options.OPTIONS:
        value = getattr(options, option.removeprefix("--").replace("-", "_"))
        if value is True:
            argv.append(option)
        elif value is not None and value is not False:
            argv += [option, value]
    return argv


def _run(options: argparse.Namespace) -> int:
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not command:
        print("sampleblk-lab: vm run: no command given; sampleblk-lab vm run -- uname -a", file=sys.stderr)
        return 2
    return run_in_vm(command, _vm_argv(options), "sampleblk-lab")


def _shell(options: argparse.Namespace) -> int:
    return run_in_vm([os.environ.get("SHELL", "/bin/sh")], _vm_argv(options), "sampleblk-lab")
