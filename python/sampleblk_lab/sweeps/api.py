# SPDX-License-Identifier: MIT
"""Sweeps as users call them."""

from __future__ import annotations

import html
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from sampleblk_lab.errors import InputError
from sampleblk_lab.progress import is_watched
from sampleblk_lab.sweeps import store
from sampleblk_lab.sweeps.place import check_workers, local_workers, place
from sampleblk_lab.sweeps.plan import canonical
from sampleblk_lab.sweeps.result import Sweep
from sampleblk_lab.sweeps.running import Run, duration
from sampleblk_lab.sweeps.spec import DEADLINE_S, Spec

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Mapping

    from sampleblk_lab.sweeps.choice import Choice
    from sampleblk_lab.sweeps.trial import Trial


@dataclass(frozen=True)
class DryRun:
    """What a sweep would do.

    Attributes:
        trials: How many trials there are.
        done: How many of them are done already, and would not be run.
        seconds: How long the rest would take, from the trials that are done; None where none is.
        workers: How many trials would run at a time; None where a client decides.
        kernels: Kernels that are not in the cache and would be fetched.
        combinations: The parameters of each combination.
        unchosen: How many combinations more are chosen when the results of these are known, at most.
        folder: Where results go.
    """

    trials: int
    done: int
    seconds: float | None
    workers: int | None
    kernels: list[str]
    combinations: list[dict[str, Any]]
    unchosen: int
    folder: Path

    def text(self) -> str:
        """A few lines."""
        combinations = len(self.combinations) + self.unchosen
        most = "at most " if self.unchosen else ""
        lines = [
            f"{most}{self.trials} trials: {combinations} combinations, {self.trials // combinations} times each",
            f"{self.done} are done, {self.trials - self.done} would be run; results in {self.folder}",
        ]
        if self.kernels:
            lines.append(f"to be fetched: kernel {', '.join(self.kernels)}; what is done on these is not known")
        if self.seconds is not None:
            at = f", {self.workers} at a time" if self.workers else ", one at a time"
            lines.append(f"estimated time: {duration(self.seconds)}{at}")
        elif self.done < self.trials:
            lines.append("estimated time: not known before the first trial is done")
        return "\n".join(lines)

    def json(self) -> dict[str, Any]:
        """For programs."""
        return {**vars(self), "folder": str(self.folder)}

    def __repr__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self.text())}</pre>"


@overload
def sweep(
    function: Callable[..., Any],
    /,
    *,
    repeat: int = ...,
    seed: int = ...,
    pairwise: bool = ...,
    choose: Choice | None = ...,
    where: Callable[..., object] | None = ...,
    exclude: Iterable[Mapping[str, Any]] = ...,
    vm: bool | Mapping[str, Any] | None = ...,
    deadline_s: float | None = ...,
    retries: int = ...,
    exclusive: bool | Callable[..., object] = ...,
    revision: str | None = ...,
    workers: int | None = ...,
    client: Any = ...,
    folder: str | os.PathLike[str] | None = ...,
    progress: bool | None = ...,
    dry_run: Literal[False] = ...,
    **axes: Any,
) -> Sweep: ...


@overload
def sweep(
    function: Callable[..., Any],
    /,
    *,
    repeat: int = ...,
    seed: int = ...,
    pairwise: bool = ...,
    choose: Choice | None = ...,
    where: Callable[..., object] | None = ...,
    exclude: Iterable[Mapping[str, Any]] = ...,
    vm: bool | Mapping[str, Any] | None = ...,
    deadline_s: float | None = ...,
    retries: int = ...,
    exclusive: bool | Callable[..., object] = ...,
    revision: str | None = ...,
    workers: int | None = ...,
    client: Any = ...,
    folder: str | os.PathLike[str] | None = ...,
    progress: bool | None = ...,
    dry_run: Literal[True],
    **axes: Any,
) -> DryRun: ...


