# SPDX-License-Identifier: MIT
"""The real fio on the same job, for cross-checks: ``engine="fio"``."""

from __future__ import annotations

import contextlib
import errno
import functools
import json
import re
import signal
import subprocess
from typing import TYPE_CHECKING, Any

import numpy as np

from sampleblk_lab import trust
from sampleblk_lab.errors import FormatError, SampleblkError, UnsupportedError
from sampleblk_lab.paths import find_program, scratch_directory, tied
from sampleblk_lab.table import Table
from sampleblk_lab.trust import Check
from sampleblk_lab.workload.result import JobError, percentiles_of, with_doubts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

# Keys of ours that fio does not know.
_OURS = frozenset({"io_log_entries", "advice", "advice_whole_file"})
_DIRECTIONS = ("read", "write", "trim")
# fio's histogram has 64 bins to a power of two, and one per nanosecond below 128 (stat.h, plat_idx_to_val).
_EXACT_BELOW = 128
_BINS_PER_GROUP = 64
_MOST = 2.0**63

# In its normal output: jobs that a signal ended, which have no error in its JSON; a job's process; what ended all jobs.
_KILLED = re.compile(r"^fio: pid=(\d+), got signal=(\d+)$", re.MULTILINE)
_PROCESS = re.compile(r"^(.*): \(groupid=\d+, jobs=\d+\): err=.*?: pid=(\d+): ", re.MULTILINE)
_TERMINATED = re.compile(r"^fio: terminating on (signal \d+)$", re.MULTILINE)
# Of a report in JSON.
_BEGIN = re.compile(r"\A\{|^\{$", re.MULTILINE)


def read_report(text: str) -> tuple[dict[str, Any], str]:
    """Fio's JSON out of its output, and what stands around it.

    With ``--status-interval``, or after SIGUSR1, there are several reports: the last one is of the whole run.

    Raises:
        ValueError: There is none, or it is not whole.
    """
    found: Any = None
    around, end = "", 0
    while (begin := _BEGIN.search(text, end)) is not None:
        around += text[end : begin.start()]
        found, end = json.JSONDecoder().raw_decode(text, begin.start())
    if found is None:
        raise ValueError("there is no line that begins an object, {")
    return found, around + text[end:]


def _directions(job: Any) -> tuple[str, ...]:
    # With unified_rw_reporting=mixed there is nothing else.
    return ("mixed",) if "mixed" in job and "read" not in job else _DIRECTIONS


def _contradictions(stats: Any) -> Iterator[str]:
    """What of a direction's figures cannot be, as they follow from each other: of a file that was edited."""
    count, runtime_ms = stats["total_ios"], stats.get("runtime", 0)
    for name, total in (("iops", count), ("bw_bytes", stats.get("io_bytes", 0))):
        # The runtime is rounded to ms, and rates perhaps to whole numbers.
        if runtime_ms > 1 and name in stats:
            low, high = total * 1e3 / (runtime_ms + 1), total * 1e3 / (runtime_ms - 1)
            if not low * 0.99 - 1 <= stats[name] <= high * 1.01 + 1:
                yield f"{name} {stats[name]:,.0f}, and {total:,} in {runtime_ms:,} ms"
    for name in ("slat_ns", "clat_ns", "lat_ns"):
        told = stats.get(name, {})
        if "bins" in told and "N" in told and sum(told["bins"].values()) != told["N"]:
            yield f"{name} of {told['N']:,} I/Os, and {sum(told['bins'].values()):,} in its bins"
        if "max" in told and not told["min"] <= told["mean"] <= told["max"]:
            yield f"{name} from {told['min']:,} to {told['max']:,}, and {told['mean']:,.0f} on average"


