# SPDX-License-Identifier: MIT
"""What to run: one job from keywords, or the jobs of a fio job file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from sampleblk_lab import renamed, trust
from sampleblk_lab._native import core
from sampleblk_lab.errors import UnsupportedError
from sampleblk_lab.table import Table
from sampleblk_lab.workload.checks import Watch, as_told, of_files
from sampleblk_lab.workload.result import JobError
from sampleblk_lab.workload.run import JobRun, Progress, run_to_end

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from sampleblk_lab.analysis.run import Run
    from sampleblk_lab.trust import Check
    from sampleblk_lab.workload.fio import FioResult
    from sampleblk_lab.workload.result import Result


def job_keys() -> Table:
    """The keys of job files: names, forms, defaults, what they change and whether we support them."""
    names = ["key", "alias", "form", "default", "changes", "support", "help"]
    rows = core.job_keys()
    return Table.of({name: [row[i] for row in rows] for i, name in enumerate(names)}, key="key")


def setting_text(key: str, value: Any) -> str:
    """A keyword's value as a job file has it: ``True`` is ``1``, a list is separated by colons."""
    if isinstance(value, (bool, np.bool_)):
        return "1" if value else "0"
    if isinstance(value, (list, tuple)) and value:
        return ":".join(setting_text(key, part) for part in value)
    if isinstance(value, os.PathLike):
        return os.fsdecode(value).replace(":", "\\:")
    if isinstance(value, (str, int, float, np.integer, np.floating)):
        return str(value)
    raise TypeError(f"{key} must be a string, a number, a path, a bool or a list of them, not {value!r}")


def settings_of(keys: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Keywords as a job file's settings; None leaves a key out."""
    # `hugepage-size` is fio's only key that is not a Python name.
    return [
        (key.replace("hugepage_size", "hugepage-size"), setting_text(key, value))
        for key, value in keys.items()
        if value is not None
    ]


class Workload:
    """Jobs that can be run: the base of :class:`Job` and :class:`JobFile`."""

    def __init__(self, jobs: core.JobSet, *, by_fio: bool = False) -> None:
        self._jobs = jobs
        self._by_fio = by_fio

    @property
    def names(self) -> list[str]:
        """The name of each job; one with ``numjobs`` comes as often as it runs."""
        return [job["name"] for job in self._jobs.jobs]

    @property
    def notices(self) -> list[str]:
        """Settings that have no effect here, or another one than they say, and why."""
        return [f"{source}:{line}: {key} {text}" for source, line, key, text in self._jobs.notices]

    def __len__(self) -> int:
        return len(self._jobs.jobs)

    def to_job_file(self) -> str:
        """The job file that says the same."""
        return self._jobs.write()

    def prepare(self) -> JobRun:
        """Lays the files out and forks the jobs, which then wait for :meth:`JobRun.start`.

        A recording can then be limited to their process ids, and does not contain the layout.

        Raises:
            OSError: A file could not be laid out, or no process started.
            InputError: Sizes and files do not fit together.
            UnsupportedError: The jobs are for the real fio, which cannot wait.
        """
        if self._by_fio:
            raise UnsupportedError("prepare()", 'engine="fio" runs the real fio, which lays out and runs in one go')
        return JobRun(core.JobRun(self._jobs), Watch(as_told(self._jobs)))

    def doubts_of_files(self, device: str) -> list[Check]:
        """Whether files of the jobs are elsewhere than on a device that is meant for them, which is in use now.

        Args:
            device: Its path.

        Returns:
            One check, or none where all is well.
        """
        return of_files(as_told(self._jobs), device)

    def run(
        self,
        *,
        progress: bool | Callable[[Progress], None] | None = None,
        check: bool = True,
    ) -> Result:
        """Runs the jobs to their end.

        Ctrl-C stops them after the I/O they are in; the result then has what was measured until then, and says
        so (``result.stop_reason``). A second Ctrl-C raises KeyboardInterrupt.

        Args:
            progress: Show a progress bar with the time left: True, False, None for "on a terminal or in a
                notebook", or a function that is called about ten times a second.
            check: Raise JobError when a job failed; it holds the result.

        Raises:
            JobError: A job failed, say for want of space; what was measured is in its ``result``.
            OSError: The layout failed.
        """
        if self._by_fio:
            # Like Result, but for what fio's JSON does not hold.
            return cast("Result", self.run_by_fio(check=check))
        return run_to_end(self.prepare(), progress, check)

    def record(
        self,
        *,
        progress: bool | Callable[[Progress], None] | None = None,
        check: bool = True,
        **what: Any,
    ) -> tuple[Result, Run]:
        """Runs the jobs to their end and records them, without the layout of their files.

        Args:
            progress: As for :meth:`run`.
            check: As for :meth:`run`; the error's ``run`` has what was recorded.
            what: What to record, as :func:`record` takes it; only these jobs unless `pids` says else.

        Returns:
            The result, and what was recorded: :meth:`Run.save` keeps both.

        Raises:
            JobError: A job failed.
            OSError: The layout failed.
            UnsupportedError: This kernel lacks what was asked for, or the jobs are for the real fio.

        Example:
            >>> result, run = job.record(syscalls=True, block=True, profile=997)
            >>> run.syscalls().summary()
            >>> run.save("runs/first")
        """
        from sampleblk_lab.recording.recorder import record

        renamed.keyword(what, "pid", "pids", "Job.record()")
        jobs = self.prepare()
        recorder = record(**{"pids": jobs, **what})
        with jobs, recorder:
            result = run_to_end(jobs, progress, check=False)
        recorder.attach("result.json", result.json_text(bins=True))
        recorder.attach("report.txt", result.text())
        recorder.attach("trust.json", trust.as_json(result.checks))
        if check and result.errors:
            raise JobError(result, recorder.run)
        return result, recorder.run

    def run_by_fio(self, *, check: bool = True) -> FioResult:
        """Runs the jobs by the real fio, as ``engine="fio"`` does, and reads its JSON+.

        Args:
            check: Raise JobError when a job failed.

        Raises:
            UnsupportedError: There is no fio, or the jobs have keys that it does not.
            SampleblkError: fio refused the job file.
            JobError: A job failed.
        """
        from sampleblk_lab.workload.fio import run_fio

        keys = [key for key, _ in self._jobs.globals]
        keys += [key for job in self._jobs.jobs for key, _ in job["settings"]]
        watch = Watch(as_told(self._jobs), lays_out=True)
        watch.begin()
        result = run_fio(self.to_job_file(), keys, check=check, judge=watch.checks)
        watch.end()
        trust.later(lambda: result.checks)
        return result

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._jobs.source}: {', '.join(self.names)}>"


