# SPDX-License-Identifier: MIT
"""The running kernel's own structures, read live and never written, with no debug-symbol package.

Types come from BTF, names from ``/proc/kallsyms``, memory from ``/proc/kcore``; objects and helpers are drgn's
(https://drgn.readthedocs.io). Needs root and drgn: ``pip install sampleblk-lab[inspect]``.

What is read changes while it is read: an object may be half old and half new, or freed. Reads that hit memory which is
gone raise :class:`drgn.FaultError`; the views here catch it and say which object it was.
"""

from sampleblk_lab.inspect.blocks import QueueView, queue
from sampleblk_lab.inspect.files import OpenFile, open_files
from sampleblk_lab.inspect.kernel import kernel, module_types
from sampleblk_lab.inspect.operations import Operations, operations
from sampleblk_lab.inspect.pages import PageCache, page_cache
from sampleblk_lab.inspect.patching import Entry, entry, patched_sites

__all__ = [
    "Entry",
    "OpenFile",
    "Operations",
    "PageCache",
    "QueueView",
    "entry",
    "kernel",
    "module_types",
    "open_files",
    "operations",
    "page_cache",
    "patched_sites",
    "queue",
]
