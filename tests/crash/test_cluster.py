# SPDX-License-Identifier: MIT
"""Exploring with other processes' help: executors, and a real scheduler with three workers of loopback addresses."""

from __future__ import annotations

import concurrent.futures
import contextlib
import hashlib
import json
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from crash.logs import MARK, SECTOR, SECTORS, log_writes, picky, recorded, told
from sampleblk_lab import InputError, SampleblkError, ToolError, UnsupportedError, crash
from sampleblk_lab.cli import main
from sampleblk_lab.crash import cluster as explorer
from sampleblk_lab.crash.files import digest
from sampleblk_lab.crash.parcel import packed
from sampleblk_lab.sweeps.place import Place

pytest.importorskip("distributed", reason="needs the extra 'sweep'")

from dask_cluster import Cluster  # needs distributed

pytestmark = pytest.mark.usefixtures("own_host")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp("cluster"))
    yield made
    made.close()


ASKED: list[dict[str, Any]] = [
    {"model": crash.Reorder(), "failures": 1000},
    {"model": crash.Reorder(), "failures": 3},
    {"model": crash.Reorder(complete_up_to=3, at_most=1), "failures": 1},
    {"model": crash.Prefix(), "failures": 1000},
    {"model": crash.Torn(), "failures": 2},
    {"model": crash.Sample(seed=7), "states": 150, "failures": 1000},
    {"model": crash.Reorder(), "states": 37, "failures": 1000},
]


@pytest.mark.parametrize("asked", ASKED, ids=repr)
@pytest.mark.parametrize("threads", [1, 3])
def test_any_executor_finds_what_one_process_finds(tmp_path: Path, asked: dict[str, Any], threads: int) -> None:
    log = recorded(tmp_path)
    here = log.explore(picky, **asked)
    with concurrent.futures.ThreadPoolExecutor(threads) as executor:
        there = log.explore(picky, client=executor, **asked)
    assert told(there) == told(here)
    assert here.checked > 10 or asked["failures"] == 1


def promised_at_the_end(image: Path, state: crash.State) -> None:
    assert "end" not in state.marks or image.read_bytes()[0]


