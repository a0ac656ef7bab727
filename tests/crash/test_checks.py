# SPDX-License-Identifier: MIT
"""The ready checks, on folders that are right and wrong in every way they can tell."""

from __future__ import annotations

import contextlib
import enum
import math
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crash.logs import FLUSH, MARK, SECTOR, journal, log_writes, with_marks
from sampleblk_lab import InputError, ToolError, UnsupportedError, crash
from sampleblk_lab.crash import resident
from sampleblk_lab.device.filesystem import find_tool
from sampleblk_lab.paths import find_program


@pytest.fixture
def log(tmp_path: Path) -> crash.Log:
    """Marks "one" and "two", each after a write that is flushed: its prefixes have none, the first, both."""
    data = b"\1" * SECTOR
    (tmp_path / "log").write_bytes(
        log_writes((0, 0, data), (FLUSH, 0, 0), (MARK, 0, b"one"), (0, 1, data), (FLUSH, 0, 0), (MARK, 0, b"two"))
    )
    return crash.Log(tmp_path / "log", base="zeros")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """An empty folder: what a file system has."""
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


def _fails(check: crash.Check, root: Path, state: crash.State) -> str:
    """What a check says that must fail; empty when it passes."""
    try:
        check(root, state)
    except AssertionError as error:
        return str(error)
    return ""


def test_marks_are_as_the_prefixes_have_them(log: crash.Log) -> None:
    assert [log.state(submitted).marks for submitted in range(3)] == [[], ["one"], ["one", "two"]]


def test_promised_files(log: crash.Log, root: Path) -> None:
    check = crash.promised({"one": {"a": b"1", "b": b"b"}, "two": {"a": (b"2", b"3"), "c": None}})
    none, one, two = (log.state(submitted) for submitted in range(3))
    assert _fails(check, root, none) == ""
    assert "'one' promised that a has 1 bytes, b'1'; it has nothing" in _fails(check, root, one)
    (root / "a").write_bytes(b"1")
    (root / "b").write_bytes(b"b")
    assert _fails(check, root, one) == ""
    assert "'two' promised that a has 1 bytes, b'2' or 1 bytes, b'3'" in _fails(check, root, two)
    for content in (b"2", b"3"):
        (root / "a").write_bytes(content)
        assert _fails(check, root, two) == ""
    assert "'one' promised that a" in _fails(check, root, one)
    (root / "c").touch()
    assert "c has nothing, there is no such file; it has 0 bytes" in _fails(check, root, two)
    (root / "c").unlink()
    (root / "b").unlink()
    assert "'one' promised that b" in _fails(check, root, two)


def test_a_promise_that_is_made_again_is_the_last_one(root: Path) -> None:
    check = crash.promised({"on": {"switch": b"on"}, "off": {"switch": b"off"}})
    (root / "switch").write_bytes(b"on")
    assert _fails(check, root, with_marks("on", "off", "on")) == ""
    assert _fails(check, root, with_marks("on", "off", "on", "off")).startswith("'off' promised that switch has ")


def test_promises_of_any_kind_go_to_a_function(log: crash.Log, root: Path) -> None:
    seen: list[dict[str, int]] = []
    check = crash.promised({"two": 2, "one": 1}, lambda _path, due: seen.append(due))
    for submitted in range(3):
        check(root, log.state(submitted))
    assert seen == [{}, {"one": 1}, {"one": 1, "two": 2}]
    with pytest.raises(InputError, match=r"mark 'three'.*\['one', 'two'\]"):
        crash.promised({"three": {"f": b""}})(root, log.state(0))


def test_a_replaced_file_is_old_or_new(log: crash.Log, root: Path) -> None:
    none, one, two = (log.state(submitted) for submitted in range(3))
    check = crash.replaced("f", b"old", b"new", begun="one", done="two")
    said = {
        content: [_fails(check, root, state) for state in (none, one, two)]
        for content in (None, b"", b"old", b"new", b"ol")
        if (root / "f").unlink(missing_ok=True) is None and (content is None or (root / "f").write_bytes(content) >= 0)
    }
    assert [bool(text) for text in said[None]] == [False, True, True]
    assert [bool(text) for text in said[b""]] == [False, True, True]
    assert [bool(text) for text in said[b"ol"]] == [False, True, True]
    assert [bool(text) for text in said[b"old"]] == [False, False, True]
    assert [bool(text) for text in said[b"new"]] == [False, False, False]
    assert "neither old nor new: it has 0 bytes" in said[b""][1]
    assert said[b"old"][2] == "'two' promised the new f; it is the old one"
    (root / "f").unlink()
    assert _fails(crash.replaced("f", None, b"new", done="two"), root, none) == ""
    assert "neither" in _fails(crash.replaced("f", b"old", b"new"), root, none)


