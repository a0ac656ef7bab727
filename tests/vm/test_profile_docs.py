# SPDX-License-Identifier: MIT
"""The how-to page runs as it stands, from top to bottom."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "profiling.md"


@pytest.mark.full
def test_the_how_to_runs(tmp_path, monkeypatch):
    text = PAGE.read_text()
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "__doc__"}
    blocks = list(re.finditer(r"^```python\n(.*?)^```$", text, re.M | re.S))
    assert len(blocks) >= 13
    assert len(blocks) == text.count("```python")
    for block in blocks:
        line = text.count("\n", 0, block.start()) + 1
        exec(compile("\n" * line + block[1], "profiling.md", "exec"), names)
