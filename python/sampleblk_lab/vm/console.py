# SPDX-License-Identifier: MIT
"""What the guest's kernel said."""

from __future__ import annotations

import re
from pathlib import Path

from sampleblk_lab.splat import is_splat

_PANIC = re.compile(r"Kernel panic - not syncing|Oops:")

# Cursor and colour codes of the firmware.
_ESCAPES = re.compile(r"\x1b(\[[0-9;?]*[A-Za-z]|c)")


class Console:
    """The log that the guest's serial port writes.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def clear(self) -> None:
        """Forgets what a failed start wrote."""
        self.path.unlink(missing_ok=True)

    def append(self, text: str) -> None:
        """Adds what others know of the guest, once it has ended and writes no more."""
        with self.path.open("a") as file:
            file.write(f"{text}\n")

    def text(self, since: int = 0) -> str:
        """The log from byte `since` on."""
        try:
            with self.path.open("rb") as file:
                file.seek(since)
                raw = file.read()
        except FileNotFoundError:
            return ""
        return _ESCAPES.sub("", raw.decode(errors="replace")).replace("\r", "")

    def size(self) -> int:
        """Bytes so far: a mark for :meth:`text`."""
        try:
            return self.path.stat().st_size
        except FileNotFoundError:
            return 0

    def tail(self, lines: int = 60) -> str:
        """The last lines."""
        return "\n".join(self.text().splitlines()[-lines:])

    def last_words(self) -> str:
        """Why our init ended, which ends the guest; empty when it did not."""
        said = re.findall(r"^sampleblk-init: (.+)$", self.text(), re.MULTILINE)
        return said[-1] if said else ""

    def has_panic(self) -> bool:
        """Whether the kernel panicked or oopsed."""
        return _PANIC.search(self.text()) is not None

    def splats(self, since: int = 0) -> list[str]:
        """The first line of each panic, oops, warning, lockup, hung task or leak since byte `since`."""
        return [line for line in self.text(since).splitlines() if is_splat(line)]
