# SPDX-License-Identifier: MIT
"""``sampleblk-lab device list|add|remove|counters``, on the machine that it runs on: in a VM, its shell."""

from __future__ import annotations

import argparse
import dataclasses
import errno
import os
from inspect import signature
from typing import TYPE_CHECKING, Any

from sampleblk_lab.cli.output import add_json, show, show_table
from sampleblk_lab.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


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


_YES_OR_NO = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def _value_of(name: str, text: str, kind: str) -> Any:
    """A parameter's value as Python has it, by the parameter's annotation."""
    if "bool" in kind:
        if text.lower() not in _YES_OR_NO:
            raise InputError(f"{name}={text}", expected="true or false")
        return _YES_OR_NO[text.lower()]
    try:
        return float(text) if kind == "float" else int(text)
    except ValueError:
        if "str" not in kind:
            raise InputError(f"{name}={text}", expected="a number" if kind == "float" else "a whole number") from None
        return text


def parameters_of(words: list[str], made: Callable[..., object], what: str, without: Sequence[str]) -> dict[str, Any]:
    """``NAME=VALUE`` words as keywords of what is made of them, but for those `without`.

    Raises:
        InputError: A word is none, names what there is not, or has a value that it cannot have.
    """
    known = {name: at.annotation for name, at in signature(made).parameters.items() if name not in without}
    chosen: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            raise InputError(f"{word!r} is not a parameter of {what}", expected="NAME=VALUE")
        if name not in known:
            raise InputError(f"{what} has no parameter {name!r}", expected=", ".join(sorted(known)))
        if name in chosen:
            raise InputError(f"{word!r} after another {name}", expected="each parameter once")
        chosen[name] = _value_of(name, value, known[name])
    return chosen


def device_parameters(words: list[str]) -> dict[str, Any]:
    """Those of :class:`sampleblk_lab.Device`. Raises InputError."""
    from sampleblk_lab.device import Device

    return parameters_of(words, Device, "a device", ("adopt",))


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
    import sampleblk_lab as lab

    device = lab.Device(**device_parameters(options.parameters))
    device.leave()
    show(options, {"index": device.index, "path": device.path}, device.path)
    return 0


def _remove(options: argparse.Namespace) -> int:
    import sampleblk_lab as lab

    if options.index not in [info.index for info in lab.devices()]:
        raise OSError(errno.ENODEV, os.strerror(errno.ENODEV), f"/dev/sampleblk{options.index}")
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
