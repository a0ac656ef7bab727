# SPDX-License-Identifier: MIT
"""Recordings of the guest's kernels, kept with what `perf report` of the same series said of them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from perf_peer import assert_same, rows_of_report, totals

import sampleblk_lab as lab

DATA = Path(__file__).parents[1] / "data/profile"
RECORDINGS = sorted(path.stem for path in DATA.glob("*.report"))


@pytest.fixture(params=RECORDINGS)
def canned(request: pytest.FixtureRequest) -> tuple[str, lab.Profile]:
    """A recording's name, and it."""
    kallsyms = DATA / f"{request.param}.kallsyms"
    return request.param, lab.open_profile(DATA / f"{request.param}.data", kallsyms=kallsyms, use_paths=False)


def test_the_recordings_are_there() -> None:
    ours = {f"{series}-ours" for series in ("5.10", "6.1", "6.12", "7.2")}
    assert set(RECORDINGS) == ours | {"6.1-perf-6.1", "6.1-perf-6.12", "6.12-perf-6.12"}


def test_the_top_50_are_perf_report_s(canned: tuple[str, lab.Profile]) -> None:
    name, profile = canned
    theirs = rows_of_report((DATA / f"{name}.report").read_text())
    assert len(theirs) >= 50
    assert_same(profile, theirs)


def test_another_kernel_s_functions_are_not_this_one_s(tmp_path: Path) -> None:
    # Neither has KASLR: both kernels begin at one address.
    name = "5.10-ours" if os.uname().release.startswith("7.2") else "7.2-ours"
    shutil.copyfile(DATA / f"{name}.data", tmp_path / "perf.data")
    profile = lab.open_profile(tmp_path, use_paths=False)
    assert profile.metadata["kernel_symbols"].startswith("none: ")
    kernel = {str(row["symbol"]) for row in profile.report().rows() if row["space"] == "k"}
    assert kernel
    assert all(re.fullmatch("(0x)?[0-9a-f]{16}", symbol) for symbol in kernel), kernel


def test_the_calls_of_the_job_are_there(canned: tuple[str, lab.Profile]) -> None:
    name, profile = canned
    shares = lab.article.shares(profile)["share_percent"]
    assert float(str(shares["write"])) > 2
    assert float(str(shares["fadvise64"])) > 2
    folded = profile.stacks(idle=False).folded()
    assert any("ksys_write" in line and "ext4_" in line for line in folded.splitlines())
    assert any("fadvise64" in line and "sampleblk_queue_rq" in line for line in folded.splitlines())
    assert profile.header["os_release"].startswith(name.split("-")[0] + ".")


@pytest.mark.skipif(shutil.which("perf") is None, reason="needs perf: apt-get install linux-perf")
def test_every_view_has_each_sample_of_perf(canned: tuple[str, lab.Profile], tmp_path: Path) -> None:
    name, profile = canned
    theirs = totals(DATA / f"{name}.data")
    if theirs is None:
        assert name.endswith("perf-6.12")  # older ones every perf reads
        tables = {event: profile.samples(event=event) for event in profile.event_names}
        theirs = {event: (len(table), int(table["period"].codes.sum())) for event, table in tables.items()}
    assert set(theirs) <= set(profile.event_names)
    for event in profile.event_names:
        samples, period = theirs.get(event, (0, 0))
        table, report = profile.samples(event=event), profile.report(event=event)
        assert (len(table), table["period"].codes.sum()) == (samples, period)
        assert (report["samples"].codes.sum(), report["self_period"].codes.sum()) == (samples, period)
        stacks, by_period = profile.stacks(event=event), profile.stacks(event=event, weight="period")
        assert (stacks.total, by_period.total) == (samples, period)
        assert sum(int(line.rsplit(" ", 1)[1]) for line in stacks.folded().splitlines()) == samples
        assert stacks.functions()["self"].codes.sum() == samples
        assert profile.heatmap(event=event).counts.sum() == samples
        if samples == 0:
            continue
        shown = json.loads(stacks.export_speedscope(tmp_path / "x.json").read_text())
        assert sum(sum(one["weights"]) for one in shown["profiles"]) == samples
        assert stacks.export_pprof(tmp_path / "x.pb.gz").stat().st_size > 100
        assert profile.export_perfetto(tmp_path / "x.pftrace", event=event).stat().st_size > samples
        assert profile.tree(event=event) != ""
        assert "<svg" in profile.flamegraph(tmp_path / "x.svg", event=event).svg
        assert len(report.text().splitlines()) > 3


@pytest.mark.skipif(shutil.which("perf") is None, reason="needs perf: apt-get install linux-perf")
def test_each_system_call_has_the_samples_below_its_function(canned: tuple[str, lab.Profile]) -> None:
    name, profile = canned
    command = ["perf", "script", "-i", f"{name}.data", "--kallsyms", f"{name}.kallsyms", "-F", "comm,tid,ip,sym"]
    done = subprocess.run(command, cwd=DATA, capture_output=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        assert name.endswith("perf-6.12")  # older ones every perf reads
        pytest.skip("this perf is too old to read the recording")
    expected: Counter[str] = Counter()
    for sample in done.stdout.decode(errors="replace").split("\n\n"):
        # The compiler leaves some of them no frame but that of what they call.
        expected.update(set(re.findall(r"\s(?:__x64_sys_|ksys_(?=write\b))(\w+)(?!\S)", sample)))
    assert len(expected) > 1
    table = profile.syscalls()
    ours = {str(row["syscall"]): row["samples"] for row in table}
    assert {call: ours.get(call) for call in expected} == expected
    assert sum(int(str(samples)) for samples in ours.values()) == len(profile.samples())
    locks = profile.locks()
    assert 0 < sum(int(str(row["samples"])) for row in locks) <= len(profile.samples())


def test_without_switches_there_is_no_time_off_the_cpu(canned: tuple[str, lab.Profile]) -> None:
    _, profile = canned
    for view in (profile.off_cpu, profile.waits, profile.wall_clock):
        with pytest.raises(lab.UnsupportedError, match="sched:sched_switch"):
            view()


def test_a_task_s_name_takes_no_line_of_its_own(tmp_path: Path) -> None:
    data = (DATA / "6.1-ours.data").read_bytes()
    assert b"python3\0" in data
    (tmp_path / "odd.data").write_bytes(data.replace(b"python3\0", b"a\n\xc2\x9b;<\xff\0"))
    profile = lab.open_profile(tmp_path / "odd.data", kallsyms=DATA / "6.1-ours.kallsyms", use_paths=False)
    text = profile.report().text(limit=len(profile.report()))
    assert len(text.splitlines()) == 1 + len(profile.report()) + len(profile.report().metadata)
    tree = profile.tree().splitlines()
    assert any(line.endswith("  a\\n\\xc2\\x9b;<\\xff") for line in tree)
    assert all(re.fullmatch(r" +\d+\.\d\d +\d+\.\d\d  .*|\(.* left out\)", line) for line in tree[1:])
