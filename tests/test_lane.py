# SPDX-License-Identifier: MIT
"""The fast lane's runner: a case that was disturbed is named, everything else fails the run."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

import lane

ROOT = Path(__file__).parents[1]
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


@pytest.mark.parametrize(("recipe", "status"), [("true", 0), ("false", 1)])
def test_what_make_makes_is_as_good_as_a_stream_of_cases(recipe, status, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    Path("test_a.py").write_text(PASSES)
    Path("Makefile").write_text(f"it:\n\techo niceness $$(nice)\n\t{recipe}\n")
    assert lane.run([lane.Made("made", ["it"])], [lane.Stream("host", ["test_a.py"], OPTIONS)]) == status
    out = capfd.readouterr().out
    assert re.search(r"^made \| niceness [1-9]", out, re.MULTILINE)
    assert ("made ended with status 2" in out) == bool(status)


def test_each_case_is_in_one_stream_of_the_lane(monkeypatch):
    """Whatever folders and files there will be."""
    queues = []
    monkeypatch.setattr(lane, "run", lambda *each: queues.extend(each) or 0)
    monkeypatch.setattr(sys, "argv", ["lane.py", "6.1", "test-cpp"])
    monkeypatch.chdir(ROOT)
    assert lane.main() == 0
    streams = [stream for queue in queues for stream in queue]
    assert [stream.cases for stream in streams if isinstance(stream, lane.Made)] == [["test-cpp"]]
    files = {path.relative_to(ROOT) for path in (ROOT / "tests").rglob("test_*.py")}
    taken = []
    for stream in streams:
        within = [Path(case) for case in stream.cases if not case.startswith("-")] or [Path("tests")]
        ignored = [Path(case.removeprefix("--ignore=")) for case in stream.cases if case.startswith("--ignore=")]
        below = lambda path, folders: any(each == path or each in path.parents for each in folders)  # noqa: E731
        taken += [path for path in files if below(path, within) and not below(path, ignored)]
    assert sorted(taken) == sorted(files)
