#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs pytest's cases of this host beside those in VMs, and tells a case that failed from one that was disturbed.

usage: lane.py KERNELS

On two CPUs streams take time from each other, and many cases measure a machine while it runs: samples, clocks,
how long a guest takes to boot. So the file of a case that failed is run once more when all streams have ended. What
fails then has failed. What passes then is named; more than three such cases fail the run, as does a stream that
ended in any other way than by failed cases.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path

DISTURBED_AT_MOST = 3
STATE = Path("build/lane")
FAILED = 1  # pytest's exit status where cases failed and nothing else happened


@dataclass
class Stream:
    """One run of pytest: its name, what it is asked to run, and the options and environment of a second run, too."""

    name: str
    cases: list[str]
    options: list[str] = field(default_factory=list)
    environment: dict[str, str] | None = None
    status: int | None = None

    def run(self, cases: list[str]) -> int:
        """Runs ``cases``, each line with the stream's name before it; returns pytest's exit status."""
        pytest = Path(sys.executable).with_name("pytest")
        command = [pytest, *cases, *self.options, "-o", f"cache_dir={self._cache}"]
        shutil.rmtree(self._cache, ignore_errors=True)
        with subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            errors="replace",
            env=self.environment,
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                print(f"{self.name:<5}| {line}", end="", flush=True)
        self.status = process.returncode
        return self.status

    def failed(self) -> list[str]:
        """The cases that failed in the last run, as pytest's cache names them."""
        try:
            return sorted(json.loads((self._cache / "v/cache/lastfailed").read_text()))
        except FileNotFoundError:
            return []

    @property
    def _cache(self) -> Path:
        return (STATE / self.name).absolute()


def run(*queues: list[Stream]) -> int:
    """Runs ``queues`` beside each other, the streams of each one after another, then the files of what failed.

    Returns the exit status of the whole.
    """

    def drain(queue: list[Stream]) -> None:
        for stream in queue:
            stream.run(stream.cases)

    streams = [stream for queue in queues for stream in queue]
    threads = [threading.Thread(target=drain, args=(queue,)) for queue in queues]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    broken = [stream for stream in streams if stream.status not in (0, FAILED)]
    for stream in broken:
        print(f"{stream.name} ended with status {stream.status}", flush=True)
    failed = {stream.name: stream.failed() for stream in streams if stream.status == FAILED}
    count = sum(len(cases) for cases in failed.values())
    if broken or any(not cases for cases in failed.values()):
        return FAILED
    if count > DISTURBED_AT_MOST:
        print(f"{count} cases failed; no more than {DISTURBED_AT_MOST} are tried again", flush=True)
        return FAILED
    statuses = []
    for stream in streams:
        if stream.name in failed:
            files = sorted({case.partition("::")[0] for case in failed[stream.name]})
            print(f"{stream.name}: again, with nothing beside: {' '.join(files)}", flush=True)
            statuses.append(stream.run(files))
    for name, cases in failed.items():
        for case in cases:
            print(f"{name}: failed beside another stream: {case}", flush=True)
    if any(statuses):
        return FAILED
    if failed:
        print(f"{count} of them passed with nothing beside: look at what they measure", flush=True)
    return 0


def main() -> int:
    """The fast lane's streams."""
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    # What takes longest is told: it is what the lane waits for. A case that hangs is waited for ten minutes at most.
    durations = ["--durations=40", "--durations-min=4", "--sblk-deadline=600"]
    fast = ["-m", "not full", *durations]
    first, *others = sys.argv[1].split(",")
    # Each guest collects its cases: what the first one has compiled is kept, whatever is said of it.
    keeping = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    # On a busy host an emulated machine with two CPUs takes half as long again as one with one: each waits for the
    # other, which the host does not run. Drivers have bugs that only one of them shows.
    one_cpu = {"SAMPLEBLK_CPUS": "1"}
    on_first = ["-m", "not two_cpus and not full", *durations] if others else fast
    vms = [Stream(first, ["tests/vm"], ["--sblk-kernel", first, *on_first], keeping | (one_cpu if others else {}))]
    on_each = ["-m", "(each_kernel or two_cpus) and not full", *durations]
    vms += [Stream(kernel, ["tests/vm"], ["--sblk-kernel", kernel, *on_each], keeping) for kernel in others]
    beside = dict(os.environ) | one_cpu
    # Three on two CPUs: with two, these had nothing to do for a fifth of the time. Sweeps mostly wait, so they are a
    # fourth: after the others, the CPUs would wait with them.
    last, sweeps = ["tests/profile"], ["tests/sweeps"]
    vms.append(Stream("last", last, fast, beside))
    more = [f"tests/{name}" for name in ("crash", "suites", "workload")]
    more += sorted(map(str, Path("tests").glob("test_vm_*.py")))
    rest = [f"--ignore={path}" for path in ("tests/vm", *last, *sweeps, *more)]
    beside_vms = {"more": more, "sweep": sweeps, "host": rest}
    return run(vms, *([Stream(name, cases, fast, beside)] for name, cases in beside_vms.items()))


if __name__ == "__main__":
    sys.exit(main())
