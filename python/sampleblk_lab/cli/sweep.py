# SPDX-License-Identifier: MIT
"""``sampleblk-lab sweep run|status|resume|show|install``: a function over all combinations of its parameters."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from sampleblk_lab.cli.output import add_json, input_of, refuse_unused, show, show_table
from sampleblk_lab.interrupts import INTERRUPTED

if TYPE_CHECKING:
    from sampleblk_lab.sweeps.file import File
    from sampleblk_lab.sweeps.result import Sweep


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the actions to the command's parser."""
    actions = parser.add_subparsers(metavar="ACTION", required=True)

    running = actions.add_parser("run", help="run the trials that are not done")
    resuming = actions.add_parser("resume", help="the same of a sweep that was begun; where none was, say so")
    for action in (running, resuming):
        _add_file(action)
        action.add_argument("--workers", type=int, metavar="N", help="trials at a time (by processors and memory)")
        action.add_argument("--scheduler", metavar="ADDRESS", help="of a Dask cluster to run on: tcp://host:8786")
        action.add_argument("--revision", metavar="NAME", help="of what is measured; 'git': the function's commit")
        action.add_argument("--dry-run", action="store_true", help="say what would be run, and how long it would take")
        action.add_argument("--quiet", dest="progress", action="store_false", help="show no progress")
    running.set_defaults(run=_run)
    resuming.set_defaults(run=_resume)

    status = actions.add_parser("status", help="how many trials are done, and why the others are not")
    _add_file(status)
    status.set_defaults(run=_status)

    showing = actions.add_parser("show", help="the table, or a comparison, also while the sweep runs")
    _add_file(showing)
    what = showing.add_mutually_exclusive_group()
    what.add_argument("--compare", metavar="AXIS", help="compare the values of this axis")
    showing.add_argument("--metric", metavar="COLUMN", help="what is compared, where the function returns several")
    showing.add_argument("--better", choices=["lower", "higher"], default="lower", help="which is better (lower)")
    showing.add_argument("--across", action="append", default=[], help="accelerator, kernel, machine: may differ")
    what.add_argument("--history", action="store_true", help="a column over the revisions, and where it changed")
    what.add_argument("--html", metavar="PAGE", help="write a page of the whole matrix, with pictures")
    what.add_argument("--missing", action="store_true", help="the trials that are not done, and why")
    what.add_argument("--files", action="store_true", help="the files that trials left in their directories")
    showing.set_defaults(run=_show)

    installing = actions.add_parser("install", help="this package where the workers of a cluster run")
    installing.add_argument("wheel", metavar="WHEEL", help="dist/sampleblk_lab-….whl, as make wheel makes it")
    installing.add_argument("--scheduler", metavar="ADDRESS", required=True, help="of the cluster: tcp://host:8786")
    installing.set_defaults(run=_install)
    for action in (running, resuming, status, showing, installing):
        add_json(action)


def _add_file(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE.toml", help="function, axes and the rest; see the reference of the file")


def _file(options: argparse.Namespace) -> File:
    from sampleblk_lab.sweeps.file import load

    path = input_of(options.file, "FILE.toml", "the file of a sweep")
    return load(path, revision=getattr(options, "revision", None))


def _open(options: argparse.Namespace) -> Sweep:
    from sampleblk_lab.sweeps.result import Sweep

    folder = _file(options).spec.folder
    assert folder is not None
    return Sweep(folder)


def _run(options: argparse.Namespace) -> int:
    from sampleblk_lab.sweeps.api import look, run

    file = _file(options)
    # What the command line says counts.
    client, workers = options.scheduler, options.workers
    if client is None and workers is None:
        client = file.scheduler
    if client is None and workers is None:
        workers = file.workers
    if options.dry_run:
        found = look(file.spec, workers=workers, client=client)
        show(options, found.json(), found.text())
        return 0
    made = run(file.spec, workers=workers, client=client, progress=options.progress)
    show(options, made.json(), made.text())
    if made.interrupted:
        return INTERRUPTED
    return 0 if made.complete else 1


def _resume(options: argparse.Namespace) -> int:
    _open(options)  # raises where there is none
    return _run(options)


def _status(options: argparse.Namespace) -> int:
    made = _open(options)
    show(options, made.json(), made.text())
    return 0


def _install(options: argparse.Namespace) -> int:
    from sampleblk_lab.sweeps.wheels import FAILED, install

    made = install(options.scheduler, input_of(options.wheel, "WHEEL", "what make wheel makes, below dist"))
    show_table(options, made, "the cluster has no worker")
    return 1 if FAILED in list(made["state"]) else 0


def _show(options: argparse.Namespace) -> int:
    if not (options.html or options.compare or options.history):
        defaults: dict[str, object] = {"metric": None, "better": "lower", "across": []}
        refuse_unused(options, defaults, "it with --compare, --history or --html")
    made = _open(options)
    if options.html:
        page = made.report(options.html, options.metric, better=options.better, across=options.across)
        show(options, {"page": str(page)}, f"The page: {page}")
        return 0
    if options.compare:
        rows = made.compare(options.compare, options.metric, better=options.better, across=options.across)
        from sampleblk_lab.results import sets

        show(options, sets.to_json(rows), rows.text())
        return 0
    if options.history:
        found = made.history(options.metric, better=options.better, across=options.across)
        show_table(options, found.table(), "no trial is done")
        return 0
    if options.files:
        show_table(options, made.artefacts(), "no trial has left a file")
        return 0
    table = made.missing() if options.missing else made.table()
    show_table(options, table, "nothing is missing" if options.missing else "no trial is done")
    return 0
