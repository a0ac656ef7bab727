# SPDX-License-Identifier: MIT
"""``sampleblk-lab kernel list|fetch|path|config|bisect``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from sampleblk_lab import kernels
from sampleblk_lab.cli import kernel_bisect
from sampleblk_lab.cli.output import add_json, show
from sampleblk_lab.errors import UnsupportedError
from sampleblk_lab.kernels import config, store


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the actions to the command's parser."""
    actions = parser.add_subparsers(metavar="ACTION", required=True)

    listing = actions.add_parser("list", help="the kernels of the cache")
    listing.add_argument("--available", metavar="SUITE", help="what a Debian suite has now, instead")
    listing.set_defaults(run=_list)

    fetching = actions.add_parser("fetch", help="get a kernel with its headers into the cache")
    fetching.add_argument("name", nargs="+", help="release or its beginning (6.1), or Debian suite")
    fetching.set_defaults(run=_fetch)

    path = actions.add_parser("path", help="where a kernel of the cache is")
    path.add_argument("name", nargs="?", help="release or its beginning (6.1), path, Debian suite, or host")
    path.set_defaults(run=_path)
    configuring = actions.add_parser(
        "config", help="what a configuration lacks for a VM and for experiments, as a fragment to merge; 1 if anything"
    )
    configuring.add_argument("name", nargs="?", help="release, path (also of a .config), or suite; none: all of it")
    configuring.set_defaults(run=_config)
    bisecting = actions.add_parser(
        "bisect", help="for git bisect run: build the commit, boot it, and have a command judge it"
    )
    kernel_bisect.configure(bisecting)
    for action in (listing, fetching, path, configuring):
        add_json(action)


def _facts(kernel: kernels.Kernel) -> dict[str, Any]:
    """A kernel for programs."""
    places = {"image": kernel.image, "modules": kernel.modules, "build": kernel.build}
    told = {name: None if place is None else str(place) for name, place in places.items()}
    return {"release": kernel.release, "suite": kernel.suite, "version": kernel.version, **told}


def _list(options: argparse.Namespace) -> int:
    if options.available:
        releases = store.available(options.available)
        show(options, releases, "\n".join(releases))
        return 0
    found = kernels.installed()
    lines = [f"{kernel.release:32} {kernel.suite:20} {kernel.version}" for kernel in found]
    empty = "no kernels in the cache; sampleblk-lab kernel fetch 6.1 gets one"
    show(options, [_facts(kernel) for kernel in found], "\n".join(lines) or empty)
    return 0


def _fetch(options: argparse.Namespace) -> int:
    fetched = [kernels.fetch(name) for name in options.name]
    show(options, [_facts(kernel) for kernel in fetched], "\n".join(kernel.release for kernel in fetched))
    return 0


def _config(options: argparse.Namespace) -> int:
    text = config.read(Path(options.name)) if options.name is not None and Path(options.name).is_file() else None
    modules = True
    if options.name is not None and text is None:
        kernel = kernels.resolve(options.name, download=False)
        modules = kernel.modules is not None
        text = config.find(kernel.configurations, kernel.image)
        if text is None:
            raise UnsupportedError(
                f"the configuration of kernel {kernel.release}",
                f"it is neither in a build tree, nor beside {kernel.image}, nor in it",
                "give the .config that it was built with",
            )
    lacking = config.missing(text or "", modules=modules)
    if lacking or options.json:
        show(options, lacking, config.fragment(lacking).rstrip("\n"))
    return 1 if lacking and options.name is not None else 0


def _path(options: argparse.Namespace) -> int:
    kernel = kernels.resolve(options.name, download=False)
    lines = [f"image   {kernel.image}", f"modules {kernel.modules or '-'}", f"build   {kernel.build or '-'}"]
    show(options, _facts(kernel), "\n".join(lines))
    return 0
