# SPDX-License-Identifier: MIT
"""What a crash may have left, built by the driver out of a journal, against what plain Python makes of the same."""

import errno
import itertools
import os
import random
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from blockio import Background, aligned, discard, flush, read, until, write

import sampleblk_lab as lab
from sampleblk_lab import leftovers
from sampleblk_lab.crash.disks import ImageFile, cloned

BYTES = 1 << 20
both_modes = pytest.mark.parametrize("mode", ["mq", "bio"])
Part = tuple[int, int, int]


def sequence(dev: lab.Device) -> int:
    """Of the newest entry."""
    return dev.journal_info().next_sequence - 1


def record(dev: lab.Device, chance: random.Random, operations: int, unit: int = 512) -> dict[int, tuple[int, bytes]]:
    """Writes and discards one after another: what each left where, by its sequence. Flushes and marks lie between."""
    found = {}
    for _ in range(operations):
        what = chance.random()
        if what < 0.1:
            flush(dev.path)
        elif what < 0.2:
            dev.mark("mark")
        elif what < 0.35:
            offset = chance.randrange(BYTES // 4096 - 4) * 4096
            length = 4096 * chance.randint(1, 4)
            discard(dev.path, offset, length)
            found[sequence(dev)] = (offset, bytes(length))
        else:
            units = chance.randint(1, 65536 // unit)
            offset = chance.randrange(BYTES // unit - units) * unit
            data = chance.randbytes(units * unit)
            write(dev.path, data, offset, dsync=what > 0.95)
            # With FUA that the device lacks, a flush follows.
            table = dev.journal()
            last = int(table["sequence"].values[table["type"].values == "write"][-1])
            found[last] = (offset, data)
    return found


def some_parts(
    chance: random.Random, recorded: dict[int, tuple[int, bytes]], image: bytes, unit: int = 512
) -> tuple[list[int | Part], bytes]:
    """Parts of some writes, some of them torn, and what they leave over the image."""
    parts: list[int | Part] = []
    there = bytearray(image)
    for number, (offset, data) in recorded.items():
        units = len(data) // unit
        first, count = 0, units
        what = chance.random()
        if what < 0.4:
            continue
        if what < 0.6:
            first = chance.randrange(units)
            count = chance.randint(1, units - first)
        whole: list[int | Part] = [number, (number, 0, 0)]
        part = (number, first * unit // 512, count * unit // 512)
        parts.append(chance.choice(whole) if (first, count) == (0, units) else part)
        there[offset + first * unit : offset + (first + count) * unit] = data[first * unit : (first + count) * unit]
    return parts, bytes(there)


@both_modes
@pytest.mark.parametrize("unit", [512, 4096])
def test_a_clone_holds_what_plain_python_makes_of_the_same_writes(mode: str, unit: int) -> None:
    chance = random.Random(unit)
    with lab.Device(BYTES, mode=mode, cache=True, discard=True, logical_block=unit) as dev:
        before = chance.randbytes(300_000 // 4096 * 4096)
        write(dev.path, before, 8192)
        flush(dev.path)
        base = read(dev.path, BYTES)
        dev.journal_start("16M")
        recorded = record(dev, chance, 40, unit)
        after, newest = read(dev.path, BYTES), sequence(dev)
        snapshot = dev.snapshot_take(0)
        with dev.snapshot_clone(snapshot) as clone:
            for _ in range(30):
                parts, there = some_parts(chance, recorded, base, unit)
                dev.state_give(snapshot, parts, clone)
                assert read(clone.path, BYTES) == there
                # What is written to it is gone with the next state.
                write(clone.path, b"c" * 65536, 4096 * chance.randrange(200))
            dev.state_give(snapshot, list(recorded), clone)
            assert read(clone.path, BYTES) == after
            dev.state_give(snapshot, [], clone)
            assert read(clone.path, BYTES) == base
        # As snapshots, of which one lies on another; each is there as long as anybody wants it.
        below = snapshot
        for _ in range(5):
            parts, there = some_parts(chance, recorded, base, unit)
            taken = dev.state_take(below, parts)
            base, below = there, taken
            with dev.snapshot_clone(taken) as clone:
                assert read(clone.path, BYTES) == there
        for one in dev.snapshots()[:-1]:
            dev.snapshot_delete(one)
        with dev.snapshot_clone(below) as clone:
            assert read(clone.path, BYTES) == base
        # The recording has not seen anything of all this.
        assert (read(dev.path, BYTES), sequence(dev)) == (after, newest)
        dev.seek(0)
        dev.seek()
        assert read(dev.path, BYTES) == after


@both_modes
def test_states_are_built_while_the_recording_goes_on(mode: str) -> None:
    chance = random.Random(6)
    with lab.Device(BYTES, mode=mode, discard=True) as dev:
        dev.journal_start("256M")
        recorded = record(dev, chance, 20)
        snapshot = dev.snapshot_take(0)
        stop = False

        def load() -> None:
            fd = os.open(dev.path, os.O_WRONLY | os.O_DIRECT)
            while not stop and dev.journal_info().used_bytes < 250 << 20:
                os.pwrite(fd, aligned(os.urandom(4096)), 4096 * random.randrange(256))
            os.close(fd)

        writer = Background(load)
        with dev.snapshot_clone(snapshot) as clone:
            begin = sequence(dev)
            for _ in range(50):
                parts, there = some_parts(chance, recorded, bytes(BYTES))
                dev.state_give(snapshot, parts, clone)
                assert read(clone.path, BYTES) == there
            # Those of the load can be named as soon as they are there: the newest that was written wins.
            newest = sequence(dev)
            assert newest > begin
            dev.state_give(snapshot, [newest], clone)
        stop = True
        assert writer.error() is None
        assert dev.journal_info().overflow == 0


def refused(call: Callable[[], object]) -> int:
    with pytest.raises(OSError) as caught:  # noqa: PT011 (the errno is what the caller looks at)
        call()
    return caught.value.errno or -1


def test_what_cannot_be_is_refused_and_changes_nothing() -> None:
    with lab.Device(BYTES, logical_block=4096) as dev, lab.Device(BYTES) as other, lab.Device("2M") as large:
        assert refused(lambda: dev.state_give(1, [], other)) == errno.ENOENT  # no journal
        dev.journal_start("1M")
        assert refused(lambda: dev.state_give(1, [], other)) == errno.ENOENT  # no snapshot
        snapshot = dev.snapshot_take()
        write(dev.path, b"a" * 16384)
        written = sequence(dev)
        flush(dev.path)
        mark = dev.mark("mark")
        write(other.path, b"o" * 65536)
        wrong: list[int | Part] = [
            0, mark, mark + 1, 2**64 - 1, (written, 0, 1), (written, 1, 8), (written, 0, 33), (written, 0, 40),
            (written, 32, 8), (written, 8, 0), (written, 8, 2**64 - 8), (written, 2**64 - 8, 16),
        ]  # fmt: skip
        for part in wrong:
            assert refused(lambda part=part: dev.state_give(snapshot, [written, part], other)) == errno.EINVAL, part
            assert refused(lambda part=part: dev.state_take(snapshot, [written, part])) == errno.EINVAL, part
        too_many = [written] * ((1 << 20) + 1)
        assert refused(lambda: dev.state_take(snapshot, too_many)) == errno.EINVAL
        assert refused(lambda: dev.state_give(snapshot, [written], large)) == errno.EINVAL
        assert refused(lambda: dev.state_give(snapshot, [written], dev)) == errno.EBUSY  # it has the journal
        with other.mkfs("ext4").mount():
            assert refused(lambda: dev.state_give(snapshot, [written], other, force=True)) == errno.EBUSY
        fd = os.open(other.path, os.O_RDONLY)
        assert refused(lambda: dev.state_give(snapshot, [written], other)) == errno.EBUSY
        # The page cache of an opener shows what is there now.
        os.pread(fd, 4096, 0)
        dev.state_give(snapshot, [written], other, force=True)
        assert os.pread(fd, 65536, 0) == b"a" * 16384 + bytes(49152)
        os.close(fd)
        assert dev.snapshots() == [snapshot]
        while len(dev.snapshots()) < 64:
            dev.state_take(snapshot, [written])
        assert refused(lambda: dev.state_take(snapshot, [])) == errno.ENOSPC
        write(dev.path, bytes(range(256)) * 4096)
        write(dev.path, bytes(range(256)) * 4096)
        assert dev.journal_info().overflow
        assert refused(lambda: dev.state_give(snapshot, [written], other)) == errno.EOVERFLOW
        assert read(other.path, 16384) == b"a" * 16384


def test_zones_and_protection_information_take_no_state() -> None:
    kinds = [{"zone": "64K"}, {"integrity": True}]
    with lab.Device(BYTES) as dev:
        dev.journal_start("1M")
        snapshot = dev.snapshot_take(0)
        for kind in kinds:
            try:
                other = lab.Device(BYTES, **kind)  # type: ignore[arg-type]
            except lab.UnsupportedError:
                continue
            with other:
                assert refused(lambda other=other: dev.state_give(snapshot, [], other)) == errno.EOPNOTSUPP


def test_an_atomic_write_is_there_whole_or_not_at_all() -> None:
    try:
        dev = lab.Device(BYTES, atomic_write="16K")
    except lab.UnsupportedError:
        pytest.skip("this kernel has no atomic writes")
    with dev:
        dev.journal_start("1M")
        snapshot = dev.snapshot_take(0)
        fd = os.open(dev.path, os.O_WRONLY | os.O_DIRECT)
        atomic = 0x40  # RWF_ATOMIC of linux/fs.h
        assert os.pwritev(fd, [aligned(b"a" * 16384)], 0, atomic) == 16384
        os.close(fd)
        (row,) = dev.journal().rows()
        assert row["atomic"]
        assert refused(lambda: dev.state_take(snapshot, [(1, 0, 8)])) == errno.EINVAL
        with dev.snapshot_clone(dev.state_take(snapshot, [(1, 0, 32)])) as clone:
            assert read(clone.path, 16384) == b"a" * 16384


def test_memory_is_taken_for_what_differs_only_and_comes_back() -> None:
    def free() -> int:
        (line,) = (line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemAvailable"))
        return int(line.split()[1]) << 10

    with lab.Device("64M") as dev:
        write(dev.path, os.urandom(32 << 20))
        dev.journal_start("4M")
        snapshot = dev.snapshot_take(0)
        for n in range(16):
            write(dev.path, bytes([n]) * 65536, n << 17)
        with dev.snapshot_clone(snapshot) as clone:
            before = clone.info().allocated_bytes
            for _ in range(20):
                dev.state_give(snapshot, range(1, 17), clone)
            assert clone.info().allocated_bytes - before == 16 * 65536
            left = free()
            for _ in range(250):
                dev.state_give(snapshot, range(1, 17), clone)
            # These are 250 MiB, freed after a grace period, which takes its time on a busy or a debug kernel.
            until(lambda: left - free() < 64 << 20)


@pytest.mark.parametrize("after", [0, 1, 2])
def test_ctrl_c_while_devices_are_made_leaves_none(after: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with lab.Device(BYTES, cache=True) as dev, lab.crash.recording(dev, tmp_path) as path:
        write(dev.path, b"w" * 4096)
    note, made = leftovers.note, 0

    def pressed(kind: str, key: str, **detail: Any) -> None:
        nonlocal made
        if kind == "device" and made == after:
            signal.raise_signal(signal.SIGINT)
        made += kind == "device"
        note(kind, key, **detail)

    monkeypatch.setattr(leftovers, "note", pressed)
    with pytest.raises(KeyboardInterrupt), cloned(lab.crash.Log(path, base=tmp_path / "base.img"), 2):
        pass
    assert made == max(after + 1, 3 * (after > 0))
    assert lab.devices() == []


def test_clones_hold_what_image_files_hold(tmp_path: Path) -> None:
    """Of a journal and of a log of dm-log-writes: every byte of every state."""
    chance = random.Random(9)
    with lab.Device(BYTES, cache=True, discard=True) as dev:
        write(dev.path, chance.randbytes(300 << 10), 64 << 10)
        with lab.crash.recording(dev, tmp_path) as path:
            record(dev, chance, 30)
            # More than a request takes: several entries of one write, torn across them, too.
            write(dev.path, chance.randbytes(BYTES - 8192), 4096)
            dev.export_log_writes(tmp_path / "writes")
    compared = 0
    for log in (
        lab.crash.Log(path, base=tmp_path / "base.img"),
        lab.crash.Log(tmp_path / "writes", base=tmp_path / "base.img"),
        lab.crash.Log(path, base="zeros", size_bytes=2 * BYTES),
    ):
        states = [*log.states(lab.crash.Torn()), *itertools.islice(log.states(lab.crash.Sample(seed=3)), 100)]
        file = ImageFile(log, tmp_path)
        with cloned(log, 2) as clones:
            for state in chance.sample(states, 40):
                clone = chance.choice(clones)
                for disk in (file, clone):
                    disk.image.take(state.native)
                    disk.build()
                assert read(str(clone.path), log.size_bytes) == file.path.read_bytes(), state
                # What a check does to it is gone with the next state.
                write(str(clone.path), b"c" * 65536, 4096 * chance.randrange(200))
                compared += 1
    assert compared == 120
    assert lab.devices() == []


def no_hole(mount: Path, _: lab.crash.State) -> None:
    """The file is there and has what one of the two writers had put there."""
    content = (mount / "a").read_bytes()
    assert content in (b"first" * 1000, b"second" * 1000), f"{len(content)} bytes"


@pytest.mark.parametrize("fsync", [True, False])
def test_clones_and_files_tell_the_same(tmp_path: Path, fsync: bool) -> None:
    """An exploration on clones finds, and reduces to, exactly what the same one finds in image files."""
    options = "noauto_da_alloc"
    with lab.Device("24M", cache=True) as dev:
        filesystem = dev.mkfs("ext4")
        with filesystem.mount(options=options) as mnt:
            (mnt / "a").write_bytes(b"first" * 1000)
            os.sync()
        with lab.crash.recording(dev, tmp_path) as path, filesystem.mount(options=options) as mnt:
            with (mnt / "new").open("wb") as file:
                file.write(b"second" * 1000)
                file.flush()
                if fsync:
                    os.fsync(file.fileno())
            (mnt / "new").rename(mnt / "a")
            fd = os.open(mnt, os.O_RDONLY)
            os.fsync(fd)
            os.close(fd)
    log = lab.crash.Log(path, base=tmp_path / "base.img")
    seen: set[str] = set()

    def looked_at(mount: Path, state: lab.crash.State) -> None:
        (source,) = (line.split()[0] for line in Path("/proc/mounts").read_text().splitlines() if str(mount) in line)
        seen.add(source)
        no_hole(mount, state)

    check = lab.crash.mounted("ext4", looked_at, fsck=False)
    model = lab.crash.Reorder(complete_up_to=3, at_most=1)

    def told(clones: bool | None, workers: int) -> tuple[object, ...]:
        found = log.explore(check, model=model, states=30, failures=2, clones=clones, workers=workers, progress=False)
        failures = [{**failure.json(), "message": ""} for failure in found.failures]
        return found.ok, found.states, found.checked, found.complete, failures

    in_files = told(False, 1)
    assert in_files[0] is fsync
    assert all(source.startswith("/dev/loop") for source in seen)
    seen.clear()
    # They are taken by themselves, as the check mounts and the driver is there.
    assert told(None, 1) == in_files
    assert all(source.startswith("/dev/sampleblk") for source in seen)
    assert told(True, 2) == in_files
    assert lab.devices() == []


@pytest.mark.parametrize(("clones", "workers"), [(True, 2), (False, 1)])
def test_who_is_left_in_a_state_changes_no_other(tmp_path: Path, clones: bool, workers: int) -> None:
    """A check fails while what it has started still writes to the file system, which is not unmounted then."""
    with lab.Device("24M", cache=True) as dev:
        filesystem = dev.mkfs("ext4")
        with lab.crash.recording(dev, tmp_path) as path, filesystem.mount() as mnt:
            for name in "abc":
                (mnt / name).write_bytes(b"content" * 1000)
                os.sync()
    log = lab.crash.Log(path, base=tmp_path / "base.img")
    left = tmp_path / "left"
    left.mkdir()

    def leaves(mount: Path, _: lab.crash.State) -> None:
        if not (left / f"of {os.getpid()}").exists():
            writes = subprocess.Popen(["sh", "-c", "while :; do rm -f x; echo x > x; sync x; done"], cwd=mount)
            (left / f"of {os.getpid()}").write_text(f"{writes.pid}")
            raise AssertionError("what the check found")

    check = lab.crash.mounted("ext4", leaves)
    try:
        found = log.explore(
            check, model=lab.crash.Prefix(), failures=99, clones=clones, workers=workers, progress=False
        )
    finally:
        for pid in left.iterdir():
            os.kill(int(pid.read_text()), signal.SIGKILL)
    assert {str(failure.error) for failure in found.failures} == {"what the check found"}
    assert found.complete
    assert len(found.failures) == len(list(left.iterdir())) == workers
    assert lab.devices() == []


def test_what_is_written_to_a_disk_without_a_cache_is_not_recorded_as_if_it_could_be_lost(tmp_path: Path) -> None:
    """Its kernel sends it no flushes, so that nothing would ever count as durable."""
    with lab.Device(BYTES) as dev:
        folder = tmp_path / "recorded"
        with pytest.raises(lab.InputError, match="without a volatile cache"), lab.crash.recording(dev, folder):
            pass
        assert not folder.exists()
        dev.journal_start("1M")  # nobody else has


def test_clones_of_others_and_without_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with lab.Device("24M", cache=True) as dev:
        filesystem = dev.mkfs("ext4")
        with lab.crash.recording(dev, tmp_path) as path, filesystem.mount() as mnt:
            (mnt / "a").write_bytes(b"a")
    log = lab.crash.Log(path, base=tmp_path / "base.img")
    check = lab.crash.mounted("ext4", fsck=False)
    with pytest.raises(lab.InputError, match="clones beside a client"):
        log.explore(check, clones=True, client="tcp://127.0.0.1:1", progress=False)

    def no_memory(*_: object) -> None:
        raise OSError(errno.ENOMEM, "no memory")

    monkeypatch.setattr(lab.Device, "journal_start", no_memory)
    with pytest.raises(OSError, match="no memory"):
        log.explore(check, model=lab.crash.Prefix(), states=2, clones=True, progress=False)
    # Where nobody asked for them, files will do.
    assert log.explore(check, model=lab.crash.Prefix(), states=2, progress=False).ok
    assert lab.devices() == []