def test_an_appended_file_is_a_begin_with_all_that_was_acknowledged(log: crash.Log, root: Path) -> None:
    none, one, two = (log.state(submitted) for submitted in range(3))
    check = crash.appended("f", b"abcdef", {"one": 2, "two": 4})
    assert _fails(check, root, none) == ""
    assert _fails(check, root, one) == "f is gone, of which 2 bytes were acknowledged"
    (root / "f").write_bytes(b"abc")
    assert [_fails(check, root, state) for state in (none, one)] == ["", ""]
    assert _fails(check, root, two) == "f has 3 bytes, 4 were acknowledged"
    (root / "f").write_bytes(b"ab\0\0\0")
    assert _fails(check, root, two) == "f has 5 bytes, which differ from what was appended at byte 2"
    (root / "f").write_bytes(b"abcdefg")
    assert "differ from what was appended at byte 6" in _fails(check, root, none)


def test_sqlite_has_its_acknowledged_rows(log: crash.Log, root: Path) -> None:
    none, one, two = (log.state(submitted) for submitted in range(3))
    check = crash.sqlite("db", "select k, v from t", {"one": [(1, "a")], "two": [[2, "b"]]})
    assert _fails(check, root, none) == ""
    assert "db is gone, of which 1 rows" in _fails(check, root, one)
    with contextlib.closing(sqlite3.connect(root / "db")) as base, base:
        base.execute("create table t (k integer primary key, v text)")
        base.execute("insert into t values (1, 'a')")
    assert _fails(check, root, one) == ""
    assert _fails(check, root, two) == "db: 1 of 2 acknowledged rows are gone, such as (2, 'b')"
    with contextlib.closing(sqlite3.connect(root / "db")) as base, base:
        base.execute("insert into t values (2, 'b')")
        base.execute("create index i on t (v)")
        base.executemany("insert into t values (?, ?)", [(number, "x" * 300) for number in range(3, 60)])
    assert _fails(check, root, two) == ""
    # A page of the index is a page of nothing.
    data = bytearray((root / "db").read_bytes())
    data[4096 * 2 : 4096 * 3] = bytes(4096)
    (root / "db").write_bytes(data)
    assert _fails(check, root, none).startswith("db: ")
    # An empty database is one without tables.
    (root / "db").write_bytes(b"")
    assert _fails(check, root, none) == ""
    assert _fails(check, root, one) == "db: SQLite says no such table: t"


@pytest.mark.parametrize("rows", [["ab"], "ab", [b"ab"], [7]])
def test_a_row_of_sqlite_is_a_tuple(rows: Any) -> None:
    with pytest.raises(InputError, match=r"acknowledged\['one'\] has the row"):
        crash.sqlite("db", "select v from t", {"one": rows})


def test_sqlite_has_equal_rows_as_often_as_they_were_acknowledged(root: Path) -> None:
    check = crash.sqlite("db", "select v from t", {"one": [("a",)], "all": [("a",), ("a",), ("b",)]})
    with contextlib.closing(sqlite3.connect(root / "db")) as base, base:
        base.execute("create table t (v text)")
        base.executemany("insert into t values (?)", ["a", "b"])
    assert _fails(check, root, with_marks("one", "all")) == ("db: 1 of 3 acknowledged rows are gone, such as ('a',)")
    with contextlib.closing(sqlite3.connect(root / "db")) as base, base:
        base.execute("insert into t values ('a')")
    assert _fails(check, root, with_marks("one", "all")) == ""


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: crash.promised({"one": {"/etc/hostname": None}}), "file '/etc/hostname' (expected its name below"),
        (lambda: crash.promised({"one": {"a": b"", "../a": b"1"}}), "file '../a'"),
        (lambda: crash.promised({"one": {"a": (None, "1")}}), "a has '1' (expected bytes"),
        (lambda: crash.promised({"one": ["a"]}), "'one' promises ['a']"),
        (lambda: crash.replaced("/a", b"1", b"2"), "file '/a'"),
        (lambda: crash.replaced("a", "1", b"2"), "a has '1'"),
        (lambda: crash.appended("/a", b"", {}), "file '/a'"),
        (lambda: crash.appended("a", "1", {}), "a has '1'"),
        (lambda: crash.appended("a", b"1", {"one": 2}), "acknowledged['one']=2 (expected a whole number from 0 to 1)"),
        (lambda: crash.sqlite("/a", "SELECT 1", {}), "file '/a'"),
    ],
)
def test_what_no_file_of_the_state_can_keep_is_refused(make: Callable[[], object], said: str) -> None:
    """A name from the root would be this machine's own file."""
    with pytest.raises(InputError, match=re.escape(said)):
        make()


