# SPDX-License-Identifier: MIT
"""Sweeps as TOML files."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sampleblk_lab.errors import InputError
from sampleblk_lab.functions import named
from sampleblk_lab.sweeps.choice import of_table
from sampleblk_lab.sweeps.spec import DEADLINE_S, Spec
from sampleblk_lab.texts import read_text

if TYPE_CHECKING:
    import os

# Key -> the types that its value may have, and how that is said.
KEYS: dict[str, tuple[tuple[type, ...], str]] = {
    "function": ((str,), "'FILE.py:FUNCTION' or 'MODULE:FUNCTION'"),
    "where": ((str,), "'FILE.py:FUNCTION' or 'MODULE:FUNCTION'"),
    "repeat": ((int,), "a whole number of 1 or more"),
    "seed": ((int,), "a whole number of 0 or more"),
    "pairwise": ((bool,), "true or false"),
    "choose": ((dict,), "a table with combinations, and minimize or maximize where optuna chooses"),
    "deadline_s": ((int, float), "seconds above 0, or 0 for none"),
    "retries": ((int,), "a whole number of 0 or more"),
    "exclusive": ((bool, str), "true, false, 'FILE.py:FUNCTION' or 'MODULE:FUNCTION'"),
    "revision": ((str,), "a name, or 'git' for the commit of the function's file"),
    "workers": ((int,), "a whole number of 1 or more"),
    "scheduler": ((str,), "an address such as 'tcp://host:8786'"),
    "folder": ((str,), "a path, relative to this file"),
    "vm": ((bool, dict), "true, false, or a table with cpus, memory_mib, accel, driver"),
    "axes": ((dict,), "a table of axes"),
    "exclude": ((list,), "tables, [[exclude]]"),
}


@dataclass(frozen=True)
class File:
    """A sweep's file.

    Attributes:
        spec: What it asks for.
        workers: How many trials at a time.
        scheduler: The address of Dask's scheduler.
    """

    spec: Spec
    workers: int | None
    scheduler: str | None


def load(path: str | os.PathLike[str], *, revision: str | None = None) -> File:
    """Reads a file.

    Args:
        path: The file.
        revision: In the place of the file's own.

    Raises:
        InputError: It is not TOML, has a key that is unknown, or a value that is not accepted.
        OSError: It cannot be read.
    """
    source = str(path)
    try:
        value = tomllib.loads(read_text(Path(path)))
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"not TOML: {error}", source) from None
    for name, given in value.items():
        if name not in KEYS:
            raise InputError(f"unknown key {name!r}", source, expected=", ".join(KEYS))
        kinds, expected = KEYS[name]
        if not isinstance(given, kinds) or (isinstance(given, bool) and bool not in kinds):
            raise InputError(f"{name} = {given!r}", source, expected=expected)
    for name in ("function", "axes"):
        if name not in value:
            raise InputError(f"{name} is missing", source, expected=KEYS[name][1])
    folder = Path(path).resolve().parent
    for number, one in enumerate(value.get("exclude", [])):
        if not isinstance(one, dict):
            raise InputError(f"exclude[{number}] = {one!r}", source, expected=KEYS["exclude"][1])
    deadline_s = value.get("deadline_s", DEADLINE_S)
    where = value.get("where")
    exclusive = value.get("exclusive", False)
    try:
        choose = of_table(value["choose"]) if "choose" in value else None
    except InputError as error:
        raise InputError(error.message, source, expected=error.expected) from None
    if revision is not None:
        value["revision"] = revision
    options: dict[str, Any] = {
        name: value[name] for name in ("repeat", "seed", "pairwise", "retries", "revision") if name in value
    }
    spec = Spec(
        function=named(value["function"], source, files_in=folder),
        axes=value["axes"],
        choose=choose,
        exclusive=exclusive if isinstance(exclusive, bool) else named(exclusive, source, files_in=folder),
        where=None if where is None else named(where, source, files_in=folder),
        exclude=value.get("exclude", []),
        vm=value.get("vm"),
        deadline_s=deadline_s or None,
        folder=folder / value.get("folder", f"runs/sweeps/{Path(path).stem}"),
        source=source,
        **options,
    )
    return File(spec, value.get("workers"), value.get("scheduler"))
