# SPDX-License-Identifier: MIT
"""What joins several kinds of events: path names of calls, a call followed into other contexts, an end by condition."""

from __future__ import annotations

import ctypes
import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
from kernel_features import needs_histograms

import sampleblk_lab as lab
from sampleblk_lab._native import core

pytestmark = pytest.mark.each_kernel


def test_lines_carry_the_paths_that_a_probe_read(tmp_path):
    target, other = tmp_path / "a name", tmp_path / "another"
    with lab.record(syscalls=["openat", "write", "close", "rename"], paths=True, pids=os.getpid()) as rec:
        file = os.open(target, os.O_RDWR | os.O_CREAT, 0o640)
        os.write(file, b"x" * 5)
        os.close(file)
        target.rename(other)
        with pytest.raises(FileNotFoundError):
            os.open(target, os.O_RDONLY)
    lines = [line.split(" ", 1)[1].partition(" <0.")[0] for line in rec.syscalls().lines()]
    assert f'openat(AT_FDCWD, "{target}", O_RDWR|O_CREAT|O_CLOEXEC, 0640) = {file}' in lines
    assert f"write({file}<{target}>, " in "\n".join(lines)
    assert f"close({file}<{target}>)" in "\n".join(lines)
    if "__filename_val" not in Path(core.tracefs_dir(), "events/syscalls/sys_enter_openat/format").read_text():
        # Of later kernels' own fields those of opens and unlinks are read, not those of renames.
        assert f'rename("{target}", "{other}")' in "\n".join(lines)
    assert f'openat(AT_FDCWD, "{target}", O_RDONLY|O_CLOEXEC) = -1 ENOENT' in lines
    assert rec.run.options["missed_probes"] == 0
    assert "path_" not in Path(core.tracefs_dir(), "kprobe_events").read_text()


def test_a_condition_ends_a_flight_recording():
    with (
        lab.record(syscalls=["write"], keep="256K", until="syscalls:sys_enter_write if count == 777") as rec,
        Path("/dev/null").open("wb", buffering=0) as null,
    ):
        for size in (*range(1, 50), 777, *range(100, 150)):
            null.write(bytes(size))
            if size < 50:
                assert not rec.triggered
        assert rec.triggered
        rec.mark("too late")  # is not there, as the writes are not, and no error: who marks need not know
    table = rec.run.events("sys_enter_write", pids=[os.getpid()])
    assert rec.triggered
    assert table["count"].codes.tolist()[-1] in (49, 777)
    assert table["count"].codes.tolist()[:49] == list(range(1, 50))
    with pytest.raises(lab.InputError, match="expected 'system:event'"):
        lab.record(until="write")


@pytest.mark.full
def test_an_fsync_goes_on_in_the_journals_thread():
    graph = ["*sys_fsync", "jbd2_journal_commit_transaction"]
    with lab.Device(capacity="64M") as device, device.mkfs("ext4").mount() as mount:
        file = os.open(mount / "test", os.O_RDWR | os.O_CREAT)
        os.write(file, bytes(4096))
        os.fsync(file)
        with lab.record(
            syscalls=["write", "fsync"], graph=graph, depth=5, block=True, events=["sched:sched_switch"]
        ) as rec:
            os.write(file, bytes(65536))
            os.fsync(file)
        os.close(file)
    story = rec.run.follow_through("fsync", pids=os.getpid())
    journal = [context for context in story.contexts() if "jbd2/" in context]
    assert journal, story
    names = [(node.name, node.context) for node in story.root.walk()]
    assert ("jbd2_journal_commit_transaction()", journal[0]) in names
    assert sum(name == "issue to completion" for name, _ in names) >= 2
    times = dict(zip(*(story.times()[name] for name in ("where", "time")), strict=True))
    assert times["other tasks"] > 0
    assert times["off CPU"] > 0
    assert times["on CPU"] + times["off CPU"] == story.root.duration
    assert f"[{journal[0]}]" in story.text()
    assert "<details" in story._repr_html_()


def test_markers_from_the_core_are_events_of_the_instance():
    with lab.Session() as session:
        session.mark("from a session")
        marker = core.Marker(session.path)
        marker.write("from the core")
        text = session.trace_text()
        del marker
    assert text.index("from a session") < text.index("from the core")
    with pytest.raises(OSError, match="trace_marker") as caught:
        core.Marker("/nonexistent")
    assert caught.value.errno == errno.ENOENT


@needs_histograms
def test_the_longest_wakeup_is_kept_by_the_kernel():
    with lab.Session() as session:
        event = session.synthetic("sblk_wakeup", {"lat": "u64", "pid": "s32"})
        session.hist("sched:sched_waking", "pid", variables={"ts0": "common_timestamp.usecs"})
        longest = session.hist(
            "sched:sched_switch",
            "next_pid",
            variables={"lat": "common_timestamp.usecs-$ts0"},
            actions=["onmax($lat).save(next_comm,prev_comm)"],
        )
        for _ in range(3):
            pid = os.posix_spawn("/bin/true", ["true"], {})
            os.waitpid(pid, 0)
        assert event == "synthetic:sblk_wakeup"
        assert "max:" in longest.text()


