# SPDX-License-Identifier: MIT
"""What jobs measured."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from sampleblk_lab.errors import SampleblkError

if TYPE_CHECKING:
    from sampleblk_lab._native import core


class JobError(SampleblkError):
    """A job failed.

    Attributes:
        result: What all jobs measured until then.
        errno: Of the first job that failed.
    """

    def __init__(self, result: Result) -> None:
        super().__init__("; ".join(f"job {name}: {text}" for name, _, text in result.errors))
        self.result = result
        self.errno = result.errors[0][1]


class Result:
    """The outcome of a run. ``print(result)`` shows the report that fio's users know."""

    def __init__(self, result: core.RunResult) -> None:
        self._result = result

    @property
    def stop_reason(self) -> str:
        """Why the jobs ended early: "interrupted", no space left, …; empty when they ran to their end."""
        return self._result.stop_reason

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C ended the run."""
        return self.stop_reason == "interrupted"

    @property
    def errors(self) -> list[tuple[str, int, str]]:
        """The jobs that failed: name, errno, and what failed on which file."""
        return self._result.errors

    @property
    def messages(self) -> list[str]:
        """What the layout did."""
        return self._result.messages

    def text(self) -> str:
        """The report, in the form of fio's normal output."""
        return self._result.text()

    def json(self, *, bins: bool = False) -> dict[str, Any]:
        """The JSON that fio would print, as Python values; with `bins`, its JSON+ with every latency histogram."""
        value: dict[str, Any] = json.loads(self._result.json(bins))
        return value

    def json_text(self, *, bins: bool = False) -> str:
        """The JSON as fio would print it."""
        return self._result.json(bins)

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        return self.text()
