# SPDX-License-Identifier: MIT
"""One virtual machine: booted or cloned from a template, running commands, gone when it is closed.

The pattern (host root over 9p, an overlay on it, exit status over virtio-serial) is that of drgn's vmtest/vm.py.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import selectors
import signal
import socket
import subprocess
import tempfile
import threading
import time
import weakref
from pathlib import Path
from typing import IO, TYPE_CHECKING, ParamSpec, TypeVar

from sampleblk_lab import checked, proc, renamed
from sampleblk_lab.blocks import ClosesAtEnd
from sampleblk_lab.errors import FormatError, InputError
from sampleblk_lab.kernels import Kernel, resolve, store
from sampleblk_lab.kernels.driver import module_tree
from sampleblk_lab.paths import (
    CacheError,
    cache_root,
    hold,
    remove_as,
    remove_left,
    resource,
    scratch_directory,
    search_path,
    umask,
)
from sampleblk_lab.progress import note, step
from sampleblk_lab.vm import channel, image, outside, registers, template
from sampleblk_lab.vm.accel import Verdict, choose
from sampleblk_lab.vm.console import Console
from sampleblk_lab.vm.contents import copies, initramfs, interpreter
from sampleblk_lab.vm.errors import (
    BootError,
    BootTimeoutError,
    DeadlineError,
    GuestLostError,
    GuestPanicError,
    QemuAbortError,
    VMError,
    WrongClockError,
)
from sampleblk_lab.vm.qemu import find, option_value
from sampleblk_lab.vm.qmp import ANSWER_S, Qmp
from sampleblk_lab.vm.transfer import Signals, Transfer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Any, Self

    from sampleblk_lab.bpftrace.output import BpfOutput
    from sampleblk_lab.bpftrace.tool_output import BccOutput

# A cold boot under TCG takes 2 to 6 s, with a Python that imports half a minute; what has not come up after this, on a
# machine that is not busy, never will.
BOOT_DEADLINE_S = 120.0
_MOST_BUSY = 10.0

# A clone takes a fraction of a second, on a busy machine some.
_CLONE_DEADLINE_S = 30.0


# In this time an emulated guest prints the stacks of a hundred tasks.
_STACKS_S = 15.0

# A command that Ctrl-C reaches ends by itself, mostly; one that is killed, unless it hangs in the kernel.
_INTERRUPTED_S = 2.0
_KILLED_S = 5.0

# In this time the kernel of a guest that does not boot prints what it is asked by its keyboard.
_KEYBOARD_S = 3.0

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
    # System.map has the addresses of a guest that hangs, and its keyboard may ask for the stacks of its tasks.
    "nokaslr",
    "sysrq_always_enabled",
)


# All that TCG has, but without "enhanced rep movsb": the kernel would copy by it, and TCG executes it byte by byte.
# Copies are twice as fast by words. $SAMPLEBLK_CPU asks for another model (qemu-system(1), -cpu).
_TCG_CPU = "max,-erms,-fsrm"

# TCG executes the instruction for CRC-32C bit by bit: by the kernel's tables the sums of file systems take a fourth of
# the time. (From 6.14 on there is no module that could be left out.)
_TCG_KERNEL_OPTIONS = ("module_blacklist=crc32c_intel",)

# A kernel that boots on a busy host may measure the rate of the time stamp counter wrongly, 931 MHz for 2,596 once, and
# all clones of that machine have a clock that goes three times as fast. What our init finds is right to a millionth,
# beside three busy machines, too.
_CLOCK_TOLERANCE = 0.005

_HOSTNAME = "sampleblk"

# What a kernel boots in.
_BOOTS_IN_MIB = 128

# In a template that is being made.
_INITRAMFS = "initramfs"
_SCRATCH = "sampleblk-vm-"

# The name of the monitor's socket among those of the ports.
_QMP = "qmp"

# What the guest may write to where it was given nothing: a folder in the VM's own, which the keeper makes (keep.c).
_NO_RUN_DIR = "no-run-dir"

_M = TypeVar("_M", bound=channel.Message)
_T = TypeVar("_T")
_P = ParamSpec("_P")


def boot_deadline() -> float:
    """How long a boot may take, in seconds: what waits for a processor is slow, and not hung."""
    busy = os.getloadavg()[0] / (os.cpu_count() or 1)
    return BOOT_DEADLINE_S * min(max(busy, 1.0), _MOST_BUSY)


def _has_idle_processor() -> bool:
    """Whether fewer tasks run than there are processors (proc(5), loadavg)."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(Path("/proc/loadavg").read_text().split()[3].partition("/")[0]) < (os.cpu_count() or 1)
    return False


class Completed(subprocess.CompletedProcess[bytes]):
    """A command that has ended; ``interrupted``: Ctrl-C came, which was its own (`grace_s`). Or it ``has_parked``."""

    interrupted = False
    has_parked = False


def _remove_scratch(process: int, scratch: Path, held: list[int]) -> None:
    remove_as(process, scratch)
    while held:
        os.close(held.pop())


