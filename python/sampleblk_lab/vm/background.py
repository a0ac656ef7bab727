# SPDX-License-Identifier: MIT
"""Templates made anew beside the work, when the Python that they have ready has changed.

Until it is made VMs are cloned from the template without a Python. What makes it gives way to other work, and is a
process of its own: the VM that found the template out of date may end long before.
"""

from __future__ import annotations

import base64
import contextlib
import os
import pickle
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from sampleblk_lab.paths import CacheError, cache_root, find_program, locked

if TYPE_CHECKING:
    from pathlib import Path

#: 0: whoever needs a template makes it, and waits.
VARIABLE = "SAMPLEBLK_BACKGROUND"

# So that it gets something on a machine that is busy, too (sched(7)).
_NICE = 10


def _path() -> Path:
    return cache_root() / "templates" / "background"


def is_wanted() -> bool:
    """Whether templates may be made beside the work here."""
    return os.environ.get(VARIABLE) != "0"


def is_under_way() -> bool:
    """Whether a process makes a template beside the work."""
    with contextlib.suppress(CacheError), locked(_path(), wait=False) as mine:
        return not mine
    return False


def make(machine: dict[str, Any]) -> None:
    """Has the template of a machine made, unless one is being made.

    Args:
        machine: The arguments of :class:`sampleblk_lab.vm.VM`.
    """
    detach = find_program("setsid")
    if detach is None or is_under_way():
        return
    text = base64.b64encode(pickle.dumps(machine)).decode()
    subprocess.run(
        [detach, "--fork", sys.executable, "-P", "-m", __name__, text],
        cwd="/",
        env={**os.environ, VARIABLE: "0"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,
    )


def main() -> int:
    """Makes it; returns the exit status."""
    from sampleblk_lab.vm.machine import VM

    os.nice(_NICE)
    with locked(_path(), wait=False) as mine:
        if mine:
            VM(**pickle.loads(base64.b64decode(sys.argv[1]))).make_template()
    return 0


if __name__ == "__main__":
    sys.exit(main())
