# SPDX-License-Identifier: MIT
"""The oracle that writes itself, on this machine's own file system: what a program is promised, and no more.

What a crash could leave is made by hand from what the program left.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import mmap
import os
import resource
import shutil
import signal
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest

from crash.logs import at_any_time, with_marks
from sampleblk_lab import InputError, UnsupportedError, crash
from sampleblk_lab.crash.checks import plain_only

RWF_APPEND = 0x10  # linux/fs.h
RENAME_EXCHANGE, RENAME_WHITEOUT = 2, 4


class Watch:
    """Runs programs, which begin in the folder that stands for a file system."""

    def __init__(self, folder: Path) -> None:
        self.top = folder / "mount"
        self.top.mkdir()
        self.left = folder / "left"
        self.marks: list[str] = []
        self.found = crash.Watched("ext4")

    def __call__(self, program: Callable[[], object] | list[str], *, rule: str = "ext4", alloc: bool = False) -> None:
        def there() -> None:
            os.chdir(self.top)
            cast("Callable[[], object]", program)()

        what = there if callable(program) else program
        self.found = crash.watched(what, self.top, self.marks.append, rule=rule, auto_da_alloc=alloc)
        assert self.found.status == 0
        shutil.rmtree(self.left, ignore_errors=True)
        shutil.copytree(self.top, self.left, symlinks=True)

    def said(self, marks: int | None = None) -> str:
        """What the check says of `left`, once so many marks are set."""
        check = crash.as_watched(crash.Watched(**json.loads(json.dumps(vars(self.found)))))
        try:
            check(self.left, with_marks(*self.marks[:marks]))
        except AssertionError as error:
            return str(error)
        return ""


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[Watch]:
    found = Watch(tmp_path)
    (found.top / "old").write_bytes(b"o" * 10000)
    (found.top / "folder").mkdir()
    (found.top / "folder/inner").write_bytes(b"i" * 100)
    return found


def put(name: str, data: bytes, *, sync: bool = True, offset: int | None = None) -> None:
    fd = os.open(name, os.O_WRONLY | os.O_CREAT, 0o644)
    try:
        os.write(fd, data) if offset is None else os.pwrite(fd, data, offset)
        if sync:
            os.fsync(fd)
    finally:
        os.close(fd)


def sync(name: str) -> None:
    fd = os.open(name, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def state_of(task: int) -> str:
    return Path(f"/proc/{task}/stat").read_text().rpartition(")")[2].split()[0]


def nothing() -> None:
    pass


def test_what_was_there_at_the_start_stays(watch: Watch) -> None:
    watch(nothing)
    assert watch.said() == ""
    (watch.left / "old").write_bytes(b"o" * 9999 + b"x")
    assert watch.said() == "old has other bytes from 8192 to 10000 than it had (at the start)"
    (watch.left / "old").write_bytes(b"o" * 9999)
    assert watch.said() == "old has 9999 bytes, not 10000 (at the start)"
    (watch.left / "old").unlink()
    assert watch.said() == "old is gone"
    (watch.left / "old").mkdir()
    assert watch.said() == "old is of another type than it was"


def test_what_never_was_must_not_be_there(watch: Watch) -> None:
    watch(nothing)
    (watch.left / "new").touch()
    assert watch.said() == "new is there, which never was"


def test_what_is_removed_again_was_promised_until_then(watch: Watch) -> None:
    """A crash may leave these contents at any time from the begin on, so also between the fsync and the removal."""

    def program() -> None:
        put("new", b"n" * 5000)
        Path("new").unlink()

    watch(program)
    check = crash.as_watched(watch.found)
    check(watch.left, with_marks(*watch.marks))
    with pytest.raises(AssertionError, match="new is gone"):
        check(watch.left, at_any_time(*watch.marks))


def test_a_file_that_was_synced_is_there_whole(watch: Watch) -> None:
    watch(lambda: put("new", b"n" * 5000))
    assert watch.said() == ""
    (watch.left / "new").write_bytes(b"n" * 4096)
    assert watch.said().startswith("new has 4096 bytes, not 5000 (promise ")
    (watch.left / "new").unlink()
    assert watch.said() == "new is gone"
    # Before its promise it may be there or not, with anything in it.
    before = len(watch.marks) - 1
    assert watch.said(before) == ""
    (watch.left / "new").write_bytes(b"?")
    assert watch.said(before) == ""


def test_without_a_sync_nothing_new_is_promised(watch: Watch) -> None:
    watch(lambda: put("new", b"n" * 5000, sync=False))
    for content in (b"", b"n" * 5000, b"junk"):
        (watch.left / "new").write_bytes(content)
        assert watch.said() == ""
    (watch.left / "new").unlink()
    assert watch.said() == ""


def test_posix_promises_a_name_by_the_sync_of_its_folder(watch: Watch) -> None:
    watch(lambda: put("new", b"n" * 5000), rule="posix")
    (watch.left / "new").unlink()
    assert watch.said() == ""
    (watch.left / "new").write_bytes(b"n" * 4999)  # but under its name it has its contents, or none
    # Until then another file that was about to be made may have the name.
    assert watch.said() == ""

    def both() -> None:
        put("other", b"n" * 5000)
        sync(".")

    watch.marks.clear()
    watch(both, rule="posix")
    (watch.left / "other").write_bytes(b"n" * 4999)
    assert watch.said().startswith("other has 4999 bytes, not 5000 (promise ")
    (watch.left / "other").unlink()
    assert watch.said() == "other is gone"


def test_of_what_was_overwritten_since_only_those_bytes_may_differ(watch: Watch) -> None:
    watch(lambda: put("old", b"x" * 100, sync=False, offset=5000))
    (watch.left / "old").write_bytes(b"o" * 4096 + b"?" * 4096 + b"o" * 1808)
    assert watch.said() == ""
    (watch.left / "old").write_bytes(b"o" * 4096 + b"?" * 4096 + b"o" * 1807 + b"x")
    assert watch.said() == "old has other bytes from 8192 to 10000 than it had (at the start)"
    (watch.left / "old").write_bytes(b"o" * 4096)
    assert watch.said() == "old has 4096 bytes, not at least 10000 (at the start)"


def test_a_file_that_was_cut_may_be_as_short_and_as_long(watch: Watch) -> None:
    watch(lambda: os.truncate("old", 3000))
    for size in (3000, 5000, 10000):
        (watch.left / "old").write_bytes(b"o" * size)
        assert watch.said() == ""
    (watch.left / "old").write_bytes(b"o" * 2999)
    assert watch.said() == "old has 2999 bytes, not at least 3000 (at the start)"


def test_an_append_leaves_what_was_before_it(watch: Watch) -> None:
    def append() -> None:
        fd = os.open("old", os.O_WRONLY | os.O_APPEND)
        os.write(fd, b"a" * 3000)
        os.close(fd)

    watch(append)
    for tail in (b"", b"a" * 3000, b"?" * 10):
        (watch.left / "old").write_bytes(b"o" * 10000 + tail)
        assert watch.said() == ""
    (watch.left / "old").write_bytes(b"o" * 8191 + b"x" + b"o" * 1808)
    assert watch.said() == "old has other bytes from 4096 to 8192 than it had (at the start)"


def test_a_rename_leaves_the_file_under_one_name(watch: Watch) -> None:
    watch(lambda: Path("old").rename("moved"))
    assert watch.said() == ""
    (watch.left / "moved").rename(watch.left / "old")
    assert watch.said() == ""
    (watch.left / "old").rename(watch.left / "elsewhere")
    assert watch.said() == "elsewhere is there, which never was"
    (watch.left / "elsewhere").unlink()
    assert watch.said() == "neither old nor moved is the file that was renamed from one to the other"


def test_a_file_that_has_no_name_for_certain_may_lose_all(watch: Watch) -> None:
    def move() -> None:
        put("next", b"n", sync=False)
        Path("next").rename("last")
        with contextlib.suppress(FileNotFoundError):
            Path("last").rename("none/last")

    watch(move)
    (watch.left / "last").unlink()
    assert watch.said() == ""


def test_a_replaced_file_is_old_or_new_and_never_neither(watch: Watch) -> None:
    def replace() -> None:
        put("next", b"n" * 200)
        Path("next").rename("old")

    watch(replace)
    for content in (b"n" * 200, b"o" * 10000):
        (watch.left / "old").write_bytes(content)
        (watch.left / "next").write_bytes(b"n" * 200)
        assert watch.said() == ""
    (watch.left / "old").write_bytes(b"")
    assert watch.said().startswith("old has 0 bytes, not 10000")
    (watch.left / "old").unlink()
    assert watch.said() == "old is gone"


def test_without_its_own_sync_a_replacing_file_may_be_empty_but_for_auto_da_alloc(watch: Watch) -> None:
    def replace() -> None:
        put("next", b"n" * 200, sync=False)
        Path("next").rename("old")

    watch(replace)
    (watch.left / "old").write_bytes(b"")
    assert watch.said() == ""
    watch.marks.clear()
    (watch.top / "old").write_bytes(b"o" * 10000)
    watch(replace, alloc=True)
    assert watch.said() == ""
    (watch.left / "old").write_bytes(b"")
    assert watch.said() == "old has 0 bytes, not 10000 (at the start)"


def test_a_folder_moves_with_all_that_is_in_it(watch: Watch) -> None:
    def move() -> None:
        Path("folder").rename("moved")
        put("moved/inner", b"i" * 200)

    watch(move)
    assert watch.said() == ""
    before = len(watch.marks) - 1
    (watch.left / "moved").rename(watch.left / "folder")
    assert watch.said(before) == ""
    assert watch.said() == "folder is there, which was removed"


def rename(old: str, new: str, flags: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.renameat2(-100, old.encode(), -100, new.encode(), flags) == 0, os.strerror(ctypes.get_errno())


def test_what_is_below_a_folder_goes_where_that_is_exchanged(watch: Watch) -> None:
    watch(lambda: rename("old", "folder", RENAME_EXCHANGE))
    assert watch.said() == ""
    (watch.left / "old/inner").unlink()
    assert watch.said() == ""
    (watch.left / "old").rmdir()
    assert watch.said() == "old is gone"


def test_a_rename_that_leaves_a_whiteout_leaves_one(watch: Watch) -> None:
    def move() -> None:
        rename("old", "moved", RENAME_WHITEOUT)
        Path("old").unlink()

    watch(move)
    os.mkfifo(watch.left / "old")
    assert watch.said(2) == ""


def test_the_name_of_a_socket_is_made(watch: Watch) -> None:
    def listen() -> None:
        with socket.socket(socket.AF_UNIX) as one, socket.socket(socket.AF_UNIX) as other:
            one.bind("folder/socket")
            other.bind("\0abstract")
        with socket.socket() as other:
            other.bind(("127.0.0.1", 0))
        put("new", b"n")
        Path("folder/socket").unlink()

    watch(listen)
    assert watch.found.events[1]["changes"] == [["folder/socket", "?"]]
    assert watch.said() == ""
    os.mkfifo(watch.left / "folder/socket")
    (watch.left / "new").unlink()
    assert watch.said(2) == ""
    (watch.left / "folder/socket").rename(watch.left / "abstract")
    assert watch.said(2) == "abstract is there, which never was"


def test_a_fifo_is_not_missed_where_files_are_written_out_without_it(watch: Watch) -> None:
    def make() -> None:
        os.mkfifo("fifo")
        sync(".")
        Path("fifo").rename("moved")
        put("new", b"n")
        Path("moved").unlink()

    watch(make)
    renamed, synced = 4, len(watch.marks) - 1
    token = plain_only.set(True)
    try:
        assert watch.said(synced) == ""
        assert watch.said(renamed) == "new is there, which never was"
        (watch.left / "new").unlink()
        assert watch.said(renamed) == ""
    finally:
        plain_only.reset(token)
    assert watch.said(renamed) == "neither fifo nor moved is the file that was renamed from one to the other"


def test_what_was_removed_is_back_or_not_until_it_is_synced(watch: Watch) -> None:
    def remove() -> None:
        Path("old").unlink()
        sync(".")

    watch(remove)
    assert watch.said() == ""
    (watch.left / "old").write_bytes(b"o" * 10000)
    assert watch.said() == "old is there, which was removed"
    assert watch.said(len(watch.marks) - 1) == ""
    (watch.left / "old").write_bytes(b"o" * 9000)
    assert watch.said(len(watch.marks) - 1) == "old has 9000 bytes, not 10000 (at the start)"


def test_a_sync_of_another_file_commits_only_what_came_before_its_own_change(watch: Watch) -> None:
    """ext4's fsync waits for the transaction that the inode was changed in, which may be over."""

    def remove() -> None:
        put("other", b"x", sync=False)
        Path("old").unlink()
        sync("other")

    watch(remove)
    (watch.left / "old").write_bytes(b"o" * 10000)
    assert watch.said() == ""
    (watch.left / "other").unlink()
    assert watch.said() == "other is gone"