def test_the_blk_tracer_letters_what_a_device_does():
    with lab.Device(capacity="16M") as device:
        with lab.Session(top_level=True) as session:
            session.tracer("blk")
            session.block_devices(Path(device.path).name)
            file = os.open(device.path, os.O_WRONLY)
            os.write(file, bytes(4096))
            os.fsync(file)
            os.close(file)
            text = session.trace_text()
            with pytest.raises(lab.InputError, match="no block device 'sheep'"):
                session.block_devices("sheep")
        with Path(device.path).open("rb"):  # without it 5.10 answers ENXIO
            assert Path("/sys/block", Path(device.path).name, "trace/enable").read_text().strip() == "0"
    actions = {line.split()[line.split().index("blk:") + 2] if "blk:" in line else "" for line in text.splitlines()}
    assert {"Q", "D", "C"} <= actions or all(f" {letter} " in text for letter in "QDC"), text


KILLED = """
import os, sys, time
import sampleblk_lab as lab
session = lab.Session()
opened = session.kprobe("sblk_k", "do_sys_openat2")
session.enable([opened])
session.latency("sblk_lat", "sched:sched_waking", "sched:sched_switch", key=("pid", "next_pid"))
rec = lab.record(syscalls=["openat"], paths=True).start()
print("started", flush=True)
time.sleep(120)
"""


@needs_histograms
def test_probes_and_kernel_histograms_of_a_killed_session_go():
    top = Path(core.tracefs_dir())
    lists = ("kprobe_events", "synthetic_events", "dynamic_events")
    before = {name: (top / name).read_text() for name in lists} | {
        "instances": sorted(path.name for path in (top / "instances").iterdir())
    }
    child = subprocess.Popen([sys.executable, "-c", KILLED], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "started\n"
    assert "sblk_k" in (top / "kprobe_events").read_text()
    assert "sblk_lat" in (top / "synthetic_events").read_text()
    child.kill()
    child.wait(60)
    child.stdout.close()
    with lab.Session() as session:
        recovered = "\n".join(session.recovered)
    assert "not undone" not in recovered
    assert "kprobe_events" in recovered
    after = {name: (top / name).read_text() for name in lists} | {
        "instances": sorted(path.name for path in (top / "instances").iterdir())
    }
    assert after == before


def address_of(library: ctypes.CDLL, function: str) -> int:
    address = ctypes.cast(getattr(library, function), ctypes.c_void_p).value
    assert address is not None
    return address


def place_of(function: str, library: ctypes.CDLL | None = None) -> tuple[str, int]:
    """The file of a library, by default the C library, and where in it a function begins."""
    address = address_of(library or ctypes.CDLL(None), function)
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, _, offset, _, _, *path = line.split(maxsplit=5)
        begin, end = (int(text, 16) for text in span.split("-"))
        if begin <= address < end:
            return path[0], address - begin + int(offset, 16)
    raise AssertionError(function)


def test_user_probes_take_calls_and_returns():
    path, offset = place_of("getppid")
    libc = ctypes.CDLL(None)
    with lab.Session() as session:
        entered = session.uprobe("sblk_enter", path, offset)
        returned = session.uretprobe("sblk_return", path, offset, parent="$retval:s32")
        session.enable([entered, returned])
        for _ in range(3):
            assert libc.getppid() == os.getppid()
        text = session.trace_text()
    # Once each: this process has the file that the path names, whatever it was started from.
    own = [line for line in text.splitlines() if line.split()[0].endswith(f"-{os.getpid()}")]
    assert len([line for line in own if "sblk_enter:" in line]) == 2 * 3
    assert len([line for line in own if f"parent={os.getppid()}" in line]) == 2 * 3
    assert "sblk_" not in Path(core.tracefs_dir(), "uprobe_events").read_text()


def test_a_probe_on_an_event_picks_its_fields(tmp_path):
    with lab.Session() as session:
        if not session.has_top("dynamic_events") or "e[:" not in Path(core.tracefs_dir(), "README").read_text():
            pytest.skip("this kernel has no event probes (5.15)")
        opened = session.eprobe("sblk_open", "syscalls:sys_enter_openat", how="$flags:x32")
        session.enable([opened])
        os.close(os.open(tmp_path / "x", os.O_RDWR | os.O_CREAT | os.O_EXCL))
        text = session.trace_text()
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    assert f"how={flags:#x}" in text
    assert "sblk_" not in Path(core.tracefs_dir(), "dynamic_events").read_text()


@pytest.mark.parametrize("made", ["lab.record(block=True).start()", "lab.profile(offcpu=True)"])
def test_a_container_has_pids_of_its_own(made):
    code = f"import sampleblk_lab as lab\ntry:\n    {made}\nexcept lab.UnsupportedError as error:\n    print(error)"
    unshare = ["unshare", "--pid", "--fork", "--mount-proc"]
    said = subprocess.run([*unshare, sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "this process is in a pid namespace of its own" in said
    assert "--pid=host" in said
