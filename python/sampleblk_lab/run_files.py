# SPDX-License-Identifier: MIT
"""What a run's directory is made of, and how one run takes the place of another there."""

from __future__ import annotations

import contextlib
import itertools
import json
import shutil
import time
from pathlib import Path
from typing import Any

from sampleblk_lab.texts import read_json

#: What was asked for, and under :data:`ATTACHED` the names of the files that somebody put beside the recording.
RECORDING = "recording.json"
ATTACHED = "attached"
#: The folder that has what a bpftrace script found.
BPF = "bpf"
#: The folder that has the files whose functions were sampled.
SYMBOLS = "symbols"

#: What is recorded, and about what.
RECORDED = ("trace.dat", RECORDING, "env.json", "command.json", "perf.data")
#: What a job, or the command line, puts beside it.
OF_A_JOB = ("result.json", "report.txt", "trust.json", "counters.json")

# What is there to read the former by, or inside it.
_BESIDE = ("kallsyms", SYMBOLS, BPF)


def new_directory(kind: str, option: str = "--run-dir") -> Path:
    """Makes ``runs/KIND-TIME``, which no other run has: not even one that begins in the same second.

    `option` is what names another place.
    """
    name = Path("runs") / time.strftime(f"{kind}-%Y%m%d-%H%M%S")
    try:
        name.parent.mkdir(exist_ok=True)
        for number in itertools.count(2):
            with contextlib.suppress(FileExistsError):
                name.mkdir()
                break
            name = name.with_name(f"{name.name.partition('.')[0]}.{number}")
    except OSError as error:
        why = f"{error.strerror}: runs are kept in the folder 'runs' of where one is, unless {option} says where"
        raise OSError(error.errno, why, str(name.parent.absolute())) from error
    return name.absolute()


def attach(directory: Path, name: str, text: str) -> None:
    """Puts a file beside what was recorded in `directory`; it goes when that does."""
    (directory / name).write_text(text)
    about = directory / RECORDING
    told: dict[str, Any] = read_json(about, {ATTACHED: [str]})
    told[ATTACHED] = sorted({*told.get(ATTACHED, ()), name})
    about.write_text(json.dumps(told, indent=2) + "\n")


def remove_recording(directory: Path) -> None:
    """Removes what was recorded there before, or nothing; a part of it would be taken for the next recording's.

    Who has it open keeps it: its files are not written over.
    """
    attached: list[str] = []
    with contextlib.suppress(OSError, ValueError):  # of somebody else's, or broken
        attached = read_json(directory / RECORDING, {ATTACHED: [str]}).get(ATTACHED, [])
    remove(
        directory, *RECORDED, *_BESIDE, *(name for name in attached if "/" not in name and name not in ("", ".", ".."))
    )


def remove(directory: Path, *names: str) -> None:
    """Removes files and folders of `directory`, where they are."""
    for name in names:
        path = directory / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
