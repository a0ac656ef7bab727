# SPDX-License-Identifier: MIT
"""How Sphinx builds the documentation: ``make docs``."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "sampleblk-lab"
author = "sampleblk-lab maintainers"
project_copyright = "sampleblk-lab maintainers"

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
extensions += ["uapi", "commands", "names", "gallery", "accessible"]
exclude_patterns = ["_ext", "_build", "_static"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

# Sphinx reads nothing outside of its folder: the notebooks are copied into it.
copies = Path(__file__).parent / "notebooks"
copies.mkdir(exist_ok=True)
originals = {path.name: path for path in (Path(__file__).parents[1] / "notebooks").glob("*.ipynb")}
for stale in set(copies.glob("[!.]*")) - {copies / name for name in originals}:
    stale.unlink(missing_ok=True)
for name, original in originals.items():
    copy = copies / name
    if not copy.exists() or copy.read_bytes() != original.read_bytes():
        whole = copies / f".{name}.{os.getpid()}"
        whole.write_bytes(original.read_bytes())
        whole.replace(copy)
# Notebooks are shown as they are stored: `make notebooks` runs them.
nb_execution_mode = "off"
nb_merge_streams = True

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_default_options = {"members": True, "show-inheritance": False}
napoleon_use_ivar = True

html_static_path = ["_static"]
html_css_files = ["lab.css"]
html_theme = "furo"
html_title = "sampleblk-lab"