def fails(call: Callable[[], object]) -> None:
    with contextlib.suppress(OSError):
        call()


@pytest.mark.parametrize(
    ("change", "synced"),
    [
        # What these leave alone is not in the journal with them.
        (lambda: fails(lambda: os.link("new", "old")), "old"),
        (lambda: fails(lambda: Path("old").symlink_to("new")), "old"),
        (lambda: fails(lambda: Path("old").rename("folder")), "old"),
        (lambda: fails(lambda: Path("old").rename("none/old")), "old"),
        (lambda: Path("old").rename("hard"), "old"),
        (lambda: Path("folder/none").unlink(missing_ok=True), "folder"),
        (lambda: Path("folder").mkdir(exist_ok=True), "folder"),
        (lambda: Path("folder").rename("moved"), "moved/inner"),
        (lambda: Path("folder").rename("moved"), "moved/sub"),
    ],
)
def test_a_call_that_leaves_a_file_alone_lets_its_sync_promise_nothing(
    watch: Watch, change: Callable[[], object], synced: str
) -> None:
    os.link(watch.top / "old", watch.top / "hard")
    (watch.top / "folder/sub").mkdir()

    def work() -> None:
        put("new", b"n", sync=False)
        time.sleep(0.02)  # the times of files are those of the timer's last tick
        change()
        sync(synced)

    watch(work)
    (watch.left / "new").unlink()
    assert watch.said() == ""
    if (watch.left / "moved").exists():
        (watch.left / "moved").rename(watch.left / "folder")
        assert watch.said() == ""


