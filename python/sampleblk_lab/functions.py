# SPDX-License-Identifier: MIT
"""Functions that users name in commands and files."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sampleblk_lab.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable


def named(text: str, option: str, *, files_in: Path | None = None) -> Callable[..., Any]:
    """A function by ``MODULE:FUNCTION``; modules of the working directory are found too.

    Args:
        text: What the user wrote.
        option: Where, for messages.
        files_in: Also take ``FILE.py:FUNCTION``, the file's path being relative to this folder.

    Raises:
        InputError: There is no such function.
    """
    expected = "MODULE:FUNCTION, of the working directory or of what is installed"
    if files_in is not None:
        expected = f"FILE.py:FUNCTION, or {expected}"
    module, colon, name = text.rpartition(":") if files_in is not None else text.partition(":")
    if not (module and colon and name):
        raise InputError(f"{text!r} is not the name of a function", option, expected=expected)
    try:
        if files_in is not None and module.endswith(".py"):
            found: Any = _of_file(files_in / module)
        else:
            found = _of_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, OSError, SyntaxError) as error:
        raise InputError(f"{text!r}: {error}", option, expected=expected) from None
    if not callable(found):
        raise InputError(f"{text!r} is not a function", option, expected=expected)
    return found  # type: ignore[no-any-return]


def _of_module(name: str) -> Any:
    sys.path.insert(0, str(Path.cwd()))
    try:
        return import_module(name)
    finally:
        sys.path.remove(str(Path.cwd()))


def _of_file(path: Path) -> Any:
    """A file as a module of its own name, which is no other module's; those beside it are found, as in a script."""
    path = path.resolve()
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist")
    name = f"{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
