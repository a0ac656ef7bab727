# SPDX-License-Identifier: MIT
"""The process that trials are forked from: one thread, and everything imported that trials need.

Its own program, so that a trial is never the fork of a process with threads, whose locks a child may wait for without
end. Its standard input is a socket from which it is sent another one for each trial (:mod:`.processes` has the other
ends). On that the child reads its work and writes its outcome; when it has ended, its wait status follows. A trial
whose socket is closed at the other end is killed, with all that it has started; so are all of them when the launcher's
own socket is closed, that is when the process ends that they are for.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import select
import signal
import socket
import struct
import warnings
from importlib import import_module

# After a trial's outcome: its wait status.
STATUS = struct.Struct("<q")

# What a request has, besides the descriptor: whether it is a trial, one that runs in a VM, or a range of crash states.
PLAIN, IN_VM, CRASH = b"p", b"v", b"c"

# What all of them import; the others, when there is the first one of these.
_COMMON = ("sampleblk_lab.by_value", "sampleblk_lab.errors", "sampleblk_lab.sweeps.work")
_IMPORTS = {
    PLAIN: (),
    IN_VM: ("sampleblk_lab.vm.machine", "sampleblk_lab.vm.calls", "sampleblk_lab.results.machine"),
    CRASH: ("sampleblk_lab.crash.host",),
}

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


def _child(connection: socket.socket, launcher: int) -> None:
    """The trial's own process."""
    os.setpgid(0, 0)
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != launcher:  # it ended before that
        return
    from sampleblk_lab.sweeps.work import serve

    serve(connection)


class _Launcher:
    def __init__(self, requests: socket.socket) -> None:
        self._requests = requests
        self._poll = select.poll()
        self._poll.register(requests, select.POLLIN)
        self._trials: dict[int, tuple[int, socket.socket]] = {}  # by the pidfd: process, connection
        self._connections: dict[int, int] = {}  # connection -> pidfd
        self._imported: set[str] = set()

    def _import(self, names: tuple[str, ...]) -> None:
        for name in names:
            if name not in self._imported:
                self._imported.add(name)
                import_module(name)
                gc.freeze()  # a collection in a trial would copy every page that has objects of ours

    def run(self) -> None:
        self._import(_COMMON)
        while True:
            for number, events in self._poll.poll():
                if number == self._requests.fileno():
                    if not self._begin():
                        self._kill_all()
                        return
                elif number in self._trials:
                    self._ended(number)
                elif number in self._connections and events & (select.POLLHUP | select.POLLERR):
                    self._poll.unregister(number)
                    self._kill(self._connections.pop(number))

    def _begin(self) -> bool:
        """Forks a trial; False when there will be no more."""
        word, descriptors, _, _ = socket.recv_fds(self._requests, 1, 1)
        if not word:
            return False
        connection = socket.socket(fileno=descriptors[0])
        self._import(_IMPORTS[word])
        with warnings.catch_warnings():
            # Python 3.12 counts the threads of libraries, which come to a fork with handlers of their own.
            warnings.simplefilter("ignore", DeprecationWarning)
            parent = os.getpid()
            child = os.fork()
        if child == 0:
            status = 1
            try:
                self._requests.close()
                for _, other in self._trials.values():
                    other.close()
                for pidfd in self._trials:
                    os.close(pidfd)
                _child(connection, parent)
                status = 0
            finally:
                os._exit(status)
        with contextlib.suppress(OSError):  # it has done so itself, or has ended
            os.setpgid(child, child)
        pidfd = os.pidfd_open(child)
        self._trials[pidfd] = child, connection
        self._connections[connection.fileno()] = pidfd
        self._poll.register(pidfd, select.POLLIN)
        self._poll.register(connection, 0)
        return True

    def _kill(self, pidfd: int) -> None:
        child, _ = self._trials[pidfd]
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)

    def _kill_all(self) -> None:
        for pidfd in self._trials:
            self._kill(pidfd)

    def _ended(self, pidfd: int) -> None:
        child, connection = self._trials[pidfd]
        # First what it has left behind: until it is waited for, its number is no other group's.
        self._kill(pidfd)
        del self._trials[pidfd]
        _, status = os.waitpid(child, 0)
        self._poll.unregister(pidfd)
        os.close(pidfd)
        if self._connections.pop(connection.fileno(), None) is not None:
            self._poll.unregister(connection)
        with contextlib.suppress(OSError):
            connection.sendall(STATUS.pack(os.waitstatus_to_exitcode(status)))
            # The end, though a process that the trial has left may still have it open.
            connection.shutdown(socket.SHUT_RDWR)
        connection.close()


def main() -> None:
    """Serves until its standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    requests = socket.socket(fileno=os.dup(0))
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)  # what trials print is not for whoever reads our output
    _Launcher(requests).run()
