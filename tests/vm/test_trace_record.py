# SPDX-License-Identifier: MIT
"""Live recording: what is in the file, and that nothing of it stays behind."""

from __future__ import annotations

import contextlib
import fcntl
import fnmatch
import os
import re
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import textwrap
import time
from pathlib import Path

import pytest

import sampleblk_lab as lab
from sampleblk_lab._native import core
from sampleblk_lab.analysis.trust import of_recording

# Files whose text must be the same before and after.
KNOBS = (
    "current_tracer",
    "max_graph_depth",
    "saved_cmdlines_size",
    "set_event",
    "set_event_pid",
    "set_ftrace_filter",
    "set_ftrace_pid",
    "set_graph_function",
    "set_graph_notrace",
    "trace_clock",
    "trace_options",
    "tracing_on",
    "tracing_thresh",
    "kprobe_events",
    "uprobe_events",
    "synthetic_events",
)


def state() -> dict[str, object]:
    top = Path(core.tracefs_dir())
    knobs: dict[str, object] = {name: (top / name).read_text() for name in KNOBS if (top / name).exists()}
    # "7 (expanded: 1408)" and, in whole sub-buffers, 1408 or 1410 are one size: see restoring_writes() in the core
    size = (top / "buffer_size_kb").read_text()
    grown = re.search(r"expanded: (\d+)", size)
    knobs["buffer_size_kb"] = int(grown[1] if grown else size) // 8
    knobs["instances"] = sorted(path.name for path in (top / "instances").iterdir())
    undo = Path("/run/sampleblk-lab")
    knobs["undo files"] = (
        sorted(path.name for path in undo.iterdir() if path.suffix != ".lock") if undo.exists() else []
    )
    return knobs


@pytest.fixture
def untouched():
    before = state()
    yield
    assert state() == before


def a_job(path: Path, loops: int = 3) -> None:
    for _ in range(loops):
        file = os.open(path, os.O_RDWR | os.O_CREAT)
        for _ in range(16):
            os.write(file, bytes(4096))
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(file)


@pytest.mark.usefixtures("untouched")
def test_system_calls_are_counted_exactly(tmp_path):
    with lab.record(syscalls=["openat", "write", "fadvise64", "close"], pids=os.getpid()) as rec:
        a_job(tmp_path / "file")
    table = rec.syscalls().summary()
    assert {name: table["calls"][name] for name in ("write", "fadvise64")} == {"write": 48, "fadvise64": 3}
    assert table.metadata["lost_events"] == "0"
    assert rec.io_sizes().histogram()["writes"].codes.sum() == 48


@pytest.mark.usefixtures("untouched")
def test_what_ends_in_an_interrupt_while_we_read_is_recorded():
    with lab.Device("16M") as device:
        device.set_timing("exponential", 15_000_000)
        job = lab.Job(rw="randread", bs="4k", size="8M", ioengine="libaio", iodepth=16, direct=1, filename=device.path)
        with lab.record(block=True, syscalls=True) as rec:
            readers = set(rec._readers.thread_ids)
            job.run(progress=False)
    counts = rec.run.counts()["count"]
    assert counts["block:block_rq_complete"] == counts["block:block_rq_issue"] >= 2048
    assert not readers & set(rec.syscalls().table()["pid"].codes.tolist())


@pytest.mark.usefixtures("untouched")
def test_recordings_end_in_any_order(tmp_path):
    """The top level's buffer, which some kernels use for one of them, has its size then and afterwards."""
    top = Path(core.tracefs_dir(), "buffer_size_kb")
    first = lab.record(syscalls=["write"], pids=os.getpid()).start()
    second = lab.record(graph="vfs_write", depth=1, pids=os.getpid()).start()
    assert second._session.read("set_ftrace_filter").split() == ["vfs_write"]  # all of them take seconds
    third = lab.record(block=True).start()
    size = top.read_text()
    a_job(tmp_path / "file", 1)
    assert first.stop().syscalls().summary()["calls"]["write"] >= 16  # and those of the others' beginnings
    assert top.read_text() == size
    a_job(tmp_path / "file", 1)
    assert len(second.stop().graph("vfs_write").table()) >= 32
    third.stop()


@pytest.mark.usefixtures("untouched")
def test_a_fork_does_not_stop_a_recording_of_its_parent(tmp_path):
    recording = lab.record(syscalls=["write"], pids=os.getpid()).start()
    if (child := os.fork()) == 0:
        status = 1
        try:
            recording.close()
            recording.stop()
        except RuntimeError as error:
            status = 0 if "the recording belongs to process" in str(error) else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    a_job(tmp_path / "file", 1)
    assert recording.stop().syscalls().summary()["calls"]["write"] == 16