def test_links_are_seen_however_they_are_made(watch: Watch) -> None:
    (watch.top / "soft").symlink_to("old")

    def link() -> None:
        top = os.open(".", os.O_RDONLY)
        os.symlink("old", "softer", dir_fd=top)
        # Of what the symbolic link leads to: AT_SYMLINK_FOLLOW.
        os.link("soft", "hard", src_dir_fd=top, follow_symlinks=True)

    watch(link)
    assert (watch.left / "hard").lstat().st_size == 10000
    assert watch.said() == ""
    (watch.left / "hard").unlink()
    (watch.left / "softer").unlink()
    assert watch.said() == ""


def test_a_link_is_the_same_file(watch: Watch) -> None:
    def link() -> None:
        os.link("old", "folder/link")
        sync("folder")

    watch(link)
    assert watch.said() == ""
    (watch.left / "folder/link").write_bytes(b"")
    assert watch.said() == "folder/link has 0 bytes, not 10000 (at the start)"
    (watch.left / "folder/link").unlink()
    assert watch.said() == "folder/link is gone"


def test_sync_promises_everything(watch: Watch) -> None:
    def work() -> None:
        put("new", b"n" * 5000, sync=False)
        Path("link").symlink_to("new")
        Path("empty").mkdir()
        os.sync()

    watch(work, rule="posix")
    assert watch.said() == ""
    for name in ("new", "link", "empty"):
        gone = watch.left / name
        gone.rename(watch.left.parent / name)
        assert watch.said() == f"{name} is gone"
        (watch.left.parent / name).rename(gone)
    (watch.left / "new").write_bytes(b"n" * 4999 + b"x")
    assert watch.said().startswith("new has other bytes from 4096 to 5000 than it had (promise ")


