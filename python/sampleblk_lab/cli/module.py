# SPDX-License-Identifier: MIT
"""``sampleblk-lab module build|path|source``."""

from __future__ import annotations

import argparse

from sampleblk_lab.cli.output import add_json, show


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the actions to the command's parser."""
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    for name, text, function in (
        ("build", "build the driver for a kernel of the cache, unless it is built, and say where it is", _build),
        ("source", "where the driver's source is", _source),
    ):
        action = actions.add_parser(name, help=text, description=text)
        add_json(action)
        if function is _build:
            action.add_argument("kernel", nargs="?", help="release or its beginning (6.1), path, or Debian suite")
        action.set_defaults(run=function)


def _build(options: argparse.Namespace) -> int:
    from sampleblk_lab import kernels
    from sampleblk_lab.errors import UnsupportedError
    from sampleblk_lab.kernels.driver import module_tree

    kernel = kernels.resolve(options.kernel)
    tree = module_tree(kernel)
    found = sorted(tree.rglob("sampleblk.ko*")) if tree is not None else []
    if not found:
        raise UnsupportedError(
            f"the driver for {kernel.release}", "there are no headers to build it with", "sampleblk-lab kernel fetch"
        )
    show(options, {"kernel": kernel.release, "module": str(found[0])}, str(found[0]))
    return 0


def _source(options: argparse.Namespace) -> int:
    from sampleblk_lab.paths import module_source

    show(options, {"source": str(module_source())}, str(module_source()))
    return 0