def sweep(
    function: Callable[..., Any],
    /,
    *,
    repeat: int = 1,
    seed: int = 0,
    pairwise: bool = False,
    choose: Choice | None = None,
    where: Callable[..., object] | None = None,
    exclude: Iterable[Mapping[str, Any]] = (),
    vm: bool | Mapping[str, Any] | None = None,
    deadline_s: float | None = DEADLINE_S,
    retries: int = 2,
    exclusive: bool | Callable[..., object] = False,
    revision: str | None = None,
    workers: int | None = None,
    client: Any = None,
    folder: str | os.PathLike[str] | None = None,
    progress: bool | None = None,
    dry_run: bool = False,
    **axes: Any,
) -> Sweep | DryRun:
    """Runs a function for each combination of the axes' values, and keeps what it returns as one table.

    Each trial is a process of its own; with an axis ``kernel``, or `vm`, the function runs in a fresh VM. A trial that
    is done is never run again, by whatever process, as long as the function's code, the parameters, the kernel, the
    driver and the seed are the same: the same call goes on where one was interrupted.

    Args:
        function: Called with the axes' values by name; also with ``repeat`` and ``seed`` if it has such parameters, the
            seed being the trial's own; with ``directory``, an empty one of its own, whose files come back to
            :meth:`Sweep.artefacts`, from a VM or another host, too. It returns None, a number, a string, or a dict of
            these by name. It is sent to other processes and hosts by value, with the user's own code that it refers to.
        repeat: How often each combination is run. :meth:`Sweep.compare` needs 6 or more.
        seed: Decides the order of the trials within each round of repeats, and the trials' own seeds.
        pairwise: Only so many combinations that every two values of different axes meet in one of them.
        choose: Only some combinations: :func:`lab.sweeps.random <sampleblk_lab.sweeps.choice.random>`, or
            :func:`lab.sweeps.optuna <sampleblk_lab.sweeps.choice.optuna>`, which chooses by what came of those before.
        where: A function of axes: only combinations for which it returns something true.
        exclude: Combinations to leave out, each a mapping of axes to a value or a list of values.
        vm: True, or a dict with ``cpus``, ``memory_mib``, ``accel``, ``driver``: in a VM also without an axis
            ``kernel``.
        deadline_s: Seconds that the function may take; None: without end.
        retries: How often a trial is tried again that failed by the machine's fault: a killed process, a lost host, a
            panic, the deadline, a full disk. What the function raises is its own result and is not tried again.
        exclusive: Each trial has its host to itself, as timings want it: no other trial of this user runs there at the
            time, of whatever sweep. Or a function of axes: those trials for which it returns something true.
        revision: What is measured, by a name of its own, such as a commit: each has trials of its own, and
            :meth:`Sweep.history` shows all of them. ``"git"``: the commit of the function's file.
        workers: Trials at a time on this machine; None: as many as there are processors, and memory, for.
        client: Where to run instead: a ``distributed.Client``, the address of its scheduler, or any
            ``concurrent.futures.Executor``.
        folder: Where the results are; None: ``runs/sweeps/NAME``, by the function's name.
        progress: Whether to show it; None: if standard error is a terminal or a notebook's. Elsewhere it is a line a
            minute.
        dry_run: Run nothing; say what would be run.
        axes: Name to values: a list, one value, or a function of other axes that returns a list.

    Returns:
        The sweep, which may not be complete. Trials that failed raise nothing but are in :meth:`Sweep.missing`. Ctrl-C
        ends the trials that run, and keeps the others.

    Raises:
        InputError: A value is not one that is accepted, or another process writes to the folder.
        UnsupportedError: The extra ``sweep`` is not installed, or ``optuna`` where it is to choose.

    Example:
        >>> def write(bs, seed):
        ...     return lab.Job(rw="write", bs=bs, size="1M", filename="file", randseed=seed).run().bandwidth
        >>> lab.sweep(write, bs=["4k", "128k"], repeat=6).compare("bs", better="higher")
    """
    spec = Spec(
        function=function,
        axes=axes,
        repeat=repeat,
        seed=seed,
        pairwise=pairwise,
        choose=choose,
        where=where,
        exclude=exclude,
        vm=vm,
        deadline_s=deadline_s,
        retries=retries,
        exclusive=exclusive,
        revision=revision,
        folder=Path(folder) if folder is not None else None,
    )
    if dry_run:
        return look(spec, workers=workers, client=client)
    return run(spec, workers=workers, client=client, progress=progress)


def look(spec: Spec, *, workers: int | None = None, client: Any = None) -> DryRun:
    """What a sweep would do."""
    assert spec.folder is not None
    check_workers(workers)
    course = spec.build(download=False)
    outcomes, _ = store.read_journal(spec.folder)
    done: dict[str, dict[str, Any]] = {}
    for one in outcomes:
        if one["type"] == "done":
            done.setdefault(one["key"], one)

    def values(trial: Trial) -> dict[str, Any] | None:
        one = done.get(trial.key)
        return None if one is None else {**one["values"], "seconds": one["seconds"]}

    # What was chosen before is chosen again; of what comes after it, only the number is known.
    while course.plan.growing and all(trial.key in done for trial in course.next(values)):
        pass
    trials = course.plan.trials
    took = [done[trial.key]["seconds"] for trial in trials if trial.key in done]
    # Those of another code say something, too.
    known = took or [one["seconds"] for one in done.values()]
    count = None if client is not None else workers or (1 if spec.exclusive is True else local_workers(spec.shape))
    left = course.most - len(took)
    combinations = {canonical(trial.parameters): trial.parameters for trial in trials}
    return DryRun(
        trials=course.most,
        done=len(took),
        seconds=left * sum(known) / len(known) / (count or 1) if known else None,
        workers=count,
        kernels=list(course.lacking),
        combinations=list(combinations.values()),
        unchosen=course.most // spec.repeat - len(combinations),
        folder=spec.folder,
    )


def run(spec: Spec, *, workers: int | None = None, client: Any = None, progress: bool | None = None) -> Sweep:
    """Runs what is not done."""
    store.arrow()
    assert spec.folder is not None
    if workers is not None and workers != 1 and spec.exclusive is True:
        raise InputError(f"workers={workers} with exclusive=True", expected="one of the two")
    with place(client, workers, spec.shape) as where:
        course = spec.build(download=True)
        shown = is_watched() if progress is None else progress
        with store.Writer(spec.folder, course.plan) as writer:
            made = Run(spec, course, writer, where, progress=shown)
            made.run()
    return Sweep(spec.folder, interrupted=made.interrupted, lost=made.lost)


def open_sweep(folder: str | os.PathLike[str]) -> Sweep:
    """A sweep by its folder, also of another process that runs it now.

    Raises:
        InputError: There is no sweep.
        FormatError: A file in it is not what a sweep writes.
    """
    return Sweep(folder)
