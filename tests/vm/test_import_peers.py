# SPDX-License-Identifier: MIT
"""blktrace and perf beside a recording of ours: imported, they hold the same requests."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import sampleblk_lab as lab

_BLOCK = "block:block_rq_issue,block:block_rq_complete,block:block_bio_queue,block:block_getrq"


def _requests(run: lab.Run, device: str) -> Counter[tuple[Any, ...]]:
    rows = [row for row in run.block().table().rows() if row["device"] == device and row["completed"]]
    assert all(0 < row["issued"] <= row["completed"] for row in rows)
    return Counter((row["sector"], row["sectors"], row["rwbs"], row["error"]) for row in rows)


@pytest.mark.skipif(shutil.which("blktrace") is None or shutil.which("perf") is None, reason="needs blktrace and perf")
def test_what_blktrace_and_perf_recorded_is_what_we_recorded(tmp_path: Path) -> None:
    with lab.Device(capacity="16M") as device:
        numbers = Path(device.path).stat().st_rdev
        name = f"{os.major(numbers)},{os.minor(numbers)}"
        begun = Path("/sys/kernel/debug/block", Path(device.path).name, "trace0")
        peer = subprocess.Popen(["blktrace", "-d", device.path, "-o", "peer", "-D", str(tmp_path)])
        try:
            for _ in range(600):
                if begun.exists() or peer.poll() is not None:
                    break
                time.sleep(0.1)
            job = ["sh", "-c", f"dd if=/dev/zero of={device.path} bs=8k count=40 oflag=direct,dsync status=none && "
                   f"dd if={device.path} of=/dev/null bs=4k count=30 iflag=direct status=none"]  # fmt: skip
            with lab.record(block=True) as rec:
                perf = ["perf", "record", "-qN", "-a", "-e", _BLOCK, "-o", str(tmp_path / "perf.data"), "--", *job]
                subprocess.run(perf, check=True)
        finally:
            peer.send_signal(signal.SIGINT)
            assert peer.wait(60) == 0
        ours = _requests(rec.run, name)
        assert sum(ours.values()) >= 70
        text = tmp_path / "perf.txt"
        script = ["perf", "script", "-i", str(tmp_path / "perf.data"), "--ns"]
        with text.open("w") as out:
            subprocess.run(script, stdout=out, check=True)
    by_perf = lab.import_run(text, directory=tmp_path / "by-perf")
    assert _requests(by_perf, name) == ours
    by_blktrace = lab.import_run(tmp_path / "peer", directory=tmp_path / "by-blktrace")
    # An empty flush is FN to blktrace, and FF to the events.
    assert _requests(by_blktrace, name) == Counter(
        {(sector, count, rwbs.replace("FF", "FN"), error): n for (sector, count, rwbs, error), n in ours.items()}
    )
    # Each on a clock of its own, but as far apart: from the first request's issue to the last one's.
    spans = [
        max(row["issued"] for row in rows) - min(row["issued"] for row in rows)
        for run in (rec.run, by_perf, by_blktrace)
        for rows in [[row for row in run.block().table().rows() if row["device"] == name and row["completed"]]]
    ]
    assert max(spans) < 1.1 * min(spans), spans  # perf's clock went 0.3 % slower in a guest without KVM


@pytest.mark.skipif(shutil.which("trace-cmd") is None or shutil.which("strace") is None, reason="needs both")
def test_raw_system_calls_are_those_that_strace_counts(tmp_path: Path) -> None:
    program = (
        "import os, signal\n"
        "signal.signal(signal.SIGUSR1, lambda *_: None)\n"
        "for _ in range(5): os.kill(os.getpid(), signal.SIGUSR1)\n"
        "fd = os.memfd_create('x'); os.pwrite(fd, b'x', 3); os.fsync(fd)\n"
        "os.access('/none', 0)\n"
    )
    command = [os.path.realpath(sys.executable), "-ISc", program]
    for events in (["raw_syscalls"], ["raw_syscalls", "syscalls"]):
        options = [word for event in events for word in ("-e", event)]
        file = tmp_path / f"{len(events)}.dat"
        subprocess.run(["trace-cmd", "record", "-q", *options, "-F", "-o", file, *command], check=True, cwd=tmp_path)
        subprocess.run(["strace", "-c", "-o", tmp_path / "strace", *command], check=True)
        lines = [line.split() for line in (tmp_path / "strace").read_text().splitlines()[2:-2]]
        told = {words[-1]: (int(words[3]), int(words[4]) if len(words) == 6 else 0) for words in lines}
        calls = lab.open_run(file).syscalls()
        ours = {str(row["syscall"]): (row["calls"], row["errors"]) for row in calls.summary()}
        assert told.pop("rt_sigreturn") == (5, 0)
        assert ours.pop("rt_sigreturn", None) == ((5, 0) if len(events) == 1 else None)
        assert ours == told
