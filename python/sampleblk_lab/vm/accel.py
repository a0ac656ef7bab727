# SPDX-License-Identifier: MIT
"""KVM is tried, not trusted: a /dev/kvm that opens and answers can still hang every guest."""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
from typing import TYPE_CHECKING

from sampleblk_lab.paths import cache_root, locked, write_atomically
from sampleblk_lab.progress import step

if TYPE_CHECKING:
    from sampleblk_lab.kernels import Kernel
    from sampleblk_lab.vm.qemu import Qemu

# A KVM guest is ready in well under a second.
_PROBE_DEADLINE_S = 15.0


def choose(qemu: Qemu, kernel: Kernel) -> str:
    """``"kvm"`` where a guest has been seen to boot with it, else ``"tcg"``.

    The verdict is cached for each QEMU and host kernel; ``$SAMPLEBLK_ACCEL`` overrides it.
    """
    override = os.environ.get("SAMPLEBLK_ACCEL")
    if override:
        return override
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return "tcg"
    key = hashlib.sha256(f"{qemu.identity} {platform.release()} {platform.version()}".encode()).hexdigest()[:16]
    verdict = cache_root() / "kvm" / key
    with locked(verdict):
        if not verdict.exists():
            with step("trying KVM"):
                write_atomically(verdict, b"kvm" if _boots(kernel) else b"tcg")
    return verdict.read_text()


def _boots(kernel: Kernel) -> bool:
    from sampleblk_lab.vm.errors import VMError
    from sampleblk_lab.vm.machine import VM

    with (
        contextlib.suppress(VMError),
        contextlib.closing(VM(kernel=kernel, warm=False, accel="kvm", driver=False)) as vm,
    ):
        vm.start(_PROBE_DEADLINE_S)
        return vm.run(["/bin/true"], timeout=_PROBE_DEADLINE_S).returncode == 0
    return False
