# SPDX-License-Identifier: MIT
"""The kernel's function profiler, which Debian's kernels have not: on files like those of tracefs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import sampleblk_lab as lab
from sampleblk_lab import leftovers
from sampleblk_lab._native import core

STAT = """\
  Function                               Hit    Time            Avg             s^2
  --------                               ---    ----            ---             ---
  vfs_write                                3    12.000 us       4.000 us        1.000 us
"""


@pytest.fixture
def top(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder, notes = tmp_path / "tracing", tmp_path / "notes"
    (folder / "trace_stat").mkdir(parents=True)
    notes.mkdir()
    names = {"set_ftrace_filter": "#### all functions enabled ####\n", "set_ftrace_notrace": "", "set_event": ""}
    for name, text in {**names, "current_tracer": "nop\n", "function_profile_enabled": "0\n"}.items():
        (folder / name).write_text(text)
    (folder / "trace_stat/function0").write_text(STAT)
    monkeypatch.setattr(core, "tracefs_dir", lambda: str(folder))
    monkeypatch.setattr(leftovers, "directory", lambda: notes)
    return folder


def test_the_kernels_own_profiler_is_one_profiles_at_a_time(top: Path) -> None:
    enabled = top / "function_profile_enabled"
    with lab.FunctionProfile("vfs_*") as profile:
        assert enabled.read_text() == "1"
        assert "vfs_*" in (top / "set_ftrace_filter").read_text()
        # It has one filter and one table, so that a second one would count for both.
        with (
            pytest.raises(lab.UnsupportedError, match="another session, of this process or another one"),
            lab.FunctionProfile("ext4_*"),
        ):
            pytest.fail("it counts")
        assert enabled.read_text() == "1"
        assert "ext4_*" not in (top / "set_ftrace_filter").read_text()
        with pytest.raises(RuntimeError, match="a FunctionProfile counts once"):
            profile.start()
        if (child := os.fork()) == 0:
            try:
                profile.stop()
            except RuntimeError:
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert enabled.read_text() == "1"
    assert enabled.read_text().strip() == "0"
    assert "vfs_*" not in (top / "set_ftrace_filter").read_text()
    table = profile.table()
    assert table["hits"]["vfs_write"] == 3
    assert table.metadata["source"] == "trace_stat"
    profile.stop()
    with lab.FunctionProfile("vfs_read"):
        pass
