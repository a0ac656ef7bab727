# SPDX-License-Identifier: MIT
"""The pictures that the notebooks have stored, each a link to where it was made."""

from __future__ import annotations

import base64
import html
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.parsers.rst import Directive

FOLDER = Path(__file__).resolve().parents[2] / "notebooks"
# The first that an output has is shown.
_KINDS = {"image/png": "png", "image/svg+xml": "svg"}


@dataclass(frozen=True)
class Picture:
    """One stored picture: the notebook's file and title, the heading that it is below, its kind and its bytes."""

    notebook: Path
    title: str
    heading: str
    suffix: str
    data: bytes


def _headings(source: str) -> list[str]:
    return [text.replace("`", "") for text in re.findall(r"^#{1,3} (.*)$", source, re.MULTILINE)]


def pictures(folder: Path = FOLDER) -> list[Picture]:
    """All pictures of the notebooks in English, in order."""
    found = []
    for path in sorted(folder.glob("*.ipynb"), key=lambda path: (int(path.name.partition("-")[0]), path.name)):
        if path.stem.count("."):
            continue  # a translation has the same
        title = heading = ""
        for cell in json.loads(path.read_text())["cells"]:
            if cell["cell_type"] == "markdown":
                for text in _headings("".join(cell["source"])):
                    title, heading = title or text, text
            for output in cell.get("outputs", []):
                stored = output.get("data", {})
                for kind, suffix in _KINDS.items():
                    if kind in stored:
                        text = "".join(stored[kind])
                        data = base64.b64decode(text) if suffix == "png" else text.encode()
                        found.append(Picture(path, title, heading, suffix, data))
                        break
    return found


class Gallery(Directive):
    """The directive: a grid of all pictures."""

    def run(self) -> list[Any]:
        env = self.state.document.settings.env
        app = env.app
        for path in FOLDER.glob("*.ipynb"):
            env.note_dependency(str(path))
        target = Path(app.outdir) / "_images"
        target.mkdir(parents=True, exist_ok=True)
        up = "../" * env.docname.count("/")
        cards = []
        for number, picture in enumerate(pictures()):
            name = f"gallery-{number}.{picture.suffix}"
            (target / name).write_bytes(picture.data)
            page = app.builder.get_relative_uri(env.docname, f"notebooks/{picture.notebook.stem}")
            caption = html.escape(picture.heading)
            cards.append(
                f'<li><a href="{page}#{nodes.make_id(picture.heading)}"><img src="{up}_images/{name}" alt="" '
                f'loading="lazy"><strong>{caption}</strong></a><br>{html.escape(picture.title)}</li>'
            )
        return [nodes.raw("", f'<ul class="gallery">{"".join(cards)}</ul>', format="html")]


def setup(app: Any) -> dict[str, bool]:
    """Sphinx's entry point."""
    app.add_directive("gallery", Gallery)
    return {"parallel_read_safe": True}
