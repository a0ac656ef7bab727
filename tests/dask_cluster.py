# SPDX-License-Identifier: MIT
"""A real scheduler of Dask and its workers, on addresses of the loopback device."""

from __future__ import annotations

import contextlib
import gc
import os
import socket
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import distributed

# The cluster of tests that were killed ends by itself.
_CONFIG = {
    "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "10",
    "DASK_DISTRIBUTED__SCHEDULER__IDLE_TIMEOUT": "30 minutes",
}


class Cluster:
    """A scheduler and workers, each with a nanny that starts it again.

    Args:
        here: A folder for what they write.
        count: How many workers.
        cache: Their cache folder; None: one of its own for each.
        python: The workers' interpreter.
        environment: Variables of the workers.
    """

    def __init__(
        self, here: Path, count: int = 3, cache: Path | None = None, *, python: str = sys.executable, **environment: str
    ) -> None:
        self._python = python
        self._environment = environment
        self.here = here
        self.count = count
        self._cache = cache
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
        self.scheduler = self._start_scheduler()
        self.workers = [self._worker(number) for number in range(self.count)]

    def _start(self, *words: str, python: str = sys.executable, **more: str) -> subprocess.Popen[bytes]:
        with (self.here / "cluster.log").open("ab") as log:
            return subprocess.Popen(
                [python, "-m", "distributed.cli." + words[0], *words[1:]],
                env={**os.environ, **_CONFIG, "DASK_TEMPORARY_DIRECTORY": str(self.here), **more},
                stdout=log,
                stderr=log,
                cwd=self.here,
            )

    def _start_scheduler(self) -> subprocess.Popen[bytes]:
        host, port = self.address.removeprefix("tcp://").split(":")
        return self._start("dask_scheduler", "--host", host, "--port", port, "--dashboard-address", "127.0.0.1:0")

    def _worker(self, number: int) -> subprocess.Popen[bytes]:
        address = f"tcp://127.0.0.{2 + number}"
        options = ["--nthreads", "1", "--no-dashboard", "--host", address, "--death-timeout", "120"]
        cache = self._cache if self._cache is not None else self.here / f"cache-{number}"
        return self._start(
            "dask_worker", self.address, *options, python=self._python, SAMPLEBLK_CACHE=str(cache), **self._environment
        )

    def client(self) -> Any:
        client = distributed.Client(self.address, set_as_default=False, timeout="120s")
        client.wait_for_workers(self.count, timeout=120)
        return client

    def restart(self) -> None:
        """The scheduler is lost; workers end with the connection to it, and are started again as a rack would."""
        self.scheduler.kill()
        self.close()
        self.scheduler = self._start_scheduler()
        self.workers = [self._worker(number) for number in range(self.count)]

    def close(self) -> None:
        for process in (*self.workers, self.scheduler):
            process.terminate()
        for process in (*self.workers, self.scheduler):
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=20)
                continue
            process.kill()
            process.wait()
        # distributed leaves the sockets of a scheduler that was lost to the garbage collector, and its warning of them
        # would fail whichever case runs then.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()
