# SPDX-License-Identifier: MIT
"""Jobs made of recordings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from sampleblk_lab._native import core
from sampleblk_lab.buffers import of_one_buffer
from sampleblk_lab.errors import InputError, UnsupportedError
from sampleblk_lab.table import Table
from sampleblk_lab.workload.job import Workload, settings_of

if TYPE_CHECKING:
    from sampleblk_lab.analysis.block import Block
    from sampleblk_lab.analysis.syscalls import Syscalls

# read(2): fd, buffer, count. pread(2), preadv(2): the offset is the fourth.
_COUNT, _OFFSET = "arg2", "arg3"


class Replay(Workload):
    """A job that does again what was recorded: system calls of programs, requests of block devices, I/Os of jobs.

    Times are the recorded ones unless ``replay_time_scale`` (percent) or ``replay_no_stall`` says otherwise. A file
    of fio's iolog or of blktrace is replayed by ``Job(read_iolog=path)``.

    Args:
        recorded: ``run.syscalls()``, ``run.block()``, or a :class:`Table` of either kind: system calls with the columns
            time, syscall and, where they apply, pid, fd, count, ret, offset, path, advice, and arg1 and arg2 (as the
            kernel had them, of what descriptors are followed by: flags of opens, fcntl, close_range, clone); requests
            with time, rwbs, sector, and bytes or nr_sector, and dev if there are several devices. Or the
            ``io_log()`` of a result, all of its jobs by one, without their trims.
        name: What the job is called in reports.
        keys: Keys of the job. ``replay_redirect=path`` sends all to one file or device; ``directory`` says where the
            recorded names are looked for; ``ioengine``, ``iodepth``, ``replay_skip``, ``replay_scale`` as in fio.

    Raises:
        InputError: The table has not the columns, or there is nothing in it to replay; or it is of several buffers.
        UnsupportedError: Its times are ticks of some clock.

    Example:
        >>> lab.Replay(run.block(), replay_redirect="/dev/sampleblk0", direct=1).run()
    """

    def __init__(self, recorded: Table | Syscalls | Block, name: str = "replay", **keys: Any) -> None:
        if not isinstance(recorded, Table) and not hasattr(recorded, "table"):
            raise TypeError(f"recorded is a Table, or run.syscalls() or run.block(), not {recorded!r:.60}")
        table = recorded if isinstance(recorded, Table) else recorded.table()
        columns = set(table.columns)
        of_one_buffer(table, "a replay")
        if any(table[name].unit == "ticks" for name in columns & {"time", "queued"}):
            raise UnsupportedError("a replay", "the recording has times in ticks", "the clock mono")
        if {"direction", "offset", "size", "path"} <= columns:
            table = _ios(table)
            columns = set(table.columns)
        requests = "rwbs" in columns
        if not requests and "syscall" not in columns:
            raise InputError(
                f"nothing to replay in a table of {', '.join(sorted(columns))}",
                expected="a column syscall, of system calls, or rwbs, of block requests, or an io_log()",
            )
        if {"queued", "issued"} <= columns:
            table = _requests(table)
        elif "arg0" in columns:
            table = _calls(table)
        super().__init__(core.JobSet.replay(table._table, requests, settings_of({"name": name, **keys})))  # noqa: SLF001


def _requests(table: Table) -> Table:
    """The block view's table as the replay takes it: by the time at which a request was queued, or else issued.

    One of which only the completion was seen began before the recording.
    """
    steps = [table[name].codes.astype(np.int64) for name in ("issued", "inserted", "gotten", "queued") if name in table]
    time = np.zeros(len(table), dtype=np.int64)
    for step in steps:
        time = np.where(step > 0, step, time)
    begun = time > 0
    return Table.of(
        {
            "time": time[begun],
            "rwbs": [str(word) for word in table["rwbs"].values[begun]],
            "sector": table["sector"].codes[begun],
            "nr_sector": table["sectors"].codes[begun],
            "dev": table["device"].codes[begun],
        },
        units={"time": "ns"},
        metadata=table.metadata,
    )


def _ios(table: Table) -> Table:
    """The log of a workload's I/Os as the replay takes it: as calls, in the order in which they were issued."""
    order = np.argsort(table["time"].codes, kind="stable")
    calls = {"read": "pread64", "write": "pwrite64", "trim": "fallocate"}
    size = table["size"].codes[order]
    return Table.of(
        {
            "time": table["time"].codes[order],
            "syscall": [calls[str(word)] for word in table["direction"].values[order]],
            "fd": table["path"].codes[order],  # a number for each path
            "count": size,
            "ret": size,
            "offset": table["offset"].codes[order],
            "path": [str(word) for word in table["path"].values[order]],
        },
        units={"time": "ns"},
        metadata=table.metadata,
    )


def _calls(table: Table) -> Table:
    """The system-call view's table as the replay takes it: arguments by their meaning."""
    arguments = {name: table[name].codes.astype(np.int64) for name in ("arg0", "arg1", _COUNT, _OFFSET)}
    calls = [str(word) for word in table["syscall"].values]
    advises = np.array([call.startswith("fadvise") for call in calls], dtype=bool)
    columns: dict[str, Any] = {
        "time": table["time"].codes,
        "pid": table["pid"].codes,
        "syscall": calls,
        "fd": arguments["arg0"],
        "count": arguments[_COUNT],
        "ret": table["ret"].codes,
        # fadvise64(2): fd, offset, length, advice.
        "offset": np.where(advises, arguments["arg1"], arguments[_OFFSET]),
        "arg1": arguments["arg1"],
        "arg2": arguments[_COUNT],
        "advice": np.where(advises, arguments[_OFFSET], 0),
    }
    if "path" in table.columns:
        columns["path"] = [str(word or "") for word in table["path"].values]
    return Table.of(columns, units={"time": "ns"}, metadata=table.metadata)
