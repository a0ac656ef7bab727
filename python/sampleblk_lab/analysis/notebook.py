# SPDX-License-Identifier: MIT
"""How views look in a notebook: text as it is, and below it what it lost."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


def notes(metadata: Mapping[str, str]) -> str:
    """What travels with a view, such as its loss counts, as a line of small print each."""
    return "".join(f"<br><small>{html.escape(f'{name}: {value}')}</small>" for name, value in metadata.items())


def text_lines(metadata: Mapping[str, str]) -> str:
    """The same as text, each line with its end."""
    return "".join(f"{name}: {value}\n" for name, value in metadata.items())


def preformatted(text: str) -> str:
    """Text whose columns must stay aligned."""
    return f'<pre class="sblk-text" style="font-family:monospace;line-height:1.2">{html.escape(text)}</pre>'
