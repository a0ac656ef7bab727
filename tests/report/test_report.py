# SPDX-License-Identifier: MIT
"""The outline of one call and the page, on a recording of 2016 (function_graph of write(2))."""

from __future__ import annotations

import json
import re
import shutil
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sampleblk_lab as lab
from sampleblk_lab import trust
from sampleblk_lab.analysis.outline import CallOutline
from sampleblk_lab.report.page import Page
from sampleblk_lab.table import Table

RECORDED = Path(__file__).parents[1] / "data/lktm/funcgraph_write_fs_seq_write_sync_001.log"


@pytest.fixture(scope="module")
def calls() -> Table:
    return lab.read_funcgraph(RECORDED).table()


def roots(table: Table) -> list[int]:
    return np.flatnonzero(table["parent"].values == -1).tolist()


class _Balanced(HTMLParser):
    """Fails on an element that is closed where another is open."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: ARG002
        if tag not in ("meta", "br", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def balanced(text: str) -> bool:
    parser = _Balanced()
    parser.feed(text)
    parser.close()
    return not parser.open


def test_the_path_is_shown_in_full_and_the_rest_summed_up(calls: Table) -> None:
    outline = CallOutline(calls, roots(calls)[0], "ext4_da_write_begin*", {"vfs_write": "vmlinux"})
    path = re.findall(r"→ (\S+)", outline.text())
    assert path[:2] == ["SyS_write", "vfs_write"]
    assert path[-1] == "ext4_da_write_begin"
    assert "vfs_write [vmlinux]" in outline.text()
    assert outline.target_calls == 1
    beside = re.findall(r"(\d+) more  × (\d+)", outline.text())
    assert all(int(calls_) >= int(functions) for functions, calls_ in beside)


def test_its_calls_are_those_below_its_root_only(calls: Table) -> None:
    starts = [*roots(calls), len(calls)]
    for begin, end in pairwise(starts):
        assert CallOutline(calls, begin, "nothing_has_this_name").calls == end - begin


def test_without_a_hit_the_outline_is_the_root_and_its_children(calls: Table) -> None:
    outline = CallOutline(calls, roots(calls)[0], "nothing_has_this_name")
    assert outline.target_calls == 0
    assert re.findall(r"→ (\S+)", outline.text()) == ["SyS_write"]


def test_names_are_escaped_and_elements_nest(calls: Table) -> None:
    page = Page("<title>", "a & b")
    page.add_facts("Facts", {"<k>": "<v>"})
    page.add_text("Text", "1 < 2 </pre>")
    page.add_table("Table <x>", calls, bar="duration", names={"duration": "<took>"})
    page.add_outline("Calls", CallOutline(calls, roots(calls)[0], "ext4_da_write_begin*"))
    page.add_files("Files", [("<path>", "what & why")])
    text = page.html()
    assert balanced(text)
    for raw in ("<title></title>", "<k>", "<v>", "2 </pre>", "<x>", "<took>", "<path>"):
        assert raw not in text
    assert text.count("<section ") == text.count("href='#s") == 5
    assert "http" not in re.sub(r"http-equiv", "", text), "the page is to need nothing from elsewhere"


def test_the_longest_bar_fills_its_cell(calls: Table) -> None:
    page = Page("Bars")
    page.add_table("Durations", calls, bar="duration")
    widths = [float(width) for width in re.findall(r"width:([\d.]+)%", page.html())]
    assert max(widths) == 100.0
    assert len(widths) == int((calls["duration"].values > 0).sum())


def test_in_a_notebook_an_outline_styles_nothing_but_itself(calls: Table) -> None:
    shown = CallOutline(calls, roots(calls)[0], "ext4_da_write_begin*")._repr_html_()
    [style] = re.findall("<style>(.*?)</style>", shown, re.DOTALL)
    rules = re.findall(r"^\s*([^@/}\s][^{;}]*)\{", style, re.MULTILINE)
    assert rules
    assert all(rule.startswith(".calls") for rule in rules)
    assert balanced(shown)


def test_the_page_of_a_job_begins_with_what_it_measured(tmp_path: Path) -> None:
    from sampleblk_lab.report.run_page import run_page

    job = lab.Job(name="mixed", rw="rw", bs="4k", size="1M", filename=tmp_path / "file")
    result = job.run(progress=False)
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "result.json").write_text(result.json_text(bins=True))
    (folder / "report.txt").write_text(result.text())
    (folder / "env.json").write_text('{"accel": "tcg", "kernel": "6.12"}')
    page = run_page(folder).html()
    assert balanced(page)
    assert re.findall("<h2>(.*?)</h2>", page)[:2] == ["Summary", "Latency"]
    assert "compare ratios, not times" in page
    for row in result.summary():
        assert f"<th>mixed, {row['direction']}</th><td>{row['ios']:,} I/Os, " in page
    # A run without any of it has a page, too.
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "spec.json").write_text("{}")
    assert "Summary" not in run_page(tmp_path / "empty").html()


def test_the_summary_has_the_latencies_of_each_job_and_all_of_its_clones(tmp_path: Path) -> None:
    from sampleblk_lab._native import core
    from sampleblk_lab.report.run_page import run_page

    jobs = "[small]\nbs=4k\n[large]\nbs=1M\nnumjobs=2\n[untimed]\nbs=4k\ndisable_clat=1\n"
    (tmp_path / "jobs.fio").write_text(f"[global]\ndirectory={tmp_path}\nsize=2M\nrw=write\n{jobs}")
    result = lab.JobFile(tmp_path / "jobs.fio").run(progress=False)
    (tmp_path / "run").mkdir()
    (tmp_path / "run/result.json").write_text(result.json_text(bins=True))
    page = run_page(tmp_path / "run").html()
    told = {job: re.findall(f"<th>{job}, write</th><td>(.*?)</td>", page)[0] for job in ("small", "large", "untimed")}
    assert told["small"].startswith("512 I/Os, ")
    assert told["large"].startswith("2 jobs: 4 I/Os, ")
    assert "within" not in told["untimed"]
    for job in ("small", "large"):
        p50, p99 = (core.format_duration(round(value)) for value in result.percentiles([50, 99], job=job))
        assert told[job].endswith(f"; half within {p50}, 99 % within {p99}")


def test_rates_of_jobs_that_ran_one_after_the_other_do_not_add_up(tmp_path: Path) -> None:
    from sampleblk_lab.report.run_page import run_page

    def job(name: str, group: int, iops: float) -> dict[str, Any]:
        clat = {"mean": 1, "stddev": 0, "min": 1, "max": 1}
        write = {"total_ios": 10, "io_bytes": 10, "runtime": 1, "bw_bytes": 1, "iops": iops, "clat_ns": clat}
        return {"jobname": name, "groupid": group, "error": 0, "write": write}

    jobs = [job("a", 0, 100.0), job("a", 0, 11.0), job("a", 1, 1000.0), job("b", 1, 0.34)]
    (tmp_path / "result.json").write_text(json.dumps({"jobs": jobs}))
    page = run_page(tmp_path).html()
    told = dict(re.findall(r"<th>(\w+, write[^<]*)</th><td>(.*?)</td>", page))
    assert list(told) == ["a, write, group 0", "a, write, group 1", "b, write"]
    assert told["a, write, group 0"].startswith("2 jobs: 20 I/Os, 111 IOPS")
    assert told["a, write, group 1"].startswith("10 I/Os, 1,000 IOPS")
    assert told["b, write"].startswith("10 I/Os, 0.34 IOPS")


def test_jobs_of_which_one_ran_longer_have_the_rate_of_all_the_time(tmp_path: Path) -> None:
    from sampleblk_lab.report.run_page import run_page

    def job(runtime: int, error: int) -> dict[str, Any]:
        clat = {"mean": 1, "stddev": 0, "min": 1, "max": 1}
        write = {"total_ios": runtime, "io_bytes": 1024 * runtime, "runtime": runtime, "clat_ns": clat}
        write |= {"bw_bytes": 1024 * 1000, "iops": 1000.0}
        return {"jobname": "a", "groupid": 0, "error": error, "write": write}

    told = {"stop_reason": "interrupted"}
    (tmp_path / "result.json").write_text(json.dumps({"jobs": [job(1000, 5), job(9000, 28)], "sampleblk": told}))
    facts = dict(re.findall(r"<th>([^<]*)</th><td>(.*?)</td>", run_page(tmp_path).html()))
    assert facts["a, write"].startswith("2 jobs: 10,000 I/Os, 1,111 IOPS, 1.09 MiB/s")
    assert facts["stopped"].startswith("interrupted; what ran until then")
    assert facts["a failed"] == "fio: error 5; fio: error 28"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (1.004, "1.004"),
        (-0.9996, "-0.9996"),
        (0.99998, "0.99998"),
        (1.0, "1"),
        (99.97, "99.97"),
        (100.0, "100"),
        (999.7, "1,000"),
        (1.234, "1.23"),
    ],
)
def test_no_change_and_all_are_not_what_is_near(value: float, shown: str) -> None:
    page = Page("t")
    page.add_table("h", Table.of({"ratio": np.array([value])}))
    assert f"<td class='n'>{shown}</td>" in page.html()


def test_measurements_are_said_to_be_known_as_well_as_they_are(tmp_path: Path) -> None:
    from sampleblk_lab.report.run_page import run_page

    measured = {"name": "n", "unit": "s", "better": "lower", "stopped": "", "value": 1, "low": 1, "high": 2}
    measured["samples"] = [1, 2]
    for sure, told in (([0.9, 0.9], "confidence, 90 %."), ([0.9, 0.995], "the last column."), ([None], "98 %.")):
        entries = [
            {**measured, "name": f"n{i}"} if each is None else {**measured, "name": f"n{i}", "confidence": each}
            for i, each in enumerate(sure)
        ]
        (tmp_path / "measurements.json").write_text(json.dumps(entries))
        page = run_page(tmp_path).html()
        assert told in page
        assert ("<td class='n'>99.5</td>" in page) == (0.995 in sure)


def test_each_quantity_of_a_comparison_has_a_row() -> None:
    """Also where what the test and the metric are called reads alike."""
    from sampleblk_lab.report.run_page import comparison_page
    from sampleblk_lab.results.sets import Row

    same = lab.compare([1.0, 1.01] * 3, [1.0, 1.01] * 3)
    slower = lab.compare([1.0, 1.01] * 3, [2.0, 2.01] * 3, confidence=0.9)
    page = comparison_page("a", "b", [Row("t[x", "y]", slower), Row("t[x y]", "", same), Row("t", "", same)]).html()
    rows = re.findall(r"<tr><td>(.*?)</td><td>(.*?)</td>", page)
    assert [verdict for _, verdict in rows] == ["slower", "no difference shown", "no difference shown"]
    assert len({name for name, _ in rows}) == 3


def test_no_comparison_is_lost_however_tests_and_metrics_are_called() -> None:
    from sampleblk_lab.report.run_page import comparison_page
    from sampleblk_lab.results.sets import Row

    slower = lab.compare([1.0, 1.01] * 3, [2.0, 2.01] * 3)
    called = [("a b", "c"), ("a", "b c"), ("a", "b: c")]
    page = comparison_page("a", "b", [Row(test, metric, slower) for test, metric in called]).html()
    names = re.findall(r"<tr><td>(.*?)</td><td>slower</td>", page)
    assert len(set(names)) == len(names) == len(called)


def test_of_many_comparisons_the_picture_has_those_that_differ_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the table has all."""
    from sampleblk_lab import plot
    from sampleblk_lab.report.run_page import comparison_page
    from sampleblk_lab.results.sets import Row

    same = lab.compare([1.0, 1.5] * 3, [1.1, 1.6] * 3)
    slower, faster = (lab.compare([1.0, 1.01] * 3, [by, by + 0.01] * 3) for by in (1.02, 0.5))
    rows = [Row(f"t{number}", "", same) for number in range(1000)]
    rows[700], rows[800] = Row("slow", "", slower), Row("fast", "", faster)
    drawn: list[list[str]] = []
    draw = plot.comparison
    monkeypatch.setattr(plot, "comparison", lambda made: (drawn.append(list(made)), draw(made))[1])
    page = comparison_page("a", "b", rows).html()
    assert drawn == [["fast", "slow", *(f"t{number}" for number in range(198))]]
    assert "Those 200 of 1,000 are drawn" in page
    assert page.count("<td>no difference shown</td>") == 998


