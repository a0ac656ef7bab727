# SPDX-License-Identifier: MIT
"""KVM's verdict: kept, forgotten, and asked for again when a busy machine kept it from being found."""

from __future__ import annotations

from pathlib import Path

import pytest

from sampleblk_lab.errors import InputError
from sampleblk_lab.vm import accel
from sampleblk_lab.vm.accel import Verdict
from sampleblk_lab.vm.qemu import Qemu, find

BUSY = Verdict("tcg", "the guest did not become ready in time", final=False)
HUNG = Verdict("tcg", "the guest used 4.0 s of processor time and did not start")
BOOTS = Verdict("kvm", "a guest boots")


class Machine:
    """A machine with /dev/kvm, whose probes show what `shows` says, at a time that goes when told."""

    def __init__(self, qemu: Qemu, monkeypatch: pytest.MonkeyPatch) -> None:
        self.qemu = qemu
        self.shows = BOOTS
        self.probes = 0
        self.now = 1e9
        monkeypatch.setattr(accel, "usable", lambda: True)
        monkeypatch.setattr(accel.time, "time", lambda: self.now)

    def _probe(self) -> Verdict:
        self.probes += 1
        return self.shows

    def choose(self) -> str:
        return accel.choose(self.qemu, self._probe)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    qemu = find()
    monkeypatch.setenv("SAMPLEBLK_CACHE", str(tmp_path))
    monkeypatch.delenv("SAMPLEBLK_ACCEL", raising=False)
    return Machine(qemu, monkeypatch)


@pytest.mark.parametrize(("shown", "chosen"), [(BOOTS, "kvm"), (HUNG, "tcg")])
def test_what_was_seen_is_not_asked_again(machine: Machine, shown: Verdict, chosen: str) -> None:
    machine.shows = shown
    assert [machine.choose(), machine.choose()] == [chosen, chosen]
    machine.now += 1e8
    assert machine.choose() == chosen
    assert machine.probes == 1
    accel.forget(machine.qemu)
    assert machine.choose() == chosen
    assert machine.probes == 2


def test_a_busy_moment_does_not_pin_emulation(machine: Machine) -> None:
    machine.shows = BUSY
    assert machine.choose() == "tcg"
    machine.shows = BOOTS
    assert machine.choose() == "tcg", "not at each start"
    machine.now += 601
    assert machine.choose() == "kvm"
    assert machine.probes == 2


def test_a_machine_that_is_always_busy_is_asked_ever_less_often(machine: Machine) -> None:
    machine.shows = BUSY
    waits = []
    for _ in range(12):
        machine.choose()
        verdict = accel.known(machine.qemu)
        assert verdict is not None
        waits.append(verdict.again_at - machine.now)
        machine.now = verdict.again_at
    assert waits[:3] == [600, 1200, 2400]
    assert waits[-1] == waits[-2] == 24 * 3600


def test_another_qemu_is_asked_anew(machine: Machine, tmp_path: Path) -> None:
    program = tmp_path / "qemu"
    program.write_bytes(b"one")
    machine.qemu = Qemu(program, (), (10, 0))
    machine.choose()
    machine.choose()
    assert machine.probes == 1
    program.write_bytes(b"two")
    machine.choose()
    assert machine.probes == 2


@pytest.mark.parametrize("text", ["", "kvm", "{}", "[]", '{"accel": "kvm"}', '{"what": 1}'])
def test_a_verdict_that_cannot_be_read_is_asked_for(machine: Machine, text: str) -> None:
    path = accel._path(machine.qemu)
    path.parent.mkdir()
    path.write_text(text)
    assert machine.choose() == "kvm"
    assert machine.probes == 1


def test_a_cache_that_cannot_be_written_keeps_nothing(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAMPLEBLK_CACHE", "/sys/kernel/none")
    assert [machine.choose(), machine.choose()] == ["kvm", "kvm"]
    assert machine.probes == 2


def test_another_word_than_kvm_and_tcg_is_refused(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAMPLEBLK_ACCEL", "kmv")
    with pytest.raises(InputError, match=r"SAMPLEBLK_ACCEL='kmv' .*'kvm' or 'tcg'"):
        machine.choose()


def test_another_link_to_qemu_makes_it_no_other_one(tmp_path: Path) -> None:
    program = tmp_path / "qemu"
    program.write_text("one")
    first = Qemu(program, (), (10,)).identity
    (tmp_path / "build-id").hardlink_to(program)  # as perf record -a does
    assert Qemu(program, (), (10,)).identity == first
    program.write_text("another")
    assert Qemu(program, (), (10,)).identity != first
