# SPDX-License-Identifier: MIT
"""What a shell, tracefs and raw calls reach: single values, tracepoints, reserved fields, modprobe."""

import errno
import fcntl
import os
import random
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import abi
import pytest
from blockio import Background, discard, flush, read, until, write

import sampleblk_lab as lab
from sampleblk_lab import leftovers
from sampleblk_lab.device import names

pytestmark = pytest.mark.each_kernel

ROOT = Path(__file__).resolve().parents[2]
TRACEFS = Path("/sys/kernel/tracing")


@contextmanager
def traced(*events: str) -> Iterator[list[str]]:
    """The lines of the driver's events while the block runs, filled in at its end."""
    lines: list[str] = []
    (TRACEFS / "trace").write_text("")
    switches = [TRACEFS / f"events/sampleblk/sampleblk_{event}/enable" for event in events]
    for switch in switches:
        switch.write_text("1")
    try:
        yield lines
    finally:
        for switch in switches:
            switch.write_text("0")
        found = re.findall(r"(sampleblk_\w+: .*)", (TRACEFS / "trace").read_text())
        lines += [line for line in found if re.search(r"write|flush|sequence|writes", line)]
        (TRACEFS / "trace").write_text("")


@pytest.mark.parametrize("mode", ["mq", "bio"])
def test_the_life_of_a_write_is_queue_fault_start_delay_complete(mode: str) -> None:
    with lab.Device("1M", mode=mode) as dev:
        dev.set_faults([lab.Fault(action="delay", delay_ns=300_000_000, first_sector=64, last_sector=71)])
        with traced("queue", "fault", "start", "delay", "complete") as lines:
            write(dev.path, b"l" * 4096, 64 * 512)
        steps = [line.split(":")[0] for line in lines if " write sector 64 bytes 4096" in line]
        assert steps == [f"sampleblk_{step}" for step in ("queue", "fault", "start", "delay", "complete")]
        assert any("action delay" in line for line in lines)
        # Each alone is enough to be seen.
        for step in ("start", "complete"):
            with traced(step) as lines:
                write(dev.path, b"l" * 4096)
            assert [line.split(":")[0] for line in lines if " write sector 0 " in line] == [f"sampleblk_{step}"]


def test_the_tracepoints_have_a_word_for_every_fault_and_operation() -> None:
    """In the format files, of which all readers of traces learn what a number means."""

    def words(event: str, field: str) -> dict[int, str]:
        printed = (TRACEFS / f"events/sampleblk/sampleblk_{event}/format").read_text().partition("print fmt:")[2]
        table = printed.partition(f"__print_symbolic(REC->{field},")[2].partition(")")[0]
        return {int(number): word for number, word in re.findall(r'\{ (\w+), "(\w+)" \}', table)}

    with lab.Device("1M"):  # so that the driver is loaded
        assert words("fault", "value") == dict(enumerate(names.FAULTS))
        assert {names.FAULTS[number] for number in leftovers._WAITS} == {"hang", "hold"}
        assert words("complete", "op").items() >= dict(enumerate(names.OPS)).items()


@pytest.mark.parametrize("mode", ["mq", "bio"])
def test_flush_and_journal_overflow_are_told(mode: str) -> None:
    with lab.Device("4M", mode=mode, cache=True) as dev:
        dev.journal_start("64K")
        with traced("flush", "journal_overflow") as lines:
            write(dev.path, b"1" * 4096)
            write(dev.path, b"2" * 4096, 8192)
            flush(dev.path)
            for n in range(40):
                write(dev.path, b"z" * 4096, n * 4096)
            with pytest.raises(OSError, match="too large"):
                dev.mark("no room")
        (told,) = [line for line in lines if line.startswith("sampleblk_flush")]
        assert told.endswith("writes 2 epoch 0")
        lost = [int(line.split()[-1]) for line in lines if line.startswith("sampleblk_journal_overflow")]
        info = dev.journal_info()
        # Every one, and in order.
        assert lost == list(range(info.next_sequence - info.overflow, info.next_sequence))
        assert len(lost) > 2