def _headings(page: str) -> list[str]:
    return re.findall("<h2>(.*?)</h2>", page)


# The order in which every page has them, as far as the run has what they show.
SECTIONS = [
    *("Summary", "Measurements", "Flame graph", "Profile", "Latency", "Latency percentiles", "Latency distribution"),
    *("Bandwidth", "Offsets", "System calls", "I/O sizes", "Call tree", "Functions"),
    *("Block requests", "Life of requests", "Queue depth", "Driver", "Trust checks", "Machine", "Job", "Files"),
]
DATA = Path(__file__).parents[1] / "data/trace"


def _run_of_two_recordings(folder: Path, spec: dict[str, object]) -> Path:
    """As the demo has it: the job's recording and a call graph's, each in a folder of its own."""
    for name, recorded in (("job", "6.1-io.dat"), ("graph", "6.1-graph.dat")):
        (folder / name).mkdir(parents=True)
        shutil.copyfile(DATA / recorded, folder / name / "trace.dat")
    (folder / "spec.json").write_text(json.dumps(spec))
    (folder / "env.json").write_text('{"vm": {"accel": "tcg", "cpus": 2, "memory_mib": 512}, "kernel": "6.1"}')
    (folder / "counters.json").write_text('{"writes": 3, "write_bytes": 4096}')
    return folder


