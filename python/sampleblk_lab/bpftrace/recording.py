# SPDX-License-Identifier: MIT
"""Running the distribution's bpftrace beside a job: probes attached before, maps printed after."""

from __future__ import annotations

import os
import re
import signal
import stat
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sampleblk_lab import checked, paths, proc
from sampleblk_lab.bpftrace.output import BpfOutput
from sampleblk_lab.bpftrace.process import ERR, OUT, Tracer, require_kernel, run_beside, told, waits_in
from sampleblk_lab.bpftrace.script import find, probe_lists
from sampleblk_lab.errors import InputError, SampleblkError, UnsupportedError
from sampleblk_lab.trust import Check, of_losses

if TYPE_CHECKING:
    from collections.abc import Sequence

_VM = "run inside the VM: vm.bpftrace(), sampleblk-python, or sampleblk-lab bpf"
_INSTALL = "install it: apt-get install bpftrace (the VM has the host's programs)"
# bpftrace's own message, at a place of the script: stdin:1:9-14: ERROR: ...
_AT = re.compile(r"^(?P<file>[^\n]*?):(?P<line>\d+):(?P<column>\d+)-\d+: ERROR: (?P<message>.*)$", re.MULTILINE)
_ERROR = re.compile(r"^(?:ERROR: |.*?: error: )(?P<message>.*)$", re.MULTILINE)
# What a full map refuses.
_UPDATE = "map_update_elem"
# What says that it is the kernel that lacks something, not the script that is wrong.
_LACKS = re.compile(
    r"tracepoint not found|not available for your kernel|not traceable|No probes to attach|Error attaching probe"
    r"|[Uu]nable to attach|Could not (?:attach|resolve)|[Nn]o BTF|failed to load|Error loading|not supported by"
    r"|Couldn't get target|probe matched|Failed to attach"
)
# What its compiler says of types that it has neither from BTF nor from headers; also of a script's own mistake.
_TYPES = re.compile(r"unknown type name|fatal error: '[^']*' file not found")
# Of lists of probes; a probe of its own that cannot be attached ends it.
_SKIPPED = re.compile(r"could not attach probe (\S+), skipping")
_SCRIPT = "script.bt"
_INFO_S = 60.0
# bpftrace says the one of every start where the limit is fixed, at which kernels from 5.11 on do not look; the other of
# a variable that is set for older releases.
_HARMLESS = re.compile(rb"[^\n]*(?:couldn't set RLIMIT_MEMLOCK|BPFTRACE_MAP_KEYS_MAX is deprecated)[^\n]*\n?")


class BpftraceError(SampleblkError, RuntimeError):
    """bpftrace failed.

    Attributes:
        message: What it said, or what happened to it.
        output: What it had printed, where its probes were attached by then.
    """

    def __init__(self, message: str, output: BpfOutput | None = None) -> None:
        super().__init__(f"bpftrace: {message}")
        self.message = message
        self.output = output

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.message, self.output)


def require() -> str:
    """The path of bpftrace, where this machine can run it.

    Raises:
        UnsupportedError: It is not installed, we are not root, or the kernel is built without what it needs.
    """
    program = paths.find_program("bpftrace")
    if program is None:
        raise UnsupportedError("bpftrace", "it is not installed", _INSTALL)
    require_kernel("bpftrace", _VM)
    return program


def _reads_btf() -> bool:
    """Whether bpftrace itself says so: /sys/kernel/btf/vmlinux may be there and be of no use to it (0.17 on 5.10)."""
    about = subprocess.run(
        [require(), "--info"], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, timeout=_INFO_S
    )
    return "btf: no" not in about.stdout + about.stderr


