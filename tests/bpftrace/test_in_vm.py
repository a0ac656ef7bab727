# SPDX-License-Identifier: MIT
"""A script beside a command of the guest, from the host: by Python, and by the command line."""

from __future__ import annotations

import json
import subprocess

import pytest

import sampleblk_lab as lab
from sampleblk_lab.cli.main import main

DD = ["dd", "if=/dev/zero", "of=/dev/null", "bs=12345", "count=7"]


def sizes(rows: object) -> dict[int, int]:
    return {row["bytes"]: row["value"] for row in rows if row["comm"] == "dd"}  # type: ignore[attr-defined]


@pytest.mark.full
def test_a_command_in_a_vm_beside_a_script(capfd: pytest.CaptureFixture[str]) -> None:
    with lab.vm.VM(kernel="6.1") as vm:
        found = vm.bpftrace("io-sizes", DD)
        assert sizes(found["@writes"])[12345] == sizes(found["@reads"])[12345] == 7
        with pytest.raises(subprocess.CalledProcessError) as failed:
            vm.bpftrace("BEGIN { @ = 5; }", ["false"])
        assert list(failed.value.output["@"]) == [{"value": 5}]
        with pytest.raises(lab.InputError, match="prinf"):
            vm.bpftrace("BEGIN { prinf(5); }", ["true"])
    capfd.readouterr()
    assert main(["bpf", "--kernel", "6.1", "--json", "io-sizes", "--", *DD]) == 0
    told = json.loads(capfd.readouterr().out)
    assert sizes(told["maps"]["@writes"])[12345] == 7
    assert told["lost_events"] == 0
