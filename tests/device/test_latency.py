# SPDX-License-Identifier: MIT
"""Measurements become bins of the driver's empirical model: fio's, our own workload's, tables, pairs."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sampleblk_lab as lab
from sampleblk_lab._native import core
from sampleblk_lab.device.latency import measured_ops
from sampleblk_lab.table import Table

Bins = list[tuple[int, int]]


def quantile(bins: Bins, q: float) -> float:
    """As the driver draws: evenly within a bin."""
    ends = np.array([0, *(end for end, _ in bins)], dtype=float)
    below = np.cumsum([0, *(count for _, count in bins)])
    return float(np.interp(q * below[-1], below, ends))


def acceptable(bins: Bins) -> None:
    """What the kernel asks of bins."""
    ends = [end for end, _ in bins]
    assert ends == sorted(set(ends))
    assert 0 < ends[0] <= ends[-1] <= core.SAMPLEBLK_MAX_LATENCY_NS
    assert len(ends) <= core.SAMPLEBLK_MAX_BINS
    assert sum(count for _, count in bins) > 0


def fio_json(**directions: Any) -> dict[str, Any]:
    return {"fio version": "fio-3.33", "jobs": [{"jobname": "j", "error": 0, **directions}]}


def test_bins_of_fio_keep_their_place_and_their_counts() -> None:
    # fio names a bin by its middle: below 128 ns one each, then 64 to a power of two.
    value = fio_json(read={"total_ios": 10, "clat_ns": {"bins": {"100": 1, "20096": 6, "10112": 3}}})
    bins = lab.latency_bins(value)
    acceptable(bins)
    assert bins == [(100, 0), (101, 1), (10048, 0), (10176, 3), (19968, 0), (20224, 6)]
    with pytest.raises(lab.InputError, match="without a write"):
        lab.latency_bins(value, "write")
    assert measured_ops(value) == ["read"]


def test_jobs_add_up_and_flushes_are_fio_s_syncs() -> None:
    value = fio_json(
        write={"total_ios": 1, "clat_ns": {"bins": {"20096": 1}}},
        sync={"total_ios": 2, "lat_ns": {"bins": {"1003520": 2}}},
    )
    value["jobs"] *= 2
    assert measured_ops(value) == ["write", "flush"]
    assert lab.latency_bins(value, "write") == [(19968, 0), (20224, 2)]
    assert sum(count for _, count in lab.latency_bins(value, "flush")) == 4


def test_plain_json_has_percentiles_and_they_are_met() -> None:
    percentile = {"1.000000": 8000, "50.000000": 10_000, "90.000000": 30_000, "99.000000": 90_000}
    stats = {"min": 7000, "max": 200_000, "percentile": percentile}
    bins = lab.latency_bins(fio_json(read={"total_ios": 1000, "clat_ns": stats}))
    acceptable(bins)
    for q, expected in ((0, 7000), (0.01, 8000), (0.5, 10_000), (0.9, 30_000), (0.99, 90_000), (1, 200_000)):
        assert quantile(bins, q) == pytest.approx(expected, rel=0.01)
    # fio 2 counted microseconds.
    old = {"min": 7, "max": 200, "percentile": {name: ns // 1000 for name, ns in percentile.items()}}
    assert lab.latency_bins(fio_json(read={"total_ios": 1000, "clat": old})) == bins
    # Which also had percentiles of nothing.
    assert measured_ops(fio_json(read={"total_ios": 0, "clat": {"percentile": {"1.000000": 0}}})) == []


def test_a_busy_job_weighs_more() -> None:
    value = fio_json(read={"total_ios": 9, "clat_ns": {"min": 1000, "max": 2000, "percentile": {"50.0": 1500}}})
    value["jobs"].append(
        {"jobname": "k", "read": {"total_ios": 1, "clat_ns": {"min": 5000, "max": 6000, "percentile": {"50.0": 5500}}}}
    )
    bins = lab.latency_bins(value)
    assert quantile(bins, 0.89) == pytest.approx(2000, rel=0.02)
    assert quantile(bins, 0.95) == pytest.approx(5500, rel=0.01)


def test_tables_and_pairs() -> None:
    words = Table.of(
        {
            "direction": ["read", "read", "write"],
            "kind": ["clat", "slat", "clat"],
            "latency": np.array([1000, 1, 5000], dtype=np.uint64),
            "width": np.array([500, 1, 1000], dtype=np.uint64),
            "count": np.array([4, 9, 2], dtype=np.uint64),
        }
    )
    assert lab.latency_bins(words) == [(1000, 0), (1500, 4)]
    assert lab.latency_bins(words, "write") == [(5000, 0), (6000, 2)]
    driver = Table.of(
        {
            "from_ns": np.array([0, 2, 1024], dtype=np.uint64),
            "to_ns": np.array([2, 4, 2**64 - 1], dtype=np.uint64),
            "count": np.array([1, 0, 5], dtype=np.uint64),
        }
    )
    assert lab.latency_bins(driver) == [(2, 1), (1024, 0), (2048, 5)]
    assert lab.latency_bins([(1000, 0), (2000, 3), (9000, 1)]) == [(1000, 0), (2000, 3), (9000, 1)]
    with pytest.raises(lab.InputError, match=r"without .*direction"):
        lab.latency_bins(Table.of({"kind": ["clat"]}))
    with pytest.raises(lab.InputError, match=r"bin \(5, 1\).*ascend"):
        lab.latency_bins([(10, 1), (5, 1)])
    with pytest.raises(lab.InputError, match="without a read"):
        lab.latency_bins([])
    with pytest.raises(lab.InputError, match="'trim'"):
        lab.latency_bins(words, "trim")


def test_what_the_way_costs_is_taken_off() -> None:
    assert lab.latency_bins([(1000, 0), (2000, 3), (9000, 1)], less_ns=1500) == [(500, 3), (7500, 1)]
    # What took less took nothing.
    assert lab.latency_bins([(1000, 2), (2000, 3)], less_ns=5000) == [(1, 5)]


def test_more_bins_than_the_driver_takes_are_joined() -> None:
    many = [(100 * (i + 1), i % 7) for i in range(20_000)]
    bins = lab.latency_bins(many)
    acceptable(bins)
    assert sum(count for _, count in bins) == sum(count for _, count in many)
    for q in (0.1, 0.5, 0.9):
        assert quantile(bins, q) == pytest.approx(quantile(many, q), rel=0.01)


def test_overlapping_bins_share_what_they_have() -> None:
    wide = fio_json(read={"clat_ns": {"percentile": {"100.0": 4000}, "min": 0, "max": 4000}, "total_ios": 1})
    wide["jobs"].append(
        {"jobname": "n", "read": {"clat_ns": {"percentile": {"100.0": 2000}, "min": 1000, "max": 2000}}}
    )
    bins = lab.latency_bins(wide)
    acceptable(bins)
    assert sum(count for _, count in bins) == 2_000_000
    assert quantile(bins, 1 / 8) == pytest.approx(1000, rel=0.01)
    assert quantile(bins, 6 / 8) == pytest.approx(2000, rel=0.01)


def test_a_latency_beyond_a_minute_is_named() -> None:
    with pytest.raises(lab.InputError, match="latency of 61000000000 ns"):
        lab.latency_bins([(61_000_000_000, 1)])


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "fio --output-format=json"),
        ("[1]", "fio --output-format=json"),
        ('{"jobs": 3}', 'list "jobs"'),
        ('{"jobs": [4]}', 'list "jobs"'),
        ('{"jobs": [{"read": []}]}', "AttributeError"),
        ('{"jobs": [{"jobname": "j", "read": {"clat_ns": {"bins": {"x": 1}}}}]}', "ValueError"),
        ('{"jobs": [{"jobname": "j", "read": {"clat_ns": {"percentile": {"50.0": null}}}}]}', "TypeError"),
    ],
)
def test_a_file_that_is_not_fio_s_is_refused(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "result.json"
    path.write_text(text)
    with pytest.raises(lab.FormatError, match=says) as caught:
        lab.latency_bins(path)
    assert caught.value.path == str(path)


def test_of_our_own_workload(tmp_path: Path) -> None:
    job = lab.Job(rw="randrw", bs="4k", size="256k", ioengine="psync", filename=tmp_path / "file")
    result = job.run(progress=False)
    saved = result.save(tmp_path / "result.json")
    for op in ("read", "write"):
        bins = lab.latency_bins(result, op)
        acceptable(bins)
        assert lab.latency_bins(saved, op) == bins
        assert quantile(bins, 0.5) == pytest.approx(result.percentiles([50], direction=op)[0], rel=0.02)
    assert sum(count for op in ("read", "write") for _, count in lab.latency_bins(result, op)) == 64


@pytest.mark.skipif(shutil.which("fio") is None, reason="needs fio: apt-get install fio")
def test_of_fio_s_own_files(tmp_path: Path) -> None:
    for form in ("json+", "normal,json+", "json"):
        output = tmp_path / "out"
        command = [
            "fio", "--name=j", f"--filename={tmp_path / 'file'}", "--rw=randwrite", "--bs=4k", "--size=512k",
            "--ioengine=psync", f"--output-format={form}", f"--output={output}",
        ]  # fmt: skip
        subprocess.run(command, check=True, capture_output=True)
        bins = lab.latency_bins(output, "write")
        acceptable(bins)
        text = output.read_text()
        stats = json.JSONDecoder().raw_decode(text[text.index("{\n") :])[0]["jobs"][0]["write"]["clat_ns"]
        assert quantile(bins, 0.5) == pytest.approx(stats["percentile"]["50.000000"], rel=0.03)
        # With --status-interval, reports of what was done until then stand before it.
        early = fio_json(write={"total_ios": 1, "clat_ns": {"bins": {"100": 1}}})
        output.write_text(f"{json.dumps(early, indent=2)}\n{text}")
        assert lab.latency_bins(output, "write") == bins
