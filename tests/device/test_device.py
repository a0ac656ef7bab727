# SPDX-License-Identifier: MIT
"""What the device package does on a machine without the driver: clear words, nothing left behind."""

import dataclasses
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest

import sampleblk_lab as lab
from sampleblk_lab.device import control, filesystem, names, tuning


@pytest.fixture
def no_driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No control device, and a modprobe that finds no module."""
    monkeypatch.setattr(control, "CONTROL_PATH", tmp_path / "sampleblk-control")
    modprobe = tmp_path / "modprobe"
    modprobe.write_text('#!/bin/sh\necho "modprobe: FATAL: Module $1 not found" >&2\nexit 1\n')
    modprobe.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


@pytest.mark.usefixtures("no_driver")
def test_without_the_driver_the_error_says_what_to_do() -> None:
    with pytest.raises(lab.UnsupportedError, match=r"Module sampleblk not found.*sampleblk-python"):
        lab.Device("64M")
    assert control._users == 0
    assert lab.devices() == []


def test_without_modprobe_the_error_names_its_package(no_driver: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (no_driver / "modprobe").unlink()
    monkeypatch.setattr(control, "find_program", lambda _name: None)
    with pytest.raises(lab.UnsupportedError, match="Debian package kmod"):
        lab.Device("64M")


@pytest.mark.usefixtures("no_driver")
def test_a_size_that_is_none_is_refused_before_anything_is_loaded() -> None:
    with pytest.raises(lab.InputError, match="64Q"):
        lab.Device("64Q")


@pytest.fixture
def adopted(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[lab.Device, Mock]]:
    """A device of a driver that only notes what it is asked for."""
    driver = Mock()
    monkeypatch.setattr(control, "acquire", lambda: driver)
    monkeypatch.setattr(control, "release", lambda: None)
    device = lab.Device(adopt=7)
    yield device, driver
    device.leave()


def test_a_device_that_was_closed_does_nothing_to_the_one_that_has_its_number_now(
    adopted: tuple[lab.Device, Mock],
) -> None:
    device, driver = adopted
    files = device.filesystem("ext4")
    device.leave()
    other = lab.Device(adopt=8)
    for call in (
        device.info,
        device.power_cut,
        device.journal,
        device.reset,
        device.mkfs,
        device.zones,
        lambda: device.resize("64M"),
        lambda: device.set_timing("constant", 1),
        lambda: other.state_give(1, [1], device),
        files.make,
        files.mount,
        files.fsck,
    ):
        with pytest.raises(lab.InputError, match="/dev/sampleblk7 was closed"):
            call()
    assert not driver.mock_calls


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda dev: dev.power_cut(torn=True), r"torn=True of a power cut 'all' \(expected mode 'random'"),
        (lambda dev: dev.power_cut(survive_percent=5), r"survive_percent=5 of a power cut 'all'.*'random'"),
        (lambda dev: dev.power_cut("random", survivors={1: 8}), r"survivors=.* of a power cut 'random'.*'explicit'"),
        (lambda dev: dev.power_cut("explicit", survivors=[1, 2]), r"survivors=\[1, 2\] \(expected a mapping of ids"),
        (lambda dev: dev.power_cut("explicit", survivors={1: None}), r"survivors\[1\]=None"),
        (lambda dev: dev.power_cut("random", survive_percent=-1), "survive_percent=-1"),
        (lambda dev: dev.power_cut(seed=-1), "seed=-1"),
        (lambda dev: dev.seek(-1), "sequence=-1"),
        (lambda dev: dev.snapshot_take("begin"), "sequence='begin'"),
        (lambda dev: dev.journal_start(-1), "journal size=-1"),
        (lambda dev: dev.resize(-1), "capacity=-1"),
        (lambda dev: dev.set_timing("constant", 1.5), "a=1.5"),
        (lambda dev: dev.set_timing("empirical", bins=5), r"bins=5 \(expected pairs"),
        (lambda dev: dev.set_timing("empirical", bins=[("a", 1)]), "end of a bin='a'"),
        (lambda dev: dev.set_timing("empirical", bins=[(5, -1)]), "count of a bin=-1"),
        (lambda dev: dev.set_faults(lab.Fault(action="error")), r"faults=Fault\(.*expected a list of Fault"),
        (lambda dev: dev.add_faults([{"action": "error"}]), r"faults=\[\{'action'.*expected a list of Fault"),
        (lambda dev: dev.mkfs(options="-O quota"), r"options='-O quota' \(expected a list of words, \['-O', 'quota'\]"),
        (lambda dev: dev.tune(read_only="no"), r"read_only='no' \(expected True or False"),
        (lambda dev: dev.power_cut("random", torn="no"), "torn='no'"),
        (lambda _dev: lab.Device(cache="no"), "cache='no'"),  # type: ignore[arg-type]
        (lambda _dev: lab.Device(partitions="no"), "partitions='no'"),  # type: ignore[arg-type]
        (lambda _dev: lab.Device(index=0), r"index=0 \(expected a whole number from 1 to 256"),
        (lambda _dev: lab.Device(numa_node=-1), "numa_node=-1"),
        (lambda _dev: lab.Device(adopt=-1), "index=-1"),
        (lambda dev: dev.snapshot_clone(1, index=0), "index=0"),
        (lambda dev: dev.snapshot_clone(-1), "snapshot=-1"),
        (lambda dev: dev.snapshot_restore(2**32), "snapshot=4294967296"),
        (lambda dev: dev.snapshot_delete("first"), "snapshot='first'"),
        (lambda dev: dev.state_take(-1, []), "snapshot=-1"),
        (lambda dev: dev.state_take(1, [(1, -8, 8)]), r"parts=\[\(1, -8, 8\)\] \(expected sequences of the journal"),
        (lambda dev: dev.state_take(1, 1), "parts=1"),
        (lambda dev: dev.state_give(1, [], 8), "target=8 .expected a device"),
        (lambda dev: dev.counters(-1), "queue=-1"),
        # Which is that of all together.
        (lambda dev: dev.counters(2**32 - 1), "queue=4294967295"),
        (lambda dev: dev.histogram(queue=-1), "queue=-1"),
        (lambda dev: dev.set_faults([], seed=-1), "seed=-1"),
        (lambda dev: dev.add_faults([], seed=2**64), "seed=18446744073709551616"),
        (lambda dev: dev.set_faults(None), "faults=None .expected a list of Fault"),
        (lambda dev: dev.set_timing(ops=1), "operations 1 .expected read, write"),
        (lambda dev: dev.mark(1), "text=1 .expected a note"),
        (lambda dev: dev.mkfs(options=[5]), r"options=\[5\] .expected a list of words"),
        (lambda dev: dev.mkfs(["ext4"]), r"file system \['ext4'\]"),
    ],
)
def test_what_the_driver_could_not_take_or_would_not_heed_is_refused(
    adopted: tuple[lab.Device, Mock], call: Callable[[lab.Device], object], message: str
) -> None:
    device, driver = adopted
    with pytest.raises(lab.InputError, match=message):
        call(device)
    assert not driver.mock_calls


def test_counters_subtract_and_look_like_a_mapping() -> None:
    before = lab.Counters(reads=1, write_bytes=4096)
    delta = lab.Counters(reads=5, write_bytes=8192) - before
    assert (delta.reads, delta["write_bytes"]) == (4, 4096)
    assert dict(delta)["reads"] == 4
    assert delta.table()["value"]["write_bytes"] == 4096
    with pytest.raises(KeyError, match="no counter 'read'"):
        delta["read"]


def test_the_core_s_counters_are_those_of_the_class() -> None:
    names = [field.name for field in dataclasses.fields(lab.Counters)]
    assert lab.Counters(**dict.fromkeys(names, 1)).keys() == names


def test_an_unknown_file_system_lists_the_known() -> None:
    with pytest.raises(lab.InputError, match=r"'zfs'.*ext4, xfs, btrfs, f2fs"):
        filesystem.Filesystem("/dev/null", "zfs")


def test_a_missing_tool_names_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda *_args, **_kwargs: None)
    with pytest.raises(lab.UnsupportedError, match=r"mkfs.xfs.*Debian package xfsprogs"):
        filesystem.Filesystem("/dev/null", "xfs").make()


def test_a_failing_tool_is_quoted(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.write_bytes(bytes(4096))
    with pytest.raises(lab.ToolError, match=r"mkfs.ext4.*exit status 1") as caught:
        filesystem.Filesystem(str(small), "ext4").make()
    assert caught.value.status == 1


def test_a_failing_mount_leaves_no_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(lab.ToolError, match="mount"):
        filesystem.Filesystem(str(tmp_path / "none"), "ext4").mount()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("probability", [0, -0.1, 1.01, 50, float("nan"), "0.5"])
def test_a_faults_chance_is_one(probability: float) -> None:
    with pytest.raises(lab.InputError, match=f"probability {probability!r}"):
        lab.Fault(action="error", probability=probability).raw()


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (lab.Fault(action="torn_write", sector=4), "sector of a fault 'torn_write'.*sectors, errno"),
        (lab.Fault(action="bad_sector", ops="read", sector=4), "sector of a fault 'bad_sector'.*once, bad_writes"),
        (lab.Fault(action="hang", delay_ns=1), "delay_ns of a fault 'hang'.*none"),
        (lab.Fault(action="eror", errno=5), "fault action 'eror'"),
        (lab.Fault(action="delay", delay_ns=-1), "delay_ns=-1.*a whole number"),
        (lab.Fault(action="error", errno="EIO"), "errno='EIO'.*a whole number"),  # type: ignore[arg-type]
        (
            lab.Fault(action="bad_sector"),
            "ops='write' of a fault 'bad_sector'.*read, and what else of",
        ),
        (lab.Fault(action="torn_write", ops=("read", "write")), "ops=.*of a fault 'torn_write' .expected write"),
        (lab.Fault(action="error", ops=()), r"ops=\(\) of a fault 'error' .expected read or write or discard"),
        (lab.Fault(action="error", errno=4096), "errno=4096 .*from 0 to 4095"),
        (lab.Fault(action="error", first_sector=8, last_sector=7), "first_sector=8 .expected at most last_sector, 7"),
        (lab.Fault(action="error", up_ns=1), "up_ns=1 without down_ns"),
        # Which would be that writes fail.
        (lab.Fault(action="bad_sector", ops="read", once=2), "once=2 .expected True or False"),  # type: ignore[arg-type]
        (lab.Fault(action="bad_sector", ops="read", bad_writes="no"), "bad_writes='no'"),  # type: ignore[arg-type]
    ],
)
def test_a_fault_has_the_arguments_of_its_action_only(fault: lab.Fault, said: str) -> None:
    """Another one would be taken for nothing, and the rule would do what nobody asked for."""
    with pytest.raises(lab.InputError, match=said):
        fault.raw()


@pytest.mark.parametrize("action", names.FAULTS)
def test_a_fault_is_what_was_made_of_its_rule(action: str) -> None:
    ops = tuning._OPS.get(action, ("read", "write"))
    raw = lab.Fault(action=action, ops=ops, every=3, probability=0.25).raw() | {"matched": 7, "hits": 2}
    fault = lab.Fault.from_raw(raw)
    assert (fault.action, fault.matched, fault.hits) == (action, 7, 2)
    assert fault.raw().items() <= raw.items()
