# SPDX-License-Identifier: MIT
"""Exports: what speedscope, pprof and Perfetto would read, read back by their formats' own descriptions."""

from __future__ import annotations

import gzip
import json
import subprocess
from collections import Counter
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from programs import DEEP, compiled

import sampleblk_lab as lab
from support import protobuf_fields

if TYPE_CHECKING:
    from pathlib import Path

FOLDED = """\
fio;main;write;ksys_write_[k] 300
fio;main;write;ksys_write_[k];copy_page_[k] 200
fio;main 7
we"ird\\;a<b> 3
swapper;cpu_idle_[k] 250
"""


@pytest.fixture
def stacks(tmp_path) -> lab.Stacks:
    path = tmp_path / "x.folded"
    path.write_text(FOLDED)
    return lab.read_folded(path)


def expected(folded: str) -> Counter[tuple[str, ...]]:
    """Stacks from a thread's name on -> weight."""
    out: Counter[tuple[str, ...]] = Counter()
    for line in folded.splitlines():
        stack, _, weight = line.rpartition(" ")
        out[tuple(stack.split(";"))] += int(weight)
    return out


def packed(data: bytes) -> list[int]:
    """A packed repeated number: as the values of a message without tags."""
    out, value, shift = [], 0, 0
    for byte in data:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            out.append(value)
            value = shift = 0
    return out


def read_pprof(path: Path) -> tuple[Counter[tuple[str, ...]], list[tuple[str, str]], dict[str, str]]:
    """profile.proto: stacks below their threads, the types of the values, and functions' mappings."""
    samples, functions, locations, mappings, strings, types = [], {}, {}, {}, [], []
    for tag, value in protobuf_fields(gzip.decompress(path.read_bytes())):
        assert isinstance(value, bytes)
        if tag == 6:
            strings.append(value.decode())
        elif tag == 2:
            samples.append(list(protobuf_fields(value)))
        elif tag == 1:
            types.append(dict(protobuf_fields(value)))
        else:
            one = dict(protobuf_fields(value))
            {3: mappings, 4: locations, 5: functions}[tag][one[1]] = one
    assert strings[0] == ""
    assert 0 not in locations | functions | mappings
    out: Counter[tuple[str, ...]] = Counter()
    homes = {}
    for sample in samples:
        parts = dict(sample)
        label = dict(protobuf_fields(parts[3]))
        assert strings[label[1]] == "thread"
        names = []
        for number in packed(parts[1]):
            location = locations[number]
            function = functions[dict(protobuf_fields(location[4]))[1]]
            names.append(strings[function[2]])
            if 2 in location:
                homes[names[-1]] = strings[mappings[location[2]][5]]
        out[(strings[label[2]], *reversed(names))] += parts[2]
    return out, [(strings[one[1]], strings[one[2]]) for one in types], homes


def test_speedscope_has_every_stack(stacks, tmp_path):
    stacks.export_speedscope(tmp_path / "x.speedscope.json")
    file = json.loads((tmp_path / "x.speedscope.json").read_text())
    assert file["$schema"] == "https://www.speedscope.app/file-format-schema.json"
    names = [frame["name"] for frame in file["shared"]["frames"]]
    got: Counter[tuple[str, ...]] = Counter()
    for profile in file["profiles"]:
        assert profile["type"] == "sampled"
        assert profile["unit"] == "none"
        assert (profile["startValue"], profile["endValue"]) == (0, sum(profile["weights"]))
        for stack, weight in zip(profile["samples"], profile["weights"], strict=True):
            got[(profile["name"], *(names[frame] for frame in stack))] += weight
    assert got == expected(stacks.folded())
    assert sum(got.values()) == stacks.total


def test_pprof_has_every_stack(stacks, tmp_path):
    stacks.export_pprof(tmp_path / "x.pb.gz")
    got, types, _ = read_pprof(tmp_path / "x.pb.gz")
    assert got == expected(stacks.folded())
    assert types == [("samples", "count")]


@pytest.fixture(scope="module")
def profile(tmp_path_factory) -> lab.Profile:
    folder = tmp_path_factory.mktemp("exports")
    program = compiled(folder, DEEP)
    with lab.profile(hz=999, event="cpu-clock", pids=None, kernel=True) as profiler:
        subprocess.run([str(program), "0.3"], check=True)
    return profiler.save(folder / "run")


@pytest.mark.skipif("__import__('os').geteuid() != 0", reason="samples all CPUs")
def test_a_recordings_functions_have_their_files(profile, tmp_path):
    stacks = profile.stacks()
    stacks.export_pprof(tmp_path / "x.pb.gz")
    got, _, homes = read_pprof(tmp_path / "x.pb.gz")
    assert sum(got.values()) == stacks.total == len(profile)
    assert homes["spin_inline"].endswith("/deep")
    stacks.export_speedscope(tmp_path / "x.json")
    frames = json.loads((tmp_path / "x.json").read_text())["shared"]["frames"]
    assert any(frame["name"] == "leaf" and frame["file"].endswith("/deep") for frame in frames)


@pytest.mark.skipif("__import__('os').geteuid() != 0", reason="samples all CPUs")
def test_perfetto_has_every_sample_with_its_stack(profile, tmp_path):
    profile.export_perfetto(tmp_path / "x.pftrace")
    names, paths, mappings, frames, callstacks, threads, samples = {}, {}, {}, {}, {}, {}, []
    for tag, packet in protobuf_fields((tmp_path / "x.pftrace").read_bytes()):
        assert tag == 1
        parts = dict(protobuf_fields(packet))
        assert parts[10] == 2
        assert parts[13] == (2 if samples or threads else 3)  # the first clears the state
        if 12 in parts:
            for table, message in protobuf_fields(parts[12]):
                one = list(protobuf_fields(message))
                number = one[0][1]
                target = {5: names, 17: paths, 19: mappings, 6: frames, 7: callstacks}[table]
                assert number not in target
                target[number] = [value for tag, value in one if tag == 2] if table == 7 else dict(one)
        if 60 in parts:
            thread = dict(protobuf_fields(dict(protobuf_fields(parts[60]))[4]))
            threads[thread[2]] = thread[5].decode()
        if 66 in parts:
            sample = dict(protobuf_fields(parts[66]))
            stack = [names[frames[frame][2]][2].decode() for frame in callstacks[sample[4]]]
            samples.append((parts[8], sample[1], sample[2], sample[3], stack))
    table = profile.samples()
    times, cpus, *ids = (table[name].codes.tolist() for name in ("time", "cpu", "pid", "tid"))
    # Of a task that is ending the kernel has no ids any more, which are -1.
    pids, tids = ([each & 0xFFFFFFFF for each in column] for column in ids)
    assert [sample[:4] for sample in samples] == list(zip(times, cpus, pids, tids, strict=True))
    assert [sample[4] for sample in samples] == [profile.stack(i) for i in range(len(profile))]
    assert "deep" in threads.values()
    home = paths[mappings[next(f[3] for f in frames.values() if names[f[2]][2] == b"leaf")][7]][2]
    assert home.endswith(b"/deep")


def test_saved_symbols_stay_below_their_directory(tmp_path):
    library = tmp_path / "lib.so"
    library.write_bytes(b"ELF")
    build_id = "ab" * 20
    native = SimpleNamespace(symbol_files={"/../../outside/lib.so": (build_id, str(library))})
    target = tmp_path / "run/symbols"
    lab.Profile(native).save_symbols(target)
    assert {path.name for path in tmp_path.iterdir()} == {"lib.so", "run"}
    assert (target / ".build-id" / build_id[:2] / build_id[2:] / "elf").read_bytes() == b"ELF"
