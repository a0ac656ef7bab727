# SPDX-License-Identifier: MIT
"""What a view is asked for and cannot have: an error that says what there is, not an empty table or all of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import sampleblk_lab as lab
from sampleblk_lab import checked

DATA = Path(__file__).parents[1] / "data/trace"
EVENT = "sched:sched_switch"


@pytest.fixture(scope="module")
def run() -> lab.Run:
    return lab.open_run(DATA / "6.1-switch.dat")


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> lab.Result:
    file = tmp_path_factory.mktemp("job") / "file"
    return lab.Job(name="job", rw="rw", bs="4k", size="256k", filename=file).run(progress=False)


@pytest.mark.parametrize("nobody", [[], (), set(), iter([])])
def test_nobody_is_not_everybody(run: lab.Run, nobody: Any) -> None:
    views: list[Callable[..., object]] = [run.syscalls, run.offsets, run.io_sizes, run.graph, lab.record, lab.profile]
    for view in [*views, lambda pids: run.events(EVENT, pids=pids), lambda pids: run.tables(pids=pids)]:
        with pytest.raises(lab.InputError, match=r"^pids=.*nobody \(expected an id, a JobRun"):
            view(pids=nobody)


def test_neither_is_a_job_that_had_no_task(run: lab.Run) -> None:
    class Gone:
        pids: tuple[int, ...] = ()

    with pytest.raises(lab.InputError, match=r"^pids=Gone without a task, nobody"):
        run.syscalls(pids=Gone())  # type: ignore[arg-type]


@pytest.mark.parametrize("number", [-1, 1 << 31])
def test_an_id_is_one_of_a_task(run: lab.Run, number: int) -> None:
    with pytest.raises(lab.InputError, match=f"^pids={number} "):
        run.events(EVENT, pids=[number])


@pytest.mark.parametrize("cpus", [[], [-1], [1 << 16], ["0"], [True], [0.5], [None], 3])
def test_cpus_are_numbers_and_not_none_of_them(run: lab.Run, cpus: Any) -> None:
    for view in (run.counts, run.tables, run.graph, lambda cpus: run.events(EVENT, cpus=cpus)):
        with pytest.raises(lab.InputError, match=r"^cpus=.*expected a list of CPUs' numbers"):
            view(cpus=cpus)


@pytest.mark.parametrize("time", [-1, 1 << 64, 1.5e9, "now", True])
def test_a_time_is_a_whole_number_of_ns(run: lab.Run, time: Any) -> None:
    profile = lab.open_profile(DATA.parent / "profile/6.1-ours.data", use_paths=False)
    for view in (run.counts, run.tables, run.syscalls, run.graph, profile.samples, profile.stacks):
        for name in ("start", "stop"):
            with pytest.raises(
                lab.InputError, match=rf"^{name}=.* \(expected a whole number from 0 to 18446744073709551615"
            ):
                view(**{name: time})


@pytest.mark.parametrize("name", [["sched_switch"], b"sched_switch", 5])
def test_a_name_is_text(run: lab.Run, name: Any) -> None:
    for view in (run.events, run.tables, run.batches):
        with pytest.raises(lab.InputError, match=r"^event=.* \(expected a name"):
            view(name)
    for view in (run.counts, run.tables, run.syscalls, run.graph):
        with pytest.raises(lab.InputError, match=r"^buffer=.* \(expected a name"):
            view(buffer=name)


def test_a_sample_is_one_of_those_that_there_are() -> None:
    profile = lab.open_profile(DATA.parent / "profile/6.1-ours.data", use_paths=False)
    assert profile.stack(len(profile) - 1)
    for sample in (-1, len(profile)):
        with pytest.raises(IndexError):
            profile.stack(sample)


@pytest.mark.parametrize("most", [-1, 1.5, "2", True])
def test_how_many_are_shown_is_a_whole_number(most: Any) -> None:
    """Of which -1 left out the last."""
    recorded = lab.open_run(DATA / "6.1-io.dat")
    views: dict[str, Callable[[], object]] = {
        "most": lambda: lab.plot.block_life(recorded.block(), most=most),
        "limit": lambda: recorded.syscalls().lines(limit=most),
        "calls": lambda: lab.open_run(DATA / "6.1-graph.dat").graph().text(calls=most),
    }
    for name, view in views.items():
        with pytest.raises(lab.InputError, match=rf"^{name}={most!r} \(expected a whole number from [01] "):
            view()


def test_what_selects_samples_is_a_name_or_yes_or_no() -> None:
    profile = lab.open_profile(DATA.parent / "profile/6.1-ours.data", use_paths=False)
    for wrong in ({"comm": 5}, {"event": b"cpu-clock"}, {"idle": "no"}, {"children": 2}):
        with pytest.raises(lab.InputError, match=r"\(expected (a name|True or False)\)"):
            profile.samples(**wrong)


def test_events_of_a_process_are_those_of_each_way_to_name_it(run: lab.Run) -> None:
    pids = sorted(set(run.events(EVENT)["common_pid"].values.tolist()))
    each = [len(run.events(EVENT, pids=pid)) for pid in pids]
    assert all(each)
    assert sum(each) == len(run.events(EVENT, pids=pids)) == len(run.events(EVENT))


def test_a_field_is_one_of_the_events(run: lab.Run) -> None:
    with pytest.raises(lab.InputError, match=r"no field 'next' of sched:sched_switch .*next_comm, next_pid"):
        run.events(EVENT, fields=["next_pid", "next"])
    with pytest.raises(lab.InputError, match="no field 'next'"):
        list(run.batches(EVENT, fields=["next"]))
    # One of several events has it; and what a glob means is different in each file.
    calls = lab.open_run(DATA / "6.1-syscalls.dat")
    assert calls.tables("syscalls:sys_enter_mmap", "syscalls:sys_exit_mmap", fields=["len", "ret"])
    assert run.tables("sched:*", fields=["next"])
    assert run.events(EVENT, fields=["time", "cpu"]).columns == ["time", "cpu"]
    assert run.events(EVENT, fields="next_pid").columns == ["time", "cpu", "next_pid"]  # one name is as good
    with pytest.raises(lab.InputError, match=r"fields=\[5\] .*a name, or several"):
        run.events(EVENT, fields=[5])


def test_unknown_words_are_told_beside_the_known_ones(run: lab.Run) -> None:
    for view in (run.counts, run.tables, run.graph, run.syscalls, run.block, run.offsets):
        with pytest.raises(TypeError, match=r"no selection by begin; there are buffer, .*start, stop"):
            view(begin=1)


def test_a_queue_s_depth_is_of_a_device_that_was_used() -> None:
    run = lab.open_run(DATA / "6.1-io.dat")
    block = run.block()
    devices = sorted(set(block.table()["device"].values.tolist()))
    assert len(block.queue_depth(devices[0]))
    with pytest.raises(lab.InputError, match=f"device='sampleblk1' .expected .*'{devices[0]}'"):
        block.queue_depth("sampleblk1")


@pytest.mark.parametrize("percents", [[150], [-1], [float("nan")], [50, 101]])
def test_percentiles_are_of_a_hundred(result: lab.Result, percents: list[float]) -> None:
    for measured in (result, lab.FioResult(result.json(bins=True), "")):
        with pytest.raises(lab.InputError, match=r"^percents=.*expected percent, from 0 to 100"):
            measured.percentiles(percents)
        assert len(measured.percentiles([0, 50, 100])) == 3


def test_directions_and_kinds_are_those_there_are(result: lab.Result) -> None:
    for call, said in (
        (lambda: result.percentiles([50], direction="wrte"), "direction='wrte'"),
        (lambda: result.percentiles([50], kind="clt"), "kind='clt'"),
        (lambda: result.heatmap("wrte"), "direction='wrte'"),
        (lambda: result.heatmap("write", bins=0), "bins=0"),
        (lambda: lab.plot.latency_heatmap(result, "wrte"), "direction='wrte'"),
    ):
        with pytest.raises(lab.InputError, match=f"^{said} "):
            call()


@pytest.mark.parametrize("value", [0, -1, 1 << 30, 1.5, "1", True, None])
def test_counts_are_whole_and_above_nothing(value: Any) -> None:
    with pytest.raises(lab.InputError, match=r"^rows=.*a whole number from 1 to"):
        checked.count("rows", value)
    assert checked.count("rows", 7) == 7
