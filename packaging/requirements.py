#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Prints what an extra of pyproject.toml needs, those that it names of our own resolved: for pip, one after the other.

usage: requirements.py EXTRA
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

project = tomllib.loads((Path(__file__).resolve().parents[1] / "pyproject.toml").read_text())["project"]
extras = project["optional-dependencies"]


def needs(extra: str) -> list[str]:
    """The requirements of one extra."""
    found = []
    for requirement in extras[extra]:
        own = re.fullmatch(rf"{project['name']}\[([\w,-]+)\]", requirement)
        found += [below for name in own[1].split(",") for below in needs(name)] if own else [requirement]
    return found


if len(sys.argv) != 2 or sys.argv[1] not in extras:
    sys.exit(f"usage: requirements.py EXTRA, one of {', '.join(extras)}")
print("\n".join(dict.fromkeys(needs(sys.argv[1]))))