def test_latency_stalls_and_the_journal_in_sysfs() -> None:
    with lab.Device("1M", cache=True, cache_size="64K") as dev:
        sysfs = Path(f"/sys/block/{dev.name}/sampleblk")

        def value(name: str) -> str:
            return (sysfs / name).read_text().strip()

        assert value("cache_bytes") == str(64 << 10)
        for op in ("read", "write", "discard", "write_zeroes", "flush"):
            assert value(f"{op}_latency_ns") == "0"
            (sysfs / f"{op}_latency_ns").write_text("1000")
            assert value(f"{op}_latency_ns") == "1000"
            (sysfs / f"{op}_latency_ns").write_text("0")
        (sysfs / "write_latency_ns").write_text("300000000")  # more than a busy host takes away
        before = dev.counters()
        write(dev.path, b"w" * 4096)
        assert (dev.counters() - before).delayed == 1
        dev.set_timing("lognormal", 1000, 500, ops="write")
        assert value("write_latency_ns") == "lognormal"
        (sysfs / "write_latency_ns").write_text("0")
        with pytest.raises(OSError, match="Invalid"):
            (sysfs / "write_latency_ns").write_text(str(61_000_000_000))

        for name, number in (("stall_period_ns", 1_000_000_000), ("stall_offset_ns", 5), ("stall_ns", 1000)):
            (sysfs / name).write_text(str(number))
            assert value(name) == str(number)
        with pytest.raises(OSError, match="Invalid"):
            (sysfs / "stall_period_ns").write_text("10")
        for name in ("stall_ns", "stall_offset_ns", "stall_period_ns"):
            (sysfs / name).write_text("0")

        write(dev.path, b"o" * (256 << 10))
        flush(dev.path)
        assert value("volatile_writes") == "0"
        for n in range(40):
            write(dev.path, b"v" * 4096, n * 4096)
        assert int(value("volatile_writes")) == len(dev.volatile_writes())
        assert int(value("written_back")) == dev.written_back() > 0

        assert value("journal_bytes") == "0"
        with pytest.raises(OSError, match="No such file"):
            (sysfs / "journal_bytes").write_text("0")
        with pytest.raises(OSError, match="Invalid"):
            (sysfs / "journal_bytes").write_text("1")
        (sysfs / "journal_bytes").write_text(str(1 << 20))
        write(dev.path, b"j" * 4096)
        flush(dev.path)
        info = dev.journal_info()
        told = {
            name: int(value(f"journal_{name}")) for name in ("bytes", "used_bytes", "entries", "overflow", "position")
        }
        assert told == {name: getattr(info, name) for name in told}
        assert told["entries"] == 2
        (sysfs / "journal_bytes").write_text("0")
        assert dev.journal_info().bytes == 0


@pytest.mark.parametrize("mode", ["mq", "bio"])
def test_what_waits_in_the_driver_is_listed(mode: str) -> None:
    """By which a hang is told: what it is, where, and how it waits."""
    with lab.Device("1M", mode=mode, cache=True) as dev:
        shown = Path(f"/sys/block/{dev.name}/sampleblk/waiting")

        def waiting() -> list[str]:
            lines = [
                re.fullmatch(r"queue 0 tag (-?\d+): (.*) for \d+ ms", line) for line in shown.read_text().splitlines()
            ]
            assert all(lines)
            assert {line[1] == "-1" for line in lines if line} <= {mode == "bio"}
            return sorted(line[2] for line in lines if line)

        assert shown.read_text() == ""
        dev.set_faults(
            [lab.Fault(action="hang", ops="read"), lab.Fault(action="hold", ops=("write", "discard", "flush"))]
        )
        started = [
            Background(read, dev.path, 4096, 8192),
            Background(write, dev.path, b"w" * 1024, 4096),
            Background(discard, dev.path, 128 << 10, 8192),
            Background(flush, dev.path),
        ]
        until(lambda: len(waiting()) == 4)
        assert waiting() == ["discard 256+16, held", "flush 0+0, held", "read 16+8, hung", "write 8+2, held"]
        if mode == "mq":
            busy = Path(f"/sys/kernel/debug/block/{dev.name}").glob("hctx*/busy")
            told = re.findall(r"\{\.op=(\w+), .*?, \.sector=(\d+), \.bytes=(\d+)", "".join(map(Path.read_text, busy)))
            assert sorted(told) == [("DISCARD", "256", "8192"), ("READ", "16", "4096"), ("WRITE", "8", "1024")]
        dev.set_faults([])
        for one in started:
            assert one.error(20) in (None, errno.EIO)
        assert waiting() == []
        dev.set_timing("constant", 500_000_000, ops="write")
        late = Background(write, dev.path, b"w" * 1024, 4096)
        until(lambda: waiting() == ["write 8+2, delayed"])
        assert late.error(20) is None


