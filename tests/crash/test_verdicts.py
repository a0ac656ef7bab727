# SPDX-License-Identifier: MIT
"""A checker is not asked again where it would read what it has read: no read is overlooked, and nothing that counts."""

from __future__ import annotations

import fcntl
import itertools
import os
import random
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from crash.logs import SECTOR, log_writes
from sampleblk_lab import ToolError, crash
from sampleblk_lab._native import core
from sampleblk_lab.crash import resident
from sampleblk_lab.device.filesystem import checker, run_tool
from sampleblk_lab.paths import find_program

SUPER = 1024
# Fields of an ext4's superblock: last mount and write, times mounted, where, kilobytes written.
MASKED = [(0x2C, 4), (0x30, 4), (0x34, 2), (0x88, 64), (0x178, 8), (0x274, 2)]


def _tool(name: str) -> str:
    found = find_program(name)
    assert found is not None, name
    return str(found)


def _image(folder: Path, *options: str, size: int = 8 << 20, files: int = 40) -> Path:
    """An ext4 with files, folders, a symlink and a hole."""
    top = folder / "files"
    top.mkdir()
    for number in range(files):
        (top / f"folder-{number % 5}").mkdir(exist_ok=True)
        (top / f"folder-{number % 5}" / f"file-{number}").write_bytes(bytes([number]) * 700 * number)
    (top / "link").symlink_to("x" * 200)
    with (top / "hole").open("wb") as file:
        file.seek(1 << 20)
        file.write(b"end")
    image = folder / "image"
    image.touch()
    os.truncate(image, size)
    run_tool([_tool("mkfs.ext4"), "-q", "-F", "-d", str(top), *options, str(image)])
    return image


@pytest.fixture
def e2fsck() -> Iterator[resident.ResidentTool]:
    tool = resident.ResidentTool(checker("ext4")[0])
    yield tool
    tool.close()


def _reads(tool: resident.ResidentTool, image: Path) -> list[tuple[int, int]]:
    status, said = tool.run([*checker("ext4")[1:], str(image)])
    assert status == 0, said
    return tool.reads()


@pytest.mark.parametrize(
    ("options", "size"),
    [
        ([], 8 << 20),
        (["-b", "4096"], 64 << 20),
        (["-b", "1024", "-O", "^has_journal,^metadata_csum"], 16 << 20),
        (["-O", "inline_data,bigalloc"], 64 << 20),
        (["-b", "1024"], 3 << 30),  # bitmaps of many groups, which threads may read
    ],
    ids=["default", "4k", "old", "clusters", "large"],
)
def test_what_a_checker_reads_is_what_strace_says(
    options: list[str], size: int, tmp_path: Path, e2fsck: resident.ResidentTool
) -> None:
    image = _image(tmp_path, *options, size=size)
    calls = tmp_path / "calls"
    traced = "trace=%desc,read,readv,pread64,preadv,preadv2,mmap,io_uring_setup"
    run_tool([_tool("strace"), "-ff", "-y", "-s", "0", "-e", traced, "-o", str(calls), *checker("ext4"), str(image)])
    wanted = []
    # A file for each thread: there no other call comes between the begin and the end of one.
    for line in itertools.chain.from_iterable(file.read_text().splitlines() for file in tmp_path.glob("calls.*")):
        if f"<{image}>" in line and not re.search(
            r"(openat|close|fstat|newfstatat|fadvise64|ioctl|fcntl|fsync)\(", line
        ):
            found = re.search(rf"pread64\(\d+<{image}>, .*, (\d+), (\d+)\) *=", line)
            assert found is not None, line
            wanted.append((int(found[2]), int(found[1])))
    found_reads = _reads(e2fsck, image)
    assert len(wanted) > 20
    assert sorted(found_reads) == sorted(wanted)


def _change(image: Path, at: int, data: bytes) -> bytes:
    with image.open("r+b") as file:
        file.seek(at)
        before = file.read(len(data))
        file.seek(at)
        file.write(data)
    return before


def _flipped(image: Path, at: int) -> bytes:
    """Flips a bit; returns what was there."""
    with image.open("rb") as file:
        file.seek(at)
        byte = file.read(1)
    return _change(image, at, bytes([byte[0] ^ 1]))


def test_any_byte_that_was_read_counts_and_no_other(tmp_path: Path, e2fsck: resident.ResidentTool) -> None:
    image = _image(tmp_path)
    reads = _reads(e2fsck, image)
    verdicts = core.CrashVerdicts()
    assert not verdicts.is_sound(str(image))
    verdicts.learn(str(image), reads)
    assert len(verdicts) == 1
    assert verdicts.is_sound(str(image))
    bytes_read = set(itertools.chain.from_iterable(range(at, at + length) for at, length in reads))
    masked = {SUPER + at + i for at, length in MASKED for i in range(length)}
    rng = random.Random(1)
    in_super = set(range(SUPER, 2 * SUPER))
    for at in [*rng.sample(sorted(bytes_read - masked), 500), *rng.sample(sorted(in_super - masked), 300)]:
        before = _flipped(image, at)
        assert not verdicts.is_sound(str(image)), at
        _change(image, at, before)
    for at in rng.sample(sorted(set(range(8 << 20)) - bytes_read), 200):
        before = _flipped(image, at)
        assert verdicts.is_sound(str(image)), at
        _change(image, at, before)
    assert verdicts.is_sound(str(image))


