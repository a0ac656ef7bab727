# SPDX-License-Identifier: MIT
"""Folders that are made for a while, or for another place."""

from __future__ import annotations

import contextlib
import errno
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest

import sampleblk_lab as lab
from sampleblk_lab import kernels, paths
from sampleblk_lab.errors import InputError, SampleblkError
from sampleblk_lab.sweeps import artefacts
from support import files_of_at_most

HOLDS = """
import sys
import sampleblk_lab as lab
from sampleblk_lab import kernels, paths
with paths.scratch_directory("kind") as folder:
    (folder / "file").touch()
    print(folder, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def _own_tmp(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)


def _holder() -> tuple[subprocess.Popen[str], Path]:
    process = subprocess.Popen([sys.executable, "-c", HOLDS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def test_a_lock_is_not_its_childrens(tmp_path: Path) -> None:
    """A pool's workers are forked while it is held, and live on."""
    begun, wait = os.pipe(), os.pipe()
    with paths.locked(tmp_path / "one") as mine:
        assert mine
        child = os.fork()
        if child == 0:
            with contextlib.suppress(BaseException):
                os.close(wait[1])
                os.write(begun[1], b".")
                os.read(wait[0], 1)
            os._exit(0)
        os.read(begun[0], 1)
        with paths.locked(tmp_path / "one", wait=False) as another:
            assert not another
    try:
        with paths.locked(tmp_path / "one", wait=False) as again:
            assert again
    finally:
        os.close(wait[1])
        os.waitpid(child, 0)


LOCKS = """
import sys
from pathlib import Path
import sampleblk_lab as lab
from sampleblk_lab import kernels, paths
paths._SILENT_S = 0.01
with paths.locked(Path(sys.argv[1])):
    print("mine", flush=True)
    sys.stdin.read()
"""


def test_who_waited_for_a_lock_has_it_alone(tmp_path: Path) -> None:
    """Its file goes with what it is for, and then who comes next makes another one."""
    target = tmp_path / "target"
    waits = f"sampleblk-lab: waiting for the process that holds {target}.lock (fuser(1) names it)\n"
    command = [sys.executable, "-c", LOCKS, str(target)]
    second = contextlib.ExitStack()
    with paths.locked(target):
        waiting = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        assert waiting.stdout is not None
        assert waiting.stdout.readline() == waits
        Path(f"{target}.lock").unlink()
        assert second.enter_context(paths.locked(target, wait=False))
    with second:
        assert waiting.stdout.readline() == waits
    assert waiting.stdout.readline() == "mine\n"
    waiting.communicate("")


