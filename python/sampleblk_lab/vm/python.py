# SPDX-License-Identifier: MIT
"""``sampleblk-python ARGS…``: a Python interpreter whose process runs as root in a VM.

It behaves as ``python ARGS…`` does: binary-clean standard streams, exit status, signals, environment, umask,
working directory. So whatever starts an interpreter (pytest-xdist, Jupyter, a shell script) can have it in a VM.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from sampleblk_lab.errors import SampleblkError
from sampleblk_lab.paths import IN_VM
from sampleblk_lab.progress import occupy_standard_streams
from sampleblk_lab.vm import options as vm_options

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import NoReturn

    from sampleblk_lab.vm.machine import VM

    _Work = Callable[[Sequence[str], argparse.Namespace], int]

# What whoever started us may send on to the command; SIGKILL ends the VM with us.
_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)

# Gives up on the command as its deadline does: the error has the stacks of what hangs.
GIVE_UP = signal.SIGRTMIN

_USAGE = """\
usage: sampleblk-python [VM OPTIONS] [PYTHON ARGUMENTS]

A Python interpreter that runs as root in a virtual machine with the sampleblk driver at hand.

VM options, some also environment variables:
{options}
"""


def main(work: _Work | None = None) -> int:
    """The command's entry point; returns the exit status.

    Args:
        work: What is done with the VM besides; None: it is started, and runs the command.
    """
    occupy_standard_streams()
    try:
        mine, rest = vm_options.split(sys.argv[1:])
    except SampleblkError as error:
        print(f"sampleblk-python: {error}", file=sys.stderr)
        return 2
    if rest[:1] == ["--vm-help"]:
        lines = [
            f"  {f'{option} {metavar}':18} {vm_options.described(option)}"
            for option, (metavar, _, _) in vm_options.OPTIONS.items()
        ]
        print(_USAGE.format(options="\n".join(lines)))
        return 0
    return run_in_vm([sys.executable, *rest], mine, "sampleblk-python", work)


def run_in_vm(
    command: Sequence[str], vm_argv: Sequence[str], program: str, work: _Work | None = None, came: Sequence[int] = ()
) -> int:
    """Runs a command in a new VM with our own standard streams.

    Args:
        command: The command; in a VM already, it replaces this process.
        vm_argv: VM options, as :mod:`sampleblk_lab.vm.options` has them.
        program: The name to complain under.
        work: As for :func:`main`.
        came: Signals that came and were made KeyboardInterrupt, of :func:`~sampleblk_lab.interrupts.ended_like_ctrl_c`.

    Returns:
        The command's exit status; 122 to 127 when the VM failed (:mod:`sampleblk_lab.vm.errors`). A command that a
        signal ended ends us by the same signal.
    """
    if IN_VM in os.environ:
        os.execvp(command[0], list(command))
    options = vm_options.parsed(vm_argv, program)
    from sampleblk_lab.vm.errors import VMError

    signal.signal(GIVE_UP, _give_up)
    try:
        status = (work or _run)(command, options)
    except VMError as error:
        if not options.quiet:
            print(f"{program}: {error}", file=sys.stderr)
        return error.exit_status
    except (SampleblkError, OSError) as error:
        print(f"{program}: {error}", file=sys.stderr)
        return 125
    except KeyboardInterrupt:
        # Before the command ran; from then on the signal is the command's.
        status = -came[0] if came else -signal.SIGINT
    gc.freeze()  # a search for cycles as we end is 8 of the 430 ms that all takes
    if status < 0:
        die_by(-status)
    return status


def _run(command: Sequence[str], options: argparse.Namespace) -> int:
    timeout = vm_options.timeout_of(options)
    machine = vm_options.build(options)
    terminal = os.isatty(0) and os.isatty(1)
    with machine:
        environment = _environment(machine)
        if terminal:
            from sampleblk_lab.vm.terminal import run_on_terminal

            return run_on_terminal(machine, command, environment, timeout)
        done = machine.run(
            command, stdin=0, stdout=1, stderr=2, env=environment, timeout=timeout, forward_signals=_FORWARDED
        )
        return done.returncode


def _environment(machine: VM) -> dict[str, str]:
    environment = {**os.environ, IN_VM: machine.describe()}
    if machine.run_dir is not None:
        environment["SAMPLEBLK_RUN_DIR"] = str(machine.run_dir)
    return environment


def make_image(command: Sequence[str], options: argparse.Namespace) -> int:
    """For :func:`main`: the command parks, and its machine is an image until standard input ends."""
    with contextlib.closing(vm_options.build(options)) as machine:
        machine.start_image()
        done = machine.run(command, stdin=0, stdout=1, stderr=2, env=_environment(machine), parks=True)
        if not done.has_parked:
            return done.returncode
        image = machine.save_image()
        print(image.ram, image.state, file=sys.stderr)
        os.dup2(2, 1)  # whose end tells that there is a line
        while os.read(0, 1):
            pass
    return 0


def from_image(ram: str, state: str) -> _Work:
    """For :func:`main`: the command of an image goes on in a clone of it."""

    def work(_command: Sequence[str], options: argparse.Namespace) -> int:
        timeout_s = vm_options.timeout_of(options)
        with vm_options.build(options).cloned_from(Path(ram), Path(state)) as machine:
            return machine.resume(
                stdin=0, stdout=1, stderr=2, timeout_s=timeout_s, forward_signals=_FORWARDED
            ).returncode

    return work


def _give_up(_number: int, _frame: object) -> NoReturn:
    raise TimeoutError("given up")


def die_by(number: int) -> None:
    """Ends this process by a signal, so that whoever waits for it sees what happened to the command."""
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the core that matters was the guest's
    if number != signal.SIGKILL:
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


if __name__ == "__main__":
    sys.exit(main())