def test_a_fork_stops_neither_samples_nor_counts_of_its_parent():
    with (
        lab.profile(event="cpu-clock", pids=os.getpid()) as profile,
        lab.stat(pids=os.getpid(), events="context-switches") as counts,
    ):
        if (child := os.fork()) == 0:
            stopped = 0
            for one in (profile, counts):
                try:
                    one.stop()
                    stopped += 1
                except RuntimeError:
                    pass
            os._exit(stopped)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        before = counts["context-switches"]
        end = time.monotonic() + 1
        while time.monotonic() < end:
            time.sleep(0.01)
            sum(range(100_000))
        assert counts["context-switches"] > before
    assert profile.stats["samples"] > 0


@pytest.mark.usefixtures("untouched")
def test_what_was_saved_opens_again_and_in_trace_cmd(tmp_path):
    with lab.record(syscalls=["write"], pids=os.getpid()) as rec:
        a_job(tmp_path / "file")
    run = rec.save(tmp_path / "run")
    assert run.syscalls().summary()["calls"]["write"] == 48
    report = subprocess.run(
        ["trace-cmd", "report", "-i", str(tmp_path / "run" / "trace.dat")], capture_output=True, text=True, check=True
    )
    assert report.stdout.count("sys_enter_write") == int(run.counts()["count"]["syscalls:sys_enter_write"])


@pytest.mark.usefixtures("untouched")
def test_function_graph_is_a_tree(tmp_path):
    with lab.record(graph="*sys_fadvise64", pids=os.getpid()) as rec:
        a_job(tmp_path / "file")
    tree = rec.graph("*sys_fadvise64").tree(0)
    assert "generic_fadvise" in tree.functions()
    assert "sys_fadvise64() {" in tree.text().splitlines()[0]
    assert len(rec.graph("*sys_fadvise64").table()) > 9


@pytest.mark.usefixtures("untouched")
def test_a_call_graph_of_some_functions_only(tmp_path):
    wanted = ("*fadvise*", "invalidate_*", "__filemap_*")
    with lab.record(graph="*sys_fadvise64", only=wanted, pids=os.getpid()) as rec:
        a_job(tmp_path / "file")
    functions = rec.graph("*sys_fadvise64").table()["function"].values
    named = {name for name in functions if not any(fnmatch.fnmatchcase(name, each) for each in wanted)}
    assert named == set()
    assert "generic_fadvise" in functions
    assert sum(name.endswith("sys_fadvise64") for name in functions) == 3
    with pytest.raises(lab.InputError, match=r"only= without graph="):
        lab.record(only="ext4_*")
    with (
        pytest.raises(lab.InputError, match=r"no traceable function matches .*'no_such_fn'"),
        lab.record(graph="*sys_fadvise64", only="no_such_fn"),
    ):
        pass


@pytest.mark.usefixtures("untouched")
def test_children_are_followed_where_asked(tmp_path):
    with lab.record(syscalls=["write"], events=["sched:sched_process_exit"], pids=os.getpid()) as rec:
        child = os.fork()
        if child == 0:
            a_job(tmp_path / "file", 1)
            os._exit(0)
        os.waitpid(child, 0)
    pids = rec.syscalls().table()["pid"].codes
    assert (pids == child).sum() == 16
    # The kernel alone chooses the tasks where nothing but system calls is recorded.
    with lab.record(syscalls=["write"], pids=os.getpid()) as rec:
        subprocess.run(["dd", "if=/dev/zero", f"of={tmp_path}/other", "count=5"], check=True, capture_output=True)
    calls = rec.syscalls().table()
    assert ((calls["pid"].codes != os.getpid()) & (calls["ret"].codes == 512)).sum() == 5
    with lab.record(syscalls=["write"], pids=os.getpid(), children=False) as rec:
        subprocess.run(["dd", "if=/dev/zero", f"of={tmp_path}/other", "count=5"], check=True, capture_output=True)
    assert (rec.syscalls().table()["pid"].codes == os.getpid()).all()


@pytest.mark.usefixtures("untouched")
def test_an_exception_in_the_body_passes_and_the_recording_is_kept(tmp_path):
    rec = lab.record(syscalls=["write"], pids=os.getpid())

    def experiment() -> None:
        with rec:
            a_job(tmp_path / "file")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        experiment()
    assert rec.syscalls().summary()["calls"]["write"] == 48