def test_what_another_process_has_locked_is_not_removed(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    with paths.locked(target):
        paths.remove_unless_held(target)
        assert target.exists()
    paths.remove_unless_held(target)
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_was_removing_has_lost_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, target = tmp_path / "old", tmp_path / "target"
    for folder in (old, target):
        folder.mkdir()
        (folder / "file").write_text("old")
    os.utime(old, (1, 1))
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", lambda *_, **__: None)  # nothing is removed yet
        paths.keep_newest([old, target], 1)
        with paths.replaced_directory(target):
            pass
    assert not old.exists()
    assert list(target.iterdir()) == []
    assert len(list(tmp_path.iterdir())) > 1
    paths.remove_left(tmp_path)
    assert list(tmp_path.iterdir()) == [target]


def test_what_came_in_an_image_of_containers_is_removed_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of a lower layer of overlayfs cannot be renamed (EXDEV)."""
    (tmp_path / "layer/target").mkdir(parents=True)
    (tmp_path / "layer/target/file").write_text("old")
    rename = Path.rename

    def refused(path: Path, to: Path) -> Path:
        if path.name == "target":
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        return rename(path, to)

    monkeypatch.setattr(Path, "rename", refused)
    with paths.replaced_directory(tmp_path / "layer/target") as scratch:
        (scratch / "new").touch()
    assert [path.name for path in (tmp_path / "layer/target").iterdir()] == ["new"]
    paths.remove(tmp_path / "layer/target")
    assert list((tmp_path / "layer").iterdir()) == []


def test_what_another_process_removes_meanwhile_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    paths.keep_newest([tmp_path / "removed", tmp_path / "kept"], 1)
    assert (tmp_path / "kept").exists()


def test_a_killed_process_leaves_its_folder_to_the_next() -> None:
    dead, left = _holder()
    living, kept = _holder()
    dead.send_signal(signal.SIGKILL)
    dead.communicate()
    assert left.exists()
    with paths.scratch_directory("other"):
        assert left.exists()
    with paths.scratch_directory("kind") as mine:
        assert not left.exists()
        assert (kept / "file").exists()
        assert mine != kept
    assert not mine.exists()
    living.communicate("")
    assert not kept.exists()


def test_a_folder_that_another_removes_at_once_is_made_again(monkeypatch) -> None:
    real, made = tempfile.mkdtemp, []

    def stolen(**keywords: str) -> str:
        made.append(real(**keywords))
        if len(made) == 1:
            Path(made[0]).rmdir()
        return made[-1]

    monkeypatch.setattr(tempfile, "mkdtemp", stolen)
    with paths.scratch_directory("kind") as folder:
        assert [str(folder)] == made[1:]


@pytest.mark.parametrize("name", ["../x", "/etc/x", "a/../../x"])
def test_a_name_of_another_host_stays_below(tmp_path, name) -> None:
    with pytest.raises(ValueError, match="is not within"):
        paths.below(tmp_path, name)
    assert paths.below(tmp_path, "a/b") == tmp_path / "a/b"


def test_a_folder_takes_its_place_whole_or_not(tmp_path) -> None:
    target = tmp_path / "deep" / "target"
    with paths.replaced_directory(target) as folder:
        (folder / "a").touch()
    with contextlib.suppress(KeyError), paths.replaced_directory(target) as folder:
        (folder / "b").touch()
        raise KeyError
    assert [path.name for path in target.iterdir()] == ["a"]
    assert [path.name for path in target.parent.iterdir()] == ["target"]


def test_what_a_killed_process_was_building_goes_with_the_next(tmp_path) -> None:
    left, built = tmp_path / ".other.a1b2c3d4", tmp_path / ".third.a1b2c3d4"
    for folder in (left, built, tmp_path / "whole"):
        (folder / "below").mkdir(parents=True)
    descriptor = paths.hold(built)
    try:
        with paths.replaced_directory(tmp_path / "target") as mine, paths.replaced_directory(tmp_path / "more"):
            assert mine.exists()
    finally:
        os.close(descriptor)
    assert sorted(path.name for path in tmp_path.iterdir()) == [built.name, "more", "target", "whole"]


def test_what_failed_on_a_full_disk_says_so(tmp_path, monkeypatch) -> None:
    for free, expected in ((4096, paths.CacheError), (1 << 30, SampleblkError)):
        monkeypatch.setattr(paths.shutil, "disk_usage", lambda _, free=free: SimpleNamespace(free=free))
        with pytest.raises(SampleblkError, match="Wrote only") as raised, paths.built_directory(tmp_path / "target"):
            raise SampleblkError("tar: Wrote only 512 of 10240 bytes")
        assert type(raised.value) is expected
        assert ("make room there" in str(raised.value)) == (expected is paths.CacheError)
    assert list(tmp_path.iterdir()) == []


def test_a_program_that_had_no_room_and_made_some_has_it_told(tmp_path: Path) -> None:
    with pytest.raises(paths.CacheError, match="make room there") as raised, paths.filling_cache(tmp_path / "target"):
        raise SampleblkError("tar: ./one: Cannot write: No space left on device\ntar: ./two: Cannot write")
    assert "./two" not in str(raised.value)


def test_a_user_without_a_home_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a container runs as a user that it does not know."""
    for name in ("HOME", "XDG_CACHE_HOME", "SAMPLEBLK_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", {}.__getitem__)
    with pytest.raises(paths.CacheError, match="this user has no home; set SAMPLEBLK_CACHE"):
        paths.cache_root()
    with pytest.raises(InputError, match="kernel '~/none/vmlinuz' does not exist"):
        kernels.resolve("~/none/vmlinuz")
    recording = Path(__file__).parent / "data/profile"
    assert len(lab.open_profile(recording / "6.1-ours.data")) > 0


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o002])
def test_what_takes_a_place_has_the_permissions_that_are_asked_for(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        (tmp_path / "file").write_bytes(b"old")
        paths.replace_file(tmp_path / "file", b"new")
        with paths.replaced_directory(tmp_path / "folder"):
            pass
    finally:
        os.umask(before)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o666 & ~umask
    assert (tmp_path / "folder").stat().st_mode & 0o777 == 0o777 & ~umask


_FORKS = """
import os, sys
from sampleblk_lab import blocks, paths

class Closes(blocks.ClosesAtEnd):
    def close(self):
        os.write(1, b"closed\\n")

class Stops(blocks.StopsAtEnd):
    _KEPT = "it"
    def start(self):
        self.folder, self.remove = paths.scratch_of(self, "kept")
        return self
    def stop(self):
        os.write(1, b"stopped\\n")

with paths.scratch_directory("block") as folder, Closes(), Stops() as stops:
    if os.fork() == 0:
        sys.exit(0)
    os.wait()
    os.write(1, b"%d %d\\n" % (os.path.exists(folder), os.path.exists(stops.folder)))
assert not os.path.exists(folder)
"""


def test_a_fork_that_ends_within_a_block_leaves_all_to_its_parent(tmp_path: Path) -> None:
    """One that nobody has taught os._exit(), so that it leaves the block and cleans up."""
    done = subprocess.run([sys.executable, "-c", _FORKS], capture_output=True, text=True, check=True)
    assert done.stdout == "1 1\nstopped\nclosed\n"
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_written_is_named(tmp_path: Path) -> None:
    with files_of_at_most(10), pytest.raises(OSError, match=r"File too large: .*/whole"):
        paths.replace_file(tmp_path / "whole", bytes(100))
    with files_of_at_most(10), pytest.raises(OSError, match=r"File too large: .*/trials/key/a"):
        artefacts.keep(tmp_path, "key", {"a": bytes(100)})
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == []
