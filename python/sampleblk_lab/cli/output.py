# SPDX-License-Identifier: MIT
"""What the commands print: tables for people, JSON for programs (``--json``)."""

from __future__ import annotations

import contextlib
import json
import math
import select
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sampleblk_lab.errors import InputError
from sampleblk_lab.progress import discard

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from sampleblk_lab.table import Table


def add_json(parser: argparse.ArgumentParser) -> None:
    """Adds ``--json``."""
    parser.add_argument("--json", action="store_true", help="as JSON")


def any_text(text: str) -> str:
    """The type of an option whose value may be empty, and says something then."""
    return text


def path_of(text: str, name: str, expected: str) -> Path:
    """A path of the command line; an empty one, as of a shell's variable that is not set, is not the current directory.

    Raises:
        InputError: It is empty.
    """
    if not text:
        raise InputError(f"{name} ''", expected=expected)
    return Path(text)


def refuse_unused(options: argparse.Namespace, defaults: Mapping[str, object], expected: str) -> None:
    """Of options by which nothing would change. Raises InputError where one has another value than by default."""
    for name, default in defaults.items():
        if (value := getattr(options, name)) != default:
            told = "" if value is True else f" {value}"
            raise InputError(f"--{name.replace('_', '-')}{told} changes nothing here", expected=expected)


def input_of(text: str, name: str, expected: str, *, folder: bool = False) -> Path:
    """A path of the command line that is to be read.

    Raises:
        InputError: It does not exist, or is a folder where that cannot be.
    """
    path = path_of(text, name, expected)
    if not path.exists():
        raise InputError(f"{name} {text!r} does not exist", expected=expected)
    if path.is_dir() and not folder:
        raise InputError(f"{name} {text!r} is a folder", expected=expected)
    return path


def as_json(value: Any) -> str:
    """JSON; what has no form of its own there becomes text, and NaN, which tables have for a missing number, null."""
    return json.dumps(_finite(value), indent=1, default=str, allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def show(options: argparse.Namespace, value: Any, text: str) -> None:
    """Prints one of the two forms."""
    print(as_json(value) if options.json else text)


def show_table(options: argparse.Namespace, table: Table, empty: str) -> None:
    """Prints all of a table, or what to say when it has no rows."""
    rows = list(table.rows())
    show(options, rows, table.text() if rows else empty)


def is_unread(error: OSError) -> bool:
    """Whether an error says that nobody reads what we print any more (``| head``).

    What cannot be written is discarded from then on: the interpreter's end would tell of it once more.
    """
    unread = False
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError):  # closed, or not a file
            descriptor = stream.fileno()
            try:
                stream.flush()
                poll = select.poll()
                poll.register(descriptor, 0)
                broken = bool(poll.poll(0))  # POLLERR, or of a socket POLLHUP
            except OSError:
                broken = True
            if broken:
                # Others get EPIPE of their sockets, and ENOSPC of their files.
                unread = unread or isinstance(error, BrokenPipeError)
                discard(descriptor)
    return unread
