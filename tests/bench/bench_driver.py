# SPDX-License-Identifier: MIT
"""The driver against brd and null_blk, by fio in the guest, one run. Ends in `ratio NAME VALUE` lines.

Each figure is the best of several short runs, and the devices take turns: what disturbs a run only ever slows it. All
devices are filled before, but for `first…` and `sparse…`, where each run begins with a new one. The ceiling is a
null_blk that moves no data: what fio, the system call and the block layer cost by themselves. Its ratio to null_blk
with memory is what a driver that costs nothing would reach, so no ratio of ours can be more.

Where the kernel plugs a direct write (6.1: blkdev_write_iter()), a synchronous one is handed to kblockd when the writer
goes to sleep, and two context switches cost more than any driver of the multi-queue kind: hence the ceiling there.

null_blk has as many queues as ours and so no I/O scheduler either; `default…` are both as they are made when nothing
is said.

On a CPU with "enhanced rep movsb" (ERMS: every Intel CPU since 2012, most of AMD's since 2020, QEMU's `max`) the
kernel's memcpy(), by which the peers copy, is one `rep movsb`. That is fast on such a CPU and slow in QEMU, which
executes it byte by byte. The VMs of this project hide ERMS for that reason; ratios from a guest that has it begin
with `erms_`, and say what somebody sees who runs a VM with `-cpu max`, not how the drivers compare on a real CPU.

Run by `make bench-driver`, inside the VM, or by `make bench-driver-counted`, where the guest's clock counts its
instructions; both run it with and without ERMS. BENCH=… runs only the jobs whose name has that in it, ROUNDS=… so
many rounds.
"""

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import sampleblk_lab as lab

MIB = 128
SPARSE_MIB = 250 << 10
ROUNDS = int(os.environ.get("ROUNDS", "3"))
RUN = "800ms"
NULLB = Path("/sys/kernel/config/nullb")


@dataclasses.dataclass(frozen=True)
class Job:
    """One row of figures: fio's options, and the devices that they are run on."""

    name: str
    options: tuple[str, ...]
    devices: tuple[str, ...] = ("mq", "null_blk", "ceiling", "bio", "brd")
    # Each run on a new device, and once through it instead of for a time.
    new: bool = False


PSYNC = ("--bs=4k", "--ioengine=psync")
URING = ("--bs=4k", "--ioengine=io_uring", "--iodepth=32")
TWO = (*PSYNC, "--numjobs=2", "--group_reporting=1")
LARGE = ("--bs=128k", "--ioengine=psync")
QUEUED = ("mq", "null_blk", "ceiling")
DEFAULT = ("default_mq", "default_null_blk", "default_ceiling")
SPARSE = ("sparse_mq", "sparse_null_blk", "sparse_ceiling")
JOBS = [
    Job("randread_psync", ("--rw=randread", *PSYNC), ("mq", "mq_after", "null_blk", "ceiling", "bio", "brd")),
    Job("randwrite_psync", ("--rw=randwrite", *PSYNC), ("mq", "mq_after", "null_blk", "ceiling", "bio", "brd")),
    Job("randread_uring32", ("--rw=randread", *URING)),
    Job("randwrite_uring32", ("--rw=randwrite", *URING)),
    Job("seqread_128k", ("--rw=read", *LARGE)),
    Job("seqwrite_128k", ("--rw=write", *LARGE)),
    Job("randwrite_two_jobs", ("--rw=randwrite", *TWO), QUEUED),
    Job("first_randwrite_psync", ("--rw=randwrite", *PSYNC), QUEUED, new=True),
    Job("first_seqwrite_128k", ("--rw=write", *LARGE), QUEUED, new=True),
    Job("default_randread_psync", ("--rw=randread", *PSYNC), DEFAULT),
    Job("default_randwrite_psync", ("--rw=randwrite", *PSYNC), DEFAULT),
    Job("default_randwrite_uring32", ("--rw=randwrite", *URING), DEFAULT),
    Job(
        "sparse_randwrite_uring32",
        ("--rw=randwrite", *URING, f"--size={SPARSE_MIB}M", "--norandommap", "--number_ios=20000"),
        SPARSE,
        new=True,
    ),
]


