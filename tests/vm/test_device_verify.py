# SPDX-License-Identifier: MIT
"""fio writes patterns and reads them back with their checksums: every queue mode, block size and engine."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

import sampleblk_lab as lab

pytestmark = pytest.mark.each_kernel

needs_fio = pytest.mark.skipif(shutil.which("fio") is None, reason="needs fio: apt-get install fio")

# Everything that an I/O can pass through on its way.
DEVICES: dict[str, dict[str, Any]] = {
    "mq": {"queues": 1},
    "mq two queues": {"queues": 2, "depth": 8},
    "mq softirq": {"queues": 2, "completion": "softirq"},
    "mq timer": {"queues": 1, "completion": "timer"},
    "mq cache": {"queues": 2, "cache": True},
    "bio": {"mode": "bio"},
    "bio timer": {"mode": "bio", "completion": "timer"},
    "bio cache": {"mode": "bio", "cache": True},
}
ENGINES = {
    "psync": [],
    "libaio": ["--iodepth=16"],
    "io_uring": ["--iodepth=16"],
    "posixaio": ["--iodepth=4"],
    "mmap": [],
}
# (name, its options): one after the other on the same device, so that each overwrites what the one before left.
SIZES = [
    ("sectors", ["--bs=512", "--size=512k"]),
    ("pages", ["--bs=4k", "--size=4m"]),
    ("odd", ["--bs=7k", "--size=7m"]),
    ("large", ["--bs=256k", "--size=8m"]),
    ("mixed", ["--bsrange=512-64k", "--bs_unaligned=0", "--size=4m", "--rw=write"]),
]


def verify(dev: lab.Device, engine: str, options: list[str], sizes: list[tuple[str, list[str]]]) -> None:
    common = [
        f"--filename={dev.path}", f"--ioengine={engine}", "--rw=randwrite", "--verify=crc32c", "--verify_fatal=1",
        f"--direct={0 if engine == 'mmap' else 1}", "--randrepeat=1", *options,
    ]  # fmt: skip
    command = ["fio", "--output-format=terse"]
    for name, own in sizes:
        command += [f"--name={name}", "--stonewall", *common, *own]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "verify" not in done.stderr
    counters = dev.counters()
    assert counters.errors == 0
    assert counters.reads > 0
    assert counters.writes > 0


@needs_fio
@pytest.mark.parametrize("device", ["mq two queues", "bio"])
def test_what_fio_wrote_has_its_checksum(device: str) -> None:
    with lab.Device("16M", **DEVICES[device]) as dev:
        verify(dev, "io_uring", ENGINES["io_uring"], [SIZES[0], SIZES[4]])


@needs_fio
@pytest.mark.full
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("device", DEVICES)
def test_every_mode_size_and_engine(device: str, engine: str) -> None:
    options = dict(DEVICES[device])
    if engine == "mmap":
        # When it maps a block device fio calls MADV_REMOVE (engines/mmap.c, FIO_MADV_FREE), before it verifies, too:
        # a hole in all that it wrote, where the device can make one.
        options |= {"discard": False, "write_zeroes": False}
    with lab.Device("16M", **options) as dev:
        verify(dev, engine, ENGINES[engine], SIZES)


@needs_fio
@pytest.mark.full
@pytest.mark.parametrize("block", [1024, 2048, 4096, 16384, 65536])
@pytest.mark.parametrize("mode", ["mq", "bio"])
def test_every_logical_block(mode: str, block: int) -> None:
    try:
        dev = lab.Device("16M", mode=mode, logical_block=block)
    except OSError:
        # Before 6.15 the kernel has no blocks larger than a page.
        assert block > 4096
        pytest.skip(f"this kernel has no blocks of {block} bytes")
    with dev:
        assert int(Path(f"/sys/block/{dev.name}/queue/logical_block_size").read_text()) == block
        verify(dev, "psync", [], [("blocks", [f"--bs={block}", "--size=4m"]), ("large", ["--bs=256k", "--size=8m"])])


@needs_fio
@pytest.mark.full
def test_a_journal_and_a_snapshot_change_nothing_to_read() -> None:
    with lab.Device("16M", queues=2) as dev:
        dev.journal_start("64M")
        dev.snapshot_take(dev.mark("before"))
        verify(dev, "io_uring", ENGINES["io_uring"], SIZES)
        assert dev.journal_info().overflow == 0
        newest = dev.journal_info().position
        dev.seek(0)
        dev.seek()
        assert dev.journal_info().position == newest
