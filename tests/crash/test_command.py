# SPDX-License-Identifier: MIT
"""``sampleblk-lab crash``, as its users meet it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from crash.logs import DISCARD, FLUSH, FUA, MARK, SECTOR, log_writes
from sampleblk_lab import crash
from sampleblk_lab.cli import main

CHECK = """
def half(image, state):
    data = image.read_bytes()
    assert data[0] == data[512], "half a transfer"

def fine(image, state):
    assert image.stat().st_size > 0

number = 7
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a log of a transfer between two accounts, its base, and checks of it; the working directory."""
    old, new = b"\1" * SECTOR, b"\2" * SECTOR
    data = log_writes(
        (MARK, 0, b"begin"),
        *((0, 0, old), (0, 1, old), (FLUSH, 0, 0), (DISCARD, 4, 2), (0, 0, new), (FUA, 1, new)),
        (MARK, 0, b"paid"),
    )
    (tmp_path / "log").write_bytes(data)
    (tmp_path / "base.img").write_bytes(bytes(8 * SECTOR))
    (tmp_path / "accounts.py").write_text(CHECK)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "accounts", raising=False)
    return tmp_path


def test_show_says_what_a_log_holds(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["crash", "show", "log", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    log = crash.Log(folder / "log", base="zeros")
    assert (said["format"], said["writes"], said["zeroes"], said["fua"], said["flushes"]) == (
        *("dm-log-writes", 4, 1, 1, 1),
    )
    assert (said["written_bytes"], said["end_bytes"], said["disk_bytes"]) == (6 * SECTOR, 6 * SECTOR, None)
    assert [mark["text"] for mark in said["marks"]] == ["begin", "paid"]
    assert said["states"]["prefix"] == 6
    assert said["states"]["reorder"] == len(list(log.states(crash.Reorder())))
    assert main(["crash", "show", "."]) == 0
    text = capsys.readouterr().out
    assert "4 writes (1 with FUA), 1 discards and write-zeroes, 1 flushes" in text
    assert "'paid'" in text


@pytest.mark.parametrize("workers", [[], ["--workers", "1"], ["--workers", "3"]])
def test_explore_finds_what_a_function_refuses(
    folder: Path, capsys: pytest.CaptureFixture[str], workers: list[str]
) -> None:
    arguments = ["crash", "explore", "log", "--base", "base.img", *workers]
    assert main([*arguments, "--check", "accounts:half"]) == 1
    assert "1 failed" in (said := capsys.readouterr().out)
    assert "half a transfer" in said
    assert main([*arguments, "--check", "accounts:half", "--failures", "9", "--json"]) == 1
    said_json = json.loads(capsys.readouterr().out)
    assert (said_json["complete"], said_json["interrupted"]) == (True, False)
    assert [failure["message"].splitlines()[0] for failure in said_json["failures"]][:1] == ["half a transfer"]
    assert main([*arguments, "--check", "accounts:fine", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["failures"] == []
    for model, of_its_own in (("prefix", []), ("torn", ["--block", "512"]), ("sample", ["--seed", "4"])):
        argv = [*arguments, "--check", "accounts:fine", "--model", model, "--states", "3", *of_its_own]
        assert main(argv) == 0
        assert "3 with contents of their own" in capsys.readouterr().out
    assert list(folder.glob("sampleblk-crash-*")) == []


def test_a_check_s_message_does_nothing_to_the_terminal(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with (folder / "accounts.py").open("a") as file:
        file.write("\ndef clears(image, state):\n    raise AssertionError('\\x1b[2J all is\\twell')\n")
    assert main(["crash", "explore", ".", "--check", "accounts:clears", "--workers", "1"]) == 1
    assert "\\x1b[2J all is\twell" in capsys.readouterr().out


def test_a_check_that_ends_its_process_is_no_verdict(folder: Path) -> None:
    with (folder / "accounts.py").open("a") as file:
        file.write("\ndef leaves(image, state):\n    import os\n    os._exit(0)\n")
    command = ["crash", "explore", ".", "--check", "accounts:leaves", "--workers", "1"]
    done = subprocess.run(
        [sys.executable, "-c", "from sampleblk_lab.cli import main; raise SystemExit(main())", *command],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert "a worker ended by itself, with exit status 0" in done.stderr


def test_what_was_found_is_told_where_it_cannot_be_written(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["crash", "explore", ".", "--check", "accounts:half", "--json"]
    (folder / "failures").touch()
    for where in (["--save", "failures"], ["--report", "nowhere/page.html"]):
        assert main([*command, *where]) == 1
        told = capsys.readouterr()
        found = json.loads(told.out)
        assert (len(found["failures"]), found["saved"], found["report"]) == (1, [], None)
        assert where[1] in told.err


@pytest.mark.usefixtures("folder")
def test_a_disk_that_breaks_its_promises_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    totals = []
    for promises in ([], ["--no-flush"], ["--no-flush", "--no-fua"]):
        main(["crash", "explore", ".", "--check", "accounts:fine", "--json", *promises])
        totals.append(json.loads(capsys.readouterr().out)["total"])
    assert totals[0] < totals[1] <= totals[2]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["explore", "log", "--check", "accounts:half"], "what the disk held before is not known"),
        (["explore", "."], "nothing is checked"),
        (["explore", ".", "--fs", "xfs"], "file system 'xfs'"),
        (["explore", ".", "--fs", "zfs", "--mount"], "file system 'zfs'"),
        (["explore", ".", "--check", "accounts"], "'accounts' is not the name of a function"),
        (["explore", ".", "--check", "accounts:none"], "has no attribute 'none'"),
        (["explore", ".", "--check", "accounts:number"], "'accounts:number' is not a function"),
        (["explore", ".", "--check", "no_such_module:f"], "No module named 'no_such_module'"),
        (["explore", ".", "--check", "accounts:fine", "--model", "sample"], "a sample without an end"),
        (["explore", ".", "--check", "accounts:fine", "--workers", "0"], "workers=0"),
        (["explore", ".", "--check", "accounts:fine", "--failures", "0"], "failures=0"),
        (["explore", ".", "--check", "accounts:fine", "--model", "torn", "--block", "100"], "a block of 100 bytes"),
        (
            ["explore", ".", "--check", "accounts:fine", "--seed", "4"],
            "--seed 4 changes nothing here (expected it with --model sample)",
        ),
        (["explore", ".", "--check", "accounts:fine", "--block", "512"], "expected it with --model torn or sample"),
        (["explore", ".", "--check", "accounts:fine", "--model", "torn", "--at-most", "2"], "with --model reorder"),
        (["explore", ".", "--check", "accounts:fine", "--complete-up-to", "99"], "at most 24"),
        (["import", "log", "new"], "what the disk held before is not known"),
        (["import", "", "new"], "LOG '' (expected a journal, a log of dm-log-writes, or a recording's folder)"),
        (["import", "log", "", "--base", "base.img"], "FOLDER '' (expected the recording to make)"),
        (["import", "log", ".", "--base", "base.img"], "base.img exists"),
        (["import", "log", "new", "--base", "small.img"], "its base has 512"),
    ],
)
def test_what_cannot_be_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    (folder / "small.img").write_bytes(bytes(SECTOR))
    assert main(["crash", *arguments]) == 2
    assert said in capsys.readouterr().err
    assert not (folder / "new").exists()


def test_files_that_are_not_there_are_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["crash", "show", "nothing"]) == 2
    assert "nothing" in capsys.readouterr().err
    (folder / "log").write_bytes(b"x" * 600)
    assert main(["crash", "show", "log"]) == 2
    assert "magic number" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--seconds", "nan"], "seconds=nan (expected seconds, 0 or more"),
        (["--states", "-1"], "states=-1 (expected a whole number from 0"),
        (["--failures", "0"], "failures=0 (expected a whole number from 1"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_an_end_that_cannot_be_is_named(options: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["crash", "explore", "--base", "zeros", "--fs", "ext4", *options, "log"]) == 2
    assert said in capsys.readouterr().err


def test_import_keeps_what_a_device_of_dm_log_writes_holds(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = (folder / "log").read_bytes()
    (folder / "device").write_bytes(log + bytes(100_000))
    (folder / "base.img").write_bytes(bytes(3 << 20) + b"end".ljust(SECTOR, b"."))
    assert main(["crash", "import", "device", "kept", "--base", "base.img"]) == 0
    assert "5 writes to a disk of 3146240 bytes" in capsys.readouterr().out
    assert (folder / "kept/log").read_bytes() == log
    assert (folder / "kept/base.img").read_bytes() == (folder / "base.img").read_bytes()
    assert (folder / "kept/base.img").stat().st_blocks * 512 < 1 << 20
    assert main(["crash", "explore", "kept", "--check", "accounts:fine"]) == 0
    assert main(["crash", "import", "device", "nothing", "--base", "zeros"]) == 0
    capsys.readouterr()
    assert main(["crash", "import", "device", "the 'new'", "--base", "zeros"]) == 0
    assert """; sampleblk-lab crash explore 'the '"'"'new'"'"'' …""" in capsys.readouterr().out
    assert (folder / "nothing/base.img").read_bytes() == bytes(6 * SECTOR)


def test_ctrl_c_says_what_was_found(folder: Path) -> None:
    (folder / "slow.py").write_text(
        "import os, pathlib, time\n"
        "def check(image, state):\n"
        "    pathlib.Path(f'begun-{os.getpid()}').touch()\n"
        "    time.sleep(600 if state.submitted > 1 else 0)\n"
    )
    # Where these tests run in the background of a script, Ctrl-C is ignored, and so by all that they start.
    program = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler);"
        "from sampleblk_lab.cli import main; raise SystemExit(main())"
    )
    command = [sys.executable, "-c", program, "crash", "explore", ".", "--check", "slow:check"]
    with subprocess.Popen([*command, "--workers", "2"], stdout=subprocess.PIPE, text=True) as running:
        end = time.monotonic() + 60
        while len(list(folder.glob("begun-*"))) < 2 and time.monotonic() < end:
            time.sleep(0.05)
        time.sleep(0.5)
        running.send_signal(2)
        try:
            said, _ = running.communicate(timeout=60)
        finally:
            running.kill()
    assert running.returncode == 130
    assert "interrupted: 0 failed" in said
    for mark in folder.glob("begun-*"):
        with pytest.raises(ProcessLookupError):
            os.kill(int(mark.name.partition("-")[2]), 0)


def test_failures_are_saved_where_asked(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["crash", "explore", ".", "--check", "accounts:half", "--workers", "1", "--save", "kept"]
    assert main([*arguments, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["saved"] == ["kept/failure-1"]
    assert (folder / "kept/failure-1/test_crash_state.py").exists()
    assert main(arguments) == 2
    assert "exists" in capsys.readouterr().err


def test_a_page_is_written_where_asked(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["crash", "explore", ".", "--workers", "1", "--report", "page.html"]
    assert main([*arguments, "--check", "accounts:half", "--save", "kept"]) == 1
    assert "report: page.html" in capsys.readouterr().out
    page = (folder / "page.html").read_text()
    assert page.count("data:image/svg+xml") == 2
    assert "pytest kept/failure-1" in page
    assert main([*arguments, "--check", "accounts:fine", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["report"] == "page.html"
    assert "No failure." in (folder / "page.html").read_text()
    assert main(["crash", "explore", ".", "--check", "accounts:fine", "--report", "none/page.html"]) == 1
    assert "none/page.html" in capsys.readouterr().err
