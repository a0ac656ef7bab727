# SPDX-License-Identifier: MIT
"""``sampleblk-lab crash explore|show|import``: what a crash may leave of a recording."""

from __future__ import annotations

import argparse
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sampleblk_lab.cli.output import add_json, input_of, path_of, refuse_unused, show
from sampleblk_lab.errors import InputError, SampleblkError
from sampleblk_lab.functions import named
from sampleblk_lab.interrupts import INTERRUPTED
from sampleblk_lab.texts import count_text, counted, readable
from sampleblk_lab.vm.options import add_shape, size_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from sampleblk_lab import crash

# The options that each model has, by the names of its parameters; the defaults are its own.
MODELS = {
    "prefix": {},
    "reorder": {"complete_up_to": "complete_up_to", "at_most": "at_most"},
    "torn": {"block": "block_bytes"},
    "sample": {"seed": "seed", "block": "block_bytes"},
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the actions to the command's parser."""
    actions = parser.add_subparsers(metavar="ACTION", required=True)

    exploring = actions.add_parser("explore", help="build the states that a crash may leave, and check them")
    _add_log(exploring)
    exploring.add_argument("--fs", metavar="TYPE", help="the file system recovers, by its own tools: ext4, btrfs")
    exploring.add_argument(
        "--mount",
        action="store_true",
        help="a kernel mounts and recovers it, this machine's as root, or with --kernel a VM's: ext4, xfs, btrfs, f2fs",
    )
    exploring.add_argument(
        "--check",
        metavar="MODULE:FUNCTION",
        help="a function of a path (the image's; with --fs of a folder with the recovered files; with --mount of the "
        "mount point) and the state, which fails by raising, or by returning False",
    )
    exploring.add_argument("--model", choices=MODELS, default="reorder", help="which states (reorder)")
    exploring.add_argument(
        "--complete-up-to", type=int, metavar="N", help="reorder: all subsets of up to N open writes (8)"
    )
    exploring.add_argument(
        "--at-most", type=int, metavar="N", help="reorder: of more, up to N lost or up to N kept (2)"
    )
    exploring.add_argument(
        "--block", type=int, metavar="BYTES", help="torn, sample: what the disk writes whole (as the log says, or 512)"
    )
    exploring.add_argument("--seed", type=int, help="sample: the same seed draws the same states (1)")
    exploring.add_argument("--seconds", type=float, metavar="N", help="begin no check after N seconds")
    exploring.add_argument("--states", type=int, metavar="N", help="check at most N states")
    exploring.add_argument(
        "--order",
        choices=("unlike", "log"),
        default="unlike",
        help="unlike: states that are unlike each other first; log: in the order of the log (unlike)",
    )
    exploring.add_argument("--failures", type=int, default=1, metavar="N", help="stop after N failures (1)")
    exploring.add_argument("--workers", type=int, metavar="N", help="processes that check (one for each CPU)")
    exploring.add_argument("--scheduler", metavar="ADDRESS", help="of a Dask cluster to check on: tcp://host:8786")
    exploring.add_argument("--resume", metavar="FILE", help="go on where the run before ended; made if missing")
    exploring.add_argument(
        "--save", metavar="DIR", help="write each failure out as DIR/failure-N, where pytest reproduces it"
    )
    exploring.add_argument("--report", metavar="FILE.html", help="write a page of what was found, with pictures")
    group = exploring.add_argument_group("virtual machine")
    group.add_argument(
        "--kernel",
        metavar="NAME",
        help="check in a VM, and after a panic in a fresh one: release or its beginning (6.1), path, Debian suite, or "
        "host",
    )
    group.add_argument(
        "--kernel-warning",
        action="append",
        default=[],
        metavar="REGEX",
        help="what the VM's kernel may complain of, such as 'at fs/btrfs/'; all else fails a state (repeatable)",
    )
    add_shape(group, cpus=2, memory="1G", memory_help="memory")
    exploring.set_defaults(run=_explore)

    showing = actions.add_parser("show", help="what a log holds, and how many states each model has")
    _add_log(showing)
    showing.set_defaults(run=_show)

    importing = actions.add_parser("import", help="keep a log of dm-log-writes, also from its device, as a recording")
    _add_log(importing)
    importing.add_argument("folder", metavar="FOLDER", help="the recording to make: base.img and log")
    importing.set_defaults(run=_import)
    for action in (exploring, showing, importing):
        add_json(action)


def _add_log(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "log", metavar="LOG", help="the driver's journal, a log of dm-log-writes, or a recording's folder"
    )
    parser.add_argument("--base", metavar="IMG", help="what the disk held before; zeros: nothing")
    parser.add_argument("--no-flush", action="store_true", help="a disk that ignores flushes")
    parser.add_argument("--no-fua", action="store_true", help="a disk that ignores FUA")


def _log(options: argparse.Namespace, base: str | None = None) -> crash.Log:
    """The log; `base` where the caller needs to know nothing of the disk."""
    from sampleblk_lab import crash

    expected = "a journal, a log of dm-log-writes, or a recording's folder"
    path = input_of(options.log, "LOG", expected, folder=True)
    chosen = options.base or base
    if path.is_dir():
        if not (path / "log").exists():
            raise InputError(f"LOG {options.log!r} has no file 'log'", expected=expected)
        chosen = options.base or str(path / "base.img")
        path = path / "log"
    return crash.Log(path, base=chosen, flush=not options.no_flush, fua=not options.no_fua)


def _check(options: argparse.Namespace) -> Callable[..., object]:
    from sampleblk_lab import crash

    own = named(options.check, "--check") if options.check else None
    if options.mount:
        return crash.mounted(options.fs or "ext4", own)
    if options.fs:
        return crash.recovers(options.fs, own)
    if own is None:
        raise InputError("nothing is checked", expected="--fs TYPE, --check MODULE:FUNCTION, or both")
    return own


def _model(options: argparse.Namespace) -> crash.Model:
    from sampleblk_lab import crash

    own = MODELS[options.model]
    for name in sorted({name for names in MODELS.values() for name in names} - own.keys()):
        having = " or ".join(model for model, names in MODELS.items() if name in names)
        refuse_unused(options, {name: None}, f"it with --model {having}")
    given = {parameter: value for name, parameter in own.items() if (value := getattr(options, name)) is not None}
    made: crash.Model = getattr(crash, options.model.capitalize())(**given)
    return made


def _vm(options: argparse.Namespace) -> dict[str, Any] | None:
    if options.kernel is None:
        unused = {"cpus": 2, "memory": "1G", "accel": None, "kernel_warning": []}
        refuse_unused(options, unused, "it with --kernel")
        return None
    cpus, memory_mib = size_of(options)
    allowed = options.kernel_warning
    size = {"cpus": cpus, "memory_mib": memory_mib}
    return {"kernel": options.kernel, **size, "accel": options.accel, "kernel_warning": allowed}


def _explore(options: argparse.Namespace) -> int:
    vm = _vm(options)
    log = _log(options)
    check = _check(options)
    workers = options.workers
    if workers is None and options.scheduler is None and vm is None:
        workers = len(os.sched_getaffinity(0))
    found = log.explore(
        check,
        model=_model(options),
        states=options.states,
        seconds=options.seconds,
        failures=options.failures,
        workers=workers,
        client=options.scheduler,
        vm=vm,
        resume=options.resume,
        order=options.order,
    )
    saved: list[str] = []
    page = unwritten = None
    try:
        for number, failure in enumerate(found.failures if options.save else (), start=1):
            saved.append(str(failure.save(Path(options.save) / f"failure-{number}")))
        page = options.report and str(found.report(options.report, saved=saved))
    except (SampleblkError, OSError) as error:
        unwritten = error  # what was found is told all the same
    commands = [failure.command(folder) for failure, folder in zip(found.failures, saved, strict=False)]
    # A check's message may have what it read of the state.
    lines = [readable(found.text(), keep="\n\t"), *(f"reproduce it with {command}" for command in commands)]
    lines += [f"report: {page}"] if page else []
    show(options, {**found.json(), "saved": saved, "report": page}, "\n".join(lines))
    if unwritten is not None:
        raise unwritten
    if found.interrupted:
        return INTERRUPTED
    return 0 if found.ok else 1


def _show(options: argparse.Namespace) -> int:
    from sampleblk_lab import crash

    log = _log(options, base="zeros")
    table = log.table()
    zeroes = sum(row["type"] == "zeroes" for row in table.rows())
    counts = {name: log.count(getattr(crash, name.capitalize())()) for name in MODELS}
    value = {
        "log": str(log.path),
        "format": log.native.format,
        "disk_bytes": log.size_bytes if log.base else None,
        "writes": len(log) - zeroes,
        "zeroes": zeroes,
        "fua": int(table["fua"].values.sum()),
        "flushes": log.native.flushes,
        "written_bytes": int(table["sectors"].values.sum()) * 512,
        "end_bytes": log.native.end_sector * 512,
        "marks": [{"sequence": sequence, "text": text} for sequence, _, text in log.native.marks],
        "states": {name: count if count != float("inf") else None for name, count in counts.items()},
    }
    lines = [
        f"{log.path}: {log.native.format}",
        f"  {value['writes']} writes ({value['fua']} with FUA), {zeroes} discards and write-zeroes, "
        f"{value['flushes']} flushes; {value['written_bytes']} bytes, up to byte {value['end_bytes']} of the disk",
        f"  {len(log.native.marks)} marks",
        *(f"    {sequence} {text!r}" for sequence, _, text in log.native.marks),
        "  states:",
        *(
            f"    {name:8} {count_text(count)}{', and torn ones' if name == 'sample' else ''}"
            for name, count in counts.items()
        ),
    ]
    show(options, value, "\n".join(lines))
    return 0


def _import(options: argparse.Namespace) -> int:
    from sampleblk_lab.crash.recording import keep

    log = _log(options)
    folder = keep(log, path_of(options.folder, "FOLDER", "the recording to make"))
    show(
        options,
        {"folder": str(folder), "writes": len(log), "disk_bytes": log.size_bytes},
        f"{folder}: {counted(len(log), 'write')} to a disk of {log.size_bytes} bytes; "
        f"sampleblk-lab crash explore {shlex.quote(str(folder))} …",
    )
    return 0
