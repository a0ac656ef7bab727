# SPDX-License-Identifier: MIT
"""How a VM can fail. Each has the end of the guest's console, and the exit status that the commands end with."""

from __future__ import annotations

from sampleblk_lab.errors import SampleblkError


class VMError(SampleblkError, RuntimeError):
    """A virtual machine failed.

    Attributes:
        console: The end of the guest's console log.
        exit_status: What ``sampleblk-python`` and ``sampleblk-lab vm`` exit with for it.
        stdout: What the command under which it failed had written until then; None: it went to a descriptor.
        stderr: The same of standard error.
    """

    exit_status = 122
    stdout: bytes | None = None
    stderr: bytes | None = None

    def __init__(self, message: str, console: str = "") -> None:
        tail = f"\n--- end of the guest's console ---\n{console.rstrip()}" if console.strip() else ""
        super().__init__(message + tail)
        self.message = message
        self.console = console

    def because(self, reason: str) -> VMError:
        """The same error with a sentence more; itself when there is none."""
        return type(self)(f"{self.message}; {reason}", self.console) if reason else self


class GuestLostError(VMError):
    """QEMU ended under a running command without a panic on the console. Exit status 122."""

    exit_status = 122


class GuestPanicError(VMError):
    """The guest's kernel panicked or oopsed. Exit status 123."""

    exit_status = 123


class DeadlineError(VMError, TimeoutError):
    """A command, or a boot, took longer than its deadline, and the VM was killed. Exit status 124."""

    exit_status = 124


class BootError(VMError):
    """The VM could not be started, or never became ready. Exit status 125."""

    exit_status = 125


class BootTimeoutError(BootError, TimeoutError):
    """The VM did not become ready within its deadline. Exit status 125."""


class QemuAbortError(BootError):
    """QEMU ended by an assertion of its own, for the second time if it was a boot. Exit status 125."""


class WrongClockError(BootError):
    """The guest's clock has not the host's rate, for the second time. Exit status 125."""


# Below the root a VM has these folders of its own; all others are the host's.
OWN_FOLDERS = ("dev", "proc", "run", "sys")


class CommandError(VMError):
    """The guest is well but the command could not be started in it. Exit status 126, or 127 when it was not found."""

    exit_status = 126

    def __init__(self, message: str, code: int = 0) -> None:
        super().__init__(message)
        self.code = code
        if code == 2:  # ENOENT
            self.exit_status = 127


class RemoteTraceback(Exception):  # noqa: N818  # the cause of an exception, never raised
    """Where in the guest an exception was raised; the cause of the exception that :meth:`VM.call` raises."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f"\n\n{self.text}"


class CallError(VMError):
    """A function that ran in a VM gave no value: it ended its process, or what it gave cannot be brought here."""

    exit_status = 1
