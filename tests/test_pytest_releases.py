# SPDX-License-Identifier: MIT
"""The plugin on the oldest releases of pytest and xdist that pyproject.toml allows, and on the newest that there are.

What pytest has no public name for (``pytest_plugin/internals.py``) may change with any release: this says when it has.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from importlib.metadata import distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement

HERE = Path(__file__).parent
EXTRA = tomllib.loads((HERE.parent / "pyproject.toml").read_text())["project"]["optional-dependencies"]["pytest"]
REQUIRED = {requirement.name: requirement for requirement in map(Requirement, EXTRA)}

# The parts that touch pytest's own: names of tests, fixtures, reports, plugins, capturing, debuggers, distribution.
CASES = (
    "matrix or each_runs or own_fixtures or wider_scopes or plugins_that or standard_input or takes_its or live_logs"
)

pytestmark = pytest.mark.full


def _oldest(requirement: Requirement) -> str:
    (least,) = (one.version for one in requirement.specifier if one.operator == ">=")
    return f"{requirement.name}=={least}"


@pytest.mark.parametrize("which", ["oldest", "newest"])
def test_the_plugin_works_on(which: str, tmp_path: Path) -> None:
    wanted = [_oldest(one) if which == "oldest" else one.name for one in REQUIRED.values()]
    site = tmp_path / "site"
    pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--target", str(site)]
    subprocess.run([*pip, *wanted], check=True)
    found = {one.name: one.version for one in distributions(path=[str(site)])}
    for name, requirement in REQUIRED.items():
        assert requirement.specifier.contains(found[name]), f"pyproject.toml: {requirement}, and there is {found[name]}"
    # Without this project's pyproject.toml: its filters of warnings are for one release.
    command = [sys.executable, "-m", "pytest", "-c", os.devnull, f"--rootdir={HERE}", "-q", "-k", CASES]
    environment = {**os.environ, "PYTHONPATH": str(site)}
    done = subprocess.run(
        [*command, str(HERE / "test_pytest_guest.py")], env=environment, capture_output=True, text=True, check=False
    )
    print(done.stdout)
    assert done.returncode == 0, done.stdout[-4000:]
    assert " passed" in done.stdout
