# SPDX-License-Identifier: MIT
"""``{names}``: what the public functions call their parameters, and where two of them disagree.

Reads the signatures of everything in ``sampleblk_lab.__all__``. A disagreement is a line of :func:`disagreements`;
those that are meant are in ``MEANT``, each with its reason, and tests/test_public_names.py holds the two together.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from docutils import nodes
from docutils.parsers.rst import Directive

import sampleblk_lab as lab

# The word that we use -> what else it might be called.
WORDS: dict[str, set[str]] = {
    "errors": {"error", "on_error", "onerror", "error_mode"},
    "pids": {"pid", "tids", "tasks", "who", "processes"},
    "timeout_s": {"timeout", "timeout_ns", "deadline", "deadline_s", "wait_s"},
    "heatmap": {"heat", "heat_map", "heatMap"},
    "result": {"outcome", "results_of"},
    "start": {"on", "begin", "launch"},
    "stop": {"off", "end", "halt", "finish"},
    "close": {"cleanup", "shutdown", "destroy", "dispose"},
    "directory": {"folder", "dir", "dirname"},
    "path": {"file", "filename", "fname"},
    "direction": {"op", "ddir", "rw"},
    "children": {"inherit", "forks"},
    "percents": {"quantiles", "ps"},
    "min_percent": {"threshold_percent", "minimum"},
}

_CONTROL_FILE = "a control file of tracefs, as its documentation calls them"
_COUNTED = "a switch where something is asked for, its count or its value where it is told"

# A line of disagreements() -> why it is meant.
MEANT: dict[str, str] = {
    "OpenFile(pid): pid is a name for pids": "a file belongs to one process",
    "OpenFile.pid: pid is a name for pids": "a file belongs to one process",
    "OpenFile(file): file is a name for path": "the kernel's struct file",
    "OpenFile.file: file is a name for path": "the kernel's struct file",
    "Run.file: file is a name for path": "the opened trace.dat, whose path is trace_path",
    **{
        f"Session.{name}(file): file is a name for path": _CONTROL_FILE
        for name in ("has", "has_top", "read", "set", "set_top")
    },
    **{
        f"{where}: folder is a name for directory": "a sweep's is of its trials, each of which has a run's directory"
        for where in ("DryRun(folder)", "DryRun.folder", "Sweep(folder)", "open_sweep(folder)", "sweep(folder)")
    },
    "sweep(deadline_s): deadline_s is a name for timeout_s": "a trial's, which a test has as sblk_deadline",
    "TraceCommandError(filename): filename is a name for path": "OSError's own name for it",
    "VM.run(timeout): timeout is a name for timeout_s": "subprocess.run()'s own name for it",
    "latency_bins(op): op is a name for direction": "also flush and discard, which have no direction",
    **{
        f"Device.{name}(op): op is a name for direction": "also flush and discard, which have no direction"
        for name in ("histogram", "timing")
    },
    "bins: a switch in one place, a value in another: "
    "Device.set_timing(bins), Latency(bins), Result.heatmap(bins), Result.json(bins)": (
        "of a histogram each time: whether it is written, how many it has, which they are"
    ),
    "faults: called: Device.faults; not called: Counters.faults, PageCache.faults": (
        "a device's rules, which the driver is asked for; and counts"
    ),
    "progress: a switch in one place, a value in another: Job.run(progress), sweep(progress)": (
        "a job also tells it to a function of the caller's"
    ),
    "torn: a switch in one place, a value in another: Cut(torn), Device.power_cut(torn)": _COUNTED,
    "block: a switch in one place, a value in another: plot.block_life(block), record(block)": _COUNTED,
    "kallsyms: a switch in one place, a value in another: open_profile(kallsyms), record(kallsyms)": (
        "whether they are kept, and the file that has them"
    ),
    "kernel: a switch in one place, a value in another: VM(kernel), profile(kernel)": (
        "which kernel a VM boots; whether kernel code is sampled, beside user="
    ),
    "symbols: a switch in one place, a value in another: Profiler.save(symbols), open_profile(symbols)": (
        "whether they are kept, and the folders that have them"
    ),
    "value: a switch in one place, a value in another: Fault(value), FioResult(value), Session.option(value)": (
        "the general word for what a byte, an option or a result is"
    ),
    "write_zeroes: a switch in one place, a value in another: Counters(write_zeroes), Device(write_zeroes)": _COUNTED,
    "filter: called: Session.filter; not called: SampleSource.filter": "Session's are named after control files",
    "pids: called: Session.pids; not called: JobRun.pids, Result.pids": "Session's are named after control files",
    "patched: called: inspect.patched; not called: TraceCost.patched": "all sites; and those of one measurement",
    "sites: called: inspect.sites; not called: TraceCost.sites": "all sites; and those of one measurement",
    "queue: called: inspect.queue; not called: QueueView.queue": "the view, and the address of its queue",
    "profile: called: Recorder.profile, Run.profile; not called: Profiler.profile": (
        "a run's takes the options of open_profile(); what a Profiler sampled is one profile"
    ),
    "run: called: Job.run, JobFile.run, Replay.run, VM.run; not called: Recorder.run": (
        "to run a job or a command; and the Run that was recorded"
    ),
    "samples: called: Profile.samples, Profiler.samples; not called: Measurement.samples": (
        "a view, selected by arguments; and the numbers that were measured"
    ),
    "stacks: called: BpfOutput.stacks, Profile.stacks, Profiler.stacks; not called: SampleSource.stacks": (
        "a view; whether there are any"
    ),
    "series: called: Result.series; not called: Kernel.series": "of times; and a kernel's, such as 6.12",
    "total: called: Result.total; not called: Stacks.total": "the jobs merged to one, which is work; and a sum",
}


@dataclass(frozen=True)
class Named:
    """A public name: of a parameter, a method, an attribute or a function."""

    where: str
    name: str
    kind: str  # "parameter", "call" or "value"
    annotation: str = ""


def _members(cls: type) -> list[Named]:
    owner = cls.__name__
    found = []
    # What it inherits of ours it offers, too.
    bases = [
        base for base in reversed(cls.__mro__) if base is cls or base.__module__.partition(".")[0] == "sampleblk_lab"
    ]
    members: dict[str, Any] = {}
    for base in bases:
        members |= vars(base)
    for name, member in members.items():
        if name.startswith("_") and name != "__init__":
            continue
        function = member.__func__ if isinstance(member, (staticmethod, classmethod)) else member
        if (function.__doc__ or "").startswith("The old name of "):
            continue
        if isinstance(function, (property, functools.cached_property)):
            found.append(Named(f"{owner}.{name}", name, "value"))
        elif inspect.isfunction(function):
            if name != "__init__":
                found.append(Named(f"{owner}.{name}", name, "call"))
            found += _parameters(function, owner if name == "__init__" else f"{owner}.{name}")
    known = {one.name for one in found if one.kind != "parameter"}
    found += [
        Named(f"{owner}.{name}", name, "value")
        for name in dict.fromkeys(name for base in bases for name in vars(base).get("__annotations__", {}))
        if not name.startswith("_") and name not in known
    ]
    return found


def _parameters(function: Any, where: str) -> list[Named]:
    return [
        Named(f"{where}({name})", name, "parameter", str(parameter.annotation))
        for name, parameter in inspect.signature(function).parameters.items()
        if name not in ("self", "cls") and not name.startswith("_")
    ]


def public() -> list[Named]:
    """All public names with what they name, but for old ones that only warn."""
    found: list[Named] = []
    seen: set[int] = set()

    def look(value: Any, name: str) -> None:
        if id(value) in seen:
            return
        seen.add(id(value))
        if inspect.isclass(value):
            found.extend(_members(value))
        elif callable(value):
            found.append(Named(name, name.rpartition(".")[2], "call"))
            found.extend(_parameters(value, name))

    for name in sorted(lab.__all__):
        value = getattr(lab, name)
        if inspect.ismodule(value):
            listed = getattr(value, "__all__", None) or [
                each for each, one in vars(value).items() if getattr(one, "__module__", "") == value.__name__
            ]
            for each in listed:
                if not each.startswith("_"):
                    look(getattr(value, each), f"{name}.{each}")
        else:
            look(value, name)
    return found


def _plain(annotation: str) -> str:
    """An annotation without what it may be instead: None."""
    return " | ".join(sorted(part for part in re.split(r" \| ", annotation.replace("os.", "")) if part != "None"))


def disagreements() -> list[str]:
    """One line each: a word that has another name here, a parameter of two types, a word that is called or not."""
    out = []
    names = public()
    for one in names:
        for word, others in WORDS.items():
            if one.name in others:
                out.append(f"{one.where}: {one.name} is a name for {word}")
        if re.search(r"(?<!per)_(sec|secs|seconds|msec|usec|kb|mb)$", one.name):
            out.append(f"{one.where}: units are _s, _ns, _bytes, _mib")
    types: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for one in names:
        if one.kind == "parameter":
            types[one.name][_plain(one.annotation)].append(one.where)
    for name, by_type in sorted(types.items()):
        scalars = {kind.split("[")[0] for kind in by_type}
        if {"bool"} < scalars:
            wheres = ", ".join(sorted(places[0] for places in by_type.values()))
            out.append(f"{name}: a switch in one place, a value in another: {wheres}")
    ways: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for one in names:
        if one.kind != "parameter" and "." in one.where:
            ways[one.name][one.kind].append(one.where)
    for name, by_kind in sorted(ways.items()):
        if len(by_kind) == 2:
            out.append(f"{name}: called: {', '.join(by_kind['call'])}; not called: {', '.join(by_kind['value'])}")
    return sorted(set(out))


class Names(Directive):
    """The directive: the words and who uses them, then what is meant to differ."""

    def run(self) -> list[Any]:
        users: dict[str, set[str]] = defaultdict(set)
        for one in public():
            if one.name in WORDS:
                users[one.name].add(one.where.partition("(")[0])
        words = [(word, ", ".join(sorted(users[word]))) for word in sorted(WORDS) if users[word]]
        return [
            _table(("word", "of"), words),
            _table(("two uses of one name", "why"), sorted(MEANT.items())),
        ]


def _table(heads: tuple[str, str], rows: list[tuple[str, str]]) -> Any:
    group = nodes.tgroup(cols=2)
    group += [nodes.colspec(colwidth=width) for width in (40, 60)]
    for part, lines in ((nodes.thead(), [heads]), (nodes.tbody(), rows)):
        for line in lines:
            row = nodes.row()
            for text in line:
                entry = nodes.entry()
                entry += nodes.paragraph(text=text)
                row += entry
            part += row
        group += part
    table = nodes.table()
    table += group
    return table


def setup(app: Any) -> dict[str, bool]:
    """Sphinx's entry point."""
    app.add_directive("names", Names)
    return {"parallel_read_safe": True}