@pytest.mark.parametrize("mode", ["mq", "bio"])
def test_what_waits_is_listed_as_far_as_a_page_goes(mode: str) -> None:
    with lab.Device("1M", mode=mode) as dev:
        dev.set_faults([lab.Fault(action="hang", ops="read")])
        started = [Background(read, dev.path, 512, 512 * number) for number in range(100)]
        until(lambda: dev.counters().faults == 100)
        lines = Path(f"/sys/block/{dev.name}/sampleblk/waiting").read_text().splitlines()
        assert 40 < len(lines) < 100
        assert all(re.fullmatch(r"queue 0 tag -?\d+: read \d+\+1, hung for \d+ ms", line) for line in lines)
        dev.set_faults([])
        for one in started:
            assert one.error(20) in (None, errno.EIO)


def test_reserved_fields_must_be_zero_in_every_call() -> None:
    # What makes a call valid but for the device's number; others are so with zeroes alone.
    needed: dict[str, dict[str, int]] = {
        "ADD": {"index": 77, "capacity_bytes": 1 << 20},
        "REMOVE": {"index": 77},
        "TIMING": {"ops": 1},
        "GET_TIMING": {"ops": 1},
        "JOURNAL": {"action": 2},
        "SNAPSHOT": {"action": 4},
        "MARK": {"length": 1, "text": 1},
        "RESIZE": {"capacity_bytes": 1 << 20},
    }
    tried = set()
    with lab.Device("1M", cache=True) as dev:
        dev.journal_start("1M")
        fd = os.open("/dev/sampleblk-control", os.O_RDWR)

        def outcome(call: abi.Call, at: int | None = None) -> int:
            # Every structure begins with the device's number.
            argument = bytearray(dev.index.to_bytes(4, "little").ljust(call.size, b"\0"))
            for name, value in needed.get(call.name, {}).items():
                (field,) = (field for field in call.fields if field.name == name)
                argument[field.offset : field.offset + field.size] = value.to_bytes(field.size, "little")
            if at is not None:
                argument[at] = 1
            try:
                fcntl.ioctl(fd, call.request, argument, True)
            except OSError as error:
                return error.errno or -1
            return 0

        for call in abi.CALLS:
            if call.name == "LIST":
                # Takes nothing in.
                continue
            assert outcome(call) != errno.EINVAL, call.name
            for field in call.fields:
                if field.name.startswith("reserved"):
                    for at in (field.offset, field.offset + field.size - 1):
                        assert outcome(call, at) == errno.EINVAL, f"{call.name}.{field.name}"
                    tried.add(call.name)
        os.close(fd)
        assert lab.devices()[0].index == dev.index
    # A mark has none.
    assert tried == {call.name for call in abi.CALLS} - {"LIST", "MARK"}


def test_without_a_journal_there_is_nothing_of_one() -> None:
    """Also where the caller's structure held something: it is of an earlier call, or was never cleared."""
    (call,) = (call for call in abi.CALLS if call.name == "JOURNAL")
    told = {field.name: slice(field.offset, field.offset + field.size) for field in call.fields}
    out = [name for name in told if name not in ("index", "action", "bytes", "reserved")]
    with lab.Device("1M") as dev:
        dev.journal_start("1M")
        fd = os.open("/dev/sampleblk-control", os.O_RDWR)
        for action in (1, 2):  # SAMPLEBLK_JOURNAL_STOP and _INFO
            argument = bytearray(call.size)
            for name, value in {"index": dev.index, "action": action, **dict.fromkeys(out, 7)}.items():
                argument[told[name]] = value.to_bytes(len(argument[told[name]]), "little")
            fcntl.ioctl(fd, call.request, argument, True)
            assert {name: int.from_bytes(argument[told[name]], "little") for name in out} == dict.fromkeys(out, 0)
        os.close(fd)


