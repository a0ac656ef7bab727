# SPDX-License-Identifier: MIT
"""Recordings of the guest's kernels, kept with what `perf report` of the same series said of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from perf_peer import assert_same, rows_of_report

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


def test_the_calls_of_the_job_are_there(canned: tuple[str, lab.Profile]) -> None:
    name, profile = canned
    shares = lab.article_shares(profile)["share_percent"]
    assert float(str(shares["write"])) > 2
    assert float(str(shares["fadvise64"])) > 2
    folded = profile.stacks(idle=False).folded()
    assert any("ksys_write" in line and "ext4_" in line for line in folded.splitlines())
    assert any("fadvise64" in line and "sampleblk_queue_rq" in line for line in folded.splitlines())
    assert profile.header["os_release"].startswith(name.split("-")[0] + ".")
