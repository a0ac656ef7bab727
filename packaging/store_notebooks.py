# SPDX-License-Identifier: MIT
"""Runs the notebooks named, or all, from top to bottom, and stores them with their outputs: ``make notebooks``."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

from sampleblk_lab.jupyter.install import install


def joined(outputs: list[nbformat.NotebookNode]) -> list[nbformat.NotebookNode]:
    """Neighbouring pieces of one stream as one, as JupyterLab shows them; viewers of stored files break lines there."""
    made: list[nbformat.NotebookNode] = []
    for output in outputs:
        last = made[-1] if made else None
        if last and output.output_type == last.output_type == "stream" and output.name == last.name:
            last.text += output.text
        else:
            made.append(output)
    return made


FOLDER = Path(__file__).resolve().parents[1] / "notebooks"
VM_KERNEL = "sampleblk-vm-"

with tempfile.TemporaryDirectory() as jupyter:
    os.environ["JUPYTER_PATH"] = f"{jupyter}/share/jupyter"
    for path in [Path(name) for name in sys.argv[1:]] or sorted(FOLDER.glob("*.ipynb")):
        print(f"running {path.name}", flush=True)
        notebook = nbformat.read(path, as_version=4)
        kernel = notebook.metadata.kernelspec.name
        if kernel.startswith(VM_KERNEL):
            install(kernel.removeprefix(VM_KERNEL), prefix=jupyter)
        with tempfile.TemporaryDirectory() as folder:
            resources = {"metadata": {"path": folder}}
            NotebookClient(
                notebook, timeout=900, startup_timeout=200, kernel_name=kernel, resources=resources
            ).execute()
        for cell in notebook.cells:
            # When and by whom a cell was run changes with every run, and says nothing to a reader.
            cell.metadata.pop("execution", None)
            if cell.cell_type == "code":
                cell.outputs = joined(cell.outputs)
        # The version of the Python that ran it would change with the machine.
        notebook.metadata.language_info = {"name": "python"}
        text = nbformat.writes(notebook)
        # Where the checkout and its user's home are is nobody's business.
        for place, name in ((FOLDER.parent, "sampleblk-lab"), (Path.home(), "~")):
            text = text.replace(f"{place}/", f"{name}/")
        path.write_text(text + "\n")