def test_a_number_of_an_inode_that_is_used_again_is_another_file(watch: Watch) -> None:
    def again() -> None:
        Path("old").unlink()
        for number in range(8):
            put(f"new{number}", b"n" * 10, sync=False)

    watch(again)
    for number in range(8):
        (watch.left / f"new{number}").write_bytes(b"")
    assert watch.said() == ""


def test_a_shared_mapping_is_not_judged_and_told(watch: Watch) -> None:
    def write() -> None:
        with Path("old").open("r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
            memory[:4] = b"xxxx"
            os.fsync(file.fileno())

    watch(write)
    assert watch.found.unjudged == ["the contents of old, which is mapped writable and shared"]
    (watch.left / "old").write_bytes(b"?" * 10000)
    assert watch.said() == ""
    (watch.left / "old").unlink()
    assert watch.said() == "old is gone"


def a_process(work: Callable[[], object]) -> tuple[int, Callable[[], object]]:
    """One that does some work; its id, and what waits for its end."""
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(0)
    return child, lambda: os.waitpid(child, 0)


def a_thread(work: Callable[[], object]) -> tuple[int, Callable[[], object]]:
    """As `a_process`."""
    thread = threading.Thread(target=work)
    thread.start()
    assert thread.native_id is not None
    return thread.native_id, thread.join


# Between its calls a thread of Python's may wait for the interpreter, so that none is busy for certain.
@pytest.mark.parametrize(("start", "busy"), [(a_process, True), (a_process, False), (a_thread, False)])
def test_what_others_may_be_about_to_do_is_not_promised(
    watch: Watch, start: Callable[[Callable[[], object]], tuple[int, Callable[[], object]]], busy: bool
) -> None:
    def both() -> None:
        has_written, may_end = 0, 1
        shared = mmap.mmap(-1, 2)
        ended, end = os.pipe()

        def other() -> None:
            put("old", b"x" * 100, sync=False, offset=0)
            shared[has_written] = 1
            while busy and not shared[may_end]:
                pass
            os.read(ended, 1)

        task, join = start(other)
        # What runs may be within its write still, what waits in another call is not.
        while not shared[has_written] or (not busy and state_of(task) != "S"):
            time.sleep(0.01)
        sync("old")
        sync("folder")
        shared[may_end] = 1
        os.write(end, b"1")
        join()

    watch(both)
    # When the last promise is certain, nothing after it is.
    promised = max(
        int(mark.split()[-1]) for mark, event in zip(watch.marks, watch.found.events, strict=True) if "by" in event
    )
    assert watch.said(promised + 1) == ""
    (watch.left / "old").write_bytes(b"?" * 4096 + b"o" * 5904)
    assert bool(watch.said(promised + 1)) is not busy
    (watch.left / "old").write_bytes(b"x" * 100 + b"o" * 4000 + b"?" + b"o" * 5899)
    assert watch.said(promised + 1).startswith("old has other bytes from 4096 to 8192")


def test_programs_and_what_they_start_are_watched(watch: Watch) -> None:
    script = f"cd {watch.top}; echo hello > new; (mkdir deep; mv new deep/new); sync deep/new deep ."
    watch(["sh", "-c", script])
    assert (watch.left / "deep/new").read_bytes() == b"hello\n"
    assert watch.said() == ""
    assert watch.found.promises == 4
    (watch.left / "deep/new").write_bytes(b"hell")
    # On a busy machine the write may not have been seen to end before the sync.
    assert watch.said().replace("at least ", "").startswith("deep/new has 4 bytes, not 6 (promise ")


PAGE = mmap.PAGESIZE


def through(flags: int = os.O_DSYNC) -> int:
    return os.open("old", os.O_WRONLY | flags)


def with_write(fd: int, data: bytes) -> None:
    os.lseek(fd, 5000, os.SEEK_SET)
    assert os.write(fd, data) == len(data)


def with_writev(fd: int, data: bytes) -> None:
    os.lseek(fd, 5000, os.SEEK_SET)
    assert os.writev(fd, [data[:10], b"", data[10:]]) == len(data)
    assert os.lseek(fd, 0, os.SEEK_CUR) == 5000 + len(data)


def with_pwrite(fd: int, data: bytes) -> None:
    assert os.pwrite(fd, data, 5000) == len(data)
    assert os.lseek(fd, 0, os.SEEK_CUR) == 0


def with_pwritev(fd: int, data: bytes) -> None:
    assert os.pwritev(fd, [data[:100], data[100:]], 5000) == len(data)


DURABLE: dict[str, Callable[[], object]] = {
    "write": lambda: with_write(through(), b"x" * 200),
    "writev": lambda: with_writev(through(), b"x" * 200),
    "pwrite": lambda: with_pwrite(through(), b"x" * 200),
    "pwritev": lambda: with_pwritev(through(), b"x" * 200),
    "pwritev2": lambda: os.pwritev(through(), [b"x" * 200], 5000, os.RWF_SYNC),
    "O_SYNC": lambda: with_pwrite(through(os.O_SYNC), b"x" * 200),
    "RWF_DSYNC": lambda: os.pwritev(through(0), [b"x" * 200], 5000, os.RWF_DSYNC),
    "RWF_SYNC": lambda: os.pwritev(through(0), [b"x" * 200], 5000, os.RWF_SYNC),
}


@pytest.mark.parametrize("how", DURABLE)
def test_a_write_that_is_durable_at_its_return_is_promised(watch: Watch, how: str) -> None:
    watch(DURABLE[how])
    assert not watch.found.unjudged
    assert watch.found.promises == 2
    content = b"o" * 5000 + b"x" * 200 + b"o" * 4800
    assert (watch.left / "old").read_bytes() == content
    assert watch.said() == ""
    # Before its return it is there, or not, or half.
    before = len(watch.marks) - 1
    (watch.left / "old").write_bytes(b"o" * 10000)
    assert watch.said().startswith("old has other bytes from 5000 to 5200 than were written (promise ")
    assert watch.said(before) == ""
    # Its neighbours in its block have been on their way with it, those in other blocks have not.
    (watch.left / "old").write_bytes(content[:4096] + b"?" + content[4097:])
    assert watch.said() == ""
    (watch.left / "old").write_bytes(content[:4095] + b"?" + content[4096:])
    assert watch.said().startswith("old has other bytes from 0 to 4096")


def _ranged() -> None:
    with_pwrite(through(0), b"x" * 200)
    # SYNC_FILE_RANGE_WAIT_BEFORE, _WRITE and _WAIT_AFTER
    assert ctypes.CDLL(None).sync_file_range(through(0), ctypes.c_int64(0), ctypes.c_int64(0), 7) == 0


def _changed_since() -> None:
    with_pwrite(through(), b"x" * 200)
    with_pwrite(through(0), b"y" * 200)


def _cut_since() -> None:
    with_pwrite(through(), b"x" * 200)
    os.truncate("old", 5100)
    os.truncate("old", 10000)


NOT_DURABLE: dict[str, Callable[[], object]] = {
    "write": lambda: with_write(through(0), b"x" * 200),
    "sync_file_range": _ranged,
    "changed since": _changed_since,
    "cut since": _cut_since,
}


@pytest.mark.parametrize("how", NOT_DURABLE)
def test_a_write_that_is_not_durable_at_its_return_promises_nothing(watch: Watch, how: str) -> None:
    watch(NOT_DURABLE[how])
    assert watch.said() == ""
    (watch.left / "old").write_bytes(b"o" * 10000)
    assert watch.said() == ""


def test_what_is_appended_through_o_dsync_is_promised_where_it_came_to_lie(watch: Watch) -> None:
    def append() -> None:
        fd = os.open("old", os.O_WRONLY | os.O_APPEND | os.O_DSYNC)
        for _ in range(2):
            assert os.write(fd, b"a" * 3000) == 3000
        assert os.pwrite(fd, b"b" * 10, 0) == 10  # appended too, BUGS of pwrite(2)
        os.pwritev(through(0), [b"c" * 10], 0, os.RWF_DSYNC | RWF_APPEND)

    watch(append)
    content = b"o" * 10000 + b"a" * 6000 + b"b" * 10 + b"c" * 10
    assert (watch.left / "old").read_bytes() == content
    assert watch.said() == ""
    (watch.left / "old").write_bytes(content[:-1])
    assert watch.said().startswith("old has 16019 bytes, not at least 16020 (promise ")
    (watch.left / "old").write_bytes(content[:-5] + b"?" + content[-4:])
    assert watch.said().startswith("old has other bytes from 16010 to 16020 than were written")


def test_a_sync_of_the_file_takes_over_what_was_durable(watch: Watch) -> None:
    def both() -> None:
        with_pwrite(through(), b"x" * 200)
        with_pwrite(through(0), b"y" * 10)
        sync("old")

    watch(both)
    assert watch.said() == ""
    (watch.left / "old").write_bytes(b"o" * 5000 + b"x" * 200 + b"o" * 4800)
    assert watch.said().startswith("old has other bytes from 4096 to 8192 than it had")


def test_o_sync_commits_names_where_fsync_does(watch: Watch) -> None:
    def write() -> None:
        os.write(os.open("new", os.O_WRONLY | os.O_CREAT | os.O_SYNC), b"n" * 100)

    watch(write)
    (watch.left / "new").unlink()
    assert watch.said() == "new is gone"
    watch.marks.clear()
    (watch.top / "new").unlink()
    watch(write, rule="posix")
    (watch.left / "new").unlink()
    assert watch.said() == ""


def test_what_writes_nothing_through_o_sync_promises_nothing(watch: Watch) -> None:
    watch(lambda: os.write(os.open("new", os.O_WRONLY | os.O_CREAT | os.O_SYNC), b""))
    (watch.left / "new").unlink()
    assert watch.said() == ""


def test_direct_writes_are_made_as_the_program_makes_them(watch: Watch) -> None:
    def write() -> None:
        memory = mmap.mmap(-1, 2 * PAGE)
        memory[:] = b"d" * 2 * PAGE
        fd = os.open("old", os.O_WRONLY | os.O_DIRECT | os.O_DSYNC)
        assert os.pwrite(fd, memoryview(memory)[:PAGE], PAGE) == PAGE
        with pytest.raises(OSError, match="Invalid argument"):
            os.pwrite(fd, memoryview(memory)[1 : PAGE + 1], PAGE)

    try:
        os.close(os.open(watch.top / "old", os.O_WRONLY | os.O_DIRECT))
    except OSError:
        pytest.skip("this file system has no direct I/O")
    watch(write)
    assert (watch.left / "old").read_bytes()[PAGE : 2 * PAGE] == b"d" * PAGE
    assert watch.said() == ""


def test_what_a_durable_write_answers_is_what_the_kernel_answers(watch: Watch) -> None:
    def ask() -> None:
        fd = through()
        libc = ctypes.CDLL(None, use_errno=True)
        assert os.write(fd, b"") == 0
        for call, code in (
            (lambda: libc.pwrite(fd, b"x", ctypes.c_size_t(1), ctypes.c_int64(-1)), errno.EINVAL),
            (lambda: libc.write(fd, ctypes.c_void_p(1), ctypes.c_size_t(1)), errno.EFAULT),
            (lambda: libc.write(os.open("old", os.O_RDONLY | os.O_DSYNC), b"x", ctypes.c_size_t(1)), errno.EBADF),
        ):
            ctypes.set_errno(0)
            assert (call(), ctypes.get_errno()) == (-1, code)
        with pytest.raises(OSError, match="not supported"):
            os.pwritev(fd, [b"x"], 0, 1 << 20)

    watch(ask)
    assert watch.said() == ""


def test_a_signal_does_not_make_a_durable_write_twice(watch: Watch) -> None:
    def write() -> None:
        signal.signal(signal.SIGALRM, lambda *_: None)
        signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
        fd = os.open("old", os.O_WRONLY | os.O_APPEND | os.O_DSYNC)
        for _ in range(100):
            assert os.write(fd, b"a" * 100) == 100
        signal.setitimer(signal.ITIMER_REAL, 0)

    watch(write)
    assert (watch.left / "old").stat().st_size == 20000
    assert watch.said() == ""


def test_a_file_without_a_name_that_is_given_one_is_promised_by_its_folder(watch: Watch) -> None:
    def make() -> None:
        fd = os.open(".", os.O_TMPFILE | os.O_WRONLY, 0o644)
        os.write(fd, b"t" * 5000)
        os.fsync(fd)
        # AT_FDCWD, AT_SYMLINK_FOLLOW
        assert ctypes.CDLL(None).linkat(-100, b"/proc/self/fd/%d" % fd, -100, b"new", 0x400) == 0
        sync(".")

    watch(make, rule="posix")
    assert watch.said() == ""
    (watch.left / "new").write_bytes(b"t" * 4999)
    assert watch.said().startswith("new has 4999 bytes, not 5000 (promise ")
    (watch.left / "new").unlink()
    assert watch.said() == "new is gone"


def test_paths_of_a_process_s_own_descriptors_are_the_program_s(watch: Watch) -> None:
    def cut() -> None:
        fd = os.open("old", os.O_RDWR)
        os.truncate(f"/proc/self/fd/{fd}", 5000)

    watch(cut)
    (watch.left / "old").write_bytes(b"o" * 6000)
    assert watch.said() == ""


@pytest.mark.parametrize("name", ["old", "o\u2028l\x85d \udcff", "o\nl\rd", r"o\012d"])
def test_a_mapping_that_becomes_writable_is_not_judged_and_told(watch: Watch, name: str) -> None:
    (watch.top / "old").rename(watch.top / name)

    def write() -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        libc.mmap.restype = ctypes.c_void_p
        at = libc.mmap(None, 4096, mmap.PROT_READ, mmap.MAP_SHARED, os.open(name, os.O_RDWR), ctypes.c_int64(0))
        assert libc.mprotect(ctypes.c_void_p(at), 4096, mmap.PROT_READ | mmap.PROT_WRITE) == 0
        ctypes.memset(at, ord("x"), 100)
        os.sync()
        ctypes.memset(at, ord("y"), 100)

    watch(write)
    assert watch.found.unjudged == [f"the contents of {name}, which is mapped writable and shared"]
    assert watch.said() == ""


def _refused() -> None:
    ctypes.CDLL(None).syscall(425, 1, 0)


def _limited() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))
    with_pwrite(through(), b"x" * 200)


