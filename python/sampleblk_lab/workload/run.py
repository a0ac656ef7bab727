# SPDX-License-Identifier: MIT
"""Jobs at work: started, watched, stopped."""

from __future__ import annotations

import functools
import importlib.util
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sampleblk_lab import checked, renamed, trust
from sampleblk_lab._native import core
from sampleblk_lab.blocks import ClosesAtEnd
from sampleblk_lab.progress import Line, in_notebook, is_watched
from sampleblk_lab.workload.result import JobError, Result

if TYPE_CHECKING:
    from collections.abc import Callable

    from sampleblk_lab.workload.checks import Watch

_POLL_S = 0.1
# A stopped job returns from its system call, or is killed by the core after 20 s.
_STOP_S = 30.0


@dataclass(frozen=True)
class Progress:
    """How far jobs have come.

    Attributes:
        fraction: Of the work, 0 to 1.
        elapsed_s: Since the first job began, in seconds.
        eta_s: Seconds left, or None while nothing can be said.
        done_bytes: Transferred by all jobs.
        done_ios: I/Os of all jobs.
        bytes_per_s: Since the last look.
        ios_per_s: Since the last look.
        running: Jobs at work.
        finished: Jobs that have ended.
        jobs: All jobs.
    """

    fraction: float
    elapsed_s: float
    eta_s: float | None
    done_bytes: int
    done_ios: int
    bytes_per_s: float
    ios_per_s: float
    running: int
    finished: int
    jobs: int

    def __str__(self) -> str:
        left = "" if self.eta_s is None else f", {self.eta_s:.0f} s left"
        width = 24
        full = round(self.fraction * width)
        bar = "#" * full + "-" * (width - full)
        rate = f"{core.format_bytes(round(self.bytes_per_s))}/s, {self.ios_per_s:,.0f} IOPS"
        return f"[{bar}] {self.fraction:4.0%}  {rate}, {self.running} of {self.jobs} jobs running{left}"


class JobRun(ClosesAtEnd):
    """Jobs that were laid out and forked: `start()` starts them, `wait()` returns the result.

    A context manager: leaving it stops what still runs. The jobs die with this process, however it ends.
    """

    def __init__(self, run: core.JobRun, watch: Watch | None = None) -> None:
        self._run = run
        self._watch = watch
        self._has_ended = False

    @property
    def pids(self) -> list[int]:
        """The process id of each job, in their order; known before they start."""
        return self._run.pids

    @property
    def thread_ids(self) -> list[int]:
        """The kernel's thread id of each job; with ``thread=1`` jobs share a process but not this."""
        return self._run.thread_ids

    @property
    def messages(self) -> list[str]:
        """What the layout did, one line per job."""
        return self._run.messages

    def start(self) -> None:
        """Starts the jobs. A second call does nothing."""
        if self._watch is not None:
            self._watch.begin()
        self._run.start()

    def progress(self) -> Progress:
        """How far the jobs have come; rates are since the last call."""
        now = self._run.progress()
        return Progress(
            fraction=now.fraction,
            elapsed_s=now.elapsed_s,
            eta_s=None if now.eta_s < 0 else now.eta_s,
            done_bytes=now.done_bytes,
            done_ios=now.done_ios,
            bytes_per_s=now.bytes_per_s,
            ios_per_s=now.ios_per_s,
            running=now.running,
            finished=now.finished,
            jobs=now.jobs,
        )

    def poll(self, timeout_s: float = 0.0) -> bool:
        """Whether all jobs have ended, after waiting at most `timeout_s` for it."""
        ended = self._run.wait(round(checked.seconds("timeout_s", timeout_s) * 1e9))
        if ended and self._watch is not None:
            self._watch.end()
        return ended

    def wait(self, timeout_s: float | None = None) -> Result:
        """Waits for the jobs' end and returns what they measured.

        Raises:
            TimeoutError: They were not over after `timeout_s`; they go on.
        """
        if timeout_s is not None:
            checked.seconds("timeout_s", timeout_s, none=True)
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while not self.poll(_POLL_S if deadline is None else max(0.0, min(_POLL_S, deadline - time.monotonic()))):
            if deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError(f"the jobs are not over after {timeout_s} s")
        return self.so_far()

    def stop(self, reason: str = "stopped") -> None:
        """Tells the jobs to end after the I/O they are in; `reason` is shown with the result."""
        self._run.stop(reason)

    def so_far(self) -> Result:
        """What was measured so far; complete once `poll()` is true."""
        result = Result(self._run.result(), self._watch)
        if not self._has_ended and self.poll():
            self._has_ended = True
            trust.later(lambda: result.checks)
        return result

    def result(self) -> Result:
        """The old name of :meth:`so_far`."""
        renamed.warn("JobRun.result()", "JobRun.so_far()")
        return self.so_far()

    def close(self) -> None:
        """Stops what runs and waits for it. Idempotent."""
        self._run.close()


class _Bar:
    """tqdm's progress bar in the cell of a notebook: a widget where there are ipywidgets, else its text."""

    def __init__(self) -> None:
        if importlib.util.find_spec("ipywidgets") is not None:
            from tqdm.notebook import tqdm
        else:
            from tqdm.std import tqdm
        form = "{percentage:3.0f}%|{bar}| {elapsed}<{remaining}{postfix}"
        self._made = functools.partial(tqdm, total=1.0, bar_format=form, file=sys.stderr, leave=False)
        self._bar: Any = None  # it is shown as it is made, and what a notebook was shown is saved with it

    def show(self, progress: Progress) -> None:
        if self._bar is None:
            self._bar = self._made()
        self._bar.n = progress.fraction
        rate = f"{core.format_bytes(round(progress.bytes_per_s))}/s, {progress.ios_per_s:,.0f} IOPS"
        self._bar.set_postfix_str(f"{rate}, {progress.running} of {progress.jobs} jobs running")

    def clear(self) -> None:
        if self._bar is not None:
            self._bar.close()


def _shown() -> Line | _Bar:
    """What shows the progress where we run. Without tqdm a notebook's cell gets the line."""
    if in_notebook() and importlib.util.find_spec("tqdm") is not None:
        return _Bar()
    return Line()


def run_to_end(run: JobRun, progress: bool | Callable[[Progress], None] | None, check: bool) -> Result:
    """Starts prepared jobs and waits for their end; see :meth:`Workload.run`."""
    if progress is None:
        progress = is_watched()
    line = _shown() if progress is True else None
    show = line.show if line is not None else progress if callable(progress) else None
    with run:
        run.start()
        try:
            while not run.poll(_POLL_S):
                if show is not None:
                    show(run.progress())
        except KeyboardInterrupt:
            run.stop("interrupted")
            if not run.poll(_STOP_S) or trust.is_asked():
                raise
        finally:
            if line is not None:
                line.clear()
        result = run.so_far()
    if check and result.errors:
        raise JobError(result)
    return result
