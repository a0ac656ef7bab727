# SPDX-License-Identifier: MIT
"""Control of ftrace, and the tables of the ftrace article made again."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from itertools import islice, takewhile
from pathlib import Path

import numpy as np
import pytest
from kernel_features import needs_histograms

import sampleblk_lab as lab
from sampleblk_lab._native import core
from sampleblk_lab.recording import preflight


def forks(count: int) -> None:
    for _ in range(count):
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)


def test_a_kernel_without_histograms_says_so_and_events_count_as_well():
    if preflight()["works"]["histograms"]:
        with lab.Session() as session:
            assert session.hist("sched:sched_process_fork", "parent_pid").table() is not None
        return
    with lab.Session() as session:
        with pytest.raises(lab.UnsupportedError, match=r"CONFIG_HIST_TRIGGERS.*record the event"):
            session.hist("sched:sched_process_fork", "parent_pid")
        with pytest.raises(lab.UnsupportedError, match="CONFIG_SYNTH_EVENTS"):
            session.synthetic("sblk_none", {"lat": "u64"})
    with lab.record(events=["sched:sched_process_fork"]) as rec:
        forks(24)
    parents, counts = np.unique(rec.events("sched_process_fork")["parent_pid"].codes, return_counts=True)
    assert dict(zip(parents.tolist(), counts.tolist(), strict=True))[os.getpid()] == 24


def test_a_kprobe_reads_an_array_of_strings():
    """A place for each in one field, of which the kernel tells in the format as of no other event."""
    with lab.Session() as session:
        run = session.kprobe("sblk_exec", "__x64_sys_execve", argv="+0(+104($arg1)):ustring[3]")  # pt_regs.si
        with lab.record(events=run) as rec:
            subprocess.run(["/bin/echo", "a b", "é"], stdout=subprocess.DEVNULL, check=True)
    argv = [[row[f"argv[{i}]"] for i in range(3)] for row in rec.events(run)]
    assert argv[-1][1:] == ["a b", "é"]


@needs_histograms
def test_a_text_of_a_synthetic_event_is_one_column():
    """The kernel says that its place has 8 bytes, as it says of two strings."""
    with lab.Session() as session:
        event = session.synthetic("sblk_text", {"lat": "u64", "comm": "char[]"})
        session.hist("sched:sched_waking", "pid", variables={"ts0": "common_timestamp.usecs"})
        session.hist(
            "sched:sched_switch",
            "next_pid",
            variables={"lat": "common_timestamp.usecs-$ts0"},
            actions="onmatch(sched.sched_waking).sblk_text($lat,next_comm)",
        )
        with lab.record(events=event) as rec:
            for _ in range(5):
                time.sleep(0.01)
        table = rec.events(event)
    assert "python" in " ".join(table["comm"].values)


@needs_histograms
def test_hist_by_parent_pid():
    with lab.Session() as session:
        assert "child_pid" in session.format("sched:sched_process_fork")
        hist = session.hist("sched:sched_process_fork", "parent_pid")
        forks(24)
        table = hist.table()
    rows = dict(zip(table["parent_pid"], table["hitcount"], strict=True))
    assert rows[os.getpid()] == 24
    assert int(table.metadata["hits"]) >= 24


@needs_histograms
def test_hist_keys_of_every_kind():
    with lab.Session() as session:
        command = session.hist("raw_syscalls:sys_enter", ["common_pid.execname", "id.syscall"], sort="hitcount")
        sizes = session.hist("syscalls:sys_exit_write", "ret.log2", values=["ret"], condition="ret > 0")
        with Path("/dev/null").open("wb", buffering=0) as null:
            for _ in range(10):
                null.write(bytes(4096))
            null.write(bytes(4097))
        calls, written = command.table(), sizes.table()
    assert "sys_write" in set(calls["id"])
    assert any("python" in str(name) for name in calls["common_pid"])
    at = written["ret"].codes.tolist().index(4096)
    assert written["hitcount"].codes[at] >= 10
    assert written["ret_sum"].codes[at] >= 10 * 4096
    assert 8192 in written["ret"].codes.tolist()  # where the bucket ends


@needs_histograms
def test_latency_of_wakeups_in_the_kernel():
    with lab.Session() as session:
        hist = session.latency("wakeup_lat", "sched:sched_waking", "sched:sched_switch", key=("pid", "next_pid"))
        for _ in range(5):
            time.sleep(0.01)
        assert len(hist.table()) > 0
    top = Path("/sys/kernel/tracing/synthetic_events")
    assert "wakeup_lat" not in top.read_text()


@needs_histograms
def test_latencies_of_the_same_events_keep_what_field_they_like():
    key = ("common_pid", "common_pid")
    with lab.Session() as session, Path("/dev/zero").open("rb", buffering=0) as zeros:
        hists = {
            save: session.latency(
                f"reads_{save}", "syscalls:sys_enter_read", "syscalls:sys_exit_read", key=key, save=save
            )
            for save in ("ret", "__syscall_nr", "common_pid")
        }
        wakeups = session.latency(
            "wakeups", "sched:sched_waking", "sched:sched_switch", key=("pid", "next_pid"), save="next_comm"
        )
        for _ in range(7):
            zeros.read(4711)
            time.sleep(0.01)
        saved = {save: hist.table() for save, hist in hists.items()}
        woken = wakeups.table()
        with pytest.raises(lab.InputError, match=r"no field 'size'.*ret"):
            session.latency("sblk_none", "syscalls:sys_enter_read", "syscalls:sys_exit_read", key=key, save="size")
    assert saved["ret"]["hitcount"].codes[saved["ret"]["ret"].codes == 4711].sum() == 7
    assert saved["__syscall_nr"]["hitcount"].codes.sum() >= 7
    assert os.getpid() in saved["common_pid"]["common_pid"].codes
    assert "python" in " ".join(woken["next_comm"].values)


def test_graph_of_kernel_clone():
    with lab.record(graph="kernel_clone", only="copy_*", pids=os.getpid(), children=False) as rec:
        forks(1)
    assert {"kernel_clone", "copy_process"} <= set(rec.graph("kernel_clone").tree(0).functions())


def test_graph_of_try_to_wake_up():
    below = ["ttwu_*", "*queue_*", "update_*"]  # three levels and more
    with lab.record(graph="try_to_wake_up", only=below, depth=2) as rec:
        for _ in range(5):
            time.sleep(0.01)
    graph = rec.graph("try_to_wake_up")
    assert graph.table()["depth"].codes.max() == 1
    assert "|  try_to_wake_up() {" in graph.text()


def test_functions_that_sleep():
    with lab.record(functions="*sleep", pids=os.getpid()) as rec:
        time.sleep(0.01)
    names = set(rec.events("ftrace:function", symbols=True)["ip_symbol"])
    assert any("nanosleep" in str(name) for name in names)


def test_profile_of_a_write(tmp_path):
    with lab.FunctionProfile("vfs_write", "vfs_read", pids=os.getpid()) as profile, (tmp_path / "x").open("wb") as file:
        for _ in range(7):
            file.write(bytes(100))
            file.flush()
    table = profile.table()
    assert table["hits"]["vfs_write"] >= 7
    assert table["average"]["vfs_write"] > 0
    assert table.metadata["source"] == "function_graph records"


def test_counts_and_latencies_of_functions():
    with lab.FunctionCount("vfs_write", pids=os.getpid()) as count, Path("/dev/null").open("wb", buffering=0) as null:
        for _ in range(9):
            null.write(b"x")
    assert count.table()["calls"]["vfs_write"] >= 9
    with (
        lab.FunctionLatency("vfs_write", pids=os.getpid()) as latency,
        Path("/dev/null").open("wb", buffering=0) as null,
    ):
        for _ in range(9):
            null.write(b"x")
    assert latency.table()["calls"].codes.sum() == len(latency.durations()) >= 9


def test_a_kprobe_reads_arguments_and_user_strings(tmp_path):
    target = tmp_path / "a name to be seen"
    with lab.Session() as session:
        opened = session.kprobe("sblk_open", "do_sys_openat2", path="+0($arg2):ustring")
        closed = session.kretprobe("sblk_ret", "do_sys_openat2", ret="$retval:s64")
        session.enable([opened, closed])
        target.touch()
        text = session.trace_text()
        session.enable([])
    assert f'path="{target}"' in text
    assert "ret=" in text
    assert "sblk_open" not in Path("/sys/kernel/tracing/kprobe_events").read_text()


@needs_histograms
def test_each_histogram_of_an_event_is_its_own():
    with lab.Session() as session:
        found = [session.hist("sched:sched_process_fork", key) for key in ("parent_pid", "child_pid", "parent_comm")]
        subprocess.run(["true"], check=True)
        keys = [hist.table().columns[0] for hist in found]
    assert keys == ["parent_pid", "child_pid", "parent_comm"]


def test_events_are_enabled_by_globs():
    """Of which the kernel itself takes a "*" in the place of a whole word only."""
    with lab.Session() as session:
        for glob in ("block:block_rq_*", "block_rq_*", "bl*:*rq_[!x]*"):
            found = session.enable([glob])
            assert "block:block_rq_issue" in found
            assert all(name.startswith("block:block_rq_") for name in found)
            session.set("set_event", "")
        with pytest.raises(lab.InputError, match=r"no event 'block:nope\*'"):
            session.enable(["block:nope*"])
    with lab.record(events=["block:block_rq_is*"]) as recording:
        pass
    assert recording.run.counts() is not None


def test_an_event_filter_keeps_what_it_says():
    with lab.Session() as session:
        session.filter("syscalls:sys_enter_write", "count == 77")
        session.enable(["syscalls:sys_enter_write"])
        with Path("/dev/null").open("wb", buffering=0) as null:
            null.write(bytes(76))
            null.write(bytes(77))
        text = session.trace_text()
    assert text.count("sys_write(") == 1
    assert "count: 4d" in text or "count: 0x4d" in text  # before and from 6.19


def test_refusals_point_at_the_mistake():
    with lab.Session() as session:
        with pytest.raises(lab.TraceCommandError) as caught:
            session.filter("sched:sched_switch", "nonesuch == 1")
        assert caught.value.position is not None
        assert caught.value.reason
        with pytest.raises(lab.TraceCommandError):
            session.filter("sched:sched_switch", "prev_pid >")
        with pytest.raises(lab.InputError, match="no event 'no:such'"):
            session.filter("no:such", "1")
        with pytest.raises(lab.InputError, match="no trace option"):
            session.option("nonesuch")
        for cpus, said in (([], "no CPU"), ([-1], "no CPU -1"), ([0, 64], "no CPU 64")):
            with pytest.raises(lab.InputError, match=rf"^{said} \(expected some of 0"):
                session.cpus(cpus)
        session.cpus([0])


def test_all_words_of_a_text_are_written_and_a_module_s_function_is_put_back():
    top = Path("/sys/kernel/tracing/set_ftrace_filter")
    known = Path(top.with_name("available_filter_functions")).read_text().splitlines()
    (theirs, *_) = (line for line in known if line.endswith("]"))
    top.write_text(theirs.split()[0])
    with lab.Session(top_level=True) as session:
        session.functions("vfs_read vfs_write")
        assert set(session.read("set_ftrace_filter").split()) == {"vfs_read", "vfs_write"}
        session.set("set_event", "sched:sched_switch\nsched:sched_waking")
        assert set(session.enabled()) == {"sched:sched_switch", "sched:sched_waking"}
        with pytest.raises(lab.TraceCommandError, match='writing "sched:none"'):
            session.set("set_event", "sched:sched_switch sched:none")
    assert top.read_text() == f"{theirs}\n"
    top.write_text("\n")


def test_one_name_is_no_list_of_letters():
    with lab.Session() as session:
        session.functions("vfs_read", notrace="vfs_writ*")
        assert set(session.read("set_ftrace_notrace").split()) == {"vfs_write", "vfs_writev"}
        assert session.enable("sched:sched_switch") == ["sched:sched_switch"]


def test_what_was_there_before_stays():
    top = Path(lab.Session().path).parents[1]
    theirs = top / "instances/sblk-theirs"
    theirs.mkdir()
    probes = top / "kprobe_events"
    core.write_control(str(probes), "p:sampleblk/sblk_theirs vfs_read", True)
    before = probes.read_text()
    try:
        with pytest.raises(FileExistsError, match="sblk-theirs"):
            lab.Session(name="sblk-theirs")
        assert theirs.is_dir()
        with lab.Session() as session, pytest.raises(lab.TraceCommandError, match="is there already"):
            session.kprobe("sblk_theirs", "vfs_write")
        assert probes.read_text() == before
        # An instance that somebody made in place of ours is not ours.
        session = lab.Session(name="sblk-ours")
        Path(session.path).rmdir()
        Path(session.path).mkdir()
        session.close()
        assert Path(session.path).is_dir()
        Path(session.path).rmdir()
        # A probe of ours goes by itself.
        with lab.Session() as session:
            session.kprobe("sblk_ours", "vfs_write")
            assert "sampleblk/sblk_ours" in probes.read_text()
        assert probes.read_text() == before
    finally:
        theirs.rmdir()
        core.write_control(str(probes), "-:sampleblk/sblk_theirs", True)


def test_the_text_of_a_buffer_that_takes_its_own_reading_ends():
    with lab.Session() as session:
        session.enable("syscalls:sys_enter_read")
        assert "sys_read(" in session.trace_text()
        session.set("trace", "\n")
        assert "sys_read(" in session.trace_text()
        assert (session.read("options/pause-on-trace"), session.read("tracing_on")) == ("0\n", "1\n")


@pytest.mark.parametrize("top_level", [False, True])
def test_a_snapshot_has_what_came_since_the_one_before(top_level):
    """The kernel swaps two buffers, and empties neither."""
    spare = Path("/sys/kernel/tracing/snapshot")
    with lab.Session(top_level=top_level) as session:
        if not session.has("snapshot"):
            pytest.skip("this kernel has no snapshots")
        taken = []
        for number in range(4):
            session.mark(f"mark-{number}")
            taken.append(re.findall(r"mark-\d", session.snapshot()))
        session.mark("mark-4")
        left = re.findall(r"mark-\d", session.trace_text())
    assert taken == [["mark-0"], ["mark-1"], ["mark-2"], ["mark-3"]]
    assert left == ["mark-4"]
    assert "* Snapshot is freed *" in spare.read_text()


def test_a_call_graph_is_as_deep_and_its_calls_as_long_as_was_asked():
    """As the kernel prints it: what takes shorter is not there, and what is deeper neither."""
    files = [Path("/sys/kernel/tracing", name) for name in ("set_graph_function", "max_graph_depth", "tracing_thresh")]
    before = [file.read_text() for file in files]
    with lab.Session(top_level=True) as session:
        session.stop()
        session.pids(os.getpid())
        session.graph_functions("*sys_newuname", "*sys_rt_sigtimedwait", depth=2)
        session.tracer("function_graph")
        texts = []
        for microseconds in (0, 2000):
            session.threshold(microseconds)
            session.set("trace", "\n")
            session.start()
            os.uname()
            signal.sigtimedwait([signal.SIGUSR1], 0.01)
            session.stop()
            texts.append(session.trace_text())
        with pytest.raises(lab.TraceCommandError, match='writing "no_such_function"'):
            session.graph_functions("no_such_function")
    assert "__x64_sys_newuname() {" in texts[0]
    assert {len(indent) for indent in re.findall(r"\|( +)[a-z_0-9]+\(\)", texts[0])} == {2, 4}
    durations = [float(each) for each in re.findall(r"([\d.]+) us +\|", texts[1])]
    assert durations
    assert min(durations) >= 2000
    assert [file.read_text() for file in files] == before


def test_what_the_kernel_would_take_for_something_else_is_refused():
    with lab.Session(top_level=True) as session:
        before = session.read("buffer_size_kb")
        for change in (
            lambda: session.buffer_size(-1),
            lambda: session.buffer_size(1 << 70),
            lambda: session.graph_functions("vfs_fsync", depth=1 << 32),
            lambda: session.threshold(1 << 62),
            lambda: session.mark("a\0b"),
            lambda: session.mark(5),
            lambda: session.functions(""),
            lambda: session.functions(module=""),
            lambda: session.functions(module=["ext4", "jbd2"]),
            lambda: session.graph_functions(""),
            lambda: session.pids(1 << 32),
            lambda: session.pids(""),
            lambda: session.kprobe("", "vfs_fsync"),
        ):
            with pytest.raises(lab.InputError):
                change()
        assert session.read("buffer_size_kb") == before


def test_an_empty_condition_keeps_all():
    with lab.Session() as session:
        session.enable("sched:sched_process_fork")
        for condition, seen in (("child_pid == 1", 0), ("", 1)):
            session.filter("sched:sched_process_fork", condition)
            forks(1)
            assert session.trace_text().count("sched_process_fork:") == seen


def test_a_second_call_graph_is_refused():
    """Its filters are those of the first, even in an instance of its own."""
    filtered = Path("/sys/kernel/tracing/set_graph_function")
    before = filtered.read_text()
    with lab.record(graph="*sys_fadvise64", only="vfs_fsync") as first:
        mine = filtered.read_text()
        for second in ({"graph": "*sys_newuname"}, {"timed": "vfs_fsync*"}):
            with pytest.raises(lab.UnsupportedError, match=r"uses the function_graph tracer|another session"):
                lab.record(**second).start()
        assert filtered.read_text() == mine != before
        os.uname()
    assert filtered.read_text() == before
    assert set(first.graph().table()["function"]) <= {"__x64_sys_fadvise64"}


def test_a_recording_beside_another_leaves_it_its_task_names():
    with lab.record(syscalls=["sync"]) as first:
        subprocess.run(["sh", "-c", "cp /bin/sync /tmp/sblk-named && /tmp/sblk-named"], check=True)
        with lab.record(block=True):
            pass
    assert "sblk-named" in first.run.file.commands.values()


def test_listings():
    with lab.Session() as session:
        assert "sched:sched_switch" in session.available("events")
        assert "vfs_write" in session.available("functions")
        assert "mono" in session.available("clocks")
        assert "nop" in session.available("tracers")
        with pytest.raises(lab.InputError, match="no list of 'sheep'"):
            session.available("sheep")


def test_following_events_as_they_come():
    with lab.Session() as session:
        session.enable(["sched:sched_process_fork"])
        forks(3)
        seen = list(islice(session.follow(), 3))
    assert [row["event"] for row in seen] == ["sched_process_fork"] * 3
    assert all(row["parent_pid"] == os.getpid() for row in seen)
    times = [row["time"] for row in seen]
    assert times == sorted(times)


def test_events_that_are_enabled_while_one_follows_are_followed():
    with lab.Session() as session:
        session.pids(os.getpid())
        session.enable(["syscalls:sys_enter_getppid"])
        events = session.follow()
        os.getppid()
        seen = [next(events)["event"]]
        session.enable(["syscalls:sys_enter_getpgid"])
        os.getpgid(0)
        os.getppid()
        seen += [next(events)["event"], next(events)["event"]]
        Path(f"{session.path}/events/syscalls/sys_enter_getpriority/enable").write_text("1")  # not by us
        os.getpriority(os.PRIO_PROCESS, 0)
        os.getppid()
        seen += [next(events)["event"]]
    assert seen == ["sys_enter_getppid", "sys_enter_getpgid", "sys_enter_getppid", "sys_enter_getpriority"]


def test_events_that_were_disabled_since_are_followed():
    with lab.Session() as session:
        session.pids(os.getpid())
        session.enable(["syscalls:sys_enter_getppid"])
        os.getppid()
        session.set("events/syscalls/sys_enter_getppid/enable", "0")
        session.mark("behind")
        seen = list(takewhile(lambda row: row["event"] != "print", session.follow()))
    assert [row["event"] for row in seen] == ["sys_enter_getppid"]


def test_a_probe_in_the_place_of_another_is_followed_as_itself():
    """From Linux 6.3 on it has the other's number."""
    with lab.Session() as session:
        session.pids(os.getpid())
        with lab.Session() as another, Path("/dev/null").open("wb", buffering=0) as null:
            session.enable([another.kprobe("sblk_first", "vfs_write", count="$arg3:u64")])
            events = session.follow()
            null.write(b"x")
            assert next(events)["event"] == "sblk_first"
            session.set("events/sampleblk/sblk_first/enable", "0")
        session.enable([session.kprobe("sblk_second", "vfs_read", to="$arg2:x64", size="$arg3:u64")])
        with Path("/dev/zero").open("rb", buffering=0) as zero:
            zero.read(4099)
        session.mark("behind")
        seen = list(takewhile(lambda row: row["event"] != "print", events))
    assert 4099 in [row["size"] for row in seen if row["event"] == "sblk_second"]


def test_what_was_lost_while_nobody_asked_is_told_once():
    with lab.Session() as session:
        session.buffer_size(16384)
        session.pids(os.getpid())
        session.enable(["syscalls:sys_enter_getppid"])
        events = session.follow()
        for calls in (3000, 2000):
            for _ in range(calls):
                os.getppid()
            session.mark("behind")
            seen = list(takewhile(lambda row: row["event"] != "print", events))
            lost = [row["count"] for row in seen if row["event"] == "lost"]
            assert lost
            assert len(seen) - len(lost) + sum(lost) == calls


def test_a_flight_recorder_keeps_the_end():
    with lab.record(syscalls=["write"], keep="64K") as rec, Path("/dev/null").open("wb", buffering=0) as null:
        for size in range(1, 6000):
            null.write(bytes(size % 4096 + 1))
    calls = rec.syscalls().table()
    assert 0 < len(calls) < 5999
    assert calls["arg2"].codes[-5:].max() >= 5995 % 4096
    assert int(calls.metadata["lost_events"]) > 0


def test_preflight_finds_this_kernel_able():
    table = preflight()
    for feature in ("tracefs", "control", "function_graph tracer", "kernel probes", "system calls", "error log"):
        assert table["works"][feature] == 1, table


def test_who_may_not_trace_is_told_so():
    program = "import os; from sampleblk_lab._native import core; os.setuid(65534); core.tracefs_dir()"
    child = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "tracing: tracefs cannot be used: Permission denied; run as root" in child.stderr


