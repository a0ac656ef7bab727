# SPDX-License-Identifier: MIT
"""Notes of what was made: whose they are, with processes that were forked meanwhile."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from sampleblk_lab import leftovers
from sampleblk_lab._native import core
from sampleblk_lab.errors import UnsupportedError

# Notes a mount and a change of a file, forks a child that waits, as a pool's worker does, and dies.
_MAKER = textwrap.dedent("""
    import os, sys, threading
    from pathlib import Path
    from sampleblk_lab import leftovers
    from sampleblk_lab._native import core
    folder, knob = map(Path, sys.argv[1:])
    leftovers.directory = lambda: folder
    leftovers.note("mount", "/nowhere", device="none", made=False)
    undo = core.UndoLog(str(folder))
    undo.set(str(knob), "changed")
    # Whatever another thread of ours does just now: it is not there in the child, to let go of anything.
    with leftovers._lock:
        child = os.fork()
    if child == 0:
        leftovers.note("mount", "/elsewhere", device="none", made=False)
        leftovers.drop("mount", "/elsewhere")
        assert not undo.undo()
        print("child", flush=True)
        sys.stdin.read()
        os._exit(0)
    os.kill(os.getpid(), 9)
""")


def test_notes_are_not_held_by_a_child_that_outlives_their_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, knob = tmp_path / "notes", tmp_path / "knob"
    folder.mkdir()
    knob.write_text("before")
    monkeypatch.setattr(leftovers, "directory", lambda: folder)
    command = [sys.executable, "-c", _MAKER, str(folder), str(knob)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as maker:
        assert maker.stdout is not None
        assert maker.stdout.readline() == "child\n"
        os.waitid(os.P_PID, maker.pid, os.WEXITED | os.WNOWAIT)
        assert knob.read_text() == "changed"  # the child has not undone what is not its own
        assert leftovers.pending() == ["mount /nowhere"]
        assert leftovers.clean() == [f"knob {knob}"]  # nothing is mounted there
        assert knob.read_text() == "before"
        assert not list(folder.iterdir())
        assert core.recover_tracing(str(folder)) == []


def test_notes_in_another_user_s_folder_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a user without a folder of the session's lie in /tmp, and say which files to write what to."""
    user = 1_234_567
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setattr(os, "getuid", lambda: user)
    monkeypatch.setattr(os, "geteuid", lambda: user)
    folder = Path(f"/tmp/user-{user}")
    folder.mkdir()
    try:
        with pytest.raises(UnsupportedError, match=f"{folder} is somebody else's"):
            leftovers.clean()
        os.chown(folder, user, -1)
        assert leftovers.directory() == folder / "sampleblk-lab"
    finally:
        folder.rmdir()
    folder.symlink_to("/root")
    try:
        os.chown(folder, user, -1, follow_symlinks=False)
        with pytest.raises(UnsupportedError):
            leftovers.pending()
    finally:
        folder.unlink()
