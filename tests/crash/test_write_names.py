# SPDX-License-Identifier: MIT
"""What the writes of a log are, held against what e2fsprogs says of the same blocks."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from crash.logs import log_writes
from sampleblk_lab import InputError, crash
from sampleblk_lab.paths import find_program

RECORD = """
import os, sys
import sampleblk_lab as lab

def sync(path):
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)

for name, options in (("ext4", []), ("ext3", ["-b", "1024", "-O", "^extents,^64bit,^metadata_csum"])):
    device = lab.Device("32M", cache=True)
    filesystem = device.mkfs("ext4", options=options)
    with filesystem.mount() as mnt:
        (mnt / "old").write_bytes(b"old" * 20000)
        (mnt / "gone").write_bytes(b"gone" * 20000)
    with lab.crash.recording(device, os.path.join(sys.argv[1], name)):
        with filesystem.mount() as mnt:
            (mnt / "folder").mkdir()
            (mnt / "folder/plain").write_bytes(b"plain" * 10000)
            # Large enough for two blocks of names.
            for number in range(40):
                (mnt / "folder" / f"{number:0200}").touch()
            sync(mnt / "folder")
            # Too many pieces for the inode.
            with open(mnt / "holes", "wb") as file:
                for number in range(12):
                    file.seek(number * 32768)
                    file.write(bytes([number + 1]) * 4096)
                os.fsync(file.fileno())
            os.symlink("x" * 500, mnt / "link")
            os.setxattr(mnt / "old", "user.long", b"value" * 150)
            sync(mnt / "old")
            os.unlink(mnt / "gone")
            with open(mnt / "old", "r+b") as file:
                file.write(b"new" * 1000)
                os.fsync(file.fileno())
            os.sync()
            # Old contents in the journal's copies: not durable yet when the log's last fsync has ended.
            (mnt / "last").write_bytes(b"last" * 3000)
            sync(mnt / "last")
            device.mark("journal")
    device.close()
