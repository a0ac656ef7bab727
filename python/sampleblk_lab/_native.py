# SPDX-License-Identifier: MIT
"""Loads the C++ core, and says which Debian package is missing when the loader cannot."""

from __future__ import annotations

import re
import sys

from sampleblk_lab.errors import CoreError

# The shared libraries that the core needs at run time, by soname stem, and who ships them.
_PACKAGES = {
    "libtracefs": "libtracefs1",
    "libtraceevent": "libtraceevent1",
    "libzstd": "libzstd1",
    "libz": "zlib1g",
}


def _explain(error: ImportError) -> ImportError:
    missing = re.search(r"(lib[\w+-]+)\.so[.\d]*: cannot open shared object file", str(error))
    if missing is None:
        return error
    package = _PACKAGES.get(missing[1])
    remedy = f"install the Debian package {package}: apt-get install {package}" if package else "install it"
    return CoreError(f"sampleblk_lab needs the shared library {missing[1]}, which this system lacks; {remedy}")


if sys.getfilesystemencoding() != "utf-8":
    # Names and the texts of files would be others in the core than in Python.
    raise CoreError(
        f"sampleblk_lab takes names and texts for UTF-8, and the locale's encoding is {sys.getfilesystemencoding()}: "
        "set LC_ALL=C.UTF-8, or PYTHONUTF8=1"
    )
try:
    from sampleblk_lab import _core as core
except ImportError as _error:
    raise _explain(_error) from _error

__all__ = ["core"]
