# SPDX-License-Identifier: MIT
"""What the writes of xfs, btrfs and f2fs are, held against what their own tools say of the same blocks."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from sampleblk_lab import crash
from sampleblk_lab.paths import find_program

RECORD = """
import os, sys
from pathlib import Path
import sampleblk_lab as lab

def sync(path):
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)

# mkfs.xfs wants 300 MiB unless it is told that this is a test.
for fs, size, options in (("xfs", "64M", ["--unsupported"]), ("btrfs", "128M", []), ("f2fs", "64M", [])):
    device = lab.Device(size, cache=True)
    filesystem = device.mkfs(fs, options=options)
    with filesystem.mount() as mnt:
        (mnt / "old").write_bytes(b"old" * 20000)
        (mnt / "gone").write_bytes(b"gone" * 20000)
    with lab.crash.recording(device, Path(sys.argv[1], fs)):
        with filesystem.mount() as mnt:
            (mnt / "folder").mkdir()
            (mnt / "folder/plain").write_bytes(b"plain" * 10000)
            # Large enough for several blocks of names.
            for number in range(60):
                (mnt / "folder" / f"{number:0200}").touch()
            sync(mnt / "folder")
            # Too many pieces for the inode.
            with open(mnt / "holes", "wb") as file:
                for number in range(40):
                    file.seek(number * 32768)
                    file.write(bytes([number + 1]) * 4096)
                os.fsync(file.fileno())
            os.symlink("x" * 1000, mnt / "link")
            os.setxattr(mnt / "old", "user.long", b"value" * 500)
            sync(mnt / "old")
            os.unlink(mnt / "gone")
            with open(mnt / "old", "r+b") as file:
                file.write(b"new" * 5000)
                os.fsync(file.fileno())
            # Beyond the addresses that f2fs has in an inode.
            with open(mnt / "large", "wb") as file:
                file.write(b"large" * 1000000)
                os.fsync(file.fileno())
            os.sync()
    device.close()
