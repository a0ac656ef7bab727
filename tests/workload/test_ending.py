# SPDX-License-Identifier: MIT
"""How runs end when they do not end by themselves: Ctrl-C, a full disk, a killed parent, a killed job."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import sampleblk_lab as lab
from sampleblk_lab.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator

ENDLESS = {"rw": "write", "bs": "4k", "size": "1M", "runtime": 600, "time_based": True}

_CHILD = """
import sys
import sampleblk_lab as lab
run = lab.Job(rw="write", size="1M", runtime=600, time_based=True, numjobs=2, filename=sys.argv[1]).prepare()
run.start()
print(*run.pids, flush=True)
result = {wait}
print("ended:", result.stop_reason, result.json()["jobs"][0]["write"]["total_ios"] > 0, flush=True)
"""


def start(wait: str, path: Path) -> tuple[subprocess.Popen[str], list[int]]:
    child = subprocess.Popen(
        [sys.executable, "-c", _CHILD.format(wait=wait), str(path)], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    return child, [int(pid) for pid in child.stdout.readline().split()]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def gone_within(pids: list[int], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while any(alive(pid) for pid in pids):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


_FORK = """
import os, sys
import sampleblk_lab as lab
run = lab.Job(rw="write", size="1M", runtime=600, time_based=True, filename=sys.argv[1]).prepare()
run.start()
if (fork := os.fork()) == 0:
    sys.exit(0)
os.waitpid(fork, 0)
before = run.progress().done_ios
while not run.poll(0.01) and run.progress().done_ios < before + 1000:
    pass
