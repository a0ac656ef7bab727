# SPDX-License-Identifier: MIT
"""Ctrl-C in loops that must not be left in the middle of a step, and what ends as if it were Ctrl-C."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import resource
    from collections.abc import Callable, Iterator

# A command of our terminal has got its Ctrl-C; if it goes on for so long it has not, and is told.
_TOLD_S = 2.0
# It is told once more: dash loses a SIGINT that comes while it starts a program (its handler returns within vfork).
_TOLD_AGAIN_S = 5.0
# From then on it is killed.
_KILLED_S = 10.0
_POLL_S = 0.02

#: The exit status of what Ctrl-C ended, as a shell has it.
INTERRUPTED = 128 + signal.SIGINT

#: That of what writes to a pipe that nobody reads.
UNREAD = 128 + signal.SIGPIPE

#: How long what works in a VM has for its end once Ctrl-C came: to stop its jobs, and to write down what they measured.
GRACE_S = 60.0

#: The same, as :func:`end_of` takes it.
END_FACTOR = GRACE_S / _KILLED_S


def shell_status(returncode: int, *, interrupted: bool = False) -> int:
    """The exit status that a shell has for a command, of what :class:`subprocess.Popen` has for it.

    Args:
        returncode: Minus the signal, if one ended it.
        interrupted: Ctrl-C came, whatever the command made of it.
    """
    return INTERRUPTED if interrupted else returncode if returncode >= 0 else 128 - returncode


def is_raised_here() -> bool:
    """Whether Ctrl-C raises KeyboardInterrupt, and in this thread."""
    return (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )


class RaisedWithin:
    """Takes Ctrl-C of this process over: it is raised within :meth:`block` only, and outside waits for the next one."""

    def __init__(self) -> None:
        self._inside = False
        self._came = False
        signal.signal(signal.SIGINT, self._pressed)

    def _pressed(self, _number: int, _frame: object) -> None:
        if self._inside:
            self._inside = False
            raise KeyboardInterrupt
        self._came = True

    @contextlib.contextmanager
    def block(self) -> Iterator[None]:
        """What may be interrupted; once it was, the rest of the block is left alone.

        Raises:
            KeyboardInterrupt: Also at the block's begin, for what came before.
        """
        self._inside = True
        try:
            if self._came:
                self._came = False
                raise KeyboardInterrupt
            yield
        finally:
            self._inside = False


class Ended(NamedTuple):
    """How a command ended."""

    returncode: int
    """As :class:`subprocess.Popen` has it: minus the signal, if one ended it."""
    usage: resource.struct_rusage
    interrupted: bool
    """Ctrl-C came, whatever the command made of it."""


def started(words: list[str], **options: Any) -> subprocess.Popen[Any]:
    """Starts a command for :func:`end_of`.

    It is of our terminal's foreground, where it may ask something and gets its Ctrl-C; or a group of its own, all of
    which we can tell.
    """
    if not (_is_in_foreground() or options.get("start_new_session")):
        options.setdefault("process_group", 0)
    return subprocess.Popen(words, **options)


def _is_in_foreground() -> bool:
    """Whether Ctrl-C at our terminal is ours, also where standard input is something else."""
    with _terminal() as terminal:
        return terminal is not None and os.tcgetpgrp(terminal) == os.getpgrp()


@contextlib.contextmanager
def _terminal() -> Iterator[int | None]:
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        yield None
        return
    try:
        yield terminal
    finally:
        os.close(terminal)


def run(words: list[str], *, end_factor: float = 1.0, **options: Any) -> int:
    """Runs a command, as :func:`subprocess.run` does, which kills one a quarter of a second after Ctrl-C.

    Returns:
        Its exit status, minus the signal if one ended it.

    Raises:
        KeyboardInterrupt: Ctrl-C came, and the command, whose it was, has ended.
    """
    ended = end_of(started(words, **options), end_factor)
    if ended.interrupted:
        raise KeyboardInterrupt
    return ended.returncode


def end_of(process: subprocess.Popen[Any], end_factor: float = 1.0) -> Ended:
    """Waits for a command's end, which Ctrl-C brings about instead of ours: what was measured of it is kept.

    Args:
        process: As :func:`started` made it.
        end_factor: How many times longer than others it may take to end.

    Raises:
        KeyboardInterrupt: It came again; the command is killed.
    """
    interrupted = False
    try:
        _wait(process, 0)
    except KeyboardInterrupt:
        interrupted = True
        try:
            _end(process, end_factor)
        except BaseException:
            kill(process)
            raise
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return Ended(process.returncode, usage, interrupted)


def _wait(process: subprocess.Popen[Any], options: int) -> object:
    # Does not reap: what an interrupt takes away here can be asked again.
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT | options)


def _end(process: subprocess.Popen[Any], end_factor: float) -> None:
    """Waits for the end of a command that may have got Ctrl-C, and sees to it that it comes."""
    began = time.monotonic()
    first = _TOLD_S if _shares_our_group(process) else 0
    left = [(first, signal.SIGINT), (_TOLD_AGAIN_S, signal.SIGINT), (_KILLED_S, signal.SIGKILL)]
    while not _wait(process, os.WNOHANG):
        if left and time.monotonic() >= began + left[0][0] * end_factor:
            _tell(process, left.pop(0)[1])
        time.sleep(_POLL_S)


def kill(process: subprocess.Popen[Any]) -> None:
    """Ends a command that was :func:`started`, with what it has started in its group."""
    if process.returncode is None:
        _tell(process, signal.SIGKILL)
    process.wait()


def _tell(process: subprocess.Popen[Any], number: int) -> None:
    if _shares_our_group(process):
        os.kill(process.pid, number)
    else:
        os.killpg(process.pid, number)


def _shares_our_group(process: subprocess.Popen[Any]) -> bool:
    return os.getpgid(process.pid) != process.pid


@contextlib.contextmanager
def counted_ctrl_c() -> Iterator[Callable[[], int]]:
    """Ctrl-C is counted instead of raised, so that it cannot come while half a message has been read or written.

    Where somebody else handles it, or in another thread than the main one, nothing changes.
    """
    count = 0

    def pressed(_number: int, _frame: object) -> None:
        nonlocal count
        count += 1

    ours = is_raised_here()
    if ours:
        signal.signal(signal.SIGINT, pressed)
    try:
        yield lambda: count
    finally:
        if ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)


@contextlib.contextmanager
def held_ctrl_c() -> Iterator[None]:
    """Ctrl-C waits for the block's end, at which what was made within is known, and can be undone.

    Raises:
        KeyboardInterrupt: It came.
    """
    with counted_ctrl_c() as pressed:
        yield
    if pressed():
        raise KeyboardInterrupt


@contextlib.contextmanager
def ended_like_ctrl_c() -> Iterator[list[int]]:
    """SIGTERM and SIGHUP are Ctrl-C within the block: nothing is left behind, and what was measured is shown.

    Yields:
        The numbers of those that came.

    One that is ignored (nohup) or handled stays so, and so do both in another thread than the main one. Ctrl-C that is
    ignored, as in a shell's background, is not within the block if no terminal can send it: who waits for it must see
    what is like it.
    """
    came: list[int] = []
    process = os.getpid()

    def end(number: int, _frame: object) -> None:
        if os.getpid() != process:  # a fork, which was not asked to clean up
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        came.append(number)
        if callable(signal.getsignal(signal.SIGINT)):
            signal.raise_signal(signal.SIGINT)
        else:  # the terminal's is not for us
            raise KeyboardInterrupt

    is_main = threading.current_thread() is threading.main_thread()
    ours = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) is signal.SIG_DFL]
    handlers: dict[int, Any] = dict.fromkeys(ours, end) if is_main else {}
    with _terminal() as terminal:
        if terminal is None and is_main and signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
            handlers[signal.SIGINT] = signal.default_int_handler
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