def test_what_is_refused_in_words_is_what_the_driver_refuses() -> None:
    """Neither more nor less, by chance: no value of a device, its latency or its limits ends as a bare EINVAL."""
    chance = random.Random(5)
    sizes = (0, 0, 0, 1, 8, 256, 512, 2048, 2560, 4096, 6144, 8192, 12288, 65536, 1 << 20, 64 << 20, 1 << 30, 1 << 31)
    times = (0, 0, 1, 99, 100, 4095, 4096, 10_000, 10_001, 100_001, 60 * 10**9, 60 * 10**9 + 1, 2**63)

    def driver_refuses(name: str, words: dict[str, int]) -> bool:
        (call,) = (call for call in abi.CALLS if call.name == name)
        argument = bytearray(call.size)
        for field in call.fields:
            value = words.get(field.name, 0)
            argument[field.offset : field.offset + field.size] = value.to_bytes(field.size, "little")
        try:
            fcntl.ioctl(fd, call.request, argument, True)
        except OSError as error:
            return error.errno in (errno.EINVAL, errno.EOPNOTSUPP)
        return False

    config = [
        *("physical_block_bytes", "io_min_bytes", "io_opt_bytes", "max_sectors", "max_segments", "cache_bytes"),
        *("discard_granularity_bytes", "discard_alignment_bytes", "logical_block_bytes"),
        *("atomic_write_unit_max_bytes", "atomic_write_unit_min_bytes", "atomic_write_boundary_bytes"),
    ]
    with lab.Device("1M") as dev:
        control, device = dev._control, {"index": dev.index}
        fd = os.open("/dev/sampleblk-control", os.O_RDWR)
        calls: dict[str, Callable[..., object]] = {
            "ADD": lambda **words: control.remove(control.add(**words)["index"]),
            "TIMING": lambda **words: control.set_timing(**words, seed=0, bins=[]),
            "LIMITS": control.set_limits,
        }
        limits = ("bytes_per_second", "stall_period_ns", "stall_ns", "stall_offset_ns")
        refused = dict.fromkeys(calls, 0)
        for _ in range(600):
            asked = {
                "ADD": {name: chance.choice(sizes) for name in chance.sample(config, 3)},
                "TIMING": {**device, "ops": 1, "model": chance.randrange(7)},
                "LIMITS": device | {name: chance.choice(times) for name in limits},
            }
            flags = 4 | 16 * ("cache_bytes" in asked["ADD"]) | 512 * (chance.random() < 0.2)
            asked["ADD"] |= {"capacity_bytes": 1 << 20, "flags": flags}
            asked["TIMING"] |= {name: chance.choice(times) for name in "ab"}
            for name, call in calls.items():
                try:
                    call(**asked[name])
                except lab.InputError:
                    refused[name] += 1
                    assert driver_refuses(name, asked[name]), asked[name]
                except OSError as error:
                    # What only newer kernels have.
                    if error.errno != errno.EOPNOTSUPP and "takes Linux 6.15" not in str(error):
                        raise
        dev.set_limits()
        dev.set_timing(ops=names.OPS)
        os.close(fd)
    assert all(100 < count < 600 for count in refused.values()), refused


def test_every_status_of_the_block_layer_can_be_had() -> None:
    """What a fault rule's errno becomes on its way through blk_status and back."""
    same = [
        errno.EOPNOTSUPP, errno.ETIMEDOUT, errno.ENOSPC, errno.ENOLINK, errno.EREMOTEIO, errno.EBADE, errno.ENODATA,
        errno.EILSEQ, errno.ENOMEM, errno.EBUSY, errno.EAGAIN, errno.EIO,
    ]  # fmt: skip
    with lab.Device("1M") as dev:
        for code in same:
            dev.set_faults([lab.Fault(action="error", errno=code, ops=("read", "write"))])
            for call in (lambda: read(dev.path, 512), lambda: write(dev.path, bytes(512))):
                with pytest.raises(OSError) as caught:  # noqa: PT011 (the errno is what this is about)
                    call()
                assert caught.value.errno == code
        # One that the block layer has no word for.
        dev.set_faults([lab.Fault(action="error", errno=errno.EXDEV, ops="read")])
        with pytest.raises(OSError, match="Input/output"):
            read(dev.path, 512)


