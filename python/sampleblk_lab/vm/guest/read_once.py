# SPDX-License-Identifier: MIT
"""The environment's variables that are read when an interpreter starts and never again.

What has forked from one (:mod:`sampleblk_lab.vm.guest.fork_server`) heeds those of the one it forked from.
"""

from __future__ import annotations

import site
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

# The variables that an interpreter, its locale or a library reads when it starts and never again.
_AT_START = (
    *("PYTHON", "LD_", "LC_", "MALLOC_", "GLIBC_", "OPENBLAS_", "GOTO_", "GFORTRAN_", "OMP_", "MKL_", "NPY_", "NUMPY_"),
    *("OPENSSL_", "SQLITE_", "EXECNET_", "COV_", "COVERAGE_"),
)
_AT_START_NAMES = frozenset({"HOME", "LANG", "LANGUAGE"})
# And those that the libraries of a notebook kernel read (sampleblk_lab.jupyter.host).
_PRELOADED = ("DEBUGPY_", "GEVENT_", "IPYTHON_", "PILLOW_", "PYDEV", "PYZMQ_", "TORNADO_", "TRAITLETS_")
_PRELOADED_NAMES = frozenset(
    {
        *("DEBUG_PYDEVD_PATHS_TRANSLATION", "IPYTHONENABLE", "JUPYTER_ALLOW_INSECURE_WRITES", "JUPYTER_PLATFORM_DIRS"),
        *(
            "JUPYTER_USE_PROGRAMDATA",
            "MSGPACK_PUREPYTHON",
            "PATHS_FROM_ECLIPSE_TO_PYTHON",
            "PYCHARM_DEBUG",
            "PYPARSINGENABLEALLWARNINGS",
        ),
    }
)
# Of these the ones that a fork heeds, too: HOME where it has no modules.
_HEEDED = frozenset({"PYTHONPATH", "PYTHONDONTWRITEBYTECODE"} | (set() if site.ENABLE_USER_SITE else {"HOME"}))


def read_at_start(environment: Iterable[tuple[str, str]], *, preloads: bool = False) -> dict[str, str]:
    """Of an environment's variables those that only a new interpreter heeds.

    Args:
        environment: Names and values.
        preloads: Whether more is imported than the toolkit.
    """
    prefixes = _AT_START + _PRELOADED if preloads else _AT_START
    names = _AT_START_NAMES | _PRELOADED_NAMES if preloads else _AT_START_NAMES
    return {
        name: value
        for name, value in environment
        if (name.startswith(prefixes) or name in names) and name not in _HEEDED
    }
