# SPDX-License-Identifier: MIT
"""The oracle that writes itself on real crash states: silent on ext4 as it should be, and loud where something lies.

Programs without an oracle of their own run in the VM; their states are explored here, by ext4's own tools.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sampleblk_lab import crash

RECORD = """
import ctypes, json, mmap, os, random, sys
from pathlib import Path
import sampleblk_lab as lab

def put(path, data, flags, sync):
    fd = os.open(path, os.O_WRONLY | flags, 0o644)
    os.write(fd, data)
    if sync:
        sync(fd)
    os.close(fd)

def sync(path):
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)

def anything(seed):
    # Names, contents and syncs by chance; what cannot be done is not.
    def run():
        chance = random.Random(seed)
        names = ["a", "b", "d/a", "d/b", "e/a"]
        for step in range(30):
            data = bytes([65 + step % 26]) * chance.choice([1, 700, 4096, 9000])
            one, two = chance.sample(names, 2)
            what = chance.choice(["write", "write", "append", "over", "cut", "rename", "rename", "link", "unlink",
                                  "move", "mkdir", "sync", "sync", "folder", "all"])
            try:
                if what == "write":
                    put(one, data, os.O_CREAT | os.O_TRUNC, chance.choice([None, os.fsync, os.fdatasync]))
                elif what == "append":
                    put(one, data, os.O_APPEND, chance.choice([None, os.fsync, os.fdatasync]))
                elif what == "over":
                    fd = os.open(one, os.O_WRONLY)
                    os.pwrite(fd, data, chance.randrange(0, 9000))
                    os.close(fd)
                elif what == "cut":
                    os.truncate(one, chance.randrange(0, 9000))
                elif what == "rename":
                    os.rename(one, two)
                elif what == "link":
                    os.link(one, two)
                elif what == "unlink":
                    os.unlink(one)
                elif what == "move":
                    os.rename(*chance.sample(["d", "e"], 2))
                elif what == "mkdir":
                    os.mkdir(chance.choice(["d", "e"]))
                elif what == "sync":
                    sync(one)
                elif what == "folder":
                    sync(chance.choice([".", "d", "e"]))
                else:
                    os.sync()
            except OSError:
                pass
    return run

def rename():
    put("config.new", b"new" * 1000, os.O_CREAT, None)
    os.rename("config.new", "config")
    sync(".")

# A log of records of one block each, in a file that has its blocks: which of them were promised?
def records(how):
    def run():
        flags = {"O_DSYNC": os.O_DSYNC, "O_SYNC": os.O_SYNC, "direct": os.O_DSYNC | os.O_DIRECT}.get(how, 0)
        fd = os.open("records", os.O_WRONLY | flags)
        for number in range(3):
            block = mmap.mmap(-1, 4096)
            block[:] = bytes([65 + number]) * 4096
            os.pwritev(fd, [block], number * 4096, {"RWF_DSYNC": os.RWF_DSYNC, "RWF_SYNC": os.RWF_SYNC}.get(how, 0))
            if how == "sync_file_range":
                # SYNC_FILE_RANGE_WAIT_BEFORE, _WRITE and _WAIT_AFTER
                offset, size = ctypes.c_int64(number * 4096), ctypes.c_int64(4096)
                assert ctypes.CDLL(None).sync_file_range(fd, offset, size, 7) == 0
            if how == "syncfs":
                ctypes.CDLL(None).syncfs(fd)
        os.close(fd)
    return run

SHELL = ["sh", "-c", "echo one > one; sync one; cp one two; sync two .; mv two one; sync .; rm one; sync"]

PROGRAMS = {
    **{f"anything-{seed}": ("", anything(seed), {}) for seed in range(4)},
    **{f"posix-{seed}": ("", anything(seed), {"rule": "posix"}) for seed in range(4, 6)},
    "shell": ("", SHELL, {}),
    **{how: ("", records(how), {}) for how in sys.argv[2].split(",")},
    # What replaces a file is promised to be whole, which this mount option takes back.
    "rename": ("noauto_da_alloc", rename, {"auto_da_alloc": True}),
    "rename-whole": ("", rename, {"auto_da_alloc": True}),
}
folder = Path(sys.argv[1])
for name, (options, program, rules) in PROGRAMS.items():
    device = lab.Device("16M", cache=True)
    filesystem = device.mkfs("ext4")
    with filesystem.mount() as mnt:
        for file in ("config", "a"):
            put(mnt.path / file, b"old" * 1000, os.O_CREAT, os.fsync)
        (mnt.path / "d").mkdir()
        put(mnt.path / "records", b"-" * 12288, os.O_CREAT, os.fsync)
    with lab.crash.recording(device, folder / name):
        with filesystem.mount(options=options) as mnt:
            os.chdir(mnt.path)
            found = lab.crash.watched(program, mnt.path, device.mark, **rules)
            os.chdir("/")
            assert found.status == 0, name
    (folder / name / "promises").write_text(json.dumps(vars(found)))
    device.close()
