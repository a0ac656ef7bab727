# SPDX-License-Identifier: MIT
"""The how-to page runs as it stands, from top to bottom."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from kernel_features import needs_histograms

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.full
@needs_histograms
def test_the_how_to_runs(tmp_path, monkeypatch, capsys):
    text = (DOCS / "how-to" / "tracing.md").read_text()
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "__doc__"}
    blocks = list(re.finditer(r"^```python\n(.*?)^```$", text, re.M | re.S))
    assert len(blocks) > 10
    try:
        for block in blocks:
            line = text.count("\n", 0, block.start()) + 1
            exec(compile("\n" * line + block[1], "tracing.md", "exec"), names)
    finally:
        for name in ("mount", "device"):
            if name in names:
                names[name].close()  # type: ignore[attr-defined]
    shown = capsys.readouterr().out
    for expected in ("% time     seconds", "fadvise64() {", "D2C", "issue to completion  [driver]", "  ^"):
        assert expected in shown
    assert (tmp_path / "runs" / "job" / "trace.dat").exists()


@pytest.mark.parametrize("page", ["reference/trace.md"])
def test_public_names_in_the_reference_exist(page):
    import sampleblk_lab as lab

    names = re.findall(r"`lab\.(\w+)", (DOCS / page).read_text())
    assert len(set(names)) > 8
    assert [name for name in names if not hasattr(lab, name)] == []