@pytest.mark.usefixtures("untouched")
def test_what_the_kernel_lacks_is_named():
    with pytest.raises(lab.InputError, match=r"no system call 'wrote'.*write"), lab.record(syscalls=["wrote"]):
        pass
    with pytest.raises(lab.InputError, match="no event 'nonesuch:event'"), lab.record(events=["nonesuch:event"]):
        pass
    with (
        pytest.raises(lab.InputError, match="no traceable function matches 'no_such_fn'"),
        lab.record(graph="no_such_fn"),
    ):
        pass
    with (
        pytest.raises(lab.InputError, match="no trace clock 'sundial'"),
        lab.record(syscalls=["write"], clock="sundial"),
    ):
        pass


@pytest.mark.usefixtures("untouched")
def test_a_tracer_in_use_is_left_alone():
    top = core.tracefs_dir()
    core.write_control(f"{top}/set_event", "sched:sched_switch")
    try:
        with pytest.raises(lab.UnsupportedError, match="someone else uses events"):
            lab.Session(top_level=True)
    finally:
        core.write_control(f"{top}/set_event", "")
    # One of ours that traces nothing yet: closed before the other, each would put back what the other has set.
    with lab.Session(top_level=True) as first:
        first.clock("mono")
        with pytest.raises(lab.UnsupportedError, match="tracing at the top level: another session"):
            lab.Session(top_level=True)
    lab.Session(top_level=True).close()


CHILD = textwrap.dedent("""
    import sys, time
    import sampleblk_lab as lab
    with lab.record(syscalls=["write"], graph="*sys_fadvise64", only="*fadvise*"):
        print("started", flush=True)
        # In steps: a signal just before the system call of one long sleep would be seen at its end only.
        for _ in range(2400):
            time.sleep(0.05)
""")


def start_child() -> subprocess.Popen[str]:
    child = subprocess.Popen([sys.executable, "-c", CHILD], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "started\n"
    return child


def wait_for(child: subprocess.Popen[str]) -> int:
    assert child.stdout is not None
    assert child.stderr is not None
    code = child.wait(60)
    child.stdout.close()
    child.stderr.close()
    return code


@pytest.mark.usefixtures("untouched")
def test_ctrl_c_puts_everything_back():
    child = start_child()
    child.send_signal(signal.SIGINT)
    assert wait_for(child) != 0


@pytest.mark.usefixtures("untouched")
def test_the_next_start_cleans_up_after_a_kill():
    before = state()
    child = start_child()
    assert state() != before
    child.kill()
    wait_for(child)
    time.sleep(0.2)
    assert state() != before
    session = lab.Session()
    try:
        assert any("instance" in line or "current_tracer" in line for line in session.recovered)
    finally:
        session.close()
    assert state() == before
    spools = set(Path(tempfile.gettempdir()).glob("sampleblk-trace-*"))
    with lab.record():
        left = spools & set(Path(tempfile.gettempdir()).glob("sampleblk-trace-*"))
    assert len(left) == len(spools) - 1


@pytest.mark.usefixtures("untouched")
def test_a_probe_that_a_killed_recording_used_is_taken_away():
    code = """if 1:
        import sys
        import sampleblk_lab as lab
        session = lab.Session()
        with lab.record(events=[session.kprobe("used", "vfs_read")]):
            print("on", flush=True)
            sys.stdin.read()
    """
    child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with child:
        assert child.stdout.readline() == b"on\n"
        child.kill()
    with lab.Session() as session:
        assert [line for line in session.recovered if line.startswith("not undone")] == []
        session.kprobe("used", "vfs_read")


@pytest.mark.usefixtures("untouched")
def test_a_recording_of_blocks_leaves_the_probes_of_others_alone():
    with lab.Device("1M"), lab.Session() as session:
        session.kprobe("beside", "vfs_read")
        recording = lab.record(block=True).start()
        session.close()  # which it could not while the probe was in use
        enabled = set(recording._enabled)
        recording.stop()
    assert "sampleblk:sampleblk_complete" in enabled
    assert "sampleblk:beside" not in enabled


def mark(session: lab.Session, count: int) -> None:
    for number in range(count):
        session.mark(f"m{number:07d}")


def pipes() -> set[int]:
    """The descriptors that are ends of pipes."""
    found = set()
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # that of the listing
            if str(entry.readlink()).startswith("pipe:"):
                found.add(int(entry.name))
    return found


def waiting(pipe: int) -> int:
    """How many bytes are in a pipe."""
    return struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)))[0]


