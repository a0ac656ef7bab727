# SPDX-License-Identifier: MIT
"""Files that a trial's function leaves in its directory come back to the sweep's folder."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import sampleblk_lab as lab
from sampleblk_lab import paths
from sampleblk_lab.sweeps import artefacts, processes


@pytest.fixture(autouse=True)
def _no_launcher_is_left() -> Iterator[None]:
    yield
    processes.close()


def leaves(a: int, directory: Path, turns: str) -> str:
    with (Path(turns) / str(a)).open("a") as file:
        file.write("x")
    turn = (Path(turns) / str(a)).stat().st_size
    assert list(directory.iterdir()) == []
    (directory / "log.txt").write_text(f"{a}, turn {turn}")
    (directory / "link").symlink_to("/etc/passwd")
    (directory / "deep" / "er").mkdir(parents=True)
    if a == 1:
        (directory / "deep" / "er" / "data.bin").write_bytes(bytes(100_000))
    if a == 2:
        raise ValueError("after it was written")
    if a == 3 and turn == 1:
        (directory / "only-first").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    if a == 4:
        (directory / "log.txt").unlink()
    return str(directory)


def test_files_are_listed_by_path(tmp_path: Path) -> None:
    (tmp_path / "turns").mkdir()
    made = lab.sweep(leaves, a=[1, 2, 3, 4], turns=str(tmp_path / "turns"), folder=tmp_path / "s")
    rows = {row["a"]: row for row in made.table().rows()}
    assert sorted(rows) == [1, 3, 4]
    found = {(row["a"], str(row["path"]).partition("/")[2].partition("/")[2]): row for row in made.artefacts().rows()}
    # What was killed was tried again; what failed has its files too; a link is no file.
    assert sorted(found) == [(1, "deep/er/data.bin"), (1, "log.txt"), (2, "log.txt"), (3, "log.txt")]
    assert found[1, "deep/er/data.bin"]["bytes"] == 100_000
    assert all(str(row["path"]).startswith(f"trials/{row['key']}/") for row in found.values())
    said = {a: (tmp_path / "s" / str(row["path"])).read_text() for (a, name), row in found.items() if name == "log.txt"}
    assert said == {1: "1, turn 1", 2: "2, turn 1", 3: "3, turn 2"}
    assert rows[1]["artefacts"] == f"trials/{rows[1]['key']}"
    assert not rows[4]["artefacts"]
    assert not [row["value"] for row in rows.values() if Path(str(row["value"])).exists()]
    # Nothing is done again, and nothing is lost by it.
    again = lab.sweep(leaves, a=[1, 3, 4], turns=str(tmp_path / "turns"), folder=tmp_path / "s")
    assert len(again.artefacts()) == 3
    assert "trials/" in again.report(tmp_path / "page.html").read_text()


def test_too_much_is_no_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(artefacts, "MOST_BYTES", 3 << 20)

    def large(a: int, directory: Path) -> int:
        for number in range(a):
            (directory / str(number)).write_bytes(bytes(1 << 20))
        return a

    made = lab.sweep(large, a=[3, 4], folder=tmp_path / "s")
    assert list(made.table()["a"]) == [3]
    [row] = made.missing().rows()
    said = "InputError: the files that the function left are 4 MiB or more (expected 3 MiB at most; "
    assert row["message"] == said + "return what matters of them)"


def test_an_axis_may_be_called_so(tmp_path: Path) -> None:
    made = lab.sweep(lambda directory: f"is {directory}", directory=["here", "there"], folder=tmp_path / "s")
    assert sorted(made.table()["value"]) == ["is here", "is there"]
    assert len(made.artefacts()) == 0


def test_names_cannot_leave_the_folder(tmp_path: Path) -> None:
    for name in ("../x", "/x", "a/../../x"):
        with pytest.raises(ValueError, match="is not within"):
            artefacts.keep(tmp_path, "key", {"good": b"", name: b"x"})
    assert list((tmp_path / "trials").iterdir()) == []


def test_files_of_an_attempt_that_failed_are_not_those_of_the_next(tmp_path: Path) -> None:
    marker = str(tmp_path / "marker")

    def once(a: int, directory: Path) -> int:
        if not os.path.exists(marker):  # noqa: PTH110  # pathlib would be sent along
            with open(marker, "w"):  # noqa: PTH123
                pass
            (directory / "core").write_text("of the one that failed")
            raise RuntimeError("once")
        return a

    failed = lab.sweep(once, a=1, folder=tmp_path / "s")
    [row] = failed.artefacts().rows()
    left = tmp_path / "s" / "trials" / f".{row['key']}.a1b2c3d4"
    left.mkdir()
    done = lab.sweep(once, a=1, folder=tmp_path / "s")
    assert list(done.table()["value"]) == [1]
    assert len(done.artefacts()) == 0
    assert not left.exists()


def test_files_that_another_process_is_writing_stay(tmp_path: Path) -> None:
    writing = tmp_path / "trials/.key.a1b2c3d4"
    writing.mkdir(parents=True)
    descriptor = paths.hold(writing)
    for files in ({}, {"name": b"x"}):
        artefacts.keep(tmp_path, "key", files)
        assert writing.exists()
    os.close(descriptor)
    artefacts.keep(tmp_path, "key", {})
    assert list((tmp_path / "trials").iterdir()) == []
