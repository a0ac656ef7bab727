# SPDX-License-Identifier: MIT
"""The commands and their options. Each command is a module of this package, imported when it is called."""

from __future__ import annotations

import argparse
import sys
from importlib import import_module

import sampleblk_lab
from sampleblk_lab.errors import SampleblkError

# command -> (module, one line of help)
COMMANDS = {
    "demo": ("demo", "the article's first experiment, from the job to the driver, in one command"),
    "kernel": ("kernel", "kernels to boot: list, fetch, path"),
    "vm": ("vm", "run a command, or a shell, in a virtual machine"),
}


def main(argv: list[str] | None = None) -> int:
    """Runs one command; returns its exit status: 0 well, 1 failed, 2 called wrongly, 122 to 127 the VM failed."""
    parser = argparse.ArgumentParser(prog="sampleblk-lab", description=sampleblk_lab.__doc__.splitlines()[0])
    parser.add_argument("--version", action="version", version=f"%(prog)s {sampleblk_lab.__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    argv = sys.argv[1:] if argv is None else argv
    for name, (module, text) in COMMANDS.items():
        command = commands.add_parser(name, help=text, description=text)
        if name in argv[:1]:
            import_module(f"sampleblk_lab.cli.{module}").configure(command)
    options = parser.parse_args(argv)
    try:
        status: int = options.run(options)
    except SampleblkError as error:
        print(f"sampleblk-lab: {error}", file=sys.stderr)
        return int(getattr(error, "exit_status", 1))
    except OSError as error:
        print(f"sampleblk-lab: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return status
