# SPDX-License-Identifier: MIT
"""What a test leaves behind: its run directory, from a scratch folder to where it stays.

All tests of a session write below one scratch folder, which VMs share; at its end the session's own process moves what
is worth keeping to ``runs/NAME/0001/TEST/``. Imports nothing heavy: every session runs through it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fnmatch
import hashlib
import os
import re
import shutil
import stat
import tempfile
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sampleblk_lab.paths import below, scratch_directory
from sampleblk_lab.pytest_plugin import options, selection
from sampleblk_lab.texts import counted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sampleblk_lab.results.sets import Row
    from sampleblk_lab.results.store import Stored

# In a guest: the folder that the session told it.
SCRATCH = pytest.StashKey[Path]()

# The folder in it for what belongs to a guest and to no test.
GUESTS = ".guests"

# What comes back of a failed test's temporary folder.
_MOST_BYTES = 64 << 20

_WORKER_INPUT = "sampleblk_artefacts"
_WORKER_DESELECTED = "sampleblk_deselected"
_WORKER_NOT_RUN = "sampleblk_not_run"
_WORKER_RUNS = "sampleblk_runs"
_WORKER_LEFT_OUT = "sampleblk_left_out"


class Session:
    """The run directories of one session, in the process that reports them."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self._scratch: Path | None = None
        self._folders = contextlib.ExitStack()
        self.failed: set[str] = set()
        #: Tests that did not run for want of a VM, by what is missing.
        self.not_run: dict[str, int] = {}
        #: The folder that the session's run directories were moved to.
        self.kept: Path | None = None
        #: Why they were not.
        self.lost = ""
        #: With ``--sblk-compare``: what it compares with, the verdicts, and those that `--sblk-fail-slower` fails for.
        self.base: list[Stored] = []
        self.rows: list[Row] | None = None
        self.failures: list[str] = []
        #: Whether one of these was measured to be slower; the others could not be compared.
        self.slower = False
        #: Tests that this session collected and left out (``-k``, ``-m``, ``--deselect``), and how the others ended.
        self.deselected: set[str] = set()
        self.outcomes: dict[str, str] = {}
        #: Run directories that did not come from another host, each with why.
        self.left_out: list[str] = []

    @property
    def runs(self) -> Path:
        """The folder of all sets."""
        return options.of(self.config).runs

    @property
    def name(self) -> str:
        """The set that this session belongs to."""
        return self.config.getoption("--sblk-save") or "latest"

    def scratch(self) -> Path:
        """Where run directories are while the session runs."""
        if self._scratch is None:
            self._scratch = self._folders.enter_context(scratch_directory("tests"))
        return self._scratch

    def made(self) -> list[Path]:
        """The run directories that tests have made so far."""
        found = self._scratch.iterdir() if self._scratch is not None else ()
        return sorted(path for path in found if path.name != GUESTS)

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
            self._scratch = None
            self._folders.close()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Notes which run directories stay, and puts their names into the report for JUnit and HTML."""
        name = folder_name(report.nodeid)
        if not getattr(report, "sblk_judged", True):
            self.config.option.update_snapshots = False  # syrupy deletes those that it has not met
        if not report.passed:
            self.outcomes[report.nodeid] = report.outcome
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
            if path.is_file() and os.access(path, os.R_OK)  # a test may have put anything there
        ]
        report.extras = [*getattr(report, "extras", ()), *extras]  # type: ignore[attr-defined]

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Moves what stays to its place, and compares; a worker of xdist on another host sends it home."""
        staying = [directory for directory in self.made() if self.stays(directory)]
        if _is_worker(self.config):
            self._send(staying)
            return
        compared = self.config.getoption("--sblk-compare") is not None
        if not (staying or compared):
            return
        from sampleblk_lab.results import store

        try:
            for directory in staying:
                if directory.name in self.failed:
                    store.note_failed(directory)
            # Before they move: another session that ends now, too, replaces what is in "latest".
            if compared:
                self._judge(session)
            self.kept = store.add_round(self.runs, self.name, staying)
        except OSError as error:
            where = self._kept_elsewhere(staying)
            self.lost = f"run directories could not be kept in {self.runs / self.name}: {error}; {where}"
            if session.exitstatus == pytest.ExitCode.OK:
                session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def _kept_elsewhere(self, staying: list[Path]) -> str:
        """Takes what could not be moved out of the scratch folder, which goes; says where it is."""
        try:
            kept = Path(tempfile.mkdtemp(prefix="sampleblk-kept-", dir=self.scratch().parent))
            for directory in staying:
                directory.rename(kept / directory.name)
        except OSError as error:
            return f"nor elsewhere: {error}"
        return f"they are in {kept}"

    def _judge(self, session: pytest.Session) -> None:
        if self.config.option.collectonly:
            self.failures = ["not compared: --collect-only runs no test"]
            return
        from sampleblk_lab.errors import SampleblkError

        stopped = session.shouldfail or session.shouldstop or session.exitstatus == pytest.ExitCode.INTERRUPTED
        try:
            self._compare(whole=not stopped)
        except (SampleblkError, OSError) as error:
            self.failures = [f"not compared: {error}"]
        if self.failures and self.config.getoption("--sblk-fail-slower") and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def _send(self, staying: list[Path]) -> None:
        from sampleblk_lab.errors import InputError
        from sampleblk_lab.sweeps.artefacts import collected

        output = self.config.workeroutput  # type: ignore[attr-defined]
        for directory in staying:
            try:
                output.setdefault(_WORKER_RUNS, {})[directory.name] = collected(directory)
            except (InputError, OSError) as error:
                output.setdefault(_WORKER_LEFT_OUT, []).append(f"{directory.name}: {error}")

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Under xdist: learns from the workers what they left out, and takes what those on other hosts send."""
        output = getattr(node, "workeroutput", {})
        for name, files in output.get(_WORKER_RUNS, {}).items():
            for inside, data in files.items():
                path = below(below(self.scratch(), name), inside)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
        self.left_out += output.get(_WORKER_LEFT_OUT, [])
        self.deselected.update(output.get(_WORKER_DESELECTED, ()))
        for what, count in output.get(_WORKER_NOT_RUN, {}).items():
            self.not_run[what] = self.not_run.get(what, 0) + count

    def _compare(self, *, whole: bool) -> None:
        from sampleblk_lab.results import sets, store

        now = store.load_round(self._scratch) if self._scratch is not None else []
        made = sets.compare_sets(self.base, now, across=self.config.getoption("--sblk-across"))
        measured = {run.test for run in now}
        rows = []
        for row in made:
            if row.comparison is None and not row.new and row.test not in measured:
                if not self._asked_for(row.test):
                    continue
                row = dataclasses.replace(row, refused=self._why_not_measured(row.test, whole=whole))
            rows.append(row)
        self.rows = rows
        failing = sets.failures(rows, allow_new=self.config.getoption("--sblk-allow-new"))
        self.failures = [f"{row.name}: {row.refused or row.verdict}" for row in failing]
        self.slower = any(row.comparison is not None for row in failing)
        if all(row.new for row in rows):
            self.failures.append("nothing was measured that the set has")

    def _why_not_measured(self, test: str, *, whole: bool) -> str:
        if outcome := self.outcomes.get(test):
            return f"not measured: the test {outcome}"
        return "not measured in this session: " + ("renamed or removed?" if whole else "it ended early")

    def _asked_for(self, test: str) -> bool:
        """Whether the command line covers a test that this session did not measure."""
        if test in self.outcomes:
            return True
        config = self.config
        if test in self.deselected or config.getoption("lf", False):
            return False
        name, _, inner = test.partition("::")
        path = config.rootpath / name
        ignored = [Path(config.invocation_params.dir, one) for one in config.getoption("ignore", None) or ()]
        if any(path.is_relative_to(one) for one in ignored):
            return False
        globs = [str(Path(config.invocation_params.dir, one)) for one in config.getoption("ignore_glob", None) or ()]
        if any(fnmatch.fnmatch(str(one), glob) for glob in globs for one in (path, *path.parents)):
            return False
        return any(selection.covers(config, named, (path, inner)) for named in selection.arguments(config))

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Says what did not run, where the results are, and the verdicts."""
        for what, count in self.not_run.items():
            terminalreporter.write_line(f"sampleblk: {counted(count, 'more test')} did not run: {what}", red=True)
        for what in self.left_out:
            terminalreporter.write_line(f"sampleblk: not brought from its host: {what}", red=True)
        base = self.config.getoption("--sblk-compare")
        if self.rows is not None:
            from sampleblk_lab.results import sets

            terminalreporter.section(f"sampleblk: against {base}")
            for line in sets.text(self.rows) or [f"nothing measured here has a counterpart in {self.runs / base}"]:
                terminalreporter.write_line(line)
        if self.failures and (self.config.getoption("--sblk-fail-slower") or self.rows is None):
            for line in self.failures:
                terminalreporter.write_line(f"sampleblk: against {base}: {line}", red=True)
        if self.lost:
            terminalreporter.write_line(f"sampleblk: {self.lost}", red=True)
        if self.kept is not None:
            terminalreporter.write_line(f"sampleblk: run directories in {self.kept}")

    def pytest_unconfigure(self) -> None:
        """Takes the scratch folder away."""
        self.close()


