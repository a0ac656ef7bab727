# SPDX-License-Identifier: MIT
"""One virtual machine: started cold or from a saved state, running commands, gone when it is closed.

The pattern (host root over 9p, an overlay on it, exit status over virtio-serial) is that of drgn's vmtest/vm.py.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import shutil
import socket
import subprocess
import tempfile
import time
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from sampleblk_lab.errors import InputError
from sampleblk_lab.kernels import resolve
from sampleblk_lab.kernels.driver import module_tree
from sampleblk_lab.paths import resource
from sampleblk_lab.vm import channel, initramfs, state
from sampleblk_lab.vm.accel import choose
from sampleblk_lab.vm.console import Console
from sampleblk_lab.vm.errors import BootError, DeadlineError, GuestLostError, GuestPanicError, VMError
from sampleblk_lab.vm.qemu import find
from sampleblk_lab.vm.qmp import Qmp
from sampleblk_lab.vm.transfer import Signals, Transfer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Self

    from sampleblk_lab.kernels import Kernel

# A cold boot under TCG takes 2 to 6 s; what has not come up after this never will.
BOOT_DEADLINE_S = 120.0

_KERNEL_OPTIONS = (
    "console=ttyS0",
    "loglevel=5",
    "panic=-1",
    "oops=panic",
    # TCG's time stamp counter is the host's: fast to read and not drifting, which the kernel cannot know.
    "clocksource=tsc",
    "tsc=reliable",
    "random.trust_cpu=on",
    "mitigations=off",
    "audit=0",
    # A guest whose host is busy is not run for seconds on end, which the kernel takes for a lockup (after 20 s by
    # default) and a failed case would be blamed for. Real ones are still told: after 120 s.
    "watchdog_thresh=60",
    "rcupdate.rcu_cpu_stall_timeout=120",
)


# All that TCG has, but without "enhanced rep movsb": the kernel would copy by it, and TCG executes it byte by byte.
# Copies are twice as fast by words. $SAMPLEBLK_CPU asks for another model (qemu-system(1), -cpu).
_TCG_CPU = "max,-erms,-fsrm"

# The name of the monitor's socket among those of the ports.
_QMP = "qmp"

_M = TypeVar("_M", bound=channel.Message)


class VM:
    """A throw-away virtual machine on a kernel of one's choice, with the host's files read-only inside it.

    Args:
        kernel: As for :func:`sampleblk_lab.kernels.resolve`, or a :class:`~sampleblk_lab.kernels.Kernel`.
        cpus: Virtual CPUs.
        memory_mib: Memory, in MiB.
        run_dir: The one host folder that the guest may write to, at the same path; created when missing.
        warm: Start from the saved state of an earlier boot when there is one, and save one when there is none.
        accel: ``"kvm"`` or ``"tcg"``; None: KVM where it has been seen to work, else TCG.
        driver: Offer the sampleblk module to the guest's modprobe, building it when needed.
        console: File for the guest's console log, there to stay; None: one that goes with the VM.

    Raises:
        InputError: An argument is out of range.
    """

    def __init__(
        self,
        *,
        kernel: str | Kernel | None = None,
        cpus: int = 2,
        memory_mib: int = 1024,
        run_dir: str | os.PathLike[str] | None = None,
        warm: bool = True,
        accel: str | None = None,
        driver: bool = True,
        console: str | os.PathLike[str] | None = None,
    ) -> None:
        if cpus < 1 or cpus > 255:
            raise InputError(f"cpus {cpus} is out of range", expected="1 to 255")
        if memory_mib < 128:
            raise InputError(f"memory {memory_mib} MiB is too little to boot in", expected="at least 128 MiB")
        self.kernel = kernel if not (kernel is None or isinstance(kernel, str)) else resolve(kernel)
        self.qemu = find()
        self.accel = accel or choose(self.qemu, self.kernel)
        self.cpus = cpus
        self.memory_mib = memory_mib
        self.warm = warm
        self.restored = False
        self.run_dir = Path(run_dir).absolute() if run_dir is not None else None
        self._modules = module_tree(self.kernel) if driver else self.kernel.modules
        self._initramfs = initramfs.build(self.kernel)
        self._scratch = Path(tempfile.mkdtemp(prefix="sampleblk-vm-"))
        self._cleanup = weakref.finalize(self, shutil.rmtree, self._scratch, ignore_errors=True)
        self._keeper: subprocess.Popen[bytes] | None = None
        self._lifeline = -1
        self._link: channel.Link | None = None
        self.console = Console(Path(console).absolute() if console else self._scratch / "console.log")

    # --- life -------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def start(self, deadline_s: float = BOOT_DEADLINE_S) -> None:
        """Boots or restores the VM and mounts its files.

        Raises:
            BootError: It did not become ready in `deadline_s` seconds, or QEMU refused to start.
        """
        end = time.monotonic() + deadline_s
        saved = state.path_for(self._identity()) if self.warm else None
        if saved is not None and saved.exists():
            try:
                self._launch(["-incoming", state.incoming(saved)])
                self.restored = True
                self._begin(min(end, time.monotonic() + 30))
                state.used(saved)
                return
            except VMError:
                # A state that fails to load is dropped and built again by the cold boot below.
                self._stop()
                self.console.clear()
                saved.unlink(missing_ok=True)
                self.restored = False
        try:
            self._launch([])
            assert self._link is not None
            ready = self._await(channel.Ready, end)
            if ready.version != channel.PROTOCOL_VERSION:
                raise BootError(f"the guest speaks protocol {ready.version}, not {channel.PROTOCOL_VERSION}")
            if saved is not None:
                state.save(Qmp(self._link.sockets[_QMP]), saved, end)
            self._begin(end)
        except BaseException:
            self._stop()
            raise

    def close(self) -> None:
        """Ends the VM, at once; nothing of it stays. Idempotent."""
        self._stop()
        self._cleanup()

    def describe(self) -> str:
        """The VM as a JSON object, for the guest's environment and for ``env.json``."""
        about = {
            "kernel": self.kernel.release,
            "accel": self.accel,
            "qemu": self.qemu.version_text,
            "cpus": self.cpus,
            "memory_mib": self.memory_mib,
            "restored": self.restored,
            "run_dir": str(self.run_dir) if self.run_dir is not None else None,
        }
        return json.dumps(about)

    def _identity(self) -> str:
        """What a saved state is only good for: this kernel, initramfs, QEMU and machine."""
        return "\n".join([self.qemu.identity, *self._command([], {}, "", "")])

    def _command(self, extra: list[str], fds: Mapping[str, int], console: str, run_dir: str) -> list[str]:
        def port(name: str) -> list[str]:
            return [
                *("-chardev", f"socket,id={name},fd={fds.get(name, '')}"),
                *("-device", f"virtserialport,chardev={name},name={name}"),
            ]

        def share(tag: str, path: str, options: str) -> list[str]:
            return [
                *("-fsdev", f"local,id={tag},path={_escaped(path)},security_model=none,multidevs=remap{options}"),
                *("-device", f"virtio-9p-pci,fsdev={tag},mount_tag={tag}"),
            ]

        return [
            *self.qemu.command,
            *("-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"),
            *("-machine", "q35", "-m", str(self.memory_mib), "-smp", str(self.cpus)),
            *("-accel", "kvm" if self.accel == "kvm" else self.qemu.tcg),
            *("-cpu", os.environ.get("SAMPLEBLK_CPU") or ("host" if self.accel == "kvm" else _TCG_CPU)),
            *("-kernel", str(self.kernel.image), "-initrd", str(self._initramfs)),
            *("-append", " ".join(_KERNEL_OPTIONS)),
            *("-chardev", f"file,id=console,path={_escaped(console)}", "-serial", "chardev:console"),
            *("-chardev", f"socket,id=qmp,fd={fds.get(_QMP, '')}", "-mon", "chardev=qmp,mode=control"),
            *("-device", "virtio-serial-pci,max_ports=8"),
            *(part for name in channel.PORTS for part in port(name)),
            *share(channel.ROOT_TAG, "/", ",readonly=on"),
            *share(channel.RUN_TAG, run_dir, ""),
            *extra,
        ]

    def _launch(self, extra: list[str]) -> None:
        if self.run_dir is not None:
            self.run_dir.mkdir(parents=True, exist_ok=True)
        else:
            (self._scratch / "no-run-dir").mkdir(exist_ok=True)
        pairs = {name: socket.socketpair() for name in (*channel.PORTS, _QMP)}
        near_ends = {name: near for name, (near, _) in pairs.items()}
        far_ends = {name: far for name, (_, far) in pairs.items()}
        lifeline_read, self._lifeline = os.pipe()
        fds = {name: far.fileno() for name, far in far_ends.items()}
        command = self._command(extra, fds, str(self.console.path), str(self.run_dir or self._scratch / "no-run-dir"))
        try:
            with (self._scratch / "qemu.log").open("wb") as log:
                self._keeper = subprocess.Popen(
                    [str(resource("vm/bin/sampleblk-keep")), str(lifeline_read), str(self._scratch), *command],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=[*fds.values(), lifeline_read],
                )
        finally:
            os.close(lifeline_read)
            for far in far_ends.values():
                far.close()
        self._link = channel.Link(near_ends, self._died)

    def _begin(self, end: float) -> None:
        word = channel.begin(
            clock_ns=time.time_ns(),
            entropy=os.urandom(64),
            hostname="sampleblk",
            modules=str(self._modules) if self._modules is not None else None,
            run_dir=str(self.run_dir) if self.run_dir is not None else None,
        )
        assert self._link is not None
        self._link.send(word)
        self._await(channel.Begun, end)

    def _stop(self) -> None:
        if self._lifeline >= 0:
            with contextlib.suppress(BrokenPipeError):
                os.write(self._lifeline, b"s")  # a stop, not our death: the scratch folder is still ours
            os.close(self._lifeline)
            self._lifeline = -1
        if self._keeper is not None:
            self._keeper.wait()
            self._keeper = None
        if self._link is not None:
            self._link.close()
            self._link = None

    # --- talk -------------------------------------------------------------------------------------------------

    def _await(self, kind: type[_M], end: float) -> _M:
        assert self._link is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._link.sockets[channel.CONTROL], selectors.EVENT_READ)
            while True:
                left = end - time.monotonic()
                if left <= 0 or not selector.select(left):
                    raise BootError("the guest did not become ready in time", self.console.tail())
                for message in self._link.receive():
                    if isinstance(message, kind):
                        return message
                    if isinstance(message, channel.Failed):
                        raise BootError(f"{message.operation}: {os.strerror(message.code)}", self.console.tail())

    def _died(self) -> VMError:
        """What to raise now that QEMU is gone or deaf."""
        log = ""
        if self._keeper is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._keeper.wait(timeout=10)
            log = (self._scratch / "qemu.log").read_text(errors="replace").strip()
        tail = self.console.tail()
        if self.console.has_panic():
            return GuestPanicError(f"the guest's kernel panicked ({self.kernel.release})", tail)
        if log:
            return BootError(f"QEMU ended: {log}", tail)
        return GuestLostError(f"the virtual machine ended unexpectedly ({self.kernel.release})", tail)

    # --- work -------------------------------------------------------------------------------------------------

    def run(
        self,
        argv: Sequence[str | os.PathLike[str]],
        *,
        stdin: int | bytes = b"",
        stdout: int | None = None,
        stderr: int | None = None,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
        window: tuple[int, int] | None = None,
        forward_signals: Sequence[int] = (),
    ) -> subprocess.CompletedProcess[bytes]:
        """Runs one command in the guest and waits for it.

        Args:
            argv: The command; a name without a slash is looked up in the environment's PATH.
            stdin: Bytes for its standard input, or a descriptor to read them from until its end.
            stdout: Descriptor that gets its standard output; None collects it in the result.
            stderr: The same for standard error.
            cwd: Its working directory; None: ours.
            env: Its environment; None: ours.
            timeout: Seconds until the VM is killed for it.
            window: (rows, columns): the command gets a terminal of that size instead of pipes.
            forward_signals: Signals that, when this process gets them meanwhile, go to the command instead; SIGWINCH
                becomes the new size of its terminal. Only from the main thread.

        Returns:
            The exit status (minus the signal number, if one ended it) and what was collected.

        Raises:
            CommandError: It could not be started.
            DeadlineError: `timeout` ran out; the VM is gone.
            GuestPanicError, GuestLostError: The VM ended under it.
        """
        if self._link is None:
            raise VMError("the virtual machine is not running")
        environment = os.environb if env is None else {os.fsencode(k): os.fsencode(v) for k, v in env.items()}
        frame = channel.execute(
            [os.fsencode(arg) for arg in argv], dict(environment), os.fsencode(cwd or Path.cwd()), window
        )
        transfer = Transfer(self._link, stdin, stdout, stderr)
        self._link.send(frame)
        try:
            with Signals(forward_signals) as signals:
                status = transfer.run(None if timeout is None else time.monotonic() + timeout, signals)
        except TimeoutError:
            tail = self.console.tail()
            self._stop()
            raise DeadlineError(f"the command ran past its deadline of {timeout} s", tail) from None
        return subprocess.CompletedProcess(list(argv), status, *transfer.collected())


def _escaped(path: str) -> str:
    """A comma in a QEMU option value is written twice."""
    return path.replace(",", ",,")
