# SPDX-License-Identifier: MIT
"""Kernels to boot: found by release, path or Debian suite, fetched as Debian packages into a per-user cache.

Nothing is ever installed into ``/boot`` or ``/lib/modules``, and nothing needs root.
"""

from __future__ import annotations

from sampleblk_lab.kernels.store import Kernel, fetch, installed, resolve

__all__ = ["Kernel", "fetch", "installed", "resolve"]
