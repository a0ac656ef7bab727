# SPDX-License-Identifier: MIT
"""What the plugin adds to an unrelated ``pytest --collect-only``, in CPU time: with and without it, alternately."""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from sampleblk_lab import compare

BUDGET_MS = 30.0
ROUNDS = 15


def _collect(folder: Path, *options: str) -> float:
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", "-p", "no:cacheprovider", *options]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1000 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def main() -> None:
    """Prints the added time, and how often it fits into what it may be."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "test_it.py").write_text("def test_it(): pass\n")
        _collect(folder)
        without, with_it = [], []
        for number in range(ROUNDS):
            sides = [(without, ("-p", "no:sampleblk")), (with_it, ())]
            for times, options in sides if number % 2 == 0 else reversed(sides):
                times.append(_collect(folder, *options))
    made = compare(without, with_it, paired=True, unit="ms")
    base = sorted(without)[len(without) // 2]
    added = base * (made.ratio.value - 1)
    print(made)
    print(f"without {base:.0f} ms, the plugin adds {added:.1f} ms (at most {base * (made.ratio.high - 1):.1f})")
    print(f"ratio plugin_load_budget {BUDGET_MS / max(added, 0.1):.2f}")


if __name__ == "__main__":
    main()