class Bpf(Tracer[BpfOutput]):
    """A bpftrace script that runs, and then what it found. Made by :func:`bpf`."""

    _KEPT = "what bpftrace found"
    # The one may be inlined in the other.
    _WAITS = ("ep_poll", "do_epoll_wait")

    def __init__(
        self,
        script: str | os.PathLike[str],
        *,
        args: Sequence[Any],
        unsafe: bool,
        max_map_keys: int | None,
        timeout_s: float,
    ) -> None:
        super().__init__(timeout_s, "lines of bpftrace lost")
        self._script = find(script)
        self._args = [_argument(arg) for arg in checked.several("args", args)]
        self._unsafe = unsafe
        if max_map_keys is not None and max_map_keys < 1:
            raise InputError(f"max_map_keys={max_map_keys}", expected="at least 1")
        self._max_map_keys = max_map_keys
        self._said = False

    # -- starting

    def _begin(self) -> None:
        program = require()
        script = self._prepare() / _SCRIPT
        script.write_text(self._script.text, errors="surrogateescape")
        environment = {}
        if self._max_map_keys is not None:
            # Before 0.20, and since.
            environment = dict.fromkeys(("BPFTRACE_MAP_KEYS_MAX", "BPFTRACE_MAX_MAP_KEYS"), str(self._max_map_keys))
        # -k: what a full map drops is said, not silent.
        # What the script is given may begin with a dash.
        command = [program, "-f", "json", "-k", *(["--unsafe"] if self._unsafe else []), "--", str(script), *self._args]
        self._launch(command, environment)

    def _is_attached(self, pid: int) -> bool:
        """It says "attached_probes" before it attaches them; it waits for events when the last one is attached.

        BEGIN it runs before the others.
        """
        self._said = self._said or b'"attached_probes"' in self._read(OUT)
        if not (self._said and waits_in(pid, self._WAITS)):
            return False
        self._check_skipped()
        return True

    def _listens(self, pid: int) -> bool:
        """A second SIGINT that comes when the first was noticed would end the printing of the maps.

        But then the probes are detached, whose descriptors it closes, and it catches the signal no more.
        """
        return _catches_interrupts(pid)

    def _check_skipped(self) -> None:
        """It goes on without probes that the kernel lacks; an action needs one at least."""
        skipped = set(_SKIPPED.findall(self._messages().decode(errors="backslashreplace")))
        for probes in probe_lists(self._script.text):
            if skipped.issuperset(probes):
                lacks = f"this kernel has not {' nor '.join(probes)}"
                raise UnsupportedError(self._script.source, lacks, "another kernel may: --kernel; or tracepoints")

    def _messages(self) -> bytes:
        """Standard error, with the script called what the user calls it."""
        said = _HARMLESS.sub(b"", self._read(ERR))
        return said.replace(os.fsencode(self._folder / _SCRIPT), os.fsencode(self._script.source))

    def _failure(self, status: int | None) -> SampleblkError:
        """What is wrong, of bpftrace's message."""
        if status is None:
            return BpftraceError(f"its probes were not attached after {self._timeout_s:.0f} s{told(self._messages())}")
        said = self._messages().decode(errors="backslashreplace").strip()
        placed, error = _AT.search(said), _ERROR.search(said)
        if lacks := _LACKS.search(said):
            lines = [line for line in said.splitlines() if lacks[0] in line]
            reason = re.sub(r"^.*?(?:ERROR|WARNING): ", "", lines[0])
            return UnsupportedError(self._script.source, f"this kernel cannot run it: {reason}", _details(said, lines))
        if placed:
            return InputError(placed["message"], self._script.source, int(placed["line"]))
        if _TYPES.search(said) and not _reads_btf():
            reason = "this bpftrace cannot read this kernel's BTF, and has no headers of it"
            return UnsupportedError(self._script.source, reason, "a newer kernel, such as --kernel 6.1")
        ended = f"signal {-status}" if status < 0 else f"exit status {status}"
        return BpftraceError(f"{error['message'] if error else said or 'no message'} ({ended})")

    # -- stopping

    def _incomplete(self, status: int, *, early: bool) -> str:
        if status:
            how = "failed" if status > 0 else f"was ended by signal {-status}"
            return f"it {how}{told(self._messages())}"
        # To SIGTERM, and to SIGINT of somebody else's, it does the same.
        return "it was ended before the block was" if early and not self._script.may_end else ""

    def _output(self, incomplete: str) -> BpfOutput:
        return BpfOutput(self._read(OUT), self._messages(), script=self._script, incomplete=incomplete)

    def _lost(self, found: BpfOutput) -> list[Check]:
        calls = found.helper_errors()
        full = calls["count"].values[calls["helper"].values == _UPDATE].sum()
        return [
            *super()._lost(found),
            of_losses("entries that bpftrace's maps did not take", full),
            of_losses("lines of bpftrace that cannot be read", found.unread_lines),
        ]

    def _error(self, message: str, found: BpfOutput) -> BpftraceError:
        return BpftraceError(message, found)

    # -- afterwards

    def __getitem__(self, name: str) -> Any:
        """See :meth:`BpfOutput.table`."""
        return self.output.table(name)

    def __contains__(self, name: object) -> bool:
        return name in self.output

    def __repr__(self) -> str:
        return f"<Bpf {self._script.source}>" if self._found is None else repr(self._found)

    def _repr_html_(self) -> str | None:
        return None if self._found is None else self._found._repr_html_()


