# SPDX-License-Identifier: MIT
"""The fast lane's runner: a case that was disturbed is named, everything else fails the run."""

from __future__ import annotations

from pathlib import Path

import pytest

import lane

PASSES = "def test_a():\n    pass\n"
FAILS = "def test_a():\n    assert False\n"
ONCE = """\
from pathlib import Path
def test_a():
    seen = Path(__file__).with_suffix(".seen")
    first = not seen.exists()
    seen.touch()
    assert not first
"""
OPTIONS = ["-c", "/dev/null", "--rootdir=."]


@pytest.fixture(autouse=True)
def _no_plugins(monkeypatch):
    """Each case is several pytests."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")


@pytest.fixture
def ran(tmp_path, monkeypatch, capfd):
    """Runs files of cases, those of each stream in a folder of its own; returns the status and what was printed."""
    monkeypatch.chdir(tmp_path)

    def ran(**folders: dict[str, str]) -> tuple[int, str]:
        for name, files in folders.items():
            Path(name).mkdir()
            for file, text in files.items():
                Path(name, f"test_{name}_{file}.py").write_text(text)
        status = lane.run(*([lane.Stream(name, [name], OPTIONS)] for name in folders))
        return status, capfd.readouterr().out

    return ran


def test_what_passes_passes(ran):
    status, out = ran(vm={"a": PASSES}, host={"a": PASSES})
    assert status == 0
    assert "again" not in out
    assert "vm   | " in out
    assert "host | " in out


def test_a_case_that_was_disturbed_is_named(ran):
    status, out = ran(vm={"a": PASSES}, host={"a": ONCE, "b": PASSES})
    assert status == 0
    assert "host: again, with nothing beside: host/test_host_a.py" in out
    assert "host: failed beside another stream: host/test_host_a.py::test_a" in out


def test_a_case_that_fails_twice_has_failed(ran):
    status, out = ran(vm={"a": FAILS}, host={"a": ONCE})
    assert status == 1
    assert "vm: failed beside another stream: vm/test_vm_a.py::test_a" in out


def test_many_disturbed_cases_fail_the_run(ran):
    status, out = ran(vm={"a": ONCE}, host=dict.fromkeys("abc", ONCE))
    assert status == 1
    assert "4 cases failed; no more than 3 are tried again" in out


@pytest.mark.parametrize(
    "text",
    [
        "import no_such_module\n",
        "import os\ndef test_a():\n    os._exit(1)\n",
        "",
        "def test_a():\n    raise KeyboardInterrupt\n",
    ],
    ids=["not-collected", "ended-early", "no-cases", "interrupted"],
)
def test_a_stream_that_ends_otherwise_is_not_tried_again(ran, text):
    status, out = ran(vm={"a": text}, host={"a": PASSES})
    assert status == 1
    assert "again" not in out


def test_a_failing_case_beside_a_broken_stream_fails(ran):
    assert ran(vm={"a": ONCE}, host={"a": ""})[0] == 1


def test_a_queue_s_streams_follow_each_other_whatever_the_first_says(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    for name, text in {"first": "import no_such_module\n", "then": PASSES}.items():
        Path(f"test_{name}.py").write_text(text)
    assert lane.run([lane.Stream(name, [f"test_{name}.py"], OPTIONS) for name in ("first", "then")]) == 1
    out = capfd.readouterr().out
    assert "first ended with status 2" in out
    assert out.index("first| ") < out.index("then | ")
    assert "1 passed" in out
