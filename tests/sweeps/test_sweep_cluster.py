# SPDX-License-Identifier: MIT
"""Sweeps on a cluster: a real scheduler and three workers on addresses of the loopback device."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import sampleblk_lab as lab
from dask_cluster import Cluster
from sampleblk_lab.sweeps import place, processes, store
from sampleblk_lab.sweeps.work import Outcome

distributed = pytest.importorskip("distributed", reason="needs the extra 'sweep'")
cfexecutor = pytest.importorskip("distributed.cfexecutor")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp("cluster"))
    yield made
    made.close()


@pytest.fixture(autouse=True)
def _no_launcher_is_left() -> Iterator[None]:
    yield
    processes.close()


def product(a: int, b: int, repeat: int, seed: int) -> dict[str, int]:
    return {"product": a * b, "mixed": seed ^ (a + 10 * b + 100 * repeat)}


AXES = {"a": [1, 2, 3, 4], "b": [1, 2, 3]}


def essence(made: lab.Sweep) -> list[tuple[Any, ...]]:
    return sorted(tuple(row[name] for name in ("a", "b", "repeat", "product", "mixed", "key")) for row in made.table())


@pytest.mark.timeout(600)
def test_a_cluster_gives_the_same_table(cluster: Cluster, tmp_path: Path) -> None:
    here = lab.sweep(product, repeat=2, folder=tmp_path / "here", **AXES)
    with cluster.client() as client:
        there = lab.sweep(product, repeat=2, folder=tmp_path / "there", client=client, **AXES)
    assert here.complete
    assert there.complete, there
    assert len(here) == 24
    assert essence(there) == essence(here)
    # By the scheduler's address, and nothing is left to do.
    assert lab.sweep(product, repeat=2, folder=tmp_path / "there", client=cluster.address, **AXES).complete


@pytest.mark.parametrize("result", [Outcome(kind="value"), b"of a crash's states"])
def test_a_worker_that_is_lost_as_its_result_comes_is_lost(result: object) -> None:
    """Dask asks its future twice: for the result, and then whether there is one."""

    class Lost:
        status = "lost"

        async def _result(self, *, raiseit: bool) -> object:  # noqa: ARG002  # Dask's name
            return result

    async def come() -> concurrent.futures.Future[Outcome]:
        ours: concurrent.futures.Future[Outcome] = concurrent.futures.Future()
        await cfexecutor._cascade_future(Lost(), ours)
        return ours

    assert place.outcome_of(asyncio.run(come())).kind == "lost"


@pytest.mark.timeout(600)
def test_workers_killed_at_random_lose_nothing(cluster: Cluster, tmp_path: Path) -> None:
    seen = str(tmp_path / "seen")
    Path(seen).mkdir()

    def slow(a: int, b: int) -> int:
        (Path(seen) / f"{time.monotonic_ns()}").touch()
        time.sleep(0.3)
        return a * b

    killed: list[int] = []
    with cluster.client() as client:
        pids = client.run(os.getpid)

        def kill() -> None:
            rng = random.Random(5)
            while len(killed) < 5:
                before = len(list(Path(seen).iterdir()))
                time.sleep(0.4)
                if len(list(Path(seen).iterdir())) == before:
                    continue  # only while trials run
                with contextlib.suppress(Exception):
                    current = client.run(os.getpid, on_error="ignore")
                    target = rng.choice(sorted(set(current.values())))
                    os.kill(target, signal.SIGKILL)
                    killed.append(target)

        killer = threading.Thread(target=kill, daemon=True)
        killer.start()
        made = lab.sweep(slow, repeat=4, retries=10, folder=tmp_path / "s", client=client, **AXES)
        killer.join(timeout=60)
    assert set(killed) & set(pids.values())
    assert len(killed) == 5
    assert made.complete, made
    table = made.table()
    assert Counter((row["a"], row["b"]) for row in table) == {(a, b): 4 for a in AXES["a"] for b in AXES["b"]}
    assert len(set(table["key"])) == len(table) == 48
    assert all(row["value"] == row["a"] * row["b"] for row in table)  # type: ignore[operator]
    outcomes, _ = store.read_journal(tmp_path / "s")
    assert set(Counter(one["key"] for one in outcomes if one["type"] == "done").values()) == {1}
    assert len(list(Path(seen).iterdir())) > 48, "some were begun a second time"
    lost = [row for row in table if "lost: the worker tcp://127.0.0." in str(row["retried"])]
    assert lost
    assert all(int(str(row["attempts"])) > 1 for row in lost)


@pytest.mark.timeout(600)
def test_a_scheduler_that_is_lost_costs_what_ran(cluster: Cluster, tmp_path: Path) -> None:
    counts = str(tmp_path / "counts")
    Path(counts).mkdir()

    def waits(a: int, b: int) -> int:
        if a > 2:
            while not (Path(counts) / "go").exists():
                time.sleep(0.05)
        with (Path(counts) / f"{a} {b}").open("a") as file:
            file.write("x")
        return a * b

    def restart() -> None:
        while len(list(Path(counts).iterdir())) < 2:
            time.sleep(0.05)
        time.sleep(1)
        cluster.restart()

    restarter = threading.Thread(target=restart)
    restarter.start()
    with cluster.client() as client:
        first = lab.sweep(waits, folder=tmp_path / "s", client=client, **AXES)
    restarter.join()
    assert not first.complete
    assert first.lost
    assert set(first.missing()["kind"]) <= {"not run", "lost"}
    done = set(first.table()["key"])
    before = {path.name for path in Path(counts).iterdir()}
    assert len(done) >= 1
    (Path(counts) / "go").touch()
    with cluster.client() as client:
        second = lab.sweep(waits, folder=tmp_path / "s", client=client, **AXES)
    assert second.complete, second
    assert {row["key"] for row in second.table()} >= done
    again = {(row["a"], row["b"]) for row in second.table() if row["key"] in done}
    assert all((Path(counts) / f"{a} {b}").stat().st_size == 1 for a, b in again)
    assert before


@pytest.mark.timeout(600)
def test_stopping_reaches_the_workers(cluster: Cluster, tmp_path: Path) -> None:
    """What Ctrl-C does: the trials that run on the workers end at once."""
    from sampleblk_lab.sweeps import running

    pids = tmp_path / "pids"
    pids.mkdir()

    def endless(a: int) -> int:
        (pids / str(os.getpid())).touch()
        time.sleep(600)
        return a

    @contextlib.contextmanager
    def pressed() -> Iterator[Any]:
        yield lambda: int(len(list(pids.iterdir())) >= 3)

    with cluster.client() as client, pytest.MonkeyPatch.context() as patch:
        patch.setattr(running, "counted_ctrl_c", pressed)
        made = lab.sweep(endless, a=[*range(9)], folder=tmp_path / "s", client=client)
    assert made.interrupted
    end = time.monotonic() + 30
    while any(Path(f"/proc/{path.name}").exists() for path in pids.iterdir()) and time.monotonic() < end:
        time.sleep(0.05)
    assert not [path for path in pids.iterdir() if Path(f"/proc/{path.name}").exists()]
    assert set(made.missing()["kind"]) == {"not run"}


def overlapping(rows: list[Any]) -> set[tuple[str, str]]:
    return {
        (one["key"], other["key"])
        for one in rows
        for other in rows
        if one["key"] < other["key"] and one["started_ns"] < other["ended_ns"] and other["started_ns"] < one["ended_ns"]
    }


@pytest.mark.timeout(600)
def test_exclusive_trials_have_their_host_to_themselves(cluster: Cluster, tmp_path: Path) -> None:
    """Three workers that are one host, as their rows say."""

    def rests(a: int, b: int) -> int:
        time.sleep(0.2)
        return a * b

    with cluster.client() as client:
        mixed = lab.sweep(rests, exclusive=lambda a: a == 1, folder=tmp_path / "s", client=client, **AXES)
        alone = lab.sweep(rests, exclusive=True, a=[1, 2], b=[1, 2], folder=tmp_path / "t", client=client)
    assert mixed.complete, mixed
    rows = list(mixed.table().rows())
    assert len({row["host"] for row in rows}) == 1
    exclusive = {str(row["key"]) for row in rows if row["exclusive"]}
    assert len(exclusive) == 3
    pairs = overlapping(rows)
    assert not [pair for pair in pairs if exclusive & set(pair)]
    assert pairs, "the others are not packed"
    assert alone.complete, alone
    assert overlapping(list(alone.table().rows())) == set()


@pytest.mark.timeout(600)
def test_exclusive_trials_go_to_workers_that_are_for_them(cluster: Cluster, tmp_path: Path) -> None:
    """One of four workers has the resource, and more threads than it may use for these."""

    def who(a: int, b: int) -> dict[str, int]:
        time.sleep(0.1)
        return {"product": a * b, "worker": os.getppid()}  # the launcher, of which each worker has its own

    extra = cluster._start(
        *("dask_worker", cluster.address, "--nthreads", "4", "--no-dashboard", "--no-nanny"),
        *("--resources", "sampleblk-host=1", "--death-timeout", "120"),
    )
    try:
        with cluster.client() as client:
            client.wait_for_workers(4, timeout=120)
            made = lab.sweep(who, exclusive=lambda a: a < 3, repeat=2, folder=tmp_path / "s", client=client, **AXES)
    finally:
        extra.terminate()
        extra.wait(timeout=60)
    assert made.complete, made
    rows = list(made.table().rows())
    exclusive = [row for row in rows if row["exclusive"]]
    assert len(exclusive) == 12
    assert len({row["worker"] for row in exclusive}) == 1
    assert len({row["worker"] for row in rows}) > 1
    keys = {str(row["key"]) for row in exclusive}
    assert not [pair for pair in overlapping(rows) if keys & set(pair)]


@pytest.mark.timeout(600)
def test_files_come_back_from_workers(cluster: Cluster, tmp_path: Path) -> None:
    def leaves(a: int, b: int, directory: Path) -> str:
        (directory / "deep").mkdir()
        (directory / "deep" / "data.bin").write_bytes(bytes([a, b]) * 100_000)
        return str(directory)

    with cluster.client() as client:
        made = lab.sweep(leaves, folder=tmp_path / "s", client=client, **AXES)
    assert made.complete, made
    found = list(made.artefacts().rows())
    assert len(found) == 12
    for row in found:
        assert row["path"] == f"trials/{row['key']}/deep/data.bin"
        assert (tmp_path / "s" / str(row["path"])).read_bytes() == bytes([row["a"], row["b"]]) * 100_000  # type: ignore[list-item]
    assert not [where for where in made.table()["value"] if Path(str(where)).exists()]


def test_an_address_without_a_scheduler_is_named(tmp_path: Path) -> None:
    import dask

    with dask.config.set({"distributed.comm.timeouts.connect": "2s"}):
        with pytest.raises(lab.InputError, match=r"no scheduler at 'tcp://127\.0\.0\.1:9'"):
            lab.sweep(product, folder=tmp_path / "s", client="tcp://127.0.0.1:9", **AXES)
        with pytest.raises(lab.InputError, match="no scheduler at 'nonsense://x'"):
            lab.sweep(product, folder=tmp_path / "s", client="nonsense://x", **AXES)