def bpf(
    script: str | os.PathLike[str],
    *,
    args: Sequence[Any] = (),
    unsafe: bool = False,
    max_map_keys: int | None = None,
    timeout_s: float = 120.0,
) -> Bpf:
    """A bpftrace script beside whatever the ``with`` block does.

    Args:
        script: Its text, its path, or its name: one of ours (``"block-latency"``), or one of bpftrace's own tools
            (``"biosnoop.bt"``).
        args: What the script has as ``$1``, ``$2``, …; a :class:`Device`, or the path of a block device as a
            :class:`~pathlib.Path`, is its number, as block tracepoints have it.
        unsafe: Allow ``system()`` and its like.
        max_map_keys: How many entries a map takes; None: as bpftrace has it (4096). A map that is full drops the rest,
            which the metadata counts as ``helper_errors``.
        timeout_s: How long starting may take, and ending: its compiler is slow in a VM without KVM.

    Example:
        >>> with lab.bpf("tracepoint:syscalls:sys_enter_pwrite64 { @[comm, args->count] = count(); }") as found:
        ...     job.run()
        >>> found["@"]
    """
    return Bpf(script, args=args, unsafe=unsafe, max_map_keys=max_map_keys, timeout_s=timeout_s)


def run_command(
    script: str | os.PathLike[str], command: Sequence[str], *, cwd: str | None = None, **options: Any
) -> tuple[BpfOutput, int]:
    """Runs a command to its end beside a script.

    Args:
        script: See :func:`bpf`.
        command: The program and its arguments.
        cwd: Where it runs.
        options: Those of :func:`bpf`.

    Returns:
        What the script found, and the command's exit status: 128 and the signal where one ended it.

    Raises:
        InputError: There is no such program.
    """
    found = bpf(script, **options)
    status = run_beside(found, command, cwd)
    return found.output, status


def _argument(value: Any) -> str:
    path = getattr(value, "path", value)
    if not isinstance(path, os.PathLike) and path is value:
        return str(value)
    status = Path(path).stat()
    # The kernel's own dev_t, not that of stat(2) (linux/kdev_t.h).
    return str(os.major(status.st_rdev) << 20 | os.minor(status.st_rdev)) if stat.S_ISBLK(status.st_mode) else str(path)


def _catches_interrupts(pid: int) -> bool:
    try:
        caught = proc.status(pid)["SigCgt"]
    except OSError:
        return False
    return bool(int(caught, 16) & 1 << (signal.SIGINT - 1))


def _details(said: str, told: list[str]) -> str:
    others = [line.strip() for line in said.splitlines() if line not in told and line.strip(" ~")]
    return "bpftrace says: " + " / ".join(others) if others else ""
