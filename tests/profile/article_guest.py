# SPDX-License-Identifier: MIT
"""The guest's part of test_article_profile.py: records the article's job, by us and by each perf that is named.

usage: article_guest.py [--hz N] [--loops N] [--no-fio] [PERF…]

The run directory gets ours/ (user stacks unwound later), fio/ (the same of fio itself, if it is there), plain/ (frame
pointers only), NUMBER.data of each perf, and the kernel's symbols.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
from pathlib import Path

import sampleblk_lab as lab
from sampleblk_lab.demo.guest import JOB_FILE
from sampleblk_lab.workload.run import run_to_end

OUT = Path(os.environ["SAMPLEBLK_RUN_DIR"])


def job(hz: int, loops: int, **options: object) -> lab.Profiler:
    """Both jobs at once, from where they are set up to their end, as the article sampled a running fio."""
    sampling = lab.profile(hz=hz, buffer="8M", **options)  # type: ignore[arg-type]
    with lab.JobFile(JOB_FILE, loops=loops).prepare() as running, sampling as profiler:
        run_to_end(running, False, check=True)
    return profiler


def main() -> None:
    """Does it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--hz", type=int, default=997)
    parser.add_argument("--loops", type=int, default=12)
    parser.add_argument("--no-fio", action="store_true")
    parser.add_argument("perfs", nargs="*")
    options = parser.parse_args()
    hz, loops = options.hz, options.loops
    with lab.Device(capacity="64M", queues=2) as device, device.mkfs("ext4").mount("/mnt"):
        whole = job(hz, loops, offcpu=True, callgraph="dwarf", stack_bytes=4096)
        plain = job(hz, loops)
        whole.save(OUT / "ours")
        plain.save(OUT / "plain")
        stats = {"ours": whole.stats, "plain": plain.stats}
        fio = None if options.no_fio else shutil.which("fio")
        if fio is not None:
            # An option before the file would be a job of its own.
            short = Path("/tmp/short")
            short.write_text(JOB_FILE.read_text().replace("loops=1000000", f"loops={loops}"))
            with lab.profile(hz=hz, buffer="8M", callgraph="dwarf", stack_bytes=4096) as profiler:
                subprocess.run([fio, str(short)], check=True, capture_output=True)
            profiler.save(OUT / "fio")
            stats["fio"] = profiler.stats
            for number, perf in enumerate(options.perfs):
                target = f"/tmp/{number}.data"  # not on the share: perf maps its output
                command = [perf, "record", "-qN", "-a", "-g", "-F", str(hz), "-e", "cpu-clock", "-o", target]
                subprocess.run([*command, "--", fio, str(short)], check=True, capture_output=True)
                shutil.copyfile(target, OUT / f"{number}.data")
        # While the driver is loaded: its names are among them.
        (OUT / "kallsyms").write_bytes(Path("/proc/kallsyms").read_bytes())
    print(json.dumps(stats))


if __name__ == "__main__":
    main()
