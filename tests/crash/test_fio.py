# SPDX-License-Identifier: MIT
"""fio's own verify state as a check: fio runs beside a recording, and reads again what its state file lists."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from crash.logs import SECTOR, log_writes
from sampleblk_lab import InputError, ToolError, crash

JOB = """\
[global]
bs=4k
size=128k
verify=crc32c
do_verify=0
end_fsync=1
[random]
rw=randwrite
filename=a
[straight]
rw=write
filename=b
"""

RECORD = f"""
import subprocess, sys
from pathlib import Path
import sampleblk_lab as lab
folder = Path(sys.argv[1])
(folder / "states").mkdir()
(folder / "job.fio").write_text({JOB!r})
with lab.Device("24M", cache=True) as device:
    filesystem = device.mkfs("ext4")
    with lab.crash.recording(device, folder), filesystem.mount() as mount:
        options = [f"--directory={{mount}}", f"--aux-path={{folder}}/states", "--verify_state_save=1"]
        subprocess.run(["fio", *options, folder / "job.fio"], check=True, stdout=subprocess.DEVNULL)
        device.mark("fio has synced")
"""

needs_fio = pytest.mark.skipif(shutil.which("fio") is None, reason="fio is not installed")


@needs_fio
def test_fio_finds_what_it_wrote_and_what_a_liar_lost(recorded: Path) -> None:
    check = crash.recovers(
        "ext4", crash.fio(str(recorded / "job.fio"), str(recorded / "states"), done="fio has synced")
    )
    log = crash.Log(recorded / "log", base=recorded / "base.img")
    after = [state for state in log.states(crash.Prefix()) if "fio has synced" in state.marks]
    assert after  # so that something is asked
    found = log.explore(check, model=crash.Prefix(), workers=2, progress=False)
    assert found.complete
    assert found.ok, found.text()

    liar = crash.Log(recorded / "log", base=recorded / "base.img", flush=False, fua=False)
    found = liar.explore(check, model=crash.Sample(seed=1, block_bytes=4096), states=60, workers=2, progress=False)
    [failure] = found.failures
    assert isinstance(failure.error, Exception)
    assert re.search(r"fio|e2fsck", str(failure.error))

    # Only data is lost: the file system has nothing to complain of, fio has.
    data = next(
        int(sequence)
        for sequence in liar.sequences
        if any(what.startswith("data of inode") for _, _, what in liar.names(int(sequence)))
    )
    with pytest.raises(ToolError, match="bad magic header"):
        liar.check(liar.state(after[0].submitted, lost=[data]), check)


def a_state(folder: Path) -> crash.State:
    (folder / "log").write_bytes(log_writes((0, 0, bytes(SECTOR))))
    return crash.Log(folder / "log", base="zeros").state(1)


@needs_fio
def test_what_would_ask_nothing_is_refused(tmp_path: Path) -> None:
    job, states = tmp_path / "job.fio", tmp_path / "states"
    states.mkdir()
    job.write_text(JOB)
    with pytest.raises(InputError, match=r"no verify state of fio"):
        crash.fio(str(job), str(states))
    (states / "local-random-0-verify.state").write_bytes(b"not one")
    job.write_text("[a]\nrw=write\nsize=4k\n# verify=crc32c\n")
    with pytest.raises(InputError, match="a job that verifies nothing"):
        crash.fio(str(job), str(states))
    # A malformed state file is fio's error, not silence.
    job.write_text("[random]\nrw=write\nsize=4k\nfilename=a\nverify=crc32c\n")
    with pytest.raises(ToolError):
        crash.fio(str(job), str(states))(tmp_path, a_state(tmp_path))
    with pytest.raises(InputError, match="mark 'never'"):
        crash.fio(str(job), str(states), done="never")(tmp_path, a_state(tmp_path))