UNJUDGED: dict[str, tuple[Callable[[], object], str]] = {
    "io_uring": (
        _refused,
        "nothing of io_uring_setup(2), which was refused: the program ran as on a kernel without it",
    ),
    "limit": (_limited, "what pwrite64(2) has written to old through O_SYNC or O_DSYNC, under RLIMIT_FSIZE"),
    "fallocate": (
        lambda: os.posix_fallocate(through(), 0, 20000),
        "what fallocate(2) has changed of old through O_SYNC or O_DSYNC",
    ),
    "copy_file_range": (
        lambda: os.copy_file_range(os.open("folder/inner", os.O_RDONLY), through(), 50),
        "what copy_file_range(2) has changed of old through O_SYNC or O_DSYNC",
    ),
    "sendfile": (
        lambda: os.sendfile(through(), os.open("folder/inner", os.O_RDONLY), 0, 50),
        "what sendfile(2) has changed of old through O_SYNC or O_DSYNC",
    ),
    "ioctl": (
        # One that nobody knows.
        lambda: ctypes.CDLL(None).ioctl(through(0), 0x5829, 0),
        "what ioctl(2) 0x5829 of old changes or promises",
    ),
}


@pytest.mark.parametrize("what", UNJUDGED)
def test_what_promises_by_means_that_are_not_known_is_told(watch: Watch, what: str) -> None:
    program, said = UNJUDGED[what]
    watch(program)
    assert watch.found.unjudged == [said]
    assert watch.said() == ""


