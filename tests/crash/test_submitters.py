# SPDX-License-Identifier: MIT
"""Who submitted a write: parts matched with bios, the file beside the log, and what failures say of it."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crash.logs import Op, journal
from sampleblk_lab import crash
from sampleblk_lab.crash import submitters
from sampleblk_lab.crash.submitters import Submitter, match
from sampleblk_lab.errors import FormatError, InputError

FSYNC = Submitter(
    "writer", 7, ("do_syscall_64", "__x64_sys_fsync", "ext4_sync_file", "ext4_io_submit.part.0", "submit_bio_noacct")
)
THREAD = Submitter("jbd2/a", 8, ("ret_from_fork", "kthread", "jbd2_journal_commit_transaction", "submit_bh_wbc"))
WORK = Submitter("umount", 9, ("do_syscall_64", "task_work_run", "ext4_put_super", "blkdev_put", "submit_bio"))


def test_what_is_said_of_a_stack() -> None:
    assert FSYNC.syscall == "fsync"
    assert FSYNC.text() == "fsync of writer in ext4_io_submit"
    assert THREAD.text() == "jbd2/a in jbd2_journal_commit_transaction"
    assert WORK.text() == "umount on its return to user space in blkdev_put"
    assert Submitter("old", 1, ()).text() == "old"
    for name in ("__x64_sys_pwrite64", "__se_sys_pwrite64.constprop.0", "__arm64_sys_pwrite64", "ksys_pwrite64"):
        assert Submitter("a", 1, (name,)).syscall == "pwrite64"
    # Where its own function jumped into the one that does the work, that one is said, and no call is guessed.
    tail = Submitter("a", 1, ("entry_SYSCALL_64_after_hwframe", "do_syscall_64", "x64_sys_call", "do_pwritev", "blk_x"))
    assert (tail.syscall, tail.text()) == ("", "do_pwritev of a in do_pwritev")
    # A function of the file system that has it in its name is no call.
    assert Submitter("a", 1, ("my_sys_fsync", "ext4__x64_sys_read")).syscall == ""


Piece = tuple[int, int, int]  # sector, sectors, who


@st.composite
def requests(draw: st.DrawFn) -> list[list[Piece]]:
    """What was written one after another: each a request that is made of neighbouring bios."""
    found = []
    for _ in range(draw(st.integers(1, 12))):
        at = draw(st.integers(0, 20))
        bios = []
        for _ in range(draw(st.integers(1, 4))):
            sectors = draw(st.integers(1, 6))
            bios.append((at, sectors, draw(st.integers(0, 3))))
            at += sectors
        found.append(bios)
    return found


def columns(written: list[list[Piece]], order: list[int]) -> dict[str, np.ndarray]:
    """The writes as a log has them; `order` is that of its rows."""
    return {
        "sequence": np.array([10 + number for number in order], dtype=np.uint64),
        "sector": np.array([written[number][0][0] for number in order], dtype=np.uint64),
        "sectors": np.array([sum(bio[1] for bio in written[number]) for number in order], dtype=np.uint64),
        "submit_order": np.array([5 * number for number in order], dtype=np.uint64),
    }


def matched(written: list[list[Piece]], order: list[int], bios: list[Piece]) -> dict[int, dict[int, int]]:
    """What match() says, sector by sector: sequence -> sector of the disk -> who."""
    sector, sectors, who = (np.array([bio[part] for bio in bios], dtype=np.uint64) for part in range(3))
    found: dict[int, dict[int, int]] = {}
    for sequence, parts in match(columns(written, order), sector, sectors, who.tolist()).items():
        begin = written[sequence - 10][0][0]
        said = found.setdefault(sequence, {})
        for first, length, one in parts:
            for at in range(begin + first, begin + first + length):
                assert at not in said
                said[at] = one
    return found


@settings(max_examples=300, deadline=None)
@given(requests(), st.integers(0, 2**32))
def test_each_sector_is_known_by_the_bio_that_it_came_with(written: list[list[Piece]], seed: int) -> None:
    chance = random.Random(seed)
    order = list(range(len(written)))
    chance.shuffle(order)
    truth = {
        10 + number: {at: who for begin, sectors, who in bios for at in range(begin, begin + sectors)}
        for number, bios in enumerate(written)
    }
    bios = [bio for each in written for bio in each]
    assert matched(written, order, bios) == truth

    # One that nobody has seen, or one too many: where it was, nobody is named; elsewhere it is as before.
    at = chance.randrange(len(bios))
    odd = (chance.randrange(30), chance.randint(1, 8), 4)
    for changed, (begin, sectors, _) in (
        (bios[:at] + bios[at + 1 :], bios[at]),
        ([*bios[:at], odd, *bios[at:]], odd),
    ):
        gone = set(range(begin, begin + sectors))
        left = {
            sequence: {sector: who for sector, who in said.items() if sector not in gone}
            for sequence, said in truth.items()
        }
        assert matched(written, order, changed) == {sequence: said for sequence, said in left.items() if said}


# --- the file


def a_log(folder: Path) -> crash.Log:
    """Two writes, of which the second has two parts, and a third of which nobody knows."""
    (folder / "log").write_bytes(
        journal(
            [
                Op("write", 1, 2, sector=0, data=b"a" * 512),
                Op("write", 3, 4, sector=4, data=b"b" * 1024),
                Op("write", 5, 6, sector=8, data=b"c" * 512),
            ]
        )
    )
    found = {1: [(0, 1, FSYNC)], 2: [(0, 1, THREAD), (1, 1, WORK)]}
    size = crash.Log(folder / "log", base="zeros").native.file_bytes
    submitters.save(found, folder / submitters.FILE, (folder / "log", size))
    return crash.Log(folder / "log", base="zeros", size_bytes=8192)


def no_b(image: Path, state: crash.State) -> None:
    """Fails where the first write is lost, or a part of the second one."""
    data = image.read_bytes()
    assert state.submitted < 3 or (data[:1] == b"a" and data[2048:3072] == b"b" * 1024)


def test_a_failure_says_who_submitted_what_is_missing(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    assert log.has_submitters
    assert log.submitters(2) == [(0, 1, THREAD), (1, 1, WORK)]
    assert log.submitters(3) == []
    with pytest.raises(InputError, match="write 4"):
        log.submitters(4)

    found = log.explore(no_b, failures=3, progress=False)
    [first, second] = [one for one in found.failures if one.reduced.lost in ([1], [2])][:2]
    assert first.missing == ["write 1: 1 sector at 0, by fsync of writer in ext4_io_submit"]
    assert second.missing == [f"write 2: 2 sectors at 4, by {THREAD.text()}; {WORK.text()}"]
    assert first.submitters == {1: [FSYNC]}
    assert str(first.missing_table()["submitted_by"][0]) == "fsync of writer in ext4_io_submit"
    [said] = first.json()["submitters"][1]
    assert (said["task"], said["syscall"], said["stack"]) == ("writer", "fsync", FSYNC.stack)
    json.dumps(found.json())
    page = found.report(tmp_path / "page.html").read_text()
    assert "ext4_sync_file" in page
    assert "write 1: fsync of writer in ext4_io_submit (pid 7)" in page

    # Of a torn write only what is missing counts.
    torn = crash.Failure(log.state(3, torn=[(2, 1, 1)]), log.state(3, torn=[(2, 1, 1)]), AssertionError("b"), no_b)
    assert torn.submitters == {2: [THREAD]}


def test_without_a_trace_nobody_is_named(tmp_path: Path) -> None:
    a_log(tmp_path)
    (tmp_path / submitters.FILE).unlink()
    log = crash.Log(tmp_path / "log", base="zeros", size_bytes=8192)
    assert not log.has_submitters
    [failure] = log.explore(no_b, progress=False).failures
    assert failure.missing == ["write 1: 1 sector at 0"]
    assert failure.submitters == {}
    assert "submitted_by" not in failure.missing_table()


def test_it_goes_where_its_log_goes(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    [failure] = log.explore(no_b, progress=False).failures
    failure.save(tmp_path / "saved")
    (tmp_path / "unpacked").mkdir()
    again = crash.unpack(tmp_path / "saved", tmp_path / "unpacked", size_bytes=8192, flush=True, fua=True)
    assert again.submitters(1) == [(0, 1, FSYNC)]
    from sampleblk_lab.crash.recording import keep

    kept = keep(log, tmp_path / "kept")
    assert crash.Log(kept / "log", base=kept / "base.img").submitters(1) == [(0, 1, FSYNC)]


def test_one_of_another_log_is_refused(tmp_path: Path) -> None:
    a_log(tmp_path)
    (tmp_path / "log").write_bytes(journal([Op("write", 1, 2, sector=0, data=b"z" * 512)]))
    with pytest.raises(InputError, match="submitters of another log"):
        crash.Log(tmp_path / "log", base="zeros")


def broken(value: object, chance: random.Random) -> object:
    """The same with one thing in it replaced."""
    other = [None, -1, 2**70, "x", [], {}, [[]], 1.5, True, {"stack": 3}]
    if isinstance(value, dict) and value and chance.random() < 0.9:
        key = chance.choice(list(value))
        if chance.random() < 0.2:
            return {name: each for name, each in value.items() if name != key}
        return {**value, key: broken(value[key], chance)}
    if isinstance(value, list) and value and chance.random() < 0.9:
        at = chance.randrange(len(value))
        return [*value[:at], broken(value[at], chance), *value[at + 1 :]]
    return chance.choice(other)


@pytest.mark.parametrize("seed", range(4))
def test_a_damaged_file_is_refused_or_says_nothing_that_breaks(tmp_path: Path, seed: int) -> None:
    a_log(tmp_path)
    path = tmp_path / submitters.FILE
    whole = json.loads(path.read_text())
    chance = random.Random(seed)
    refused = 0
    for _ in range(150):
        text = json.dumps(broken(whole, chance))
        if chance.random() < 0.2:
            text = text[: chance.randrange(len(text))]
        path.write_text(text)
        try:
            log = crash.Log(tmp_path / "log", base="zeros", size_bytes=8192)
        except (FormatError, InputError) as error:
            refused += str(path) in str(error)
            continue
        [failure] = log.explore(no_b, progress=False).failures
        assert failure.text()
        json.dumps(failure.json())
    assert refused > 20
