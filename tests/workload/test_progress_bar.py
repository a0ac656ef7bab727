# SPDX-License-Identifier: MIT
"""How a job's progress is shown: a line on a terminal, tqdm's bar in a notebook."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import time
from pathlib import Path
from typing import Any

import pytest

import sampleblk_lab as lab
from sampleblk_lab.progress import Line
from sampleblk_lab.workload import run

HALF = run.Progress(
    fraction=0.5,
    elapsed_s=2.0,
    eta_s=2.0,
    done_bytes=1 << 20,
    done_ios=256,
    bytes_per_s=524288.0,
    ios_per_s=128.0,
    running=1,
    finished=0,
    jobs=2,
)


@pytest.fixture
def _without(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hides the modules of the parameter."""
    found = importlib.util.find_spec

    def hiding(name: str, package: str | None = None) -> importlib.machinery.ModuleSpec | None:
        return None if name in request.param else found(name, package)

    monkeypatch.setattr(run.importlib.util, "find_spec", hiding)


@pytest.mark.parametrize("_without", [("ipywidgets",)], indirect=True)
@pytest.mark.usefixtures("_without")
def test_a_notebook_without_widgets_gets_tqdm_s_text(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("tqdm")
    monkeypatch.setattr(run, "in_notebook", lambda: True)
    shown = run._shown()
    assert isinstance(shown, run._Bar)
    shown.clear()
    assert capsys.readouterr().err == ""  # of a job that is over before there is anything to show
    shown = run._shown()
    shown.show(HALF)
    shown.clear()
    said = capsys.readouterr().err
    assert " 50%|" in said
    assert "512KiB/s, 128 IOPS, 1 of 2 jobs running" in said.replace("512.0KiB", "512KiB").replace("512 KiB", "512KiB")


@pytest.mark.parametrize("_without", [("tqdm", "ipywidgets")], indirect=True)
@pytest.mark.usefixtures("_without")
def test_without_tqdm_and_on_a_terminal_it_is_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run, "in_notebook", lambda: True)
    shown = run._shown()
    assert isinstance(shown, Line)
    shown.show(HALF)
    shown.clear()
    assert str(HALF) in capsys.readouterr().err


@pytest.mark.parametrize(
    ("keys", "ios"),
    [
        ({"size": "1g", "ioengine": "null", "number_ios": 100}, 100),
        ({"size": "200k", "verify": "crc32c", "loops": 2}, 200),
    ],
    ids=["number_ios", "verify"],
)
def test_a_fraction_is_of_all_that_the_job_does(keys: dict[str, Any], ios: int, tmp_path: Path) -> None:
    with lab.Job(rw="write", bs="4k", rate_iops=100, filename=tmp_path / "f", **keys).prepare() as job:
        job.start()
        for _ in range(4):
            time.sleep(0.15)
            now = job.progress()
            assert now.fraction == pytest.approx(now.done_ios / ios, abs=0.02)
        job.stop()
        job.wait()
