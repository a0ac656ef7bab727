# SPDX-License-Identifier: MIT
"""Functions sent to another process by value, whose tracebacks still name the file and show its lines.

cloudpickle from 3.1.3 on names every function's file ``<dynamic-code>``. For a function of a test or a notebook the
file is there on the other side too (a process of this host, or a VM that sees the host's files), and a traceback
without it tells nobody where to look.
"""

from __future__ import annotations

import contextlib
import functools
import io
import pickle
from collections import ChainMap
from types import CodeType
from typing import TYPE_CHECKING, Any

import cloudpickle  # type: ignore[import-untyped]
from cloudpickle import cloudpickle as core

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import ModuleType

# Of the arguments of CodeType (CPython, Objects/clinic/codeobject.c.h).
_FILENAME = 10


def _reduced(code: CodeType) -> tuple[Any, ...]:
    made, arguments = cloudpickle.Pickler.dispatch_table[CodeType](code)
    return made, (*arguments[:_FILENAME], code.co_filename, *arguments[_FILENAME + 1 :])


_Cached = type(functools.cache(len))


def _reduced_cache(cached: Any) -> str | tuple[Any, ...]:
    """What functools.cache has made of a function that goes by value, which cloudpickle names only. It begins empty."""
    name: str = cached.__reduce__()
    if cached.__module__ != "__main__" and cached.__module__ not in cloudpickle.list_registry_pickle_by_value():
        return name
    about = cached.cache_parameters()
    counts = type(cached.cache_info())
    return _Cached, (cached.__wrapped__, about["maxsize"], about["typed"], counts), vars(cached)


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    dispatch_table = ChainMap({CodeType: _reduced, _Cached: _reduced_cache}, cloudpickle.Pickler.dispatch_table)

    def reducer_override(self, value: Any) -> Any:
        """A class with its slots, which cloudpickle leaves out: an instance of it would have a dictionary instead."""
        reduced = super().reducer_override(value)
        if isinstance(reduced, tuple) and reduced[0] is core._make_skeleton_class and vars(value).get("__slots__"):  # noqa: SLF001
            _, _, _, namespace, *_ = reduced[1]
            namespace["__slots__"] = value.__slots__
        return reduced


def dumps(value: object) -> bytes:
    """`value` as cloudpickle has it, each function with the name of its file. Read by :func:`loads`.

    Raises:
        pickle.PicklingError, TypeError: It cannot be pickled.
    """
    with io.BytesIO() as stream:
        _Pickler(stream).dump(value)
        return stream.getvalue()


class _Unpickler(pickle.Unpickler):
    """Leaves the classes alone that this process has.

    cloudpickle knows one again that comes back, and would give it the methods and the attributes of the other process:
    copies, which no longer see what the module's globals become.
    """

    def __init__(self, stream: io.BytesIO) -> None:
        super().__init__(stream)
        self._known = set(core._DYNAMIC_CLASS_TRACKER_BY_CLASS)  # noqa: SLF001

    def find_class(self, module: str, name: str) -> Any:
        found = super().find_class(module, name)
        return functools.partial(self._set_state, found) if found is core._class_setstate else found  # noqa: SLF001

    def _set_state(self, set_state: Callable[[type, Any], type], cls: type, state: Any) -> type:
        return cls if cls in self._known else set_state(cls, state)


def loads(data: bytes) -> Any:
    """What :func:`dumps` was given, perhaps by another process that had got some of it from this one.

    Raises:
        Exception: It cannot be unpickled here.
    """
    return _Unpickler(io.BytesIO(data)).load()


@contextlib.contextmanager
def whole(modules: Iterable[ModuleType]) -> Iterator[None]:
    """While it lasts, what these modules define goes by value too, also by Dask: no other host needs their files."""
    known = cloudpickle.list_registry_pickle_by_value()
    new = [module for module in modules if module.__name__ not in known]
    for module in new:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in new:
            cloudpickle.unregister_pickle_by_value(module)
