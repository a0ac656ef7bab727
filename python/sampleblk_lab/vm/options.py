# SPDX-License-Identifier: MIT
"""The options of a VM on a command line, each with its environment variable."""

from __future__ import annotations

import argparse
import math
import os
from typing import TYPE_CHECKING, Any

from sampleblk_lab.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sampleblk_lab.vm.machine import VM

# option -> (metavar, help, environment variable)
OPTIONS = {
    "--kernel": ("NAME", "release or its beginning (6.1), path, Debian suite, or host", "SAMPLEBLK_KERNEL"),
    "--cpus": ("N", "virtual CPUs (2)", "SAMPLEBLK_CPUS"),
    "--memory": ("SIZE", "memory (1G)", "SAMPLEBLK_MEMORY"),
    "--timeout": ("SECONDS", "kill the VM when the command takes longer", "SAMPLEBLK_TIMEOUT"),
    "--run-dir": ("PATH", "the host folder that the guest may write to", "SAMPLEBLK_RUN_DIR"),
    "--accel": ("kvm|tcg", "how to run the guest (KVM where it is seen to work)", "SAMPLEBLK_ACCEL"),
    "--console": ("PATH", "keep the guest's console log there", ""),
    "--preload": ("NAMES", "modules that its Python has imported, with commas between", ""),
    "--quiet": ("", "say nothing when the VM fails; the exit status tells", ""),
    "--cold": ("", "boot, instead of cloning the template", ""),
}


def described(option: str) -> str:
    """What an option does, and which variable of the environment does it too, if one does."""
    _, text, variable = OPTIONS[option]
    return f"{text}; ${variable}" if variable else text


def add_to(parser: argparse.ArgumentParser) -> None:
    """Adds the VM's options to a parser."""
    group = parser.add_argument_group("virtual machine")
    for option, (metavar, _, variable) in OPTIONS.items():
        if metavar:
            group.add_argument(option, metavar=metavar, help=described(option), default=os.environ.get(variable))
        else:
            group.add_argument(option, action="store_true", help=described(option))


def defaults() -> dict[str, object]:
    """By its attribute's name, what each option is that says something of a VM alone, where it is not given."""
    return {
        option.removeprefix("--"): os.environ.get(variable) if metavar else False
        for option, (metavar, _, variable) in OPTIONS.items()
        if option not in ("--run-dir", "--quiet")
    }


def parsed(argv: Sequence[str] = (), program: str | None = None) -> argparse.Namespace:
    """The options of a command line that has no others, and else what the environment says."""
    parser = argparse.ArgumentParser(prog=program, add_help=False)
    add_to(parser)
    return parser.parse_args(list(argv))


def add_shape(group: argparse._ArgumentGroup, *, cpus: int, memory: str, memory_help: str) -> None:
    """Adds what a command says of its VMs besides the kernel, with the command's own defaults."""
    group.add_argument("--cpus", type=int, default=cpus, metavar="N", help=f"virtual CPUs ({cpus})")
    group.add_argument("--memory", default=memory, metavar="SIZE", help=f"{memory_help} ({memory})")
    group.add_argument("--accel", choices=["kvm", "tcg"], help="how to run the guest (KVM where it is seen to work)")


def split(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """Cuts the VM's options off the front of a command line; the rest is somebody else's."""
    mine: list[str] = []
    rest = list(argv)
    while rest and rest[0].partition("=")[0] in OPTIONS:
        option = rest.pop(0)
        mine.append(option)
        if OPTIONS[option.partition("=")[0]][0] and "=" not in option:
            if not rest:
                raise InputError(f"option {option} needs a value")
            mine.append(rest.pop(0))
    return mine, rest


def _number(option: str, value: str | None, kind: type[int | float], default: Any) -> Any:
    if value is None:
        return default
    try:
        number = kind(value)
    except ValueError:
        number = -1
    if not 0 < number < math.inf:  # which no NaN is
        raise InputError(f"{option} '{value}' is not a positive number")
    return number


def timeout_of(options: argparse.Namespace) -> float | None:
    """The deadline in seconds, or None."""
    seconds: float | None = _number("--timeout", options.timeout, float, None)
    return seconds


def mebibytes(option: str, text: str) -> int:
    """A size of memory. Raises InputError: also for a number of MiB without their unit."""
    from sampleblk_lab._native import core

    number = core.parse_bytes(text, option) >> 20
    if not number:
        raise InputError(f"{option} '{text}' is less than 1 MiB", expected="a size with its unit, such as 512M")
    return number


def size_of(options: argparse.Namespace) -> tuple[int, int]:
    """The VM's CPUs, and its memory in MiB. Raises InputError."""
    memory_mib = 1024 if options.memory is None else mebibytes("--memory", options.memory)
    return _number("--cpus", options.cpus, int, 2), memory_mib


def check(options: argparse.Namespace) -> None:
    """Raises InputError where a value cannot be, as far as that shows without a VM."""
    size_of(options)
    timeout_of(options)
    if options.accel not in (None, "kvm", "tcg"):
        raise InputError(f"--accel '{options.accel}' is unknown", expected="kvm or tcg")


def build(options: argparse.Namespace) -> VM:
    """The VM that the options describe, not started yet. Raises InputError."""
    from sampleblk_lab.vm.machine import VM

    check(options)
    cpus, memory_mib = size_of(options)
    return VM(
        kernel=options.kernel,
        cpus=cpus,
        memory_mib=memory_mib,
        run_dir=options.run_dir,
        warm=not options.cold,
        accel=options.accel,
        console=options.console,
        preload=options.preload.split(",") if options.preload else (),
    )
