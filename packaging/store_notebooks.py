# SPDX-License-Identifier: MIT
"""Runs the notebooks named, or all, from top to bottom, and stores them with their outputs: ``make notebooks``."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).resolve().parents[1] / "notebooks"

for path in [Path(name) for name in sys.argv[1:]] or sorted(FOLDER.glob("*.ipynb")):
    print(f"running {path.name}", flush=True)
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        client = NotebookClient(notebook, timeout=900, kernel_name="python3", resources={"metadata": {"path": folder}})
        client.execute()
    for cell in notebook.cells:
        # When and by whom a cell was run changes with every run, and says nothing to a reader.
        cell.metadata.pop("execution", None)
    nbformat.write(notebook, path)
