# SPDX-License-Identifier: MIT
"""A report on paper: printed by a real browser whose user likes it dark."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

import sampleblk_lab as lab
from sampleblk_lab.report import CallOutline, Page

CHROMIUM = shutil.which("chromium")
RECORDED = Path(__file__).parents[1] / "data/lktm/funcgraph_write_fs_seq_write_sync_001.log"
STRACE = RECORDED.with_name("strace_fio_fs_seq_write_sync_001.log")

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(CHROMIUM is None, reason="needs a browser: apt-get install chromium"),
]


def test_it_is_light_whole_and_not_wider_than_the_paper(tmp_path: Path) -> None:
    playwright = pytest.importorskip("playwright.sync_api", reason="make browser")
    calls = lab.read_funcgraph(RECORDED).table()
    roots = np.flatnonzero(calls["parent"].values == -1)
    page = Page("A run", "write, 2016")
    page.add_table("System calls", lab.read_strace(STRACE).summary(), bar="seconds")
    page.add_outline(
        "Call", CallOutline(calls, int(roots[np.argmax(calls["duration"].values[roots])]), "ext4_da_write_begin*")
    )
    svg = "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 720 400'><text y='20'>12 px</text></svg>"
    page.add_picture("Plot", svg, svg)
    target = tmp_path / "report.html"
    target.write_text(page.html())
    with playwright.sync_playwright() as engine:
        browser = engine.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        # A4 less its margins, in CSS pixels.
        shown = browser.new_page(viewport={"width": 718, "height": 1000}, color_scheme="dark")
        shown.goto(target.as_uri())
        colour = "getComputedStyle(document.body).backgroundColor"
        assert shown.evaluate(colour) == "rgb(18, 22, 28)"
        # Somebody has folded the outline before printing.
        shown.locator("details").first.evaluate("element => element.open = false")
        shown.emulate_media(media="print", color_scheme="dark")
        assert shown.evaluate(colour) == "rgb(255, 255, 255)"
        assert not shown.locator("nav").is_visible()
        assert shown.locator("details details").first.is_visible()
        widest = "Math.max(...[...document.querySelectorAll('section *')].map(e => e.getBoundingClientRect().right))"
        assert shown.evaluate(widest) <= 718
        pdf = shown.pdf(format="A4")
        phone = browser.new_page(viewport={"width": 390, "height": 800})
        phone.goto(target.as_uri())
        assert phone.evaluate("document.documentElement.scrollWidth") == 390, "only parts of it scroll sideways"
        # Each picture and table scrolls by itself, and what a row is about is seen at once.
        assert phone.evaluate(widest.replace("section *", "tbody td:first-child")) <= 390
        assert phone.locator("img.light").evaluate("e => e.getBoundingClientRect().width") >= 500
        browser.close()
    assert pdf.startswith(b"%PDF")
    assert len(pdf) > 10_000