print(run.poll())
"""


def test_a_fork_that_ends_stops_no_job_of_its_parent(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", _FORK, str(tmp_path / "f")], stdout=subprocess.PIPE, text=True)
    assert done.stdout == "False\n"


def test_sigkill_of_the_parent_leaves_no_job(tmp_path: Path) -> None:
    child, pids = start("run.wait()", tmp_path / "f")
    with child:
        assert len(pids) == 2
        assert all(alive(pid) for pid in pids)
        child.kill()
    assert gone_within(pids, 10)


def test_jobs_that_wait_die_with_the_parent_too(tmp_path: Path) -> None:
    code = _CHILD.replace("run.start()\n", "").format(wait="run.wait()")
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "f")], stdout=subprocess.PIPE, text=True) as two:
        assert two.stdout is not None
        pids = [int(pid) for pid in two.stdout.readline().split()]
        assert len(pids) == 2
        assert all(alive(pid) for pid in pids)
        two.kill()
    assert gone_within(pids, 10)


def test_ctrl_c_stops_and_reports_what_ran(tmp_path: Path) -> None:
    child, pids = start("lab.workload.run.run_to_end(run, False, True)", tmp_path / "f")
    time.sleep(0.3)
    child.send_signal(signal.SIGINT)
    out, _ = child.communicate(timeout=60)
    assert "ended: interrupted True" in out
    assert child.returncode == 0
    assert gone_within(pids, 1)


def test_ctrl_c_to_the_whole_group_leaves_the_decision_to_the_parent(tmp_path: Path) -> None:
    child = subprocess.Popen(
        [
            sys.executable,
            "-c",
            _CHILD.format(wait="lab.workload.run.run_to_end(run, False, True)"),
            str(tmp_path / "f"),
        ],
        stdout=subprocess.PIPE,
        text=True,
        process_group=0,
    )
    assert child.stdout is not None
    child.stdout.readline()
    time.sleep(0.2)
    os.killpg(child.pid, signal.SIGINT)
    out, _ = child.communicate(timeout=60)
    assert "ended: interrupted True" in out


def test_stop_keeps_what_was_measured(tmp_path: Path) -> None:
    with lab.Job(**ENDLESS, filename=tmp_path / "f", numjobs=2).prepare() as run:
        run.start()
        while run.progress().done_ios < 1000:
            time.sleep(0.01)
        run.stop("enough")
        result = run.wait(timeout_s=30)
    assert result.stop_reason == "enough"
    assert "stopped: enough" in str(result)
    assert sum(job["write"]["total_ios"] for job in result.json()["jobs"]) >= 1000


def test_leaving_the_context_ends_the_jobs(tmp_path: Path) -> None:
    with lab.Job(**ENDLESS, filename=tmp_path / "f").prepare() as run:
        run.start()
    assert not any(alive(pid) for pid in run.pids)
    run.close()  # a second time does nothing


def test_a_full_disk_stops_all_jobs_and_keeps_what_was_measured(small_disk: Path) -> None:
    jobs = lab.JobFile.parse(
        f"[fills]\nrw=write\nbs=64k\nsize=64M\nfallocate=none\nstartdelay=1\nfilename={small_disk}/full\n"
        f"[other]\nrw=write\nsize=64k\nruntime=600\ntime_based\nfilename={small_disk}/other\n"
    )
    with pytest.raises(lab.JobError, match=r"fills: write '.*/full': No space left on device: at offset") as caught:
        jobs.run(progress=False)
    assert caught.value.errno == errno.ENOSPC
    result = caught.value.result
    assert "no space left" in result.stop_reason
    fills, other = result.json()["jobs"]
    assert fills["error"] == errno.ENOSPC
    assert fills["write"]["io_bytes"] > 2**20
    assert other["error"] == 0
    assert other["write"]["total_ios"] > 0


def test_a_layout_that_fails_leaves_no_half_made_file(small_disk: Path) -> None:
    with pytest.raises(OSError, match="No space left on device"):
        lab.Job(rw="read", size="64M", fallocate="none", filename=small_disk / "half").run(progress=False)
    assert list(small_disk.iterdir()) == []


def test_a_killed_job_is_an_error_with_its_last_numbers(tmp_path: Path) -> None:
    with lab.Job(**ENDLESS, filename=tmp_path / "f").prepare() as run:
        run.start()
        while run.progress().done_ios < 100:
            time.sleep(0.01)
        os.kill(run.pids[0], signal.SIGKILL)
        result = run.wait(timeout_s=30)
    assert "killed by signal 9" in result.errors[0][2]
    assert result.json()["jobs"][0]["write"]["total_ios"] >= 100


@pytest.mark.parametrize("thread", [0, 1])
def test_a_mapping_of_a_file_that_was_made_shorter_ends_the_job_with_its_reason(thread: int, tmp_path: Path) -> None:
    path = tmp_path / "f"
    code = (
        "import os, sys, time, sampleblk_lab as lab\n"
        f"job = lab.Job(filename=sys.argv[1], rw='randread', size='1M', ioengine='mmap', thread={thread}, time_based=1,"
        " runtime='30s')\n"
        "with job.prepare() as run:\n"
        "    run.start()\n"
        "    while run.progress().done_ios < 10: time.sleep(0.01)\n"
        "    os.truncate(sys.argv[1], 4096)\n"
        "    print(run.wait(timeout_s=20).errors[0][1:])\n"
    )
    # As in pytest, whose handler would tell of a crash of this program.
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", code, path], capture_output=True, text=True, check=True, timeout=60
    )
    told = "job process: killed by signal 7: its mapping has nothing below it, as where the file was made shorter or"
    assert (done.stdout, done.stderr) == (f"({errno.EINTR}, '{told} the disk is full')\n", "")


@pytest.mark.parametrize(
    ("threads", "told"), [(0, "BlockingIOError [Errno 11] "), (1, "JobError job b: "), (2, "well")]
)
def test_a_thread_that_cannot_be_started_is_told(threads: int, told: str, tmp_path: Path) -> None:
    """Each takes address space for its stack, of which there is enough for `threads` of them; a fork has its own's."""
    code = r"""
import ctypes, pathlib, re, resource, sys
import sampleblk_lab as lab
stack = 1 << 30
attributes = ctypes.create_string_buffer(56)  # pthread_attr_t
libc = ctypes.CDLL(None)
assert libc.pthread_attr_init(attributes) == libc.pthread_attr_setstacksize(attributes, ctypes.c_size_t(stack)) == 0
assert libc.pthread_setattr_default_np(attributes) == 0
job = lab.JobFile.parse("[global]\nthread=1\nrw=write\nsize=64k\n[a]\n[b]\n", directory=sys.argv[1])
taken = int(re.search(r"VmSize:\s*(\d+)", pathlib.Path("/proc/self/status").read_text())[1]) << 10
resource.setrlimit(resource.RLIMIT_AS, (taken + int((int(sys.argv[2]) + 0.7) * stack),) * 2)
try:
    job.run(progress=False)
    print("well")
except (OSError, lab.JobError) as error:
    print(type(error).__name__, error)
"""
    command = [sys.executable, "-c", code, str(tmp_path), str(threads)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    reason = "" if told == "well" else "start of a thread: Resource temporarily unavailable"
    assert (done.stdout, done.stderr) == (f"{told}{reason}\n", "")


@pytest.mark.parametrize("engine", ["psync", "libaio"])
def test_rates_of_a_job_that_has_not_ended_are_of_its_time_so_far(engine: str, tmp_path: Path) -> None:
    """They were the bytes of a nanosecond in the summary, and 0 in the JSON; also of a job that was killed."""
    keys = {**ENDLESS, "rate_iops": 1000, "ioengine": engine, "ramp_time": "200ms"}

    def check(result: lab.Result) -> None:
        (job,) = result.json()["jobs"]
        (row,) = result.summary().rows()
        ios = job["write"]["total_ios"]
        assert ios > 100
        assert job["write"]["iops"] == pytest.approx(row["iops"], rel=0.1) == pytest.approx(1000, rel=0.5)
        assert job["write"]["bw_bytes"] == pytest.approx(row["bandwidth"], rel=0.1)
        # Each to one: it may be looked at, or killed, while it books an I/O.
        assert [job["write"][name]["N"] for name in ("lat_ns", "clat_ns")] == pytest.approx([ios, ios], abs=1)
        assert sum(job["iodepth_level"].values()) == pytest.approx(100, abs=1)
        assert job["usr_cpu"] + job["sys_cpu"] > 0
        assert abs(result.json()["timestamp"] - time.time()) < 60

    with lab.Job(**keys, filename=tmp_path / "f").prepare() as run:
        run.start()
        while run.progress().done_ios < 700:
            time.sleep(0.01)
        check(run.so_far())
        os.kill(run.pids[0], signal.SIGKILL)
        result = run.wait(timeout_s=30)
        check(result)
        time.sleep(0.2)
        assert run.so_far().json()["jobs"] == result.json()["jobs"]


def test_what_only_verifies_has_not_read_while_it_writes(tmp_path: Path) -> None:
    keys = {"rw": "write", "bs": "4k", "size": "400k", "loops": 100, "rate_iops": 500, "verify": "crc32c"}
    with lab.Job(**keys, filename=tmp_path / "f").prepare() as run:
        run.start()
        while (job := run.so_far().json()["jobs"][0])["write"]["total_ios"] < 160:  # in the second of its passes
            time.sleep(0.01)
        os.kill(run.pids[0], signal.SIGKILL)
        (killed,) = run.wait(timeout_s=30).json()["jobs"]
    for told in (job, killed):
        assert told["read"]["total_ios"] >= 100
        assert told["read"]["runtime"] < told["write"]["runtime"] / 5


def test_elapsed_is_the_time_of_the_run(tmp_path: Path) -> None:
    """Not the times of all jobs of a group; nor is it without their ramps."""
    keys = {**ENDLESS, "runtime": 1, "ramp_time": "300ms", "rate_iops": 100, "numjobs": 3, "group_reporting": 1}
    (job,) = lab.Job(**keys, directory=tmp_path).run(progress=False).json()["jobs"]
    assert job["elapsed"] == 2


def test_a_missing_directory_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError):
        lab.Job(rw="write", size="1M", filename=tmp_path).run(progress=False)
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError):
        lab.Job(rw="write", size="1M", filename=tmp_path / "file" / "below").run(progress=False)