class Job(Workload):
    """One job, from keywords named as fio names them.

    Args:
        name: What the job is called in reports; files without a name are named after it.
        engine: ``"fio"`` runs the job by the real fio, for cross-checks; else the same as ``ioengine``.
        keys: Any key of fio's job files, such as ``rw="randread"``, ``bs="4k"``, ``size="64M"``, ``numjobs=2``,
            ``filename=path``; :func:`job_keys` lists them. Sizes are in bytes, or strings with fio's units.

    Raises:
        InputError: A key that does not exist (the nearest one is named), is not supported, or has a value
            that it cannot have.

    Example:
        >>> job = Job(rw="write", bs="4k", size="2M", loops=50, numjobs=2, filename="/mnt/test")
        >>> print(job.run())
    """

    def __init__(self, name: str = "job", *, engine: str | None = None, **keys: Any) -> None:
        by_fio = engine == "fio"
        if not by_fio:
            keys["engine"] = engine
        super().__init__(core.JobSet.make(settings_of({"name": name, **keys})), by_fio=by_fio)


class JobFile(Workload):
    """The jobs of a fio job file.

    Args:
        path: The job file.
        overrides: Keys that are set for every job, whatever the file says, such as ``loops=20``. ``engine="fio"``
            runs the file by the real fio.

    Raises:
        OSError: The file cannot be read.
        InputError: A line of it cannot be taken; the error has the file, the line and what would be.
    """

    def __init__(self, path: str | os.PathLike[str], **overrides: Any) -> None:
        by_fio = overrides.get("engine") == "fio"
        if by_fio:
            del overrides["engine"]
        super().__init__(core.JobSet.read(os.fspath(path), settings_of(overrides)), by_fio=by_fio)
        self.path = Path(path)

    @staticmethod
    def parse(text: str, source: str = "<text>", **overrides: Any) -> Workload:
        """The jobs of a job file's text; `source` stands for its name in errors."""
        return Workload(core.JobSet.parse(text, source, settings_of(overrides)))

    @staticmethod
    def from_command_line(arguments: Iterable[str] | Sequence[str], **overrides: Any) -> Workload:
        """The jobs of a fio command line: ``["--name=a", "--rw=read", …]``."""
        return Workload(core.JobSet.parse_command_line(list(arguments), settings_of(overrides)))
