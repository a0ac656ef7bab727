# SPDX-License-Identifier: MIT
"""Functions of users', and those that they name in commands and files."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.machinery
import importlib.util
import inspect
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sampleblk_lab.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import CodeType


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
    if not (module and colon and name) or (module.startswith(".") and not module.endswith(".py")):
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


def check_takes(function: object, what: str, *arguments: str) -> None:
    """Raises InputError for what cannot be called with so many arguments: each call would fail, whatever it is of."""
    expected = f"a function of {', '.join(arguments)}"
    if not callable(function):
        raise InputError(f"{what}={function!r}", expected=expected)
    try:
        signature = inspect.signature(function)
    except (ValueError, TypeError):  # not every one of C has it
        return
    try:
        signature.bind(*arguments)
    except TypeError:
        name = getattr(function, "__qualname__", type(function).__qualname__)
        raise InputError(f"{what}={name}{signature}", expected=expected) from None


def check_ran(said: object, what: str) -> None:
    """Raises InputError where nothing of a function that returned `said` has run, as of an async one or a generator."""
    if not (inspect.isgenerator(said) or inspect.isasyncgen(said) or inspect.isawaitable(said)):
        return
    if inspect.iscoroutine(said):
        said.close()
    raise InputError(
        f"{what} returned a {type(said).__name__} and has not run", expected="a plain function, without async and yield"
    )


class _Source(importlib.machinery.SourceFileLoader):
    """Takes no bytecode.

    Python knows it to be of a file by the size and the second of its last change, which two commits may share.
    """

    def get_code(self, fullname: str) -> CodeType:  # noqa: ARG002
        return self.source_to_code(self.get_data(self.path), self.path)


@contextlib.contextmanager
def _without_bytecode() -> Iterator[None]:
    """Nothing is left behind that a later run could take for another commit's code."""
    before = sys.dont_write_bytecode
    sys.dont_write_bytecode = True
    try:
        yield
    finally:
        sys.dont_write_bytecode = before


def _of_module(name: str) -> Any:
    sys.path.insert(0, str(Path.cwd()))
    try:
        with _without_bytecode():
            return import_module(name)
    finally:
        sys.path.remove(str(Path.cwd()))


def _of_file(path: Path) -> Any:
    """A file as a module of its own name, which is no other module's; those beside it are found, as in a script."""
    path = path.resolve()
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist")
    name = f"{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    loader = _Source(name, str(path))
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    try:
        with _without_bytecode():
            loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