def test_a_file_system_without_direct_io_is_named() -> None:
    """What is known beyond the errno comes from the job's process, too."""
    file = "/sys/devices/system/cpu/online"
    with pytest.raises(lab.JobError, match=f"open '{file}': Invalid argument: does the file system support direct=1"):
        lab.Job(rw="read", bs="4k", size="4k", direct=1, filename=file).run()


def test_our_threads_take_no_signals(tmp_path: Path) -> None:
    """A signal taken by a helper thread would not end the call that the interpreter's own thread waits in."""

    def blocks(thread: Path, number: int) -> bool:
        status = dict(line.split(":", 1) for line in (thread / "status").read_text().splitlines())
        return bool(int(status["SigBlk"], 16) >> (number - 1) & 1)

    before = set(Path("/proc/self/task").iterdir())
    run = lab.Job(filename=tmp_path / "f", **ENDLESS).prepare()
    run.start()
    try:
        ours = set(Path("/proc/self/task").iterdir()) - before
        assert ours
        assert all(blocks(thread, number) for thread in ours for number in (signal.SIGINT, signal.SIGTERM))
        assert not blocks(Path(f"/proc/self/task/{os.getpid()}"), signal.SIGINT)
    finally:
        run.stop()
        run.wait()


@pytest.fixture
def blocked(tmp_path: Path) -> Iterator[Path]:
    """A FIFO that nobody writes to: whoever reads it sleeps in the kernel."""
    path = tmp_path / "fifo"
    os.mkfifo(path)
    writer = os.open(path, os.O_RDWR)
    try:
        yield path
    finally:
        os.close(writer)


