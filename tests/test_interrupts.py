# SPDX-License-Identifier: MIT
"""Ctrl-C beside a command, and the signals that are like it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest

from sampleblk_lab import interrupts

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def pressed() -> Iterator[list[float]]:
    """Seconds after which Ctrl-C comes to this process alone; a group's would be that of pytest."""
    times: list[float] = []
    done = threading.Event()

    def press() -> None:
        while not times:
            if done.wait(0.01):
                return
        for after in times:
            if done.wait(after):
                return
            os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=press)
    thread.start()
    yield times
    done.set()
    thread.join()


def shell(text: str) -> subprocess.Popen[bytes]:
    return interrupts.started(["sh", "-c", text])


def test_the_end_of_a_command_nobody_interrupts() -> None:
    ended = interrupts.end_of(shell("exit 3"))
    assert (ended.returncode, ended.interrupted) == (3, False)
    assert ended.usage.ru_maxrss > 0
    assert interrupts.end_of(shell("kill -9 $$")).returncode == -signal.SIGKILL


@pytest.mark.parametrize("terminal", [False, True])
def test_ctrl_c_is_the_command_s(terminal: bool, pressed: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interrupts, "_TOLD_S", 0.2)
    monkeypatch.setattr(interrupts, "_is_in_foreground", lambda: terminal)
    process = shell("trap 'exit 5' INT; while :; do sleep 0.05; done")
    pressed.append(0.5)
    ended = interrupts.end_of(process)
    assert (ended.returncode, ended.interrupted, process.poll()) == (5, True, 5)


def test_a_command_that_ends_of_itself_is_not_told_again(pressed: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    """As one of our terminal, which has got its Ctrl-C already and is cleaning up."""
    monkeypatch.setattr(interrupts, "_is_in_foreground", lambda: True)
    process = shell("trap 'exit 5' INT; sleep 1; exit 4")
    pressed.append(0.3)
    ended = interrupts.end_of(process)
    assert (ended.returncode, ended.interrupted) == (4, True)


def test_what_a_command_has_started_ends_with_it(pressed: list[float]) -> None:
    """A shell waits for what it runs, whoever interrupts it alone."""
    process = shell("sleep 60; exit 3")
    pressed.append(0.3)
    began = time.monotonic()
    assert interrupts.end_of(process).interrupted
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("terminal", [False, True])
def test_a_command_that_lost_it_is_told_again(
    terminal: bool, pressed: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interrupts, "_TOLD_S", 0.1)
    monkeypatch.setattr(interrupts, "_TOLD_AGAIN_S", 0.4)
    monkeypatch.setattr(interrupts, "_is_in_foreground", lambda: terminal)
    process = shell("trap 'trap \"exit 5\" INT' INT; while :; do sleep 0.05; done")
    pressed.append(0.3)
    assert interrupts.end_of(process).returncode == 5


def test_a_command_that_does_not_end_is_killed(pressed: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interrupts, "_TOLD_AGAIN_S", 0.4)
    monkeypatch.setattr(interrupts, "_KILLED_S", 0.5)
    process = shell("trap '' INT; while :; do sleep 0.05; done")
    pressed.append(0.3)
    assert interrupts.end_of(process).returncode == -signal.SIGKILL


@pytest.mark.parametrize("terminal", [False, True])
def test_a_command_that_cleans_up_is_waited_for(
    terminal: bool, pressed: list[float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As pytest, which unmounts and removes devices; subprocess.run() would kill it."""
    monkeypatch.setattr(interrupts, "_TOLD_S", 0.2)
    monkeypatch.setattr(interrupts, "_is_in_foreground", lambda: terminal)
    end = tmp_path / "end"
    pressed.append(0.3)
    with pytest.raises(KeyboardInterrupt):
        interrupts.run(["sh", "-c", f"trap 'sleep 0.6; echo >{end}; exit' INT; while :; do sleep 0.05; done"])
    assert end.exists()
    assert interrupts.run(["sh", "-c", "exit 3"]) == 3


def test_the_second_ctrl_c_is_ours(pressed: list[float]) -> None:
    process = shell("trap '' INT; while :; do sleep 0.05; done")
    pressed.extend((0.3, 0.3))
    with pytest.raises(KeyboardInterrupt):
        interrupts.end_of(process)
    assert process.returncode == -signal.SIGKILL


def test_a_terminal_s_foreground_is_shared() -> None:
    """As seen from a session of its own, whose terminal is one of pty(7); standard input is something else."""
    code = (
        "import os, pty, sys\n"
        "from sampleblk_lab import interrupts\n"
        "pid, terminal = pty.fork()\n"
        "if pid:\n"
        "    said = b''\n"
        "    while not said.endswith(b'\\n'): said += os.read(terminal, 100)\n"
        "    sys.stdout.write(said.decode()); os.waitpid(pid, 0)\n"
        "else:\n"
        "    null = os.open('/dev/null', os.O_RDONLY); os.dup2(null, 0)\n"
        "    process = interrupts.started(['sleep', '0.1'])\n"
        "    print(os.getpgid(process.pid) == os.getpgrp(), interrupts.end_of(process).returncode)\n"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.split() == ["True", "0"]
    process = subprocess.Popen(
        [sys.executable, "-c", "from sampleblk_lab import interrupts; print(interrupts._is_in_foreground())"],
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.communicate()[0] == b"False\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("ignored", [False, True])
def test_what_is_like_ctrl_c(number: int, ignored: bool) -> None:
    before = signal.getsignal(signal.SIGINT)
    try:
        if ignored:  # as a shell's background has it
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        with interrupts.ended_like_ctrl_c() as came:
            with pytest.raises(KeyboardInterrupt):
                os.kill(os.getpid(), number)
            child = os.fork()
            if child == 0:
                os.kill(os.getpid(), number)
                time.sleep(10)
                os._exit(0)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -number
        assert came == [number]
        assert signal.getsignal(number) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGINT, before)


def test_what_is_like_ctrl_c_is_counted_in_the_background_of_no_terminal() -> None:
    """Where a suite or a sweep counts it, to show what has ended until then."""
    code = (
        "import os, signal\n"
        "from sampleblk_lab import interrupts\n"
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "with interrupts.ended_like_ctrl_c() as came, interrupts.counted_ctrl_c() as pressed:\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    print(pressed(), *map(int, came))\n"
        "print(signal.getsignal(signal.SIGINT) is signal.SIG_IGN)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, start_new_session=True)
    assert (done.stdout.split(), done.stderr) == (["1", "15", "True"], "")


def test_what_somebody_handles_or_ignores_stays_his() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # nohup
    try:
        with interrupts.ended_like_ctrl_c() as came:
            os.kill(os.getpid(), signal.SIGHUP)
        assert came == []
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
