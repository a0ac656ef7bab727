# SPDX-License-Identifier: MIT
"""What is known to go wrong is found, and reduced to at most three writes; what is right passes the same exploration.

Each program is recorded in the VM; its states are explored here, by ext4's own tools.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from sampleblk_lab import ToolError, crash
from sampleblk_lab.crash import ace

# Two recordings with many file systems and explorations by the hundred.
pytestmark = pytest.mark.full

RECORD = """
import os, sqlite3, sys
from pathlib import Path
import sampleblk_lab as lab

def sync(path):
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)

def write(path, data, mode="wb", durable=True):
    with open(path, mode) as file:
        file.write(data)
        if durable:
            file.flush()
            os.fsync(file.fileno())

def nothing(mnt):
    pass

def old_config(mnt):
    write(mnt / "config", b"old" * 1000)
    sync(mnt)

def synced_file(mnt, mark):
    write(mnt / "a", b"a" * 5000)
    mark("a is there")
    write(mnt / "b", b"b" * 5000)
    mark("b is there")

def rename(durable):
    def run(mnt, mark):
        write(mnt / "config.new", b"new" * 1000, durable=durable)
        os.rename(mnt / "config.new", mnt / "config")
        sync(mnt)
        mark("renamed")
        os.sync()
    return run

def sqlite(synchronous):
    def run(mnt, mark):
        base = sqlite3.connect(mnt / "db", isolation_level=None)
        base.execute(f"pragma synchronous={synchronous}")
        base.execute("create table t (k integer primary key, v text)")
        sync(mnt)
        for number in range(2):
            base.execute("insert into t values (?, ?)", (number, "row" * 100))
            mark(f"row {number}")
        base.close()
    return run

def append_log(folder_too):
    def run(mnt, mark):
        (mnt / "segments").mkdir()
        sync(mnt)
        # A segment is written aside, synced, and published by its name.
        write(mnt / "segments/tmp", b"key=1;")
        os.rename(mnt / "segments/tmp", mnt / "segments/1")
        if folder_too:
            sync(mnt / "segments")
        mark("segment 1")
        os.sync()
    return run

PROGRAMS = {
    "barrier": ("", nothing, synced_file),
    "nobarrier": ("nobarrier", nothing, synced_file),
    "rename": ("noauto_da_alloc", old_config, rename(False)),
    "rename-synced": ("noauto_da_alloc", old_config, rename(True)),
    "sqlite-off": ("", nothing, sqlite("off")),
    "sqlite-full": ("", nothing, sqlite("full")),
    "sqlite-extra": ("", nothing, sqlite("extra")),
    "append": ("", nothing, append_log(False)),
    "append-synced": ("", nothing, append_log(True)),
}
for name, (options, before, run) in PROGRAMS.items():
    device = lab.Device("16M", cache=True)
    filesystem = device.mkfs("ext4")
    with filesystem.mount() as mnt:
        before(mnt.path)
    with lab.crash.recording(device, Path(sys.argv[1], name)):
        with filesystem.mount(options=options) as mnt:
            run(mnt.path, device.mark)
    device.close()
"""

FILES = crash.promised({"a is there": {"a": b"a" * 5000}, "b is there": {"b": b"b" * 5000}})
CONFIG = crash.replaced("config", b"old" * 1000, b"new" * 1000, done="renamed")
ROWS = crash.sqlite("db", "select k, v from t", {f"row {number}": [(number, "row" * 100)] for number in range(2)})
SEGMENT = crash.appended("segments/1", b"key=1;", {"segment 1": 6})


def _explore(
    recorded: Path,
    name: str,
    check: crash.Check,
    model: crash.Model,
    states: int,
    *,
    flush: bool = True,
    fua: bool = True,
) -> crash.Exploration:
    log = crash.Log(recorded / name / "log", base=recorded / name / "base.img", flush=flush, fua=fua)
    return log.explore(crash.recovers("ext4", check), model=model, states=states, workers=2, progress=False)


# The lie, the same without it, what is promised, and how the lie is found.
CASES = {
    "nobarrier": ("nobarrier", "barrier", FILES, crash.Sample(seed=1, block_bytes=4096)),
    "rename": ("rename", "rename-synced", CONFIG, crash.Prefix()),
    "sqlite-off": ("sqlite-off", "sqlite-extra", ROWS, crash.Prefix()),
    # https://sqlite.org/pragma.html#pragma_synchronous: FULL does not sync the folder when the journal is removed.
    "sqlite-full": ("sqlite-full", "sqlite-extra", ROWS, crash.Prefix()),
    "append": ("append", "append-synced", SEGMENT, crash.Prefix()),
}


@pytest.mark.parametrize("case", CASES)
def test_what_promises_too_much_is_found(recorded: Path, case: str) -> None:
    wrong, _, check, model = CASES[case]
    found = _explore(recorded, wrong, check, model, 150)
    [failure] = found.failures
    # Without barriers the file system itself breaks too: its commit may be there before what it commits.
    expected = (AssertionError, ToolError, OSError) if case == "nobarrier" else AssertionError
    assert isinstance(failure.error, expected), found.text()
    assert len(failure.reduced.lost) + len(failure.reduced.torn) <= 3, found.text()


@pytest.mark.parametrize("case", [case for case in CASES if case != "sqlite-full"])
def test_what_keeps_its_promises_passes(recorded: Path, case: str) -> None:
    _, right, check, model = CASES[case]
    found = _explore(recorded, right, check, model, 40)
    assert found.ok, found.text()
    assert found.checked >= 10


@pytest.mark.parametrize(("flush", "fua"), [(False, False), (False, True), (True, False)])
def test_a_device_that_ignores_flushes_or_fua_is_found(recorded: Path, flush: bool, fua: bool) -> None:
    """The same recording and the same states as of the one that keeps its promises, but for the disk's."""
    model = crash.Sample(seed=1, block_bytes=4096)
    found = _explore(recorded, "barrier", FILES, model, 300, flush=flush, fua=fua)
    [failure] = found.failures
    assert 1 <= len(failure.reduced.lost) + len(failure.reduced.torn) <= 3, found.text()
    assert failure.missing
    assert found.elapsed_s < 60


