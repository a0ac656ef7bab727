# SPDX-License-Identifier: MIT
"""What the fixture ``crash`` is: a workload recorded, and its states explored."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sampleblk_lab.paths import scratch_directory
from sampleblk_lab.pytest_plugin import NOT_JUDGED
from sampleblk_lab.texts import utf8

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sampleblk_lab.crash import Exploration, Failure, Log, State
    from sampleblk_lab.device import Device, Mount


class Exploring:
    """One test's recordings and explorations.

    Attributes:
        fstype: The file system that is recorded.
        device: Its device, while it is recorded.
    """

    def __init__(self, node: pytest.Item, parameters: dict[str, Any], fstype: str, scratch: Path) -> None:
        self.fstype = fstype
        self.device: Device | None = None
        self._log: Log | None = None
        self._node = node
        self._parameters = parameters
        self._scratch = scratch
        self._recorded = 0
        self._explored = 0
        self._saved = 0

    @property
    def log(self) -> Log | None:
        """The last recording, for those who explore it themselves."""
        self._node.stash[NOT_JUDGED] = ""
        return self._log

    @contextlib.contextmanager
    def recording(
        self, *, options: str = "", before: Callable[[Mount], object] | None = None, stacks: bool = False
    ) -> Iterator[Mount]:
        """A fresh file system, mounted and recorded until the block ends.

        Args:
            options: As after ``mount -o``.
            before: Called with the mount before anything is recorded: what was there long ago.
            stacks: Also who submits what: a failure then names the system calls and functions of what is missing.
        """
        import sampleblk_lab as lab

        self._recorded += 1
        folder = self._scratch / str(self._recorded)
        with lab.Device(**self._parameters) as device:
            filesystem = device.mkfs(self.fstype)
            if before is not None:
                with filesystem.mount(options=options) as mount:
                    before(mount)
            self.device = device
            try:
                with lab.crash.recording(device, folder, stacks=stacks), filesystem.mount(options=options) as mount:
                    yield mount
            finally:
                self.device = None
        self._log = lab.crash.Log(folder / "log", base=folder / "base.img")
        self._node.stash[NOT_JUDGED] = "nothing of the recording was explored: call crash.explore()"

    def mark(self, text: str) -> None:
        """A note in the recording, such as what is promised from here: :attr:`sampleblk_lab.crash.State.marks`."""
        if self.device is None:
            pytest.fail("crash.mark() is for the block of crash.recording()", pytrace=False)
        self.device.mark(text)

    def explore(
        self, check: Callable[[Path, State], object] | None = None, *, options: str = "", **how: Any
    ) -> Exploration:
        """Explores the last recording; fails the test with what was found, and keeps it in the test's run directory.

        Args:
            check: Called with the mount point and the state; None: that the file system recovers is enough. One that
                :func:`sampleblk_lab.crash.mounted` or :func:`~sampleblk_lab.crash.recovers` has made is used as it is.
            options: As after ``mount -o``, for the states.
            how: As of :meth:`sampleblk_lab.crash.Log.explore`: model, states, seconds, failures, workers.
        """
        from sampleblk_lab import crash
        from sampleblk_lab.pytest_plugin import artefacts

        self._explored += 1
        if (log := self.log) is None:
            pytest.fail("nothing was recorded: with crash.recording() as mount: …", pytrace=False)
        if not (isinstance(check, crash.Check) and check.name in ("mounted", "recovers")):
            check = crash.mounted(self.fstype, check, options=options)
        found = log.explore(check, **{"progress": False, **how})
        if found.interrupted:
            raise KeyboardInterrupt
        if not found.ok:
            lines = [found.text() if found.checked else f"nothing was checked: {found.text()}"]
            kept = [self._keep(failure) for failure in found.failures]
            lines += [text for _, text in kept]
            if kept:
                page = artefacts.directory_of(self._node) / f"crash-{self._explored}.html"
                found.report(page, saved=[folder for folder, _ in kept])
                lines.append(f"with pictures in {page.parent.name}/{page.name}")
            pytest.fail("\n".join(lines), pytrace=False)
        return found

    def _keep(self, failure: Failure) -> tuple[str, str]:
        """Writes a failure to the run directory; returns its folder if pytest runs it there, and what to do with it."""
        from sampleblk_lab.crash.recording import keep
        from sampleblk_lab.errors import InputError
        from sampleblk_lab.pytest_plugin import artefacts

        self._saved += 1
        folder = artefacts.directory_of(self._node) / f"crash-{self._saved}"
        # From a VM it goes to the host's run directories, which are named at the session's end.
        place = f"{folder.parent.name}/{folder.name}"
        try:
            failure.save(folder)
        except InputError as error:
            # Its recording is worth keeping all the same.
            keep(failure.reduced.log, folder)
            (folder / "failure.txt").write_text(utf8(failure.text()) + "\n", encoding="utf-8")
            return "", f"kept in {place} of the run directories, without a test of its own: {error}"
        return folder.name, f"reproduce it with pytest on {place} of the run directories"


@contextlib.contextmanager
def exploring(node: pytest.Item, parameters: dict[str, Any], fstype: str) -> Iterator[Exploring]:
    """The fixture's value; its recordings lie in a folder that is gone afterwards."""
    with scratch_directory("recorded") as scratch:
        yield Exploring(node, parameters, fstype, scratch)
