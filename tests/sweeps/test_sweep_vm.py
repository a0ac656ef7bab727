# SPDX-License-Identifier: MIT
"""Trials in VMs: each in a fresh one, and a guest that panics is a trial that is tried again."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

import sampleblk_lab as lab
from sampleblk_lab.sweeps import processes


@pytest.mark.usefixtures("no_leftovers")
def test_trials_run_in_fresh_vms_and_a_panic_is_tried_again(tmp_path: Path) -> None:
    host_release = os.uname().release

    def experiment(panic: bool, seed: int, directory: Path) -> dict[str, Any]:
        (directory / "begun.txt").write_text(f"{panic} on {os.uname().release}")
        with lab.Device(capacity="16M") as device:
            fresh = not Path("/tmp/was-here").exists()
            Path("/tmp/was-here").touch()
            if panic:
                Path("/proc/sysrq-trigger").write_text("c")
                time.sleep(60)
            return {"fresh": fresh, "guest": os.uname().nodename, "device": Path(device.path).exists(), "own": seed}

    made = lab.sweep(experiment, kernel="6.1", panic=[False, True], folder=tmp_path, retries=1, workers=1)
    processes.close()
    [row] = made.table().rows()
    assert (row["panic"], row["fresh"], row["guest"], row["device"]) == (False, True, "sampleblk", True)
    assert str(row["release"]).startswith("6.1.")
    assert row["release"] != host_release
    assert row["accelerator"] in ("tcg", "kvm")
    assert (row["vm_cpus"], row["vm_memory_mib"], row["kernel"]) == (2, 1024, "6.1")
    [lost] = made.missing().rows()
    assert (lost["panic"], lost["kind"], lost["attempts"]) == (True, "panic", 2)
    assert "the guest's kernel panicked" in str(lost["message"])
    assert "sysrq" in str(lost["detail"]).lower()
    # Files come back from the guest, also from one that panicked.
    files = {row["panic"]: tmp_path / str(row["path"]) for row in made.artefacts().rows()}
    assert files[False].read_text() == f"False on {row['release']}"
    assert files[True].read_text() == f"True on {row['release']}"
    again = lab.sweep(experiment, kernel="6.1", panic=[False, True], folder=tmp_path, dry_run=True)
    assert (again.trials, again.done) == (2, 1)
