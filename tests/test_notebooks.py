# SPDX-License-Identifier: MIT
"""Each notebook runs from top to bottom, and is stored with outputs that a reader without a kernel can see."""

import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from sampleblk_lab.jupyter import host
from sampleblk_lab.jupyter.install import install
from sampleblk_lab.vm.contents import interpreter

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))


VM_KERNEL = "sampleblk-vm-"


# The first is the one that a newcomer runs; the others take their time.
@pytest.mark.parametrize(
    "path",
    [pytest.param(path, marks=[] if path.stem == "1-first-light" else pytest.mark.full) for path in NOTEBOOKS],
    ids=lambda path: path.stem,
)
def test_runs_to_its_end(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notebook = nbformat.read(path, as_version=4)
    kernel = notebook.metadata.kernelspec.name
    if kernel.startswith(VM_KERNEL):
        monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "share/jupyter"))
        install(kernel.removeprefix(VM_KERNEL), prefix=str(tmp_path))
        # Whose kernel is there at once, as from the third start on.
        monkeypatch.setenv("SAMPLEBLK_BACKGROUND", "0")
        interpreter.ready(host.PRELOAD, at_once=True)
    folder = tmp_path / "folder"
    folder.mkdir()
    NotebookClient(
        notebook, timeout=600, startup_timeout=600, kernel_name=kernel, resources={"metadata": {"path": str(folder)}}
    ).execute()


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_is_stored_with_its_outputs(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    shown = [cell for cell in notebook.cells if cell.cell_type == "code" and cell.outputs]
    assert len(shown) >= len([cell for cell in notebook.cells if cell.cell_type == "code"]) // 2
    for cell in shown:
        for output in cell.outputs:
            assert output.output_type != "error"
            assert not re.search(r"/(root|home|work)/", str(output)), "a path of the machine that ran it"
            assert "%|" not in str(output), "a progress bar that no longer moves"
            if "<iframe" in output.get("data", {}).get("text/html", ""):
                assert "image/svg+xml" in output.data, "nothing for viewers that strip frames"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_is_made_of_the_public_api_and_ends_with_what_was_learned(path: Path) -> None:
    cells = nbformat.read(path, as_version=4).cells
    assert cells[-1].cell_type == "markdown"
    assert re.match("## (What was learned|学到了什么)\n", cells[-1].source)
    for cell in cells:
        if cell.cell_type == "code":
            assert not re.search(r"sampleblk_lab\.(demo|report|_\w+)", cell.source)
