# SPDX-License-Identifier: MIT
"""What a killed experiment leaves on a machine that outlives it, and a file system that is still in use at the end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import sampleblk_lab as lab
from sampleblk_lab import leftovers
from sampleblk_lab._native import core

# Makes one of everything, says so, and waits to be killed.
_EXPERIMENT = textwrap.dedent("""
    import sys, time
    import sampleblk_lab as lab
    device = lab.Device("16M")
    mount = device.mkfs("ext4").mount()
    held = open(mount / "file", "w")
    session = lab.Session()
    print(device.index, mount, session.path, flush=True)
    time.sleep(1000)
""")


def _start() -> tuple[subprocess.Popen[str], list[str]]:
    child = subprocess.Popen([sys.executable, "-c", _EXPERIMENT], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    with child.stdout as said:
        return child, said.readline().split()


def _mounted(path: str) -> bool:
    return any(mount.path == path for mount in leftovers.mounts())


@pytest.mark.usefixtures("no_driver", "outlives_us")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_the_next_start_takes_all_of_it_away(number: signal.Signals) -> None:
    assert not leftovers.CONTROL_PATH.exists()
    child, (index, mount, instance) = _start()
    # As long as it lives, nothing of it is touched.
    assert leftovers.clean() == []
    assert leftovers.pending() == []
    child.send_signal(number)
    assert child.wait(30) == -number
    assert leftovers.pending() == ["module sampleblk", f"device {index}", f"mount {mount}"]
    assert _mounted(mount)
    assert Path(f"/dev/sampleblk{index}").exists()
    assert Path(instance).exists()
    with lab.Device("1M", index=int(index)) as device:  # the start of whatever comes next, which wants the same number
        assert device.index == int(index)
        assert not _mounted(mount)
        assert not Path(mount).exists()
        assert not Path(instance).exists()
    assert leftovers.pending() == []
    assert leftovers.clean() == []
    # The dead process had loaded the module; the one after it loaded it again, and took it away.
    assert not leftovers.CONTROL_PATH.exists()


def test_what_a_dead_process_let_hang_keeps_nobody_waiting() -> None:
    child, (index, mount, _) = _start()
    # What it has written is still to be written.
    with lab.Device(adopt=int(index)) as device:
        device.set_faults([lab.Fault(action="hang", ops=("read", "write", "flush"))])
        device.leave()
    child.kill()
    child.wait(30)
    cleaning = [sys.executable, "-c", "from sampleblk_lab import leftovers; print(leftovers.clean())"]
    with subprocess.Popen(cleaning, stdout=subprocess.PIPE, text=True) as process:
        try:
            said, _ = process.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            leftovers.end_waits(core.DeviceControl(), int(index), leftovers.device_identity(int(index)))
            raise
    assert f"'mount {mount}'" in said
    assert f"'device {index}'" in said


def test_what_a_forked_process_inherits_is_not_its_own() -> None:
    with lab.Device("1M") as device:
        pid = os.fork()
        if pid == 0:
            leftovers.note("mount", "/nowhere", device="none", made=False)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert leftovers.pending() == ["mount /nowhere"]
        assert leftovers.clean() == []  # nothing is mounted there
        assert Path(device.path).exists()
        assert leftovers.pending() == []


def test_notes_that_a_process_is_about_to_lock_are_left_alone() -> None:
    leftovers.directory().mkdir(parents=True, exist_ok=True)
    fresh = leftovers.directory() / f".{os.getpid()}-999.made"
    fresh.write_text("")
    try:
        assert leftovers.pending() == []
        assert leftovers.clean() == []
        assert fresh.exists()
    finally:
        fresh.unlink(missing_ok=True)


def test_a_device_of_the_same_number_that_somebody_else_made_stays() -> None:
    child, (index, mount, _) = _start()
    child.kill()
    child.wait(30)
    subprocess.run(["umount", "--lazy", mount], check=True)
    control = core.DeviceControl(str(leftovers.CONTROL_PATH))
    try:
        control.remove(int(index), True)
        control.add(index=int(index), capacity_bytes=1 << 20)
        done = leftovers.clean()
        assert f"device {index}" not in done
        assert control.list() == [int(index)]
        control.remove(int(index), True)
    finally:
        control.close()
    leftovers.unload()


def test_a_file_left_open_is_told_with_its_holder_and_all_is_gone() -> None:
    device = lab.Device("16M")
    mount = device.mkfs("ext4").mount()
    left = open(mount / "forgotten", "w")  # noqa: SIM115, PTH123
    other = subprocess.Popen(["sleep", "1000"], cwd=str(mount))
    with pytest.raises(lab.BusyError) as caught:
        device.close()
    said = str(caught.value)
    assert f"{mount} was in use, and is detached now" in said
    assert f"pid {os.getpid()} (" in said
    assert ", this process): " in said
    assert f"{mount}/forgotten" in said
    assert f"pid {other.pid} (sleep): {mount} (cwd)" in said
    assert caught.value.status != 0
    assert not _mounted(str(mount))
    assert not Path(device.path).exists()
    other.kill()
    other.wait()
    left.close()


# Linux 5.10's, since the device goes while the file is open: what is written as that is closed has nowhere to go.
@pytest.mark.kernel_warning("at fs/btrfs/")
def test_what_holds_a_subvolume_is_told() -> None:
    device = lab.Device("256M")
    mount = device.mkfs("btrfs").mount()
    subprocess.run(["btrfs", "subvolume", "create", mount / "part"], check=True, stdout=subprocess.DEVNULL)
    with open(mount / "part/forgotten", "w"), pytest.raises(lab.BusyError) as caught:  # noqa: PTH123
        device.close()
    assert f"{mount}/part/forgotten" in str(caught.value)


def test_what_somebody_else_has_unmounted_is_closed() -> None:
    with lab.Device("16M") as device:
        mount = device.mkfs("ext4").mount()
        subprocess.run(["umount", mount], check=True)
    assert not Path(mount).exists()
    assert not Path(device.path).exists()


def test_a_mount_by_a_relative_path_is_closed_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("here").mkdir()
    with lab.Device("16M") as device:
        device.mkfs("ext4").mount("here")
        monkeypatch.chdir("/")
    assert not _mounted(str(tmp_path / "here"))
    assert leftovers.pending() == []


def test_a_mount_is_known_whatever_its_names_are(tmp_path: Path) -> None:
    path = tmp_path / "a #\t\\040\x85ä"
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "none # \\040", path], check=True)
    try:
        assert [mount.device for mount in leftovers.mounts() if mount.path == str(path)] == ["none # \\040"]
        assert leftovers.mount_of(path / "below").path == str(path)
    finally:
        subprocess.run(["umount", path], check=True)
