# SPDX-License-Identifier: MIT
"""Run directories: where a measured test leaves what it found, and the table of all of them.

``runs/NAME/0001/TEST/`` holds round 1 of the set NAME: ``measurements.json``, ``spec.json`` (what was run),
``env.json`` (on what), and the recordings that the test made. A set gets a further round each time it is saved.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import math
import os
import re
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sampleblk_lab.errors import FormatError, InputError
from sampleblk_lab.results import machine
from sampleblk_lab.results.comparison import BETTER
from sampleblk_lab.run_files import remove
from sampleblk_lab.table import Table
from sampleblk_lab.texts import read_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MEASUREMENTS = "measurements.json"

# The set of sessions that saved under no name; only the last is kept.
LATEST = "latest"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def check_name(name: str, option: str) -> str:
    """A set's name.

    Raises:
        InputError: It could not be a folder of its own.
    """
    if not _NAME.fullmatch(name):
        raise InputError(f"{name!r}", option, expected="letters, digits, dots, dashes and underscores")
    return name


@dataclass(frozen=True)
class Stored:
    """One run directory with measurements.

    Attributes:
        path: The directory.
        set: The name it was saved under.
        round: Which session of that set, from 1.
        test: The test's id.
        measurements: As :meth:`Measurement.to_json` wrote them.
        environment: Its env.json.
        spec: Its spec.json.
    """

    path: Path
    set: str
    round: int
    test: str
    measurements: list[dict[str, Any]]
    environment: dict[str, Any]
    spec: dict[str, Any] = field(default_factory=dict)


def write(directory: Path, test: str, spec: dict[str, Any], measurements: Iterable[dict[str, Any]]) -> None:
    """Writes a run directory's three JSON files."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, value in (
        ("spec.json", {"test": test, **spec}),
        ("env.json", machine.environment()),
        (MEASUREMENTS, list(measurements)),
    ):
        (directory / name).write_text(json.dumps(value, indent=1, default=str) + "\n")


def note_failed(directory: Path) -> None:
    """Notes in a run directory that its test failed, which may be after it had measured."""
    path = directory / "spec.json"
    try:
        spec = _spec(path)
    except (FormatError, OSError):
        return  # not as we wrote it; who reads the set says so
    path.write_text(json.dumps({**spec, "failed": True}, indent=1) + "\n")


# What a stored measurement must have for the table and for comparisons.
_TEXTS = ("name", "unit", "better", "stopped")
_MOST = 1 << 63


def _is_figure(value: Any) -> bool:
    return type(value) in (int, float) and 0 < value < (_MOST if type(value) is int else math.inf)


def measurements(path: Path) -> list[dict[str, Any]]:
    """What a test measured.

    Raises:
        FormatError: It is not what tests leave.
    """
    value: list[dict[str, Any]] = read_json(path, [dict])
    for number, one in enumerate(value):
        where = f"measurement {number}"
        for name in _TEXTS:
            if not isinstance(one.get(name), str):
                raise FormatError(str(path), 0, f"{where} to have {name!r}, a string")
        if one["better"] not in BETTER:
            raise FormatError(str(path), 0, f"{where} to have 'better', {' or '.join(map(repr, BETTER))}")
        low: Any = one.get("low")
        high: Any = one.get("high")
        if not _is_figure(one.get("value")):
            raise FormatError(str(path), 0, f"{where} to have 'value', a number above 0")
        # Nothing may be known of it: then the interval is all that there is, and JSON has null for infinity.
        if high is None and "high" in one:
            one["high"] = high = math.inf
        if not (_is_figure(low) or (type(low) in (int, float) and low == 0)):
            raise FormatError(str(path), 0, f"{where} to have 'low', a number")
        if not (_is_figure(high) or high == math.inf):
            raise FormatError(str(path), 0, f"{where} to have 'high', a number above 0 or null")
        if not low <= one["value"] <= high:
            raise FormatError(str(path), 0, f"{where} to have 'value' from 'low' to 'high'")
        sure = one.get("confidence", 0.5)  # which older files do not have
        if not (type(sure) in (int, float) and 0 < sure < 1):
            raise FormatError(str(path), 0, f"{where} to have 'confidence', a number between 0 and 1")
        samples = one.get("samples")
        if not isinstance(samples, list) or not samples or not all(map(_is_figure, samples)):
            raise FormatError(str(path), 0, f"{where} to have 'samples', numbers above 0")
        if not min(samples) * 0.99 <= one["value"] <= max(samples) * 1.01:
            raise FormatError(str(path), 0, f"{where} to have 'value' among its 'samples'")
    names = [one["name"] for one in value]
    if twice := [name for name in names if names.count(name) > 1]:
        raise FormatError(str(path), 0, f"one measurement named {twice[0]!r}")
    return value


def _spec(path: Path) -> dict[str, Any]:
    spec: dict[str, Any] = read_json(path, {"parameters": {...: str}, "marks": [dict], "failed": bool})
    if not isinstance(spec.get("test"), str):
        raise FormatError(str(path), 0, "'test', a string")
    return spec


def _environment(path: Path) -> dict[str, Any]:
    about: dict[str, Any] = read_json(path, machine.ENVIRONMENT)
    memory = (about.get("host") or {}).get("memory_mib")
    if memory is not None and not str(memory).isdecimal():
        raise FormatError(str(path), 0, "'memory_mib' to be a number")
    return about


def _round_of(folder: Path) -> int:
    """The round that a folder has; 0: none, such as a copy "0001.bak"."""
    return int(folder.name) if re.fullmatch("[0-9]+", folder.name) else 0


