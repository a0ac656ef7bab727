#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""How long it takes from launch to the end of a trivial command in a VM, against virtme-ng (``vng --exec true``).

Both run Debian's 6.1 under TCG; where KVM works, ours by that is shown beside them. Ours runs a whole Python
interpreter, theirs /bin/true. The runs take turns, and each figure is the median of its runs. Kernel, initramfs and
driver are in the cache before the first one.

Then a session of pytest in which each test has a fresh VM, from its start to its end, against as many VMs of theirs.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from sampleblk_lab.kernels import resolve
from sampleblk_lab.paths import search_path
from sampleblk_lab.vm import VM

# What virtme-ng needs and pip does not bring -> the Debian package that has it: the shell of its initramfs, and the
# daemon without which it reports no exit status.
PEER_NEEDS = {"busybox": "busybox-static", "/usr/lib/systemd/systemd-udevd": "udev"}

# What the session of pytest has to do.
COUNT = 20
TESTS = f"""
import pytest
@pytest.mark.in_vm(fresh="test")
@pytest.mark.parametrize("number", range({COUNT}))
def test_it(number): pass
"""

RUNS = int(os.environ.get("BENCH_RUNS", "3"))
BIN = Path(sys.executable).parent


def seconds(command: list[str], **environment: str) -> float:
    begin = time.monotonic()
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, **environment},
        timeout=300,
        check=False,
    )
    took = time.monotonic() - begin
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit status {done.returncode}\n{done.stdout.decode(errors='replace')}")
    return took


def main() -> None:
    lacks = [package for name, package in PEER_NEEDS.items() if shutil.which(name, path=search_path()) is None]
    if lacks:
        sys.exit(f"virtme-ng needs {', '.join(lacks)}: packaging/install-packages.sh --tests")
    kernel = resolve("6.1")
    image = kernel.image.parent / "boot" / f"vmlinuz-{kernel.release}"
    ours = [str(BIN / "sampleblk-python"), "--kernel", kernel.release, "--accel", "tcg"]
    # --disable-kvm: KVM may hang a guest here, and TCG is what ours uses; the modules are those of the package.
    theirs = [str(BIN / "vng"), "--run", str(image), "--disable-kvm", "--cpus", "2", "--memory", "1G", "--exec", "true"]
    # Its own programs call one another by PATH; QEMU is the one of the system, as it would find it.
    tools = f"{BIN}:{os.environ['PATH']}"
    commands = {
        "cold": lambda: seconds([*ours, "--cold", "-c", "pass"]),
        "warm": lambda: seconds([*ours, "-c", "pass"]),
        "vng": lambda: seconds(theirs, PATH=tools),
    }
    if VM(kernel=kernel.release).accel == "kvm":
        by_kvm = [*ours[:-1], "kvm", "-c", "pass"]
        commands["kvm"] = lambda: seconds(by_kvm)
        seconds(by_kvm)
    else:
        print("kvm: no guest has booted with it here (sampleblk-lab doctor says why)", flush=True)
    # With the Python of this environment as it is now, which a new VM would have made beside the first runs.
    seconds([str(BIN / "sampleblk-lab"), "vm", "prepare", *ours[1:]])
    taken: dict[str, list[float]] = {name: [] for name in (*commands, "fresh")}
    for turn in range(RUNS):
        for name, run in commands.items():
            taken[name].append(run())
            print(f"run {turn + 1}/{RUNS} {name:5} {taken[name][-1]:7.2f} s", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "test_it.py").write_text(TESTS)
            (Path(folder) / "pytest.ini").write_text("[pytest]")
            session = ["-q", "-p", "no:cacheprovider", "--sblk-kernel", kernel.release, folder]
            taken["fresh"].append(seconds([str(BIN / "pytest"), *session], SAMPLEBLK_ACCEL="tcg") / COUNT)
        print(f"run {turn + 1}/{RUNS} {'fresh':5} {taken['fresh'][-1]:7.2f} s a test of {COUNT}", flush=True)
    medians = {name: statistics.median(values) for name, values in taken.items()}
    for name, median in medians.items():
        print(f"median {name:5} {median:7.2f} s")
    print(f"ratio cold_vs_vng {medians['vng'] / medians['cold']:.1f}")
    print(f"ratio warm_vs_vng {medians['vng'] / medians['warm']:.1f}")
    print(f"ratio fresh_test_vs_vng {medians['vng'] / medians['fresh']:.1f}")


if __name__ == "__main__":
    main()