@pytest.mark.parametrize("thread", [0, 1])
def test_a_job_that_sleeps_in_a_system_call_stops(thread: int, blocked: Path, tmp_path: Path) -> None:
    jobs = lab.JobFile.parse(
        f"[global]\nthread={thread}\nsize=1M\nruntime=600\ntime_based\n[sleeps]\nrw=read\nioengine=sync\n"
        f"filename={blocked}\n[works]\nrw=write\nfilename={tmp_path}/f\n"
    )
    with jobs.prepare() as run:
        run.start()
        while run.progress().done_ios < 100:
            time.sleep(0.01)
        began = time.monotonic()
        run.stop()
        result = run.wait(timeout_s=60)
    assert time.monotonic() - began < 5
    assert result.errors == []
    assert result.json()["jobs"][1]["write"]["total_ios"] >= 100


def test_exitall_ends_a_job_that_sleeps_in_a_system_call(blocked: Path, tmp_path: Path) -> None:
    jobs = lab.JobFile.parse(
        f"[sleeps]\nrw=read\nioengine=sync\nsize=1M\nfilename={blocked}\n"
        f"[ends]\nrw=write\nsize=64k\nexitall\nfilename={tmp_path}/f\n"
    )
    with jobs.prepare() as run:
        run.start()
        result = run.wait(timeout_s=15)
    assert result.errors == []


def test_exit_what_stonewall_ends_what_runs_and_not_what_comes_next(tmp_path: Path) -> None:
    text = f"""
[global]
size=80k
directory={tmp_path}
exitall
exit_what=stonewall
[first]
rw=write
[beside]
rw=write
runtime=600
time_based
[second]
stonewall
rw=write
[third]
rw=write
rate_iops=100
"""
    result = lab.JobFile.parse(text).run(progress=False)
    ios = {job["jobname"]: job["write"]["total_ios"] for job in result.json()["jobs"]}
    assert ios["first"] == ios["second"] == 20
    assert ios["third"] <= 20  # ended by the second, beside which it runs
    assert result.errors == []


def test_runs_of_one_io_end_when_it_does(tmp_path: Path) -> None:
    """Not when the next look at the processes is due, which was every 50 ms: a job of 5 ms always took that."""
    job = lab.Job(rw="write", bs="4k", size="8k", thinktime=5000, filename=tmp_path / "f")
    times = []
    for _ in range(20):
        with job.prepare() as run:
            began = time.monotonic()
            run.start()
            run.wait(timeout_s=30)
            times.append(time.monotonic() - began)
    assert 0.005 < min(times) < 0.045


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -1, True, "1"])
def test_a_time_that_nobody_can_wait_for_is_refused(wrong: float, tmp_path: Path) -> None:
    with lab.Job(rw="write", size="4k", filename=tmp_path / "f").prepare() as run:
        run.start()
        for wait in (run.wait, run.poll):
            with pytest.raises(InputError, match=r"timeout_s=.*seconds, 0 or more"):
                wait(wrong)
        assert run.wait(20)
