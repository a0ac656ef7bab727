# SPDX-License-Identifier: MIT
"""How far an exploration has come, in a file: the next one with the same log, model and check goes on from there."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sampleblk_lab.crash.checks import Check
from sampleblk_lab.crash.explore import Failure
from sampleblk_lab.crash.log import Bare, State
from sampleblk_lab.crash.parcel import Parcel
from sampleblk_lab.crash.workers import unpacked
from sampleblk_lab.errors import FormatError, InputError
from sampleblk_lab.paths import replace_file
from sampleblk_lab.sweeps import identity

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sampleblk_lab.crash.explore import Position
    from sampleblk_lab.crash.log import Log
    from sampleblk_lab.crash.model import Model

# Counted up where walks go through their contents in another order, or through others.
_FORMAT = "sampleblk-lab crash exploration 5"
_EVERY_S = 5.0


@dataclass(frozen=True)
class Found:
    """A failure, as a file has it.

    Attributes:
        number: Which of the contents it has.
        looked_at: States that had been looked at by then.
        state: As it was found.
        reduced: What the failure takes.
        error: The name of the exception.
        message: And what it said.
    """

    number: int
    looked_at: int
    state: Bare
    reduced: Bare
    error: str
    message: str


@dataclass(frozen=True)
class Reached:
    """How far an exploration has come, counted from its first begin.

    Attributes:
        number: All contents before this one were checked.
        looked_at: States that were looked at by then.
        elapsed_s: Seconds it took until then.
        failures: Those of these contents.
    """

    number: int = 0
    looked_at: int = 0
    elapsed_s: float = 0.0
    failures: tuple[Found, ...] = field(default=())


def digest(check: Callable[[Path, State], object]) -> str:
    """What tells a check from others. Raises InputError where nothing does."""

    def made(part: Any) -> Any:
        # What a ready check was made of: its own closure says the same in more words.
        if isinstance(part, Check):
            return [part.name, [made(each) for each in part.arguments], {k: made(v) for k, v in part.keywords.items()}]
        return part

    if isinstance(check, Check):
        return identity.of_function(functools.partial(digest, made(check))).digest
    return identity.of_function(check).digest


def about(
    log: Log, check: Callable[[Path, State], object], model: Model, order: str, kernel: str = ""
) -> dict[str, Any]:
    """What tells an exploration from others, as JSON has it; `kernel`: of the VMs.

    Raises:
        InputError: Nothing tells the check from others.
    """
    if not kernel and isinstance(check, Check) and check.name == "mounted":
        kernel = os.uname().release
    return {
        "log": dataclasses.asdict(Parcel.of(log)),
        "model": repr(model),
        "check": digest(check),
        "order": order,
        "kernel": kernel,
        # By which the unlike come first; they follow from the submitters, too, which the log does not have.
        "kinds of writes": hashlib.sha256(repr(log.kinds()).encode()).hexdigest() if order == "unlike" else "",
    }


class Notes:
    """The file of one exploration.

    Args:
        path: Read where it is there, and written to.
        log: What is explored.
        check: What is asked of its states.
        of: What :func:`about` says of it.
        begin: Of this run, in seconds of the monotonic clock.

    Attributes:
        reached: What the runs before have reached.

    Raises:
        InputError: The file is of another log, model, check, order or kernel; the check refers to what cannot be told
            apart.
        FormatError: It is another file, or damaged.
        OSError: It cannot be read, or written.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        log: Log,
        check: Callable[[Path, State], object],
        of: Mapping[str, Any],
        begin: float,
    ) -> None:
        self._path = Path(path).absolute()  # wherever a check goes
        self._log = log
        self._check = check
        self._of = dict(of)
        self.reached = self._read() if self._path.exists() else Reached()
        # That it cannot be written shall not be found out at the end.
        self._save(self.reached)
        self._begin = begin - self.reached.elapsed_s

    def earlier(self) -> dict[int, tuple[int, Failure]]:
        """The failures of the runs before, as :class:`sampleblk_lab.crash.explore.Task` has them."""
        return {
            each.number: (
                each.looked_at,
                Failure(
                    State.of(self._log, each.state),
                    State.of(self._log, each.reduced),
                    unpacked((each.error, each.message)),
                    self._check,
                ),
            )
            for each in self.reached.failures
        }

    def note(self, position: Position) -> None:
        """Saves it, if it is time to. Raises OSError."""
        if not position.is_last and time.monotonic() - self._saved_at < _EVERY_S:
            return
        failures = tuple(
            Found(
                number,
                looked_at,
                failure.state.bare,
                failure.reduced.bare,
                type(failure.error).__name__,
                str(failure.error),
            )
            for number, (looked_at, failure) in sorted(position.reached.items())
            if number < position.number
        )
        self._save(Reached(position.number, position.looked_at, time.monotonic() - self._begin, failures))

    def _read(self) -> Reached:
        try:
            found = json.loads(self._path.read_bytes())
            if found["format"] != _FORMAT:
                raise ValueError(f"format {found['format']!r}")
            of, at = dict(found["of"]), found["reached"]
            failures = tuple(
                Found(**{**each, "state": _bare(each["state"]), "reduced": _bare(each["reduced"])})
                for each in at["failures"]
            )
            reached = Reached(int(at["number"]), int(at["looked_at"]), float(at["elapsed_s"]), failures)
            if reached.number < 0 or any(each.number >= reached.number for each in failures):
                raise ValueError(f"{reached.number} contents checked, and a failure beyond")
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise FormatError(str(self._path), 0, f"the file of an exploration ({error!r})") from error
        for name, value in self._of.items():
            if of.get(name, "") != value:
                expected = f"{name} {value or 'none'}; or another file"
                raise InputError(f"an exploration of another {name}", str(self._path), expected=expected)
        return reached

    def _save(self, reached: Reached) -> None:
        value = {"format": _FORMAT, "of": self._of, "reached": dataclasses.asdict(reached)}
        replace_file(self._path, json.dumps(value, indent=1).encode() + b"\n")
        self._saved_at = time.monotonic()


def _bare(value: Any) -> Bare:
    submitted, lost, torn = value
    return int(submitted), [int(write) for write in lost], [(int(a), int(b), int(c)) for a, b, c in torn]
