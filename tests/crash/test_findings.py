# SPDX-License-Identifier: MIT
"""What exploring has found in kernels is found again, as its page says."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from support import RunsInVM

# A VM for each.
pytestmark = pytest.mark.full

PAGES = Path(__file__).parents[2] / "docs/explanation"

# The headings of bugs that have a fix -> a kernel without it, what is said there, and a kernel that has it.
FIXED = {
    "btrfs: a deleted file is there again": (
        "6.12",
        "'deleted' promised that folder/file has nothing, there is no such file; it has 4000 bytes",
        "7.2",
    ),
    "btrfs: a renamed symlink has its old name": (
        "6.12",
        "'renamed' promised that folder/old has nothing, there is no such file; it has 4 bytes",
        "7.2",
    ),
}


def _blocks(page: str, heading: str = "") -> list[str]:
    """The Python of a page, or of one of its sections."""
    text = (PAGES / f"{page}.md").read_text()
    if heading:
        [text] = re.findall(rf"^## {re.escape(heading)}$(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE)
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    assert blocks
    return blocks


@pytest.mark.parametrize(("page", "findings"), [("ext4-fast-commit", 1), ("ext4-fast-commit-replay", 2)])
def test_a_finding_is_found(page: str, findings: int, tmp_path: Path, run_in_vm: Callable[..., str]) -> None:
    program = "import os, sys\nos.chdir(sys.argv[1])\n" + "\n".join(_blocks(page))
    assert run_in_vm(tmp_path, program, str(tmp_path), timeout=400).count(": 1 failed") == findings


@pytest.mark.parametrize("fixed", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("bug", FIXED)
def test_a_fixed_bug_is_found_before_its_fix_only(
    bug: str, fixed: bool, tmp_path: Path, sampleblk_python: RunsInVM
) -> None:
    old, symptom, new = FIXED[bug]
    blocks = [*_blocks("older-kernels", "What the examples have in common"), *_blocks("older-kernels", bug)]
    program = "import os, sys\nos.chdir(sys.argv[1])\n" + "\n".join(blocks)
    place = ["--kernel", new if fixed else old, "--run-dir", str(tmp_path)]
    done = sampleblk_python(*place, "-c", program, str(tmp_path), timeout=600)
    said = done.stdout.decode()
    assert done.returncode == 0, said + done.stderr.decode(errors="replace")
    if fixed:
        # Quiet, and not because it looked at little.
        assert "all there are: 0 failed" in said
    else:
        assert "1 failed" in said
        assert symptom in said
