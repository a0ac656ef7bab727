# SPDX-License-Identifier: MIT
"""What a trial's process does: calls the function, here or in a VM that it starts, and says what came of it."""

from __future__ import annotations

import contextlib
import errno
import os
import pickle
import sys
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sampleblk_lab.sweeps.claim import Claim
from sampleblk_lab.sweeps.invoke import invoke
from sampleblk_lab.texts import INT_BITS, utf8

if TYPE_CHECKING:
    import socket

# The exceptions of a VM, by what they are called in tables; whoever meets another one in the function is told of it.
KINDS = {"GuestPanicError": "panic", "GuestLostError": "lost VM", "DeadlineError": "deadline", "BootError": "boot"}

#: Kinds of failure that say something of the machine, not of the experiment: such a trial is tried again.
PASSING = ("killed", "lost", "panic", "lost VM", "deadline", "boot", "full disk", "memory")

# How much of a trial's outcome may be text of an exception.
_TEXT = 20_000

_FULL = (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True)
class Work:
    """What is sent for a trial.

    Attributes:
        sweep: Whom it is for.
        key: The trial's.
        function: Pickled by cloudpickle.
        keywords: What it is called with.
        path: Where modules are looked for at the place it comes from, after our own places.
        machine: The VM, as :class:`sampleblk_lab.sweeps.trial.Machines` tells it; None: no VM.
        kernel: The VM's, as it was asked for.
        deadline_s: How long the function may take.
        claim: What it needs of the host.
        wants_directory: Whether the function is given a directory of the trial's own.
        directory: Which, once the trial is on its host.
        resident: Folders that the VM has in its memory.
        raw: It is no trial but a range of crash states: what the function returns is wanted as it is, as ``value``.
    """

    sweep: str
    key: str
    function: bytes
    keywords: dict[str, Any]
    path: list[str]
    machine: dict[str, Any] | None
    kernel: str | None
    deadline_s: float | None
    claim: Claim
    wants_directory: bool = False
    directory: str | None = None
    resident: tuple[str, ...] = ()
    raw: bool = False


@dataclass(frozen=True)
class Outcome:
    """What came of it.

    Attributes:
        values: What the function returned, by name; empty when it failed.
        kind: What kind of failure it was; empty when it was none.
        message: The failure in one or a few lines.
        detail: The traceback, or the end of the guest's console.
        seconds: How long the function took.
        facts: What it ran on: columns of the table.
        files: What the function left in its directory, by path.
    """

    values: dict[str, Any] = field(default_factory=dict)
    kind: str = ""
    message: str = ""
    detail: str = ""
    seconds: float = 0.0
    facts: dict[str, Any] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)


def values_of(value: Any) -> dict[str, Any]:
    """What the table gets of what a function returned.

    Raises:
        TypeError: It is neither None, a number, a string, nor a mapping of names to these.
    """
    if value is None:
        return {}
    if isinstance(value, dict):
        found = {}
        for name, one in value.items():
            if not isinstance(name, str) or not name or utf8(name) != name:
                raise TypeError(f"the function returned a value under {name!r}, which is not a name")
            found[str.__str__(name)] = _scalar(one, f"{name}=")
        return found
    return {"value": _scalar(value, "")}


def _scalar(value: Any, what: str) -> Any:
    if (
        not isinstance(value, (str, bool, int, float))
        and getattr(value, "shape", None) == ()
        and hasattr(value, "item")
    ):
        value = value.item()  # numpy's
    if isinstance(value, int) and value.bit_length() > INT_BITS:
        raise TypeError(f"the function returned {what}an int of {value.bit_length()} bits; {INT_BITS} at most")
    if value is None or isinstance(value, bool):
        return value
    # Of a class of the user's own, such as an IntEnum, only the value: nobody else has the class.
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        return float.__float__(value)
    if isinstance(value, str):
        return str.__str__(value)
    raise TypeError(
        f"the function returned {what}{value!r:.100}; it may return a number, a string, or a dict of these by name"
    )