class VM(ClosesAtEnd):
    """A throw-away virtual machine on a kernel of one's choice, with the host's files read-only inside it.

    Args:
        kernel: As for :func:`sampleblk_lab.kernels.resolve`, or a :class:`~sampleblk_lab.kernels.Kernel`.
        cpus: Virtual CPUs.
        memory_mib: Memory, in MiB.
        run_dir: The one host folder that the guest may write to, at the same path; created when missing.
        warm: Be a clone of the template that an earlier boot left, and make one when there is none.
        accel: ``"kvm"`` or ``"tcg"``; None: KVM where it has been seen to work, else TCG.
        driver: Offer the sampleblk module to the guest's modprobe, building it when needed.
        console: File for the guest's console log, there to stay; None: one that goes with the VM.
        resident: Folders of the host that the guest has in its memory, where their files are opened without asking the
            host. It has them as they are when it starts; each change makes another template.
        preload: Modules that the Python which a template has ready has imported besides the toolkit's, such as
            ``["pandas"]``. They must not read at import what the command has otherwise: its folder, its environment.

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
        resident: Sequence[str | os.PathLike[str]] = (),
        preload: Sequence[str] = (),
    ) -> None:
        checked.count("cpus", cpus, 1, 255)
        checked.count("memory_mib", memory_mib, _BOOTS_IN_MIB)
        if accel:
            checked.one_of("accel", accel, ("kvm", "tcg"))
        if isinstance(resident, (str, os.PathLike)):
            raise InputError(f"resident={os.fspath(resident)!r}", expected="a list of folders")
        for folder in resident:
            if not Path(folder).is_dir():
                raise InputError(f"{str(folder)!r} cannot be resident", expected="a folder")
        wrong = [name for name in preload if not all(part.isidentifier() for part in name.split("."))]
        if isinstance(preload, str) or wrong:
            raise InputError(
                f"preload={preload if isinstance(preload, str) else wrong[0]!r}", expected="names of modules"
            )
        if not isinstance(kernel, (str, Kernel, type(None))):
            raise InputError(f"kernel={kernel!r}", expected="a name such as '6.1', or a Kernel")
        self.kernel = kernel if isinstance(kernel, Kernel) else resolve(kernel)
        self.qemu = find()
        self.accel = accel or choose(self.qemu, lambda: _probe_kvm(self.kernel))
        self.cpus = cpus
        self.memory_mib = memory_mib
        self.warm = warm
        self.restored = False
        self._image: image.Image | None = None  # that it makes, or is a clone of
        self._was_killed = False
        self._is_twin = False  # of another one, for :mod:`.outside`
        self._hopeless: Callable[[], str] = str  # what :meth:`start` is told
        self.run_dir = Path(run_dir).resolve() if run_dir is not None else None
        where = Path(console).resolve() if console else None
        if where and (where.is_dir() or not (where.parent == self.run_dir or where.parent.is_dir())):
            raise InputError(f"console={str(where)!r}", expected="a file in a folder that is there")
        self._driver = driver
        self._resident = [Path(folder).resolve() for folder in resident]
        self._preload = tuple(preload)
        self._prepare()
        # Made by the keeper, who removes it if we are killed; should both be, it goes with the next VM.
        self._scratch = Path(tempfile.gettempdir()) / f"{_SCRATCH}{os.urandom(8).hex()}"
        self._own_scratch()
        self._keeper: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None
        self._lifeline = -1
        self._held: list[int] = []
        self._link: channel.Link | None = None
        self._runs = threading.Lock()  # held by the one command that runs
        self._qmp: Qmp | None = None
        self.console = Console(Path(console).absolute() if console else self._scratch / "console.log")

    def _prepare(self) -> None:
        """Builds what the kernel needs of us. A kernel of the cache that turns out to be damaged is fetched again."""
        try:
            store.check(self.kernel)
            self._initramfs = initramfs.build(self.kernel)
        except FormatError:
            if not store.is_cached(self.kernel):
                raise
            self._replace_kernel()
            store.check(self.kernel)
            self._initramfs = initramfs.build(self.kernel)
        self._modules = module_tree(self.kernel) if self._driver else self.kernel.modules

    def _hold_modules(self) -> None:
        """Keeps what the guest may load in the cache for as long as it runs."""
        for folder in {path.parents[2] for path in (self._modules, self.kernel.modules) if path is not None}:
            if folder.is_relative_to(cache_root()):
                self._held.append(hold(folder))

    def _replace_kernel(self) -> None:
        store.forget(self.kernel)
        self.kernel = resolve(self.kernel.release)

    # --- life -------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self.start()
        return super().__enter__()

    @renamed.parameters(deadline_s="timeout_s")
    def start(self, timeout_s: float | None = None, *, hopeless: Callable[[], str] = str) -> None:
        """Boots or restores the VM and mounts its files.

        Args:
            timeout_s: How long that may take; None: two minutes, on a busy machine as many times longer as it has work
                for more than its processors.
            hopeless: Asked every second of it: why there is no use in waiting longer, or nothing.

        Raises:
            BootError: It did not become ready in `timeout_s` seconds, or QEMU refused to start.
        """
        self._check_not_running()
        timeout_s = boot_deadline() if timeout_s is None else checked.seconds("timeout_s", timeout_s, none=True)
        self._hopeless = hopeless
        try:
            self._start_once_more(lambda: self._start(timeout_s))
        except VMError as error:
            if store.forget_damaged(self.kernel):
                self._replace_kernel()
                self._prepare()
            else:
                raise error.because(store.why_not(self.kernel)) from None
            self._start(timeout_s)
        finally:
            self._hopeless = str

    def _start_once_more(self, boot: Callable[[], _T]) -> _T:
        """Boots a machine, and again where that went wrong in a way that it seldom does."""
        try:
            return boot()
        except (QemuAbortError, WrongClockError) as error:
            note(f"{error.message}; starting it once more")
            self.console.clear()
            return boot()

    def start_image(self, timeout_s: float | None = None) -> None:
        """As :meth:`start`, in memory of its own: for :meth:`run` of a command that parks, and :meth:`save_image`.

        Raises:
            VMError: There is no template that it could be a clone of, or it did not become ready.
            OSError: This machine has no memory for it.
        """
        self._check_not_running()
        made_from, python = self._template()
        # What a command maps of an interpreter that no template has would be in use.
        if python is None or not (made_from.copy_on_write and made_from.exists()):
            raise VMError("there is no template to make an image from")
        self._image = image.begun_from(made_from)
        with self._stopped_unless_well():
            end = time.monotonic() + (boot_deadline() if timeout_s is None else timeout_s)
            self._launch(self._image.options_to_make())
            assert self._qmp is not None
            made_from.load(self._qmp, end)
            self._begin(end)

    def cloned_from(self, ram: Path, state: Path) -> Self:
        """This one, which will be a clone of an image when it starts, with a command to :meth:`resume`.

        Args:
            ram: The image's memory.
            state: The rest of it.
        """
        self._image = image.Image(ram, state, self.memory_mib)
        return self

    def save_image(self, timeout_s: float | None = None) -> image.Image:
        """Saves it, once the command has parked; ends this machine. Raises BootError."""
        assert self._image is not None
        assert self._qmp is not None
        try:
            self._image.save(self._qmp, time.monotonic() + (boot_deadline() if timeout_s is None else timeout_s))
        finally:
            self._stop(for_good=True)  # who keeps the image may be killed
        return self._image

    def _start(self, timeout_s: float) -> None:
        if self._image is not None:
            self._clone(self._image, timeout_s)
            self.restored = True
            return
        if self.warm:
            made_from, python = self._template()
            if python is not None and not made_from.exists():
                made_from, python = self._meanwhile(made_from, python)
            # One that does not load is made again, once; where that one does not either, there is none.
            for _ in range(2):
                self.restored = made_from.exists()
                if not self.restored and not self._make(made_from, python, timeout_s):
                    break
                try:
                    self._clone(made_from, timeout_s)
                except VMError:
                    if not self._was_killed:
                        made_from.forget()
                    self.console.clear()
                else:
                    return
            self.restored = False
        with self._stopped_unless_well():
            end = time.monotonic() + timeout_s
            with scratch_directory("boot") as folder:
                self._launch((), self._with(None, folder))
                self._await_ready(end)
            self._begin(end)

    def _check_not_running(self) -> None:
        if self._keeper is not None and self._keeper.poll() is None:
            raise VMError("the virtual machine runs already")
        self._stop()  # what is left of one whose guest has ended

    @renamed.parameters(deadline_s="timeout_s")
    def make_template(self, timeout_s: float | None = None) -> Path | None:
        """Makes what VMs of this shape are cloned from, with a Python that has imported what experiments import.

        Without this the first VM makes one without, and the second, if nothing of Python has changed, has one with it
        made beside the work.

        Returns:
            Its folder; None, after a note that says why, where it could not be saved.

        Raises:
            BootError: The machine did not boot.
        """
        self._check_not_running()
        timeout_s = boot_deadline() if timeout_s is None else checked.seconds("timeout_s", timeout_s, none=True)
        to_make, python = self._template(at_once=True)
        if not to_make.exists():
            with step(f"booting the machine that VMs with Linux {self.kernel.release} are cloned from"):
                if not self._start_once_more(lambda: self._make(to_make, python, timeout_s)):
                    return None
        return to_make.folder

    def _template(self, *, at_once: bool = False) -> tuple[template.Template, interpreter.Interpreter | None]:
        """The template of this machine, and the Python that it has ready."""
        if self.memory_mib < interpreter.MEMORY_MIB:
            return self._template_with(None), None
        python = interpreter.ready(self._preload, at_once=at_once)
        if python is None and self._preload:
            python = interpreter.ready()
        return self._template_with(python), python

    def _template_with(self, python: interpreter.Interpreter | None) -> template.Template:
        about = [self._identity(), python.identity if python is not None else ""]
        identity = "\n".join([*about, *(f"{folder} {copies.tree_state(folder)}" for folder in self._resident)])
        return template.of(identity, self.memory_mib, self.qemu.version)

    def _shape(self) -> dict[str, Any]:
        """The arguments of a machine that is as this one, and shares nothing with it."""
        return {
            "kernel": self.kernel,
            "cpus": self.cpus,
            "memory_mib": self.memory_mib,
            "accel": self.accel,
            "driver": self._driver,
            "resident": self._resident,
            "preload": self._preload,
        }

    def _meanwhile(
        self, wanted: template.Template, python: interpreter.Interpreter
    ) -> tuple[template.Template, interpreter.Interpreter | None]:
        """What to clone while there is no template with this Python.

        Where there is one without it, or without what it preloads, the other is made beside the work.
        """
        from sampleblk_lab.vm import background

        if not background.is_wanted():
            return wanted, python
        for other in [interpreter.ready() if python.preload else None, None]:
            without = self._template_with(other)
            if without.exists():
                background.make(self._shape())
                return without, other
        return wanted, python

    def _make(self, to_make: template.Template, python: interpreter.Interpreter | None, timeout_s: float) -> bool:
        """Boots the machine that is cloned, and saves it. False, and a note that says why, where that cannot be."""
        try:
            with template.making(to_make) as scratch:
                if scratch is None:
                    self.restored = True
                    return True
                end = time.monotonic() + timeout_s
                try:
                    self._launch(scratch.options_to_make(), self._with(python, scratch.folder))
                    self._await_ready(end)
                    assert self._qmp is not None
                    if python is not None:
                        self._make_ready(python, end)
                        if not python.is_unchanged():
                            raise template.SaveError("its Python has changed meanwhile")
                    now = self._template_with(python)
                    if now.folder != to_make.folder:
                        before = to_make.made_of.splitlines()
                        changed = [line for line in now.made_of.splitlines() if line not in before]
                        raise template.SaveError(f"what it is made of has changed meanwhile: {'; '.join(changed)}")
                    scratch.save(self._qmp, end)
                finally:
                    self._stop()
                    (scratch.folder / _INITRAMFS).unlink(missing_ok=True)
        except (CacheError, template.SaveError, GuestLostError) as error:
            template.say_not_saved(to_make, error)
            self.console.clear()
            return False
        return True

    def _make_ready(self, python: interpreter.Interpreter, end: float) -> None:
        """Starts it in the guest. Where it does not start, commands start their own."""
        assert self._link is not None
        self._link.send(channel.prepare(python.command, python.environment, _HOSTNAME))
        try:
            self._await(channel.Prepared, end)
        except (BootTimeoutError, QemuAbortError):
            raise
        except BootError as error:
            note(f"VMs have no Python ready, so each command starts its own: {error.message}")

    def _with(self, python: interpreter.Interpreter | None, folder: Path) -> Path:
        """The initramfs, with what the guest has in its memory of the host's files."""
        self._initramfs = initramfs.whole(self._initramfs, self.kernel)
        if python is None and not self._resident:
            return self._initramfs
        paths = [] if python is None else [*python.files, *python.folders]
        archive = copies.archive(paths, self._resident)
        # It is there twice while the kernel unpacks it, into a file system that may have half of the memory.
        if self._resident and 2 * len(archive) + (_BOOTS_IN_MIB << 20) > self.memory_mib << 20:
            names = ", ".join(map(str, self._resident))
            what = f"{names}: {len(archive) >> 20} MiB cannot be resident in a guest of {self.memory_mib} MiB"
            raise InputError(what, expected=f"memory_mib of {(2 * len(archive) >> 20) + _BOOTS_IN_MIB + 1} or more")
        path = folder / _INITRAMFS
        path.write_bytes(self._initramfs.read_bytes() + archive)
        return path

    def _clone(self, made: template.Saved, timeout_s: float) -> None:
        rehearse = self._image is None and _has_idle_processor()
        with self._stopped_unless_well():
            end = time.monotonic() + min(timeout_s, _CLONE_DEADLINE_S)
            self._launch(made.options_to_clone())
            assert self._qmp is not None
            made.load(self._qmp, end)
            self._begin(end, rehearse=rehearse)

    @contextlib.contextmanager
    def _stopped_unless_well(self) -> Iterator[None]:
        self._was_killed = False
        try:
            yield
        except GuestLostError:
            self._was_killed = self._ended_by_sigkill()
            self._stop()
            raise
        except BaseException:
            self._stop()
            raise

    def _ended_by_sigkill(self) -> bool:
        """Whether somebody else, such as the kernel when memory is short, has killed QEMU or its keeper."""
        if self._keeper is None:
            return False
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._keeper.wait(timeout=ANSWER_S) in (128 + signal.SIGKILL, -signal.SIGKILL)  # as keep.c has it
        return False

    def _await_ready(self, end: float) -> None:
        ready = self._await(channel.Ready, end)
        if ready.version != channel.PROTOCOL_VERSION:
            raise BootError(f"the guest speaks protocol {ready.version}, not {channel.PROTOCOL_VERSION}")
        self._check_clock(ready.tsc_khz)

    def _check_clock(self, tsc_khz: int) -> None:
        right = self._tsc_khz()
        if right and abs(tsc_khz - right) > right * _CLOCK_TOLERANCE:
            times = right / max(tsc_khz, 1)
            raise WrongClockError(f"the guest's clock goes {times:.2f} times as fast as it should", self.console.tail())

    def close(self) -> None:
        """Ends the VM, at once; nothing of it stays. Idempotent."""
        self._stop(for_good=True)
        if self._image is not None:
            self._image.close()
            self._image = None
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

    def cpu_time_s(self) -> float:
        """Processor time that QEMU has used, in seconds, that of the guest included (proc(5), stat)."""
        if self._keeper is None:
            return 0.0
        try:
            own = proc.text(self._keeper.pid, f"task/{self._keeper.pid}/children").split()
            fields = proc.stat(int(own[0]))
        except (OSError, IndexError):
            return 0.0
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def cpu_seconds(self) -> float:
        """The old name of :meth:`cpu_time_s`."""
        renamed.warn("VM.cpu_seconds()", "VM.cpu_time_s()")
        return self.cpu_time_s()

    def _identity(self) -> str:
        """What a template is only good for: this kernel, initramfs, QEMU and machine."""
        machine = self._command((), {}, self._initramfs, "", "")
        # Of another processor, whose counter has another rate, there is another one where machines share a cache.
        return "\n".join([self.qemu.identity, self.kernel.identity, *machine, proc.cpu_model()])

    def _tsc_khz(self) -> int:
        """The rate of the time stamp counter that its guests have; 0 where that is not known to be this machine's.

        $SAMPLEBLK_TSC_KHZ says it of a QEMU of one's own ($SAMPLEBLK_QEMU) that has another (qemu-system(1), -icount).
        """
        if text := os.environ.get("SAMPLEBLK_TSC_KHZ"):
            if not text.isdecimal():
                raise InputError(f"SAMPLEBLK_TSC_KHZ={text!r}", expected="a rate in kHz")
            return int(text)
        from sampleblk_lab._native import core

        return core.tsc_khz() if self.accel == "tcg" else 0

    def _command(
        self, extra: Sequence[str], fds: Mapping[str, int], initrd: Path, console: str, run_dir: str
    ) -> list[str]:
        def port(name: str) -> list[str]:
            return [
                *("-chardev", f"socket,id={name},fd={fds.get(name, '')}"),
                *("-device", f"virtserialport,chardev={name},name={name}"),
            ]

        def share(tag: str, path: str, options: str) -> list[str]:
            return [
                *("-fsdev", f"local,id={tag},path={option_value(path)},security_model=none,multidevs=remap{options}"),
                *("-device", f"virtio-9p-pci,fsdev={tag},mount_tag={tag}"),
            ]

        return [
            *self.qemu.command,
            *("-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"),
            *("-machine", "q35", "-m", str(self.memory_mib), "-smp", str(self.cpus)),
            *("-accel", "kvm" if self.accel == "kvm" else self.qemu.tcg),
            *("-cpu", os.environ.get("SAMPLEBLK_CPU") or ("host" if self.accel == "kvm" else _TCG_CPU)),
            *("-kernel", str(self.kernel.image), "-initrd", str(initrd)),
            *("-append", " ".join([*_KERNEL_OPTIONS, *(_TCG_KERNEL_OPTIONS if self.accel == "tcg" else ())])),
            *("-chardev", f"file,id=console,path={option_value(console)}", "-serial", "chardev:console"),
            *("-chardev", f"socket,id=qmp,fd={fds.get(_QMP, '')}", "-mon", "chardev=qmp,mode=control"),
            *("-device", "virtio-serial-pci,max_ports=8"),
            *(part for name in channel.PORTS for part in port(name)),
            *share(channel.ROOT_TAG, "/", ",readonly=on"),
            *share(channel.RUN_TAG, run_dir, ""),
            *extra,
        ]

    def _launch(self, extra: Sequence[str], initrd: Path | None = None) -> None:
        if self.run_dir is not None:
            self.run_dir.mkdir(parents=True, exist_ok=True)
        if not self._cleanup.alive:  # it was closed, and is started again
            self._own_scratch()
        remove_left(self._scratch.parent, _SCRATCH + "?" * 16)
        try:
            self._hold_modules()
        except FileNotFoundError:  # others have built drivers since, and this one has gone
            self._prepare()
            self._hold_modules()
        pairs = {name: socket.socketpair() for name in (*channel.PORTS, _QMP)}
        near_ends = {name: near for name, (near, _) in pairs.items()}
        far_ends = {name: far for name, (_, far) in pairs.items()}
        lifeline_read, self._lifeline = os.pipe()
        fds = {name: far.fileno() for name, far in far_ends.items()}
        command = self._command(
            extra,
            fds,
            initrd or self._initramfs,
            str(self.console.path),
            str(self.run_dir or self._scratch / _NO_RUN_DIR),
        )
        try:
            self._log = tempfile.TemporaryFile()  # noqa: SIM115  # closed by _stop(); has no name to be left
            self._keeper = subprocess.Popen(
                [str(resource("vm/bin/sampleblk-keep")), str(lifeline_read), str(self._scratch), *command],
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                pass_fds=[*fds.values(), lifeline_read],
            )
        finally:
            os.close(lifeline_read)
            for far in far_ends.values():
                far.close()
        self._link = channel.Link(near_ends, self._died)
        self._qmp = Qmp(near_ends[_QMP])
        self._tsc_khz()  # takes eight milliseconds, in which QEMU starts
        self._hold_scratch()

    def _begin(self, end: float, *, rehearse: bool = False) -> None:
        word = channel.begin(
            rehearse=rehearse,
            clock_ns=time.time_ns(),
            entropy=os.urandom(64),
            hostname=_HOSTNAME,
            modules=str(self._modules.resolve()) if self._modules is not None else None,
            run_dir=str(self.run_dir) if self.run_dir is not None else None,
        )
        assert self._link is not None
        self._hold_scratch()
        self._link.send(word)
        self._check_clock(self._await(channel.Begun, end).tsc_khz)

    def _hold_scratch(self) -> None:
        """Beside the keeper, which ends with QEMU: what the guest has said is read after that."""
        with contextlib.suppress(FileNotFoundError):  # the keeper has not made it yet
            if not self._scratch_held:
                self._scratch_held.append(hold(self._scratch))

    def _own_scratch(self) -> None:
        """This process removes it, at the latest at its end; a fork of it does not."""
        self._process = os.getpid()
        self._scratch_held: list[int] = []
        self._cleanup = weakref.finalize(self, _remove_scratch, self._process, self._scratch, self._scratch_held)

    def _stop(self, *, for_good: bool = False) -> None:
        if self._lifeline >= 0:
            # The scratch folder is still ours after a stop; at the end the keeper removes it, should we be killed here.
            word = b"e" if for_good and os.getpid() == self._process else b"s"
            with contextlib.suppress(BrokenPipeError):
                os.write(self._lifeline, word)  # not only closed: a fork of ours may have it open
            os.close(self._lifeline)
            self._lifeline = -1
        if self._keeper is not None:
            self._keeper.wait()
            self._keeper = None
        if self._log is not None:
            self._log.close()
            self._log = None
        if self._link is not None:
            self._link.close()
            self._link = self._qmp = None
        while self._held:
            os.close(self._held.pop())

    # --- talk -------------------------------------------------------------------------------------------------

    def _await(self, kind: type[_M], end: float, where: Callable[[], str] | None = None) -> _M:
        """Waits for a message; what does not come in time is told with where the guest is."""
        assert self._link is not None
        where = where or self._where
        with selectors.DefaultSelector() as selector:
            selector.register(self._link.sockets[channel.CONTROL], selectors.EVENT_READ)
            while True:
                left = end - time.monotonic()
                if left <= 0:
                    raise BootTimeoutError("the guest did not become ready in time", where())
                if reason := self._hopeless():
                    raise BootError(reason, where())
                if not selector.select(min(left, 1.0)):
                    continue
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
            assert self._log is not None
            self._log.seek(0)
            log = self._log.read().decode(errors="replace").strip()
        tail = self.console.tail()
        if words := self.console.last_words():
            return BootError(words, tail)
        if self.console.has_panic():
            # What it panicked of may have a stack of its own, before the panic's.
            return GuestPanicError(f"the guest's kernel panicked ({self.kernel.release})", self.console.tail(120))
        if log:
            # As QEMU 10 rarely does where it emulates two CPUs (iotlb_to_section()).
            others = GuestLostError if self._runs.locked() else BootError
            kind = QemuAbortError if re.search(r": Assertion `.*' failed", log) else others
            return kind(f"QEMU ended: {log}", tail)
        killed = "; it was killed, as the kernel does where memory is short" if self._ended_by_sigkill() else ""
        return GuestLostError(f"the virtual machine ended unexpectedly ({self.kernel.release}){killed}", tail)

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
        grace_s: float | None = None,
        parks: bool = False,
    ) -> Completed:
        """Runs one command in the guest and waits for it.

        Args:
            argv: The command; a name without a slash is looked up in the environment's PATH.
            stdin: Bytes for its standard input, or a descriptor to read them from until its end.
            stdout: Descriptor that gets its standard output; None collects it in the result.
            stderr: The same for standard error.
            cwd: Its working directory; None: ours. Its umask is ours too.
            env: Its environment; None: ours. Its PATH gains the system's folders that it lacks, and ``DM_DISABLE_UDEV``
                is 1 unless it is given: no udevd runs in the guest.
            timeout: Seconds until the VM is killed for it.
            window: (rows, columns): the command gets a terminal of that size instead of pipes.
            forward_signals: Signals that, when this process gets them meanwhile, go to the command instead; SIGWINCH
                becomes the new size of its terminal. Only from the main thread.
            grace_s: Ctrl-C is the command's, too: it has that many seconds to end as it likes, and nothing is raised
                here until they are over, or Ctrl-C comes again; the result's ``interrupted`` is True.
            parks: In a machine of :meth:`start_image`, the command stops itself (SIGSTOP) once nothing of the guest's
                root is in use, and can be saved then: the result's ``has_parked`` is True.

        Returns:
            The exit status (minus the signal number, if one ended it) and what was collected.

        A command that is cut short by an exception here, such as that of Ctrl-C, is ended: interrupted, then killed; at
        once, where Ctrl-C comes again. Where it does not end so, the VM does.

        Raises:
            InputError: The command, its environment or a time is none.
            CommandError: It could not be started.
            DeadlineError: `timeout` ran out; the VM is gone. Its text has the stacks of what hung in the kernel.
            GuestPanicError, GuestLostError: The VM ended under it.
        """
        if self._link is None:
            raise VMError("the virtual machine is not running")
        if timeout is not None:
            checked.seconds("timeout", timeout, none=True)
        if grace_s is not None:
            checked.seconds("grace_s", grace_s)
        environment = dict(os.environ if env is None else env)
        # The command is root's, whoever started it: an ordinary user's PATH has no modprobe.
        environment["PATH"] = search_path(environment.get("PATH", ""))
        # libdevmapper leaves the names in /dev/mapper to udevd, which no guest has, unless it is told so (dmsetup(8)).
        environment.setdefault("DM_DISABLE_UDEV", "1")
        frame = channel.execute(*_command_of(argv, environment, cwd), umask(), window, parks=parks)
        transfer = Transfer(self._link, stdin, stdout, stderr)
        return self._carry(list(argv), frame, transfer, timeout, forward_signals, grace_s)

    def resume(
        self,
        *,
        stdin: int | bytes = b"",
        stdout: int | None = None,
        stderr: int | None = None,
        timeout_s: float | None = None,
        forward_signals: Sequence[int] = (),
    ) -> Completed:
        """As :meth:`run`, with the command that the machine was saved with (:meth:`cloned_from`), which goes on."""
        if self._link is None:
            raise VMError("the virtual machine is not running")
        transfer = Transfer(self._link, stdin, stdout, stderr)
        return self._carry([], channel.resume(), transfer, timeout_s, forward_signals, None)

    def _carry(
        self,
        argv: list[str | os.PathLike[str]],
        frame: bytes,
        transfer: Transfer,
        timeout: float | None,
        forward_signals: Sequence[int],
        grace_s: float | None,
    ) -> Completed:
        """Has the guest do what a frame says, and carries the streams of its command until that has ended."""
        assert self._link is not None
        interrupted = False
        if not self._runs.acquire(blocking=False):
            raise VMError("the virtual machine runs another command, and one at a time")
        try:
            with Signals(forward_signals) as signals:
                self._link.send(frame)
                transfer.run(None if timeout is None else time.monotonic() + timeout, signals)
        except TimeoutError:
            printed = self._monitor(registers.COMMAND)
            stacks, symbols = self._stacks()
            self._stop()
            registers_then = self._registers(printed, symbols)
            self.console.append(registers_then)  # whoever has that file only is to see them too
            stacks = f"{stacks}\n{registers_then}"
            why = "was given up" if timeout is None else f"ran past its deadline of {timeout} s"
            late = DeadlineError(f"the command {why}", stacks)
            late.stdout, late.stderr = transfer.collected()
            raise late from None
        except VMError as error:
            error.stdout, error.stderr = transfer.collected()
            raise
        except BaseException as error:
            its_own = isinstance(error, KeyboardInterrupt) and grace_s is not None
            if not transfer.is_over:
                self._cut_short(transfer, grace_s if its_own else None)
            if not (its_own and transfer.is_whole):
                raise
            interrupted = True
        finally:
            self._runs.release()
        done = Completed(argv, transfer.status(), *transfer.collected())
        done.interrupted, done.has_parked = interrupted, transfer.has_parked
        return done

    def _cut_short(self, transfer: Transfer, grace_s: float | None) -> None:
        """Ends the command that runs, for the next one not to be answered by what is left of it.

        Args:
            transfer: Its streams.
            grace_s: How long it has, once it is interrupted, while what it says is still passed on; None: as long as
                most need, and nothing is.
        """
        assert self._link is not None
        interrupted_s = _INTERRUPTED_S if grace_s is None else grace_s
        # Ctrl-C once more does not wait for the command's own end, and a third time for none.
        steps = (
            ((signal.SIGINT,), interrupted_s, (KeyboardInterrupt,)),
            ((signal.SIGHUP, signal.SIGKILL), _KILLED_S, ()),
        )
        try:
            for numbers, wait_s, impatient in steps:
                for number in numbers:
                    self._link.send(channel.signal_frame(number))
                with contextlib.suppress(TimeoutError, *impatient):
                    transfer.finish(time.monotonic() + wait_s, discard=grace_s is None)
                    return
                grace_s = None
            self._stop()
        except VMError:
            self._stop()
        except BaseException:
            self._stop()
            raise

    def _monitor(self, *commands: str) -> str:
        """What QEMU's monitor says to commands for people, one after the other; as far as it answers."""
        assert self._qmp is not None
        end = time.monotonic() + ANSWER_S
        said = ""
        with contextlib.suppress(VMError, OSError, ValueError):
            for command in commands:
                said += self._qmp.execute("human-monitor-command", end, **{"command-line": command})
        return said

    def _registers(self, printed: str, symbols: registers.Symbols | None = None) -> str:
        """Where the CPUs were when the monitor printed that."""
        shown = registers.shown(printed, symbols or registers.symbols_of(self.kernel)) if printed else ""
        return f"--- registers of the CPUs ---\n{shown}" if shown else "(QEMU's monitor does not answer)"

    def _where(self) -> str:
        """Where a guest that does not boot is: the console's end, the CPUs, and the stacks if its kernel gives them."""
        tail, before = self.console.tail(), self.console.size()
        shown = self._registers(self._monitor(registers.COMMAND))
        self._ask_by_keyboard()
        return "\n".join(filter(None, (tail, self.console.text(before).strip(), shown)))

    def _ask_by_keyboard(self) -> None:
        """Has the kernel print what tasks wait for and where the CPUs are, and waits for it to have, if it does."""
        before = self.console.size()
        # Documentation/admin-guide/sysrq.rst: all that is printed goes to the console, blocked tasks, every CPU.
        self._monitor(*(f"sendkey alt-sysrq-{key}" for key in "8wl"))
        end = time.monotonic() + _KEYBOARD_S
        while (size := self.console.size()) == before and time.monotonic() < end:
            time.sleep(0.05)
        while size > before and time.monotonic() < end:
            time.sleep(0.5)
            if self.console.size() == size:
                break
            size = self.console.size()

    def _stacks(self) -> tuple[str, registers.Symbols | None]:
        """What the guest's tasks wait for, where its CPUs are, and which requests it has in flight.

        Its kernel and our init print it, after the console's end; where init does not, it is read from outside.
        With the names of the kernel's functions, if these had to be found out.
        """
        assert self._link is not None
        assert self._qmp is not None
        before = self.console.size()
        tail = self.console.tail(20)
        rest, symbols = "", None
        try:
            self._link.send(channel.stacks())
            self._await(channel.Printed, time.monotonic() + _STACKS_S, str)
        except VMError:
            self._ask_by_keyboard()
            rest = f"(the guest did not print all that it was asked for within {_STACKS_S:g} s)\n"
            if not self._is_twin:  # a twin that hangs, too, has none
                twin = VM(**self._shape())
                twin._is_twin = True
                read, symbols = outside.report(self._qmp, twin)
                rest += read
        return "\n".join(filter(None, (tail, self.console.text(before).strip(), rest))), symbols

    def call(self, function: Callable[_P, _T], /, *args: _P.args, **keywords: _P.kwargs) -> _T:
        """Runs a function in the guest, as root, and returns its value.

        The function goes there by value, with what it refers to, and its modules are found where they are here; its
        value comes back the same way (by cloudpickle). Each call is a Python process of its own. What the function
        prints goes to our standard error.

        Args:
            function: Any function, also of a notebook or a lambda.
            args: Its arguments.
            keywords: Its keyword arguments.

        Raises:
            Exception: What the function raised; its cause has the guest's traceback.
            CallError: Its process ended without a value, or what it raised cannot be brought here.
            GuestPanicError, GuestLostError: The VM ended under it.

        Example:
            >>> with lab.vm.VM(kernel="6.12") as vm:
            ...     vm.call(os.uname).release
        """
        from sampleblk_lab.vm.calls import call

        value: _T = call(self, function, args, keywords)
        return value

    def bpftrace(self, script: str | os.PathLike[str], command: Sequence[str], **options: Any) -> BpfOutput:
        """Runs a command in the guest beside a bpftrace script, which is the host's bpftrace on the guest's kernel.

        Args:
            script: Its text, its path, or its name; see :func:`sampleblk_lab.bpf`.
            command: The program and its arguments.
            options: Those of :func:`sampleblk_lab.bpf`; and ``cwd``, where the command runs.

        Raises:
            subprocess.CalledProcessError: The command failed; its ``output`` is what the script found.
            UnsupportedError: bpftrace is not installed, or the guest's kernel lacks what the script needs.
        """
        from sampleblk_lab.bpftrace.recording import run_command

        command = checked.command(command)
        found, status = self.call(run_command, script, command, **options)
        _raise_failed(status, command, found)
        return found

    def bcc(self, tool: str, args: Sequence[str], command: Sequence[str], *, cwd: str | None = None) -> BccOutput:
        """Runs a command in the guest beside a tool of bcc's, which is the host's.

        Args:
            tool: Its name; see :func:`sampleblk_lab.bcc`.
            args: Its arguments.
            command: The program and its arguments.
            cwd: Where the command runs.

        Raises:
            subprocess.CalledProcessError: The command failed; its ``output`` is what the tool printed.
            UnsupportedError: The tool is not installed, or the guest's kernel lacks what it probes.
        """
        from sampleblk_lab.bpftrace.tool import run_beside_tool

        command = checked.command(command)
        found, status = self.call(run_beside_tool, tool, command, args=checked.several("args", args), cwd=cwd)
        _raise_failed(status, command, found)
        return found


