# SPDX-License-Identifier: MIT
"""A workload on a real file system, recorded in a VM and explored here: quiet where all is well, loud where not."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from sampleblk_lab import InputError, ToolError, crash
from sampleblk_lab.device.filesystem import checker, find_tool, run_tool
from sampleblk_lab.paths import find_program

RECORD = """
import os, sys
import sampleblk_lab as lab

device = lab.Device("24M", cache=True)
filesystem = device.mkfs("ext4")
with lab.crash.recording(device, sys.argv[1]):
    with filesystem.mount() as mnt:
        with open(mnt / "a", "wb") as file:
            file.write(b"first" * 1000)
            os.fsync(file.fileno())
        device.mark("a is first")
        with open(mnt / "new", "wb") as file:
            file.write(b"second" * 1000)
            os.fsync(file.fileno())
        os.rename(mnt / "new", mnt / "a")
        fd = os.open(mnt, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)
        device.mark("a is second")
device.close()
"""


def _contents(image: Path, name: str) -> bytes | None:
    """A file of an unmounted ext4, by its own tool; None when there is none."""
    debugfs = find_program("debugfs")
    assert debugfs is not None
    listed = subprocess.run([debugfs, "-R", f"stat {name}", image], capture_output=True, text=True, check=True)
    if "Inode:" not in listed.stdout:
        return None
    return subprocess.run([debugfs, "-R", f"cat {name}", image], capture_output=True, check=True).stdout


def _check(image: Path, state: crash.State) -> None:
    """The file system recovers; "a" is old or new, never neither, and what was promised is there."""
    crash.recovers("ext4")(image, state)
    said = _contents(image, "/a")
    first, second = b"first" * 1000, b"second" * 1000
    if "a is second" in state.marks:
        assert said == second, "the rename is gone, or half there"
    elif "a is first" in state.marks:
        assert said in (first, second), "the file is gone, or half there"


def test_ext4_survives_what_a_crash_leaves(recorded: Path) -> None:
    log = crash.Log(recorded / "log", base=recorded / "base.img")
    assert log.native.flushes >= 3
    assert [text for _, _, text in log.native.marks] == ["a is first", "a is second"]
    # A disk that writes 4 KiB whole or not at all, see below.
    tearing = [crash.Torn(block_bytes=4096), crash.Sample(seed=3, block_bytes=4096)]
    for model in (crash.Prefix(), crash.Reorder(complete_up_to=4, at_most=1), *tearing):
        found = log.explore(_check, model=model, states=40, progress=False)
        assert found.ok, found.text()
        assert found.checked > 15 or found.complete


def test_a_superblock_torn_between_its_two_sectors_is_found(recorded: Path) -> None:
    """ext4's superblock has 1024 bytes and a checksum over them; outside the journal nothing protects it."""
    log = crash.Log(recorded / "log", base=recorded / "base.img")
    found = log.explore(crash.recovers("ext4"), model=crash.Torn(block_bytes=512), states=40, progress=False)
    [failure] = found.failures
    [(sequence, first, sectors)] = failure.reduced.torn
    [write] = (row for row in log.table().rows() if row["sequence"] == sequence)
    assert (write["sector"], write["sectors"], first, sectors) == (2, 2, 0, 1)
    assert "sectors 0 to 0 there" in found.text()


def test_a_disk_that_ignores_flushes_is_found_out(recorded: Path) -> None:
    log = crash.Log(recorded / "log", base=recorded / "base.img", flush=False, fua=False)
    found = log.explore(_check, model=crash.Sample(seed=1, block_bytes=4096), states=300, progress=False)
    assert not found.ok, found.text()
    [failure] = found.failures
    assert failure.reduced.lost or failure.reduced.torn
    # The reduced state fails by itself, and with any one of its writes back it does not.
    image = recorded / "failed.img"
    log.write(failure.reduced, image)
    with pytest.raises(AssertionError):
        _check(image, failure.reduced)
    lost = failure.reduced.lost
    if not failure.reduced.torn:
        for spared in lost:
            state = log.state(failure.reduced.submitted, [one for one in lost if one != spared])
            log.write(state, image)
            _check(image, state)


