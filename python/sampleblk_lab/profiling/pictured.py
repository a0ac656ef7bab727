# SPDX-License-Identifier: MIT
"""What a notebook stores of a picture that is alive: the live one, and a still one for viewers that strip it.

A viewer shows one form of an output, and HTML before pictures (nbconvert's ``display_data_priority``, JupyterLab's
ranks, VS Code's order). GitHub shows the HTML too, but takes frames, scripts and styles out of it; what it leaves is
``<img>``, with data in its address. So the still picture is within the HTML, and the frame with the live one lies over
it; no script is needed to see either. It is also an output of its own, for what takes no HTML, such as LaTeX.
"""

from __future__ import annotations

import base64
import html


def bundle(page: str, still: str, *, title: str, height: int, text: str, scripts: bool = False) -> dict[str, str]:
    """The forms of one output, by MIME type.

    Args:
        page: The live picture, as an HTML document.
        still: The same as an SVG that is drawn by attributes alone.
        title: What the picture is called.
        height: Of the frame, in CSS pixels.
        text: For terminals.
        scripts: Whether the page needs scripts.
    """
    name = html.escape(title)
    data = base64.b64encode(still.encode()).decode()
    sandbox = "allow-scripts" if scripts else ""
    return {
        "text/html": (
            f'<div style="position:relative;height:{height}px;overflow:hidden">'
            f'<img src="data:image/svg+xml;base64,{data}" alt="{name}" style="max-width:100%;max-height:100%">'
            f'<iframe srcdoc="{html.escape(page)}" title="{name}" sandbox="{sandbox}" '
            'style="position:absolute;left:0;top:0;width:100%;height:100%;border:0"></iframe></div>'
        ),
        "image/svg+xml": still,
        "text/plain": text,
    }