def _command_of(
    argv: Sequence[str | os.PathLike[str]], env: Mapping[str, str], cwd: str | os.PathLike[str] | None
) -> tuple[list[bytes], dict[bytes, bytes], bytes]:
    """What the guest is sent of a command. Raises InputError for what would be another one there."""
    if isinstance(argv, (str, bytes)):
        raise InputError(f"the command {argv!r} is one text", expected="a list: the program, then each argument")
    for name in env:
        if "=" in name:
            raise InputError(f"the environment has a variable {name!r}", expected="a name without '='")
    words = [os.fsencode(arg) for arg in argv]
    variables = {os.fsencode(name): os.fsencode(value) for name, value in env.items()}
    folder = os.fsencode(cwd or Path.cwd())
    for word in (*words, *variables, *variables.values(), folder):
        if b"\0" in word:
            raise InputError(f"{os.fsdecode(word)!r} has a null byte", expected="text that a command can be given")
    return words, variables, folder


def _raise_failed(status: int, command: Sequence[str], found: Any) -> None:
    if status != 0:
        raise subprocess.CalledProcessError(status, list(command), found)


# What a guest that boots under KVM never comes near, of its QEMU's processor time or of ours.
_PROBE_CPU_S = 4.0
_PROBE_DEADLINE_S = 30.0


def _probe_kvm(kernel: Kernel) -> Verdict:
    """Boots a guest under KVM and runs a command in it.

    Some machines run a guest for ever without its getting anywhere. The processor time that QEMU has used tells that
    from a machine too busy to run it.
    """
    with contextlib.closing(VM(kernel=kernel, warm=False, accel="kvm", driver=False, cpus=1)) as vm:

        def hung() -> str:
            used = vm.cpu_time_s()
            return f"the guest used {used:.1f} s of processor time and did not start" if used > _PROBE_CPU_S else ""

        try:
            vm.start(_PROBE_DEADLINE_S, hopeless=hung)
            status = vm.run(["/bin/true"], timeout=_PROBE_DEADLINE_S).returncode
        except VMError as error:
            return Verdict("tcg", error.message.splitlines()[0], final=not isinstance(error, TimeoutError))
    return Verdict("kvm", "a guest boots") if status == 0 else Verdict("tcg", f"/bin/true ended with {status}")
