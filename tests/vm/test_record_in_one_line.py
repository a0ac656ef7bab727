# SPDX-License-Identifier: MIT
"""A job, a command, a process with threads: recorded in one line, and none of their threads lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest

import sampleblk_lab as lab
from sampleblk_lab import tasks

pytestmark = pytest.mark.sampleblk(capacity="64M")


def test_a_job_its_result_its_trace_and_its_profile(sampleblk_mount, tmp_path):
    job = lab.Job(rw="write", ioengine="psync", bs="4k", size="1M", loops=4, numjobs=2, directory=sampleblk_mount)
    result, run = job.record(syscalls=True, block=True, profile=997)
    writes = 2 * 4 * 256
    assert run.syscalls().summary()["calls"]["pwrite64"] == writes
    assert sum(job["write"]["total_ios"] for job in result.json()["jobs"]) == writes
    assert len(run.profile()) > 0
    assert set(run.profile().samples()["pid"].values.tolist()) <= {*result.pids}
    saved = run.save(tmp_path / "kept")
    del run
    for name in ("trace.dat", "perf.data", "result.json", "report.txt", "env.json", "recording.json"):
        assert (tmp_path / "kept" / name).exists(), name
    again = lab.open_run(tmp_path / "kept")
    assert again.syscalls().summary()["calls"]["pwrite64"] == writes
    assert again.result is not None
    assert again.result.json()["jobs"] == result.json(bins=True)["jobs"]
    assert again.result.percentiles([50]) == result.percentiles([50])
    assert again.environment["kernel"] == os.uname().release
    assert len(again.profile()) == len(saved.profile()) > 0
    assert saved.block().table().metadata["lost_events"] == "0"


def test_what_was_not_saved_lives_as_long_as_its_profile(sampleblk_mount):
    _, run = lab.Job(rw="write", bs="4k", size="1M", directory=sampleblk_mount).record(profile=True)
    spool, profile = run.directory, run.profile()
    samples = len(profile.samples())
    del run
    assert len(profile.samples()) == samples
    del profile
    assert not spool.exists()


def test_a_failed_job_raises_with_what_was_recorded(sampleblk_mount):
    job = lab.Job(rw="write", bs="64k", size="128M", fallocate="none", directory=sampleblk_mount)
    with pytest.raises(lab.JobError) as caught:
        job.record(syscalls=["write", "pwrite64"])
    assert caught.value.run is not None
    assert caught.value.run.syscalls().summary()["errors"].codes.sum() >= 1


def test_jobs_that_are_threads_are_each_recorded(sampleblk_mount):
    job = lab.Job(rw="write", ioengine="psync", bs="4k", size="64k", numjobs=3, thread=1, directory=sampleblk_mount)
    with job.prepare() as jobs, lab.record(syscalls=["pwrite64"], pids=jobs) as recording:
        jobs.start()
        result = jobs.wait()
    assert recording.syscalls().summary()["calls"]["pwrite64"] == 3 * 16
    assert recording.syscalls(pids=result).summary()["calls"]["pwrite64"] == 3 * 16
    assert recording.syscalls(pids=result.pids[0]).summary()["calls"]["pwrite64"] in (16, 3 * 16)


# Two threads that were there before the recording, then two that come while it runs; each writes eight times.
THREADED = """
    import os, sys, threading
    out = os.open(sys.argv[1], os.O_WRONLY)
    go = threading.Event()
    def work(early):
        if early:
            go.wait()
        for _ in range(8):
            os.pwrite(out, b"x", 0)
    threads = [threading.Thread(target=work, args=(True,)) for _ in range(2)]
    for thread in threads: thread.start()
    print("ready", flush=True)
    sys.stdin.readline()
    threads += [threading.Thread(target=work, args=(False,)) for _ in range(2)]
    for thread in threads[2:]: thread.start()
    go.set()
    for thread in threads: thread.join()
"""


@pytest.mark.parametrize("block", [False, True], ids=["kernel filters", "all is recorded"])
@pytest.mark.parametrize("limited", [True, False], ids=["recording of it", "view of it"])
def test_no_thread_of_a_process_is_lost(tmp_path, block, limited):
    (tmp_path / "out").touch()
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(THREADED), str(tmp_path / "out")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    other = os.open(tmp_path / "other", os.O_WRONLY | os.O_CREAT)
    pid = {"pids": process} if limited else {}
    with lab.record(syscalls=["pwrite64"], block=block, **pid) as recording:
        os.pwrite(other, b"y", 0)  # not of the process
        process.communicate("\n")
    os.close(other)
    assert recording.syscalls(pids=process).summary()["calls"]["pwrite64"] == (4 * 8 if limited else 2 * 8)
    if limited:
        assert recording.syscalls().summary()["calls"]["pwrite64"] == 4 * 8
    else:
        assert recording.syscalls().summary()["calls"]["pwrite64"] == 4 * 8 + 1


def test_the_first_thread_stands_for_itself_alone_with_what_it_starts(tmp_path):
    """Its id is its process's: a notebook's cell runs in it, and the notebook kernel's own threads do not count."""
    files = [os.open(tmp_path / str(n), os.O_WRONLY | os.O_CREAT) for n in range(3)]
    go = threading.Event()

    def early():
        go.wait()
        os.pwrite(files[1], b"x", 0)

    before = threading.Thread(target=early)
    before.start()
    assert threading.get_native_id() == os.getpid()
    with lab.record(syscalls=["pwrite64"], pids=threading.current_thread()) as recording:
        os.pwrite(files[0], b"x", 0)
        go.set()
        before.join()
        later = threading.Thread(target=lambda: os.pwrite(files[2], b"x", 0))
        later.start()
        later.join()
    calls = recording.syscalls().table()
    assert list(calls["arg0"].values) == [files[0], files[2]]
    for file in files:
        os.close(file)


