# SPDX-License-Identifier: MIT
"""The programs that tests start most, which a template has in its memory with its Python.

Emulated, half of what it takes to start one is to open it and its libraries over 9p: some seventy messages for gawk.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
from pathlib import Path

_PROGRAMS = (
    *("[", "awk", "badblocks", "basename", "bash", "blkdiscard", "blkid", "blockdev", "btrfs", "btrfstune"),
    *("cat", "chattr", "chgrp", "chmod", "chown", "cmp", "comm", "cp", "cut", "date", "dd", "debugfs", "df"),
    *("diff", "dirname", "dmesg", "dmsetup", "du", "dumpe2fs", "e2fsck", "e2image", "echo", "egrep", "env"),
    *("expr", "f2fs_io", "fallocate", "false", "fgrep", "file", "filefrag", "find", "findmnt", "flock"),
    *("fsck", "fsck.btrfs", "fsck.ext4", "fsck.f2fs", "fsck.xfs", "fsfreeze", "fstrim", "fuser", "getent"),
    *("getfattr", "grep", "gzip", "head", "hexdump", "hostname", "id", "insmod", "ip", "kill", "killall"),
    *("ldd", "ln", "logger", "losetup", "ls", "lsattr", "lsblk", "lsmod", "md5sum", "mkdir", "mke2fs"),
    *("mkfifo", "mkfs", "mkfs.btrfs", "mkfs.ext2", "mkfs.ext3", "mkfs.ext4", "mkfs.f2fs", "mkfs.xfs"),
    *("mknod", "mkswap", "mktemp", "modinfo", "modprobe", "mount", "mountpoint", "mv", "nproc", "od"),
    *("pgrep", "pidof", "pkill", "printf", "ps", "pwd", "readlink", "realpath", "renice", "resize2fs", "rm"),
    *("rmdir", "rmmod", "sed", "seq", "setfattr", "sh", "sha256sum", "sleep", "sort", "split", "stat", "su"),
    *("swapoff", "swapon", "sync", "systemd-udevd", "tac", "tail", "tee", "test", "timeout", "touch", "tr"),
    *("true", "truncate", "tty", "tune2fs", "udevadm", "umount", "uname", "uniq", "uuidgen", "wc", "which"),
    *("wipefs", "xargs", "xfs_admin", "xfs_db", "xfs_growfs", "xfs_info", "xfs_io", "xfs_logprint"),
    *("xfs_mdrestore", "xfs_metadump", "xfs_quota", "xfs_repair", "xfs_spaceman", "xxd", "yes"),
)

# What programs open besides their libraries: the locales without a language are what most are started with.
_DATA = (
    "/etc/ld.so.cache",
    "/etc/nsswitch.conf",
    "/etc/passwd",
    "/etc/group",
    "/etc/e2fsprogs.conf",
    "/etc/mke2fs.conf",
)
_LOCALES = "/usr/lib/locale/C.utf8"
_FOLDERS = ("/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/lib/systemd", "/lib/systemd")

_LIBRARY = re.compile(r"(?:=> )?(/\S+) \(0x[0-9a-f]+\)$", re.MULTILINE)


def files() -> list[str]:
    """The programs that this system has, by the names that they are found by, and what they open when they start."""
    search = os.pathsep.join([os.environ.get("PATH", os.defpath), *_FOLDERS])
    found = {path for name in _PROGRAMS if (path := shutil.which(name, path=search)) and path.startswith("/")}
    with contextlib.suppress(FileNotFoundError):
        said = subprocess.run(["ldd", *sorted(found)], capture_output=True, check=False).stdout
        found.update(_LIBRARY.findall(os.fsdecode(said)))
    found.update(_DATA)
    found.update(str(path) for path in Path(_LOCALES).rglob("*"))
    return sorted(path for path in found if Path(path).is_file() and _is_its_bytes(path))


def _is_its_bytes(path: str) -> bool:
    """Whether a copy in an initramfs, which has no extended attributes, is the same; and can be made by this user."""
    try:
        names = os.listxattr(path)
    except OSError:  # a file system without
        names = []
    return os.access(path, os.R_OK) and all(name == "security.selinux" for name in names)
