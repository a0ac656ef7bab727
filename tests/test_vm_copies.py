# SPDX-License-Identifier: MIT
"""Files of the host that a guest has in its memory: they are the host's, and opening them sends the host nothing."""

from __future__ import annotations

import compileall
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sampleblk_lab.errors import InputError
from sampleblk_lab.vm import VM
from sampleblk_lab.vm.contents import copies, interpreter, programs
from support import use_own_cache

# Runs each of some programs twice, and says how many messages the second run of it sent to the host; the shell's own
# commands send none.
_MESSAGES = """
trace=/sys/kernel/tracing
echo 1 > $trace/events/9p/9p_client_req/enable
for program; do
    $program >/dev/null
    echo > $trace/trace
    $program >/dev/null
    count=0
    while read -r line; do case "$line" in \\#*) ;; *9p_client_req:*) count=$((count + 1));; esac; done < $trace/trace
    echo $count
done
"""


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VM]:
    """A clone that has the files that each has, and those of a folder."""
    # With PYTHONDONTWRITEBYTECODE a checkout's stay as they were before an edit, and a guest has newer ones.
    compileall.compile_dir(Path(copies.__file__).parents[1], quiet=1)
    folder = tmp_path_factory.mktemp("resident")
    (folder / "below").mkdir()
    shutil.copy("/bin/true", folder / "below/program")
    (folder / "link").symlink_to("below/program")
    (folder / "nowhere").symlink_to("/no/such/file")
    (folder / "own").write_bytes(b"read by its owner only")
    (folder / "own").chmod(0o600)
    os.chown(folder / "own", os.getuid(), os.getgid())
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    shutil.copy("/bin/true", elsewhere / "program")
    with pytest.MonkeyPatch.context() as patch:
        use_own_cache(tmp_path_factory.mktemp("cache"), patch)
        vm = VM(driver=False, resident=[folder])
        vm.make_template()
        with vm:
            assert vm.restored
            yield vm


def _resident(machine: VM) -> Path:
    [folder] = machine._resident
    return folder


def test_what_is_in_memory_sends_the_host_nothing(machine: VM) -> None:
    folder = _resident(machine)
    elsewhere = next(folder.parent.glob("elsewhere*/program"))
    asked = [str(folder / "link"), "/bin/true", f"awk -f /dev/null {os.devnull}", str(elsewhere)]
    done = machine.run(["bash", "-c", _MESSAGES, "bash", *asked], env={**os.environ, "LC_ALL": "C"})
    assert done.returncode == 0, done.stderr
    *copied, other = map(int, done.stdout.split())
    assert copied == [0, 0, 0]
    assert other > 0  # the same bytes


def test_copies_are_as_the_files_are(machine: VM) -> None:
    python = interpreter.ready(at_once=True)
    assert python is not None
    folder = _resident(machine)
    paths = [*python.files, *python.folders, *map(str, [folder, *folder.rglob("*")])]
    assert str(Path(programs.__file__)) in paths
    folders = [path for path in paths if Path(path).is_dir() and not Path(path).is_symlink()]
    for about, some in (
        ("%n %f %u %g %s %Y", [path for path in paths if path not in folders]),
        ("%n %f %u %g %Y", folders),
    ):
        command, listed = ["xargs", "-0", "stat", "--printf", f"{about}\\n"], "\0".join(some).encode()
        here = subprocess.run(command, input=listed, capture_output=True, check=True).stdout
        there = machine.run(command, stdin=listed)
        assert there.returncode == 0, there.stderr
        assert there.stdout.splitlines() == here.splitlines()
    assert machine.run(["cat", str(folder / "own")]).stdout == b"read by its owner only"


def test_folders_have_the_host_s_other_files_too(machine: VM) -> None:
    folders = {"/", *(str(Path(path).parent) for path in programs.files())}
    for folder in sorted(folders):
        there = machine.run(["ls", "-A1", folder], env={**os.environ, "LC_ALL": "C"}).stdout.decode().splitlines()
        assert there == sorted(path.name for path in Path(folder).iterdir()), folder


def test_a_guest_may_change_its_copy(machine: VM) -> None:
    own = _resident(machine) / "own"
    done = machine.run(
        ["sh", "-c", 'echo changed > "$1"; rm "$2"; cat "$1"; test ! -e "$2"', "sh", own, own.parent / "link"]
    )
    assert (done.returncode, done.stdout) == (0, b"changed\n")
    assert own.read_bytes() == b"read by its owner only"
    assert (own.parent / "link").is_symlink()


