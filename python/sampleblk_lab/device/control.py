# SPDX-License-Identifier: MIT
"""The open control device of this process, and the loading of the driver behind it."""

from __future__ import annotations

import os
import subprocess
import threading

from sampleblk_lab import leftovers
from sampleblk_lab._native import core
from sampleblk_lab.errors import InputError, UnsupportedError
from sampleblk_lab.leftovers import CONTROL_PATH
from sampleblk_lab.paths import IN_VM, find_program


class Opened:
    """What of a device goes through the control device, by its number: which another one has when this one is gone."""

    index: int
    _driver: core.DeviceControl
    _open = False

    def _check_open(self) -> None:
        """Raises InputError: it was closed, or let go of."""
        if not self._open:
            raise InputError(f"/dev/sampleblk{self.index} was closed", expected="a device that is open")

    @property
    def _control(self) -> core.DeviceControl:
        self._check_open()
        return self._driver


_lock = threading.Lock()
_control: core.DeviceControl | None = None
_users = 0
_loaded_here = False

_REMEDY = (
    "run this in the VM (`sampleblk-python`, or plain `pytest`), or build the driver for this kernel "
    "(`make -C module dkms-install`) and run as root"
)


def _load() -> None:
    """Loads the driver through modprobe, without the device that a bare modprobe makes."""
    try:
        done = subprocess.run(
            [find_program("modprobe") or "modprobe", "sampleblk", "devices=0"],
            capture_output=True,
            errors="backslashreplace",
            check=False,
            timeout=60,
        )
    except FileNotFoundError:
        raise UnsupportedError(
            "the sampleblk driver", "it is not loaded and there is no modprobe", "install the Debian package kmod"
        ) from None
    if done.returncode != 0:
        raise UnsupportedError("the sampleblk driver", f"it is not loaded and {done.stderr.strip()}", _REMEDY)
    if not CONTROL_PATH.exists():
        raise UnsupportedError(
            "the sampleblk driver", f"it is loaded, but there is no {CONTROL_PATH}", "mount devtmpfs"
        )


def _open() -> core.DeviceControl:
    try:
        return core.DeviceControl(str(CONTROL_PATH))
    except PermissionError as error:
        raise UnsupportedError("the sampleblk driver", str(error), "run as root") from error


def acquire() -> core.DeviceControl:
    """The control device, with the driver loaded first where it is not. Each call needs its :func:`release`.

    Raises:
        UnsupportedError: The driver cannot be loaded or used; says how it could.
    """
    global _control, _users, _loaded_here
    with _lock:
        if _control is None:
            leftovers.clean()
            if not CONTROL_PATH.exists():
                _load()
                _loaded_here = True
                leftovers.note("module", "sampleblk")
            _control = _open()
        _users += 1
        return _control


def release() -> None:
    """Undoes one :func:`acquire`; the last unloads the driver if we loaded it and nobody else has come to use it.

    In a VM of ours it stays: to load it again takes longer than most tests, and the machine is thrown away.
    """
    global _control, _users, _loaded_here
    with _lock:
        _users -= 1
        if _users > 0 or _control is None:
            return
        others = _control.list()
        _control.close()  # or the module would be in use by us
        _control = None
        if _loaded_here:
            _loaded_here = False
            if not others and IN_VM not in os.environ:
                # Someone may have come between: then the kernel refuses, as it should.
                leftovers.unload()
            leftovers.drop("module", "sampleblk")
