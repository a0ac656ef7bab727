# SPDX-License-Identifier: MIT
"""The first notebook in JupyterLab, in a real browser, on a kernel in a VM.

Its screenshots are in the test's run directory, which ``--sblk-keep`` keeps.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import nbformat
import pytest

from sampleblk_lab.jupyter.install import install
from sampleblk_lab.paths import cache_root

if TYPE_CHECKING:
    from playwright.sync_api import Page

CHROMIUM = shutil.which("chromium")
NOTEBOOK = Path(__file__).parents[2] / "notebooks/1-first-light.ipynb"
KERNEL = "Python (sampleblk VM, 6.1)"

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(CHROMIUM is None, reason="needs a browser: apt-get install chromium"),
]

# Under emulation, on a machine that is busy with other tests.
_KERNEL_S = 240
_NOTEBOOK_S = 420


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def jupyterlab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a JupyterLab of its own, with our kernel and a notebook that has none chosen yet."""
    pytest.importorskip("jupyterlab", reason="make browser")
    home = tmp_path_factory.mktemp("jupyterlab")
    install("6.1", prefix=str(home))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    del notebook.metadata["kernelspec"]
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    (home / "work").mkdir()
    nbformat.write(notebook, home / "work" / NOTEBOOK.name)
    for name, setting in (
        # Cells off the screen stay in the page, so that one can ask for them.
        ("notebook-extension/tracker", {"windowingMode": "none"}),
        ("apputils-extension/notification", {"fetchNews": "false"}),
    ):
        path = home / f"settings/@jupyterlab/{name}.jupyterlab-settings"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(setting))
    port = _free_port()
    environment = {
        **os.environ,
        "SAMPLEBLK_CACHE": str(cache_root()),
        "JUPYTER_PATH": str(home / "share/jupyter"),
        "JUPYTERLAB_SETTINGS_DIR": str(home / "settings"),
        "JUPYTERLAB_WORKSPACES_DIR": str(home / "workspaces"),
        **{f"JUPYTER_{name}_DIR": str(home / name.lower()) for name in ("CONFIG", "RUNTIME")},
        "IPYTHONDIR": str(home / "ipython"),
    }
    options = {
        "ServerApp.ip": "127.0.0.1",
        "ServerApp.port": port,
        "ServerApp.port_retries": 0,
        "ServerApp.open_browser": False,
        "ServerApp.allow_root": True,
        "ServerApp.root_dir": home / "work",
        "IdentityProvider.token": "",
        # It asks nobody on the network for news.
        "LabApp.check_for_updates_class": "jupyterlab.NeverCheckForUpdate",
        "LabApp.news_url": None,
        "LabApp.extension_manager": "readonly",
    }
    command = [sys.executable, "-m", "jupyterlab", *(f"--{name}={value}" for name, value in options.items())]
    with (home / "server.log").open("wb") as log:
        server = subprocess.Popen(command, cwd=home / "work", env=environment, stdout=log, stderr=log)
    address = f"http://127.0.0.1:{port}"
    try:
        end = time.monotonic() + 120
        while True:
            try:
                urllib.request.urlopen(f"{address}/api", timeout=5).close()
                break
            except OSError:
                assert server.poll() is None, (home / "server.log").read_text()
                assert time.monotonic() < end, (home / "server.log").read_text()
                time.sleep(0.2)
        yield address
    finally:
        server.terminate()
        server.wait(60)


@pytest.fixture(scope="module")
def page(jupyterlab: str) -> Iterator[Page]:
    """The notebook, its kernel chosen and all its cells run."""
    playwright = pytest.importorskip("playwright.sync_api", reason="make browser")
    with playwright.sync_playwright() as engine:
        browser = engine.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 1000})
        page.goto(f"{jupyterlab}/lab/tree/{NOTEBOOK.name}")
        # It has no kernel, so JupyterLab asks which.
        dialog = page.locator(".jp-Dialog")
        dialog.wait_for(timeout=60_000)
        assert KERNEL in dialog.locator("option").all_inner_texts()
        dialog.locator("select").select_option(label=KERNEL)
        dialog.get_by_role("button", name="Select Kernel").click()
        page.locator(".jp-Toolbar-kernelName", has_text=KERNEL).wait_for(timeout=60_000)
        page.locator(".jp-Notebook-ExecutionIndicator[data-status=idle]").wait_for(timeout=_KERNEL_S * 1000)
        page.get_by_role("menuitem", name="Run", exact=True).click()
        page.locator(".lm-Menu-item[data-command='runmenu:run-all']").click()
        _wait_until_run(page, _NOTEBOOK_S)
        yield page
        browser.close()