@pytest.mark.usefixtures("own_builds")
def test_a_guest_has_what_is_there_when_it_starts(tmp_path: Path) -> None:
    folder = tmp_path / "resident"
    folder.mkdir()
    file = folder / "file"
    for text in ("one", "two"):
        for warm in (True, True, False):
            file.write_text(text)
            with VM(driver=False, memory_mib=512, resident=[folder], warm=warm) as vm:
                file.write_text("later")
                assert vm.run(["cat", str(file)]).stdout == text.encode()


@pytest.mark.usefixtures("own_builds")
def test_what_changes_while_a_template_is_made_makes_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "resident").mkdir()
    file = tmp_path / "resident/file"
    file.write_text("old")
    taken = copies.archive

    def archive(*arguments: object) -> bytes:
        made = taken(*arguments)  # type: ignore[arg-type]
        file.write_text("new")
        return made

    monkeypatch.setattr(copies, "archive", archive)
    with VM(driver=False, memory_mib=512, resident=[file.parent]) as vm:
        assert not vm.restored
        assert vm.run(["cat", str(file)]).stdout == b"new"
    assert f"what it is made of has changed meanwhile: {file.parent} " in capsys.readouterr().err


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no-such-folder"):
        VM(driver=False, resident=[tmp_path / "no-such-folder"])


@pytest.mark.usefixtures("own_builds")
def test_a_folder_that_does_not_fit_is_named_with_what_it_takes(tmp_path: Path) -> None:
    (tmp_path / "resident").mkdir()
    with (tmp_path / "resident/file").open("wb") as file:
        file.truncate(100 << 20)
    with pytest.raises(InputError, match=r"resident: 100 MiB cannot be .* of 300 MiB .*memory_mib of 329 or more"):
        VM(driver=False, memory_mib=300, resident=[tmp_path / "resident"]).start()
    with VM(driver=False, memory_mib=329, resident=[tmp_path / "resident"]) as vm:
        assert vm.restored is False
        assert vm.run(["stat", "-c", "%s", str(tmp_path / "resident/file")]).stdout == b"104857600\n"


def test_a_state_is_of_everything_below(tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/b/file").write_text("one")
    seen = {copies.tree_state(tmp_path)}

    def write_as_it_was_dated() -> None:
        """As rsync does with --inplace --times, and cp with -p."""
        (tmp_path / "a/c/file").write_text("TWO!")
        os.utime(tmp_path / "a/c/file", (1, 1))

    for change in (
        lambda: (tmp_path / "a/b/file").write_text("two!"),
        lambda: (tmp_path / "a/b/file").chmod(0o600),
        lambda: (tmp_path / "a/link").symlink_to("b"),
        lambda: (tmp_path / "a/link").unlink(),
        lambda: os.utime(tmp_path / "a/b/file", (1, 1)),
        lambda: (tmp_path / "a/b").rename(tmp_path / "a/c"),
        write_as_it_was_dated,
        lambda: tmp_path.chmod(0o711),
    ):
        time.sleep(0.01)  # a tick of the clock that inodes have their times of
        change()
        seen.add(copies.tree_state(tmp_path))
    assert len(seen) == 9
    assert copies.tree_state(tmp_path) in seen


def test_a_state_is_of_what_each_file_has(tmp_path: Path) -> None:
    file = tmp_path / "file"
    seen = set()
    for text, mode in (("one", 0o644), ("two", 0o644), ("two", 0o755)):
        time.sleep(0.01)
        file.write_text(text)
        file.chmod(mode)
        os.utime(file, (1, 1))
        seen.add(copies.state([str(file)], [str(tmp_path)]))
    assert len(seen) == 3


def test_what_an_archive_cannot_hold_is_left_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "_PROGRAMS", ("plain", "capable", "missing"))
    monkeypatch.setattr(programs, "_DATA", ())
    monkeypatch.setattr(programs, "_LOCALES", str(tmp_path / "none"))
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    for name in ("plain", "capable"):
        shutil.copy("/bin/true", tmp_path / name)
    try:
        os.setxattr(tmp_path / "capable", "user.sampleblk", b"1")
    except OSError as error:
        raise pytest.skip.Exception(f"no extended attributes here: {error}") from None
    found = programs.files()
    assert str(tmp_path / "plain") in found
    assert str(tmp_path / "capable") not in found
    assert any("/libc.so" in path for path in found)
