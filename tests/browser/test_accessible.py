# SPDX-License-Identifier: MIT
"""Pages for everybody: axe-core finds nothing serious in a report, nor in the documentation."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sampleblk_lab as lab
from sampleblk_lab.report import CallOutline, Page

ROOT = Path(__file__).resolve().parents[2]
RECORDED = ROOT / "tests/data/lktm"
CHROMIUM = shutil.which("chromium")
GRAVE = ("serious", "critical")

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(CHROMIUM is None, reason="needs a browser: apt-get install chromium"),
]
Audit = Callable[..., dict[str, str]]


@pytest.fixture(scope="module")
def audit() -> Iterator[Audit]:
    """Called with a page and a viewport's width: what is serious on it, by axe's rule."""
    playwright = pytest.importorskip("playwright.sync_api", reason="make browser")
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="make browser").Axe()
    with playwright.sync_playwright() as engine:
        browser = engine.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])

        def run(path: Path, width: int, scheme: str) -> dict[str, str]:
            shown = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
            shown.goto(path.as_uri())
            found: list[dict[str, Any]] = axe.run(shown).response["violations"]
            shown.close()
            return {one["id"]: one["nodes"][0]["html"] for one in found if one["impact"] in GRAVE}

        yield run
        browser.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1200, 390])
def test_a_report(tmp_path: Path, audit: Audit, width: int, scheme: str) -> None:
    calls = lab.read_funcgraph(RECORDED / "funcgraph_write_fs_seq_write_sync_001.log").table()
    roots = np.flatnonzero(calls["parent"].values == -1)
    longest = int(roots[np.argmax(calls["duration"].values[roots])])
    page = Page("A run", "write, 2016")
    page.add_facts("Summary", {"command": "fio job.fio"})
    page.add_table("Calls", lab.read_strace(RECORDED / "strace_fio_fs_seq_write_sync_001.log").summary(), bar="seconds")
    page.add_outline("Call", CallOutline(calls, longest, "ext4_da_write_begin*"))
    stacks = tmp_path / "x.folded"
    stacks.write_text("fio;write;ksys_write_[k] 3\n")
    graph = lab.read_folded(stacks)
    page.add_picture("Flame graph", graph.picture(), graph.picture(dark=True))
    page.add_text("Job", "x" * 300)
    target = tmp_path / "report.html"
    target.write_text(page.html())
    assert audit(target, width, scheme) == {}
    # It can fail.
    bad = target.read_text().replace("tabindex='0'", "").replace("<html lang", "<html data-lang")
    target.write_text(bad)
    assert "html-has-lang" in audit(target, width, scheme)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1200, 390])
def test_the_page_of_a_sweep(tmp_path: Path, audit: Audit, width: int, scheme: str) -> None:
    made = lab.sweep(lambda a, b, repeat: a * b + repeat, a=[1, 2, 3], b=[*range(8)], repeat=6, folder=tmp_path / "s")
    assert audit(made.report(tmp_path / "page.html"), width, scheme) == {}


def test_the_documentation(tmp_path: Path, audit: Audit) -> None:
    command = [sys.executable, "-m", "sphinx", "-q", "-b", "html", "-d", str(tmp_path / "trees")]
    subprocess.run([*command, str(ROOT / "docs"), str(tmp_path / "html")], check=True)
    pages = sorted((tmp_path / "html").rglob("*.html"))
    assert len(pages) >= 25
    for page in pages:
        assert audit(page, 1200, "light") == {}, page.name
    assert audit(tmp_path / "html/how-to/profiling.html", 1200, "dark") == {}
    for page in (tmp_path / "html/gallery.html", *sorted((tmp_path / "html/notebooks").glob("*.html"))):
        assert audit(page, 390, "dark") == {}, page.name
