# SPDX-License-Identifier: MIT
"""What a newcomer does, by the README alone: installs the package, saves its first experiment, runs pytest."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from sampleblk_lab.paths import cache_root

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


def test_from_pip_install_to_the_first_passing_experiment(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """Timed: the environment, the wheel with its dependencies, the VM, the experiment; kernels are in the cache."""
    readme = (CHECKOUT / "README.md").read_text()
    name, code = experiment(readme)
    checkout = tmp_path / "checkout"
    listed = subprocess.run(["git", "-C", str(CHECKOUT), "ls-files", "-z"], capture_output=True, text=True, check=True)
    for path in listed.stdout.split("\0")[:-1]:
        if (CHECKOUT / path).is_file():
            (checkout / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(CHECKOUT / path, checkout / path)
    (tmp_path / "experiments").mkdir()
    (tmp_path / "experiments" / name).write_text(code)
    # A home without anything of ours, but with the kernels; and no compiler's cache.
    environment = {**os.environ, "HOME": str(tmp_path), "SAMPLEBLK_CACHE": str(cache_root()), "CCACHE_DISABLE": "1"}
    environment.pop("PYTHONPATH", None)
    took: dict[str, float] = {}
    said = ""
    for command in commands(readme):
        begin = time.monotonic()
        done = subprocess.run(
            ["sh", "-c", command], cwd=checkout, env=environment, capture_output=True, text=True, check=False
        )
        took[command] = time.monotonic() - begin
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        said = done.stdout
    assert "1 passed" in said
    told = "\n".join(f"{seconds:6.1f} s  {command}" for command, seconds in took.items())
    print(f"from nothing to the first passing experiment\n{told}\n{sum(took.values()):6.1f} s  together")
    record_property("sampleblk_new_user_s", round(sum(took.values()), 1))
