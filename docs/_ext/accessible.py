# SPDX-License-Identifier: MIT
"""What the theme's pages lack for those who use a keyboard or a screen reader (WAI-ARIA 1.2, WCAG 2.1.1)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sphinx.application import Sphinx

_MENDED = {
    # A heading says of which level it is.
    '<p class="caption" role="heading">': '<p class="caption" role="heading" aria-level="2">',
    # What scrolls can be reached by keyboard.
    "<pre>": '<pre tabindex="0">',
    '<pre class="sblk-text"': '<pre tabindex="0" class="sblk-text"',
    '<div class="output text_html">': '<div tabindex="0" class="output text_html">',
    '<div class="table-wrapper': '<div tabindex="0" class="table-wrapper',
}


def _mend(app: Sphinx, error: Exception | None) -> None:
    if error is not None or app.builder.format != "html":
        return
    for path in Path(app.outdir).rglob("*.html"):
        text = fixed = path.read_text()
        for what, by in _MENDED.items():
            fixed = fixed.replace(what, by)
        if fixed != text:
            path.write_text(fixed)


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("build-finished", _mend)
    return {"parallel_read_safe": True}
