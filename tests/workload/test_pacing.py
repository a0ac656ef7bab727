# SPDX-License-Identifier: MIT
"""What slows a job down, and what ends it early, beside the real fio on the same keys."""

from __future__ import annotations

import json
import math
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from beside_fio import needs_fio

import sampleblk_lab as lab

pytestmark = needs_fio


def ours(path: Path, keys: dict[str, Any]) -> dict[str, Any]:
    return dict(lab.Job("job", filename=path, **keys).run(progress=False).json()["jobs"][0])


def fios(path: Path, keys: dict[str, Any]) -> dict[str, Any]:
    command = ["fio", "--name=job", "--output-format=json", f"--filename={path}"]
    done = subprocess.run(
        [*command, *(f"--{key}={value}" for key, value in keys.items())],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        cwd=path.parent,  # fio leaves its verify state there
    )
    return dict(json.loads(done.stdout[done.stdout.index("{") :])["jobs"][0])


def both(tmp_path: Path, **keys: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    return ours(tmp_path / "ours", keys), fios(tmp_path / "fios", keys)


def test_a_job_thinks_after_each_block_the_last_included(tmp_path: Path) -> None:
    for job in both(tmp_path, rw="write", bs="4k", size="64k", thinktime=4000, thinktime_blocks=4):
        assert job["write"]["total_ios"] == 16
        assert job["job_runtime"] >= 4 * 4  # ms: four pauses


def test_thinktime_spin_is_a_part_of_the_pause(tmp_path: Path) -> None:
    """Not beside fio, whose pause has no end when the spin takes longer than asked (3.33, on a busy machine)."""
    keys = {"rw": "write", "bs": "4k", "size": "16k", "thinktime": 30000, "thinktime_spin": 25000}
    job = ours(tmp_path / "file", {**keys, "thinktime_blocks": 2})
    assert job["job_runtime"] >= 60
    assert (job["usr_cpu"] + job["sys_cpu"]) * job["job_runtime"] / 100 > 5, "it spins, it does not sleep"


def test_thinktime_blocks_counts_on_while_what_is_in_flight_ends(tmp_path: Path) -> None:
    keys = {"rw": "write", "bs": "4k", "size": "1m", "thinktime": 20000, "thinktime_blocks": 6}
    for job in both(tmp_path, ioengine="libaio", iodepth=4, **keys):
        assert job["write"]["total_ios"] == 256
        assert job["job_runtime"] >= 40 * 20, "not after each nine"


def test_thinktime_iotime_and_thinktime_are_a_cycle(tmp_path: Path) -> None:
    keys = {"rw": "write", "bs": "4k", "size": "1m", "rate_iops": 100, "thinktime": 100000, "thinktime_iotime": 0.1}
    run = lab.Job("job", filename=tmp_path / "file", runtime=1.3, io_log_entries=256, **keys).run(progress=False)
    time = run.io_log()["time"].codes.astype(float) / 1e9
    pauses = time[:-1][np.diff(time) > 0.08]
    assert len(pauses) >= 5
    assert abs(np.median(np.diff(pauses)) - 0.2) < 0.03


def test_each_direction_keeps_to_its_own_rate(tmp_path: Path) -> None:
    keys = {"rw": "randrw", "bs": "4k", "size": "4m", "rate": "1m,2m,0", "runtime": 1, "time_based": 1}
    for job in both(tmp_path, **keys):
        # A second's worth, and what the first moment may take ahead.
        assert 0 < job["read"]["total_ios"] <= 256 + 8
        assert 0 < job["write"]["total_ios"] <= 512 + 8


@pytest.mark.parametrize("process", ["linear", "poisson"])
def test_rate_iops_holds_back(process: str, tmp_path: Path) -> None:
    # 300 I/Os at 1000/s are due over 300 ms; drawn at random, their sum has a deviation of 17 ms.
    keys = {"rw": "write", "bs": "4k", "size": "1200k", "rate_iops": 1000, "rate_process": process}
    job = ours(tmp_path / "file", keys)
    assert job["write"]["total_ios"] == 300
    assert job["job_runtime"] > 300 - 1 - (0 if process == "linear" else 5 * 17)


@pytest.mark.full
def test_poisson_gaps_are_exponential(tmp_path: Path) -> None:
    keys = {"rw": "write", "bs": "4k", "size": "1m", "rate_iops": 200, "io_log_entries": 256}
    middle = {}
    for process in ("linear", "poisson"):
        run = lab.Job("job", filename=tmp_path / "file", rate_process=process, **keys).run(progress=False)
        gaps = np.diff(run.io_log()["time"].codes.astype(float))
        middle[process] = np.median(gaps) / gaps.mean()
    # Half of an exponential distribution lies below ln 2 of its mean; of equal gaps the median is the mean.
    assert abs(middle["poisson"] - math.log(2)) < 0.2
    assert abs(middle["linear"] - 1) < 0.1


def test_what_ramp_time_did_does_not_count(tmp_path: Path) -> None:
    keys = {"rw": "write", "bs": "4k", "size": "4m", "time_based": 1, "ramp_time": 1, "runtime": 1, "rate_iops": 500}
    for job in both(tmp_path, **keys):
        # Of the 1000 that two seconds give, the first second's do not count, nor does their time.
        assert 0 < job["write"]["total_ios"] < 900
        assert job["job_runtime"] < 1900


@pytest.mark.parametrize("more", [{}, {"verify": "crc32c"}], ids=["written", "verified"])
def test_passes_that_ended_within_ramp_time_take_no_run_time(tmp_path: Path, more: dict[str, Any]) -> None:
    """A time_based job over several files goes over them again and again, in the ramp too."""
    keys = {"rw": "write", "bs": "64k", "size": "256k", "nrfiles": 4, "directory": tmp_path, "time_based": 1, **more}
    result = lab.Job("a", **keys, ramp_time=2, runtime=1, rate_iops=200).run(progress=False)
    for row in result.summary():
        assert row["runtime"] < 1.9e9, row["direction"]
    (written,) = (row for row in result.summary() if row["direction"] == "write")
    assert written["runtime"] < 1.5e9
    assert written["iops"] > 130


def test_a_job_that_ends_within_its_ramp_time_says_so(tmp_path: Path) -> None:
    keys = {"rw": "write", "size": "64k", "directory": tmp_path}
    result = lab.Job("a", **keys, ramp_time=10).run(progress=False)
    assert len(result.summary()) == 0
    assert [str(check) for check in result.checks if check.is_doubt] == ["job a: no I/O: it ended within its ramp_time"]
    assert "within its ramp_time" in str(result)
    assert not any(check.is_doubt and check.kind == "lost" for check in lab.Job("a", **keys).run(progress=False).checks)


def test_what_was_in_flight_during_ramp_time_does_not_count(tmp_path: Path) -> None:
    """The shares of the depths are of the I/Os that were measured: a hundred percent, but for the ramp's last ones."""
    keys = {"rw": "randwrite", "bs": "4k", "size": "1m", "ioengine": "libaio", "iodepth": 4, "time_based": 1}
    for job in both(tmp_path, **keys, ramp_time=1, runtime=1):
        assert 90 < sum(job["iodepth_level"].values()) < 101


def test_a_command_after_the_job_takes_no_time_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # where the command's output goes
    for job in both(tmp_path, rw="write", bs="4k", size="64k", exec_postrun="sleep 1"):
        assert job["job_runtime"] < 1000


def test_max_latency_ends_the_job_with_fios_error(tmp_path: Path) -> None:
    keys = {"rw": "write", "bs": "4k", "size": "1m", "fsync": 1, "max_latency": "1us"}
    assert fios(tmp_path / "fios", keys)["error"] == 110
    with pytest.raises(lab.JobError, match=r"max_latency '.*ours': Connection timed out: \d+ ns at offset 0"):
        ours(tmp_path / "ours", keys)


def test_a_latency_target_finds_the_depth_and_counts_only_that(tmp_path: Path) -> None:
    """1, 2, 4, 8, 16, then one window at 16 that is the result (fio's lat_target_success())."""
    keys = {"rw": "randread", "bs": "4k", "size": "1m", "ioengine": "libaio", "iodepth": 16, "time_based": 1}
    target = {"runtime": 20, "latency_target": "1s", "latency_window": "40ms", "latency_percentile": 99}
    for job in both(tmp_path, **keys, **target):
        assert job["latency_depth"] == 16
        assert 39 <= job["job_runtime"] < 4 * 40, "one window's worth"
        levels = {level for level, share in job["iodepth_level"].items() if share > 0}
        assert "16" in levels
    # Nor do the logs know of the windows before.
    result = lab.Job(
        **keys, **target, filename=tmp_path / "f", io_log_entries=10_000_000, write_iops_log=tmp_path / "l"
    )
    result = result.run(progress=False)
    ios = result.json()["jobs"][0]["read"]["total_ios"]
    assert len(result.io_log()) == len((tmp_path / "l_iops.1.log").read_text().splitlines()) == ios


def test_a_latency_target_out_of_reach_leaves_depth_1(tmp_path: Path) -> None:
    keys = {"rw": "randread", "bs": "4k", "size": "1m", "ioengine": "libaio", "iodepth": 16, "time_based": 1}
    target = {"runtime": 1, "latency_target": "1us", "latency_window": "50ms"}
    for job in both(tmp_path, **keys, **target, latency_percentile=99.9, fsync=1):
        assert job["latency_depth"] == 1
        assert job["error"] == 0
    with pytest.raises(lab.JobError, match=r"latency_target .*not met even one I/O at a time"):
        ours(tmp_path / "all", {**keys, **target, "latency_percentile": 100})


@pytest.mark.full
@pytest.mark.parametrize("criterion", ["iops:20%", "bw_slope:20%"])
def test_steadystate_ends_a_steady_job(criterion: str, tmp_path: Path) -> None:
    keys = {"rw": "randread", "bs": "4k", "size": "4m", "time_based": 1, "runtime": 60, "rate_iops": 1000}
    for job in both(tmp_path, **keys, steadystate=criterion, steadystate_duration=3):
        assert job["job_runtime"] < 30_000
        state = job["steadystate"]
        assert state["attained"] == 1
        assert state["ss"] == criterion.replace("20%", "20.000000%")
        assert abs(float(state["criterion"].rstrip("%"))) < 20


@pytest.mark.full
def test_what_is_done_before_steadystate_looks_is_in_no_rate(tmp_path: Path) -> None:
    keys = {"rw": "randread", "bs": "4k", "size": "4m", "time_based": 1, "runtime": 60, "rate_iops": 500}
    job = ours(tmp_path / "file", {**keys, "steadystate": "iops:20%", "ss_dur": 1, "ss_ramp": 1})
    assert job["job_runtime"] < 30_000
    assert job["steadystate"]["data"]["iops_mean"] == pytest.approx(500, rel=0.3)  # it was those of two seconds in one


@pytest.mark.full
def test_a_rate_that_is_never_steady_runs_to_its_end(tmp_path: Path) -> None:
    keys = {"rw": "write", "bs": "4k", "size": "64k", "time_based": 1, "runtime": 3, "thinktime": 700_000}
    job = ours(tmp_path / "file", {**keys, "thinktime_blocks": 2000, "steadystate": "iops:0.001", "ss_dur": 2})
    assert job["steadystate"]["attained"] == 0
    assert job["job_runtime"] >= 3000


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_nice_and_lockmem_reach_the_jobs_process(tmp_path: Path) -> None:
    keys = {"rw": "write", "bs": "4k", "size": "64k", "runtime": 60, "time_based": 1}
    run = lab.Job("job", filename=tmp_path / "file", nice=7, lockmem="2m", **keys).prepare()
    run.start()
    try:
        (pid,) = run.pids
        while run.progress().done_ios == 0:
            pass
        stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        assert int(stat[16]) == min(19, os.nice(0) + 7)  # added to what it inherits, as fio's is
        status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
        assert int(status["VmLck"].split()[0]) >= 2048
    finally:
        run.stop()
        run.wait()


def cgroup_root() -> Path | None:
    """Where the cgroup that a job may be put in lies: version 2, or version 1's blkio, as fio takes it."""
    for line in Path("/proc/mounts").read_text().splitlines():
        _, path, kind, options, *_ = line.split()
        if kind == "cgroup2" or (kind == "cgroup" and "blkio" in options.split(",")):
            return Path(path)
    return None


@pytest.mark.skipif(cgroup_root() is None or os.geteuid() != 0, reason="no cgroup that we may write")
@pytest.mark.parametrize("keep", [0, 1])
def test_a_cgroup_holds_the_job_and_goes_with_it(keep: int, tmp_path: Path) -> None:
    name = f"sampleblk-test-{os.getpid()}"
    keys = {"rw": "write", "bs": "4k", "size": "64k", "runtime": 60, "time_based": 1}
    run = lab.Job("job", filename=tmp_path / "file", cgroup=name, cgroup_nodelete=keep, **keys).prepare()
    run.start()
    try:
        while run.progress().done_ios == 0:
            pass
        (pid,) = run.pids
        (place,) = (root for root in Path("/sys/fs/cgroup").rglob(name) if root.is_dir())
        assert str(pid) in (place / "cgroup.procs").read_text().split()
    finally:
        run.stop()
        run.wait()
    assert place.exists() == bool(keep)
    if keep:
        place.rmdir()


@pytest.mark.parametrize("keys", [{"sqthread_poll": 1}, {"fixedbufs": 1, "registerfiles": 1}, {"force_async": 4}])
def test_io_urings_own_keys_move_the_same_bytes(keys: dict[str, Any], tmp_path: Path) -> None:
    job = {"rw": "randwrite", "bs": "4k", "size": "1m", "ioengine": "io_uring", "iodepth": 8}
    mine, theirs = both(tmp_path, **job, **keys, verify="crc32c")
    assert mine["write"]["total_ios"] == theirs["write"]["total_ios"] == 256
    assert mine["read"]["total_ios"] == theirs["read"]["total_ios"] == 256
    assert mine["error"] == 0
