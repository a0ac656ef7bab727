# SPDX-License-Identifier: MIT
"""Arguments that would be taken for something else, or fail deep inside: each is named, with what is accepted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import sampleblk_lab as lab


@pytest.mark.parametrize(
    ("said", "call"),
    [
        ("children='no' .expected True or False", lambda: lab.record(children="no")),  # type: ignore[call-overload]
        ("block='no'", lambda: lab.record(block="no")),  # type: ignore[call-overload]
        ("stacks=None", lambda: lab.record(stacks=None)),  # type: ignore[call-overload]
        ("paths='yes'", lambda: lab.record(syscalls=True, paths="yes")),  # type: ignore[call-overload]
        ("kallsyms='no'", lambda: lab.record(kallsyms="no")),  # type: ignore[call-overload]
        ("syscalls=None .expected a name, or several", lambda: lab.record(syscalls=None)),  # type: ignore[call-overload]
        ("syscalls=b'read'", lambda: lab.record(syscalls=b"read")),  # type: ignore[call-overload]
        (r"syscalls=\['read', 5\]", lambda: lab.record(syscalls=["read", 5])),  # type: ignore[call-overload]
        ("graph=''", lambda: lab.record(graph="")),
        ("functions=5", lambda: lab.record(functions=5)),  # type: ignore[call-overload]
        ("events=''", lambda: lab.record(events="")),
        ("until=5", lambda: lab.record(until=5)),  # type: ignore[call-overload]
        ("depth=0 .expected a whole number from 1", lambda: lab.record(graph="vfs_read", depth=0)),
        ("depth='2'", lambda: lab.record(graph="vfs_read", depth="2")),  # type: ignore[call-overload]
        ("depth=2 without graph=", lambda: lab.record(block=True, depth=2)),
        ("no function .expected names or globs", lab.FunctionProfile),
        ("no function", lab.FunctionCount),
        ("no function", lab.FunctionLatency),
        ("functions=", lambda: lab.FunctionProfile(["vfs_read"])),  # type: ignore[arg-type]
        ('command="echo \'a": No closing quotation', lambda: lab.record(command="echo 'a")),
        ('command="echo \'a": No closing quotation', lambda: lab.stat("echo 'a")),
        ("an empty command", lambda: lab.record(command=())),
        ("an empty command", lambda: lab.stat(" ")),
        ("args='12' .expected a list", lambda: lab.bpf("block-latency", args="12")),
        ("args=12", lambda: lab.bpf("block-latency", args=12)),  # type: ignore[arg-type]
        ("args='-p 12'", lambda: lab.vm.VM().bcc("biosnoop", "-p 12", ["true"])),
        ('command="echo \'a": No closing quotation', lambda: lab.vm.VM().bpftrace("io-sizes", "echo 'a")),
        ("stack_bytes=0", lambda: lab.profile(callgraph="dwarf", stack_bytes=0)),
        ("stack_bytes=-1", lambda: lab.profile(stack_bytes=-1)),
        ("kernel='no'", lambda: lab.profile(kernel="no")),  # type: ignore[arg-type]
        ("children=None", lambda: lab.profile(children=None)),  # type: ignore[arg-type]
        ("event=7", lambda: lab.profile(event=7)),  # type: ignore[arg-type]
        (r"events=\[7\]", lambda: lab.profile(events=7)),  # type: ignore[arg-type]
        (r"events=\[\['a', 'b'\]\]", lambda: lab.profile(events=[["a", "b"]])),  # type: ignore[list-item]
        ("period=-1", lambda: lab.profile(events=lab.SampleSource("page-faults", period=-1))),
        ("hz=0", lambda: lab.profile(events=lab.SampleSource("page-faults", hz=0))),
        ("stacks='no'", lambda: lab.profile(events=lab.SampleSource("a:b", stacks="no"))),  # type: ignore[arg-type]
        ("less_ns=-1", lambda: lab.latency_bins([(100, 1)], less_ns=-1)),
        ("kernel=6.1 .expected a name such as '6.1'", lambda: lab.vm.VM(kernel=6.1)),  # type: ignore[arg-type]
        ("nothing is promised by 5", lambda: lab.crash.checks.promised(5)),  # type: ignore[arg-type]
    ],
)
def test_a_value_that_cannot_be_is_named(said: str, call: Callable[[], Any]) -> None:
    with pytest.raises(lab.InputError, match=said):
        call()


@pytest.mark.parametrize(
    ("said", "call"),
    [
        ("bs must be a string, a number", lambda: lab.Job(bs=b"4k")),
        ("name must be a string", lambda: lab.Job(name=b"a")),  # type: ignore[arg-type]
        (r"filename must be .* not \[\]", lambda: lab.Job(filename=[])),
        ("results of jobs are merged, not 5", lambda: lab.Result.merge([5])),  # type: ignore[list-item]
        ("recorded is a Table, or .* not 'trace.dat'", lambda: lab.Replay("trace.dat")),  # type: ignore[arg-type]
        ("a set is of run directories, .* not 'before'", lambda: lab.compare_sets("before", "after")),  # type: ignore[arg-type]
    ],
)
def test_a_thing_of_another_kind_is_named(said: str, call: Callable[[], Any]) -> None:
    with pytest.raises(TypeError, match=said):
        call()
