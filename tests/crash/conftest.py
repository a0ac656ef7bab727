# SPDX-License-Identifier: MIT
"""What several of these tests ask for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sampleblk_lab.sweeps import claim, processes
from support import RunsInVM


@pytest.fixture(scope="module")
def own_host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """These explorations do not wait for sweeps of others on this machine, and keep logs in a cache of their own."""
    folder = tmp_path_factory.mktemp("host")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(claim.VARIABLE, str(folder / "lock"))
        patch.setenv("SAMPLEBLK_CACHE", str(folder / "cache"))
        yield
    processes.close()


@pytest.fixture(scope="session")
def run_in_vm(sampleblk_python: RunsInVM) -> Callable[..., str]:
    """``run_in_vm(folder, program, *arguments)`` runs a Python program in the VM, which may write to the folder."""

    def run(folder: Path, program: str, *arguments: str, timeout: float) -> str:
        done = sampleblk_python("--run-dir", str(folder), "-c", program, *arguments, timeout=timeout)
        assert done.returncode == 0, (done.stdout + done.stderr).decode(errors="replace")
        return done.stdout.decode()

    return run


@pytest.fixture(scope="module")
def recorded(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, run_in_vm: Callable[..., str]
) -> Path:
    """The folder that the test module's own program, ``RECORD``, has filled in the VM; its arguments are that folder
    and the module's ``RECORD_ARGUMENTS``."""
    folder = tmp_path_factory.mktemp("recorded")
    run_in_vm(folder, request.module.RECORD, str(folder), *getattr(request.module, "RECORD_ARGUMENTS", ()), timeout=500)
    return folder
