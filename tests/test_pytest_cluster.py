# SPDX-License-Identifier: MIT
"""``--sblk-scheduler``: VM tests on the hosts of a cluster, some with a process of the worker in the place of a VM."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sampleblk_lab.errors import InputError
from sampleblk_lab.paths import cache_root
from sampleblk_lab.pytest_plugin import far, relay, sources
from sampleblk_lab.pytest_plugin.messages import Frames, Link
from sampleblk_lab.pytest_plugin.places import Places

distributed = pytest.importorskip("distributed", reason="needs the extra 'sweep'")

from dask_cluster import Cluster  # noqa: E402  # needs distributed
from support import QUICK, STAND_IN  # noqa: E402

# A guest's folders are mounted at the session's paths.
root = pytest.mark.skipif(os.geteuid() != 0, reason="mounts need root")


# --- what is sent ----------------------------------------------------------------------------------------------------


def _names(archive: bytes, folder: Path) -> set[str]:
    path = folder / "archive.tar.gz"
    path.write_bytes(archive)
    with tarfile.open(path) as tar:
        return set(tar.getnames())


def _tree(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)


def test_what_git_would_track_is_sent(tmp_path: Path) -> None:
    project = tmp_path / "project"
    _tree(project, "test_a.py", "data/table.csv", "ignored.bin", "build/out.o", ".gitignore")
    (project / ".gitignore").write_text("*.bin\nbuild/\n")
    subprocess.run(["git", "init", "-q", str(project)], check=True)
    assert _names(sources.packed(project), tmp_path) == {".gitignore", "test_a.py", "data/table.csv"}
    also = _names(sources.packed(project, [project / "ignored.bin"]), tmp_path)
    assert "ignored.bin" in also


def test_without_git_what_was_made_is_left_out(tmp_path: Path) -> None:
    project = tmp_path / "project"
    _tree(
        project,
        "test_a.py",
        "sub/conftest.py",
        "runs/latest/0001/x",
        "__pycache__/a.pyc",
        ".hidden/b",
        "env/pyvenv.cfg",
    )
    (project / "link.py").symlink_to("test_a.py")
    assert _names(sources.packed(project), tmp_path) == {"test_a.py", "sub/conftest.py", "link.py"}


def test_the_same_files_are_the_same_archive(tmp_path: Path) -> None:
    _tree(tmp_path, "test_a.py", "b/c.py")
    first = sources.packed(tmp_path)
    time.sleep(1.1)  # gzip's header has the time in seconds
    assert sources.packed(tmp_path) == first
    (tmp_path / "b/c.py").write_text("changed")
    assert sources.digest_of(sources.packed(tmp_path)) != sources.digest_of(first)


def test_too_much_is_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "MOST_BYTES", 3 << 20)
    (tmp_path / "small.py").write_text("")
    (tmp_path / "trace.dat").write_bytes(bytes(4 << 20))
    with pytest.raises(InputError, match=r"are 4 MiB, such as trace.dat \(4 MiB\).* 3 MiB at most"):
        sources.packed(tmp_path)


def test_a_test_file_elsewhere_is_refused(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    with pytest.raises(InputError, match="the test file /elsewhere/"):
        sources.packed(tmp_path / "project", [Path("/elsewhere/test_a.py")])


def test_sources_are_unpacked_once_and_old_ones_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAMPLEBLK_CACHE", str(tmp_path / "cache"))
    project = tmp_path / "project"
    _tree(project, "test_a.py")
    first = sources.packed(project)
    sources.unpack(first)
    there = sources.unpacked_to(sources.digest_of(first))
    assert (there / "test_a.py").read_text() == "test_a.py"
    inode = there.stat().st_ino
    sources.unpack(first)
    assert there.stat().st_ino == inode
    os.utime(there, (0, 0))
    _tree(project, "test_b.py")
    sources.unpack(sources.packed(project))
    assert not there.exists()


def test_names_of_one_file_and_links_arrive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAMPLEBLK_CACHE", str(tmp_path / "cache"))
    project = tmp_path / "project"
    _tree(project, "test_a.py")
    (project / "test_b.py").hardlink_to(project / "test_a.py")
    (project / "outside").symlink_to("/nowhere/at/all")
    archive = sources.packed(project)
    sources.unpack(archive)
    there = sources.unpacked_to(sources.digest_of(archive))
    assert (there / "test_b.py").read_text() == (there / "test_a.py").read_text() == "test_a.py"
    assert os.readlink(there / "outside") == "/nowhere/at/all"  # noqa: PTH115


def test_frames_are_what_a_link_sends() -> None:
    read, write = os.pipe()
    link = Link(read, write)
    link.send("text", "x" * 3000)
    link.send("done", 1)
    data = os.read(read, 65536)
    frames = Frames()
    found = [frame for at in range(0, len(data), 7) for frame in frames.add(data[at : at + 7])]
    assert [files for _, files in found] == [False, True]
    os.write(write, b"".join(frame for frame, _ in found))
    assert (link.receive(), link.receive()) == (("text", "x" * 3000), ("done", 1))
    os.close(read)
    os.close(write)


def test_modules_are_found_in_the_project_and_where_this_host_has_them() -> None:
    places = Places((("/cache/abc", "/home/me/project"),), "/home/me/project/tests")
    told = ["", "/home/me/project/src", "/home/me/.venv/lib", "/home/me/project", "/home/me/projects"]
    own = ["/usr/lib/python3", "/opt/env/lib"]
    assert places.search_path(told, own) == ["", "/home/me/project/src", "/home/me/project", *own]


# --- on a cluster ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    here = tmp_path_factory.mktemp("cluster")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOCAL_GUEST_LOG", str(here / "guests.log"))
        patch.setenv("SAMPLEBLK_HOST_LOCK", str(here / "lock"))
        made = Cluster(here, 2, cache_root())
    made.client().close()
    yield made
    made.close()


@pytest.fixture
def _stand_in(pytester: pytest.Pytester, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Makes a plugin that puts a process of the worker in the place of each VM, which would have a /tmp of its own."""
    own = str(tmp_path_factory.mktemp("guest"))
    pytester.makepyfile(stand_in=f"{STAND_IN}guests._BASETEMP = {own!r}\n")


