# SPDX-License-Identifier: MIT
"""Running a tool of bcc's beside a job: those of libbpf-tools, which need no compiler, and bcc's in Python."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sampleblk_lab import paths
from sampleblk_lab.bpftrace.process import (
    ERR,
    OUT,
    Tracer,
    descriptors_of,
    require_kernel,
    run_beside,
    told,
    waits_in,
)
from sampleblk_lab.bpftrace.tool_output import BccOutput
from sampleblk_lab.errors import InputError, SampleblkError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sampleblk_lab.table import Table

_VM = "run inside the VM: vm.bcc(), sampleblk-python, or sampleblk-lab bcc"
# Debian 13 calls those of libbpf-tools so, which have no suffix in Debian 12; then bcc's in Python, for which other
# distributions have a folder.
_SUFFIXES, _FOLDER = ("-libbpf", "", "-bpfcc"), "/usr/share/bcc/tools"
# What the kernel is said to have not.
_LACKS = re.compile(
    r"(?:kernel BTF type ID of|create k(?:ret)?probe|attach target for|tracepoint|kprobe)"
    r" b?[\'\"]?(?P<name>[A-Za-z_](?:[\w:/.]*\w)?)(?=[^\n]*(?:-\d+|No such|failed|Failed))"
)
_FAILED = re.compile(r"[^\n]*(?:[Ff]ailed to|[Cc]annot|could not|no such)[^\n]*")
_USAGE = re.compile(r"Try `|--help|^[Uu]sage:", re.MULTILINE)


class BccError(SampleblkError, RuntimeError):
    """A tool of bcc's failed.

    Attributes:
        message: What it said, or what happened to it.
        output: What it had printed, where its probes were attached by then.
    """

    def __init__(self, message: str, output: BccOutput | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.output = output

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.message, self.output)


def find_tool(name: str | os.PathLike[str]) -> str:
    """The path of a tool: of libbpf-tools, else of bcc's in Python.

    Raises:
        InputError: No file of that path.
        UnsupportedError: None of that name is installed.
    """
    word = os.fspath(name)
    if "/" in word:
        if not Path(word).is_file():
            raise InputError(f"no program {word!r}", expected="a path, or a name such as ext4dist")
        return word
    for suffix in _SUFFIXES:
        if word and (program := paths.find_program(word + suffix)) is not None:
            return program
    if word and (Path(_FOLDER) / word).is_file():
        return f"{_FOLDER}/{word}"
    raise UnsupportedError(
        f"{word!r} of bcc's tools",
        "it is not installed",
        "install it: apt-get install libbpf-tools, or bpfcc-tools (the VM has the host's programs)",
    )


class Bcc(Tracer[BccOutput]):
    """A tool of bcc's that runs, and then what it printed. Made by :func:`bcc`."""

    _KEPT = "what the tool printed"
    # For events, or for the interval's or their own end.
    _WAITS = ("ep_poll", "do_epoll_wait", "hrtimer_nanosleep", "do_nanosleep", "__x64_sys_pause", "__do_sys_pause")

    def __init__(self, tool: str | os.PathLike[str], args: Sequence[str], timeout_s: float) -> None:
        self._program = find_tool(tool)
        self._name = Path(self._program).name
        super().__init__(timeout_s, f"events that {self._name} lost")
        self._args = list(args)

    # -- starting

    def _begin(self) -> None:
        require_kernel(self._name, _VM)
        self._prepare()
        # A tool that SIGINT kills, as some do that print in intervals, has written all its lines by then.
        lines = [program, "-oL"] if (program := paths.find_program("stdbuf")) else []
        self._launch([*lines, self._program, *self._args], {"PYTHONUNBUFFERED": "1"})

    def _is_attached(self, pid: int) -> bool:
        """It has BPF programs, and waits: which it does when all are attached."""
        return waits_in(pid, self._WAITS) and any(
            Path(link).name.startswith("anon_inode:bpf") for link in descriptors_of(pid)
        )

    def _ended_early(self, status: int) -> None:
        """Also with 0, as some do that could not attach a probe."""
        raise self._failure(status)

    def _failure(self, status: int | None) -> SampleblkError:
        """What is wrong, of its messages."""
        said = (self._read(ERR) + self._read(OUT)).decode(errors="backslashreplace").strip()
        if status is None:
            late = f"its probes were not attached after {self._timeout_s:.0f} s"
            return BccError(f"{self._name}: {late}{told(said.encode())}")
        other = "another kernel may: --kernel; or lab.bpf() with a script on tracepoints"
        if lacks := _LACKS.search(said):
            return UnsupportedError(self._name, f"this kernel has no {lacks['name']}, which it probes", other)
        first = said.splitlines()[0].removeprefix(f"{self._name}: ") if said else "no message"
        if _USAGE.search(said):
            return InputError(f"{self._name}: {first}", expected=f"what {self._name} --help says")
        if failed := _FAILED.search(said):
            return UnsupportedError(self._name, f"this kernel cannot run it: {failed[0].strip()}", other)
        ended = f"signal {-status}" if status < 0 else f"exit status {status}"
        return BccError(f"{self._name}: {first} ({ended}, before it traced anything)")

    # -- stopping

    def _incomplete(self, status: int, *, early: bool) -> str:
        if status == 0 or (status == -signal.SIGINT and not early):
            return ""
        how = f"failed with exit status {status}" if status > 0 else f"was ended by signal {-status}"
        return f"it {how}{told(self._read(ERR))}"

    def _output(self, incomplete: str) -> BccOutput:
        return BccOutput(self._read(OUT), self._read(ERR), tool=self._name, incomplete=incomplete)

    def _error(self, message: str, found: BccOutput) -> BccError:
        return BccError(f"{self._name}: {message}", found)

    # -- afterwards

    def histogram(self) -> Table:
        """See :meth:`BccOutput.histogram`."""
        return self.output.histogram()

    def table(self, header: str | None = None) -> Table:
        """See :meth:`BccOutput.table`."""
        return self.output.table(header)

    def __repr__(self) -> str:
        return f"<Bcc {self._name}>" if self._found is None else repr(self._found)


def bcc(tool: str | os.PathLike[str], *args: object, timeout_s: float = 120.0) -> Bcc:
    """A tool of bcc's beside whatever the ``with`` block does.

    Args:
        tool: Its name: one of libbpf-tools (``"ext4dist"``), else of bcc's in Python (Debian's ``ext4dist-bpfcc``); or
            a path.
        args: Its arguments; each as :class:`str` prints it.
        timeout_s: How long starting may take, and ending.

    Raises:
        InputError: There is no file of that path.
        UnsupportedError: No tool of that name is installed.

    Example:
        >>> with lab.bcc("ext4dist") as found:
        ...     job.run()
        >>> found.histogram()
    """
    return Bcc(tool, [str(arg) for arg in args], timeout_s)


def run_beside_tool(
    tool: str, command: Sequence[str], *, args: Sequence[str] = (), cwd: str | None = None
) -> tuple[BccOutput, int]:
    """Runs a command to its end beside a tool; returns what that printed, and the command's exit status."""
    found = bcc(tool, *args)
    status = run_beside(found, command, cwd)
    return found.output, status