def test_a_thread_stands_for_itself_alone(tmp_path):
    files = [os.open(tmp_path / str(n), os.O_WRONLY | os.O_CREAT) for n in range(2)]
    go = threading.Event()

    def work(file):
        go.wait()
        os.pwrite(file, b"x", 0)

    threads = [threading.Thread(target=work, args=(file,)) for file in files]
    for thread in threads:
        thread.start()
    with lab.record(syscalls=["pwrite64"], pids=threads[0]) as recording:
        go.set()
        for thread in threads:
            thread.join()
    assert recording.syscalls().summary()["calls"]["pwrite64"] == 1
    for file in files:
        os.close(file)


def test_a_command_from_its_execve_on(tmp_path):
    command = ["dd", "if=/dev/zero", f"of={tmp_path / 'file'}", "bs=4k", "count=32", "conv=fsync"]
    run = lab.record(command=command, syscalls=True, profile=997, stderr=subprocess.DEVNULL)
    calls = run.syscalls().summary()
    assert run.command["returncode"] == 0
    assert run.command["command"] == command
    assert calls["calls"]["execve"] == 1
    assert calls["calls"]["fsync"] == 1
    # What strace counts from the same execve() on.
    strace = tmp_path / "strace"
    subprocess.run(["strace", "-f", "-c", "-o", strace, *command], stderr=subprocess.DEVNULL, check=True)
    told = {line.split()[-1]: int(line.split()[3]) for line in strace.read_text().splitlines()[2:-2]}
    ours = {str(row["syscall"]): row["calls"] for row in calls if row["syscall"] not in ("exit_group", "rt_sigreturn")}
    assert ours == told


def test_what_a_command_starts_is_recorded_and_its_end_told(tmp_path):
    run = lab.record(command=["sh", "-c", "cat /dev/null; cat /dev/null; exit 3"], syscalls=["execve"], cwd=tmp_path)
    assert run.command["returncode"] == 3
    assert run.syscalls().summary()["calls"]["execve"] == 3
    assert lab.record(command="sh -c 'kill -9 $$'", block=True).command["returncode"] == -signal.SIGKILL
    with pytest.raises(FileNotFoundError, match="nonesuch"):
        lab.record(command=["nonesuch"])
    with pytest.raises(PermissionError):
        lab.record(command=["/etc/passwd"])
    with pytest.raises(lab.InputError, match="both a command and pid"):
        lab.record(command="true", pids=1)
    with pytest.raises(TypeError, match="cwd"):
        lab.record(syscalls=True, cwd="/")


def test_what_was_recorded_of_a_command_that_ctrl_c_ends_is_kept(tmp_path):
    def press(when):
        while not when.exists():
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    for number, (ends, status) in enumerate((("sleep 60", -signal.SIGINT), ("sleep 3; exit 5", 5))):
        begun = tmp_path / str(number)
        thread = threading.Thread(target=press, args=[begun])
        thread.start()
        deaf = "trap '' INT; " if status == 5 else ""
        # Three programs have been begun when the file is there; Ctrl-C may come before sleep is.
        run = lab.record(command=["sh", "-c", f"{deaf}/bin/true; touch {begun}; {ends}"], syscalls=["execve"])
        thread.join()
        assert (run.command["returncode"], run.command["interrupted"]) == (status, True)
        assert run.syscalls().summary()["calls"]["execve"] >= 3


def test_a_command_that_cannot_be_recorded_does_not_stay(tmp_path):
    marker = tmp_path / "ran"
    with pytest.raises(lab.InputError, match="no event"):
        lab.record(command=["touch", str(marker)], events="nonesuch:event")
    assert not marker.exists()


def test_who_is_meant():
    assert tasks.ids(None) == []
    assert tasks.ids([5, 5, 7]) == [5, 7]
    for wrong in ("12", True, 1.5, [None], threading.Thread()):
        with pytest.raises(lab.InputError):
            tasks.ids(wrong)
    json.dumps(tasks.ids([os.getpid()]))
    assert threading.get_native_id() in tasks.threads([os.getpid()])[os.getpid()]
    assert tasks.threads([2**22 + 1]) == {2**22 + 1: [2**22 + 1]}
    first = threading.main_thread()
    assert tasks.threads(tasks.ids(first)) == {os.getpid(): [os.getpid()]}
    assert tasks.ids([first, os.getpid()]) == [os.getpid()]
    assert len(tasks.threads(tasks.ids([first, os.getpid()]))[os.getpid()]) == len(
        tasks.threads([os.getpid()])[os.getpid()]
    )
