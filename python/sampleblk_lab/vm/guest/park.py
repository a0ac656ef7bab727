# SPDX-License-Identifier: MIT
"""How a command of a guest has itself saved with the machine (:mod:`sampleblk_lab.vm.image`), from its own side."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from pathlib import Path


def park() -> None:
    """Stops this process for the machine to be saved; returns in each clone of it.

    The guest's root must not be in use while it is saved: this process has left it, with its threads, when it stops.
    Where it, or another one, has a file of it open or mapped, the machine is not saved and this does not return.

    Raises:
        RuntimeError: It has threads, or watches files.
        OSError: It is in the root that the guest's Python began in, or in none.
    """
    if threading.active_count() > 1:
        raise RuntimeError("a thread may open a file while the root is another one")
    if _watches():
        raise RuntimeError("what inotify and fanotify watch keeps no file system from being unmounted")
    folder = Path.cwd()
    # Of the files that are open while the machine is saved, those of a file system without files are no hindrance.
    processes = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY)
    # A handler of this process opens files, too; and init's SIGCONT is no handler's.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        _enter(_first_root())
        os.kill(os.getpid(), signal.SIGSTOP)
        signal.sigtimedwait({signal.SIGCONT}, 0)
        # Init has its new root by the time that it lets us go on.
        _enter(os.open("1/root", os.O_RDONLY | os.O_DIRECTORY, dir_fd=processes))
        os.chdir(folder)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os.close(processes)


def _watches() -> bool:
    for file in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # that which lists them
            if "notify" in file.readlink().name:
                return True
    return False


def _first_root() -> int:
    """That of the Python which commands are forked from: it has never been anywhere else."""
    for process in Path("/proc").iterdir():
        with contextlib.suppress(OSError):  # the kernel's own threads have none, and others end
            if process.name.isdecimal() and not (process / "root").samefile("/"):
                return os.open(process / "root", os.O_RDONLY | os.O_DIRECTORY)
    raise OSError("no process is outside the guest's root")


def _enter(root: int) -> None:
    os.fchdir(root)
    os.chroot(".")
    os.close(root)
