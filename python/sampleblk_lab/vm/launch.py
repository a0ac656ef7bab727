# SPDX-License-Identifier: MIT
"""``python -m sampleblk_lab.vm.launch PARENT FD ARGS…``: sampleblk-python that does not outlive its parent.

A test that hangs in the guest would keep the VM when pytest is killed: its pipes tell only who reads and writes them.
What is said of the VM itself goes to FD: standard error has what the guest's processes write and nothing else.

Of an image (:mod:`sampleblk_lab.vm.image`), ARGS… are ``--make-image ARGS…`` or ``--image RAM STATE ARGS…``. Who makes
one writes a line of its RAM and STATE to FD once the command has parked, closes standard output and has it until
standard input ends.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1  # prctl(2); cleared by neither execve(2) of this program nor what it starts


def tied() -> None:
    """Takes PARENT and FD off the arguments: this process ends with the one, and writes its errors to the other."""
    parent = int(sys.argv.pop(1))
    sys.stderr = open(int(sys.argv.pop(1)), "w", buffering=1)  # noqa: SIM115, PTH123
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(1)  # it ended before it could have told us


def main() -> int:
    """Returns the exit status of sampleblk-python."""
    tied()
    from sampleblk_lab.vm import python

    if sys.argv[1:2] == ["--make-image"]:
        del sys.argv[1]
        return python.main(python.make_image)
    if sys.argv[1:2] == ["--image"]:
        _, ram, state = (sys.argv.pop(1) for _ in range(3))
        return python.main(python.from_image(ram, state))
    return python.main()


if __name__ == "__main__":
    sys.exit(main())