# --- quiet where all is well: sequences of one operation, each with its oracle ---------------------------------------

ACE = """
import json, sys
from pathlib import Path
import sampleblk_lab as lab
from sampleblk_lab.crash import ace

folder = Path(sys.argv[1], "ace")
device = lab.Device("32M", cache=True)
filesystem = device.mkfs("ext4")
chosen = ace.workloads()
with filesystem.mount() as mnt:
    ace.prepare(mnt, chosen)
with lab.crash.recording(device, folder):
    with filesystem.mount() as mnt:
        promises = ace.run(mnt, device.mark, chosen)
device.close()
Path(folder, "promises.json").write_text(json.dumps(promises))
"""


@pytest.fixture(scope="module")
def sequences(tmp_path_factory: pytest.TempPathFactory, run_in_vm: Callable[..., str]) -> Path:
    """A folder with a recording of all sequences of one operation, and what was promised."""
    folder = tmp_path_factory.mktemp("sequences")
    run_in_vm(folder, ACE, str(folder), timeout=500)
    return folder / "ace"


def test_sequences_of_one_operation_are_kept_by_ext4(sequences: Path) -> None:
    log = crash.Log(sequences / "log", base=sequences / "base.img")
    promises = json.loads((sequences / "promises.json").read_text())
    assert [text for _, _, text in log.native.marks] == list(promises) == [one.name for one in ace.workloads()]
    assert all(promises[one.name] for one in ace.workloads() if "fdatasync" not in one.name)
    check = crash.recovers("ext4", ace.kept(promises, xattrs=False))
    for model, states in ((crash.Sample(seed=1, block_bytes=4096), 60), (crash.Prefix(), 20)):
        found = log.explore(check, model=model, states=states, workers=2, progress=False)
        assert found.ok, found.text()
    # With all that was promised, the last state has to pass too; a single file that is not as promised fails.
    last = log.state(len(log))
    log.check(last, check)
    for index, one in enumerate(ace.workloads()):
        for fact in promises[one.name]:
            wrong = {**fact, "size": 1} if "size" in fact else {**fact, "names": ["other"]} if "names" in fact else None
            if wrong is not None and index % 9 == 0:
                with pytest.raises(AssertionError, match="in w"):
                    log.check(last, crash.recovers("ext4", ace.kept({one.name: [wrong]}, xattrs=False)))


def test_sequences_are_not_kept_by_a_disk_that_ignores_flushes(sequences: Path) -> None:
    log = crash.Log(sequences / "log", base=sequences / "base.img", flush=False, fua=False)
    promises = json.loads((sequences / "promises.json").read_text())
    check = crash.recovers("ext4", ace.kept(promises, xattrs=False))
    found = log.explore(check, model=crash.Sample(seed=1, block_bytes=4096), states=60, workers=2, progress=False)
    assert not found.ok


MOUNTED = """
import json, sys
from pathlib import Path
from sampleblk_lab import crash

folder = Path(sys.argv[1])
log = crash.Log(folder / "log", base=folder / "base.img")
check = crash.mounted("ext4", crash.ace.kept(json.loads((folder / "promises.json").read_text())))
model = crash.Sample(seed=2, block_bytes=4096)
found = log.explore(check, model=model, states=int(sys.argv[2]), workers=2, progress=False)
print(found.text())
raise SystemExit(not found.ok)
"""


def test_sequences_are_kept_by_the_kernel_s_own_recovery(sequences: Path, run_in_vm: Callable[..., str]) -> None:
    """With extended attributes, which only a mount shows."""
    run_in_vm(sequences, MOUNTED, str(sequences), "60", timeout=900)
