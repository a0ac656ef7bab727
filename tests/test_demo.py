# SPDX-License-Identifier: MIT
"""The demo: the article's numbers, by our table, by trace-cmd and by the driver; and its report."""

import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest

from sampleblk_lab import open_run
from sampleblk_lab.cli.main import main
from sampleblk_lab.demo import host
from support import script

LOOPS = 20
EXPECTED = {"write": 20480, "fadvise64": 80, "openat": 40, "close": 40}


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The demo's run directory, and what it printed."""
    run_dir = tmp_path_factory.mktemp("demo") / "run"
    command = [script("sampleblk-lab"), "demo", "--loops", str(LOOPS), "--run-dir", str(run_dir)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return run_dir, done.stdout


def test_counts_each_system_call_of_the_job_phase(demo: tuple[Path, str]) -> None:
    table = open_run(demo[0] / "job").syscalls().summary()
    assert {name: table["calls"][name] for name in EXPECTED} == EXPECTED
    assert table.metadata["lost_events"] == "0"


def test_trace_cmd_counts_the_same_in_the_same_file(demo: tuple[Path, str]) -> None:
    if shutil.which("trace-cmd") is None:
        pytest.skip("trace-cmd is not installed")
    run_dir, _ = demo
    pids = json.loads((run_dir / "job/recording.json").read_text())["pids"]
    assert len(pids) == 2
    report = subprocess.run(
        ["trace-cmd", "report", "-i", str(run_dir / "job/trace.dat")], capture_output=True, text=True, check=True
    ).stdout
    entered = re.findall(rf"-(?:{'|'.join(map(str, pids))}) +\[\d+\].*? sys_enter_(\w+):", report)
    assert {name: entered.count(name) for name in EXPECTED} == EXPECTED


def test_the_driver_s_bytes_are_what_the_page_cache_let_through(demo: tuple[Path, str]) -> None:
    """Write-back reaches the device once per dirty page: no more than was written, and what block events saw."""
    run_dir, _ = demo
    counters = json.loads((run_dir / "counters.json").read_text())
    run = open_run(run_dir / "job")
    written = LOOPS * 2 * 512 * 4096
    assert 2 << 20 <= counters["write_bytes"] <= written + (8 << 20)
    issued = run.events("block:block_rq_issue")
    data = sum(
        size
        for size, kind in zip(issued["bytes"], issued["rwbs"], strict=True)
        if isinstance(size, int) and str(kind).startswith(("W", "FW"))
    )
    # The recording sees the jobs' own write-back; unmount and journal threads add to the driver's count.
    assert data <= counters["write_bytes"] <= data + (4 << 20)


def test_one_fadvise64_is_followed_down_to_the_driver(demo: tuple[Path, str]) -> None:
    printed = demo[1]
    path = printed[printed.index("== One fadvise64 down into the driver ==") :]
    steps = ["fadvise64", "generic_fadvise", "ext4_writepages [ext4]", "sampleblk_queue_rqs [sampleblk]"]
    positions = [path.index(f"→ {step}") if "[" in step else path.index(step) for step in steps]
    assert positions == sorted(positions)


def test_prints_every_part_and_where_the_report_is(demo: tuple[Path, str]) -> None:
    run_dir, printed = demo
    for part in (
        "job1: (groupid=0, jobs=1): err= 0",
        "% time     seconds  usecs/call",
        "Write I/O size (bytes):",
        "write_bytes",
    ):
        assert part in printed
    assert f"The report: {run_dir}/report.html" in printed
    assert json.loads((run_dir / "result.json").read_text())["jobs"][0]["write"]["total_ios"] == LOOPS * 512
    environment = json.loads((run_dir / "env.json").read_text())
    assert environment["vm"]["kernel"].startswith("6.")
    assert environment["accel"] == environment["vm"]["accel"]


def test_what_it_prints_for_programs(demo: tuple[Path, str], capsys: pytest.CaptureFixture[str]) -> None:
    run_dir, _ = demo
    assert host.show(run_dir, LOOPS, quiet=True) == run_dir / "report.html"
    assert capsys.readouterr().out == ""
    said = json.loads(json.dumps(host.facts(run_dir)))
    calls = {row["syscall"]: row["calls"] for row in said["syscalls"]}
    assert {name: calls[name] for name in EXPECTED} == EXPECTED
    assert said["fadvise64"]["target_calls"] >= 1
    assert said["counters"]["write_bytes"] > 0


class _Page(HTMLParser):
    """Collects what a page loads from elsewhere, and whether its tags match."""

    VOID = frozenset({"meta", "br", "hr", "img", "input", "link"})

    def __init__(self) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.loads += [
            value or ""
            for name, value in attrs
            if name in ("src", "href") and not (value or "").startswith(("#", "data:"))
        ]
        if tag in ("script", "iframe"):
            self.loads.append(tag)
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_report_is_one_self_contained_page(demo: tuple[Path, str]) -> None:
    text = (demo[0] / "report.html").read_text()
    page = _Page()
    page.feed(text)
    assert page.open == []
    assert page.loads == []
    assert "url(" not in text
    assert "20,480" in text
    assert "sampleblk_queue_rqs [sampleblk]" in text


def test_its_report_is_that_of_a_run(demo: tuple[Path, str], tmp_path: Path) -> None:
    """`sampleblk-lab report` makes the same page of the demo's directory."""
    done = subprocess.run(
        [script("sampleblk-lab"), "report", str(demo[0]), "-o", str(tmp_path / "again.html")], check=False
    )
    assert done.returncode == 0
    page = (demo[0] / "report.html").read_text()
    assert (tmp_path / "again.html").read_text() == page
    headings = re.findall("<h2>(.*?)</h2>", page)
    assert headings[:2] == ["Summary", "Latency"]
    assert {"Bandwidth", "Offsets", "System calls", "Call tree", "Block requests", "Trust checks"} <= set(headings)
    assert f"<td>write calls: job, recording</td><td>{LOOPS * 1024:,}, {LOOPS * 1024:,}</td><td>agrees</td>" in page


def test_bad_options_are_named() -> None:
    done = subprocess.run(
        [script("sampleblk-lab"), "demo", "--loops", "0"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "--loops 0 is out of range" in done.stderr


def test_where_nothing_was_recorded_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(host, "record", interrupted)
    monkeypatch.chdir(tmp_path)
    assert main(["demo"]) == 130
    assert not list(Path("runs").iterdir())
