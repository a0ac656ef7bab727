# SPDX-License-Identifier: MIT
"""Our VMs under KVM, on any machine: QEMU emulates a processor with SVM, and the Linux on that has a KVM of its own.

Both with one CPU: with two each the outer one has hung.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sampleblk_lab.kernels import resolve
from sampleblk_lab.kernels.driver import module_tree

BIN = Path(sys.executable).parent

# What has a clock of KVM's runs on KVM.
CLOCKS = "/sys/devices/system/clocksource/clocksource0/available_clocksource"

TESTS = f"""
from pathlib import Path

import pytest
import sampleblk_lab as lab

pytestmark = pytest.mark.in_vm

def test_a_job_on_the_device():
    assert "kvm-clock" in Path({CLOCKS!r}).read_text()
    with lab.Device("16M", cache=True) as device:
        with device.mkfs("ext4").mount() as mount:
            job = lab.Job(ioengine="sync", rw="write", bs="4k", size="1M", fsync=16, filename=mount / "file")
            result = job.run(progress=False)
        assert result.json()["jobs"][0]["write"]["total_ios"] == 256
        assert device.counters().writes > 0

def test_that_panics():
    Path("/proc/sys/kernel/sysrq").write_text("1")
    Path("/proc/sysrq-trigger").write_text("c")

def test_in_a_new_vm():
    assert "kvm-clock" in Path({CLOCKS!r}).read_text()
"""

# What the outer guest does: (arguments, exit status, what was printed) of each, a line of JSON.
OUTER = """
import json, os, subprocess, sys
subprocess.run(["modprobe", "kvm_amd"], check=True)
os.environ["SAMPLEBLK_ACCEL"] = "kvm"
for name in ("SAMPLEBLK_CPU", "SAMPLEBLK_VM"):
    os.environ.pop(name, None)
for command in json.loads(sys.argv[1]):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True)
    print(json.dumps([done.returncode, done.stdout]), flush=True)
"""


@pytest.mark.full
def test_it_boots_saves_restores_and_runs_tests(tmp_path: Path) -> None:
    kernel = resolve("6.1")
    modules = module_tree(kernel)
    assert modules is not None
    # Without headers, for which the driver would be built again, there.
    mine = tmp_path / "kernel"
    (mine / "boot").mkdir(parents=True)
    (mine / "lib/modules").mkdir(parents=True)
    shutil.copy(kernel.image, mine / "boot" / f"vmlinuz-{kernel.release}")
    (mine / "lib/modules" / kernel.release).symlink_to(modules)
    (tmp_path / "test_inner.py").write_text(TESTS)
    (tmp_path / "outer.py").write_text(OUTER)
    inner = [str(BIN / "sampleblk-python"), "--kernel", str(mine), "--cpus", "1", "--memory", "768M", "-c"]
    commands = [
        *([*inner, f"import os; print(os.environ['SAMPLEBLK_VM']); print(open({CLOCKS!r}).read())"] for _ in range(3)),
        [
            *(str(BIN / "pytest"), "-p", "no:cacheprovider", "-c", "/dev/null", "--rootdir", str(tmp_path), "-v"),
            *("--sblk-kernel", str(mine), "--sblk-cpus", "1", "--sblk-memory", "768M", str(tmp_path / "test_inner.py")),
        ],
    ]
    outer = [str(BIN / "sampleblk-lab"), "vm", "run", "--accel", "tcg", "--cpus", "1", "--memory", "3G"]
    outer += ["--timeout", "1500", "--", sys.executable, "-B", str(tmp_path / "outer.py"), json.dumps(commands)]
    done = subprocess.run(
        outer,
        # Without what QEMU emulates instruction by instruction, as in our own guests.
        env={**os.environ, "SAMPLEBLK_CPU": "max,+svm,-erms,-fsrm"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=1600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    *pythons, (status, said) = map(json.loads, done.stdout.splitlines())
    for number, (python_status, text) in enumerate(pythons):
        assert python_status == 0, text
        about, clocks, *_ = text.splitlines()[-3:]
        assert "kvm-clock" in clocks, text
        about = json.loads(about)
        # Once from nothing, which is saved; then restored.
        assert (about["accel"], about["kernel"], about["restored"]) == ("kvm", kernel.release, number > 0), text
    assert status == 1, said
    assert "1 failed, 2 passed" in said, said
    assert "test_that_panics FAILED" in said
    assert "sysrq triggered crash" in said
