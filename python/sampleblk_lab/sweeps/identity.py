# SPDX-License-Identifier: MIT
"""What a function is made of, as a digest: another digest, another experiment.

It covers the function's bytecode, its defaults, what its closure holds and the globals that it uses, and the same of
every function and class of the user's own that it refers to. Of these, comments, names of files and line numbers do not
count. A module of the user's own that it refers to, or imports while it runs, counts with its whole file, and so do all
those of the user's own that this one imports. Installed modules count by name only.
"""

from __future__ import annotations

import contextlib
import dis
import functools
import hashlib
import importlib.machinery
import inspect
import io
import pickle
import sys
import sysconfig
import types
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sampleblk_lab.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

# Where modules are that somebody installed; what lies elsewhere is the user's own.
_INSTALLED = [
    Path(path).resolve()
    for path in {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
]
_PACKAGE = Path(__file__).resolve().parents[1]

# Since Python 3.14 a flag says whether the first constant is the documentation. Before, it is None where there is none.
_DOCUMENTED: int = getattr(inspect, "CO_HAS_DOCSTRING", 0)


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
    return path is not None and _is_own_file(Path(path))


def _is_own_file(path: Path) -> bool:
    where = path.resolve()
    if {"site-packages", "dist-packages"} & set(where.parts):
        return False
    return not any(where.is_relative_to(folder) for folder in (*_INSTALLED, _PACKAGE))


def _found(name: str) -> Iterator[tuple[str, Path | None, bool]]:
    """The name of each package that a module is in, and its own, with the file, and whether it is a package.

    Nothing is imported for it. Ends where one is not found.
    """
    places: list[str] | None = None
    for count in range(name.count(".") + 1):
        part = ".".join(name.split(".")[: count + 1])
        module = sys.modules.get(part)
        spec = getattr(module, "__spec__", None)
        if spec is None:
            try:
                spec = importlib.machinery.PathFinder.find_spec(part, places)
            except (ImportError, ValueError):
                return
        path = getattr(module, "__file__", None) or (spec.origin if spec is not None and spec.has_location else None)
        within = getattr(module, "__path__", None) or (spec.submodule_search_locations if spec is not None else None)
        if path is None and within is None:
            return
        yield part, None if path is None else Path(path), within is not None
        places = [] if within is None else list(within)


def _imports(code: types.CodeType, package: str) -> Iterator[str]:
    """The modules that code imports while it runs, without that of the functions within it; some may be none."""
    before: list[Any] = []
    for instruction in dis.get_instructions(code):
        if instruction.opname == "IMPORT_NAME":
            level, names = before[-2:]
            base = instruction.argval
            if level:
                above = package.split(".")[: len(package.split(".")) - (level - 1)]
                base = ".".join(filter(None, [*above, base]))
            yield base
            yield from (f"{base}.{name}" for name in names or ())
        if instruction.opname != "EXTENDED_ARG":
            before.append(instruction.argval)


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """Code, and that of all functions and classes within it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


def _package_of(names: dict[str, Any]) -> str:
    """What relative imports are relative to, by a module's names."""
    if isinstance(package := names.get("__package__"), str):
        return package
    name = str(names.get("__name__", ""))
    return name if "__path__" in names else name.rpartition(".")[0]


def _ordered(values: Iterable[Any]) -> list[Any]:
    """A set's values in an order that is the same in every process."""
    return sorted(values, key=lambda one: (type(one).__name__, getattr(one, "__qualname__", None) or repr(one)))


_PLAIN = frozenset({type(None), bool, int, float, str, bytes, list, tuple, dict})
_SCALARS = frozenset({type(None), bool, int, float, complex, str, bytes, bytearray, range, slice, type(Ellipsis)})


def _text(value: Any) -> bytes | None:
    """What a value without parts is, beside its type; None of others. Of a subclass the class counts, too."""
    kind = type(value)
    if kind is str:
        return str.encode(value, errors="surrogatepass")
    if kind is int:
        return f"{value:x}".encode()  # which has no limit of digits
    if kind in _SCALARS:
        return repr(value).encode()
    if kind.__module__ == "numpy" and getattr(value, "shape", None) == ():
        # Not as it is pickled, which is another thing to another release of numpy.
        item = value.item()
        return None if type(item) not in _SCALARS else f"{value.dtype} {item!r}".encode()
    return None


_CACHE = type(functools.cache(lambda: None))
_PARTIAL = (functools.partialmethod, functools.partial)

# What Python, or dataclasses, note in a class: what it says of itself, or what its other members say, too.
_NOTED = frozenset(
    f"__{name}__"
    for name in (
        *("module", "qualname", "doc", "dict", "weakref", "firstlineno", "static_attributes", "type_params"),
        *("orig_bases", "parameters", "abstractmethods", "dataclass_fields", "dataclass_params"),
    )
)


class _Pickler(pickle.Pickler):
    """Keeps what has code of the user's own, which pickle would name only, and sets in an order of their own."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, protocol=4)
        self.kept: list[Any] = []

    def persistent_id(self, value: Any) -> Any:
        if type(value) in _PLAIN:
            return None
        if isinstance(value, (set, frozenset)):
            kind = type(value)
            if is_own(kind.__module__):
                self.kept.append(kind)
            return f"{kind.__module__}.{kind.__qualname__}", _ordered(value)
        if _wrapped(value) is None and not (
            isinstance(value, (types.FunctionType, type)) and is_own(getattr(value, "__module__", None))
        ):
            return None
        self.kept.append(value)
        return "kept", len(self.kept)


def _wrapped(value: object) -> Any:
    """The function that a callable object stands for, such as that of functools.cache; None where there is none."""
    if isinstance(value, (types.FunctionType, type)):
        return None
    found = inspect.getattr_static(value, "__wrapped__", None)
    return found if callable(found) else None


class _Digest:
    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self._seen: dict[int, int] = {}
        self._kept: list[object] = []  # so that an id stays the object's own
        self._files: set[str] = set()  # modules whose files were added
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
            self._class(type(function))
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
        self._code(function.__code__, _package_of(function.__globals__))
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
        names = _names(function.__code__)
        for name in sorted(names):
            if name in function.__globals__:
                self.add("global", name)
                self.value(function.__globals__[name], name)
                if isinstance(function.__globals__[name], types.ModuleType):
                    self._within(function.__globals__[name].__name__, names)
        # What a decorator or the user has attached, such as the functions of functools.singledispatch.
        for name, member in sorted(vars(function).items()):
            if not name.startswith("_") or (not name.startswith("__") and _is_told(member)):
                self.add("attribute", name)
                self.value(member, f"{function.__qualname__}.{name}")

    def _named(self, function: types.FunctionType, name: str) -> None:
        """An installed function, with the functions that a decorator of theirs has been given."""
        self.add("named", function.__module__, function.__qualname__)
        if function.__closure__ and not self._again(function):
            for cell in function.__closure__:
                with contextlib.suppress(ValueError):  # not assigned yet
                    if isinstance(cell.cell_contents, types.FunctionType) or _wrapped(cell.cell_contents) is not None:
                        self.value(cell.cell_contents, name)

    def _code(self, code: types.CodeType, package: str) -> None:
        flags = code.co_flags & ~_DOCUMENTED
        counts = code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount
        self.add("code", code.co_code, code.co_exceptiontable, *counts, flags)
        self.add(*code.co_varnames, *code.co_names)
        for name in _imports(code, package):
            self._imported(name)
        # The documentation is not what runs.
        if _DOCUMENTED:
            documented = bool(code.co_flags & _DOCUMENTED)
        else:
            documented = (
                bool(code.co_consts) and isinstance(code.co_consts[0], str) and not code.co_name.startswith("<")
            )
        for number, constant in enumerate(code.co_consts):
            if isinstance(constant, types.CodeType):
                self._code(constant, package)
            elif not (number == 0 and documented):
                self.value(constant, code.co_name)

    def value(self, value: Any, name: str) -> None:
        """Anything that a function refers to."""
        if (text := _text(value)) is not None:
            self.add("data", type(value).__name__, text)
            return
        if isinstance(value, types.ModuleType):
            self._module(value)
        elif isinstance(value, types.FunctionType):
            if is_own(value.__module__):
                self._function(value)
            else:
                self._named(value, name)
        elif isinstance(value, type):
            self._class(value)
        elif isinstance(value, (types.MethodType, functools.partial)):
            self.callable(value, name)
        elif (wrapped := _wrapped(value)) is not None:
            if not self._again(value):
                self.add("wrapper", type(value).__qualname__)
                if isinstance(value, _CACHE):
                    self.value(value.cache_parameters(), name)
                if is_own(type(value).__module__):
                    self._class(type(value))
                    self.value(_state(value, wrapped), name)
                self.value(wrapped, name)
        elif isinstance(value, types.MappingProxyType):
            self.value(dict(value), name)
        # Of these types themselves; what is derived of them has more to tell, and a class. Their order is what a loop
        # over them has, and one that is met again is one that is changed at both places.
        elif type(value) in (list, dict):
            if not self._again(value):
                self.add(type(value).__name__, len(value))
                for one in value.items() if isinstance(value, dict) else value:
                    self.value(one, name)
        elif type(value) is tuple:
            self.add("tuple", len(value))
            for one in value:
                self.value(one, name)
        elif type(value) in (set, frozenset):
            self.add(type(value).__name__, len(value))
            for one in _ordered(value):
                self.value(one, name)
        else:
            self._object(value, name)

    def _module(self, module: types.ModuleType) -> None:
        self.add("module", module.__name__)
        self._imported(module.__name__)

    def _within(self, package: str, names: set[str]) -> None:
        """The modules of a package that a function with these names may come to as its attributes."""
        for other in sorted(sys.modules):
            if other.startswith(f"{package}.") and names.issuperset(other.removeprefix(f"{package}.").split(".")):
                self._imported(other)

    def _imported(self, name: str) -> None:
        """A module of the user's own, those that it is in and those that it imports; nothing of any other."""
        for part, path, is_package in _found(name):
            if path is None or not path.is_file():
                continue
            if not _is_own_file(path):
                return
            if part in self._files:
                continue
            self._files.add(part)
            data = path.read_bytes()
            self.add("file", part, data)
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # it was told when it was imported
                    code = compile(data, str(path), "exec", dont_inherit=True)
            except (SyntaxError, ValueError):  # no Python
                continue
            for one in _codes(code):
                for other in _imports(one, part if is_package else part.rpartition(".")[0]):
                    self._imported(other)

    def _class(self, kind: type) -> None:
        self.add("class", kind.__module__, kind.__qualname__)
        if not is_own(kind.__module__) or self._again(kind):
            return
        self._meet(kind)
        for base in (type(kind), *kind.__bases__):
            self.value(base, kind.__qualname__)
        for name, member in sorted(vars(kind).items()):
            if name == "_abc_impl":  # which classes are known to be its subclasses
                continue
            parts: tuple[Any, ...] = (member,)
            if isinstance(member, property):
                parts = (member.fget, member.fset, member.fdel)
            elif isinstance(member, functools.cached_property):
                parts = (member.func,)
            elif isinstance(member, (staticmethod, classmethod)):
                parts = (member.__func__,)
            if parts != (member,) and is_own(type(member).__module__):
                self._class(type(member))
            for part in parts:
                if isinstance(part, types.FunctionType):
                    self.add(name, type(member).__name__)
                    self._function(part)
                elif not name.startswith("__") or _is_special(name, part):
                    self.add(name, type(member).__name__)
                    self.value(part, f"{kind.__qualname__}.{name}")

    def _object(self, value: Any, name: str) -> None:
        """An object of some class: what it is pickled as, and the class."""
        file = io.BytesIO()
        pickler = _Pickler(file)
        try:
            pickler.dump(value)
        except Exception as error:
            raise InputError(
                f"{name!r}, which the function refers to, is of type {type(value).__name__} and has no state that can "
                f"be told ({error})",
                expected="plain data; make such an object within the function",
            ) from None
        self.add("object", file.getvalue())
        for kept in pickler.kept:
            self.value(kept, name)
        if is_own(type(value).__module__):
            self._class(type(value))


def _is_special(name: str, member: object) -> bool:
    """Whether a class's member of a name such as ``__call__`` is what an operator does, not what Python notes there."""
    if name in _NOTED or name.startswith("__annot"):
        return False
    return _is_told(member) or _wrapped(member) is not None or isinstance(member, _PARTIAL)


def _is_told(value: object) -> bool:
    """Whether a value of a name that is meant for nobody else is plain, and so the user's rather than a library's."""
    if type(value) in (list, tuple):
        return all(_text(one) is not None for one in value)  # type: ignore[attr-defined]
    if type(value) is dict:
        return all(_text(name) is not None and _text(one) is not None for name, one in value.items())
    return _text(value) is not None or (isinstance(value, types.FunctionType) and is_own(value.__module__))


def _state(value: object, wrapped: object) -> dict[str, Any]:
    """An object's attributes, without what functools.update_wrapper has given it of what it wraps."""
    given = getattr(wrapped, "__dict__", {})
    state = object.__getstate__(value)
    parts = state if isinstance(state, tuple) else (state,)
    return {
        name: one
        for part in parts
        for name, one in (part or {}).items()
        if not name.startswith("__") and not (name in given and given[name] is one)
    }


def _names(code: types.CodeType) -> set[str]:
    """The global names, and the attributes, that a function and those within it use."""
    found = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found |= _names(constant)
    return found
