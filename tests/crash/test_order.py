# SPDX-License-Identifier: MIT
"""Unlike states first: the same states as in the log's order, in the order that plain Python puts them in."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crash.logs import SECTOR, Op, journal
from crash.test_states import ALL, SECTORS, recordings
from sampleblk_lab import InputError, crash
from sampleblk_lab._native import core
from sampleblk_lab.cli import main
from sampleblk_lab.crash import submitters

small = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def a_log(folder: Path, ops: list[Op]) -> crash.Log:
    (folder / "log").write_bytes(journal(ops))
    return crash.Log(folder / "log", base="zeros", size_bytes=SECTORS * SECTOR)


def in_rounds(log: crash.Log, model: crash.Model, kinds: list[int]) -> list[crash.State]:
    """One state of each likeness, one of each with its place in the log, two, four, …: walk.hpp, in plain Python."""
    states = list(log.states(model))
    events = [submit for submit, _ in log.native.flush_orders()] + [at for _, at, _ in log.native.marks]

    submissions = log.table()["submit_order"].values

    def likeness(state: crash.State, *, fine: bool) -> object:
        _, lost, torn = state.bare
        last = log.order[state.submitted - 1] if state.submitted else None
        place = sum(event < submissions[last] for event in events) if last is not None else 0
        return (
            None if last is None else kinds[last],
            frozenset((kinds[write], "lost") for write in lost),
            frozenset((kinds[write], "torn") for write, _, _ in torn),
            place if fine else None,
        )

    image = log.image("")
    found: list[crash.State] = []
    met: dict[bytes, list[tuple[int, int]]] = {}
    marks = [at for _, at, _ in log.native.marks]
    seen: set[int] = set()
    wanted, fine = 1, False
    while len(seen) < len(states):
        alike: Counter[object] = Counter()
        for number, state in enumerate(states):
            alike[likeness(state, fine=fine)] += 1
            if alike[likeness(state, fine=fine)] > wanted or number in seen:
                continue
            seen.add(number)
            image.take(state.native)
            there = [write for write in log.order[: state.submitted] if write not in state.native.lost]
            fewest = sum(at < submissions[there[-1]] for at in marks) if there else 0
            assert len(state.moments) == 1 + len(state.marks) - fewest
            if not any(a <= fewest and len(state.marks) <= b for a, b in met.get(image.digest, ())):
                met.setdefault(image.digest, []).append((fewest, len(state.marks)))
                found.append(state)
        wanted, fine = (wanted * 2 if fine else 1), True
    return found


def walked(log: crash.Log, model: crash.Model, kinds: list[int]) -> tuple[list[crash.State], core.CrashWalk]:
    walk = core.CrashWalk(log.native, model.native(), log.image(""), kinds)
    found = []
    while not walk.at_end:
        if (native := walk.next(3)) is not None:
            found.append(crash.State(log, native))
    return found, walk


def most_promised(log: crash.Log, states: list[crash.State]) -> dict[bytes, int]:
    """The contents of states, with the most marks set of each."""
    image = log.image("")
    found: dict[bytes, int] = {}
    for state in states:
        image.take(state.native)
        found[image.digest] = max(found.get(image.digest, 0), len(state.marks))
    return found


@small
@given(
    recordings(most=7), st.lists(st.integers(0, 2), min_size=7, max_size=7), st.booleans(), st.sets(st.integers(0, 20))
)
def test_the_order_is_that_of_plain_python(
    tmp_path: Path, ops: list[Op], some: list[int], tear: bool, at: set[int]
) -> None:
    """Marks are between any two events, and at the end."""
    apart = [replace(op, submit=2 * op.submit, complete=2 * op.complete) for op in ops]
    marks = [Op("mark", 2 * min(place, 2 * len(ops)) + 1, data=b"%d" % place) for place in sorted({*at, 20})]
    log = a_log(tmp_path, [*apart, *marks])
    model = crash.Torn() if tear else ALL
    kinds = some[: len(log)]
    found, walk = walked(log, model, kinds)
    assert found == in_rounds(log, model, kinds)
    # None is lost, and each was looked at once.
    plain, plain_walk = walked(log, model, [])
    assert most_promised(log, found) == most_promised(log, plain)
    assert walk.looked_at == plain_walk.looked_at == log.count(model)
    assert walk.looked_at - walk.repeated == len(found)


def test_contents_that_come_again_with_fewer_marks_are_checked_again(tmp_path: Path) -> None:
    """What is unlike, and so comes first, has the same contents after the mark."""
    a, b = b"a" * SECTOR, b"b" * SECTOR
    ops = [
        Op("write", 1, sector=1, data=b),
        Op("write", 2, sector=0, data=a),
        Op("mark", 3, 3, data=b"mark"),
        Op("write", 4, sector=0, data=a, fua=True),
    ]
    for order in ("log", "unlike"):
        moments = []

        def check(image: Path, state: crash.State, moments: list[list[list[str]]] = moments) -> None:
            if image.read_bytes()[: 2 * SECTOR] == a + b:
                moments.append(state.moments)

        found = a_log(tmp_path, ops).explore(check, model=ALL, order=order, progress=False)
        assert found.complete
        assert moments == {"log": [[[], ["mark"]]], "unlike": [[["mark"]], [[], ["mark"]]]}[order]


def test_a_model_that_is_too_large_gets_on(tmp_path: Path) -> None:
    """All writes are alike, and there are 2^20 states: rounds end before the model does."""
    ops = [Op("write", number + 1, sector=number % SECTORS, data=bytes([number]) * SECTOR) for number in range(20)]
    log = a_log(tmp_path, ops)
    walk = core.CrashWalk(log.native, ALL.native(), log.image(""), [0] * 20)
    contents = set()
    while len(contents) < 500:
        if (native := walk.next(1000)) is not None:
            assert native.submitted <= 20
            contents.add((native.submitted, tuple(native.lost)))
    assert len(contents) == 500


def test_a_sample_goes_on_with_what_is_unlike(tmp_path: Path) -> None:
    ops = [Op("write", number + 1, sector=number, data=bytes([number + 1]) * SECTOR) for number in range(SECTORS)]
    log = a_log(tmp_path, ops)

    def check(_image: Path, state: crash.State) -> None:
        seen.append(state.bare)

    for kinds in ("unlike", "log"):
        seen: list[object] = []
        found = log.explore(check, model=crash.Sample(seed=2), states=1000, order=kinds, progress=False)
        # All that can be: of six sectors each write is there or not, but for the last one submitted.
        assert found.checked == len(seen) == 2**SECTORS
        assert found.states >= found.checked


@pytest.mark.parametrize("seed", range(5))
def test_a_sample_comes_to_what_is_drawn_often(tmp_path: Path, seed: int) -> None:
    """Half of the draws are alike, and so were left in each round."""
    ops = [Op("write", 1, sector=0, data=b"a" * SECTOR), Op("write", 2, sector=1, data=b"b" * SECTOR)]
    log = a_log(tmp_path, ops)
    found = log.explore(lambda *_: None, model=crash.Sample(seed), states=10, progress=False)
    assert found.checked == 4


def test_what_is_rarely_drawn_does_not_keep_a_round_going(tmp_path: Path) -> None:
    ops = [Op("write", number + 1, sector=number % SECTORS, data=bytes([number]) * SECTOR) for number in range(20)]
    log = a_log(tmp_path, ops)
    # Nearly all of what is drawn is alike, and there is always something that was not drawn yet.
    walk = core.CrashWalk(log.native, crash.Sample(seed=3).native(), log.image(""), [0] * 12 + list(range(1, 9)))
    while walk.looked_at < 20_000:
        walk.next(100)
    assert walk.passed_over <= 9 * walk.looked_at + 40 * 1025


def named_log(folder: Path) -> crash.Log:
    """Many writes of one task, and one of another near the end."""
    ops = [Op("write", number + 1, sector=number % 3, data=bytes([number + 1]) * SECTOR) for number in range(19)]
    log = a_log(
        folder, [*ops, Op("write", 20, sector=5, data=b"z" * SECTOR), Op("write", 21, sector=4, data=b"y" * SECTOR)]
    )
    many = submitters.Submitter("many", 1, ("__x64_sys_write", "many_write"))
    rare = submitters.Submitter("rare", 2, ("__x64_sys_fsync", "rare_sync"))
    who = {sequence: [(0, 1, rare if sequence == 20 else many)] for sequence in range(1, 22)}
    submitters.save(who, folder / submitters.FILE, (log.path, log.native.file_bytes))
    return crash.Log(log.path, base="zeros", size_bytes=log.size_bytes)


def without_z(image: Path, state: crash.State) -> None:
    """Fails where all was submitted and the rare write is lost."""
    assert state.submitted < 21 or b"z" in image.read_bytes()


@pytest.mark.parametrize("workers", [1, 2])
def test_what_is_unlike_is_found_soon(tmp_path: Path, workers: int) -> None:
    log = named_log(tmp_path)
    assert sorted(Counter(log.kinds()).values()) == [1, 20]
    soon = log.explore(without_z, order="unlike", workers=workers, progress=False)
    late = log.explore(without_z, order="log", workers=workers, progress=False)
    assert soon.failures[0].reduced.lost == late.failures[0].reduced.lost == [20]
    assert soon.checked < 10
    assert late.checked > 100


def write_down(image: Path, _state: crash.State) -> None:
    """Appends what the image holds to a file that the environment names."""
    with Path(os.environ["SEEN"]).open("ab") as file:
        file.write(image.read_bytes())


def test_it_goes_on_in_its_own_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = named_log(tmp_path)
    resume, parts, whole = (tmp_path / name for name in ("explored", "parts", "whole"))
    monkeypatch.setenv("SEEN", str(parts))
    for _ in range(3):
        log.explore(write_down, order="unlike", states=7, resume=resume, progress=False)
    monkeypatch.setenv("SEEN", str(whole))
    log.explore(write_down, order="unlike", states=21, progress=False)
    assert parts.read_bytes() == whole.read_bytes()
    assert len(whole.read_bytes()) == 21 * log.size_bytes
    with pytest.raises(InputError, match="an exploration of another order"):
        log.explore(write_down, order="log", states=7, resume=resume, progress=False)


def test_what_cannot_be_is_refused(tmp_path: Path) -> None:
    log = named_log(tmp_path)
    with pytest.raises(InputError, match=r"order='random' \(expected 'log' or 'unlike'\)"):
        log.explore(without_z, order="random")
    with pytest.raises(InputError, match="2 kinds of 21 writes"):
        core.CrashWalk(log.native, ALL.native(), log.image(""), [1, 2])


@pytest.mark.parametrize(
    ("arguments", "soon"), [([], True), (["--order", "unlike"], True), (["--order", "log"], False)]
)
def test_the_command_has_it_too(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    soon: bool,
) -> None:
    named_log(tmp_path)
    (tmp_path / "base.img").write_bytes(bytes(SECTORS * SECTOR))
    (tmp_path / "rare.py").write_text(
        "def without_z(image, state):\n    assert state.submitted < 21 or b'z' in image.read_bytes()\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "rare", raising=False)
    given = ["crash", "explore", ".", "--check", "rare:without_z", "--workers", "1", "--json", *arguments]
    assert main(given) == 1
    said = json.loads(capsys.readouterr().out)
    assert (said["checked"] < 10) == soon
    [who] = said["failures"][0]["submitters"]["20"]
    assert (who["task"], who["syscall"]) == ("rare", "fsync")
