# SPDX-License-Identifier: MIT
"""What a job counted, held against the driver's counters, the device's limits, its own log and two clocks."""

from __future__ import annotations

import errno
import functools
import os
import re
import stat
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from sampleblk_lab import leftovers
from sampleblk_lab._native import core
from sampleblk_lab.trust import Check, of_losses

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from sampleblk_lab.leftovers import Mount
    from sampleblk_lab.table import Table
    from sampleblk_lab.workload.fio import FioResult
    from sampleblk_lab.workload.result import Result

# Engines whose I/Os with direct=1 are the device's, byte for byte.
_PASS_THROUGH = frozenset({"sync", "psync", "vsync", "pvsync", "pvsync2", "libaio", "io_uring"})
# Keys with which a job moves more than it counts: verifying reads, what comes before the ramp's end.
UNCOUNTED = frozenset({"verify", "ramp_time", "pre_read", "experimental_verify", "unified_rw_reporting"})
# What a key is set to so that it does nothing.
_OFF = frozenset({"0", "none"})
# The default of a job without ioengine= (fio(1)).
_DEFAULT_ENGINE = "psync"

_DEVICE = re.compile(r"/block/sampleblk(\d+)(/|$)")

# NTP may slew the time by 500 ppm (adjtimex(2)); what is more was set.
_SLEW = 0.001
_CLOCK_NS = 2_000_000
# Somebody else may get the processor between two clocks: the closest reading counts.
_READINGS = 5
# What the driver counts of a direction.
_COUNTERS = {"read": "read_bytes", "write": "write_bytes", "trim": "discard_bytes"}
# fio tells runtimes in whole milliseconds.
_RESOLUTION_NS = 1_000_000
_RATE = 1.01
#: What is said of a job whose clock ran at another rate than the steady one.
DRIFTED = "drifted"


@dataclass(frozen=True)
class AsTold:
    """What a job file says of one job.

    Attributes:
        name: Its name.
        settings: Its own and those of ``[global]`` above it, by the first names of their keys.
        direct: What ``direct`` and ``buffered`` come to: the last counts.
        places: Its files, or the directory of those that it makes; None where a log that it replays names them.
    """

    name: str
    settings: Mapping[str, str]
    direct: bool
    places: tuple[Path, ...] | None

    def sets(self, key: str) -> bool:
        """Whether a key is set to something."""
        return self.settings.get(key, "0") not in _OFF


@dataclass
class _Use:
    """How jobs use one device."""

    jobs: set[str] = field(default_factory=set)
    # Whether all they trim is the device's, all they move goes past the page cache, and nothing else is done for them.
    trims: bool = True
    direct: bool = True
    raw: bool = True


@dataclass(frozen=True)
class _Moment:
    """What others knew at one moment."""

    clocks: tuple[int, int, int]
    unsure_ns: int  # how far apart they may have been read
    identities: dict[int, int]  # of the devices that are there
    counters: dict[int, dict[str, int]]
    limits: dict[int, int]


def _moment(devices: Collection[int]) -> _Moment:
    identities: dict[int, int] = {}
    counters: dict[int, dict[str, int]] = {}
    limits: dict[int, int] = {}
    if devices:
        control = core.DeviceControl(str(leftovers.CONTROL_PATH))
        try:
            for index in devices:
                try:
                    counters[index] = dict(control.counters(index))
                    limits[index] = control.limits(index)["bytes_per_second"]
                    identities[index] = leftovers.device_identity(index)
                except OSError as error:
                    if error.errno != errno.ENODEV:  # it is gone
                        raise
        finally:
            control.close()
    unsure, clocks = min(_clocks() for _ in range(_READINGS))
    return _Moment(clocks, unsure, identities, counters, limits)


def _clocks() -> tuple[int, tuple[int, int, int]]:
    """The steady clock, the time of day and the time with suspension, and before them how long it took to read them."""
    steady = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    day = time.clock_gettime_ns(time.CLOCK_REALTIME)
    booted = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC) - steady, (steady, day, booted)


class _Place(NamedTuple):
    """Where a file is: on which device of ours, and whether it is that device itself or a partition of it."""

    disk: int
    is_device: bool = False
    is_part: bool = False  # the others may have file systems


