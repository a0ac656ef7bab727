# SPDX-License-Identifier: MIT
"""Functions sent to another process by value, whose tracebacks still name the file and show its lines.

cloudpickle from 3.1.3 on names every function's file ``<dynamic-code>``. For a function of a test or a notebook the
file is there on the other side too (a process of this host, or a VM that sees the host's files), and a traceback
without it tells nobody where to look.
"""

from __future__ import annotations

import io
from collections import ChainMap
from types import CodeType
from typing import Any

import cloudpickle  # type: ignore[import-untyped]

# Of the arguments of CodeType (CPython, Objects/clinic/codeobject.c.h).
_FILENAME = 10


def _reduced(code: CodeType) -> tuple[Any, ...]:
    made, arguments = cloudpickle.Pickler.dispatch_table[CodeType](code)
    return made, (*arguments[:_FILENAME], code.co_filename, *arguments[_FILENAME + 1 :])


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    dispatch_table = ChainMap({CodeType: _reduced}, cloudpickle.Pickler.dispatch_table)


def dumps(value: object) -> bytes:
    """`value` as cloudpickle has it, each function with the name of its file. Read by :func:`pickle.loads`.

    Raises:
        pickle.PicklingError, TypeError: It cannot be pickled.
    """
    with io.BytesIO() as stream:
        _Pickler(stream).dump(value)
        return stream.getvalue()