def _cut_in_root(path: bytes, folder: Path) -> None:
    """openat2(2) with O_TRUNC, to which a folder is the root."""
    how = struct.pack("<3Q", os.O_WRONLY | os.O_TRUNC, 0, 0x10)
    descriptor = ctypes.CDLL(None).syscall(437, os.open(folder, os.O_PATH), path, how, len(how))
    assert descriptor >= 0


def test_a_folder_that_is_the_root_is_heeded(watch: Watch) -> None:
    watch(lambda: _cut_in_root(b"/old", Path.cwd()))
    assert not watch.found.unjudged
    assert watch.said() == ""  # cut, or as it was


def test_links_below_such_a_folder_are_not_judged_and_told(watch: Watch) -> None:
    (watch.top / "link").symlink_to("/old")
    watch(lambda: _cut_in_root(b"link", Path.cwd()))
    assert watch.found.unjudged == ["which files openat2(2) has made or cut by RESOLVE_IN_ROOT, links and .."]


def test_flags_that_make_every_call_durable_are_told(watch: Watch) -> None:
    chattr = shutil.which("chattr")
    if chattr is None or subprocess.run([chattr, "+S", watch.top / "old"], check=False, capture_output=True).returncode:
        pytest.skip("no chattr +S here")
    watch(nothing)
    assert watch.found.unjudged == ["what the flag S or D of old promises (chattr(1))"]


