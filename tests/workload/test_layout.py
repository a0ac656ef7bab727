# SPDX-License-Identifier: MIT
"""What a layout may take away: what it made itself, and no file that was there before."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest
from beside_fio import needs_fio

import sampleblk_lab as lab


@needs_fio
@pytest.mark.parametrize(
    "keys",
    [
        {"filename": "{here}/other/f"},
        {"filename": "/sampleblk-test-f:g"},
        {"filename": "f", "directory": "{here}/one:{here}/two", "numjobs": 2},
        {"directory": "{here}/one:{here}/two", "numjobs": 3},
        {"directory": "{here}/one/"},
    ],
)
def test_all_files_are_below_the_directory_as_fios(keys: dict[str, str | int], tmp_path: Path) -> None:
    """Absolute names too: a job file from elsewhere wrote to its own device or disk."""
    made = []
    for who in ("ours", "fio"):
        here = tmp_path / who
        for name in ("one", "two", "other"):
            (here / name).mkdir(parents=True)
        values = {"directory": "{here}/one", **keys}
        values = {key: str(value).replace("{here}", str(here)) for key, value in values.items()}
        lab.Job("a", rw="write", size="8k", **values, engine="fio" if who == "fio" else None).run(progress=False)
        files = (str(path.relative_to(here)) for path in here.rglob("*") if path.is_file())
        made.append(sorted(name.replace(str(here)[1:], "") for name in files))
    assert made[0] == made[1] != []


@needs_fio
def test_a_directory_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for name, error in (("new", FileNotFoundError), ("file", NotADirectoryError)):
        with pytest.raises(error, match="directory"):
            lab.Job(rw="write", size="8k", directory=tmp_path / name).run(progress=False)
        with pytest.raises(lab.SampleblkError, match="is not a directory"):
            lab.Job(rw="write", size="8k", directory=tmp_path / name, engine="fio").run(progress=False)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    path = tmp_path / "mine"
    path.write_bytes(b"not yours to remove")
    return path


def test_an_append_that_cannot_be_laid_out_leaves_the_file(kept: Path) -> None:
    with pytest.raises(OSError, match="fallocate"):
        lab.Job(rw="write", file_append=1, size="64t", filename=kept).run(progress=False)
    assert kept.read_bytes() == b"not yours to remove"


def test_a_layout_that_would_not_fit_does_not_begin_by_removing(kept: Path) -> None:
    for keys in ({"rw": "read"}, {"rw": "write"}, {"rw": "write", "overwrite": 1}):
        with pytest.raises(OSError, match="left alone") as caught:
            lab.Job(size="64t", filename=kept, **keys).run(progress=False)
        assert caught.value.errno == errno.ENOSPC
        assert kept.read_bytes() == b"not yours to remove"


def test_a_program_that_runs_is_not_removed(tmp_path: Path) -> None:
    sleeper = tmp_path / "sleep"
    shutil.copy("/bin/sleep", sleeper)
    before = sleeper.read_bytes()
    with subprocess.Popen([str(sleeper), "60"]) as running:
        try:
            with pytest.raises(OSError, match="Text file busy"):
                lab.Job(rw="write", file_append=1, size="64k", filename=sleeper).run(progress=False)
        finally:
            running.kill()
    assert sleeper.read_bytes() == before


def test_a_new_file_that_cannot_be_laid_out_goes_again(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="fallocate"):
        lab.Job(rw="write", size="64t", filename=tmp_path / "new").run(progress=False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("each_loop", [False, True])
def test_unlink_removes_what_the_run_made_and_nothing_else(each_loop: bool, tmp_path: Path) -> None:
    was_there = tmp_path / "was_there"
    was_there.write_bytes(bytes(64 << 10))
    link = tmp_path / "link"
    link.symlink_to(was_there)
    names = f"{was_there}:{link}:{tmp_path / 'new'}"
    job = lab.Job(
        rw="write", size="192k", filename=names, loops=2, unlink=1, unlink_each_loop=each_loop, zero_buffers=1
    )
    job.run(progress=False)
    assert was_there.read_bytes() == bytes(64 << 10)
    assert link.is_symlink()
    assert not (tmp_path / "new").exists()


def test_a_file_that_took_the_place_of_ours_is_not_unlinked(tmp_path: Path) -> None:
    path = tmp_path / "f"
    with lab.Job(rw="write", size="64k", filename=path, unlink=1).prepare() as run:
        made = path.stat()
        path.rename(tmp_path / "moved")
        path.write_bytes(b"somebody else's")
        assert path.stat().st_ino != made.st_ino
        run.start()
        run.wait(timeout_s=60)
    assert path.exists()


def test_a_replay_extends_what_it_is_directed_to(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("fio version 2 iolog\nx add\nx open\nx read 65536 4096\nx write 131072 4096\nx close\n")
    disk = tmp_path / "disk"
    disk.write_bytes(b"keep this" * 100)
    lab.Job(read_iolog=log, replay_redirect=disk).run(progress=False)
    assert disk.read_bytes()[:900] == b"keep this" * 100
    assert disk.stat().st_size >= 131072 + 4096


def test_memory_in_a_file_leaves_the_rest_of_it(tmp_path: Path) -> None:
    memory = tmp_path / "memory"
    memory.write_bytes(b"x" * (1 << 20))
    lab.Job(rw="write", size="64k", filename=tmp_path / "f", mem=f"mmapshared:{memory}").run(progress=False)
    assert memory.stat().st_size == 1 << 20
    assert memory.read_bytes()[-4096:] == b"x" * 4096


def test_a_file_longer_than_any_is_refused(tmp_path: Path) -> None:
    with pytest.raises(lab.InputError, match="longer than any file"):
        lab.Job(rw="write", size=9 * 10**18, offset=9 * 10**18, filename=tmp_path / "f").run(progress=False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("keys", "ios"),
    [
        # As fio 3.33 counts them. The file's end is where size= says, unless its part goes beyond that.
        ({"filesize": "64k"}, 6),
        ({"filesize": "64k", "size": "64k"}, 5),
        ({"filesize": "64k", "size": "63k"}, 5),
        ({"filesize": "64k", "size": "128k"}, 6),
        ({"filesize": "128k", "size": "64k"}, 6),
        ({"filesize": "64k", "size": "200k", "nrfiles": 2}, 11),
        ({"filesize": "64k", "size": "100k", "nrfiles": 2}, 9),
    ],
)
def test_a_file_that_nobody_opens_ends_where_fios_does(keys: dict[str, object], ios: int) -> None:
    result = lab.Job(ioengine="null", rw="write", bs="12k", **keys).run(progress=False)
    assert result.json()["jobs"][0]["write"]["total_ios"] == ios


@pytest.mark.parametrize(
    ("keys", "ios"),
    [
        # As fio 3.33 counts them: a share of the files, each loop, and no more than size=.
        ({"filesize": "100k", "size": "128k", "nrfiles": 4}, 128),
        ({"filesize": "100k", "size": "64k"}, 50),
        ({"filesize": "100k", "size": "300k", "nrfiles": 4}, 200),
        ({"filesize": "64k", "size": "200k", "nrfiles": 2}, 64),
        ({"size": "128k", "nrfiles": 4}, 64),
        ({"size": "128k", "loops": 3}, 192),
    ],
)
@pytest.mark.parametrize("engine", ["psync", "libaio"])
def test_an_io_size_in_percent_is_a_share_of_the_files(
    engine: str, keys: dict[str, object], ios: int, tmp_path: Path
) -> None:
    job = lab.Job(ioengine=engine, rw="write", bs="1k", io_size="50%", directory=tmp_path, **keys)
    assert job.run(progress=False).json()["jobs"][0]["write"]["total_ios"] == ios


@pytest.mark.parametrize(("bs", "ios"), [("4k", 8), ("12k", 2)])
def test_files_are_read_ahead_with_direct_io(bs: str, ios: int, tmp_path: Path) -> None:
    """In memory and in lengths that O_DIRECT takes, though the file ends inside a block."""
    path = tmp_path / "f"
    path.write_bytes(bytes(33 << 10))
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_DIRECT))
    except OSError as error:
        pytest.skip(f"no O_DIRECT here: {error}")
    job = lab.Job(rw="read", bs=bs, size="33k", filename=path, direct=1, pre_read=1)
    assert job.run(progress=False).json()["jobs"][0]["read"]["total_ios"] == ios


def test_devices_are_not_laid_out(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("making a device node needs root")
    node = tmp_path / "zero"
    os.mknod(node, stat.S_IFCHR | 0o600, os.makedev(1, 5))
    lab.Job(rw="read", size="64k", filename=node, unlink=1).run(progress=False)
    assert stat.S_ISCHR(node.stat().st_mode)


@pytest.mark.parametrize("rw", ["write", "randrw"])
@pytest.mark.parametrize(
    ("keys", "byte"), [({"zero_buffers": 1}, b"\0"), ({"buffer_pattern": "0x5a"}, b"\x5a")], ids=["zero", "pattern"]
)
def test_writes_carry_what_was_asked_for(rw: str, keys: dict[str, object], byte: bytes, tmp_path: Path) -> None:
    """Nothing scrambles it, and a read in the same buffer does not stay there."""
    path = tmp_path / "f"
    path.write_bytes(b"r" * (256 << 10))
    job = lab.Job(rw=rw, bs="4k", size="256k", filename=path, io_log_entries=100, overwrite=1, **keys)
    log = job.run(progress=False).io_log()
    written = [int(row["offset"]) for row in log.rows() if row["direction"] == "write"]
    assert written
    contents = path.read_bytes()
    assert all(contents[at : at + 4096] == byte * 4096 for at in written)