_SESSION = pytest.StashKey[Session]()


def note_deselected(config: pytest.Config, items: Iterable[pytest.Item]) -> None:
    """Notes the tests that a session leaves out; a worker of xdist tells its controller."""
    if config.getoption("--sblk-compare") is None:
        return
    tests = [item.nodeid for item in items]
    if _is_worker(config):
        config.workeroutput.setdefault(_WORKER_DESELECTED, []).extend(tests)  # type: ignore[attr-defined]
    else:
        session_of(config).deselected.update(tests)


def _is_worker(config: pytest.Config) -> bool:
    return hasattr(config, "workerinput")


def session_of(config: pytest.Config) -> Session:
    """The session's run directories; made on first use."""
    if _SESSION not in config.stash:
        config.stash[_SESSION] = Session(config)
        config.pluginmanager.register(config.stash[_SESSION], "sampleblk-session")
    return config.stash[_SESSION]


def note_not_run(config: pytest.Config, what: str) -> None:
    """Counts a test that did not run for want of a VM."""
    counts = (
        config.workeroutput.setdefault(_WORKER_NOT_RUN, {})  # type: ignore[attr-defined]
        if _is_worker(config)
        else session_of(config).not_run
    )
    counts[what] = counts.get(what, 0) + 1


def warn(config: pytest.Config, text: str) -> None:
    """Shows a warning. It is about the machinery, so that no filter makes an error of it."""
    shown = warnings.WarningMessage(pytest.PytestWarning(text), pytest.PytestWarning, __file__, 0)
    arguments = {"warning_message": shown, "when": "runtest", "nodeid": "", "location": None}
    config.hook.pytest_warning_recorded.call_historic(kwargs=arguments)