def _on(path: Path) -> _Place | None:
    """The device of ours that a file is on; None for anything else."""
    while True:
        try:
            status = path.stat()
            break
        except FileNotFoundError:
            if path == path.parent:
                return None
            path = path.parent
        except OSError:
            return None
    is_device = stat.S_ISBLK(status.st_mode)
    number = status.st_rdev if is_device else status.st_dev
    try:
        found = _DEVICE.search(str(Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}").readlink()))
    except OSError:
        return None
    return None if found is None else _Place(int(found[1]), is_device, is_device and bool(found[2]))


def _uses(jobs: Sequence[AsTold]) -> dict[int, _Use]:
    if any(job.sets("group_reporting") for job in jobs) and len({job.name for job in jobs}) > 1:
        return {}
    places: dict[str, set[_Place | None]] = {}
    for job in jobs:
        if job.places is None:
            return {}  # any of the devices may be its own
        places.setdefault(job.name, set()).update(_on(path) for path in job.places)
    uses: dict[int, _Use] = {}
    unclear: set[int] = set()
    for job in jobs:
        for index, is_device, is_part in filter(None, places[job.name]):
            use = uses.setdefault(index, _Use())
            use.jobs.add(job.name)
            passes = job.settings.get("ioengine", _DEFAULT_ENGINE) in _PASS_THROUGH
            use.trims = use.trims and is_device and passes  # which go past the page cache in any case
            use.direct = use.direct and job.direct and passes
            use.raw = use.raw and is_device and not is_part and not any(job.sets(key) for key in UNCOUNTED)
            if len({place.disk if place else None for place in places[job.name]}) > 1:
                unclear.add(index)  # it is not told how much of the job went where
    return {index: use for index, use in uses.items() if index not in unclear}


# Job, direction, bytes and runtime in ns of what was read, written or trimmed.
_Moved = tuple[str, str, int, float]


class Watch:
    """Knows before and after jobs what others say of them.

    Args:
        jobs: The jobs, as :func:`as_told` has them.
        lays_out: Whether what is watched also lays the files out, which no job counts.
    """

    def __init__(self, jobs: Sequence[AsTold], *, lays_out: bool = False) -> None:
        self._jobs = jobs
        self._lays_out = lays_out
        self._uses: dict[int, _Use] = {}
        self._begin: _Moment | None = None
        self._end: _Moment | None = None

    def begin(self) -> None:
        """Before the first I/O. Idempotent."""
        if self._begin is None:
            # Without the driver no file is on a device of it.
            self._uses = _uses(self._jobs) if leftovers.CONTROL_PATH.exists() else {}
            self._begin = _moment(self._uses)

    def end(self) -> None:
        """After the last. Idempotent."""
        if self._end is None:
            self._end = _moment(self._uses)

    def checks(self, result: Result | FioResult) -> list[Check]:
        """What was found, when the jobs have ended."""
        if self._begin is None or self._end is None:
            return []
        found = [*_of_clocks(self._begin, self._end), *_of_drift(result)]
        if result.errors or result.stop_reason or _went_on(self._jobs, result):
            return found  # what was under way then, or failed, is counted by the one and not by the other
        found += _of_ramps(self._jobs, result)
        moved = _moved(result.summary())
        for index, use in self._uses.items():
            identity = self._begin.identities.get(index)
            if identity is None or self._end.identities.get(index) != identity:
                what, text = f"counts of sampleblk{index}", "it was removed before the jobs were waited for"
                found.append(Check("counters", what, "none", text, is_doubt=True))
                continue
            found += self._of_counters(index, use, moved, self._begin.counters[index], self._end.counters[index])
            if (limit := self._begin.limits[index]) and limit == self._end.limits[index]:
                found.append(_of_limit(index, use, moved, limit, self._end.clocks[0] - self._begin.clocks[0]))
        return found

    def _of_counters(
        self, index: int, use: _Use, moved: Sequence[_Moved], before: Mapping[str, int], after: Mapping[str, int]
    ) -> list[Check]:
        found = []
        failed = after["errors"] - before["errors"]
        if failed:
            text = "the jobs know of none"
            found.append(Check("errors", f"errors of sampleblk{index}", f"{failed:,}", text, is_doubt=True))
        # Nobody else writes to a disk that has no file system; udev reads it.
        exact = {"read": False, "write": use.raw and not self._lays_out, "trim": use.raw}
        for direction, counter in _COUNTERS.items():
            if not (use.trims if direction == "trim" else use.direct):
                continue
            told = sum(size for job, way, size, _ in moved if job in use.jobs and way == direction)
            seen = after[counter] - before[counter]
            if not told and not (seen and use.raw and direction != "read"):
                continue
            differs = seen < told or (seen != told and exact[direction])
            verdict = "agrees" if seen == told else "differs" if differs else "and more that is no job's"
            what = f"{direction} bytes: jobs, sampleblk{index}"
            found.append(Check("counters", what, f"{told:,}, {seen:,}", verdict, is_doubt=verdict == "differs"))
        return found


def _went_on(jobs: Sequence[AsTold], result: Result | FioResult) -> bool:
    """Whether I/Os failed of which the jobs know, and after which they went on."""
    asked = any(job.sets("continue_on_error") for job in jobs)
    return asked and any(job.get("total_err") for job in result.json()["jobs"])


def _of_ramps(jobs: Sequence[AsTold], result: Result | FioResult) -> Iterable[Check]:
    """A doubt for each job of which nothing was measured, because its work was done before the ramp's end."""
    seen = set(map(str, result.summary()["job"]))
    for job in jobs:
        told = not (job.sets("group_reporting") or job.sets("create_only"))
        told = told and job.settings.get("stats") not in _OFF
        if told and job.sets("ramp_time") and job.name not in seen:
            yield Check("lost", f"job {job.name}", "no I/O", "it ended within its ramp_time", is_doubt=True)


def _of_limit(index: int, use: _Use, moved: Sequence[_Moved], limit: int, elapsed_ns: int) -> Check:
    mine = [(size, runtime) for job, way, size, runtime in moved if job in use.jobs and way != "trim"]
    # Each job's by itself, and that of all: those that wait for each other have runtimes of their own.
    rates = [size / (runtime + _RESOLUTION_NS) for size, runtime in mine]
    rates.append(sum(size for size, _ in mine) / elapsed_ns)
    rate = max(rates) * 1e9
    above = rate > limit * _RATE
    words = "above what the device can" if use.direct else "of the page cache, not of the device"
    told = f"{core.format_bytes(round(rate))}/s, at most {core.format_bytes(limit)}/s"
    what = f"rate of the jobs on sampleblk{index}, its limit"
    return Check("bandwidth", what, told, words if above else "agrees", is_doubt=above)


def _moved(summary: Table) -> list[_Moved]:
    names, directions = map(str, summary["job"]), map(str, summary["direction"])
    numbers = summary["bytes"].values.tolist(), summary["runtime"].values.tolist()
    return [row for row in zip(names, directions, *numbers, strict=True) if row[1] in _COUNTERS]


def _of_clocks(begin: _Moment, end: _Moment) -> Iterable[Check]:
    steady = end.clocks[0] - begin.clocks[0]
    names = ("the time of day against the steady clock", "time with suspension against time without")
    for what, first, last in zip(names, begin.clocks[1:], end.clocks[1:], strict=True):
        off = last - first - steady
        jumped = abs(off) > _CLOCK_NS + begin.unsure_ns + end.unsure_ns + _SLEW * steady
        verdict = "jumped" if jumped else "agrees"
        yield Check("clock", what, f"{off / 1e6:+.3f} ms in {steady / 1e9:.3f} s", verdict, is_doubt=jumped)


def _of_drift(result: Result | FioResult) -> Iterable[Check]:
    """A doubt for each job whose own clock, the time stamp counter, ran at another rate than the steady one."""
    for job in result.json()["jobs"]:
        ppm = job.get("sampleblk", {}).get("clock_drift_ppm", 0)
        if abs(ppm) > core.MOST_DRIFT_PPM:
            what = f"job {job['jobname']}: the clock of its latencies against the steady clock"
            yield Check("clock", what, f"{ppm:+.0f} ppm", DRIFTED, is_doubt=True)


def of_files(jobs: Iterable[AsTold], device: str) -> list[Check]:
    """A doubt, if files of the jobs are neither a device nor on its file system, which is mounted now.

    Args:
        jobs: The jobs, as :func:`as_told` has them.
        device: The device's path.
    """
    mounts = leftovers.mounts()
    elsewhere = dict.fromkeys(
        str(path.absolute()) for job in jobs for path in job.places or () if not _is_on(path.resolve(), device, mounts)
    )
    if not elsewhere:
        return []
    return [Check("files", "files of the jobs", ", ".join(elsewhere), f"not on {device}", is_doubt=True)]


def _is_on(path: Path, device: str, mounts: Iterable[Mount]) -> bool:
    if path == Path(device):
        return True
    mount = leftovers.mount_of(path, mounts)
    return mount is not None and mount.device == device


def of_log(result: Result) -> list[Check]:
    """Whether the log of every I/O has every I/O."""
    log = result.io_log()
    lost = int(log.metadata.get("lost", "0"))
    return [of_losses("I/Os that found no room in io_log", lost)] if lost or len(log) else []


@functools.cache
def _first_names() -> dict[str, str]:
    return {alias: name for name, aliases, *_ in core.job_keys() for alias in aliases.split()}


def as_told(jobs: Any) -> list[AsTold]:
    """What a ``core.JobSet`` says of each of its jobs."""
    names = _first_names()
    shared = jobs.globals
    return [
        AsTold(
            name=job["name"],
            settings={names.get(key, key): value for key, value in [*shared[: job["globals"]], *job["settings"]]},
            direct=job["direct"],
            places=None if job["places"] is None else tuple(map(Path, job["places"])),
        )
        for job in jobs.jobs
    ]
