# SPDX-License-Identifier: MIT
"""The device's how-to pages do what they say: their Python blocks run, one after the other."""

import os
import re
from pathlib import Path

import pytest

import sampleblk_lab as lab

DOCS = Path(__file__).resolve().parents[2] / "docs/how-to"


@pytest.mark.parametrize(
    "page", ["faults", "latency", "power-cuts", "journal", "protection-information", "zoned-devices"]
)
def test_a_page_does_what_it_says(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if page == "zoned-devices" and os.uname().release.startswith("5.10."):
        pytest.skip("btrfs knows zones from Linux 5.12 on")
    monkeypatch.chdir(tmp_path)
    path = DOCS / f"{page}.md"
    text = path.read_text()
    blocks = list(re.finditer(r"```python\n(.*?)```", text, re.DOTALL))
    assert blocks
    namespace: dict[str, object] = {}
    try:
        for block in blocks:
            # With as many lines before it as in the page, so that an error names its line there.
            lines = text[: block.start(1)].count("\n")
            exec(compile("\n" * lines + block.group(1), str(path), "exec"), namespace)
        assert lab.devices() == []
    finally:
        dev = namespace.get("dev")
        if isinstance(dev, lab.Device):
            dev.close(force=True)
