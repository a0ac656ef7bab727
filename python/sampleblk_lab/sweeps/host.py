# SPDX-License-Identifier: MIT
"""A trial on the host that it was given to: what the host lacks is fetched, and the trial's process is waited for.

:func:`execute` is what a sweep hands to an executor: a thread of this process, a worker of Dask, or whatever else has
``submit``.
"""

from __future__ import annotations

import functools
import pickle
import threading
import time
from dataclasses import replace
from typing import Any

from sampleblk_lab.errors import InputError
from sampleblk_lab.paths import scratch_directory
from sampleblk_lab.sweeps import artefacts, claim, processes
from sampleblk_lab.sweeps.launcher import CRASH, IN_VM, PLAIN
from sampleblk_lab.sweeps.trial import Machines, Shape
from sampleblk_lab.sweeps.work import Outcome, Work, failure_of

# What a VM's trial may take beside its function: a template that is made, a driver that is built, a busy host.
_BEFORE_VM_S = 900.0

# What must be the same here as where the sweep was begun.
_PARTS = {
    "release": "kernel",
    "image": "kernel's image",
    "modules": "digest of the kernel's modules",
    "driver": "driver's source",
}

_preparing = threading.Lock()


@functools.cache
def _host() -> dict[str, Any]:
    from sampleblk_lab.results import machine

    about = machine.host()
    return {
        "host": about["name"],
        "host_cpu": about["cpu"],
        "host_cpus": int(about["cpus"]),
        "host_memory_mib": int(about["memory_mib"]),
    }


# Of a sweep: a worker, or a notebook, outlives many, and the driver and a user's own kernel may change between two.
@functools.lru_cache(maxsize=8)
def _machines(_sweep: str, shape: Shape) -> Machines:
    return Machines(shape, download=True)


def _prepared(work: Work) -> str:
    """Fetches the VM's kernel if this host lacks it; why the VM here is not the sweep's, or nothing."""
    if work.machine is None:
        return ""
    wanted = work.machine
    shape = Shape(wanted["cpus"], wanted["memory_mib"], wanted["accel"], wanted["driver"] is not None)
    with _preparing:
        found, _ = _machines(work.sweep, shape).of(work.kernel)
    assert found is not None
    for part, name in _PARTS.items():
        if found.get(part) != wanted.get(part):
            return f"the {name} on this host is not the sweep's: {found.get(part)}, not {wanted.get(part)}"
    return ""


def execute(packed: bytes) -> Outcome:
    """Runs one trial in a process of its own and waits for it.

    Args:
        packed: A pickled :class:`~sampleblk_lab.sweeps.work.Work`.

    Returns:
        What came of it; every failure is one, too.
    """
    work: Work = pickle.loads(packed)
    facts: dict[str, Any] = {**_host(), "exclusive": work.claim.exclusive}
    try:
        with claim.held(work.claim, lambda: processes.is_stopped(work.sweep)):
            facts["started_ns"] = time.time_ns()
            made = _execute(work, packed)
            facts["ended_ns"] = time.time_ns()
    except claim.Stopped:
        return Outcome(kind="stopped", message="the sweep was interrupted", facts=facts)
    except Exception as error:  # by its kind: a full disk here is the machine's fault, too
        return replace(failure_of(error), facts=facts)
    return replace(made, facts={**facts, **made.facts})


def _execute(work: Work, packed: bytes) -> Outcome:
    if unlike := _prepared(work):
        return Outcome(kind="unlike", message=unlike)
    if not work.wants_directory:
        return _waited_for(work, packed)
    # Made here, so that it goes, and what is in it is kept, also when the trial's process is killed.
    with scratch_directory("trial") as directory:
        work = replace(work, directory=str(directory))
        made = _waited_for(work, pickle.dumps(work))
        try:
            return replace(made, files=artefacts.collected(directory))
        except (OSError, InputError) as error:
            if made.kind:
                return made
            return replace(failure_of(error), facts=made.facts)


def _waited_for(work: Work, packed: bytes) -> Outcome:
    kind = CRASH if work.raw else PLAIN if work.machine is None else IN_VM
    deadline_s = work.deadline_s
    if kind == IN_VM and deadline_s is not None:
        deadline_s += _BEFORE_VM_S  # the function's own is kept by the VM
    try:
        made: Outcome = pickle.loads(processes.run(work.sweep, packed, kind=kind, deadline_s=deadline_s))
    except processes.Killed as error:
        return Outcome(kind=error.kind, message=str(error))
    return made


def stop(sweep: str) -> int:
    """Ends what runs for a sweep in this process, VMs included."""
    return processes.stop(sweep)
