# SPDX-License-Identifier: MIT
"""What the kernel's structures say, beside what /proc and the calls of the same process say."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import blockio
import pytest

import sampleblk_lab as lab

pytestmark = pytest.mark.each_kernel

drgn = pytest.importorskip("drgn")


@pytest.fixture(scope="module")
def mnt():
    with lab.Device(capacity="64M", queues=2) as device, device.mkfs("ext4").mount() as mounted:
        yield device, Path(os.fspath(mounted))


def test_an_open_file_is_what_proc_says(mnt):
    from sampleblk_lab import inspect

    _, folder = mnt
    path = folder / "test"
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
        os.write(fd, bytes(20000))
        os.lseek(fd, 12345, os.SEEK_SET)
        for found in (inspect.open_files(path), inspect.open_files(folder)):
            mine = [one for one in found if one.pid == os.getpid() and one.fd == fd]
            assert len(mine) == 1
            one = mine[0]
            position = int(Path(f"/proc/self/fdinfo/{fd}").read_text().split("pos:")[1].split()[0])
            assert one.position_bytes == position == 12345
            assert one.inode_number == os.fstat(fd).st_ino
            assert one.size_bytes == 20000
            assert one.comm == Path("/proc/self/comm").read_text().strip()
            assert (one.f_op, one.i_op) == ("ext4_file_operations", "ext4_file_inode_operations")
            assert one.a_ops.startswith("ext4_")
            table = inspect.operations(one.obj.f_op)
            assert table.name == "ext4_file_operations"
            assert table["write_iter"] == "ext4_file_write_iter"
            assert table["fsync"] == "ext4_sync_file"
            # drgn itself finds the names, too.
            assert "ext4_file_operations" in str(one.obj.f_op)
            assert "ext4_sync_file" in str(one.obj.f_op.fsync)
    finally:
        os.close(fd)


def test_open_files_prints_what_crash_prints(mnt):
    from sampleblk_lab import inspect

    _, folder = mnt
    path = folder / "printed"
    with path.open("wb") as first, path.open("rb") as second:
        found = inspect.open_files(path)
        lines = str(found).splitlines()
        assert lines[0].split()[:6] == ["PID", "COMMAND", "FD", "FILE", "DENTRY", "INODE"]
        assert len(lines) == 3
        for line, one, fd in zip(lines[1:], found, sorted((first.fileno(), second.fileno())), strict=True):
            words = line.split()
            assert (words[0], words[2], words[-1]) == (str(os.getpid()), str(fd), str(path))
            assert [int(word, 16) for word in words[3:7]] == [one.file, one.dentry, one.inode, one.mapping]
        # Two descriptors of one file, as the two jobs of the article.
        assert found[0].inode == found[1].inode
        assert found[0].dentry == found[1].dentry
        assert found[0].file != found[1].file
        assert found._repr_html_().count("<tr>") == 3
        assert (found.closed, found.races) == (0, [])


def test_a_name_of_no_encoding_is_printed_in_its_row(mnt):
    from sampleblk_lab import inspect

    _, folder = mnt
    path = os.fsdecode(os.fsencode(folder) + b"/odd\n\x1b[31m\xff")
    with Path(path).open("wb"):
        found = inspect.open_files(path)
    assert [one.path for one in found] == [path]
    for text in (str(found), found._repr_html_()):
        assert r"/odd\n\x1b[31m\udcff" in text.encode().decode()
    assert len(str(found).splitlines()) == 2


def test_what_does_not_hold_still_is_reported(mnt, monkeypatch):
    from sampleblk_lab.inspect import files

    _, folder = mnt
    path = folder / "racy"
    real = files.fget
    with path.open("wb"), (folder / "other").open("wb") as other:
        looks = []

        def moves(task, fd):
            # Every second look at the descriptor finds another file there.
            looks.append(fd)
            return real(task, fd if len(looks) % 2 else other.fileno())

        monkeypatch.setattr(files, "fget", moves)
        found = files.open_files(path)
        assert list(found) == []
        assert len(looks) == 6
        assert len(found.races) == 1
        assert "changed while they were read" in str(found)

        def gone(_task, _fd):
            return drgn.Object(files.kernel(), "struct file **", 0xFFFF000000000000)[0]

        monkeypatch.setattr(files, "fget", gone)
        found = files.open_files(path)
        assert list(found) == []
        assert "freed while they were read" in found.races[0]
        monkeypatch.setattr(files, "fget", lambda _task, _fd: drgn.NULL(files.kernel(), "struct file *"))
        found = files.open_files(path)
        assert (list(found), found.closed, found.races) == ([], 1, [])


CHURN = """
import os, sys
path = sys.argv[1]
print("going", flush=True)
number = 0
while True:
    fd = os.open(f"{path}{number % 8}", os.O_RDWR | os.O_CREAT)
    os.write(fd, bytes(1 << 16))
    os.dup2(fd, 40 + number % 8)
    os.ftruncate(fd, 4096 * (number % 16))
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)
    if number % 8 == 7:
        for other in range(40, 48):
            os.close(other)
    number += 1
