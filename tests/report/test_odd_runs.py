# SPDX-License-Identifier: MIT
"""The page of a run whose files are not what they should be: an error that names the file, never anything else."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import sampleblk_lab as lab
from sampleblk_lab import trust
from sampleblk_lab.cli.main import main
from sampleblk_lab.report import run_page
from sampleblk_lab.results import machine

ODD: list[Any] = [None, 0, -1, 1e300, float("inf"), float("nan"), "x", "\udcff", [], {}, True, 10**30, [None]]
PAGE = "<!doctype html>"
# Of each file.
TRIES = 200


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Everything but recordings, of which other tests have damaged ones."""
    job = lab.Job(name="mixed", rw="rw", bs="4k", size="64k", filename=tmp_path / "file")
    result = job.run(progress=False)
    folder = tmp_path / "run"
    folder.mkdir()
    measured = {
        "name": "n",
        "unit": "s",
        "better": "lower",
        "stopped": "",
        "value": 1,
        "low": 1,
        "high": 2,
        "confidence": 0.9,
    }
    files: dict[str, Any] = {
        "result.json": result.json(bins=True),
        "env.json": machine.environment(),
        "trust.json": json.loads(trust.as_json([trust.of_losses("events", 1)])),
        "counters.json": {"reads": 1, "read_bytes": 4096},
        "spec.json": {"test": "t", "source": "job.fio", "notes": {"Summary": "note"}, "files": {"env.json": "where"}},
        "measurements.json": [{**measured, "samples": [1, 2]}],
        "command.json": {"command": ["ls"], "returncode": 0, "elapsed_s": 1.5, "user_s": 1, "system_s": 0},
    }
    for name, value in files.items():
        (folder / name).write_text(json.dumps(value))
    (folder / "report.txt").write_text(result.text())
    return folder


def _ways(value: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield way
    if isinstance(value, (dict, list)):
        for name, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _ways(inner, (*way, name))


def _with(value: Any, way: tuple[Any, ...], odd: Any) -> Any:
    if not way:
        return odd
    out = copy.deepcopy(value)
    at = out
    for name in way[:-1]:
        at = at[name]
    at[way[-1]] = odd
    return out


def _shown(run: Path) -> str:
    try:
        return run_page.run_page(run).html()
    except lab.SampleblkError as error:
        return str(error)


def test_any_value_of_any_file_may_be_odd(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Pictures refuse what they cannot show, which is tested where they are; they would take all the time.
    monkeypatch.setattr(run_page._Sections, "picture", lambda *_, **__: None)
    assert _shown(run).startswith(PAGE)
    draw = random.Random(1)
    for path in sorted(run.glob("*.json")):
        good = path.read_text()
        value = json.loads(good)
        odd = [(way, each) for way in _ways(value) for each in ODD]
        seen = set()
        for way, each in draw.sample(odd, min(TRIES, len(odd))):
            path.write_text(json.dumps(_with(value, way, each)))
            said = _shown(run)
            seen.add(said.startswith(PAGE))
            assert said.startswith((PAGE, str(path))), (path.name, way, each)
        assert seen == {True, False}
        for cut in (0, 1, len(good) // 2, len(good) - 1):
            path.write_text(good[:cut])
            assert _shown(run).startswith(f"{path}: at byte ")
        path.write_text(good)


def test_a_job_that_measures_no_latency_stands_beside_one_that_does(tmp_path: Path) -> None:
    jobs = f"directory={tmp_path}\nsize=64k\n[quick]\nrw=read\ngtod_reduce=1\n[full]\nrw=write\n"
    result = lab.JobFile.parse(f"[global]\n{jobs}").run(progress=False)
    (tmp_path / "result.json").write_text(result.json_text(bins=True))
    page = run_page.run_page(tmp_path).html()
    quick, full = (
        page.partition(f"<th>{name}</th><td>")[2].partition("</td>")[0] for name in ("quick, read", "full, write")
    )
    assert "16 I/Os" in quick
    assert "within" not in quick
    assert "99 % within" in full
    assert "Latency" in page


def test_what_is_no_run_has_no_page(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # `run` lies below it, as it would in a folder of many runs.
    (run.parent / "notes.txt").touch()
    assert main(["report", str(run.parent)]) != 0
    assert f"{run.parent} has no file of a run" in capsys.readouterr().err
    assert not (run.parent / "report.html").exists()
    assert main(["report", str(run)]) == 0