def test_what_each_mount_changes_of_the_superblock_does_not_count_but_its_checksum_does(
    tmp_path: Path, e2fsck: resident.ResidentTool
) -> None:
    image = _image(tmp_path)
    verdicts = core.CrashVerdicts()
    verdicts.learn(str(image), _reads(e2fsck, image))
    debugfs = _tool("debugfs")
    for request in ("mtime 20200102030405", "mnt_count 3", "kbytes_written 77", "last_mounted /x"):
        # It also sets the time of the last write, and makes the checksum right again.
        before = image.read_bytes()
        run_tool([debugfs, "-w", "-R", f"set_super_value {request}", str(image)])
        assert image.read_bytes() != before, request
        assert verdicts.is_sound(str(image)), request
        run_tool([*checker("ext4"), str(image)])
    run_tool([debugfs, "-w", "-R", "set_super_value max_mnt_count 9", str(image)])
    assert not verdicts.is_sound(str(image))
    run_tool([debugfs, "-w", "-R", "set_super_value max_mnt_count -1", str(image)])
    assert verdicts.is_sound(str(image))
    # Of a time only: the kernel would not have left it so.
    _flipped(image, SUPER + 0x2C)
    assert not verdicts.is_sound(str(image))


def test_other_ways_to_read_are_not_accounted_for(tmp_path: Path) -> None:
    image = tmp_path / "image"
    image.write_bytes(b"x" * 100_000)
    cat = resident.ResidentTool("/bin/cat")
    try:
        assert cat.run([str(image)]) == (0, image.read_bytes())
        assert cat.reads() == []
    finally:
        cat.close()
    # More than there is room for.
    program = "import os,sys\nfd = os.open(sys.argv[-1], 0)\nfor i in range(int(sys.argv[1])): os.pread(fd, 1, i)\n"
    python = resident.ResidentTool(os.path.realpath("/proc/self/exe"))
    try:
        for count in (3, 100_000, 2):
            assert python.run(["-S", "-c", program, str(count), str(image)])[0] == 0
            assert python.reads() == ([(i, 1) for i in range(count)] if count < 100_000 else [])
    finally:
        python.close()


def test_a_disk_that_is_not_sound_is_checked_each_time(tmp_path: Path) -> None:
    image = _image(tmp_path)
    tools = resident.ResidentTools()
    try:
        with tools.used():
            resident.check(checker("ext4"), str(image))
            before = _change(image, SUPER + 0x10, b"\1\2\3\4")  # free inodes
            for _ in range(2):
                with pytest.raises(ToolError, match="exit status 8"):
                    resident.check(checker("ext4"), str(image))
            _change(image, SUPER + 0x10, before)
            resident.check(checker("ext4"), str(image))
            with pytest.raises(OSError, match="no such"):
                resident.check(checker("ext4"), str(tmp_path / "no such image"))
    finally:
        tools.close()


def test_workers_learn_from_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image = _image(tmp_path)
    (tmp_path / "log").write_bytes(log_writes(*((0, number, bytes([number]) * SECTOR) for number in range(9))))
    log = crash.Log(tmp_path / "log", base="zeros", size_bytes=1 << 16)
    runs, begun = tmp_path / "runs", tmp_path / "begun"
    run = resident.ResidentTools.run

    def counted(tools: resident.ResidentTools, command: Sequence[str], ok: Sequence[int]) -> str:
        with runs.open("a") as file:
            file.write(f"{command[0]} {os.getpid()}\n")
        return run(tools, command, ok)

    def check(_: Path, __: crash.State) -> None:
        with begun.open("a") as file:
            # One after another: who is second can know what the first has learned.
            fcntl.flock(file, fcntl.LOCK_EX)
            file.write(f"{os.getpid()}\n")
            resident.check(checker("ext4"), str(image))

    monkeypatch.setattr(resident.ResidentTools, "run", counted)
    found = log.explore(check, states=40, workers=2, progress=False)
    assert found.ok, found.text()
    assert len(set(begun.read_text().split())) == 2
    assert len(runs.read_text().splitlines()) == 1


def test_states_are_judged_as_without(tmp_path: Path) -> None:
    """What debugfs writes in a few steps, of which any blocks are lost: most is broken, by many ways the same."""
    image = _image(tmp_path, "-b", "1024", size=4 << 20, files=10)
    base = tmp_path / "base"
    base.write_bytes(image.read_bytes())
    debugfs = _tool("debugfs")
    entries: list[tuple[int, int, bytes | int]] = []
    for request in ("mkdir new", "rm folder-1/file-6", f"write {__file__} copied", "ln copied again", "rm hole"):
        before = image.read_bytes()
        run_tool([debugfs, "-w", "-R", request, str(image)])
        after = image.read_bytes()
        entries += [
            (0, at // SECTOR, after[at : at + 1024])
            for at in range(0, len(after), 1024)
            if after[at : at + 1024] != before[at : at + 1024]
        ]
    (tmp_path / "log").write_bytes(log_writes(*entries))
    log = crash.Log(tmp_path / "log", base=base)
    states = [state for _, state in zip(range(300), log.states(crash.Sample(seed=1)), strict=False)]
    states += [log.state(submitted) for submitted in range(len(log) + 1)] * 2

    def verdict(state: crash.State) -> str:
        log.write(state, image)
        try:
            resident.check(checker("ext4"), str(image))
        except ToolError as error:
            return error.output
        return ""

    plain = [verdict(state) for state in states]
    tools = resident.ResidentTools()
    try:
        with tools.used():
            assert [verdict(state) for state in states] == plain
    finally:
        tools.close()
    assert 5 < plain.count("") < len(plain) - 100
