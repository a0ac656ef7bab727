# SPDX-License-Identifier: MIT
"""Events as they come: the ring buffer read page by page and decoded by the same core as recordings."""

from __future__ import annotations

import errno
import heapq
import os
import struct
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sampleblk_lab._native import core
from sampleblk_lab.recording.control import LOST, buffer_counts

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Iterator

    from sampleblk_lab.recording.session import Session

# Pages that are taken from one CPU before the others have their turn.
_BURST = 64


class _Template:
    """The head of a trace.dat for this session, onto which pages are put."""

    def __init__(self, session: Session, cpus: list[int], ids: Collection[int] = ()) -> None:
        known = set(session.enabled())
        if ids:  # of events that were disabled since
            found = Path(f"{session.path}/events").glob("*/*/id")
            known |= {f"{one.parts[-3]}:{one.parts[-2]}" for one in found if int(one.read_text()) in ids}
        with tempfile.TemporaryDirectory() as directory:
            empty = Path(directory, "empty")
            empty.touch()
            path = Path(directory, "head")
            spool = [core.SpoolFile(cpu, str(empty), 0) for cpu in cpus]
            core.write_trace_file(str(path), session.path, sorted(known), False, spool)
            head = path.read_bytes()
        self._count = cpus[-1] + 1
        self._table = head.index(b"flyrecord\0") + 10
        self._head = head[: self._table]

    def file(self, pages: dict[int, bytes]) -> core.TraceFile:
        at = self._table + 16 * self._count
        table = b""
        body = b""
        for cpu in range(self._count):
            data = pages.get(cpu, b"")
            table += struct.pack("=QQ", at + len(body), len(data))
            body += data
        return core.TraceFile.from_bytes(self._head + table + body, "live", "strict")


def _rows(name: str, table: core.Table) -> Iterator[tuple[int, int, dict[str, Any]]]:
    columns: dict[str, list[Any]] = {}
    for column in table.columns:
        values = column.values.tolist()
        words = column.categories
        columns[column.name] = values if words is None else [words[code] if code >= 0 else None for code in values]
    for index, (stamp, cpu) in enumerate(zip(columns["time"], columns["cpu"], strict=True)):
        yield stamp, cpu, {"event": name, **{key: values[index] for key, values in columns.items()}}


def _passing() -> tuple[str, ...]:
    """The probes and the modules that are there: another's events get the numbers of those that went, from 6.3 on."""
    probes, modules = Path(f"{core.tracefs_dir()}/dynamic_events"), Path("/proc/modules")
    names = [line.split()[0] for line in modules.read_text().splitlines()] if modules.exists() else []
    return probes.read_text(errors="replace") if probes.exists() else "", *names


def follow(session: Session, idle: float) -> Generator[dict[str, Any], None, None]:
    """See :meth:`Session.follow`."""
    root = Path(f"{session.path}/per_cpu")
    cpus = sorted(int(path.name[3:]) for path in root.iterdir() if path.name.startswith("cpu"))
    ids: set[int] = set()
    passing = _passing()
    template = _Template(session, cpus)
    page_size = template.file({}).page_size
    files = {cpu: os.open(f"{root}/cpu{cpu}/trace_pipe_raw", os.O_RDONLY | os.O_NONBLOCK) for cpu in cpus}
    try:
        while True:
            pages: dict[int, bytes] = {}
            for cpu, file in files.items():
                taken = []
                for _ in range(_BURST):
                    try:
                        page = os.read(file, page_size)
                    except OSError as error:
                        # ENODEV: a CPU that has not been online since the buffer was made has none.
                        if error.errno not in (errno.EAGAIN, errno.ENODEV):
                            raise
                        break
                    if not page:
                        break
                    taken.append(page.ljust(page_size, b"\0"))
                if taken:
                    pages[cpu] = b"".join(taken)
            if not pages:
                time.sleep(idle)
                continue
            if (now := _passing()) != passing:
                passing, template = now, _Template(session, cpus, ids)
            found = template.file(pages)
            words = found.count_events().columns[0].categories or []
            unknown = {int(word.removeprefix("unknown:")) for word in words if word.startswith("unknown:")}
            if unknown - ids:
                # Of events that are enabled meanwhile, whoever did it, the template has no formats.
                ids |= unknown
                template = _Template(session, cpus, ids)
                found = template.file(pages)
            tables = found.decode([])
            # Not by the pages: a full one has no room for the number.
            counts = buffer_counts(session.path)
            lost = sum(counts[name] for name in LOST)
            before, session._lost = session._lost, lost  # noqa: SLF001
            # Less than before: somebody emptied the buffer.
            if new := lost - (before if before <= lost else 0):
                yield {"event": "lost", "count": new}
            streams = [_rows(name, table) for name, table in tables.items()]
            for _, _, row in heapq.merge(*streams, key=lambda item: item[:2]):
                yield row
    finally:
        for file in files.values():
            os.close(file)