def test_a_run_s_page_has_the_sections_in_their_order(tmp_path: Path) -> None:
    from sampleblk_lab.report.run_page import run_page

    pytest.importorskip("matplotlib")
    folder = _run_of_two_recordings(tmp_path / "run", {})
    result = lab.Job(rw="rw", bs="4k", size="256k", filename=tmp_path / "file").run(progress=False)
    (folder / "result.json").write_text(result.json_text(bins=True))
    (folder / "report.txt").write_text(result.text())
    page = run_page(folder).html()
    assert balanced(page)
    found = [name for name in _headings(page) if not name.startswith("Events")]
    assert found == [name for name in SECTIONS if name in found]
    assert {"Summary", "Latency", "Bandwidth", "Offsets", "System calls", "Call tree", "Functions"} <= set(found)
    assert {"Block requests", "Driver", "Trust checks", "Machine"} <= set(found)


def test_what_spec_json_tells_of_a_run_is_on_its_page(tmp_path: Path) -> None:
    from sampleblk_lab.report.run_page import run_page

    spec = {
        "title": "The demo",
        "source": "in one command",
        "notes": {"System calls": "In 2016 it took longer.", "Driver": "Less than was written."},
        "files": {"job/trace.dat": "the job's events"},
    }
    folder = _run_of_two_recordings(tmp_path / "run", spec)
    shutil.copytree(folder / "job", folder / "later")
    page = run_page(folder).html()
    assert "<td>3; shown are system calls of job, function calls of graph, block requests of job</td>" in page
    assert "<h1>The demo</h1><p>in one command</p>" in page
    assert "In 2016 it took longer." in page.partition(">System calls</h2>")[2].partition("<table")[0]
    assert "Less than was written." in page.partition(">Driver</h2>")[2].partition("<table")[0]
    assert "<code>job/trace.dat</code> the job&#x27;s events" in page
    assert "compare ratios, not times" in page


