# SPDX-License-Identifier: MIT
"""What a sweep costs beside its trials: per trial, to open a large table, and what is shipped to a cluster."""

from __future__ import annotations

import json
import os
import pickle
import resource
import sys
import tempfile
import time
from pathlib import Path

import sampleblk_lab as lab
from sampleblk_lab.sweeps import plan, processes, store, trial
from sampleblk_lab.sweeps.claim import Claim
from sampleblk_lab.sweeps.spec import Spec
from sampleblk_lab.sweeps.work import Outcome, Work

TRIALS = 1000
ROWS = 100_000

# What the issue allows: seconds for TRIALS trials, for the table of ROWS rows, and milliseconds a trial.
BUDGET_TRIALS_S = 20.0
BUDGET_TABLE_S = 1.0


def nothing(a: int, seed: int) -> dict[str, float]:
    """A trial without work."""
    return {"x": float(a), "y": seed % 7}


def _cpu() -> tuple[float, float]:
    """Processor seconds: of this process, and of those that it has waited for."""
    own, below = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime, below.ru_utime + below.ru_stime


def trials(folder: Path, workers: int, count: int) -> tuple[float, float, float]:
    """Seconds for so many trials in processes, and processor milliseconds for each: here, and in the others."""
    processes.close()
    lab.sweep(nothing, a=[0], folder=folder / f"warm-{workers}", workers=workers)  # the launcher's imports
    own, below = _cpu()
    begin = time.perf_counter()
    made = lab.sweep(nothing, a=list(range(count)), folder=folder / f"s-{workers}", workers=workers)
    took = time.perf_counter() - begin
    processes.close()
    own_after, below_after = _cpu()
    assert made.complete
    return took, 1000 * (own_after - own) / count, 1000 * (below_after - below) / count


def large(folder: Path) -> float:
    """Seconds to open a sweep of ROWS trials and to read its table."""
    made = [trial.make("code", {"a": a, "fs": "ext4" if a % 2 else "xfs"}, 0, 0, None) for a in range(ROWS)]
    facts = {
        "started_ns": 1,
        "ended_ns": 2,
        "exclusive": False,
        "host": "h",
        "host_cpu": "c",
        "host_cpus": 2,
        "host_memory_mib": 1024,
        "release": "6.1",
    }
    facts |= {"accelerator": "none", "load": 0.5, "steal": 0.0}
    with store.Writer(folder, store.Plan({}, ["a", "fs"], made)), (folder / store.JOURNAL).open("a") as file:
        for one in made:
            outcome = {"type": "done", "key": one.key, "values": {"x": 1.0, "y": 2}, "seconds": 0.1, "facts": facts}
            file.write(json.dumps({**outcome, "attempts": 1, "retried": []}) + "\n")
    (folder / store.RESULTS).unlink(missing_ok=True)
    with store.Writer(folder, store.Plan({}, ["a", "fs"], made)):
        pass
    begin = time.perf_counter()
    assert len(lab.open_sweep(folder).table()) == ROWS
    return time.perf_counter() - begin


def shipped() -> tuple[int, int]:
    """Bytes of one trial's work and of its outcome."""
    spec = Spec(function=nothing, axes={"a": [1]})
    work = Work("0" * 32, "0" * 24, spec.pickled(), {"a": 1, "seed": 1}, sys.path, None, None, 3600.0, Claim())
    facts = {
        "host": "host-0001",
        "host_cpu": "x" * 40,
        "host_cpus": 64,
        "host_memory_mib": 262144,
        "started_ns": time.time_ns(),
        "ended_ns": time.time_ns(),
        "exclusive": False,
    }
    outcome = Outcome(values={"x": 1.0, "y": 2}, seconds=0.1, facts={**facts, "release": "6.1", "accelerator": "tcg"})
    return len(pickle.dumps(work)), len(pickle.dumps(outcome))


def main() -> None:
    """Prints the times, and how often they fit into what they may be."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        took = {}
        for workers in sorted({1, len(os.sched_getaffinity(0))}):
            took[workers], own, below = trials(folder, workers, TRIALS)
            print(
                f"{TRIALS} trials, {workers} at a time: {took[workers]:.2f} s, {1000 * took[workers] / TRIALS:.1f} ms "
                f"each; processor time for each: {own:.1f} ms here, {below:.1f} ms in other processes",
                flush=True,
            )
        table = large(folder / "large")
        print(f"table of {ROWS} rows: {table:.2f} s")
        begin = time.perf_counter()
        rows = plan.interleaved(list(plan.Space({f"a{n}": list(range(10)) for n in range(5)})), 1, 0)
        print(f"plan of {len(rows)} combinations: {time.perf_counter() - begin:.2f} s")
        work, outcome = shipped()
        print(f"shipped for each trial: {work} bytes to the worker, {outcome} back")
        print(f"ratio sweep_trials_budget {BUDGET_TRIALS_S / min(took.values()):.2f}")
        print(f"ratio sweep_table_budget {BUDGET_TABLE_S / table:.2f}")
    processes.close()


if __name__ == "__main__":
    main()
