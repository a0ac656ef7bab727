# SPDX-License-Identifier: MIT
"""The guest's part of test_against_kernel.py: prints as JSON what inspect, the kernel and /proc say of the same things.

usage: oracle_guest.py inspect_oracle.ko
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import sampleblk_lab as lab
from sampleblk_lab import inspect

PAGE = mmap.PAGESIZE


def ask(fd: int) -> dict[str, object]:
    """What the module says of one of our descriptors."""
    out: dict[str, object] = {"page": [], "hctx": []}
    with Path("/proc/inspect_oracle").open("r+b", buffering=0) as file:
        file.write(str(fd).encode())
        text = b"".join(iter(lambda: file.read(1 << 16), b"")).decode()
    for line in text.splitlines():
        name, value = line.split(" ", 1)
        if name in ("page", "hctx"):
            out[name].append([int(number, 0) for number in value.split()])  # type: ignore[attr-defined]
        elif name == "comm" or name == "name":
            out[name] = value
        else:
            word = value.split()[0]  # a module's symbols have " [module]" behind them
            out[name] = int(word, 0) if word[0].isdigit() or word[0] == "-" else word
    return out


def resident(fd: int, size: int) -> list[int]:
    """The cached pages of a file, by mincore(2)."""
    libc = ctypes.CDLL(None, use_errno=True)
    with mmap.mmap(fd, size) as mapping:
        vector = (ctypes.c_ubyte * (-(-size // PAGE)))()
        address = ctypes.addressof(ctypes.c_char.from_buffer(mapping))
        if libc.mincore(ctypes.c_void_p(address), ctypes.c_size_t(size), vector) != 0:
            raise OSError(ctypes.get_errno(), "mincore")
    return [page for page, bits in enumerate(vector) if bits & 1]


def the_file(fd: int, path: Path) -> dict[str, object]:
    """One descriptor by each of the ways."""
    (one,) = (one for one in inspect.open_files(path) if one.pid == os.getpid() and one.fd == fd)
    status = os.fstat(fd)
    fdinfo = dict(line.split(":", 1) for line in Path(f"/proc/self/fdinfo/{fd}").read_text().splitlines())
    ours = {name: getattr(one, name) for name in one.__dataclass_fields__ if name != "obj"}
    ours["write_iter"] = inspect.operations(one.obj.f_op)["write_iter"]
    ours["name"] = one.obj.f_path.dentry.d_name.name.string_().decode()
    ours["superblock"] = one.obj.f_inode.i_sb.value_()
    proc = {
        "comm": Path("/proc/self/comm").read_text().strip(),
        "pid": os.getpid(),
        "position_bytes": int(fdinfo["pos"]),
        "inode_number": status.st_ino,
        "size_bytes": status.st_size,
        "path": str(path),
    }
    return {"ours": ours, "kernel": ask(fd), "proc": proc}


def the_pages(path: Path) -> dict[str, object]:
    """A file's cached pages by each of the ways."""
    fd = os.open(path, os.O_RDWR)
    try:
        cache = inspect.page_cache(path)
        kernel = ask(fd)
        dirty = 1 << int(kernel["dirty_bit"])  # type: ignore[call-overload]
        pages = [
            (index + part, bool(flags & dirty)) for index, _, flags, count in kernel["page"] for part in range(count)
        ]  # type: ignore[attr-defined]
        return {
            "ours": sorted([page, "dirty" in flags] for page, flags in cache.pages.items()),
            "kernel": sorted(map(list, pages)),
            "uptodate": sorted(page for page, flags in cache.pages.items() if "uptodate" in flags),
            "mincore": resident(fd, cache.size_bytes),
            "nrpages": kernel["nrpages"],
            "largest": max((entry[3] for entry in kernel["page"]), default=0),  # type: ignore[attr-defined]
            "faults": cache.faults,
        }
    finally:
        os.close(fd)


def files(folder: Path) -> Iterator[tuple[str, Path]]:
    """Files whose pages are cached in different ways."""
    scattered = folder / "scattered"
    with scattered.open("wb") as file:
        file.write(bytes(1 << 20))
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        for page in (0, 3, 63, 64, 200, 255):
            os.pwrite(file.fileno(), bytes(PAGE), page * PAGE)
    yield "scattered", scattered
    large = folder / "large"
    with large.open("wb") as file:
        file.write(os.urandom(2 << 20))
        os.fsync(file.fileno())
        os.pwrite(file.fileno(), bytes(3 * PAGE), 100 * PAGE)
    yield "large", large
    # Read back, so that readahead decides on the sizes of its pages.
    with large.open("rb") as file:
        os.sync()
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        file.read(1 << 20)
    yield "read", large
    (folder / "one").write_bytes(b"x")
    yield "one", folder / "one"
    memory = folder / "memory"
    memory.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "huge=always", "none", str(memory)], check=True)
    with (memory / "huge").open("wb") as file:
        file.write(bytes(4 << 20))
        yield "huge", memory / "huge"
    subprocess.run(["umount", str(memory)], check=True)