def test_latencies_of_a_measurement_are_those_of_the_device() -> None:
    """Bins of 2 … 3 ms and 30 … 40 ms come back in the device's own histogram."""
    with lab.Device("1M") as dev:
        dev.tune(histograms=True)
        fio = {"jobs": [{"jobname": "ssd", "write": {"clat_ns": {"bins": {"2490368": 7, "33816576": 3}}}}]}
        assert dev.set_timing_like(fio, seed=1) == {"write": 4}
        dev.reset()
        for n in range(40):
            write(dev.path, bytes(512), n * 512)
        rows = [row for row in dev.histogram("write").rows() if row["count"]]
        slow = sum(row["count"] for row in rows if row["from_ns"] >= 2**24)
        assert all(row["to_ns"] > 2**21 for row in rows)
        assert 3 < slow < 25
        # What the device measured of itself is a measurement too.
        with lab.Device("1M") as other:
            assert other.set_timing_like(dev, ops="write")["write"] > 1
        with pytest.raises(lab.InputError, match="without a read"):
            dev.set_timing_like(fio, ops="read")


@pytest.mark.full
@pytest.mark.usefixtures("no_driver")
def test_256_devices_and_not_one_more() -> None:
    subprocess.run(["modprobe", "sampleblk", "devices=256", "capacity=1G"], check=True)
    try:
        assert len(lab.devices()) == 256
        write("/dev/sampleblk256", b"last" * 128)
        assert read("/dev/sampleblk256", 512) == b"last" * 128
        assert read("/dev/sampleblk1", 512) == bytes(512)
        with pytest.raises(OSError, match="No space"):
            lab.Device("1M")
        with pytest.raises(FileExistsError):
            lab.Device("1M", index=7)
    finally:
        subprocess.run(["rmmod", "sampleblk"], check=True)
    assert subprocess.run(["modprobe", "sampleblk", "devices=257"], check=False, capture_output=True).returncode != 0
    assert not Path("/sys/module/sampleblk").exists()


@pytest.mark.usefixtures("no_driver")
def test_the_modprobe_example_is_what_it_says(tmp_path: Path) -> None:
    options = re.search(r"^options sampleblk (.*)$", (ROOT / "module/dkms/sampleblk.modprobe.conf").read_text(), re.M)
    assert options
    (tmp_path / "sampleblk.conf").write_text((ROOT / "module/dkms/sampleblk.modprobe.conf").read_text())
    subprocess.run(["modprobe", "-C", str(tmp_path), "sampleblk"], check=True)
    try:
        wanted = dict(word.split("=") for word in options[1].split())
        (info,) = lab.devices()
        assert info.capacity_bytes == 64 << 20 if wanted["capacity"] == "64M" else None
        assert info.queues == min(int(wanted["queues"]), os.cpu_count() or 1)
        parameters = Path("/sys/module/sampleblk/parameters")
        assert {name: (parameters / name).read_text().strip() for name in wanted} == wanted
    finally:
        subprocess.run(["rmmod", "sampleblk"], check=True)


UDEVD = Path("/usr/lib/systemd/systemd-udevd")


@pytest.mark.skipif(not UDEVD.exists(), reason="needs udev: apt-get install udev")
def test_the_udev_rules_give_rights_and_keep_probing_away() -> None:
    if not Path("/proc/sys/fs/inotify").exists():  # such as the debug kernel
        pytest.skip("this kernel has no inotify, which udevd needs")
    with lab.Device("1M") as dev:
        rules = Path("/run/udev/rules.d")
        rules.mkdir(parents=True, exist_ok=True)
        (rules / "59-sampleblk.rules").write_text((ROOT / "module/dkms/59-sampleblk.rules").read_text())
        subprocess.run(["mkfs.ext4", "-q", "-F", dev.path], check=True)
        daemon = subprocess.Popen([UDEVD], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:

            def properties(name: str) -> str:
                command = ["udevadm", "trigger", "--settle", "--action=add", f"--name-match={name}"]
                subprocess.run(command, check=True, timeout=60)
                command = ["udevadm", "info", "--query=property", f"--name={name}"]
                return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout

            for _ in range(100):
                if Path("/run/udev/control").exists():
                    break
                time.sleep(0.1)
            said = properties(dev.path)
            assert "UDISKS_IGNORE=1" in said
            assert "ID_FS_TYPE" not in said
            properties("/dev/sampleblk-control")
            status = Path("/dev/sampleblk-control").stat()
            assert status.st_mode & 0o777 == 0o660
            assert Path("/dev/sampleblk-control").group() == "disk"
        finally:
            daemon.terminate()
            daemon.wait(30)
            (rules / "59-sampleblk.rules").unlink()
            # By which libdevmapper tells that there is a udevd, and waits for it without end.
            Path("/run/udev/control").unlink(missing_ok=True)
