# SPDX-License-Identifier: MIT
"""The article's job, recorded in the guest and read here: who calls whom, and where the time goes, beside its figures.

And the totals of `perf report` for what we, perf 6.1 and perf 6.12 recorded there.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from perf_peer import assert_same, perf_report

import sampleblk_lab as lab
from sampleblk_lab import kernels
from sampleblk_lab.errors import SampleblkError, UnsupportedError
from sampleblk_lab.kernels.debian import Suite
from support import RunsInVM

HERE = Path(__file__).parent


def system_perf() -> dict[str, Path]:
    """The system's, if it is there."""
    here = shutil.which("perf")
    return {"system": Path(here)} if here else {}


@pytest.fixture(scope="session")
def perfs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """perf by its series: the system's, and the backported one of Debian 12."""
    folder = tmp_path_factory.mktemp("perf")
    try:
        Suite("bookworm-backports").unpack(["linux-perf"], folder)
    except (SampleblkError, OSError):
        return system_perf()  # no mirror
    return {**system_perf(), "6.12": folder / "usr/bin/perf"}


SERIES = ("5.10", "6.1", "6.12", "7.2")


@pytest.fixture(
    scope="module", params=["6.1 in short", *(pytest.param(series, marks=pytest.mark.full) for series in SERIES)]
)
def recorded(
    request: pytest.FixtureRequest, sampleblk_python: RunsInVM, tmp_path_factory: pytest.TempPathFactory
) -> Any:
    """What the guest recorded: its folder, the recordings' counts, and the perfs that recorded there, too."""
    series, _, short = request.param.partition(" ")
    try:
        kernel = kernels.resolve(series, download=False)
    except UnsupportedError as error:
        pytest.skip(str(error))
    there: dict[str, Path] = {} if short else request.getfixturevalue("perfs")
    folder = tmp_path_factory.mktemp("article")
    # Two CPUs, of which one is idle.
    options = ["--kernel", kernel.release, "--cpus", "2", "--timeout", "500", "--run-dir", str(folder)]
    arguments = ["--no-fio", "--loops", "6"] if short else list(map(str, there.values()))
    done = sampleblk_python(*options, str(HERE / "article_guest.py"), *arguments, timeout=560)
    assert done.returncode == 0, done.stderr.decode()
    return folder, json.loads(done.stdout.splitlines()[-1]), there


def weight(stacks: lab.Stacks, *path: str) -> int:
    """The weight of the stacks that have all of these, in this order; each is a part of a function's name."""
    found = 0
    for line in stacks.folded().splitlines():
        frames, _, count = line.rpartition(" ")
        rest = iter(frames.split(";"))
        if all(any(part in frame for frame in rest) for part in path):
            found += int(count)
    return found


def test_nothing_was_lost(recorded: Any) -> None:
    _, stats, _ = recorded
    for name, counts in stats.items():
        assert (name, counts["lost"], counts["dropped_bytes"]) == (name, 0, 0)
        assert counts["samples"] > 100


def test_the_flame_graph_goes_from_the_engine_to_the_driver(recorded: Any) -> None:
    folder, _, _ = recorded
    profile = lab.open_profile(folder / "ours")
    stacks = profile.stacks(idle=False)
    written = weight(stacks, "Worker::run", "SyncEngine", "write", "entry_SYSCALL_64", "ksys_write", "ext4_")
    assert written > 0.8 * weight(stacks, "ksys_write", "ext4_") > 0
    dropped = weight(stacks, "Worker::run", "fadvise", "entry_SYSCALL_64", "sys_fadvise64")
    assert dropped > 0.8 * weight(stacks, "entry_SYSCALL_64", "sys_fadvise64") > 0
    # Writing back is within the call: from the file's pages to the driver.
    assert weight(stacks, "Worker::run", "sys_fadvise64", "ext4_writepages", "sampleblk_queue_rq") > 0
    graph = profile.flamegraph(idle=False).svg
    for name in ("SyncEngine", "ksys_write", "sys_fadvise64", "sampleblk_queue_rq"):
        assert name in graph


