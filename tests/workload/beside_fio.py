# SPDX-License-Identifier: MIT
"""What the workload's tests share: system calls as strace sees them, ours and fio's."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

needs_strace = pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
needs_fio = pytest.mark.skipif(shutil.which("fio") is None, reason="fio is not installed")


def _fio_version() -> str:
    if shutil.which("fio") is None:
        return "none"
    return subprocess.run(["fio", "--version"], capture_output=True, text=True, check=True).stdout.strip()


FIO_VERSION = _fio_version()
# Where releases of fio differ, ours goes after this one.
needs_fio_3_33 = pytest.mark.skipif(FIO_VERSION != "fio-3.33", reason=f"held against fio 3.33; here is {FIO_VERSION}")

# What a job asks of the kernel for its I/O; all else is a program's own business.
_IO_CALLS = (
    "open,openat,creat,close,read,write,pread64,pwrite64,readv,writev,preadv,pwritev,preadv2,pwritev2,lseek,"
    "fadvise64,fallocate,ftruncate,fsync,fdatasync,sync_file_range,unlink,unlinkat,mmap,munmap,msync,madvise,ioctl,"
    "fcntl,io_submit,io_getevents"
)

# strace -f writes "PID call(…) = result", or the call in two halves when another process came between.
_WHOLE = re.compile(r"^(\d+) +(\w+)\((.*)\) += (-?\d+|0x[0-9a-f]+|\?)(.*)$")
_BEGUN = re.compile(r"^(\d+) +(\w+)\((.*?) +<unfinished \.\.\.>$")
_ENDED = re.compile(r"^(\d+) +<\.\.\. (\w+) resumed>(.*)\) += (-?\d+|0x[0-9a-f]+|\?)(.*)$")


@dataclass(frozen=True)
class Call:
    """One system call: who, which, its arguments as strace wrote them, and its result."""

    pid: int
    name: str
    arguments: str
    result: str

    def __str__(self) -> str:
        return f"{self.name}({self.arguments}) = {self.result}"


def parse_strace(text: str) -> list[Call]:
    begun: dict[int, tuple[str, str]] = {}
    calls = []
    for line in text.splitlines():
        if match := _BEGUN.match(line):
            begun[int(match[1])] = (match[2], match[3])
        elif match := _ENDED.match(line):
            name, arguments = begun.pop(int(match[1]), (match[2], ""))
            gap = " " if arguments.endswith(",") else ""
            calls.append(Call(int(match[1]), name, arguments + gap + match[3], match[4]))
        elif match := _WHOLE.match(line):
            calls.append(Call(int(match[1]), match[2], match[3], match[4]))
    return calls


def strace(command: list[str], log: Path, *, calls: str = _IO_CALLS) -> list[Call]:
    """Runs a command under strace; its calls, in the order in which they began or ended."""
    subprocess.run(
        ["strace", "-f", "-v", "-s", "0", "-qq", "-e", f"trace={calls}", "-o", str(log), *command],
        check=True,
        capture_output=True,
        timeout=120,
    )
    return parse_strace(log.read_text())


_OPENED = re.compile(r'^AT_FDCWD, "([^"]*)", ([A-Z_|]+)')


def on_files(calls: list[Call], directory: Path) -> dict[int, list[str]]:
    """The calls on files below `directory`, by process, with the descriptor written as the file's name.

    Contents, and flags that say nothing of the I/O (O_CLOEXEC), are left out.
    """
    names: dict[tuple[int, str], str] = {}
    mapped: dict[tuple[int, str], str] = {}
    out: dict[int, list[str]] = {}
    for call in calls:
        shown = None
        if call.name == "openat":
            match = _OPENED.match(call.arguments)
            if match and match[1].startswith(str(directory)) and not call.result.startswith("-"):
                name = match[1][len(str(directory)) + 1 :]
                names[call.pid, call.result] = name
                shown = f"open {name} {match[2].replace('|O_CLOEXEC', '')}"
        elif call.name == "unlink":
            path = call.arguments.strip('"')
            if path.startswith(str(directory)):
                shown = f"unlink {path[len(str(directory)) + 1 :]} {call.result}"
        elif call.name == "mmap":
            parts = [part.strip() for part in call.arguments.split(",")]
            name = names.get((call.pid, parts[4]), "")
            if name:
                mapped[call.pid, call.result] = name
                shown = f"mmap {name} {parts[1]} {parts[2]} {parts[3]} {parts[5]}"
        elif call.name in ("munmap", "msync", "madvise"):
            address, _, rest = call.arguments.partition(", ")
            if (call.pid, address) in mapped:
                shown = f"{call.name} {mapped[call.pid, address]} {rest}"
        elif call.name == "io_submit":
            blocks = re.findall(
                r"aio_lio_opcode=IOCB_CMD_(\w+).*?aio_fildes=(\d+).*?aio_nbytes=(\d+), aio_offset=(\d+)", call.arguments
            )
            shown = "io_submit " + ", ".join(
                f"{names.get((call.pid, fd), '?')} {what} {length} {offset}" for what, fd, length, offset in blocks
            )
        elif call.name == "io_getevents":
            least = call.arguments.split(", ")[1]
            shown = f"io_getevents {least}"
        else:
            number, _, rest = call.arguments.partition(", ")
            name = names.get((call.pid, number), "")
            if name:
                rest = re.sub(r", 0x[0-9a-f]+$", "", rest)  # a pointer
                rest = re.sub(r'""\.\.\.|\[\{iov_base=.*?iov_len=(\d+)\}\]', lambda m: m[1] or "data", rest)
                shown = f"{call.name} {name} {rest} = {call.result}".replace("  ", " ")
                if call.name == "close":
                    del names[call.pid, number]
        if shown:
            out.setdefault(call.pid, []).append(shown)
    return out


_RUN = """
import sys
import sampleblk_lab as lab
run = lab.JobFile(sys.argv[1]).prepare()
run.start()
run.wait()
"""


def ours(job_file: Path, log: Path) -> list[Call]:
    return strace([sys.executable, "-c", _RUN, str(job_file)], log)


def fios(job_file: Path, log: Path) -> list[Call]:
    # fio writes verify state into the working directory.
    return strace(["fio", "--output=/dev/null", f"--aux-path={log.parent}", str(job_file)], log)
