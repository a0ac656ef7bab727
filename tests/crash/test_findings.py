# SPDX-License-Identifier: MIT
"""What exploring has found in kernels is found again, as its page says."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

# A VM for each.
pytestmark = pytest.mark.full

PAGES = Path(__file__).parents[2] / "docs/explanation"


@pytest.mark.parametrize("page", ["ext4-fast-commit"])
def test_a_finding_is_found(page: str, tmp_path: Path, run_in_vm: Callable[..., str]) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", (PAGES / f"{page}.md").read_text(), re.DOTALL | re.MULTILINE)
    assert blocks
    program = "import os, sys\nos.chdir(sys.argv[1])\n" + "\n".join(blocks)
    assert "1 failed" in run_in_vm(tmp_path, program, str(tmp_path), timeout=400)