def _ticks() -> tuple[int, int]:
    """Of all processors: stolen by the hypervisor, and in all (proc(5), stat)."""
    try:
        fields = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    except (OSError, ValueError):
        return 0, 0
    return (fields[7] if len(fields) > 7 else 0), sum(fields)


def _perform(work: Work) -> tuple[Any, float, dict[str, Any]]:
    keywords = work.keywords if work.directory is None else {**work.keywords, "directory": Path(work.directory)}
    if work.machine is None:
        value, seconds = invoke(work.function, keywords)
        return value, seconds, {"release": os.uname().release, "accelerator": "none"}
    from sampleblk_lab import by_value
    from sampleblk_lab.vm.calls import call_pickled
    from sampleblk_lab.vm.machine import VM

    load = by_value.dumps((invoke, (work.function, keywords), {}))
    driver = work.machine["driver"] is not None
    shape = {name: work.machine[name] for name in ("cpus", "memory_mib", "accel")}
    with VM(kernel=work.kernel, driver=driver, run_dir=work.directory, resident=work.resident, **shape) as vm:
        value, seconds = call_pickled(vm, load, "the function", work.deadline_s)
        facts = {
            "release": vm.kernel.release,
            "accelerator": vm.accel,
            "vm_cpus": vm.cpus,
            "vm_memory_mib": vm.memory_mib,
        }
    return value, seconds, facts


def _text_of(error: BaseException) -> str:
    """What an exception says; its class may be the user's, and say nothing but another exception."""
    try:
        return str(error)
    except Exception as other:
        return f"<str() of it raised {type(other).__name__}>"


def failure_of(error: BaseException) -> Outcome:
    """What is told of an exception."""
    from sampleblk_lab.errors import SampleblkError

    kind = "error"
    detail = "".join(traceback.format_exception(error))[-_TEXT:]
    message = f"{type(error).__name__}: {_text_of(error)}"
    if isinstance(error, SampleblkError):
        for base in type(error).__mro__:
            if base.__name__ in KINDS and base.__module__ == "sampleblk_lab.vm.errors":
                kind = KINDS[base.__name__]
                break
        if hasattr(error, "console"):
            message, detail = error.message, str(error)[-_TEXT:]  # type: ignore[attr-defined]
    elif isinstance(error, OSError) and error.errno in _FULL:
        kind = "full disk"
    elif isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
        kind = "memory"
    return Outcome(kind=kind, message=message[:_TEXT], detail=detail)


def perform(work: Work) -> Outcome:
    """Runs one trial in this process."""
    sys.path[:] = list(dict.fromkeys([*sys.path, *work.path]))
    stolen, ticks = _ticks()
    load = os.getloadavg()[0]
    try:
        value, seconds, facts = _perform(work)
        made = Outcome(values={"value": value} if work.raw else values_of(value), seconds=seconds, facts=facts)
    except BaseException as error:
        made = failure_of(error)
    stolen_after, ticks_after = _ticks()
    steal = (stolen_after - stolen) / (ticks_after - ticks) if ticks_after > ticks else 0.0
    return Outcome(
        made.values, made.kind, made.message, made.detail, made.seconds, {**made.facts, "load": load, "steal": steal}
    )


def serve(connection: socket.socket) -> None:
    """Reads one :class:`Work` from the connection and writes its :class:`Outcome`."""
    with connection.makefile("rb") as stream:
        size = int.from_bytes(stream.read(8), "little")
        data = stream.read(size)
    if len(data) < size or not size:
        return
    process = os.getpid()
    made = perform(pickle.loads(data))
    for output in (sys.stdout, sys.stderr):
        # The function may have closed it, or put None in its place, and its disk may be full: the outcome is known.
        with contextlib.suppress(AttributeError, ValueError, OSError):
            output.flush()
    if os.getpid() != process:
        return  # a fork that the function has let return: the outcome is that of its parent
    outcome = pickle.dumps(made)
    connection.sendall(len(outcome).to_bytes(8, "little") + outcome)