@pytest.mark.parametrize("below", ["", "a folder\rof a\u2028sync mount\\"])
def test_options_that_make_every_call_durable_are_told(tmp_path: Path, below: str) -> None:
    place = tmp_path / "a\u2028mount with\r\tblanks"
    place.mkdir()
    try:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "sync", "none", place], check=True, capture_output=True)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"nothing is mounted here: {error.stderr!r}")
    try:
        (place / below).mkdir(exist_ok=True)
        found = crash.watched(nothing, place / below, [].append)
    finally:
        subprocess.run(["umount", place], check=True)
    assert found.unjudged == ["what the mount option sync promises"]


def test_a_subvolume_is_of_the_same_file_system(tmp_path: Path) -> None:
    """It has a device number of its own."""
    for tool in ("mkfs.btrfs", "btrfs", "mount"):
        if shutil.which(tool) is None:
            pytest.skip(f"no {tool} here")
    with (tmp_path / "image").open("wb") as image:
        image.truncate(130 << 20)
    subprocess.run(["mkfs.btrfs", "-q", image.name], check=True, capture_output=True)
    place = tmp_path / "mount"
    place.mkdir()
    try:
        subprocess.run(["mount", "-o", "loop", image.name, place], check=True, capture_output=True)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"nothing is mounted here: {error.stderr!r}")
    volume = place / "volume"

    def program() -> None:
        put(str(volume / "old"), b"x", sync=False, offset=100)
        put(str(volume / "new"), b"n" * 200)

    marks: list[str] = []
    try:
        subprocess.run(["btrfs", "-q", "subvolume", "create", volume], check=True, capture_output=True)
        (volume / "old").write_bytes(b"o" * 200)
        check = crash.as_watched(crash.watched(program, place, marks.append))
        check(place, with_marks(*marks))
        (volume / "new").write_bytes(b"")
        with pytest.raises(AssertionError, match="volume/new has 0 bytes, not 200"):
            check(place, with_marks(*marks))
    finally:
        subprocess.run(["umount", place], check=True)


