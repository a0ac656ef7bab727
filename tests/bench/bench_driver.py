# SPDX-License-Identifier: MIT
"""The driver against brd and null_blk, by fio in the guest, one run. Ends in `ratio NAME VALUE` lines.

Each figure is the median of several short runs, and the devices take turns, so that a machine that slows down for a
while slows all of them. Run by `make bench-driver`, inside the VM.
"""

import json
import statistics
import subprocess
import sys
from collections import defaultdict

import sampleblk_lab as lab

SIZE = "128M"
ROUNDS = 5
SECONDS = 2

# name, fio's options
JOBS = [
    ("randread_psync", ["--rw=randread", "--bs=4k", "--ioengine=psync"]),
    ("randwrite_psync", ["--rw=randwrite", "--bs=4k", "--ioengine=psync"]),
    ("randread_uring32", ["--rw=randread", "--bs=4k", "--ioengine=io_uring", "--iodepth=32"]),
    ("randwrite_uring32", ["--rw=randwrite", "--bs=4k", "--ioengine=io_uring", "--iodepth=32"]),
    ("seqread_128k", ["--rw=read", "--bs=128k", "--ioengine=psync"]),
    ("seqwrite_128k", ["--rw=write", "--bs=128k", "--ioengine=psync"]),
]


def fio(path: str, *options: str) -> dict[str, float]:
    """Runs fio on a device and returns its job's read and write IOPS."""
    command = [
        "fio", "--name=bench", f"--filename={path}", "--direct=1", f"--size={SIZE}", "--output-format=json",
        "--randrepeat=1", "--norandommap", "--gtod_reduce=1", *options,
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: {done.stdout}{done.stderr}")
    job = json.loads(done.stdout[done.stdout.index("{") :])["jobs"][0]
    return {"read": job["read"]["iops"], "write": job["write"]["iops"]}


def main() -> None:
    """Makes the devices, fills them, measures, and prints figures and ratios."""
    subprocess.run(["modprobe", "brd", "rd_nr=1", f"rd_size={128 << 10}"], check=True)
    subprocess.run(
        ["modprobe", "null_blk", "nr_devices=1", "memory_backed=1", "gb=1", "submit_queues=2", "queue_mode=2"],
        check=True,
    )
    with (
        lab.Device(SIZE, queues=2) as mq,
        lab.Device(SIZE, mode="bio") as bio,
        lab.Device(SIZE, queues=2) as extras,
    ):
        # Plain again after everything has been on once: that must cost nothing.
        extras.set_timing("constant", 1000)
        extras.set_faults([lab.Fault(action="delay", delay_ns=1)])
        extras.set_timing("none")
        extras.set_faults([])
        paths = {"mq": mq.path, "bio": bio.path, "mq_after": extras.path, "brd": "/dev/ram0", "null_blk": "/dev/nullb0"}
        for path in paths.values():
            fio(path, "--rw=write", "--bs=128k")
        figures: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        for name, options in JOBS:
            for _ in range(ROUNDS):
                for device, path in paths.items():
                    iops = fio(path, *options, "--time_based", f"--runtime={SECONDS}")
                    figures[name][device].append(max(iops.values()))
                sys.stdout.flush()
            row = {device: statistics.median(values) for device, values in figures[name].items()}
            print(name, "  ".join(f"{device} {iops:.0f}" for device, iops in row.items()), flush=True)
        print()
        for name, devices in figures.items():
            median = {device: statistics.median(values) for device, values in devices.items()}
            print(f"ratio {name}_mq_vs_null_blk {median['mq'] / median['null_blk']:.2f}")
            print(f"ratio {name}_bio_vs_brd {median['bio'] / median['brd']:.2f}")
            print(f"ratio {name}_mq_after_vs_mq {median['mq_after'] / median['mq']:.2f}")


if __name__ == "__main__":
    main()
