# SPDX-License-Identifier: MIT
"""What the kernel's structures say, beside what /proc and the calls of the same process say."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import sampleblk_lab as lab

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
    finally:
        os.close(fd)


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


def test_drgns_own_helpers_work_on_a_stock_kernel():
    from drgn.helpers.linux.pid import find_task, for_each_task

    from sampleblk_lab import inspect

    program = inspect.kernel()
    task = find_task(program, os.getpid())
    assert task.pid.value_() == os.getpid()
    assert task.real_parent.pid.value_() == os.getppid()
    pids = {one.pid.value_() for one in for_each_task(program)}
    assert {1, os.getpid()} <= pids


def test_a_traced_function_becomes_a_call():
    from sampleblk_lab import inspect

    before = inspect.entry("vfs_fsync_range")
    assert before.state == "nop"
    assert inspect.patched_sites() == 0
    with lab.record(functions="vfs_fsync_range"):
        during = inspect.entry("vfs_fsync_range")
        assert during.state == "call"
        assert during.site == before.site
        assert during.target
        assert inspect.patched_sites() == 1
    assert inspect.entry("vfs_fsync_range").code == before.code
    assert inspect.patched_sites() == 0


def test_bad_memory_is_an_error_and_no_crash():
    from sampleblk_lab import inspect

    program = inspect.kernel()
    with pytest.raises(drgn.FaultError):
        program.read(0xFFFF000000000000, 8)
