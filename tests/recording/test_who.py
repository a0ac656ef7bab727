# SPDX-License-Identifier: MIT
"""Whom ``pids=`` means."""

from __future__ import annotations

import subprocess
import sys

FORKED = """
import os, threading
from sampleblk_lab import tasks
child = os.fork()
if child == 0:
    mine = [os.getpid()]
    wrong = tasks.ids(threading.current_thread()) != mine or tasks.ids(threading.main_thread()) != mine
    seen = []
    both = lambda: [threading.current_thread(), threading.main_thread()]
    thread = threading.Thread(target=lambda: seen.extend(tasks.ids(both())))
    thread.start()
    thread.join()
    os._exit(wrong or seen != [thread.native_id, os.getpid()])
os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_threads_of_a_forked_process_are_its_own() -> None:
    assert subprocess.run([sys.executable, "-c", FORKED], check=False, timeout=60).returncode == 0
