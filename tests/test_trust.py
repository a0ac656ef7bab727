# SPDX-License-Identifier: MIT
"""Figures in doubt: what is said where no device is needed. tests/vm/test_trust_checks.py has the rest."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import struct
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import sampleblk_lab as lab
from sampleblk_lab import trust
from sampleblk_lab._native import core
from sampleblk_lab.analysis.trust import of_recording
from sampleblk_lab.workload import checks


def _doubts(result: lab.Result) -> list[tuple[str, str]]:
    return [(check.kind, check.verdict) for check in result.checks if check.is_doubt]


def test_a_plain_job_is_not_in_doubt(tmp_path: Path) -> None:
    result = lab.Job(rw="write", bs="4k", size="256k", io_log_entries=64, filename=tmp_path / "file").run(
        progress=False
    )
    assert [check.verdict for check in result.checks] == ["agrees", "agrees", "complete"]
    assert str(result) == result.text()


def test_a_log_without_room_is_told_beside_the_figures(tmp_path: Path) -> None:
    job = lab.Job(rw="write", bs="4k", size="256k", io_log_entries=10, filename=tmp_path / "file")
    result = job.run(progress=False)
    assert _doubts(result) == [("lost", "incomplete")]
    assert str(result).endswith("\nin doubt: I/Os that found no room in io_log: 54: incomplete\n")
    assert "doubt" not in result.text()  # which is fio's
    with pytest.raises(
        lab.TrustError, match=r"allow=\['lost'\]\):\n  I/Os that found no room in io_log: 54: "
    ) as error:
        lab.measure(lambda: float(len(job.run(progress=False).io_log())), min_repeats=6, max_repeats=6)
    assert [check.kind for check in pickle.loads(pickle.dumps(error.value)).checks] == ["lost"]
    done = lab.measure(
        lambda: float(len(job.run(progress=False).io_log())), min_repeats=6, max_repeats=6, warmup=0, allow="lost"
    )
    assert done.samples == (10.0,) * 6
    with pytest.raises(lab.TrustError):
        lab.measure_both(lambda: None, lambda: job.run(progress=False) and None, min_repeats=6, max_repeats=6)


def test_what_may_be_allowed() -> None:
    with pytest.raises(lab.InputError, match=r"allow='counter' \(expected bandwidth or clock or counters or errors or"):
        lab.measure(lambda: 1.0, allow=["counter"])


def test_files_are_looked_for_by_what_holds_for_the_job(tmp_path: Path) -> None:
    """By a key's other name too, and by the settings of [global] above the job alone."""
    null = lab.Job(rw="write", size="4k", engine="null", filename=tmp_path / "f")
    assert null.doubts_of_files("/dev/none") == []
    text = f"[global]\nsize=4k\ndirectory={tmp_path}\n[a]\nfilename=f\n[global]\ndirectory=/\nengine=null\n[b]\n"
    (doubt,) = lab.JobFile.parse(text).doubts_of_files("/dev/none")
    assert doubt.found == str(tmp_path / "f")


def _at(steady: int, day: int, booted: int, unsure: int = 100) -> checks._Moment:
    return checks._Moment((steady, day, booted), unsure, {}, {}, {})


@pytest.mark.parametrize(
    ("day", "booted", "unsure", "jumped"),
    [
        (10_000_000_000, 10_000_000_000, 100, [False, False]),
        (10_004_000_000, 10_000_000_000, 100, [False, False]),  # as NTP may slew it
        (10_020_000_000, 10_000_000_000, 100, [True, False]),
        (9_980_000_000, 10_000_000_000, 100, [True, False]),
        (10_020_000_000, 10_000_000_000, 50_000_000, [False, False]),  # somebody else had the processor
        (10_000_000_000, 13_600_000_000, 100, [False, True]),
    ],
)
def test_clocks_are_held_against_each_other(day: int, booted: int, unsure: int, jumped: list[bool]) -> None:
    found = list(checks._of_clocks(_at(5, 7, 9), _at(10_000_000_005, day + 7, booted + 9, unsure)))
    assert [check.is_doubt for check in found] == jumped


def _told(*rows: tuple[str, int, float], drift: float = 0) -> Any:
    """A result as a Watch asks it: direction, bytes and runtime of the job "a"."""
    names = ("job", "direction", "bytes", "runtime")
    columns = zip(*(("a", *row) for row in rows), strict=True)
    summary = {name: SimpleNamespace(values=np.array(list(c))) for name, c in zip(names, columns, strict=True)}
    summary["job"], summary["direction"] = ["a"] * len(rows), [row[0] for row in rows]
    jobs = [{"jobname": "a", "total_err": 0, "sampleblk": {"clock_drift_ppm": drift}}]
    return SimpleNamespace(errors=[], stop_reason="", summary=lambda: summary, json=lambda: {"jobs": jobs})


