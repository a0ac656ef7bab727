# SPDX-License-Identifier: MIT
"""Recordings with some of their bytes changed, through every view and export: an answer, or an error of ours.

The readers and the core's views are fuzzed by libFuzzer (cpp/fuzz); this is for what Python makes of them.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import sampleblk_lab as lab

DATA = Path(__file__).parents[1] / "data"
# SAMPLEBLK_MUTATIONS=100 for a longer search. 5: durations that add up to more than 64 bits.
SEEDS = range(int(os.environ["SAMPLEBLK_MUTATIONS"])) if "SAMPLEBLK_MUTATIONS" in os.environ else (0, 1, 5)


def mutated(data: bytes, seed: int) -> bytes:
    chance = random.Random(seed)
    out = bytearray(data)
    # Mostly behind the header, where the events are.
    first = len(out) // 2 if seed % 4 else 0
    for _ in range(chance.choice((1, 4, 32))):
        at = chance.randrange(first, len(out))
        kind = chance.randrange(4)
        if kind == 0:
            out[at] = chance.randrange(256)
        elif kind == 1:
            out[at : at + 4] = chance.choice((b"\xff\xff\xff\xff", bytes(4), b"\x80\0\0\0", b"\xff\xff\xff\x7f"))
        elif kind == 2:
            out[at] ^= 1 << chance.randrange(8)
        else:
            other = chance.randrange(first, len(out))
            out[at : at + 16] = out[other : other + 16]
    if seed % 7 == 0:
        del out[chance.randrange(first, len(out)) :]
    return bytes(out)


def answers(work: Callable[[], Any]) -> Any:
    """Its answer; None for an error of ours. Whatever else it raises is a finding."""
    try:
        return work()
    except (lab.FormatError, lab.UnsupportedError, lab.InputError):
        return None


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("errors", ["strict", "skip"])
@pytest.mark.parametrize("path", sorted((DATA / "trace").glob("*.dat")), ids=lambda path: path.stem)
def test_a_trace_dat(path, errors, seed, tmp_path):
    file = tmp_path / "trace.dat"
    file.write_bytes(mutated(path.read_bytes(), seed))
    run = answers(lambda: lab.open_run(file, errors=errors))
    if run is None or (counts := answers(run.counts)) is None:
        return
    assert counts["count"].codes.sum() >= 0
    for event in [str(row["event"]) for row in counts][:6]:
        answers(lambda event=event: list(run.events(event, symbols=True, comm=True)))
        answers(lambda event=event: run.export_csv(event, tmp_path / "x.csv"))
    answers(lambda: run.syscalls().summary().text())
    answers(lambda: list(run.syscalls().lines()))
    answers(lambda: run.io_sizes().text())
    answers(lambda: run.offsets().text())
    answers(lambda: run.offsets().sequential())
    answers(lambda: run.block().latency())
    answers(lambda: run.block().queue_depth())
    if (calls := answers(lambda: run.syscalls().table())) is not None and "write" in list(calls["syscall"]):
        answers(lambda: run.follow_through("write").text())
    if (graph := answers(run.graph)) is not None:
        answers(graph.text)
        answers(graph.folded)
        answers(graph._repr_html_)
        for by in ("function", "path", "module"):
            answers(lambda by=by, graph=graph: graph.aggregate(by=by, fold_modules=True))
    answers(lambda: run.export_chrome(tmp_path / "x.json"))
    answers(lambda: run.export_perfetto(tmp_path / "x.pftrace"))
    answers(lambda: run.export_trace_dat(tmp_path / "copy.dat", prune=True))
    answers(lambda: lab.open_profile(file, errors=errors, use_paths=False).off_cpu().folded())


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("on_error", ["strict", "skip"])
@pytest.mark.parametrize("path", sorted((DATA / "profile").glob("*.data")), ids=lambda path: path.stem)
def test_a_perf_data(path, on_error, seed, tmp_path):
    file = tmp_path / "perf.data"
    file.write_bytes(mutated(path.read_bytes(), seed))
    profile = answers(lambda: lab.open_profile(file, errors=on_error, use_paths=False, kallsyms=os.devnull))
    if profile is None:
        return
    for event in profile.event_names[:3]:
        answers(lambda event=event: profile.report(event=event).text())
        answers(lambda event=event: list(profile.samples(event=event)))
        answers(lambda event=event: profile.tree(event=event))
        answers(lambda event=event: profile.heatmap(event=event, rows=10).svg())
        answers(lambda event=event: profile.export_perfetto(tmp_path / "x.pftrace", event=event))
        answers(lambda event=event: profile.flamegraph(event=event))
        if (stacks := answers(lambda event=event: profile.stacks(event=event))) is not None:
            answers(lambda stacks=stacks: stacks.export_speedscope(tmp_path / "x.json"))
            answers(lambda stacks=stacks: stacks.export_pprof(tmp_path / "x.pb.gz"))
    answers(profile.syscalls)
    answers(profile.locks)
    answers(profile.waits)
    answers(lambda: profile.wall_clock().folded())


TEXTS = [*sorted((DATA / "lktm").glob("*.log")), *sorted((DATA / "funcgraph").glob("*.txt"))]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("errors", ["strict", "skip"])
@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.stem)
def test_a_text(path, errors, seed, tmp_path):
    file = tmp_path / "text"
    read = lab.read_strace if path.stem.startswith("strace") else lab.read_funcgraph
    file.write_bytes(mutated(path.read_bytes()[:100_000], seed))
    found = answers(lambda: read(file, errors=errors))
    if found is None:
        return
    answers(lambda: list(found.table()))
    if isinstance(found, lab.analysis.graph.Graph):
        answers(found.text)
        answers(found.folded)
        answers(found.aggregate)
    else:
        answers(lambda: found.summary().text())
