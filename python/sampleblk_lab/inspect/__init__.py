# SPDX-License-Identifier: MIT
"""The running kernel's own structures, read live and never written, with no debug-symbol package.

Types come from BTF, names from ``/proc/kallsyms``, memory from ``/proc/kcore``; objects and helpers are drgn's
(https://drgn.readthedocs.io). Needs root and drgn: ``pip install sampleblk-lab[inspect]``.

What is read changes while it is read: an object may be half old and half new, or freed. The views here read a structure
at one go, check afterwards that it was still what they were after, look again where it was not, and count what would
not hold still. Reads of one's own that hit memory which is gone raise :class:`drgn.FaultError`.
"""

from sampleblk_lab.errors import UnsupportedError

try:
    import drgn as _drgn  # noqa: F401
except ImportError as _error:
    raise UnsupportedError(
        "looking into the kernel", "drgn is not installed", "pip install 'sampleblk-lab[inspect]'"
    ) from _error

from sampleblk_lab.inspect.blocks import HardwareQueue, QueueView, Request, queue
from sampleblk_lab.inspect.cost import TraceCost, trace_cost
from sampleblk_lab.inspect.files import OpenFile, OpenFiles, open_files
from sampleblk_lab.inspect.kernel import kernel, module_types
from sampleblk_lab.inspect.operations import Operations, operations
from sampleblk_lab.inspect.pages import PageCache, page_cache
from sampleblk_lab.inspect.patching import Entry, Patched, entry, patched, patched_sites, sites

__all__ = [
    "Entry",
    "HardwareQueue",
    "OpenFile",
    "OpenFiles",
    "Operations",
    "PageCache",
    "Patched",
    "QueueView",
    "Request",
    "TraceCost",
    "entry",
    "kernel",
    "module_types",
    "open_files",
    "operations",
    "page_cache",
    "patched",
    "patched_sites",
    "queue",
    "sites",
    "trace_cost",
]