def _watched(use: checks._Use, limit: int = 0, **moved: int) -> checks.Watch:
    watch = checks.Watch([])
    before = dict.fromkeys(("errors", "read_bytes", "write_bytes", "discard_bytes"), 5)
    after = {name: value + moved.get(name, 0) for name, value in before.items()}
    watch._uses = {3: use}
    watch._begin = checks._Moment((0, 0, 0), 0, {3: 1}, {3: before}, {3: limit})
    second = (10**9,) * 3
    watch._end = checks._Moment(second, 0, {3: 1}, {3: after}, {3: limit})
    return watch


@pytest.mark.parametrize(
    ("use", "seen", "verdict"),
    [
        ({}, 4096, "agrees"),
        ({"direct": False}, 0, "differs"),  # trims go past the page cache
        ({}, 8192, "differs"),
        ({"raw": False}, 8192, "and more that is no job's"),
        ({"raw": False}, 512, "differs"),
        ({"trims": False}, 0, ""),
    ],
)
def test_trims_are_held_against_the_drivers(use: dict[str, bool], seen: int, verdict: str) -> None:
    watch = _watched(checks._Use({"a"}, **use), 2048, discard_bytes=seen)
    found = {check.what: check for check in watch.checks(_told(("trim", 4096, 0.5e9)))}
    assert not found["rate of the jobs on sampleblk3, its limit"].is_doubt  # of reads and writes
    trims = found.get("trim bytes: jobs, sampleblk3")
    assert (trims.verdict, trims.is_doubt) == (verdict, verdict == "differs") if trims else not verdict


def test_trims_of_nobodys_are_told() -> None:
    watch = _watched(checks._Use({"a"}), read_bytes=4096, discard_bytes=512)
    assert [str(check) for check in watch.checks(_told(("read", 4096, 1e9))) if check.is_doubt] == [
        "trim bytes: jobs, sampleblk3: 0, 512: differs"
    ]


@pytest.mark.parametrize(("ppm", "told"), [(900.0, []), (-2500.0, ["-2500 ppm"])])
def test_a_clock_of_a_job_that_drifted_is_told(ppm: float, told: list[str]) -> None:
    watch = _watched(checks._Use({"a"}), read_bytes=4096)
    found = watch.checks(_told(("read", 4096, 1e9), drift=ppm))
    assert [check.found for check in found if check.is_doubt] == told
    assert {check.kind for check in found if check.is_doubt} <= {"clock"}


def test_blocks_within_each_other_are_told_the_same_and_no_other_is() -> None:
    doubt = trust.of_losses("events", 1)
    trust.later(lambda: [doubt])  # nobody asks
    with trust.collected() as outer:
        with trust.collected() as inner:
            trust.later(lambda: [doubt, trust.of_losses("samples", 0)])
        trust.later(lambda: [doubt])
    assert inner.doubts() == [doubt]
    assert inner.doubts() == []
    assert outer.doubts(["lost"]) == []


def test_nothing_is_worked_out_before_it_is_asked_for() -> None:
    def slow() -> list[trust.Check]:
        time.sleep(0.2)
        return []

    def timed() -> None:
        trust.later(slow)

    found = lab.measure(timed, min_repeats=6, max_repeats=6, warmup=0)
    assert found.value < 0.1e9


@pytest.mark.parametrize(
    ("settings", "files"),
    [
        ({"filename": "/a:/b"}, ["/a", "/b"]),
        ({"filename": r"/dev/disk\:1"}, ["/dev/disk:1"]),
        ({"filename": "x:y", "directory": "/one:/two"}, ["/one/x", "/one/y"]),
        ({"filename": "/x", "directory": "/one/"}, ["/one/x"]),
        ({"directory": "/one"}, ["/one"]),
        ({"directory": "/one:/two", "numjobs": 3}, ["/one", "/two", "/one"]),
        ({"filename_format": "/one/$jobname.$jobnum/$filenum", "numjobs": 2}, ["/one/job.0", "/one/job.1"]),
        ({"filename_format": "two/$filenum", "directory": "/one", "nrfiles": 9}, ["/one/two"]),
        ({"opendir": "/one", "directory": "/two"}, ["/one"]),
        ({"read_iolog": "log", "directory": "/one"}, None),
        ({"read_iolog": "log", "replay_redirect": "x", "directory": "/one"}, ["/one/x"]),
        ({"read_iolog": "log", "replay_redirect": "/x", "directory": "/one"}, ["/x"]),
        ({"filename": "/x", "ioengine": "null"}, []),
        ({"filename": "x", "directory": r"/one\:two"}, ["/one:two/x"]),
        ({}, ["."]),
    ],
)
def test_where_the_files_of_a_job_are(settings: dict[str, Any], files: list[str] | None) -> None:
    jobs = checks.as_told(lab.Job(rw="write", size="4k", **settings)._jobs)
    found = [str(path) for job in jobs for path in job.places or ()]
    assert (found if all(job.places is not None for job in jobs) else None) == files