"""


@pytest.fixture(params=["ext4", "ext3"])
def log(request: pytest.FixtureRequest, recorded: Path) -> crash.Log:
    """Each of the two."""
    return crash.Log(recorded / request.param / "log", base=recorded / request.param / "base.img")


def _debugfs(image: Path, request: str) -> str:
    tool = find_program("debugfs")
    assert tool is not None
    return subprocess.run([tool, "-R", request, image], capture_output=True, text=True, check=True).stdout


def _layout(image: Path) -> tuple[int, dict[int, str]]:
    """Bytes of a block, and block -> what dumpe2fs says has its place there."""
    tool = find_program("dumpe2fs")
    assert tool is not None
    said = subprocess.run([tool, image], capture_output=True, text=True, check=True).stdout
    [block] = re.findall(r"^Block size: +(\d+)", said, re.MULTILINE)
    places: dict[int, str] = {}

    def add(name: str, first: str, last: str | None = None) -> None:
        places.update(dict.fromkeys(range(int(first), int(last or first) + 1), name))

    for group, text in re.findall(r"^Group (\d+): (.*?)(?=^Group|\Z)", said, re.MULTILINE | re.DOTALL):
        for kind, first in re.findall(r"(Primary|Backup) superblock at (\d+)", text):
            add("superblock" if kind == "Primary" else f"backup superblock of group {group}", first)
        for kind, first, last in re.findall(
            r"(P|B|p|b)\w*(?: superblock at \d+, | )[Gg]roup descriptors at (\d+)-(\d+)", text
        ):
            add("group descriptors" if kind in "Pp" else f"backup group descriptors of group {group}", first, last)
        for first, last in re.findall(r"Reserved GDT blocks at (\d+)-(\d+)", text):
            add("reserved group descriptors", first, last)
        for kind, first in re.findall(r"(Block|Inode) bitmap at (\d+)", text):
            add(f"{kind.lower()} bitmap of group {group}", first)
        for first, last in re.findall(r"Inode table at (\d+)-(\d+)", text):
            add("inode table", first, last)
    return int(block), places


def _names(log: crash.Log, block_bytes: int) -> list[tuple[int, int, str]]:
    """(write, block, name) of each block that was written whole, in the log's order."""
    per_block = block_bytes // 512
    found = []
    for row in log.table().rows():
        covered = 0
        for first, sectors, name in log.names(row["sequence"]):
            assert first == covered
            covered += sectors
            begin = row["sector"] + first
            if begin % per_block == 0 and row["type"] == "write":
                found += [(row["sequence"], (begin + i) // per_block, name) for i in range(0, sectors, per_block)]
        assert covered == row["sectors"]
    return found


def _journal_blocks(image: Path) -> list[int]:
    """The journal's blocks in its own order."""
    numbers = re.findall(r"\d+", _debugfs(image, "blocks <8>"))
    # A tree's own blocks are listed as well, before what they lead to.
    tree = set(re.findall(r"\((?:ETB\d+|IND|DIND|TIND)\):(\d+)", _debugfs(image, "stat <8>")))
    return [int(number) for number in numbers if number not in tree]


def test_every_block_has_the_name_that_e2fsprogs_gives_it(log: crash.Log, tmp_path: Path) -> None:
    image = tmp_path / "last.img"
    log.write(log.state(len(log)), image)
    block_bytes, places = _layout(image)
    journal = set(_journal_blocks(image))
    names = _names(log, block_bytes)
    last = {block: name for _, block, name in names}  # the last one of each block
    seen: set[str] = set()
    for block, name in last.items():
        if block in journal:
            assert name.startswith("journal"), (block, name)
        elif block in places:
            assert name.startswith(places[block]), (block, name)
            seen.add(places[block].split(" of group")[0])
        else:
            assert not name.startswith("journal"), (block, name)
    # A write in its place says which inodes it changes there, although the journal has had them.
    assert any(re.match(r"inode table, inodes? \d[\d, ]*( and \d+ more)?$", name) for name in last.values())
    assert {"superblock", "group descriptors", "block bitmap", "inode bitmap", "inode table"} <= seen
    others = [block for block in last if block not in journal and block not in places]
    owners = dict(
        re.findall(
            r"^(\d+)\s+(\d+|<block not found>)", _debugfs(image, f"icheck {' '.join(map(str, others))}"), re.MULTILINE
        )
    )
    # e2fsprogs 1.47 makes one.
    orphans = re.findall(r"Orphan file inode:\s+(\d+)", _debugfs(image, "stats"))
    kinds = set()
    for block in others:
        owner, name = owners[str(block)], last[block]
        if owner == "<block not found>":
            continue  # freed since
        assert re.search(rf"inode {owner}$", name), (block, owner, name)
        stat = _debugfs(image, f"stat <{owner}>")
        kind = name.split(" of ")[0].split(",")[0]
        kinds.add(kind)
        numbers = re.findall(r"\((?:ETB\d+|IND|DIND|TIND)\):(\d+)", stat)
        [attributes] = re.findall(r"File ACL: (\d+)", stat)
        if str(block) in numbers:
            assert kind in ("extent tree", "indirect block"), (block, name)
        elif str(block) == attributes:
            assert kind == "extended attributes"
        elif owner in orphans:
            assert kind == "orphan file"
        else:
            [kind_of_inode] = re.findall(r"Type: (\w+)", stat)
            wanted = {"regular": "data", "directory": "directory block", "symlink": "symbolic link"}
            assert kind == wanted[kind_of_inode], (block, name, stat)
    assert {"data", "directory block", "symbolic link", "extended attributes"} <= kinds
    assert kinds & {"extent tree", "indirect block"}


def test_each_copy_in_the_journal_is_of_the_block_that_debugfs_says(log: crash.Log, tmp_path: Path) -> None:
    image = tmp_path / "journal.img"
    # Where "journal" was marked, before unmounting has emptied it.
    [order] = [at for _, at, text in log.native.marks if text == "journal"]
    submitted = sum(row["submit_order"] < order for row in log.table().rows())
    log.write(log.state(submitted), image)
    block_bytes, places = _layout(image)
    blocks = _journal_blocks(image)
    said = _debugfs(image, "logdump -a")
    sequences = [int(log.sequences[write]) for write in log.order[:submitted]]
    written = {block: name for sequence, block, name in _names(log, block_bytes) if sequence in sequences}
    copies = re.findall(r"FS block (\d+) logged at (?:sequence \d+, )?journal block (\d+)", said)
    assert len(copies) > 10
    kinds = set()
    for home, at in copies:
        name = written[blocks[int(at)]]
        assert name.startswith("journal, copy of "), name
        kinds.add(name)
        if int(home) in places:
            assert name.startswith(f"journal, copy of {places[int(home)]}"), (home, name)
        else:
            # Metadata that has no place of its own is a directory's, a symbolic link's, a tree's or the orphan file's.
            assert re.search("directory|extended|tree|indirect|symbolic|orphan file", name), (home, name)
    for kind, word in (("descriptor block", "descriptor"), ("commit block", "commit")):
        found = re.findall(rf"Found expected sequence (\d+), type \d+ \({kind}\) at block (\d+)", said)
        assert found
        for sequence, at in found:
            assert written[blocks[int(at)]] == f"journal, {word} of transaction {sequence}"
    assert written[blocks[0]] == "journal superblock"
    assert any("inode table, inode" in name for name in kinds)


def test_what_is_missing_is_named(recorded: Path) -> None:
    """Of a disk that ignores flushes: the failure is told in the terms of ext4."""
    log = crash.Log(recorded / "ext4/log", base=recorded / "ext4/base.img", flush=False, fua=False)
    found = log.explore(
        crash.recovers("ext4"), model=crash.Sample(seed=2, block_bytes=4096), states=300, workers=2, progress=False
    )
    [failure] = found.failures
    assert failure.missing
    for line in failure.missing:
        assert re.match(
            r"write \d+: \d+ sectors at \d+: .*(journal|inode|bitmap|superblock|data|directory|group)", line
        ), line
    assert failure.missing[0] in found.text()


def test_a_write_that_is_not_there_is_refused(log: crash.Log) -> None:
    with pytest.raises(InputError, match="write 99999"):
        log.names(99999)


def test_clusters_of_1_kib_blocks_begin_behind_the_boot_block(tmp_path: Path) -> None:
    # As mkfs.ext4 makes small file systems.
    image = tmp_path / "base.img"
    image.touch()
    os.truncate(image, 32 << 20)
    tool = find_program("mke2fs")
    assert tool is not None
    clusters = ["-b", "1024", "-O", "bigalloc", "-C", "8192"]
    subprocess.run([tool, "-q", "-F", "-t", "ext4", *clusters, image], check=True)
    block_bytes, places = _layout(image)
    chosen = {block: place for block, place in places.items() if place != "inode table" or block % 64 == 0}
    data = image.read_bytes()
    (tmp_path / "log").write_bytes(
        log_writes(*((0, 2 * block, data[block * block_bytes : (block + 1) * block_bytes]) for block in chosen))
    )
    names = {block: name for _, block, name in _names(crash.Log(tmp_path / "log", base=image), block_bytes)}
    assert {block: name for block, name in names.items() if not name.startswith(chosen[block])} == {}
    assert set(chosen.values()) >= {"superblock", "group descriptors", "block bitmap of group 0", "inode table"}


def test_what_is_no_ext4_has_no_names(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(log_writes((0, 2, b"\xff" * 1024), (0, 2, bytes(1024))))
    log = crash.Log(tmp_path / "log", base="zeros")
    assert log.names(1) == log.names(2) == []


FAST = """
import os, sys
import sampleblk_lab as lab

device = lab.Device("32M", cache=True)
filesystem = device.mkfs("ext4", options=["-O", "fast_commit", "-E", "lazy_itable_init=0"])
with lab.crash.recording(device, sys.argv[1]):
    with filesystem.mount() as mnt:
        (mnt / "first").touch()
        os.sync()
        (mnt / "second").touch()
        fd = os.open(mnt / "second", os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)
device.close()
"""


@pytest.mark.full
def test_fast_commits_are_named_although_unmounting_has_ended_them(
    tmp_path: Path, run_in_vm: Callable[..., str]
) -> None:
    run_in_vm(tmp_path, FAST, str(tmp_path), timeout=200)
    log = crash.Log(tmp_path / "log", base=tmp_path / "base.img")
    image = tmp_path / "last.img"
    log.write(log.state(len(log)), image)
    blocks = _journal_blocks(image)
    block_bytes, _ = _layout(image)
    # The last 256 of them (fs/jbd2/journal.c, JBD2_DEFAULT_FAST_COMMIT_BLOCKS).
    area = set(blocks[-256:])
    names = _names(log, block_bytes)
    fast = {block for _, block, name in names if name == "journal, fast commit"}
    assert fast
    assert fast == {block for _, block, _ in names if block in area}
