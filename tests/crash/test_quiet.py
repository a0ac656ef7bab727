# SPDX-License-Identifier: MIT
"""No false alarm: all sequences of one operation, on file systems as they are by default, with Linux 6.12's recovery.

SAMPLEBLK_QUIET_STATES in the environment is how many states of each are checked, SAMPLEBLK_QUIET_CPUS how many
processors the VM has: emulated, two VMs of one check more beside each other than one of two.
More than there are cannot be checked: a sample ends where a hundred thousand draws bring nothing new.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from support import RunsInVM

pytestmark = pytest.mark.full

KERNEL = "6.12"
STATES = int(os.environ.get("SAMPLEBLK_QUIET_STATES", "60"))
CPUS = os.environ.get("SAMPLEBLK_QUIET_CPUS", "2")
DEADLINE_S = 300 + 2 * STATES

PROGRAM = """
import json, os, sys
from pathlib import Path
import sampleblk_lab as lab
from sampleblk_lab.crash import ace

folder, fs, size, states = Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])
options = ["--unsupported"] if fs == "xfs" else []  # as small as it is
rule = "ext4" if fs == "ext4" else "posix"
device = lab.Device(size, cache=True)
filesystem = device.mkfs(fs, options=options)
chosen = ace.workloads()
with filesystem.mount() as mnt:
    ace.prepare(mnt, chosen)
with lab.crash.recording(device, folder) as path, filesystem.mount() as mnt:
    promises = ace.run(mnt, device.mark, chosen, rule=rule)
device.close()
log = lab.crash.Log(path, base=folder / "base.img")
assert [text for _, _, text in log.native.marks] == list(promises) == [one.name for one in chosen]
found = log.explore(
    lab.crash.mounted(fs, ace.kept(promises)),
    model=lab.crash.Sample(seed=1, block_bytes=4096),
    states=states,
    workers=os.cpu_count(),
    progress=False,
)
print(len(log), found.text(), file=sys.stderr)
print(json.dumps({"release": os.uname().release, **found.json()}))
"""


@pytest.mark.parametrize(("fs", "size"), [("ext4", "32M"), ("xfs", "64M"), ("btrfs", "128M"), ("f2fs", "64M")])
def test_what_was_promised_is_kept(fs: str, size: str, tmp_path: Path, sampleblk_python: RunsInVM) -> None:
    done = sampleblk_python(
        *("--kernel", KERNEL, "--cpus", CPUS, "--run-dir", str(tmp_path)),
        *("-c", PROGRAM, str(tmp_path), fs, size, str(STATES)),
        timeout=DEADLINE_S,
    )
    print(done.stderr.decode(errors="replace"))
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout.decode().splitlines()[-1])
    assert found["release"].startswith(f"{KERNEL}.")
    assert found["failures"] == []
    assert found["checked"] == STATES or found["complete"]
