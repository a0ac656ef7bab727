# SPDX-License-Identifier: MIT
"""Recordings in each form that options of `perf record` give them, against `perf report`'s counts, event by event."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import sampleblk_lab as lab

pytestmark = [
    pytest.mark.skipif(shutil.which("perf") is None, reason="needs perf: apt-get install linux-perf"),
    pytest.mark.skipif(os.geteuid() != 0, reason="needs kernel addresses and trace points"),
]

WORK = """
import os, sys
file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
for _ in range(40):
    for _ in range(20):
        os.pwrite(file, bytes(65536), 0)
    sorted(str(i) for i in range(2000))
    bytearray(1 << 20)
"""

Counts = dict[str, dict[str, tuple[int, int]]]


def record(tmp_path: Path, *options: str) -> Path:
    data = tmp_path / "perf.data"
    work = [sys.executable, "-c", WORK, str(tmp_path / "file")]
    done = subprocess.run(
        ["perf", "record", "-qN", *options, "-o", str(data), "--", *work], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        pytest.skip(f"perf record {' '.join(options)}: {done.stderr.strip()[-200:]}")
    return data


def theirs(data: Path, *options: str) -> Counts:
    """By event: (samples, period) of each symbol, and of all under the name ''."""
    command = ["perf", "report", "-i", str(data), "--stdio", "--no-group", "--no-children", "-g", "none", "--no-inline"]
    text = subprocess.run(
        [*command, "-n", "--show-total-period", "-s", "sym", "-t", "\t", *options],
        capture_output=True,
        check=True,
        stdin=subprocess.DEVNULL,
    ).stdout.decode(errors="replace")
    counts: Counts = {}
    event = ""
    for line in text.splitlines():
        if found := re.match(r"# Samples: .* of events? '(.*)'", line):
            event = found[1]
            counts[event] = {}
        parts = line.split("\t")
        if line.startswith("#") or len(parts) != 4:
            continue
        samples, period = int(parts[1]), int(parts[2])
        for name in (re.sub(r"^\[.\] ", "", parts[3].strip()), ""):
            before = counts[event].get(name, (0, 0))
            counts[event][name] = (before[0] + samples, before[1] + period)
    return {event: symbols for event, symbols in counts.items() if symbols}


def ours(data: Path) -> Counts:
    profile = lab.open_profile(data, inlines=False)
    counts: Counts = {}
    for event in profile.event_names:
        samples: Counter[str] = Counter()
        periods: Counter[str] = Counter()
        for row in profile.report(event=event).rows():
            for name in (str(row["symbol"]), ""):
                samples[name] += int(row["samples"])
                periods[name] += int(row["self_period"])
        if samples[""]:
            counts[event] = {name: (samples[name], periods[name]) for name in samples if samples[name]}
    return counts


def named(counts: Counts, other: Counts) -> Counts:
    """Without what is printed in more ways than one: addresses that have no name, C++ with its types.

    And without stubs that only one side names: perf 6.1 knows none of .plt.got (test_symbols.cpp holds ours against
    objdump).
    """
    return {
        event: {
            name: count
            for name, count in symbols.items()
            if not (name.startswith(("0", "[")) or "<" in name or "(" in name)
            and not (name.endswith("@plt") and name not in other.get(event, {}))
        }
        for event, symbols in counts.items()
    }


@pytest.mark.parametrize(
    "options",
    [
        ["-e", "cpu-clock", "-e", "syscalls:sys_enter_pwrite64"],
        ["-e", "syscalls:sys_enter_pwrite64", "-e", "cpu-clock"],
        ["-g", "-e", "cpu-clock", "-e", "syscalls:sys_enter_pwrite64", "-e", "page-faults"],
        ["-a", "-e", "cpu-clock", "-e", "syscalls:sys_enter_pwrite64"],
        ["--threads", "-e", "cpu-clock"],
        ["--threads", "-a", "-z", "-e", "cpu-clock", "-e", "syscalls:sys_enter_pwrite64"],
        ["-e", "{cpu-clock,page-faults,context-switches}:S"],
        ["-g", "-e", "{cpu-clock,page-faults}:S"],
        ["-g", "--user-callchains", "-e", "cpu-clock"],
        ["-g", "--kernel-callchains", "-e", "cpu-clock"],
        ["-e", "cpu-clock", "--call-graph", "dwarf,4096", "--user-callchains"],
    ],
    ids=" ".join,
)
def test_counts_are_those_of_perf_report(tmp_path, options):
    data = record(tmp_path, *options)
    expected = theirs(data)
    got = ours(data)
    assert {event: symbols[""] for event, symbols in got.items()} == {
        event: symbols[""] for event, symbols in expected.items()
    }
    assert sum(samples for symbols in expected.values() for samples, _ in [symbols[""]]) > 20
    if "-a" not in options:  # other programs of this machine have names that the two print in ways of their own
        assert named(got, expected) == named(expected, got)


def test_stacks_of_a_trace_point_alone_are_called_by_its_name(tmp_path):
    profile = lab.open_profile(record(tmp_path, "-g", "-a", "-e", "syscalls:sys_enter_pwrite64"))
    assert profile.event_names[0] == "syscalls:sys_enter_pwrite64"
    assert profile.stacks().title == f"On CPU ({profile.event_names[0]})"


def test_a_stack_is_that_of_the_row_where_several_events_are_sampled(tmp_path):
    profile = lab.open_profile(record(tmp_path, "-g", "-e", "syscalls:sys_enter_pwrite64", "-e", "cpu-clock"))
    symbols = [str(name) for name in profile.samples()["symbol"]]
    assert 10 < len(symbols) < len(profile)
    assert [profile.stack(row)[-1] for row in range(len(symbols))] == symbols
    with pytest.raises(IndexError, match=f"no sample {len(symbols)}: there are {len(symbols)}, from 0 on"):
        profile.stack(len(symbols))


def test_a_directory_with_kcore_has_its_symbols(tmp_path):
    # Made by hand, as perf record --kcore does it: not every kernel has /proc/kcore.
    data = record(tmp_path, "-e", "cpu-clock")
    expected = ours(data)
    directory = tmp_path / "directory"
    (directory / "kcore_dir").mkdir(parents=True)
    (directory / "kcore_dir" / "kallsyms").write_text(Path("/proc/kallsyms").read_text())
    data.rename(directory / "data")
    profile = lab.open_profile(directory, inlines=False)
    assert profile.metadata["kernel_symbols"] == str(directory / "kcore_dir" / "kallsyms")
    assert ours(directory) == expected


def test_the_records_of_a_tracepoint_beside_another_event_have_their_times(tmp_path):
    data = record(tmp_path, "-e", "cpu-clock", "-e", "syscalls:sys_enter_pwrite64")
    script = subprocess.run(
        ["perf", "script", "-i", str(data), "-F", "time,event", "--ns"], capture_output=True, text=True, check=True
    ).stdout
    expected = sorted(
        (round(float(found[1].replace(".", ""))), found[2])
        for found in re.finditer(r"^ *(\d+\.\d{9}): +([\w:-]+):", script, re.M)
    )
    profile = lab.open_profile(data, inlines=False)
    got = sorted(
        (int(row["time"]), event) for event in profile.event_names for row in profile.samples(event=event).rows()
    )
    assert len(got) == len(expected) > 20
    assert got == expected


def test_a_directory_without_its_files_is_refused_or_said(tmp_path):
    data = record(tmp_path, "--threads", "-e", "cpu-clock")
    for part in data.glob("data.*"):
        part.unlink()
    with pytest.raises(lab.FormatError, match=r"data\.0, \.1 … of a directory that perf record --threads made"):
        lab.open_profile(data)
    assert lab.open_profile(data, errors="skip").metadata["damage_missing data files"] == "1"


def test_damage_in_a_directory_names_the_file(tmp_path):
    data = record(tmp_path, "--threads", "-e", "cpu-clock")
    part = max(data.glob("data.*"), key=lambda path: path.stat().st_size)
    part.write_bytes(part.read_bytes()[:-5])
    with pytest.raises(lab.FormatError, match=re.escape(part.name)):
        lab.open_profile(data)
