# SPDX-License-Identifier: MIT
"""A state mounted without a process: what mount(8) would have done of the same options, and nothing that stays."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sampleblk_lab import BusyError, UnsupportedError, crash, leftovers
from sampleblk_lab.crash import checks, resident
from sampleblk_lab.paths import find_program

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not Path("/dev/loop-control").exists(), reason="mounting takes root and loop devices"
)
STATE = cast("Any", SimpleNamespace())


@pytest.fixture
def image(tmp_path: Path) -> Iterator[Path]:
    made = tmp_path / "disk.img"
    made.write_bytes(b"")
    os.truncate(made, 16 << 20)
    program = find_program("mkfs.ext4")
    assert program is not None
    subprocess.run([program, "-q", "-F", made], check=True)
    yield made
    assert _loops(made) == []
    notes = "".join(file.read_text() for file in leftovers.directory().glob(f"{os.getpid()}-*"))
    assert made.name not in notes


def _loops(image: Path) -> list[str]:
    found = Path("/sys/block").glob("loop*/loop/backing_file")
    return [each.parts[3] for each in found if each.read_text().strip() == str(image)]


def _mounted_as(path: Path) -> tuple[set[str], set[str]]:
    """The flags of the mount and the options of the file system (proc(5), mountinfo)."""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields, _, rest = line.partition(" - ")
        if fields.split()[4] == str(path.resolve()):
            return set(fields.split()[5].split(",")), set(rest.split()[2].split(","))
    raise AssertionError(f"{path} is not mounted")


@pytest.mark.parametrize(
    "options",
    [
        "",
        "ro,noatime",
        "noexec,nosuid,nodev,sync",
        "nosymfollow,nodiratime",
        "nobarrier,data=journal",
        "strictatime,dirsync,lazytime",
        "ro,rw,loop",
    ],
)
def test_options_mean_what_they_mean_to_mount_8(options: str, image: Path, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    subprocess.run(["mount", "-t", "ext4", "-o", f"loop,{options}".rstrip(","), image, theirs], check=True)
    wanted = _mounted_as(theirs)
    subprocess.run(["umount", theirs], check=True)
    with checks._mounted(image, "ext4", options) as path:
        assert _mounted_as(path) == wanted
        assert len(_loops(image)) == 1
        assert (path / "lost+found").is_dir()
    assert not path.exists()


@pytest.mark.parametrize(
    ("options", "left"), [("", True), ("nosuid", True), ("strictatime", False), ("relatime", False), ("atime", False)]
)
def test_looking_at_a_file_changes_nothing_unless_it_is_asked_for(options: str, left: bool, image: Path) -> None:
    times: list[int] = []

    def looks(path: Path, _state: object) -> None:
        (path / "file").write_bytes(b"content")
        os.utime(path / "file", ns=(1, 10**18))
        (path / "file").read_bytes()
        times.append((path / "file").stat().st_atime_ns)

    crash.mounted("ext4", looks, options=options)(image, STATE)
    assert (times == [1]) == left


def test_what_is_written_is_in_the_image(image: Path) -> None:
    def writes(path: Path, _state: object) -> None:
        (path / "file").write_bytes(b"content" * 1000)

    found: list[bytes] = []
    crash.mounted("ext4", writes)(image, STATE)
    crash.mounted("ext4", lambda path, _: found.append((path / "file").read_bytes()), fsck=False)(image, STATE)
    assert found == [b"content" * 1000]


def test_a_check_that_fails_leaves_nothing(image: Path) -> None:
    def fails(path: Path, _state: object) -> None:
        assert path.name == ""

    with pytest.raises(AssertionError):
        crash.mounted("ext4", fails)(image, STATE)


def test_an_exploration_mounts_at_one_place_and_leaves_none(image: Path) -> None:
    seen: list[Path] = []
    kept: list[Any] = []

    def looks(path: Path, _state: object) -> None:
        seen.append(path)
        assert _mounted_as(path)
        if len(seen) == 2:
            kept.append((path / "file").open("w"))

    check = crash.mounted("ext4", looks, fsck=False)
    tools = resident.ResidentTools()
    with tools.used():
        check(image, STATE)
        with pytest.raises(BusyError):
            check(image, STATE)
        kept.pop().close()
        check(image, STATE)
    # Whoever finds this process dead finds it.
    notes = "".join(file.read_text() for file in leftovers.directory().glob(f"{os.getpid()}-*"))
    assert notes.count(str(seen[0])) <= 3
    assert seen[0].is_dir()
    assert len(set(seen)) == 1
    tools.close()
    assert not seen[0].exists()
    check(image, STATE)
    assert seen[-1] != seen[0]
    assert not seen[-1].exists()


def test_what_cannot_be_unmounted_is_not_mounted_over(image: Path) -> None:
    def left(place: Path) -> None:
        subprocess.run(["mount", "-t", "tmpfs", "none", place], check=True)
        leftovers.note("mount", str(place), device="none", made=True)

    tools = resident.ResidentTools()
    with tools.used():
        with resident.mount_point("place-") as first:
            left(first)
        with resident.mount_point("place-") as second:
            assert second != first
    tools.close()
    assert not second.exists()
    with resident.mount_point("place-") as third:
        left(third)
    # Both are known of as long as they are there.
    notes = "".join(file.read_text() for file in leftovers.directory().glob(f"{os.getpid()}-*"))
    for place in (first, third):
        assert notes.count(str(place)) == 1
        subprocess.run(["umount", place], check=True)
        leftovers.drop("mount", str(place))
        place.rmdir()
    assert image.exists()


def test_a_file_left_open_is_told_and_detached(image: Path) -> None:
    kept: list[Any] = []

    def keeps(path: Path, _state: object) -> None:
        kept.append((path / "file").open("w"))

    with pytest.raises(BusyError, match=r"was in use, and is detached now: pid \d+ \(.*this process\): .*/file"):
        crash.mounted("ext4", keeps)(image, STATE)
    kept.pop().close()


def test_what_the_kernel_refuses_is_a_finding_with_its_errno(image: Path) -> None:
    with image.open("r+b") as file:
        file.seek(1024 + 0x38)
        file.write(b"\0\0")  # the magic number
    with pytest.raises(OSError, match=r"mount\(2\) of ext4") as refused:
        crash.mounted("ext4")(image, STATE)
    assert refused.value.errno == errno.EINVAL
    assert refused.value.filename == str(image)


def test_that_nobody_may_mount_is_no_finding(image: Path) -> None:
    check = crash.mounted("ext4")
    os.seteuid(65534)
    try:
        with pytest.raises(UnsupportedError, match=r"mounting a ext4.*run as root, or in the VM"):
            check(image, STATE)
    finally:
        os.seteuid(0)
    with pytest.raises(UnsupportedError, match="mounting a nosuchfs"), checks._mounted(image, "nosuchfs", ""):
        pass


@pytest.mark.skipif(not os.access("/run", os.W_OK), reason="mounting is for root")
def test_states_of_a_btrfs_are_mounted_one_at_a_time_whatever_tmpdir_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    locked = set()
    monkeypatch.setattr(checks, "flock", lambda file, _: locked.add(file.name))
    monkeypatch.setattr(checks, "_BTRFS_CONTROL", tmp_path / "none")
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / name))
        with checks._only_btrfs():
            pass
    assert len(locked) == 1


def test_ctrl_c_just_after_the_mount_leaves_nothing(
    image: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = tmp_path / "folders"
    folders.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folders))

    def pressed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(leftovers, "note", pressed)
    with contextlib.closing(resident.ResidentTools()) as tools, tools.used(), pytest.raises(KeyboardInterrupt):
        crash.mounted("ext4")(image, STATE)
    assert list(folders.iterdir()) == []