"""


def opened(recorded: Path, fs: str, tmp_path: Path) -> tuple[crash.Log, Path]:
    """A log, and the image that it came to."""
    log = crash.Log(recorded / fs / "log", base=recorded / fs / "base.img")
    image = tmp_path / "last.img"
    log.write(log.state(len(log)), image)
    return log, image


def last_names(log: crash.Log, unit: int) -> dict[int, str]:
    """Unit of so many sectors -> the name of what was last written to all of it."""
    found: dict[int, str] = {}
    for row in log.table().rows():
        names = log.names(row["sequence"])
        covered = 0
        for first, sectors, name in names:
            assert first == covered
            assert name
            covered += sectors
        assert covered == row["sectors"]
        for first, sectors, name in names:
            begin = row["sector"] + first
            for sector in range(-(-begin // unit) * unit, begin + sectors - unit + 1, unit):
                found[sector // unit] = name
    return found


def said(*command: str | Path) -> str:
    tool = find_program(str(command[0]))
    assert tool is not None
    return subprocess.run([tool, *command[1:]], capture_output=True, text=True, check=True).stdout


# What xfs_db says of a block -> what it may be called.
XFS = {
    "sb": "superblock|backup superblock of group",
    "agf": "free space header of group",
    "agi": "inode header of group",
    "agfl": "free list of group",
    "btbno": "free space tree by place of group",
    "btcnt": "free space tree by size of group",
    "btino": "inode tree of group",
    "btfino": "free inode tree of group",
    "btrmap": "reverse mapping tree of group",
    "btrefcnt": "reference count tree of group",
    "inode": "inodes",
    "log": "log",
    "data": "data$",
    "dir": "directory.* of inode {inode}",
    "attr": "extended attributes of inode {inode}",
    "symlink": "symbolic link of inode {inode}",
}


def test_every_block_of_xfs_has_the_name_that_xfs_db_gives_it(recorded: Path, tmp_path: Path) -> None:
    log, image = opened(recorded, "xfs", tmp_path)
    names = last_names(log, 8)
    # With its file, and with it an empty line where it has no name.
    asked = [argument for block in names for argument in ("-c", f"daddr {block * 8}", "-c", "blockuse")]
    output = said("xfs_db", "-r", "-c", "blockget", *asked, image)
    types = re.findall(r"^block \d+ \(\d+/\d+\) type (\w+)(?: inode (\d+))?", output, re.MULTILINE)
    assert len(types) == len(names)
    seen = set()
    for (block, name), (kind, inode) in zip(names.items(), types, strict=True):
        if kind.startswith(("free", "unknown")):
            continue  # freed since
        assert kind in XFS, (block, name, kind)
        seen.add(kind)
        if name == "blocks discarded or made zeros":
            continue
        if name.startswith("extent tree"):
            # To blockuse that is the file's, to the inode a block of its tree. Blocks of the first group count from 0.
            tree = said("xfs_db", "-r", "-c", f"inode {inode}", "-c", "p u3.bmbt.ptrs", image)
            assert name == f"extent tree of inode {inode}"
            assert str(block) in re.split(r"[\s:,]+", tree.split("=")[1])
            seen.add("btbmap")
            continue
        assert re.match(XFS[kind].format(inode=inode), name), (block, name, kind, inode)
    assert {"sb", "agf", "agi", "btbno", "btcnt", "btino", "inode", "log", "data", "dir", "symlink", "btbmap"} <= seen
    # What the log has is told by record, each of which has a place of its own.
    records = {
        name for row in log.table().rows() for _, _, name in log.names(row["sequence"]) if name.startswith("log, rec")
    }
    assert len(records) >= 4


BTRFS_TREES = {
    "ROOT_TREE": "root tree",
    "EXTENT_TREE": "extent tree",
    "CHUNK_TREE": "chunk tree",
    "DEV_TREE": "device tree",
    "FS_TREE": "file system tree",
    "CSUM_TREE": "checksum tree",
    "UUID_TREE": "UUID tree",
    "FREE_SPACE_TREE": "free space tree",
    "DATA_RELOC_TREE": "data relocation tree",
}


def test_every_node_of_btrfs_has_the_name_that_its_tools_give_it(recorded: Path, tmp_path: Path) -> None:
    log, image = opened(recorded, "btrfs", tmp_path)
    names = last_names(log, 8)
    dump = said("btrfs", "inspect-internal", "dump-tree", image)
    chunks = [
        (
            int(logical),
            int(length),
            kind,
            [int(offset) for offset in re.findall(r"stripe \d+ devid 1 offset (\d+)", rest)],
        )
        for logical, length, kind, rest in re.findall(
            r"CHUNK_ITEM (\d+)\) itemoff.*?length (\d+) .*?type (\S+)(.*?)(?=\titem |\nleaf|\Z)", dump, re.DOTALL
        )
    ]
    assert {kind.split("|")[0] for _, _, kind, _ in chunks} == {"DATA", "SYSTEM", "METADATA"}

    def places(logical: int) -> list[int]:
        return [
            offset + logical - first
            for first, length, _, offsets in chunks
            if first <= logical < first + length
            for offset in offsets
        ]

    seen = set()
    live = set()
    for kind, logical, rest, owner in re.findall(r"^(leaf|node) (\d+) (.*) owner (\S+)$", dump, re.MULTILINE):
        level = re.findall(r"level (\d+)", rest)
        for place in places(int(logical)):
            live.add(place // 4096)
            if (name := names.get(place // 4096)) is None:
                continue  # as it was
            assert name.startswith(BTRFS_TREES[owner]), (logical, name, owner)
            assert (f"node of level {level[0]}" if kind == "node" else "leaf") in name
            seen.add(owner)
    assert {"ROOT_TREE", "EXTENT_TREE", "FS_TREE", "CSUM_TREE"} <= seen
    for block, name in names.items():
        kinds = {
            kind.split("|")[0]
            for _, length, kind, offsets in chunks
            for offset in offsets
            if offset <= block * 4096 < offset + length
        }
        if block in (16, 16384):
            assert name == ("superblock" if block == 16 else "superblock, copy 1")
        elif kinds == {"DATA"}:
            assert name in ("data", "blocks discarded or made zeros")
        else:
            assert kinds, (block, name)
            assert re.search("tree|discarded", name), (block, name)
    # fsync's own trees, which the next commit frees.
    assert any(
        name.startswith("log tree, leaf with inode")
        for row in log.table().rows()
        for _, _, name in log.names(row["sequence"])
    )
    # With what a leaf holds: the inodes of the file system's tree.
    inodes = set(re.findall(r"key \((\d+) INODE_ITEM 0\) itemoff", dump))
    told = {
        number
        for name in names.values()
        if name.startswith("file system tree, leaf")
        for number in re.findall(r"\d+", name.split("with")[-1].split(" and ")[0])
    }
    assert told & inodes


def test_every_block_of_f2fs_has_the_name_that_dump_f2fs_gives_it(recorded: Path, tmp_path: Path) -> None:
    log, image = opened(recorded, "f2fs", tmp_path)
    names = last_names(log, 8)
    areas = {
        "FS Metadata": "checkpoint|superblock",
        "FS SIT": "segment information table",
        "FS NAT": "node address table",
        "FS SSA": "segment summaries",
    }
    seen = set()
    kinds: dict[str, int] = {}
    for block, name in names.items():
        kind = re.sub(r"\d+", "", name)
        kinds[kind] = kinds.get(kind, 0) + 1
        if kinds[kind] > 12 or name == "blocks discarded or made zeros":
            continue  # one process for each
        text = said("dump.f2fs", "-b", hex(block), image).split("== Dump data")[1]
        [area, what] = re.findall(r"(FS \w+) Area: (\w+ ?\w*)", text)[0]
        if area in areas:
            assert re.match(areas[area], name), (block, name, text)
            seen.add(area)
            continue
        found = re.findall(r"Inode block +: id = 0x(\w+)", text)
        if "is not valid" in text and what.startswith("Data"):
            continue  # freed since: what it is now says nothing
        seen.add(what)
        if what.startswith("Node"):
            assert re.match(rf"(inode|.* of inode) {int(found[0], 16)}$", name), (block, name, text)
        else:
            inode = int(found[0], 16)
            assert name in (f"data of inode {inode}", f"directory block of inode {inode}", "data"), (block, name, text)
            # The top has no name, and what is there instead is more than that.
            file = re.findall(r"- File name +: (\w+)", text)
            if name != "data":
                assert name.startswith("directory block" if file in ([], ["folder"]) else "data"), (block, name, text)
    assert {"FS Metadata", "Node block", "Data block"} <= seen
    told = {re.sub(r"\d+", "N", name) for name in names.values()}
    assert {
        "inode N",
        "direct node of inode N",
        "data of inode N",
        "directory block of inode N",
        "checkpoint N",
    } <= told
