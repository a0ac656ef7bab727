# SPDX-License-Identifier: MIT
"""What a run hands out: tables, logs, merged runs, the two times of a limited rate."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest
from beside_fio import needs_fio

import sampleblk_lab as lab


@pytest.fixture(scope="module")
def two_jobs(tmp_path_factory: pytest.TempPathFactory) -> lab.Result:
    directory = tmp_path_factory.mktemp("two")
    return lab.Job(
        rw="randrw",
        bs="4k",
        size="2M",
        io_size="16M",
        numjobs=2,
        norandommap=1,
        directory=directory,
        io_log_entries=3000,
    ).run(progress=False)


def test_the_tables_agree_with_one_another(two_jobs: lab.Result) -> None:
    summary, histogram, log = two_jobs.summary(), two_jobs.histogram(), two_jobs.io_log()
    assert sum(summary["ios"].codes) == 8192
    clat = histogram["kind"].values == "clat"
    assert histogram["count"].codes[clat].sum() == 8192
    series = two_jobs.series()
    assert series["ios"].codes.sum() == 8192
    assert (series["end"].codes > series["begin"].codes).all()
    heat = two_jobs.heatmap_table()
    assert heat["count"].codes.sum() == 8192
    times, edges, cells = two_jobs.heatmap("write", bins=32)
    assert cells.shape == (32, len(times))
    assert len(edges) == 33
    writes = summary["ios"].codes[summary["direction"].values == "write"].sum()
    assert cells.sum() == writes
    # Two jobs of 4096 I/Os with room for 3000 each: what found no room is counted.
    assert len(log) == 6000
    assert log.metadata["lost"] == "2192"
    assert set(log["engine"].values) == {"psync"}
    assert set(log["depth"].codes) == {1}
    assert (np.diff(log["time"].codes[:3000].astype(np.int64)) > 0).all()


def test_pandas_takes_a_table(two_jobs: lab.Result) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame.from_records(list(two_jobs.summary().rows()))
    assert frame.groupby("direction")["ios"].sum().sum() == 8192


def test_merged_runs_add_up(two_jobs: lab.Result) -> None:
    merged = lab.Result.merge([two_jobs, two_jobs])
    assert len(merged.json()["jobs"]) == 4
    total = merged.total()
    (job,) = total.json()["jobs"]
    assert job["read"]["total_ios"] + job["write"]["total_ios"] == 2 * 8192
    assert total.percentiles([50, 99]) == two_jobs.percentiles([50, 99])


def test_jobs_that_ran_one_after_the_other_are_summed_up_with_the_times_of_all(tmp_path: Path) -> None:
    keys = "rw=write\nbs=4k\nsize=400k\nrate_iops=500\nbwavgtime=50\niopsavgtime=50\ngroup_reporting=1\n"
    text = f"[global]\ndirectory={tmp_path}\n{keys}[a]\nnumjobs=2\n[b]\nnumjobs=2\nstonewall\n"
    (tmp_path / "jobs.fio").write_text(text)
    once = lab.JobFile(tmp_path / "jobs.fio").run(progress=False)
    twice = lab.Result.merge([once, once])
    groups = [once.json()["jobs"][i]["write"] for i in (0, 1)]
    assert len(twice.json()["jobs"]) == 4, "a group of each run and stonewall"
    for result, times in ((once, 1), (twice, 2)):
        (total,) = result.total().json()["jobs"]
        written = total["write"]
        assert written["total_ios"] == times * 400
        assert written["runtime"] == pytest.approx(times * sum(group["runtime"] for group in groups), abs=2 * times)
        assert written["iops"] == pytest.approx(400 / sum(group["runtime"] for group in groups) * 1000, rel=0.02)
        samples = [group["iops_samples"] for group in groups]
        mean = sum(group["iops_mean"] * count for group, count in zip(groups, samples, strict=True)) / sum(samples)
        assert written["iops_mean"] == pytest.approx(mean)
        assert written["iops_min"] == min(group["iops_min"] for group in groups)
        assert written["iops_samples"] == times * sum(samples)


def test_percentiles_of_one_job_are_those_that_the_summary_has(tmp_path: Path) -> None:
    text = f"[global]\ndirectory={tmp_path}\nsize=2M\nrw=write\n[small]\nbs=4k\n[large]\nbs=1M\n"
    (tmp_path / "jobs.fio").write_text(text)
    result = lab.JobFile(tmp_path / "jobs.fio").run(progress=False)
    for row in result.summary():
        found = result.percentiles([50, 99.99], job=row["job"])
        # The core takes them from its histograms itself; a bin's width is at most 1/64 of its beginning.
        assert found == pytest.approx([row["clat_p50"], row["clat_p99_99"]], rel=1 / 64)
    assert result.percentiles([50], job="small") < result.percentiles([50], job="large")
    with pytest.raises(ValueError, match="no I/O of job 'other' with a clat was measured"):
        result.percentiles([50], job="other")


def test_a_limited_rate_shows_response_time_beside_service_time(tmp_path: Path) -> None:
    """The first I/Os are late by their own doing when the rate asks for more than can be had."""
    result = lab.Job(
        rw="write", bs="4k", size="1M", fsync=1, rate_iops=1_000_000, filename=tmp_path / "f", loops=2
    ).run(progress=False)
    service = result.percentiles([99], kind="clat")[0]
    response = result.percentiles([99], kind="response")[0]
    assert response > 2 * service
    # As a saved run has it.
    assert lab.FioResult(result.json(bins=True), "").percentiles([99], kind="response") == [response]
    unlimited = lab.Job(rw="write", bs="4k", size="1M", filename=tmp_path / "f").run(progress=False)
    with pytest.raises(ValueError, match="no I/O with a response"):
        unlimited.percentiles([99], kind="response")


@needs_fio
def test_jobs_share_a_log_without_a_number(tmp_path: Path) -> None:
    """fio's HOWTO: such a log is opened in append mode."""
    keys = {"rw": "write", "size": "64k", "numjobs": 3, "thread": 1, "directory": tmp_path, "per_job_logs": 0}
    for who in (None, "fio"):
        log = tmp_path / f"{who}"
        lab.Job(**keys, write_lat_log=log, engine=who).run(progress=False)
        assert len(log.with_name(f"{who}_clat.log").read_text().splitlines()) == 48


