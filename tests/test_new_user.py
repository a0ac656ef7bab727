# SPDX-License-Identifier: MIT
"""What a newcomer does, by the README alone: installs the package, saves its first experiment, runs pytest."""

from __future__ import annotations

import os
import re
import resource
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from sampleblk_lab.paths import cache_root
from support import copy_sources

CHECKOUT = Path(__file__).resolve().parents[1]
HEADING = "## Installing it into an environment of your own"

pytestmark = pytest.mark.full


def experiment(readme: str) -> tuple[str, str]:
    """The README's own experiment, and the name that its first line gives the file."""
    [code] = re.findall(r"^```python\n(# test_\w+\.py.*?)^```$", readme, re.DOTALL | re.MULTILINE)
    named = re.match(r"# (test_\w+\.py)", code)
    assert named is not None
    return named[1], code


def commands(readme: str) -> list[str]:
    """The commands of the README's section on installing, without their comments."""
    [block] = re.findall(r"^```sh\n(.*?)^```$", readme.partition(HEADING)[2], re.DOTALL | re.MULTILINE)
    return [line.partition(" #")[0].strip() for line in block.splitlines()]


def _cpu_seconds() -> float:
    """Of all that has ended below this process: what a busy machine makes longer is not in it."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_from_pip_install_to_the_first_passing_experiment(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """Timed: the environment, the wheel with its dependencies, the VM, the experiment; kernels are in the cache."""
    readme = (CHECKOUT / "README.md").read_text()
    name, code = experiment(readme)
    checkout = tmp_path / "checkout"
    copy_sources(CHECKOUT, checkout)
    (tmp_path / "experiments").mkdir()
    (tmp_path / "experiments" / name).write_text(code)
    # A home without anything of ours, but with the kernels; and no compiler's cache.
    environment = {**os.environ, "HOME": str(tmp_path), "SAMPLEBLK_CACHE": str(cache_root()), "CCACHE_DISABLE": "1"}
    environment.pop("PYTHONPATH", None)
    took: dict[str, float] = {}
    spent: dict[str, float] = {}
    said = ""
    for command in commands(readme):
        begin, before = time.monotonic(), _cpu_seconds()
        done = subprocess.run(
            ["sh", "-c", command], cwd=checkout, env=environment, capture_output=True, text=True, check=False
        )
        took[command], spent[command] = time.monotonic() - begin, _cpu_seconds() - before
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        said = done.stdout
    assert "1 passed" in said
    told = "\n".join(f"{took[command]:6.1f} s  {spent[command]:6.1f} s  {command}" for command in took)
    total, cpu = sum(took.values()), sum(spent.values())
    print(f"to the first passing experiment: time, CPUs' time\n{told}\n{total:6.1f} s  {cpu:6.1f} s  together")
    record_property("sampleblk_new_user_s", round(total, 1))
    record_property("sampleblk_new_user_cpu_s", round(cpu, 1))
