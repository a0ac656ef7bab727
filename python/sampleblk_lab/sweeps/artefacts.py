# SPDX-License-Identifier: MIT
"""What a trial's function leaves in its directory, brought from the host that it ran on to the sweep's folder."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from sampleblk_lab.errors import InputError
from sampleblk_lab.paths import below, naming, remove_left, replaced_directory

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Below the sweep's folder, one directory for each trial that left something.
DIRECTORY = "trials"

# A trial's files are in memory on their way, at both ends and in between.
MOST_BYTES = 256 << 20


def collected(directory: Path) -> dict[str, bytes]:
    """The regular files below a directory, by their paths in it; links and devices are none.

    Raises:
        InputError: They are too large.
        OSError: One cannot be read.
    """
    found: dict[str, bytes] = {}
    size = 0
    for where, folders, names in os.walk(directory):
        folders.sort()
        for name in sorted(names):
            path = Path(where, name)
            status = path.lstat()
            if not stat.S_ISREG(status.st_mode):
                continue
            size += status.st_size
            if size > MOST_BYTES:
                raise InputError(
                    f"the files that the function left are {size >> 20} MiB or more",
                    expected=f"{MOST_BYTES >> 20} MiB at most; return what matters of them",
                )
            found[path.relative_to(directory).as_posix()] = path.read_bytes()
    return found


def keep(folder: Path, key: str, files: Mapping[str, bytes]) -> str:
    """Writes a trial's files below the sweep's folder, all or none; returns the directory's path there, if any.

    What an earlier attempt at the trial left is replaced, or goes.
    """
    target = folder / DIRECTORY / key
    if not files:
        remove_left(target.parent)
        if target.exists():
            shutil.rmtree(target)
        return ""
    with replaced_directory(target) as scratch:
        for name, data in files.items():
            path = below(scratch, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            with naming(target / name):
                path.write_bytes(data)
    return f"{DIRECTORY}/{key}"
