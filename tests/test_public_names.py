# SPDX-License-Identifier: MIT
"""One word for one thing in what the package offers by name; old names work for one release, and say so."""

from __future__ import annotations

import inspect
import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sampleblk_lab as lab
from sampleblk_lab import renamed
from sampleblk_lab.profiling.recorded import Profile
from sampleblk_lab.table import Table

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "docs/_ext"))

import names  # noqa: E402

RECORDED = ROOT / "tests/data/trace/6.1-io.dat"


def test_names_disagree_only_where_it_is_meant() -> None:
    found = set(names.disagreements())
    assert found - set(names.MEANT) == set(), "one word for one thing: rename, or say in docs/_ext/names.py why not"
    assert set(names.MEANT) - found == set(), "no longer so"
    assert all(len(why) > 10 for why in names.MEANT.values())


def test_all_that_is_public_is_read() -> None:
    found = {one.where for one in names.public()}
    assert {"Run.syscalls(pids)", "record(pids)", "Profile.report", "VM.call", "plot.bandwidth"} <= found
    assert len(found) > 800


def test_a_new_disagreement_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    class Odd:
        """A newcomer."""

        def latency(self, pid: int, on_error: str = "strict", depth: bool = False) -> None: ...

        def halt(self) -> None: ...

        def syscalls(self) -> None: ...

    class Heir(Odd, lab.Session):
        """Offers what it inherits."""

    monkeypatch.setitem(vars(lab), "Heir", Heir)
    monkeypatch.setitem(vars(lab), "Odd", Odd)
    monkeypatch.setattr(lab, "__all__", [*lab.__all__, "Odd", "Heir"])
    new = set(names.disagreements()) - set(names.MEANT)
    assert {
        "Odd.latency(pid): pid is a name for pids",
        "Odd.latency(on_error): on_error is a name for errors",
        "Odd.halt: halt is a name for stop",
        "Heir.read(file): file is a name for path",
    } <= new
    assert any(line.startswith("depth: a switch in one place, a value in another") for line in new)


def _views(cls: type) -> dict[str, inspect.Signature]:
    """The methods by which something recorded is looked at."""
    no_view = {"save", "save_symbols", *(name for name in vars(cls) if name.startswith(("export_", "_")))}
    return {
        name: inspect.signature(one)
        for name, one in vars(cls).items()
        if name not in no_view and inspect.isfunction(one)
    }


@pytest.mark.parametrize(("recorder", "recorded"), [(lab.Recorder, lab.Run), (lab.Profiler, Profile)])
def test_what_records_has_every_view_of_what_was_recorded(recorder: type, recorded: type) -> None:
    wanted = _views(recorded)
    assert len(wanted) >= 10
    for name, signature in wanted.items():
        assert inspect.signature(getattr(recorder, name)) == signature, name


def test_every_package_of_the_documentation_is_reachable() -> None:
    for name in ("article", "crash", "inspect", "kernels", "plot", "vm"):
        assert inspect.ismodule(getattr(lab, name))
        assert name in lab.__all__
    assert "article_shares" not in lab.__all__


def _old_names() -> dict[str, Callable[[], Any]]:
    """What worked in the release before, by its new name."""
    run = lab.open_run(RECORDED)
    session = lab.Session.__new__(lab.Session)
    return {
        "pids= of Run.syscalls": lambda: run.syscalls(pid=1),  # type: ignore[call-arg]
        "pids= of Run.offsets": lambda: run.offsets(pid=1),  # type: ignore[call-arg]
        "pids= of record": lambda: lab.record(pid=1),
        "pids= of profile": lambda: lab.profile(pid=1),  # type: ignore[call-arg]
        "pids= of stat": lambda: lab.stat(pid=os.getpid()),  # type: ignore[call-arg]
        "pids= of FunctionCount.__init__": lambda: lab.FunctionCount("vfs_write", pid=1),  # type: ignore[call-arg]
        "lab.article.findings": lambda: lab.article_findings,
        "lab.article.shares": lambda: lab.article_shares,
        "Session.start()": lambda: _quietly(session.on),
        "Session.stop()": lambda: _quietly(session.off),
    }


