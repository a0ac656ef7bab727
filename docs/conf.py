# SPDX-License-Identifier: MIT
"""How Sphinx builds the documentation: ``make docs``."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "sampleblk-lab"
author = "sampleblk-lab maintainers"
project_copyright = "sampleblk-lab maintainers"

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "uapi", "commands", "names", "accessible"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_ext", "_build"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_default_options = {"members": True, "show-inheritance": False}
napoleon_use_ivar = True

html_theme = "furo"
html_title = "sampleblk-lab"
