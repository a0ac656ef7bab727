# SPDX-License-Identifier: MIT
"""What a function is made of, as a digest: another digest, another experiment.

It covers the function's bytecode, its defaults, what its closure holds and the globals that it uses, and the same of
every function and class of the user's own that it refers to. Comments, names of files and line numbers do not count.
Installed modules count by name only.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import pickle
import sys
import sysconfig
import types
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sampleblk_lab.errors import InputError
from sampleblk_lab.sweeps.plan import canonical

if TYPE_CHECKING:
    from collections.abc import Callable

# Where modules are that somebody installed; what lies elsewhere is the user's own.
_INSTALLED = [
    Path(path).resolve()
    for path in {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
]
_PACKAGE = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Identity:
    """What a function is known by.

    Attributes:
        digest: 32 hexadecimal digits.
        modules: The user's own modules that have the functions and classes that it refers to, its own among them.
    """

    digest: str
    modules: frozenset[str]


def of_function(function: Callable[..., Any]) -> Identity:
    """The identity of a function.

    Raises:
        InputError: It is not a function, or refers to an object whose state cannot be told.
    """
    digest = _Digest()
    digest.add("python", f"{sys.version_info.major}.{sys.version_info.minor}")
    digest.callable(function, getattr(function, "__qualname__", repr(function)))
    return Identity(digest.hex(), frozenset(digest.modules))


def modules_of(value: Any, name: str) -> frozenset[str]:
    """The user's own modules that a value refers to, which may be a function or have functions.

    Args:
        value: Any.
        name: What it is called, for the error.

    Raises:
        InputError: It refers to an object whose state cannot be told.
    """
    digest = _Digest()
    digest.value(value, name)
    return frozenset(digest.modules)


def is_own(module: str | None) -> bool:
    """Whether a module is the user's own: neither installed, nor Python's, nor ours."""
    found = sys.modules.get(module or "")
    path = getattr(found, "__file__", None)
    if module == "__main__" or found is None:
        return True
    if path is None:
        return False
    where = Path(path).resolve()
    if {"site-packages", "dist-packages"} & set(where.parts):
        return False
    return not any(where.is_relative_to(folder) for folder in (*_INSTALLED, _PACKAGE))


class _Digest:
    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self._seen: dict[int, int] = {}
        self._kept: list[object] = []  # so that an id stays the object's own
        self.modules: set[str] = set()

    def hex(self) -> str:
        return self._hash.hexdigest()[:32]

    def add(self, *parts: object) -> None:
        for part in parts:
            data = part if isinstance(part, bytes) else str(part).encode()
            self._hash.update(f"{len(data)}:".encode() + data)

    def _again(self, value: object) -> bool:
        """Whether this object was added before; then its number is added in its place."""
        if id(value) in self._seen:
            self.add("seen", self._seen[id(value)])
            return True
        self._seen[id(value)] = len(self._seen)
        self._kept.append(value)
        return False

    def _meet(self, value: types.FunctionType | type) -> None:
        if value.__module__ in sys.modules and is_own(value.__module__):
            self.modules.add(value.__module__)

    def callable(self, function: Any, name: str) -> None:
        if isinstance(function, functools.partial):
            self.add("partial")
            self.callable(function.func, name)
            self.value(list(function.args), name)
            self.value(dict(function.keywords), name)
        elif isinstance(function, types.MethodType):
            self.callable(function.__func__, name)
            self.value(function.__self__, name)
        elif isinstance(function, types.FunctionType):
            self._function(function)
        elif callable(function) and getattr(function, "__module__", None) and hasattr(function, "__qualname__"):
            self.value(function, name)
        else:
            raise InputError(f"{name} of type {type(function).__name__} is not a function", expected="a function")

    def _function(self, function: types.FunctionType) -> None:
        if self._again(function):
            return
        self._meet(function)
        self.add("function", function.__name__)
        self._code(function.__code__)
        defaults = function.__defaults__ or ()
        self.value(list(defaults), function.__qualname__)
        self.value(dict(function.__kwdefaults__ or {}), function.__qualname__)
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            self.add("cell", name)
            try:
                content = cell.cell_contents
            except ValueError:  # not assigned yet
                continue
            self.value(content, name)
        if inspect.unwrap(function) is not function:
            self.callable(inspect.unwrap(function), function.__qualname__)
        for name in sorted(_names(function.__code__)):
            if name in function.__globals__:
                self.add("global", name)
                self.value(function.__globals__[name], name)

    def _code(self, code: types.CodeType) -> None:
        self.add("code", code.co_code, code.co_exceptiontable, code.co_argcount, code.co_kwonlyargcount, code.co_flags)
        self.add(*code.co_varnames, *code.co_names)
        # The documentation is not what runs.
        documented = bool(code.co_consts) and isinstance(code.co_consts[0], str) and not code.co_name.startswith("<")
        for number, constant in enumerate(code.co_consts):
            if isinstance(constant, types.CodeType):
                self._code(constant)
            elif not (number == 0 and documented):
                self.value(constant, code.co_name)

    def value(self, value: Any, name: str) -> None:
        """Anything that a function refers to."""
        try:
            self.add("data", type(value).__name__, canonical(value))
        except (TypeError, ValueError, RecursionError):
            pass
        else:
            return
        if isinstance(value, types.ModuleType):
            self._module(value)
        elif isinstance(value, types.FunctionType):
            if is_own(value.__module__):
                self._function(value)
            else:
                self.add("named", value.__module__, value.__qualname__)
        elif isinstance(value, type):
            self._class(value)
        elif isinstance(value, (types.MethodType, functools.partial)):
            self.callable(value, name)
        elif isinstance(value, (list, dict)):
            if not self._again(value):
                self.add(type(value).__name__, len(value))
                for one in value.items() if isinstance(value, dict) else value:
                    self.value(one, name)
        elif isinstance(value, tuple):
            self.add(type(value).__name__, len(value))
            for one in value:
                self.value(one, name)
        elif isinstance(value, (set, frozenset)):
            self.add("set", *sorted(map(repr, value)))
        elif isinstance(value, (bytes, bytearray, complex, range, slice, type(Ellipsis), float)):
            self.add(type(value).__name__, repr(value))
        else:
            self._object(value, name)

    def _module(self, module: types.ModuleType) -> None:
        self.add("module", module.__name__)
        path = getattr(module, "__file__", None)
        if path is not None and is_own(module.__name__) and Path(path).is_file():
            self.add(Path(path).read_bytes())

    def _class(self, kind: type) -> None:
        self.add("class", kind.__module__, kind.__qualname__)
        if not is_own(kind.__module__) or self._again(kind):
            return
        self._meet(kind)
        for base in kind.__bases__:
            self.value(base, kind.__qualname__)
        for name, member in sorted(vars(kind).items()):
            inner = getattr(member, "__func__", getattr(member, "fget", member))
            if isinstance(inner, types.FunctionType):
                self.add(name)
                self._function(inner)
            elif not name.startswith("__"):
                self.add(name)
                self.value(member, f"{kind.__qualname__}.{name}")

    def _object(self, value: Any, name: str) -> None:
        """An object of some class: what it is pickled as, and the class."""
        try:
            data = pickle.dumps(value, protocol=4)
        except Exception as error:
            raise InputError(
                f"{name!r}, which the function refers to, is of type {type(value).__name__} and has no state that can "
                f"be told ({error})",
                expected="plain data; make such an object within the function",
            ) from None
        self.add("object", data)
        if is_own(type(value).__module__):
            self._class(type(value))


def _names(code: types.CodeType) -> set[str]:
    """The global names, and the attributes, that a function and those within it use."""
    found = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found |= _names(constant)
    return found