def test_plain_json_of_fio_has_a_page(tmp_path: Path) -> None:
    """Without bins there are no percentiles to tell."""
    from sampleblk_lab.report.run_page import run_page

    result = lab.Job(name="mixed", rw="write", bs="4k", size="64k", filename=tmp_path / "file").run(progress=False)
    (tmp_path / "run").mkdir()
    (tmp_path / "run/result.json").write_text(result.json_text())
    page = run_page(tmp_path / "run").html()
    assert "<th>mixed, write</th><td>16 I/Os, " in page
    assert "Latency" not in page


def test_a_page_has_no_character_that_html_has_not_or_that_hides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sampleblk_lab.report.run_page import run_page

    (tmp_path / "run").mkdir()
    monkeypatch.chdir(tmp_path / "run")
    told = {"returncode": 0, "elapsed_s": 1.5, "user_s": 0.5, "system_s": 0.5}
    Path("command.json").write_text(json.dumps({"command": ["a\0b", "\x1b[2J", "\u202egpj.exe"], **told}))
    Path("report.txt").write_text("one\n\ttwo\x07")
    page = run_page(Path()).html()
    assert page.replace("\n", "").replace("\t", "").isprintable()
    assert r"a\x00b" in page
    assert "one\n\ttwo" in page
    assert "<h1>run</h1>" in page  # which "." does not say