def load(root: str | os.PathLike[str], name: str | None = None) -> list[Stored]:
    """The run directories with measurements below `root`, by set, round and test.

    Args:
        root: The folder of all sets.
        name: Only this set.

    Raises:
        FormatError: A file is not what tests leave.
        OSError: It cannot be read.
    """
    rounds = [folder for folder in Path(root).glob(f"{name or '*'}/[0-9]*") if _round_of(folder) and folder.is_dir()]
    rounds.sort(key=lambda folder: (folder.parent.name, _round_of(folder)))
    return [run for folder in rounds for run in load_round(folder)]


def load_round(folder: Path) -> list[Stored]:
    """The same of one session: the folder that :func:`add_round` returned."""
    return [
        Stored(
            path=path.parent,
            set=folder.parent.name,
            round=_round_of(folder),
            test=spec["test"],
            measurements=measurements(path),
            environment=_environment(path.with_name("env.json")),
            spec=spec,
        )
        for path in sorted(folder.glob(f"*/{MEASUREMENTS}"))
        for spec in [_spec(path.with_name("spec.json"))]
    ]


def add_round(root: Path, name: str, directories: Iterable[Path]) -> Path | None:
    """Moves run directories into the next round of a set, all or none.

    Returns:
        The round's folder; None when there are none.

    Raises:
        OSError: They could not be moved, and are where they were.
    """
    moved = list(directories)
    if not moved:
        return None
    home = root / name
    home.mkdir(parents=True, exist_ok=True)
    # What is removed lies in the folder itself, and not where a link leads.
    descriptor = os.open(home, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | (os.O_NOFOLLOW if name == LATEST else 0))
    try:
        # Another session may end now, too; a folder of NFS has no such lock.
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        if name == LATEST:
            remove(home, *(path.name for path in home.iterdir()))
        while True:
            target = home / f"{max(map(_round_of, home.iterdir()), default=0) + 1:04d}"
            with contextlib.suppress(FileExistsError):
                target.mkdir()
                break
        _move(moved, target)
    finally:
        os.close(descriptor)
    return target


def _move(directories: list[Path], target: Path) -> None:
    """Moves run directories into a new folder, all or none; without it they are where they were."""
    renamed, copied = [], []
    try:
        for directory in directories:
            there = target / directory.name
            try:
                directory.rename(there)
                renamed.append(directory)
            except OSError as error:
                if error.errno != errno.EXDEV:
                    raise
                shutil.copytree(directory, there, symlinks=True, ignore=_special)
                copied.append(directory)
    except BaseException:
        for directory in renamed:
            (target / directory.name).rename(directory)
        shutil.rmtree(target, ignore_errors=True)
        raise
    for directory in copied:
        shutil.rmtree(directory, ignore_errors=True)


def _special(folder: str, names: list[str]) -> list[str]:
    """Of a folder's files, those that hold nothing: pipes, sockets, device nodes."""
    paths = [Path(folder, name) for name in names]
    return [path.name for path in paths if not (path.is_symlink() or path.is_file() or path.is_dir())]


def _rows(stored: Iterable[Stored]) -> Iterator[dict[str, Any]]:
    for run in stored:
        told = machine.aspects(run.environment)
        for measured in run.measurements:
            yield {
                "set": run.set,
                "round": run.round,
                "test": run.test,
                "metric": measured["name"],
                "value": measured["value"],
                "low": measured["low"],
                "high": measured["high"],
                "unit": measured["unit"],
                "better": measured["better"],
                "samples": len(measured["samples"]),
                "stopped": measured["stopped"],
                "failed": bool(run.spec.get("failed")),
                "accelerator": told["accelerator"],
                "kernel": told["kernel"],
                "machine": told["machine"],
                "started": str(run.environment.get("started", "")),
                "path": str(run.path),
            }


_TYPES = {
    **dict.fromkeys(("round", "samples"), np.int64),
    **dict.fromkeys(("value", "low", "high"), np.float64),
    "failed": np.bool_,
}
_COLUMNS = (
    *("set", "round", "test", "metric", "value", "low", "high", "unit", "better", "samples", "stopped", "failed"),
    *("accelerator", "kernel", "machine", "started", "path"),
)


def runs(root: str | os.PathLike[str] = "runs", name: str | None = None) -> Table:
    """All measurements that tests have stored.

    Args:
        root: The folder of all sets, as ``--sblk-runs`` has it.
        name: Only this set, as ``--sblk-save`` named it.

    Returns:
        A row a measurement: set, round, test, metric, value, low, high (in `unit`), unit, better, samples, stopped,
        failed (whether the test did, which may be after it had measured), accelerator, kernel, machine, started,
        path. pandas, polars and duckdb take it as it is.

    Raises:
        InputError: There are none, or there is no such set.
        FormatError: A file below `root` is not what tests leave.
    """
    rows = list(_rows(load(root, name if name is None else check_name(name, "name"))))
    if not rows:
        there = sorted({run.set for run in load(root)}) if name is not None else []
        expected = f"one of its sets: {', '.join(there)}" if there else "a folder in which --sblk-save made a set"
        raise InputError(f"there are no measurements in {Path(root, name or '')}", expected=expected)
    columns: dict[str, Any] = {}
    for column in _COLUMNS:
        values = [row[column] for row in rows]
        columns[column] = np.array(values, dtype=_TYPES[column]) if column in _TYPES else values
    return Table.of(columns)
