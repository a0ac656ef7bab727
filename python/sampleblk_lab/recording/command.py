# SPDX-License-Identifier: MIT
"""A command, recorded from its execve() to its end."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import time
from typing import TYPE_CHECKING, Any

from sampleblk_lab import trust
from sampleblk_lab.interrupts import end_of, kill, started

if TYPE_CHECKING:
    from sampleblk_lab.analysis.run import Run
    from sampleblk_lab.recording.recorder import Recorder

# Stops before it becomes the command: there is then a process that the recording can be limited to, and what it does
# after it is told to go on is the command's own execve().
_HELD = ("/bin/sh", "-c", 'kill -STOP $$; exec "$@"', "sh")


def record_command(recorder: Recorder, words: list[str], options: dict[str, Any]) -> Run:
    """Runs the command to its end while `recorder` follows it and what it starts; see :func:`record`."""
    folder = options.get("cwd") or "."
    environment = options.get("env") or os.environ
    # A relative path with a folder in it is seen from the command's own directory, as execve() does.
    program = (
        os.path.join(folder, words[0])  # noqa: PTH118
        if "/" in words[0]
        else shutil.which(words[0], path=environment.get("PATH", os.defpath))
    )
    if program is None or not os.path.exists(program):  # noqa: PTH110
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), words[0])
    if not os.access(program, os.X_OK) or os.path.isdir(program):  # noqa: PTH112
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), words[0])
    process = started([*_HELD, os.path.abspath(program), *words[1:]], **options)  # noqa: PTH100
    try:
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        recorder.add_pids(process.pid)
        recorder.start()
        began = time.monotonic_ns()
        process.send_signal(signal.SIGCONT)
        ended = end_of(process)
        took = time.monotonic_ns() - began
    except BaseException:
        kill(process)
        recorder.close()
        raise
    run = recorder.stop()
    if ended.interrupted and trust.is_asked():
        raise KeyboardInterrupt
    told = {
        "command": words,
        "returncode": ended.returncode,
        "interrupted": ended.interrupted,
        "elapsed_s": took / 1e9,
        "user_s": ended.usage.ru_utime,
        "system_s": ended.usage.ru_stime,
    }
    recorder.attach("command.json", json.dumps(told, indent=1) + "\n")
    return run