@needs_fio
@pytest.mark.parametrize("averaged", [0, 50])
def test_log_files_have_fios_form(averaged: int, tmp_path: Path) -> None:
    keys = {"rw": "randrw", "bs": "4k", "size": "1M", "log_avg_msec": averaged, "thinktime": 200}
    rows = {}
    for who in ("ours", "fio"):
        (tmp_path / who).mkdir()
        logs = {f"write_{kind}_log": tmp_path / who / "log" for kind in ("bw", "lat", "iops")}
        logs["filename"] = tmp_path / "f"
        lab.Job(**keys, **logs, engine="fio" if who == "fio" else None).run(progress=False)
        rows[who] = {path.name: path.read_text().splitlines() for path in sorted((tmp_path / who).iterdir())}
    assert rows["ours"].keys() == rows["fio"].keys()
    assert len(rows["ours"]) >= 4
    for name, lines in rows["ours"].items():
        theirs = rows["fio"][name]
        # fio times no submission where the call does the whole I/O; its rate logs have nothing before 500 ms are over.
        assert bool(lines) == ("slat" not in name)
        if theirs:
            # time, value, direction, block size, priority
            assert {len(line.split(",")) for line in lines} == {len(line.split(",")) for line in theirs}
        if not averaged and lines:
            assert len(lines) == len(theirs) == 256
            assert {line.split(",")[3] for line in lines} == {line.split(",")[3] for line in theirs} == {" 4096"}


def test_fio_plot_finds_its_fields(tmp_path: Path) -> None:
    """What fio-plot 1.1.21 (PyPI) takes from each job, in its jsonparsing_support.py; it drew such a result."""
    job = lab.Job(rw="randread", bs="4k", size="1M", iodepth=2, ioengine="io_uring", numjobs=1, filename=tmp_path / "f")
    (saved,) = json.loads(job.run(progress=False).save(tmp_path / "r.json").read_text())["jobs"]
    assert {"iodepth": "2", "numjobs": "1", "bs": "4k", "rw": "randread"}.items() <= saved["job options"].items()
    for field in ("iops", "bw", "iops_stddev", "iops_min", "iops_max"):
        assert isinstance(saved["read"][field], (int, float))
    assert saved["read"]["lat_ns"]["mean"] > 0
    assert saved["read"]["clat_ns"]["percentile"]["99.000000"] > 0
    assert {"usr_cpu", "sys_cpu", "error", "elapsed"} <= saved.keys()


def test_faults_and_switches_are_counted(two_jobs: lab.Result) -> None:
    for job in two_jobs.json()["jobs"]:
        assert job["minf"] > 0
        assert job["usr_cpu"] + job["sys_cpu"] > 0
        assert job["sampleblk"]["clock"] in ("tsc", "clock_gettime")


def test_disk_statistics_of_a_file_on_a_disk(tmp_path: Path) -> None:
    where = subprocess.run(["stat", "-c", "%d", str(tmp_path)], check=True, capture_output=True, text=True).stdout
    if int(where) >> 8 == 0:
        pytest.skip(f"{tmp_path} is on no block device")
    result = lab.Job(rw="write", bs="64k", size="4M", filename=tmp_path / "f", end_fsync=1).run(progress=False)
    (disk, *_) = result.json()["disk_util"]
    assert disk["write_ios"] > 0
    assert disk["name"] in str(result)