"""


def test_files_that_come_and_go_under_our_eyes(mnt):
    from sampleblk_lab import inspect

    _, folder = mnt
    with subprocess.Popen([sys.executable, "-c", CHURN, folder / "churn"], stdout=subprocess.PIPE) as child:
        try:
            assert child.stdout is not None
            child.stdout.readline()
            seen = 0
            for _ in range(10):
                for one in inspect.open_files(folder):
                    if one.pid == child.pid:
                        seen += 1
                        assert one.f_op == "ext4_file_operations"
                        assert one.i_op == "ext4_file_inode_operations"
                        assert Path(one.path).parent == folder
                path = folder / "churn0"
                if path.exists():
                    cached = inspect.page_cache(path)
                    assert all(page < 16 for page in cached.pages)
            assert seen > 0
        finally:
            child.kill()


def test_a_module_s_names_are_known_when_it_comes_later():
    from sampleblk_lab import inspect
    from sampleblk_lab.inspect.kernel import names

    inspect.kernel()
    # Whoever mounted an image before may have left it.
    subprocess.run(["modprobe", "-r", "loop"], check=True)
    before = len(names())
    subprocess.run(["modprobe", "loop"], check=True)
    try:
        assert names().named("loop_queue_rq")
        if Path("/sys/kernel/btf/loop").exists():
            # A type of a module, found without saying of which.
            assert inspect.kernel().type("struct loop_device").has_member("lo_number")
            assert inspect.module_types("loop")
        assert inspect.operations("loop_mq_ops", "struct blk_mq_ops")["queue_rq"] == "loop_queue_rq"
    finally:
        subprocess.run(["modprobe", "-r", "loop"], check=True)
    assert not names().named("loop_queue_rq")
    assert len(names()) == before
    assert not inspect.module_types("loop")


def test_cached_and_dirty_pages_by_offset(mnt):
    from sampleblk_lab import inspect

    _, folder = mnt
    path = folder / "pages"
    with path.open("wb") as file:
        file.write(bytes(16 * 4096))
        file.flush()
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        assert inspect.page_cache(path).pages == {}
        for page in (2, 9):
            os.pwrite(file.fileno(), bytes(4096), page * 4096)
        cached = inspect.page_cache(path)
        assert sorted(cached.pages) == [2, 9]
        assert sorted(cached.dirty) == [2, 9]
        assert "..D......D......" in str(cached)
        os.fsync(file.fileno())
        cached = inspect.page_cache(path)
        assert sorted(cached.pages) == [2, 9]
        assert cached.dirty == []


def test_a_large_page_ends_with_its_file(tmp_path):
    from sampleblk_lab import inspect

    if not Path("/sys/kernel/mm/transparent_hugepage").exists():
        pytest.skip("this kernel has no large pages, as those of PREEMPT_RT")
    mount = ["mount", "-t", "tmpfs", "-o", "huge=always,size=16M", "large", str(tmp_path)]
    subprocess.run(mount, check=True)
    try:
        path = tmp_path / "small"
        path.write_bytes(bytes(5000))
        cached = inspect.page_cache(path)
        assert sorted(cached.pages) == [0, 1]
        assert cached.resident_bytes == 8192
        assert str(cached).startswith("2 of 2 pages cached")
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


@pytest.mark.usefixtures("second_cpu")
def test_the_disk_leads_to_its_queues_and_tags(mnt):
    from sampleblk_lab import inspect

    device, _ = mnt
    name = Path(device.path).name
    view = inspect.queue(name)
    assert [queue.number for queue in view.hardware_queues] == [0, 1]
    for queue in view.hardware_queues:
        folder = Path(f"/sys/block/{name}/mq/{queue.number}")
        assert queue.depth == int((folder / "nr_tags").read_text())
        assert queue.reserved_tags == int((folder / "nr_reserved_tags").read_text())
    assert view.mq_ops is not None
    assert "queue_rq" in view.mq_ops
    with pytest.raises(lab.InputError, match="no disk 'nosuch'"):
        inspect.queue("nosuch")


def test_requests_in_flight_have_tags():
    from sampleblk_lab import inspect

    with lab.Device(capacity="16M", queues=2, cache=True) as device:
        device.set_faults([lab.Fault(action="hang", ops=["read", "flush"])])
        sectors = [0, 2048, 4096]

        def read(sector):
            with contextlib.suppress(OSError):  # what hangs fails at last
                blockio.read(device.path, 8192, sector * 512)

        def flush():
            with contextlib.suppress(OSError):
                blockio.flush(device.path)

        threads = [threading.Thread(target=read, args=(sector,)) for sector in sectors]
        threads.append(threading.Thread(target=flush))
        for thread in threads:
            thread.start()
        try:
            end = time.monotonic() + 30
            while len(inspect.queue(device.path).requests) < 4 and time.monotonic() < end:
                time.sleep(0.05)
            view = inspect.queue(device.path)
            hung = [request for request in view.requests if request.operation == "READ"]
            assert [(one.sector, one.size_bytes) for one in view.requests if one.operation == "FLUSH"] == [(0, 0)]
            assert sorted(request.sector for request in hung) == sectors
            assert {(request.size_bytes, request.state) for request in hung} == {(8192, "in flight")}
            name = Path(device.path).name
            busy = [
                line
                for file in Path(f"/sys/kernel/debug/block/{name}").glob("hctx*/busy")
                for line in file.read_text().splitlines()
            ]
            if busy:  # the kernel's own view of the same
                assert len(busy) == len(view.requests)
            assert f"tag {hung[0].tag}: request {hung[0].address:#x} READ sector {hung[0].sector}" in str(view)
        finally:
            device.set_faults([])
            for thread in threads:
                thread.join()
        assert inspect.queue(device.path).requests == []


def test_a_driver_that_takes_bios_has_no_hardware_queues():
    from sampleblk_lab import inspect

    with lab.Device(capacity="16M", mode="bio") as device:
        view = inspect.queue(device.path)
        assert view.mq_ops is None
        assert view.hardware_queues == []
        assert "takes bios" in str(view)


def test_drgns_own_helpers_work_on_a_stock_kernel():
    from drgn.helpers.linux.pid import find_task, for_each_task

    from sampleblk_lab import inspect

    program = inspect.kernel()
    task = find_task(program, os.getpid())
    assert task.pid.value_() == os.getpid()
    assert task.real_parent.pid.value_() == os.getppid()
    pids = {one.pid.value_() for one in for_each_task(program)}
    assert {1, os.getpid()} <= pids


def test_a_constant_below_zero_is_one():
    from sampleblk_lab import inspect

    program = inspect.kernel()
    assert program["PERF_EVENT_STATE_ERROR"].value_() == -2
    assert program["CPUHP_INVALID"].value_() == -1


def test_a_signed_char_below_zero_is_one():
    from sampleblk_lab import inspect

    assert drgn.Object.from_bytes_(inspect.kernel(), "s8", b"\xff").value_() == -1


def test_huge_pages_are_those_of_proc():
    from drgn.helpers.linux.hugetlb import hugetlb_total_usage

    from sampleblk_lab import inspect

    wanted = Path("/proc/sys/vm/nr_hugepages")
    before = wanted.read_text()
    wanted.write_text("2")
    try:
        lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
        total, free = (int(lines[f"HugePages_{name}"]) for name in ("Total", "Free"))
        each = int(lines["Hugepagesize"].split()[0]) * 1024 // os.sysconf("SC_PAGE_SIZE")
        assert total > 0
        assert hugetlb_total_usage(inspect.kernel()) == (total * each, free * each)
    finally:
        wanted.write_text(before)


def test_per_cpu_variables_are_those_of_each_cpu():
    from drgn.helpers.linux.percpu import per_cpu

    from sampleblk_lab import inspect

    program = inspect.kernel()
    cpus = range(os.cpu_count() or 1)

    def user() -> list[int]:
        lines = Path("/proc/stat").read_text().splitlines()
        return [int(line.split()[1]) for cpu in cpus for line in lines if line.startswith(f"cpu{cpu} ")]

    before = user()
    found = [per_cpu(program["kernel_cpustat"], cpu).cpustat[0].value_() // 10**7 for cpu in cpus]  # ns; USER_HZ
    assert [low <= value <= high for low, value, high in zip(before, found, user(), strict=True)] == [True] * len(cpus)
    if not os.uname().release.startswith("5.10."):  # whose BTF has no variables
        assert [per_cpu(program["runqueues"], cpu).cpu.value_() for cpu in cpus] == list(cpus)


def test_a_traced_function_becomes_a_call():
    from sampleblk_lab import inspect

    before = inspect.entry("vfs_fsync_range")
    assert before.state == "nop"
    assert before.site - before.address in (0, 4)
    assert "nop" in str(before)
    assert inspect.patched_sites() == 0
    with lab.record(functions="vfs_fsync_range"):
        during = inspect.entry("vfs_fsync_range")
        assert during.state == "call"
        assert during.site == before.site
        assert during.code[0] == 0xE8
        assert during.target
        assert f"call {during.site + 5 + int.from_bytes(during.code[1:], 'little', signed=True):#x}" in str(
            during
        ) or "ftrace" in str(during)
        (only,) = inspect.patched()
        assert (only.function, only.module, only.users) == ("vfs_fsync_range", "", 1)
    assert inspect.entry("vfs_fsync_range").code == before.code
    assert inspect.patched_sites() == 0


@pytest.mark.parametrize(
    ("functions", "rounds"), [("vfs_*", 2), pytest.param("*", 3, marks=pytest.mark.full)], ids=["some", "all"]
)
def test_what_tracing_functions_costs_in_numbers(mnt, functions, rounds):
    from sampleblk_lab import inspect

    _, folder = mnt
    path = folder / "cost"

    def workload():
        with path.open("wb", buffering=0) as file:
            for _ in range(64):
                file.write(bytes(4096))
            os.fsync(file.fileno())

    cost = inspect.trace_cost(workload, functions, rounds=rounds)
    print(cost, file=sys.stderr)
    assert cost.sites == inspect.sites() > 10000
    assert all(len(times) == rounds for times in (cost.untraced, cost.idle, cost.recorded, cost.afterwards, cost.calls))
    assert min(cost.calls) >= 64  # vfs_write at least
    if functions == "*":
        # All but what the kernel needs to trace, or has turned off.
        assert cost.sites * 0.99 <= cost.patched <= cost.sites
        assert min(cost.calls) > 64 * 30
    else:
        assert 20 < cost.patched < 200
    assert f"{cost.patched} of {cost.sites} functions patched" in str(cost)
    # All is a NOP again.
    assert inspect.patched_sites() == 0
    assert inspect.entry("vfs_write").state == "nop"


def test_tracing_what_is_not_there_is_refused():
    from sampleblk_lab import inspect

    with pytest.raises(lab.InputError, match="no traceable function matches 'nosuchfunction'"):
        inspect.trace_cost(lambda: None, "nosuchfunction")
    with pytest.raises(lab.InputError, match="rounds=0"):
        inspect.trace_cost(lambda: None, rounds=0)


def test_bad_memory_is_an_error_and_no_crash():
    from sampleblk_lab import inspect

    program = inspect.kernel()
    with pytest.raises(drgn.FaultError):
        program.read(0xFFFF000000000000, 8)
