# SPDX-License-Identifier: MIT
"""``python -m sampleblk_lab.kernels NAME…``: gets kernels, the driver for each, and QEMU, before any VM is started.

Needs neither the C++ core nor numpy, so that ``make`` runs it beside their build.
"""

from __future__ import annotations

import sys

from sampleblk_lab.errors import SampleblkError
from sampleblk_lab.kernels.driver import module_tree
from sampleblk_lab.kernels.store import resolve
from sampleblk_lab.vm.qemu import find


def main() -> int:
    """The command's entry point; returns the exit status."""
    try:
        for name in sys.argv[1:]:
            module_tree(resolve(name))
        find()
    except (SampleblkError, OSError) as error:
        print(f"sampleblk-lab: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
