# SPDX-License-Identifier: MIT
"""The exceptions of the package.

A system call that fails raises the ``OSError`` subclass that Python itself would pick for its errno, with
``filename`` set; what follows is for the rest.
"""

from __future__ import annotations

from typing import Any


class SampleblkError(Exception):
    """Base of every exception of ours that is not an ``OSError``."""


class CoreError(SampleblkError, ImportError):
    """The C++ core cannot be loaded here."""


class InputError(SampleblkError, ValueError):
    """Input that a user wrote and that we cannot take.

    Attributes:
        message: What is wrong, naming the value.
        source: The file or option it came from; empty when neither.
        line: Line number counted from 1; 0 when the source is not a file.
        expected: What would be accepted; may be empty.
    """

    def __init__(self, message: str, source: str = "", line: int = 0, expected: str = "") -> None:
        where = f"{source}:{line}" if line else source
        text = f"{where}: {message}" if where else message
        super().__init__(f"{text} (expected {expected})" if expected else text)
        self.message = message
        self.source = source
        self.line = line
        self.expected = expected

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.message, self.source, self.line, self.expected)


class FormatError(SampleblkError, ValueError):
    """A recording that is truncated, corrupt or not what its name says.

    Attributes:
        path: The file.
        offset: Where, in bytes from its start.
        expected: What should have been there.
    """

    def __init__(self, path: str, offset: int, expected: str) -> None:
        super().__init__(f"{path}: at byte {offset}: expected {expected}")
        self.path = path
        self.offset = offset
        self.expected = expected

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.path, self.offset, self.expected)


class UnsupportedError(SampleblkError, RuntimeError):
    """Something that this kernel, machine or build cannot do.

    Attributes:
        feature: What was asked for.
        reason: Why it cannot be had.
        remedy: How to get it; may be empty.
    """

    def __init__(self, feature: str, reason: str, remedy: str = "") -> None:
        text = f"{feature}: {reason}"
        super().__init__(f"{text}; {remedy}" if remedy else text)
        self.feature = feature
        self.reason = reason
        self.remedy = remedy

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.feature, self.reason, self.remedy)


class TraceCommandError(OSError):
    """A tracing command that the kernel refused, with what its error_log says.

    Attributes:
        command: What was written.
        reason: The kernel's words; empty where it gave none.
        position: Where in `command` its caret points, counted from 0; None where it gave none.
    """

    def __init__(self, code: int, message: str, filename: str, command: str) -> None:
        super().__init__(code, message, filename)
        self.command = command
        self.reason = ""
        self.position: int | None = None
        lines = message.splitlines()
        for index, line in enumerate(lines):
            if line.strip().startswith("Command: ") and index + 1 < len(lines) and "^" in lines[index + 1]:
                self.position = lines[index + 1].index("^") - (line.index("Command: ") + len("Command: "))
                if index > 0:
                    self.reason = lines[index - 1].partition("error: ")[2].strip() or lines[index - 1].strip()
