# SPDX-License-Identifier: MIT
"""``sampleblk-lab kernel list|fetch|path``."""

from __future__ import annotations

import argparse
import json

from sampleblk_lab import kernels
from sampleblk_lab.kernels import store


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the actions to the command's parser."""
    actions = parser.add_subparsers(metavar="ACTION", required=True)

    listing = actions.add_parser("list", help="the kernels of the cache")
    listing.add_argument("--available", metavar="SUITE", help="what a Debian suite has now, instead")
    listing.add_argument("--json", action="store_true", help="as JSON")
    listing.set_defaults(run=_list)

    fetching = actions.add_parser("fetch", help="get a kernel with its headers into the cache")
    fetching.add_argument("name", nargs="+", help="release or its beginning (6.1), or Debian suite")
    fetching.set_defaults(run=_fetch)

    path = actions.add_parser("path", help="where a kernel of the cache is")
    path.add_argument("name", nargs="?", help="release or its beginning (6.1), path, or Debian suite")
    path.set_defaults(run=_path)


def _list(options: argparse.Namespace) -> int:
    if options.available:
        releases = store.available(options.available)
        print(json.dumps(releases) if options.json else "\n".join(releases))
        return 0
    found = kernels.installed()
    if options.json:
        rows = [{"release": k.release, "suite": k.suite, "version": k.version, "image": str(k.image)} for k in found]
        print(json.dumps(rows, indent=1))
        return 0
    if not found:
        print("no kernels in the cache; sampleblk-lab kernel fetch 6.1 gets one")
    for kernel in found:
        print(f"{kernel.release:32} {kernel.suite:20} {kernel.version}")
    return 0


def _fetch(options: argparse.Namespace) -> int:
    for name in options.name:
        print(kernels.fetch(name).release)
    return 0


def _path(options: argparse.Namespace) -> int:
    kernel = kernels.resolve(options.name, download=False)
    print(f"image   {kernel.image}")
    print(f"modules {kernel.modules or '-'}")
    print(f"build   {kernel.build or '-'}")
    return 0
