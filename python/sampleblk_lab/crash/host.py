# SPDX-License-Identifier: MIT
"""A range of states on the host that it was given to: the log is put there if it lacks it, the states are checked.

:func:`check` is what an exploration hands to an executor. The states are checked in a process of their own, which
:mod:`sampleblk_lab.sweeps.host` waits for as for a sweep's trial: a check that ends its process ends nothing else.
"""

from __future__ import annotations

import contextlib
import functools
import os
import pickle
import sys
import time
import zlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sampleblk_lab.crash.disks import ImageFile
from sampleblk_lab.crash.explore import Bench, folder_for, reduce
from sampleblk_lab.crash.log import Bare, State
from sampleblk_lab.crash.workers import packed
from sampleblk_lab.errors import SampleblkError, UnsupportedError
from sampleblk_lab.paths import scratch_directory
from sampleblk_lab.sweeps import host
from sampleblk_lab.sweeps.claim import Claim
from sampleblk_lab.sweeps.work import Outcome, Work, failure_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sampleblk_lab.crash.parcel import Parcel

#: The kind of an outcome that says that the host has no such log; its facts say which host that is.
LACKS = "lacks the log"


@dataclass(frozen=True)
class Found:
    """What came of a range.

    Attributes:
        checked: How many of its states were checked, from its begin; none after one that did not pass.
        failed: The one that did not: which, the state it was reduced to (itself where that was not asked for), and what
            the check said of that, as :func:`sampleblk_lab.crash.workers.packed` has it.
        error: What made it impossible to check, packed; nothing else counts then.
        setup_s: Seconds that went by before the first check.
        seconds: And in all.
    """

    checked: int = 0
    failed: tuple[int, Bare, Any] | None = None
    error: Any = None
    setup_s: float = 0.0
    seconds: float = 0.0


def order(
    exploration: str, check: bytes, parcel: Parcel, states: Sequence[Bare], seconds: float | None, *, reducing: bool
) -> bytes:
    """What :func:`check` is sent for a range.

    Args:
        exploration: What the range is of, as :func:`sampleblk_lab.sweeps.host.stop` is told.
        check: The check, pickled.
        parcel: The log.
        states: The states of the range.
        seconds: Begin no check after so many seconds.
        reducing: Reduce the states, which are known to fail.
    """
    keywords = {
        "parcel": parcel,
        "states": zlib.compress(pickle.dumps(list(states)), 1),
        "seconds": seconds,
        "reducing": reducing,
    }
    return pickle.dumps(
        Work(
            sweep=exploration,
            key="range",
            function=pickle.dumps(functools.partial(_range, check)),
            keywords=keywords,
            path=sys.path,
            machine=None,
            kernel=None,
            deadline_s=None,
            claim=Claim(),
            raw=True,
        )
    )


def _range(check: bytes, parcel: Parcel, states: bytes, seconds: float | None, reducing: bool, folder: str) -> bytes:
    """Checks the states of a range, in a process of its own. Returns :class:`Found` as bytes.

    They are not unpickled before they are back where the user's classes are.
    """
    from sampleblk_lab import by_value

    begin = time.monotonic()
    until = float("inf") if seconds is None else begin + seconds
    checked = 0
    failed: tuple[int, Bare, Any] | None = None
    setup_s = 0.0
    try:
        log = parcel.log()
        disk = ImageFile(log, Path(folder))
        with contextlib.closing(Bench(log, pickle.loads(check), disk)) as bench:
            setup_s = time.monotonic() - begin
            for number, bare in enumerate(pickle.loads(zlib.decompress(states))):
                if time.monotonic() >= until:
                    break
                state = State.of(log, bare)
                disk.image.take(state.native)
                error = bench.check(state)
                if error is not None and reducing:
                    state, error, _ = reduce(bench.check_built, state, error)
                checked += 1
                if error is not None:
                    # The rest can wait: what was found is safe when it has been told.
                    failed = (number, state.bare, packed(error, by_value.dumps))
                    break
    except UnsupportedError as error:
        return by_value.dumps(Found(error=packed(error, by_value.dumps)))
    return by_value.dumps(Found(checked, failed, None, setup_s, time.monotonic() - begin))


def _worker() -> str:
    """The address of the Dask worker that this is, if it is one."""
    distributed: Any = sys.modules.get("distributed")
    if distributed is None:
        return ""
    try:
        return str(distributed.get_worker().address)
    except ValueError:
        return ""


def check(ordered: bytes, parcel: Parcel, data: bytes | None = None) -> Outcome:
    """Checks a range of states in a process of its own and waits for it.

    Args:
        ordered: What :func:`order` made.
        parcel: The log.
        data: All of it, for a host that lacks it.

    Returns:
        What came of it: ``value`` is a pickled :class:`Found`. A host without the log says :data:`LACKS`, and every
        failure is an outcome, too.
    """
    facts = {"store": f"{os.uname().nodename}:{parcel.folder}", "worker": _worker(), "host": os.uname().nodename}
    try:
        if data is not None:
            parcel.keep(data)
        if not parcel.is_here():
            return Outcome(kind=LACKS, facts=facts)
        with scratch_directory("crash-range", folder_for(parcel.size_bytes)) as folder:
            work: Work = pickle.loads(ordered)
            made = host.execute(pickle.dumps(replace(work, keywords={**work.keywords, "folder": str(folder)})))
    except (OSError, SampleblkError) as error:
        made = failure_of(error)
    return replace(made, facts={**made.facts, **facts})
