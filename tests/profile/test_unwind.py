# SPDX-License-Identifier: MIT
"""User stacks by DWARF, and inlined functions: of perf's recordings and of ours, against perf's own unwinding."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest
from programs import DEEP, compiled

import sampleblk_lab as lab

perf = pytest.mark.skipif(shutil.which("perf") is None, reason="needs perf: apt-get install linux-perf")
root = pytest.mark.skipif(os.geteuid() != 0, reason="needs to sample kernel code")
WAY = ["main", "outer", "middle", "leaf"]


@pytest.fixture(scope="module")
def program(tmp_path_factory) -> Path:
    return compiled(tmp_path_factory.mktemp("program"), DEEP)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory, program) -> Path:
    """What `perf record --call-graph dwarf` writes of it."""
    path = tmp_path_factory.mktemp("perf") / "perf.data"
    command = ["perf", "record", "-qN", "-e", "cpu-clock", "-F", "999", "--call-graph", "dwarf,8192", "-o", str(path)]
    subprocess.run([*command, "--", str(program), "0.4"], check=True)
    return path


def perf_stacks(path: Path) -> Counter[tuple[str, ...]]:
    """The stacks, outermost first, as `perf script` unwinds them; frames without a name are None."""
    text = subprocess.run(
        ["perf", "script", "-i", str(path), "--no-inline", "-F", "comm,ip,sym"],
        capture_output=True,
        check=True,
        stdin=subprocess.DEVNULL,
        text=True,
    ).stdout
    out: Counter[tuple[str, ...]] = Counter()
    for block in text.split("\n\n"):
        frames = re.findall(r"^\s+[0-9a-f]+ (.+)$", block, re.M)
        if frames:
            out[tuple(reversed(frames))] += 1
    return out


def our_stacks(profile: lab.Profile) -> Counter[tuple[str, ...]]:
    named = (profile.stack(i) for i in range(len(profile)))
    return Counter(tuple("[unknown]" if name.startswith("[") else name for name in stack) for stack in named)


def share_with(profile: lab.Profile, way: list[str]) -> float:
    """Of all samples, those whose stack has the functions of `way` one below the other."""
    hits = 0
    for i in range(len(profile)):
        text = ";".join(profile.stack(i))
        hits += ";".join(way) in text
    return hits / len(profile)


@perf
def test_stacks_are_those_that_perf_unwinds(recorded):
    profile = lab.open_profile(recorded, inlines=False)
    ours, theirs = our_stacks(profile), perf_stacks(recorded)
    assert sum(ours.values()) == sum(theirs.values()) > 100
    same = sum((ours & theirs).values())
    assert same >= 0.98 * len(profile), (ours - theirs, theirs - ours)
    assert share_with(profile, WAY) > 0.9
    assert int(profile.metadata["unwound"]) == len(profile)
    # A sample may fall on the dynamic linker before it has mapped what it runs; perf has no way out of it either.
    assert int(profile.metadata["unwound_to_unknown_code"]) <= 0.01 * len(profile)


@perf
def test_inlined_functions_have_frames_of_their_own(recorded):
    profile = lab.open_profile(recorded)
    inside = profile.stacks().functions().row("spin_inline")
    assert float(inside["total_percent"]) > 5
    assert share_with(profile, [*WAY, "spin_inline"]) > 0.05
    # its time is leaf's own in the report, as in perf's
    rows = {str(row["symbol"]): row for row in profile.report().rows()}
    assert rows["spin_inline"]["self"] == 0
    plain = {str(row["symbol"]): row for row in lab.open_profile(recorded, inlines=False).report().rows()}
    assert rows["leaf"]["self"] == plain["leaf"]["self"]
    assert "spin_inline" not in plain


RETURNING = r"""
static volatile unsigned long sink;
__attribute__((noinline)) void spin(void) { for (unsigned long i = 0; i < 100000; i++) sink += i; }
__attribute__((noinline)) void called(void) { spin(); sink++; }
static inline __attribute__((always_inline)) void inlined(void) { sink++; called(); }
static inline __attribute__((always_inline)) void after(void) { sink += 3; sink ^= 1; }
__attribute__((noinline)) void holder(void) { inlined(); after(); spin(); sink++; }
int main(void) { for (int i = 0; i < 1000; i++) holder(); return 0; }
"""


@perf
@pytest.mark.parametrize("way", ["fp", "dwarf,1024"])
def test_a_call_is_in_the_function_that_it_was_inlined_from_not_in_what_it_returns_to(tmp_path, way):
    program = compiled(tmp_path, RETURNING, "-fno-omit-frame-pointer")
    path = tmp_path / "perf.data"
    command = ["perf", "record", "-qN", "-e", "cpu-clock:u", "-F", "999", "--call-graph", way, "-o", str(path)]
    subprocess.run([*command, "--", str(program)], check=True)
    profile = lab.open_profile(path)
    # A leaf has no frame, so its caller is the one that is missing by frame pointers.
    assert 0.2 < share_with(profile, ["holder", "inlined"]) < 0.8
    assert share_with(profile, ["after", "spin"]) == share_with(profile, ["after", "called"]) == 0


NEVER_BACK = r"""
#include <stdlib.h>
static volatile unsigned long sink;
__attribute__((noinline)) void spin(void) { for (unsigned long i = 0; i < 100000; i++) sink += i; }
__attribute__((noinline)) void called(void) { spin(); sink++; }
__attribute__((noinline, noreturn)) void endless(int n) { for (;;) { called(); if (n-- == 0) exit(0); } }
__attribute__((noinline)) void holder(int n) { endless(n); }
__attribute__((noinline)) void behind(void) { sink++; }
int main(int argc, char **argv) { if (argc > 2) behind(); holder(1000); return 0; }
"""


@perf
@pytest.mark.parametrize("behind", ["-falign-functions=16", "-fno-align-functions"])
def test_a_call_that_does_not_come_back_is_in_the_function_that_it_ends(tmp_path, behind):
    program = compiled(tmp_path, NEVER_BACK, "-fno-omit-frame-pointer", behind)
    path = tmp_path / "perf.data"
    command = ["perf", "record", "-qN", "-e", "cpu-clock:u", "-F", "999", "-g", "-o", str(path)]
    subprocess.run([*command, "--", str(program)], check=True)
    assert share_with(lab.open_profile(path), ["main", "holder", "endless"]) > 0.8


LOCAL = r"""
static volatile unsigned long sink;
static inline __attribute__((always_inline)) void inlined(unsigned long n) { while (n-- > 0) sink += n; }
__attribute__((noinline)) void holder(unsigned long n)
{
    {
        __attribute__((noinline)) void local(unsigned long k) { inlined(k); sink += n; }
        local(n);
        sink++;
    }
}
int main(void) { for (int i = 0; i < 1000; i++) holder(100000); return 0; }
"""


@perf
def test_what_is_inlined_into_a_function_that_is_local_to_another_has_a_frame(tmp_path):
    program = compiled(tmp_path, LOCAL)
    path = tmp_path / "perf.data"
    command = ["perf", "record", "-qN", "-e", "cpu-clock:u", "-F", "999", "-g", "-o", str(path)]
    subprocess.run([*command, "--", str(program)], check=True)
    assert share_with(lab.open_profile(path), ["local.0", "inlined"]) > 0.9


@perf
def test_stacks_of_another_kind_of_machine_are_not_unwound_by_this_ones_registers(tmp_path, recorded):
    path = tmp_path / "perf.data"
    path.write_bytes(recorded.read_bytes().replace(b"x86_64\0\0", b"aarch64\0"))
    profile = lab.open_profile(path)
    assert profile.metadata["not_unwound"] == str(len(profile))
    assert "unwound" not in profile.metadata
    assert "not_unwound" in profile.flamegraph().svg


@perf
def test_a_short_copy_is_said(tmp_path, program):
    path = tmp_path / "perf.data"
    command = ["perf", "record", "-qN", "-e", "cpu-clock", "-F", "999", "--call-graph", "dwarf,128", "-o", str(path)]
    subprocess.run([*command, "--", str(program), "0.2"], check=True)
    profile = lab.open_profile(path)
    assert int(profile.metadata["unwound_to_the_end_of_the_copy"]) > 0.5 * len(profile)
    assert "unwound_to_the_end_of_the_copy" in profile.flamegraph().svg
    assert share_with(profile, WAY) < 0.1


@root
def test_our_own_recording_unwinds_from_what_was_saved(tmp_path, program):
    child = subprocess.Popen([str(program), "0.5"])
    with lab.profile(hz=999, event="cpu-clock", pids=child.pid, callgraph="dwarf") as profiler:
        child.wait()
    (tmp_path / "run/symbols/of").mkdir(parents=True)
    for name in ("perf.data", "kallsyms", "symbols/of/another"):
        (tmp_path / "run" / name).write_text("another's")
    again = profiler.save(tmp_path / "run")
    assert not (tmp_path / "run/symbols/of").exists()
    assert not (names := tmp_path / "run/kallsyms").exists() or names.read_text() != "another's"
    assert len(profiler.save(again.path.parent)) == len(again)
    if shutil.which("perf") is not None:
        here = our_stacks(lab.open_profile(tmp_path / "run", inlines=False))
        theirs = perf_stacks(tmp_path / "run" / "perf.data")
        assert sum((here & theirs).values()) >= 0.98 * sum(here.values()), (here - theirs, theirs - here)
    moved = program.rename(tmp_path / "gone")
    try:
        profile = lab.open_profile(tmp_path / "run", use_paths=False)
        assert share_with(profile, WAY) > 0.9
        assert share_with(profile, [*WAY, "spin_inline"]) > 0.05
    finally:
        moved.rename(program)


@root
@pytest.mark.parametrize("started", ["before", "meanwhile"])
def test_a_program_that_is_built_anew_meanwhile_does_not_lend_its_names(tmp_path, started):
    program = compiled(tmp_path, DEEP, name="program")
    another = compiled(tmp_path, DEEP.replace("leaf", "other_leaf").replace("middle", "other_middle"), name="another")
    command = [str(program), "0.5"]
    child = subprocess.Popen(command) if started == "before" else None
    with lab.profile(hz=999, event="cpu-clock", pids=child.pid if child else os.getpid()) as profiler:
        child = child or subprocess.Popen(command)
        time.sleep(0.1)
        another.rename(program)
        child.wait()
    profile = profiler.profile
    assert "program has the build id" in profile.metadata["files_without_symbols"]
    assert not {"other_leaf", "other_middle"} & set(profile.stacks().functions()["function"])


def two_of_one_path(folder: Path) -> tuple[Path, subprocess.Popen[bytes]]:
    """A program, and another one that runs at its path in a mount namespace of its own."""
    program = compiled(folder, DEEP, name="program")
    inside = compiled(folder, DEEP.replace("leaf", "other_leaf").replace("middle", "more_of_middle"), name="inside")
    script = 'mount --bind "$0" "$1" && exec "$1" 1'
    child = subprocess.Popen(["unshare", "--mount", "sh", "-c", script, str(inside), str(program)])
    while Path(f"/proc/{child.pid}/exe").readlink() != program:
        assert child.poll() is None
        time.sleep(0.01)
    return program, child


@perf
def test_of_two_files_of_one_path_nobody_has_the_others_names(tmp_path):
    program, child = two_of_one_path(tmp_path)
    other = subprocess.Popen([str(program), "1"])
    path = tmp_path / "perf.data"
    subprocess.run(["perf", "record", "-qNa", "-e", "cpu-clock:u", "-o", str(path), "--", "sleep", "0.5"], check=True)
    for each in (child, other):
        each.wait()
    profile = lab.open_profile(path)
    assert len(profile.samples(pids=[child.pid, other.pid])) > 10
    assert not {"leaf", "other_leaf"} & set(profile.stacks(comm="program").functions()["function"])
    assert " or " in profile.metadata["files_without_symbols"]


@root
def test_a_program_of_another_mount_namespace_has_no_names_of_what_lies_at_its_path_here(tmp_path):
    _, child = two_of_one_path(tmp_path)
    with lab.profile(hz=999, event="cpu-clock", pids=child.pid) as profiler:
        time.sleep(0.3)
    child.wait()
    profile = profiler.profile
    assert "program has the build id" in profile.metadata["files_without_symbols"]
    assert not {"leaf", "middle", "outer", "main", "_fini"} & set(profile.stacks().functions()["function"])


def recorded_with_a_debuglink(folder: Path, *flags: str, seconds: str) -> tuple[Path, Path, Path]:
    """A recording of a stripped program, the program, and its separate debug file."""
    program = compiled(folder, DEEP, *flags, name="linked")
    debug = folder / "linked.debug"
    subprocess.run(["objcopy", "--only-keep-debug", str(program), str(debug)], check=True)
    subprocess.run(["strip", str(program)], check=True)
    subprocess.run(["objcopy", f"--add-gnu-debuglink={debug}", str(program)], check=True)
    path = folder / "perf.data"
    command = ["perf", "record", "-qN", "-e", "cpu-clock", "-F", "999", "--call-graph", "dwarf", "-o", str(path)]
    subprocess.run([*command, "--", str(program), seconds], check=True)
    return path, program, debug


@perf
def test_a_stripped_program_with_a_debuglink(tmp_path):
    path, _, debug = recorded_with_a_debuglink(tmp_path, seconds="0.5")
    profile = lab.open_profile(path)
    assert share_with(profile, WAY) > 0.9
    assert share_with(profile, [*WAY, "spin_inline"]) > 0.05
    debug.unlink()
    bare = lab.open_profile(path)
    assert share_with(bare, WAY) == 0
    # the frames are there, nameless
    deep = sum(len(bare._native.stack(i)) >= 5 for i in range(len(bare)))
    assert deep > 0.9 * len(bare)


@perf
def test_a_debuglink_without_build_ids_is_of_the_file_with_its_checksum(tmp_path):
    without = "-Wl,--build-id=none"
    path, program, debug = recorded_with_a_debuglink(tmp_path, without, seconds="0.4")
    profile = lab.open_profile(path)
    assert share_with(profile, WAY) > 0.9
    assert str(program) in profile.metadata["files_without_build_ids"]
    other = compiled(tmp_path, DEEP.replace("middle", "muddle"), without, name="other")
    subprocess.run(["objcopy", "--only-keep-debug", str(other), str(debug)], check=True)
    functions = {str(row["function"]) for row in lab.open_profile(path).stacks().functions().rows()}
    assert not functions & {"leaf", "middle", "muddle", "outer"}
