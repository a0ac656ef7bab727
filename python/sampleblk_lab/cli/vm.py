# SPDX-License-Identifier: MIT
"""``sampleblk-lab vm run|prepare|probe|shell``."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
from typing import TYPE_CHECKING

from sampleblk_lab.cli.output import add_json, as_json, show
from sampleblk_lab.interrupts import shell_status
from sampleblk_lab.vm import options as vm_options
from sampleblk_lab.vm.errors import VMError
from sampleblk_lab.vm.python import run_in_vm

if TYPE_CHECKING:
    from sampleblk_lab.vm.machine import Completed


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the actions to the command's parser."""
    actions = parser.add_subparsers(metavar="ACTION", required=True)

    running = actions.add_parser("run", help="run a command", usage="sampleblk-lab vm run [options] -- CMD [ARG...]")
    vm_options.add_to(running)
    running.add_argument(
        "--json", action="store_true", help="as JSON: the command's status, what it wrote, and the VM it ran in"
    )
    running.add_argument("command", nargs=argparse.REMAINDER, metavar="-- CMD", help="the command and its arguments")
    running.set_defaults(run=_run)

    preparing = actions.add_parser(
        "prepare", help="boot the machine that VMs are cloned from, so that the first is fast"
    )
    vm_options.add_to(preparing)
    add_json(preparing)
    preparing.set_defaults(run=_prepare)

    probe = actions.add_parser("probe", help="try KVM again, whatever an earlier try has shown")
    add_json(probe)
    probe.set_defaults(run=_probe)

    shell = actions.add_parser("shell", help="an interactive shell")
    vm_options.add_to(shell)
    shell.set_defaults(run=_shell)


def _prepare(options: argparse.Namespace) -> int:
    with contextlib.closing(vm_options.build(options)) as machine:
        made = machine.make_template()
    show(options, {"template": None if made is None else str(made)}, str(made or "nothing was saved: VMs will boot"))
    return 0 if made else 1


def _probe(options: argparse.Namespace) -> int:
    from sampleblk_lab.vm import accel
    from sampleblk_lab.vm.machine import VM
    from sampleblk_lab.vm.qemu import find

    if not accel.usable():
        why = f"{accel.DEVICE} cannot be opened"
        show(options, {"accel": "tcg", "why": why}, f"{why}, so VMs are emulated (TCG)")
        return 1
    accel.forget(find())
    os.environ.pop("SAMPLEBLK_ACCEL", None)  # with it nothing is tried
    VM(driver=False).close()  # asks what to use
    verdict = accel.known(find())
    if verdict is None:
        show(options, None, "the verdict could not be kept; the cache cannot be written")
        return 1
    show(options, {"accel": verdict.accel, "why": verdict.why}, f"{verdict.accel}: {verdict.why}")
    return 0 if verdict.accel == "kvm" else 1


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
    if options.json:
        return _run_json(command, options)
    return run_in_vm(command, _vm_argv(options), "sampleblk-lab", came=options.came)


def _run_json(command: list[str], options: argparse.Namespace) -> int:
    done: Completed | VMError
    with vm_options.build(options) as machine:
        described = json.loads(machine.describe())
        try:
            done = machine.run(command, timeout=vm_options.timeout_of(options))
            status = shell_status(done.returncode)
        except VMError as error:
            done, status = error, error.exit_status
            if not options.quiet:
                print(f"sampleblk-lab: {error}", file=sys.stderr)
    written = {name: (getattr(done, name) or b"").decode(errors="replace") for name in ("stdout", "stderr")}
    failed = {"error": done.message} if isinstance(done, VMError) else {}
    print(as_json({"status": status, **written, **failed, "vm": described}))
    return status


def _shell(options: argparse.Namespace) -> int:
    return run_in_vm([os.environ.get("SHELL", "/bin/sh")], _vm_argv(options), "sampleblk-lab", came=options.came)