@pytest.mark.usefixtures("untouched")
def test_a_disk_that_is_full_for_a_moment_is_told(tmp_path, monkeypatch):
    """What did not fit at first stayed between the buffer and the file, and was in neither."""
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512K", "small", small], check=True)
    try:
        monkeypatch.setattr("tempfile.tempdir", str(small))
        before = pipes()
        recorder = lab.record().start()
        session = recorder._session
        assert session is not None
        with (small / "filling").open("wb", buffering=0) as filling:
            with contextlib.suppress(OSError):
                while True:
                    filling.write(bytes(4096))
            filling.truncate(filling.tell() - 4096)
            mark(session, 700)  # three pages and some
            time.sleep(0.3)
            between = [os.dup(pipe) for pipe in pipes() - before]  # as a fork would have them
            assert any(waiting(pipe) for pipe in between)
            filling.truncate(0)
        with pytest.raises(OSError, match=r"No space .*nothing of the recording is kept") as told:
            recorder.stop()
        assert "sampleblk-trace-" in str(told.value)
        # Pages of a ring buffer that are let go of when it is freed are written to freed memory, by the kernel.
        assert not any(waiting(pipe) for pipe in between)
        for pipe in between:
            os.close(pipe)
        assert pipes() == before
        assert [path.name for path in small.iterdir()] == ["filling"]
    finally:
        subprocess.run(["umount", small], check=True)


@pytest.mark.two_cpus
@pytest.mark.usefixtures("untouched")
def test_a_cpu_that_was_never_online_holds_nothing(second_cpu):
    """Its buffer is not there: firmware often announces more processors than there are."""
    second_cpu.write_text("0")
    try:
        with lab.record() as rec:
            rec.mark("here")
        with lab.Session() as session:
            session.mark("there")
            assert next(session.follow())["event"] == "print"
    finally:
        second_cpu.write_text("1")
    assert rec.counts()["count"]["ftrace:print"] == 1


@pytest.mark.two_cpus
@pytest.mark.usefixtures("untouched", "second_cpu")
def test_a_reader_that_cannot_be_started_ends_the_recording_not_the_process():
    """Each takes address space for its stack, of which there is enough for one."""
    code = r"""
import ctypes, pathlib, re, resource
import sampleblk_lab as lab
with lab.record():
    pass  # what it imports takes address space, too
stack = 1 << 28
attributes = ctypes.create_string_buffer(56)  # pthread_attr_t
libc = ctypes.CDLL(None)
assert libc.pthread_attr_init(attributes) == libc.pthread_attr_setstacksize(attributes, ctypes.c_size_t(stack)) == 0
assert libc.pthread_setattr_default_np(attributes) == 0
taken = int(re.search(r"VmSize:\s*(\d+)", pathlib.Path("/proc/self/status").read_text())[1]) << 10
resource.setrlimit(resource.RLIMIT_AS, (taken + 17 * stack // 10,) * 2)
try:
    with lab.record():
        print("recorded")
except OSError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert (done.stdout, done.stderr) == ("[Errno 11] start of a thread: Resource temporarily unavailable\n", "")


@pytest.mark.usefixtures("untouched")
def test_a_buffer_that_was_emptied_puts_its_recording_in_doubt():
    with lab.record() as rec:
        session = rec._session
        assert session is not None
        mark(session, 500)
        time.sleep(0.3)
        session.set("trace", "")
        mark(session, 10)
    told = [str(check) for check in of_recording(rec.run) if check.is_doubt]
    assert len(told) == 1
    assert "its buffer was emptied under it: an unknown number is lost" in told[0]
    with lab.record() as rec:
        rec.mark("here")
    assert not any(check.is_doubt for check in of_recording(rec.run))


@pytest.mark.usefixtures("untouched")
def test_an_instance_that_somebody_removed_leaves_nothing_running():
    recorder = lab.record(keep="64K", profile=99).start()
    session = recorder._session
    assert session is not None
    Path(session.path).rmdir()
    with pytest.raises(OSError, match="No such file"):
        recorder.stop()
    assert recorder._profiler is not None
    assert recorder._profiler.stats["event"]  # it has ended


@pytest.mark.usefixtures("untouched")
def test_a_session_ends_with_whoever_follows_it():
    with lab.Session() as session:
        session.mark("here")
        events = session.follow()
        assert next(events)["event"] == "print"
    assert list(events) == []


@pytest.mark.usefixtures("untouched")
def test_a_living_session_is_not_cleaned_up():
    with lab.Session() as mine:
        mine.set("trace_clock", "mono")
        with lab.Session() as other:
            assert other.recovered == []
        assert "[mono]" in mine.read("trace_clock")


def test_a_refused_command_carries_the_kernels_caret():
    with lab.Session() as session, pytest.raises(OSError, match=r"nonesuch == 1") as caught:
        session.set("events/sched/sched_switch/filter", "nonesuch == 1")
    assert "^" in str(caught.value)
