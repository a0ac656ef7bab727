# SPDX-License-Identifier: MIT
"""What trials claim of their host: measured by when they began and ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import sampleblk_lab as lab
from sampleblk_lab.sweeps import claim, processes
from sampleblk_lab.sweeps.claim import Claim


@pytest.fixture(autouse=True)
def _own_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv(claim.VARIABLE, str(tmp_path / "host"))
    yield
    processes.close()


def beside(one: Any, rows: Sequence[Any]) -> int:
    """How many others ran at some time while this one did."""
    return sum(
        row["key"] != one["key"] and row["started_ns"] < one["ended_ns"] and one["started_ns"] < row["ended_ns"]
        for row in rows
    )


def rests(mode: str, n: int) -> int:
    time.sleep(0.2)
    return n if mode else 0


def test_exclusive_trials_of_a_sweep_run_alone(tmp_path: Path) -> None:
    made = lab.sweep(
        rests,
        mode=["timing", "other"],
        n=[*range(8)],
        exclusive=lambda mode: mode == "timing",
        workers=4,
        folder=tmp_path / "s",
    )
    assert made.complete, made
    rows = list(made.table().rows())
    alone = [row for row in rows if row["exclusive"]]
    assert {row["mode"] for row in alone} == {"timing"}
    assert len(alone) == 8
    assert [beside(row, rows) for row in alone] == [0] * 8
    assert max(beside(row, rows) for row in rows) > 0, "the others are not packed"
    assert all(row["ended_ns"] - row["started_ns"] >= row["seconds"] * 1e9 >= 0.2e9 for row in rows)


def test_two_sweeps_at_once_share_the_host(tmp_path: Path) -> None:
    """Of other processes too: only one of them wants the host for itself."""
    other = (
        "import sys, time, sampleblk_lab as lab\n"
        "def rests(n):\n    time.sleep(0.2)\n    return n\n"
        f"lab.sweep(rests, n=[*range(12)], workers=3, folder={str(tmp_path / 'o')!r})\n"
    )
    process = subprocess.Popen([sys.executable, "-c", other])
    try:
        end = time.monotonic() + 60
        while not (tmp_path / "o" / "journal.jsonl").exists() and time.monotonic() < end:
            time.sleep(0.01)
        made = lab.sweep(rests, mode="timing", n=[1, 2, 3], exclusive=True, folder=tmp_path / "s")
        assert process.wait(timeout=60) == 0
    finally:
        process.kill()
    theirs = lab.open_sweep(tmp_path / "o")
    assert made.complete
    assert theirs.complete
    rows = [*made.table().rows(), *theirs.table().rows()]
    assert [beside(row, rows) for row in made.table().rows()] == [0, 0, 0]
    assert max(beside(row, rows) for row in theirs.table().rows()) > 0


def test_what_was_measured_beside_others_does_not_count(tmp_path: Path) -> None:
    assert lab.sweep(rests, mode="a", n=[1, 2], folder=tmp_path / "s").complete
    dry = lab.sweep(rests, mode="a", n=[1, 2], exclusive=True, folder=tmp_path / "s", dry_run=True)
    assert (dry.done, dry.workers) == (0, 1)
    assert lab.sweep(rests, mode="a", n=[1, 2], folder=tmp_path / "s", dry_run=True).done == 2


def test_waiting_is_not_the_trials_time(tmp_path: Path) -> None:
    with claim.held(Claim(), lambda: False):
        ended: list[lab.Sweep] = []
        thread = threading.Thread(
            target=lambda: ended.append(
                lab.sweep(rests, mode="a", n=[1], exclusive=True, deadline_s=5, folder=tmp_path / "s")
            )
        )
        thread.start()
        time.sleep(6)
        assert not ended
        freed_ns = time.time_ns()
    thread.join(timeout=60)
    [row] = ended[0].table().rows()
    assert row["started_ns"] >= freed_ns
    assert row["attempts"] == 1


def test_what_waits_can_be_stopped() -> None:
    stop = threading.Event()
    ended: list[str] = []

    def wait(wanted: Claim) -> None:
        try:
            with claim.held(wanted, stop.is_set):
                ended.append("held")
        except claim.Stopped:
            ended.append("stopped")

    with claim.held(Claim(exclusive=True), lambda: False):
        threads = [
            threading.Thread(target=wait, args=(one,)) for one in (Claim(), Claim(exclusive=True), Claim(cpus=1))
        ]
        for thread in threads:
            thread.start()
        time.sleep(0.2)
        assert ended == []
        stop.set()
        for thread in threads:
            thread.join(timeout=20)
    assert ended == ["stopped"] * 3


def test_who_wants_the_host_alone_is_not_overtaken() -> None:
    """While others come and go without a gap."""
    over = threading.Event()

    def comes_and_goes() -> None:
        while not over.is_set():
            with claim.held(Claim(), lambda: False):
                time.sleep(0.05)

    threads = [threading.Thread(target=comes_and_goes) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        time.sleep(0.3)
        begin = time.monotonic()
        with claim.held(Claim(exclusive=True), lambda: time.monotonic() > begin + 20):
            pass
    finally:
        over.set()
        for thread in threads:
            thread.join()


def test_processors_and_memory_are_given_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """At random, against a count kept beside."""
    import random

    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {1, 2, 5, 7})
    monkeypatch.setattr(claim, "_memory_blocks", lambda: 10)
    lock = threading.Lock()
    used = {"cpus": 0, "blocks": 0}
    most = {"cpus": 0, "blocks": 0, "at once": 0}
    running = 0
    rng = random.Random(1)
    wanted = [Claim(cpus=rng.randrange(4), memory_mib=rng.randrange(0, 500)) for _ in range(40)]
    wanted += [Claim(cpus=99, memory_mib=10**6)] * 2  # more than there is: all of it

    def take(one: Claim) -> None:
        nonlocal running
        cpus, blocks = min(one.cpus, 4), min(-(-one.memory_mib // 64), 10)
        with claim.held(one, lambda: False):
            with lock:
                used["cpus"] += cpus
                used["blocks"] += blocks
                running += 1
                most.update({name: max(most[name], used[name]) for name in used})
                most["at once"] = max(most["at once"], running)
            time.sleep(0.02)
            with lock:
                used["cpus"] -= cpus
                used["blocks"] -= blocks
                running -= 1

    threads = [threading.Thread(target=take, args=(one,)) for one in wanted]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert used == {"cpus": 0, "blocks": 0}
    assert most["cpus"] == 4
    assert most["blocks"] <= 10
    assert most["at once"] > 1


def test_a_killed_process_claims_nothing() -> None:
    code = (
        "import time\nfrom sampleblk_lab.sweeps.claim import Claim, held\n"
        "with held(Claim(exclusive=True), lambda: False):\n    print('held', flush=True)\n    time.sleep(60)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    begin = time.monotonic()
    with pytest.raises(claim.Stopped), claim.held(Claim(), lambda: time.monotonic() > begin + 0.3):
        pass
    process.send_signal(signal.SIGKILL)
    process.communicate()
    with claim.held(Claim(exclusive=True), lambda: True):
        pass


def test_a_file_that_cannot_be_used_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(claim.VARIABLE, str(tmp_path / "none" / "lock"))
    made = lab.sweep(rests, mode="a", n=[1], folder=tmp_path / "s")
    [row] = made.missing().rows()
    assert "cannot lock" in str(row["message"])
    assert f"{tmp_path}/none/lock: No such file or directory; set SAMPLEBLK_HOST_LOCK" in str(row["message"])
    (tmp_path / "link").symlink_to(tmp_path / "other")
    monkeypatch.setenv(claim.VARIABLE, str(tmp_path / "link"))
    with pytest.raises(claim.ClaimError, match="cannot lock"), claim.held(Claim(), lambda: False):
        pass
    assert not (tmp_path / "other").exists()
    monkeypatch.delenv(claim.VARIABLE)
    assert str(os.geteuid()) in claim.path().name


def test_what_cannot_be_exclusive(tmp_path: Path) -> None:
    for options, said in (
        ({"exclusive": "yes"}, "exclusive='yes' .expected a bool, or a function of axes"),
        ({"exclusive": lambda fs: fs}, "exclusive names 'fs', which is not an axis"),
        ({"exclusive": True, "workers": 3}, "workers=3 with exclusive=True"),
    ):
        with pytest.raises(lab.InputError, match=said):
            lab.sweep(rests, mode="a", n=[1], folder=tmp_path / "s", **options)  # type: ignore[call-overload]
