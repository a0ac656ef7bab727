# SPDX-License-Identifier: MIT
"""What is known of a figure besides itself: held against a second source, or against what cannot be.

Whoever makes figures says here how they could be in doubt, :func:`later`; who uses them asks within a
:func:`collected` block. Nothing is worked out before it is asked for: it would be part of what is measured.
"""

from __future__ import annotations

import contextlib
import json
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sampleblk_lab import checked
from sampleblk_lab.errors import InputError, SampleblkError
from sampleblk_lab.texts import Whole, read_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

# What can be in doubt, by the names that `allow=` takes.
KINDS = {
    "bandwidth": "a rate above what the device is limited to",
    "clock": "a clock that jumped",
    "counters": "counts that differ from those of a second source",
    "errors": "I/O that failed and of which nobody was told",
    "files": "jobs whose files are elsewhere than on the device that was made for them",
    "lost": "events or samples that were lost",
}


@dataclass(frozen=True)
class Check:
    """One figure, held against something.

    Attributes:
        kind: One of :data:`KINDS`.
        what: What was held against what.
        found: The values.
        verdict: What that means: ``"agrees"``, ``"complete"``, ``"differs"``, …
        is_doubt: Whether the figure is not to be believed.
    """

    kind: str
    what: str
    found: str
    verdict: str
    is_doubt: bool

    def __str__(self) -> str:
        return f"{self.what}: {self.found}: {self.verdict}"


class TrustError(SampleblkError):
    """A measured figure is in doubt.

    Attributes:
        checks: The doubts.
    """

    def __init__(self, checks: Sequence[Check]) -> None:
        kinds = sorted({check.kind for check in checks})
        told = "".join(f"\n  {check}" for check in checks)
        super().__init__(f"what was measured is in doubt (where that is known and meant: allow={kinds}):{told}")
        self.checks = list(checks)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.checks,)


def as_json(checks: Iterable[Check]) -> str:
    """The text of ``trust.json``."""
    return json.dumps([vars(check) for check in checks], indent=1) + "\n"


def read(path: Path) -> list[Check]:
    """What a ``trust.json`` has.

    Raises:
        FormatError: It is none.
    """
    shape = Whole({"kind": str, "what": str, "found": str, "verdict": str, "is_doubt": bool})
    return [Check(**{name: one[name] for name in shape}) for one in read_json(path, [shape])]


def of_losses(what: str, lost: int) -> Check:
    """Whether all of what was recorded is there."""
    return Check("lost", what, f"{lost:,}", "incomplete" if lost else "complete", is_doubt=lost > 0)


class Collected:
    """What was said within a :func:`collected` block."""

    def __init__(self) -> None:
        self._told: list[Callable[[], Iterable[Check]]] = []

    def add(self, checks: Callable[[], Iterable[Check]]) -> None:
        """Called by :func:`later`."""
        self._told.append(checks)

    def doubts(self, allow: Iterable[str] = ()) -> list[Check]:
        """The checks that failed, but for those of the kinds in `allow`; each is worked out once."""
        allowed = frozenset(allow)
        told, self._told = self._told, []
        return [check for each in told for check in each() if check.is_doubt and check.kind not in allowed]


_open: ContextVar[tuple[Collected, ...]] = ContextVar("_open", default=())


def later(checks: Callable[[], Iterable[Check]]) -> None:
    """Says how to check what was just measured, to all blocks that are open in this thread or task."""
    for each in _open.get():
        each.add(checks)


def is_asked() -> bool:
    """Whether somebody measures or judges: a part of what was to be done is of no use then."""
    return bool(_open.get())


@contextlib.contextmanager
def collected() -> Iterator[Collected]:
    """Collects what the code within has to say."""
    found = Collected()
    token = _open.set((*_open.get(), found))
    try:
        yield found
    finally:
        _open.reset(token)


def kinds(allow: str | Iterable[str]) -> tuple[str, ...]:
    """The kinds that a caller named. Raises InputError."""
    named = tuple(checked.names("allow", allow))
    for kind in named:
        if kind not in KINDS:
            raise InputError(f"allow={kind!r}", expected=" or ".join(KINDS))
    return named