def test_where_a_job_s_files_are_is_where_it_makes_them(tmp_path: Path) -> None:
    folders = [tmp_path / "one", tmp_path / "\udcff"]  # as bytes: no text
    for folder in folders:
        folder.mkdir()
    keys = "rw=write\nsize=8k\nnumjobs=3\nnrfiles=2\nfilename_format=deep/$jobnum.$filenum\ndirectory="
    (tmp_path / "file").write_bytes(f"[job]\n{keys}".encode() + b":".join(map(os.fsencode, folders)))
    job = lab.JobFile(tmp_path / "file")
    (tmp_path / "file").unlink()
    job.run(progress=False)
    places = [place for each in checks.as_told(job._jobs) for place in each.places or ()]
    assert {path.parent for path in tmp_path.rglob("*") if path.is_file()} == set(places)


@pytest.mark.parametrize(
    ("keys", "direct"),
    [
        ("", False),
        ("direct=1", True),
        ("buffered=0", True),
        ("direct=1\nbuffered=1", False),
        ("buffered=0\ndirect=0", False),
        ("buffered=1\ndirect=true", True),
    ],
)
def test_the_last_word_on_the_page_cache_counts(keys: str, direct: bool) -> None:
    """Else counters are held against jobs that they know nothing of. As fio 3.33, by strace."""
    jobs = core.JobSet.parse(f"[global]\n{keys}\n[j]\nsize=4k\n", "a test")
    assert [job.direct for job in checks.as_told(jobs)] == [direct]


@pytest.mark.parametrize(
    ("found", "told"),
    [
        ({}, None),
        ({"read_events": 0}, None),
        ({"read_events": -1}, "buffer was emptied under it: an unknown number"),
        ({"read_events": 3}, "of {0} that the kernel counts: incomplete"),
        (
            {"read_events": 0, "gone_events": ["xfs:xfs_iget"]},
            "emptied under it as the module of xfs:xfs_iget went",
        ),
        (
            {"read_events": 0, "clock": "mono", "last_clock": "local"},
            "emptied under it as its clock became local, in which its times are",
        ),
        ({"read_events": 0, "clock": "mono", "last_clock": "mono"}, None),
    ],
)
def test_a_recording_is_held_against_the_kernel_s_count(
    tmp_path: Path, found: dict[str, Any], told: str | None
) -> None:
    shutil.copy(Path(__file__).parent / "data/trace/6.1-io.dat", tmp_path / "trace.dat")
    count = int(lab.open_run(tmp_path).counts()["count"].codes.sum())
    if "read_events" in found:
        found = {**found, "read_events": count + found["read_events"]}
    (tmp_path / "recording.json").write_text(json.dumps(found))
    doubts = [str(check) for check in of_recording(lab.open_run(tmp_path)) if check.is_doubt]
    assert len(doubts) == (told is not None)
    assert told is None or told.format(count + 3) in doubts[0]


@pytest.mark.parametrize("order", [(1, 0), (0, 0), (0, 1)])
def test_pages_that_are_not_as_they_were_recorded_are_told(tmp_path: Path, order: tuple[int, int]) -> None:
    """Of the first two of a CPU: exchanged, or one of them twice."""
    whole = (Path(__file__).parent / "data/trace/6.1-io.dat").read_bytes()
    table = whole.index(b"flyrecord\0") + 10
    at, size = struct.unpack_from("<QQ", whole, table)
    assert size >= 2 * 4096
    pages = [whole[at : at + 4096], whole[at + 4096 : at + 8192]]
    path = tmp_path / "trace.dat"
    path.write_bytes(whole[:at] + b"".join(pages[one] for one in order) + whole[at + 8192 :])
    doubts = [str(check) for check in of_recording(lab.open_run(path)) if check.is_doubt]
    assert len(doubts) == (order != (0, 1))
    assert all("1 places where a CPU's do not go on: an unknown number is lost" in doubt for doubt in doubts)
