# SPDX-License-Identifier: MIT
"""What I/O did over time: where it went, how fast, and what became of each request."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from sampleblk_lab import checked
from sampleblk_lab.buffers import of_one_buffer
from sampleblk_lab.errors import InputError, UnsupportedError
from sampleblk_lab.plot.latency import heat
from sampleblk_lab.plot.style import Plot, bytes_axis, time_axis

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from sampleblk_lab.analysis.block import Block
    from sampleblk_lab.analysis.offsets import Offsets
    from sampleblk_lab.table import Table
    from sampleblk_lab.workload import Result

    # Direction -> the ends of slots in ns, and the bytes a second in each.
    _Rates = dict[str, tuple[NDArray[Any], NDArray[Any]]]

# Of a recording's time.
_SLOTS = 60

# Across a picture of a queue's depth: of more, nobody sees more.
_COLUMNS = 1000

# From one to the next, as blktrace and btt name them.
_STAGES = (
    ("queued", "inserted", "queue to insert"),
    ("inserted", "issued", "insert to issue"),
    ("issued", "completed", "issue to completion"),
)


def offset_heatmap(offsets: Offsets, *, columns: int = 120, rows: int = 60) -> Plot:
    """Bytes moved, by time and file offset: sequential I/O is a slope, random I/O a cloud.

    Args:
        offsets: ``run.offsets()``.
        columns: Of the map.
        rows: Of the map.

    Raises:
        InputError: The recording has no reads or writes.
    """
    if len(offsets) == 0:
        raise InputError("the recording has no reads or writes", expected="record(syscalls=True)")
    cells, times, places = offsets.heatmap(columns, rows)
    unit = offsets.table()["time"].unit
    title = "Where reads and writes went"
    if unknown := int(offsets.table().metadata.get("unknown_offsets", 0)):
        title += f"\nof {unknown:,} of {len(offsets):,} calls counted from where the recording began, or from the open"

    def draw(axes: Axes) -> None:
        heat(axes, times - times[0], places, cells, "moved", in_bytes=True)
        time_axis(axes.xaxis, what="time", unit=unit)
        bytes_axis(axes.yaxis, "offset in the file")
        axes.set_title(title)

    return Plot(draw)


def bandwidth(result: Result | Offsets) -> Plot:
    """Throughput over time, a line for each direction, all jobs of a reporting group together.

    Jobs behind a ``stonewall`` are another group. Each job's time is since it began; runs that were merged are laid
    over each other.

    Args:
        result: Of a run; or ``run.offsets()``, the calls that were recorded, each spread over the time that it took.

    Raises:
        InputError: Nothing was moved; or the calls are of several buffers.
        UnsupportedError: The recording's times are ticks of some clock.
    """
    measured = hasattr(result, "series")
    lines = _measured_rates(result.series()) if hasattr(result, "series") else _recorded_rates(result.table())
    if not lines:
        raise InputError("no I/O was measured", expected="a result of a run that moved bytes")

    def draw(axes: Axes) -> None:
        for direction, (places, rates) in lines.items():
            axes.step([0, *places], [rates[0], *rates], where="pre", label=direction)
        axes.set_ylim(bottom=0)
        axes.set_xlim(left=0)
        time_axis(axes.xaxis, what="time since each job began" if measured else "time")
        bytes_axis(axes.yaxis, "throughput a second")
        axes.set_title("Bandwidth over time")
        if len(lines) > 1:
            axes.legend()

    return Plot(draw)


def _measured_rates(series: Table) -> _Rates:
    """Of a result's series: the ends of the slots and the rate in each, by direction and group.

    No two jobs' slots end at the same ns, so that they are added up in the pieces that they cut each other into.
    """
    begins, ends = (series[name].codes.astype(np.int64) for name in ("begin", "end"))
    speed, directions = series["bandwidth"].codes.astype(np.float64), series["direction"].values
    groups = series["group"].codes
    lines = {}
    for direction, group in sorted({(str(word), int(group)) for word, group in zip(directions, groups, strict=True)}):
        chosen = (directions == direction) & (groups == group)
        if not speed[chosen].any():
            continue
        edges = np.unique([0, *begins[chosen], *ends[chosen]])
        steps, running = np.zeros(len(edges)), np.zeros(len(edges), dtype=np.int64)
        for times, sign in ((begins, 1), (ends, -1)):
            places = np.searchsorted(edges, times[chosen])
            np.add.at(steps, places, sign * speed[chosen])
            np.add.at(running, places, sign * (speed[chosen] > 0))
        # What rounding leaves of rates that were added and taken away again is no rate.
        rates = np.where(np.cumsum(running) > 0, np.cumsum(steps), 0.0)
        name = f"{direction}, group {group}" if len(set(groups.tolist())) > 1 else direction
        lines[name] = (edges[1:].astype(np.float64), rates[:-1])
    return lines


def _since(times: NDArray[Any], begin: Any) -> NDArray[Any]:
    """From a moment on: a time of day in ns is too large for the digits of a float, what lies between two is not."""
    since: NDArray[Any] = (times - begin).astype(np.int64).astype(np.float64)
    return since


def _recorded_rates(calls: Table) -> _Rates:
    """The same of recorded calls."""
    of_one_buffer(calls, "bandwidth over time")
    if not len(calls):
        return {}
    if calls["time"].unit != "ns":
        raise UnsupportedError("bytes a second", f"the recording has times in {calls['time'].unit}", "the clock mono")
    begins = _since(calls["time"].codes, calls["time"].codes.min())
    spans = np.maximum(calls["duration"].codes.astype(np.float64), 1.0)
    slot = max(float((begins + spans).max()) / _SLOTS, 1.0)
    sizes, operations = calls["size"].codes.astype(np.float64), calls["operation"].values
    lines = {}
    for direction in sorted({str(word) for word in operations}):
        chosen = operations == direction
        # A call that took longer than a slot moved its bytes in all that time, not in the slot in which it returned.
        begin, span, size = begins[chosen], spans[chosen], sizes[chosen]
        until = [float((size * np.clip((slot * end - begin) / span, 0, 1)).sum()) for end in range(_SLOTS)]
        moved = np.maximum(np.diff([*until, float(size.sum())]), 0)
        if moved.any():
            lines[direction] = (slot * np.arange(1, _SLOTS + 1), moved / slot * 1e9)
    return lines


def _seen(times: NDArray[Any], *values: NDArray[Any]) -> NDArray[Any]:
    """Which of many points are enough for a picture: of each column of it the first, the last and the extremes."""
    slots = np.floor(times * (_COLUMNS / max(float(times[-1]), 1.0))).astype(np.int64)
    starts = np.flatnonzero(np.diff(slots, prepend=-1))
    sizes = np.diff(starts, append=len(times))
    points = [starts, starts + sizes - 1]
    for one in values:
        for extreme in (np.minimum, np.maximum):
            hits = np.flatnonzero(one == np.repeat(extreme.reduceat(one, starts), sizes))
            points.append(hits[np.unique(slots[hits], return_index=True)[1]])
    found: NDArray[Any] = np.unique(np.concatenate(points))
    return found


def block_life(block: Block, *, most: int = 200) -> Plot:
    """Each request as a bar of the time since it was queued, in the colours of its stages, in order of queueing.

    Args:
        block: ``run.block()``.
        most: Only the first so many requests; the title says how many there are, and how many were not seen from
            queue to completion.

    Raises:
        InputError: No request was seen from queue to completion; or the requests are of several buffers.
    """
    most = checked.count("most", most, most=sys.maxsize)
    table = of_one_buffer(block.table(), "the life of requests")
    moments = {name: table[name].codes for name in ("queued", "inserted", "issued", "completed")}
    # What skipped a stage has no time in it.
    moments["inserted"] = np.where(moments["inserted"] > 0, moments["inserted"], moments["queued"])
    whole = np.flatnonzero((moments["queued"] > 0) & (moments["issued"] > 0) & (moments["completed"] > 0))
    if len(whole) == 0:
        raise InputError("no request was seen from queue to completion", expected="record(block=True)")
    order = whole[np.argsort(moments["queued"][whole], kind="stable")]
    shown = order[:most]
    start = moments["queued"][shown]

    def draw(axes: Axes) -> None:
        from matplotlib.ticker import MaxNLocator

        rows = np.arange(len(shown))
        for begin, end, name in _STAGES:
            left, right = (_since(moments[at][shown], start) for at in (begin, end))
            axes.barh(rows, right - left, left=left, height=0.85, label=name, linewidth=0)
        axes.invert_yaxis()
        axes.grid(visible=False, axis="y")
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
        time_axis(axes.xaxis, what="time since it was queued", unit=table["queued"].unit)
        axes.set_ylabel("request")
        cut = f", the first {len(shown)} of {len(order):,}" if len(order) > len(shown) else ""
        left_out = len(table) - len(order)
        partly = f"\nleft out: {left_out:,} that were not seen from queue to completion" if left_out else ""
        axes.set_title(f"Life of block requests{cut}{partly}")
        axes.legend(loc="lower right")

    return Plot(draw)


def queue_depth(block: Block, device: str | None = None) -> Plot:
    """How many requests the driver had, over time; darker those of which the recording has both ends.

    Args:
        block: ``run.block()``.
        device: ``"major,minor"``; all together when None.

    Raises:
        InputError: No request was seen from issue to completion.
    """
    table = block.queue_depth(device)
    if len(table) == 0:
        raise InputError("no request was seen from issue to completion", expected="record(block=True)")
    times, depths = _since(table["time"].codes, table["time"].codes[0]), table["depth"].codes
    least = table["least"].codes
    halves = [
        f"{int(table.metadata[name]):,} without {end}"
        for name, end in (("unfinished", "completion"), ("unpaired", "issue"))
        if table.metadata[name] != "0"
    ]
    # Of a recording that was limited to some tasks the depth never comes down, and one must see why.
    title = "Queue depth"
    if halves:
        title += f"\n{'lighter' if (least != depths).any() else 'left out'}: {' and '.join(halves)} in the recording"

    def draw(axes: Axes) -> None:
        from matplotlib.ticker import MaxNLocator

        seen = _seen(times, depths, least)
        moments, all_of, least_of = times[seen], depths[seen], least[seen]
        axes.step(moments, all_of, where="post", linewidth=1.2)
        axes.fill_between(moments, least_of, step="post", alpha=0.25, linewidth=0)
        if (least != depths).any():
            axes.fill_between(moments, least_of, all_of, step="post", alpha=0.1, linewidth=0)
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
        time_axis(axes.xaxis, what="time", unit=table["time"].unit)
        axes.set_ylabel("requests with the driver")
        axes.set_title(title)

    return Plot(draw)