class FioResult:
    """What the real fio measured, in the views of :class:`Result` that its JSON+ has the numbers for.

    Args:
        value: Its JSON+, or JSON.
        text: Its normal output.
        stop_reason: Why it ended early; the JSON of our own jobs says so itself.
        source: The file that it was read from.
        judge: What tells its checks.

    Attributes:
        stop_reason: ``"interrupted"`` after Ctrl-C, ``"signal 15"`` after that; of our own jobs any other reason too;
            else empty.

    Raises:
        FormatError: Of every view: it is not what fio writes.
    """

    def __init__(
        self,
        value: dict[str, Any],
        text: str,
        stop_reason: str = "",
        source: str = "",
        judge: Callable[[FioResult], list[Check]] | None = None,
    ) -> None:
        self._value = value
        self._text = text
        self._judge = judge
        ours = value.get("sampleblk")
        self.stop_reason = stop_reason or (str(ours.get("stop_reason", "")) if isinstance(ours, dict) else "")
        self._source = source or "result"

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise FormatError(self._source, 0, f"fio's JSON: {error!r}") from error

    @functools.cached_property
    def checks(self) -> list[Check]:
        """As :attr:`Result.checks`, also of a saved run; and whether its figures can be of one measurement.

        Of a result alone that was read from a file, only the latter.
        """
        with self._reading():
            found = [
                Check("counters", f"{way} of job {job['jobname']}", told, "altered", is_doubt=True)
                for job, way, stats in self._measured()
                for told in _contradictions(stats)
            ]
        return [*([] if self._judge is None else self._judge(self)), *found]

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C ended the run."""
        return self.stop_reason == "interrupted"

    @property
    def errors(self) -> list[tuple[str, int, str]]:
        """The jobs that failed: name, errno, and fio's word for it."""
        with self._reading():
            failed = [job for job in self._value["jobs"] if job["error"]]
            found = [(job["jobname"], int(job["error"]), f"fio: error {job['error']}") for job in failed]
        # With group_reporting only one job of a group has its process told.
        names = {pid: name for name, pid in _PROCESS.findall(self._text)}
        killed = _KILLED.findall(self._text)
        return found + [(names.get(pid, f"of pid {pid}"), errno.EINTR, f"killed by signal {by}") for pid, by in killed]

    def text(self) -> str:
        """Fio's normal output."""
        return self._text

    def json(self) -> dict[str, Any]:
        """Fio's JSON+."""
        return self._value

    def summary(self) -> Table:
        """One row per job and direction, with the columns of :meth:`Result.summary` that fio knows."""
        with self._reading():
            return self._summed_up()

    def groups(self) -> list[int]:
        """The reporting group (``groupid``) of each row of :meth:`summary`: those of one run beside each other."""
        with self._reading():
            return [int(job.get("groupid", 0)) for job, _, _ in self._measured()]

    def _measured(self) -> list[tuple[Any, str, Any]]:
        return [
            (job, way, job[way])
            for job in self._value["jobs"]
            for way in _directions(job)
            if job.get(way, {}).get("total_ios")
        ]

    def _summed_up(self) -> Table:
        rows = self._measured()

        def floats(of: Any) -> np.ndarray[Any, Any]:
            found = np.array([of(stats) for _, _, stats in rows], dtype=np.float64)
            if not ((found >= 0) & (found < _MOST)).all():  # which NaN is not
                raise ValueError(f"{found.tolist()} are no figures")
            return found

        def counts(of: Any) -> np.ndarray[Any, Any]:
            return np.array([of(stats) for _, _, stats in rows], dtype=np.uint64)

        # A latency of which there is no sample (gtod_reduce, disable_clat) is no latency of 0.
        timed = np.array([stats["clat_ns"]["max"] > 0 for _, _, stats in rows], dtype=bool)

        def latencies(name: str) -> np.ndarray[Any, Any]:
            return np.where(timed, floats(lambda stats: stats["clat_ns"][name]), np.nan)

        columns: dict[str, Any] = {
            "job": [job["jobname"] for job, _, _ in rows],
            "direction": [way for _, way, _ in rows],
            "ios": counts(lambda stats: stats["total_ios"]),
            "bytes": counts(lambda stats: stats["io_bytes"]),
            "runtime": counts(lambda stats: stats["runtime"] * 1_000_000),
            "bandwidth": floats(lambda stats: stats["bw_bytes"]),
            "iops": floats(lambda stats: stats["iops"]),
        }
        columns |= {f"clat_{name}": latencies(name) for name in ("mean", "stddev", "min", "max")}
        units = {"bytes": "bytes", "runtime": "ns", "bandwidth": "bytes/s", "iops": "1/s"}
        units |= {name: "ns" for name in columns if name.startswith("clat")}
        return Table.of(columns, units=units, key="job")

    def histogram(self) -> Table:
        """The latency histograms, as :meth:`Result.histogram` has them."""
        with self._reading():
            return self._binned()

    def _binned(self) -> Table:
        jobs: list[str] = []
        ways: list[str] = []
        kinds: list[str] = []
        middles: list[int] = []
        counts: list[int] = []
        for job in self._value["jobs"]:
            # Of our own jobs the response, too.
            several = ("slat", "clat", "lat", "response")
            measured = [(way, kind, f"{kind}_ns") for way in _directions(job) for kind in several]
            for way, kind, key in [*measured, ("sync", "sync", "lat_ns")]:
                bins = job.get(way, {}).get(key, {}).get("bins", {})
                jobs += [job["jobname"]] * len(bins)
                ways += [way] * len(bins)
                kinds += [kind] * len(bins)
                middles += [int(middle) for middle in bins]
                counts += [int(count) for count in bins.values()]
        middle = np.array(middles, dtype=np.uint64)
        # fio names a bin by its middle; a power of two is cut into 64 of them.
        power = np.floor(np.log2(np.maximum(middle, 1))).astype(np.uint64)
        width = np.where(middle < _EXACT_BELOW, 1, 2**power // _BINS_PER_GROUP).astype(np.uint64)
        return Table.of(
            {
                "job": jobs,
                "direction": ways,
                "kind": kinds,
                "latency": middle - width // 2,
                "width": width,
                "count": np.array(counts, dtype=np.uint64),
            },
            units={"latency": "ns", "width": "ns"},
        )

    def percentiles(
        self,
        percents: Iterable[float],
        *,
        kind: str = "clat",
        direction: str | None = None,
        job: str | None = None,
    ) -> list[float]:
        """Percentiles of one job or of all together, see :meth:`Result.percentiles`.

        Of ``lat`` and ``slat`` where the job asked for them (``lat_percentiles``, ``slat_percentiles``): JSON+ has no
        bins of others.
        """
        return percentiles_of(self.histogram(), percents, kind, direction, job)

    def __str__(self) -> str:
        return with_doubts(self.text(), self.checks)

    def __repr__(self) -> str:
        return str(self)


def run_fio(
    job_file: str, keys: Iterable[str], *, check: bool = True, judge: Callable[[FioResult], list[Check]] | None = None
) -> FioResult:
    """Runs the fio that is on the PATH.

    Args:
        job_file: The job file's text.
        keys: The keys that are set in it.
        check: Raise JobError when a job failed.
        judge: What tells the result's checks.

    Raises:
        UnsupportedError: There is no fio, or the jobs have keys that it does not.
        SampleblkError: fio refused the job file; with what it wrote.
        JobError: A job failed.
    """
    program = find_program("fio")
    if program is None:
        raise UnsupportedError('engine="fio"', "there is no fio on the PATH", "apt-get install fio")
    ours = sorted(_OURS.intersection(keys))
    if ours:
        raise UnsupportedError(", ".join(ours), 'engine="fio" runs the real fio, which has no such key')
    with scratch_directory("fio") as directory:
        source = directory / "job.fio"
        source.write_text(job_file)
        output = directory / "output"
        command = [program, "--eta=never", "--output-format=normal,json+", f"--output={output}"]
        # It ends its jobs when we are gone.
        command = tied([*command, f"--aux-path={directory}", str(source)], "TERM")
        stop_reason = ""
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "errors": "backslashreplace"}
        with subprocess.Popen(command, **pipes) as process:
            try:
                said, _ = process.communicate()
            except KeyboardInterrupt:
                # A terminal's Ctrl-C went to fio too, which ends its jobs and reports what ran; another signal did not.
                process.send_signal(signal.SIGINT)
                stop_reason = "interrupted"
                said, _ = process.communicate()
                if trust.is_asked():
                    raise
        report = output.read_text(errors="backslashreplace") if output.exists() else ""
    try:
        value, text = read_report(report)
    except ValueError:
        raise SampleblkError(f"fio: exit status {process.returncode}: {said.strip()} {report.strip()}") from None
    if not stop_reason and (terminated := _TERMINATED.search(text)):
        stop_reason = terminated[1]
    result = FioResult(value, text.strip() + "\n", stop_reason, judge=judge)
    if check and result.errors:
        raise JobError(result)
    return result