def fio(paths: Sequence[str], *options: str) -> list[float]:
    """Runs fio on devices, one after another, and returns the reads and writes a second of each.

    One process: under TCG it takes as long to start as a run takes.
    """
    command = [
        "fio", "--output-format=json", "--name=global", "--direct=1", f"--size={MIB}M", "--randrepeat=1",
        "--gtod_reduce=1", *options,
    ]  # fmt: skip
    for path in paths:
        command += ["--name=bench", f"--filename={path}", "--stonewall"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: {done.stdout}{done.stderr}")
    jobs = json.loads(done.stdout[done.stdout.index("{") :])["jobs"]
    if len(jobs) != len(paths):
        raise SystemExit(f"{' '.join(command)}: {len(jobs)} results of {len(paths)} jobs")
    return [max(float(job[way]["iops"]) for way in ("read", "write")) for job in jobs]


class NullBlk:
    """A null_blk, made and unmade through configfs."""

    def __init__(self, name: str, **attributes: int) -> None:
        subprocess.run(["modprobe", "null_blk", "nr_devices=0"], check=True)
        if not NULLB.exists():
            subprocess.run(["mount", "-t", "configfs", "none", "/sys/kernel/config"], check=True)
        self.folder = NULLB / name
        self.folder.mkdir()
        for attribute, value in {**attributes, "power": 1}.items():
            (self.folder / attribute).write_text(str(value))
        index = (self.folder / "index").read_text().strip()
        self.path = next(path for path in (f"/dev/{name}", f"/dev/nullb{index}") if Path(path).exists())

    def close(self) -> None:
        (self.folder / "power").write_text("0")
        self.folder.rmdir()


class Brd:
    """The kernel's RAM disk."""

    path = "/dev/ram0"

    def __init__(self) -> None:
        subprocess.run(["modprobe", "brd", "rd_nr=1", f"rd_size={MIB << 10}"], check=True)

    def close(self) -> None:
        subprocess.run(["rmmod", "brd"], check=True)


def used_and_plain_again() -> lab.Device:
    """Plain after everything has been on once: that must cost nothing."""
    dev = lab.Device(f"{MIB}M", queues=2)
    dev.set_timing("constant", 1000)
    dev.set_faults([lab.Fault(action="delay", delay_ns=1)])
    dev.set_timing("none")
    dev.set_faults([])
    return dev


Peer = lab.Device | NullBlk | Brd
PEERS: dict[str, Callable[[], Peer]] = {
    "mq": lambda: lab.Device(f"{MIB}M", queues=2),
    "mq_after": used_and_plain_again,
    "bio": lambda: lab.Device(f"{MIB}M", mode="bio"),
    "brd": Brd,
    "null_blk": lambda: NullBlk("plain", size=MIB, submit_queues=2, memory_backed=1),
    "ceiling": lambda: NullBlk("ceiling", size=MIB, submit_queues=2),
    "default_mq": lambda: lab.Device(f"{MIB}M"),
    "default_null_blk": lambda: NullBlk("default", size=MIB, memory_backed=1),
    "default_ceiling": lambda: NullBlk("default_ceiling", size=MIB),
    "sparse_mq": lambda: lab.Device(f"{SPARSE_MIB}M"),
    "sparse_null_blk": lambda: NullBlk("sparse", size=SPARSE_MIB, memory_backed=1),
    "sparse_ceiling": lambda: NullBlk("sparse_ceiling", size=SPARSE_MIB),
}


def measure(job: Job) -> dict[str, float]:
    """The best of the job's rounds for each of its devices."""
    best = dict.fromkeys(job.devices, 0.0)
    if job.new:
        for _ in range(ROUNDS):
            for device in job.devices:
                peer = PEERS[device]()
                best[device] = max(best[device], *fio([peer.path], *job.options))
                peer.close()
        return best
    peers = {device: PEERS[device]() for device in job.devices}
    paths = [peer.path for peer in peers.values()]
    fio(paths, "--rw=write", *LARGE)
    iops = fio(paths * ROUNDS, *job.options, "--norandommap", "--time_based", f"--runtime={RUN}")
    for at, device in enumerate(peers):
        best[device] = max(iops[at :: len(peers)])
    for peer in peers.values():
        peer.close()
    return best


def main() -> None:
    """Measures, and prints figures and ratios."""
    asked = os.environ.get("BENCH", "")
    cpu = "erms_" if " erms" in Path("/proc/cpuinfo").read_text() else ""
    # Here, where nobody looks at the clock: with counted instructions it runs on while the guest waits for the host.
    subprocess.run(["modprobe", "sampleblk", "devices=0"], check=True)
    ratios = []
    for job in JOBS:
        if asked not in job.name:
            continue
        row = measure(job)
        print(cpu + job.name, "  ".join(f"{device} {iops:.0f}" for device, iops in row.items()), flush=True)
        kind = next((kind for kind in ("default_", "sparse_") if f"{kind}mq" in row), "")
        for ours, peer in (("mq", "null_blk"), ("ceiling", "null_blk"), ("bio", "brd"), ("mq_after", "mq")):
            if kind + ours in row and kind + peer in row:
                ratios.append(f"ratio {cpu}{job.name}_{ours}_vs_{peer} {row[kind + ours] / row[kind + peer]:.2f}")
    print("", *ratios, sep="\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