def test_a_symbolic_link_of_a_state_leads_to_no_file_of_this_machine(log: crash.Log, root: Path) -> None:
    own = root.parent / "own"
    own.write_bytes(b"own")
    (root / "folder").mkdir()
    (root / "folder/file").write_bytes(b"state")
    for name, target in (("from-root", "/folder/file"), ("up", f"../../../{own}"), ("folder/beside", "../from-root")):
        (root / name).symlink_to(target)
    (root / "one").symlink_to("two")
    (root / "two").symlink_to("one")
    state = log.state(2)
    for name, said in (("from-root", b"state"), ("folder/beside", b"state"), ("up", None)):
        crash.promised({"one": {name: said}})(root, state)
    assert "there is no such file" in _fails(crash.replaced("up", b"old", b"own", done="two"), root, state)
    with pytest.raises(OSError, match="Too many levels"):
        crash.appended("one", b"x", {"one": 1})(root, state)


@pytest.mark.parametrize(
    "make",
    [
        lambda: crash.mounted("ext4", lambda _folder: None),
        lambda: crash.recovers("ext4", lambda: None),
        lambda: crash.promised({"one": 1}, lambda _folder, _due, _more: None),
        lambda: crash.all_of(lambda *_: None, print, lambda _state, /: None),
    ],
)
def test_a_check_of_other_arguments_is_no_finding(make: Callable[[], object]) -> None:
    """Each state failed by a TypeError of the call."""
    with pytest.raises(InputError, match=r"check=.*lambda.* \(expected a function of folder, "):
        make()


@pytest.mark.parametrize("empty", [crash.all_of, lambda: crash.promised({}), lambda: crash.promised({"begin": {}})])
def test_a_check_that_cannot_fail_is_refused(empty: Callable[[], object]) -> None:
    with pytest.raises(InputError, match=r"no checks|nothing is promised"):
        empty()


def test_all_of_them_are_asked(log: crash.Log, root: Path) -> None:
    asked: list[int] = []

    def second(_path: Path, _state: crash.State) -> None:
        asked.append(2)
        raise AssertionError("second")

    check = crash.all_of(lambda *_: asked.append(1), second, lambda *_: asked.append(3))
    assert _fails(check, root, log.state(0)) == "second"
    assert asked == [1, 2]


@pytest.fixture
def ext4(tmp_path: Path) -> crash.Log:
    """An ext4 with a folder and a file; the log overwrites the file's block, and then breaks a bitmap."""
    (tmp_path / "files/folder").mkdir(parents=True)
    (tmp_path / "files/folder/file").write_bytes(b"a" * 1024)
    base = tmp_path / "base.img"
    base.touch()
    os.truncate(base, 4 << 20)
    tool, debugfs = find_program("mkfs.ext4"), find_program("debugfs")
    assert tool is not None
    assert debugfs is not None
    subprocess.run([tool, "-q", "-F", "-b", "1024", "-d", tmp_path / "files", base], check=True)
    asked = subprocess.run([debugfs, "-R", "blocks /folder/file", base], capture_output=True, text=True, check=True)
    bitmap = subprocess.run([debugfs, "-R", "stats", base], capture_output=True, text=True, check=True).stdout
    at = int(bitmap.partition("block bitmap at ")[2].partition(",")[0])
    written = (0, 2 * int(asked.stdout), b"b" * 1024)
    writes = written, (FLUSH, 0, 0), (MARK, 0, b"new"), (0, 2 * at, b"\xff" * 1024)
    (tmp_path / "log").write_bytes(log_writes(*writes))
    return crash.Log(tmp_path / "log", base=base)