def tell_worker(node: Any) -> None:
    """Puts the scratch folder into what an xdist worker is told."""
    node.workerinput[_WORKER_INPUT] = str(session_of(node.config).scratch())


def folder_name(test: str) -> str:
    """A test's id as the name of a folder: readable, and different for different tests."""
    tail = re.sub(r"[^A-Za-z0-9._=,-]+", "-", test.rpartition("/")[2]).strip("-.")[:80]
    return f"{tail}-{hashlib.sha256(test.encode()).hexdigest()[:6]}"


def scratch_of(config: pytest.Config) -> Path:
    """Where the session's run directories are while it runs; in a guest and on an xdist worker too."""
    if SCRATCH in config.stash:
        return config.stash[SCRATCH]
    told = config.workerinput.get(_WORKER_INPUT) if _is_worker(config) else None  # type: ignore[attr-defined]
    # A worker on another host has one of its own.
    return Path(told) if told and Path(told).is_dir() else session_of(config).scratch()


def directory_of(item: pytest.Item) -> Path:
    """The run directory of a test, which is not made here."""
    return scratch_of(item.config) / folder_name(item.nodeid)


def keep_files(source: Path, target: Path) -> None:
    """Copies a folder's files, links and folders, 64 MiB at most; what is left out is listed beside it."""
    left_out = []
    left = _MOST_BYTES
    for folder, folders, files in os.walk(source):
        here = Path(folder)
        for name in [name for name in folders if (here / name).is_symlink() or (here / name).is_mount()]:
            folders.remove(name)
            if (here / name).is_symlink():
                files.append(name)
            else:
                left_out.append(f"{here / name}: a mount point")
        into = target / here.relative_to(source)
        for name in sorted(files):
            path = here / name
            about = path.lstat()
            if not (stat.S_ISREG(about.st_mode) or stat.S_ISLNK(about.st_mode)):
                left_out.append(f"{path}: not a regular file")
            elif about.st_size > left:
                left_out.append(f"{path}: {about.st_size} bytes, over the {_MOST_BYTES} that are kept")
            else:
                left -= about.st_size
                into.mkdir(parents=True, exist_ok=True)
                shutil.copy2(path, into / name, follow_symlinks=False)
    if left_out:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.with_name(f"{target.name}-left-out.txt").write_text("".join(f"{line}\n" for line in left_out))


def check_options(config: pytest.Config) -> None:
    """Refuses names and words that cannot be. Raises pytest.UsageError."""
    from sampleblk_lab.errors import InputError, SampleblkError
    from sampleblk_lab.results.store import check_name, load

    for option in ("--sblk-save", "--sblk-compare"):
        name = config.getoption(option)
        try:
            if name is not None:
                check_name(name, option)
        except InputError as error:
            raise pytest.UsageError(str(error)) from None
        if name is not None and config.getoption("dist", "no") == "each" and not _is_worker(config):
            raise pytest.UsageError(
                f"{option} {name}: --dist each runs a test several times, and one of its runs would be kept "
                "(expected another --dist, such as load)"
            )
    known = ("accelerator", "kernel", "machine")
    for word in config.getoption("--sblk-across"):
        if word not in known:
            raise pytest.UsageError(f"--sblk-across {word!r} (expected {', '.join(known)})")
    name = config.getoption("--sblk-compare")
    if name is None:
        if config.getoption("--sblk-fail-slower"):
            raise pytest.UsageError("--sblk-fail-slower: there is nothing to compare with; name it with --sblk-compare")
        return
    if _is_worker(config):
        return
    session = session_of(config)
    try:
        session.base = load(session.runs, name)
    except (SampleblkError, OSError) as error:
        raise pytest.UsageError(f"--sblk-compare {name}: {error}") from None
    if not any(run.measurements for run in session.base):
        raise pytest.UsageError(
            f"--sblk-compare {name}: there are no measurements in {session.runs / name}; "
            f"a session with --sblk-save {name} makes them"
        )