def test_a_writes_life_from_the_call_to_the_driver():
    with lab.Device(capacity="64M") as device, device.mkfs("ext4").mount() as mount:
        path = Path(mount.path if hasattr(mount, "path") else mount) / "test"
        pid = os.getpid()
        with lab.record(
            syscalls=["openat", "write", "fsync", "close"],
            graph="*sys_fsync",
            block=True,
            events=["sched:sched_switch"],
            pids=pid,
        ) as rec:
            file = os.open(path, os.O_RDWR | os.O_CREAT)
            for _ in range(16):
                os.write(file, bytes(4096))
            os.fsync(file)
            os.close(file)
    block = rec.run.block()
    table = block.table()
    whole = (table["issued"].codes > 0) & (table["completed"].codes > 0)
    assert whole.sum() >= 1
    assert (table["completed"].codes[whole] >= table["issued"].codes[whole]).all()
    assert (table["sectors"].codes[whole & (table["operation"].values == "W")]).sum() * 512 >= 16 * 4096
    latency = block.latency()
    assert latency["count"]["D2C"] == whole.sum()
    assert block.queue_depth()["depth"].codes[-1] == 0
    offsets = rec.run.offsets()
    own = offsets.table()["size"].codes == 4096
    assert offsets.table()["offset"].codes[own].tolist() == [4096 * i for i in range(16)]
    story = rec.run.follow_through("fsync")
    text = story.text()
    assert "sys_fsync()" in text
    assert "issue to completion  [driver]" in text
    assert story.times()["time"]["driver"] > 0
    assert np.isclose(story.times()["time"]["on CPU"] + story.times()["time"]["off CPU"], story.root.duration)