def _prompts(page: Page) -> list[str]:
    prompts = page.locator(".jp-CodeCell .jp-InputArea-prompt").all_inner_texts()
    return [prompt.strip("[]: ") for prompt in prompts]


def _wait_until_run(page: Page, timeout_s: float) -> None:
    end = time.monotonic() + timeout_s
    while not all(prompt.isdigit() for prompt in _prompts(page)):
        said = page.locator(".jp-OutputArea [data-mime-type='application/vnd.jupyter.error']").all_inner_texts()
        assert said == []
        assert time.monotonic() < end, _prompts(page)
        page.wait_for_timeout(500)


def _shot(page: Page, folder: Path, name: str) -> None:
    path = folder / f"{name}.png"
    page.screenshot(path=path)
    assert path.stat().st_size > 20_000, "an empty page"


def test_every_cell_ran_in_the_guest(page: Page, sampleblk_folder: Path) -> None:
    assert _prompts(page) == [str(number) for number in range(1, len(_prompts(page)) + 1)]
    assert page.locator(".jp-Toolbar-kernelName").inner_text() == KERNEL
    outputs = " ".join(page.locator(".jp-OutputArea").all_inner_texts())
    assert "times as long as write" in outputs
    page.locator("h1").first.scroll_into_view_if_needed()
    _shot(page, sampleblk_folder, "notebook")


def test_the_table_is_shown(page: Page, sampleblk_folder: Path) -> None:
    table = page.locator(".jp-OutputArea table", has_text="usecs_per_call")
    table.scroll_into_view_if_needed()
    row = table.locator("tr", has_text="fadvise64").inner_text()
    assert "80" in row.split()
    _shot(page, sampleblk_folder, "table")


def test_the_heat_map_is_shown(page: Page, sampleblk_folder: Path) -> None:
    image = page.locator(".jp-OutputArea img").first
    image.scroll_into_view_if_needed()
    assert image.evaluate("image => image.complete && image.naturalWidth") > 300
    _shot(page, sampleblk_folder, "heat-map")


def test_the_tree_folds(page: Page, sampleblk_folder: Path) -> None:
    tree = page.locator(".jp-OutputArea details", has_text="ksys_fadvise64_64").first
    tree.scroll_into_view_if_needed()
    _shot(page, sampleblk_folder, "tree")
    inner = tree.get_by_text("generic_fadvise", exact=True)
    assert inner.is_visible()
    summary = tree.locator("summary").first
    summary.click()
    assert not inner.is_visible()
    summary.click()
    assert inner.is_visible()


def test_the_flame_graph_is_drawn_and_zooms(page: Page, sampleblk_folder: Path) -> None:
    frame = page.locator(".jp-OutputArea iframe[title^='flame graph']")
    frame.scroll_into_view_if_needed()
    graph = frame.content_frame
    boxes = graph.locator(".f")
    boxes.first.wait_for()
    assert boxes.count() > 50
    _shot(page, sampleblk_folder, "flame-graph")
    write = graph.locator(".f", has_text=re.compile("ksys_write")).first
    narrow = write.bounding_box()
    write.click()
    page.wait_for_timeout(500)
    wide = write.bounding_box()
    assert narrow is not None
    assert wide is not None
    assert wide["width"] > 1.5 * narrow["width"]
    _shot(page, sampleblk_folder, "flame-graph-zoomed")


def test_a_running_job_is_interrupted(page: Page, sampleblk_folder: Path) -> None:
    page.locator(".jp-Notebook .jp-MarkdownOutput").last.click()
    page.keyboard.press("Escape")
    page.keyboard.press("b")
    page.keyboard.press("Enter")
    page.keyboard.insert_text(
        "with lab.Device(capacity='16M') as device:\n"
        "    job = lab.Job(rw='randwrite', bs='4k', time_based=1, runtime=900, size='16M', filename=device.path)\n"
        "    result = job.run()\n"
        "print('kept', result.summary()['ios'][0] > 0)"
    )
    page.keyboard.press("Control+Enter")
    cell = page.locator(".jp-CodeCell", has_text="time_based")
    # The progress bar of the job at work.
    output = cell.locator(".jp-OutputArea", has_text="IOPS")
    output.wait_for(timeout=120_000)
    output.scroll_into_view_if_needed()
    _shot(page, sampleblk_folder, "running")
    page.locator("[data-command='notebook:interrupt-kernel'] >> visible=true").first.click()
    output = cell.locator(".jp-OutputArea", has_text="kept True")
    output.wait_for(timeout=120_000)
    output.scroll_into_view_if_needed()
    _wait_until_run(page, 60)
    # Told after the cell's end is.
    page.locator(".jp-Notebook-ExecutionIndicator[data-status=idle]").wait_for(timeout=30_000, state="attached")
    _shot(page, sampleblk_folder, "interrupted")