def test_what_is_in_doubt_is_told_of_a_saved_run_too(tmp_path: Path) -> None:
    folder = _run_of_two_recordings(tmp_path / "run", {})
    result = lab.Job(rw="write", bs="4k", size="16k", io_log_entries=1, filename=tmp_path / "f").run(progress=False)
    result.save(folder / "result.json")
    (folder / "report.txt").write_text(result.text())
    assert (saved := lab.open_run(folder).result) is not None
    assert saved.checks == []
    (folder / "trust.json").write_text(trust.as_json(result.checks))
    assert (saved := lab.open_run(folder).result) is not None
    assert saved.checks == result.checks
    assert str(saved).endswith("in doubt: I/Os that found no room in io_log: 3: incomplete\n")


def test_counts_are_held_against_each_other(tmp_path: Path) -> None:
    from sampleblk_lab.report.run_page import Recording, _requests_against_driver, trust_checks

    folder = _run_of_two_recordings(tmp_path / "run", {})
    run, recorded = lab.open_run(folder), lab.open_run(folder / "job")
    wanted = ("write", "pwrite64", "pwritev", "pwritev2")
    writes = sum(int(row["calls"]) for row in recorded.syscalls().summary().rows() if row["syscall"] in wanted)
    requests = recorded.block().table()
    written = 512 * int(requests["sectors"].values[requests["operation"].values == "W"].sum())
    assert writes > 0
    assert written > 0

    def checks(ios: int, driver: int, engine: str = "psync", **more: Any) -> dict[str, tuple[str, str]]:
        nothing = {"total_ios": 0}
        job = {"job options": {"ioengine": engine}, "read": nothing, "write": {"total_ios": ios}, **more}
        (folder / "result.json").write_text(json.dumps({"jobs": [job]}))
        one = Recording(recorded)
        about = trust_checks(lab.open_run(folder), [one], one, None, {"write_bytes": driver})
        return {str(row["check"]): (str(row["found"]), str(row["verdict"])) for row in about.rows()}

    assert run.result is None
    good = checks(writes, written)
    assert good["write calls: job, recording"] == (f"{writes:,}, {writes:,}", "agrees")
    assert good["bytes write: requests, driver"] == (f"{written:,}, {written:,}", "agrees")
    assert good["events lost of job"] == ("0", "complete")
    bad = checks(writes + 1, written - 512)
    assert bad["write calls: job, recording"][1] == "differs"
    assert bad["bytes write: requests, driver"][1] == "differs"
    # What the driver did before the recording began.
    assert checks(writes, written + 512)["bytes write: requests, driver"][1] == "partly recorded"
    two = {"device": ["259,0"] * 2, "sectors": [8, 8]}
    discards = lab.Table.of({**two, "operation": ["D", "D"], "rwbs": ["D", "DS"]})
    for driver, verdict in ((4096, "differs"), (8192, "agrees")):
        (found,) = _requests_against_driver(discards, {"discard_bytes": driver})
        assert (found.verdict, found.is_doubt) == (verdict, verdict == "differs")
    # Of zeroes the driver has another counter.
    zeroes = lab.Table.of({**two, "operation": ["W", "W"], "rwbs": ["WS", "WZ"]})
    (found,) = _requests_against_driver(zeroes, {"write_bytes": 4096})
    assert found.verdict == "agrees"
    # An engine that submits without a call each is not held against calls.
    assert "write calls: job, recording" not in checks(writes, written, "io_uring")
    # Nor is a job that makes calls which it does not count.
    assert "write calls: job, recording" not in checks(writes, written, total_err=2)
    for key in ("ramp_time", "unified_rw_reporting", "verify"):
        assert "write calls: job, recording" not in checks(writes, written, **{"job options": {key: "1"}})


def test_bandwidth_of_a_recording_moves_what_the_calls_moved() -> None:
    from sampleblk_lab.plot.pattern import _recorded_rates

    table = lab.open_run(DATA / "6.1-io.dat").offsets().table()
    rates = _recorded_rates(table)
    assert rates
    for direction, (ends, speed) in rates.items():
        slot = ends[0]
        moved = table["size"].values[table["operation"].values == direction].sum()
        assert (speed * slot / 1e9).sum() == pytest.approx(moved)