def test_the_last_state_is_the_device_s_own(recorded: Path) -> None:
    log = crash.Log(recorded / "log", base=recorded / "base.img")
    image = recorded / "last.img"
    log.write(log.state(len(log)), image)
    assert _contents(image, "/a") == b"second" * 1000
    assert _contents(image, "/new") is None
    log.write(log.state(0), image)
    assert image.read_bytes() == (recorded / "base.img").read_bytes()


def test_a_file_system_whose_log_only_the_kernel_replays_is_named() -> None:
    with pytest.raises(InputError, match=r"xfs.*crash.mounted"):
        crash.recovers("xfs")


MOUNTED = """
import sys
from pathlib import Path
import sampleblk_lab as lab

log = lab.crash.Log(Path(sys.argv[1], "log"), base=Path(sys.argv[1], "base.img"))

def content(mount, state):
    if "a is second" in state.marks:
        assert (mount / "a").read_bytes() == b"second" * 1000
    if lie:
        raise AssertionError("as asked")

lie = False
found = log.explore(lab.crash.mounted("ext4", content), model=lab.crash.Prefix(), states=4, progress=False)
assert found.ok and found.checked == 4, found.text()
lie = True
found = log.explore(lab.crash.mounted("ext4", content), model=lab.crash.Prefix(), states=4, progress=False)
assert "as asked" in found.text(), found.text()
assert "sampleblk-crash" not in Path("/proc/mounts").read_text()
"""


def test_states_are_mounted_by_the_kernel(recorded: Path, run_in_vm: Callable[..., str]) -> None:
    run_in_vm(recorded, MOUNTED, str(recorded), timeout=400)


def test_what_fsck_of_f2fs_would_set_right_is_an_error(tmp_path: Path) -> None:
    """Its status is 0: here for the summaries of a segment, in the checkpoint."""
    mkfs = find_program("mkfs.f2fs")
    if mkfs is None:
        pytest.skip("mkfs.f2fs is not installed")
    disk = tmp_path / "disk.img"
    disk.touch()
    os.truncate(disk, 64 << 20)
    subprocess.run([mkfs, "-q", "-f", disk], check=True)
    command = [*checker("f2fs"), str(disk)]
    run_tool(command)
    with disk.open("r+b") as file:
        file.seek(1024 + 76)  # cp_blkaddr of the superblock
        summaries = (int.from_bytes(file.read(4), "little") + 2) * 4096
        file.seek(summaries)
        block = file.read(512)
        file.seek(summaries)
        file.write(bytes(byte ^ 0xFF for byte in block))
    with pytest.raises(ToolError, match=r"\[FIX\] .*Set node summary"):
        run_tool(command)


def test_what_e2fsck_asks_before_its_first_pass_is_an_error(tmp_path: Path) -> None:
    """Its status is 0: here for the checksum of a group, with which Linux does not mount. A clock may be behind."""
    disk = tmp_path / "disk.img"
    disk.touch()
    os.truncate(disk, 16 << 20)
    subprocess.run([find_tool("mkfs.ext4", ""), "-q", "-b", "1024", "-O", "metadata_csum", disk], check=True)
    debugfs = find_tool("debugfs", "")
    subprocess.run([debugfs, "-w", "-R", "ssv mtime 99999999999", disk], check=True, capture_output=True)
    assert " is in the future.\nFix? no\n" in run_tool([*checker("ext4"), str(disk)])
    with disk.open("r+b") as file:
        file.seek(2048 + 0x1E)  # bg_checksum of the first group
        checksum = file.read(2)
        file.seek(-2, os.SEEK_CUR)
        file.write(bytes(byte ^ 0xFF for byte in checksum))
    with pytest.raises(ToolError, match="group descriptor checksums are invalid"):
        run_tool([*checker("ext4"), str(disk)])
