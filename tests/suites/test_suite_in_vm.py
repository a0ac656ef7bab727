# SPDX-License-Identifier: MIT
"""Tests of a suite in VMs: each ends in its own way, and only for itself; what ended is not run again."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from sampleblk_lab.cli import main

pytestmark = pytest.mark.usefixtures("suite_packages")


@pytest.mark.usefixtures("no_leftovers")
def test_each_test_ends_in_its_own_way_and_a_panic_costs_one(
    miniature: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = _content(miniature)
    run = ["xfstests", "--checkout", str(miniature), "--kernel", "6.1", "--capacity", "64M", "--memory", "1G"]
    folder = tmp_path / "run"
    words = ["-g", "auto", "-n", "2", "--folder", str(folder), "--deadline", "40", "--json"]
    assert main([*run, *words]) == 1
    said = json.loads(capsys.readouterr().out)
    rows = {row["test"]: row for row in said["tests"]}
    assert {name: row["status"] for name, row in rows.items()} == {
        "generic/001": "passed",
        "generic/002": "failed",
        "generic/003": "notrun",
        "generic/004": "panic",
        "generic/005": "hang",
        "generic/006": "passed",
        "generic/007": "passed",
    }
    assert rows["generic/002"]["reason"] == "output mismatch (see 002.out.bad)"
    assert (folder / rows["generic/002"]["files"] / "results/generic/002.out.bad").read_text() == "wrong\n"
    assert said["notrun"] == {"nothing for this test": 1}
    assert rows["generic/004"]["reason"] == "Kernel panic - not syncing: sysrq triggered crash"
    assert "sysrq" in (folder / rows["generic/004"]["files"] / "console.txt").read_text()
    assert "blocked in the kernel: touch" in rows["generic/005"]["reason"]
    assert "task:touch" in (folder / rows["generic/005"]["files"] / "console.txt").read_text()
    assert (said["new"], said["ok"]) == (["generic/002", "generic/004", "generic/005"], False)
    suite = ET.fromstring((folder / "junit.xml").read_bytes())
    assert {case.get("name"): [child.tag for child in case] for case in suite} == {
        "generic/001": [],
        "generic/002": ["failure"],
        "generic/003": ["skipped"],
        "generic/004": ["error"],
        "generic/005": ["error"],
        "generic/006": [],
        "generic/007": [],
    }
    # The checkout is as it was.
    assert _content(miniature) == before
    # All is done: nothing runs again, and its failures are known to a run that is held against it.
    journal = (folder / "journal.jsonl").read_bytes()
    earlier = shutil.copytree(folder, tmp_path / "earlier")
    assert main([*run, "--folder", str(folder), "--resume", "--quiet", "--baseline", str(earlier)]) == 0
    assert (folder / "journal.jsonl").read_bytes() == journal
    assert "7 tests: 3 passed, 1 notrun, 1 failed, 1 panic, 1 hang" in capsys.readouterr().out


def test_what_ended_before_ctrl_c_is_not_run_again(miniature: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    options = ["--checkout", str(miniature), "--kernel", "6.1", "--capacity", "64M", "--memory", "1G", "-n", "1"]
    command = [
        str(Path(sys.executable).with_name("sampleblk-lab")),
        "xfstests",
        *options,
        "--folder",
        str(folder),
        "--quiet",
    ]
    with subprocess.Popen([*command, "generic/003", "generic/005"], stdout=subprocess.PIPE, text=True) as process:
        end = time.monotonic() + 300
        while not (folder / "journal.jsonl").exists() or not (folder / "journal.jsonl").read_bytes():
            assert process.poll() is None
            assert time.monotonic() < end
            time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "not judged: generic/005" in out
    [line] = (folder / "journal.jsonl").read_text().splitlines()
    again = [*command, "--resume", "--deadline", "15"]
    # What is asked for on the way is not passed over in silence.
    for other, said in ((("--fs", "ext2"), "setup {'fs': 'ext4'"), (("-e", "generic/005"), "tests ('generic/003', ")):
        done = subprocess.run([*again, *other], capture_output=True, text=True, check=False)
        assert done.returncode == 2, done.stderr
        assert f"{folder} has another run: {said}" in done.stderr
    done = subprocess.run(again, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "2 tests: 1 notrun, 1 hang" in done.stdout
    first, second = (folder / "journal.jsonl").read_text().splitlines()
    assert first == line
    assert json.loads(second)["test"] == "generic/005"


@pytest.mark.full
@pytest.mark.parametrize(
    ("suite", "tests"),
    [
        # 042 mounts a file and does not say that it needs loop devices; 081 has LVM use our device.
        (
            "xfstests",
            dict.fromkeys(("generic/001", "generic/042", "generic/081", "generic/258", "generic/260"), "passed"),
        ),
        ("blktests", {"block/003": "passed", "block/009": "passed", "block/019": "notrun"}),
    ],
)
def test_the_suite_itself(
    suite: str, tests: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    variable = f"SAMPLEBLK_{suite.upper()}"
    if not os.environ.get(variable):
        pytest.skip(f"{variable} names no checkout of {suite}")
    main([suite, *tests, "--kernel", "6.1", "--folder", str(tmp_path), "--json", "--quiet"])
    said = json.loads(capsys.readouterr().out)
    assert {row["test"]: row["status"] for row in said["tests"]} == tests


def _content(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Every file, git's own ones too."""
    return {
        str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.read_bytes())
        for path in folder.rglob("*")
        if path.is_file()
    }