def test_what_a_later_crash_loses_is_told_of_a_state_that_loses_nothing(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(log_writes((0, 0, b"\1" * SECTOR), (MARK, 0, b"end")))
    log = crash.Log(tmp_path / "log", base="zeros")
    with concurrent.futures.ThreadPoolExecutor(1) as executor:
        there = log.explore(promised_at_the_end, model=crash.Prefix(), client=executor)
    assert told(there) == told(log.explore(promised_at_the_end, model=crash.Prefix()))
    assert there.failures[0].reduced.lost == [1]


def test_a_short_draw_ends_where_nothing_new_comes(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(log_writes((0, 0, b"\1" * SECTOR), (0, 1, b"\2" * SECTOR)))
    log = crash.Log(tmp_path / "log", base="zeros")
    here = log.explore(lambda *_: None, model=crash.Sample(), states=100)
    with concurrent.futures.ThreadPoolExecutor(2) as executor:
        there = log.explore(lambda *_: None, model=crash.Sample(), states=100, client=executor)
    assert told(there) == told(here)
    assert here.checked < 100


def checks_that_note(folder: Path, then: Callable[[Path, crash.State], object]) -> Callable[[Path, crash.State], None]:
    """A check that leaves a file for each call: the contents, the process, and the host as its cache folder tells."""
    name = str(folder)

    def check(image: Path, state: crash.State) -> None:
        digest = hashlib.sha256(image.read_bytes()).hexdigest()
        where = Path(os.environ["SAMPLEBLK_CACHE"]).name
        (Path(name) / f"{digest} {os.getpid()} {where} {time.monotonic_ns()}").touch()
        then(image, state)

    return check


def notes(folder: Path) -> list[list[str]]:
    return [path.name.split() for path in folder.iterdir()]


@pytest.fixture
def deliveries(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """To which worker the log was sent, for each time."""
    made: list[str] = []
    sent = Place.__init__

    def counted(place: Place, *arguments: Any, **keywords: Any) -> None:
        sent(place, *arguments, **keywords)
        bring = place.sent

        def noted(data: bytes, to: str) -> Any:
            made.append(to)
            return bring(data, to)

        place.sent = noted

    monkeypatch.setattr(Place, "__init__", counted)
    return made


@pytest.mark.timeout(600)
def test_a_cluster_finds_what_one_process_finds(cluster: Cluster, tmp_path: Path, deliveries: list[str]) -> None:
    log = recorded(tmp_path, seed=5)
    seen = tmp_path / "seen"
    seen.mkdir()
    here = log.explore(picky, failures=1000)

    def slow(image: Path, state: crash.State) -> None:
        time.sleep(0.002)
        picky(image, state)

    with cluster.client() as client:
        first = log.explore(checks_that_note(seen, slow), failures=1000, client=client)
        assert told(first) == told(here)
        # Each host was sent the log, once, and all of them have checked.
        assert len(set(deliveries)) == len(deliveries) == 3
        found = notes(seen)
        assert {where for _, _, where, _ in found} == {"cache-0", "cache-1", "cache-2"}
        # The contents that passed were checked once each, the others once more where they are reduced.
        checked = [digest for digest, *_ in found]
        passed = set(checked) - {failure.text().split("not this one: ")[1].split()[0] for failure in here.failures}
        assert len(set(checked)) >= here.checked
        assert sum(checked.count(digest) == 1 for digest in passed) >= here.checked - 5 * len(here.failures)
        deliveries.clear()
        for asked in ASKED[1:]:
            assert told(log.explore(picky, client=client, **asked)) == told(log.explore(picky, **asked))
        assert deliveries == []
        # What a host has is held against its digest before it is used.
        [kept] = (cluster.here / "cache-1" / "crash").glob("*/log")
        data = bytearray(kept.read_bytes())
        data[SECTOR * 3 + 40] ^= 1
        kept.write_bytes(data)
        assert told(log.explore(picky, failures=1000, client=client)) == told(here)
        assert len(deliveries) == 1
        assert kept.read_bytes() == (tmp_path / "log").read_bytes()


def test_images_of_killed_processes_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = recorded(tmp_path)
    room = tmp_path / "room"
    for kind in ("images", "range"):
        (room / f"sampleblk-crash-{kind}-left").mkdir(parents=True)
        (room / f"sampleblk-crash-{kind}-left/disk.img").touch()
    monkeypatch.setattr("sampleblk_lab.crash.explore.folder_for", lambda _: room)
    monkeypatch.setattr("sampleblk_lab.crash.host.folder_for", lambda _: room)
    with concurrent.futures.ThreadPoolExecutor(1) as executor:
        assert log.explore(lambda *_: None, model=crash.Prefix(), client=executor).ok
    assert not list(room.iterdir())


def test_each_content_is_checked_once_where_nothing_fails(tmp_path: Path) -> None:
    log = recorded(tmp_path)
    seen = tmp_path / "seen"
    seen.mkdir()
    with concurrent.futures.ThreadPoolExecutor(3) as executor:
        found = log.explore(checks_that_note(seen, lambda *_: None), client=executor)
    checked = [digest for digest, *_ in notes(seen)]
    assert found.ok
    assert found.complete
    assert found.checked == len(checked) == len(set(checked)) == log.explore(lambda *_: None).checked
    assert len({process for _, process, *_ in notes(seen)}) > 1


@pytest.mark.timeout(600)
def test_killed_workers_lose_nothing(cluster: Cluster, tmp_path: Path) -> None:
    log = recorded(tmp_path)
    seen = tmp_path / "seen"
    seen.mkdir()
    here = log.explore(picky, failures=1000, states=150)

    def slow(image: Path, state: crash.State) -> None:
        time.sleep(0.05)
        picky(image, state)

    killed: list[int] = []
    with cluster.client() as client:

        def kill() -> None:
            rng = random.Random(5)
            while len(killed) < 3:
                before = len(notes(seen))
                time.sleep(0.5)
                if len(notes(seen)) == before:
                    continue  # only while states are checked
                with contextlib.suppress(Exception):
                    target = rng.choice(sorted(set(client.run(os.getpid, on_error="ignore").values())))
                    os.kill(target, signal.SIGKILL)
                    killed.append(target)

        killer = threading.Thread(target=kill, daemon=True)
        killer.start()
        there = log.explore(checks_that_note(seen, slow), failures=1000, states=150, client=client)
        assert len(killed) > 0
        killed.extend([0] * 3)
        killer.join(timeout=60)
        client.wait_for_workers(3, timeout=120)
    assert told(there) == told(here)
    assert len(notes(seen)) > here.checked, "some were checked a second time"


@contextlib.contextmanager
def pressed_when(is_time: Callable[[], bool]) -> Iterator[None]:
    """Ctrl-C, once it is time."""

    @contextlib.contextmanager
    def pressed() -> Iterator[Callable[[], int]]:
        yield lambda: int(is_time())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(explorer, "counted_ctrl_c", pressed)
        yield


def gone(pids: set[str]) -> bool:
    end = time.monotonic() + 30
    while any(Path(f"/proc/{pid}").exists() for pid in pids) and time.monotonic() < end:
        time.sleep(0.05)
    return not [pid for pid in pids if Path(f"/proc/{pid}").exists()]


@pytest.mark.timeout(600)
def test_ctrl_c_keeps_what_was_found_and_ends_the_rest(cluster: Cluster, tmp_path: Path) -> None:
    log = recorded(tmp_path)
    seen = tmp_path / "seen"
    seen.mkdir()
    [known] = log.explore(picky, order="log").failures
    after = known.state.submitted
    last_seen = [0, 0.0]

    def stuck(image: Path, state: crash.State) -> None:
        picky(image, state)
        if state.submitted > after:
            time.sleep(600)

    def is_stuck() -> bool:
        if (count := len(notes(seen))) != last_seen[0]:
            last_seen[:] = count, time.monotonic()
        return count > 0 and time.monotonic() - last_seen[1] > 3

    with cluster.client() as client, pressed_when(is_stuck):
        found = log.explore(checks_that_note(seen, stuck), failures=1000, client=client, order="log")
    assert found.interrupted
    assert not found.complete
    assert 0 < found.checked < found.total
    assert found.states >= found.checked
    assert repr(known.state) in {repr(failure.state) for failure in found.failures}
    assert gone({process for _, process, *_ in notes(seen)})


def test_a_failure_that_was_not_reduced_yet_is_kept(tmp_path: Path) -> None:
    log = recorded(tmp_path)
    marker = str(tmp_path / "reducing")

    def slow_to_reduce(_image: Path, state: crash.State) -> None:
        if len(state.lost) > 2:
            raise AssertionError("found")
        if Path(marker).exists():
            time.sleep(600)

    [known] = log.explore(slow_to_reduce).failures

    def wait_for_it() -> bool:
        return Path(marker).exists() and time.monotonic() > begin + 3

    begin = time.monotonic()
    original = explorer._Cluster._hand_over

    def noted(self: Any, one: Any) -> None:
        if one.reducing:
            Path(marker).touch()
        original(self, one)

    with (
        concurrent.futures.ThreadPoolExecutor(2) as executor,
        pressed_when(wait_for_it),
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(explorer._Cluster, "_hand_over", noted)
        found = log.explore(slow_to_reduce, failures=1, client=executor)
    assert found.interrupted
    [failure] = found.failures
    assert failure.state == failure.reduced == known.state
    assert str(failure.error) == "found"


@pytest.mark.timeout(600)
def test_a_scheduler_that_is_lost_leaves_what_was_found(cluster: Cluster, tmp_path: Path) -> None:
    log = recorded(tmp_path)
    seen = tmp_path / "seen"
    seen.mkdir()

    def slow(_image: Path, _state: crash.State) -> None:
        time.sleep(0.1)

    def restart() -> None:
        while len(notes(seen)) < 40:
            time.sleep(0.05)
        cluster.restart()

    restarter = threading.Thread(target=restart)
    restarter.start()
    with cluster.client() as client:
        found = log.explore(checks_that_note(seen, slow), client=client)
    restarter.join()
    assert "scheduler" in found.lost
    assert "ended early" in found.text()
    assert not found.complete
    assert 0 < found.checked < found.total


class OwnError(Exception):
    """Of the user's, with more to it than a text."""

    def __init__(self, number: int) -> None:
        super().__init__(f"own {number}")
        self.number = number

    def __reduce__(self) -> Any:
        return OwnError, (self.number,)


class OddError(Exception):
    """Cannot be sent to another process."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"odd {one} {two}")


def test_what_a_check_raises_elsewhere_is_told(tmp_path: Path) -> None:
    log = recorded(tmp_path)
    number = 17

    def own(_image: Path, _state: crash.State) -> None:
        raise OwnError(number)

    def odd(_image: Path, _state: crash.State) -> None:
        raise OddError(1, 2)

    def tool(_image: Path, _state: crash.State) -> None:
        raise ToolError(["fsck", "x"], 4, "bad")

    def missing(_image: Path, _state: crash.State) -> None:
        raise UnsupportedError("fsck", "it is not installed", "install it")

    def dies(_image: Path, state: crash.State) -> None:
        if state.submitted > 3:
            os.kill(os.getpid(), signal.SIGKILL)

    def exits(_image: Path, _state: crash.State) -> None:
        os._exit(3)

    with concurrent.futures.ThreadPoolExecutor(2) as executor:
        [failure] = log.explore(own, client=executor).failures
        assert isinstance(failure.error, OwnError)
        assert failure.error.number == 17
        [failure] = log.explore(odd, client=executor).failures
        assert (type(failure.error).__name__, str(failure.error)) == ("OddError", "odd 1 2")
        [failure] = log.explore(tool, client=executor).failures
        assert isinstance(failure.error, ToolError)
        assert (failure.error.command, failure.error.status) == (["fsck", "x"], 4)
        with pytest.raises(UnsupportedError, match="install it"):
            log.explore(missing, client=executor)
        with pytest.raises(SampleblkError, match=r"could not be checked on .*, in 5 tries: killed: .* signal 9"):
            log.explore(dies, client=executor)
        with pytest.raises(SampleblkError, match=r"contents . to . could not be checked.*exit status 3"):
            log.explore(exits, client=executor)


def due_is_right(image: Path, due: dict[str, Any]) -> None:
    assert set(due) <= {"begin", "end"}
    assert image.stat().st_size == SECTORS * SECTOR
    assert len(due) < 2, "the end"


def test_ready_checks_are_sent_as_they_were_made(tmp_path: Path) -> None:
    log = recorded(tmp_path)
    check = crash.all_of(crash.promised({"begin": 1, "end": 2}, due_is_right), lambda image, _: image.stat())
    here = log.explore(check, failures=1000)
    with concurrent.futures.ThreadPoolExecutor(2) as executor:
        there = log.explore(check, failures=1000, client=executor)
    assert told(there) == told(here)
    assert here.failures
    assert all(failure.check is check for failure in there.failures)


def test_time_runs_out_elsewhere_too(tmp_path: Path) -> None:
    log = recorded(tmp_path)
    with concurrent.futures.ThreadPoolExecutor(2) as executor:
        begin = time.monotonic()
        found = log.explore(lambda *_: time.sleep(0.2), seconds=3, client=executor)
        assert time.monotonic() - begin < 60
    assert 0 < found.checked < found.total
    assert not found.complete
    assert not found.interrupted


def test_clients_that_cannot_be_are_named(tmp_path: Path) -> None:
    log = recorded(tmp_path)
    with pytest.raises(InputError, match=r"client=7 \(expected a distributed\.Client, its scheduler's address"):
        log.explore(picky, client=7)
    lock = threading.Lock()
    with concurrent.futures.ThreadPoolExecutor(1) as executor:
        with pytest.raises(InputError, match="workers=2 with a client"):
            log.explore(picky, client=executor, workers=2)
        with pytest.raises(InputError, match="lock"):
            log.explore(lambda *_: lock.acquire(), client=executor)
    # It is shut down.
    assert "shutdown" in log.explore(picky, client=executor).lost


def test_a_log_that_arrives_as_another_one_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, other = recorded(tmp_path), recorded(tmp_path / "other", seed=99)
    monkeypatch.setenv("SAMPLEBLK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(explorer, "packed", lambda _: packed(other))
    with (
        concurrent.futures.ThreadPoolExecutor(1) as executor,
        pytest.raises(SampleblkError, match="is not the one that was sent"),
    ):
        log.explore(picky, client=executor)


def test_a_log_that_the_disk_does_not_give_is_named() -> None:
    with pytest.raises(OSError, match=r"^\[Errno 5\] Input/output error: '/proc/self/mem'$"):
        digest((Path("/proc/self/mem"), SECTOR))


@pytest.mark.timeout(600)
def test_the_command_takes_a_scheduler(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded(tmp_path)
    (tmp_path / "mine.py").write_text(
        "import hashlib\n\ndef picky(image, state):\n    assert hashlib.sha256(image.read_bytes()).digest()[0] > 8\n"
    )
    monkeypatch.chdir(tmp_path)
    said = []
    for where in (["--workers", "1"], ["--scheduler", cluster.address]):
        assert main(["crash", "explore", ".", "--check", "mine:picky", "--failures", "99", "--json", *where]) == 1
        said.append(json.loads(capsys.readouterr().out))
        said[-1].pop("elapsed_s")
    assert said[0] == said[1]
    assert said[0]["failures"]
    assert main(["crash", "explore", ".", "--check", "mine:picky", "--workers", "2", "--scheduler", "tcp://x:1"]) == 2
    assert "workers=2 with a client" in capsys.readouterr().err
