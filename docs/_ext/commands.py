# SPDX-License-Identifier: MIT
"""``{commands}``: what every command of ``sampleblk-lab`` says of itself."""

from __future__ import annotations

import argparse
import os
from importlib import import_module
from typing import Any

from docutils import nodes
from docutils.parsers.rst import Directive

from sampleblk_lab.cli.main import COMMANDS, EPILOG


def helps() -> dict[str, str]:
    """The help of each command, and of the actions below it."""
    os.environ["COLUMNS"] = "100"
    found = {}
    for name, (place, text) in COMMANDS.items():
        module, _, function = place.partition(":")
        parser = argparse.ArgumentParser(prog=f"sampleblk-lab {name}", description=text)
        getattr(import_module(f"sampleblk_lab.cli.{module}"), function or "configure")(parser)
        texts = [parser.format_help()]
        for action in parser._actions:  # noqa: SLF001 argparse has no other way to ask
            if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
                texts += [below.format_help() for below in action.choices.values()]
        found[name] = "\n".join(texts)
    return found


class Commands(Directive):
    """The directive."""

    def run(self) -> list[Any]:
        found: list[Any] = [nodes.literal_block(EPILOG, EPILOG, language="text")]
        for name, text in helps().items():
            section = nodes.section(ids=[f"command-{name}"])
            section += nodes.title(name, f"sampleblk-lab {name}")
            section += nodes.literal_block(text, text, language="text")
            found.append(section)
        return found


def setup(app: Any) -> dict[str, bool]:
    """Sphinx's entry point."""
    app.add_directive("commands", Commands)
    return {"parallel_read_safe": True}
