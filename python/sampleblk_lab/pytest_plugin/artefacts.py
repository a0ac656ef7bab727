# SPDX-License-Identifier: MIT
"""What a test leaves behind: its run directory, from a scratch folder to where it stays.

All tests of a session write below one scratch folder, which VMs share; at its end the session's own process moves what
is worth keeping to ``runs/NAME/0001/TEST/``. Imports nothing heavy: every session runs through it.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from sampleblk_lab.results.sets import Row

_WORKER_INPUT = "sampleblk_artefacts"


class Session:
    """The run directories of one session, in the process that reports them."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self._scratch: Path | None = None
        self.failed: set[str] = set()
        #: The folder that the session's run directories were moved to.
        self.kept: Path | None = None
        #: With ``--sblk-compare``: the verdicts.
        self.rows: list[Row] | None = None
        self.trouble = ""

    @property
    def runs(self) -> Path:
        """The folder of all sets."""
        chosen = self.config.getoption("--sblk-runs")
        return Path(self.config.invocation_params.dir, chosen) if chosen else self.config.rootpath / "runs"

    @property
    def name(self) -> str:
        """The set that this session belongs to."""
        return self.config.getoption("--sblk-save") or "latest"

    def scratch(self) -> Path:
        """Where run directories are while the session runs."""
        if self._scratch is None:
            self._scratch = Path(tempfile.mkdtemp(prefix="sampleblk-session-"))
        return self._scratch

    def made(self) -> list[Path]:
        """The run directories that tests have made so far."""
        return sorted(self._scratch.iterdir()) if self._scratch is not None else []

    def stays(self, directory: Path) -> bool:
        """Whether a run directory is worth keeping."""
        return (
            directory.name in self.failed
            or (directory / "measurements.json").exists()
            or bool(self.config.getoption("--sblk-keep"))
        )

    def close(self) -> None:
        """Takes the scratch folder away. Idempotent."""
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)
            self._scratch = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Notes which run directories stay, and puts their names into the report for JUnit and HTML."""
        name = folder_name(report.nodeid)
        if report.failed:
            self.failed.add(name)
        directory = self.scratch() / name
        if report.when in ("setup", "call") or not directory.exists() or not self.stays(directory):
            return
        report.user_properties.append(("sampleblk_run", f"{self.name}/{name}"))
        # pytest-html's form of an extra, which it links from the test's row.
        extras = [
            {
                "name": path.stem,
                "format_type": "text",
                "content": path.read_text(errors="replace"),
                "mime_type": "text/plain",
                "extension": "txt",
            }
            for path in sorted(directory.glob("*.log"))
        ]
        report.extras = [*getattr(report, "extras", ()), *extras]  # type: ignore[attr-defined]

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Moves what stays to its place, and compares."""
        staying = [directory for directory in self.made() if self.stays(directory)]
        if staying:
            from sampleblk_lab.results import store

            self.kept = store.add_round(self.runs, self.name, staying)
        base = self.config.getoption("--sblk-compare")
        if base is None:
            return
        from sampleblk_lab.errors import SampleblkError

        try:
            self._compare(base)
        except SampleblkError as error:
            self.trouble = str(error)
        slower = [row for row in self.rows or () if row.comparison and row.comparison.verdict == "slower"]
        if slower and self.config.getoption("--sblk-fail-slower") and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def _compare(self, base: str) -> None:
        from sampleblk_lab.results import sets, store

        now = [] if self.kept is None else store.load(self.runs, self.name)
        self.rows = sets.compare_sets(store.load(self.runs, base), now, across=self.config.getoption("--sblk-across"))

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Says where the results are, and the verdicts."""
        if self.rows is not None:
            from sampleblk_lab.results import sets

            base = self.config.getoption("--sblk-compare")
            terminalreporter.section(f"sampleblk: against {base}")
            for line in sets.text(self.rows) or [f"nothing measured here has a counterpart in {self.runs / base}"]:
                terminalreporter.write_line(line)
        if self.trouble:
            terminalreporter.write_line(f"sampleblk: not compared: {self.trouble}", red=True)
        if self.kept is not None:
            terminalreporter.write_line(f"sampleblk: run directories in {self.kept}")

    def pytest_unconfigure(self) -> None:
        """Takes the scratch folder away."""
        self.close()


_SESSION = pytest.StashKey[Session]()


def _is_worker(config: pytest.Config) -> bool:
    return hasattr(config, "workerinput")


def session_of(config: pytest.Config) -> Session:
    """The session's run directories; made on first use."""
    if _SESSION not in config.stash:
        config.stash[_SESSION] = Session(config)
        config.pluginmanager.register(config.stash[_SESSION], "sampleblk-session")
    return config.stash[_SESSION]


def tell_worker(node: Any) -> None:
    """Puts the scratch folder into what an xdist worker is told."""
    node.workerinput[_WORKER_INPUT] = str(session_of(node.config).scratch())


def folder_name(test: str) -> str:
    """A test's id as the name of a folder: readable, and different for different tests."""
    tail = re.sub(r"[^A-Za-z0-9._=,-]+", "-", test.rpartition("/")[2]).strip("-.")[:80]
    return f"{tail}-{hashlib.sha256(test.encode()).hexdigest()[:6]}"


def directory_of(item: pytest.Item) -> Path:
    """The run directory of a test, which is not made here."""
    config = item.config
    told = config.workerinput.get(_WORKER_INPUT) if _is_worker(config) else None  # type: ignore[attr-defined]
    return (Path(told) if told else session_of(config).scratch()) / folder_name(item.nodeid)


def check_options(config: pytest.Config) -> None:
    """Refuses names and words that cannot be. Raises pytest.UsageError."""
    from sampleblk_lab.errors import InputError
    from sampleblk_lab.results.store import check_name

    for option in ("--sblk-save", "--sblk-compare"):
        name = config.getoption(option)
        try:
            if name is not None:
                check_name(name, option)
        except InputError as error:
            raise pytest.UsageError(str(error)) from None
    known = ("accelerator", "kernel", "machine")
    for word in config.getoption("--sblk-across"):
        if word not in known:
            raise pytest.UsageError(f"--sblk-across {word!r} (expected {', '.join(known)})")
    name = config.getoption("--sblk-compare")
    if name is not None and not _is_worker(config) and not (session_of(config).runs / name).is_dir():
        raise pytest.UsageError(
            f"--sblk-compare {name}: there is no {session_of(config).runs / name}; "
            f"a session with --sblk-save {name} makes it"
        )
