# SPDX-License-Identifier: MIT
"""``sampleblk-lab fault list|set|clear``: the fault table of a device on the machine that it runs on."""

from __future__ import annotations

import argparse
import dataclasses

from sampleblk_lab.cli.device import parameters_of
from sampleblk_lab.cli.output import add_json, show
from sampleblk_lab.texts import counted


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the actions to the command's parser."""
    actions = parser.add_subparsers(metavar="ACTION", required=True)

    listing = actions.add_parser("list", help="the rules, with how often each fired")
    listing.set_defaults(run=_list)

    setting = actions.add_parser("set", help="add a rule: sampleblk-lab fault set action=error ops=write count=3")
    setting.add_argument("rule", nargs="+", metavar="NAME=VALUE", help="as sampleblk_lab.Fault; ops=read,write")
    setting.add_argument("--seed", type=int, default=0, help="of its chances (0)")
    setting.set_defaults(run=_set)

    clearing = actions.add_parser("clear", help="remove all rules, and fail what hangs")
    clearing.set_defaults(run=_clear)
    for action in (listing, setting, clearing):
        action.add_argument("--device", dest="index", type=int, default=1, help="the N of /dev/sampleblkN (1)")
        add_json(action)


def _list(options: argparse.Namespace) -> int:
    import sampleblk_lab as lab

    device = lab.Device(adopt=options.index)
    try:
        rules = [dataclasses.asdict(rule) for rule in device.faults()]
    finally:
        device.leave()
    lines = [
        f"{number} {rule['action']} on {','.join(rule['ops'])}: matched {rule['matched']}, fired {rule['hits']}"
        for number, rule in enumerate(rules, 1)
    ]
    show(options, rules, "\n".join(lines) or "no faults")
    return 0


def _set(options: argparse.Namespace) -> int:
    import sampleblk_lab as lab

    parameters = parameters_of(options.rule, lab.Fault, "a fault", ("matched", "hits", "repaired"))
    if "ops" in parameters:
        parameters["ops"] = tuple(str(parameters["ops"]).split(","))
    if "action" not in parameters:
        from sampleblk_lab.errors import InputError

        raise InputError("the fault has no action", expected="action=error, delay, hang, …")
    device = lab.Device(adopt=options.index)
    try:
        device.add_faults([lab.Fault(**parameters)], seed=options.seed)
        count = len(device.faults())
    finally:
        device.leave()
    show(options, {"rules": count}, counted(count, "rule"))
    return 0


def _clear(options: argparse.Namespace) -> int:
    import sampleblk_lab as lab

    device = lab.Device(adopt=options.index)
    try:
        device.set_faults([])
    finally:
        device.leave()
    show(options, {"rules": 0}, "no faults")
    return 0
