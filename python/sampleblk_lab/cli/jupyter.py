# SPDX-License-Identifier: MIT
"""``sampleblk-lab jupyter install``."""

from __future__ import annotations

import argparse
import sys

from sampleblk_lab.cli.output import add_json, show


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the actions to the command's parser."""
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    text = 'add "Python (sampleblk VM, KERNEL)" to the kernels of JupyterLab'
    installing = actions.add_parser("install", help=text, description=text)
    installing.add_argument("kernel", nargs="*", default=["6.1"], help="release or its beginning (6.1), or suite")
    installing.add_argument("--sys-prefix", action="store_true", help="into this environment instead of for the user")
    add_json(installing)
    installing.set_defaults(run=_install)


def _install(options: argparse.Namespace) -> int:
    from sampleblk_lab.jupyter.install import install

    made = [str(install(kernel, prefix=sys.prefix if options.sys_prefix else None)) for kernel in options.kernel]
    show(options, {"installed": made}, "\n".join(made))
    return 0
