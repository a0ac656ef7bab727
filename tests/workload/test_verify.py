# SPDX-License-Identifier: MIT
"""Verify: data that is right passes, and one wrong byte is found where it is."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest
from beside_fio import needs_fio, needs_strace, ours

import sampleblk_lab as lab

CHECKSUMS = [
    "md5", "crc64", "crc32c", "crc32", "crc16", "crc7", "xxhash", "sha1", "sha256", "sha512", "sha3-224", "sha3-256",
    "sha3-384", "sha3-512",
]  # fmt: skip


def corrupt(path: Path, offset: int) -> tuple[int, int]:
    """Changes the byte at `offset`; what it was, and is."""
    with path.open("r+b") as file:
        file.seek(offset)
        was = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([was ^ 0x40]))
    return was, was ^ 0x40


def mismatches(error: lab.JobError) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = error.result.json()["jobs"][0]["sampleblk"]["verify"]["mismatches"]
    return found


@pytest.mark.parametrize("engine", ["sync", "pvsync2", "libaio"])
def test_what_is_read_back_meanwhile_keeps_no_file_from_being_opened(engine: str, tmp_path: Path) -> None:
    """The job waited without end for a file that is done to be closed."""
    keys = {"rw": "write", "bs": "4k", "size": "200k", "nrfiles": 3, "openfiles": 1, "norandommap": 1}
    job = lab.Job(**keys, ioengine=engine, directory=tmp_path, verify="crc32c", verify_backlog=7)
    with job.prepare() as run:
        run.start()
        assert run.wait(30).json()["jobs"][0]["read"]["total_ios"] == 48


@pytest.mark.parametrize("method", [*CHECKSUMS, "pattern", "pattern_hdr"])
def test_a_wrong_byte_is_found_at_its_offset(method: str, tmp_path: Path) -> None:
    path = tmp_path / "f"
    keys = {"bs": "16k", "size": "1M", "verify": method, "filename": path}
    if method.startswith("pattern"):
        keys["verify_pattern"] = '0xdeadbeef"text"%o'
    result = lab.Job(rw="randwrite", **keys).run(progress=False)
    assert result.json()["jobs"][0]["sampleblk"]["verify"] == {"blocks": 64, "errors": 0, "mismatches": []}
    at = 3 * 16384 + 5000
    was, became = corrupt(path, at)
    with pytest.raises(lab.JobError, match=f"1 blocks differ, the first at offset {at}") as caught:
        lab.Job(rw="read", **keys).run(progress=False)
    (mismatch,) = mismatches(caught.value)
    assert mismatch["offset_bytes"] == at
    assert mismatch["block_offset_bytes"] == 3 * 16384
    assert mismatch["path"] == str(path)
    assert mismatch["expected"][:2] == f"{was:02x}"
    assert mismatch["found"][:2] == f"{became:02x}"
    assert f"offset {at}" in str(caught.value.result)


@pytest.mark.parametrize("engine", ["sync", "vsync", "pvsync2", "mmap", "libaio", "io_uring"])
def test_every_engine_reads_back_what_it_wrote(engine: str, tmp_path: Path) -> None:
    keys: dict[str, Any] = {"ioengine": engine, "rw": "randwrite", "bs": "4k", "size": "2M", "verify": "crc32c"}
    if engine in ("libaio", "io_uring"):
        keys |= {"iodepth": 16}
    result = lab.Job(**keys, filename=tmp_path / "f").run(progress=False)
    assert result.json()["jobs"][0]["sampleblk"]["verify"] == {"blocks": 512, "errors": 0, "mismatches": []}


def test_all_wrong_blocks_are_counted_and_the_first_ones_shown(tmp_path: Path) -> None:
    path = tmp_path / "f"
    keys = {"bs": "4k", "size": "256k", "verify": "crc32c", "filename": path}
    lab.Job(rw="write", **keys, do_verify=0).run(progress=False)
    for block in range(0, 40, 2):
        corrupt(path, block * 4096 + 2000)
    with pytest.raises(lab.JobError, match="20 blocks differ, the first at offset 2000") as caught:
        lab.Job(rw="read", **keys).run(progress=False)
    assert [one["offset_bytes"] for one in mismatches(caught.value)] == [8192 * i + 2000 for i in range(16)]


def test_what_continue_on_error_lets_pass_is_counted_as_fio_counts_it(tmp_path: Path) -> None:
    """I/Os, however many of their blocks differ, and the errno of the first one."""
    path = tmp_path / "f"
    keys = {"bs": "8k", "size": "256k", "verify": "crc32c", "verify_interval": "4k", "filename": path}
    lab.Job(rw="write", **keys, do_verify=0).run(progress=False)
    for block in (4, 5, 9):
        corrupt(path, block * 4096 + 2000)
    for jobs in (1, 2):
        several = {"numjobs": jobs, "group_reporting": 1, "continue_on_error": "verify"}
        result = lab.Job(rw="read", **keys, **several).run(progress=False)
        (job,) = result.json()["jobs"]
        assert (job["error"], job["total_err"], job["first_error"]) == (0, 2 * jobs, errno.EILSEQ)
        assert job["sampleblk"]["verify"]["errors"] == 3 * jobs
        assert f"errors    : total={2 * jobs}, first_error={errno.EILSEQ}/<" in str(result)


@pytest.mark.parametrize("rw", ["write", "randwrite", "randrw"])
def test_blocks_of_any_length_are_checked_whole(tmp_path: Path, rw: str) -> None:
    path = tmp_path / "f"
    keys = {"bsrange": "512-8k", "bs_unaligned": 1, "filename": path, "verify": "md5"}
    result = lab.Job(rw=rw, size="100k", **keys).run(progress=False)
    (job,) = result.json()["jobs"]
    verified = job["sampleblk"]["verify"]
    assert (verified["errors"], verified["mismatches"]) == (0, [])
    assert job["write"]["io_bytes"] % 512
    if rw == "write":
        assert verified["blocks"] == job["write"]["total_ios"] == job["read"]["total_ios"]
        assert job["read"]["io_bytes"] == job["write"]["io_bytes"]
    else:
        assert 5 < verified["blocks"] <= job["write"]["total_ios"]  # of those that were not written over


def test_verify_fatal_stops_at_the_first(tmp_path: Path) -> None:
    path = tmp_path / "f"
    keys = {"bs": "4k", "size": "256k", "verify": "crc32c", "filename": path, "verify_fatal": 1}
    lab.Job(rw="write", **keys, do_verify=0).run(progress=False)
    corrupt(path, 5 * 4096 + 1)
    corrupt(path, 9 * 4096 + 1)
    with pytest.raises(lab.JobError, match="1 blocks differ") as caught:
        lab.Job(rw="read", **keys).run(progress=False)
    assert caught.value.result.json()["jobs"][0]["read"]["total_ios"] == 6


def large_run(path: Path, size: int) -> None:
    keys = {"bs": "64k", "size": size, "verify": "crc32c", "filename": path}
    result = lab.Job(rw="write", **keys).run(progress=False)
    assert result.json()["jobs"][0]["sampleblk"]["verify"] == {"blocks": size >> 16, "errors": 0, "mismatches": []}
    # One byte in the last tenth, and one beyond what 32 bits can count where the file is that long.
    places = [size // 10 * 9 + 12345, size // 2 + 54321]
    for place in places:
        corrupt(path, place)
    with pytest.raises(lab.JobError, match="2 blocks differ") as caught:
        lab.Job(rw="read", **keys).run(progress=False)
    assert sorted(one["offset_bytes"] for one in mismatches(caught.value)) == sorted(places)


def test_128_megabytes(tmp_path: Path) -> None:
    large_run(tmp_path / "f", 128 << 20)


@pytest.mark.full
def test_10_gigabytes(tmp_path: Path) -> None:
    room = os.statvfs(tmp_path)
    if room.f_bavail * room.f_frsize < 12 << 30:
        pytest.skip(f"less than 12 GiB left in {tmp_path}")
    try:
        large_run(tmp_path / "f", 10 << 30)
    finally:
        (tmp_path / "f").unlink(missing_ok=True)


@pytest.mark.parametrize("engine", ["psync", "io_uring", "libaio"])
@pytest.mark.parametrize(
    "keys",
    [
        {"rw": "write"},
        {"rw": "randwrite"},
        {"rw": "randwrite", "norandommap": 1},
        {"rw": "randrw"},
        {"rw": "rw"},
        {"rw": "randwrite", "random_distribution": "zipf:1.1"},
    ],
    ids=lambda keys: "-".join(str(value) for value in keys.values()),
)
@pytest.mark.parametrize("backlog", [0, 32])
def test_passes_that_write_the_same_places_again_are_right(
    keys: dict[str, Any], engine: str, backlog: int, tmp_path: Path
) -> None:
    """Until the runtime ends, many times over the same 64 blocks: only the last write to each counts."""
    timed = {"time_based": 1, "runtime": "300ms", "verify_backlog": backlog, "iodepth": 8, "verify": "crc32c"}
    job = lab.Job(**keys, **timed, ioengine=engine, bs="4k", size="256k", filename=tmp_path / "f")
    (result,) = job.run(progress=False).json()["jobs"]
    assert result["write"]["total_ios"] > 2 * 64
    assert result["sampleblk"]["verify"]["errors"] == 0
    assert result["sampleblk"]["verify"]["blocks"] > 0


@pytest.mark.parametrize("engine", ["psync", "io_uring"])
@pytest.mark.parametrize("service", ["zipf:1.2", "pareto:0.2", "normal:20"])
def test_files_that_are_drawn_again_when_they_are_done_are_right(service: str, engine: str, tmp_path: Path) -> None:
    """A job found its own writes wrong: only the last to each block is there."""
    keys = {"rw": "randwrite", "size": "64k", "nrfiles": 4, "file_service_type": service, "iodepth": 4}
    result = lab.Job(**keys, ioengine=engine, verify="md5", directory=tmp_path).run(progress=False)
    assert result.json()["jobs"][0]["write"]["total_ios"] == 16
    assert 4 <= result.json()["jobs"][0]["sampleblk"]["verify"]["blocks"] < 16


def test_a_wrong_byte_is_found_after_many_passes(tmp_path: Path) -> None:
    """Not everything is right just because nothing is remembered."""
    path = tmp_path / "f"
    keys = {"rw": "write", "bs": "4k", "size": "256k", "verify": "crc32c", "filename": path, "loops": 5}
    with lab.Job(**keys, verify_backlog=0, thinktime="20ms", thinktime_blocks=64).prepare() as run:
        run.start()
        while run.progress().done_bytes < 256 << 10:
            pass
        corrupt(path, 9 * 4096 + 100)  # while it thinks, before it verifies
        result = run.wait(timeout_s=60)
    assert "blocks differ, the first at offset 36964" in result.errors[0][2]


@pytest.mark.parametrize(("key", "changed"), [("verify_header_seed", "randseed"), ("verify_write_sequence", "loops")])
def test_what_the_headers_must_agree_in_can_be_left_out(key: str, changed: str, tmp_path: Path) -> None:
    keys: dict[str, Any] = {"rw": "write", "bs": "4k", "size": "64k", "verify": "crc32c", "filename": tmp_path / "f"}
    lab.Job(**keys, **{changed: 3}).run(progress=False)
    with pytest.raises(lab.JobError, match="16 blocks differ"):
        lab.Job(**keys, verify_only=1).run(progress=False)
    lab.Job(**keys, verify_only=1, **{key: 0}).run(progress=False)


@needs_fio
@pytest.mark.parametrize(
    ("keys", "headers", "reads"),
    [
        ({}, True, 16),
        ({"verify": "pattern"}, False, 16),
        ({"verify": "pattern_hdr"}, True, 16),
        ({"verify": "0", "scramble_buffers": "0"}, False, 0),
    ],
)
def test_what_a_pattern_alone_means_is_fios(keys: dict[str, str], headers: bool, reads: int, tmp_path: Path) -> None:
    for who in (None, "fio"):
        if who == "fio" and keys.get("verify") == "pattern_hdr":
            continue  # it has no word for it
        path = tmp_path / f"{who}"
        pattern = {"verify_pattern": "0x616263", **keys}
        job = lab.Job(rw="write", bs="4k", size="64k", filename=path, engine=who, **pattern)
        (told,) = job.run(progress=False).json()["jobs"]
        assert told["read"]["total_ios"] == reads
        assert (path.read_bytes()[:12] != b"abc" * 4) == headers


@needs_fio
@pytest.mark.parametrize("pattern", ["0x616263", '"text"%o0x11', "%o"])
def test_a_pattern_goes_over_the_blocks_of_a_write_as_fios_does(pattern: str, tmp_path: Path) -> None:
    keys = {"bs": "4k", "size": "64k", "verify": "pattern", "verify_interval": 512, "verify_pattern": pattern}
    path = tmp_path / "f"
    contents = []
    for writer, reader in ((None, "fio"), ("fio", None)):
        path.unlink(missing_ok=True)
        lab.Job(rw="randwrite", filename=path, engine=writer, **keys).run(progress=False)
        contents.append(path.read_bytes())
        lab.Job(rw="read", filename=path, engine=reader, **keys).run(progress=False)
    assert contents[0] == contents[1]


def test_blocks_without_room_for_a_header_are_refused(tmp_path: Path) -> None:
    with pytest.raises(lab.InputError, match="no room for its header"):
        lab.Job(rw="write", bs="64", size="4k", verify="sha512", filename=tmp_path / "f").run(progress=False)


@pytest.mark.parametrize(
    "keys",
    [
        {"rw": "write", "loops": 3},
        {"rw": "randrw", "loops": 2, "number_ios": 20},
        {"rw": "randwrite", "io_size": "500k", "verify_backlog": 3},
        {"rw": "write", "number_ios": 20, "verify_backlog": 1},
        {"rw": "write", "number_ios": 20, "loops": 2},
        {"rw": "randwrite", "norandommap": 1, "loops": 2, "verify_backlog": 5, "ioengine": "libaio", "iodepth": 8},
    ],
    ids=lambda keys: "-".join(str(value) for value in keys.values()),
)
def test_verify_only_checks_what_all_passes_left(keys: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "f"
    job = {**keys, "bs": "4k", "size": "100k", "verify": "crc32c", "filename": path}
    log = lab.Job(**job, io_log_entries=1000).run(progress=False).io_log()
    (told,) = lab.Job(**job, verify_only=1).run(progress=False).json()["jobs"]
    blocks = told["sampleblk"]["verify"]["blocks"]
    assert (told["write"]["total_ios"], blocks) == (0, told["read"]["total_ios"])
    assert blocks > 0
    written = next(int(at) for at, way in zip(log["offset"], log["direction"], strict=True) if way == "write")
    corrupt(path, written + 2000)
    with pytest.raises(lab.JobError, match=f"1 blocks differ, the first at offset {written + 2000}"):
        lab.Job(**job, verify_only=1).run(progress=False)


def test_verify_only_of_a_replay_checks_what_was_replayed(tmp_path: Path) -> None:
    path = tmp_path / "f"
    log = tmp_path / "log"
    calls = ["add", "open", "write 4096 4096", "write 0 4096", "write 4096 4096", "close"]
    log.write_text("\n".join(["fio version 2 iolog", *(f"{path} {call}" for call in calls)]) + "\n")
    job = {"read_iolog": log, "verify": "crc32c"}
    lab.Job(**job).run(progress=False)
    (told,) = lab.Job(**job, verify_only=1).run(progress=False).json()["jobs"]
    assert told["sampleblk"]["verify"] == {"blocks": 2, "errors": 0, "mismatches": []}
    corrupt(path, 5000)
    with pytest.raises(lab.JobError, match="1 blocks differ, the first at offset 5000"):
        lab.Job(**job, verify_only=1).run(progress=False)


def test_verify_only_refuses_a_run_of_which_nobody_knows_how_often_it_wrote(tmp_path: Path) -> None:
    keys = {"rw": "write", "size": "64k", "verify": "crc32c", "filename": tmp_path / "f"}
    with pytest.raises(lab.InputError, match="verify_only cannot know how often a time_based run wrote"):
        lab.Job(**keys, verify_only=1, time_based=1, runtime=1).run(progress=False)


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({"verify_offset": 20}, "verify_offset=20 .* 56 bytes in a block of 4096 .expected 0, or 56 to 4040"),
        ({"verify_offset": 4041}, "expected 0, or 56 to 4040"),
        ({"verify_offset": 5000}, "expected 0, or 56 to 4040"),
        ({"verify_offset": 500, "verify_interval": 512}, "a block of 512 .expected 0, or 56 to 456"),
        ({"verify_offset": 20, "bs": 64, "size": "1k"}, "a block of 64 .expected 0.$"),
    ],
)
def test_a_header_that_cannot_be_where_it_is_wanted_is_refused(keys: dict[str, Any], told: str, tmp_path: Path) -> None:
    job = {"rw": "write", "bs": "4k", "size": "64k", "verify": "crc32c", "filename": tmp_path / "f", **keys}
    with pytest.raises(lab.InputError, match=told):
        lab.Job(**job).run(progress=False)


@pytest.mark.parametrize("offset", [56, 300, 4040])
def test_a_header_is_where_verify_offset_wants_it(offset: int, tmp_path: Path) -> None:
    path = tmp_path / "f"
    keys = {"bs": "4k", "size": "64k", "verify": "crc32c", "verify_offset": offset, "filename": path}
    lab.Job(rw="write", **keys).run(progress=False)
    data = path.read_bytes()
    assert all(data[at + offset : at + offset + 4] == b"SLBV" for at in range(0, len(data), 4096))


def test_verify_only_checks_all_files_however_few_are_open_at_a_time(tmp_path: Path) -> None:
    keys = {"rw": "write", "bs": "4k", "size": "48k", "nrfiles": 3, "openfiles": 2, "directory": tmp_path}
    job = {**keys, "verify": "crc32c", "name": "a"}
    lab.Job(**job).run(progress=False)
    (told,) = lab.Job(**job, verify_only=1).run(progress=False).json()["jobs"]
    assert told["sampleblk"]["verify"] == {"blocks": 12, "errors": 0, "mismatches": []}
    corrupt(tmp_path / "a.0.2", 9000)
    with pytest.raises(lab.JobError, match="1 blocks differ, the first at offset 9000"):
        lab.Job(**job, verify_only=1).run(progress=False)


@pytest.mark.parametrize("direct", [0, 1])
@pytest.mark.parametrize("engine", ["psync", "libaio", "io_uring", "mmap"])
@pytest.mark.parametrize("rw", [{"rw": "write", "verify_only": 1}, {"rw": "read"}], ids=["verify_only", "read"])
@pytest.mark.parametrize("length", [32768, 32768 + 700, 0])
def test_what_only_checks_takes_a_file_that_lost_its_end_as_it_is(
    direct: int, engine: str, rw: dict[str, Any], length: int, tmp_path: Path
) -> None:
    path = tmp_path / "f"
    keys = {"bs": "4k", "size": "64k", "verify": "crc32c", "filename": path, "engine": engine, "direct": direct}
    try:
        lab.Job(rw="write", **keys).run(progress=False)
    except lab.JobError as error:
        if "does the file system support direct" in str(error):
            pytest.skip("no O_DIRECT here")
        raise
    os.truncate(path, length)
    left = path.read_bytes()
    before = path.stat()
    result = lab.Job(**keys, **rw).run(progress=False, check=False)
    (told,) = result.json()["jobs"]
    verify = told["sampleblk"]["verify"]
    whole = length // 4096
    assert (verify["blocks"], verify["errors"]) == (16, 16 - whole)
    assert (verify["mismatches"][0]["what"], verify["mismatches"][0]["offset_bytes"]) == ("the file ends", length)
    assert f": offset {length} (block {whole * 4096}, 4096 bytes): the file ends\n" in result.text()
    after = path.stat()
    assert (path.read_bytes(), after.st_ino, after.st_mtime_ns) == (left, before.st_ino, before.st_mtime_ns)


@pytest.mark.parametrize(
    "keys",
    [{}, {"create_on_open": 1}, {"nrfiles": 2}, {"filename": "new/f"}],
    ids=["plain", "create_on_open", "two", "folder"],
)
@pytest.mark.parametrize("rw", [{"rw": "randrw", "verify_only": 1}, {"rw": "randread"}], ids=["verify_only", "read"])
def test_what_only_checks_makes_nothing(keys: dict[str, Any], rw: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(lab.JobError, match=f"open '{tmp_path}/.*': No such file"):
        lab.Job(size="64k", verify="crc32c", directory=tmp_path, **keys, **rw).run(progress=False)
    assert not list(tmp_path.iterdir())


@needs_strace
def test_a_job_that_only_checks_opens_its_file_to_read(tmp_path: Path) -> None:
    job = tmp_path / "job"
    job.write_text(f"[a]\nrw=randrw\nbs=4k\nsize=16k\nverify=crc32c\nfilename={tmp_path}/f\n")
    ours(job, tmp_path / "log")
    job.write_text(job.read_text() + "verify_only=1\n")
    opens = [call.arguments for call in ours(job, tmp_path / "log") if call.name == "openat" and "/f" in call.arguments]
    opens = [call for call in opens if f"{tmp_path}/f" in call]
    assert opens
    assert all("O_RDONLY" in call and "O_CREAT" not in call for call in opens)


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({"file_append": 1}, "how long a file was before file_append"),
        ({"fill_device": 1}, "how much fill_device wrote"),
        ({"steadystate": "iops:5%", "steadystate_duration": 5}, "when a run with steadystate ended"),
        ({"rw": "randrw", "rate_iops": 1000}, "in which order a limited rate mixed reads and writes"),
        ({"rw": "rw", "rate": "1m", "rwmixread": 30}, "in which order a limited rate mixed reads and writes"),
    ],
)
def test_verify_only_refuses_what_does_not_follow_from_the_job(keys: dict[str, Any], told: str, tmp_path: Path) -> None:
    job = {"rw": "write", "size": "64k", "verify": "crc32c", "filename": tmp_path / "f", **keys}
    with pytest.raises(lab.InputError, match=f"verify_only cannot know {told}"):
        lab.Job(**job, verify_only=1).run(progress=False)


def test_verify_only_checks_what_a_limited_rate_wrote(tmp_path: Path) -> None:
    path = tmp_path / "f"
    keys = {"rw": "randwrite", "bs": "4k", "size": "64k", "verify": "crc32c", "filename": path, "rate_iops": 2000}
    lab.Job(**keys).run(progress=False)
    (told,) = lab.Job(**keys, verify_only=1).run(progress=False).json()["jobs"]
    assert told["sampleblk"]["verify"] == {"blocks": 16, "errors": 0, "mismatches": []}


def test_a_file_that_ends_under_a_mapping_is_an_error_of_the_job(tmp_path: Path) -> None:
    path = tmp_path / "f"
    job = lab.Job(rw="write", bs="4k", size="64k", filename=path, engine="mmap", create_on_open=1)
    with pytest.raises(lab.JobError, match=f"write '{path}': No such device or address"):
        job.run(progress=False)


def test_the_first_wrong_byte_is_named_in_whatever_order_blocks_are_read(tmp_path: Path) -> None:
    path = tmp_path / "f"
    keys = {"bs": "4k", "size": "256k", "verify": "crc32c", "filename": path}
    lab.Job(rw="write", **keys).run(progress=False)
    for at in (20000, 100000, 250000):
        corrupt(path, at)
    first = set()
    for seed in range(4):
        with pytest.raises(lab.JobError, match="3 blocks differ, the first at offset 20000 ") as caught:
            lab.Job(rw="randread", randseed=seed, verify_header_seed=0, **keys).run(progress=False)
        first.add(mismatches(caught.value)[0]["offset_bytes"])
    assert first - {20000}
