# SPDX-License-Identifier: MIT
"""xfs, btrfs and f2fs, whose states only the kernel recovers: quiet where all is well, loud without barriers."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

# A recording of each file system, and states by the hundred, each of which is mounted in the VM.
pytestmark = pytest.mark.full

# mkfs.xfs wants 300 MiB unless it is told that this is a test.
RECORD = """
import json, os, sys
from pathlib import Path
import sampleblk_lab as lab
from sampleblk_lab.crash import ace

def write(path, data):
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    fd = os.open(path.parent, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)

def synced_files(mnt, device):
    write(mnt / "a", b"a" * 5000)
    device.mark("a is there")
    write(mnt / "b", b"b" * 5000)
    device.mark("b is there")

folder = Path(sys.argv[1])
for fs, size, options in (("xfs", "64M", ["--unsupported"]), ("btrfs", "128M", []), ("f2fs", "64M", [])):
    for name in ("ace", "barrier", "nobarrier"):
        if (fs, name) == ("xfs", "nobarrier"):
            continue  # gone since 4.19
        device = lab.Device(size, cache=True)
        filesystem = device.mkfs(fs, options=options)
        chosen = ace.workloads() if name == "ace" else []
        with filesystem.mount() as mnt:
            ace.prepare(mnt, chosen)
        with lab.crash.recording(device, folder / f"{fs}-{name}"):
            with filesystem.mount(options="nobarrier" if name == "nobarrier" else "") as mnt:
                if chosen:
                    promises = ace.run(mnt, device.mark, chosen, rule="posix")
                    (folder / f"{fs}-{name}/promises").write_text(json.dumps(promises))
                else:
                    synced_files(mnt.path, device)
        device.close()
"""

EXPLORE = """
import json, sys
from pathlib import Path
from sampleblk_lab import crash

folder, fs, states, seconds = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
flush = len(sys.argv) == 5
log = crash.Log(folder / "log", base=folder / "base.img", flush=flush, fua=flush)
if (folder / "promises").exists():
    check = crash.ace.kept(json.loads((folder / "promises").read_text()))
else:
    check = crash.promised({"a is there": {"a": b"a" * 5000}, "b is there": {"b": b"b" * 5000}})
model = crash.Sample(seed=1, block_bytes=4096)
found = log.explore(
    crash.mounted(fs, check), model=model, states=states, seconds=seconds, workers=2, progress=False
)
print(found.text(), file=sys.stderr)
print(json.dumps(found.json()))
"""


@pytest.fixture
def explore(recorded: Path, run_in_vm: Callable[..., str]) -> Callable[..., dict[str, Any]]:
    """``explore(name, states, seconds)``: what was found, as JSON."""

    def run(name: str, states: int, seconds: float, *options: str) -> dict[str, Any]:
        fs = name.split("-")[0]
        output = run_in_vm(
            recorded, EXPLORE, str(recorded / name), fs, str(states), str(seconds), *options, timeout=seconds + 400
        )
        found = json.loads(output.splitlines()[-1])
        assert isinstance(found, dict)
        return found

    return run


@pytest.mark.parametrize("fs", ["xfs", "btrfs", "f2fs"])
def test_sequences_of_one_operation_are_kept(explore: Callable[..., dict[str, Any]], fs: str) -> None:
    found = explore(f"{fs}-ace", 40, 300)
    assert found["failures"] == []
    assert found["checked"] >= 15


@pytest.mark.parametrize("fs", ["btrfs", "f2fs"])
def test_what_is_synced_without_barriers_is_lost(explore: Callable[..., dict[str, Any]], fs: str) -> None:
    found = explore(f"{fs}-nobarrier", 200, 60)
    [failure] = found["failures"]
    assert len(failure["lost"]) + len(failure["torn"]) <= 3
    assert failure["missing"]
    for line in failure["missing"]:
        assert re.match(r"write \d+: \d+ sectors at \d+: .*(tree|superblock|node|inode|checkpoint|table|data)", line), (
            line
        )
    # The first failure is what is looked for; reducing it comes on top.
    assert found["elapsed_s"] < 150


@pytest.mark.parametrize("fs", ["xfs", "btrfs", "f2fs"])
def test_the_same_with_barriers_is_kept_unless_the_disk_ignores_them(
    explore: Callable[..., dict[str, Any]], fs: str
) -> None:
    assert explore(f"{fs}-barrier", 25, 120)["failures"] == []
    found = explore(f"{fs}-barrier", 200, 60, "ignored")
    [failure] = found["failures"]
    assert 1 <= len(failure["lost"]) + len(failure["torn"]) <= 3