def _quietly(call: Callable[[], Any]) -> None:
    """What it does after its warning needs a kernel that traces."""
    try:
        call()
    except AttributeError:
        return


@pytest.mark.parametrize("name", _old_names())
def test_an_old_name_works_and_warns_its_caller(name: str) -> None:
    with pytest.warns(DeprecationWarning, match="is now") as caught:
        _old_names()[name]()
    [warning] = caught
    assert Path(warning.filename) == Path(__file__)
    wanted = name.partition(" of ")[0].removeprefix("lab.")
    assert wanted in str(warning.message)


def test_an_old_parameter_does_what_the_new_one_does(tmp_path: Path) -> None:
    run = lab.open_run(RECORDED)
    pid = int(run.syscalls().table()["pid"].values[0])
    with pytest.warns(DeprecationWarning, match="pid= of Run.syscalls"):
        old = run.syscalls(pid=pid).table()  # type: ignore[call-arg]
    new = run.syscalls(pids=pid).table()
    assert 0 < len(new) < len(run.syscalls().table())
    assert np.array_equal(old["time"].values, new["time"].values)
    with pytest.raises(TypeError, match="pid= and pids="):
        run.syscalls(pid=pid, pids=pid)  # type: ignore[call-arg]
    result = lab.Job(rw="write", bs="4k", size="64k", filename=tmp_path / "file").run(progress=False)
    with pytest.warns(DeprecationWarning, match="heatmap"):
        [one, other] = result.heat_map("write"), result.heatmap("write")
    assert all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))
    with pytest.warns(DeprecationWarning, match="heatmap_table"):
        assert len(result.heat()) == len(result.heatmap_table())


def test_a_job_is_recorded_by_the_old_name_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whose record() has processes of its own to fill in."""

    class AskedError(Exception):
        pass

    def record(**what: Any) -> None:
        raise AskedError(what["pids"])

    monkeypatch.setattr("sampleblk_lab.recording.recorder.record", record)
    job = lab.Job(rw="write", bs="4k", size="64k", filename=tmp_path / "file")
    with pytest.raises(AskedError, match=r"^7$"), pytest.warns(DeprecationWarning, match=r"pid= of Job.record\(\)"):
        job.record(pid=7)
    with pytest.raises(TypeError, match="pid= and pids="):
        job.record(pid=7, pids=8)


def test_new_names_do_not_warn() -> None:
    @renamed.parameters(old="new")
    def taken(*, new: int = 0) -> int:
        return new

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert taken(new=3) == 3
    assert inspect.signature(taken).parameters.keys() == {"new"}


def test_units_are_of_columns_not_in_their_names(tmp_path: Path) -> None:
    """What strace -c heads its columns with stays; so do shares, whose percent is no unit of a measured thing."""
    kept = {"usecs_per_call", "percent_time"}
    run = lab.open_run(RECORDED)
    result = lab.Job(rw="write", bs="4k", size="64k", filename=tmp_path / "file").run(progress=False)
    tables = [
        run.counts(),
        run.syscalls().table(),
        run.syscalls().summary(),
        run.offsets().table(),
        run.io_sizes().histogram(),
        run.block().table(),
        run.block().latency(),
        run.block().queue_depth(),
        result.summary(),
        result.histogram(),
        result.heatmap_table(),
        result.series(),
    ]
    assert all(isinstance(table, Table) for table in tables)
    seen = {name for table in tables for name in table.columns}
    units = {table[name].unit for table in tables for name in table.columns}
    assert {"ns", "bytes"} <= units
    ended = {
        name
        for name in seen
        if "_" in name and name.rpartition("_")[2] in ("ns", "us", "ms", "s", "bytes", "kib", "mib")
    }
    assert ended == set()
    assert {name for name in seen if "usec" in name or "percent" in name} <= kept
