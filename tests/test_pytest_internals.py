# SPDX-License-Identifier: MIT
"""What is done to pytest's own in a guest changes nothing that a session can see."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

# A session's hooks and fixtures, and what a test sees of the modules that are plugins.
PROGRAM = """
import contextlib, io, json, sys
import pytest
from sampleblk_lab.pytest_plugin import internals

seen = {}

class Look:
    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self, session):
        manager = session.config.pluginmanager
        seen["hooks"] = sorted({
            f"{caller.name} {one.function.__module__} {one.function.__qualname__} {one.opts}"
            for plugin in manager.get_plugins()
            for caller in manager.get_hookcallers(plugin) or ()
            for one in caller.get_hookimpls()
        })

with contextlib.ExitStack() as loading, contextlib.redirect_stdout(io.StringIO()) as said:
    if sys.argv[1] == "through":
        loading.enter_context(internals.plugins_seen_through())
        seen["short"] = max(len(dir(module)) for module in internals.own_plugins())
    pytest.main(["-q", "-p", "no:cacheprovider", sys.argv[2]], plugins=[Look()])
    said.truncate(0)
    pytest.main(["-q", "-vv", "-p", "no:cacheprovider", "--fixtures", sys.argv[2]])
    seen["fixtures"] = [line for line in said.getvalue().splitlines() if " -- " in line]
seen["names"] = {module.__name__: dir(module) for module in internals.own_plugins()}
print(json.dumps(seen))
"""


def _seen(how: str, folder: Path) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, how, str(folder)],
        cwd=folder,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    seen: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return seen


def test_no_hook_and_no_fixture_is_missed(tmp_path: Path) -> None:
    (tmp_path / "test_one.py").write_text("def test(): pass\n")
    plain, through = _seen("plain", tmp_path), _seen("through", tmp_path)
    assert through.pop("short") < max(map(len, plain["names"].values())) / 2
    assert through == plain
    assert len(plain["fixtures"]) > 10
    assert len(plain["hooks"]) > 100
