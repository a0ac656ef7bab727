# SPDX-License-Identifier: MIT
"""``sampleblk-lab device list|add|remove|counters``, on the machine that it runs on: in a VM, its shell."""

from __future__ import annotations

import argparse
import dataclasses
from typing import Any

from sampleblk_lab.cli.output import add_json, show, show_table
from sampleblk_lab.errors import InputError


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the actions to the command's parser."""
    actions = parser.add_subparsers(metavar="ACTION", required=True)

    listing = actions.add_parser("list", help="the devices there are")
    listing.set_defaults(run=_list)

    adding = actions.add_parser("add", help="make a device, which stays until it is removed")
    adding.add_argument("parameters", nargs="*", metavar="NAME=VALUE", help="as sampleblk_lab.Device: capacity=64M …")
    adding.set_defaults(run=_add)

    removing = actions.add_parser("remove", help="remove a device")
    removing.add_argument("index", type=int, help="the N of /dev/sampleblkN")
    removing.add_argument("--force", action="store_true", help="although somebody has it open")
    removing.set_defaults(run=_remove)

    counting = actions.add_parser("counters", help="what a device has done")
    counting.add_argument("index", type=int, help="the N of /dev/sampleblkN")
    counting.set_defaults(run=_counters)
    for action in (listing, adding, removing, counting):
        add_json(action)


def value_of(text: str) -> Any:
    """A parameter's value as Python has it: numbers, true and false, else text."""
    if text in ("true", "false"):
        return text == "true"
    try:
        return int(text)
    except ValueError:
        return text


def parameters_of(words: list[str], known: list[str], what: str) -> dict[str, Any]:
    """``NAME=VALUE`` words as keywords.

    Raises:
        InputError: A word is none, or names what there is not.
    """
    chosen: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            raise InputError(f"{word!r} is no parameter of {what}", expected="NAME=VALUE")
        if name not in known:
            raise InputError(f"{what} has no parameter {name!r}", expected=", ".join(sorted(known)))
        chosen[name] = value_of(value)
    return chosen


def _list(options: argparse.Namespace) -> int:
    import numpy as np

    import sampleblk_lab as lab

    found = [dataclasses.asdict(info) for info in lab.devices()]
    shown = ("path", "capacity_bytes", "queues", "mode", "openers", "allocated_bytes")
    if options.json or not found:
        show(options, found, "no devices; sampleblk-lab device add capacity=64M")
        return 0
    columns = {
        name: [row[name] for row in found]
        if isinstance(found[0][name], str)
        else np.array([row[name] for row in found], dtype=np.int64)
        for name in shown
    }
    print(lab.Table.of(columns).text())
    return 0


def _add(options: argparse.Namespace) -> int:
    import inspect

    import sampleblk_lab as lab

    known = [name for name in inspect.signature(lab.Device).parameters if name not in ("self", "adopt")]
    device = lab.Device(**parameters_of(options.parameters, known, "a device"))
    device.leave()
    show(options, {"index": device.index, "path": device.path}, device.path)
    return 0


def _remove(options: argparse.Namespace) -> int:
    import sampleblk_lab as lab

    lab.Device(adopt=options.index).close(force=options.force)
    show(options, {"removed": options.index}, f"/dev/sampleblk{options.index} is gone")
    return 0


def _counters(options: argparse.Namespace) -> int:
    import sampleblk_lab as lab

    device = lab.Device(adopt=options.index)
    try:
        show_table(options, device.counters().table(), "nothing")
    finally:
        device.leave()
    return 0
