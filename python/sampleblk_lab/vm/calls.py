# SPDX-License-Identifier: MIT
"""A Python function in a VM: sent there by value, run by a Python process of its own, its value brought back.

The guest's side is :mod:`sampleblk_lab.called`, which imports next to nothing.
"""

from __future__ import annotations

import os
import pickle
import sys
from typing import TYPE_CHECKING, Any

from sampleblk_lab import by_value, called
from sampleblk_lab.paths import IN_VM
from sampleblk_lab.vm.errors import CallError, RemoteTraceback

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sampleblk_lab.vm.machine import VM


def call(
    machine: VM,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    keywords: Mapping[str, Any],
    *,
    timeout: float | None = None,
    grace_s: float | None = None,
) -> Any:
    """Runs ``function(*args, **keywords)`` in `machine`; see :meth:`VM.call`; the others: :func:`call_pickled`."""
    name = getattr(function, "__qualname__", repr(function))
    return call_pickled(machine, by_value.dumps((function, args, dict(keywords))), name, timeout, grace_s)


def call_pickled(
    machine: VM, load: bytes, name: str, timeout: float | None = None, grace_s: float | None = None
) -> Any:
    """The same of a function that was pickled with its arguments, perhaps by another process.

    Args:
        machine: Where.
        load: What cloudpickle makes of (function, arguments, keyword arguments).
        name: The function's, for messages.
        timeout: Seconds until the VM is killed for it, and DeadlineError is raised.
        grace_s: Seconds that a function that knows what Ctrl-C means has to return its value once that came; None:
            KeyboardInterrupt is raised here.
    """
    from sampleblk_lab.results.machine import tell_guest

    tell_guest()
    work = pickle.dumps((sys.path, load))
    done = machine.run(
        [sys.executable, "-m", called.__name__],
        stdin=work,
        stderr=2,
        env={**os.environ, IN_VM: machine.describe()},
        timeout=timeout,
        grace_s=grace_s,
    )
    outcome: bytes = done.stdout or b""
    if not outcome.startswith(called.MAGIC):
        if done.interrupted:  # before the function began, which would have known what to do
            raise KeyboardInterrupt
        how = f"signal {-done.returncode}" if done.returncode < 0 else f"status {done.returncode}"
        raise CallError(f"{name}() gave no value: its process ended by {how}", machine.console.tail())
    value, error, text = pickle.loads(outcome[len(called.MAGIC) :])
    if text is None:
        return by_value.loads(value)
    try:
        raised = by_value.loads(error)
    except Exception:
        raised = None
    if isinstance(raised, KeyboardInterrupt) and grace_s is not None:
        raise raised
    if not isinstance(raised, Exception):
        raise CallError(f"{name}(): {text.strip().splitlines()[-1]}") from RemoteTraceback(text)
    raise raised from RemoteTraceback(text)
