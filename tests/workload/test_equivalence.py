# SPDX-License-Identifier: MIT
"""The same job file means the same: our system calls against those of the real fio, job by job.

What fixes its calls is compared call by call: names, order, offsets, sizes, flags. What draws them at random is
compared by distribution, with a chi-square test of the two samples.
"""

from __future__ import annotations

import json
import math
import re
import subprocess
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from beside_fio import FIO_VERSION, fios, needs_fio, needs_strace, on_files, ours

import sampleblk_lab as lab

JOBS = Path(__file__).parent.parent / "data" / "jobs" / "equivalence"

pytestmark = [needs_strace, needs_fio]

# Calls that only one of the two makes, and why.
OLDER = ("libaio_batch", "libaio_fsync", "libaio_write")
EXCEPT = {
    "vsync_batch": ("close", "fio 3.33 leaves the file open when vsync batches"),
    "unlink": ("unlink", "fio removes the file a second time, which finds nothing"),
}


def both(name: str, directory: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[list[list[str]], list[list[str]]]:
    """The calls of ours and of fio's, process by process: the parent's layout first, then the jobs sorted."""
    out = []
    for who, run in (("ours", ours), ("fio", fios)):
        files = directory / who
        files.mkdir()
        monkeypatch.setenv("DIR", str(files))
        monkeypatch.chdir(directory)  # for exec_prerun's output
        processes = list(on_files(run(JOBS / f"{name}.fio", directory / f"{who}.log"), files).values())
        # Without a layout the first process to show up is a job.
        has_layout = bool(processes) and not processes[0][0].endswith(("O_RDWR|O_CREAT", "O_RDONLY"))
        head = processes[:1] if has_layout else []
        out.append([*head, *sorted(processes[len(head) :])])
    return out[0], out[1]


@pytest.mark.parametrize("name", sorted(path.stem for path in JOBS.glob("*.fio") if not path.stem.startswith("random")))
def test_calls_are_fios(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if name in OLDER and FIO_VERSION != "fio-3.33":
        pytest.skip(f"held against fio 3.33, whose libaio asks for events otherwise than {FIO_VERSION}'s")
    mine, theirs = both(name, tmp_path, monkeypatch)
    if name == "numjobs_offset_increment":
        # fio lays the shared file out for the last copy only; we do for each, to the same end.
        mine, theirs = mine[1:], theirs[1:]
        # A race for the file's lock makes some of fio's copies open it twice.
        theirs = sorted(without_doubles(calls) for calls in theirs)
    if name in EXCEPT:
        call, _why = EXCEPT[name]
        mine, theirs = ([[c for c in calls if not c.startswith(call)] for calls in side] for side in (mine, theirs))
    assert mine == theirs
    assert sum(len(calls) for calls in mine) > 5


def without_doubles(calls: list[str]) -> list[str]:
    return [call for i, call in enumerate(calls) if i == 0 or not re.match("open|close", call) or calls[i - 1] != call]


def transfers(calls: list[str]) -> list[tuple[str, int, int]]:
    """(read or write, length, offset) of each positioned transfer."""
    found = (re.match(r"p(read|write)64 \S+ (?:data, )?(\d+), (\d+) = ", call) for call in calls)
    return [(match[1], int(match[2]), int(match[3])) for match in found if match]


def chi_square_p(ones: list[int], others: list[int]) -> float:
    """The chance that two samples of one distribution differ as much as these counts by class do."""
    total_one, total_other = sum(ones), sum(others)
    statistic = 0.0
    classes = 0
    for one, other in zip(ones, others, strict=True):
        both_of_them = one + other
        if both_of_them < 10:  # too few to count
            continue
        classes += 1
        for seen, share in ((one, total_one), (other, total_other)):
            expected = both_of_them * share / (total_one + total_other)
            statistic += (seen - expected) ** 2 / expected
    freedom = max(classes - 1, 1)
    # Wilson and Hilferty (1931): the cube root of chi-square is close to normal.
    spread = 2 / (9 * freedom)
    z = ((statistic / freedom) ** (1 / 3) - (1 - spread)) / math.sqrt(spread)
    return 0.5 * math.erfc(z / math.sqrt(2))


def random_job(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[tuple[str, int, int]]]:
    sides = both(name, tmp_path, monkeypatch)
    return [transfers([call for calls in side for call in calls]) for side in sides]


@pytest.mark.parametrize("name", ["random_read", "random_write", "random_trim_align", "random_two_files"])
def test_random_with_a_map_takes_every_block_once(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine, theirs = random_job(name, tmp_path, monkeypatch)
    assert sorted(mine) == sorted(theirs)
    assert mine != sorted(mine)
    assert len(mine) >= 128


@pytest.mark.parametrize(
    ("name", "by_rank"),
    [
        ("random_norandommap", False),
        ("random_zoned", False),
        ("random_zipf", True),
        ("random_pareto", True),
        ("random_normal", True),
    ],
)
def test_offsets_have_fios_distribution(
    name: str, by_rank: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Zipf and its kin are hashed over the file, each program in its own way: there it is the ranks that compare."""
    mine, theirs = random_job(name, tmp_path, monkeypatch)
    assert len(mine) == len(theirs)
    assert len(mine) >= 2000

    def classes(found: list[tuple[str, int, int]]) -> list[int]:
        if not by_rank:
            # 64 blocks of 4k in 16 classes.
            counts = Counter(offset // 4096 * 16 // 64 for _, _, offset in found)
            return [counts[i] for i in range(16)]
        ranked = sorted(Counter(offset for _, _, offset in found).values(), reverse=True)
        # Ranks 1, 2, 3-4, 5-8, …: few enough that a rank is not mistaken for its neighbour.
        return [sum(ranked[2**i - 1 : 2 ** (i + 1) - 1]) for i in range(7)]

    assert chi_square_p(classes(mine), classes(theirs)) > 1e-4
    uniform = [len(theirs) // 16] * 16 if not by_rank else [len(theirs) // 7] * 7
    if name != "random_norandommap":
        # The test can tell a difference: nothing here is even.
        assert chi_square_p(classes(mine), uniform) < 1e-4


@pytest.mark.parametrize("service", ["zipf:1.2", "pareto:0.2", "normal:20"])
@pytest.mark.parametrize("files", [2, 5])
def test_files_have_fios_distribution(service: str, files: int, tmp_path: Path) -> None:
    """By rank: zipf and pareto begin at any file."""
    keys = {"rw": "randread", "norandommap": 1, "size": f"{files}m", "io_size": "16m", "nrfiles": files}
    keys |= {"ioengine": "null", "file_service_type": service}
    log = lab.Job("a", **keys, io_log_entries=5000).run(progress=False).io_log()
    (tmp_path / "job.fio").write_text("[a]\nwrite_iolog=log\n" + "".join(f"{k}={v}\n" for k, v in keys.items()))
    subprocess.run(["fio", "job.fio"], cwd=tmp_path, capture_output=True, check=True, timeout=60)
    lines = [line.split() for line in (tmp_path / "log").read_text().splitlines()]
    theirs = [words[1] for words in lines if words[2:3] == ["read"]]
    counts = [sorted(Counter(names).values())[::-1] for names in (map(str, log["path"]), theirs)]
    assert [sum(side) for side in counts] == [4096, 4096]
    assert chi_square_p(*([*side, *[0] * files][:files] for side in counts)) > 1e-4


@pytest.mark.parametrize("name", ["random_bsrange", "random_bssplit"])
def test_block_sizes_have_fios_distribution(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine, theirs = random_job(name, tmp_path, monkeypatch)
    sizes = sorted({length for _, length, _ in mine + theirs})
    assert {length for _, length, _ in mine} == {length for _, length, _ in theirs}
    counts = [[Counter(length for _, length, _ in side)[size] for size in sizes] for side in (mine, theirs)]
    assert chi_square_p(*counts) > 1e-4
    assert len(sizes) > 2


def test_mixes_have_fios_shares(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine, theirs = random_job("random_rwmix", tmp_path, monkeypatch)
    counts = [[Counter(kind for kind, _, _ in side)[kind] for kind in ("read", "write")] for side in (mine, theirs)]
    assert chi_square_p(*counts) > 1e-4
    assert counts[0][0] > 2 * counts[0][1]


def test_sequential_shares_are_fios(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def follows(found: list[tuple[str, int, int]]) -> list[int]:
        steps = [b[2] == a[2] + a[1] for a, b in pairwise(found)]
        return [sum(steps), len(steps) - sum(steps)]

    mine, theirs = random_job("random_percentage", tmp_path, monkeypatch)
    assert chi_square_p(follows(mine), follows(theirs)) > 1e-4


def test_two_runs_make_the_same_random_choices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DIR", str(tmp_path))
    runs = []
    for i in range(2):
        calls = on_files(ours(JOBS / "random_norandommap.fio", tmp_path / f"{i}.log"), tmp_path)
        runs.append(transfers([call for process in calls.values() for call in process]))
    assert runs[0] == runs[1]


@needs_fio
def test_counts_and_percentiles_agree_with_fios(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The histogram's percentiles are those of the I/Os themselves, within its resolution."""
    import sampleblk_lab as lab

    monkeypatch.setenv("DIR", str(tmp_path))
    job = lab.Job(rw="randread", size="4M", filename=tmp_path / "f", io_log_entries=4096)
    result = job.run(progress=False)
    latencies = sorted(result.io_log()["latency"].codes.tolist())
    shown = result.json()["jobs"][0]["read"]["clat_ns"]
    assert shown["N"] == len(latencies) == 1024
    assert shown["min"] == latencies[0]
    assert shown["max"] == latencies[-1]
    for percent, value in shown["percentile"].items():
        exact = latencies[max(0, math.ceil(float(percent) / 100 * len(latencies)) - 1)]
        assert abs(value - exact) <= exact / 64 + 1
    assert (tmp_path / "f").stat().st_size == 4 * 2**20


@needs_fio
@pytest.mark.parametrize("engine", ["psync", "libaio"])
@pytest.mark.parametrize("keys", [["end_fsync=1"], ["fsync_on_close=1"], ["fsync=4", "end_fsync=1", "loops=2"]])
def test_fsyncs_at_the_end_are_no_ios_and_have_no_latency(keys: list[str], engine: str, tmp_path: Path) -> None:
    import sampleblk_lab as lab

    text = "\n".join(["[j]", "rw=write", "size=32k", f"ioengine={engine}", f"filename={tmp_path / 'f'}", *keys, ""])
    (tmp_path / "job.fio").write_text(text)
    done = subprocess.run(
        ["fio", "--output-format=json", str(tmp_path / "job.fio")], capture_output=True, check=True, text=True
    )
    theirs = json.loads(done.stdout[done.stdout.index("{") :])["jobs"][0]["sync"]
    mine = lab.JobFile(tmp_path / "job.fio").run(progress=False).json()["jobs"][0]["sync"]
    assert (mine["total_ios"], mine["lat_ns"]["N"]) == (theirs["total_ios"], theirs["lat_ns"]["N"])