def hugetlb(folder: Path) -> list[int]:
    """The pages that inspect finds of a file of which the large pages 0 and 2 are there."""
    huge = 2 << 20
    Path("/proc/sys/vm/nr_hugepages").write_text("3")
    folder.mkdir()
    subprocess.run(["mount", "-t", "hugetlbfs", "none", str(folder)], check=True)
    with (folder / "file").open("wb+") as file:
        file.truncate(3 * huge)
        with mmap.mmap(file.fileno(), 3 * huge) as mapping:
            mapping[0] = mapping[2 * huge] = 1
        found = sorted(inspect.page_cache(folder / "file").pages)
    subprocess.run(["umount", str(folder)], check=True)
    Path("/proc/sys/vm/nr_hugepages").write_text("0")
    return found


def reused(path: Path) -> dict[str, object]:
    """What is said of a descriptor that is another file's when its structures are read."""
    fd = os.open(path, os.O_RDONLY)
    find = inspect.files.find_task

    def found(*arguments: object) -> object:
        other = os.open("/proc/self/status", os.O_RDONLY)
        os.dup2(other, fd)
        os.close(other)
        return find(*arguments)

    inspect.files.find_task = found
    try:
        files = inspect.open_files(path)
    finally:
        inspect.files.find_task = find
        os.close(fd)
    return {"inodes": [one.inode_number for one in files], "closed": files.closed}


def below() -> dict[str, object]:
    """A file that overlayfs has from below, whose device number is not that of its mount."""
    with Path("/etc/passwd").open() as file:
        files = inspect.open_files("/")
        return {
            "devices": [Path("/").stat().st_dev, os.fstat(file.fileno()).st_dev],
            "found": (os.getpid(), file.fileno(), "/etc/passwd") in [(one.pid, one.fd, one.path) for one in files],
            "types": sorted({one.obj.f_inode.i_sb.s_type.name.string_().decode() for one in files}),
        }


def in_a_namespace(path: Path) -> list[str]:
    """What a process is told that has another number inside its namespace."""
    reader, writer = os.pipe()
    if (child := os.fork()) == 0:
        assert ctypes.CDLL(None).unshare(0x20000000) == 0  # CLONE_NEWPID (linux/sched.h): for its children
        if (inside := os.fork()) == 0:
            for look in (inspect.open_files, inspect.page_cache):
                try:
                    look(path)
                except lab.UnsupportedError as error:
                    os.write(writer, f"{error}\n".encode())
        else:
            os.waitpid(inside, 0)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return text.splitlines()


def the_queue(device: lab.Device) -> dict[str, object]:
    """A disk's queue by each of the ways."""
    view = inspect.queue(device.path)
    fd = os.open(device.path, os.O_RDONLY)
    try:
        kernel = ask(fd)
    finally:
        os.close(fd)
    assert view.mq_ops is not None
    ours = {
        "gendisk": view.gendisk,
        "disk_name": view.disk,
        "disk_fops": view.fops,
        "request_queue": view.queue,
        "mq_ops": view.mq_ops.name,
        "queue_rq": view.mq_ops["queue_rq"],
        "hctx": [[one.number, one.address, one.tags] for one in view.hardware_queues],
    }
    return {"ours": ours, "kernel": kernel}


def make_node(folder: Path, device: lab.Device) -> Path:
    """A name of its own for a device, as those of device mapper have."""
    node = folder / "name"
    os.mknod(node, stat.S_IFBLK | 0o600, Path(device.path).stat().st_rdev)
    return node


def main() -> None:
    """Does it."""
    subprocess.run(["insmod", sys.argv[1]], check=True)
    out: dict[str, object] = {}
    with lab.Device(capacity="64M", queues=2) as device, device.mkfs("ext4").mount() as mounted:
        folder = Path(os.fspath(mounted))
        path = folder / "test"
        fd = os.open(path, os.O_RDWR | os.O_CREAT)
        os.write(fd, bytes(20000))
        os.lseek(fd, 12345, os.SEEK_SET)
        out["file"] = the_file(fd, path)
        os.ftruncate(fd, 5000)
        os.lseek(fd, 1, os.SEEK_CUR)
        out["file later"] = the_file(fd, path)
        os.close(fd)
        out["pages"] = {name: the_pages(path) for name, path in files(folder)}
        out["pages"]["device"] = the_pages(Path(device.path))
        out["queue"] = the_queue(device)
        out["mapped"] = inspect.queue(make_node(folder, device)).disk
        out["hugetlb"] = hugetlb(folder / "hugetlb")
        out["reused"] = reused(folder / "scattered")
        out["below"] = below()
        out["namespace"] = in_a_namespace(folder / "one")
    subprocess.run(["rmmod", "inspect_oracle"], check=True)
    print(json.dumps(out))


if __name__ == "__main__":
    main()