def test_what_cannot_be_watched_is_refused_with_enosys(watch: Watch) -> None:
    def ask() -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        assert libc.syscall(425, 1, 0) == -1
        assert ctypes.get_errno() == 38

    watch(ask)


def test_how_a_program_ended_is_told(tmp_path: Path) -> None:
    for end, status, told in (("exit 3", 3, ["with status 3"]), ("kill -9 $$", -9, ["by signal 9"]), ("exit 0", 0, [])):
        found = crash.watched(["sh", "-c", end], tmp_path, [].append)
        assert found.status == status
        assert found.unjudged == [f"what the program has left undone, which ended {how}" for how in told]


def test_a_function_that_does_not_run_has_not_ended_well(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    async def program() -> None:
        put("new", b"n" * 5000)

    assert crash.watched(program, tmp_path, [].append).status == 1
    assert "the program's function returned a coroutine and has not run" in capfd.readouterr().err


def test_bad_input_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"rule 'xfs' \(expected posix or ext4\)"):
        crash.watched(["true"], tmp_path, [].append, rule="xfs")
    with pytest.raises(InputError, match="is not a folder"):
        crash.watched(["true"], tmp_path / "none", [].append)
    with pytest.raises(InputError, match="an empty command"):
        crash.watched([], tmp_path, [].append)
    with pytest.raises(FileNotFoundError, match="no-such-program"):
        crash.watched(["no-such-program"], tmp_path, [].append)


def test_a_file_system_without_handles_is_refused() -> None:
    with pytest.raises(
        UnsupportedError, match=r"watching a program: files at /proc have no handles: Operation not supp"
    ):
        crash.watched(["true"], "/proc", [].append)


def test_a_mark_that_fails_ends_the_program(tmp_path: Path) -> None:
    def full(mark: str) -> None:
        if mark.endswith(" 2"):
            raise OverflowError("the journal is full")

    script = f"echo x > {tmp_path}/a; echo x > {tmp_path}/b; echo x > {tmp_path}/c"
    with pytest.raises(OverflowError):
        crash.watched(["sh", "-c", script], tmp_path, full)
    assert not (tmp_path / "c").exists()