def test_the_files_of_a_recovered_ext4_are_checked_without_its_kernel(ext4: crash.Log) -> None:
    wanted = {"new": {"folder/file": b"b" * 1024, "none": None}}
    check = crash.recovers("ext4", crash.promised(wanted))
    for submitted in (0, 1):
        ext4.check(ext4.state(submitted), check)
    with pytest.raises(AssertionError, match="'new' promised that folder/file has 1024 bytes, b'xxx"):
        ext4.check(ext4.state(1), crash.recovers("ext4", crash.promised({"new": {"folder/file": b"x" * 1024}})))
    with pytest.raises(ToolError, match="e2fsck"):
        ext4.check(ext4.state(2), check)
    with pytest.raises(InputError, match="the files of a btrfs"):
        crash.recovers("btrfs", check)


def test_files_that_debugfs_gives_another_length_are_refused(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files/short").write_bytes(b"short")
    base, log = tmp_path / "base.img", tmp_path / "log"
    options = ["-q", "-I", "256", "-O", "inline_data", "-d", tmp_path / "files", base, "4M"]
    subprocess.run([find_tool("mkfs.ext4", ""), *options], check=True)
    log.write_bytes(log_writes((MARK, 0, b"one")))
    asked = crash.Log(log, base=base)
    assert asked.explore(crash.recovers("ext4"), progress=False).ok
    with pytest.raises(UnsupportedError, match=r"files of an ext4 with inline_data.*crash.mounted"):
        asked.explore(crash.recovers("ext4", crash.promised({"one": {"short": b"short"}})), progress=False)


def test_a_full_disk_is_no_finding(ext4: crash.Log, small_disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(small_disk))

    def fills(*_: object) -> None:
        (small_disk / "own").write_bytes(bytes(16 << 20))

    for check in (fills, crash.recovers("ext4", fills)):
        with pytest.raises(UnsupportedError, match=f"no room left in {small_disk}"):
            ext4.explore(check, progress=False)
    (small_disk / "own").write_bytes(bytes((8 << 20) - 4096 * 5))
    for workers in (None, 2):  # debugfs cannot write the files out
        with pytest.raises(UnsupportedError, match=f"no room left in {small_disk}"):
            ext4.explore(crash.recovers("ext4", lambda *_: None), workers=workers, progress=False)
    (small_disk / "own").unlink()
    assert not ext4.explore(crash.recovers("ext4", lambda *_: None), progress=False).ok  # of its own accord


def test_a_check_without_file_descriptors_has_found_nothing(log: crash.Log) -> None:
    def opens(path: Path, _: object) -> None:
        with contextlib.ExitStack() as stack:
            while True:
                stack.enter_context(path.open("rb"))

    with pytest.raises(OSError, match="Too many open files"):
        log.explore(opens, progress=False)


@pytest.mark.parametrize("workers", [None, 2])
def test_a_tool_that_was_killed_has_found_nothing(log: crash.Log, workers: int | None) -> None:
    def runs(_: Path, state: crash.State) -> None:
        resident.run(["/bin/sh", "-c", f"kill -{'KILL' if state.submitted == 1 else 'ABRT'} $$"])

    found = log.explore(runs, model=crash.Prefix(), failures=9, workers=workers, order="log", progress=False)
    assert found.lost.startswith("UnsupportedError: checking a state: /bin/sh was killed")
    assert {one.state.submitted for one in found.failures} <= {0, 2, 3}


@pytest.fixture
def orphans(tmp_path: Path) -> Path:
    """What a crash leaves of an ext4 with an orphan file, of which a file was removed that is still open."""
    mkfs = find_program("mkfs.ext4")
    assert mkfs is not None
    disk, place = tmp_path / "disk.img", tmp_path / "mount"
    disk.touch()
    os.truncate(disk, 16 << 20)
    if subprocess.run([mkfs, "-q", "-O", "orphan_file", disk], check=False, capture_output=True).returncode:
        pytest.skip("an e2fsprogs without orphan files")
    place.mkdir()
    if subprocess.run(["mount", "-o", "loop", disk, place], check=False, capture_output=True).returncode:
        pytest.skip("nothing is mounted here")
    try:
        with (place / "open").open("wb") as file:
            file.write(bytes(50000))
            file.flush()
            os.fsync(file.fileno())
            (place / "open").unlink()
            fd = os.open(place, os.O_RDONLY)
            os.fsync(fd)
            os.close(fd)
            shutil.copy(disk, tmp_path / "crashed.img")
    finally:
        subprocess.run(["umount", place], check=True)
    return tmp_path / "crashed.img"


def test_what_released_orphans_leave_in_their_file_is_no_failure(orphans: Path) -> None:
    log = orphans.with_name("log")
    log.write_bytes(log_writes())
    found = crash.Log(log, base=orphans).explore(crash.recovers("ext4"), progress=False)
    assert found.ok, found.text()
    assert found.checked == 1


@pytest.mark.parametrize(
    ("at", "damage"), [(0, b""), (0, bytes(4)), (0x1C, b"\x7f\xff\xff\xff"), (0x10, b"\x7f\xff\xff\xff")]
)
def test_a_journal_that_cannot_be_replayed_is_a_failure(tmp_path: Path, at: int, damage: bytes) -> None:
    """As Linux has it, which mounts none without a magic number, or where the log begins or ends beyond it."""
    disk, log = tmp_path / "disk.img", tmp_path / "log"
    disk.touch()
    os.truncate(disk, 16 << 20)
    (tmp_path / "block").write_bytes(b"j" * 1024)
    subprocess.run([find_tool("mkfs.ext4", ""), "-q", "-b", "1024", disk], check=True)
    # A transaction that nobody has written to its place.
    debugfs = find_tool("debugfs", "")
    script = f"jo\njw -b 9000 {tmp_path}/block\njc\n"
    subprocess.run([debugfs, "-w", "-f", "-", disk], input=script, check=True, text=True, capture_output=True)
    found = subprocess.run([debugfs, "-R", "bmap <8> 0", disk], check=True, text=True, capture_output=True)
    with disk.open("r+b") as file:
        file.seek(int(found.stdout) * 1024 + at)
        file.write(damage)
    log.write_bytes(log_writes())
    failures = crash.Log(log, base=disk).explore(crash.recovers("ext4"), progress=False).failures
    assert ["could not replay the journal" in str(failure.error) for failure in failures] == [True] * bool(damage)


@pytest.mark.parametrize(("at", "damage"), [(2048 + 0x1E, b"\x12\x34"), (1024 + 0x3FC, b"sum."), (1024, bytes(1024))])
def test_what_e2fsck_repairs_beside_the_journal_is_a_failure(tmp_path: Path, at: int, damage: bytes) -> None:
    """As Linux has it, which mounts none with a wrong checksum of a group or a superblock, or without the latter."""
    disk, log = tmp_path / "disk.img", tmp_path / "log"
    disk.touch()
    os.truncate(disk, 16 << 20)
    subprocess.run([find_tool("mkfs.ext4", ""), "-q", "-b", "1024", "-O", "metadata_csum", disk], check=True)
    log.write_bytes(log_writes())
    assert crash.Log(log, base=disk).explore(crash.recovers("ext4"), progress=False).ok
    with disk.open("r+b") as file:
        file.seek(at)
        file.write(damage)
    (failure,) = crash.Log(log, base=disk).explore(crash.recovers("ext4"), progress=False).failures
    assert "did not only replay the journal" in str(failure.error)


ORPHAN_FILE = """e2fsck 1.47.0 (5-Feb-2023)
Pass 1: Checking inodes, blocks, and sizes
Pass 5: Checking group summary information
Free blocks count wrong (33522, counted=33472).
Fix? no

Orphan file (inode 12) block 13 is not clean.
Clear? no

Failed to initialize orphan file.
Recreate? no


disk.img: ********** WARNING: Filesystem still has errors **********

disk.img: 11/10240 files (0.0% non-contiguous), 7438/40960 blocks
"""
# The same e2fsck of what a crash leaves where no file was removed that is open.
ORPHAN_PRESENT = ORPHAN_FILE.replace(
    "Orphan file (inode 12) block 13 is not clean", "Feature orphan_present is set but orphan file is clean"
)
ORPHAN_PRESENT = ORPHAN_PRESENT.replace("Failed to initialize orphan file.\nRecreate? no\n\n", "")
QUOTA = """[QUOTA WARNING] Usage inconsistent for ID 1001:actual (142336, 3) != expected (143360, 3)
Update quota info for quota type 0? no

"""
CLEARED = "disk.img: recovering journal\nClearing orphaned inode 13 (uid=0, gid=0, mode=0100644, size=50000)\n"


@pytest.mark.parametrize(
    ("replayed", "said", "passes"),
    [
        (CLEARED, ORPHAN_FILE, True),
        ("disk.img: recovering journal\n", ORPHAN_FILE, False),
        (CLEARED, ORPHAN_FILE.replace("Pass 5", "Inode bitmap differences: -13\nFix? no\n\nPass 5"), False),
        (CLEARED, ORPHAN_FILE.replace("block 13 is not clean", "block 13 has wrong magic"), False),
        (CLEARED, f"{ORPHAN_FILE}Segmentation fault\n", False),
        (CLEARED, f"{ORPHAN_FILE}{QUOTA}", True),
        (CLEARED, f"{ORPHAN_FILE}{QUOTA}{QUOTA.replace(', 3', ', 4')}", True),
        (CLEARED, f"{ORPHAN_FILE}{QUOTA.replace(', 3)', ', 4)', 1)}", False),
        ("disk.img: recovering journal\n", f"{ORPHAN_PRESENT}{QUOTA}", False),
        ("disk.img: recovering journal\n", ORPHAN_PRESENT, True),
        ("disk.img: recovering journal\n", f"{ORPHAN_PRESENT}Segmentation fault\n", False),
        ("disk.img: recovering journal\n", ORPHAN_PRESENT.replace("count wrong", "count wrong for group #0"), False),
    ],
)
def test_whatever_else_is_wrong_beside_released_orphans_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replayed: str, said: str, passes: bool
) -> None:
    def check(command: list[str], _image: str) -> None:
        raise ToolError(command, 4, said)

    monkeypatch.setattr("sampleblk_lab.crash.resident.run", lambda *_, **__: replayed)
    monkeypatch.setattr("sampleblk_lab.crash.resident.check", check)
    with contextlib.nullcontext() if passes else pytest.raises(ToolError):
        crash.recovers("ext4")(tmp_path / "disk.img", with_marks("one"))