@pytest.fixture
def run(pytester: pytest.Pytester, cluster: Cluster, _stand_in: None):
    """Runs pytest with its VM tests on the cluster, and a process of the worker in the place of each VM."""

    def run(*options: str) -> pytest.RunResult:
        words = ["-p", "stand_in", *QUICK, "--sblk-scheduler", cluster.address, *options]
        return pytester.runpytest_subprocess(*words, timeout=300)

    return run


@root
def test_results_come_as_ever(run, pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\n")
    pytester.makepyfile(helper="ANSWER = 42\n")
    pytester.makepyfile(
        """
        import os, pytest, sys, warnings
        from pathlib import Path
        from helper import ANSWER

        pytestmark = pytest.mark.in_vm

        def test_passes(request):
            assert ANSWER == 42
            mounts = Path("/proc/self/mountinfo").read_text()
            assert f" {request.config.rootpath} " in mounts  # the copy, at the session's path
            assert Path.cwd() == request.config.invocation_params.dir
            assert "PYTEST_CURRENT_TEST" in os.environ

        def test_fails(tmp_path):
            (tmp_path / "kept.bin").write_bytes(bytes(5 << 20))
            (tmp_path / "empty").touch()
            print("said before")
            assert ANSWER == 43

        def test_warns():
            warnings.warn("from afar")

        @pytest.mark.skip(reason="not today")
        def test_skipped():
            pass

        def test_writes_much(sampleblk_folder):
            (sampleblk_folder / "notes.txt").write_text("n" * 100000)
            (sampleblk_folder / "link").symlink_to("notes.txt")
            (sampleblk_folder / "folder").mkdir()
            (sampleblk_folder / "last").symlink_to("folder")
        """
    )
    result = run("--sblk-keep", "-rA")
    result.assert_outcomes(passed=3, failed=1, skipped=1, warnings=1)
    result.stdout.fnmatch_lines(["*said before*", "*from afar*"])
    runs = pytester.path / "runs" / "latest" / "0001"
    (failed,) = runs.glob("*test_fails*")
    assert (failed / "tmp_path" / "kept.bin").read_bytes() == bytes(5 << 20)
    assert (failed / "tmp_path" / "empty").stat().st_size == 0
    (kept,) = runs.glob("*test_writes_much*")
    assert (kept / "notes.txt").read_text() == "n" * 100000
    assert (kept / "link").readlink() == Path("notes.txt")
    assert (kept / "last").readlink() == Path("folder")


@root
@pytest.mark.full
def test_xdist_spreads_guests_over_the_hosts(run, pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\n")
    pytester.makepyfile(
        """
        import os, pytest, time

        @pytest.mark.in_vm
        @pytest.mark.parametrize("number", range(4))
        def test_a(number, record_property):
            time.sleep(1)
            print(f"parent {os.getppid()}")
        """
    )
    result = run("-n", "2", "-rP")
    result.assert_outcomes(passed=4)
    assert len(set(re.findall(r"^parent (\d+)", result.stdout.str(), re.M))) == 2


@root
@pytest.mark.full
def test_a_test_that_hangs_meets_its_deadline(run, pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\n")
    pytester.makepyfile(
        """
        import pytest, time
        @pytest.mark.in_vm(deadline=3)
        def test_hangs():
            time.sleep(600)
        @pytest.mark.in_vm
        def test_next():
            pass
        """
    )
    result = run()
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*the test did not end in 3 s; its virtual machine was killed*"])


@root
def test_a_lost_worker_fails_its_test_only(run, pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\n")
    pytester.makepyfile(
        """
        import os, pytest, signal, time
        @pytest.mark.in_vm
        def test_worker_dies():
            os.kill(os.getppid(), signal.SIGKILL)  # the stand-in's parent is the worker
            time.sleep(120)  # nobody ends it, as a keeper would
        @pytest.mark.in_vm
        def test_next():
            pass
        """
    )
    result = run()
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*the worker tcp://127.0.0.* that had the VM was lost (*"])


@root
@pytest.mark.full
@pytest.mark.usefixtures("_stand_in")
def test_guests_end_with_a_session_that_is_killed(cluster: Cluster, pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\n")
    pytester.makepyfile(
        f"""
        import os, pathlib, pytest, time
        @pytest.mark.in_vm
        def test_a():
            pathlib.Path({str(cluster.here / "pid")!r}).write_text(str(os.getpid()))
            time.sleep(600)
        """
    )
    told = cluster.here / "pid"
    words = ["-p", "stand_in", "--sblk-scheduler", cluster.address]
    session = subprocess.Popen([sys.executable, "-m", "pytest", *words], cwd=pytester.path, stdout=subprocess.DEVNULL)
    try:
        end = time.monotonic() + 60
        while not (told.exists() and told.read_text()):
            assert time.monotonic() < end, "the test did not begin"
            time.sleep(0.1)
    finally:
        session.send_signal(signal.SIGKILL)
        session.wait()
    guest = int(told.read_text())
    end = time.monotonic() + far.SILENT_S + 20
    while Path(f"/proc/{guest}/stat").exists() and ") Z" not in Path(f"/proc/{guest}/stat").read_text():
        assert time.monotonic() < end, "the guest outlived its session"
        time.sleep(0.5)


SSH = """\
#!/bin/sh
# What ssh does for xdist, on a host that has this one's files but not its temporary folder.
for command; do :; done
exec unshare --mount sh -c 'mount -t tmpfs none "$HIDDEN" && cd "$FAR" && unset TMPDIR && exec sh -c "$1"' sh "$command"
"""


@root
def test_xdists_own_gateways_bring_run_directories_home(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``--tx ssh=``: a worker on another host starts VMs of its own there."""
    for name in ("bin", "hidden", "far", "project"):
        pytester.mkdir(name)
    ssh = pytester.path / "bin" / "ssh"
    ssh.write_text(SSH)
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", f"{ssh.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("HIDDEN", str(pytester.path / "hidden"))
    monkeypatch.setenv("FAR", str(pytester.path / "far"))
    monkeypatch.setenv("LOCAL_GUEST_LOG", str(pytester.path / "guests.log"))
    project = pytester.path / "project"
    (project / "pytest.ini").write_text("[pytest]\n")
    (project / "conftest.py").write_text(STAND_IN)
    (project / "test_far.py").write_text(
        "import os, pytest\n"
        "@pytest.mark.in_vm\n"
        "def test_fails(sampleblk_folder):\n"
        "    (sampleblk_folder / 'deep').mkdir()\n"
        "    (sampleblk_folder / 'deep' / 'notes.txt').write_text(os.getcwd())\n"
        "    assert False\n"
        "@pytest.mark.in_vm\n"
        "def test_passes():\n"
        "    pass\n"
    )
    monkeypatch.chdir(project)
    monkeypatch.setenv("TMPDIR", str(pytester.path / "hidden"))
    command = [sys.executable, "-m", "pytest", *QUICK, "--dist", "load", f"--rsyncdir={project}"]
    command += ["--tx", f"ssh=elsewhere//python={sys.executable}", str(project / "test_far.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)
    assert "1 failed, 1 passed" in done.stdout, f"{done.stdout}{done.stderr}"
    (notes,) = (project / "runs" / "latest" / "0001").glob("*test_fails*/deep/notes.txt")
    assert notes.read_text().startswith(str(pytester.path / "far"))
    assert not list((pytester.path / "hidden").iterdir())


def test_a_scheduler_that_is_not_there_is_one_error(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\n")
    pytester.makepyfile(
        "import pytest\n@pytest.mark.in_vm\ndef test_a(): pass\n@pytest.mark.in_vm\ndef test_b(): pass\n"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT", "2s")
        result = pytester.runpytest_subprocess("--sblk-scheduler", "tcp://127.0.0.1:9", timeout=120)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(
        ["*the VM did not start: no scheduler at 'tcp://127.0.0.1:9'*", "*1 more test did not run*"]
    )


def test_a_host_and_a_scheduler_are_refused_together(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_subprocess("--sblk-host", "--sblk-scheduler", "tcp://a:1")
    result.stderr.fnmatch_lines(["*--sblk-scheduler and --sblk-host: tests run on other hosts, or on this one*"])


class _Client:
    """A scheduler's client, with one worker of another version."""

    def run(self, _function, *_arguments, workers):
        return dict.fromkeys(workers, ("0.1", "3.9.2"))


def test_another_version_is_refused() -> None:
    config = relay.Config("tcp://a:1", (), "", "", "/", "/")
    made = relay._Relay(_Client(), config, None, Path("console"))
    made._address = "tcp://b:2"
    with pytest.raises(relay.FarError, match=r"the worker tcp://b:2 has sampleblk-lab 0\.1 on Python 3\.9\.2, not "):
        made._prepare()


def test_a_worker_cannot_write_elsewhere(tmp_path: Path) -> None:
    config = relay.Config("tcp://a:1", (), "", "", "/", str(tmp_path / "scratch"))
    made = relay._Relay(_Client(), config, None, Path("console"))
    with pytest.raises(relay.FarError, match=r"sent a file named '\.\./x'"):
        made._take(("file", "../x", 0, b""))
    with pytest.raises(relay.FarError, match="sent a file named '/etc/x'"):
        made._take(("file", "/etc/x", 0, b""))


def test_what_takes_a_link_s_place_leaves_alone_where_that_led(tmp_path: Path) -> None:
    config = relay.Config("tcp://a:1", (), "", "", "/", str(tmp_path / "scratch"))
    made = relay._Relay(_Client(), config, None, Path("console"))
    (tmp_path / "kept").write_text("kept")
    made._take(("link", "last", str(tmp_path / "kept")))
    made._take(("file", "last", 0, b"file"))
    assert (tmp_path / "scratch/last").read_bytes() == b"file"
    made._take(("link", "folder", str(tmp_path)))
    made._take(("file", "folder/kept", 0, b"file"))
    assert (tmp_path / "scratch/folder/kept").read_bytes() == b"file"
    made._take(("link", "folder", "elsewhere"))
    assert (tmp_path / "scratch/folder").readlink() == Path("elsewhere")
    assert (tmp_path / "kept").read_text() == "kept"


def test_a_vm_of_the_cluster_runs_a_test(pytester: pytest.Pytester, cluster: Cluster) -> None:
    pytester.makeini("[pytest]\n")
    pytester.makepyfile(
        """
        import json, os
        from pathlib import Path

        def test_writes(sampleblk_mount, sampleblk_folder, request):
            (Path(sampleblk_mount.path) / "file").write_bytes(bytes(4096))
            os.sync()
            (sampleblk_folder / "about.json").write_text(json.dumps(
                [os.environ["SAMPLEBLK_VM"], str(request.config.rootpath), os.getcwd()]))

        def test_panics(sampleblk):
            Path("/proc/sysrq-trigger").write_text("c")
        """
    )
    words = [*QUICK, "--sblk-scheduler", cluster.address, "--sblk-keep"]
    result = pytester.runpytest_subprocess(*words, timeout=600)
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*the guest's kernel panicked under this test*", "*sysrq*"])
    runs = pytester.path / "runs" / "latest" / "0001"
    (about,) = runs.glob("*test_writes*/about.json")
    vm, rootpath, cwd = json.loads(about.read_text())
    assert json.loads(vm)["accel"] in ("kvm", "tcg")
    assert rootpath == cwd == str(pytester.path)
    (console,) = runs.glob("*test_panics*/console.log")
    assert "sysrq" in console.read_text()
