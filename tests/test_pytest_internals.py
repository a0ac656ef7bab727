# SPDX-License-Identifier: MIT
"""What is done to pytest's own in a guest changes nothing that a session can see."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

# A session's hooks and fixtures, and what a test sees of the modules that are plugins.
PROGRAM = """
import contextlib, io, json, os, sys
import pytest
from sampleblk_lab.pytest_plugin import internals

seen = {}
environment = dict(os.environ)

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
        config = session.config
        seen["options"] = {name: repr(value) for name, value in vars(config.option).items()}
        seen["inis"] = sorted(config._parser._inidict)
        seen["cache"] = config.getini("cache_dir")
        seen["plugins"] = sorted(name for name, one in manager.list_name_plugin() if one and name != str(id(one)))
        seen["params"] = [str(part) for part in (config.invocation_params.args, config.invocation_params.dir)]
        seen["usage"] = config._parser.optparser.format_help() if hasattr(config._parser, "optparser") else ""

if sys.argv[1] == "begun":
    os.environ.pop("TOX_ENV_DIR", None)  # of whoever begins, not of the session
    internals.begin()
    os.environ.clear()
    os.environ.update(environment)
with contextlib.ExitStack() as loading, contextlib.redirect_stdout(io.StringIO()) as said:
    if sys.argv[1] == "through":
        loading.enter_context(internals.plugins_seen_through())
        seen["short"] = max(len(dir(module)) for module in internals.own_plugins())
    if sys.argv[1] == "begun":
        loading.enter_context(internals.begun_before())
        seen["before"] = len(internals._begun)
    pytest.main([*sys.argv[3:], "-q", sys.argv[2]], plugins=[Look()])
    if sys.argv[1] == "begun":
        seen["after"] = len(internals._begun)
    said.truncate(0)
    pytest.main(["-q", "-vv", "-p", "no:cacheprovider", "--fixtures", sys.argv[2]])
    seen["fixtures"] = [line for line in said.getvalue().splitlines() if " -- " in line]
seen["names"] = {module.__name__: dir(module) for module in internals.own_plugins()}
print(json.dumps(seen))
"""


def _seen(how: str, folder: Path, *arguments: str, **environment: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, how, str(folder), *arguments],
        cwd=folder,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **environment},
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


@pytest.mark.parametrize(
    ("arguments", "environment", "taken"),
    [
        ((), {}, 1),
        (("-p", "no:xdist", "--maxfail=3", "-p", "pytester"), {}, 1),
        (("-p", "no:doctest"), {}, 0),
        (("-pno:cacheprovider",), {}, 0),
        ((), {"TOX_ENV_DIR": "/tox"}, 0),
    ],
)
def test_a_session_that_was_begun_before_is_as_any(
    arguments: tuple[str, ...], environment: dict[str, str], taken: int, tmp_path: Path
) -> None:
    (tmp_path / "test_one.py").write_text("def test(): pass\n")
    plain = _seen("plain", tmp_path, *arguments, **environment)
    begun = _seen("begun", tmp_path, *arguments, **environment)
    assert begun.pop("before") - begun.pop("after") == taken
    assert begun == plain
    assert len(plain["options"]) > 50
