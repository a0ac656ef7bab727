# SPDX-License-Identifier: MIT
"""How much memory may still be used."""

from __future__ import annotations

from pathlib import Path

from sampleblk_lab import memory

MIB = 1 << 20


def test_the_least_of_machine_and_control_groups(tmp_path: Path) -> None:
    proc, groups = tmp_path / "proc", tmp_path / "cgroup"
    (proc / "self").mkdir(parents=True)
    (groups / "pod/box").mkdir(parents=True)
    (proc / "meminfo").write_text("MemTotal: 9999999 kB\nMemAvailable: 4194304 kB\n")
    assert memory.available_mib(proc, groups) == 4096  # no cgroup2
    (proc / "self/cgroup").write_text("0::/pod/box\n")
    assert memory.available_mib(proc, groups) == 4096  # without limits
    (groups / "pod/box/memory.max").write_text("max\n")
    for name, text in (("max", 2048 * MIB), ("current", 1048 * MIB), ("stat", f"anon 5\ninactive_file {24 * MIB}")):
        (groups / f"pod/memory.{name}").write_text(f"{text}\n")
    assert memory.available_mib(proc, groups) == 2048 - 1048 + 24
    (groups / "pod/memory.current").write_text(f"{4096 * MIB}\n")
    assert memory.available_mib(proc, groups) == 0


def test_of_this_machine() -> None:
    total = next(int(line.split()[1]) for line in Path("/proc/meminfo").read_text().splitlines() if "MemTotal" in line)
    assert 0 < memory.available_mib() <= total >> 10