# --- failures written out --------------------------------------------------------------------------------------------

MODULE = """
def same(image, state):
    data = image.read_bytes()
    assert data[0] == data[512], "half a transfer, flush=no"

class Holder:
    @staticmethod
    def same(image, state):
        same(image, state)
"""


def _pytest(folder: Path) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(folder), str(folder)],
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        cwd="/",
    )
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def transfer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> crash.Log:
    """A transfer of two writes to a disk of one megabyte, and the module `accounts`, which checks it."""
    (tmp_path / "accounts.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "accounts", raising=False)
    writes = (0, 5, b"\3" * SECTOR), (0, 0, b"\2" * SECTOR), (0, 1, b"\2" * SECTOR), (MARK, 0, b"paid")
    (tmp_path / "log").write_bytes(log_writes(*writes))
    (tmp_path / "base.img").write_bytes(b"\1" * 1024 + bytes(200_000 - 200_000 % 512))
    return crash.Log(tmp_path / "log", base=tmp_path / "base.img", size_bytes=1 << 20, flush=False)


def test_recovered_files_may_lie_in_a_folder_of_any_name(
    ext4: crash.Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = tmp_path / 'an "odd" folder'
    odd.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(odd))

    def check(folder: Path, _state: crash.State) -> None:
        assert folder.is_relative_to(odd)
        assert (folder / "folder/file").read_bytes() == b"a" * 1024

    ext4.check(ext4.state(0), crash.recovers("ext4", check))


@pytest.mark.parametrize("name", ["same", "Holder.same"])
def test_a_saved_failure_fails_by_itself_and_passes_without_its_loss(
    transfer: crash.Log, tmp_path: Path, name: str
) -> None:
    import accounts  # type: ignore[import-not-found]

    check = accounts.same if name == "same" else accounts.Holder.same
    found = transfer.explore(check, model=crash.Reorder(), failures=100)
    failure = next(failure for failure in found.failures if failure.reduced.lost)
    folder = failure.save(tmp_path / "saved")
    assert {path.name for path in folder.iterdir()} == {
        *("test_crash_state.py", "log.gz", "base.img.gz", "checked_accounts.py"),
    }
    # Anywhere: what it was made of is gone.
    for path in ("log", "base.img", "accounts.py"):
        (tmp_path / path).unlink()
    status, said = _pytest(folder)
    assert status == 1, said
    assert "1 failed, 1 passed" in said
    assert "half a transfer, flush=no" in said
    assert "FAILED" in said
    assert "test_what_the_crash_left" in said.split("FAILED")[1]
    text = (folder / "test_crash_state.py").read_text()
    assert "# <crash after write" in text
    assert f"lost=[{failure.reduced.lost[0]}]" in text
    log = crash.unpack(folder, tmp_path, size_bytes=1 << 20, flush=False, fua=True)
    assert (log.size_bytes, log.flush, log.fua) == (1 << 20, False, True)


def test_a_ready_check_is_written_down_with_all_it_was_given(ext4: crash.Log, tmp_path: Path) -> None:
    wrong = crash.promised({"new": {"folder/file": (b"x" * 1024, None)}})
    check = crash.recovers("ext4", crash.all_of(crash.appended("none", b"", {"new": 0}), wrong))
    [failure] = ext4.explore(check, model=crash.Prefix(), states=2).failures
    folder = failure.save(tmp_path / "saved")
    text = (folder / "test_crash_state.py").read_text()
    assert "in_vm" not in text
    assert "none is gone, of which 0 bytes were acknowledged" in text
    status, said = _pytest(folder)
    assert status == 1, said
    assert "none is gone, of which 0 bytes were acknowledged" in said


class _Text(enum.StrEnum):
    QUERY = "select * from t"


def test_odd_names_and_values_are_written_down_as_they_are(ext4: crash.Log, tmp_path: Path) -> None:
    rows = [(math.inf, np.float64(1.5), None)]
    check = crash.recovers(
        "ext4",
        crash.all_of(
            crash.promised({"new": {Path("caf\udce9"): (bytearray(b"x"),)}}),
            crash.sqlite("base", _Text.QUERY, {"new": rows}),
        ),
    )
    [failure] = ext4.explore(check, model=crash.Prefix(), states=2).failures
    assert "caf\udce9" in str(failure.error)
    folder = failure.save(tmp_path / "saved")
    text = (folder / "test_crash_state.py").read_text(encoding="utf-8")
    assert "# <crash after write 1>: AssertionError: 'new' promised that caf\\udce9 has 1 bytes" in text
    assert "crash.sqlite('base', 'select * from t', {'new': [(float('inf'), 1.5, None, )]})" in text
    status, said = _pytest(folder)
    assert status == 1, said
    assert "promised that caf" in said


def test_what_a_check_says_is_a_comment_whatever_it_is(transfer: crash.Log, tmp_path: Path) -> None:
    import accounts

    failure = replace(transfer.explore(accounts.same, failures=9).failures[-1], error=ValueError("a\0b\u2028c\rd\te"))
    text = (failure.save(tmp_path / "saved") / "test_crash_state.py").read_text(encoding="utf-8")
    compile(text, "saved", "exec")
    assert "ValueError: a\\x00b\n# c\n# d\te\n" in text


def test_what_cannot_be_written_down_is_said(transfer: crash.Log, tmp_path: Path) -> None:
    def within(_image: Path, _state: crash.State) -> None:
        raise AssertionError("no")

    for check in (within, crash.all_of(within)):
        [failure] = transfer.explore(check).failures
        with pytest.raises(InputError, match=r"within cannot be written down|within' cannot be written down"):
            failure.save(tmp_path / "none")
    assert not (tmp_path / "none").exists()
    import accounts

    failure = transfer.explore(accounts.same, failures=9).failures[-1]
    failure.save(tmp_path / "saved")
    with pytest.raises(InputError, match=r"test_crash_state.py exists"):
        failure.save(tmp_path / "saved")


def test_a_check_that_mounts_is_run_in_the_vm(transfer: crash.Log, tmp_path: Path) -> None:
    import accounts

    from sampleblk_lab.crash.checks import Check

    check = Check(
        "mounted", ("ext4", accounts.same), {"options": "nobarrier"}, lambda image, _: accounts.same(image, 0)
    )
    failure = transfer.explore(check, failures=9).failures[-1]
    text = (failure.save(tmp_path / "saved") / "test_crash_state.py").read_text()
    assert "CHECK = crash.mounted('ext4', checked_accounts.same, options='nobarrier')" in text
    assert "pytestmark = [pytest.mark.in_vm]" in text


async def _awaited(path: Path, _: object) -> None:
    raise AssertionError(path)


def _yields(path: Path, _: object) -> Any:
    yield
    raise AssertionError(path)


@pytest.mark.parametrize("check", [_awaited, _yields, lambda *asked: _awaited(*asked)])
@pytest.mark.parametrize("made", [lambda own: own, crash.all_of, lambda own: crash.promised({"one": 1}, own)])
def test_a_check_that_does_not_run_passes_nothing(check: Any, made: Any, log: crash.Log) -> None:
    found = log.explore(made(check), model=crash.Prefix())
    assert not found.ok
    assert "the check returned a " in found.text()
    assert " and has not run (expected a plain function, without async and yield)" in found.text()


def test_a_check_that_returns_false_has_failed(log: crash.Log) -> None:
    def has_both(path: Path, _: object) -> object:
        return np.frombuffer(path.read_bytes()[: 2 * SECTOR], np.uint8).all()

    assert type(has_both(log.path, None)) is np.bool_
    for check in (has_both, crash.all_of(has_both), lambda *asked: bool(has_both(*asked))):
        found = log.explore(check, model=crash.Prefix(), failures=9)
        assert [one.state.submitted for one in found.failures] == [0, 1]
        assert "returned False" in found.text()
        with pytest.raises(AssertionError, match="returned False"):
            log.check(log.state(0), check)
        log.check(log.state(2), check)
    # What it returns otherwise is its own affair.
    assert log.explore(lambda *_: 0, model=crash.Prefix()).ok


@pytest.mark.parametrize(
    ("check", "said"),
    [
        (lambda *_: subprocess.call(["false"]), r"the check returned 1 \(expected nothing, True or False"),
        (lambda *_: subprocess.run(["false"], check=False), "had exit status 1"),
        (lambda *_: (np.arange(3) != 1).sum(), "the check returned (np.int64\\()?2"),
        (lambda *_: 0.5, "the check returned 0.5"),
    ],
)
def test_a_command_that_failed_and_is_returned_has_not_passed(check: Any, said: str, log: crash.Log) -> None:
    found = log.explore(check, model=crash.Prefix())
    assert not found.ok
    assert re.search(said, found.text())
    assert log.explore(lambda *_: subprocess.run(["true"], check=False), model=crash.Prefix()).ok


def test_a_log_without_writes_says_so(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(journal([]))
    found = crash.Log(tmp_path / "log", base="zeros", size_bytes=SECTOR).explore(lambda *_: None)
    assert "1 states, 1 with contents of their own checked" in found.text()
    assert "all there are, of a log without writes: 0 failed" in found.text()


def test_what_was_promised_is_not_kept_by_a_log_of_something_else(log: crash.Log) -> None:
    for check in (
        crash.as_watched(crash.Watched("ext4", [{"names": {}, "facts": {}}])),
        crash.ace.kept({"creat; fsync": [{"at": ["f"], "type": "file", "folder": "w000"}]}),
    ):
        found = log.explore(check, model=crash.Prefix())
        assert not found.ok
        assert "no mark of the promises is in the log" in found.text()
    with pytest.raises(InputError, match="nothing is promised"):
        crash.ace.kept({})


def test_a_fork_that_a_check_lets_return_explores_nothing(log: crash.Log, capfd: pytest.CaptureFixture[str]) -> None:
    def forks(_: Path, __: object) -> None:
        child = os.fork()
        assert child, "in the child"
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1

    found = log.explore(forks, model=crash.Prefix())
    assert (found.ok, found.checked) == (True, 3)
    assert capfd.readouterr().err.count("AssertionError: in the child") == 3
