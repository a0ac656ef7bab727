# SPDX-License-Identifier: MIT
"""The bounded workloads on this machine's own file system, where nothing is lost: what they promise, and no more."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from crash.logs import with_marks
from sampleblk_lab import InputError, crash
from sampleblk_lab.crash import ace


def _said(check: crash.Check, folder: Path, *marks: str) -> str:
    try:
        check(folder, with_marks(*marks))
    except AssertionError as error:
        return str(error)
    return ""


@pytest.fixture(params=ace.RULES)
def ran(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, dict[str, list[dict[str, Any]]], list[str]]:
    """The folder after all workloads, what they promised, and their marks in order."""
    folder = tmp_path / "mount"
    folder.mkdir()
    try:
        os.setxattr(folder, "user.test", b"")
    except OSError as error:
        pytest.skip(f"extended attributes: {error}")
    marks: list[str] = []
    ace.prepare(folder, ace.workloads())
    promises = ace.run(folder, marks.append, ace.workloads(), rule=request.param)
    return folder, json.loads(json.dumps(promises)), marks


def test_the_sequences_are_complete_and_each_has_a_name_of_its_own() -> None:
    chosen = ace.workloads()
    assert chosen == ace.workloads()
    names = [one.name for one in chosen]
    assert len(set(names)) == len(names) == 63
    operations = {one.operation.name for one in chosen}
    words = ("create", "link", "rename", "unlink", "overwrite", "append", "truncate", "fallocate", "mkdir", "setxattr")
    assert [word for word in words if not any(name.startswith(word) for name in operations)] == []
    for operation in ace.OPERATIONS:
        kinds = [one.durable for one in chosen if one.operation == operation]
        assert "sync" in kinds
        assert kinds.count("fsync") == len(operation.files) + len(operation.folders)
        assert kinds.count("fdatasync") == len(operation.files)


def test_what_is_promised_is_there_where_nothing_is_lost(
    ran: tuple[Path, dict[str, list[dict[str, Any]]], list[str]],
) -> None:
    folder, promises, marks = ran
    assert marks == list(promises) == [one.name for one in ace.workloads()]
    assert _said(ace.kept(promises), folder, *marks) == ""
    # Whatever is promised, a folder that is gone has none of it.
    for index, mark in enumerate(marks):
        if promises[mark]:
            shutil.rmtree(folder / f"w{index:03}")
            assert _said(ace.kept(promises), folder, mark).startswith(f"{mark!r} in w{index:03}: ")
        with pytest.raises(InputError, match="no mark of the promises is in the log"):
            ace.kept(promises)(folder, with_marks("something else"))


def test_what_a_crash_may_undo_is_not_promised(ran: tuple[Path, dict[str, list[dict[str, Any]]], list[str]]) -> None:
    folder, promises, marks = ran
    check = ace.kept(promises)

    def at(name: str) -> Path:
        return folder / f"w{marks.index(name):03}"

    # POSIX: a name is its folder's. fsync of a renamed file leaves the old name or the new one.
    posix = not any("names" in fact for fact in promises["rename foo A/new; fsync A/new"])
    moved = at("rename foo A/new; fsync A/new")
    (moved / "A/new").rename(moved / "foo")
    assert (_said(check, folder, "rename foo A/new; fsync A/new") == "") == posix
    (moved / "foo").write_bytes(b"torn")
    wrong = "foo has size 4, not 8192" if posix else "gone: A/new"
    assert wrong in _said(check, folder, "rename foo A/new; fsync A/new")
    for kind in ("fsync", "fdatasync"):
        linked = f"link foo A/link; {kind} A/link"
        (at(linked) / "A/link").unlink()
        assert (_said(check, folder, linked) == "") == (posix or kind == "fdatasync")
    # fdatasync has no extended attributes, fsync has them.
    for name, kept in (("setxattr foo; fdatasync foo", False), ("setxattr foo; fsync foo", True)):
        os.removexattr(at(name) / "foo", "user.new")
        assert bool(_said(check, folder, name)) == kept
        assert _said(ace.kept(promises, xattrs=False), folder, name) == ""
    # A file that is made is there after fsync by ext4's rule only; what is synced is there by both.
    (at("create A/new; fsync A/new") / "A/new").unlink()
    assert (_said(check, folder, "create A/new; fsync A/new") == "") == posix
    (at("create A/new; sync") / "A/new").unlink()
    assert _said(check, folder, "create A/new; sync")
    (at("create A/new; fsync A") / "A/new").unlink()
    assert _said(check, folder, "create A/new; fsync A")
    # A name that was removed is not back.
    for name in ("unlink foo; sync", "unlink foo; fsync ."):
        (at(name) / "foo").write_bytes(b"f" * 8192)
        assert _said(check, folder, name)
    for name in ("append foo; fdatasync foo", "append foo; fsync foo", "append foo; sync"):
        os.truncate(at(name) / "foo", 8192)
        assert "size 8192, not 13192" in _said(check, folder, name)


def test_a_rule_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="rule 'zfs'"):
        ace.run(tmp_path, lambda _: None, [], rule="zfs")


def test_a_workload_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    chosen = ace.workloads()[:2] * 2
    ace.prepare(tmp_path, chosen)
    with pytest.raises(InputError, match="'create A/new; sync' is there twice"):
        ace.run(tmp_path, lambda _: None, chosen)