def test_each_call_s_share_is_beside_the_article_s(recorded: Any) -> None:
    folder, _, _ = recorded
    profile = lab.open_profile(folder / "ours")
    shares = lab.article.shares(profile)
    print(shares)
    assert shares["article_percent"]["write"] == 45.78
    assert shares["article_percent"]["fadvise64"] == 20.81
    assert np.isnan(float(str(shares["article_percent"]["(idle)"])))
    calls = profile.syscalls()
    for name in ("write", "fadvise64"):
        assert shares["share_percent"][name] == calls["on_cpu_percent"][name]
        assert float(str(shares["share_percent"][name])) > 2
        for time in ("on_cpu", "runnable", "blocked_io", "blocked_lock"):
            assert shares[time][name] == calls[time][name]
    # That the calls are off the CPU needs no inference from two ratios.
    off = [int(str(shares[time]["fadvise64"])) for time in ("runnable", "blocked_io", "blocked_lock", "waiting")]
    assert sum(off) > 0
    assert "article, perf: 2.20" in shares.metadata["write_to_fadvise64_on_cpu"]
    assert "article, strace: 2.68" in shares.metadata["write_to_fadvise64_in_all"]
    assert "45.78" in str(shares)
    assert "20.81" in str(shares)


def test_the_article_s_findings_are_beside_ours(recorded: Any) -> None:
    folder, _, _ = recorded
    profile = lab.open_profile(folder / "ours")
    findings = lab.article.findings(profile)
    print(findings)
    ours = dict(zip(findings["finding"].values, findings["share_percent"].values, strict=True))
    shares = lab.article.shares(profile)["share_percent"]
    assert ours["write(2)"] == pytest.approx(shares["write"], abs=1)
    assert ours["fadvise64(2)"] == pytest.approx(shares["fadvise64"], abs=1)
    stacks = profile.stacks()
    spun = weight(stacks, "ext4_buffered_write_iter", "rwsem_spin_on_owner")
    assert ours["write(2)"] > ours["spinning for the inode's lock in ext4_file_write_iter"] >= 100 * spun / stacks.total
    idle = sum(int(line.rpartition(" ")[2]) for line in stacks.folded().splitlines() if line.startswith("swapper;"))
    assert ours["the idle task"] == pytest.approx(100 * idle / stacks.total)
    assert findings["article_percent"]["write(2)"] == 45.78


@pytest.mark.skipif(shutil.which("fio") is None, reason="needs fio: apt-get install fio")
def test_fio_itself_is_unwound_to_its_engine(recorded: Any) -> None:
    folder, _, _ = recorded
    if not (folder / "fio").exists():
        pytest.skip("recorded in short")
    profile = lab.open_profile(folder / "fio")
    stacks = profile.stacks(idle=False)
    # fio's own names, as in the article's graph: those that Debian's stripped fio still has.
    written = weight(stacks, "fio", "td_io_queue", "write", "ksys_write", "ext4_")
    assert written > 0.8 * weight(stacks, "fio", "ksys_write", "ext4_") > 0
    dropped = weight(stacks, "fio", "td_io_open_file", "fadvise", "sys_fadvise64")
    assert dropped > 0.5 * weight(stacks, "fio", "sys_fadvise64") > 0
    print(lab.article.shares(profile))


@pytest.mark.skipif(shutil.which("perf") is None, reason="needs perf: apt-get install linux-perf")
@pytest.mark.skipif(os.geteuid() != 0, reason="the files' owner is root")
def test_totals_of_our_recording_are_those_of_each_perf_report(recorded: Any) -> None:
    folder, _, perfs = recorded
    profile = lab.open_profile(folder / "plain", inlines=False)
    for perf in (perfs or system_perf()).values():
        options = ["--kallsyms", str(folder / "plain/kallsyms")]
        assert_same(profile, perf_report(folder / "plain/perf.data", *options, perf=str(perf)))


@pytest.mark.skipif(os.geteuid() != 0, reason="the files' owner is root")
def test_totals_of_each_perf_s_recording_are_those_of_its_report(recorded: Any) -> None:
    folder, _, perfs = recorded
    if not (folder / "0.data").exists():
        pytest.skip("recorded in short, or without fio and perf")
    for number, perf in enumerate(perfs.values()):
        path = folder / f"{number}.data"
        profile = lab.open_profile(path, kallsyms=folder / "kallsyms", inlines=False)
        assert len(profile) > 100
        assert_same(profile, perf_report(path, "--kallsyms", str(folder / "kallsyms"), perf=str(perf)))