"""


DURABLE = ("O_DSYNC", "O_SYNC", "direct", "RWF_DSYNC", "RWF_SYNC", "syncfs")
NOT_DURABLE = ("sync_file_range", "write")
RECORD_ARGUMENTS = (",".join([*DURABLE, *NOT_DURABLE]),)


def explore(recorded: Path, name: str, model: crash.Model, states: int, *, flush: bool = True) -> crash.Exploration:
    folder = recorded / name
    promises = crash.Watched(**json.loads((folder / "promises").read_text()))
    assert promises.promises == 1 if name in NOT_DURABLE else promises.promises >= 2  # the start, and a sync
    log = crash.Log(folder / "log", base=folder / "base.img", flush=flush, fua=flush)
    check = crash.recovers("ext4", crash.as_watched(promises))
    return log.explore(check, model=model, states=states, workers=2, progress=False)


@pytest.mark.parametrize(
    "name",
    [*(f"anything-{n}" for n in range(4)), "posix-4", "posix-5", "shell", "rename-whole", *DURABLE, *NOT_DURABLE],
)
def test_where_all_is_well_it_is_silent(recorded: Path, name: str) -> None:
    found = explore(recorded, name, crash.Sample(seed=7, block_bytes=4096), 60)
    assert found.checked >= 5
    assert not found.failures, found.failures[0].text()


def test_a_disk_that_ignores_flushes_is_found(recorded: Path) -> None:
    found = explore(recorded, "shell", crash.Sample(seed=7, block_bytes=4096), 300, flush=False)
    [failure] = found.failures  # by e2fsck or by the oracle: what is lost is chance
    assert len(failure.missing) == 1


def test_a_disk_that_kept_nothing_from_some_point_on_is_found(recorded: Path) -> None:
    """It said that all was written: each state is whole, as e2fsck says too, and lacks what was promised later."""
    promises = crash.Watched(**json.loads((recorded / "shell/promises").read_text()))
    check = crash.as_watched(promises)
    log = crash.Log(recorded / "shell/log", base=recorded / "shell/base.img")

    def at_the_end(path: Path, _: crash.State) -> None:
        check(path, log.state(len(log)))

    found = log.explore(crash.recovers("ext4", at_the_end), model=crash.Prefix(), failures=len(log), progress=False)
    errors = [str(failure.error) for failure in found.failures]
    assert 1 < len(errors) < found.checked
    assert all("e2fsck" not in error for error in errors)
    assert any("one" in error for error in errors), errors


def test_a_file_that_replaces_another_one_before_its_data_is_found(recorded: Path) -> None:
    found = explore(recorded, "rename", crash.Prefix(), 400)
    assert any("config has 0 bytes" in str(failure.error) for failure in found.failures), found.failures


def without_each_record(recorded: Path, name: str) -> list[str]:
    """What the oracle says of a disk that has lost one record, of each of them, at the end."""
    folder = recorded / name
    promises = crash.Watched(**json.loads((folder / "promises").read_text()))
    assert not promises.unjudged
    log = crash.Log(folder / "log", base=folder / "base.img", flush=False, fua=False)
    check = crash.recovers("ext4", crash.as_watched(promises))
    # Unmounting syncs, which the recording has as writes too, but not as promises.
    writes = {row["sequence"]: row for row in log.table().rows()}
    data = [number for number in writes if any(what.startswith("data of") for _, _, what in log.names(number))]
    errors = []
    for number in data:
        try:
            log.check(log.state(len(log), lost=[number]), check)
        except AssertionError as error:
            errors.append(str(error))
    return errors


@pytest.mark.parametrize("how", DURABLE)
def test_a_record_that_was_durable_at_its_return_and_is_lost_is_found(recorded: Path, how: str) -> None:
    errors = without_each_record(recorded, how)
    assert len(errors) == 3
    for number, error in enumerate(errors):
        first = number * 4096
        assert error.startswith(f"records has other bytes from {first} to {first + 4096} than ")


@pytest.mark.parametrize("how", NOT_DURABLE)
def test_a_record_that_was_not_promised_may_be_lost(recorded: Path, how: str) -> None:
    assert without_each_record(recorded, how) == []
