# SPDX-License-Identifier: MIT
"""What notebooks store of our views, where scripts, frames and styles are kept and where they are stripped."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nbformat
import numpy as np
import pytest

import sampleblk_lab as lab
from sampleblk_lab.profiling.heatmap import HeatMap

if TYPE_CHECKING:
    from playwright.sync_api import Page

RECORDED = Path(__file__).resolve().parents[1] / "data"
CHROMIUM = shutil.which("chromium")

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(CHROMIUM is None, reason="needs a browser: apt-get install chromium"),
]

# What GitHub's viewer takes out (jupyter/nbviewer#450, plotly/plotly.py#931): elements that act or style with what is
# in them, vector graphics as elements, and the attributes that style.
STRIP = """
document.querySelectorAll(".jp-OutputArea-output").forEach(output => {
    output.querySelectorAll("script, style, iframe, svg, object, embed, link").forEach(each => each.remove());
    output.querySelectorAll("*").forEach(each => ["style", "class", "id"].forEach(name => each.removeAttribute(name)));
});
"""


def views() -> dict[str, Any]:
    profile = lab.open_profile(RECORDED / "profile/6.12-ours.data", kallsyms=RECORDED / "profile/6.12-ours.kallsyms")
    graph = lab.read_funcgraph(RECORDED / "lktm/funcgraph_write_fs_seq_write_sync_001.log")
    times = np.sort(np.random.default_rng(1).integers(0, 20_000_000_000, 4000)).astype(np.uint64)
    return {
        "flame": profile.flamegraph(min_percent=0.5),
        "heat": HeatMap.of(times, 50),
        "table": lab.read_strace(RECORDED / "lktm/strace_fio_fs_seq_write_sync_001.log").summary(),
        "tree": graph.tree(0),
    }


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A notebook with an output each, as IPython formats them, exported by nbconvert."""
    nbconvert = pytest.importorskip("nbconvert", reason="make browser")
    from IPython.core.formatters import DisplayFormatter

    notebook = nbformat.v4.new_notebook()
    for name, value in views().items():
        data, metadata = DisplayFormatter().format(value)
        output = nbformat.v4.new_output("display_data", data=data, metadata=metadata)
        notebook.cells.append(nbformat.v4.new_code_cell(name, outputs=[output]))
    text, _ = nbconvert.HTMLExporter().from_notebook_node(notebook)
    path = tmp_path_factory.mktemp("stored") / "notebook.html"
    path.write_text(text)
    return path


@pytest.fixture(params=["kept", "stripped"])
def page(stored: Path, request: pytest.FixtureRequest, sampleblk_folder: Path) -> Iterator[Page]:
    playwright = pytest.importorskip("playwright.sync_api", reason="make browser")
    with playwright.sync_playwright() as engine:
        browser = engine.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        shown = browser.new_page(viewport={"width": 1100, "height": 900})
        # Nothing of the network: nbconvert's page would load MathJax.
        shown.route("**/*", lambda route: route.continue_() if "file://" in route.request.url else route.abort())
        shown.goto(stored.as_uri(), wait_until="load")
        if request.param == "stripped":
            shown.evaluate(STRIP)
        shown.wait_for_timeout(500)
        shown.screenshot(path=sampleblk_folder / f"{request.param}.png", full_page=True)
        yield shown
        browser.close()


def test_all_of_it_is_seen(page: Page, request: pytest.FixtureRequest) -> None:
    kept = request.node.callspec.params["page"] == "kept"
    outputs = page.locator(".jp-OutputArea-child > *:last-child")
    flame, heat = page.locator("img").nth(0), page.locator("img").nth(1)
    for image in (flame, heat):
        # The frame, where there is one, lies over it; a browser that drew nothing would have no size.
        assert image.evaluate("image => image.complete && image.naturalWidth") >= 140
    assert page.locator("iframe").count() == (2 if kept else 0)
    if kept:
        covered = """image => { const box = image.getBoundingClientRect();
            return document.elementFromPoint(box.left + 20, box.top + 20).tagName }"""
        for image in (flame, heat):
            image.scroll_into_view_if_needed()
            assert image.evaluate(covered) == "IFRAME"
        for frame in page.frames[1:]:  # opaque: what it lies over does not shine through
            assert frame.evaluate("""() => getComputedStyle(document.body).backgroundColor !== "rgba(0, 0, 0, 0)"
                || document.querySelector(".bg") !== null""")
        assert page.frame_locator("iframe").first.locator(".f").count() > 50
    assert outputs.count() == 4
    # The table's columns are columns.
    lefts = (
        page.locator("table tr")
        .nth(1)
        .locator("td")
        .evaluate_all("cells => cells.map(cell => cell.getBoundingClientRect().left)")
    )
    assert len(lefts) == 6
    assert lefts == sorted(set(lefts))
    # A call is further right than its caller, and a space parts its time from its name.
    found = page.evaluate("""() => Array.from(document.querySelectorAll("details[open] summary")).map(each => {
        const caller = each.closest("ul").parentElement.querySelector("summary");
        return [each.textContent, each.getBoundingClientRect().left,
                caller && caller !== each ? caller.getBoundingClientRect().left : 0];
    })""")
    assert len(found) > 5
    for text, left, callers_left in found:
        assert left > callers_left + 5, text
        assert re.fullmatch(r"[\d.]+ [mun]?s \w+.*", text.strip()), text


def test_the_still_picture_has_the_colours_of_the_live_one(stored: Path) -> None:
    """By its pixels: what a sanitizer leaves is a picture, not a black or an empty box."""
    playwright = pytest.importorskip("playwright.sync_api", reason="make browser")
    with playwright.sync_playwright() as engine:
        browser = engine.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        shown = browser.new_page(viewport={"width": 1100, "height": 900})
        shown.route("**/*", lambda route: route.continue_() if "file://" in route.request.url else route.abort())
        shown.goto(stored.as_uri(), wait_until="load")
        shown.evaluate(STRIP)
        colours = shown.evaluate("""() => Array.from(document.querySelectorAll("img")).map(image => {
            const canvas = document.createElement("canvas");
            canvas.width = image.naturalWidth; canvas.height = image.naturalHeight;
            const context = canvas.getContext("2d");
            context.drawImage(image, 0, 0);
            const data = context.getImageData(0, 0, canvas.width, canvas.height).data;
            let orange = 0;
            for (let at = 0; at < data.length; at += 4)
                orange += data[at + 3] > 40 && data[at] > 190 && data[at + 2] < 160 && data[at] > data[at + 2] + 60;
            return orange / (canvas.width * canvas.height);
        })""")
        browser.close()
    assert len(colours) == 2
    assert all(share > 0.15 for share in colours), colours
