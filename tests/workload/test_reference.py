# SPDX-License-Identifier: MIT
"""The reference page has the parser's own table of keys."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "packaging" / "job_keys.py"


def check(page: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SCRIPT), "--check", str(page)], check=False, capture_output=True, text=True, timeout=60
    )


def test_the_pages_table_of_keys_is_up_to_date() -> None:
    done = check(ROOT / "docs" / "reference" / "workload.md")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_page_out_of_date_is_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    text = (ROOT / "docs" / "reference" / "workload.md").read_text()
    page.write_text(text.replace("| `rw`", "| `wr`"))
    assert page.read_text() != text
    done = check(page)
    assert done.returncode == 1
    assert "out of date" in done.stdout
